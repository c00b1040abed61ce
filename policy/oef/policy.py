"""OEF as a policy: virtual tenants (§4.2.4), fair shares (§4.2), rounding and placement (§4.3, §4.4).

One round: the shares of `shares.py`; whole GPUs a tenant and type by `rounding.whole`; within a tenant the gangs that
use most of them, the longest-starved job (least attained GPU time) always among them, each on one GPU type (§4.4); jobs
with more workers are placed first, so that they find a host of their own. What gangs leave over goes to waiting jobs in
the same order, then to jobs that are faster there: the round is work-conserving, and the account charges what was
really served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policy.contract import Context
from policy.model import (
    EMPTY,
    Allocation,
    Code,
    Gpus,
    GpuType,
    Job,
    JobName,
    Proposal,
    Reason,
    Share,
    Snapshot,
)
from policy.never import Could
from policy.oef.envy_free import cooperative
from policy.oef.kinds import MOST, Kind, kinds_of, largest_demand, usable, users_of
from policy.oef.rounding import Account, Table, Usable, fullest, opened, whole
from policy.oef.shares import Shares, non_cooperative
from policy.parts import reasons
from policy.parts.solver import Backend
from policy.parts.turns import Turn
from policy.places.filling import fill
from policy.places.placement import Placer
from policy.throughput import NOISE


def decide_non_cooperative(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, non_cooperative)


def decide_cooperative(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, cooperative)


#: A job and the GPUs by type that it should have this round.
_Pick = tuple[Job, dict[GpuType, Gpus]]


def _decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context, solve: Callable[..., Shares]) -> Proposal:
    placer = Placer(snapshot, context.speeds)
    types = context.speeds.present
    gpus = {t: placer.free(t) for t in types}
    jobs, could = [j for j in snapshot.jobs if j.work.left != 0], Could(snapshot, context.speeds)
    kinds = kinds_of(_with_a_part(jobs, placer, could), types, context)
    users = users_of(snapshot, kinds, gpus, bool(options["demand_caps"]))
    backend = Backend(context.solver) if context.solver else Backend.HIGHS
    answer = solve(users, time_limit_s=context.time_limit_s, seed=context.seed, backend=backend)
    beyond = sum(max(k.row) > MOST for k in kinds)
    if beyond:
        note = f"{beyond} job types have speed-ups above {MOST:g}, which count as {MOST:g}"
        answer = replace(answer, notes=(*answer.notes, note))
    if not answer.found:
        return _stand(snapshot, placer, answer)
    shares = _job_shares(kinds, answer, types)
    ideal = _ideal(kinds, shares, types)
    turn = Turn.of(snapshot, options["quantum"], could)
    turn.keep(placer, jobs)
    account = Account.of(snapshot.state)
    deviation = account.charged(snapshot, options["quantum"], gpus) if account else {}
    sums = usable(kinds, gpus, _in_turn(kinds), lambda job, t: placer.possible(job, job.gpus.min, t))
    real = whole(ideal, deviation, gpus, sums, largest_demand(kinds))
    picks = _pick(kinds, shares, real, context)
    _place(placer, picks, sorted(jobs, key=_starved), could)
    allocation = {j.name: placer.taken.get(j.name, EMPTY) for j in snapshot.jobs}
    return Proposal(
        allocation=allocation,
        shares={j.name: shares.get(j.name, EMPTY) for j in snapshot.jobs},
        reasons=_reasons(jobs, allocation, shares, ideal, deviation, real, placer, context),
        state={
            **opened(snapshot, _owed(ideal, sums), deviation, {j.name: j.tenant for j in jobs}).plain(),
            **turn.plain(allocation),
        },
        solver=answer.solver,
        notes=answer.notes,
    )


def _with_a_part(jobs: Sequence[Job], placer: Placer, could: Could) -> list[Job]:
    """Without those whose share would be lost: their gangs fit no nodes, or not into their tenant's limit, under which
    they may keep what they hold."""
    return [job for job in jobs if could(job) or (job.held > 0 and placer.possible(job, job.gpus.min))]


def _job_shares(kinds: Sequence[Kind], answer: Shares, types: Sequence[GpuType]) -> dict[JobName, Share]:
    """A job type's share among its jobs: equally, but none above what it can use."""
    out: dict[JobName, Share] = {}
    for kind, row in zip(kinds, answer.x, strict=True):
        total = float(row.sum())
        left, rest = total, sorted(kind.jobs, key=lambda j: math.inf if j.gpus.max is None else j.gpus.max)
        for i, job in enumerate(rest):
            even = left / (len(rest) - i)
            mine = even if job.gpus.max is None else min(even, job.gpus.max)
            left -= mine
            part = mine / total if total > 0 else 0.0
            worth = sum(float(x) * w for x, w in zip(row, kind.row, strict=True))
            out[job.name] = {
                t: 0.0 if float(x) * w <= 1e-9 * worth else _clean(float(x) * part)
                for t, x, w in zip(types, row, kind.row, strict=True)
            }
    return out


