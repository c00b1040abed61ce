"""What happened, by arithmetic on the dump alone: waits, GPU-hours, who, how large, on how many GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import fsum
from typing import Any

import numpy as np

from horae.sim.traces.sacct.jobs import Job
from horae.sim.traces.sacct.records import SacctRecord


def spread(waits: Iterable[float]) -> dict[str, float]:
    """Mean, median and 95th percentile, s; zeros for none. Percentiles interpolate linearly."""
    values = np.fromiter(waits, float)
    if not values.size:
        return {"mean": 0.0, "median": 0.0, "p95": 0.0}
    median, p95 = np.percentile(values, [50, 95])
    return {"mean": fsum(values) / values.size, "median": float(median), "p95": float(p95)}


@dataclass(slots=True)
class Held:
    """Most GPUs that each node ever held at once: a record's lie evenly on its nodes.

    From its start up to its end, which no longer counts: what ends and what starts in one second do not overlap.
    """

    _events: dict[str, list[tuple[float, int, Fraction | int]]] = field(default_factory=lambda: defaultdict(list))
    _types: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))

    def add(self, record: SacctRecord) -> None:
        if not record.gpus or record.start is None or not record.nodes:
            return
        if record.end is not None and record.end <= record.start:
            return
        each: Fraction | int = Fraction(record.gpus, len(record.nodes))
        each = each.numerator if each.denominator == 1 else each
        for node in record.nodes:
            self._events[node].append((record.start, 1, each))
            if record.end is not None:
                self._events[node].append((record.end, 0, -each))
            for gpu_type, count in record.types:
                self._types[node][gpu_type] += count

    def most(self) -> dict[str, Fraction | int]:
        """By node."""
        out: dict[str, Fraction | int] = {}
        for node, events in sorted(self._events.items()):
            now: Fraction | int = 0
            most: Fraction | int = 0
            for _, _, change in sorted(events, key=lambda e: e[:2]):
                now += change
                most = max(most, now)
            out[node] = most
        return out

    def type_of(self, node: str) -> str:
        """The type that its jobs named most; `gpu` where none did."""
        types = self._types.get(node)
        return max(sorted(types), key=types.__getitem__) if types else "gpu"


@dataclass(slots=True)
class SiteHistory:
    """The `history` of the answer, and what the replay needs."""

    answer: dict[str, Any]
    held: Held
    #: The jobs with GPUs that started, in the dump's order.
    jobs: list[Job]


def history(jobs: Iterable[Job], malformed: int = 0, *, cpus: bool = False, gpus: float | None = None) -> SiteHistory:
    """`gpus`: of the cluster, where it was given; else the most held at once. `cpus`: jobs without GPUs count too.

    `utilisation`: GPU-seconds over the cluster's GPUs times the seconds from the first start to the last end (or as
    far as running jobs got).
    """
    count, no_gpus, never = 0, 0, 0
    kept: list[Job] = []
    without: list[Job] = []
    held = Held()
    for job in jobs:
        count += job.count
        if not job.has_gpus:
            no_gpus += job.count
            if cpus and job.started:
                without.append(job)
            continue
        if not job.started:
            never += job.count
            continue
        kept.append(job)
        for record in job.records:
            held.add(record)
    most = held.most()
    there = float(sum(most.values())) if gpus is None else gpus
    gpu_seconds = sum(job.gpu_seconds for job in kept)
    counted = kept + without
    answer: dict[str, Any] = {
        "jobs": count,
        "gpu_jobs": len(kept),
        **({"cpu_jobs": len(without)} if cpus else {}),
        "skipped": {
            "no gpus": no_gpus - len(without),
            "never started": never,
            **({"malformed": malformed} if malformed else {}),
        },
        "gpu_hours": gpu_seconds / 3600,
        "wait": spread(job.wait for job in counted),
        "utilisation": _utilisation(kept, gpu_seconds, there),
        "by_account": _by_account(counted),
        "by_size": _by_size(counted),
        "by_state": _by_state(kept),
    }
    return SiteHistory(answer, held, kept)


def _utilisation(jobs: list[Job], gpu_seconds: float, gpus: float) -> float:
    starts = [r.start for job in jobs for r in job.records if r.start is not None and r.gpus]
    ends = [
        r.end if r.end is not None else r.start + r.elapsed
        for job in jobs
        for r in job.records
        if r.start is not None and r.gpus
    ]
    span = max(ends) - min(starts) if starts else 0.0
    return gpu_seconds / (gpus * span) if gpus and span > 0 else 0.0


def _by_account(jobs: list[Job]) -> dict[str, Any]:
    waits: dict[str, list[float]] = defaultdict(list)
    held: dict[str, float] = defaultdict(int)
    for job in jobs:
        account = job.first().account
        waits[account].append(job.wait)
        held[account] += job.gpu_seconds
    return {
        name: {"jobs": len(of), "gpu_hours": held[name] / 3600, "wait_mean": fsum(of) / len(of)}
        for name, of in sorted(waits.items())
    }


def _by_size(jobs: list[Job]) -> dict[str, Any]:
    waits: dict[int, list[float]] = defaultdict(list)
    for job in jobs:
        waits[job.gpus].append(job.wait)
    return {str(n): {"jobs": len(of), "wait_mean": fsum(of) / len(of)} for n, of in sorted(waits.items())}


def _by_state(jobs: list[Job]) -> dict[str, float]:
    """GPU-hours by how a record ended: those of FAILED, TIMEOUT and the like came to nothing, or to a checkpoint."""
    held: dict[str, float] = defaultdict(int)
    for job in jobs:
        for record in job.records:
            held[record.state] += record.gpus * record.elapsed
    return {state: seconds / 3600 for state, seconds in sorted(held.items())}


def whole(value: float) -> float | int:
    return int(value) if value == int(value) else value
