"""A trace's words: what every reader makes and every engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from horae.sim.conditions.sweeps import LossCurve
from policy.model import Phase, Slowdown

USUAL = Slowdown()


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job as it was handed in.

    Exactly one of `duration` and `iterations` may be None; `iterations` needs a `model`, whose measured throughput
    turns them into seconds.
    """

    job: str
    #: Seconds from the start of the trace.
    submitted: float
    #: GPUs asked for: a gang.
    gpus: int
    #: Seconds on `gpus` GPUs of the reference type, at the best placement.
    duration: float | None
    tenant: str = "default"
    #: The app of a sweep; the job's own name where it is alone.
    app: str = ""
    #: The elastic range; both `gpus` for a rigid job.
    min_gpus: int = 0
    max_gpus: int = 0
    #: Key of a throughput table; None: linear scaling over the range.
    model: str | None = None
    iterations: float | None = None
    #: Whether policies that may know lengths are told this one.
    known: bool = True
    #: How many times as long an iteration takes where the gang spans nodes, racks, more.
    slowdown: Slowdown = USUAL
    loss: LossCurve | None = None
    #: Of its app, which ends its worst jobs after each.
    phases: tuple[Phase, ...] = ()
    #: Of its file; 0 where it is of none.
    line: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "app", self.app or self.job)
        object.__setattr__(self, "min_gpus", self.min_gpus or self.gpus)
        object.__setattr__(self, "max_gpus", self.max_gpus or self.gpus)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out because the caller asked to go on."""

    line: int
    column: str
    what: str
    value: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, and what was left out of them."""

    jobs: tuple[TraceJob, ...]
    malformed: tuple[BadRow, ...] = ()
    #: By reason, what stands in the file and is no job of a simulation: `no gpus`, `never started`.
    left_aside: Mapping[str, int] = field(default_factory=dict)
    #: `gpus`, `model` -> what its form calls that column, where it is another word.
    columns: Mapping[str, str] = field(default_factory=dict, compare=False)
    #: Its file.
    where: str = field(default="", compare=False)
    #: Rows that were left out, and those that may be other than they seem.
    remarks: tuple[BadRow, ...] = field(default=(), compare=False)

    def skipped(self) -> dict[str, int]:
        """All that was left out, by reason: the `skipped` of results."""
        return {**self.left_aside, **({"malformed": len(self.malformed)} if self.malformed else {})}
