"""One log, read piece by piece: bytes in, runs out.

    reader = LogReader(load())
    reader.feed(first_piece); reader.feed(second_piece)
    reader.runs()          # what a reader of the whole would say now; may be asked at any time

The answer does not depend on how the text was cut into pieces. The plans of line shapes are only a cache.
"""

from __future__ import annotations

import re
from typing import Any

from profiler import failures, tables
from profiler.plan import Plan
from profiler.points import Run
from profiler.rules import Rule, RuleBook
from profiler.runs import MAX_POINTS, Runs
from profiler.terminal import State, Terminal
from profiler.tokens import PRIVATE, matcher, tokenise, without_bar

_DIGITS = b"0123456789"
_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}
LONGEST = 16384  #: bytes of a line that are read; a training line is shorter
_CACHE = 8192  #: shapes remembered
_CACHED_KEY = 600
_HITS = 6  #: plans tried for lines that are equal but for their digits


class _Shape:
    """What is known of lines that are equal but for their digits."""

    __slots__ = ("candidates", "fails", "generic", "heads", "hits", "misses")

    def __init__(self, candidates: list[Rule], generic: bool, fails: bool, heads: bool) -> None:
        self.candidates = candidates
        self.generic = generic
        self.fails = fails
        self.heads = heads
        self.misses = 0
        #: (expression for a shape, its plan or None when nothing reads it)
        self.hits: list[tuple[re.Pattern[str], Plan | None]] = []


class LogReader:
    """The incremental reader of one log."""

    def __init__(self, book: RuleBook, limit: int = MAX_POINTS) -> None:
        self.book = book
        self.terminal = Terminal()
        self.runs_read = Runs(limit)
        self.bytes = 0
        self.table: tables.Table | None = None
        self.bare = tables.Bare()
        self._rows: list[tuple[re.Pattern[str], Plan]] = []
        self._shapes: dict[bytes, _Shape | None] = {}

    @property
    def lines(self) -> int:
        """Lines seen, with an unfinished one."""
        return self.terminal.line - (0 if self.terminal.rest() else 1)

    def feed(self, data: bytes) -> None:
        """Read the next piece of the log."""
        self.bytes += len(data)
        self._read(self.terminal.feed(data), self.runs_read)

    def _copy(self) -> LogReader:
        """A reader that goes on from here and leaves this one alone; it shares the shapes."""
        new = LogReader(self.book)
        new.runs_read = self.runs_read.copy()
        new.table, new._shapes, new._rows = self.table, self._shapes, list(self._rows)
        new.bare = tables.Bare.from_json(self.bare.to_json())
        return new

    def runs(self) -> list[Run]:
        """The runs so far, the unfinished last line included where it can be trusted."""
        rest = self.terminal.rest()
        if not rest:
            return self.runs_read.all()
        probe = self._copy()
        number, text, _ = rest[-1]
        probe._read([*rest[:-1], (number, _trusted(text), False)], probe.runs_read)
        return probe.runs_read.all()

    def _read(self, states: list[State], runs: Runs) -> None:
        shapes = self._shapes
        take = runs.row
        bare = self.bare
        for number, raw, redrawn in states:
            if b"\xe2" in raw or b"%|" in raw or b"[=" in raw or b"[." in raw or b"[>" in raw:
                raw = without_bar(raw)
            if bare.alive:
                self._bare(number, raw, runs)
            key = raw.translate(None, _DIGITS)
            shape = shapes.get(key, shapes)
            if shape is shapes:
                shape = self._shape(key, raw)
            if self.table is not None and self._row(number, raw, redrawn, runs):
                continue
            if shape is None:
                continue
            text = raw.decode("utf-8", "replace")
            for regex, plan in shape.hits:
                m = regex.fullmatch(text)
                if m is not None:
                    if plan is not None:
                        take(plan, m.groups(), number, redrawn)
                    break
            else:
                self._slow(shape, text, number, redrawn, runs)

    def _bare(self, number: int, raw: bytes, runs: Runs) -> None:
        for at, text in self.bare.take(number, raw.decode("utf-8", "replace") if len(raw) < 80 else ""):
            plan = tables.Bare.plan(text)
            m = plan.regex.fullmatch(text) if plan is not None else None
            if plan is not None and m is not None:
                runs.row(plan, m.groups(), at, False)

    def _row(self, number: int, raw: bytes, redrawn: bool, runs: Runs) -> bool:
        """Read a row of the table whose head came before; False when the line is none."""
        assert self.table is not None
        text = raw.decode("utf-8", "replace")
        for regex, plan in self._rows:
            m = regex.fullmatch(text)
            if m is not None:
                runs.row(plan, m.groups(), number, redrawn)
                return True
        if len(raw) > tables.LONGEST_HEAD or len(self.table.cells(text)) != len(self.table.columns):
            return False
        plan = self.table.plan(text.translate(_SCRUB))
        m = plan.regex.fullmatch(text.translate(_SCRUB)) if plan is not None else None
        if plan is None or m is None:
            return False
        if len(self._rows) < _HITS:
            self._rows.append((plan.regex, plan))
        runs.row(plan, m.groups(), number, redrawn)
        return True

    def _shape(self, key: bytes, raw: bytes) -> _Shape | None:
        shapes = self._shapes
        shape: _Shape | None = None
        if len(raw) <= LONGEST:
            candidates = self.book.candidates(key)
            numeric = len(key) < len(raw) or b"nan" in key.lower()
            generic = numeric and self.book.triggers(key)
            fails = failures.suspects(key)
            heads = tables.may_be_head(key)
            if candidates or generic or fails or heads:
                shape = _Shape(candidates, generic, fails, heads)
        if len(key) <= _CACHED_KEY:
            if len(shapes) >= _CACHE:
                shapes.clear()
            shapes[key] = shape
        return shape

    def _slow(self, shape: _Shape, text: str, number: int, redrawn: bool, runs: Runs) -> None:
        if shape.fails:
            failure = failures.find(text, number)
            if failure is not None:
                runs.failure(failure)
                return
        if shape.heads:
            table = tables.head(text)
            if table is not None:
                self.table, self._rows = table, []
                return
        if not shape.candidates and not shape.generic:
            return
        text = text.translate(_SCRUB)
        plan = self.book.plan(text, shape.candidates, shape.generic)
        if plan is None:
            shape.misses += 1
            if shape.misses > 1 and len(shape.hits) < _HITS and not shape.fails and not shape.heads:
                shape.hits.append((matcher(tokenise(text)[0], set()), None))
            return
        if len(shape.hits) < _HITS:
            shape.hits.append((plan.regex, plan))
        m = plan.regex.fullmatch(text)
        if m is not None:
            runs.row(plan, m.groups(), number, redrawn)


_TRAILING = re.compile(rb"[\d.,eE+-]+$")


def _trusted(text: bytes) -> bytes:
    """An unfinished line without a number at its end that may be cut in half."""
    return text
