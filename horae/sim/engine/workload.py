"""A trace's jobs as jobs of a cluster: work, ranges, throughput tables.

Work is iterations. A job without a model scales linearly over its range at one iteration a GPU-second on every type,
so that `duration x gpus` is its work. A job with one has the table's curves; `duration` is then what it takes on
`gpus` GPUs of its slowest type here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from horae.sim.conditions.sweeps import ends_of, joined
from horae.sim.conditions.told import TRUE, Conditions, told
from horae.sim.engine.world import SimulatedJob
from horae.sim.traces.malformed import ROW, Malformed
from horae.sim.traces.model import BadRow, Trace, TraceJob
from horae.tables import names, table
from policy import bounds
from policy.model import BadInput, Cluster, GpuRange, GpuType, Job, Phase, Provenance, Slowdown, Work
from policy.text.textform import Document, Place, load
from policy.throughput import Throughput

Table = Mapping[str, Mapping[GpuType, Mapping[int, float]]]
#: Of the file of `--throughputs`.
FORM = "JSON {model: {gpu_type: {gpus: iterations/s}}}"
_GPUS = re.compile(r"[1-9][0-9]{0,5}")


def tables(name: str | None) -> Table:
    """The throughput table of `--throughputs`: a shipped one's name, or a JSON file. Raises BadInput."""
    if name is None:
        return {}
    if name in names():
        return table(name)
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror}", where=name, remedy=f"a file, or one of {', '.join(names())}"
        ) from error
    document = load(raw, name, json_only=True)
    return {
        model: {gpu_type: _curve(document, (model, gpu_type)) for gpu_type in _within(document, (model,))}
        for model in _within(document, ())
    }


def _within(document: Document, place: Place) -> Mapping[str, Any]:
    value = document.value
    for step in place:
        value = value[step]
    if not isinstance(value, dict) or not value:
        raise document.bad(place, "is no throughput table", value=value, remedy=FORM)
    return value


def _curve(document: Document, place: Place) -> Mapping[int, float]:
    curve = _within(document, place)
    for gpus, rate in curve.items():
        if not _GPUS.fullmatch(gpus) or int(gpus) > bounds.MOST_GPUS:
            raise document.bad((*place, gpus), "is no number of GPUs", value=gpus, remedy=FORM)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not bounds.rate_stands(rate):
            remedy = f"0, or from {bounds.LEAST_RATE:g} to {bounds.MOST_RATE:g}"
            raise document.bad((*place, gpus), "is no rate in iterations/s", value=rate, remedy=remedy)
    if not any(curve.values()):
        raise document.bad(place, "is 0 on any number of GPUs", value=curve, remedy="leave the type out")
    return {int(gpus): float(rate) for gpus, rate in curve.items()}


class Unplayable(BadInput):
    """A job that this cluster, or these tables, cannot serve. `reason`: in two words."""

    def __init__(self, reason: str, what: str, *, field: str, value: object, remedy: str = "") -> None:
        super().__init__(what, field=field, value=value, remedy=remedy)
        self.reason = reason


