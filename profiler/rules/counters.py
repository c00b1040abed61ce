"""What the numbers of a line count that no word explains, and what a key means only beside others.

Both are tables: the first row whose test holds is applied. Each row says why, and shows a line that it is for (a test
reads them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

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
#: "epoch/iter: 3/257" is two counters, not one and its total.
_BOTH = re.compile(r"(?i)epoch\s?/\s?(?:iter(?:ation)?|step|batch)")
_EPOCHS = re.compile(r"(?i)(?:train(?:ing)?\s+)?epochs?(?:\s+progress)?\s*")
#: `100: ...`, `100 | ...`: the text begins with a counter.
_ROW = re.compile(rf"\s*{INT}\s+{INT}\s+[A-Za-z]")
_STEPS_DONE = re.compile(rf"(?i)\s*(?:after\s+)?{INT}\s+(?:steps|updates|iterations|iters|batches)\b")
#: `step 0]`: a counter that a bracket closes behind.
_BRACKETED = re.compile(rf"[^\[\]{INT}]*{INT}\s*\]")
_WHOLE = frozenset(("global", "overall", "total"))  #: what a counter of the whole run calls itself
_LEADS = re.compile(rf"\s*{INT}(?:\s*[:|,-]|\t)")


# --- keys that mean something beside others -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beside:
    """What the line says besides a mark."""

    keys: frozenset[str]
    only_parts: bool  #: parts of a loss, and no whole
    named_loss: bool  #: some key ends with the word loss
    counts_to_mse: bool  #: an epoch and its total, and a squared error behind them, are all
    errors: tuple[str, ...]  #: keys of an error of training and of the same of held-out data, where no loss is told

    @classmethod
    def of(cls, marks: list[Mark]) -> Beside:
        what = {m.what for m in marks}
        keys = frozenset(m.key.lower() for m in marks)
        named_loss = any(key.endswith("loss") for key in keys)
        errors = _errors(keys) if what.isdisjoint(("loss", "validation_loss")) else ()
        return cls(keys, "part" in what and "loss" not in what, named_loss, _counts_to_one(marks), errors)


def _errors(keys: frozenset[str]) -> tuple[str, ...]:
    """The keys of the error of both sides, training's first: `train mse` and `val mse`."""
    sides = {side: key for key in sorted(keys) if (side := _side_of_error(key))}
    return (sides["train"], sides["validation"]) if len(sides) == 2 else ()


def _side_of_error(key: str) -> str:
    words = words_of(key)
    return side_of(words[0]) if len(words) == 2 and words[1] in ("mse", "rmse") else ""


def _counts_to_one(marks: list[Mark]) -> bool:
    """Whether an epoch, its total and one more number are all that a line tells."""
    if len(marks) != 3:
        return False
    epoch, total, _ = marks
    return epoch.what == "epoch" and epoch.total is total


#: Names of the loss of a policy,
_OF_POLICY = frozenset(
    (
        "policy_loss",
        "policy loss",
        "pol_loss",
        "pi_loss",
    )
)
#: and of a value function.
_OF_VALUE = frozenset(
    (
        "value_loss",
        "value loss",
        "v_loss",
        "vf_loss",
    )
)


def is_of_value(name: str, names: frozenset[str]) -> bool:
    """Whether `val_loss` is the loss of a value function: beside a policy's, where no other name is of one."""
    if name not in ("val_loss", "val loss"):
        return False
    return not names.isdisjoint(_OF_POLICY) and names.isdisjoint(_OF_VALUE)


@dataclass(frozen=True, slots=True)
class Mend:
    test: Callable[[Mark, Beside], object]
    what: str
    why: str
    line: str


