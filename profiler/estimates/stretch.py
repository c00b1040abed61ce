"""A stretch: one job at one placement, as far as its log and the cluster tell. What profiles are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


class Span(IntEnum):
    """How far a placement spreads: one node, one rack, several racks."""

    NODE = 0
    RACK = 1
    CLUSTER = 2


@dataclass(frozen=True, slots=True)
class Stretch:
    """`seconds` an iteration, median over `n` samples, while nothing about the placement changed.

    `spread` is the relative standard deviation of a sample. `batch` is the number of samples an iteration works on
    over all ranks, where it is known: times at different batches are compared by samples, not by iterations.
    """

    job: str
    gpu_type: str
    gpus: int
    span: Span
    seconds: float
    n: int
    spread: float = 0.05
    batch: float | None = None
    at_s: float = 0.0  #: when it was last measured
    start: int = 0  #: which start of the job
    tenant: str = ""  #: whose job it is

    @property
    def place(self) -> tuple[str, int, Span]:
        return (self.gpu_type, self.gpus, self.span)

    @property
    def variance(self) -> float:
        """Of the logarithm of `seconds`: sampling error, and what makes two runs at one placement differ."""
        return self.spread**2 / max(self.n, 1) + BETWEEN_RUNS**2

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "span": int(self.span)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Stretch:
        return cls(**{**data, "span": Span(data["span"])})


#: relative difference between two runs of one model at one placement that means nothing
BETWEEN_RUNS = 0.03


def seconds_at(stretch: Stretch, batch: float | None) -> float:
    """Its iteration time at another batch, by samples/s; unchanged where either batch is not known."""
    if batch is None or stretch.batch is None or stretch.batch <= 0:
        return stretch.seconds
    return stretch.seconds * batch / stretch.batch


def reference_batch(stretches: Sequence[Stretch]) -> float | None:
    """The batch that iterations are counted at: that of the newest stretch that knows its own."""
    known = [s for s in stretches if s.batch is not None]
    return max(known, key=lambda s: (s.at_s, s.start)).batch if known else None
