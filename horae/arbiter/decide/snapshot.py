"""The one picture a policy gets: observation + ledger + configuration -> `policy.model.Snapshot`. Pure.

What a policy may not move is not in it as a job but as foreign use of a node: jobs that are being cancelled or
held, jobs nobody could describe, those that stand on nodes of no pool and cannot leave them, and GPUs that a blocked
start showed to be unusable. So every answer to this picture can be carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from operator import attrgetter
from typing import Any

from horae.arbiter.decide.modes import mode_of
from horae.config import Config, Pool
from horae.journal import JobRecord, Ledger, PoolRecord
from horae.journal.codec import restore
from horae.journal.measured import Measurement
from horae.port import BlockKind, JobId, JobState, Observation, backoff_s
from policy import bounds, catalogue
from policy.model import (
    EMPTY,
    Allocation,
    App,
    Away,
    Beyond,
    Bytes,
    Cluster,
    GpuRange,
    Gpus,
    GpuType,
    Health,
    IterationsPerSecond,
    Job,
    Limits,
    Node,
    NodeName,
    PolicyChoice,
    Provenance,
    Quota,
    Seconds,
    Slowdown,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)

Apps = Callable[[Ledger, str], tuple[App, ...]]


@dataclass(frozen=True, slots=True)
class SnapshotSources:
    """What a picture is made of, beside the ledger."""

    observation: Observation
    pools: Mapping[NodeName, str]  #: node -> pool
    limits: Limits
    config: Config
    now_s: Seconds
    fresh: Mapping[JobId, Measurement] = field(default_factory=lambda: EMPTY)  #: newer than what is on record
    strays: Mapping[NodeName, Gpus] = field(default_factory=lambda: EMPTY)  #: held by jobs that are over for us
    cpus_per_gpu: float | None = None  #: of a worker whose job does not say
    memory_per_gpu: Bytes | None = None
    away: Mapping[NodeName, tuple[Away, ...]] = field(default_factory=lambda: EMPTY)  #: times ahead, by node
    beyond: Mapping[str, Beyond] = field(default_factory=lambda: EMPTY)  #: by tenant whose budget is used up


def strays(ledger: Ledger, observation: Observation) -> Counter[NodeName]:
    """GPUs that the cluster shows in the hands of jobs that the ledger has as ended: nobody else's yet."""
    held: Counter[NodeName] = Counter()
    for job in observation.jobs:
        record = ledger.jobs.get(job.id)
        if job.allocation and record is not None and not record.live:
            held.update(job.allocation)
    return held


def grant_stands(record: JobRecord, now_s: Seconds, settle_s: Seconds) -> bool:
    """A start that the cluster does not show yet, and that may still come: its GPUs are spoken for."""
    if record.grant is None:
        return False
    return record.state is JobState.STARTING or now_s - record.grant.at_s < settle_s


def occupies(record: JobRecord, now_s: Seconds, settle_s: Seconds) -> Allocation:
    """The GPUs that nobody else may be given: held, or granted and not shown yet."""
    if record.grant is None or not grant_stands(record, now_s, settle_s):
        return record.allocation
    if not record.allocation:
        return record.grant.allocation
    nodes = record.allocation.keys() | record.grant.allocation.keys()  # a reshape in place: either may be true
    return {n: max(record.allocation.get(n, 0), record.grant.allocation.get(n, 0)) for n in sorted(nodes)}


def movable(record: JobRecord) -> bool:
    """Whether it can be stopped and resumed without losing its work."""
    resumes = record.spec.elastic and record.spec.checkpoint is not None and not record.guessed
    return resumes and not record.checkpoint_trouble


def stands_elsewhere(record: JobRecord, known: frozenset[NodeName]) -> bool:
    """Whether it holds GPUs that are not its pool's, and cannot leave them: without those it would seem to wait,
    and be moved."""
    return record.state.holds and not known.issuperset(record.allocation) and not movable(record)


def backoff_until(record: JobRecord, config: Config) -> Seconds:
    """A job that is lost again and again waits before each next start, longer each time."""
    if record.state is not JobState.LOST or record.losses < 2:
        return 0.0
    return record.down_s + backoff_s(record.losses - 2, config.guards.loss_backoff_s, 3600.0)


