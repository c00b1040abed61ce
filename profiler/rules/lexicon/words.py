"""What the words beside numbers mean: the lexicon of training logs.

`meaning("Training loss", "")` says that the number is a training loss; `meaning("elapsed time per iteration (ms)",
"")` that it is milliseconds an iteration. A number is taken only with a word that says what it is, so the answer
for a key that is not understood is None and the number is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from profiler.model import LossKind
from profiler.rules.lexicon.units import EPOCH, SAMPLE_NOUNS, STEP_NOUNS, TIME_UNITS, Meaning, rate_of, words_for

RATE_ABBREVIATIONS = {
    "wps": ("throughput", "tokens/s"),
    "tps": ("throughput", "tokens/s"),
    "tgs": ("throughput", "tokens/s"),
    "fps": ("throughput", "samples/s"),
    "ips": ("throughput", "samples/s"),
    "ups": ("step_rate", ""),
    "sps": ("throughput", "samples/s"),
    "qps": ("throughput", "samples/s"),
    "wpb": ("skip", ""),
}

VALIDATION = words_for("validation")
TRAINING = words_for("training")
_LOSS = words_for("loss")
_NOT_LOSS = words_for("not_loss")
_NOT_ANY_LOSS = words_for("not_any_loss")
_TOTAL = words_for("total")
_AVERAGE = words_for("average")
_AVERAGE_PREFIX = re.compile(r"^(?:avg|average|mean|running)\b[ ._-]*", re.IGNORECASE)
_PLAIN = words_for("plain")
_ACCURACY = words_for("accuracy")
_NOT_TIME = words_for("not_time")
_DONE = words_for("done")
_TIME = words_for("time")
_ELAPSED = words_for("elapsed")
_ACCUMULATION = (
    ["grad", "acc", "steps"],
    ["grad", "acc", "step"],
    ["gradient", "acc", "steps"],
    ["grad", "acc"],
)
_OF_SCHEDULE = frozenset(
    (
        "decay",
        "schedule",
        "scheduler",
        "mult",
        "factor",
        "policy",
        "steps",
    )
)
_NOT_THE_EPOCH = frozenset(
    (
        "per",
        "since",
        "best",
        "warmup",
        "patience",
        "every",
        "decay",
        "freq",
        "interval",
        "save",
        "log",
    )
)
_LR = (("lr",), ("learning", "rate"), ("learningrate",), ("learn", "rate"), ("lrate",))
_ITERATION = words_for("iteration")
_NOT_INDEX = words_for("not_index")
_MAXIMUM = words_for("maximum")
_EXTREMES = frozenset(
    (
        "best",
        "min",
        "max",
        "highest",
        "lowest",
    )
)
_SEEN = frozenset(
    (
        "seen",
        "processed",
        "consumed",
        "done",
    )
)
_OF_TOTALS = words_for("maximum") | words_for("iteration") | words_for("beside_totals")
_INDEX_SUFFIX = words_for("index_suffix")
NOT_STEPS = words_for("not_steps")
COLUMNS_OF_PARTS = words_for("columns_of_parts")
_PLURALS = frozenset(w for w in _ITERATION | EPOCH | SAMPLE_NOUNS.keys() if w.endswith("s"))
_ADVERSARY = words_for("adversary")
_JUDGED = words_for("judged")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
#: valloss, testacc: two words written together, which the lexicon knows apart.
_JOINED = re.compile(r"(train|tr|val|valid|test|dev|eval)_?(loss|acc|accuracy|err|error)")
_BRACKETED = re.compile(r"[(\[]\s*([^()\[\]]*?)\s*[)\]]\s*$")
_IN_UNIT = re.compile(r"[ _]in[ _]([A-Za-zµμ]+)$")


def words_of(key: str) -> list[str]:
    """`trainLoss/lm_total` -> train loss lm total. Digits stay with the letters before them (top1, acc@1 -> acc1)."""
    out: list[str] = []
    for m in _WORD.finditer(key):
        w = m.group().lower()
        if joined := _JOINED.fullmatch(w):
            out += joined.groups()
            continue
        if w == "entropy" and out and out[-1] == "cross":
            out[-1] = "crossentropy"
            continue
        if w.isdigit() and out and (key[m.start() - 1].isalpha() or key[m.start() - 1] in "@-"):
            out[-1] += w
        else:
            out.append(w)
    return out


def _is_lr(words: list[str]) -> bool:
    return any(tuple(words[-len(w) :]) == w or tuple(words[: len(w)]) == w for w in _LR)


def excluded(key: str) -> bool:
    """Whether some word of the key says that it is no counter, loss or time of training steps."""
    return bool(
        set(words_of(key))
        & (_NOT_INDEX | _NOT_LOSS)
        - {
            "time",
            "mask",
            "name",
            "type",
            "model",
        }
    )


def averaged(key: str) -> bool:
    """Whether the words say that it is an average."""
    return bool(set(words_of(key)) & _AVERAGE)


@lru_cache(maxsize=4096)
def meaning(key: str, unit: str = "") -> Meaning | None:
    """What a number with this key before it and this unit behind it is, or None."""
    key = key.strip().strip("\"'`*_#:=<>-~ ")
    bracket = _BRACKETED.search(key)
    if bracket:
        inner = bracket.group(1)
        if inner.lower() in TIME_UNITS or rate_of(inner):
            unit = unit or inner
        key = key[: bracket.start()].rstrip()
    told = _IN_UNIT.search(key)
    if told and told.group(1).lower() in TIME_UNITS:
        unit = unit or told.group(1)
        key = key[: told.start()]
    key = _counted_of_times(key)
    words = words_of(key)
    validation = any(w in VALIDATION for w in words)
    found = _meaning(key, words, unit)
    if found is None or not validation:
        return found
    if found.what in ("loss", "part"):
        return replace(found, what="validation_loss", validation=True)
    if found.what == "accuracy":
        return replace(found, what="validation_accuracy", validation=True)
    if found.what in (
        "iteration",
        "epoch",
        "iterations",
        "epochs",
    ):
        return replace(found, validation=True)
    return Meaning("skip", validation=True)


def _counted_of_times(key: str) -> str:
    """`time/iterations`, `time/total_timesteps`: what stands in a group of times and has a plural is a count."""
    group, slash, name = key.partition("/")
    words = words_of(name)
    if not slash or group.lower() not in _TIME or not words:
        return key
    counts = words[-1] in _PLURALS or words[-1].endswith("steps")
    return name if counts else key


def names_part(key: str) -> bool:
    """Whether the words name a part of a loss, of training or held-out."""
    told = _meaning(key, words_of(key), "")
    return told is not None and told.what == "part"


def against_each_other(names: Iterable[str]) -> bool:
    """Whether losses are those of two networks against each other."""
    words = {word for name in names for word in words_of(name)}
    return not words.isdisjoint(_ADVERSARY) and not words.isdisjoint(_JUDGED)


class Key:
    """The words before a number and the unit behind it."""

    __slots__ = (
        "averaged",
        "key",
        "last",
        "plain",
        "present",
        "rate",
        "seconds",
        "unit",
        "words",
    )

    def __init__(self, key: str, words: list[str], unit: str) -> None:
        self.key, self.words, self.unit = key, words, unit
        #: without those that only say on which side of training it is
        self.plain = [w for w in words if w not in VALIDATION and w not in TRAINING]
        self.present = set(self.plain)
        self.last = self.plain[-1] if self.plain else ""
        self.averaged = bool(self.present & _AVERAGE)
        self.seconds = TIME_UNITS.get(unit.lower())  #: of one of its unit, where that is of time
        self.rate = self._rate()

    def _rate(self) -> Meaning | None:
        bare = _AVERAGE_PREFIX.sub("", self.key)
        rate = rate_of(self.unit) or rate_of(bare) or rate_of(self.key.rsplit(maxsplit=1)[-1] if self.words else "")
        if rate is None and "per" in self.plain[1:-1]:
            at = self.plain.index("per", 1)
            rate = rate_of(f"{self.plain[at - 1]}/{self.plain[at + 1]}")
        not_ours = rate is not None and rate.what == "step_time" and self.present & _NOT_TIME
        return None if not_ours else rate

    @property
    def abbreviation(self) -> str:
        """The word that stands for a rate: the last, or the first of two."""
        if len(self.plain) > 2:
            return ""
        return next((w for w in (self.last, self.plain[0]) if w in RATE_ABBREVIATIONS), "")

    @property
    def is_error(self) -> bool:
        """err-top1: the share that is wrong."""
        return bool(self.present & {"err", "error"})

    @property
    def of_sample(self) -> bool:
        """words/batch is a size, no counter."""
        return "/" in self.key and self.key.split("/", 1)[0].strip().lower() in SAMPLE_NOUNS.keys() - {"data"}


@dataclass(frozen=True, slots=True)
class Sense:
    test: Callable[[Key], object]
    give: Callable[[Key], Meaning | None]
    key: str  #: one that it is for,
    unit: str = ""  #: and the unit behind the number


def _as_rate(k: Key) -> Meaning | None:
    if k.rate is None or not k.averaged or k.rate.what not in ("throughput", "step_rate", "step_time"):
        return k.rate
    return replace(k.rate, what=k.rate.what + "_average")


def _as_abbreviation(k: Key) -> Meaning:
    what, unit = RATE_ABBREVIATIONS[k.abbreviation]
    return Meaning(what, unit=unit)


def _of_window(k: Key) -> Meaning | None:
    return Meaning("window_time", scale=k.seconds) if k.seconds and k.words else None


#: Asked in this order: the first whose test holds says what the number is, or that it is nothing.
SENSES = (
    Sense(lambda k: k.rate is not None, _as_rate, "avg images/s"),
    Sense(lambda k: not k.plain, _of_window, "train", "s"),
    Sense(lambda k: k.seconds and k.last in _DONE and not k.present & _NOT_TIME, _of_window, "done", "s"),
    Sense(lambda k: k.abbreviation, _as_abbreviation, "wps"),
    Sense(lambda k: _is_lr(k.plain) and k.present & _OF_SCHEDULE, lambda k: None, "lr decay"),
    Sense(lambda k: _is_lr(k.plain), lambda k: Meaning("lr"), "learning_rate"),
    Sense(lambda k: "eta" in k.present, lambda k: Meaning("skip"), "eta"),
    Sense(
        lambda k: "cost" in k.present and (k.present & _TIME or k.seconds),
        lambda k: _time(k.plain, (k.present - {"cost"}) | {"time"}, k.unit),
        "time cost",
    ),
    Sense(  # what the objective is made of
        lambda k: k.key.lower().startswith("objective/"), lambda k: None, "objective/kl"
    ),
    Sense(
        lambda k: k.present & _LOSS or k.last.endswith("loss") or k.plain[0].endswith("loss"),
        lambda k: _loss(k.key, k.plain, k.present, k.averaged),
        "train_loss",
    ),
    Sense(  # of a GAN's generator and discriminator
        lambda k: k.plain in (["err", "g"], ["err", "d"]), lambda k: Meaning("part", name=k.key), "err_D"
    ),
    Sense(  # acc is short for accumulation
        lambda k: k.plain in _ACCUMULATION,
        lambda k: Meaning("accumulation"),
        "grad_acc_steps",
    ),
    Sense(
        lambda k: (
            k.present & _ACCURACY
            and (
                k.last
                in (
                    "5",
                    "10",
                    "best",
                    "target",
                )
                or k.present & _EXTREMES
                or "recall" in k.present
            )
        ),
        lambda k: None,
        "best accuracy",
    ),
    Sense(lambda k: k.present & _ACCURACY, lambda k: Meaning("accuracy", name=k.key, error=k.is_error), "acc@1"),
    Sense(
        lambda k: {"batch", "size"} <= k.present or k.present & {"batchsize", "bsz"},
        lambda k: _batch_size(k.present),
        "global batch size",
    ),
    Sense(
        lambda k: k.present & {"accumulation", "accum"},
        lambda k: Meaning("accumulation") if k.present & {"steps", "step", "gradient"} else None,
        "gradient_accumulation_steps",
    ),
    Sense(
        lambda k: k.present & _TIME or k.last in TIME_UNITS, lambda k: _time(k.plain, k.present, k.unit), "elapsed time"
    ),
    Sense(lambda k: k.of_sample, lambda k: None, "words/batch"),
    Sense(lambda k: True, lambda k: _index(k.plain, k.present) or _size(k.plain, k.present), "global_step"),
)


def sense(key: Key) -> Sense:
    """The row that says what a number is."""
    return next(row for row in SENSES if row.test(key))


def _meaning(key: str, words: list[str], unit: str) -> Meaning | None:
    told = Key(key, words, unit)
    return sense(told).give(told)


def _loss(key: str, plain: list[str], present: set[str], averaged: bool) -> Meaning | None:
    after = next((i for i in range(len(plain) - 1, -1, -1) if plain[i] in _LOSS or plain[i].endswith("loss")), 0)
    if set(plain[after + 1 :]) & _NOT_LOSS or present & _NOT_ANY_LOSS:
        return None
    kind = LossKind.RUNNING if averaged else None
    if averaged and after + 1 < len(plain) and plain[after + 1] in _AVERAGE:
        plain = plain[: after + 1]  # loss_avg_rank: over what it was averaged is no part
        present = set(plain)
    rest = present - _LOSS - _TOTAL - _AVERAGE - _PLAIN - {"nll", "xent"} - ({"global"} if averaged else set())
    rest = {
        w
        for w in rest
        if not w.endswith("loss")
        or w[:-4]
        not in (
            "",
            "train",
            "total",
            "batch",
            "avg",
        )
    }
    if "value" in plain[:after]:
        rest.add("value")  # of a value function; a loss value is one
    part = bool(rest) and not (present & _TOTAL)
    if present & {"nll"} and not present & {"loss", "losses", "train"}:
        part = False
    return Meaning("part" if part else "loss", name=key, kind=kind)


def _batch_size(present: set[str]) -> Meaning:
    if present & {
        "micro",
        "local",
        "device",
        "gpu",
        "rank",
    }:
        return Meaning("rank_batch_size")
    return Meaning("batch_size") if present & {"global", "total", "effective"} else Meaning("skip")


def _time(plain: list[str], present: set[str], unit: str) -> Meaning | None:
    last = plain[-1]
    scale = TIME_UNITS.get(unit.lower(), TIME_UNITS.get(last, 1.0) if len(last) > 1 else 1.0)
    if present & _NOT_TIME or (present & {"step", "time"} == {"step"} and last not in _TIME):
        return Meaning("skip")
    per_step = present & STEP_NOUNS
    if present & EPOCH and not per_step:
        return Meaning("epoch_time", scale=scale)
    before = plain[-2] if len(plain) > 1 else ""
    of_one = before in STEP_NOUNS and not before.endswith("s") and last in ("time", "duration")
    if per_step and (of_one or not present & {"total", "since"}):
        return Meaning("step_time_average" if present & _AVERAGE else "step_time", scale=scale)
    if present & _ELAPSED:
        return Meaning("elapsed", scale=scale)
    if (
        present
        - _TIME
        - _PLAIN
        - _AVERAGE
        - {
            "in",
            "for",
            "and",
            "taken",
        }
    ):
        return Meaning("skip")
    if plain == ["t"] and not unit:
        return None
    if last == "dt":
        return Meaning("step_time", scale=scale)
    return Meaning("window_time", scale=scale)


def _counting(plain: list[str]) -> str:
    """The word that says what is counted: of step_in_epoch the first, of epoch_num the one before the last."""
    if len(plain) == 3 and plain[1] == "in" and plain[0] in _ITERATION:
        return plain[0]
    return plain[-2] if plain[-1] in _INDEX_SUFFIX and len(plain) > 1 else plain[-1]


def _index(plain: list[str], present: set[str]) -> Meaning | None:
    last = _counting(plain)
    counted = present - {plain[-1]} if last != plain[-1] else present  # epoch_num is an index, num_epochs a total
    total = counted & _MAXIMUM and (
        plain[-1].endswith("s")
        or counted
        & {
            "max",
            "maximum",
            "total",
            "num",
        }
    )
    if last in EPOCH:
        return _epoch(plain, present, last, bool(total))
    if "per" in present and "epoch" in present and present & _ITERATION:
        return Meaning("iterations_per_epoch")
    if last in _ITERATION and not present & _NOT_INDEX:
        if total and "updates" not in present:
            return Meaning("iterations") if present <= _OF_TOTALS else None
        return Meaning("iteration", name=" ".join(plain))
    return None


def _epoch(plain: list[str], present: set[str], last: str, total: bool) -> Meaning | None:
    if present & _NOT_THE_EPOCH or (last == "epochs" and not total and len(plain) > 1):
        return None
    return Meaning("epochs" if total or plain == ["epochs"] else "epoch")


def _size(plain: list[str], present: set[str]) -> Meaning | None:
    joined = "_".join(plain)
    if plain[-1] in _SEEN and len(plain) > 1 and plain[-2] in SAMPLE_NOUNS:
        return Meaning("seen", name=joined)
    if joined.endswith("world_size") or joined == "worldsize":
        return Meaning("world")
    if joined in ("nproc_per_node", "gpus_per_node", "ntasks_per_node"):
        return None
    if joined in (
        "gpus",
        "num_gpus",
        "n_gpus",
        "ngpus",
        "gpu_count",
        "number_of_gpus",
        "num_gpu",
        "total_gpus",
    ):
        return Meaning("gpus")
    if "examples" in present and present & {"num", "number"} and len(plain) <= 3:
        return Meaning("samples")
    return None
