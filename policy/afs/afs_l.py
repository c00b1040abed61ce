"""AFS-L: Apathetic Future Share with known job lengths (AFS §3.3, Algorithm 1).

Stage one: every job gets its smallest gang, in the order of the remaining time that it would then have, until GPUs
run out. Stage two: step by step, the next GPUs go to the job with the top priority by comparison (3), see
`priority.py`. A job whose throughput no longer grows takes no more, and GPUs that help nobody stay idle.

Where the paper is silent:

- Ties, of lengths and of the two sides of (3): earliest submitted, then name. `tie=shorter` gives equal sides to the
  shorter job, as line 12 of Algorithm 1 does; with linear scaling sides tie all the time.
- A job without GPUs comes before every job that has some, as the text on stage one says. (3) says the same for every
  job that scales worse than linearly; at exactly linear scaling it ties.
- Gangs: a step may be several GPUs (a smallest gang above one, a list of allowed sizes); both sides of (3) are then
  taken per GPU of the step. A smallest gang that does not fit is skipped.
- GPU types: with its first step a job is bound to one type, the one where it would end first among those with room.
- Unknown lengths (`unknown=longest`, the default): such a job counts as longer than every other; `unknown=refuse`
  makes them an error that names AFS-P, which needs no lengths.
- Unknown speed: linear scaling is assumed, up to the job's fair share of the GPUs, one in so many jobs (§4.5), and
  beyond it only with what nobody else can use.
- `span=best` counts the slowdown S of the narrowest span that a gang needs when steps are compared; the paper's
  algorithm looks at the throughput table alone.
- `network_packing` applies §4.4 and Appendix E to the shares, see `packing.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from math import inf
from typing import Any

from policy.afs.packing import pack
from policy.afs.priority import Leaders
from policy.contract import Context
from policy.model import BadInput, Job, Proposal, Snapshot
from policy.parts.assign import assign, explain, wants
from policy.parts.pools import Counted, Pools, Step
from policy.parts.standing import beside_known


@beside_known
def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """One AFS-L round."""
    jobs, pools, sated = _shared(snapshot, options, context)
    packed = options["network_packing"]
    if packed:
        pack(snapshot, jobs, pools)
    placed = assign(snapshot, wants(pools), jobs, context, fewest_nodes=packed, fill=not packed)
    unknown = sum(j.work_left is None for j in jobs)
    notes = (f"{unknown} jobs of unknown length count as the longest",) if unknown else ()
    reasons = explain(snapshot, jobs, sated, placed, context)
    return Proposal(allocation=placed.placer.taken, reasons=reasons, notes=notes)


def counted(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Counted:
    """The sizes alone, for a cluster of one pool, where a place for them is no question (not with
    `network_packing`)."""
    return Counted(_shared(snapshot, options, context)[1].count)


def _shared(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> tuple[list[Job], Pools, set[str]]:
    jobs = sorted((j for j in snapshot.jobs if j.work.left != 0), key=lambda j: j.order)
    unknown = [j for j in jobs if j.work_left is None]
    if unknown and options["unknown"] == "refuse":
        raise BadInput(
            f"{len(unknown)} jobs have no known length, {unknown[0].name!r} the first",
            field="work.total",
            remedy="state work.total, use afs-p, or set unknown=longest",
        )
    pools = Pools(snapshot, context.speeds, widest=options["span"] == "best", mixed=not options["network_packing"])
    return jobs, pools, share(jobs, pools, shorter=options["tie"] == "shorter")


def share(jobs: list[Job], pools: Pools, *, shorter: bool = False) -> set[str]:
    """Algorithm 1 over `pools`, `jobs` in the order of ties. Returns the jobs that more would not make faster."""
    fair = max(pools.left // max(len(jobs), 1), 1)
    _stage_one(jobs, pools)
    held = [j for j in jobs if pools.count.get(j.name)]
    sated = stage_two(held, pools, fair, shorter=shorter)
    unmeasured = [j for j in held if not j.throughput]
    return sated | even(unmeasured, pools)  # nobody else wants what is left


def even(jobs: list[Job], pools: Pools) -> set[str]:
    """Max-min in GPUs up to the size where a job is fastest."""
    sated: set[str] = set()
    heap: list[tuple[int, tuple[float, str], int, Step]] = []

    def push(n: int) -> None:
        step = pools.next_step(jobs[n])
        if step is None:
            sated.add(jobs[n].name)
        else:
            heapq.heappush(heap, (pools.count[jobs[n].name], jobs[n].order, n, step))

    for n in range(len(jobs)):
        push(n)
    while heap and not pools.empty:
        *_, n, step = heapq.heappop(heap)
        if pools.fits(jobs[n], step):
            pools.give(jobs[n], step)
            push(n)
    return sated


def length(job: Job, pools: Pools, step: Step) -> float:
    """Remaining time at a size; infinite where nobody knows."""
    if job.work_left is None or not job.throughput:
        return inf
    return job.work_left / pools.rate(job, step.gpu_type, step.gpus)


def _stage_one(jobs: list[Job], pools: Pools) -> None:
    queue: list[tuple[float, int, Step]] = []
    for n, job in enumerate(jobs):
        step = pools.first_step(job)
        if step is not None:
            queue.append((length(job, pools, step), n, step))
    heapq.heapify(queue)
    while queue and not pools.empty:
        _, n, step = heapq.heappop(queue)
        job = jobs[n]
        if pools.fits(job, step):
            pools.give(job, step)
            continue
        other = pools.first_step(job)  # its best type may have filled up since
        if other is not None and pools.fits(job, other):
            heapq.heappush(queue, (length(job, pools, other), n, other))


def stage_two(
    jobs: list[Job], pools: Pools, fair: int | None = None, *, shorter: bool = False, blind: bool = False
) -> set[str]:
    """Steps by comparison (3) until nothing fits or helps; `jobs` have their smallest gangs, in the order of ties.

    `fair`: most GPUs of a job without a throughput table (None: no limit). `blind`: lengths are nobody's business, all
    count as equal, so that (3) is asked one way for the leader and the other way for its challenger (AFS-P). Returns
    the jobs that more GPUs would not make faster.
    """
    sated: set[str] = set()
    steps: list[Step | None] = []
    ups: list[float] = []
    downs: list[float] = []
    lengths: list[float] = []
    for job in jobs:
        step = _next(job, pools, fair, sated)
        up, down, long = _sides(job, pools, step, blind)
        steps.append(step)
        ups.append(up)
        downs.append(down)
        lengths.append(long)
    leaders = Leaders(ups, downs, lengths, shorter)
    while (top := leaders.top) is not None and not pools.empty:
        step = steps[top]
        job = jobs[top]
        if step is None or not pools.fits(job, step):
            leaders.leave()
            continue
        pools.give(job, step)
        steps[top] = step = _next(job, pools, fair, sated)
        if step is None:
            leaders.leave()
        else:
            leaders.change(*_sides(job, pools, step, blind))
    return sated


def _next(job: Job, pools: Pools, fair: int | None, sated: set[str]) -> Step | None:
    step = pools.next_step(job)
    if step is None:
        if job.gpus.above(pools.count[job.name]) is not None:
            sated.add(job.name)
        return None
    return step if job.throughput or fair is None or step.gpus <= fair else None


def _sides(job: Job, pools: Pools, step: Step | None, blind: bool) -> tuple[float, float, float]:
    """(3)'s left and right side for the job, per GPU of its next step, and its length now."""
    if step is None:
        return -inf, -inf, inf
    has = pools.count[job.name]
    now, then = pools.rate(job, step.gpu_type, has), pools.rate(job, step.gpu_type, step.gpus)
    gain = (then - now) / step.add
    left = job.work_left
    return gain / then, gain / now, inf if blind or left is None or not job.throughput else left / now
