"""Rows in the order of the text -> runs.

A log may hold several runs: a job that was requeued appends to its file, a notebook trains twice. A run ends where
its counter goes back (not by another rank's late line, not because an epoch or a bar begins again), where a program
starts once more after a failure or at another size, or where the log itself says that a run begins. What stands
between two runs (a banner, a failure) is held until the next point tells whose it is; a start that dies before
its first step is a run without points.
"""

from __future__ import annotations

from profiler.model import Failure, FailureKind, Run
from profiler.rules.plan import Plan, Row
from profiler.runs.build import build, thin
from profiler.runs.open_run import Open, Start
from profiler.runs.series import Series
from profiler.text.clock import Days

MAX_POINTS = 4096  #: rows kept of one series before thinning
SHARES = 4  #: series of a run that may keep so many; when there are more, they share
MAX_RUNS = 2000
CLOSED_POINTS = 12000  #: points kept of all runs that ended
_FATAL = frozenset(FailureKind) - {FailureKind.NAN_LOSS}


class Boundaries:
    """The runs so far, and whose the text since the last point is."""

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.most = limit
        self.limit = limit  #: rows kept of each series of the open run
        self.closed: list[Run] = []
        self.open = Open(1)
        self.starts: list[Start] = []
        self.days = Days()
        self.order = 0
        self.hot: dict[str, Series] = {}  #: series whose next line may only go on
        self.late = 0  #: failures seen after the last point and mended by going on

    def _new_series(self, plan: Plan, name: str = "", kind: str = "") -> Series:
        made = self.open.new_series(plan, name, kind)
        self.share()
        return made

    def share(self) -> None:
        """Divide the room for rows among the series of the open run."""
        self.limit = max(self.most * SHARES // max(len(self.open.series), SHARES), 16)

    def _verdict(self, series: Series | None, plan: Plan, row: Row, own_epoch: float | None) -> str:
        """ "": goes on; "new": another run; "pass": a bar begins again; "late": another rank's line."""
        if series is None:
            return ""
        series.settle()
        iteration = row.iteration
        ranked = series.positions_of_rank
        if row.rank is not None and row.rank in ranked:
            last_epoch, last = ranked[row.rank]
        else:
            last_epoch, last = series.last_epoch, series.last_iteration
            if row.rank is not None and ranked:
                return ""  # the first line of a rank
        epoch = own_epoch
        header = self._header_pending()
        if epoch is None and header is not None:
            epoch = header[0]
        elif epoch is None and self.open.context is not None:
            epoch = self.open.context[0]
        if epoch is not None and last_epoch is not None and epoch != last_epoch:
            if epoch > last_epoch:
                return ""
            back = last_epoch - epoch
            if row.rank is None and back <= 1 and (epoch, iteration) in series.recent and not self.starts:
                return "late"
            return "new" if self._splits(series) else ""
        if iteration is None or last is None or iteration > last:
            return ""
        if iteration == last:
            return "new" if self._resumed() and row.rank is None and self._splits(series) and not plan.bar else ""
        if plan.bar:
            return "pass" if own_epoch is None else ""
        if (
            epoch is None
            and series.total is not None
            and last >= series.total
            and not self.starts
            and series.first_iteration is not None
        ):
            return "pass"
        if row.rank is None and not self._banner() and not self._broken() and not self._resumed():
            drop = last - iteration
            if any(s.kind == "epoch" and s.last_line > series.last_line for s in self.open.series.values()):
                return "pass"  # an epoch was summed up since
            world = self.open.facts.numbers.get("world", 1)
            several = world > 1 or series.count > series.ordinal + 1
            inside = iteration > (series.first_iteration or 0) or series.ordinal < 2
            if several and inside and drop <= 2 * series.interval:
                return "late"
            if world > 1 and (epoch if epoch is not None else series.passes, iteration) in series.recent:
                return "late"
        return "new" if self._splits(series) else ""

    def _splits(self, series: Series) -> bool:
        """Whether this series may end a run: bare bars and timings may not."""
        if series.bar and not series.has_loss and series.last_epoch is None:
            return False
        losing = any(s.has_loss for s in self.open.series.values() if s.kind != "validation")
        return series.has_loss or not losing or series.kind == "epoch"

    def _banner(self) -> bool:
        return any(s.banner for s in self.starts)

    def _resumed(self) -> bool:
        return any(s.resumed for s in self.starts)

    def _broken(self) -> bool:
        return any(s.failure is not None and s.failure.kind in _FATAL for s in self.starts)

    def _header_pending(self) -> tuple[float, float | None, int] | None:
        for s in reversed(self.starts):
            if s.epoch is not None:
                return s.epoch
        return None

    def start(self, text: str, line: int, hard: bool = False) -> None:
        """A program starts here."""
        at = self.starts[-1] if self.starts else None
        fresh = at is None or (at.banner and at.failure is not None) or not at.banner
        stretch = self._stretch(line, new=fresh)
        stretch.banner = True
        stretch.hard = stretch.hard or hard
        stretch.facts.banners.add(text[:80])

    def failure(self, failure: Failure) -> None:
        """Something went wrong; whether it ended the run shows in what follows."""
        stretch = self._stretch(failure.line)
        known = stretch.failure
        if known is None or (known.kind is FailureKind.TRACEBACK and failure.kind is not FailureKind.TRACEBACK):
            stretch.failure = failure
        if not stretch.banner and not any(s.banner for s in self.starts):
            self.open.last_line = max(self.open.last_line, failure.line)

    def _stretch(self, line: int, new: bool = False) -> Start:
        if new or not self.starts:
            self.starts.append(Start(line))
            if len(self.starts) > MAX_RUNS:
                del self.starts[1 : -MAX_RUNS // 2]
        return self.starts[-1]

    def _begin(self, new: bool, line: int, rank: int | None, progress: bool = True) -> Open:
        """Decide whose the text since the last point is, now that a point came."""
        starts, run = self.starts, self.open
        self.hot.clear()
        had_points = run.has_points
        if not progress and had_points:
            # a validation point: what was held stays held, except an epoch header
            return run
        self.starts = []
        if had_points and not new:
            new = self._restarted(starts, run)
        if not had_points or not new:
            dead = [s for s in starts[:-1] if s.failure is not None and s.banner] if not had_points else []
            for s in dead:
                self._close_dead(s)
            for s in starts:
                if s in dead:
                    continue
                run.facts.merge(s.facts)
                self._header(run, s)
                if s.failure is not None and s.failure.kind in _FATAL:
                    self.late += 1
            if not had_points:
                run.first_line = min((s.line for s in starts if s not in dead), default=line)
            return run
        # the stretch before the first banner is the end of the old run
        tail = starts[0] if starts and not starts[0].banner and starts[0].epoch is None else None
        own = starts[-1] if starts and starts[-1] is not tail else None
        if tail is not None:
            run.failure = tail.failure
        middle = [s for s in starts if s is not tail and s is not own]
        self._close()
        for s in middle:
            if s.failure is not None and s.banner:
                self._close_dead(s)
        run = self.open = Open(own.line if own else line)
        self.share()
        if tail is not None and own is None:
            run.facts.merge(tail.facts)
        if own is not None:
            run.facts.merge(own.facts)
            self._header(run, own)
        return run

    @staticmethod
    def _header(run: Open, s: Start) -> None:
        if s.epoch is not None:
            run.context = (s.epoch[0], s.epoch[1])
            run.header_line = s.epoch[2]
            run.header_time, run.header_rule = s.epoch_time, s.epoch_rule
            run.last_line = max(run.last_line, s.epoch[2])

    def _restarted(self, starts: list[Start], run: Open) -> bool:
        """Whether what stands between two points says that the program was started again, though it goes forward."""
        banner = None
        for s in starts:
            if s.hard:
                return True
            if s.banner and banner is None:
                banner = s
        if banner is None:
            return False
        if any(s.failure is not None and s.failure.kind in _FATAL for s in starts):
            return True
        world, before = banner.facts.numbers.get("world"), run.facts.numbers.get("world")
        if world is not None and before is not None and world != before:
            return True
        return bool(banner.facts.banners & run.facts.banners) and sum(s.count for s in run.series.values()) > 5

    def _close(self) -> None:
        if len(self.closed) < MAX_RUNS:
            self.closed.append(build(self.open))
            while sum(len(r.points) for r in self.closed) > CLOSED_POINTS:
                largest = max(range(len(self.closed)), key=lambda i: len(self.closed[i].points))
                self.closed[largest] = thin(self.closed[largest])

    def _close_dead(self, s: Start) -> None:
        if len(self.closed) < MAX_RUNS and s.failure is not None:
            self.closed.append(_dead(s))

    def all(self) -> list[Run]:
        """The runs so far, without ending the one being read."""
        out = list(self.closed)
        run, starts = self.open, self.starts
        if not run.has_points:
            return out + [_dead(s) for s in starts if s.failure is not None]
        tail = starts[0] if starts and not starts[0].banner else None
        held = (run.facts, run.context, run.failure, run.last_line)
        header = (run.header_line, run.header_time, run.header_rule)
        if tail is not None:
            run.failure = tail.failure
            if tail.epoch is not None:
                self._header(run, tail)
        built = build(run)
        run.facts, run.context, run.failure, run.last_line = held
        run.header_line, run.header_time, run.header_rule = header
        if built.points or built.failure is not None:
            out.append(built)
        return out + [_dead(s) for s in starts if s is not tail and s.failure is not None]


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
