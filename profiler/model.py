"""The values between reading and estimating: what one line said (`Point`), what one run said (`Run`), the answer.

Reading (`terminal`, `ranks`, `rules`, `generic`, `runs`) turns text into `Run`s; estimating (`iteration`, `loss`,
`scaling`, `slowdown`) turns a `Run` into the parts of a `RunSummary`, whose `to_json` is what `horae profile --json`
prints for a run. Nothing here computes.

Units: times are seconds, throughput is as printed (its unit is beside it), an index is the number as printed.
A field that the text does not tell is None; nothing is ever guessed into a field here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any, Literal

from profiler.evidence import Evidence


class Kind(StrEnum):
    TRAIN = "train"  #: progress inside training
    VALIDATION = "validation"  #: evaluation: losses and accuracies are of held-out data, time is not of training
    EPOCH = "epoch"  #: summary of a whole training epoch


class LossKind(StrEnum):
    """Over what a printed loss was averaged."""

    STEP = "step"  #: this one iteration
    WINDOW = "window"  #: the iterations since the line before
    RUNNING = "running"  #: since the epoch (or run) began, or an exponential average
    EPOCH = "epoch"  #: a whole epoch


class FailureKind(StrEnum):
    OUT_OF_MEMORY = "out-of-memory"
    NAN_LOSS = "nan-loss"
    TRACEBACK = "traceback"
    KILLED = "killed"
    TIME_LIMIT = "time-limit"
    NODE_FAILURE = "node-failure"
    NO_SPACE = "no-space"


Scope = Literal["run", "epoch"]
Unit = Literal["iteration", "micro-batch", "sample"]


@dataclass(frozen=True, slots=True)
class Value:
    """A loss or an accuracy as printed."""

    name: str
    value: float
    kind: LossKind = LossKind.STEP


@dataclass(frozen=True, slots=True)
class Throughput:
    value: float
    unit: str  #: "samples/s", "tokens/s", "images/s" -> as `rules` normalises it: samples/s, tokens/s, iterations/s
    averaged: bool = False  #: a running average, not of this step or window
    of_rank: bool = False  #: one rank's own (sum over ranks gives the run's)


@dataclass(frozen=True, slots=True)
class Point:
    """What one line (or one state of a bar that was redrawn) says."""

    line: int  #: 1-based number of the line in the file
    kind: Kind
    rule: str  #: "format/rule" that read it
    rank: int | None = None
    trial: int | None = None  #: which of several trainings that ran at once wrote it; negative: or which rank
    redrawn: bool = False  #: a later state on the same line replaced it: it carries time, its loss does not count
    iteration: float | None = None
    iterations: float | None = None  #: total as printed: of the run or of the epoch, as `scope` says
    epoch: float | None = None
    epochs: float | None = None
    scope: Scope = "run"  #: where `iteration` counts
    unit: Unit = "iteration"
    losses: tuple[Value, ...] = ()  #: the total first, when the line has one
    total: bool = True  #: False: `losses` are parts of a total that is not printed
    accuracies: tuple[Value, ...] = ()
    validation_losses: tuple[Value, ...] = ()  #: printed beside training values (Keras `val_loss`)
    validation_accuracies: tuple[Value, ...] = ()
    step_s: float | None = None  #: s an iteration: of this step or since the line before
    step_s_average: float | None = None  #: the same, as a running average
    from_bar: bool = False  #: the step time is a progress bar's own (source "bar"), else it is "printed"
    epoch_s: float | None = None  #: printed duration of a whole epoch (of training, unless kind is VALIDATION)
    elapsed_s: float | None = None  #: printed time since `elapsed_of` began
    elapsed_of: Scope | None = None
    throughput: Throughput | None = None
    time_s: float | None = None  #: the line's own timestamp, made monotone over midnight (clock of the log)
    learning_rate: float | None = None
    batch_size: float | None = None  #: samples an optimiser step over all ranks
    world: int | None = None  #: ranks, where this line tells

    @property
    def loss(self) -> Value | None:
        """The training loss: the printed total, else None (see `total`)."""
        return self.losses[0] if self.losses and self.total else None


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    line: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "line": self.line, "text": self.text}


@dataclass(frozen=True, slots=True)
class Pause:
    """Lines between which training stood still: validation, a checkpoint. Iteration times leave these out."""

    first_line: int
    last_line: int
    what: Literal["validation", "checkpoint"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of training as read from a log.

    `points` is in order of the text. A very long run is thinned evenly (`thinned` > 1: only every n-th train
    point was kept, the first and the last always); `positions` is the count before thinning.
    """

    format: str | None  #: the rule set that read most points; None: no points
    first_line: int
    last_line: int
    points: tuple[Point, ...]
    positions: int = 0  #: distinct training positions with a loss, before thinning
    thinned: int = 1
    scope: Scope | None = None
    unit: Unit | None = None
    first_iteration: float | None = None
    last_iteration: float | None = None
    total_iterations: float | None = None  #: in the unit and scope of `iterations` as printed, of the run; else None
    iterations_per_epoch: float | None = None
    last_epoch: float | None = None
    total_epochs: float | None = None
    ranks: int | None = None
    gpus: int | None = None
    batch_size: float | None = None  #: samples an optimiser step over all ranks
    accumulation: int | None = None  #: micro-batches an optimiser step
    timed_by: str = ""  #: the words beside its time, where words alone say what that is
    elapsed_by: str = ""  #: the head of a column of elapsed time in which no unit is told
    pauses: tuple[Pause, ...] = ()
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    trial: int | None = None  #: which of several trainings that ran at once it is

    @property
    def train(self) -> tuple[Point, ...]:
        return tuple(p for p in self.points if p.kind is Kind.TRAIN)

    @property
    def validation(self) -> tuple[Point, ...]:
        return tuple(p for p in self.points if p.kind is Kind.VALIDATION)


