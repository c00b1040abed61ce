"""What a line says when no rule knows it: key-value pairs near the words loss, step, iteration, epoch, and a time.

The reader is strict about what it takes. A training point needs a counter (or a fractional epoch) and, on the same
line, a loss, an accuracy, a throughput or a time that says it is an iteration's; an epoch's summary needs an epoch
and one of those; a progress bar needs its counter and rate. Everything else is context (an epoch begins), a fact of
the run (ranks, totals), or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from profiler.model import LossKind
from profiler.rules.counters import VALUES, name_counters
from profiler.rules.kinds import HELD, SETUP, TIMES, Said, reading
from profiler.rules.lexicon.languages import FOREIGN_TRIGGERS, english
from profiler.rules.lexicon.names import named_each
from profiler.rules.lexicon.sides import closing_side, opening_side, side_of
from profiler.rules.lexicon.units import SAMPLE_NOUNS, TIME_UNITS, Meaning, words_for
from profiler.rules.lexicon.words import averaged, names_part, words_of
from profiler.rules.pairs import scan
from profiler.rules.places import Mark
from profiler.rules.plan import Field, Plan
from profiler.text.tokens import DEC, DUR, INT

#: A line with none of these says nothing to the generic reader: the cheap test before anything else. It is asked of
#: a line without its digits (top1 is "top").
_ENGLISH = (
    "loss",
    "epoch",
    "step",
    "iter",
    "batch",
    "acc",
    "it/s",
    "s/it",
    "/sec",
    "cost",
    "world",
    "gpus",
    "nll",
    "xent",
    "update",
    "prec@",
    "top-",
    "top:",
    "top=",
    " top ",
    "/s",
    "ep ",
    "ep:",
    "ep=",
    "ep[",
    "nan",
    "objective",
    "objf",
    "crossentropy",
    "criterion",
    "elbo",
)
TRIGGERS = (*_ENGLISH, *(t for t in FOREIGN_TRIGGERS if not any(known in t for known in _ENGLISH)))
_NAMED = {
    "loss",
    "part",
    "accuracy",
    "validation_loss",
    "validation_accuracy",
    "step_time",
}
#: The line that ends an epoch may tell how many steps there were.
_EPOCH_DONE = re.compile(r"(?i)\bepoch\b[^,;|]{0,80}\b(?:finished|completed?|done|ended)\b")
#: Words of sentences. A line with so many, and no number set off by a sign, tells a story, not progress.
_SENTENCE = re.compile(
    r"(?i)(?<![\w'])(?:the|and|was|were|are|of|to|an?|he|she|they|we|you|it|that|this|his|her|has|have|had|be|been|but)"
    r"(?![\w'=:])"
)
TOLD = 4
_UNWEIGHTED = words_for("unweighted")
_AUTOENCODER = frozenset(("vae", "elbo"))
_DIVERGENCE = frozenset(("kl", "kld"))
_RECONSTRUCTION = frozenset(("recon", "rec", "reconstruction"))
#: A shell's trace or a command line says what was asked for, and what was read of a checkpoint how far another was.
_COMMAND = re.compile(
    r"^\s*(?:\++ |\$ )|.*\s--[a-z][\w-]*[= ].*\s--[a-z]|\s*(?i:meta(?:data)?|args|config\w*|hparams)\s*[:=]\s*[{(]"
)
#: Marks that are of use only beside others.
_NO_FIELD = frozenset(
    (
        "",
        "skip",
        "unnamed",
        "bracket",
        "pair",
        "total",
        "average",
        "uncertainty",
        "rank",
        "seen",
    )
)
#: What the average in brackets behind a number is.
_AVERAGES = {
    "step_time": "step_time_average",
    "window_time": "step_time_average",
    "throughput": "throughput_average",
    "step_rate": "step_rate_average",
}
#: `Test. Acc`: the side is a word of its own.
_SIDE_APART = re.compile(r"(?i)(?<![\w-])(?:test|val|valid|validation|eval|evaluation|dev)\b\.?\s")
_ORDINAL = re.compile(rf"{INT}(?:st|nd|rd|th)\b")
_EVALUATES = re.compile(r"(?i)\W*(?:running )?(?:evaluat|validat|testing|predict)")
_BAR = re.compile(
    rf"%\||{INT}/{INT} \[(?=[\s\[])|{INT}/{INT} \[\]|{DUR}<|\|\s*{INT}/{INT} \[|\|#*[ .-]*\|\s*\(?{INT}/{INT}"
)
#: A bar without a total, where a loss stands on it: `19it [05:01, 16.40s/it, loss=86.7]`.
_BAR_OR_ENDLESS = re.compile(rf"{_BAR.pattern}|{INT}it \[{DUR},")

_SAMPLES = "|".join(sorted((noun for noun, unit in SAMPLE_NOUNS.items() if unit == "samples/s"), key=len, reverse=True))
#: `612/4580 [01:10<07:33, 8.74img/s`: a bar's own rate is of what it counts.
_RATE_OF_BAR = re.compile(rf"{DUR}<{DUR},\s*(?:[{INT}{DEC}]\s?(?:{_SAMPLES})/s|[{INT}{DEC}]\s?s/(?:{_SAMPLES})\b)")

#: `[100/1034 images]`: what the total is of.
_NOUN_BEHIND = re.compile(rf"{INT}\s?(?:/|of)\s?{INT}\s+(?:{_SAMPLES})\b(?!/)")


def assemble(canonical: str, start: int, rule: str, words: Mapping[str, Meaning] | None = None) -> Plan | None:
    """The plan for a line by its pairs, or None when they do not say enough."""
    line = said(canonical, start, words)
    row = None if line is None else reading(line)
    if line is None or row is None or not row.kind:
        return None
    fields = line.fields
    if row.kind == "validation":
        fields = _with_epoch_time(line, [f for m in line.marks for f in fields_of(m, line.bar, True)])
    elif row.kind == "epoch" and line.is_of_evaluation:
        fields = [f for f in fields if f.what in ("epoch", "epochs")]  # all else is the evaluation's
    elif row.kind == "context" and line.epoch is not None:
        fields = [replace(f, what="iterations_per_epoch") if f.what == "iterations" else f for f in fields]
    elif row.kind == "loose" and not line.bar and _begins_with_seconds(line.marks[0], fields):
        fields.append(Field("epoch_time", line.marks[0].token))
    return _plan(rule, row.kind, canonical, one_each(_without_unweighted(_with_whole(fields))), line)


def said(canonical: str, start: int, words: Mapping[str, Meaning] | None = None) -> Said | None:
    """What the text from `start` on says; None where it explains no number, or tells a story."""
    printed = canonical[start:]
    canonical = canonical[:start] + _ORDINAL.sub(INT, named_each(english(printed)))
    marks = scan(canonical, start, words)
    body = canonical[start:]
    if not marks or _is_story(marks, body):
        return None
    bar = (_BAR if "loss" not in body.lower() else _BAR_OR_ENDLESS).search(body) is not None
    name_counters(marks, body, bar)
    opening = _opening(marks, canonical, start)
    side = _side(opening, body, marks, bar)
    fields = [f for m in marks for f in fields_of(m, bar)]
    if not bar and _EPOCH_DONE.search(body):
        fields = [replace(f, what="epoch_time") if f.what in TIMES else f for f in fields]
    fields = _translated(fields, body, printed)
    if _COMMAND.match(body):
        fields, side = [f for f in fields if f.what in SETUP], ""
    return Said(marks, fields, opening, side, body, bar)


def _translated(fields: list[Field], body: str, printed: str) -> list[Field]:
    """Of a line in another language, without several losses: words that nobody translated say what each is of."""
    parts = [f for f in fields if f.what == "part"]
    return fields if body == printed or len(parts) < 2 else [f for f in fields if f not in parts]


def _without_unweighted(fields: list[Field]) -> list[Field]:
    """Parts whose weights are not told are no loss where no whole is told beside them, nor are several others then."""
    if any(f.what == "loss" for f in fields):
        return fields
    parts = [f for f in fields if f.what == "part"]
    weighted = [f for f in parts if _UNWEIGHTED.isdisjoint(words_of(f.name))]
    kept = weighted if len(weighted) == len(parts) or len(weighted) == 1 else []
    return [f for f in fields if f.what != "part" or f in kept]


def _with_whole(fields: list[Field]) -> list[Field]:
    """Of the losses of an autoencoder the one that is called so: beside a reconstruction and a divergence, whose weight
    is not told, it is the whole."""
    parts = [f for f in fields if f.what == "part"]
    named = [set(words_of(f.name)) for f in parts]
    held = set().union(*named)
    whole = [f for f, words in zip(parts, named, strict=True) if words & _AUTOENCODER]
    if len(whole) != 1 or held.isdisjoint(_DIVERGENCE) or held.isdisjoint(_RECONSTRUCTION):
        return fields
    return [replace(f, what="loss") if f is whole[0] else f for f in fields]


def _plan(rule: str, kind: str, printed: str, fields: list[Field], line: Said) -> Plan:
    plan = Plan(rule, kind, printed, tuple(fields), bar=line.bar)
    named = _NOUN_BEHIND.search(printed) or (line.bar and _RATE_OF_BAR.search(printed))
    if named or any(f.what == "iteration" and f.unit == "sample" for f in fields):
        plan.unit = "sample"
    if kind not in ("setup", "context"):
        plan.total = any(f.what == "loss" for f in plan.fields)
        plan.series = _series(rule, kind, line.opening, plan, line.bar)
        plan.loss_kind = LossKind.RUNNING if line.bar else None
    return plan


def _with_epoch_time(line: Said, fields: list[Field]) -> list[Field]:
    """`epoch 3 took 36.4 s, val_loss 0.51`: what stands between an epoch and a held-out value is how long the epoch
    took; behind such a value it is how long the evaluation took."""
    held = next((m.at for m in line.marks if m.what in HELD), -1)
    if side_of(line.opening) or line.counted or line.epoch is None:
        return fields
    first = line.epoch.at
    times = {m.token for m in line.marks if m.what == "window_time" and first < m.at < held and not averaged(m.key)}
    return [replace(f, what="epoch_time") if f.token in times else f for f in fields]


def tells_a_story(body: str) -> bool:
    """Whether a text has the many small words of a sentence."""
    return len(_SENTENCE.findall(body)) >= TOLD


def _is_story(marks: list[Mark], body: str) -> bool:
    """Whether a line is a sentence: many small words, and no number that a sign sets off."""
    return tells_a_story(body) and not any(m.separated and m.meaning for m in marks)


def _begins_with_seconds(first: Mark, fields: list[Field]) -> bool:
    """`12s - loss: 0.51 - acc: 0.8`: how long the epoch took."""
    timed = first.what == "unnamed" and first.unit in (
        "s",
        "sec",
        "secs",
        "seconds",
    )
    return timed and any(f.what in ("loss", "accuracy") for f in fields)


def _side(opening: str, body: str, marks: list[Mark], bar: bool) -> str:
    """The side that a line's words say, or the names of its values."""
    if bar and _EVALUATES.match(opening):
        return "validation"  # of the training set too
    return opening_side(opening) or closing_side(body) or _side_of_values(marks)