def is_aside(record: JobRecord, now_s: Seconds) -> bool:
    """Whether it is left out because the policy cannot take it (`aside.py`)."""
    return record.aside is not None and record.aside.until_s > now_s


def keeps_to_itself(ledger: Ledger, config: Config, pool: str) -> bool:
    """Whether the pool's jobs are decided about and not handed to the cluster: it will never show those handed in."""
    found = config.pool(pool)
    mode = None if found is None else mode_of(ledger, found)
    return mode is not None and mode.decides and not mode.acts


def decidable(record: JobRecord, config: Config, now_s: Seconds, *, unseen: bool = False) -> bool:
    """Whether a policy decides about this job now; `unseen`: also where the cluster does not know it."""
    return (
        record.live
        and (record.shown or unseen)
        and record.missing_since_s is None
        and not record.guessed
        and record.wanted
        and not record.state.ended
        and not record.spec.without_gpus
        and (record.blocked is None or record.blocked.kind is not BlockKind.ASIDE)
        and not is_aside(record, now_s)
        and (record.losses < 2 or backoff_until(record, config) <= now_s)
    )


def options_of(pool: Pool) -> Mapping[str, Any]:
    """The pool's options, and those that mean something else in a living cluster unless the site says otherwise.

    An app weighs its tenant's weight over the tenant's active apps, so that splitting one sweep into ten buys nothing;
    `weigh: apps` is the papers' plain count.
    """
    entry = catalogue.known(pool.policy)
    if entry is not None and any(option.name == "weigh" for option in entry.options):
        return {"weigh": "tenants", **pool.options}
    return pool.options


def picture(
    ledger: Ledger, pool: Pool, view: SnapshotSources, *, apps: Iterable[App] = (), album: Album | None = None
) -> Snapshot:
    """The snapshot of one pool. Deterministic: equal inputs give equal snapshots, with or without an `album`."""
    return picture_of_the_fit(ledger, pool, view, apps=apps, album=album)[0]


def picture_of_the_fit(
    ledger: Ledger, pool: Pool, view: SnapshotSources, *, apps: Iterable[App] = (), album: Album | None = None
) -> tuple[Snapshot, dict[JobId, str]]:
    """The same, and the jobs that are not in it because no policy could take them, with what is wrong."""
    config, now_s = view.config, view.now_s
    books = ledger.pool(pool.name)
    mine = [node for node in view.observation.nodes if view.pools.get(node.name) == pool.name]
    types = tuple(dict.fromkeys(n.gpu_type for n in mine))
    if config.gpu_types:
        types = tuple(sorted(types, key=lambda t: config.gpu_types.get(t, 1.0)))
    known = frozenset(node.name for node in mine)
    unseen = keeps_to_itself(ledger, config, pool.name)
    records = sorted(
        (
            record
            for record in ledger.live(pool.name)
            if decidable(record, config, now_s, unseen=unseen) and not stands_elsewhere(record, known)
        ),
        key=_LINE,
    )
    album = album if album is not None else Album()
    album.open(view, types, known)
    fit, unfit = _fit(records, view, album)
    decided = {job.name for job in fit}
    album.close(decided)
    nodes = _nodes(ledger, books, mine, decided, view)
    tenants = sorted({job.tenant for job in fit})
    caps = _caps(ledger, pool.name, tenants, decided, view)
    choice = PolicyChoice(pool.policy, options_of(pool))
    snapshot = Snapshot(
        cluster=Cluster(nodes, view.limits, types),
        jobs=fit,
        tenants=tuple(Tenant(t, config.weight(t), caps.get(t), view.beyond.get(t)) for t in tenants),
        now_s=now_s,
        apps=tuple(apps),
        active_apps=tuple((s, n) for s, n in books.active_apps),
        state=books.state if books.policy == pool.policy else EMPTY,
        policy=choice,
        quotas=_quotas(ledger, records, decided, view),
    )
    return snapshot, unfit


