"""One counter of a run: the rows that follow it, thinned when they become too many, and how it behaved.

A series is what one kind of line says (the training bar, the validation lines, the epoch summaries). It knows
its first and last position, how often its counter started again, and whether the time it prints grows.
"""

from __future__ import annotations

from collections import Counter, deque

from profiler.plan import Plan, Row
from profiler.points import Scope, Unit

RECENT = 64  #: positions remembered to tell a repetition (another rank, a redrawn bar) from a new one
TAIL = 16  #: newest rows always kept


class Series:
    __slots__ = (
        "back_steps", "bar", "count", "epoch_restarts", "first_epoch", "first_iteration", "first_line", "first_row", "grew", "has_loss",
        "interval", "kind", "last_epoch", "last_iteration", "last_line", "last_time", "loss_positions", "name", "nan_line", "ordinal",
        "passes", "plan", "positions_of_rank", "recent", "rows", "runs_on", "shrank", "state_count", "state_stride", "states", "stride", "tail", "total",
        "total_changes", "advances", "unit", "window", "window_iteration",
    )  # fmt: skip

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
        self.total: float | None = None
        self.total_changes = 0
        self.unit: Unit | None = None
        self.advances = False  #: lines of one evaluation under way
        self.interval = 0.0  #: the newest forward step of the counter
        self.passes = 0  #: times the counter of a bar started again
        self.epoch_restarts = 0  #: times it started again as the epoch rose
        self.runs_on = 0  #: times it went on as the epoch rose
        self.back_steps = 0
        self.has_loss = False
        self.loss_positions = 0
        self.ordinal = -1  #: of the newest position
        self.stride = 1
        self.rows: list[Row] = []
        self.states: list[Row] = []  #: states of bars that later states replaced
        self.state_count = 0
        self.state_stride = 1
        self.first_row: Row | None = None
        self.tail: deque[Row] = deque(maxlen=TAIL)
        self.recent: dict[tuple[float | None, float | None], int] = {}
        self.positions_of_rank: dict[int | None, tuple[float | None, float | None]] = {}
        self.nan_line: int | None = None
        self.grew = self.shrank = 0
        self.window: float | None = None
        self.window_iteration: float | None = None
        self.last_time: float | None = None

    def place(self, epoch: float | None, iteration: float | None) -> int:
        """The ordinal of a position: a new one, or that of its repetition."""
        key = (epoch if epoch is not None else self.passes, iteration)
        recent = self.recent
        known = recent.get(key)
        if known is not None:
            return known
        self.ordinal += 1
        recent[key] = self.ordinal
        if len(recent) > RECENT:
            del recent[next(iter(recent))]
        return self.ordinal

    def add(self, row: Row, ordinal: int, limit: int) -> None:
        """Keep the row, or every so manieth position when there are too many."""
        self.count += 1
        self.last_line = row.line
        if self.first_row is None:
            self.first_row = row
            self.first_line = row.line
        self.tail.append(row)
        if row.redrawn:
            self._state(row, limit)
        elif ordinal % self.stride == 0:
            self.rows.append(row)
            row.ordinal = ordinal
            if len(self.rows) > limit:
                self.stride *= 2
                self.rows = [r for r in self.rows if r.ordinal % self.stride == 0]

    def _state(self, row: Row, limit: int) -> None:
        """A state that was replaced carries only time: every so manieth is kept."""
        self.state_count += 1
        if self.state_count % self.state_stride == 0:
            row.ordinal = self.state_count
            self.states.append(row)
            if len(self.states) > limit:
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
            self._state(last, limit)

    def kept(self) -> list[Row]:
        """The rows kept, in order, with the first and the newest."""
        seen: set[int] = set()
        out: list[Row] = []
        rows = [self.first_row, *self.states, *self.rows, *self.tail] if self.first_row else []
        for row in rows:
            if row is not None and id(row) not in seen:
                seen.add(id(row))
                out.append(row)
        out.sort(key=lambda r: (r.line, r.order))
        return out

    def copy(self, rows: dict[int, Row]) -> Series:
        """A copy that may be added to; rows that may still change are copied too (`rows`: by identity)."""
        new = Series.__new__(Series)
        for slot in Series.__slots__:
            setattr(new, slot, getattr(self, slot))
        for row in self.tail:
            if id(row) not in rows:
                rows[id(row)] = row.copy()
        new.tail = deque((rows[id(r)] for r in self.tail), maxlen=TAIL)
        new.rows = self.rows[:-TAIL] + [rows.get(id(r), r) for r in self.rows[-TAIL:]]
        new.states = self.states[:-TAIL] + [rows.get(id(r), r) for r in self.states[-TAIL:]]
        new.first_row = rows.get(id(self.first_row), self.first_row)
        new.recent = dict(self.recent)
        new.positions_of_rank = dict(self.positions_of_rank)
        return new

    @property
    def scope(self) -> Scope:
        """Where the counter counts, as it behaved; the plan's word first."""
        if self.plan.scope is not None:
            return self.plan.scope
        if self.epoch_restarts or self.passes:
            return "epoch"
        if self.runs_on:
            return "run"
        return "epoch" if self.last_epoch is not None and self.total is not None else "run"

    def time_is(self) -> str:
        """What the ambiguous word time meant here: elapsed when it only grows, the step's when it counts by ones."""
        if self.plan.time_is:
            return self.plan.time_is
        if self.grew >= 3 and self.grew >= 9 * self.shrank:
            return "elapsed"
        return "step" if self.interval == 1 else ""

    def counts_run(self, total: float | None) -> bool:
        """Whether the counter is the run's: its total is the run's total as told elsewhere."""
        return self.plan.scope is None and total is not None and self.total == total


def formats_of(rows: Counter[str]) -> str | None:
    """The rule set that read most points."""
    best: dict[str, int] = {}
    for rule, n in rows.items():
        name = rule.split("/")[0]
        best[name] = best.get(name, 0) + n
    return max(best, key=lambda k: best[k]) if best else None
