"""Gavel's policies: programs over time fractions (§4), realised by its round-based mechanism (§5).

A job is a gang of the size it requests (or the largest below it that one GPU type and its tenant's limit could hold,
whatever it holds now); one without an upper limit is its tenant's divisible demand (a tenant-level instance), and its X
are GPUs. The programs have no time for a gang that no type could hold alone: it runs, of mixed types, on what a round
leaves over. Each round gives whole GPUs: (job, type) pairs in the order of priority X / received, where received is the
fraction of the time since jobs, nodes and limits are these that it has run on that type, as the snapshot's attained GPU
time shows it (`accounts.py`); a job runs on one type a round, and a round lasts a quantum (`Turn`). What is left over
goes to jobs that got nothing, earliest submitted first: rounds are work-conserving. Where the program has no answer in
time, who holds GPUs keeps them and the rest goes to those that wait, earliest submitted first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from policy.contract import Context
from policy.gavel import accounts, programs
from policy.gavel.programs import Fractions, Jobs, Matrix, Solving
from policy.model import EMPTY, Allocation, Code, Gpus, GpuType, Job, JobName, Proposal, Reason, Snapshot
from policy.never import Could
from policy.parts import reasons
from policy.parts.ordered import active
from policy.parts.solver import Backend
from policy.parts.turns import Turn
from policy.places.filling import fill
from policy.places.placement import Placer


def decide_max_min(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, "max-min")


def decide_finish_time(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, "finish-time")


def decide_makespan(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, "makespan")


def decide_fifo(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, "fifo")


def _decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context, goal: str) -> Proposal:
    placer = Placer(snapshot, context.speeds)
    sizes = {j.name: placer.usual(j, anew=True) for j in active(snapshot)}
    jobs = []
    for job in active(snapshot):
        size = sizes[job.name]
        if placer.possible(job, size) or _stay(job, size - 1, placer):
            jobs.append(job)
    able = {j.name for j in jobs}
    for job in snapshot.jobs:
        if job.name not in able:
            placer.drop(job)
    gpus = {t: free for t in context.speeds.present if (free := placer.free(t))}
    types = tuple(gpus)
    sizes |= {j.name: _of_one_type(j, sizes[j.name], placer, types) for j in jobs}
    # Time on a type that could not hold a gang alone could never be had.
    rates = [
        [_rate(j, sizes[j.name], t, context) if placer.possible(j, sizes[j.name], t) else 0.0 for t in types]
        for j in jobs
    ]
    model = Jobs(
        np.array(rates, dtype=np.float64).reshape(len(jobs), len(types)),
        np.array([sizes[j.name] for j in jobs], dtype=np.float64),
        np.array(list(gpus.values()), dtype=np.float64),
        np.array([np.inf if _divisible(j) else 1.0 for j in jobs]),
    )
    turn = Turn.of(snapshot, options["quantum"], Could(snapshot, context.speeds))
    turn.keep(placer, jobs)
    how = Solving(context.time_limit_s, context.seed, Backend(context.solver) if context.solver else Backend.HIGHS)
    answer, notes = _solve(snapshot, jobs, model, goal, how)
    books = accounts.opened(snapshot, jobs, sizes, turn.shape, options["quantum"])
    if not answer.found:
        for job in jobs:
            if job.name not in placer.taken and (stay := placer.keep(job)):
                placer.take(job, stay)
        _rest(jobs, sizes, placer)
        why = f"the program ended as {answer.solver.termination}: who holds keeps, the rest goes in order of submission"
        never = _never(snapshot, able, placer)
        return Proposal(
            placer.taken,
            reasons=never,
            state={**accounts.plain(books), **turn.plain(placer.taken)},
            solver=answer.solver,
            notes=(*notes, why),
        )
    order = _priorities(snapshot, jobs, sizes, types, answer, books)
    for *_, m, t, _ in order:
        job = jobs[m]
        if job.name not in placer.taken and placer.free(types[t]):
            size = sizes[job.name]
            if _divisible(job):
                time = round(float(answer.x[m, t]))
                room = min(time, placer.free(types[t]))
                size = max(size, job.gpus.at_most(room))
            if place := _stay(job, size, placer) or placer.best(job, size, types[t]):
                placer.take(job, place)
    _rest(jobs, sizes, placer)
    shares: dict[JobName, dict[GpuType, float]] = {j.name: {} for j in snapshot.jobs}
    for m, job in enumerate(jobs):
        size = sizes[job.name]
        times = zip(types, answer.x[m], strict=True)
        shares[job.name] = {t: round(float(x) * size, 9) for t, x in times}
    return Proposal(
        allocation={j.name: placer.taken.get(j.name, EMPTY) for j in snapshot.jobs},
        shares=shares,
        reasons={**_never(snapshot, able, placer), **_reasons(jobs, sizes, gpus, answer, order, placer, context)},
        state={**accounts.plain(books, _fractions(jobs, types, answer)), **turn.plain(placer.taken)},
        solver=answer.solver,
        notes=notes,
    )


def _never(snapshot: Snapshot, able: set[JobName], placer: Placer) -> dict[JobName, Reason]:
    """Jobs with work left that no node could hold as they are requested."""
    out = {}
    for job in active(snapshot):
        if job.name not in able:
            code = placer.why_not(job, placer.usual(job))
            out[job.name] = reasons.waits(job, code, placer.usual(job), placer)
    return out


def _of_one_type(job: Job, size: Gpus, placer: Placer, types: Sequence[GpuType]) -> Gpus:
    """The largest of the job's sizes up to `size` that some type could hold alone; `size` where none could."""
    found = size
    while found and not any(placer.possible(job, found, t) for t in types):
        found = job.gpus.at_most(found - 1)
    return found or size


