"""Max-min fairness: elastic water-filling. Whoever has least, by weight, gets the next GPUs.

Over tenants (default): the tenant whose GPUs by weight are fewest is next, within it the job that has fewest. Over
jobs (`over=job`, as AFS §5.1 compares with it): all jobs are equals, each with its tenant's weight. A job takes whole
steps of its gang's sizes, never more than it can use or than makes it faster; a gang that does not fit is skipped.
Ties: earliest submitted, then name.

The result is max-min fair in steps: nobody could get one more step except from somebody who, without their last step,
would have less by weight than the other has now.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from policy.contract import Context
from policy.model import Job, Proposal, Snapshot
from policy.parts.assign import assign, explain, wants
from policy.parts.pools import Counted, Pools
from policy.parts.standing import beside_known


@beside_known
def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """One max-min round."""
    pools = Pools(snapshot, context.speeds)
    jobs = sorted((j for j in snapshot.jobs if j.work.left != 0), key=lambda j: j.order)
    helped = fill(snapshot, jobs, pools, over=options["over"])
    placed = assign(snapshot, wants(pools), jobs, context)
    return Proposal(allocation=placed.placer.taken, reasons=explain(snapshot, jobs, helped, placed, context))


def counted(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Counted:
    """The sizes alone, for a cluster of one pool, where a place for them is no question."""
    pools = Pools(snapshot, context.speeds)
    fill(
        snapshot, sorted((j for j in snapshot.jobs if j.work.left != 0), key=lambda j: j.order), pools, options["over"]
    )
    return Counted(pools.count)


def fill(snapshot: Snapshot, jobs: list[Job], pools: Pools, over: str) -> set[str]:
    """Water-filling of `pools` over `jobs` (in tie order). Returns the jobs that more GPUs would not make faster."""
    weights = {t.name: t.weight for t in snapshot.tenants}
    holders: dict[str, list[tuple[int, int]]] = {}
    for n, job in enumerate(jobs):
        holders.setdefault(job.tenant if over == "tenant" else job.name, []).append((0, n))
    first = {holder: queue[0][1] for holder, queue in holders.items()}
    weight = {holder: weights[jobs[n].tenant] for holder, n in first.items()}
    has: dict[str, int] = dict.fromkeys(holders, 0)
    level = [(0.0, first[holder], holder) for holder in holders]
    heapq.heapify(level)
    sated: set[str] = set()
    while level:
        _, n, holder = heapq.heappop(level)
        queue = holders[holder]
        while queue:
            index = queue[0][1]
            job = jobs[index]
            step = pools.next_step(job)
            if step is None or not pools.fits(job, step):
                # Room only shrinks: a step that does not fit now never will, and further ones are larger.
                if step is None and job.gpus.above(pools.count.get(job.name, 0)) is not None:
                    sated.add(job.name)
                heapq.heappop(queue)
                continue
            pools.give(job, step)
            has[holder] += step.add
            heapq.heapreplace(queue, (step.gpus, index))
            heapq.heappush(level, (has[holder] / weight[holder], n, holder))
            break
    return sated
