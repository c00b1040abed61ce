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
from profiler.rules.pairs import Mark, scan
from profiler.rules.plan import Field, Plan
from profiler.rules.words import FOREIGN_TRIGGERS, NOT_STEPS, TIME_UNITS, Meaning, english, side_of, words_of
from profiler.text.tokens import DEC, DUR, INT

#: A line with none of these says nothing to the generic reader: the cheap test before anything else. It is asked of
#: a line without its digits (top1 is "top").
_ENGLISH = (
    "loss", "epoch", "step", "iter", "batch", "acc", "it/s", "s/it", "/sec", "cost", "world", "gpus", "nll", "xent",
    "update", "prec@", "top-", "top:", "top=", " top ", "/s", "ep ", "ep:", "ep=", "ep[", "nan",
)  # fmt: skip
TRIGGERS = (*_ENGLISH, *(t for t in FOREIGN_TRIGGERS if not any(known in t for known in _ENGLISH)))
_VALUES = {
    "loss", "part", "accuracy", "throughput", "throughput_average", "step_time", "step_time_average", "step_rate",
    "step_rate_average", "validation_loss", "validation_accuracy",
}  # fmt: skip
_NAMED = {"loss", "part", "accuracy", "validation_loss", "validation_accuracy", "step_time"}
_TIMES = {"window_time", "elapsed", "epoch_time"}
_SETUP = {"world", "gpus", "batch_size", "accumulation", "iterations", "epochs", "samples", "iterations_per_epoch"}
_EPOCH_HEAD = re.compile(
    rf"^[\s=*#<>\[\](\-_|+~]*(?:(?:start(?:ing)?(?: of)?|begin(?:ning)?(?: of)?|train(?:ing)?|running|now"
    rf"|in|(?:going )?into|entering)\s*:?\s+)?"
    rf"(?:epoch|ep)\b[\s#:.=\[(no]*[{INT}{DEC}]",
    re.IGNORECASE,
)
#: The line that ends an epoch may tell how many steps there were.
_EPOCH_DONE = re.compile(r"(?i)\bepoch\b[^,;|]{0,80}\b(?:finished|completed?|done|ended)\b")
#: Words of sentences. A line with so many, and no number set off by a sign, tells a story, not progress.
_SENTENCE = re.compile(
    r"(?i)(?<![\w'])(?:the|and|was|were|are|of|to|an?|he|she|they|we|you|it|that|this|his|her|has|have|had|be|been|but)"
    r"(?![\w'=:])"
)
TOLD = 4
_COUNTERS = {"iteration", "iterations", "epoch", "epochs"}
_HEADER_WORDS = frozenset(
    "epoch epochs step steps iter iters iteration iterations batch batches global of train training learning start "
    "begin".split()
)
#: A shell's trace or a command line says what was asked for, never how far it is.
_COMMAND = re.compile(r"^\s*(?:\++ |\$ )|.*\s--[a-z][\w-]*[= ].*\s--[a-z]")
_BAR = re.compile(rf"%\||{INT}/{INT} \[(?=[\s\[])|{INT}/{INT} \[\]|{DUR}<|\|\s*{INT}/{INT} \[")


def assemble(
    canonical: str, start: int, rule: str, words: Mapping[str, Meaning] | None = None, *, rule_kind: str = ""
) -> Plan | None:
    """The plan for a line by its pairs, or None when they do not say enough."""
    printed, canonical = canonical, canonical[:start] + english(canonical[start:])
    marks = scan(canonical, start, words)
    if not marks:
        return None
    body = canonical[start:]
    if not rule_kind and len(_SENTENCE.findall(body)) >= TOLD and not any(m.separated and m.meaning for m in marks):
        return None
    bar = _BAR.search(body) is not None
    name_counters(marks, body, bar)
    fields = [f for m in marks for f in fields_of(m, bar)]
    opening = _opening(marks, canonical, start)
    side = side_of(opening) or _side_of_values(marks)
    if not bar and _EPOCH_DONE.search(body):
        fields = [replace(f, what="epoch_time") if f.what in _TIMES else f for f in fields]
    if _COMMAND.match(body):
        fields = [f for f in fields if f.what in _SETUP]
        side = ""
    kind = rule_kind or _kind(marks, fields, side, body, bar)
    if not kind:
        return None
    if kind == "validation":
        fields = [f for m in marks for f in fields_of(m, bar, True)]
    plan = Plan(rule, kind, printed, tuple(one_each(fields)), bar=bar)
    if kind in ("setup", "context"):
        return plan
    plan.total = any(f.what == "loss" for f in plan.fields)
    plan.series = _series(rule, kind, opening, plan, bar)
    if bar:
        plan.loss_kind = LossKind.RUNNING if "epoch" in {f.what for f in fields} or not rule_kind else None
    return plan


