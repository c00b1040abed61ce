"""One log, read piece by piece: bytes in, runs out.

    reader = LogReader(load())
    reader.feed(first_piece); reader.feed(second_piece)
    reader.runs()          # what a reader of the whole would say now; may be asked at any time

The answer does not depend on how the text was cut into pieces.
"""

from __future__ import annotations

import re

from profiler.model import Run
from profiler.rules import tables
from profiler.rules.book import RuleBook
from profiler.rules.plan import Plan
from profiler.rules.shapes import Shape, Shapes
from profiler.runs.run_reader import MAX_POINTS, Runs
from profiler.runs.series import Line
from profiler.text import envelope, failures
from profiler.text.terminal import State, Terminal
from profiler.text.tokens import PRIVATE, without_bar

_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}
_ROWS = 6  #: shapes of table rows remembered
_ALIKE = 128  #: lines of one shape taken at once; more make the collector of garbage walk over them
_LONGEST_NUMBER = 100  #: characters; the search for the end's number begins at each digit of it
_NUMBER_AT_END = re.compile(r"[-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]*)?$|[0-9.]+[eE][-+]?$")


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
        self._shapes = Shapes(book)

    @property
    def lines(self) -> int:
        """Lines seen, with an unfinished one."""
        rest = self.terminal.rest()
        return rest[-1][0] if rest else self.terminal.line - 1

    def feed(self, data: bytes) -> None:
        """Read the next piece of the log."""
        self.bytes += len(data)
        states = self.terminal.feed(data)
        if states:
            block = self.terminal.block
            if block is not None and envelope.wrapped(block):
                block = None
            self._shapes.block(block)
            if block is None:
                states = [(number, envelope.plain(raw), redrawn) for number, raw, redrawn in states]
            self._read(states)

    def runs(self) -> list[Run]:
        """The runs so far, the unfinished last line included where it can be trusted."""
        rest = self.terminal.rest()
        if not rest:
            return self.runs_read.all()
        probe = self._copy()
        number, raw, _ = rest[-1]
        probe._read([(n, envelope.plain(r), redrawn) for n, r, redrawn in rest[:-1]])
        probe._read([(number, probe._trusted(envelope.plain(raw)), False)])
        return probe.runs_read.all()

    def _copy(self) -> LogReader:
        """A reader that goes on from here and leaves this one alone; it shares the shapes."""
        new = LogReader.__new__(LogReader)
        new.book, new.terminal, new.bytes = self.book, Terminal(), self.bytes
        new.runs_read = self.runs_read.copy()
        new.table, new._shapes, new._rows = self.table, self._shapes, list(self._rows)
        new.bare = tables.Bare.from_json(self.bare.to_json())
        self._shapes.block(None)
        return new

    def _read(self, states: list[State]) -> None:
        take = self.runs_read.row
        alike: list[Line] = []  # lines of the shape of the line before, not taken yet,
        replaced = False  # which are all states that were redrawn, or none
        shapes = self._shapes
        bare = self.bare
        quick: re.Pattern[str] | None = None  # the shape of the line before
        quick_plan: Plan | None = None
        strip = False  # that shape is one without its bar
        before: tuple[re.Pattern[str], Plan | None] | None = None  # the shape before that: lines often take turns
        for number, raw, redrawn in states:
            if quick is not None:
                if strip:
                    raw = without_bar(raw)  # noqa: PLW2901
                line = raw.decode("utf-8", "replace")
                m = quick.fullmatch(line)
                if m is not None and quick_plan is not None and quick_plan.many:
                    if redrawn != replaced:
                        if alike:
                            self.runs_read.rows(quick_plan, alike, replaced)
                            alike = []
                        replaced = redrawn
                    alike.append((number, m.groups()))
                    if len(alike) == _ALIKE:
                        self.runs_read.rows(quick_plan, alike, replaced)
                        alike = []
                    continue
                if alike and quick_plan is not None:
                    self.runs_read.rows(quick_plan, alike, replaced)
                    alike = []
                if m is None and before is not None and not strip:
                    m = before[0].fullmatch(line)
                    if m is not None:
                        (quick, quick_plan), before = before, (quick, quick_plan)
                if m is not None:
                    if quick_plan is not None:
                        take(quick_plan, m.groups(), number, redrawn)
                    continue
            bare_line = without_bar(raw)
            shape = shapes.of(bare_line, bare_line is raw)
            if shape is None and self.table is None and not bare.alive:
                continue
            text = bare_line.decode("utf-8", "replace")
            if bare.alive:
                self._bare(number, text)
            if self.table is not None:
                row = self._row(number, text, redrawn)
                if row is not None:
                    quick, quick_plan = row
                    before = None
                    strip = bare_line is not raw or strip
                    continue
            if shape is None:
                continue
            for regex, plan in shape.hits:
                m = regex.fullmatch(text)
                if m is not None:
                    if plan is not None:
                        take(plan, m.groups(), number, redrawn)
                    if self.table is None:
                        if quick is not None:
                            before = None if strip else (quick, quick_plan)
                        quick, quick_plan, strip = regex, plan, bare_line is not raw or strip
                        if strip and (drawn := shapes.with_bar(regex)) is not None:
                            quick, strip = drawn, False
                    break
            else:
                self._slow(shape, text, number, redrawn)
                if self.table is not None:
                    quick = before = None
        if alike and quick_plan is not None:
            self.runs_read.rows(quick_plan, alike, replaced)

    def _slow(self, shape: Shape, text: str, number: int, redrawn: bool) -> None:
        """A line whose shape has no expression yet."""
        if shape.fails:
            failure = failures.find(text, number)
            if failure is not None:
                self.runs_read.failure(failure)
                return
        if shape.heads:
            table = tables.head(text)
            if table is not None:
                self.table, self._rows = table, []
                return
        planned = self._shapes.plan(shape, text)
        if planned is not None:
            self.runs_read.row(*planned, number, redrawn)

    def _bare(self, number: int, text: str) -> None:
        for at, line in self.bare.take(number, text if len(text) < 80 else ""):
            plan = tables.Bare.plan(line)
            m = plan.regex().fullmatch(line) if plan is not None else None
            if plan is not None and m is not None:
                self.runs_read.row(plan, m.groups(), at, False)

    def _row(self, number: int, text: str, redrawn: bool) -> tuple[re.Pattern[str], Plan] | None:
        """Read a row of the table whose head came before: how it was read, or None when the line is none."""
        for regex, plan in self._rows:
            m = regex.fullmatch(text)
            if m is not None:
                self.runs_read.row(plan, m.groups(), number, redrawn)
                return regex, plan
        table = self.table
        if table is None or len(text) > tables.LONGEST_HEAD or len(table.cells(text)) != len(table.columns):
            return None
        text = text.translate(_SCRUB)
        row = table.plan(text)
        if row is None:
            return None
        made = row.regex()
        m = made.fullmatch(text)
        if m is None:
            return None
        if len(self._rows) < _ROWS:
            self._rows.append((made, row))
        self.runs_read.row(row, m.groups(), number, redrawn)
        return made, row

    def _trusted(self, raw: bytes) -> bytes:
        """An unfinished line without a number at its end that was cut in half.

        The number is believed when it has as many digits behind the point (as many in all, without a point) as the
        same number had on the line before.
        """
        text = raw.decode("utf-8", "replace")
        end = _NUMBER_AT_END.search(text, max(len(text) - _LONGEST_NUMBER, 0))
        if end is None:
            return raw
        shape = self._shapes.of(without_bar(raw))
        planned = self._shapes.plan(shape, text) if shape is not None else None
        if planned is None:
            return raw
        plan, groups = planned
        before = self.runs_read.last_groups(plan)
        if not groups or groups[-1] != end.group().lstrip("+-") or not before:
            return raw
        whole = _behind_point(groups[-1]) >= _behind_point(before[-1])
        if "." not in before[-1]:
            whole = len(groups[-1]) >= len(before[-1])
        return raw if whole else raw[: len(text[: end.start()].encode())]


def _behind_point(number: str) -> int:
    return len(number.partition(".")[2])
