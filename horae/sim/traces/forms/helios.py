"""SenseTime's Helios: `cluster_log.csv`, one job a row; the virtual cluster is the tenant."""

from __future__ import annotations

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Rows, by_row
from horae.sim.traces.table import Cells, Table


def rows(lines: TraceLines) -> Rows:
    return by_row(Table(lines, needed=("job_id", "gpu_num", "submit_time", "duration")), _job, gpus="gpu_num")


def _job(cells: Cells, number: int) -> TraceJob | str:
    gpus = cells.count("gpu_num", least=0)
    submitted = cells.moment("submit_time")
    if submitted is None:
        raise cells.wrong("submit_time", "is no time", cells.word("submit_time", ""))
    if not gpus:
        return "no gpus"
    if not cells.has("duration"):
        return "no end"
    return TraceJob(
        cells.word("job_id"), submitted, gpus, cells.number("duration"), cells.word("vc", cells.word("user", "default"))
    )
