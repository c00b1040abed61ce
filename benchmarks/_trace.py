"""A stretch of a real log (data/PROVENANCE.tsv) to replay on a real cluster, and what is told of a replay."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACE = Path(__file__).parent / "data" / "philly_6c71a0.csv"


@dataclass(frozen=True, slots=True)
class Job:
    """As the log has it, in compressed time."""

    submit_s: float
    duration_s: float  #: on the GPUs that it asked for
    gpus: int


@dataclass(slots=True)
class Run:
    """What became of a job, in seconds since the first submission."""

    submit_s: float
    end_s: float | None = None
    starts: int = 0


def trace(compress: float, count: int, total: int) -> list[Job]:
    """The first `count` jobs (0: all), `compress` times as fast as they were, none above `total` GPUs."""
    with TRACE.open() as file:
        rows = list(csv.DictReader(file))
    jobs = [
        Job(float(r["submit_s"]) / compress, float(r["duration_s"]) / compress, min(int(r["gpus"]), total))
        for r in rows
    ]
    return jobs[: count or None]


def told(runs: Sequence[tuple[Job, Run]], held: float, scaling: float, total: int) -> dict[str, Any]:
    """The figures of one side. `held`: GPU-seconds that its jobs held."""
    times = [run.end_s - run.submit_s for _, run in runs if run.end_s is not None]
    ends = [run.end_s for _, run in runs if run.end_s is not None]
    span_s = max(ends) - min(run.submit_s for _, run in runs)
    rhos = [rho(job, run, runs, scaling, total) for job, run in runs]
    useful = sum(job.duration_s * job.gpus for job, _ in runs)
    return {
        "jct_mean_s": statistics.mean(times),
        "jct_median_s": statistics.median(times),
        "jct_p95_s": sorted(times)[int(0.95 * (len(times) - 1))],
        "makespan_s": span_s,
        "utilisation": held / (total * span_s),
        "work_a_gpu": useful / (total * span_s),
        "rho_max": max(rhos),
        "rho_median": statistics.median(rhos),
        "restarts": sum(run.starts for _, run in runs),
    }


def rho(job: Job, run: Run, runs: Sequence[tuple[Job, Run]], scaling: float, total: int) -> float:
    """Themis' ratio: its completion time over its time alone on its share of the GPUs, of which it uses at most what it
    asked for. Raises ValueError for a job that is not done.
    """
    if run.end_s is None:
        raise ValueError("a job that has not ended has no rho")
    life_s = run.end_s - run.submit_s
    beside = sum(
        max(min(run.end_s, other.end_s) - max(run.submit_s, other.submit_s), 0.0)
        for _, other in runs
        if other.end_s is not None
    )
    share = total / max(beside / life_s, 1.0)
    alone_s = job.duration_s * float((job.gpus / min(share, job.gpus)) ** scaling)
    return life_s / alone_s