def _side_of_values(marks: list[Mark]) -> str:
    """A line whose first value is held-out, without a loss of training, is a line of validation. What is called loss
    and no more behind `Test acc` is of the test."""
    values = [m for m in marks if m.what in VALUES]
    if not values or not values[0].what.startswith("validation"):
        return ""
    behind = {m.what for m in values[1:]}
    if not behind & {"loss", "part"}:
        return "validation"
    alone = not behind & {"part", "accuracy", "validation_loss"} and not any(m.what == "iteration" for m in marks)
    named = all(m.key.lower() == "loss" for m in values if m.what == "loss")
    return "validation" if alone and named and _SIDE_APART.search(values[0].key) else ""


def _opening(marks: list[Mark], canonical: str, start: int) -> str:
    """The words before the first value: what the line is about."""
    for m in marks:
        if m.what in VALUES | TIMES:
            at = canonical.rfind(m.key, start, m.at) if m.key else m.at
            return canonical[start : max(at, start)]
    return canonical[start : marks[0].at]


def fields_of(m: Mark, bar: bool, validation: bool = False) -> list[Field]:
    """The fields that a mark tells: itself, its total, its average. `validation`: of averages, those of the whole set
    so far count."""
    bare = _bare_time(m, bar) if m.what == "unnamed" else None
    if bare is not None:
        return [bare]
    if m.what in _NO_FIELD or _cannot_be(m):
        return []
    made = _field_of(m, validation)
    if bar and m.what == "window_time" and m.key.lower() == "in":  # 48/200 [24%] in 14.9s
        made = replace(made, what="elapsed")
    out = [made]
    if m.total is not None and m.what in ("iteration", "epoch"):
        out.append(Field(m.what + "s", m.total.token, scale=m.total.scale))
    average = _AVERAGES.get(m.what) if m.average is not None else None
    if average is not None and m.average is not None:
        out.append(Field(average, m.average.token, scale=made.scale, unit=made.unit, of_rank=made.of_rank))
        if m.what == "window_time":
            out[0] = Field("step_time", m.token, scale=made.scale)
    return out


