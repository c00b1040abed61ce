"""First in, first out with backfilling: a waiting job may overtake where that delays nobody it must not delay.

`easy` (the default; Lifka 1995): the first job that does not fit gets a reservation at the earliest time its gang will
fit when running jobs end as estimated. A later job may start now if it ends before that, or leaves the reserved
nodes enough.
`conservative`: every waiting job gets a reservation, and may start now only if that is when its own begins.
`slurm`: conservative, but as coarse as Slurm's `select/cons_tres`: the ends of running jobs are looked at in windows of
30 s, twice as long each time, and a gang is tried once a window. So its reservation is later than it could start, and
shorter jobs overtake it that would not otherwise.
`aggressive`: whatever fits starts; wide gangs can starve.

Ends are estimated from the work left and the throughput of the allocation. A running job of unknown length may run for
ever: nothing is reserved behind it, and a job of unknown length overtakes only where it takes nothing that is
reserved. Running jobs are never stopped.

A tenant's own limit delays nobody else: who only waits for that has no reservation. So within it nobody overtakes: a
job that would leave its tenant less than what is reserved for another of its jobs waits behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from policy.contract import Context
from policy.model import EMPTY, Allocation, Code, Gpus, Job, JobName, NodeName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.ordered import active
from policy.places.placement import Placer
from policy.throughput import Throughput

#: Slurm's first window of ends that count as one; windows begin at its multiples.
WINDOW_S = 30.0


@dataclass(frozen=True, slots=True)
class _Booking:
    """GPUs on nodes from `start` to `end` (relative to now)."""

    job: JobName
    tenant: str
    place: Allocation
    start: float
    end: float

    def overlaps(self, start: float, end: float) -> bool:
        return self.start < end and start < self.end


def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    placer = Placer(snapshot, context.speeds)
    bookings: list[_Booking] = []
    waiting: list[Job] = []
    for job in active(snapshot):
        stay = placer.keep(job)
        if stay is None:
            waiting.append(job)
            continue
        placer.take(job, stay)
        bookings.append(_Booking(job.name, job.tenant, stay, 0.0, duration(job, stay, context.speeds)))
    for job in snapshot.jobs:
        placer.drop(job)  # who is not running now cannot keep what it holds: nobody makes way for that
    variant, depth = options["variant"], int(options["depth"])
    plan = variant in ("conservative", "slurm")
    most = depth if plan else {"easy": 1, "aggressive": 0}[variant]
    looks = _by_windows if variant == "slurm" else sorted
    reserved: list[_Booking] = []
    out: dict[JobName, Reason] = {}
    for position, job in enumerate(waiting):
        size, code = placer.usual(job), Code.WAITS_TURN
        if plan and position >= depth:
            text = f"the plan looks at the first {depth} waiting jobs only"
            out[job.name] = Reason(Code.WAITS_TURN, text, {"gpus": 0, "position": position}, "jobs ahead starting")
            continue
        place = placer.best(job, size)
        if place is not None:
            ends = duration(job, place, context.speeds)
            own = _own_ahead(job, size, placer, reserved)
            hit = own or _in_the_way(snapshot, place, ends, bookings, reserved)
            if hit and not own and (other := _elsewhere(snapshot, job, size, hit, placer, bookings, reserved)):
                place, hit = other, None
                ends = duration(job, place, context.speeds)
            if hit is None:
                placer.take(job, place)
                bookings.append(_Booking(job.name, job.tenant, place, 0.0, ends))
                if reserved:
                    seen = reasons.outcome(job, place, context.speeds)
                    if seen is not None:
                        text = f"{seen.text}; overtakes {reserved[0].job}, whose start it does not delay"
                        out[job.name] = Reason(seen.code, text, {**seen.numbers, "ends_in_s": _known(ends)}, "")
                continue
            how = f"take of the limit of its tenant {job.tenant} what is kept for" if own else "delay"
            text = f"fits now, but would {how} {hit.job}, which is to start in {hit.start:.6g} s"
            numbers = {"gpus": 0, "position": position, "ahead": hit.job, "ends_in_s": _known(ends)}
            out[job.name] = Reason(Code.WAITS_TURN, text, numbers, f"a shorter job, or {hit.job} starting")
        else:
            code = placer.why_not(job, size)
            out[job.name] = reasons.waits(job, code, size, placer)
        # Nobody waits for those that can never run, or that only their own tenant's limit holds back (as in `fifo`).
        if len(reserved) < most and code not in (Code.INFEASIBLE, Code.WAITS_CAP):
            made = _reserve(snapshot, job, size, bookings, reserved, context.speeds, looks)
            if made is not None:
                reserved.append(made)
                was = out[job.name]
                text = f"{was.text}; reserved to start in {made.start:.6g} s"
                out[job.name] = replace(was, text=text, numbers={**was.numbers, "starts_in_s": made.start})
            elif variant == "easy":
                # No end can be foreseen: nothing may overtake into what the head needs, which is anything.
                _stop(waiting[position + 1 :], job, placer, out)
                break
    return Proposal(placer.taken, reasons=out)


def duration(job: Job, place: Allocation, speeds: Throughput) -> float:
    """Seconds until the job ends on these GPUs; inf where its length or speed is not known."""
    rate = speeds.rate(job, place)
    return inf if job.work_left is None or not rate else job.work_left / rate


def _known(seconds: float) -> float | None:
    return seconds if seconds < inf else None


def _own_ahead(job: Job, size: Gpus, placer: Placer, reserved: Sequence[_Booking]) -> _Booking | None:
    """The first reservation of the job's own tenant that its limit would be too narrow for beside the job."""
    room = placer.room(job.tenant)
    if room is None:
        return None
    left = room - size
    for ahead in reserved:
        if ahead.tenant == job.tenant and sum(ahead.place.values()) > left:
            return ahead
    return None


