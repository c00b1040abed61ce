"""Tables: a head of words, then rows of numbers (CSV, fastai, skorch, Markdown, aligned columns).

A head is a line whose cells are words, one of which counts (epoch, step) or measures (loss, accuracy); the rows
below it are read by its columns as long as they have as many cells. A row may end in a progress bar, which is read
as one (YOLO). A file that is nothing but `index value` rows
from its first line on is read as a curve of losses (`Bare`): the shape of the whole file says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from profiler.model import LossKind
from profiler.rules import beside, counters, generic
from profiler.rules.lexicon.languages import FOREIGN_TRIGGERS, english
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.units import TIME_UNITS, Meaning
from profiler.rules.lexicon.words import COLUMNS_OF_PARTS, meaning, words_of
from profiler.rules.pairs import scan
from profiler.rules.plan import Field, Plan
from profiler.text import clock, ranks
from profiler.text.tokens import DEC, DUR, INT, PRIVATE, tokenise

_DELIMITERS = (
    ",",
    ";",
    "\t",
    "|",
    "&",
)
_GAP = re.compile(r"\s{2,}|\t")
_ROW_END = re.compile(r"\s*\\\\\s*(?:\\\w+\s*)?$")  #: of LaTeX: two backslashes, a rule
_NAME = re.compile(r"^[\"']?[^\W\d][\w /%@().#:\[\]-]*[\"']?$|^[\"']?[_#%][\w /%@().#:\[\]-]*[\"']?$")
_CELL = re.compile(rf"^[\"']?([-+]?)([{INT}{DEC}{DUR}])\s?(%|s|ms|[KMGT]i?B?)?[\"']?$")
#: A cell between signs may hold more than its number: the name of its unit before it, an uncertainty, a stamp behind.
_DRESSED = re.compile(rf"^(?:[A-Za-z][A-Za-z/ _]*:\s*)?([-+]?)([{INT}{DEC}{DUR}])()(?:\s.*)?$")
#: A number as a library writes it.
_WRAPPED = re.compile(rf"^[\w.]*[A-Za-z]\w*\(([-+]?[{INT}{DEC}])(?:,.*)?\)$")
_OF = re.compile(rf"^({INT})/{INT}$")
_OTHER = re.compile(rf"^[\"'\[(]*[-+]?[{INT}{DEC}{DUR}](?:[ ,:/.TZ+-]*[{INT}{DEC}{DUR}])*[Z\"'\])]*$")  #: dates, lists
_BAR = re.compile(rf"(?::\s*|\s+)(?:{INT}|\d+)%\|")
_CUT_BAR = re.compile(rf":\s*{INT}?%?\s*$")
_BLANK = frozenset(
    [
        "",
        "-",
        "--",
        "---",
        "nan",
        "NaN",
        "None",
        "null",
        "n/a",
        "N/A",
        "inf",
        "✓",
        "+",
        "_",
    ]
)
_COMMENTS = ("#", "%")  #: signs before a head, of numpy.savetxt and plotters; or a column of indices
#: Words of the head of a column that says of which data a row is.
_SIDES = frozenset(("is", "train", "training", "phase", "split", "mode", "set", "subset", "stage"))
_ERROR = re.compile(r"(?:rmse|mse|l2)_([a-z]+)|([a-z]+)_(?:rmse|mse)")
_LOSS_OF = {"train": Meaning("loss"), "validation": Meaning("validation_loss")}
_LOSSES = ("loss", "part", "validation_loss")
_HELD_OUT = {"loss": "validation_loss", "part": "validation_loss", "accuracy": "validation_accuracy"}
_TIMES = frozenset(("window_time", "elapsed", "step_time", "epoch_time", "skip"))
LONGEST_HEAD = 4000
_RULE = "generic/table"
#: words of a head that only one program's tables have, and the name for them
_OWNERS = {"gpu_mem": "yolo/table"}


@dataclass(frozen=True, slots=True)
class Table:
    head: str
    delimiter: str  #: "" for runs of blanks, "  " for two and more
    columns: tuple[Meaning | None, ...]
    names: tuple[str, ...]
    before: int = 0  #: words that stand before the head, and before each row: of a logger, a launcher

    def cells(self, line: str) -> list[str]:
        """Of a row, or its canonical text; a bar at its end is none. The sign of a comment before a head is no column:
        its cell is empty where a row has one cell less."""
        bar = _BAR.search(line) if "%|" in line else None
        line = line[: bar.start()] if bar else self._without_cut_bar(line)
        found = _cells(_behind(line, self.before), self.delimiter)
        commented = self.names[0] in _COMMENTS and len(found) == len(self.names) - 1
        if self.delimiter == "\t" and len(found) == len(self.names) + 1 and found.count("") == 1:
            found.remove("")  # written twice between two cells
        return ["", *found] if commented else found

    def plan(self, text: str, *, dressed: bool = True) -> Plan | None:
        """The plan for a row of this table; None when the line is no row of it. `dressed`: cells between signs may
        hold words beside their number."""
        thousands = self.delimiter not in (",", ";")
        canonical, numbers = tokenise(text, thousands)
        if not numbers:
            return None
        bar = _BAR.search(canonical)
        cells = self.cells(canonical)
        if len(cells) != len(self.columns):
            return None
        parted = dressed and self.delimiter in ("\t", "|")
        fields = self._fields(cells, self._numbers_before(canonical), parted)
        if fields is None:
            return None
        if bar:
            fields += _of_a_bar(canonical, bar.start())
        fields = _sided(fields, self.names, cells)
        what = {f.what for f in fields}
        kind = _kind(what)
        if not kind:
            return None
        rule = next((rule for word, rule in _OWNERS.items() if word in self.head.lower()), _RULE)
        series = f"{rule}:{kind}:{self.head[:60]}"
        plan = Plan(rule, kind, canonical, tuple(fields), series=series, bar=bool(bar))
        plan.total = "loss" in what
        if bar:
            plan.scope, plan.loss_kind = "epoch" if "epoch" in what else None, LossKind.RUNNING
        else:
            plan.clock = self._clock(canonical, numbers) or _unix(numbers, fields)
        plan.sample, plan.origin, plan.thousands = text, self.head, thousands
        return plan.compile()

    def _without_cut_bar(self, line: str) -> str:
        """A row whose bar a narrow terminal cut, before the sign of its percentage."""
        owned = any(word in self.head.lower() for word in _OWNERS)
        return _CUT_BAR.sub("", line) if owned else line

    def _clock(self, canonical: str, numbers: list[str]) -> clock.Clock | None:
        """When a row was written: a date and a time, or a time of day where a column is called so."""
        stamp = clock.find(canonical, numbers)
        if stamp is None:
            return None
        stamped = any(name.lower() == "timestamp" for name in self.names)
        return stamp[0] if stamp[0].form in (("ymd", "clock") if stamped else ("ymd",)) else None

    def _numbers_before(self, canonical: str) -> int:
        """Numbers that stand before a row."""
        end = len(canonical) - len(_behind(canonical, self.before))
        return sum(canonical.count(c, 0, end) for c in PRIVATE)

    def _fields(self, cells: list[str], token: int, parted: bool) -> list[Field] | None:
        """What the cells of a row tell, whose first number is `token`; None where one cannot stand in its column."""
        fields: list[Field] = []
        for cell, column, name in zip(cells, self.columns, self.names, strict=True):
            numbers = sum(cell.count(c) for c in PRIVATE)
            told = _told(cell, column, name, token, numbers, parted)
            if told is None:
                return None
            fields += told
            token += numbers
        return fields


def _held_out(name: str, cell: str) -> bool:
    """Whether a row is of held-out data: a column called `train` says False, one called `phase` says val."""
    words = set(words_of(name))
    if not words or not words <= _SIDES:
        return False
    return cell.lower() == "false" if words & {"train", "training"} else side_of(cell) == "validation"


def _sided(fields: list[Field], names: tuple[str, ...], cells: list[str]) -> list[Field]:
    """The fields of a row, of held-out data where a column says so."""
    held = any(map(_held_out, names, cells))
    return [replace(f, what=_HELD_OUT.get(f.what, f.what)) for f in fields] if held else fields


def _of_a_bar(canonical: str, start: int) -> list[Field]:
    marks = scan(canonical, start)
    counters.name_counters(marks, canonical[start:], True)
    return generic.one_each([f for mark in marks for f in generic.fields_of(mark, True)])


def _unix(numbers: list[str], fields: list[Field]) -> clock.Clock | None:
    """The stamp of a row in seconds since 1970: a number that no column takes."""
    taken = {f.token for f in fields}
    at = next((i for i, text in enumerate(numbers) if i not in taken and ranks.is_now(text)), None)
    return None if at is None else clock.Clock((at,), "epoch-seconds")


def _told(cell: str, column: Meaning | None, name: str, token: int, numbers: int, parted: bool) -> list[Field] | None:
    """What a cell tells, whose first number is `token`; None where it cannot stand in its column. `parted`: signs
    stand between the cells, so that one may hold words."""
    what = "" if column is None else column.what
    if what == "epoch" and _OF.match(cell):
        return [Field("epoch", token), Field("epochs", token + 1)]
    m = _CELL.match(_WRAPPED.sub(r"\1", cell))
    if m is None and parted and column is not None:
        m = _DRESSED.match(cell)
    if m is not None:
        return [] if column is None or column.what == "skip" else [_field(column, name, token, m)]
    if numbers > 1 and column is not None and column.what in _TIMES and _is_other(cell, numbers):
        return []  # a date
    if numbers or cell not in _BLANK:
        return None if column is not None or not _is_other(cell, numbers) else []
    lost = cell.lower() == "nan" and what == "loss"
    return [Field("loss", -1, name=name, constant=float("nan"))] if lost else []


def _is_other(cell: str, numbers: int) -> bool:
    """A word, a date, a list: it may stand in a column of no meaning."""
    return (numbers == 0 and len(cell) <= 12) or _OTHER.match(cell) is not None


def _kind(what: set[str]) -> str:
    measured = what & {
        "loss",
        "part",
        "accuracy",
        "throughput",
        "step_time",
        "step_rate",
    }
    held = what & {"validation_loss", "validation_accuracy"}
    if "iteration" in what and measured:
        return "train"
    if "epoch" in what and (measured or held):
        return "epoch" if measured else "validation"
    return "validation" if held and "iteration" in what else ""


def _field(column: Meaning, name: str, token: int, cell: re.Match[str]) -> Field:
    sign, kind, unit = cell.groups()
    unit_told = kind == DUR or unit in TIME_UNITS
    if column.what == "elapsed" and unit_told:
        name = ""  # what else its head is called says nothing of its unit
    timed = column.what in (
        "step_time",
        "window_time",
        "epoch_time",
        "elapsed",
    )
    scale = 1.0 if kind == DUR else TIME_UNITS[unit] if timed and unit in TIME_UNITS else column.scale
    return Field(column.what, token, scale, sign == "-", name=name, kind=column.kind, unit=column.unit)


def _behind(line: str, words: int) -> str:
    """The line without so many words at its beginning."""
    pieces = line.split(None, words)
    return pieces[-1] if len(pieces) > words else line


def _cells(line: str, delimiter: str) -> list[str]:
    line = line.strip()
    if delimiter == "|":
        line = line.strip("|")
    if delimiter == "&":
        line = _ROW_END.sub("", line)
    if not delimiter:
        return line.split()
    if delimiter == "  ":
        return [c.strip() for c in _GAP.split(line)]
    return [c.strip() for c in line.split(delimiter)]


def head(line: str) -> Table | None:
    """The table that a line is the head of; None for any other line."""
    if len(line) > LONGEST_HEAD:
        return None
    return _head_behind(line) or _head(line.strip())


def _head_behind(line: str) -> Table | None:
    """The head behind what a logger or a launcher put before it."""
    canonical, numbers = tokenise(line)
    start = ranks.strip(canonical, numbers).start
    before = len(canonical[:start].split())
    opening = canonical[:start].strip()
    lone = opening.isalpha() or _column(opening.rstrip(" |:")) is not None  # the first column may be called E
    if lone or not before or canonical[:start].split() != canonical.split(None, before)[:before]:
        return None
    found = _head(_behind(line.strip(), before))
    return None if found is None else replace(found, head=line, before=before)


def _head(line: str) -> Table | None:
    canonical, numbers = tokenise(line)
    if "=" in line or DEC in canonical or DUR in canonical or len(numbers) > 2:
        return None
    for delimiter in (*_DELIMITERS, "  ", ""):
        names = _cells(line, delimiter)
        named = names[1:] if names[0] == "" and delimiter in _DELIMITERS else names  # an index without a name
        columns = _columns(names) if len(named) > 1 and all(_NAME.match(n) for n in named) else ()
        if _counts(columns):
            return Table(line, delimiter, columns, tuple(n.strip("\"'") for n in names))
    return None


def _counts(columns: tuple[Meaning | None, ...]) -> bool:
    """Whether a column counts, another measures, and a quarter of them means something, or the first two do."""
    what = {c.what for c in columns if c is not None}
    meant = sum(c is not None for c in columns) * 4 >= len(columns)
    meant = meant or [c and c.what for c in columns[:2]] in (["iteration", "loss"], ["epoch", "loss"])
    return meant and bool(what & {"iteration", "epoch"}) and bool(_kind(what))


def _columns(names: list[str]) -> tuple[Meaning | None, ...]:
    """What the columns are; those that only their neighbours explain included."""
    names = [english(n) for n in names]
    columns = [_column(n) for n in names]
    lower = [n.strip("\"'").lower() for n in names]
    columns = _with_parts(columns, lower)
    if any(c is not None and c.what == "part" for c in columns) and "total" in lower:
        columns[lower.index("total")] = Meaning("loss")
    told = frozenset(lower)
    for i, name in enumerate(lower):
        if beside.is_of_value(name, told):
            columns[i] = None
    return _with_errors(columns, lower)


def _with_parts(columns: list[Meaning | None], names: list[str]) -> list[Meaning | None]:
    """Columns that are parts of a detector's loss, where several stand beside each other and no loss is told."""
    parts = [name in COLUMNS_OF_PARTS for name in names]
    if sum(parts) < 2 or any(c is not None and c.what in ("loss", "part") for c in columns):
        return columns
    return [Meaning("part") if part else c for part, c in zip(parts, columns, strict=True)]


