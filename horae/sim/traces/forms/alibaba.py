"""Alibaba's PAI: the tasks of 2020 (`pai_task_table.csv`, no header), and the pods of 2023 (`openb_pod_list_*.csv`).

2020: the tasks of one `job_name` are one job, a gang of all their instances; GPUs are in percent, shares of one are
rounded up over the job. 2023: one pod a job. Jobs without an end in the trace are left aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil

from horae.sim.traces.lines import TraceLines, beginning
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Row, Rows, by_row
from horae.sim.traces.table import Cells, Table
from policy.bounds import MOST_GPUS

TASKS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)


def rows(lines: TraceLines) -> Rows:
    first = beginning(lines.path).removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    if b"cpu_milli" in first:
        needed = ("name", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
        return by_row(Table(lines, needed=needed), _pod, gpus="num_gpu")
    if first.startswith(b"job_name,"):
        return _tasks(Table(lines, needed=TASKS))
    return _tasks(Table(lines, names=lambda _: TASKS))


def _pod(cells: Cells, number: int) -> TraceJob | str:
    gpus = cells.count("num_gpu", least=0)
    submitted = cells.number("creation_time")
    if not gpus:
        return "no gpus"
    if not cells.has("scheduled_time"):
        return "never started"
    if not cells.has("deletion_time"):
        return "no end"
    duration = cells.number("deletion_time") - cells.number("scheduled_time")
    if duration < 0:
        raise cells.wrong("deletion_time", "is before scheduled_time", cells.word("deletion_time"))
    return TraceJob(cells.word("name"), submitted, gpus, duration, cells.word("qos", "default"))


class _Task:
    __slots__ = ("end", "gpus", "line", "start", "text")

    def __init__(self, cells: Cells) -> None:
        self.line, self.text = cells.line, cells.text
        percent = cells.number("plan_gpu") if cells.has("plan_gpu") else 0.0
        self.gpus = percent / 100 * (cells.number("inst_num") if cells.has("inst_num") else 1)
        self.start = cells.number("start_time") if cells.has("start_time") else None
        self.end = cells.number("end_time") if cells.has("end_time") else None


def _tasks(table: Table) -> Rows:
    rows = Rows(table.header, columns={"gpus": "plan_gpu"})
    lines = table.lines

    def jobs() -> Iterator[Row]:
        found: dict[str, list[_Task]] = {}
        for cells in table:
            try:
                found.setdefault(cells.word("job_name"), []).append(_Task(cells))
            except Malformed as bad:
                lines.refuse(bad)
        for name, tasks in found.items():
            job = rows.job(lines, partial(_job, lines, name, tasks))
            if job is not None:
                yield Row(tasks[0].line, tasks[0].text, job, tuple((t.line, t.text) for t in tasks[1:]))

    rows.jobs = jobs()
    return rows


def _job(lines: TraceLines, name: str, tasks: Sequence[_Task]) -> TraceJob | str:
    gpus = ceil(sum(t.gpus for t in tasks) - 1e-9)
    starts = [t.start for t in tasks if t.start is not None]
    ends = [t.end for t in tasks if t.end is not None]
    if not gpus:
        return "no gpus"
    if gpus > MOST_GPUS:
        raise Malformed(lines.path, tasks[0].line, "plan_gpu", f"the job's GPUs are above {MOST_GPUS}", gpus)
    if not starts:
        return "never started"
    if len(ends) < len(tasks):
        return "no end"
    if max(ends) < min(starts):
        raise Malformed(lines.path, tasks[0].line, "end_time", "is before start_time", max(ends))
    return TraceJob(name, min(starts), gpus, max(ends) - min(starts))
