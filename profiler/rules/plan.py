"""A plan: how every line of one shape is read. A row: one line read by a plan. A row becomes a `Point` on demand.

A plan is made once a shape (by `rules` or `generic`) and applied to millions of lines, so applying one costs one
regular expression and two conversions; everything else waits until somebody asks for the point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any
from zlib import crc32

from profiler.model import Kind, LossKind, Point, Scope, Throughput, Unit, Value
from profiler.rules.lexicon.sides import side_of
from profiler.text.clock import Clock
from profiler.text.tokens import DEC, DUR, duration, is_duration, matcher, number
from profiler.text.trials import Tag

#: More of them are no rank.
_RANK_DIGITS = 9
#: What is the same on most lines of one shape, and what must be looked at on each.
_STEADY = frozenset(("epoch", "epochs", "iterations"))
_UNSTEADY = frozenset(("window_time", "iterations_per_epoch", "world"))
#: What a line is for: the kinds of a point, and lines that are not points.
#: context: an epoch (or iteration) begins, its values follow on other lines; setup: facts of the run (ranks, totals);
#: start: a program starts; trial: one of several trainings of a program begins or ends;
#: pause: training stands still from here to the next point (evaluation, checkpoint);
#: end: a training came to its end: bars behind it count none, and the next loss of training is of another run.
LINE_KINDS = (
    "train",
    "validation",
    "epoch",
    "context",
    "setup",
    "start",
    "trial",
    "resume",
    "pause",
    "end",
)


_BARE_ROW = re.compile(rf"{DEC}[\s|]+{DEC}")


@dataclass(frozen=True, slots=True)
class Field:
    """One number of a line and what it is."""

    what: str  #: of `words.FIELDS`
    token: int  #: index among the line's numbers; -1: `constant`
    scale: float = 1.0
    negative: bool = False
    name: str = ""
    kind: LossKind | None = None
    unit: str = ""
    of_rank: bool = False
    constant: float = 0.0  #: a value that is no number on the page: nan, inf
    more: tuple[tuple[int, float], ...] = ()  #: tokens that add to a duration, with their seconds: days, minutes
    over: int | None = None  #: token that it is divided by: 9832/10000
    inverse: bool = False  #: the number is seconds for one: the field is 1 / number
    error: bool = False  #: the field is 1 - number (100 - number for percentages)

    @property
    def is_plain(self) -> bool:
        """Whether the number on the page is the value."""
        made = self.negative or self.more or self.over is not None or self.error
        return self.token >= 0 and self.scale == 1.0 and not made


@dataclass(slots=True)
class Plan:
    rule: str  #: "format/rule"
    kind: str  #: one of LINE_KINDS
    canonical: str
    fields: tuple[Field, ...] = ()
    series: str = ""  #: points of one series follow one counter
    scope: Scope | None = None  #: None: told by how the counter behaves
    unit: Unit | None = None
    bar: bool = False  #: states of a progress bar
    total: bool = True  #: False: the losses are parts of a total that is not printed
    loss_kind: LossKind | None = None
    clock: Clock | None = None
    rank: int | None = None  #: token that holds the rank
    fixed_rank: int | None = None  #: a rank spelt within a word (default3)
    source: str = ""  #: pod, host or process that wrote it
    tag: Tag | None = None  #: says which of several trainings wrote it
    time_is: str = ""  #: what the ambiguous word time means here: step, window, elapsed
    needs_header: bool = False  #: a bar that belongs to training only when an epoch header came before it
    wanted: tuple[int, ...] = ()  #: the numbers of the line that are used; `groups` are their texts
    slots: dict[int, int] = field(default_factory=dict)  #: token -> group
    iteration: Field | None = None
    epoch: Field | None = None
    loss: Field | None = None
    window: Field | None = None  #: the ambiguous time
    short: bool = False  #: lines may be taken the short way
    many: bool = False  #: and many of them at once
    at_iteration: int = 0
    steady_names: tuple[str, ...] = ()
    steady_of: Callable[[Sequence[str]], object] | None = None  #: None: nothing that could change
    undated: bool = False
    sample: str = ""  #: a line of this shape, from which the plan can be made again
    thousands: bool = True  #: commas may stand inside numbers
    origin: str = ""  #: "": the rule book; "bare"; else the head of the table

    def compile(self) -> Plan:
        """Work out which numbers the fields use, and what depends on that."""
        self.wanted = tuple(sorted(self._used()))
        self.slots = {token: i for i, token in enumerate(self.wanted)}
        if self.clock is not None:
            self.clock = self.clock.at(self.slots)
        self.iteration = self._first("iteration")
        self.epoch = self._first("epoch")
        self.loss = self._first("loss", "part")
        self.window = self._first("window_time")
        self._shorten()
        return self

    def _used(self) -> set[int]:
        """The numbers that anything reads."""
        used = {f.token for f in self.fields if f.token >= 0}
        for f in self.fields:
            used.update(token for token, _ in f.more)
            if f.over is not None:
                used.add(f.over)
        if self.rank is not None:
            used.add(self.rank)
        if self.tag is not None:
            used.update(self.tag.tokens)
        if self.clock is not None:
            used.update(self.clock.tokens)
        return used

    def _first(self, *what: str) -> Field | None:
        return next((f for f in self.fields if f.what in what), None)

    def regex(self) -> re.Pattern[str]:
        """An expression for lines of this shape, whose groups are the wanted numbers."""
        return matcher(self.canonical, set(self.wanted), self.thousands)

    def pick(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """The wanted ones of all numbers of a line."""
        return tuple(numbers[t] for t in self.wanted)

    def _shorten(self) -> None:
        """Work out whether lines of this shape can be taken the short way (`Series.goes_on`)."""
        f = self._counter() if self.tag is None else None
        steady = [x for x in self.fields if x is not f and x.what in _STEADY]
        if f is None or any(x.token < 0 for x in steady):
            return
        self.short = True
        self.at_iteration = self.slots[f.token]
        names, slots = [x.what for x in steady], [self.slots[x.token] for x in steady]
        if self.rank is not None:
            names.append("rank")
            slots.append(self.slots[self.rank])
        self.steady_names = (*names, str(self.fixed_rank))
        self.steady_of = itemgetter(*slots) if slots else None
        self.undated = self.clock is not None and self.clock.form == "clock"
        self.many = not self.undated

    def _counter(self) -> Field | None:
        """The field that goes on from line to line, where all else that counts stays as it was; None: there is none."""
        summary = self.kind == "epoch" and self.iteration is None
        f = self.epoch if summary else self.iteration
        if f is None or not f.is_plain or self.kind != ("epoch" if summary else "train"):
            return None
        nan = self.loss is not None and self.loss.token < 0
        return None if nan or any(x.what in _UNSTEADY for x in self.fields) else f

    def rank_of(self, groups: Sequence[str]) -> int | None:
        """The rank that wrote the line; of `[1,140]` (job, rank), which reads like a thousand, the rank."""
        if self.rank is None:
            return self.fixed_rank
        digits = groups[self.slots[self.rank]].rsplit(",", 1)[-1]
        return int(digits) if len(digits) <= _RANK_DIGITS else None

    def trial_of(self, groups: Sequence[str]) -> int | None:
        """Which of several trainings wrote the line, as a number; negative: it may be a rank of one."""
        if self.tag is None:
            return None
        text = "\0".join((self.tag.text, *(groups[self.slots[t]] for t in self.tag.tokens)))
        return crc32(text.encode()) * (1 if self.tag.sure else -1)

    def dated(self, groups: Sequence[str]) -> float | None:
        """The line's time where its stamp has a date."""
        read = self.clock.read(groups) if self.clock is not None and not self.undated else None
        return None if read is None else read[0]

    def told(self, f: Field | None, groups: Sequence[str]) -> float | None:
        """The value of a field that a plan may lack."""
        return None if f is None else self.value(f, groups)

    def value(self, f: Field, groups: Sequence[str]) -> float:
        if f.token < 0:
            return f.constant
        text = groups[self.slots[f.token]]
        value = duration(text) if is_duration(text) else number(text)
        for token, seconds in f.more:
            value += seconds * number(groups[self.slots[token]])
        value *= f.scale
        if f.negative:
            value = -value
        if f.over is not None:
            whole = number(groups[self.slots[f.over]])
            return value / whole if whole else 0.0
        if f.inverse:
            return 1.0 / value if value > 0 else 0.0
        if f.error:
            return 1.0 - value if value <= 1 else 100.0 - value
        return value

    @property
    def may_be_held_out(self) -> bool:
        """Whether a line tells an accuracy and nothing that only training has."""
        told = [f for f in self.fields if f.what != "skip"]
        return bool(told) and all(f.what == "accuracy" and side_of(f.name) != "train" for f in told)

    @property
    def may_be_summed_up(self) -> bool:
        """Whether a line tells a loss, in no row of bare numbers, that no word says is training's."""
        f = self.loss
        return f is not None and side_of(f.name) != "train" and _BARE_ROW.search(self.canonical) is None


