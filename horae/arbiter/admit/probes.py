"""Active profiling: a job runs for a moment at another count or on another type, because knowing its speed there
would change the decision (`profiler.estimates.explore` says when that pays).

A place is a GPU type and a count that the job may have. What is known of a rate there: what the jobs of its model
key have shown (`Measurement.places`); on a type that none of them ran on, the site's ratio between the types, with a
factor of `TYPE_DOUBT` on either side.

A probe is an ordinary change: it is asked of the guards like any other, journaled with its reason, and carried out by
stopping and starting. It takes idle GPUs only, begins only while nothing else moves in the pool, and gives way as
soon as the policy needs its GPUs: for `repair` it is a wish to stay (`Standing.stay`), no claim. It is over when the
job has run there long enough and was measured, or when its time is up; then the policy's word holds again, now
with the measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from horae.arbiter.admit import guards
from horae.arbiter.admit.guards import Reallocation, Speed
from horae.arbiter.decide.album import SnapshotSources, recorded
from horae.arbiter.modes import mode_of
from horae.arbiter.standing import movable
from horae.config import Mode, Pool
from horae.config import Probes as Rules
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.measured import Known, Measurement
from horae.port import JobState
from policy.model import EMPTY, Allocation, Gpus, GpuType, Health, Job, JobName, Seconds, Snapshot
from profiler.estimates.explore import Budget, Candidate, ProbePlan, plan
from profiler.estimates.explore import Known as Belief

TYPE_DOUBT = 2.0
MEASURED = "measured"
#: What stopping, queueing and starting may take beyond the job's own restart cost, before a probe is given up.
PATIENCE_S = 300.0

#: A place for `gpus` GPUs of one type for a job, beside the settled targets; empty: there is none.
Find = Callable[[Mapping[JobName, Allocation], Job, Gpus, GpuType], Allocation]


@dataclass(frozen=True, slots=True)
class Standing:
    """The probes that go on: where their jobs are to be, and those that are over."""

    stay: Mapping[JobName, Allocation] = field(default_factory=lambda: EMPTY)
    over: tuple[Draft, ...] = ()


def active(ledger: Ledger, pool: Pool, rules: Rules) -> bool:
    """Whether new probes may be planned in the pool at all."""
    mode = mode_of(ledger, pool)
    books = ledger.pool(pool.name)
    allowed = mode is Mode.ENFORCE or (mode is Mode.ADVISE and rules.advise)
    return allowed and rules.an_hour > 0 and books.maintenance is None and not books.releasing


def standing(ledger: Ledger, pool: Pool, view: SnapshotSources) -> Standing:
    """What the probes under way ask for now."""
    stay: dict[JobName, Allocation] = {}
    over: list[Draft] = []
    rules, go_on = view.config.probes, active(ledger, pool, view.config.probes)
    for record in ledger.in_motion(pool.name):
        if record.probe is None:
            continue
        why = _over(record, view, rules) if go_on else "probes are switched off in its pool"
        if why:
            over.append(events.Probed(record.id, pool.name, over=why))
        else:
            stay[record.id] = record.probe.allocation
    return Standing(stay, tuple(over))


def _over(record: JobRecord, view: SnapshotSources, rules: Rules) -> str:
    probe, now_s = record.probe, view.now_s
    assert probe is not None
    there = record.state is JobState.RUNNING and record.allocation == probe.allocation
    if there and record.started_s is not None and now_s - record.started_s >= rules.run_s:
        known = _known(record, view).get(probe.gpu_type, {}).get(probe.gpus)
        if known is not None and known.source == MEASURED:
            return f"measured: {known.value:.4g} iterations/s on {probe.gpus} {probe.gpu_type}"
    if now_s >= probe.until_s:
        return f"its time was up before anything was measured on {probe.gpus} {probe.gpu_type}"
    return ""


def due_s(record: JobRecord, rules: Rules) -> tuple[Seconds, ...]:
    """When something about the job's probe may be over."""
    if record.probe is None:
        return ()
    started_s = record.started_s if record.started_s is not None else 0.0
    return (record.probe.until_s, started_s + rules.run_s)


def overruled(pool: Pool, jobs: Sequence[JobName]) -> tuple[Draft, ...]:
    return tuple(events.Probed(job, pool.name, over="the policy needs its GPUs") for job in jobs)


def begun(
    ledger: Ledger,
    pool: Pool,
    view: SnapshotSources,
    snapshot: Snapshot,
    targets: Mapping[JobName, Allocation],
    *,
    find: Find,
    speed: Speed,
) -> tuple[dict[JobName, Allocation], tuple[Draft, ...]]:
    """New probes: where their jobs go, and their events. None while anything in the pool is to move."""
    rules, now_s = view.config.probes, view.now_s
    if not active(ledger, pool, rules) or any(targets.get(j.name, EMPTY) != j.allocation for j in snapshot.jobs):
        return {}, ()
    moves: dict[JobName, Allocation] = {}
    drafts: list[Draft] = []
    jobs = {job.name: job for job in snapshot.jobs}
    for one in suggested(ledger, pool, view, snapshot).suggestions:
        record, job = ledger.jobs[one.job], jobs[one.job]
        others = {j: a for j, a in {**targets, **moves}.items() if j != one.job}
        allocation = find(others, job, one.gpus, one.gpu_type)
        if sum(allocation.values()) != one.gpus or _vetoed(ledger, pool, view, record, job, allocation, speed):
            continue
        cost_s = job.restart_cost_s if job.restart_cost_s is not None else view.config.guards.restart_cost_s
        until_s = now_s + record.spec.grace_s + cost_s + rules.run_s + PATIENCE_S
        moves[one.job] = allocation
        drafts.append(
            events.Probed(
                one.job,
                pool.name,
                gpu_type=one.gpu_type,
                gpus=one.gpus,
                allocation=allocation,
                until_s=until_s,
                text=one.text,
            )
        )
    return moves, tuple(drafts)


