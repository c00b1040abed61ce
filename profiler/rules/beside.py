"""What a key means only beside others on its line: a table, of which the first row whose test holds is applied.

Each row says why, and shows a line that it is for (a test reads them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.units import Meaning
from profiler.rules.lexicon.words import words_of
from profiler.rules.places import Mark
from profiler.text.tokens import DEC, INT

#: "epoch/iter: 3/257" is two counters, not one and its total.
_BOTH = re.compile(r"(?i)epoch\s?/\s?(?:iter(?:ation)?|step|batch)")


@dataclass(frozen=True, slots=True)
class Beside:
    """What the line says besides a mark."""

    keys: frozenset[str]
    only_parts: bool  #: parts of a loss, and no whole
    named_loss: bool  #: some key ends with the word loss
    counts_to_mse: bool  #: an epoch and its total, and a squared error behind them, are all
    in_part: bool  #: an epoch is told with its fraction
    errors: tuple[str, ...]  #: keys of an error of training and of the same of held-out data, where no loss is told

    @classmethod
    def of(cls, marks: list[Mark]) -> Beside:
        what = {m.what for m in marks}
        keys = frozenset(m.key.lower() for m in marks)
        named_loss = any(key.endswith("loss") for key in keys)
        errors = _errors(keys) if what.isdisjoint(("loss", "validation_loss")) else ()
        in_part = any(m.what == "epoch" and m.kind == DEC for m in marks)
        return cls(keys, "part" in what and "loss" not in what, named_loss, _counts_to_one(marks), in_part, errors)


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
#: Names of an epoch that is made of others, and of those.
_OUTER = frozenset(("epoch_out", "outer_epoch", "outer epoch", "epoch_outer"))
_INNER = frozenset(("epoch_in", "inner_epoch", "inner epoch", "epoch_inner"))


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
        lambda m, by: m.key.lower() in _OUTER and m.kind == INT and by.keys & _INNER,
        "epoch",
        "of an epoch within an epoch the outer one is it",
        "epoch_out: 0, epoch_in: 3, loss: 0.31",
    ),
    Mend(
        lambda m, by: m.key.lower() in _INNER and m.kind == INT and by.keys & _OUTER,
        "iteration",
        "and the inner one counts within it",
        "epoch_out: 0, epoch_in: 3, loss: 0.31",
    ),
    Mend(
        lambda m, by: m.key.lower() == "ep" and by.keys & {"epoch", "epch"},
        "skip",
        "beside epochs, ep is short for episodes",
        "step:1K smpl:32K ep:101 epch:2.53 loss:1.226",
    ),
    Mend(
        lambda m, by: m.what == "iteration" and m.scale > 1 and by.in_part,
        "skip",
        "a counter told in thousands stands still over many lines; a part of an epoch does not",
        "step:1K smpl:32K epch:2.53 loss:1.226",
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
