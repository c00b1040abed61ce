"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a row, `;` before comments.

Processors stand for GPUs: those requested, else those allocated. -1 is "not known". The user is the tenant.
"""

from __future__ import annotations

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Rows, by_row
from horae.sim.traces.table import Cells, Table

FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "allocated",
    "cpu",
    "memory",
    "requested",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think",
)


def rows(lines: TraceLines) -> Rows:
    return by_row(Table(lines, separator=None, names={len(FIELDS): FIELDS}, comment=";"), _job, gpus="requested")


def _job(cells: Cells, number: int) -> TraceJob | str:
    submitted, run = cells.number("submit"), cells.number("run", least=-1)
    processors = cells.count("requested", least=-1)
    if processors < 1:
        processors = cells.count("allocated", least=-1)
    if run < 0:
        return "no run time"
    if processors < 1:
        return "no processors"
    user = cells.count("user", least=-1, most=1 << 40)
    return TraceJob(cells.word("job"), submitted, processors, run, "default" if user < 0 else f"user{user}")
