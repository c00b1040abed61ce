"""What a number can be, the lists of the lexicon, and units: of time, and rates (`ms/step`, `images/s`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from profiler.model import LossKind

LEXICON: dict[str, str] = yaml.safe_load(Path(__file__).with_name("lexicon.yaml").read_text(encoding="utf-8"))


def words_for(name: str) -> frozenset[str]:
    """The words of one list of the lexicon."""
    return frozenset(LEXICON[name].split())


#: What a number can be. The names are the vocabulary of the rule files too.
FIELDS = frozenset(
    (
        "iteration",
        "iterations",
        "iterations_per_epoch",
        "epoch",
        "epochs",
        "epoch_count",
        "loss",
        "part",
        "accuracy",
        "validation_loss",
        "validation_accuracy",
        "lr",
        "batch_size",
        "rank_batch_size",
        "step_time",
        "step_time_average",
        "step_rate",
        "step_rate_average",
        "epoch_time",
        "window_time",
        "elapsed",
        "throughput",
        "throughput_average",
        "accumulation",
        "samples",
        "world",
        "gpus",
        "gpus_per_node",
        "gpus_used",
        "nodes",
        "rank",
        "skip",
    )
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """`scale` turns the printed number into the field's unit (seconds, units/s)."""

    what: str
    name: str = ""
    scale: float = 1.0
    kind: LossKind | None = None
    unit: str = ""  #: of a throughput
    of_rank: bool = False
    validation: bool = False
    inverse: bool = False  #: seconds for one sample: the rate is 1 / number
    error: bool = False  #: the share that is wrong: the field is 1 - number


TIME_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "msec": 1e-3,
    "msecs": 1e-3,
    "millisecond": 1e-3,
    "milliseconds": 1e-3,
    "millis": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "mins": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hrs": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
}
STEP_NOUNS = words_for("step_nouns")
SAMPLE_NOUNS = {
    **dict.fromkeys(words_for("sample_nouns"), "samples/s"),
    **dict.fromkeys(words_for("token_nouns"), "tokens/s"),
}
EPOCH = words_for("epoch")
_DEVICES = frozenset(
    (
        "gpu",
        "device",
        "chip",
        "rank",
        "worker",
        "card",
    )
)
_PER = re.compile(
    r"^([A-Za-zµμ_]+?)\s*(?:/|_per_|\bper\b|Per|-per-)\s*([A-Za-z_]+?)(?:\s*(?:/|\bper\b|_per_)\s*([A-Za-z_]+))?$"
)


def rate_of(unit: str) -> Meaning | None:
    """Meaning of a compound unit: `ms/step`, `it/s`, `images/sec`, `tokens/s/gpu`; None when it is none."""
    m = _PER.match(unit.strip())
    if not m:
        return None
    over, under, third = (g.lower().strip("_") if g else "" for g in m.groups())
    return _time_of_one(over, under, third) or _how_many(over, under, third)


def _time_of_one(over: str, under: str, third: str) -> Meaning | None:
    """`ms/step`, `timing_s/step`, `us/sample`, `s/epoch`."""
    if over.startswith(("time", "timing")) and under in STEP_NOUNS:
        over = over.rpartition("_")[2]
    scale = TIME_UNITS.get(over)
    if scale is None:
        return None
    if under in STEP_NOUNS or under == "b":
        return Meaning("step_time", scale=scale)
    noun = under.removeprefix("k")
    if noun in SAMPLE_NOUNS and not third:
        thousand = 1000.0 if noun != under else 1.0
        return Meaning("throughput", unit=SAMPLE_NOUNS[noun], scale=scale / thousand, inverse=True)
    return Meaning("epoch_time", scale=scale) if under in EPOCH else None


def _how_many(over: str, under: str, third: str) -> Meaning | None:
    """`it/s`, `ktokens/s`, `images/sec/gpu`."""
    seconds = TIME_UNITS.get(under, 0.0)
    if seconds <= 0:
        return None
    scale = 1.0 / seconds
    noun = over if over in SAMPLE_NOUNS or over in STEP_NOUNS else over.rsplit("_", 1)[-1]
    if over.startswith("k") and over[1:] in SAMPLE_NOUNS:
        scale, noun = scale * 1000, over[1:]
    if noun in STEP_NOUNS:
        return Meaning("step_rate", scale=scale)
    if noun in SAMPLE_NOUNS:
        return Meaning("throughput", unit=SAMPLE_NOUNS[noun], scale=scale, of_rank=third in _DEVICES)
    return None