def _caps(
    ledger: Ledger, pool: str, tenants: Iterable[str], decided: Collection[JobId], view: SnapshotSources
) -> dict[str, Gpus]:
    """The tightest of the cluster's limits, what blocked starts told, and the configuration's, by tenant."""
    found: dict[str, list[Gpus]] = {tenant: [cap] for tenant, cap in view.observation.caps.items()}
    for tenant, learnt in ledger.pool(pool).caps.items():
        if learnt.until_s > view.now_s:
            found.setdefault(tenant, []).append(learnt.cap)
    settle_s = view.config.rounds.settle_s
    for tenant in tenants:
        cap = view.config.cap(tenant)
        if cap is None:
            continue
        for record in ledger.live(pool):
            if record.tenant == tenant and record.id not in decided:
                cap -= sum(occupies(record, view.now_s, settle_s).values())
        found.setdefault(tenant, []).append(max(cap, 0))
    return {tenant: min(caps) for tenant, caps in found.items()}


#: The order in which jobs were handed in.
_LINE = attrgetter("submitted_s", "id")


def _quotas(
    ledger: Ledger, records: Iterable[JobRecord], decided: Collection[JobId], view: SnapshotSources
) -> tuple[Quota, ...]:
    """The site's limits, less what jobs that are not decided about hold of them; and what blocked starts told."""
    found = []
    for quota in view.observation.quotas:
        others = [ledger.jobs[name] for name in quota.whom if name not in decided and name in ledger.jobs]
        held = [sum(occupies(record, view.now_s, view.config.rounds.settle_s).values()) for record in others]
        gpus = None if quota.gpus is None else max(quota.gpus - sum(held), 0)
        jobs = None if quota.jobs is None else max(quota.jobs - sum(map(bool, held)), 0)
        whom = tuple(name for name in quota.whom if name in decided)
        if whom:
            found.append(Quota(quota.name, whom, gpus, jobs))
    for record in records:
        cap = record.cap
        if cap is not None and cap.until_s > view.now_s and record.id in decided:
            found.append(Quota(f"{cap.text}, for {record.id}", (record.id,), cap.cap))
    return tuple(found)


def _fit(records: Iterable[JobRecord], view: SnapshotSources, album: Album) -> tuple[tuple[Job, ...], dict[JobId, str]]:
    """The jobs that a policy may be asked about, and why the others cannot be."""
    fit, unfit = [], {}
    for record in records:
        try:
            job, wrong = album.job(record, view)
        except (ArithmeticError, ValueError, TypeError, LookupError) as error:
            # Its own numbers, wherever they came from: it is one job's trouble, and is told as that.
            unfit[record.id] = f"no picture can be made of it: {type(error).__name__}: {error}"
            continue
        if wrong is None:
            fit.append(job)
        else:
            unfit[record.id] = f"no policy can take it: its {wrong}"
    return tuple(fit), unfit


def _nodes(
    ledger: Ledger, books: PoolRecord, mine: Iterable[Node], decided: Collection[JobId], view: SnapshotSources
) -> tuple[Node, ...]:
    """The pool's nodes, with what those hold there that are not decided about as foreign use."""
    taken: Counter[NodeName] = Counter(view.strays)
    for record in ledger.live():
        if record.id not in decided:
            taken.update(occupies(record, view.now_s, view.config.rounds.settle_s))
    for name, avoid in books.avoid.items():
        if avoid.until_s > view.now_s:
            taken[name] += avoid.gpus
    still = books.maintenance is not None
    return tuple(_node(node, taken[node.name], still, view.away.get(node.name, ())) for node in mine)


def _node(node: Node, taken: Gpus, maintenance: bool, away: tuple[Away, ...]) -> Node:
    """In maintenance nothing moves, for whatever cause."""
    health = Health.DRAIN if maintenance and node.health is Health.UP else node.health
    return replace(node, foreign=min(node.foreign + taken, node.gpus), health=health, away=() if maintenance else away)


#: All that the picture of a job that holds nothing is made of, beside what is measured now.
_SHOWN = attrgetter(
    "spec", "tenant", "app", "submitted_s", "guessed", "state", "allocation", "charged_s", "measured", "checkpoint",
    "leases", "restart_cost_s", "warmup_s", "priority", "precedence",
)  # fmt: skip


