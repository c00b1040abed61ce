"""What the words beside numbers mean: the lexicon of training logs.

`meaning("Training loss", "")` says that the number is a training loss; `meaning("elapsed time per iteration (ms)",
"")` that it is milliseconds an iteration. A number is taken only with a word that says what it is, so the answer
for a key that is not understood is None and the number is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import yaml

from profiler.model import LossKind

_LEXICON: dict[str, str] = yaml.safe_load(Path(__file__).with_name("lexicon.yaml").read_text(encoding="utf-8"))


def _set(name: str) -> frozenset[str]:
    return frozenset(_LEXICON[name].split())


#: What a number can be. The names are the vocabulary of the rule files too.
FIELDS = frozenset(
    (
        *("iteration", "iterations", "iterations_per_epoch", "epoch", "epochs", "epoch_count"),
        *("loss", "part", "accuracy", "validation_loss", "validation_accuracy", "lr", "batch_size", "rank_batch_size"),
        *("step_time", "step_time_average", "step_rate", "step_rate_average", "epoch_time", "window_time", "elapsed"),
        *("throughput", "throughput_average", "accumulation", "samples", "world", "gpus", "gpus_per_node", "gpus_used"),
        *("nodes", "rank", "skip"),
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


TIME_UNITS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "msec": 1e-3, "msecs": 1e-3, "millisecond": 1e-3,
    "milliseconds": 1e-3, "millis": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0,
    "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
STEP_NOUNS = _set("step_nouns")
SAMPLE_NOUNS = {**dict.fromkeys(_set("sample_nouns"), "samples/s"), **dict.fromkeys(_set("token_nouns"), "tokens/s")}
_RATE_ABBREVIATIONS = {
    "wps": ("throughput", "tokens/s"), "tps": ("throughput", "tokens/s"), "tgs": ("throughput", "tokens/s"),
    "fps": ("throughput", "samples/s"), "ups": ("step_rate", ""), "sps": ("throughput", "samples/s"),
    "qps": ("throughput", "samples/s"), "wpb": ("skip", ""),
}  # fmt: skip

_VALIDATION = _set("validation")
_TRAINING = _set("training")
_LOSS = _set("loss")
_NOT_LOSS = _set("not_loss")
_NOT_ANY_LOSS = _set("not_any_loss")
_TOTAL = _set("total")
_AVERAGE = _set("average")
_AVERAGE_PREFIX = re.compile(r"^(?:avg|average|mean|running)\b[ ._-]*", re.IGNORECASE)
_PLAIN = _set("plain")
_ACCURACY = _set("accuracy")
_NOT_TIME = _set("not_time")
_DONE = _set("done")
_TIME = _set("time")
_ELAPSED = _set("elapsed")
_FOREIGN = dict(pair.split("=") for pair in _LEXICON["foreign"].split())
_ABROAD = re.compile(
    "|".join(
        rf"(?<![^\W_]){word}(?![^\W_])" if len(word.encode()) < 3 * len(word) else word
        for word in sorted(_FOREIGN, key=len, reverse=True)
    ),
    re.IGNORECASE,
)
#: Those words as a line's bytes hold them, read as latin-1 and in small letters: for the cheap test of a line.
FOREIGN_TRIGGERS = tuple(
    dict.fromkeys(
        form.encode().decode("latin-1").lower()
        for word, english in _FOREIGN.items()
        if english in ("epoch", "step", "iteration", "loss", "accuracy", "batch")
        for form in (word, word.capitalize(), word.upper())
    )
)
_LR = (("lr",), ("learning", "rate"), ("learningrate",), ("learn", "rate"), ("lrate",))
_EPOCH = _set("epoch")
_ITERATION = _set("iteration")
_NOT_INDEX = _set("not_index")
_MAXIMUM = _set("maximum")
_INDEX_SUFFIX = _set("index_suffix")
NOT_STEPS = _set("not_steps")
COLUMNS_OF_PARTS = _set("columns_of_parts")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_BRACKETED = re.compile(r"[(\[]\s*([^()\[\]]*?)\s*[)\]]\s*$")
_IN_UNIT = re.compile(r"[ _]in[ _]([A-Za-zµμ]+)$")
_PER = re.compile(
    r"^([A-Za-zµμ_]+?)\s*(?:/|_per_|\bper\b|Per|-per-)\s*([A-Za-z_]+?)(?:\s*(?:/|\bper\b|_per_)\s*([A-Za-z_]+))?$"
)


def words_of(key: str) -> list[str]:
    """`trainLoss/lm_total` -> train loss lm total. Digits stay with the letters before them (top1, acc@1 -> acc1)."""
    out: list[str] = []
    for m in _WORD.finditer(key):
        w = m.group().lower()
        if w.isdigit() and out and (key[m.start() - 1].isalpha() or key[m.start() - 1] in "@-"):
            out[-1] += w
        else:
            out.append(w)
    return out


def english(text: str) -> str:
    """A line in which the words of other languages that the lexicon knows are English. The numbers stay."""
    return _ABROAD.sub(_english, text)


def _english(m: re.Match[str]) -> str:
    word = _FOREIGN[m.group().lower()].replace("_", " ")
    return word if m.group()[0].isascii() or m.group()[0] < "\u2e80" else f" {word} "  # no blanks between those words


def rate_of(unit: str) -> Meaning | None:
    """Meaning of a compound unit: `ms/step`, `it/s`, `images/sec`, `tokens/s/gpu`; None when it is none."""
    m = _PER.match(unit.strip())
    if not m:
        return None
    over, under, third = (g.lower().strip("_") if g else "" for g in m.groups())
    if over in TIME_UNITS and (under in STEP_NOUNS or under == "b"):
        return Meaning("step_time", scale=TIME_UNITS[over])
    if over.startswith(("time", "timing")) and over.rpartition("_")[2] in TIME_UNITS and under in STEP_NOUNS:
        return Meaning("step_time", scale=TIME_UNITS[over.rpartition("_")[2]])  # timing_s/step
    if over in TIME_UNITS and (noun := under.removeprefix("k")) in SAMPLE_NOUNS and not third:
        thousand = 1000.0 if noun != under else 1.0
        return Meaning("throughput", unit=SAMPLE_NOUNS[noun], scale=TIME_UNITS[over] / thousand, inverse=True)
    if over in TIME_UNITS and under in _EPOCH:
        return Meaning("epoch_time", scale=TIME_UNITS[over])
    if under in TIME_UNITS and TIME_UNITS[under] > 0:
        scale = 1.0 / TIME_UNITS[under]
        of_rank = third in {"gpu", "device", "chip", "rank", "worker", "card"}
        noun = over.rsplit("_", 1)[-1] if over not in SAMPLE_NOUNS and over not in STEP_NOUNS else over
        if over.startswith("k") and over[1:] in SAMPLE_NOUNS:
            scale, noun = scale * 1000, over[1:]
        if noun in STEP_NOUNS:
            return Meaning("step_rate", scale=scale)
        if noun in SAMPLE_NOUNS:
            return Meaning("throughput", unit=SAMPLE_NOUNS[noun], scale=scale, of_rank=of_rank)
    return None


def _is_lr(words: list[str]) -> bool:
    return any(tuple(words[-len(w) :]) == w or tuple(words[: len(w)]) == w for w in _LR)


def excluded(key: str) -> bool:
    """Whether some word of the key says that it is no counter, loss or time of training steps."""
    return bool(set(words_of(key)) & (_NOT_INDEX | _NOT_LOSS) - {"time", "mask", "name", "type", "model"})


def side_of(text: str) -> str:
    """ "train", "validation" or "" as the words of a text say; both words: "train"."""
    words = set(words_of(text))
    if words & _TRAINING:
        return "train"
    return "validation" if words & _VALIDATION else ""


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
    words = words_of(key)
    validation = any(w in _VALIDATION for w in words)
    found = _meaning(key, words, unit)
    if found is None or not validation:
        return found
    if found.what in ("loss", "part"):
        return replace(found, what="validation_loss", validation=True)
    if found.what == "accuracy":
        return replace(found, what="validation_accuracy", validation=True)
    if found.what in ("iteration", "epoch", "iterations", "epochs"):
        return replace(found, validation=True)
    return Meaning("skip", validation=True)


def _meaning(key: str, words: list[str], unit: str) -> Meaning | None:
    plain = [w for w in words if w not in _VALIDATION and w not in _TRAINING]
    present = set(plain)
    averaged = bool(present & _AVERAGE)
    bare = _AVERAGE_PREFIX.sub("", key)
    rate = rate_of(unit) or rate_of(bare) or rate_of(key.rsplit(maxsplit=1)[-1] if key.split() else "")
    if rate is None and "per" in plain[1:-1]:
        at = plain.index("per", 1)
        rate = rate_of(f"{plain[at - 1]}/{plain[at + 1]}")
    if rate is not None and not (present & _NOT_TIME and rate.what == "step_time"):
        if rate.what in ("throughput", "step_rate", "step_time") and averaged:
            return replace(rate, what=rate.what + "_average")
        return rate
    if not plain:
        return Meaning("window_time", scale=TIME_UNITS[unit.lower()]) if words and unit.lower() in TIME_UNITS else None
    last = plain[-1]
    if unit.lower() in TIME_UNITS and last in _DONE and not present & _NOT_TIME:
        return Meaning("window_time", scale=TIME_UNITS[unit.lower()])
    for abbreviation in (last, plain[0]):
        if abbreviation in _RATE_ABBREVIATIONS and len(plain) <= 2:
            what, rate_unit = _RATE_ABBREVIATIONS[abbreviation]
            return Meaning(what, unit=rate_unit)
    if _is_lr(plain):
        return (
            None if present & {"decay", "schedule", "scheduler", "mult", "factor", "policy", "steps"} else Meaning("lr")
        )
    if "eta" in present:
        return Meaning("skip")
    if "cost" in present and (present & _TIME or unit.lower() in TIME_UNITS):
        return _time(plain, (present - {"cost"}) | {"time"}, unit)
    if present & _LOSS or last.endswith("loss") or plain[0].endswith("loss"):
        return _loss(key, plain, present, averaged)
    if len(plain) == 2 and plain[0] == "err" and plain[1] in ("g", "d"):
        return Meaning("part", name=key)  # of a GAN's generator and discriminator
    if present & _ACCURACY:
        return None if last in ("5", "10", "best", "target") or "best" in present else Meaning("accuracy", name=key)
    if {"batch", "size"} <= present or "batchsize" in present or "bsz" in present:
        return _batch_size(present)
    if "accumulation" in present or "accum" in present:
        return Meaning("accumulation") if present & {"steps", "step", "gradient"} else None
    if present & _TIME or last in TIME_UNITS:
        return _time(plain, present, unit)
    if "/" in key and key.split("/", 1)[0].strip().lower() in SAMPLE_NOUNS.keys() - {"data"}:
        return None  # words/batch is a size, no counter
    return _index(plain, present) or _size(plain, present)


def _loss(key: str, plain: list[str], present: set[str], averaged: bool) -> Meaning | None:
    after = next((i for i in range(len(plain) - 1, -1, -1) if plain[i] in _LOSS or plain[i].endswith("loss")), 0)
    if set(plain[after + 1 :]) & _NOT_LOSS or present & _NOT_ANY_LOSS:
        return None
    kind = LossKind.RUNNING if averaged else None
    rest = present - _LOSS - _TOTAL - _AVERAGE - _PLAIN - {"nll", "xent"} - ({"global"} if averaged else set())
    rest = {w for w in rest if not w.endswith("loss") or w[:-4] not in ("", "train", "total", "batch", "avg")}
    part = bool(rest) and not (present & _TOTAL)
    if present & {"nll"} and not present & {"loss", "losses", "train"}:
        part = False
    return Meaning("part" if part else "loss", name=key, kind=kind)


def _batch_size(present: set[str]) -> Meaning:
    if present & {"micro", "local", "device", "gpu", "rank"}:
        return Meaning("rank_batch_size")
    return Meaning("batch_size") if present & {"global", "total", "effective"} else Meaning("skip")


def _time(plain: list[str], present: set[str], unit: str) -> Meaning | None:
    last = plain[-1]
    scale = TIME_UNITS.get(unit.lower(), TIME_UNITS.get(last, 1.0) if len(last) > 1 else 1.0)
    if present & _NOT_TIME or (present & {"step", "time"} == {"step"} and last not in _TIME):
        return Meaning("skip")
    per_step = present & STEP_NOUNS
    if present & _EPOCH and not per_step:
        return Meaning("epoch_time", scale=scale)
    if per_step and not present & {"total", "since"}:
        return Meaning("step_time_average" if present & _AVERAGE else "step_time", scale=scale)
    if present & _ELAPSED:
        return Meaning("elapsed", scale=scale)
    if present - _TIME - _PLAIN - _AVERAGE - {"in", "for", "and", "taken"}:
        return Meaning("skip")
    if plain == ["t"] and not unit:
        return None
    if last == "dt":
        return Meaning("step_time", scale=scale)
    return Meaning("window_time", scale=scale)


def _index(plain: list[str], present: set[str]) -> Meaning | None:
    last = plain[-1]
    if last in _INDEX_SUFFIX and len(plain) > 1:
        last = plain[-2]
    counted = present - {plain[-1]} if last != plain[-1] else present  # epoch_num is an index, num_epochs a total
    total = counted & _MAXIMUM and (plain[-1].endswith("s") or counted & {"max", "maximum", "total", "num"})
    if last in _EPOCH:
        if present & {
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
        }:
            return None
        if last == "epochs" and not total and len(plain) > 1:
            return None
        return Meaning("epochs" if total or plain == ["epochs"] else "epoch")
    if "per" in present and "epoch" in present and present & _ITERATION:
        return Meaning("iterations_per_epoch")
    if last in _ITERATION and not present & _NOT_INDEX:
        if total and "updates" not in present:
            return Meaning("iterations")
        return Meaning("iteration", name=" ".join(plain))
    return None


def _size(plain: list[str], present: set[str]) -> Meaning | None:
    joined = "_".join(plain)
    if joined.endswith("world_size") or joined == "worldsize":
        return Meaning("world")
    if joined in ("nproc_per_node", "gpus_per_node", "ntasks_per_node"):
        return None
    if joined in ("gpus", "num_gpus", "n_gpus", "ngpus", "gpu_count", "number_of_gpus", "num_gpu", "total_gpus"):
        return Meaning("gpus")
    if "examples" in present and present & {"num", "number"} and len(plain) <= 3:
        return Meaning("samples")
    return None