MENDS = (
    Mend(
        lambda m, by: m.key.lower() == "batch_cost" and by.keys & {"reader_cost", "data_cost", "read_cost"},
        "step_time",
        "beside the cost of reading, the cost of a batch is a time",
        "epoch: 1 batch: 20 loss: 2.31 reader_cost: 0.02 batch_cost: 0.31 s",
    ),
    Mend(
        lambda m, by: m.what == "loss" and m.key.lower().endswith("cost") and by.named_loss,
        "window_time",
        "a program has one word for its losses: beside them a cost is of time",
        "[Epoch 0] Training cost: 2179.576, ObjLoss=99.285, ClassLoss=50.659",
    ),
    Mend(
        lambda m, by: m.what == "window_time" and m.key.lower() == "time" and by.keys & {"data_time", "data time"},
        "step_time",
        "beside the time of its data, a time is the batch's",
        "step 50 loss: 2.31, data_time: 0.007, time: 0.51",
    ),
    Mend(
        lambda m, by: by.only_parts and m.what == "" and m.key.lower() == "total" and m.kind == DEC,
        "loss",
        "beside parts of a loss, the total is the loss",
        "step 10 loss_cls 0.41 loss_box 0.22 total 0.63",
    ),
    Mend(
        lambda m, by: m.key.lower() in ("mse", "train mse", "train_mse") and m.kind == DEC and by.counts_to_mse,
        "loss",
        "an error that stands alone behind a counter and its total is the loss",
        "epoch 3/60 mse=0.6697",
    ),
    Mend(
        lambda m, by: by.errors and m.what == "" and m.key.lower() in by.errors[:1],
        "loss",
        "of an error of both sides, where no loss is told, training's is the loss",
        "Epoch 3 | Train MSE: 0.0335 | Gate Loss: 0.3044 | Val MSE: 0.0315",
    ),
    Mend(
        lambda m, by: by.errors and m.what == "" and m.key.lower() in by.errors[1:],
        "validation_loss",
        "and the other side's the held-out one",
        "Epoch 3 | Train MSE: 0.0335 | Gate Loss: 0.3044 | Val MSE: 0.0315",
    ),
    Mend(
        lambda m, by: m.what == "epochs" and m.total is not None and m.meaning is not None,
        "epoch",
        "a plural with a total counts",
        "Epochs 1/3 loss 2.31",
    ),
    Mend(
        lambda m, by: m.what == "iterations" and m.total is not None and m.meaning is not None,
        "iteration",
        "a plural with a total counts",
        "Total iterations 10/300 loss 2.31",
    ),
    Mend(
        lambda m, by: m.what == "iteration" and m.kind == DEC and m.average is not None,
        "step_time",
        "what has a fraction and an average is how long a batch took",
        "Epoch: [0][10/500] Batch 0.91 (1.21) Loss 6.91 (6.93)",
    ),
    Mend(
        lambda m, by: m.key.lower() == "dt" and "bt" in by.keys,
        "skip",
        "beside the time of a batch, dt is the time of its data",
        "Train: [1][10/40] BT 0.31 (0.35) DT 0.01 (0.02) loss 2.31 (2.40)",
    ),
    Mend(
        lambda m, by: m.key.lower() == "iter_time" and {"forward_time", "backward_time"} <= by.keys,
        "skip",
        "beside the times of both passes, it is the time of the iterator of the data",
        "1epoch iter 30 loss=2.31 iter_time=0.001 forward_time=0.13 backward_time=0.11",
    ),
    Mend(
        lambda m, by: is_of_value(m.key.lower(), by.keys),
        "skip",
        "beside the loss of a policy, val is short for value",
        "iter 3 loss 6.16 pol_loss 2.12 val_loss 0.89",
    ),
    Mend(
        lambda m, by: m.key.lower() == "btime" and m.kind == DEC,
        "step_time",
        "the time of a batch",
        "Iter 50 d_real: 0.06, btime: 0.38 s",
    ),
    Mend(
        lambda m, by: m.key.lower() == "bt",
        "step_time",
        "the time of a batch",
        "Train: [1][10/40] BT 0.31 (0.35) DT 0.01 (0.02) loss 2.31 (2.40)",
    ),
)


def mend(marks: list[Mark]) -> None:
    """Give a meaning to what a key alone does not tell."""
    _size_both(marks)
    beside = Beside.of(marks)
    for m in marks:
        if m.total is not None and _BOTH.fullmatch(m.key):
            m.what, m.meaning = "epoch", Meaning("epoch")
            m.total.what, m.total.meaning = "iteration", Meaning("iteration")
            m.total = None
    for m in marks:
        row = next((row for row in MENDS if row.test(m, beside)), None)
        if row is not None:
            m.meaning = _meant(m, row.what)
            m.what = row.what


def _size_both(marks: list[Mark]) -> None:
    """`Train steps: 391 Val steps: 79`: steps of both sides, without a total, are the lengths of an epoch."""
    counts = [m for m in marks if m.what == "iteration" and m.total is None and m.key.lower().endswith("s")]
    sides = {side_of(m.key): m for m in counts}
    if sides.keys() >= {"train", "validation"}:
        for m in counts:
            m.what, m.meaning = "", None
        sides["train"].what, sides["train"].meaning = "iterations_per_epoch", Meaning("iterations_per_epoch")


def _meant(m: Mark, what: str) -> Meaning | None:
    if what == "skip":
        return None
    return replace(m.meaning, what=what) if m.meaning is not None and m.what == what + "s" else Meaning(what)


# --- counters without a word --------------------------------------------------------------------------------


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
            if key == "episode" and mark.what == "" and mark.kind == INT:
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
