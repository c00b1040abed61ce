"""Text in columns under a header: cells by name, each error by line and column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice

from horae.sim.traces.lines import Line, TraceLines
from horae.sim.traces.malformed import ROW, Malformed
from policy.bounds import MOST_GPUS, MOST_S

#: As people and programs write one.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
#: What may stand around a value. (Other white space that Unicode knows is damage.)
BLANKS = " \t\r"
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


#: Rows of a form without a header that may be damaged before one is not, so that its width is known.
FIRST_ROWS = 100
_EPOCH = datetime(1970, 1, 1)
_NO_TIME = frozenset({"", "unknown", "none", "null", "nan", "nat"})


def moment(text: str) -> float | None:
    """`2017-10-09 07:01:55` (no zone: taken as it stands), `...T07:01:55`, or seconds since 1970. Raises ValueError.

    Before 1970 there was no cluster: such a time is none.
    """
    if text.lower() in _NO_TIME:
        return None
    if text.isdigit() and text.isascii():
        value = float(text)
        if value > MOST_S:
            raise ValueError(text)
        return value
    if ":" not in text:
        raise ValueError(text)  # a day alone: what was cut off it is not midnight
    at = datetime.fromisoformat(text)
    since_s = (at - _EPOCH).total_seconds() if at.tzinfo is None else at.timestamp()
    if since_s < 0:
        raise ValueError(text)
    return since_s


class Cells:
    """One row. Every accessor raises Malformed, which names the column."""

    __slots__ = ("_index", "_values", "line", "path", "text", "whole")

    def __init__(self, path: object, line: Line, values: Sequence[str], index: Mapping[str, int]) -> None:
        self.path, self.line, self.text, self.whole = path, line.number, line.text, line.whole
        self._values, self._index = values, index

    def has(self, name: str) -> bool:
        """Whether the column exists and this row says something in it."""
        return name in self._index and bool(self._values[self._index[name]].strip(BLANKS))

    def cell(self, name: str) -> str:
        """As it stands; the column must be there."""
        return self._values[self._index[name]]

    def word(self, name: str, default: str | None = None) -> str:
        value = self._values[self._index[name]].strip(BLANKS) if name in self._index else ""
        if value:
            return value
        if default is None:
            raise self.wrong(name, "is empty", "''")
        return default

    def number(self, name: str, *, least: float = 0.0, most: float = MOST_S) -> float:
        text = self.word(name)
        if not NUMBER.fullmatch(text):
            raise self.wrong(name, "is no number", text)
        value = float(text)
        if not value >= least:
            raise self.wrong(name, "is negative" if least == 0 else f"is below {least:g}", text)
        if not value <= most:
            raise self.wrong(name, f"is above {most:g}", text)
        return value + 0.0  # no negative zero

    def count(self, name: str, *, least: int = 1, most: int = MOST_GPUS) -> int:
        """A whole number; `4.0`, which programs write where a column has gaps, is 4."""
        value = self.number(name, least=least, most=most)
        if value != int(value):
            raise self.wrong(name, "is no whole number", self.word(name))
        return int(value)

    def moment(self, name: str) -> float | None:
        """Seconds since 1970 of a time as clusters print it; None where there is none yet."""
        text = self.word(name, "")
        try:
            return moment(text)
        except ValueError:
            raise self.wrong(name, "is no time", text) from None

    def wrong(self, name: str, what: str, value: object) -> Malformed:
        return Malformed(self.path, self.line, name, what, value, remedy=ROW)


class Table:
    """Rows under a header of names, or under `names` where the form has no header."""

    def __init__(
        self,
        lines: TraceLines,
        *,
        separator: str | None = ",",
        names: Mapping[int, Sequence[str]] | None = None,
        needed: Sequence[str] = (),
        fold_case: bool = False,
        comment: str = "",
        by_hand: bool = False,
    ) -> None:
        """`separator` None: blanks. `names`: of a form without a header, by the number of fields that its rows may
        have: the first row that has one of them says which. `comment`: what begins a line that is none, which counts as
        header. `by_hand`: where the last line lacks its end, as people leave it,
        that is told and the line is read; what programs write has one, unless it was cut. Raises Malformed for a
        header that lacks what is `needed`.
        """
        self.lines, self.separator = lines, separator
        self._fold, self._comment, self._by_hand = fold_case, comment, by_hand
        self._iterator = iter(lines)
        lines.separator = separator
        #: The header as it stands in the file, None where it has none.
        self.header: str | None = None
        self._named = names is None
        found = self._of_header() if names is None else self._of_rows(names)
        #: Folded to lower case where the form is read so; `lines.names` has them as they stand.
        self.names = tuple(found)
        if not self._named:
            lines.names = self.names
        self.index = {name: position for position, name in enumerate(self.names)}
        for name in needed:
            self.need(name)

    def need(self, name: str) -> None:
        """Raises Malformed where the header lacks the column."""
        if name not in self.index:
            what = "the header lacks this column, it has"
            raise Malformed(self.lines.path, 1, name, what, ", ".join(self.names))

    def _of_header(self) -> Sequence[str]:
        first = self._first()
        self.header = first.text
        return self._names(first)

    def _of_rows(self, names: Mapping[int, Sequence[str]]) -> Sequence[str]:
        """Those of the first row that is one of the form; of any, where none is."""
        first, comments = self._first(), list[str]()
        while self._comment and first.text.startswith(self._comment):
            comments.append(first.text)
            first = self._first()
        if comments:
            self.header = "\n".join(comments)
        looked_at = [first, *islice(self._iterator, FIRST_ROWS)]
        self._iterator = chain(looked_at, self._iterator)
        widths = (self._width(line) for line in looked_at)
        return names[next((width for width in widths if width in names), min(names))]

    def _width(self, line: Line) -> int:
        try:
            return len(self._split(line))
        except Malformed:
            return 0  # it is told when the row is read

    def _first(self) -> Line:
        """A header that is malformed is raised even where rows may be: nothing can be read without it."""
        skip = self.lines.skip_bad
        self.lines.skip_bad = skip and not self._named
        try:
            first = next(self._iterator, None)
        finally:
            self.lines.skip_bad = skip
        if first is None:
            raise Malformed(self.lines.path, 1, "header", "the file is empty", "''")
        if not first.whole and "\r" in first.text.removesuffix("\r"):
            what = "its lines end with carriage returns alone, where newlines belong"
            raise Malformed(self.lines.path, 1, "header", what, first.text)
        return first

    def _names(self, first: Line) -> list[str]:
        names = [n.strip() for n in self._split(first)]
        self.lines.names = names
        if self._fold:
            names = [n.lower() for n in names]
        if len(names) == 1 and self.separator is not None:
            other = max(_SEPARATORS, key=first.text.count)
            if other != self.separator and other in first.text:
                raise Malformed(
                    self.lines.path, 1, "header", f"the separator is {_SEPARATORS[self.separator]}, here", first.text
                )
        for position, name in enumerate(names):
            if name and name in names[:position]:
                raise Malformed(self.lines.path, 1, name, "the header has this column twice", first.text)
        return names

    def __iter__(self) -> Iterator[Cells]:
        """Empty lines are passed over; a row with another number of fields is malformed."""
        width = len(self.names)
        for line in self._iterator:
            if not line.text.strip() or (self._comment and line.text.startswith(self._comment)):
                continue
            try:
                values = self._split(line)
                if len(values) != width:
                    raise self._uneven(line, len(values))
                if not line.whole:
                    self._without_end(line)
            except Malformed as bad:
                self.lines.refuse(bad)
                continue
            yield Cells(self.lines.path, line, values, self.index)

    def _split(self, line: Line) -> list[str]:
        text = line.text.removesuffix("\r")
        if self.separator is None:
            return [word for word in text.replace("\t", " ").split(" ") if word]
        if '"' not in text or self.separator == "|":
            return text.split(self.separator)
        try:
            return next(csv.reader([text], delimiter=self.separator, strict=True))
        except csv.Error as error:
            raise Malformed(self.lines.path, line.number, "line", f"quotes do not match ({error})", text) from None

    def _uneven(self, line: Line, fields: int) -> Malformed:
        width = len(self.names)
        column = self.lines.names[fields] if fields < width else f"field {width + 1}"
        whose = "the header" if self._named else "a row of this form"
        what = f"{fields} field{'s' if fields != 1 else ''}, {whose} has {width}"
        for other, name in _SEPARATORS.items():
            if self.separator and other != self.separator and fields < width <= line.text.count(other) + fields:
                what += f" (separated by {name}?)"
                break
        else:
            if fields < width and not line.whole:
                what += " (the file is cut)"
        return Malformed(self.lines.path, line.number, column or f"field {fields + 1}", what, line.text, remedy=ROW)

    def _without_end(self, line: Line) -> None:
        """Raises Malformed where only a cut leaves a line so."""
        *_, before, last = self.lines.names
        what = "the last line has no end: the dump is cut, or its newline is missing"
        bad = Malformed(self.lines.path, line.number, last or before, what, line.text, remedy=ROW)
        if not self._by_hand:
            raise bad
        self.lines.doubt(bad)
