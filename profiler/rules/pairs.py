"""Finds key-value pairs, progress counters and units in a line's canonical text, whatever punctuation it uses.

`scan` walks over the numbers of a line and gives each the words that say what it is: the key before it, the unit
behind it, or its place (`3/10`, `[0][5/157]`, `2.31 (2.45)`, `12-20`). It decides nothing about the line as a
whole; `generic` and the `pairs` rules do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from profiler.rules.lexicon.units import TIME_UNITS, Meaning, rate_of
from profiler.rules.lexicon.words import excluded, meaning
from profiler.rules.places import OF, Mark, Place, place
from profiler.text.tokens import DEC, DUR, INT

_NAN = re.compile(r"(?<![A-Za-z0-9_.])([-+]?(?:nan|inf|infinity))(?![A-Za-z0-9_])(?!\s*[:=])", re.IGNORECASE)
_UNIT = re.compile(
    r"\s?([A-Za-z_µμ]+(?:\s?/\s?|\s+per\s+|-per-)[A-Za-z]+(?:\s?(?:/|\bper\b)\s?[A-Za-z]+)?|[A-Za-zµμ]+|%|/\s?s(?:ec)?\b)"
    r"(?![A-Za-z_]|\s*[:=])"
)
_DAYS_GO_ON = re.compile(rf"d,?\s?(?:{INT}\s?h\b|$)")
#: `completed in 0:01:23`; behind `completed at` stands a clock
_LASTED = re.compile(r"(?i)\b(?:in|took|takes)$")
_HALF_OF_DAY = re.compile(r"\s?[AaPp][Mm]\b")
_MAGNITUDE = re.compile(r"([kKMG])(?=\s|/|,|;|\||$|\))")
_MAGNITUDES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_CUT = re.compile(r"[|,;\t{}\]\n]|\s-+\s|\s{2,}|->|=>|\s>+\s|:\s+|(?<=[a-z]{4})\.\s+")
_AT = re.compile(r"(?i)^(.*?)\s*\b(?:at|after|@|for|in|on|of)\s+(?:the\s+)?([A-Za-z_ ]+)$")
#: `0.97 loss`, `0.97 C.E. Loss`, `94.3% accuracy`
_NAMED_BEHIND = re.compile(
    r"\s*((?:train(?:ing)?[ _]|val(?:idation)?[ _])?"
    r"(?:(?:avg\.?|average|mean|cross[ -]?entropy|b?\.?c\.?e\.?|mse|nll) )?"
    r"(?:loss|cost|accuracy|acc))\b(?!\s*(?:[:=\d/]|[-|>~]+\s*$))",
    re.IGNORECASE,
)
#: `| 0161656 updates |`: a cell that says behind its number what it counts.
_COUNTED_BEHIND = re.compile(r"(?i)\s(updates|steps|iterations|iters)\s*\|")
#: `3.70 seconds elapsed`: since a beginning.
_ELAPSED_BEHIND = re.compile(r"(?i)\s*(?:elapsed|so far|since (?:the )?(?:start|beginning))\b(?!\s*[:=])")
_MEASURES = frozenset(
    [
        "loss",
        "part",
        "accuracy",
        "validation_loss",
        "validation_accuracy",
    ]
)
#: Words that show that a number is told in a sentence, not printed beside its name.
_PROSE = re.compile(r"(?i)\b(?:the|was|were|we|our|with|trained|over|than|from|on)\b")
#: "loss of 8 batches: 0.26": the number counts what the loss is of.
_OF_MANY = re.compile(
    rf"\s+(?:batch|minibatch|step|iteration|sample|image|example|update|sentence|token|frame)(?:e?s)\s*(?::|(?=[{DEC}]))"
)
#: "Avg Loss: D[0.1] G[0.2]", "loss: {'a': 0.1, 'b': 0.2}": the numbers under a heading are parts of a loss.
_HEADING = re.compile(
    r"(?i)\bloss(?:es)?[\"']?\s*+(?:[:=]\s*+[\[{(]?|[\[{(])\s*+[\"']?[a-z][\w./-]{0,24}[\"']?\s*+[:=\[(]?\s*+$"
)
#: `Losses: [2.31, 2.52, 7.0]`: of several numbers in a bracket none is the one that the name says.
_LIST = re.compile(r"\s*,\s*-?$|\s+-?$")
#: An event that names its metric apart from the value: {"name": "loss", "value": 2.31}.
_METRIC = re.compile(r"(?i)[\"'](?:name|metric|metric_name|tag|key)[\"']\s*:\s*[\"']([^\"']{1,60})[\"']")
#: Or stands before a record that holds it: eval_accuracy: {"value": 0.71, ...}.
_RECORD = re.compile(r"([A-Za-z][\w./-]{1,60})[\"']?\s*[:=]\s*\{\s*[\"']value[\"']\s*:")
#: `loss, 3.21, lr, 0.001`: names and numbers, all with commas between them.
_LISTED = re.compile(rf"(?:^|[,\s])[\"']?[A-Za-z][\w/.:-]*[\"']?\s*,\s*-?[{INT}{DEC}](?=\s*(?:,|$))")
#: `np.float32(2.31)`, `tensor(2.31, device='cuda:0')`: how a number of a library is written, as far as the number.
_WRAPPED = re.compile(
    r"(?i)(?:\b(?:np|numpy|jnp|torch)\.)?\b(?:b?float\d*|u?int\d+|tensor|(?:device)?array|decimal)\($"
)
#: `epoch -> 3`: an arrow between a name and its value.
_ARROW = re.compile(r"(?<=\w)[\"']?\s*[-=]>\s*$")
#: A line that is nothing else from some name on.
_ALL_LISTED = re.compile(rf"(?:(?:^|,\s|\s)[\"']?[A-Za-z][\w/.:-]*[\"']?\s*,\s*-?[{INT}{DEC}]){{2,}}$")
#: What stands between two numbers and is a rate, and nothing else.
_RATE_BETWEEN = re.compile(r"\s+([A-Za-z]+(?:/[A-Za-z]+)+)\s*[:=]?\s*")
_UNITLESS = _MEASURES | {"iteration", "epoch", "lr"}
#: What the last word of a key may say when the whole key says nothing.
_ALONE = frozenset(
    (
        "iteration",
        "epoch",
        "loss",
        "accuracy",
        "lr",
    )
)
_KEY_JUNK = " \t\"'`:=<>[](#~*@"


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


_CLOSED = re.compile(r"\]\s*[:=]")
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


def _of_cell_before(left: str) -> str:
    """Of `train loss | 2.31` and `train loss - 2.31` the name, where it names what is measured."""
    cell = left.rstrip(" |-")
    name = key_of(cell) if left[len(cell) :].strip() in ("|", "-") else ""
    found = meaning(name) if name else None
    return name if found is not None and found.what in _MEASURES else ""


def scan(canonical: str, start: int = 0, words: Mapping[str, Meaning] | None = None) -> list[Mark]:
    """Every number from `start` on that words or place explain. `words` (lower-case keys) come before the lexicon."""
    walk = _Walk(canonical, start, words or {})
    items = _items(canonical, start)
    ends = (*(item[0] for item in items[1:]), len(canonical))
    for (at, length, token, text), end in zip(items, ends, strict=False):
        mark = Mark(token, at, text, "") if token >= 0 else Mark(token, at, DEC, "", constant=float(text))
        walk.take(mark, length, end)
    return walk.marks


class _Walk:
    """The way over the numbers of a line, and what earlier ones say of later ones."""

    def __init__(self, canonical: str, start: int, words: Mapping[str, Meaning]) -> None:
        self.canonical, self.start, self.words = canonical, start, words
        self.marks: list[Mark] = []
        self.end = start  #: of the number before, with its unit
        self.metric: str | None = None  #: the name of the line's metric, once it was looked for
        self.headed = False  #: the numbers are parts of the loss that a heading named
        self.listed = len(_LISTED.findall(canonical, start)) >= (2 if _ALL_LISTED.search(canonical, start) else 3)
        self.pending = ""  #: words before a counter, for the value after it: "loss at step 5: 2.3"
        self.promised = ""  #: words before a number that is not theirs: "accuracy on the 10000 test images: 97 %"

    def take(self, mark: Mark, length: int, end: int) -> None:
        """The next number, of so many characters; the one after it stands at `end`."""
        left = self.canonical[self.end : mark.at]
        right = self.canonical[mark.at + length : end]
        left = _WRAPPED.sub("", self._signed(mark, left))
        bare = left.strip()
        used = 0 if _heads_next(left, right, self.words) else _unit_of(mark, right, self.words)
        self.end = mark.at + length + used
        if self._placed(mark, left, right):
            return
        if self._between(mark, right):
            return
        verb = bare in ("is", "was", "are")
        mark.separated = verb or left.rstrip(" \"'[(").endswith((":", "="))
        if name := self._before_a_sign(left):
            left, mark.separated = name, True
        alone = end == len(self.canonical) or not right.rstrip().endswith("|")  # else it is one column of many
        key = self._key(mark, "" if verb else key_of(left) or (_of_cell_before(left) if alone else ""))
        _name(mark, key, left, self.words, right[used:])
        self._endless(mark, right)
        self._as_part(mark, key, left, _LIST.match(right, used) is not None)
        self._as_promised(mark, key, left, _OF_MANY.match(right, used) is not None)
        if not mark.separated and mark.meaning is not None and mark.what in ("iteration", "epoch"):
            self.pending = self._left_by(key)
        self.marks.append(mark)

    def _endless(self, mark: Mark, right: str) -> None:
        """`19it [05:01, 16.40s/it, loss=86.7]`: a bar without a total counts where a loss stands on it."""
        if mark.what == "unnamed" and right == "it [" and "loss" in self.canonical.lower():
            mark.what, mark.meaning = "iteration", Meaning("iteration")

    def _before_a_sign(self, left: str) -> str:
        """What stands before a comma in a list of names and values, or before an arrow; "" where neither does."""
        if self.listed and left.rstrip().endswith(","):
            return left.rstrip(" ,")
        arrow = _ARROW.search(left) if left.rstrip().endswith(">") else None
        return "" if arrow is None else left[: arrow.start()]

    def _left_by(self, key: str) -> str:
        """The words that a counter leaves for the value behind it: `loss at step`, `loss in epoch 1 iteration`."""
        phrase = _AT.match(key)
        if phrase is not None:
            return phrase.group(1)
        key = key.removeprefix("and ")
        return "" if " " in key else self.pending

    def _placed(self, mark: Mark, left: str, right: str) -> bool:
        """Whether the number belongs to the one before."""
        before = self.marks[-1] if self.marks else None
        if before is None or not place(mark, Place(before, left, left.strip(), right, self.canonical)):
            return False
        self.marks.append(mark)
        self._between(before, right)
        return True

    def _between(self, mark: Mark, right: str) -> bool:
        """`avg. loss [951-1000]: 2.31`: whole numbers in a bracket between a name and its sign say of what it is."""
        if mark.kind != INT or _CLOSED.match(right) is None:
            return False
        opened = self.canonical.rfind("[", self.start, mark.at)
        name = key_of(self.canonical[self.start : opened]) if opened >= 0 else ""
        found = meaning(name) if name else None
        if found is None or found.what not in _MEASURES or mark.what in ("iteration", "epoch", "total"):
            return False
        self.pending = name
        mark.what, mark.meaning = "skip", None
        if mark not in self.marks:
            self.marks.append(mark)
        return True

    def _signed(self, mark: Mark, left: str) -> str:
        """Take the sign off the text before a number. A lone dash between two numbers is none."""
        bare = left.strip()
        if not left.endswith(("-", "+")) or (left == bare == "-" and self.marks):
            return left
        mark.negative = bare[-1] == "-"
        return left[: left.rstrip().rfind(bare[-1])]

    def _key(self, mark: Mark, key: str) -> str:
        """The words before a number, or those that an earlier number, or the line's metric, left for it."""
        if not key and mark.separated and self.pending:
            key, self.pending = self.pending, ""
        if key.lower() != "value":
            return key
        if self.metric is None:
            named = _METRIC.search(self.canonical, self.start) or _RECORD.search(self.canonical, self.start)
            self.metric = named.group(1) if named else key
        return self.metric

    def _as_part(self, mark: Mark, key: str, left: str, listed: bool) -> None:
        """A number that nothing names, behind the heading of a loss, is a part of it. `listed`: more follow it."""
        if listed and mark.what in _MEASURES and left.rstrip().endswith("["):
            mark.what, mark.meaning = "skip", None
        bare = mark.what == "" and mark.kind == DEC
        self.headed = bare and (self.headed or _HEADING.search(left) is not None) and not excluded(key)
        if self.headed:
            mark.what, mark.meaning = "part", Meaning("part")

    def _as_promised(self, mark: Mark, key: str, left: str, of_many: bool) -> None:
        """In prose the words before a number may belong to a later one."""
        if mark.what in _MEASURES and not mark.separated and (of_many or _PROSE.search(key)):
            self.promised, mark.what, mark.meaning = key, "", None
        elif self.promised and mark.separated:
            many = _OF_MANY.match(f" {key}:")
            if many or mark.what == "":
                _name(mark, self.promised if many else f"{self.promised} {key}", left, self.words)
                self.promised = ""


