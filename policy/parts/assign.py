"""Counts by job -> named nodes for all jobs at once, moving as few jobs as possible (AFS §4.4).

First those stay that can: same count, and on as few nodes as that count needs. Then the others, larger gangs first,
each where `Placer.best` puts it beside what the job holds. Where somebody does not fit that way (fragmentation, equal
GPUs on all nodes, CPUs), everything is placed anew, larger gangs first, and the better of the two is taken. Who still
does not fit gets the next smaller size of its gang that does; what is left over then goes to jobs that wait, in the
policy's order, to jobs that got less than they were to have, and to jobs that are faster when they span GPU types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from policy.contract import Context
from policy.model import EMPTY, Allocation, Code, Gpus, GpuType, Job, JobName, NodeName, Reason, Snapshot
from policy.parts.pools import Pools
from policy.parts.reasons import gpus, outcome
from policy.parts.standing import settled
from policy.places.filling import fill as fill_idle
from policy.places.filling import nothing_idle
from policy.places.placement import Placer
from policy.records import quick
from policy.throughput import NOISE, Throughput


@quick
@dataclass(frozen=True, slots=True)
class Want:
    """What a job is to have: `gpus`, of one type where `gpu_type` says so."""

    gpus: Gpus
    gpu_type: GpuType | None = None


def wants(pools: Pools) -> dict[JobName, Want]:
    """What every job was given in `pools`."""
    one = pools.free  # a gang of a pool of several types is of none
    return {name: Want(n, t if (t := pools.type[name]) in one else None) for name, n in pools.count.items()}


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
    goal = _Goal(wants, order, context, fewest_nodes, fill)

    def place(now: Snapshot) -> Placer:
        return _placed(now, wants, order, context, fewest_nodes=fewest_nodes, fill=fill)

    def full(placer: Placer) -> bool:
        return not fill or nothing_idle(placer, order)

    placer = settled(snapshot, context.speeds, place, full, goal.worth, goal.reached)
    short = {name: has for name, want in wants.items() if (has := _has(placer, name)) < want.gpus}
    return Assignment(placer, short)


def _has(placer: Placer, name: JobName) -> Gpus:
    return sum(placer.taken.get(name, EMPTY).values())


class _Goal:
    """What places are worth: nobody is short of what it is to have, many run, and gangs are on few nodes."""

    def __init__(
        self, wants: Mapping[JobName, Want], order: Sequence[Job], context: Context, fewest_nodes: bool, fill: bool
    ) -> None:
        self._wants, self._order, self._speeds, self._fewest_nodes = wants, order, context.speeds, fewest_nodes
        self._fill = fill
        self._wanted = sum(want.gpus for want in wants.values())

    def worth(self, placer: Placer) -> tuple[int, int, int]:
        """(- GPUs missing or had in vain, jobs that run, - nodes beyond the fewest)."""
        missing = running = spread = 0
        for job in self._order:
            want, has = self._wants.get(job.name, _NONE), placer.taken.get(job.name)
            if not has:
                missing += want.gpus
                continue
            if len(has) == 1 and _as_wanted(has, want, self._speeds):
                running += 1
                continue
            gpus = sum(has.values())
            running += gpus > 0
            beyond = len(has) - placer.fewest(job, gpus, has) if len(has) > 1 else 0
            spread += beyond
            missing += want.gpus - min(self._counted(job, want, has, gpus, beyond), want.gpus)
            if gpus > want.gpus and (not self._fill or _in_vain(job, has, want, self._speeds)):
                missing += gpus - want.gpus
        return (-missing, running, -spread)

    def _counted(self, job: Job, want: Want, has: Allocation, gpus: Gpus, beyond: int) -> Gpus:
        """The GPUs of what is wanted that it has."""
        if not has or (self._fewest_nodes and beyond):
            return 0
        return gpus if gpus < want.gpus or _suits(job, has, want, self._speeds) else 0

    def reached(self, placer: Placer) -> bool:
        missing, running, spread = self.worth(placer)
        if missing or spread:
            return False
        spare = placer.free() + sum(map(sum, (p.values() for p in placer.taken.values()))) - self._wanted
        waiting = (j.gpus.above(0) or 0 for j in self._order if not placer.taken.get(j.name))
        return running == len(self._order) or spare < min(waiting)


def _placed(
    snapshot: Snapshot,
    wants: Mapping[JobName, Want],
    order: Sequence[Job],
    context: Context,
    *,
    fewest_nodes: bool,
    fill: bool,
) -> Placer:
    """Everything placed once, beside what jobs hold."""
    jobs = [j for j in snapshot.jobs if wants.get(j.name, _NONE).gpus > 0]

    def largest_first(job: Job) -> tuple[int, int, tuple[float, str]]:
        want = wants[job.name]
        return _choice(job, want, context.speeds), -want.gpus, job.order

    largest = sorted(jobs, key=largest_first)
    idle = [j for j in snapshot.jobs if wants.get(j.name, _NONE).gpus == 0]
    first = _attempt(snapshot, wants, largest, idle, context, keep=True, fewest_nodes=fewest_nodes)
    if first.short:
        second = _attempt(snapshot, wants, largest, idle, context, keep=False, fewest_nodes=fewest_nodes)
        if _missing(second, wants) < _missing(first, wants):
            first = second
    if first.short:
        _step_down(first, wants, largest, context)
    if fill and (first.short or first.placer.free() > 0):
        names = {j.name: j for j in snapshot.jobs}
        _use_left_over(first, wants, [names[j.name] for j in order], context)
    return first.placer


def _choice(job: Job, want: Want, speeds: Throughput) -> int:
    """Of how many types a gang may have GPUs: who has least choice is placed first, who shares no node before all."""
    if job.shape is not None and job.shape.exclusive:
        return 0
    return 1 if want.gpu_type is not None else len(speeds.types(job))


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
    above = _above_their_limit(snapshot, wants)
    # What a limit cannot touch goes first: beside anything new it would have no room.
    for job in sorted(largest, key=lambda j: j.tenant not in above) if above else largest:
        want = wants[job.name]
        stay = placer.keep(job) if (keep or job.tenant in above) and job.held == want.gpus else None
        if stay is not None and (job.tenant in above or _as_good(job, stay, want, placer)):
            placer.take(job, stay, sure=True)
        else:
            rest.append(job)
    return _Attempt(placer, _seat(placer, rest, wants, fewest_nodes=fewest_nodes))


def _seat(placer: Placer, rest: Sequence[Job], wants: Mapping[JobName, Want], *, fewest_nodes: bool) -> list[Job]:
    """Place these in order, neighbours that are alike together; returns those that have no place."""
    short: list[Job] = []

    def alike(job: Job) -> object:
        want = wants[job.name]
        return (placer.speeds.kind(job), want.gpus, want.gpu_type) if placer.plain(job) else job.name

    for _, group in groupby(rest, alike):
        jobs = list(group)
        want = wants[jobs[0].name]
        seated = placer.take_alike(jobs, want.gpus, want.gpu_type) if placer.plain(jobs[0]) else 0
        for job in jobs[seated:]:
            place = placer.best(job, want.gpus, want.gpu_type)
            if place is None or (fewest_nodes and len(place) > placer.fewest(job, want.gpus, place)):
                short.append(job)
            else:
                placer.take(job, place, sure=True)
    return short


def _above_their_limit(snapshot: Snapshot, wants: Mapping[JobName, Want]) -> set[str]:
    """Tenants that are to have more than their limit, which some of their jobs, as they are, exceed already."""
    left = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
    for job in snapshot.jobs if left else ():
        if job.tenant in left:
            left[job.tenant] -= wants.get(job.name, _NONE).gpus
    return {tenant for tenant, gpus in left.items() if gpus < 0}


def _as_wanted(has: Allocation, want: Want, speeds: Throughput) -> bool:
    """What nearly all have: on one node, as many GPUs as wanted, of the type wanted."""
    ((node, gpus),) = has.items()
    return gpus == want.gpus and (want.gpu_type is None or speeds.type_of(node) == want.gpu_type)


def _as_good(job: Job, stay: Allocation, want: Want, placer: Placer) -> bool:
    return _suits(job, stay, want, placer.speeds) and len(stay) <= placer.fewest(job, want.gpus, stay)


def _suits(job: Job, has: Allocation, want: Want, speeds: Throughput) -> bool:
    """True for GPUs of the type wanted, and for others where the job is as fast: nobody moves for a tie."""
    types = speeds.by_type(has)
    if want.gpu_type is None or not job.throughput or (len(types) == 1 and want.gpu_type in types):
        return True
    gpus, wanted = sum(has.values()), speeds.at(job, want.gpu_type, want.gpus) or 0.0
    return all((speeds.at(job, t, gpus) or 0.0) >= wanted * (1 - NOISE) for t in types)


def _in_vain(job: Job, has: Allocation, want: Want, speeds: Throughput) -> bool:
    """True for more GPUs than wanted on which the job is no faster."""
    gpus = sum(has.values())
    if gpus <= want.gpus or not want.gpus or not job.throughput:
        return False
    types = tuple(speeds.by_type(has))
    wanted = speeds.at(job, want.gpu_type or types[0], want.gpus) or 0.0
    return any((speeds.at(job, t, gpus) or 0.0) <= wanted * (1 + NOISE) for t in types)


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


def explain(
    snapshot: Snapshot, jobs: Sequence[Job], sated: Collection[JobName], placed: Assignment, context: Context
) -> dict[JobName, Reason]:
    """Reasons of the jobs that hold GPUs, where more would not help them or did not fit.

    NO_GAIN is said of the jobs in `sated` (allowed more GPUs, but no faster with more) while GPUs that they could use
    stand idle: that is why these are idle.
    """
    placer = placed.placer
    whole = {node.name: node.gpus - node.foreign for node in snapshot.cluster.nodes} if placed.short else {}
    out: dict[JobName, Reason] = {}
    for job in jobs:
        now = placer.taken.get(job.name)
        if not now:
            continue
        larger = job.name in sated and job.gpus.above(sum(now.values())) is not None
        idle = sum(placer.free(t) for t in context.speeds.types(job)) if larger else 0
        if not (idle or job.name in placed.short):
            continue
        found = outcome(job, now, context.speeds)
        if found is None:
            continue
        if job.name in placed.short:
            text = f"{found.text}; no place for more obeys the limits"
            out[job.name] = replace(found, text=text, change=_way_to_more(job, now, placer, whole))
        else:
            text = f"{found.text}; more would not make it faster, so {gpus(idle)} may stay idle"
            change = "a measurement that shows a gain from more GPUs"
            out[job.name] = Reason(Code.NO_GAIN, text, {**found.numbers, "idle": idle}, change)
    return out


def _way_to_more(job: Job, now: Mapping[NodeName, Gpus], placer: Placer, whole: Mapping[NodeName, Gpus]) -> str:
    """What would give more to a job that holds less than it may; nodes bring nothing where its tenant is full."""
    if placer.room(job.tenant) == 0:
        return "a higher limit"
    all_its_own = all(held >= whole[node] for node, held in now.items())
    return "more nodes like those that it is on" if all_its_own else "GPUs that come free on the same nodes"
