"""Traces from files: which form, in which order, and what of it could not be read."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import Trace, TraceJob
from horae.sim.traces.rows import Rows
from policy.model import BadInput

__all__ = ["FORMS", "Malformed", "read", "rows"]

#: Name of a form -> the module that reads it, and what it is.
FORMS = {
    "ours": ("horae.sim.traces.forms.ours", "CSV with a header: submitted, duration, gpus and more"),
    "philly": ("horae.sim.traces.forms.philly", "Microsoft's Philly: the job log, or tables made of it"),
    "helios": ("horae.sim.traces.forms.helios", "SenseTime's Helios: cluster_log.csv"),
    "alibaba": ("horae.sim.traces.forms.alibaba", "Alibaba's PAI: tasks of 2020, pods of 2023"),
    "gavel": ("horae.sim.traces.forms.gavel", "Gavel's and Shockwave's traces"),
    "pollux": ("horae.sim.traces.forms.pollux", "Pollux' and Sia's workloads"),
    "sacct": ("horae.sim.traces.forms.sacct", "what sacct -P prints; a job runs as long as all its incarnations did"),
    "swf": ("horae.sim.traces.forms.swf", "the Standard Workload Format; processors stand for GPUs"),
}

#: What a simulation has room for: each job takes more than a kilobyte of memory.
MOST_JOBS = 5_000_000


def rows(lines: TraceLines, form: str = "ours") -> Rows:
    """The rows of a file, in its order, as it is read. Raises Malformed; BadInput for a form that there is not."""
    if form not in FORMS:
        raise BadInput(f"{form} is no form of trace", field="--format", value=form, remedy=f"one of {', '.join(FORMS)}")
    reader: Callable[[TraceLines], Rows] = importlib.import_module(FORMS[form][0]).rows
    return reader(lines)


def read(path: Path, form: str = "ours", *, skip_bad: bool = False) -> Trace:
    """The jobs of a trace, in order of submission.

    Raises Malformed for the first row that cannot be read or whose name another has; with `skip_bad` such rows are
    left out and listed in the trace. Raises OSError where the file cannot be read.
    """
    lines = TraceLines(path, skip_bad=skip_bad)
    found = rows(lines, form)
    jobs, seen = list[TraceJob](), dict[str, int]()
    for line, _, job, _ in found:
        if job.job in seen:
            lines.refuse(Malformed(path, line, "job", f"line {seen[job.job]} has the same name", job.job))
            continue
        if len(jobs) == MOST_JOBS:
            what = f"more than {MOST_JOBS:,} jobs; play some of them: horae trace sample"
            raise Malformed(path, line, "job", what, job.job)
        seen[job.job] = line
        object.__setattr__(job, "line", line)  # it is nobody else's yet
        jobs.append(job)
    if form != "ours":
        jobs = _from_zero(jobs)
    aside = dict(found.left_aside)
    return Trace(tuple(jobs), tuple(lines.malformed), aside, found.columns, str(path), lines.remarks)


def _from_zero(jobs: list[TraceJob]) -> list[TraceJob]:
    """In order of submission, the first at 0: other forms tell wall time, some a queue or a tenant after the other."""
    jobs.sort(key=lambda job: job.submitted)
    start = jobs[0].submitted if jobs else 0.0
    return [replace(job, submitted=job.submitted - start) for job in jobs] if start else jobs
