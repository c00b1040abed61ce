"""What a simulation comes to: the numbers of `--json`, the rows of `--jobs-out`.

rho of an app is Themis' (§3.1, Eq. 1), after the fact: T_sh from its first submission to its last end, over T_id, its
time alone on the cluster (or on as much of it as it can use, on its slowest type) times N_avg, the time-weighted mean
number of active apps over its own life.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import fsum
from typing import Any, TextIO

from horae.sim.engine.simulation import Simulated
from horae.sim.engine.world import SimulatedJob
from policy.model import Cluster, Job, Seconds
from policy.throughput import Throughput

COLUMNS = ("job", "tenant", "submitted", "started", "finished", "gpu_seconds", "resizes", "rho")

#: An app that is over sooner than that had nothing to do: no share of a cluster is fair to it.
LEAST_S = 1e-6


def mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between order statistics, as numpy's default. 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 where all are equal. 0 of nothing."""
    squares = fsum(v * v for v in values)
    return fsum(values) ** 2 / (len(values) * squares) if squares else 0.0


def rho_by_app(outcome: Simulated) -> dict[str, float]:
    """Of the apps all of whose jobs ended, and that had something to do."""
    apps: dict[str, list[SimulatedJob]] = {}
    for run in outcome.runs:
        apps.setdefault(run.plain.app, []).append(run)
    ended = {app: runs for app, runs in apps.items() if all(r.over_s is not None for r in runs)}
    lives = {app: _life(runs) for app, runs in apps.items()}
    active = _Active(list(lives.values()))
    alone = _Alone(outcome.settings.cluster)
    out = {}
    for app, runs in ended.items():
        since, until = lives[app]
        seconds = alone.seconds(runs)
        if seconds > LEAST_S:
            out[app] = (until - since) / (seconds * active.mean(since, until))
    return out


def _life(runs: Sequence[SimulatedJob]) -> tuple[Seconds, Seconds]:
    ends = [r.over_s for r in runs]
    return min(r.plain.submitted_s for r in runs), max(float("inf") if e is None else e for e in ends)


class _Active:
    """The time-weighted mean number of apps that live, at least 1."""

    def __init__(self, lives: Sequence[tuple[Seconds, Seconds]]) -> None:
        changes = sorted([(since, 1) for since, _ in lives] + [(until, -1) for _, until in lives])
        self._times = [t for t, _ in changes if t < float("inf")]
        self._counts = list(accumulate(by for _, by in changes))[: len(self._times)]
        steps = ((b - a) * n for a, b, n in zip(self._times, self._times[1:], self._counts, strict=False))
        self._areas = [0.0, *accumulate(steps)]

    def mean(self, since: Seconds, until: Seconds) -> float:
        if until <= since:
            return 1.0
        return max((self._area(until) - self._area(since)) / (until - since), 1.0)

    def _area(self, at_s: Seconds) -> float:
        i = bisect_right(self._times, at_s) - 1
        return self._areas[i] + (at_s - self._times[i]) * self._counts[i]


class _Alone:
    """How long jobs take on the whole cluster, or on as much of it as they can use."""

    def __init__(self, cluster: Cluster) -> None:
        self._speeds = Throughput(cluster)
        self._capacity: dict[str, int] = {}
        for n in cluster.nodes:
            self._capacity[n.gpu_type] = self._capacity.get(n.gpu_type, 0) + n.gpus - n.foreign

    def seconds(self, runs: Sequence[SimulatedJob]) -> Seconds:
        service, longest, demand, most = 0.0, 0.0, 0, 0
        for run in runs:
            room, size, rate = self._best(run.truth)
            total = run.total if run.lost_s is None else run.done  # what its app let it do
            seconds = total / rate if rate > 0 else 0.0
            service, longest = service + seconds * size, max(longest, seconds)
            demand, most = demand + size, max(most, room)
        return max(service / min(demand, max(most, 1)), longest) if demand else 0.0

    def _best(self, job: Job) -> tuple[int, int, float]:
        """GPUs that it can run on, its largest gang of them, its best rate with at most that."""
        curves = self._speeds.curves(job)
        types = [t for t in self._speeds.types(job) if t in curves]
        room = sum(self._capacity[t] for t in types)
        size = job.gpus.at_most(room) or job.gpus.min
        peaks = [max([c(n) for n in c.points if n <= size] + [c(size)]) for c in (curves[t] for t in types)]
        return room, size, min(peaks, default=0.0)


def summary(outcome: Simulated, seconds: Seconds) -> dict[str, Any]:
    """The result, as `--json` prints it. `seconds`: of the whole simulation, by the wall."""
    runs = outcome.runs
    ends = [(r.plain.submitted_s, r.finished_s) for r in runs if r.finished_s is not None]
    jct = [end - submitted for submitted, end in ends]
    queueing = [r.started_s - r.plain.submitted_s for r in runs if r.started_s is not None]
    rho = list(rho_by_app(outcome).values())
    first = min((r.plain.submitted_s for r in runs), default=0.0)
    makespan = max((end for _, end in ends), default=first) - first
    held = fsum(r.gpu_seconds for r in runs)
    gpus = sum(n.gpus - n.foreign for n in outcome.settings.cluster.nodes)
    asked = outcome.decide_seconds
    out = {
        "policy": outcome.settings.entry.name,
        "jobs": len(runs),
        "completed": len(ends),
        "makespan": makespan,
        "jct": {
            "mean": mean(jct),
            "median": percentile(jct, 50),
            "p95": percentile(jct, 95),
            "p99": percentile(jct, 99),
        },
        "queueing": {"mean": mean(queueing), "p95": percentile(queueing, 95)},
        "rho": {"max": max(rho, default=0.0), "mean": mean(rho), "median": percentile(rho, 50), "jain": jain(rho)},
        "gpu_seconds": held,
        "utilisation": held / (gpus * makespan) if makespan > 0 else 0.0,
        "resizes": sum(r.resizes for r in runs),
        "migrations": sum(r.migrations for r in runs),
        "restart_seconds": fsum(r.restart_seconds for r in runs),
        "rounds": outcome.rounds,
        "decide_seconds": {"mean": mean(asked), "p95": percentile(asked, 95)},
        "seconds": seconds,
    }
    return out | ({"skipped": dict(outcome.skipped)} if outcome.skipped else {})


def write_jobs(outcome: Simulated, file: TextIO) -> None:
    """One row a job, in the trace's order; times to the microsecond, nothing where a job never started or ended."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    rho = rho_by_app(outcome)
    for run in outcome.runs:
        job = run.plain
        writer.writerow(
            (
                job.name,
                job.tenant,
                _number(job.submitted_s),
                _number(run.started_s),
                _number(run.finished_s),
                _number(run.gpu_seconds),
                run.resizes,
                _number(rho.get(job.app)),
            )
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