def _heads_next(left: str, right: str, words: Mapping[str, Meaning]) -> bool:
    """Whether the rate behind a loss or a counter names the number after it: `loss 4.21 images/s 1024`."""
    named = _RATE_BETWEEN.fullmatch(right)
    if named is None or rate_of(named.group(1)) is None:
        return False
    if left.strip().lower() in OF and right[-1] in " :=":
        return True  # `of 5000 sec/batch 0.42`: a number follows, and no total has a unit
    key = key_of(left)
    own = words.get(key.lower()) or meaning(key)
    return own is not None and own.what in _UNITLESS


def _unit_of(mark: Mark, right: str, words: Mapping[str, Meaning]) -> int:
    """Set the unit that stands behind a number; how many characters it takes."""
    used = 0
    half = _HALF_OF_DAY.match(right) if mark.kind == DUR else None
    if half is not None:
        return half.end()
    m = _MAGNITUDE.match(right)
    if m:
        mark.scale = _MAGNITUDES[m.group(1)]
        right, used = right[1:], 1
    m = _UNIT.match(right)
    if m is None:
        return used
    written = m.group(1)
    unit = _unit(written, mark.kind, right)
    if unit is not None:
        mark.unit = unit
        return used + m.end()
    first = written.split()[0]
    if first in TIME_UNITS and len(first) > 1:
        mark.unit = first
        return used + right.find(first) + len(first)
    return used


