"""Finds key-value pairs, progress counters and units in a line's canonical text, whatever punctuation it uses.

`scan` walks over the numbers of a line and gives each the words that say what it is: the key before it, the unit
behind it, or its place (`3/10`, `[0][5/157]`, `2.31 (2.45)`, `12-20`). It decides nothing about the line as a
whole; `generic` and the `pairs` rules do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from profiler.rules.words import STEP_NOUNS, TIME_UNITS, Meaning, excluded, meaning, rate_of
from profiler.text.tokens import DEC, DUR, INT

_NAN = re.compile(r"(?<![A-Za-z0-9_.])([-+]?(?:nan|inf|infinity))(?![A-Za-z0-9_])(?!\s*[:=])", re.IGNORECASE)
_UNIT = re.compile(
    r"\s?([A-Za-z_µμ]+(?:\s?/\s?|\s+per\s+|-per-)[A-Za-z]+(?:\s?(?:/|\bper\b)\s?[A-Za-z]+)?|[A-Za-zµμ]+|%|/\s?s(?:ec)?\b)"
    r"(?![A-Za-z_]|\s*[:=])"
)
_MAGNITUDE = re.compile(r"([kKMG])(?=\s|/|,|;|\||$|\))")
_MAGNITUDES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_CUT = re.compile(r"[|,;\t{}\]\n]|\s-+\s|\s{2,}|->|=>|\s>+\s|:\s+|(?<=[a-z]{4})\.\s+")
_AT = re.compile(r"(?i)^(.*?)\s*\b(?:at|after|@|for|in|on|of)\s+(?:the\s+)?([A-Za-z_ ]+)$")
_NAMED_BEHIND = re.compile(
    r"\s*((?:train(?:ing)?[ _]|val(?:idation)?[ _])?(?:loss|accuracy|acc))\b(?!\s*[:=\d])", re.IGNORECASE
)
_MEASURES = frozenset(["loss", "part", "accuracy", "validation_loss", "validation_accuracy"])
#: Words that show that a number is told in a sentence, not printed beside its name.
_PROSE = re.compile(r"(?i)\b(?:the|was|were|we|our|with|trained|over|than|from|on)\b")
#: "loss of 8 batches: 0.26": the number counts what the loss is of.
_OF_MANY = re.compile(r"\s+(?:batch|minibatch|step|iteration|sample|image|example|sentence|token|frame)(?:e?s)\s*:")
#: "Avg Loss: D[0.1] G[0.2]", "loss: {'a': 0.1, 'b': 0.2}": the numbers under a heading are parts of a loss.
_HEADING = re.compile(
    r"(?i)\bloss(?:es)?[\"']?\s*+(?:[:=]\s*+[\[{(]?|[\[{(])\s*+[\"']?[a-z][\w./-]{0,24}[\"']?\s*+[:=\[(]?\s*+$"
)
#: An event that names its metric apart from the value: {"name": "loss", "value": 2.31}.
_METRIC = re.compile(r"(?i)[\"'](?:name|metric|metric_name|tag|key)[\"']\s*:\s*[\"']([^\"']{1,60})[\"']")
#: `loss, 3.21, lr, 0.001`: names and numbers, all with commas between them.
_LISTED = re.compile(rf"(?:^|[,\s])[\"']?[A-Za-z][\w/.:-]*[\"']?\s*,\s*-?[{INT}{DEC}](?=\s*(?:,|$))")
#: What stands between two numbers and is a rate, and nothing else.
_RATE_BETWEEN = re.compile(r"\s+([A-Za-z]+(?:/[A-Za-z]+)+)\s*[:=]?\s*")
_UNITLESS = _MEASURES | {"iteration", "epoch", "lr"}
_KEY_JUNK = " \t\"'`:=<>[](#~*@"


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
    separated: bool = False  #: a colon or equals sign stands between key and number


def _items(canonical: str, start: int) -> list[tuple[int, int, int, str]]:
    """(position, length, token, text) of the numbers and of the words nan and inf, in order."""
    items = []
    token = -1
    for i, c in enumerate(canonical):
        if c in (INT, DEC, DUR):
            token += 1
            if i >= start:
                items.append((i, 1, token, c))
    for m in _NAN.finditer(canonical, start):
        items.append((m.start(), m.end() - m.start(), -1, m.group().lower()))
    items.sort()
    return items


#: "Loss is 0.5": the verb is no part of the name.
_IS = re.compile(r"(?i)(?<=\w)\s+(?:is|was|are)$")


def key_of(left: str) -> str:
    """The words that a number follows, of all text between it and the number before."""
    closed = left.rstrip()
    depth = closed.count("(") - closed.count(")")
    if depth > 0:
        left = left[left.rfind("(") + 1 :]
    elif depth < 0:
        left = left[left.find(")") + 1 :]
    pieces = _CUT.split(left.rstrip(" \t:=[(<\"'#"))
    key = pieces[-1].strip(_KEY_JUNK + " -").lstrip(". ")
    return _IS.sub("", key)


def scan(canonical: str, start: int = 0, words: Mapping[str, Meaning] | None = None) -> list[Mark]:
    """Every number from `start` on that words or place explain. `words` (lower-case keys) come before the lexicon."""
    words = words or {}
    items = _items(canonical, start)
    marks: list[Mark] = []
    end = start
    metric: str | None = None  # the name of the line's metric, once it was looked for
    headed = False  # the numbers are parts of the loss that a heading named
    listed = len(_LISTED.findall(canonical, start)) >= 3
    pending = ""  # words before a counter, for the value after it: "loss at step 5: 2.3"
    promised = ""  # words of prose before a number that is not theirs: "accuracy on the 10000 test images: 97 %"
    for n, (at, length, token, text) in enumerate(items):
        left = canonical[end:at]
        nxt = items[n + 1][0] if n + 1 < len(items) else len(canonical)
        right = canonical[at + length : nxt]
        end = at + length
        mark = Mark(token, at, text if token >= 0 else DEC, "")
        if token < 0:
            mark.constant = float(text)
        bare = left.strip()
        previous = marks[-1] if marks else None
        adjacent = previous is not None and n > 0
        if bare[-1:] in "-+" and bare:
            joint = left.rstrip()
            if left.endswith(("-", "+")) and not (len(joint) == 1 and adjacent and left == joint and bare == "-"):
                mark.negative = bare[-1] == "-"
                left = left[: left.rstrip().rfind(bare[-1])]
                bare = left.strip()
        used = 0 if _heads_next(left, right, words) else _unit_of(mark, right, words)
        end += used
        if previous is not None and adjacent and _place(mark, previous, left, bare, right, canonical):
            marks.append(mark)
            continue
        mark.separated = left.rstrip(" \"'[(").endswith((":", "=")) or bare in ("is", "was", "are")
        if listed and bare.endswith(","):
            left, mark.separated = left.rstrip(" ,"), True
        key = "" if bare in ("is", "was", "are") else key_of(left)
        if not key and mark.separated and pending:
            key, pending = pending, ""
        if key.lower() == "value":
            if metric is None:
                named = _METRIC.search(canonical, start)
                metric = named.group(1) if named else key
            key = metric
        _name(mark, key, left, words, right[used:])
        if mark.what == "" and mark.kind == DEC and (headed or _HEADING.search(left)) and not excluded(key):
            headed, mark.what, mark.meaning = True, "part", Meaning("part")
        else:
            headed = False
        if mark.what in _MEASURES and not mark.separated and (_PROSE.search(key) or _OF_MANY.match(right, used)):
            promised, mark.what, mark.meaning = key, "", None
        elif promised and mark.separated and ((many := _OF_MANY.match(f" {key}:")) or mark.what == ""):
            _name(mark, promised if many else f"{promised} {key}", left, words)
            promised = ""
        if not mark.separated and mark.meaning is not None and mark.what in ("iteration", "epoch"):
            phrase = _AT.match(key)
            pending = phrase.group(1) if phrase else ""
        marks.append(mark)
    return marks


def _heads_next(left: str, right: str, words: Mapping[str, Meaning]) -> bool:
    """Whether the rate behind a loss or a counter names the number after it: `loss 4.21 images/s 1024`."""
    named = _RATE_BETWEEN.fullmatch(right)
    if named is None or rate_of(named.group(1)) is None:
        return False
    key = key_of(left)
    own = words.get(key.lower()) or meaning(key)
    return own is not None and own.what in _UNITLESS


def _unit_of(mark: Mark, right: str, words: Mapping[str, Meaning]) -> int:
    """Set the unit that stands behind a number; how many characters it takes."""
    used = 0
    m = _MAGNITUDE.match(right)
    if m:
        mark.scale = _MAGNITUDES[m.group(1)]
        right, used = right[1:], 1
    m = _UNIT.match(right)
    if m is None:
        return used
    unit = m.group(1)
    if unit.startswith("/"):
        mark.unit = "/s"
    elif unit == "%" or rate_of(unit):
        mark.unit = unit
    elif unit in ("minute", "minutes", "min", "mins") and mark.kind == INT:
        mark.unit = "minutes"
    elif unit in TIME_UNITS and (len(unit) > 1 or right[0] != " " or not right[2:3].isalpha()):
        mark.unit = ("minutes" if right[:1] == "m" else "") if unit in ("m", "h") else unit
    elif unit in ("day", "days") and mark.kind == INT:
        mark.unit = "days"
    elif (first := unit.split()[0]) in TIME_UNITS and len(first) > 1:
        mark.unit = first
        return used + right.find(first) + len(first)
    else:
        return used
    return used + m.end()


def _place(mark: Mark, previous: Mark, left: str, bare: str, right: str, canonical: str) -> bool:
    """Whether the number belongs to the one before: its total, its average, the end of its range."""
    if bare in ("/", "of", "out of", "\\"):
        mark.what = "total"
        if previous.total is None and previous.what not in ("total", "skip"):
            previous.total = mark
        return True
    if left == "-" and previous.kind == INT and mark.kind == INT:
        previous.token, previous.at = mark.token, mark.at  # a range is at its end
        mark.what = "skip"
        return True
    if mark.unit in TIME_UNITS and bare == "(":
        return False  # a duration in brackets is no average of what stands before
    if bare == "(" and left[:2].lstrip()[:1] == "(" and (right[:1] in (")", ",", "%") or mark.unit):
        mark.what = "skip" if mark.unit == "%" else "average"
        if previous.average is None and mark.what == "average":
            previous.average = mark
        return mark.unit == "%" or rate_of(mark.unit) is None
    if bare in ("+/-", "±", "+-", "<", "~"):
        mark.what = "skip"
        return True
    if bare in ("][", "] [") or (bare == "[" and previous.what in ("epoch", "total") and right.lstrip()[:1] in "/]-:"):
        mark.what = "unnamed" if right.lstrip()[:1] == "/" else "bracket"
        return True
    listed = canonical[: previous.at].rstrip().endswith("[") and right[:1] == "]"
    if bare == "," and listed and previous.what == "iteration" and previous.kind == mark.kind == INT:
        mark.what, mark.key, mark.meaning = "iteration", previous.key, previous.meaning
        previous.what = "epoch"
        return True
    if bare == "," and previous.what == "bracket" and mark.kind == INT and right[:1] in "])":
        mark.what = "pair"
        return True
    if previous.unit == "minutes" and bare == "" and mark.unit in ("s", "sec", "seconds"):
        mark.more = ((previous.token, 60.0),)
        mark.what, mark.key = previous.what, previous.key
        mark.meaning = None if previous.meaning is None else replace(previous.meaning, scale=1.0)
        previous.what = "skip"
        return True
    if previous.unit == "days" and bare in ("", ",") and mark.kind == DUR:
        mark.more = ((previous.token, 86400.0),)
        mark.what, mark.key, mark.meaning = previous.what, previous.key, previous.meaning
        previous.what = "skip"
        return True
    return False


def _name(mark: Mark, key: str, left: str, words: Mapping[str, Meaning], behind: str = "") -> None:
    """Set what the number is from its key and unit."""
    mark.key = key
    found = words.get(key.lower())
    if found is None and words and " " in key:
        found = words.get(key.lower().rsplit(None, 1)[-1])
    if found is None:
        found = _meaning(key, mark)
    if found is None and key and mark.separated:
        found = words.get("*")
    if found is not None and found.what in ("iteration", "epoch", "iterations", "epochs"):
        if mark.unit == "%":
            found = Meaning("skip")
        elif mark.unit in TIME_UNITS and mark.unit != "s" and found.what == "iteration":
            found = Meaning("step_time", scale=TIME_UNITS[mark.unit])
    mark.meaning = found
    if found is not None:
        mark.what = found.what
    elif mark.unit == "%":
        mark.what = "skip"
    else:
        opened = left.rstrip()[-1:]
        if not key and _NAMED_BEHIND.match(behind):
            mark.key = _NAMED_BEHIND.match(behind).group(1)  # type: ignore[union-attr]
            mark.meaning = meaning(mark.key)
            mark.what = mark.meaning.what if mark.meaning is not None else ""
            return
        mark.what = "bracket" if opened in ("[", "(") and mark.kind == INT and not key else "unnamed" if not key else ""


def _meaning(key: str, mark: Mark) -> Meaning | None:
    unit = mark.unit if mark.unit not in ("%", "days", "/s") else ""
    if key and not mark.separated:
        phrase = _AT.match(key)
        if phrase:
            index = meaning(phrase.group(2), unit)
            if index is not None and index.what in ("iteration", "epoch"):
                return index
    pieces = key.split()
    if len(pieces) > 6:
        key = " ".join(pieces[-4:])
    found = meaning(key, unit)
    if found is None and len(pieces) > 1:
        found = meaning(pieces[-1], unit)
        if excluded(key) or (found is not None and found.what not in ("iteration", "epoch", "loss", "accuracy", "lr")):
            found = None
    if found is None and unit:
        found = rate_of(unit)
        if found is not None and key and any(w in key.lower() for w in ("data", "eval", "val", "test")):
            found = Meaning("skip")
    if mark.unit == "/s" and found is None and key == "":
        return None
    if found is not None and found.what == "throughput" and found.unit == "" and pieces:
        return None
    return found


__all__ = ["STEP_NOUNS", "Mark", "key_of", "scan"]