def _clean(x: float) -> float:
    """Nine digits: beyond them is the solver's noise. (Of what a share is worth: a light tenant's may be 1e-6 GPUs.)"""
    return float(f"{x:.9g}")


def _in_turn(kinds: Sequence[Kind]) -> set[JobName]:
    """Of each tenant the longest-starved job."""
    first: dict[str, Job] = {}
    for kind in kinds:
        before = first.get(kind.tenant)
        others = (before, *kind.jobs) if before else kind.jobs
        first[kind.tenant] = min(others, key=_starved)
    return {job.name for job in first.values()}


def _starved(job: Job) -> tuple[float, float, str]:
    return (sum(job.attained.values()), *job.order)


def _pick(
    kinds: Sequence[Kind], shares: Mapping[JobName, Share], real: Mapping[str, Mapping[GpuType, int]], context: Context
) -> list[_Pick]:
    """Which jobs of each tenant run where this round.

    Smallest gangs first, each on one type: the fastest types first, and there of the jobs whose share is there, the
    longest-starved first. Then they grow there. A tenant whose jobs all run and that still has GPUs of another type
    lets a job span types if that does not slow it down: a synchronous job runs at its slowest member's rate (§4.4).
    """
    picks: list[_Pick] = []
    mine: dict[str, list[tuple[Job, dict[GpuType, float]]]] = {}
    for kind in kinds:
        on = {t: w for t, w in zip(context.speeds.present, kind.row, strict=True) if w > 0}
        mine.setdefault(kind.tenant, []).extend((job, on) for job in kind.jobs)
    for tenant, by_type in real.items():
        jobs = sorted(mine[tenant], key=lambda j: _starved(j[0]))
        left = dict(by_type)
        chosen = _gangs(jobs, shares, by_type, turn=False)
        if jobs[0][0].name not in chosen:
            chosen = _gangs(jobs, shares, by_type, turn=True)
        run = [(job, dict(chosen[job.name])) for job, _ in jobs if job.name in chosen]
        for _, gpus in run:
            for t, n in gpus.items():
                left[t] -= n
        for job, gpus in run:
            (t,) = gpus
            more = job.gpus.at_most(gpus[t] + left[t])
            left[t] -= more - gpus[t]
            gpus[t] = more
        if len(run) == len(jobs):
            for job, gpus in run:
                _span(job, gpus, left, context)
        picks += run
    return picks


def _gangs(
    jobs: Sequence[tuple[Job, Mapping[GpuType, float]]],
    shares: Mapping[JobName, Share],
    gpus: Mapping[GpuType, Gpus],
    turn: bool,
) -> dict[JobName, dict[GpuType, Gpus]]:
    """The smallest gangs of a tenant that use most of its GPUs, type by type. `jobs`: the longest-starved first, each
    with its speed-ups; `turn`: on each type the first that fits runs, however much it leaves over."""
    newest = list(gpus)
    out: dict[JobName, dict[GpuType, Gpus]] = {}
    fastest = dict.fromkeys(gpus, 0.0)
    for _, on in jobs:
        for t, speedup in on.items():
            if t in fastest:
                fastest[t] = max(fastest[t], speedup)
    for t in sorted(gpus, key=lambda t: (fastest[t], newest.index(t)), reverse=True):
        here = [job for job, on in jobs if t in on and job.name not in out]
        here.sort(key=lambda j: not shares[j.name].get(t))
        least = [job.gpus.above(0) or 1 for job in here]
        for i in fullest(least, gpus[t], turn):
            out[here[i].name] = {t: least[i]}
    return out


