"""Templates learnt from a log itself: its lines, clustered by their words, and what each column of numbers is.

For lines that no rule and no word explains. Two lines are of one template where most of their words are equal and
their numbers stand in the same places (as Drain clusters logs); what varies is a wildcard. A template is training's
where exactly one of its columns counts and one decays (`roles`), and no word contradicts. Two columns that decay tell
the counter alone: which of them is training's is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from profiler import roles
from profiler.model import LossKind
from profiler.roles import Role
from profiler.rules import generic
from profiler.rules.lexicon.units import TIME_UNITS, words_for
from profiler.rules.lexicon.words import excluded, words_of
from profiler.rules.pairs import key_of
from profiler.rules.plan import Field, Plan
from profiler.text import ranks
from profiler.text.tokens import (
    DEC,
    DUR,
    INT,
    PRIVATE,
    number,
    tokenise,
)

ALIKE = 0.7  #: share of words that lines of one template have in common
LOOKS = (
    12,
    24,
    48,
    96,
    192,
)  #: rows at which a template is judged; after the last it is given up
MOST_NUMBERS = 24
MOST_PARTS = 12  #: columns that may add up to another
SAME_SUM = 0.01  #: how far a sum may be from what is printed: columns are rounded
RULE = "learnt/template"
ORIGIN = "learnt "
#: A number with one of these behind it is no loss.
_UNIT = re.compile(r"\s?(%|°|[A-Za-zµ]+(?:/[A-Za-z]+)?)")
_UNITS = frozenset(TIME_UNITS) | words_for("physical_units")
_NO_CURVE = words_for("no_curve")
#: Columns, by place among the numbers of a line: the role and the values of each.
Found = dict[int, tuple[Role, list[float]]]
_ONE = str.maketrans({DEC: INT})
_SIGN = re.compile(rf"(?<![^\s:=,|(\[])[-+](?=[{INT}{DEC}])")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which number of a line is what: by place among its numbers."""

    counter: int
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: int | None = None
    name: str = ""  #: of the loss, as printed

    def to_json(self) -> str:
        return json.dumps([self.counter, self.total, self.epoch, self.epochs, self.loss, self.name])

    @classmethod
    def from_json(cls, text: str) -> Columns:
        return cls(*json.loads(text))

    def plan(self, text: str) -> Plan | None:
        """The plan for a line of the template; None where its numbers are others than the columns say."""
        canonical, numbers = tokenise(text)
        kinds = [c for c in canonical if c in PRIVATE]
        whole = {"iteration": self.counter, "iterations": self.total, "epoch": self.epoch, "epochs": self.epochs}
        needed = [*((at, INT) for at in whole.values()), (self.loss, INT + DEC)]
        if any(at is not None and (at >= len(kinds) or kinds[at] not in kind) for at, kind in needed):
            return None
        fields = [Field(what, at) for what, at in whole.items() if at is not None]
        if self.loss is not None:
            fields.append(Field("loss", self.loss, name=self.name or "loss", kind=LossKind.STEP))
        plan = Plan(RULE, "train", canonical, tuple(fields), series=RULE)
        prefix = ranks.strip(canonical, numbers)
        plan.clock, plan.source = prefix.clock, prefix.source
        plan.rank, plan.fixed_rank = prefix.rank, prefix.fixed_rank
        plan.sample, plan.origin = text, ORIGIN + self.to_json()
        return plan.compile()


@dataclass(slots=True)
class Template:
    words: list[str]  #: "" stands for any word
    rows: list[tuple[int, str]] = field(default_factory=list)  #: (line, text), until it is judged
    seen: int = 0  #: rows in all
    columns: Columns | None = None

    @property
    def judged(self) -> bool:
        """Whether nothing is left to learn."""
        return self.columns is not None or self.seen >= LOOKS[-1]

    def fits(self, words: Sequence[str]) -> bool:
        """Whether a line with these words (as many as the template has) is one of its."""
        same = 0
        for own, other in zip(self.words, words, strict=True):
            if own == other:
                same += 1
            elif INT in own or INT in other or DUR in own or DUR in other:
                return False  # a number against a word, or another shape of numbers
        return same >= ALIKE * len(words)

    def take(self, line: int, text: str, words: Sequence[str]) -> bool:
        """Take a row; whether the template was found to be training's by it."""
        self.words = [own if own == other else "" for own, other in zip(self.words, words, strict=True)]
        self.rows.append((line, text))
        self.seen += 1
        if self.seen in LOOKS:
            self.columns = columns([text for _, text in self.rows])
            if self.columns is None and self.judged:
                self.rows = []
        return self.columns is not None


def words_in(canonical: str) -> list[str]:
    """The words of a line by which it is clustered; whole numbers and decimals are alike, with a sign or without."""
    return _SIGN.sub("", canonical).translate(_ONE).split()


