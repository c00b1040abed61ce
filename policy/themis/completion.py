"""The end of a round: every gang is one that can be, and nothing is idle that somebody could use (§3.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.contract import Context
from policy.model import Allocation, Gpus, Job, JobName
from policy.parts.reasons import left_over
from policy.places.filling import fill
from policy.places.placement import Placer

if TYPE_CHECKING:
    from policy.themis.round import Round


def complete(this: Round, ranking: Sequence[str], context: Context) -> None:
    """Settle the gangs of `this` on the nodes. `ranking`: apps, the worst off first."""
    _settle(this, ranking, context)
    _fill(this, ranking, context)


def _settle(this: Round, ranking: Sequence[str], context: Context) -> None:
    """A gang that cannot be stays as it is, or waits: apps share GPUs that are theirs without a look at what only a job
    knows. (A tenant above a limit that was learnt later may stay as it is, and do nothing else; memory is each job's.)
    """
    placer = Placer(this.snapshot, context.speeds)
    place = {app: i for i, app in enumerate(ranking)}
    jobs = [j for j in this.snapshot.jobs if this.gangs.get(j.name)]
    for job in sorted(jobs, key=lambda j: (this.gangs[j.name] != j.allocation, place[j.app], j.order)):
        try:
            placer.take(job, this.gangs[job.name])
        except ValueError:
            stay = placer.keep(job) or {}
            placer.take(job, stay)
            _change(this, job, stay)


def _fill(this: Round, ranking: Sequence[str], context: Context) -> None:
    """What no app's own schedule used goes job by job, the worst-off app's first, within what apps say they can use."""
    placer = left_over(this.snapshot, this.gangs, context.speeds)
    place = {app: i for i, app in enumerate(ranking)}
    jobs = sorted((j for j in this.snapshot.jobs if j.app in place), key=lambda j: (place[j.app], j.order))
    gangs: dict[str, list[JobName]] = {}
    for job in jobs:
        gangs.setdefault(job.app, []).append(job.name)

    def may(job: Job, size: Gpus) -> bool:
        most = this.standings[job.app].agent.value.most
        others = sum(sum(placer.taken.get(n, {}).values()) for n in gangs[job.app] if n != job.name)
        return most is None or others + size <= most

    for name in fill(placer, jobs, may=may):
        _change(this, next(j for j in jobs if j.name == name), placer.taken[name])


def _change(this: Round, job: Job, now: Allocation) -> None:
    """The job's gang is another; its app's GPUs with it."""
    before = this.gangs.get(job.name, {})
    this.gangs[job.name] = now
    for into in (this.leftover.setdefault(job.app, {}), this.bundles.setdefault(job.app, {})):
        for node in {*before, *now}:
            into[node] = into.get(node, 0) + now.get(node, 0) - before.get(node, 0)
    this.bundles[job.app] = {n: g for n, g in this.bundles[job.app].items() if g > 0}
