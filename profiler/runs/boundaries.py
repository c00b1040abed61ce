"""Rows in the order of the text -> runs.

A log may hold several runs: a job that was requeued appends to its file, a notebook trains twice. A run ends where
its counter goes back (not by another rank's late line, not because an epoch or a bar begins again), where a program
starts once more after a failure or at another size, or where the log itself says that a run begins. What stands
between two runs (a banner, a failure) is held until the next point tells whose it is; a start that dies before
its first step is a run without points.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from profiler.model import Failure, FailureKind, Run
from profiler.rules.plan import Plan, Row
from profiler.runs.at_once import joined, parted
from profiler.runs.build import build, thin
from profiler.runs.open_run import Open, Start
from profiler.runs.series import Position, Series

MAX_POINTS = 4096  #: rows kept of one series before thinning
SHARES = 4  #: series of a run that may keep so many; when there are more, they share
MAX_RUNS = 2000
CLOSED_POINTS = 12000  #: points kept of all runs that ended


class Course(StrEnum):
    """What a line that counts is to the series it belongs to."""

    GOES_ON = "goes on"
    NEW = "new"  #: the first of another run
    AGAIN = "again"  #: its counter begins again within the run: the next bar, the next epoch
    LATE = "late"  #: another rank's line, behind where the series stands


#: Asked of every line: a module's name is found faster than a class's.
GOES_ON, NEW, AGAIN, LATE = Course


class Boundaries:
    """The runs so far, and whose the text since the last point is."""

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.most = limit
        self.limit = limit  #: rows kept of each series of the open run
        self.closed: list[Run] = []
        self.open = Open(1)
        self.starts: list[Start] = []

    def new_series(self, plan: Plan, name: str = "", kind: str = "") -> Series:
        made = self.open.new_series(plan, name, kind)
        self.share()
        return made

    def share(self) -> None:
        """Divide the room for rows among the series of the open run."""
        self.limit = max(self.most * SHARES // max(len(self.open.series), SHARES), 16)

    def copy(self) -> Boundaries:
        """A copy that may be read on without changing this one."""
        new = Boundaries(self.most)
        new.limit = self.limit
        new.closed = list(self.closed)
        new.open = self.open.copy()
        new.starts = [replace(s, facts=s.facts.copy()) for s in self.starts]
        return new

    # --- what the held text says --------------------------------------------------------------------------

    @property
    def banner(self) -> int:
        """Where a program started last, and no point came since; 0: none did."""
        return max((s.line for s in self.starts if s.banner), default=0)

    @property
    def resumed(self) -> bool:
        return any(s.resumed for s in self.starts)

    @property
    def trial(self) -> bool:
        return any(s.trial for s in self.starts)

    @property
    def broken(self) -> bool:
        return any(s.fatal for s in self.starts)

    @property
    def explained(self) -> bool:
        """Whether the held text says why a counter may begin again."""
        return any(s.banner or s.resumed or s.fatal for s in self.starts)

    @property
    def header(self) -> tuple[float, float | None, int] | None:
        """The newest header of an epoch that no point followed yet: epoch, total, line."""
        starts = self.starts
        return next((s.epoch for s in reversed(starts) if s.epoch is not None), None) if starts else None

    @property
    def epoch(self) -> float | None:
        """The epoch that was announced last."""
        told = self.header or self.open.context
        return None if told is None else told[0]

    # --- whose a line is ----------------------------------------------------------------------------------

    def verdict(self, series: Series | None, plan: Plan, row: Row, own_epoch: float | None) -> Course:
        """What a line is to its series. `own_epoch`: as the line itself prints it."""
        if series is None:
            return GOES_ON
        series.settle()
        stood = series.stood(row.rank)
        if stood is None:
            return GOES_ON  # the first line of a rank
        epoch = self.epoch if own_epoch is None else own_epoch
        if self.starts and self.trial and not _ahead(stood, epoch, row.iteration):
            return self._ended(series)
        if epoch is not None and stood[0] is not None and epoch != stood[0]:
            return self._other_epoch(series, row, epoch, stood[0])
        iteration, last = row.iteration, stood[1]
        if iteration is None or last is None or iteration > last:
            return GOES_ON
        if plan.bar:
            return AGAIN if own_epoch is None and iteration < last else GOES_ON
        if iteration == last:
            return self._ended(series) if self.resumed and row.rank is None else GOES_ON
        if stood[0] is None and not self.explained and _was_full(series, last, iteration):
            return AGAIN  # before the first epoch that is told, too
        if row.rank is None and not self.explained:
            return self._fell(series, epoch, iteration, last)
        return self._ended(series)

    def _other_epoch(self, series: Series, row: Row, epoch: float, last: float) -> Course:
        if epoch > last:
            return GOES_ON
        known = last - epoch <= 1 and (epoch, row.iteration) in series.recent
        alone = series.kind == "epoch" and epoch == series.first_epoch and not self._several(series)
        if row.rank is None and known and not self.starts and not alone:
            return LATE
        return self._ended(series)

    def _fell(self, series: Series, epoch: float | None, iteration: float, last: float) -> Course:
        """Nothing between the lines says why the counter fell."""
        run = self.open
        if any(s.kind == "epoch" and s.last_line > series.last_line for s in run.series.values()):
            return AGAIN  # an epoch was summed up since
        world, several = run.facts.numbers.get("world", 1), self._several(series)
        inside = iteration > (series.first_iteration or 0) or series.ordinal < 2
        if several and inside and last - iteration <= 2 * series.interval:
            return LATE
        if world > 1 and (epoch if epoch is not None else series.passes, iteration) in series.recent:
            return LATE
        return self._ended(series)

    def _several(self, series: Series) -> bool:
        """Whether more than one process may print the lines of a series."""
        return self.open.facts.numbers.get("world", 1) > 1 or series.count > series.ordinal + 1

    def _ended(self, series: Series) -> Course:
        """Another run, where this series may end one: bare bars and timings may not."""
        if series.bar and not series.has_loss and series.last_epoch is None:
            return GOES_ON
        losing = any(s.has_loss for s in self.open.series.values() if s.kind != "validation")
        return NEW if series.has_loss or not losing or series.kind == "epoch" else GOES_ON

    # --- text between points ------------------------------------------------------------------------------

    def start(self, text: str, line: int, hard: bool = False) -> None:
        """A program starts here."""
        at = self.starts[-1] if self.starts else None
        fresh = at is None or (at.banner and at.failure is not None) or not at.banner
        stretch = self.stretch(line, new=fresh)
        stretch.banner = True
        stretch.hard = stretch.hard or hard
        stretch.facts.banners.add(text[:80])

    def failure(self, failure: Failure) -> None:
        """Something went wrong; whether it ended the run shows in what follows."""
        stretch = self.stretch(failure.line)
        known = stretch.failure
        if known is None or (known.kind is FailureKind.TRACEBACK and failure.kind is not FailureKind.TRACEBACK):
            stretch.failure = failure
        if not self.banner:
            self.open.last_line = max(self.open.last_line, failure.line)

    def stretch(self, line: int, new: bool = False) -> Start:
        if new or not self.starts:
            self.starts.append(Start(line))
            if len(self.starts) > MAX_RUNS:
                del self.starts[1 : -MAX_RUNS // 2]
        return self.starts[-1]

    # --- points -------------------------------------------------------------------------------------------

    def begin(self, new: bool, line: int, progress: bool = True) -> Open:
        """Decide whose the text since the last point is, now that a point came. `new`: it is of another run.
        `progress`: it is no validation, at which what is held stays held."""
        run = self.open
        if run.has_points and not progress:
            return run
        starts, self.starts = self.starts, []
        if not run.has_points:
            return self._first(starts, line)
        if new or _restarted(starts, run):
            return self._next(starts, line)
        return self._own(starts)

    def _own(self, starts: list[Start]) -> Open:
        """All of it is the open run's: it went on."""
        run = self.open
        for s in starts:
            run.facts.merge(s.facts)
            run.announce(s)
        return run

    def _first(self, starts: list[Start], line: int) -> Open:
        """The first point: starts before it that died are runs without points."""
        dead = [s for s in starts[:-1] if s.failure is not None and s.banner]
        for s in dead:
            self._close_dead(s)
        alive = [s for s in starts if s not in dead]
        run = self._own(alive)
        run.first_line = min((s.line for s in alive), default=line)
        return run

    def _next(self, starts: list[Start], line: int) -> Open:
        """Another run begins: what stands before the first banner is the end of the old one, the last stretch is the
        new one's, and those between that failed are runs without points."""
        tail = starts.pop(0) if starts and not starts[0].banner and starts[0].epoch is None else None
        own = starts.pop() if starts else None
        if tail is not None:
            self.open.failure = tail.failure
        self._close()
        for s in starts:
            if s.failure is not None and s.banner:
                self._close_dead(s)
        run = self.open = Open(own.line if own else line)
        self.share()
        begins = own or tail
        if begins is not None:
            run.facts.merge(begins.facts)
        if own is not None:
            run.announce(own)
        return run

    def _close(self) -> None:
        if len(self.closed) < MAX_RUNS:
            self.closed.extend(parted(build(self.open)))
            while sum(len(r.points) for r in self.closed) > CLOSED_POINTS:
                largest = max(range(len(self.closed)), key=lambda i: len(self.closed[i].points))
                self.closed[largest] = thin(self.closed[largest])

    def _close_dead(self, s: Start) -> None:
        if len(self.closed) < MAX_RUNS and s.failure is not None:
            self.closed.append(_dead(s))

    def all(self) -> list[Run]:
        """The runs so far, without ending the one being read."""
        run, starts = self.open, self.starts
        if not run.has_points:
            return joined(self.closed) + [_dead(s) for s in starts if s.failure is not None]
        tail = starts[0] if starts and not starts[0].banner else None
        if tail is not None:
            run = run.view()
            run.failure = tail.failure
            run.announce(tail)
        built = build(run)
        told = parted(built) if built.points or built.failure is not None else []
        died = [_dead(start) for start in starts if start is not tail and start.failure is not None]
        return [*joined([*self.closed, *told]), *died]