def _span(job: Job, gpus: dict[GpuType, Gpus], left: dict[GpuType, int], context: Context) -> None:
    """Add GPUs of other types to a job's pick, where its rate at best placement does not drop."""

    def rate(by_type: Mapping[GpuType, Gpus]) -> float:
        total = sum(by_type.values())
        return min((context.speeds.at(job, t, total) or 0.0) for t in by_type) if job.throughput else float(total)

    for t, n in left.items():
        has = sum(gpus.values())
        extra = job.gpus.at_most(has + n) - has if t not in gpus else 0
        if extra > 0 and rate({**gpus, t: extra}) >= rate(gpus):
            gpus[t] = extra
            left[t] -= extra


def _owed(ideal: Table, sums: Usable) -> dict[str, dict[GpuType, float]]:
    """What the account is to count as each tenant's share: not of types of which no gang of its can use any."""
    owed: dict[str, dict[GpuType, float]] = {}
    for tenant, row in ideal.items():
        mine = owed[tenant] = {}
        for t, share in row.items():
            can, _ = sums[tenant][t]
            if can > 1:
                mine[t] = share
    return owed


def _place(placer: Placer, picks: Sequence[_Pick], starved: Sequence[Job], could: Could) -> None:
    """Place the picks, jobs with more workers first; then waiting jobs take what is left over, then jobs grow, or move
    to idle GPUs on which they are faster. A job that could not start anew (its nodes drain) has no part in the shares,
    and keeps what the picks leave it."""
    free = [job for job in starved if job.name not in placer.taken]
    for job, gpus in sorted(picks, key=lambda p: (-sum(p[1].values()), p[0].order)):
        if job.name in placer.taken:  # its round is not over
            continue
        first, *others = sorted(gpus, key=lambda t: -gpus[t])
        if not (others and _spanning(placer, job, gpus)):
            _largest(placer, job, job.gpus.at_most(gpus[first]), first)
    for job in starved:
        if job.name not in placer.taken:
            stay = None if could(job) else placer.keep(job)
            if stay:
                placer.take(job, stay)
            else:
                placer.drop(job)
    fill(placer, starved)
    while _onto_faster(placer, free):
        fill(placer, starved)


def _onto_faster(placer: Placer, jobs: Sequence[Job]) -> bool:
    """Jobs that run move to idle GPUs of a type on which they are faster; True if one did. Whole gangs leave some of a
    tenant's GPUs of a type over, and its jobs would be on slower ones beside them."""
    speeds = placer.speeds
    moved = False
    for job in jobs:
        has = placer.taken.get(job.name)
        now = speeds.rate(job, has) if has else None
        if not has or not now or not job.throughput:
            continue
        size = sum(has.values())
        for t in speeds.types(job):
            faster = now * (1 + NOISE)
            if placer.free(t) < size or (speeds.at(job, t, size) or 0.0) <= faster:
                continue
            placer.give_back(job)
            place = placer.best(job, size, t)
            there = speeds.rate(job, place) if place else None
            if place and there is not None and there > faster:
                has, now, moved = place, there, True
            placer.take(job, has)
    return moved


def _spanning(placer: Placer, job: Job, gpus: Mapping[GpuType, Gpus]) -> bool:
    """Take a pick of several types; False if the cluster cannot carry it out."""
    places = [placer.best(job, n, t) for t, n in gpus.items()]
    if not all(places):
        return False
    try:
        placer.take(job, {node: n for place in places if place for node, n in place.items()})
    except ValueError:
        return False
    return True


def _largest(placer: Placer, job: Job, gpus: Gpus, gpu_type: GpuType | None) -> None:
    """Take the largest feasible gang up to `gpus` that has a place; none if there is none."""
    while gpus > 0:
        found = placer.best(job, gpus, gpu_type)
        if found:
            placer.take(job, found)
            return
        gpus = job.gpus.at_most(gpus - 1)