class Row:
    """One line read by a plan, with what only its place in the text tells."""

    __slots__ = (
        "epoch",
        "epoch_s",
        "epochs",
        "groups",
        "iteration",
        "kind",
        "line",
        "order",
        "ordinal",
        "plan",
        "point_made",
        "rank",
        "redrawn",
        "time_s",
    )

    def __init__(
        self, plan: Plan, groups: Sequence[str], line: int, rank: int | None, time_s: float | None, redrawn: bool
    ) -> None:
        self.plan = plan
        self.groups = groups
        self.line = line
        self.rank = rank
        self.time_s = time_s
        self.redrawn = redrawn
        self.iteration: float | None = None
        self.epoch: float | None = None
        self.epochs: float | None = None
        self.epoch_s: float | None = None  #: how long its epoch took, by the stamps of its start and stop lines
        self.order = 0  #: among the rows of the log
        self.ordinal = 0  #: of its position in the series
        self.kind = plan.kind  #: the plan's, unless its place in the text says otherwise
        self.point_made: tuple[object, Point] | None = None  #: what its newest point was made from, and that point

    def copy(self) -> Row:
        new = Row.__new__(Row)
        for slot in Row.__slots__:
            setattr(new, slot, getattr(self, slot))
        return new

    def point(self, scope: Scope | None = None, unit: Unit | None = None, time_is: str = "") -> Point:
        """The point. `time_is` says what an ambiguous time is: "step", "window" or "elapsed" (see `runs`).

        Who follows a log asks for all points at each look: one is made again only where what it is made from changed.
        """
        made_from = (
            self.rank,
            self.redrawn,
            self.iteration,
            self.epoch,
            self.epochs,
            self.epoch_s,
            self.time_s,
            self.kind,
            scope,
            unit,
            time_is,
        )
        if self.point_made is None or self.point_made[0] != made_from:
            self.point_made = made_from, self._point(scope, unit, time_is)
        return self.point_made[1]

    def _point(self, scope: Scope | None, unit: Unit | None, time_is: str) -> Point:
        plan = self.plan
        told = _Told(plan.loss_kind or (LossKind.EPOCH if self.kind == "epoch" else LossKind.STEP))
        for f in plan.fields:
            told.take(f, plan.value(f, self.groups), plan, self.kind, time_is)
        if self.kind == "validation":
            told.hold_out()
        values, losses = told.values, sorted(told.losses, key=lambda v: v.kind is LossKind.RUNNING)
        if plan.bar and "epoch_time" in values and values.get("iterations") != self.iteration:
            del values["epoch_time"]  # the time of a bar is an epoch's only when the bar is full
        return Point(
            line=self.line,
            kind=Kind(self.kind),
            rule=plan.rule,
            rank=self.rank,
            trial=plan.trial_of(self.groups),
            redrawn=self.redrawn,
            iteration=self.iteration,
            iterations=values.get("iterations"),
            epoch=self.epoch if self.epoch is not None else values.get("epoch"),
            epochs=values.get("epochs", self.epochs),
            scope=scope or plan.scope or "run",
            unit=unit or plan.unit or "iteration",
            losses=(*losses, *told.parts),
            total=bool(losses) and plan.total,
            accuracies=tuple(told.accuracies),
            validation_losses=tuple(told.validation_losses),
            validation_accuracies=tuple(told.validation_accuracies),
            step_s=values.get("step_time"),
            step_s_average=values.get("step_time_average"),
            from_bar=plan.bar,
            epoch_s=values.get("epoch_time", self.epoch_s),
            elapsed_s=values.get("elapsed"),
            elapsed_of=values.get("elapsed_of"),
            throughput=told.throughput,
            time_s=self.time_s,
            learning_rate=values.get("lr"),
            batch_size=values.get("batch_size"),
            world=int(values["world"]) if "world" in values else None,
        )


