"""A job as policies see it: its record, what is measured of it and the configuration -> `policy.model.Job`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from operator import attrgetter
from typing import Any

from horae.arbiter.standing import movable, occupies
from horae.config import Config
from horae.journal import JobRecord
from horae.journal.codec import restore
from horae.journal.measured import Measurement
from horae.port import JobId, Observation
from policy import bounds
from policy.model import (
    EMPTY,
    Allocation,
    Away,
    Beyond,
    Bytes,
    GpuRange,
    Gpus,
    GpuType,
    IterationsPerSecond,
    Job,
    Limits,
    NodeName,
    Provenance,
    Seconds,
    Slowdown,
    TypeChoice,
    Work,
)


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
        #: Of the last job that nothing was measured of: what was stated and its choice of types; and what follows.
        self._last: tuple[tuple[_Table, TypeChoice | None], _Tables] | None = None
        self._same: dict[object, Any] = {}
        self._bounds = bounds.Known()

    def open(self, view: SnapshotSources, types: tuple[GpuType, ...], nodes: frozenset[NodeName]) -> None:
        """What every job depends on; where it is another than last time, nothing holds any more."""
        about = (view.config, types, nodes, view.cpus_per_gpu, view.memory_per_gpu, bool(view.away))
        if not self._about or self._about[0] is not view.config or self._about[1:] != about[1:]:
            self._about, self._types, self._nodes = about, types, nodes
            self._jobs, self._tables, self._last, self._same, self._bounds = {}, {}, None, {}, bounds.Known()

    def close(self, shown: Collection[JobId]) -> None:
        """Forget the jobs that are not `shown` any more, and tables where they have become too many."""
        for job in [job for job in self._jobs if job not in shown]:
            del self._jobs[job]
        if len(self._tables) + len(self._same) > 4 * len(self._jobs) + 1000:
            self._tables, self._last, self._same, self._bounds = {}, None, {}, bounds.Known()

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
        slowdown = measured.slowdown
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
            slowdown=_NO_SLOWDOWN if slowdown is None else same.setdefault(slowdown, slowdown),
            attained=record.attained_at(now_s) or EMPTY,
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
        if measured is not _NOTHING_MEASURED:
            return self._tables_by_content(record, measured, config, choice)
        says = record.spec.throughput, choice
        if self._last is None or self._last[0] != says:  # neighbours in a long queue are often alike: soon seen
            self._last = says, self._tables_by_content(record, measured, config, choice)
        return self._last[1]

    def _tables_by_content(
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