def _side_of_values(marks: list[Mark]) -> str:
    """A line whose first value is held-out, without a loss of training, is a line of validation."""
    values = [m for m in marks if m.what in _VALUES]
    if values and values[0].what.startswith("validation") and not any(m.what in ("loss", "part") for m in values):
        return "validation"
    return ""


def _opening(marks: list[Mark], canonical: str, start: int) -> str:
    """The words before the first value: what the line is about."""
    for m in marks:
        if m.what in _VALUES | _TIMES:
            at = canonical.rfind(m.key, start, m.at) if m.key else m.at
            return canonical[start : max(at, start)]
    return canonical[start : marks[0].at]


def name_counters(marks: list[Mark], body: str, bar: bool) -> None:
    """Give the counters without a word their meaning by place: `[0][5/157]`, `[1, 2000]`, `5/100`, `[100]`."""
    mend(marks)
    named = {m.what for m in marks if m.meaning is not None}
    if bar and any(m.what == "unnamed" and m.total is not None for m in marks):
        _bar_counts(marks)
        named = {m.what for m in marks if m.meaning is not None}
    loose = [m for m in marks if m.what in ("unnamed", "bracket", "pair") and m.kind == INT and m.unit in ("", "s")]
    counters = [m for m in loose if m.total is not None]
    heads = [m for m in marks if m.what == "" and m.kind == INT and m.key and not words_left(m.key)]
    lead = heads[0] if heads else None
    pair = next((i for i, m in enumerate(marks) if m.what == "pair"), None)
    if "iteration" not in named and pair and marks[pair - 1].what == "bracket":
        marks[pair].what = "iteration"
        if "epoch" not in named:
            marks[pair - 1].what = "epoch"
        return
    if "iteration" not in named and counters:
        counter = counters[-1] if "epoch" not in named and len(counters) == 2 else counters[0]
        counter.what = "iteration"
        if "epoch" not in named:
            first = lead or (counters[0] if len(counters) == 2 else None)
            if first is None and loose and loose[0] is not counter and loose[0].what == "bracket":
                first = loose[0]
            if first is not None:
                first.what = "epoch"
        return
    if "iteration" in named or bar:
        return
    if "epochs" not in named and "loss" in named and (told := _foreign(marks)) is not None:
        told.what = "iteration"
        return
    values = named & _VALUES
    if "epoch" not in named and lead is not None and lead.total is not None and values and _has_counter(loose):
        lead.what = "epoch"
    elif (
        "epoch" not in named
        and loose
        and marks[0] is loose[0]
        and values
        and (_leads(body) or loose[0].what == "bracket")
    ):
        loose[0].what = "iteration"


def mend(marks: list[Mark]) -> None:
    """What a key alone does not tell: `Epochs 1/3` counts; `Batch 0.91 (1.21)` is a time; beside BT, DT is of data."""
    keys = {m.key.lower() for m in marks}
    batch_time = "bt" in keys
    costs_time = bool(keys & {"reader_cost", "data_cost", "read_cost"})
    parts = any(m.what == "part" for m in marks) and not any(m.what == "loss" for m in marks)
    for m in marks:
        if m.total is not None and _BOTH.fullmatch(m.key):
            m.what, m.meaning = "epoch", Meaning("epoch")
            m.total.what, m.total.meaning = "iteration", Meaning("iteration")
            m.total = None
    for m in marks:
        if costs_time and m.key.lower() == "batch_cost":
            m.what, m.meaning = "step_time", Meaning("step_time")
        elif parts and m.what == "" and m.key.lower() == "total" and m.kind == DEC:
            m.what, m.meaning = "loss", Meaning("loss")
        if m.what in ("epochs", "iterations") and m.total is not None and m.meaning is not None:
            m.what = m.what[:-1]
            m.meaning = replace(m.meaning, what=m.what)
        elif m.what == "iteration" and m.kind == DEC and m.average is not None:
            m.what, m.meaning = "step_time", Meaning("step_time")
        elif batch_time and m.key.lower() == "dt":
            m.what, m.meaning = "skip", None
        elif batch_time and m.key.lower() == "bt":
            m.what, m.meaning = "step_time", Meaning("step_time")