def _unit(written: str, kind: str, right: str) -> str | None:
    """The unit that a text behind a number of this kind is; None where it is none. `right`: all that stands there."""
    if written.startswith("/"):
        return "/s"
    if written == "%" or rate_of(written):
        return written
    if (
        written
        in (
            "minute",
            "minutes",
            "min",
            "mins",
        )
        and kind == INT
    ):
        return "minutes"
    if written in TIME_UNITS and (len(written) > 1 or right[0] != " " or not right[2:3].isalpha()):
        if written == "m":
            return "minutes" if right[:1] == "m" else ""
        return written
    return "days" if _counts_days(written, kind, right) else None


def _counts_days(written: str, kind: str, right: str) -> bool:
    if written == "d":
        return _DAYS_GO_ON.match(right) is not None
    return written in ("day", "days") and kind == INT


def _name(mark: Mark, key: str, left: str, words: Mapping[str, Meaning], behind: str = "") -> None:
    """Set what the number is from its key and unit."""
    mark.key = key
    found = _counted_in(mark, _found(mark, key, words))
    if (
        found is not None
        and found.what == "iteration"
        and mark.kind == DEC
        and not mark.separated
        and key.endswith("s")
    ):
        found = None  # of "last 100 updates 4.15" the value is no counter
    mark.meaning = found
    if found is not None:
        mark.what = found.what
    elif mark.unit == "%":
        mark.what = "skip"
    elif key:
        mark.what = ""
    else:
        _name_by_what_follows(mark, left, behind)


