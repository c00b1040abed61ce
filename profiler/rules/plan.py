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

from profiler.model import Kind, LossKind, Point, Scope, Throughput, Unit, Value
from profiler.rules.words import side_of
from profiler.text.clock import Clock
from profiler.text.tokens import DUR, duration, matcher, number

#: More of them are no rank.
_RANK_DIGITS = 9
#: What a line is for: the kinds of a point, and lines that are not points.
#: context: an epoch (or iteration) begins, its values follow on other lines; setup: facts of the run (ranks, totals);
#: start: a program starts; pause: training stands still from here to the next point (evaluation, checkpoint).
LINE_KINDS = ("train", "validation", "epoch", "context", "setup", "start", "resume", "pause")


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
    time_is: str = ""  #: what the ambiguous word time means here: step, window, elapsed
    needs_header: bool = False  #: a bar that belongs to training only when an epoch header came before it
    wanted: tuple[int, ...] = ()  #: the numbers of the line that are used; `groups` are their texts
    slots: dict[int, int] = field(default_factory=dict)  #: token -> group
    iteration: Field | None = None
    epoch: Field | None = None
    loss: Field | None = None
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
        wanted = {f.token for f in self.fields if f.token >= 0}
        wanted |= {t for f in self.fields for t in (f.over, *(t for t, _ in f.more)) if t is not None}
        if self.rank is not None:
            wanted.add(self.rank)
        if self.clock is not None:
            wanted |= set(self.clock.tokens)
        self.wanted = tuple(sorted(wanted))
        self.slots = {token: i for i, token in enumerate(self.wanted)}
        if self.clock is not None:
            self.clock = self.clock.at(self.slots)
        for f in self.fields:
            if f.what == "iteration" and self.iteration is None:
                self.iteration = f
            elif f.what == "epoch" and self.epoch is None:
                self.epoch = f
            elif f.what in ("loss", "part") and self.loss is None:
                self.loss = f
        self._shorten()
        return self

    def regex(self) -> re.Pattern[str]:
        """An expression for lines of this shape, whose groups are the wanted numbers."""
        return matcher(self.canonical, set(self.wanted), self.thousands)

    def pick(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """The wanted ones of all numbers of a line."""
        return tuple(numbers[t] for t in self.wanted)

    def _shorten(self) -> None:
        """Work out whether lines of this shape can be taken the short way (`Series.goes_on`)."""
        f = self.epoch if self.kind == "epoch" and self.iteration is None else self.iteration
        simple = f is not None and f.token >= 0 and f.scale == 1.0 and not (f.negative or f.more or f.over or f.error)
        blocked = {"window_time", "iterations_per_epoch", "world"} & {x.what for x in self.fields}
        if (
            f is None
            or not simple
            or blocked
            or self.kind != ("train" if f is self.iteration else "epoch")
            or (self.loss is not None and self.loss.token < 0)
        ):
            return
        self.short = True
        self.at_iteration = self.slots[f.token]
        names, slots = [], []
        for x in self.fields:
            if x is not f and x.what in ("epoch", "epochs", "iterations"):
                if x.token < 0:
                    self.short = False
                    return
                names.append(x.what)
                slots.append(self.slots[x.token])
        if self.rank is not None:
            names.append("rank")
            slots.append(self.slots[self.rank])
        self.steady_names = (*names, str(self.fixed_rank))
        self.steady_of = itemgetter(*slots) if slots else None
        self.undated = self.clock is not None and self.clock.form == "clock"
        self.many = not self.undated

    def rank_of(self, groups: Sequence[str]) -> int | None:
        """The rank that wrote the line; of `[1,140]` (job, rank), which reads like a thousand, the rank."""
        if self.rank is None:
            return self.fixed_rank
        digits = groups[self.slots[self.rank]].rsplit(",", 1)[-1]
        return int(digits) if len(digits) <= _RANK_DIGITS else None

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
        value = duration(text) if ":" in text else number(text)
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
    def is_point(self) -> bool:
        return self.kind in ("train", "validation", "epoch")


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

    def copy(self) -> Row:
        new = Row.__new__(Row)
        for slot in Row.__slots__:
            setattr(new, slot, getattr(self, slot))
        return new

    def point(self, scope: Scope | None = None, unit: Unit | None = None, time_is: str = "") -> Point:
        """The point. `time_is` says what an ambiguous time is: "step", "window" or "elapsed" (see `runs`)."""
        plan = self.plan
        values: dict[str, Any] = {}
        losses: list[Value] = []
        parts: list[Value] = []
        others: dict[str, list[Value]] = {}
        default = plan.loss_kind or (LossKind.EPOCH if self.kind == "epoch" else LossKind.STEP)
        for f in plan.fields:
            value = plan.value(f, self.groups)
            what = f.what
            if what == "loss":
                losses.append(Value(f.name or "loss", value, f.kind or default))
            elif what == "part":
                parts.append(Value(f.name, value, f.kind or default))
            elif what in ("accuracy", "validation_loss", "validation_accuracy"):
                others.setdefault(what, []).append(Value(f.name or what, value, f.kind or LossKind.EPOCH))
            elif what in ("throughput", "throughput_average"):
                averaged = what.endswith("average")
                if value >= 0 and ("throughput" not in values or (values["throughput"].averaged and not averaged)):
                    values["throughput"] = Throughput(value, f.unit or "samples/s", averaged, f.of_rank)
            else:
                _take(values, what, value, f, plan, self.kind, time_is)
        if self.kind == "validation":
            others.setdefault("validation_loss", []).extend(losses + parts)
            others.setdefault("validation_accuracy", []).extend(others.pop("accuracy", []))
            losses, parts = [], []
        total = bool(losses) and plan.total
        # the step's own value before averages of the same thing
        losses.sort(key=lambda v: v.kind is LossKind.RUNNING)
        if plan.bar and "epoch_time" in values and values.get("iterations") != self.iteration:
            del values["epoch_time"]  # the time of a bar is an epoch's only when the bar is full
        epoch = self.epoch if self.epoch is not None else values.get("epoch")
        return Point(
            line=self.line,
            kind=Kind(self.kind),
            rule=plan.rule,
            rank=self.rank,
            redrawn=self.redrawn,
            iteration=self.iteration,
            iterations=values.get("iterations"),
            epoch=epoch,
            epochs=values.get("epochs", self.epochs),
            scope=scope or plan.scope or "run",
            unit=unit or plan.unit or "iteration",
            losses=tuple(losses + parts),
            total=total,
            accuracies=tuple(others.get("accuracy", ())),
            validation_losses=tuple(others.get("validation_loss", ())),
            validation_accuracies=tuple(others.get("validation_accuracy", ())),
            step_s=values.get("step_time"),
            step_s_average=values.get("step_time_average"),
            from_bar=plan.bar,
            epoch_s=values.get("epoch_time", self.epoch_s),
            elapsed_s=values.get("elapsed"),
            elapsed_of=values.get("elapsed_of"),
            throughput=values.get("throughput"),
            time_s=self.time_s,
            learning_rate=values.get("lr"),
            batch_size=values.get("batch_size"),
            world=int(values["world"]) if "world" in values else None,
        )


def _take(values: dict[str, Any], what: str, value: float, f: Field, plan: Plan, kind: str, time_is: str) -> None:
    """Times need a sign and a meaning; the first number of a kind on a line is the one."""
    if what in ("step_rate", "step_rate_average"):
        if value <= 0:
            return
        what, value = what.replace("rate", "time"), 1.0 / value
    if what == "window_time":
        what = {"elapsed": "elapsed", "step": "step_time", "window": "step_time"}.get(time_is, "")
        if kind in ("epoch", "validation"):
            what = "epoch_time"
    if what in ("step_time", "step_time_average", "epoch_time", "elapsed"):
        if not 0 <= value < 1e9 or (value == 0 and what != "elapsed"):
            return
        if what == "elapsed":
            values.setdefault("elapsed_of", f.unit or ("epoch" if plan.bar and plan.scope == "epoch" else "run"))
    if what:
        values.setdefault(what, value)


__all__ = ["DUR", "LINE_KINDS", "Field", "Plan", "Row"]