def _with_errors(columns: list[Meaning | None], names: list[str]) -> tuple[Meaning | None, ...]:
    """`rmse_trn`, `val_mse`: where no column is called a loss, an error of one side is the loss of that side."""
    if any(c is not None and c.what in _LOSSES for c in columns):
        return tuple(columns)
    return tuple(c or _error(n) for c, n in zip(columns, names, strict=True))


def _error(name: str) -> Meaning | None:
    named = _ERROR.fullmatch(name)
    side = side_of(named.group(1) or named.group(2)) if named is not None else ""
    return _LOSS_OF.get(side)


def _column(name: str) -> Meaning | None:
    name = name.strip("\"'")
    words = words_of(name)
    if words in (["dur"], ["time"], ["epoch", "time"], ["seconds"]):
        return Meaning("window_time")
    if words in (["e"],):
        return Meaning("epoch")
    if name == "#":
        return Meaning("iteration")
    return meaning(name)


MEASURES = (
    b"gpu_mem",
    b"loss",
    b"acc",
    b"top",
    b"objective",
    b"nll",
    b"xent",
    b"cost",
    b"elbo",
    b"mse_",
    b"_mse",
    b"_rmse",
    b"l2_t",  # and without its digits
    b"l_t",
)


COUNTERS = (
    b"epoch",
    b"step",
    b"iter",
    b"e  ",
    b"update",
    b"batch",
    b"it,",
    b"it;",
    b"it\t",
    b"it |",
)
ABROAD = tuple(word.encode("latin-1") for word in FOREIGN_TRIGGERS)