def _name_by_what_follows(mark: Mark, left: str, behind: str) -> None:
    """Set what a number without words before it is."""
    if mark.unit in TIME_UNITS and _ELAPSED_BEHIND.match(behind):
        mark.what, mark.meaning = "elapsed", Meaning("elapsed", scale=TIME_UNITS[mark.unit])
    elif (counted := _counted_behind(mark, left, behind)) is not None:
        mark.key, mark.what, mark.meaning = counted.group(1), "iteration", Meaning("iteration")
    elif (named := _named_behind(mark, behind)) is not None:
        mark.key = named.group(1)
        mark.meaning = meaning(mark.key)
        mark.what = mark.meaning.what if mark.meaning is not None else ""
    else:
        opened = left.rstrip()[-1:] in ("[", "(")
        mark.what = "bracket" if opened and mark.kind == INT else "unnamed"


def _counted_behind(mark: Mark, left: str, behind: str) -> re.Match[str] | None:
    """What a cell of its own says behind a number that it counts."""
    return _COUNTED_BEHIND.match(behind) if mark.kind == INT and left.rstrip().endswith("|") else None


def _named_behind(mark: Mark, behind: str) -> re.Match[str] | None:
    """The name that stands behind a value. A whole number without a unit is none: `3 train loss 0.64` counts."""
    if mark.is_time or (mark.kind == INT and not mark.unit):
        return None
    return _NAMED_BEHIND.match(behind)


