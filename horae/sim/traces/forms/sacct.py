"""Jobs with GPUs out of what sacct prints: submitted when eligible, as long as all incarnations ran together.

Running jobs are as long as they are so far. The account is the tenant.
"""

from __future__ import annotations

from collections.abc import Iterator

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Row, Rows
from horae.sim.traces.sacct.jobs import Job, folded
from horae.sim.traces.sacct.records import records


def rows(lines: TraceLines) -> Rows:
    header, found = records(lines, keep_text=True)
    rows = Rows(header, columns={"gpus": "AllocTRES"})

    def jobs() -> Iterator[Row]:
        for number, job in enumerate(folded(found, lines)):
            made = as_trace(job, number)
            if isinstance(made, str):
                rows.left_aside[made] += job.count
            else:
                first, *others = job.records
                yield Row(first.line, first.text, made, tuple((r.line, r.text) for r in others))

    rows.jobs = jobs()
    return rows


def as_trace(job: Job, number: int) -> TraceJob | str:
    """The job as a simulator takes it, or why there is none. `number` makes its name the only one of its kind."""
    if not job.has_gpus:
        return "no gpus"
    if not job.started:
        return "never started"
    firsts = job.firsts()
    first, gpus = firsts[0], sum(r.gpus for r in firsts)
    if not gpus:
        return "no gpus"
    ran = sum(r.elapsed for r in job.records if r.part == first.part)
    return TraceJob(f"{first.name}.{number}", first.since, gpus, float(ran), first.account or "default")