def _in_the_way(
    snapshot: Snapshot,
    place: Allocation,
    ends: float,
    bookings: Sequence[_Booking],
    reserved: Sequence[_Booking],
) -> _Booking | None:
    """The first reservation that `place`, held until `ends`, would take GPUs from."""
    gpus = {n.name: n.gpus - n.foreign for n in snapshot.cluster.nodes}
    for r in reserved:
        if ends <= r.start:
            continue
        for node, n in place.items():
            if node in r.place and n + _used(node, r.start, r.end, [*bookings, *reserved]) > gpus[node]:
                return r
    return None


def _elsewhere(
    snapshot: Snapshot,
    job: Job,
    size: Gpus,
    hit: _Booking,
    placer: Placer,
    bookings: Sequence[_Booking],
    reserved: Sequence[_Booking],
) -> Allocation | None:
    """The best place that takes nothing from any reservation, where the best of all would from `hit`."""
    gpus = {n.name: n.gpus - n.foreign for n in snapshot.cluster.nodes}
    bare, spared = replace(job, allocation=EMPTY), [hit]  # beside nobody, as once it holds nothing
    for _ in reserved:  # a place beside what is spared is in the way of none of these
        kept: dict[NodeName, int] = {}
        for r in spared:
            for node in r.place:
                spare = max(gpus[node] - _used(node, r.start, r.end, [*bookings, *reserved]), 0)
                kept[node] = max(kept.get(node, 0), placer.free_on(node) - spare)
        place = placer.best_without(bare, size, kept)
        if place is None:
            return None
        next_hit = _in_the_way(snapshot, place, duration(job, place, placer.speeds), bookings, reserved)
        if next_hit is None:
            return place
        spared.append(next_hit)
    return None


def _used(node: NodeName, start: float, end: float, bookings: Sequence[_Booking]) -> int:
    """Most GPUs of the node that are booked at one time between `start` and `end`."""
    mine = [b for b in bookings if node in b.place and b.overlaps(start, end)]
    times = {start, *(b.start for b in mine if b.start > start)}
    return max((sum(b.place[node] for b in mine if b.start <= t < b.end) for t in times), default=0)


def _reserve(
    snapshot: Snapshot,
    job: Job,
    size: Gpus,
    bookings: Sequence[_Booking],
    reserved: Sequence[_Booking],
    speeds: Throughput,
    looks: Callable[[set[float]], list[float]],
) -> _Booking | None:
    """The earliest booking of the job's gang of `size` beside all others; None when no end can be foreseen.

    Tried when reservations end, and at the times that `looks` takes of those when jobs that run end, on a snapshot in
    which what is booked from then on, for as long as the gang would run, is in foreign hands.
    """
    everything = [*bookings, *reserved]
    there: dict[NodeName, list[_Booking]] = {}
    for booking in everything:
        for node in booking.place:
            there.setdefault(node, []).append(booking)
    looked = {*looks({b.end for b in bookings if b.end < inf}), *(r.end for r in reserved if r.end < inf)}
    for start in sorted(looked):
        guess = max((speeds.at(job, t, size) or 0.0 for t in speeds.types(job)), default=0.0)
        length = inf if job.work_left is None or guess <= 0 else job.work_left / guess * job.slowdown.cluster
        nodes = []
        for each in snapshot.cluster.nodes:
            used = _used(each.name, start, start + length, there.get(each.name, ()))
            nodes.append(replace(each, foreign=min(each.foreign + used, each.gpus)))
        then = replace(
            snapshot, cluster=replace(snapshot.cluster, nodes=tuple(nodes)), jobs=(replace(job, allocation=EMPTY),)
        )
        place = Placer(then, speeds).best(job, size)
        if place is not None:
            return _Booking(job.name, job.tenant, place, start, start + duration(job, place, speeds))
    return None


def _by_windows(ends: set[float]) -> list[float]:
    """The last end of each window that has one."""
    out: list[float] = []
    line = sorted(ends)
    if not line:
        return out
    until = WINDOW_S * ceil(line[0] / WINDOW_S)
    window = WINDOW_S
    for end, then in zip(line, [*line[1:], inf], strict=True):
        if then <= until + window:
            continue
        out.append(end)
        while then < inf and then > until + window:
            window *= 2
    return out


def _stop(behind: Sequence[Job], head: Job, placer: Placer, out: dict[JobName, Reason]) -> None:
    for job in behind:
        text = f"job {head.name} is ahead of it, and when it can start is not known: running jobs have no known length"
        numbers = {"gpus": 0, "ahead": head.name, "free": placer.free()}
        out[job.name] = Reason(Code.WAITS_TURN, text, numbers, "lengths of the running jobs, or variant=aggressive")