def _found(mark: Mark, key: str, words: Mapping[str, Meaning]) -> Meaning | None:
    """What a rule's own words say of a key, else the lexicon; the word "*" of a rule speaks for what neither knows."""
    found = words.get(key.lower())
    if found is None and words and " " in key:
        found = words.get(key.lower().rsplit(None, 1)[-1])
    if found is None:
        found = _meaning(key, mark)
    if found is None and key and mark.separated:
        found = words.get("*")
    return found


def _counted_in(mark: Mark, found: Meaning | None) -> Meaning | None:
    """A counter with a unit is none: a share, or the time of an iteration."""
    if found is None or found.what not in (
        "iteration",
        "epoch",
        "iterations",
        "epochs",
    ):
        return found
    unit = mark.unit
    if unit == "%":
        return Meaning("skip")
    if unit in TIME_UNITS and (unit != "s" or mark.kind == DEC) and found.what == "iteration":
        return Meaning("step_time", scale=TIME_UNITS[unit])
    return found


def _meaning(key: str, mark: Mark) -> Meaning | None:
    unit = _time_or_rate(mark, key)
    index = _at_index(key, unit) if key and not mark.separated else None
    if index is not None:
        return index
    pieces = key.split()
    if len(pieces) > 6:
        key = " ".join(pieces[-4:])
    found = meaning(key, unit)
    if found is None and len(pieces) > 1 and not excluded(key):
        found = _of_last(pieces[-1], unit)
    if found is None and unit:
        found = _of_unit(key, unit)
    unitless = found is not None and found.what == "throughput" and found.unit == "" and pieces
    return None if unitless else found


def _time_or_rate(mark: Mark, key: str) -> str:
    """The unit of a number that has one of time or of a rate."""
    if mark.kind == DUR and _LASTED.search(key):
        return "s"
    return mark.unit if mark.unit not in ("%", "days", "/s") else ""


def _at_index(key: str, unit: str) -> Meaning | None:
    """`loss at step`: the counter, whatever stands before it."""
    phrase = _AT.match(key)
    index = meaning(phrase.group(2), unit) if phrase else None
    return index if index is not None and index.what in ("iteration", "epoch") else None


def _of_last(word: str, unit: str) -> Meaning | None:
    found = meaning(word, unit)
    return found if found is not None and found.what in _ALONE else None


def _of_unit(key: str, unit: str) -> Meaning | None:
    """What the unit alone says: it is not training's behind words of data or evaluation."""
    found = rate_of(unit)
    if found is not None and any(
        w in key.lower()
        for w in (
            "data",
            "eval",
            "val",
            "test",
        )
    ):
        return Meaning("skip")
    return found
