"""What the numbers of a line count that no word explains: a table, of which the first row whose test holds is applied.

Each row says why, and shows a line that it is for (a test reads them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from profiler.rules.beside import mend
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.units import Meaning
from profiler.rules.lexicon.words import NOT_STEPS, words_of
from profiler.rules.places import Mark
from profiler.text.tokens import DEC, DUR, INT

#: What is measured, beside which a bare number may be a counter.
VALUES = frozenset(
    (
        "loss",
        "part",
        "accuracy",
        "throughput",
        "throughput_average",
        "step_time",
        "step_time_average",
        "step_rate",
        "step_rate_average",
        "validation_loss",
        "validation_accuracy",
    )
)
#: What only the end of an epoch tells together.
_BOTH_SIDES = frozenset(
    (
        "loss",
        "accuracy",
        "validation_loss",
        "validation_accuracy",
    )
)
_WORD = re.compile(r"[^\W\d_]+")
_EPOCHS = re.compile(r"(?i)(?:train(?:ing)?\s+)?epochs?(?:\s+progress)?\s*")
#: `100: ...`, `100 | ...`: the text begins with a counter.
_ROW = re.compile(rf"\s*{INT}\s+{INT}\s+[A-Za-z]")
_STEPS_DONE = re.compile(rf"(?i)\s*(?:after\s+)?{INT}\s+(?:steps|updates|iterations|iters|batches)\b")
#: `step 0]`: a counter that a bracket closes behind.
_BRACKETED = re.compile(rf"[^\[\]{INT}]*{INT}\s*\]")
_EPISODES = frozenset(("episode", "num episodes", "num_episodes"))
_WHOLE = frozenset(("global", "overall", "total"))  #: what a counter of the whole run calls itself
_LEADS = re.compile(rf"\s*{INT}(?:\s*[:|,-]|\t)")


class Line:
    """The marks of a line, as far as its counters depend on them."""

    def __init__(self, marks: list[Mark], body: str, bar: bool) -> None:
        self.marks, self.body, self.bar = marks, body, bar
        self.named = {m.what for m in marks if m.meaning is not None}

    @property
    def loose(self) -> list[Mark]:
        """Whole numbers without a word."""
        bare = ("unnamed", "bracket", "pair")
        loose = [m for m in self.marks if m.what in bare and self._is_whole(m) and m.unit in ("", "s")]
        return [m for m in loose if m.unit == "" or m.total is None or m.total.unit == ""]  # [3s / 15s] counts nothing

    def _is_whole(self, m: Mark) -> bool:
        """Whether a number can count; of a bar 1.30k too."""
        return m.kind == INT or (self.bar and m.total is not None and m.kind == DEC and m.scale > 1)

    @cached_property
    def counters(self) -> list[Mark]:
        """Those with a total."""
        return [m for m in self.loose if m.total is not None]

    @cached_property
    def lead(self) -> Mark | None:
        """The first number whose only word is the side of the line: `Train 3/10`."""
        heads = (m for m in self.marks if m.what == "" and m.kind == INT and m.key and not words_left(m.key))
        return next(heads, None)

    @cached_property
    def pair(self) -> int:
        """Where the second of two numbers in one bracket stands, whose first is in it too; 0: there is none."""
        at = next((i for i, m in enumerate(self.marks) if m.what == "pair"), 0)
        return at if at and self.marks[at - 1].what == "bracket" else 0

    @cached_property
    def foreign(self) -> Mark | None:
        """The one counter, with a total, whose word is of no language that the lexicon knows."""
        counted = [m for m in self.marks if m.what == "" and m.total is not None and m.kind == INT]
        found = [m for m in counted if _WORD.fullmatch(m.key) and m.key.lower() not in NOT_STEPS]
        return found[0] if len(found) == 1 else None

    @property
    def opens(self) -> bool:
        """Whether it begins with a bare number that stands apart."""
        loose = self.loose
        if not loose or self.marks[0] is not loose[0]:
            return False
        return loose[0].what == "bracket" or _LEADS.match(self.body) is not None

    @cached_property
    def letters(self) -> list[Mark]:
        """The first two numbers, where they are whole and named by the first letters of epoch and of what it is made
        of; else nothing."""
        first = self.marks[:2]
        if any(mark.kind != INT for mark in first):
            return []
        named = [mark.key.lower() for mark in first]
        return first if named in (["e", "i"], ["e", "b"], ["e", "s"]) else []

    @property
    def leads_loss(self) -> bool:
        """Whether it begins with a bare whole number, and the name of a loss and its value follow."""
        if len(self.marks) < 2 or self.marks[0] not in self.loose[:1]:
            return False
        loss = self.marks[1]
        if loss.what != "loss":
            return False
        name = re.escape(loss.key)
        return re.match(rf"\s*{INT}\s+{name}\s*(?:[:=]|[{DEC}])", self.body) is not None

    @property
    def is_row(self) -> bool:
        """Whether it begins with two bare whole numbers and a word: `0 10 loss 2.31`."""
        return _ROW.match(self.body) is not None and all(m in self.loose for m in self.marks[:2])

    @property
    def counts_apart(self) -> bool:
        """Whether a lead with a total has another counter behind it."""
        counts = any(m.what in ("unnamed", "bracket") for m in self.loose)
        return counts and self.lead is not None and self.lead.total is not None

    @cached_property
    def sizes(self) -> list[Mark]:
        """Counters without a total whose words say what the steps are of: `episode steps: 180`."""
        named = [m for m in self.marks if m.what == "iteration" and m.meaning is not None]
        found = []
        for mark in named:
            of_steps = mark.key.lower().endswith("steps") and len(words_left(mark.key)) > 1
            if mark.total is None and of_steps:
                found.append(mark)
        return found

    @cached_property
    def episode(self) -> Mark | None:
        """The counter of episodes, where nothing but how many steps each had counts beside it."""
        if not self.measures:
            return None
        found = None
        for mark in self.marks:
            key = mark.key.lower()
            if mark.what in ("iteration", "epoch") and key != "steps":
                return None
            if key in _EPISODES and mark.what == "" and mark.kind == INT:
                found = found or mark
        return found

    @property
    def counts_plainly(self) -> bool:
        """Whether the first number is called a count, a loss follows, and nothing else counts."""
        first = self.marks[0]
        plain = first.what == "" and first.kind == INT and first.key.lower() in ("count", "counter")
        return plain and "loss" in self.named and self.named.isdisjoint(("iteration", "epoch"))

    @property
    def sized(self) -> bool:
        """Whether it begins with a counter and its total, and the only other counter is a size."""
        named = [m for m in self.marks if m.what == "iteration"]
        leads = self.counters and self.counters[0] is self.marks[0] and not self.bar
        return bool(leads and len(named) == 1 and named == self.sizes)

    @cached_property
    def seen(self) -> Mark | None:
        """How many samples were seen."""
        return next((m for m in self.marks if m.what == "seen"), None)

    @cached_property
    def staged(self) -> Mark | None:
        """A named counter without a total before another with one: in a bracket that closes, or of no whole run."""
        named = [m for m in self.marks if m.what == "iteration" and m.meaning is not None]
        if len(named) != 2 or named[0].total is not None or named[1].total is None:
            return None
        inner = "epoch" not in self.named and not _WHOLE.intersection(words_of(named[0].key))
        return named[0] if inner or _BRACKETED.match(self.body, self.body.find(named[0].key)) else None

    @property
    def done(self) -> bool:
        """Whether it begins with a count of steps: `100 updates done, loss 2.31`."""
        return bool(self.loose) and self.marks[0] is self.loose[0] and _STEPS_DONE.match(self.body) is not None

    @property
    def measures(self) -> bool:
        return bool(self.named & VALUES)


def _as_pair(line: Line) -> None:
    line.marks[line.pair].what = "iteration"
    if "epoch" not in line.named:
        line.marks[line.pair - 1].what = "epoch"


def _as_row(line: Line) -> None:
    line.marks[0].what, line.marks[1].what = "epoch", "iteration"


def _as_letters(line: Line) -> None:
    line.letters[0].what, line.letters[1].what = "epoch", "iteration"


def _as_leading(line: Line) -> None:
    line.sizes[0].what, line.sizes[0].meaning = "", None
    line.counters[0].what = "iteration"


def _as_counter(line: Line) -> None:
    counters, loose = line.counters, line.loose
    two = len(counters) == 2
    if "epoch" in line.named:
        counters[0].what = "iteration"
        return
    counter = counters[-1] if two else counters[0]
    counter.what = "iteration"
    first = line.lead or (counters[0] if two else None)
    if first is None and loose[0] is not counter and loose[0].what == "bracket":
        first = loose[0]
    if first is not None:
        first.what = "epoch"


def _as_foreign(line: Line) -> None:
    if line.foreign is not None:
        line.foreign.what = "iteration"


def _as_epoch(line: Line) -> None:
    if line.lead is not None:
        line.lead.what = "epoch"


def _as_first(line: Line) -> None:
    line.loose[0].what = "iteration"


def _as_first_epoch(line: Line) -> None:
    line.loose[0].what = "epoch"


def _as_seen(line: Line) -> None:
    if line.seen is not None:
        line.seen.what, line.seen.meaning = "iteration", Meaning("iteration", unit="sample")


def _as_counting(line: Line) -> None:
    if line.staged is not None:
        line.staged.what, line.staged.meaning = "skip", None


def _as_episode(line: Line) -> None:
    for mark in line.marks:
        if mark.what == "iteration":
            mark.what, mark.meaning = "", None
    if line.episode is not None:
        line.episode.what = "iteration"


def _as_counting_plainly(line: Line) -> None:
    line.marks[0].what = "iteration"


def _as_it_is(line: Line) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Count:
    test: Callable[[Line], object]
    give: Callable[[Line], None]
    why: str
    line: str


COUNTS = (
    Count(
        lambda line: line.staged,
        _as_counting,
        "of two counters the one with a total counts: the other, before it, numbers a stage or a pass",
        "[15-5 / step 0] Epoch 1, Itrs 10/29900, Loss=1.4094",
    ),
    Count(
        lambda line: line.sized,
        _as_leading,
        "a line that begins with a counter and its total counts by it; a count of parts beside it is a size",
        " 4358/50000: episode: 12, episode steps: 180, loss: 4.9184",
    ),
    Count(
        lambda line: line.episode,
        _as_episode,
        "of an agent's episodes each has steps of its own: the episodes count",
        "episode: 3, reward: 21.5, steps: 180, loss: 4.9184",
    ),
    Count(
        lambda line: line.counts_plainly,
        _as_counting_plainly,
        "before a loss a count is the counter",
        "count: 50, loss: 228.9013",
    ),
    Count(
        lambda line: "iteration" not in line.named and line.pair,
        _as_pair,
        "two numbers in a bracket are epoch and batch",
        "[1, 2000] loss: 2.173",
    ),
    Count(
        lambda line: "iteration" not in line.named and line.counters,
        _as_counter,
        "a number with a total counts batches; one before it, in a bracket or with a total, epochs",
        "[0][5/157] loss 2.31",
    ),
    Count(
        lambda line: line.measures and line.letters and not line.named & {"iteration", "epoch"},
        _as_letters,
        "beside a value, E and I are epoch and iteration",
        "E: 1 | I: 100 - loss: 1.7170",
    ),
    Count(
        lambda line: line.leads_loss and line.named >= _BOTH_SIDES and not line.named & {"iteration", "epoch"},
        _as_first_epoch,
        "a bare number before losses and accuracies of both sides counts epochs",
        "3 train loss=0.693 train acc=0.502 valid loss=0.691 valid acc=0.521",
    ),
    Count(
        lambda line: line.leads_loss and not line.named & {"iteration", "epoch"},
        _as_first,
        "a bare number right before the name of a loss counts",
        "   1 train loss:  0.37162 test acc: 93.31%",
    ),
    Count(
        lambda line: line.is_row and line.measures and not line.named & {"iteration", "epoch"},
        _as_row,
        "two bare numbers that a line with a loss begins with are epoch and batch",
        "0 10 loss - 7.0895",
    ),
    Count(
        lambda line: "iteration" not in line.named and not line.bar and line.measures and line.done,
        _as_first,
        "a line that begins with a number of steps begins with its counter",
        "100 updates done, loss 2.31",
    ),
    Count(
        lambda line: not line.named & {"iteration", "epoch"} and line.measures and line.seen,
        _as_seen,
        "where nothing counts steps, the samples that were seen count",
        "examples_seen=51200 loss=2.31",
    ),
    Count(
        lambda line: "iteration" in line.named or line.bar,
        _as_it_is,
        "a word says it already; a bar without a counter tells none",
        "step 5 loss 2.31",
    ),
    Count(
        lambda line: "epochs" not in line.named and "loss" in line.named and line.foreign,
        _as_foreign,
        "beside a loss, one counter with a total counts, whatever its word is",
        "kierros 5/100 loss 2.31",
    ),
    Count(
        lambda line: "epoch" not in line.named and line.measures and line.counts_apart,
        _as_epoch,
        "a side with a total, before a bare number, counts epochs",
        "Train 3/10 [200] acc 0.51",
    ),
    Count(
        lambda line: "epoch" not in line.named and line.measures and line.opens,
        _as_first,
        "a line that begins with a bare number, set off by a sign, begins with its counter",
        "100: loss 2.31",
    ),
)


def name_counters(marks: list[Mark], body: str, bar: bool) -> None:
    """Give the counters without a word their meaning by place: `[0][5/157]`, `[1, 2000]`, `5/100`, `[100]`."""
    mend(marks)
    if bar and any(m.what == "unnamed" and m.total is not None for m in marks):
        _bar_counts(marks)
    line = Line(marks, body, bar)
    row = next((row for row in COUNTS if row.test(line)), None)
    if row is not None:
        row.give(line)


def _bar_counts(marks: list[Mark]) -> None:
    """A bar's own counter is the one that counts; a bar that is called Epochs, without a number, counts epochs."""
    for m in marks:
        if m.what == "iteration" and m.total is None:
            m.what, m.meaning = "", None
    first = marks[0]
    if first.unit != "%" or not _EPOCHS.fullmatch(first.key):
        return
    for m in marks:
        if m.what == "unnamed" and m.total is not None:
            m.what = "epoch"
        elif m.what in ("step_time", "step_rate") and m.meaning is not None:
            m.what = "epoch_time" if m.what == "step_time" else ""
        elif m.kind == DUR:
            m.what = "skip"


def words_left(key: str) -> list[str]:
    """The words of a key that are not merely the side (train, test) of a line."""
    return [w for w in words_of(key) if not side_of(w)]
