"""What a reader of a form makes: its rows, one after the other, each with the job that it means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from horae.sim.traces.model import TraceJob


class Row(NamedTuple):
    line: int
    #: As it stands in the file, for who copies it.
    text: str
    job: TraceJob


@dataclass(slots=True)
class Rows:
    """Iterated once. `left_aside` counts, by reason, what is no job of the trace; complete after the last row."""

    header: str | None
    jobs: Iterator[Row]
    left_aside: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Row]:
        return self.jobs