# --- the answer: what `horae profile --json` prints for a run ---------------------------------------------

TimeSource = Literal["printed", "throughput", "timestamps", "epoch", "bar"]


def _number(value: float | None) -> float | int | None:
    """Whole numbers print without a fraction; numbers that JSON cannot say (nan, inf) are null."""
    if value is None or not isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def _pair(pair: tuple[float, float] | None) -> list[float | int | None] | None:
    return None if pair is None else [_number(pair[0]), _number(pair[1])]


@dataclass(frozen=True, slots=True)
class Iterations:
    first: float
    last: float
    total: float | None
    scope: Scope
    unit: Unit

    def to_json(self) -> dict[str, Any]:
        return {
            "first": _number(self.first),
            "last": _number(self.last),
            "total": _number(self.total),
            "scope": self.scope,
            "unit": self.unit,
        }


@dataclass(frozen=True, slots=True)
class Epochs:
    last: float
    total: float | None
    iterations_per_epoch: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "last": _number(self.last),
            "total": _number(self.total),
            "iterations_per_epoch": _number(self.iterations_per_epoch),
        }


@dataclass(frozen=True, slots=True)
class IterationTime:
    """Seconds an optimiser step (a micro-batch where the log counts those)."""

    median: float
    mean: float
    p95: float
    n: int
    source: TimeSource

    def to_json(self) -> dict[str, Any]:
        return {"median": self.median, "mean": self.mean, "p95": self.p95, "n": self.n, "source": self.source}


@dataclass(frozen=True, slots=True)
class EpochTime:
    median: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return {"median": self.median, "n": self.n}


@dataclass(frozen=True, slots=True)
class ThroughputSummary:
    """As printed, aggregated over the ranks when the log says that it is a rank's own."""

    median: float
    unit: str

    def to_json(self) -> dict[str, Any]:
        return {"median": self.median, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class LossSummary:
    name: str
    kind: LossKind
    axis: Literal["iteration", "epoch"]
    n: int
    first: tuple[float, float]
    last: tuple[float, float]
    parts: tuple[str, ...] = ()
    points: tuple[tuple[float, float], ...] = ()

    def to_json(self, points: bool = False) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind.value,
            "axis": self.axis,
            "n": self.n,
            "first": _pair(self.first),
            "last": _pair(self.last),
            "parts": list(self.parts),
        }
        if points:
            body["points"] = [_pair(p) for p in self.points]
        return body


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """Accuracy of training, or loss and accuracy of validation: (position, value) as in `LossSummary`."""

    n: int
    last: tuple[float, float]
    name: str | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {} if self.name is None else {"name": self.name}
        return {**body, "n": self.n, "last": _pair(self.last)}


@dataclass(frozen=True, slots=True)
class Fit:
    law: str
    parameters: dict[str, float] = field(default_factory=dict)
    target: float | None = None
    iterations_left: float | None = None
    interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "law": self.law,
            "parameters": {k: _number(v) for k, v in self.parameters.items()},
            "target": _number(self.target),
            "iterations_left": _number(self.iterations_left),
            "interval": _pair(self.interval),
        }


@dataclass(frozen=True, slots=True)
class WarmUp:
    iterations: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {"iterations": _number(self.iterations), "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The JSON of one run; field by field as documented for `horae profile`."""

    format: str | None
    lines: tuple[int, int]
    iterations: Iterations | None = None
    epochs: Epochs | None = None
    iteration_time: IterationTime | None = None
    epoch_time: EpochTime | None = None
    throughput: ThroughputSummary | None = None
    loss: LossSummary | None = None
    accuracy: SeriesSummary | None = None
    validation_loss: SeriesSummary | None = None
    validation_accuracy: SeriesSummary | None = None
    fit: Fit | None = None
    ranks: int | None = None
    gpus: int | None = None
    warm_up: WarmUp | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)  #: by field; of those left out too

    def to_json(self, points: bool = False) -> dict[str, Any]:
        def of(part: Any) -> Any:
            return None if part is None else part.to_json()

        validation = None
        if self.validation_loss is not None or self.validation_accuracy is not None:
            validation = {"loss": of(self.validation_loss), "accuracy": of(self.validation_accuracy)}
        return {
            "format": self.format,
            "lines": list(self.lines),
            "iterations": of(self.iterations),
            "epochs": of(self.epochs),
            "iteration_time": of(self.iteration_time),
            "epoch_time": of(self.epoch_time),
            "throughput": of(self.throughput),
            "loss": None if self.loss is None else self.loss.to_json(points),
            "accuracy": of(self.accuracy),
            "validation": validation,
            "fit": of(self.fit),
            "ranks": self.ranks,
            "gpus": self.gpus,
            "warm_up": of(self.warm_up),
            "failure": of(self.failure),
            "evidence": {name: told.to_json() for name, told in self.evidence.items()},
            "warnings": list(self.warnings),
        }