def _ahead(stood: Position, epoch: float | None, iteration: float | None) -> bool:
    """Whether a line goes on from where its series stood."""
    if epoch is not None and stood[0] is not None and epoch != stood[0]:
        return epoch > stood[0]
    if iteration is not None and stood[1] is not None:
        return iteration > stood[1]
    return epoch is None or stood[0] is None


def _was_full(series: Series, last: float, iteration: float) -> bool:
    """Whether a counter without an epoch stood at its total, or went on over it by its stride: 632/652, 648/652, 12."""
    total = series.total
    if total is None or series.first_iteration is None:
        return False
    if last >= total:
        return True
    left = total - last
    return 0 < left < series.interval and series.interval - left == iteration


def _restarted(starts: list[Start], run: Open) -> bool:
    """Whether what stands between two points says that the program was started again, though it goes forward."""
    if any(s.hard for s in starts):
        return True
    banner = next((s for s in starts if s.banner), None)
    if banner is None:
        return False
    if any(s.fatal for s in starts):
        return True
    world, before = banner.facts.numbers.get("world"), run.facts.numbers.get("world")
    if world is not None and before is not None and world != before:
        return True
    return bool(banner.facts.banners & run.facts.banners) and sum(s.count for s in run.series.values()) > 5


def _dead(s: Start) -> Run:
    assert s.failure is not None
    numbers = s.facts.numbers
    world = numbers.get("world") or (len(s.facts.ranks) or None)
    return Run(
        format=None,
        first_line=s.line,
        last_line=s.failure.line,
        points=(),
        ranks=int(world) if world else None,
        gpus=int(numbers["gpus"]) if "gpus" in numbers else None,
        failure=s.failure,
    )
