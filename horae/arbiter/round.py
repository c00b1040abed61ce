"""One round, as functions of values: nothing here looks at a clock, a cluster, a file or a policy by itself.

    look      observation                 -> events           (`reconcile.py`)
    question  ledger + observation        -> a snapshot       (`snapshot.py`)
    admission snapshot + answer           -> targets, events  (`guards.py`, `repair.py`, `decision_record.py`)
    steps     ledger + targets            -> ordered actions  (`plan.py`, `positions.py`)

`core.py` strings them together as events come in, the journal takes the events, `executor.py` carries the steps out.
A dry run is the same functions with nobody to carry anything out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from horae.arbiter.admit import decision_record, guards, probes
from horae.arbiter.admit.guards import Reallocation, Speed, Veto
from horae.arbiter.admit.models import Models
from horae.arbiter.admit.repair import Fit, repair
from horae.arbiter.decide.album import Album, SnapshotSources
from horae.arbiter.decide.policy_runner import Answer, Question
from horae.arbiter.decide.snapshot import Apps, options_of, picture_of_the_fit
from horae.arbiter.execute.plan import PlanPhase
from horae.arbiter.execute.positions import phase_of
from horae.arbiter.modes import mode_of
from horae.arbiter.observe.absences import closing
from horae.arbiter.standing import backoff_until, decidable, keeps_to_itself, movable
from horae.config import Config, Mode, Pool
from horae.journal import Draft, Ledger, events
from horae.journal.quiet import quiet
from horae.port import JobState
from policy import away, catalogue
from policy.model import EMPTY, Allocation, Decision, Health, Job, JobName, Seconds, Snapshot

__all__ = ["Admission", "admission", "backoff_until", "no_apps", "question"]


def no_apps(_ledger: Ledger, _pool: str) -> tuple[()]:
    return ()


@quiet()
def question(
    ledger: Ledger, pool: Pool, view: SnapshotSources, apps: Apps = no_apps, album: Album | None = None
) -> Question:
    """`album`: what of the pool's last question still holds."""
    snapshot, unfit = picture_of_the_fit(ledger, pool, view, apps=apps(ledger, pool.name), album=album)
    file = catalogue.file(pool.policy)
    return Question(
        pool=pool.name,
        snapshot=snapshot,
        policy=pool.policy,
        options=options_of(pool),
        seed=pool.seed + ledger.pool(pool.name).decisions,
        limit_s=view.config.rounds.decide_s,
        source=b"" if file is None else file.source,
        unfit=unfit,
    )


def ran_out(ledger: Ledger, pool: str, config: Config, since_s: Seconds, now_s: Seconds) -> bool:
    """Whether a lease, a limit, a probe or a wait of the pool's jobs ended between two times."""
    books = ledger.pool(pool)
    times = [c.until_s for c in books.caps.values()] + [a.until_s for a in books.avoid.values()]
    for rec in ledger.in_motion(pool):
        times += probes.due_s(rec, config.probes)
        if rec.cap is not None:
            times.append(rec.cap.until_s)
        for node_times in rec.leases.values():
            times += node_times
        if rec.aside is not None:
            times.append(rec.aside.until_s)
        if rec.state is JobState.LOST:
            times.append(backoff_until(rec, config))
    return any(since_s < t <= now_s for t in times)


@dataclass(frozen=True, slots=True)
class Admission:
    """What is to be, after the guards. `drafts` put it on record."""

    targets: Mapping[JobName, Allocation]
    vetoes: Mapping[JobName, Veto] = field(default_factory=dict)
    drafts: tuple[Draft, ...] = ()


