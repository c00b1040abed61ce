"""What a trace is like, in a dozen numbers: the answer of `horae trace describe`."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Rows
from horae.tables import names, table

Numbers = npt.NDArray[np.float64]


@dataclass(slots=True)
class Columns:
    """A trace as columns, 20 bytes a job: what statistics need of it."""

    submitted: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    gpus: array[int] = field(default_factory=lambda: array("l"))
    tenants: array[int] = field(default_factory=lambda: array("l"))
    #: tenant -> its number in `tenants`, in order of first appearance.
    tenant_numbers: dict[str, int] = field(default_factory=dict)

    def add(self, job: TraceJob, seconds: float) -> None:
        self.submitted.append(job.submitted)
        self.duration.append(seconds)
        self.gpus.append(job.gpus)
        self.tenants.append(self.tenant_numbers.setdefault(job.tenant, len(self.tenant_numbers)))


def columns(lines: TraceLines, rows: Rows) -> Columns:
    """All rows, in the file's order. Raises Malformed for a job whose model no shipped table knows."""
    out = Columns()
    for line, _, job, _ in rows:
        try:
            out.add(job, seconds(lines, line, job))
        except Malformed as bad:
            lines.refuse(bad)
    return out


def seconds(lines: TraceLines, line: int, job: TraceJob) -> float:
    """The job's duration; of iterations and `KEY@TABLE` on the fastest type of the shipped table, linear above what
    was measured.
    """
    if job.duration is not None:
        return job.duration
    key, _, shipped = (job.model or "").partition("@")
    rates = table(shipped).get(key, {}) if shipped in names() else {}
    speeds = []
    for curve in rates.values():
        nearest = max((n for n in curve if n <= job.gpus), default=min(curve))
        speeds.append(curve[nearest] * job.gpus / nearest)
    if not speeds or job.iterations is None:
        what = f"is in no shipped table (KEY@{', KEY@'.join(names())}), and there is no duration"
        raise Malformed(lines.path, line, "model", what, job.model)
    return job.iterations / max(speeds)


def describe(columns: Columns, skipped: dict[str, int]) -> dict[str, Any]:
    """Times in s; `load_gpus`: GPU-s asked for over the span, 0 where the span is. Percentiles interpolate linearly."""
    submitted, duration = np.sort(np.array(columns.submitted)), np.array(columns.duration)
    gpus = np.array(columns.gpus, dtype=float)
    span = float(submitted[-1] - submitted[0]) if submitted.size else 0.0
    gpu_seconds = gpus * duration
    total = fsum(gpu_seconds)
    by_tenant = np.array(columns.tenants, dtype=int)
    jobs_of = np.bincount(by_tenant, minlength=len(columns.tenant_numbers))
    hours_of = np.bincount(by_tenant, weights=gpu_seconds, minlength=len(columns.tenant_numbers)) / 3600
    return {
        "jobs": int(submitted.size),
        "span_s": span,
        "gpu_hours": total / 3600,
        "load_gpus": total / span if span else 0.0,
        "gpus": {str(n): count for n, count in sorted(Counter(columns.gpus).items())},
        "duration_s": _spread(duration),
        "interarrival_s": _gaps(np.diff(submitted)),
        "tenants": {
            name: {"jobs": int(jobs_of[n]), "gpu_hours": float(hours_of[n])}
            for name, n in sorted(columns.tenant_numbers.items())
        },
        "skipped": skipped,
    }


def _spread(values: Numbers) -> dict[str, float]:
    if not values.size:
        return {"mean": 0.0, "median": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    median, p95, p99 = np.percentile(values, [50, 95, 99])
    return {
        "mean": float(values.mean()),
        "median": float(median),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(values.max()),
    }


def _gaps(gaps: Numbers) -> dict[str, float]:
    if not gaps.size:
        return {"mean": 0.0, "median": 0.0, "cv": 0.0}
    mean = float(gaps.mean())
    return {"mean": mean, "median": float(np.median(gaps)), "cv": float(gaps.std()) / mean if mean else 0.0}