def _bare_time(m: Mark, bar: bool) -> Field | None:
    """A time without a word: a bar's clock, or what the line took."""
    if m.kind == DUR:
        return Field("elapsed", m.token, more=m.more) if bar else None
    if bar and m.unit == "/s":
        return Field("step_rate", m.token)
    if m.unit not in TIME_UNITS or m.token < 0:
        return None
    return Field("epoch_time" if bar else "window_time", m.token, scale=TIME_UNITS[m.unit], more=m.more)


def _cannot_be(m: Mark) -> bool:
    """Whether a number cannot be what its words say: no counter is negative, few things are durations."""
    if m.what in (
        "iteration",
        "epoch",
        "iterations",
        "epochs",
    ):
        return m.kind == DUR or m.negative
    if m.unit == "%" and m.what in ("loss", "part"):
        return True
    return m.kind == DUR and m.what not in (
        "step_time",
        "epoch_time",
        "elapsed",
        "window_time",
    )


def _field_of(m: Mark, validation: bool) -> Field:
    meaning = m.meaning or Meaning(m.what)
    source = m.average if validation and m.average is not None and m.what in VALUES else m
    return Field(
        m.what,
        source.token,
        scale=source.scale * (meaning.scale if m.kind != DUR else 1.0),
        negative=source.negative,
        name=m.key if m.what in _NAMED else "",
        kind=_loss_kind(m),
        unit=meaning.unit,
        of_rank=meaning.of_rank,
        inverse=meaning.inverse,
        error=meaning.error,
        constant=source.constant,
        more=m.more,
        over=_of_how_many(m, source),
    )