class Album:
    """What of the last picture still holds: a job that nothing happened to is the same object again, and equal parts
    of different jobs (tables, ranges, shapes) are one object, so that whoever works on them does it once.

    It changes no value, only who is identical to whom. One album a pool.
    """

    def __init__(self) -> None:
        self._about: tuple[object, ...] = ()
        self._types: tuple[GpuType, ...] = ()
        self._nodes: frozenset[NodeName] = frozenset()
        self._jobs: dict[JobId, tuple[tuple[object, ...], Job]] = {}  #: those that a policy can take
        self._tables: dict[object, _Tables] = {}
        self._same: dict[object, Any] = {}
        self._bounds = bounds.Known()

    def open(self, view: SnapshotSources, types: tuple[GpuType, ...], nodes: frozenset[NodeName]) -> None:
        """What every job depends on; where it is another than last time, nothing holds any more."""
        about = (view.config, types, nodes, view.cpus_per_gpu, view.memory_per_gpu, bool(view.away))
        if not self._about or self._about[0] is not view.config or self._about[1:] != about[1:]:
            self._about, self._types, self._nodes = about, types, nodes
            self._jobs, self._tables, self._same, self._bounds = {}, {}, {}, bounds.Known()

    def close(self, shown: Collection[JobId]) -> None:
        """Forget the jobs that are not `shown` any more, and tables where they have become too many."""
        for job in [job for job in self._jobs if job not in shown]:
            del self._jobs[job]
        if len(self._tables) + len(self._same) > 4 * len(self._jobs) + 1000:
            self._tables, self._same, self._bounds = {}, {}, bounds.Known()

    def job(self, record: JobRecord, view: SnapshotSources) -> tuple[Job, str | None]:
        """The job, and what of it no policy could take (None: nothing)."""
        fresh = view.fresh.get(record.id)
        if record.grant is not None or record.holding:  # time alone changes it
            made = self._made(record, view, fresh)
            return made, self._bounds.problem(made)
        parts = (fresh, _SHOWN(record))
        known = self._jobs.get(record.id)
        if known is not None and known[0] == parts:
            return known[1], None
        made = self._made(record, view, fresh)
        wrong = self._bounds.problem(made)
        if wrong is None:
            self._jobs[record.id] = (parts, made)
        return made, wrong

    def _made(self, record: JobRecord, view: SnapshotSources, fresh: Measurement | None) -> Job:
        spec, now_s = record.spec, view.now_s
        measured = _believable(fresh or recorded(record))
        allocation = EMPTY
        if record.allocation or record.grant is not None:
            occupied = occupies(record, now_s, view.config.rounds.settle_s)
            allocation = {n: g for n, g in occupied.items() if n in self._nodes}
        choice, same = spec.type_choice, self._same
        tables = self._tables_of(record, measured, view.config, choice)
        gpus = _range(record, sum(allocation.values()))
        slowdown = measured.slowdown or _NO_SLOWDOWN
        return Job(
            name=record.id,
            tenant=record.tenant,
            app=record.app_key,
            gpus=same.setdefault((gpus.requested, gpus.min, gpus.max, gpus.allowed), gpus),
            submitted_s=record.submitted_s,
            work=_work(record, measured),
            throughput=tables[0],
            provenance=tables[1],
            model=spec.model,
            slowdown=same.setdefault(slowdown, slowdown),
            attained=record.attained_at(now_s),
            allocation=allocation,
            lease_until=_leases(record, allocation) if record.leases else EMPTY,
            cpus_per_gpu=view.cpus_per_gpu if spec.cpus_per_gpu is None else spec.cpus_per_gpu,
            memory_per_gpu=view.memory_per_gpu if spec.memory_per_gpu is None else spec.memory_per_gpu,
            loss=measured.loss,
            loss_forecast=measured.loss_forecast,
            restart_cost_s=record.whole_restart_cost_s,
            shape=None if spec.shape is None else same.setdefault(spec.shape, spec.shape),
            gpu_types=None if choice is None else same.setdefault(choice, choice),
            priority=record.priority,
            precedence=record.precedence,
            stays=bool(view.away) and not movable(record),
            time_left_s=record.time_left_at(now_s) if view.away else None,
        )

    def _tables_of(
        self, record: JobRecord, measured: Measurement, config: Config, choice: TypeChoice | None
    ) -> _Tables:
        provenance = tuple(measured.provenance.items()) if measured.provenance else ()
        key = (_content(record.spec.throughput), _content(measured.rates), provenance, choice)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = _throughput(record, measured, config, self._types)
        return found