class _Told:
    """The values of one line, gathered by what they are."""

    __slots__ = (
        "accuracies",
        "default",
        "losses",
        "parts",
        "throughput",
        "validation_accuracies",
        "validation_losses",
        "values",
    )  # fmt: skip

    def __init__(self, default: LossKind) -> None:
        self.default = default  #: of losses of which nothing else is known
        self.values: dict[str, Any] = {}
        self.losses: list[Value] = []
        self.parts: list[Value] = []
        self.accuracies: list[Value] = []
        self.validation_losses: list[Value] = []
        self.validation_accuracies: list[Value] = []
        self.throughput: Throughput | None = None

    def take(self, f: Field, value: float, plan: Plan, kind: str, time_is: str) -> None:
        what = f.what
        if what == "loss":
            self.losses.append(Value(f.name or "loss", value, f.kind or self.default))
        elif what == "part":
            self.parts.append(Value(f.name, value, f.kind or self.default))
        elif what in ("accuracy", "validation_loss", "validation_accuracy"):
            told = Value(f.name or what, value, f.kind or LossKind.EPOCH)
            if what == "accuracy":
                self.accuracies.append(told)
            elif what == "validation_loss":
                self.validation_losses.append(told)
            else:
                self.validation_accuracies.append(told)
        elif what in ("throughput", "throughput_average"):
            self._rate(f, value, what.endswith("average"))
        else:
            _take(self.values, what, value, f, plan, kind, time_is)

    def _rate(self, f: Field, value: float, averaged: bool) -> None:
        """The first rate of a line; one of the step before an average."""
        known = self.throughput
        if value >= 0 and (known is None or (known.averaged and not averaged)):
            self.throughput = Throughput(value, f.unit or "samples/s", averaged, f.of_rank)

    def hold_out(self) -> None:
        """All of it is of held-out data."""
        self.validation_losses += [*self.losses, *self.parts]
        self.validation_accuracies += self.accuracies
        self.losses, self.parts, self.accuracies = [], [], []


def _take(values: dict[str, Any], what: str, value: float, f: Field, plan: Plan, kind: str, time_is: str) -> None:
    """Times need a sign and a meaning; the first number of a kind on a line is the one."""
    if what in ("step_rate", "step_rate_average"):
        if value <= 0:
            return
        what, value = what.replace("rate", "time"), 1.0 / value
    if what == "window_time":
        what = {"elapsed": "elapsed", "step": "step_time", "window": "step_time"}.get(time_is, "")
        if kind == "epoch":
            what = "epoch_time"
        elif kind == "validation":
            what = ""  # how long an evaluation took
    if what in (
        "step_time",
        "step_time_average",
        "epoch_time",
        "elapsed",
    ):
        if not 0 <= value < 1e9 or (value == 0 and what != "elapsed"):
            return
        if what == "elapsed":
            values.setdefault("elapsed_of", f.unit or ("epoch" if plan.bar and plan.scope == "epoch" else "run"))
    if what:
        values.setdefault(what, value)


__all__ = [
    "DUR",
    "LINE_KINDS",
    "Field",
    "Plan",
    "Row",
]