def _of_how_many(m: Mark, source: Mark) -> int | None:
    """The number that a value is to be divided by: `accuracy 9123/10000` is a share."""
    counted = m.what in ("accuracy", "validation_accuracy") and m.total is not None and source is m
    return m.total.token if counted and m.total is not None and m.kind == m.total.kind == INT else m.over


def _loss_kind(m: Mark) -> LossKind | None:
    if m.meaning is not None and m.meaning.kind is not None:
        return m.meaning.kind
    key = m.key.lower()
    if key.endswith(("_step", "/step")):
        return LossKind.STEP
    if key.endswith(("_epoch", "/epoch")):
        return LossKind.EPOCH
    return None


def one_each(fields: list[Field]) -> list[Field]:
    """One field of each sort (a loss may have parts); a counter that calls itself global wins over others."""
    out: list[Field] = []
    seen: set[str] = set()
    for f in fields:
        if f.what in ("part", "loss", "validation_loss"):
            if f.what == "loss" and "loss" in seen:
                if _better(f, next(o for o in out if o.what == "loss")):
                    out = [o for o in out if o.what != "loss"]
                else:
                    continue
            seen.add(f.what)
            out.append(f)
        elif f.what not in seen:
            seen.add(f.what)
            out.append(f)
    return sorted(out, key=lambda f: f.what == "validation_loss" and names_part(f.name))


_PLAIN_NAME = re.compile(r"(?i)^(?:train(?:ing)?[ _/.]?)?(?:total[ _/.]?)?loss$")


def _better(new: Field, old: Field) -> bool:
    """Of two totals on a line: the step's own before an average, the one that is simply called loss before others."""
    if (new.kind is LossKind.RUNNING) != (old.kind is LossKind.RUNNING):
        return old.kind is LossKind.RUNNING
    return _PLAIN_NAME.match(new.name) is not None and _PLAIN_NAME.match(old.name) is None


#: A member of an object that is a number: some records have more of them than others.
_NUMBERED = re.compile(r"\"[^\"]*\"\s*:\s*[^\"\[{,]*,")


def _series(rule: str, kind: str, opening: str, plan: Plan, bar: bool) -> str:
    if plan.canonical.lstrip().startswith("{"):
        opening = _NUMBERED.sub("", opening)
    head = "".join(c for c in opening if c.isalpha() or c == " ").split()
    what = {f.what for f in plan.fields}
    shape = ("i" if "iteration" in what else "") + ("e" if "epoch" in what else "") + ("b" if bar else "")
    value = "l" if what & {"loss", "part"} else ""
    return f"{rule}:{kind}:{shape}{value}:{' '.join(head[:4]).lower()}"
