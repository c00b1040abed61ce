"""Policies that are an order: the first job in it whose gang fits runs, gangs that do not fit are skipped.

`serve` places gangs in a given order; `grow` hands what is left over to jobs that run, step by step, to whoever gains
most. Who is behind and does not fit, waits: running jobs give up their GPUs to those ahead (the baselines of this kind
are pre-emptive).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policy.contract import Context
from policy.model import EMPTY, Allocation, Code, Gpus, Job, JobName, Reason, Snapshot
from policy.parts import reasons
from policy.parts.standing import settled
from policy.places.filling import fill, nothing_idle
from policy.places.placement import Placer
from policy.records import quick


@quick
@dataclass(frozen=True, slots=True)
class Ranked:
    """A job, why it stands where it stands (after "because"), and the numbers behind that."""

    job: Job
    why: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Served:
    placer: Placer
    reasons: dict[JobName, Reason]


def active(snapshot: Snapshot) -> list[Job]:
    """Jobs that have not ended, earliest submitted first."""
    return sorted((j for j in snapshot.jobs if j.work.left != 0), key=lambda j: j.order)


def serve(snapshot: Snapshot, ranked: Sequence[Ranked], context: Context, *, told: bool = True) -> Served:
    """Place the requested gangs (`Placer.usual`) in the order of `ranked`. A job not in it gets nothing. `told` False:
    no reasons are asked for."""
    placer = Placer(snapshot, context.speeds)
    in_order = {r.job.name for r in ranked}
    for job in snapshot.jobs:
        if job.name not in in_order:
            placer.drop(job)
    out: dict[JobName, Reason] = {}
    ahead: JobName | None = None
    for position, entry in enumerate(ranked):
        job, size = entry.job, placer.usual(entry.job)
        place = placer.best(job, size) if placer.free() >= size or job.allocation else None
        if place is not None:
            placer.take(job, place, sure=True)
            seen = reasons.outcome(job, place, context.speeds) if told else None
            if seen is not None:
                text = f"{seen.text}; {_place(position)}, because {entry.why}"
                numbers = {**seen.numbers, "position": position, **entry.numbers}
                out[job.name] = Reason(seen.code, text, numbers, seen.change)
            ahead = job.name
            continue
        placer.drop(job)
        if told:
            out[job.name] = _waits(job, size, ahead, entry, {"position": position, **entry.numbers}, placer)
    return Served(placer, out)


def _place(position: int) -> str:
    return "first in order" if position == 0 else f"number {position + 1} in order"


def _waits(
    job: Job, size: Gpus, ahead: JobName | None, entry: Ranked, numbers: Mapping[str, Any], placer: Placer
) -> Reason:
    code = placer.why_not(job, size)
    if code in (Code.INFEASIBLE, Code.WAITS_CAP) or (ahead is None and code is not Code.WAITS_CAPACITY):
        reason = reasons.waits(job, code, size, placer)
        return Reason(reason.code, reason.text, {**reason.numbers, **numbers}, reason.change)
    code = Code.PREEMPTED if job.held else code
    who = f"job {ahead} and those before it are ahead" if ahead else "foreign jobs hold the GPUs"
    free = placer.free()
    text = f"needs {reasons.gpus(size)}, {free} are free here in order; {who}, because {entry.why}"
    change = f"job {ahead} ending" if ahead else "GPUs that come free"
    return Reason(code, text, {"gpus": 0, "held": job.held, "free": free, "ahead": ahead, **numbers}, change)


def grow(
    snapshot: Snapshot,
    served: Served,
    jobs: Sequence[Job],
    context: Context,
    gain: Callable[[Job, Gpus, Gpus], float],
    what: str,
    serve_again: Callable[[Snapshot], Placer],
    *,
    first: Sequence[Job] = (),
    as_held: bool = True,
) -> None:
    """Hand left-over GPUs to jobs that run: each step to the largest `gain(job, from, to)` per GPU, while positive.

    Ties: earliest submitted, then name. Growing keeps the GPU type and, where it can, the place. What is idle then goes
    to waiting jobs of which a smaller gang than they requested has a place, and to whoever is faster over GPU types.

    The answer stands when it is asked again: another one has to serve more jobs (the `first` ones first, where it says
    so), or to make them faster together. `serve_again`: the ledger of `served` for a snapshot in which jobs hold other
    GPUs. `as_held` False: what jobs hold now is out of the question.
    """
    speeds = context.speeds
    before: dict[JobName, Allocation] = {
        j.name: served.placer.taken[j.name] for j in jobs if served.placer.taken.get(j.name)
    }
    ranked = first or jobs
    usual = [served.placer.usual(j) for j in ranked]

    def place(now: Snapshot) -> Placer:
        placer = served.placer if now is snapshot else serve_again(now)
        named = {j.name: j for j in now.jobs}
        _hand_out(placer, [named[j.name] for j in jobs], context, gain)
        return placer

    def worth(placer: Placer) -> tuple[tuple[int, ...], float]:
        taken = [placer.taken.get(j.name, EMPTY) for j in ranked]
        runs = tuple(sum(t.values()) >= size for t, size in zip(taken, usual, strict=True))
        return runs if first else (sum(runs),), round(
            sum(speeds.normalised(j, t) for j, t in zip(ranked, taken, strict=True) if t), 6
        )

    placer = settled(snapshot, speeds, place, lambda p: nothing_idle(p, jobs), worth, lambda p: False, as_held=as_held)
    served.placer = placer
    for job in jobs:
        was, now = before.get(job.name, {}), placer.taken.get(job.name, {})
        if now == was:
            continue
        if not now:
            served.reasons.pop(job.name, None)
            continue
        seen = reasons.outcome(job, now, speeds)
        if seen is not None:
            more = sum(now.values()) - (sum(was.values()) or placer.usual(job))
            beside = f"{more} more than" if more > 0 else f"{-more} fewer than" if more else "as many as"
            text = f"{seen.text}; {beside} it requested: left over, and {what}"
            numbers = {**(served.reasons[job.name].numbers if job.name in served.reasons else {}), **seen.numbers}
            served.reasons[job.name] = Reason(seen.code, text, numbers, seen.change)


def _hand_out(placer: Placer, jobs: Sequence[Job], context: Context, gain: Callable[[Job, Gpus, Gpus], float]) -> None:
    speeds = context.speeds
    heap: list[tuple[float, tuple[float, str], int, Gpus]] = []

    def push(n: int) -> None:
        job = jobs[n]
        has = sum(placer.taken[job.name].values())
        step = job.gpus.above(has)
        if step is not None and (worth := gain(job, has, step) / (step - has)) > 1e-12:
            heapq.heappush(heap, (-worth, job.order, n, step))

    for n, job in enumerate(jobs):
        if placer.taken.get(job.name):
            push(n)
    while heap and placer.free() > 0:
        _, _, n, step = heapq.heappop(heap)
        job = jobs[n]
        had = placer.give_back(job)
        types = list(speeds.by_type(had))
        place = placer.best(job, step, types[0]) if len(types) == 1 else None
        placer.take(job, place or had)
        if place:
            push(n)
    fill(placer, jobs)