_WORD = re.compile(r"[^\W\d_]+")
#: "epoch/iter: 3/257" is two counters, not one and its total.
_BOTH = re.compile(r"(?i)epoch\s?/\s?(?:iter(?:ation)?|step|batch)")


def _foreign(marks: list[Mark]) -> Mark | None:
    """The one counter of a line, with a total, whose word is of no language that the lexicon knows."""
    found = [
        m
        for m in marks
        if m.what == "" and m.total is not None and m.kind == INT and _WORD.fullmatch(m.key)
        if m.key.lower() not in NOT_STEPS
    ]
    return found[0] if len(found) == 1 else None


def _leads(body: str) -> bool:
    """`100: ...`, `100 | ...`: the text begins with a counter."""
    return re.match(rf"\s*{INT}(?:\s*[:|,-]|\t)", body) is not None


_EPOCHS = re.compile(r"(?i)(?:train(?:ing)?\s+)?epochs?(?:\s+progress)?\s*")


def _bar_counts(marks: list[Mark]) -> None:
    """A bar's own counter is the one that counts; a bar that is called Epochs, without a number, counts epochs."""
    percent = next((m for m in marks if m.unit == "%"), None)
    for m in marks:
        if m.what == "iteration" and m.total is None:
            m.what, m.meaning = "", None
    if percent is not None and percent is marks[0] and _EPOCHS.fullmatch(percent.key):
        for m in marks:
            if m.what == "unnamed" and m.total is not None:
                m.what = "epoch"
            elif m.what in ("step_time", "step_rate") and m.meaning is not None:
                m.what = "epoch_time" if m.what == "step_time" else ""
            elif m.kind == DUR:
                m.what = "skip"


def _is_header(body: str) -> bool:
    """Whether a line holds counters and their words alone: `---- [Epoch 0/100, Batch 5/1000] ----`."""
    return len(body) < 100 and _HEADER_WORDS.issuperset(words_of(body))


def words_left(key: str) -> list[str]:
    """The words of a key that are not merely the side (train, test) of a line."""
    return [w for w in words_of(key) if not side_of(w)]


def _has_counter(loose: list[Mark]) -> bool:
    return any(m.what in ("unnamed", "bracket") for m in loose)


def fields_of(m: Mark, bar: bool, validation: bool = False) -> list[Field]:
    what = m.what
    if what == "unnamed" and m.kind == DUR and bar:
        return [Field("elapsed", m.token, more=m.more)]
    if what == "unnamed" and m.unit in TIME_UNITS and m.kind != DUR and m.token >= 0:
        return [Field("epoch_time" if bar else "window_time", m.token, scale=TIME_UNITS[m.unit], more=m.more)]
    if what in ("", "skip", "unnamed", "bracket", "pair", "total", "average", "uncertainty", "rank"):
        return []
    if what in ("iteration", "epoch", "iterations", "epochs") and (m.kind == DUR or m.negative):
        return []
    if m.kind == DUR and what not in ("step_time", "epoch_time", "elapsed", "window_time"):
        return []
    meaning = m.meaning
    source = m.average if validation and m.average is not None and what in _VALUES else m  # of the whole set so far
    made = Field(
        what,
        source.token,
        scale=(m.scale if what.startswith("throughput") else 1.0)
        * (meaning.scale if meaning and m.kind != DUR else 1.0),
        negative=source.negative,
        name=m.key if what in _NAMED else "",
        kind=_loss_kind(m),
        unit=meaning.unit if meaning else "",
        of_rank=bool(meaning and meaning.of_rank),
        inverse=bool(meaning and meaning.inverse),
        constant=source.constant,
        more=m.more,
    )
    out = [made]
    if m.total is not None and what in ("iteration", "epoch"):
        out.append(Field(what + "s", m.total.token))
    if m.average is not None and what in ("step_time", "throughput", "step_rate", "window_time"):
        average = "step_time_average" if what in ("step_time", "window_time") else what + "_average"
        out.append(Field(average, m.average.token, scale=made.scale, unit=made.unit, of_rank=made.of_rank))
        if what == "window_time":
            out[0] = Field("step_time", m.token, scale=made.scale)
    return out