@quiet()
def admission(
    ledger: Ledger, pool: Pool, view: SnapshotSources, asked: Question, answer: Answer, models: Models
) -> Admission:
    """Turn an answer into targets. Without a decision the previous targets stand."""
    record = _recorder(ledger, pool, view, asked, answer)
    if answer.decision is None:
        return Admission({}, drafts=record({}))
    snapshot = away.prepared(asked.snapshot)
    claims = _claims(ledger, pool, view, snapshot, answer.decision)
    speed = models.speed(snapshot)
    held = _held_back(ledger, pool, view, claims, speed)
    fit = repair(
        [j.name for j in claims.jobs if j.name in claims.wanted],
        claims.wanted,
        {j.name: j.allocation for j in claims.jobs},
        capacity=_capacity(snapshot),
        vetoed=frozenset(held.hard),
        soon=frozenset(job for job, veto in held.hard.items() if veto.guard == guards.BEING_STARTED),
        stay=held.stay,
        place=models.place(snapshot),
    )
    targets, told = _probed(ledger, pool, view, snapshot, held, fit, models.find, speed)
    vetoes = _vetoes_told(held, fit, claims.wanted)
    drafts = (
        *record(targets),
        *told,
        *decision_record.guarded(ledger, pool.name, vetoes, claims.wanted),
        *_cancels(ledger, pool, answer.decision),
    )
    return Admission(targets, vetoes, drafts)


def _recorder(
    ledger: Ledger, pool: Pool, view: SnapshotSources, asked: Question, answer: Answer
) -> Callable[[Mapping[JobName, Allocation]], tuple[Draft, ...]]:
    """What puts the answer on record, once it is known what becomes of it."""

    def record(targets: Mapping[JobName, Allocation]) -> tuple[Draft, ...]:
        draft = decision_record.decided(
            ledger,
            pool.name,
            question={"policy": asked.policy, "options": dict(asked.options), "seed": asked.seed},
            decision=answer.decision,
            why_not=answer.why_not if answer.decision is None else "",
            took_s=answer.took_s,
            targets=targets,
            now_s=view.now_s,
        )
        return (draft,) if draft else ()

    return record


@dataclass(frozen=True, slots=True)
class _Claims:
    """Who is decided about still, and what the policy wants them to hold."""

    jobs: list[Job]
    wanted: dict[JobName, Allocation]


def _claims(ledger: Ledger, pool: Pool, view: SnapshotSources, snapshot: Snapshot, decision: Decision) -> _Claims:
    """While the policy thought, a job may have been cancelled, held or lost: it is not decided about any more."""
    unseen = keeps_to_itself(ledger, view.config, pool.name)

    def still(job: Job) -> bool:
        found = ledger.jobs.get(job.name)
        return found is not None and decidable(found, view.config, view.now_s, unseen=unseen)

    jobs = [job for job in snapshot.jobs if still(job)]
    wanted = {j.name: decision.allocation.get(j.name, EMPTY) for j in jobs if j.name not in decision.cancel}
    return _Claims(jobs, wanted)


@dataclass(frozen=True, slots=True)
class _HeldBack:
    """What stands against the policy's wish: guards that nothing overrules, guards that room does, probes."""

    hard: dict[JobName, Veto]
    soft: dict[JobName, Veto]
    probing: probes.Standing
    going: dict[JobName, Allocation]  #: probes that go on
    stay: dict[JobName, Allocation]


def _held_back(ledger: Ledger, pool: Pool, view: SnapshotSources, claims: _Claims, speed: Speed) -> _HeldBack:
    jobs, wanted = claims.jobs, claims.wanted
    probing = probes.standing(ledger, pool, view)
    going = {job: a for job, a in probing.stay.items() if job in wanted}
    hard, soft = _vetoes(ledger, pool, view, jobs, {**wanted, **going}, speed)
    soft = {job: veto for job, veto in soft.items() if job not in going}
    stay = {j.name: j.allocation for j in jobs if j.name in soft} | _in_transit(ledger, view, jobs, wanted, speed)
    return _HeldBack(hard, soft, probing, going, stay | going)


def _probed(
    ledger: Ledger,
    pool: Pool,
    view: SnapshotSources,
    snapshot: Snapshot,
    held: _HeldBack,
    fit: Fit,
    find: Callable[[Snapshot], probes.Find] | None,
    speed: Speed,
) -> tuple[dict[JobName, Allocation], tuple[Draft, ...]]:
    """The targets, with a probe begun where nothing else is under way, and what is told of probes."""
    targets = dict(fit.targets)
    told = (*held.probing.over, *probes.overruled(pool, sorted(fit.overruled & held.going.keys())))
    if find is None or held.going or held.hard or told:
        return targets, told
    moves, begun = probes.begun(ledger, pool, view, snapshot, targets, find=find(snapshot), speed=speed)
    return targets | moves, begun