def may_be_head(lower: bytes) -> bool:
    """The cheap test on a line in lower case, or on a text of many lines."""
    return any(word in lower for word in COUNTERS) and any(word in lower for word in MEASURES)


def may_be_foreign_head(lower: bytes) -> bool:
    """The same for a head in another language, whose cells signs divide."""
    return any(
        sign in lower
        for sign in (
            b",",
            b";",
            b"\t",
            b"|",
        )
    ) and any(word in lower for word in ABROAD)


def _side_between(canonical: str) -> str:
    """The side that the word of an `index word value` row says, or that word; a row without one has none."""
    word = "".join(re.findall(r"[A-Za-z]", canonical))
    if word.lower() in ("", "nan", "e"):
        return ""
    return side_of(word) or word


class Bare:
    """A file of `index value` rows and nothing else, from its first line on; a word between may say the side."""

    NEEDED = 5  #: rows before it is believed
    _ROW = re.compile(r"\s*(\d{1,18})[\s,;]+(?:[A-Za-z]{2,12} )?([-+]?\d+\.\d+(?:[eE][-+]?\d+)?|nan)\s*")

    def __init__(self) -> None:
        self.alive = True
        self.first = self.last = -1
        self.seen = 0
        self.held: list[tuple[int, str]] = []

    def take(self, number: int, text: str) -> list[tuple[int, str]]:
        """The rows that may be read now that this line came."""
        m = self._ROW.fullmatch(text) if number == self.seen + 1 else None
        if m is None or not self._goes_on(int(m.group(1)), text):
            self.alive = False
            self.held = []
            return []
        self.last = int(m.group(1))
        self.seen = number
        self.held.append((number, text))
        if self.seen < self.NEEDED:
            return []
        out, self.held = self.held, []
        return out

    def _goes_on(self, index: int, text: str) -> bool:
        """Whether an index follows the one before, or is the file's first again: another training was appended."""
        if self.first < 0:
            self.first = index
        anew = index == self.first and self.seen >= self.NEEDED
        return anew or index >= self.last + (not any(map(str.isalpha, text)))

    @staticmethod
    def plan(text: str) -> Plan | None:
        canonical, numbers = tokenise(text)
        if len(numbers) not in (1, 2):
            return None
        side = _side_between(canonical)
        if side not in ("", "train", "validation"):
            return None
        what = "validation_loss" if side == "validation" else "loss"
        if len(numbers) == 2:
            loss = Field(what, 1, negative="-" in canonical, name="loss")
        else:
            loss = Field(what, -1, name="loss", constant=float("nan"))
        kind = "validation" if side == "validation" else "train"
        plan = Plan("generic/two-columns", kind, canonical, (Field("iteration", 0), loss), scope="run")
        plan.series, plan.loss_kind = f"generic/two-columns{side}", LossKind.STEP
        plan.sample, plan.origin = text, "bare"
        return plan.compile()

    def to_json(self) -> dict[str, Any]:
        held = [list(h) for h in self.held]
        return {"alive": self.alive, "first": self.first, "last": self.last, "seen": self.seen, "held": held}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Bare:
        self = cls()
        self.alive, self.first = state["alive"], state["first"]
        self.last, self.seen = state["last"], state["seen"]
        self.held = [(n, t) for n, t in state["held"]]
        return self