def columns(rows: Sequence[str]) -> Columns | None:
    """What the columns of some lines of one template are; None where they are not surely training's."""
    read = [tokenise(text) for text in rows]
    canonical = read[0][0]
    prefix = ranks.strip(canonical, read[0][1])
    if generic.tells_a_story(canonical[prefix.start :]) or _contradicted(canonical):
        return None
    found = _columns(read, prefix)
    counters = [at for at, (made, _) in found.items() if made is Role.COUNTER]
    falling = [at for at, (made, _) in found.items() if made is Role.DECAYING and _may_be_loss(canonical, at)]
    if not counters or not falling:
        return None
    counter = min(counters, key=lambda at: (roles.stride(found[at][1]), at))
    made = Columns(counter, _total(canonical, counter, found), *_epoch(canonical, counter, found))
    whole = _sum_of_others(found, falling)
    if whole is not None and _may_be_loss(canonical, whole):
        falling = [whole]
    if len(falling) > 1:
        return made
    return replace(made, loss=falling[0], name=_key(canonical, falling[0]))


def _sum_of_others(found: Found, falling: Sequence[int]) -> int | None:
    """The column that is, row by row, the sum of columns right before it of which one falls: a loss and its parts."""
    for at in sorted(found):
        for first in range(at - 2, max(at - MOST_PARTS, -1), -1):
            parts = [found[i][1] for i in range(first, at) if i in found]
            if len(parts) < at - first:
                break
            if any(first <= i < at for i in falling) and _adds_up(parts, found[at][1]):
                return at
    return None


def _adds_up(parts: Sequence[Sequence[float]], values: Sequence[float]) -> bool:
    """Whether columns add up to another, none of them alone."""
    if max(map(max, parts)) >= max(values) * (1 - SAME_SUM):
        return False
    sums = [sum(row) for row in zip(*parts, strict=True)]
    return all(abs(a - b) <= SAME_SUM * abs(b) for a, b in zip(sums, values, strict=True))


def _columns(read: Sequence[tuple[str, list[str]]], prefix: ranks.Prefix) -> Found:
    """The columns behind what stands before the text, but for those of the stamp: each with its role and values."""
    canonical, numbers = read[0]
    stamp = prefix.clock.tokens if prefix.clock is not None else ()
    first = sum(canonical.count(c, 0, prefix.start) for c in PRIVATE)
    made = {at: _column(read, at) for at in range(first, len(numbers)) if at not in stamp}
    return {at: column for at, column in made.items() if column is not None}


def _column(read: Sequence[tuple[str, list[str]]], at: int) -> tuple[Role, list[float]] | None:
    """The role of a column and its values; None where it is no column of numbers."""
    kinds = {_kind(canonical, at) for canonical, _ in read}
    if DUR in kinds:
        return None
    values = [number(numbers[at]) for _, numbers in read]
    if any(_negative(canonical, at) for canonical, _ in read):
        return Role.OTHER, values
    return roles.role(values, kinds == {INT}), values


def _place(canonical: str, at: int) -> int:
    """Where the number stands in a canonical line."""
    return _places(canonical)[at]


@lru_cache(maxsize=512)
def _places(canonical: str) -> tuple[int, ...]:
    return tuple(i for i, c in enumerate(canonical) if c in PRIVATE)


def _kind(canonical: str, at: int) -> str:
    return canonical[_place(canonical, at)]


def _negative(canonical: str, at: int) -> bool:
    place = _place(canonical, at)
    return canonical[place - 1 : place] == "-" and not canonical[max(place - 2, 0) : place - 1].strip()


def _left(canonical: str, at: int) -> str:
    """What stands between a number and the one before it."""
    return canonical[_place(canonical, at - 1) + 1 if at else 0 : _place(canonical, at)]


def _key(canonical: str, at: int) -> str:
    return key_of(_left(canonical, at))


def _may_be_loss(canonical: str, at: int) -> bool:
    """Whether neither the words before nor the unit behind say that it is something else."""
    key = _key(canonical, at)
    unit = _UNIT.match(canonical, _place(canonical, at) + 1)
    named = set(words_of(key)) & (_NO_CURVE | words_for("not_time") | words_for("time") | {"lr", "eta"})
    return not named and not excluded(key) and (unit is None or unit.group(1).lower() not in _UNITS)


def _contradicted(canonical: str) -> bool:
    """Whether a word of the line says that another program prints it."""
    return bool(set(words_of(canonical)) & _NO_CURVE)


def _epoch(canonical: str, counter: int, found: Found) -> tuple[int | None, int | None]:
    """What stands before the counter and rises slower, with its total; nothing where it has none."""
    before = [at for at in sorted(found) if at < counter]
    steady = [at for at in before if found[at][0] in (Role.CONSTANT, Role.STAIRS)]
    totals = ((at, _total(canonical, at, found)) for at in steady)
    return next((pair for pair in totals if pair[1]), (None, None))


def _total(canonical: str, counter: int, found: Found) -> int | None:
    """The total of a counter: what stands behind it, never changes and is no less."""
    at = counter + 1
    behind, values = found.get(at, (Role.OTHER, []))
    if behind is not Role.CONSTANT or _left(canonical, at).strip() not in ("/", "of"):
        return None
    whole = _kind(canonical, at) == INT
    return at if whole and values[0] >= found[counter][1][-1] else None