def _loss_kind(m: Mark) -> LossKind | None:
    if m.meaning is not None and m.meaning.kind is not None:
        return m.meaning.kind
    key = m.key.lower()
    if key.endswith(("_step", "/step")):
        return LossKind.STEP
    if key.endswith(("_epoch", "/epoch")):
        return LossKind.EPOCH
    return None


def _kind(marks: list[Mark], fields: list[Field], side: str, body: str, bar: bool) -> str:
    what = {f.what for f in fields}
    validation_only = bool(what & {"validation_loss", "validation_accuracy"}) and not what & {
        "loss",
        "part",
        "accuracy",
    }
    counted = "iteration" in what
    epoch = next((m for m in marks if m.what == "epoch"), None)
    steering = epoch is not None and "lr" in what  # only training prints its learning rate beside both counters
    fractional = epoch is not None and epoch.kind == DEC
    values = what & _VALUES
    if side == "validation" and (values or bar):
        return "validation"
    if any(m.meaning is not None and m.meaning.validation and m.what in ("iteration", "epoch") for m in marks):
        return "validation" if values else ""
    if validation_only:
        return "validation"
    if bar and counted and what & {"step_rate", "step_time", "loss", "accuracy", "throughput", "elapsed"}:
        return "train"
    if counted and (
        steering or values or what & {"window_time", "epoch_time"} or (what & {"elapsed"} and side != "validation")
    ):
        return "train"
    if fractional and what & {"loss", "part", "accuracy"}:
        return "train"
    if epoch is not None and (values or (what & _TIMES and side != "validation")):
        return "epoch"
    if counted and not bar and what <= _COUNTERS and _is_header(body):
        return "train" if epoch is not None else "context"  # the values follow on lines of their own
    if epoch is not None and not counted and _EPOCH_HEAD.match(body) and len(body) < 80:
        return "context"
    if (
        marks[0].what == "unnamed"
        and marks[0].unit in ("s", "sec", "secs", "seconds")
        and what & {"loss", "accuracy"}
        and not bar
    ):
        fields.append(Field("epoch_time", marks[0].token))
    if (
        what & {"loss", "part", "accuracy", "throughput", "step_rate", "step_time", "epoch_time"}
        and not counted
        and epoch is None
    ):
        return "loose"
    if what and what <= _SETUP | {"lr"} and what & _SETUP:
        return "setup"
    return ""


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
    return out


_PLAIN_NAME = re.compile(r"(?i)^(?:train(?:ing)?[ _/.]?)?(?:total[ _/.]?)?loss$")


def _better(new: Field, old: Field) -> bool:
    """Of two totals on a line: the step's own before an average, the one that is simply called loss before others."""
    if (new.kind is LossKind.RUNNING) != (old.kind is LossKind.RUNNING):
        return old.kind is LossKind.RUNNING
    return _PLAIN_NAME.match(new.name) is not None and _PLAIN_NAME.match(old.name) is None


def _series(rule: str, kind: str, opening: str, plan: Plan, bar: bool) -> str:
    head = "".join(c for c in opening if c.isalpha() or c == " ").split()
    what = {f.what for f in plan.fields}
    shape = ("i" if "iteration" in what else "") + ("e" if "epoch" in what else "") + ("b" if bar else "")
    value = "l" if what & {"loss", "part"} else ""
    return f"{rule}:{kind}:{shape}{value}:{' '.join(head[:4]).lower()}"