def _stand(snapshot: Snapshot, placer: Placer, answer: Shares) -> Proposal:
    """No shares in time: who holds keeps, and the rest goes to whoever can use it, longest-starved first."""
    for job in sorted(snapshot.jobs, key=lambda j: j.order):
        stay = placer.keep(job)
        if stay:
            placer.take(job, stay)
    for job in snapshot.jobs:
        if job.name not in placer.taken:
            placer.drop(job)
    fill(placer, sorted((j for j in snapshot.jobs if j.work.left != 0), key=_starved))
    note = f"the program of the shares ended as {answer.solver.termination}: who holds keeps, the rest fills up"
    allocation = {j.name: placer.taken.get(j.name, EMPTY) for j in snapshot.jobs}
    return Proposal(allocation, state=snapshot.state, solver=answer.solver, notes=(*answer.notes, note))


def _ideal(
    kinds: Iterable[Kind], shares: Mapping[JobName, Share], types: Sequence[GpuType]
) -> dict[str, dict[GpuType, float]]:
    """By tenant: GPUs of each type, the shares of its jobs together."""
    out: dict[str, dict[GpuType, float]] = {}
    for kind in kinds:
        of = out.setdefault(kind.tenant, dict.fromkeys(types, 0.0))
        for job in kind.jobs:
            for t, x in shares[job.name].items():
                of[t] += x
    return out


def _reasons(
    jobs: Sequence[Job],
    allocation: Mapping[JobName, Allocation],
    shares: Mapping[JobName, Share],
    ideal: Table,
    deviation: Table,
    real: Mapping[str, Mapping[GpuType, int]],
    placer: Placer,
    context: Context,
) -> dict[JobName, Reason]:
    out: dict[JobName, Reason] = {}
    for job in jobs:
        mine = {t: round(x, 4) for t, x in ideal.get(job.tenant, {}).items() if x > 0}
        owed = {t: round(x, 4) for t, x in deviation.get(job.tenant, {}).items()}
        got = dict(real.get(job.tenant, {}))
        numbers = {"share": dict(shares.get(job.name, EMPTY)), "tenant_share": mine, "owed": owed, "round": got}
        alone = any(placer.possible(job, job.gpus.min, t) for t in context.speeds.types(job))
        change = _changes(job, len(ideal) > 1 and alone) if mine else "a speed that is known here"
        seen = reasons.outcome(job, allocation[job.name], context.speeds, change)
        room = placer.room(job.tenant)
        if not allocation[job.name] and room is not None and room < job.gpus.min:
            capped = reasons.waits(job, Code.WAITS_CAP, job.gpus.min, placer)
            code = Code.PREEMPTED if job.held else capped.code
            out[job.name] = Reason(code, capped.text, {**numbers, **capped.numbers}, capped.change)
        elif seen is not None:
            out[job.name] = Reason(
                seen.code, seen.text, {**seen.numbers, **numbers}, "" if allocation[job.name] else change
            )
        elif mine:
            text = _waits_for(job, mine, bool(got), alone)
            free = placer.free()
            out[job.name] = Reason(Code.WAITS_TURN, text, {"gpus": 0, "held": 0, "free": free, **numbers}, change)
    return out


def _changes(job: Job, weighs: bool) -> str:
    return f"a larger weight of {job.tenant}, or fewer tenants" if weighs else "other jobs that end"


def _waits_for(job: Job, mine: Share, got: bool, alone: bool) -> str:
    """`alone`: the nodes of some type hold it."""
    least, entitled = job.gpus.min, _say(mine)
    if not alone:
        wide = f"no GPU type has {reasons.gpus(least)} on nodes that could hold it alone"
        return f"{wide}: it waits for so many that all others leave over"
    if got and least > math.ceil(max(mine.values())):
        whose = f"{job.tenant} is entitled to {entitled}, which its smaller gangs use"
        return f"{whose}: one of {reasons.gpus(least)} waits for so many that all others leave over"
    if got:
        return f"{job.tenant} is entitled to {entitled}; this round its whole GPUs go to jobs served less"
    return f"{job.tenant} is entitled to {entitled}, less than a gang: it waits, and is owed the more"


def _say(share: Mapping[GpuType, float]) -> str:
    return ", ".join(f"{x:.3g} {t}" for t, x in share.items())
