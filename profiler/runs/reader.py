"""One log, read piece by piece: bytes in, runs out.

    reader = LogReader(load())
    reader.feed(first_piece); reader.feed(second_piece)
    reader.runs()          # what a reader of the whole would say now; may be asked at any time

The answer does not depend on how the text was cut into pieces.
"""

from __future__ import annotations

import re
from dataclasses import replace

from profiler.model import Run
from profiler.rules import tables
from profiler.rules.book import RuleBook
from profiler.rules.joined.records import Records
from profiler.rules.plan import Plan
from profiler.rules.shapes import Shape, Shapes
from profiler.runs.between import without_evaluations
from profiler.runs.learner import Learner
from profiler.runs.run_reader import MAX_POINTS, Runs
from profiler.runs.sane import counting, is_list, is_silent, unnamed
from profiler.runs.series import Line
from profiler.text import envelope, failures
from profiler.text.terminal import State, Terminal
from profiler.text.tokens import PRIVATE, without_bar

_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}
_ROWS = 6  #: shapes of table rows remembered
_ALIKE = 128  #: lines of one shape taken at once; more make the collector of garbage walk over them
_LONGEST_NUMBER = 100  #: characters; the search for the end's number begins at each digit of it
_NUMBER_AT_END = re.compile(r"[-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]*)?$|[0-9.]+[eE][-+]?$")


class Way:
    """How the newest lines were read: most lines have the shape of the one before, or of the one before that."""

    __slots__ = (
        "before",
        "plan",
        "regex",
        "strip",
    )

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.regex: re.Pattern[str] | None = None
        self.plan: Plan | None = None  #: None: nothing reads such lines
        self.strip = False  #: the expression is of lines without their bar
        self.before: tuple[re.Pattern[str], Plan | None] | None = None

    def forget_in(self, table: tables.Table | None) -> None:
        """Rows of a table are not read by the way of other lines."""
        if table is not None:
            self.forget()

    def match(self, raw: bytes) -> re.Match[str] | None:
        """A line of one of these shapes, which is then the newest."""
        line = (without_bar(raw) if self.strip else raw).decode("utf-8", "replace")
        m = None
        if self.regex is not None and (self.plan is None or not self.plan.many):  # else `_alike` has tried it
            m = self.regex.fullmatch(line)
        if m is None and self.before is not None and not self.strip:
            m = self.before[0].fullmatch(line)
            if m is not None and self.regex is not None:
                (self.regex, self.plan), self.before = self.before, (self.regex, self.plan)
        return m

    def take(self, regex: re.Pattern[str], plan: Plan | None, *, strip: bool) -> None:
        """This is how the newest line was read, and no other way is known."""
        self.regex, self.plan, self.strip, self.before = regex, plan, strip, None

    def turn(self, regex: re.Pattern[str], plan: Plan | None, drawn: re.Pattern[str] | None, *, strip: bool) -> None:
        """This is how the newest line was read; lines often take turns with those before. `drawn`: an expression
        for the same lines with their bar."""
        before = None if self.regex is None or self.strip else (self.regex, self.plan)
        self.take(drawn or regex, plan, strip=strip and drawn is None)
        self.before = before


