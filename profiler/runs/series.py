"""One counter of a run: the rows that follow it, thinned when they become too many, and how it behaved.

A series is what one kind of line says (the training bar, the validation lines, the epoch summaries). It knows
its first and last position, how often its counter started again, and whether the time it prints grows.

Rows are kept up to a limit; then every second position goes, and from then on only every second comes in. The first
and the last position always stay. A state of a bar that was drawn again carries only time and is kept apart.

`short_way` is for the line that most lines are: the next position of the same counter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from profiler.model import Scope, Unit
from profiler.rules.plan import Plan, Row

RECENT = 64  #: positions remembered to tell a repetition (another rank, a redrawn bar) from a new one
SAME = 1024  #: rows kept of the newest position (every rank prints it)
GROWN = 1.05  #: what grows since a beginning is at last so many times its median

Position = tuple[float | None, float | None]
#: A line as it came: its number, its groups.
Line = tuple[int, Sequence[str]]
#: The newest line as it came, not yet a row: plan, groups, line, redrawn, iteration, order, time.
Pending = tuple[Plan, Sequence[str], int, bool, float | None, int, float | None]


class Series:
    __slots__ = (
        "advances",
        "aside",
        "bar",
        "count",
        "epoch_restarts",
        "epochs",
        "filled",
        "first_epoch",
        "first_iteration",
        "first_line",
        "first_row",
        "grew",
        "has_loss",
        "interval",
        "kind",
        "last_epoch",
        "last_iteration",
        "last_line",
        "loss_positions",
        "name",
        "nan_line",
        "newer",
        "ordinal",
        "passes",
        "pending",
        "plan",
        "positions_of_rank",
        "recent",
        "rows",
        "runs_on",
        "shrank",
        "state_count",
        "state_stride",
        "states",
        "steady",
        "stride",
        "tail",
        "top",
        "total",
        "total_changes",
        "unit",
        "whole",
        "window",
    )

    def __init__(self, name: str, plan: Plan) -> None:
        self.name = name
        self.plan = plan
        self.kind = plan.kind
        self.bar = plan.bar
        self.count = 0
        self.first_line = self.last_line = 0
        self.first_iteration: float | None = None
        self.last_iteration: float | None = None
        self.first_epoch: float | None = None
        self.last_epoch: float | None = None
        self.epochs: float | None = None  #: total that the newest epoch header told
        self.total: float | None = None
        self.total_changes = 0
        self.unit: Unit | None = None
        self.advances = False  #: lines of one evaluation under way
        self.interval = 0.0  #: the newest forward step of the counter
        self.passes = 0  #: times the counter of a bar started again
        self.epoch_restarts = 0  #: times it started again as the epoch rose
        self.runs_on = 0  #: times it went on as the epoch rose
        self.has_loss = False
        self.loss_positions = 0
        self.ordinal = -1  #: of the newest position
        self.stride = 1
        self.rows: list[Row] = []
        self.states: list[Row] = []  #: states of bars that later states replaced
        self.state_count = 0
        self.state_stride = 1
        self.first_row: Row | None = None
        self.tail: deque[Row] = deque(maxlen=SAME)  #: rows of the newest position
        self.recent: deque[Position] = deque(maxlen=RECENT)
        self.top: Position | None = None  #: the furthest position
        self.positions_of_rank: dict[int | None, Position] = {}
        self.nan_line: int | None = None
        self.grew = self.shrank = 0
        self.window: float | None = None
        self.pending: Pending | None = None
        self.steady: object = None  #: what stays the same from line to line, as printed: epoch, total, rank
        self.aside: Sequence[float] = ()  #: totals of shorter bars that were drawn while this one stood
        self.filled: float | None = None  #: total of the bar that stood full when a longer one was drawn first
        self.newer = 0  #: its count when a shorter bar was drawn last
        self.whole = False  #: a bar of an epoch: one position however often it is drawn

    def settle(self) -> None:
        """Make the newest line a row, before anything but `short_way` looks at the series."""
        pending = self.pending
        if pending is None:
            return
        self.pending = None
        if self.rows and self.rows[-1].order == pending[5]:
            row = self.rows[-1]
        elif self.states and self.states[-1].order == pending[5]:
            row = self.states[-1]
        else:
            row = self.row_of(pending)
        self.tail.clear()
        self.tail.append(row)
        if self.whole:
            row.redrawn = False
            if self.ordinal % self.stride == 0:
                self.keep(row)
        if row.iteration is not None:
            self.positions_of_rank[row.rank] = (self.last_epoch, row.iteration)

    def row_of(self, pending: Pending) -> Row:
        plan, groups, line, redrawn, iteration, order, time_s = pending
        row = Row(plan, groups, line, plan.rank_of(groups), time_s, redrawn)
        if time_s is None:
            row.time_s = plan.dated(groups)
        row.iteration, row.order = iteration, order
        row.epoch, row.epochs = self.last_epoch, self.epochs
        row.ordinal = self.ordinal
        return row

    # --- the long way -------------------------------------------------------------------------------------

    def advance(self, row: Row, late: bool, limit: int) -> int:
        """The counter and the epoch go on to this row's. Returns the ordinal of its position. `late`: another rank's
        line, behind where the series stands."""
        epoch, before = row.epoch, self.last_epoch
        if self.first_epoch is None:
            self.first_epoch = epoch
        if row.iteration is not None and not late:
            self._count(row.iteration, epoch)
            self.positions_of_rank[row.rank] = (epoch, row.iteration)
        if epoch is not None:
            self.last_epoch = epoch
        plan = row.plan
        self.unit = plan.unit or self.unit
        whole = plan.bar and epoch is not None  # a bar is one position, its epoch, however often it is drawn
        if whole and before == epoch and self.tail and self.tail[-1].epoch == epoch:
            self.replace_last(limit)
        row.redrawn = row.redrawn and not whole  # until the same bar is drawn again
        ordinal = self.place(epoch, None if whole else row.iteration)
        if plan.loss is not None:
            self._lose(row, ordinal, nan=plan.loss.token < 0)
        return ordinal

    def _count(self, iteration: float, epoch: float | None) -> None:
        before, before_epoch = self.last_iteration, self.last_epoch
        rose = epoch is not None and before_epoch is not None and epoch > before_epoch
        if before is None:
            self.first_iteration = iteration
        elif iteration > before:
            if self.interval == 0 or epoch == before_epoch:
                self.interval = iteration - before
            self.runs_on += rose
        else:
            self.epoch_restarts += rose
        self.last_iteration = iteration

    def _lose(self, row: Row, ordinal: int, nan: bool) -> None:
        self.has_loss = True
        if not row.redrawn:
            self.loss_positions = ordinal + 1
        if not nan:
            self.nan_line = None
        elif self.nan_line is None:
            self.nan_line = row.line

    def total_is(self, total: float, row: Row) -> None:
        """A total as this row prints it."""
        if total != self.total:
            self.total_changes += self.total is not None
            if row.plan.bar and row.epoch is None and row.plan.loss is None:
                self.first_iteration = row.iteration  # another bar than the one before
            self.total = total

    def window_is(self, value: float) -> None:
        """An ambiguous time: whether it grows tells what it is."""
        if self.window is not None:
            self.grew += value > self.window
            self.shrank += value < self.window
        self.window = value

    def stand(self, row: Row) -> int:
        """The series stands where this row says, forward or back. Returns the ordinal of its position."""
        self.last_epoch, self.last_iteration = row.epoch, row.iteration
        if self.first_epoch is None:
            self.first_epoch = row.epoch
        if self.first_iteration is None:
            self.first_iteration = row.iteration
        return self.place(row.epoch, row.iteration)

    def stood(self, rank: int | None) -> Position | None:
        """Where the series stood, for this rank; None where ranks are told apart and this one wrote nothing yet."""
        ranked = self.positions_of_rank
        if rank is not None and ranked:
            return ranked.get(rank)
        return self.last_epoch, self.last_iteration

    def place(self, epoch: float | None, iteration: float | None) -> int:
        """The ordinal of a position: a new one, or that of its repetition."""
        key = (epoch if epoch is not None else self.passes, iteration)
        if self.top is None or beyond(key, self.top):
            self.top = key
            self.ordinal += 1
            self.recent.append(key)
            return self.ordinal
        for back, known in enumerate(reversed(self.recent)):
            if known == key:
                return self.ordinal - back
        self.ordinal += 1
        self.recent.append(key)
        return self.ordinal

    def add(self, row: Row, ordinal: int, limit: int) -> None:
        """Keep the row, or every so manieth position when there are too many."""
        self.count += 1
        self.last_line = row.line
        if self.first_row is None:
            self.first_row = row
            self.first_line = row.line
        if not (self.tail and self.tail[-1].iteration == row.iteration and self.tail[-1].epoch == row.epoch):
            self.tail.clear()
        self.tail.append(row)
        if row.redrawn:
            self.keep_state(row, limit)
        elif ordinal % self.stride == 0:
            row.ordinal = ordinal
            self.keep(row, limit)

    def keep(self, row: Row, limit: int = 1 << 60) -> None:
        self.rows.append(row)
        if len(self.rows) > limit:
            self.stride *= 2
            self.rows = [r for r in self.rows if r.ordinal % self.stride == 0]
            if len(self.rows) > limit:  # many rows of few positions: every rank printed each
                self.rows = self.rows[::2]

    def keep_state(self, state: Row | Pending, limit: int) -> None:
        """A state that was replaced carries only time: every so manieth is kept."""
        self.state_count += 1
        if self.state_count % self.state_stride == 0:
            row = state if isinstance(state, Row) else self.row_of(state)
            row.redrawn = True
            row.ordinal = self.state_count
            self.states.append(row)
            if len(self.states) > limit // 4:
                self.state_stride *= 2
                self.states = [r for r in self.states if r.ordinal % self.state_stride == 0]

    def replace_last(self, limit: int) -> None:
        """The newest row is a state of a bar that was drawn again on another line."""
        last = self.tail[-1]
        if last.redrawn:
            return
        last.redrawn = True
        if self.rows and self.rows[-1] is last:
            self.rows.pop()
        self.keep_state(last, limit)

    def replace_like(self) -> None:
        """Of losses without an index of their own, printed one after the other, the newest counts: their mean was
        never printed."""
        newest = self.tail[-1]
        for row in self.tail:
            if row is not newest and row.plan.canonical == newest.plan.canonical:
                row.redrawn = True

    def kept(self) -> list[Row]:
        """The rows kept, in order, with the first and the newest."""
        self.settle()
        found = {r.order: r for r in (*self.states, *self.rows, *self.tail)}
        if self.first_row is not None:
            found.setdefault(self.first_row.order, self.first_row)
        return [found[order] for order in sorted(found)]

    def copy(self) -> Series:
        """A copy that may be added to; rows that may still change are copied too."""
        self.settle()
        new = Series.__new__(Series)
        for slot in Series.__slots__:
            setattr(new, slot, getattr(self, slot))
        rows = {id(row): row.copy() for row in self.tail}
        last = len(self.tail) + 1
        new.tail = deque((rows[id(r)] for r in self.tail), maxlen=SAME)
        new.rows = self.rows[:-last] + [rows.get(id(r), r) for r in self.rows[-last:]]
        new.states = self.states[:-last] + [rows.get(id(r), r) for r in self.states[-last:]]
        new.first_row = rows.get(id(self.first_row), self.first_row)
        new.recent = deque(self.recent, maxlen=RECENT)
        new.positions_of_rank = dict(self.positions_of_rank)
        return new

    # --- how it behaved -----------------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """Where the counter counts, as it behaved; the plan's word first."""
        if self.plan.scope is not None:
            return self.plan.scope
        if self.epoch_restarts or self.passes:
            return "epoch"
        if self.runs_on:
            return "run"
        if self.last_epoch is None or not float(self.last_epoch).is_integer():
            return "run"  # a part of an epoch is told beside it
        return "epoch" if self.total is not None else "run"

    def time_is(self) -> str:
        """What the ambiguous word time meant here: elapsed when it only grows, the step's when it counts by ones."""
        if self.plan.time_is:
            return self.plan.time_is
        if self.grew >= 3 and self.grew >= 9 * self.shrank:
            return "elapsed" if self._has_grown() else ""
        return "step" if self.interval == 1 else ""

    def _has_grown(self) -> bool:
        """Whether the largest ambiguous time is far above most: times that rise a little are each its own."""
        told = [row.plan.told(row.plan.window, row.groups) for row in self.kept()]
        times = [seconds for seconds in told if seconds is not None]
        return max(times, default=0.0) >= GROWN * median(times or [1.0])

    def counts_run(self, total: float | None) -> bool:
        """Whether the counter is the run's: its total is the run's total as told elsewhere."""
        return self.plan.scope is None and total is not None and self.total == total


def beyond(a: Position, b: Position) -> bool:
    """Whether position `a` lies after `b`; unknown parts compare as nothing."""
    if a[0] != b[0]:
        return (a[0] or 0.0) > (b[0] or 0.0)
    return (a[1] or 0.0) > (b[1] or 0.0)