def _vetoed(
    ledger: Ledger, pool: Pool, view: SnapshotSources, record: JobRecord, job: Job, allocation: Allocation, speed: Speed
) -> bool:
    health = {n.name: n.health for n in view.observation.nodes}
    books = ledger.pool(pool.name)
    change = Reallocation(
        record, job, job.allocation, allocation, view.config.guards, view.now_s, health, books.maintenance, speed
    )
    return guards.veto(change) is not None


def suggested(ledger: Ledger, pool: Pool, view: SnapshotSources, snapshot: Snapshot) -> ProbePlan:
    """The probes that would pay now, and why the other jobs are not probed."""
    config, rules = view.config, view.config.probes
    ratios = {t: config.gpu_types.get(t, 1.0) for t in snapshot.cluster.gpu_types}
    free = idle(snapshot)
    types = {n.name: n.gpu_type for n in snapshot.cluster.nodes}
    found = []
    for job in snapshot.jobs:
        record = ledger.jobs.get(job.name)
        held = {types[n] for n in job.allocation if n in types}
        if record is None or record.state is not JobState.RUNNING or record.probe is not None or len(held) != 1:
            continue  # it waits, moves, is probed already, or spans types: its rate says nothing of either
        allowed = {t: r for t, r in ratios.items() if record.spec.runs_on(t)}
        measured = view.fresh.get(record.id) or recorded(record)
        found.append(
            candidate(
                job,
                held.pop(),
                measured,
                free,
                allowed,
                movable=movable(record) and not job.gpus.rigid,
                moved_s=max([record.started_s or 0.0, *record.restarts[-1:]]),
                now_s=view.now_s,
                restart_cost_s=config.guards.restart_cost_s,
            )
        )
    budget = Budget(rules.an_hour, rules.run_s, rules.horizon_s, rules.price, rules.settle_s)
    return plan(found, free, ledger.pool(pool.name).probes, view.now_s, budget)


def candidate(
    job: Job,
    gpu_type: GpuType,
    measured: Measurement,
    free: Mapping[GpuType, Gpus],
    ratios: Mapping[GpuType, float],
    *,
    movable: bool,
    moved_s: Seconds,
    now_s: Seconds,
    restart_cost_s: Seconds,
) -> Candidate:
    """A job as the planner sees it. `ratios`: the site's relative speeds of the types that the job may have.
    `restart_cost_s`: assumed until a restart of the job was measured."""
    places = _places(job, measured.places, free, ratios)
    here = places.get((gpu_type, job.held))
    left = job.work_left
    return Candidate(
        job=job.name,
        key=measured.key or f"job/{job.name}",
        gpu_type=gpu_type,
        gpus=job.held,
        places=places,
        restart_cost_s=job.restart_cost_s if job.restart_cost_s is not None else restart_cost_s,
        left_s=left / here.value if left is not None and here is not None and here.value > 0 else None,
        movable=movable,
        since_resize_s=now_s - moved_s,
    )


def idle(snapshot: Snapshot) -> dict[GpuType, Gpus]:
    """GPUs by type that nobody holds, on healthy nodes."""
    held: dict[str, int] = {}
    for job in snapshot.jobs:
        for name, gpus in job.allocation.items():
            held[name] = held.get(name, 0) + gpus
    free: dict[GpuType, Gpus] = {}
    for node in snapshot.cluster.nodes:
        if node.health is Health.UP:
            left = max(node.gpus - node.foreign - held.get(node.name, 0), 0)
            free[node.gpu_type] = free.get(node.gpu_type, 0) + left
    return free


def _known(record: JobRecord, view: SnapshotSources) -> Mapping[GpuType, Mapping[Gpus, Known]]:
    return (view.fresh.get(record.id) or recorded(record)).places


def _places(
    job: Job,
    known: Mapping[GpuType, Mapping[Gpus, Known]],
    free: Mapping[GpuType, Gpus],
    ratios: Mapping[GpuType, float],
) -> dict[tuple[GpuType, Gpus], Belief]:
    places: dict[tuple[GpuType, Gpus], Belief] = {}
    for gpu_type in free:
        if gpu_type not in ratios:
            continue
        for gpus in _counts(job, free[gpu_type] + job.held):
            rate = known.get(gpu_type, {}).get(gpus)
            if rate is not None:
                places[gpu_type, gpus] = Belief(rate.value, rate.low, rate.high, rate.source)
                continue
            like = next((r[gpus] for other, r in known.items() if other != gpu_type and gpus in r), None)
            other = next((o for o, r in known.items() if o != gpu_type and gpus in r), None)
            if like is not None and other is not None and gpu_type not in known and other in ratios:
                value = like.value * ratios[gpu_type] / ratios[other]
                places[gpu_type, gpus] = Belief(value, value / TYPE_DOUBT, value * TYPE_DOUBT, "prior")
    return places


def _counts(job: Job, most: Gpus) -> list[Gpus]:
    """The gangs worth asking about: what the job may have, in doublings, and what it has."""
    counts = {1 << i for i in range(max(most, 1).bit_length())} | {job.held, job.gpus.min}
    if job.gpus.allowed is not None:
        counts |= set(job.gpus.allowed)
    return sorted(n for n in counts if 0 < n <= most and job.gpus.feasible(n))