class LogReader:
    """The incremental reader of one log."""

    def __init__(self, book: RuleBook, limit: int = MAX_POINTS) -> None:
        self.book = book
        self.terminal = Terminal()
        self.runs_read = Runs(limit)
        self.bytes = 0
        self.table: tables.Table | None = None
        self.bare = tables.Bare()
        self.records = Records(book)
        self.learner = Learner(limit)
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
            if block is None:
                states = _plain(states)
            if self.records.concerns(block):
                written, states = states, self.records.joined(states)
                block = block if states is written else None
            self._shapes.block(block)
            self._read(states)
            if self.learner.open and self.runs_read.has_loss:
                self.learner.close()

    def runs(self) -> list[Run]:
        """The runs so far, the unfinished last line included where it can be trusted."""
        rest = self.terminal.rest()
        if not rest and not self.records.boxes.held:
            return self._told()
        probe = self._copy()
        if rest:
            number, raw, _ = rest[-1]
            probe._read(probe.records.joined(_plain(rest[:-1])))
            probe._read(probe.records.joined([(number, probe._trusted(envelope.plain(raw)), False)]))
        probe._read(probe.records.rest())
        return probe._told()

    def _told(self) -> list[Run]:
        """What rules and words say; where that is no training, what was learnt."""
        runs = counting([run for run in without_evaluations(self.runs_read.all()) if not is_list(run)])
        runs = [run for run in map(unnamed, runs) if not is_silent(run)]
        if not self.learner.open or any(run.points for run in runs):
            return runs
        learnt = self.learner.told()
        if learnt and runs and runs[-1].failure is not None and runs[-1].last_line > learnt[-1].last_line:
            learnt[-1] = replace(learnt[-1], failure=runs[-1].failure, last_line=runs[-1].last_line)
        return learnt or runs

    def _copy(self) -> LogReader:
        """A reader that goes on from here and leaves this one alone; it shares the shapes."""
        new = LogReader.__new__(LogReader)
        new.book, new.terminal, new.bytes = self.book, Terminal(), self.bytes
        new.runs_read = self.runs_read.copy()
        new.table, new._shapes, new._rows = self.table, self._shapes, list(self._rows)
        new.bare = tables.Bare.from_json(self.bare.to_json())
        new.records = Records.from_json(self.records.to_json(), self.book)
        new.learner = self.learner.copy()
        self._shapes.block(None)
        return new

    def _read(self, states: list[State]) -> None:
        way = Way()
        at, end = 0, len(states)
        while at < end:
            if way.regex is not None and way.plan is not None and way.plan.many:
                at = self._alike(states, at, way.regex, way.plan, way.strip)
            if at < end:
                number, raw, redrawn = states[at]
                self._other(number, raw, redrawn, way)
                at += 1

    def _alike(self, states: list[State], at: int, regex: re.Pattern[str], plan: Plan, strip: bool) -> int:
        """Take the lines from `at` on that have the shape of the line before; where the first is that has not."""
        alike: list[Line] = []
        replaced = False  # they are all states that were redrawn, or none
        end = len(states)
        while at < end:
            number, raw, redrawn = states[at]
            m = regex.fullmatch((without_bar(raw) if strip else raw).decode("utf-8", "replace"))
            if m is None:
                break
            if alike and (redrawn != replaced or len(alike) == _ALIKE):
                self.runs_read.rows(plan, alike, replaced)
                alike = []
            replaced = redrawn
            alike.append((number, m.groups()))
            at += 1
        if alike:
            self.runs_read.rows(plan, alike, replaced)
        return at

    def _other(self, number: int, raw: bytes, redrawn: bool, way: Way) -> None:
        """Take a line that is not, or not surely, like the one before."""
        if self._is_silent(raw):
            self._unread(number, raw, redrawn)
            return
        if way.regex is not None:
            m = way.match(raw)
            if m is not None:
                if way.plan is not None:
                    self.runs_read.row(way.plan, m.groups(), number, redrawn)
                else:
                    self._unread(number, raw, redrawn)
                return
        bare = without_bar(raw)
        shape = self._shapes.of(bare, bare is raw)
        if shape is None and self.table is None and not self.bare.alive:
            self._unread(number, raw, redrawn)
            return
        text = bare.decode("utf-8", "replace")
        if self.bare.alive:
            self._bare(number, text)
        if self.table is not None:
            row = self._row(number, text, redrawn, shape)
            if row is not None:
                way.take(*row, strip=bare is not raw)
                return
        if shape is None:
            self._unread(number, raw, redrawn)
            return
        hit = self._hit(shape, text, number, redrawn)
        if hit is None:
            way.forget_in(self.table)
        elif self._in_text:
            drawn = None if bare is raw else self._shapes.with_bar(hit[0])
            way.turn(*hit, drawn, strip=bare is not raw)

    def _is_silent(self, raw: bytes) -> bool:
        """Whether a line, which is no row of a table, is known to say nothing."""
        return self._in_text and self._shapes.silent(raw)

    @property
    def _in_text(self) -> bool:
        """Whether lines are neither rows of a table nor perhaps of two columns."""
        return self.table is None and not self.bare.alive

    def _hit(self, shape: Shape, text: str, number: int, redrawn: bool) -> tuple[re.Pattern[str], Plan | None] | None:
        """Read a line by the expressions of its shape: the one that knew it, or None."""
        for regex, plan in shape.hits:
            m = regex.fullmatch(text)
            if m is not None:
                if plan is not None:
                    self.runs_read.row(plan, m.groups(), number, redrawn)
                else:
                    self._unread(number, text.encode(), redrawn)
                return regex, plan
        self._slow(shape, text, number, redrawn)
        return None

    def _slow(self, shape: Shape, text: str, number: int, redrawn: bool) -> None:
        """A line whose shape has no expression yet."""
        if shape.fails:
            failure = failures.find(text, number)
            if failure is not None:
                self._before(text, number, redrawn)
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
        else:
            self._unread(number, text.encode(), redrawn)

    def _before(self, text: str, number: int, redrawn: bool) -> None:
        """The bar behind which a traceback was printed on the same line."""
        bar, glued, _ = text.partition("]Traceback (most recent call last)")
        if glued and self._in_text:
            self._other(number, f"{bar}]".encode(), redrawn, Way())

    def _unread(self, number: int, raw: bytes, redrawn: bool) -> None:
        """A line that nothing explains."""
        if self.learner.open and not redrawn:
            self.learner.take(number, raw)

    def _bare(self, number: int, text: str) -> None:
        for at, line in self.bare.take(number, text if len(text) < 80 else ""):
            plan = tables.Bare.plan(line)
            m = plan.regex().fullmatch(line) if plan is not None else None
            if plan is not None and m is not None:
                self.runs_read.row(plan, m.groups(), at, False)

    def _row(self, number: int, text: str, redrawn: bool, shape: Shape | None) -> tuple[re.Pattern[str], Plan] | None:
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
        ruled = self._shapes.plan(shape, text) if shape is not None and shape.candidates else None
        row = table.plan(text, dressed=ruled is None or ruled[0].rule.startswith("generic/"))
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


def _plain(states: list[State]) -> list[State]:
    return [(number, envelope.plain(raw), redrawn) for number, raw, redrawn in states]


def _behind_point(number: str) -> int:
    return len(number.partition(".")[2])
