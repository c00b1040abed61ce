"""AFS-P and AFS-S: Apathetic Future Share without job lengths (AFS §3.3, Appendix D).

While the smallest gangs of all jobs fit (stage two), AFS-P gives step after step to the job with the top priority by
comparison (3) evaluated both ways: b precedes a if (3) holds for (a, b), a precedes b if it holds for (b, a); (3)
cannot hold both ways, and where it holds neither way the order would depend on lengths that nobody knows: the paper
draws, here the tie rule decides (earliest submitted, then name), which is what makes a replay possible.

While they do not fit (stage one), jobs share the processor: each gets its smallest gang in the order of a counter of
units of time (`unit`, 2 h in the paper) it has run, not pre-empted within a unit. A job that completes a unit goes
back behind the others. The paper's jobs all have a smallest gang of one GPU, so that stage one leaves none idle; behind
a wider gang that has no room idle GPUs would stay so for a whole unit. They go to the jobs that run, as in stage two.
What a unit is charged is GPU-seconds over the smallest gang, so a job that grew ends its unit sooner, and the wide gang
has its turn sooner.

AFS-S knows of a job only the size at which it is fastest (Appendix D): stage one is the same, stage two is max-min up
to that size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.afs.afs_l import even, stage_two
from policy.contract import Context
from policy.model import Code, Job, JobName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.assign import assign, explain, wants
from policy.parts.ordered import active
from policy.parts.pools import Counted, Pools
from policy.parts.standing import beside_known
from policy.places.placement import Placer


@beside_known
def decide_p(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, simple=False)


@beside_known
def decide_s(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _decide(snapshot, options, context, simple=True)


def counted_p(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Counted:
    """The sizes alone, for a cluster of one pool, where a place for them is no question."""
    turn = _shared(snapshot, options, context, simple=False)
    return Counted(turn.pools.count, turn.state())


def _decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context, *, simple: bool) -> Proposal:
    """State, by job: `units` completed, the GPU-seconds attained when the running unit began (`base`), and the place in
    the queue (`rank`)."""
    turn = _shared(snapshot, options, context, simple=simple)
    placed = assign(snapshot, wants(turn.pools), turn.queue, context)
    told = [j for j in turn.jobs if j.name not in turn.stuck]
    said = _reasons(told, placed.placer, turn.units, turn.crowded, context)
    said |= explain(snapshot, turn.jobs, turn.sated, placed, context)
    return Proposal(placed.placer.taken, reasons=said, state=turn.state())


@dataclass(slots=True)
class _Turn:
    """Who gets how much. `queue`: the jobs in the order of their turns; `stuck`: those that can never run; `crowded`:
    somebody else has none; `sated`: those that more would not make faster."""

    jobs: list[Job]
    queue: list[Job]
    units: dict[JobName, tuple[int, float]]
    pools: Pools
    stuck: set[JobName]
    crowded: bool
    sated: set[JobName] = field(default_factory=set)

    def state(self) -> dict[str, Any]:
        rank = {job.name: n for n, job in enumerate(self.queue)}
        return {"jobs": {n: {"units": u, "base": base, "rank": rank[n]} for n, (u, base) in self.units.items()}}


def _shared(snapshot: Snapshot, options: Mapping[str, Any], context: Context, *, simple: bool) -> _Turn:
    jobs = active(snapshot)
    units = _units(snapshot, jobs, options["unit"])

    # Stage one in the order of counters; who is amid a unit goes on with it (non-preemptive).
    def amid(job: Job) -> bool:
        return bool(job.held) and sum(job.attained.values()) > units[job.name][1] + 1e-9

    queue = _same(snapshot, jobs, units) or sorted(jobs, key=lambda j: (units[j.name][0], not amid(j), j.order))
    pools, placer = Pools(snapshot, context.speeds), Placer(snapshot, context.speeds)
    fair = max(pools.left // max(len(jobs), 1), 1)
    stuck, crowded = _stage_one(pools, queue, placer)
    if not crowded and queue != jobs:
        # Nobody waits, so whose turn it is decides nothing: nor does it which GPUs a job has, or jobs would change
        # places whenever one begins or completes a unit.
        calm = Pools(snapshot, context.speeds)
        calmly, waits = _stage_one(calm, jobs, placer)
        if not waits:
            pools, stuck = calm, calmly
    turn = _Turn(jobs, queue, units, pools, stuck, crowded)
    running = [j for j in jobs if pools.count.get(j.name)]
    if simple:
        turn.sated = even(running, pools)
    else:  # a job of unknown speed grows to its fair share, and beyond with what nobody else wants (§4.5)
        turn.sated = stage_two(running, pools, fair, blind=True)
        turn.sated |= even([j for j in running if not j.throughput], pools)
    return turn


def _same(snapshot: Snapshot, jobs: list[Job], units: Mapping[JobName, tuple[int, float]]) -> list[Job]:
    """The queue as it was, while nobody arrives, ends or completes a unit; empty: it is made anew.

    Who begins is amid a unit from then on: without this its place, and then others', would change by that alone.
    """
    old = snapshot.state.get("jobs", {})
    same = len(old) == len(jobs) and all(
        j.name in old and "rank" in old[j.name] and old[j.name]["units"] == units[j.name][0] for j in jobs
    )
    return sorted(jobs, key=lambda j: old[j.name]["rank"]) if same else []


def _stage_one(pools: Pools, queue: list[Job], placer: Placer) -> tuple[set[JobName], bool]:
    """Give each its smallest gang, in this order: who can never have it, and whether somebody else has none.

    Nobody takes turns for jobs that can never run, that run only on what is left over of several types, or that only
    their own tenant's limit holds back.
    """
    stuck, crowded = set[JobName](), False
    for job in queue:
        step = pools.first_step(job)
        if step is None:
            continue
        if pools.fits(job, step):
            pools.give(job, step)
        elif pools.wider(step) or pools.held_back(job, step) or not placer.possible(job, step.gpus):
            stuck.add(job.name)
        else:
            crowded = True
    return stuck, crowded


def _units(snapshot: Snapshot, jobs: list[Job], unit: float) -> dict[JobName, tuple[int, float]]:
    """(units completed, GPU-s attained at the start of the running one) by job.

    A unit is time on the smallest gang: GPU-seconds over its size, so that it is charged from observed service.
    """
    old = snapshot.state.get("jobs", {})
    out: dict[JobName, tuple[int, float]] = {}
    for job in jobs:
        attained = sum(job.attained.values())
        before = old.get(job.name, {"units": 0, "base": 0.0})
        length = unit * (job.gpus.above(0) or 1)
        done = int(max(attained - before["base"], 0.0) / length + 1e-9)
        out[job.name] = (before["units"] + done, before["base"] + done * length)
    return out


def _reasons(
    jobs: list[Job],
    placer: Placer,
    units: Mapping[JobName, tuple[int, float]],
    crowded: bool,
    context: Context,
) -> dict[JobName, Reason]:
    out: dict[JobName, Reason] = {}
    for job in jobs:
        count = units[job.name][0]
        now = placer.taken.get(job.name)
        seen = reasons.outcome(job, now, context.speeds) if now else None
        if seen is not None:
            how = f"it has run {count} units of time, and jobs take turns" if crowded else "every job has GPUs"
            numbers = {**seen.numbers, "units": count}
            out[job.name] = Reason(seen.code, f"{seen.text}; {how}", numbers, seen.change)
        elif crowded and not placer.full(job):  # else nobody's turn helps it, and `fill` says why
            code = Code.PREEMPTED if job.held else Code.WAITS_TURN
            text = f"has run {count} units of time; jobs with fewer, or in the middle of one, are ahead"
            numbers = {"gpus": 0, "held": job.held, "units": count}
            out[job.name] = Reason(code, text, numbers, "a job ahead of it that completes its unit or ends")
    return out
