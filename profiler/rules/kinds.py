"""What a line is for, by what it says: a table whose first row that holds decides.

Each row says why, and shows a line that it is for (a test reads them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from profiler.rules.counters import VALUES
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.words import words_of
from profiler.rules.places import Mark
from profiler.rules.plan import Field
from profiler.text.tokens import DEC, INT

TIMES = frozenset(
    (
        "window_time",
        "elapsed",
        "epoch_time",
    )
)
SETUP = frozenset(
    (
        "world",
        "gpus",
        "batch_size",
        "accumulation",
        "iterations",
        "epochs",
        "samples",
        "iterations_per_epoch",
    )
)
_COUNTERS = frozenset(
    (
        "iteration",
        "iterations",
        "epoch",
        "epochs",
    )
)
_LEARNT = frozenset(
    (
        "loss",
        "part",
        "accuracy",
    )
)
HELD = frozenset(
    (
        "validation_loss",
        "validation_accuracy",
    )
)
_ON_BARS = frozenset(
    (
        "step_rate",
        "step_time",
        "loss",
        "accuracy",
        "throughput",
        "elapsed",
    )
)
_LOOSE = frozenset(
    (
        "loss",
        "part",
        "accuracy",
        "throughput",
        "step_rate",
        "step_time",
        "epoch_time",
    )
)
_EPOCH_HEAD = re.compile(
    rf"^[\s=*#<>\[\](\-_|+~]*(?:(?:start(?:ing)?(?: of)?|begin(?:ning)?(?: of)?|train(?:ing)?|running|now"
    rf"|in|(?:going )?into|entering)\s*:?\s+)?"
    rf"(?:epoch|ep)\b[\s#:.=\[(no]*[{INT}{DEC}]",
    re.IGNORECASE,
)
_PERPLEXITY = re.compile(r"(?i)^(?:train(?:ing)?[ _])?(?:ppl|perplexity)$")
#: What stands before a run of signs is no part of the head that those set off.
_DECORATED = re.compile(r"^[^=*#~-]*(?=[=*#~-]{4})")
_HEADER_WORDS = frozenset(
    "epoch epochs step steps iter iters iteration iterations batch batches global of train training learning start "
    "begin current".split()
)


class Said:
    """What a line says, as far as its kind depends on it."""

    def __init__(self, marks: list[Mark], fields: list[Field], opening: str, side: str, body: str, bar: bool) -> None:
        self.marks, self.fields = marks, fields
        self.opening = opening  #: the words before the first value
        self.what = frozenset(f.what for f in fields)
        self.values = self.what & VALUES
        self.side, self.body, self.bar = side, body, bar
        self.counted = "iteration" in self.what
        self.epoch = next((m for m in marks if m.what == "epoch"), None)
        #: it counts steps or epochs of an evaluation
        counters = [m for m in marks if m.meaning is not None and m.what in ("iteration", "epoch")]
        self.held_count = any(m.meaning is not None and m.meaning.validation for m in counters)

    @property
    def sums_up(self) -> bool:
        """Whether it tells of an epoch a number of held-out data, with a name that no word explains."""
        if self.epoch is None or self.counted:
            return False
        named = [m.key for m in self.marks if m.what == "" and m.kind == DEC and m.separated]
        return any(side_of(key) == "validation" for key in named)

    @property
    def perplexed(self) -> bool:
        """Whether it counts batches of a total beside a perplexity, whatever its loss is called."""
        counter = next((m for m in self.marks if m.what == "iteration"), None)
        if counter is None or counter.total is None or self.held_out:
            return False
        return any(_PERPLEXITY.search(m.key) and m.kind == DEC for m in self.marks)

    @property
    def is_of_evaluation(self) -> bool:
        """Whether all that it tells beside its epoch is of held-out data, without a name that is known."""
        return self.held_out and not self.values and self.sums_up

    @property
    def held_out(self) -> bool:
        return self.side == "validation"

    @cached_property
    def is_header(self) -> bool:
        """Whether it holds counters and their words alone."""
        if not self.counted or self.bar or not self.what <= _COUNTERS or len(self.body) >= 100:
            return False
        return _HEADER_WORDS.issuperset(words_of(self.body))

    @property
    def is_epoch_head(self) -> bool:
        short = self.epoch is not None and not self.counted and len(self.body) < 80 and not self.sums_up
        return short and _EPOCH_HEAD.match(_DECORATED.sub("", self.body)) is not None


@dataclass(frozen=True, slots=True)
class Reading:
    test: Callable[[Said], object]
    kind: str  #: of `plan.LINE_KINDS`, loose, or "" for a line that is of no use
    why: str
    line: str


KINDS = (
    Reading(
        lambda s: s.held_out and (s.values or s.bar),
        "validation",
        "its words say so",
        "Validation: epoch 3 loss 0.51",
    ),
    Reading(
        lambda s: s.held_count and s.values,
        "validation",
        "its counter is an evaluation's",
        "loss 0.51 at eval_step 30",
    ),
    Reading(lambda s: s.held_count, "", "its counter is an evaluation's, and nothing is told", "eval_step 30 lr 0.1"),
    Reading(
        lambda s: s.what & HELD and not s.what & _LEARNT,
        "validation",
        "all its values are held-out",
        "train step 30 val_loss 0.51",
    ),
    Reading(
        lambda s: s.bar and s.counted and s.what & _ON_BARS,
        "train",
        "a bar with a counter, and a rate, a time or a value",
        "30%|###   | 30/100 [00:10<00:20, 3.0it/s]",
    ),
    Reading(lambda s: s.counted and s.values, "train", "a counter and a value", "step 30 loss 0.51"),
    Reading(
        lambda s: s.counted and s.epoch is not None and "lr" in s.what,
        "train",
        "only training prints its learning rate beside both counters",
        "epoch 1 step 30 lr 0.1",
    ),
    Reading(
        lambda s: s.counted and s.what & {"window_time", "epoch_time"},
        "train",
        "a counter and a time",
        "step 30 time 0.31",
    ),
    Reading(
        lambda s: s.counted and "elapsed" in s.what and not s.held_out,
        "train",
        "a counter and the time since training began",
        "step 30 elapsed 12.5 s",
    ),
    Reading(
        lambda s: s.perplexed,
        "train",
        "a counter with a total and a perplexity",
        "Batch 10/165 | Energy: 1.4454 | Perplexity: 1157.8436",
    ),
    Reading(
        lambda s: s.epoch is not None and s.epoch.kind == DEC and s.what & _LEARNT,
        "train",
        "a part of an epoch is a counter",
        "epoch 1.25 loss 0.51",
    ),
    Reading(lambda s: s.epoch is not None and s.values, "epoch", "an epoch and a value", "epoch 3 loss 0.51"),
    Reading(
        lambda s: s.epoch is not None and s.what & TIMES and not s.held_out,
        "epoch",
        "an epoch and a time",
        "epoch 3 took 61.5 s",
    ),
    Reading(
        lambda s: s.sums_up,
        "epoch",
        "a number of held-out data beside an epoch is told at its end",
        "Epoch: 01, Test IoU: 0.6501",
    ),
    Reading(
        lambda s: s.is_header and s.epoch is not None,
        "train",
        "both counters and nothing else: the values follow on lines of their own",
        "---- [Epoch 0/100, Batch 5/1000] ----",
    ),
    Reading(lambda s: s.is_header, "context", "a counter and nothing else", "Iteration 30"),
    Reading(lambda s: s.is_epoch_head, "context", "an epoch begins", "Starting epoch 3 with lr 0.1"),
    Reading(
        lambda s: s.what & _LOOSE and not s.counted and s.epoch is None,
        "loose",
        "a value without a counter belongs to the counter before it",
        "loss: 0.51",
    ),
    Reading(
        lambda s: s.what <= SETUP | {"lr"} and s.what & SETUP,
        "setup",
        "sizes and totals are facts of the run",
        "world size: 8",
    ),
)


def reading(said: Said) -> Reading | None:
    """The row that decides; None for a line that says too little."""
    return next((row for row in KINDS if row.test(said)), None)
