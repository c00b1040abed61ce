"""What stands, stands: an answer that a policy, asked again about it, gives again.

Who places gangs beside what jobs hold gives another answer wherever they hold something else, its own answer included:
sizes are placed first and what is idle is filled after, from other nodes each time. So places are judged: what jobs
hold stays while it leaves nothing idle, unless placing anew is worth more, and what was placed anew is placed again
until that is worth no more. What is worth something depends on the places alone, never on how they came about; each
step is worth more than the one before, so it ends.

Sizes come before places, and one thing of a place is part of them: what is free beside a job that shares no node. While
such a job has no place, that is supposed (`beside_known`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from policy.contract import Context, Policy
from policy.model import EMPTY, Allocation, Gpus, JobName, Proposal, Snapshot
from policy.parts import carrying
from policy.parts.pools import ANY, Pools
from policy.places.placement import Placer
from policy.records import altered
from policy.throughput import Throughput

#: A place that is not the supposed one gives other sizes, and these may give another place: so often.
MOST_AGAIN = 4


def beside_known(policy: Policy) -> Policy:
    """`policy`, whose sizes count what is free beside a job that shares no node, with that known: where such a job is
    not placed as supposed, the policy is asked again as it would be once its answer is carried out."""

    @wraps(policy)
    def known(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
        proposal = policy(snapshot, options, context)
        if not any(job.shape is not None and job.shape.exclusive for job in snapshot.jobs):
            return proposal
        now, supposed = snapshot, _beside(snapshot, context)
        for _ in range(MOST_AGAIN):
            then = replace(applied(now, proposal.allocation), state=proposal.state)
            found = _beside(then, context)
            if found == supposed:
                break
            now, supposed = then, found
            proposal = policy(now, options, context)
        return carrying.told(snapshot, now, proposal, context.speeds)

    return known


def _beside(snapshot: Snapshot, context: Context) -> list[Gpus]:
    """GPUs beside the jobs that share no node, on each type and on any."""
    pools = Pools(snapshot, context.speeds)
    alone = [job for job in snapshot.jobs if job.shape is not None and job.shape.exclusive and job.work.left != 0]
    return [pools.beside(job, t) for job in alone for t in (ANY, *context.speeds.types(job))]


def settled(
    snapshot: Snapshot,
    speeds: Throughput,
    place: Callable[[Snapshot], Placer],
    full: Callable[[Placer], bool],
    worth: Callable[[Placer], Any],
    most: Callable[[Placer], bool],
    *,
    as_held: bool = True,
) -> Placer:
    """`place` beside what jobs hold, as often as that is worth more.

    `full`: False where somebody could use what is idle (the ledger may be changed by the question). `worth`: the
    larger, the better, by what jobs have taken alone; `most`: True where no places could be worth more, which spares
    a look. `as_held` False: what jobs hold now is out of the question.
    """
    best = _held(snapshot, speeds) if as_held else None
    if best is not None and not full(best):
        best = None
    if best is None or not most(best):
        new = place(snapshot)
        if best is None or worth(new) > worth(best):
            best = new
    while not most(best):
        then = applied(snapshot, best.taken)
        if then is snapshot:
            break  # that was asked above
        again = place(then)
        if not worth(again) > worth(best):
            break
        best = again
    return best


def _held(snapshot: Snapshot, speeds: Throughput) -> Placer | None:
    """All that jobs hold, taken again; None where some of it cannot be kept."""
    placer = Placer(snapshot, speeds)
    for job in snapshot.jobs:
        if not job.allocation or job.work.left == 0:
            placer.drop(job)
            continue
        stay = placer.keep(job)
        if stay is None:
            return None
        placer.take(job, stay, sure=True)
    return placer


def applied(snapshot: Snapshot, taken: Mapping[JobName, Allocation]) -> Snapshot:
    """As if it were carried out; the snapshot itself where it changes nothing."""
    jobs = []
    for job in snapshot.jobs:
        now = taken.get(job.name, EMPTY)
        jobs.append(job if now == job.allocation else altered(job, allocation=now))
    same = all(a is b for a, b in zip(jobs, snapshot.jobs, strict=True))
    return snapshot if same else replace(snapshot, jobs=tuple(jobs))