def _divisible(job: Job) -> bool:
    return job.gpus.max is None


def _stay(job: Job, size: Gpus, placer: Placer) -> Allocation | None:
    """What it holds, where that is the gang it requested and more than `size`, which it could have anew: a limit that
    came later and nodes that drain take nothing from it, unless others of its tenant came first."""
    return placer.keep(job) if job.held == job.gpus.requested > size else None


def _left_for(job: Job, size: Gpus, placer: Placer) -> Allocation | None:
    """Its gang; or a wider one, up to what it requested, that only GPUs of several types together hold."""
    return placer.best(job, size) or placer.best(job, placer.usual(job))


def _rest(jobs: Sequence[Job], sizes: Mapping[JobName, Gpus], placer: Placer) -> None:
    """What is left goes to jobs that got nothing, earliest submitted first, then to divisible demands."""
    divisible, moved = [j for j in jobs if _divisible(j)], True
    while moved:  # who moves to grow leaves a place to others
        for job in jobs:
            if job.name not in placer.taken and (placer.free() or job.allocation):
                place = _stay(job, sizes[job.name], placer) or _left_for(job, sizes[job.name], placer)
                if place and (not job.throughput or placer.speeds.rate(job, place)):
                    placer.take(job, place)
        for job in jobs:
            if job.name not in placer.taken:
                placer.drop(job)
        moved = bool(fill(placer, divisible, waiting=False))


def _wide(job: Job, size: Gpus, placer: Placer, gpus: Mapping[GpuType, Gpus]) -> str:
    """Why no type alone could hold the gang; empty where one could. `gpus`: there are of each."""
    if any(placer.possible(job, size, t) for t in gpus):
        return ""
    enough = size <= max(gpus.values(), default=0)
    return f"no GPU type has {reasons.gpus(size)}" + (" on nodes that could hold it alone" if enough else "")


def _rate(job: Job, size: Gpus, gpu_type: GpuType, context: Context) -> float:
    if not job.throughput:
        return size * context.speeds.speedup(job, gpu_type)
    return context.speeds.at(job, gpu_type, size) or 0.0


def _solve(
    snapshot: Snapshot, jobs: Sequence[Job], model: Jobs, goal: str, how: Solving
) -> tuple[Fractions, tuple[str, ...]]:
    if goal == "fifo":
        return programs.fifo(model, how), ()
    if goal == "max-min":
        weights = {t.name: t.weight for t in snapshot.tenants}
        count: dict[str, int] = {}
        for job in jobs:
            count[job.tenant] = count.get(job.tenant, 0) + 1
        # A tenant's weight is divided among its jobs: submitting more of them buys nothing.
        parts = [weights.get(j.tenant, 1.0) / count[j.tenant] for j in jobs]
        return programs.max_min(model, np.array(parts), how), ()
    left, notes = _left(snapshot, jobs, model)
    if goal == "makespan":
        return programs.makespan(model, left, how), notes
    elapsed = np.array([max(snapshot.now_s - j.submitted_s, 0.0) for j in jobs])
    total = model.gpus.sum()
    n = max(len(jobs), 1)
    # X^isolated: the job alone on a 1/n share of each type, no faster than it can use.
    part = np.minimum(model.limit, total / n / np.maximum(model.gang, 1.0))
    isolated_rate = np.maximum(programs.equal_share(model) * part, 1e-30)
    # Of unknown speed it runs at one iteration/s a GPU, so that what it has done is the time it was given.
    done = np.array([j.work.done if j.throughput else sum(j.attained.values()) for j in jobs])
    return programs.finish_time(model, left, elapsed, (left + done) / isolated_rate, how), notes


