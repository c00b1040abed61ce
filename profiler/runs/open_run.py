"""A run being read, and the text since its last point whose owner is not known yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler.model import Failure, FailureKind
from profiler.rules.plan import Plan
from profiler.runs.series import Series

_FATAL = frozenset(FailureKind) - {FailureKind.NAN_LOSS}
_TOTALS = frozenset(("iterations", "counted_to", "epochs"))
#: A total that rises as the run goes on is of what was done so far: `sane` tells none.
RISING = float("inf")
MAX_SERIES = 64  #: sorts of lines told apart in one run


@dataclass(slots=True)
class Facts:
    """What a run says of itself outside its points."""

    numbers: dict[str, float] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    banners: set[str] = field(default_factory=set)

    def copy(self) -> Facts:
        return Facts(dict(self.numbers), set(self.ranks), set(self.banners))

    def merge(self, other: Facts) -> None:
        for what, value in other.numbers.items():
            self.numbers[what] = _newer(what, self.numbers.get(what, value), value)
        self.ranks |= other.ranks
        self.banners |= other.banners


def _newer(what: str, before: float, value: float) -> float:
    """What a fact is that was told again."""
    if what == "world":
        return max(value, before)
    return RISING if what in _TOTALS and (value > before or before == RISING) else value


@dataclass(slots=True)
class Start:
    """A stretch of text from one program start to the next, as long as no point came."""

    line: int
    hard: bool = False  #: the log says that a run begins here
    banner: bool = False  #: a start line was seen; else the stretch only follows the last point
    resumed: bool = False  #: a checkpoint was read: the counter may stand where it stood then
    trial: bool = False  #: one of several trainings began or ended: the counter may begin again
    facts: Facts = field(default_factory=Facts)
    failure: Failure | None = None
    epoch: tuple[float, float | None, int] | None = None  #: an epoch header: epoch, total, line
    epoch_time: float | None = None  #: the stamp of that header
    epoch_rule: str = ""

    @property
    def is_bare_banner(self) -> bool:
        """A program started, and nothing followed yet."""
        return self.banner and self.epoch is None and self.failure is None

    @property
    def fatal(self) -> bool:
        """Whether a failure is told that a program does not outlive."""
        return self.failure is not None and self.failure.kind in _FATAL


class Open:
    """The run being read."""

    __slots__ = (
        "announced",
        "below",
        "context",
        "done_epoch",
        "early",
        "evaluating",
        "facts",
        "failure",
        "first_line",
        "header_line",
        "header_rule",
        "header_time",
        "last_line",
        "over",
        "position",
        "position_line",
        "series",
    )

    def __init__(self, line: int) -> None:
        self.first_line = self.last_line = line
        self.series: dict[str, Series] = {}
        self.facts = Facts()
        self.failure: Failure | None = None
        self.context: tuple[float, float | None] | None = None  #: epoch and total from the newest header
        self.header_line = 0
        self.header_time: float | None = None
        self.header_rule = ""
        self.done_epoch = 0  #: line of the newest bar that was complete
        self.position: tuple[float | None, float | None] = (None, None)  #: epoch, iteration of the newest train point
        self.position_line = 0
        self.announced: tuple[float | None, float, int] | None = None  #: a counter on a line of its own
        self.early: tuple[str, int] | None = None  #: a loss before any counter: its canonical line, and where
        self.evaluating = False  #: words said that an evaluation begins, and training has not gone on
        self.over = False  #: a line said that its training came to an end
        self.below = 0  #: lines from there to the first counter

    @property
    def has_points(self) -> bool:
        return bool(self.series)

    @property
    def is_done(self) -> bool:
        """Whether a bar was complete, and no epoch was announced since."""
        return 0 < self.done_epoch >= self.header_line

    @property
    def evaluated(self) -> bool:
        """Whether the newest line was of an evaluation."""
        return any(s.kind == "validation" and s.last_line == self.last_line for s in self.series.values())

    def first_epoch(self, default: float) -> float:
        """The lowest epoch that any series began with."""
        return min((s.first_epoch for s in self.series.values() if s.first_epoch is not None), default=default)

    def new_series(self, plan: Plan, name: str = "", kind: str = "") -> Series:
        """A series for lines of this plan; when a log has too many sorts of lines, the rest share one."""
        name = name or plan.series
        if len(self.series) >= MAX_SERIES:
            name = f"{plan.rule}:{kind or plan.kind}:others"
        if name not in self.series:
            self.series[name] = Series(name, plan)
            self.series[name].kind = kind or plan.kind
        return self.series[name]

    def announce(self, s: Start) -> None:
        """An epoch's header, if that stretch held one, is this run's."""
        if s.epoch is not None:
            self.context = (s.epoch[0], s.epoch[1])
            self.header_line = s.epoch[2]
            self.header_time, self.header_rule = s.epoch_time, s.epoch_rule
            self.last_line = max(self.last_line, s.epoch[2])

    def view(self) -> Open:
        """The same run, of which failure and header may be set without changing this one."""
        new = Open(self.first_line)
        for slot in Open.__slots__:
            setattr(new, slot, getattr(self, slot))
        return new

    def copy(self) -> Open:
        """A copy that may be read on without changing this one."""
        new = self.view()
        new.series = {name: s.copy() for name, s in self.series.items()}
        new.facts = self.facts.copy()
        return new