def _vetoes_told(held: _HeldBack, fit: Fit, wanted: Mapping[JobName, Allocation]) -> dict[JobName, Veto]:
    """The vetoes that changed something, and those who get less because of them."""
    soft = {j: v for j, v in held.soft.items() if j not in fit.overruled and fit.targets[j] != wanted[j]}
    back = {
        job: Veto("room", f"the GPUs it was to get stay with {_named(whose)} for now")
        for job, whose in fit.stepped_back.items()
    }
    return {**back, **soft, **held.hard}


def _named(jobs: tuple[JobName, ...]) -> str:
    return f"job{'s' if len(jobs) > 1 else ''} {', '.join(jobs)}" if jobs else "others"


def _cancels(ledger: Ledger, pool: Pool, decision: Decision) -> list[Draft]:
    """Trials that their app's scheduler ends. Where the pool does not enforce, it is advice, and in the decision."""
    if mode_of(ledger, pool) is not Mode.ENFORCE:
        return []
    found = [(job, ledger.jobs.get(job)) for job in decision.cancel]
    return [
        events.CancelAsked(job, f"the scheduler of app {record.app}", _why(decision.reasons.get(job)))
        for job, record in found
        if record is not None and record.live and record.cancel_why is None
    ]


def _in_transit(
    ledger: Ledger, view: SnapshotSources, jobs: list[Job], wanted: Mapping[JobName, Allocation], speed: Speed
) -> dict[JobName, Allocation]:
    """Jobs on their way to a target that is as good as the one they would get now: they go on to it.

    A job between two starts holds nothing, and a policy that places it anew may place it elsewhere than when it
    decided to move it. Without this it could be moved to and fro for ever.
    """
    out: dict[JobName, Allocation] = {}
    closed = closing(view.away, view.now_s)
    health = {n.name: n.health for n in view.observation.nodes if n.name not in closed}
    for job in jobs:
        record = ledger.jobs[job.name]
        target = record.target
        if not target:
            continue
        other = wanted.get(job.name)
        if not other or target == other or sum(target.values()) != sum(other.values()):
            continue
        if phase_of(record, view.now_s, view.config.rounds.settle_s) is PlanPhase.RUNS:
            continue
        if any(health.get(node) is not Health.UP for node in target):
            continue
        now, then = speed(job, other), speed(job, target)
        if now is None or then is None or now <= then:
            out[job.name] = target
    return out


def _why(reason: object) -> str:
    return str(getattr(reason, "text", "")) or "its app's scheduler ended it"


def _vetoes(
    ledger: Ledger,
    pool: Pool,
    view: SnapshotSources,
    jobs: list[Job],
    wanted: Mapping[JobName, Allocation],
    speed: Speed,
) -> tuple[dict[JobName, Veto], dict[JobName, Veto]]:
    books = ledger.pool(pool.name)
    health = {n.name: n.health for n in view.observation.nodes}
    wake_s = {n.name: n.wake_s for n in view.observation.nodes if n.wake_s}
    hard, soft = {}, {}
    closed = closing(view.away, view.now_s)
    for job in jobs:
        if not job.allocation:
            continue  # it has nothing to protect
        rec, target = ledger.jobs[job.name], wanted.get(job.name)
        if target is None or target == job.allocation:
            continue
        if phase_of(rec, view.now_s, view.config.rounds.settle_s) is not PlanPhase.RUNS:
            continue  # it is leaving already, or not there yet: there is nothing to protect
        if books.maintenance is None and closed.intersection(rec.allocation) and movable(rec):
            continue  # its node goes away, whatever that costs it
        change = Reallocation(
            rec,
            job,
            job.allocation,
            target,
            view.config.guards,
            view.now_s,
            health,
            books.maintenance,
            speed,
            wake_s,
        )
        if (found := guards.veto(change)) is not None:
            hard[job.name] = found
        elif (found := guards.veto(change, guards.SOFT_GUARDS)) is not None:
            soft[job.name] = found
    return hard, soft


def _capacity(snapshot: Snapshot) -> dict[str, int]:
    return {n.name: n.gpus - n.foreign if n.health is not Health.DOWN else 0 for n in snapshot.cluster.nodes}