def _left(snapshot: Snapshot, jobs: Sequence[Job], model: Jobs) -> tuple[Matrix, tuple[str, ...]]:
    """Iterations left (n,). Two jobs' iterations are two things: what is typical of them is a time, at full speed."""
    able = model.able()
    stated = [j.work_left if j.throughput and best > 0 else None for j, best in zip(jobs, able, strict=True)]
    times = [left / best for left, best in zip(stated, able, strict=True) if left is not None]
    if times:
        blind, typical = len(jobs) - len(times), float(np.median(times))
        note = f"{blind} jobs of unknown length are taken to have the median, {typical:.6g} s at full speed, left"
    else:
        blind, typical = len(jobs), max((snapshot.now_s - j.submitted_s for j in jobs), default=0.0)
        note = "no job's length is known: all are taken to be equally far from their end"
    values = zip(stated, able, strict=True)
    left_of_all = [(typical or 1.0) * (best or 1.0) if left is None else left for left, best in values]
    return np.array(left_of_all), (note,) * bool(blind)


def _fractions(
    jobs: Sequence[Job], types: Sequence[GpuType], answer: Fractions, least: float = 1e-9
) -> dict[JobName, dict[GpuType, float]]:
    """Of each job the X that are none of a solver's noise."""
    out: dict[JobName, dict[GpuType, float]] = {}
    for job, row in zip(jobs, answer.x, strict=True):
        mine = out[job.name] = {}
        for t, x in zip(types, row, strict=True):
            if x > least:
                mine[t] = float(x)
    return out


#: (-priority, -due, -X, tie, job, type, received)
_Pair = tuple[float, float, float, tuple[float, str], int, int, float]


def _priorities(
    snapshot: Snapshot,
    jobs: Sequence[Job],
    sizes: Mapping[JobName, Gpus],
    types: Sequence[GpuType],
    answer: Fractions,
    books: Mapping[JobName, accounts.TimeAccount],
) -> list[_Pair]:
    """First first; of those that have received nothing who is owed most."""
    out: list[_Pair] = []
    fractions = _fractions(jobs, types, answer)
    for m, job in enumerate(jobs):
        book, size = books[job.name], sizes[job.name]
        for t, name in enumerate(types):
            x = fractions[job.name].get(name)
            if x is None:
                continue
            # Where its speed is unknown, a type is as good as another: time on any counts.
            of, whole = ((name,), x) if job.throughput else (types, float(answer.x[m].sum()))
            due_s = book.due_s(job, of, size)
            priority = book.priority(job, of, size, whole, snapshot.now_s)
            received = book.received(job, of, size, snapshot.now_s)
            out.append((-priority, -due_s, -x, job.order, m, t, received))
    return sorted(out)


def _reasons(
    jobs: Sequence[Job],
    sizes: Mapping[JobName, Gpus],
    gpus: Mapping[GpuType, Gpus],
    answer: Fractions,
    order: Sequence[_Pair],
    placer: Placer,
    context: Context,
) -> dict[JobName, Reason]:
    types, received = list(gpus), dict[int, dict[str, float]]()
    every = _fractions(jobs, types, answer)
    for *_, m, t, got in order:
        received.setdefault(m, {})[types[t]] = round(got, 4)
    out: dict[JobName, Reason] = {}
    for m, job in enumerate(jobs):
        fractions = {t: round(x, 4) for t, x in every[job.name].items()}
        numbers = {"fractions": fractions, "received": received.get(m, {})}
        unit = "{:g} GPUs on {}" if _divisible(job) else "{:.0%} on {}"
        said = ", ".join(unit.format(x, t) for t, x in fractions.items()) or "no time on any type"
        size, place = sizes[job.name], placer.taken.get(job.name, EMPTY)
        wide = _wide(job, size, placer, gpus)
        if wide:
            said = f"no time, since {wide}: it is a gang for what is left over"
        seen = reasons.outcome(job, place, context.speeds) if place else None
        if seen is not None:
            text = f"{seen.text}; of its time it is to spend {said}"
            out[job.name] = Reason(seen.code, text, {**seen.numbers, **numbers}, seen.change)
            continue
        code = placer.why_not(job, size)
        if code in (Code.WAITS_CAP, Code.INFEASIBLE):
            out[job.name] = reasons.waits(job, code, size, placer)
            continue
        if wide:
            text = f"{wide}: it waits for so many that all others leave over"
            change = "other jobs that end, or a smaller gang"
        elif fractions:
            text = f"is to spend {said} of its time; this round goes to jobs that got less of theirs"
            change = "the next rounds"
        else:
            text, change = "has no part of the time: by its objective the others have all of it", "other jobs that end"
        code = Code.PREEMPTED if job.held else Code.WAITS_TURN
        out[job.name] = Reason(code, text, {"gpus": 0, "held": job.held, **numbers}, change)
    return out
