"""A number of a line, and what it is to the one before it: its total, its average, the second of a pair.

A table: each row shows a line that it is for (a test reads them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from profiler.rules.lexicon.units import TIME_UNITS, Meaning, rate_of
from profiler.text.tokens import DUR, INT

_STEP_WORDS = r"(?:steps?|iterations?|iters?|its?|batch(?:es)?|minibatch(?:es)?|updates?)"
#: "500 train steps in 151.2 s", "1000 steps take 8.5 seconds": how long so many steps took.
_STEPS_TAKE = re.compile(rf"(?i)\s+(?:train(?:ing)? )?{_STEP_WORDS}\s+(?:in|take|took|takes|done in)\s+")
#: "10 it / 2.1 s": how long so many steps took.
_STEPS_PER = re.compile(rf"(?i)\s?{_STEP_WORDS}\s*/\s*")
_STEPS = re.compile(rf"(?i)\s?{_STEP_WORDS}\b")
#: "Time(1000 iters): 5.35s"
_STEPS_TOOK = re.compile(rf"(?i)\s?{_STEP_WORDS}\s?\)\s*[:=]?\s*")
#: "time per 100 steps: 42.2", "secs/100 iters = 42.2"
_PER_STEPS = re.compile(rf"(?i)[ -]?{_STEP_WORDS}\s*(?:\([a-z]+\))?\s*[:=]?\s*")
_TIME_PER = re.compile(r"(?i)\b(?:time|secs?|seconds|took|duration)\b.*(?:per|for|every|last|/)$")
#: Seconds of the units that a smaller one may follow: `1 hour, 2 minutes and 3.5 seconds`.
_LONGER = {"minutes": 60.0, **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0), "days": 86400.0}
_AND = frozenset(("", ",", "and", ", and"))
#: What stands between a value before and a value now.
_BECOMES = frozenset(("->", "-->", "--->", "=>", "==>", "→"))
_TOLD_VALUES = frozenset(("loss", "part", "accuracy", "validation_loss", "validation_accuracy"))
#: What stands between a counter and its total, in the languages that the lexicon knows.
OF = frozenset(
    (
        "/",
        "of",
        "out of",
        "\\",
        "von",
        "de",
        "di",
        "sur",
        "из",
        "van",
        "av",
        "af",
        "z",
        "od",
    )
)


@dataclass(slots=True)
class Mark:
    """One number and what it is. `what`: of `words.FIELDS`, or unnamed, bracket, total, average, uncertainty."""

    token: int  #: -1 for nan and inf
    at: int  #: where it stands in the canonical text
    kind: str
    what: str
    key: str = ""
    meaning: Meaning | None = None
    negative: bool = False
    constant: float = 0.0
    total: Mark | None = None
    average: Mark | None = None
    unit: str = ""
    scale: float = 1.0
    more: tuple[tuple[int, float], ...] = ()  #: earlier numbers of the same duration, with their seconds
    over: int | None = None  #: token of the number of steps that the time is of
    separated: bool = False  #: a colon or equals sign stands between key and number

    @property
    def is_time(self) -> bool:
        """Whether its unit or its form says so."""
        return self.unit in TIME_UNITS or self.kind == DUR


@dataclass(frozen=True, slots=True)
class Place:
    """Where a number stands: the mark before it, and the text between and behind."""

    previous: Mark
    left: str
    bare: str  #: `left` without blanks
    right: str
    canonical: str

    @property
    def closes(self) -> bool:
        """Whether a bracket, a comma or a percent sign stands right behind."""
        return self.right[:1] in (")", ",", "%")

    @property
    def follows(self) -> str:
        """The sign behind, past blanks."""
        return self.right.lstrip()[:1]

    @property
    def in_bracket(self) -> bool:
        """Whether a new bracket holds the number."""
        if self.bare in ("][", "] ["):
            return True
        counts = self.previous.what in ("epoch", "total")
        return self.bare == "[" and counts and self.follows in "/]-:"

    @property
    def opened(self) -> bool:
        """Whether a bracket opens right before the number before."""
        return self.canonical[: self.previous.at].rstrip().endswith("[")

    @property
    def in_list(self) -> bool:
        """`[3, 40]`: both numbers alone in one bracket."""
        return self.bare == "," and self.opened and self.right[:1] == "]"


def _is_total(m: Mark, p: Place) -> bool:
    m.what = "total"
    if p.right == "/" and p.previous.what in ("unnamed", "bracket"):
        p.previous.what = "skip"  # 12/24/2024: three numbers are a date, no counter
        return True
    if p.previous.total is None and p.previous.what not in ("total", "skip"):
        p.previous.total = m
    return True


def _is_second_rate(m: Mark, p: Place) -> bool:
    """Of source and target, with one unit behind both: the number beside the unit is the rate."""
    p.previous.what = "skip"
    return False


def _is_end_of_range(m: Mark, p: Place) -> bool:
    p.previous.token, p.previous.at = m.token, m.at
    m.what = "skip"
    return True


def _is_news(m: Mark, p: Place) -> bool:
    """Of a value before and a value now the latter counts."""
    before = p.previous
    before.token, before.at, before.kind = m.token, m.at, m.kind
    before.negative, before.constant, before.scale = m.negative, m.constant, m.scale
    m.what = "skip"
    return True


def _is_apart(m: Mark, p: Place) -> bool:
    return False


def _is_average(m: Mark, p: Place) -> bool:
    if m.unit not in ("%", p.previous.unit) and rate_of(m.unit) is not None:
        return False  # 3.21s (583.2 batches/s): a rate is no average of what has another unit
    m.what = "skip" if m.unit == "%" else "average"
    if p.previous.average is None and m.what == "average":
        p.previous.average = m
    return m.unit == "%" or rate_of(m.unit) is None


def _is_uncertainty(m: Mark, p: Place) -> bool:
    m.what = "skip"
    return True


def _is_in_bracket(m: Mark, p: Place) -> bool:
    m.what = "unnamed" if p.follows == "/" else "bracket"
    return True


def _is_second_counter(m: Mark, p: Place) -> bool:
    m.what, m.key, m.meaning = "iteration", p.previous.key, p.previous.meaning
    p.previous.what = "epoch"
    return True


def _is_pair(m: Mark, p: Place) -> bool:
    m.what = "pair"
    return True


def _is_of_many(m: Mark, p: Place) -> bool:
    m.what, m.meaning, m.over = "step_time", Meaning("step_time", scale=TIME_UNITS.get(m.unit, 1.0)), p.previous.token
    p.previous.what, p.previous.meaning = "skip", None
    return True


def _is_their_number(m: Mark, p: Place) -> bool:
    of = p.previous
    of.what, of.meaning, of.over = "step_time", Meaning("step_time", scale=TIME_UNITS[of.unit]), m.token
    m.what = "skip"
    return True


def _is_smaller(unit: str, before: str) -> bool:
    """Whether a duration may go on in a unit."""
    return before in _LONGER and unit in TIME_UNITS and 1.0 <= TIME_UNITS[unit] < _LONGER[before]


def _goes_on(m: Mark, p: Place) -> bool:
    """The number before was minutes, hours or days of the same duration."""
    before, meaning = p.previous, p.previous.meaning
    own = TIME_UNITS.get(m.unit, 1.0)
    lasted = _LONGER[before.unit]
    m.more = (*((token, part * lasted / own) for token, part in before.more), (before.token, lasted / own))
    m.what, m.key, m.meaning = before.what, before.key, meaning
    if meaning is not None and before.unit != "days":
        m.meaning = replace(meaning, scale=own)
    before.what = "skip"
    return True


@dataclass(frozen=True, slots=True)
class Stand:
    test: Callable[[Mark, Place], object]
    give: Callable[[Mark, Place], bool]  #: whether the number belongs to the one before
    line: str  #: whose last number it is for


#: What a number is to the one before it, by what stands between them: the first row that holds.
PLACES = (
    Stand(
        lambda m, p: p.bare == "/" and rate_of(m.unit) is not None and p.previous.what == "unnamed",
        _is_second_rate,
        "step 30 loss 2.31 21889/22994 tok/s",
    ),
    Stand(lambda m, p: p.bare in OF, _is_total, "step 3/10"),
    Stand(lambda m, p: p.bare == "|" and p.right[:1] == "]" and p.opened, _is_total, "Epoch: [1 | 164] loss 2.31"),
    Stand(lambda m, p: p.left == "-" and p.previous.kind == m.kind == INT, _is_end_of_range, "steps 12-20"),
    Stand(
        lambda m, p: p.bare in _BECOMES and p.previous.what in _TOLD_VALUES,
        _is_news,
        "epoch 3 val_loss: 0.31 --> 0.29",
    ),
    Stand(lambda m, p: m.unit in TIME_UNITS and p.bare == "(", _is_apart, "loss 2.31 (0.5 s)"),
    Stand(
        lambda m, p: p.bare == "(" and p.left[:2].lstrip()[:1] == "(" and (p.closes or m.unit),
        _is_average,
        "loss 2.31 (2.45)",
    ),
    Stand(
        lambda m, p: (
            p.bare
            in (
                "+/-",
                "±",
                "+-",
                "<",
                "~",
                "(~",
            )
        ),
        _is_uncertainty,
        "loss 2.31 ± 0.05",
    ),
    Stand(lambda m, p: p.in_bracket, _is_in_bracket, "Epoch: [0][5/157]"),
    Stand(
        lambda m, p: p.in_list and p.previous.what == "iteration" and p.previous.kind == m.kind == INT,
        _is_second_counter,
        "step [3, 40]",
    ),
    Stand(
        lambda m, p: p.bare == "," and p.previous.what == "bracket" and m.kind == INT and p.right[:1] in "])",
        _is_pair,
        "[1, 2000] loss: 2.17",
    ),
    Stand(
        lambda m, p: p.bare == ":" and p.opened and p.previous.kind == m.kind == INT and p.right[:1] == "]",
        _is_pair,
        "[1 :  2000] loss: 2.17",
    ),
    Stand(
        lambda m, p: p.previous.kind == INT and m.is_time and _STEPS_TAKE.fullmatch(p.left),
        _is_of_many,
        "Step 1000: Ran 500 train steps in 151.2 secs",
    ),
    Stand(
        lambda m, p: p.previous.kind == INT and m.unit in TIME_UNITS and _STEPS_PER.fullmatch(p.left),
        _is_of_many,
        "step 300 loss 2.31 20 it / 9.32 s",
    ),
    Stand(
        lambda m, p: p.previous.kind == INT and m.is_time and _STEPS_TOOK.fullmatch(p.left),
        _is_of_many,
        "Iter: 1000 Time(1000 iters): 5.35s Loss: 0.15",
    ),
    Stand(
        lambda m, p: p.previous.kind == INT and _PER_STEPS.fullmatch(p.left) and _TIME_PER.search(p.previous.key),
        _is_of_many,
        "step 300 loss 2.31 time per 100 steps: 42.2 s",
    ),
    Stand(
        lambda m, p: m.kind == INT and p.previous.unit in TIME_UNITS and p.bare in ("(", "/") and _STEPS.match(p.right),
        _is_their_number,
        "step 300 loss 2.31 9.32s(20 iters)",
    ),
    Stand(
        lambda m, p: _is_smaller(m.unit, p.previous.unit) and p.bare in _AND,
        _goes_on,
        "epoch took 3 min 20 s",
    ),
    Stand(
        lambda m, p: p.previous.unit == "days" and p.bare in ("", ",") and m.kind == DUR,
        _goes_on,
        "elapsed: 1 day, 3:20:10",
    ),
)


def place(mark: Mark, where: Place) -> bool:
    """Whether the number belongs to the one before: its total, its average, the end of its range."""
    row = next((row for row in PLACES if row.test(mark, where)), None)
    return row is not None and row.give(mark, where)
