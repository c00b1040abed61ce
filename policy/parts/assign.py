"""Counts by job -> named nodes for all jobs at once, moving as few jobs as possible (AFS §4.4).

First those stay that can: same count, and on as few nodes as that count needs. Then the others, larger gangs first,
each where `Placer.best` puts it beside what the job holds. Where somebody does not fit that way (fragmentation, equal
GPUs on all nodes, CPUs), everything is placed anew, larger gangs first, and the better of the two is taken. Who still
does not fit gets the next smaller size of its gang that does; what is left over then goes to jobs that wait, in the
policy's order, to jobs that got less than they were to have, and to jobs that are faster when they span GPU types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policy.contract import Context
from policy.model import Allocation, Gpus, GpuType, Job, JobName, Snapshot
from policy.parts.pools import ANY, Pools
from policy.places.filling import fill as fill_idle
from policy.places.placement import Placer


@dataclass(frozen=True, slots=True)
class Want:
    """What a job is to have: `gpus`, of one type where `gpu_type` says so."""

    gpus: Gpus
    gpu_type: GpuType | None = None


def wants(pools: Pools) -> dict[JobName, Want]:
    """What every job was given in `pools`."""
    return {name: Want(n, pools.type[name] if pools.type[name] != ANY else None) for name, n in pools.count.items()}


@dataclass(frozen=True, slots=True)
class Assignment:
    """`placer.taken` is the allocation; `short`: what jobs got that were to have more."""

    placer: Placer
    short: Mapping[JobName, Gpus]


def assign(
    snapshot: Snapshot,
    wants: Mapping[JobName, Want],
    order: Sequence[Job],
    context: Context,
    *,
    fewest_nodes: bool = False,
    fill: bool = True,
) -> Assignment:
    """Place `wants`. `order`: the policy's, for what is left over when everything is placed (not with `fill` False).

    Jobs without a want get nothing but left-over GPUs. `fewest_nodes`: a place that spreads a gang wider than it
    needs counts as not fitting.
    """
    jobs = [j for j in snapshot.jobs if wants.get(j.name, _NONE).gpus > 0]
    largest = sorted(jobs, key=lambda j: (wants[j.name].gpu_type is None, -wants[j.name].gpus, j.order))
    idle = [j for j in snapshot.jobs if wants.get(j.name, _NONE).gpus == 0]
    first = _attempt(snapshot, wants, largest, idle, context, keep=True, fewest_nodes=fewest_nodes)
    if first.short:
        second = _attempt(snapshot, wants, largest, idle, context, keep=False, fewest_nodes=fewest_nodes)
        if _missing(second, wants) < _missing(first, wants):
            first = second
    if first.short:
        _step_down(first, wants, largest, context)
    if fill and (first.short or first.placer.free() > 0):
        _use_left_over(first, wants, order, context)
    short = {
        name: sum(first.placer.taken.get(name, {}).values())
        for name, want in wants.items()
        if sum(first.placer.taken.get(name, {}).values()) < want.gpus
    }
    return Assignment(first.placer, short)


_NONE = Want(0)


@dataclass(slots=True)
class _Attempt:
    placer: Placer
    short: list[Job]


def _missing(attempt: _Attempt, wants: Mapping[JobName, Want]) -> int:
    return sum(wants[j.name].gpus for j in attempt.short)


def _attempt(
    snapshot: Snapshot,
    wants: Mapping[JobName, Want],
    largest: Sequence[Job],
    idle: Sequence[Job],
    context: Context,
    *,
    keep: bool,
    fewest_nodes: bool,
) -> _Attempt:
    placer = Placer(snapshot, context.speeds)
    for job in idle:
        placer.drop(job)
    rest: list[Job] = []
    for job in largest:
        want = wants[job.name]
        stay = placer.keep(job) if keep and job.held == want.gpus else None
        if stay is not None and _as_wanted(stay, want, placer) and len(stay) <= placer.fewest(job, want.gpus, stay):
            placer.take(job, stay)
        else:
            rest.append(job)
    short: list[Job] = []
    for job in rest:
        want = wants[job.name]
        place = placer.best(job, want.gpus, want.gpu_type)
        if place is None or (fewest_nodes and len(place) > placer.fewest(job, want.gpus, place)):
            short.append(job)
        else:
            placer.take(job, place)
    return _Attempt(placer, short)


def _as_wanted(stay: Allocation, want: Want, placer: Placer) -> bool:
    return want.gpu_type is None or set(placer.speeds.by_type(stay)) == {want.gpu_type}


def _step_down(attempt: _Attempt, wants: Mapping[JobName, Want], largest: Sequence[Job], context: Context) -> None:
    """Those that do not fit get the largest smaller gang that does, larger ones first."""
    missing = {j.name for j in attempt.short}
    for job in largest:
        if job.name not in missing:
            continue
        want = wants[job.name]
        size = want.gpus
        while size > 0:
            place = attempt.placer.best(job, size, want.gpu_type) or attempt.placer.best(job, size)
            if place is not None:
                attempt.placer.take(job, place)
                break
            size = job.gpus.at_most(size - 1)
        else:
            attempt.placer.drop(job)


def _use_left_over(attempt: _Attempt, wants: Mapping[JobName, Want], order: Sequence[Job], context: Context) -> None:
    placer = attempt.placer
    missing = {j.name for j in attempt.short}
    for job in order:
        if placer.free() == 0:
            return
        if job.name in missing and placer.taken.get(job.name):
            _grow(job, wants[job.name].gpus, placer, context)
    fill_idle(placer, order)


def _grow(job: Job, most: Gpus, placer: Placer, context: Context) -> None:
    """The largest gang up to `most` that fits now and is faster."""
    has = placer.give_back(job)
    now = context.speeds.rate(job, has)
    size = job.gpus.at_most(most)
    while size > sum(has.values()):
        place = placer.best(job, size)
        if place is not None:
            rate = context.speeds.rate(job, place)
            if now is None or rate is None or rate > now:
                has = place
                break
        size = job.gpus.at_most(size - 1)
    placer.take(job, has)
