"""Alibaba's PAI: the tasks of 2020 (`pai_task_table.csv`, no header), and the pods of 2023 (`openb_pod_list_*.csv`).

2020: the tasks of one `job_name` are one job, a gang of all their instances; GPUs are in percent, shares of one are
rounded up over the job. 2023: one pod a job. Jobs without an end in the trace are left aside.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial
from math import ceil, inf

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
    return _tasks(Table(lines, names={len(TASKS): TASKS}))


def _pod(cells: Cells, number: int) -> TraceJob | str:
    gpus = cells.count("num_gpu", least=0)
    submitted = cells.number("creation_time")
    if not gpus:
        return "no gpus"
    if not cells.has("scheduled_time"):
        return "never started"
    if not cells.has("deletion_time"):
        return "no end"
    scheduled = cells.number("scheduled_time")
    if scheduled < submitted:
        raise cells.wrong("scheduled_time", "is before creation_time", cells.word("scheduled_time"))
    duration = cells.number("deletion_time") - scheduled
    if duration < 0:
        raise cells.wrong("deletion_time", "is before scheduled_time", cells.word("deletion_time"))
    return TraceJob(cells.word("name"), submitted, gpus, duration, cells.word("qos", "default"))


class _Gangs:
    """Jobs by name, in columns: of a file of a gigabyte there are millions, each of a task or two."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.gpus, self.start, self.end = array("d"), array("d"), array("d")
        self.line, self.open = array("q"), array("q")  #: its first task's; tasks without an end

    def add(self, cells: Cells) -> int:
        """One more task; the number of its job. Raises Malformed."""
        name = cells.word("job_name")
        percent = cells.number("plan_gpu") if cells.has("plan_gpu") else 0.0
        gpus = percent / 100 * (cells.count("inst_num", least=0) if cells.has("inst_num") else 1)
        start = cells.number("start_time") if cells.has("start_time") else inf
        end = cells.number("end_time") if cells.has("end_time") else -inf
        number = self.numbers.setdefault(name, len(self.gpus))
        if number == len(self.gpus):
            for column, first in ((self.gpus, 0.0), (self.start, inf), (self.end, -inf)):
                column.append(first)
            self.line.append(cells.line)
            self.open.append(0)
        self.gpus[number] += gpus
        self.start[number] = min(self.start[number], start)
        self.end[number] = max(self.end[number], end)
        self.open[number] += end == -inf
        return number

    def job(self, lines: TraceLines, name: str, number: int) -> TraceJob | str:
        gpus, start, end = ceil(self.gpus[number] - 1e-9), self.start[number], self.end[number]
        if not gpus:
            return "no gpus"
        if gpus > MOST_GPUS:
            raise self._wrong(lines, number, "plan_gpu", f"the job's GPUs are above {MOST_GPUS}", gpus)
        if start == inf:
            return "never started"
        if self.open[number]:
            return "no end"
        if end < start:
            raise self._wrong(lines, number, "end_time", "is before start_time", end)
        return TraceJob(name, start, gpus, end - start)

    def _wrong(self, lines: TraceLines, number: int, column: str, what: str, value: float) -> Malformed:
        return Malformed(lines.path, self.line[number], column, what, value)


def _tasks(table: Table) -> Rows:
    rows = Rows(table.header, columns={"gpus": "plan_gpu"})
    lines = table.lines

    def jobs() -> Iterator[Row]:
        gangs, texts = _Gangs(), dict[int, list[tuple[int, str]]]()
        for cells in table:
            try:
                number = gangs.add(cells)
            except Malformed as bad:
                lines.refuse(bad)
                continue
            if lines.copied:
                texts.setdefault(number, []).append((cells.line, cells.text))
        for name, number in gangs.numbers.items():
            job = rows.job(lines, partial(gangs.job, lines, name, number))
            if job is not None:
                (line, text), *more = texts.get(number) or [(gangs.line[number], "")]
                yield Row(line, text, job, tuple(more))

    rows.jobs = jobs()
    return rows