class Workload:
    """Makes `SimulatedJob`s. Equal ranges and tables are one object: whoever works on them does it once."""

    def __init__(
        self,
        cluster: Cluster,
        speeds: Throughput,
        known: Table,
        conditions: Conditions = TRUE,
        seed: int = 0,
    ) -> None:
        self._speeds, self._known = speeds, known
        self._conditions, self._seed = conditions, seed
        self.phases: dict[str, tuple[Phase, ...]] = {}  #: of apps that end jobs of their own
        self._slowdowns: dict[Slowdown, Slowdown] = {}
        self._types = tuple(t for t in cluster.gpu_types if t in speeds.present)
        self._linear = {t: {1: 1.0} for t in self._types}
        self._stated = dict.fromkeys(self._types, Provenance.STATED)
        self._gpus = sum(n.gpus - n.foreign for n in cluster.nodes)
        self._ranges: dict[tuple[int, int, int], GpuRange] = {}
        self._curves: dict[str, Mapping[GpuType, Mapping[int, float]]] = {}

    def run(self, job: TraceJob) -> SimulatedJob:
        """Raises Unplayable for a job larger than the cluster, an unknown model, or one that no GPU here can run."""
        if not self.fits(job):
            what = f"job {job.job} needs {job.min_gpus} GPUs, more than the cluster has ({self._gpus})"
            raise Unplayable("too large", what, field="gpus", value=job.min_gpus, remedy="take a larger --cluster")
        key = (job.gpus, job.min_gpus, job.max_gpus)
        gpus = self._ranges.setdefault(key, GpuRange(*key))
        curves = self._linear if job.model is None else self._of_model(job, job.model)
        stated = self._stated if len(curves) == len(self._types) else dict.fromkeys(curves, Provenance.STATED)
        plain = Job(
            job.job,
            job.tenant,
            f"{job.tenant}/{job.app}",
            gpus,
            float(job.submitted),
            Work(),
            curves,
            stated,
            job.model,
            slowdown=self._slowdowns.setdefault(job.slowdown, job.slowdown),
        )
        total = float(job.iterations) if job.iterations is not None else self._work(job, plain)
        if not 0 <= total <= bounds.MOST_WORK:
            what = f"job {job.job}: {total:g} iterations are more than {bounds.MOST_WORK:g}"
            raise BadInput(what, field="duration", value=job.duration)
        total = max(total, bounds.LEAST_WORK)  # a job that ended at once ends as soon as it starts
        object.__setattr__(plain, "work", Work(total if job.known else None))
        if job.phases:
            joined(self.phases, plain.app, job.phases, job.job, total)
        run = SimulatedJob(plain, total, curve=job.loss, ends=ends_of(job.phases))
        if not self._conditions.candid:
            run.real, run.plain = plain, told(plain, self._conditions, self._seed)
        return run

    def fits(self, job: TraceJob) -> bool:
        """Whether its smallest gang is at most the cluster."""
        return job.min_gpus <= self._gpus

    def _work(self, job: TraceJob, plain: Job) -> float:
        assert job.duration is not None
        if job.model is None:
            return float(job.duration * job.gpus)
        return job.duration * min(self._speeds.at(plain, t, job.gpus) or 0.0 for t in plain.throughput)

    def _of_model(self, job: TraceJob, model: str) -> Mapping[GpuType, Mapping[int, float]]:
        found = self._curves.get(model)
        if found is None:
            key, at, name = model.partition("@")
            try:
                known = table(name) if at else self._known
            except KeyError as error:
                raise Unplayable(
                    "unknown model", f"job {job.job}: {error.args[0]}", field="model", value=model
                ) from error
            if key not in known:
                some = ", ".join(sorted(known)[:8])
                remedy = f"its models: {some}, ..." if some else "name a table: --throughputs FILE, or KEY@TABLE"
                raise Unplayable(
                    "unknown model",
                    f"job {job.job}: no table has this model",
                    field="model",
                    value=model,
                    remedy=remedy,
                )
            found = self._curves[model] = {t: known[key][t] for t in self._types if t in known[key]}
        if not found:
            raise Unplayable(
                "unknown model",
                f"job {job.job}: its model was measured on no GPU type of the cluster ({', '.join(self._types)})",
                field="model",
                value=model,
                remedy="another cluster, or another table",
            )
        return found


#: By why: rows of jobs that this cluster, or these tables, cannot serve.
LeftOut = dict[str, list[BadRow]]


def runs(trace: Trace, workload: Workload, left_out: LeftOut | None) -> list[SimulatedJob]:
    """All jobs in the trace's order. One whose smallest gang is larger than the cluster, whose model no table has, or
    that contradicts itself or its app, is refused by its line, or left out and noted by why where `left_out` is given.
    Raises BadInput."""
    out = []
    for job in trace.jobs:
        try:
            out.append(workload.run(job))
        except BadInput as error:
            if left_out is None:
                raise _by_line(trace, job, error) from error
            row = BadRow(job.line, _column(trace, error), _what(error), str(error.value))
            why = error.reason if isinstance(error, Unplayable) else f"wrong {error.field}"
            left_out.setdefault(why, []).append(row)
    return out


def _by_line(trace: Trace, job: TraceJob, error: BadInput) -> BadInput:
    if not trace.where or not job.line:
        return error
    return Malformed(trace.where, job.line, _column(trace, error), _what(error), error.value, remedy=ROW)


def _column(trace: Trace, error: BadInput) -> str:
    """In the words of the trace's form."""
    return trace.columns.get(error.field, error.field)


def _what(error: BadInput) -> str:
    return f"{error.message}; {error.remedy}" if error.remedy else error.message