_Table = Mapping[GpuType, Mapping[Gpus, IterationsPerSecond]]
_Tables = tuple[_Table, Mapping[GpuType, Provenance]]
_NO_SLOWDOWN = Slowdown()


def _content(table: _Table) -> object:
    return tuple([(t, tuple(points.items())) for t, points in table.items()]) if table else ()


_NOTHING_MEASURED = Measurement()


def _believable(measured: Measurement) -> Measurement:
    """What was read of a job's own output, less the numbers that nothing can mean: they are not known, no more."""
    if measured is _NOTHING_MEASURED:
        return measured
    rates = {
        gpu_type: {n: rate for n, rate in curve.items() if bounds.rate_stands(rate) and n <= bounds.MOST_GPUS}
        for gpu_type, curve in measured.rates.items()
    }
    total = measured.total
    if total is not None and not bounds.LEAST_WORK <= total <= bounds.MOST_WORK:
        total = None
    return replace(
        measured,
        done=min(max(measured.done, 0.0), bounds.MOST_WORK / 2) if isfinite(measured.done) else 0.0,
        total=total,
        rates={gpu_type: curve for gpu_type, curve in rates.items() if curve},
        loss=tuple(p for p in measured.loss if abs(p[0]) <= bounds.MOST_WORK and abs(p[1]) <= bounds.MOST_LOSS),
    )


def recorded(record: JobRecord) -> Measurement:
    return restore(Measurement, record.measured) if record.measured else _NOTHING_MEASURED


def _work(record: JobRecord, measured: Measurement) -> Work:
    total = record.spec.iterations if record.spec.iterations is not None else measured.total
    done = max(measured.done, record.checkpoint.step if record.checkpoint is not None else 0.0)
    if total is not None and done >= total:
        # It lives, so it has something left to do, whatever it said of its length: it is to end by itself, not for
        # the lack of GPUs that a policy would no longer give it.
        total = done + 1
    return Work(total, done)


def _range(record: JobRecord, held: Gpus) -> GpuRange:
    """What a policy may choose from: a job that cannot be resumed keeps the size it was started at."""
    gpus = record.spec.gpus
    if movable(record):
        return gpus
    if held:
        return GpuRange(held, held, held)
    return gpus if record.spec.elastic else GpuRange(gpus.requested, gpus.requested, gpus.requested)


def _leases(record: JobRecord, allocation: Allocation) -> Mapping[NodeName, tuple[Seconds, ...]]:
    out = {}
    for node, gpus in allocation.items():
        times = tuple(sorted(record.leases.get(node, ())))[-gpus:]
        if times:
            out[node] = times
    return out


def _throughput(record: JobRecord, measured: Measurement, config: Config, types: tuple[GpuType, ...]) -> _Tables:
    """Measured before stated; what is neither follows from the site's ratios between GPU types, and says so."""
    stated = record.spec.throughput
    known: dict[GpuType, Mapping[Gpus, IterationsPerSecond]] = {}
    provenance: dict[GpuType, Provenance] = {}
    for gpu_type in {**stated, **measured.rates}:
        if gpu_type in measured.rates:
            known[gpu_type] = {**stated.get(gpu_type, {}), **measured.rates[gpu_type]}
            provenance[gpu_type] = measured.provenance.get(gpu_type, Provenance.MEASURED)
        else:
            known[gpu_type], provenance[gpu_type] = stated[gpu_type], Provenance.STATED
    base = next(iter(sorted(known)), None)
    out = {}
    for gpu_type in types:
        if not record.spec.runs_on(gpu_type):
            provenance.pop(gpu_type, None)
            continue
        if gpu_type in known:
            out[gpu_type] = dict(sorted(known[gpu_type].items()))
            continue
        ratio = config.gpu_types.get(gpu_type, 1.0)
        if base is None and not config.gpu_types and not record.spec.gpu_types:
            continue  # no table at all: it may run anywhere, at no known speed
        if base is None:
            out[gpu_type] = {1: ratio}
        else:
            ratio /= config.gpu_types.get(base, 1.0)
            out[gpu_type] = {n: rate * ratio for n, rate in sorted(known[base].items())}
        provenance[gpu_type] = Provenance.PRIOR
    return out, {t: provenance[t] for t in out}
