"""What a reader of a form makes: its rows, one after the other, each with the job that it means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import TraceJob
from horae.sim.traces.table import Cells, Table


class Row(NamedTuple):
    line: int
    #: As it stands in the file, for who copies it (`TraceLines.copied`).
    text: str
    job: TraceJob
    #: The other lines of the job, where its form takes several: (number, text).
    more: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class Rows:
    """Iterated once. `left_aside` counts, by reason, what is no job of the trace; complete after the last row."""

    header: str | None
    jobs: Iterator[Row] = field(default_factory=lambda: iter(()))
    left_aside: Counter[str] = field(default_factory=Counter)
    #: `gpus`, `model` -> what the form calls that column, where it is another word.
    columns: Mapping[str, str] = field(default_factory=dict)
    #: What stands between two rows, and after the last one.
    between: str = "\n"
    end: str = "\n"

    def __iter__(self) -> Iterator[Row]:
        return self.jobs

    def job(self, lines: TraceLines, make: Callable[[], TraceJob | str]) -> TraceJob | None:
        """What `make` reads of a row; None where that is malformed (`lines` hears of it) or says why it is none."""
        try:
            made = make()
        except Malformed as bad:
            lines.refuse(bad)
            return None
        if isinstance(made, str):
            self.left_aside[made] += 1
            return None
        return made


def by_row(table: Table, make: Callable[[Cells, int], TraceJob | str], **columns: str) -> Rows:
    """Rows of a form that has one a job.

    `make`: cells and the row's number (from 1) -> the job, or why there is none. `columns`: see `Rows`.
    """
    rows = Rows(table.header, columns=columns)

    def jobs() -> Iterator[Row]:
        for number, cells in enumerate(table, 1):
            job = rows.job(table.lines, partial(make, cells, number))
            if job is not None:
                yield Row(cells.line, cells.text, job)

    rows.jobs = jobs()
    return rows
