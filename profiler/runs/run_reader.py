"""Rows in the order of the text -> runs: what each kind of line does to the run being read.

Where a run begins and ends is in `boundaries`.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler.model import Failure, Run
from profiler.rules.plan import Plan, Row
from profiler.runs import short_way
from profiler.runs.boundaries import AGAIN, GOES_ON, LATE, MAX_POINTS, NEW, Boundaries, Course
from profiler.runs.open_run import Open
from profiler.runs.series import Line, Series
from profiler.text.clock import Days

NEAR = 40  #: lines within which a value without a counter belongs to the counter before it
MOST_TAGS = 64  #: trainings told apart that run at once
BY_ITSELF = 4  #: states of a bar that goes on without a shorter one between them
_OF_EPOCH = {"epoch_time", "accuracy", "throughput"}


class Runs:
    """Takes rows; `all` gives the runs so far."""

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.bounds = Boundaries(limit)
        self.days = Days()
        self.order = 0
        self.tags: list[int] = []  #: of trainings that may run at once, the newest last
        self.in_turns = False  #: one of them gave way to another and came back
        self.hot: dict[str, Series] = {}  #: series whose next line may only go on

    def rows(self, plan: Plan, lines: list[Line], redrawn: bool) -> None:
        """Take lines read by `plan`, one behind the other, all redrawn or none."""
        while lines:
            took = self._short(plan, lines, redrawn)
            if not took:
                (line, groups), took = lines[0], 1
                self.row(plan, groups, line, redrawn)
            lines = lines[took:]

    def row(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        """Take one line read by `plan`."""
        if plan.short and self._short(plan, [(line, groups)], redrawn):
            return
        kind = plan.kind
        if kind == "train":
            self._train(plan, groups, line, redrawn)
        elif kind in ("epoch", "validation"):
            self._summary(plan, groups, line, redrawn)
        elif kind == "context":
            self._context(plan, groups, line)
        elif kind == "setup":
            self._setup(plan, groups, line)
        elif kind == "start":
            self.bounds.start(plan.canonical, line, hard=plan.rule.endswith("!"))
            if plan.fields:
                self._setup(plan, groups, line)
        elif kind == "resume":
            self.bounds.stretch(line).resumed = True
        elif kind == "trial":
            self.bounds.stretch(line).trial = True
        elif kind == "pause":
            self.bounds.open.evaluating = True
            self.hot.clear()
        elif kind == "end":
            self.bounds.open.over = True
            self.hot.clear()
        elif kind == "loose":
            self._loose(plan, groups, line, redrawn)

    def failure(self, failure: Failure) -> None:
        """Something went wrong; whether it ended the run shows in what follows."""
        self.bounds.failure(failure)

    def all(self) -> list[Run]:
        """The runs so far, without ending the one being read."""
        return self.bounds.all()

    @property
    def has_loss(self) -> bool:
        """Whether a loss of training was read: then there is a run with points."""
        open_ = self.bounds.open.series.values()
        return any(run.points for run in self.bounds.closed) or any(s.has_loss for s in open_)

    def last_groups(self, plan: Plan) -> Sequence[str]:
        """The numbers of the newest line read by this plan; empty when the newest line of its series is another's."""
        series = self.bounds.open.series.get(plan.series)
        if series is None:
            return ()
        series.settle()
        last = series.tail[-1] if series.tail else None
        return last.groups if last is not None and last.plan.canonical == plan.canonical else ()

    def copy(self) -> Runs:
        """A copy that may be read on without changing this one."""
        new = Runs(self.bounds.most)
        new.bounds = self.bounds.copy()
        new.days = Days(self.days.day, self.days.last)
        new.order, new.tags, new.in_turns = self.order, list(self.tags), self.in_turns
        return new

    # --- the short way ------------------------------------------------------------------------------------

    def _short(self, plan: Plan, lines: list[Line], redrawn: bool) -> int:
        """Take what only goes on; how many of the lines. Where stamps have no date there is but one line."""
        bounds = self.bounds
        s = self.hot.get(plan.series) if plan.short and not bounds.starts else None
        if s is None or not (plan is s.plan or plan.steady_names == s.plan.steady_names):
            return 0
        time_s = self._time(plan, lines[0][1]) if plan.undated else None
        if (s.whole or redrawn) and plan.kind != "epoch":
            took = short_way.drawn(s, plan, lines, redrawn, self.order, time_s, bounds.limit)
        else:
            took = short_way.goes_on(s, plan, lines, self.order, time_s, bounds.limit)
        if took:
            self.order += took
            run = bounds.open
            run.last_line = line = lines[took - 1][0]
            if plan.kind == "epoch":
                run.header_line = line
                run.context = (s.last_epoch or 0.0, run.context[1] if run.context else None)
            else:
                run.position_line = line
                run.position = (s.last_epoch, s.last_iteration)
        return took

    def _warm(self, series: Series, row: Row, whole: bool) -> None:
        """The next line of this series may go the short way, if it is like this one. `whole`: see `Series`."""
        plan = row.plan
        alike = plan.short and series.plan.short and series.has_loss == (plan.loss is not None)
        if alike and (plan.loss is None or series.nan_line is None):
            self.hot[plan.series] = series
            series.steady = plan.steady_of(row.groups) if plan.steady_of is not None else None
            series.whole = whole

    # --- points -------------------------------------------------------------------------------------------

    def _make(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> Row:
        time_s = self._time(plan, groups)
        row = Row(plan, groups, line, plan.rank_of(groups), time_s, redrawn)
        if plan.tag is not None:
            row.rank = self._turn(plan.trial_of(groups) or 0)
        row.order = self.order
        self.order += 1
        return row

    def _turn(self, tag: int) -> int | None:
        """Where trainings take turns each has a counter of its own, as ranks have."""
        if not self.tags or self.tags[-1] != tag:
            self.in_turns = self.in_turns or tag in self.tags
            self.tags = [*(t for t in self.tags if t != tag), tag][-MOST_TAGS:]
        return abs(tag) if self.in_turns else None

    def _time(self, plan: Plan, groups: Sequence[str]) -> float | None:
        read = plan.clock.read(groups) if plan.clock is not None else None
        if read is None:
            return None
        return read[0] if read[1] else self.days.place(read[0])

    def _begin(self, verdict: Course, line: int, progress: bool = True) -> Open:
        """The run that a line belongs to."""
        if not self.bounds.starts and verdict is not NEW:
            return self.bounds.open
        self.hot.clear()
        return self.bounds.begin(verdict is NEW, line, progress)

    def _train(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        iteration = plan.told(plan.iteration, groups)
        if plan.bar and not iteration:
            return
        own_epoch = plan.told(plan.epoch, groups)
        bounds = self.bounds
        another = bounds.open.over and self.has_loss
        if another and plan.bar and plan.loss is None:
            return  # it is drawn once more, or of an evaluation; a training's counts from its first loss on
        headless = plan.needs_header and bounds.open.is_done and bounds.header is None
        if (
            headless
            or (plan.bar and own_epoch is None and self._is_shorter(plan, groups))
            or (bounds.open.evaluating and self._is_held_out(plan, groups, iteration, own_epoch))
        ):
            self._evaluation(plan, groups, line, redrawn)  # a bar without a header after a complete one
            return
        bounds.open.evaluating = False
        row = self._make(plan, groups, line, redrawn)
        row.iteration = iteration
        self.hot.pop(plan.series, None)
        verdict = bounds.verdict(bounds.open.series.get(plan.series), plan, row, own_epoch)
        if another and plan.loss is not None and row.rank is None:
            verdict = NEW
        run = self._begin(verdict, line)
        row.epoch = own_epoch
        if own_epoch is None and run.context is not None:
            row.epoch, row.epochs = run.context
        series = run.series.get(plan.series)
        if series is None:
            series = bounds.new_series(plan)
        if verdict is AGAIN:
            series.passes += 1
        self._advance(run, series, row, late=verdict is LATE)
        series.epochs = row.epochs
        self._warm(series, row, whole=plan.bar and row.epoch is not None)
        run.position = (row.epoch, iteration)
        run.position_line = line
        if plan.needs_header and not redrawn and series.total is not None and iteration == series.total:
            run.done_epoch = line
            self.hot.clear()

    def _is_held_out(self, plan: Plan, groups: Sequence[str], iteration: float | None, epoch: float | None) -> bool:
        """Whether a line behind the words that an evaluation begins is of it: it does not go on from where training
        stands, and is of another sort or has another total than training's lines."""
        run = self.bounds.open
        if self.bounds.starts or not run.has_points or _goes_on(run.position, epoch, iteration):
            return False
        series = run.series.get(plan.series)
        if series is None or series.kind != "train":
            return True
        series.settle()
        total = next((plan.value(f, groups) for f in plan.fields if f.what == "iterations"), None)
        return total != series.total

    def _is_shorter(self, plan: Plan, groups: Sequence[str]) -> bool:
        """Whether a bar without a name has a smaller total than the one like it, with nothing between them that begins
        an epoch, and that one stands full, or went on by itself and stands: it is an evaluation's. One that steps once
        for each shorter bar counts what those are parts of. A longer one is where the other is done with its epoch."""
        run = self.bounds.open
        series = run.series.get(plan.series)
        if series is None or series.total is None or self.bounds.header is not None:
            return False
        series.settle()
        total = next((plan.value(f, groups) for f in plan.fields if f.what == "iterations"), None)
        if total is None or total == series.total:
            return False
        return self._is_aside(series, plan, total)

    def _is_aside(self, series: Series, plan: Plan, total: float) -> bool:
        """Whether a bar of another total than the one like it is an evaluation's."""
        if total in series.aside:
            return True
        if total > (series.total or 0.0):
            return self._is_aside_though_longer(series, plan)
        full = series.last_iteration == series.total
        if full and total == series.filled and not series.aside:
            series.aside = [series.total or 0.0]  # each epoch begins with the shorter one: the longer one evaluates
            return False
        drawn, series.newer = series.count - series.newer, series.count
        if full:
            return plan.loss is not None or any(s.has_loss for s in self.bounds.open.series.values())
        if drawn < BY_ITSELF:
            return False
        series.aside = [*series.aside, total]
        return True

    def _is_aside_though_longer(self, series: Series, plan: Plan) -> bool:
        """Whether a bar stands full behind the head of the epoch that is under way: what is drawn without a name
        behind it, however long, is no training of that epoch. Without a head the next epoch may tell."""
        if plan.loss is not None or series.last_iteration != series.total:
            return False
        series.filled = series.filled or series.total
        context = self.bounds.open.context
        return context is not None and series.last_epoch == context[0]

    def _advance(self, run: Open, series: Series, row: Row, late: bool = False) -> None:
        """Take the row into its series. `late`: another rank's line, behind where the series stands."""
        run.last_line = row.line
        if row.rank is not None and row.plan.tag is None:
            run.facts.ranks.add(row.rank)
        ordinal = series.advance(row, late, self.bounds.limit)
        plan = row.plan
        for f in plan.fields:
            if f.what == "iterations":
                series.total_is(plan.value(f, row.groups), row)
            elif f.what == "iterations_per_epoch":
                run.facts.numbers[f.what] = plan.value(f, row.groups)
            elif f.what == "window_time":
                series.window_is(plan.value(f, row.groups))
        series.add(row, ordinal, self.bounds.limit)
        if plan.kind == "loose" and plan.rank is None and run.facts.numbers.get("world", 1) <= 1:
            series.replace_like()

    def _summary(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool, kind: str = "") -> None:
        """A line about a whole epoch, or of an evaluation."""
        row = self._make(plan, groups, line, redrawn)
        kind = kind or plan.kind
        row.iteration = plan.told(plan.iteration, groups)
        own = plan.told(plan.epoch, groups)
        bounds = self.bounds
        verdict = GOES_ON
        name, kind = self._whose(plan.series, kind, own)
        row.kind = kind
        if kind == "epoch":
            verdict = bounds.verdict(bounds.open.series.get(plan.series), plan, row, own)
        run = self._begin(verdict, line, progress=kind == "epoch")
        series = run.series.get(name)
        if series is None:
            series = bounds.new_series(plan, name, kind)
        if kind == "validation":
            self._validation(run, series, row, own)
            return
        row.epoch = own
        if own is None and run.context is not None:
            row.epoch, row.epochs = run.context
        elif own is None:
            row.epoch = run.position[0]
        else:
            run.context = (own, run.context[1] if run.context else None)
            run.header_line = line
        row.epoch_s = _lasted(run, row)
        self._advance(run, series, row)
        self.hot.pop(plan.series, None)
        if kind == plan.kind and series.top is not None and series.top == (row.epoch, None) and not run.header_rule:
            self._warm(series, row, series.whole)

    def _whose(self, name: str, kind: str, epoch: float | None) -> tuple[str, str]:
        """The series and the kind of a line about a whole epoch."""
        run = self.bounds.open
        if kind != "epoch" or not run.evaluating:
            return name, kind
        run.evaluating = self._was_told(name, epoch)
        if not run.evaluating:
            return name, kind
        return name + ":evaluation", "validation"

    def _was_told(self, name: str, epoch: float | None) -> bool:
        """Whether a line of this very sort told of this epoch already: behind the words that an evaluation begins it
        tells of that."""
        told = self.bounds.open.series.get(name)
        if told is None or epoch is None:
            return False
        told.settle()
        return told.last_epoch == epoch

    def _validation(self, run: Open, series: Series, row: Row, own: float | None) -> None:
        """A validation point stands where training stands, unless it prints training's own counter."""
        plan = row.plan
        epoch, iteration = _stands(run)
        total = next((plan.value(f, row.groups) for f in plan.fields if f.what == "iterations"), None)
        trained = {s.total for s in run.series.values() if s.kind == "train"}
        series.advances = plan.bar or (total is not None and total not in trained and plan.scope != "run")
        stands = own if own is not None else _newest_epoch(run, epoch)
        if series.advances or row.iteration is None:
            if not series.advances:
                _summed_up(run, series, stands, iteration)
            previous = series.tail[-1] if series.tail else None
            if previous is not None and (previous.epoch, previous.iteration) == (stands, iteration):
                previous.redrawn = True
            row.iteration = iteration
        row.epoch = run.context[0] if stands is None and run.context is not None else stands
        run.last_line = row.line
        series.add(row, series.stand(row), self.bounds.limit)

    def _evaluation(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        if plan.loss is None:
            return
        row = self._make(plan, groups, line, redrawn)
        row.kind = "validation"
        run = self.bounds.open
        name = plan.series + ":evaluation"
        series = run.series.get(name)
        if series is None:
            series = self.bounds.new_series(plan, name, "validation")
        row.epoch, row.iteration = run.position
        run.last_line = line
        if series.tail and series.tail[-1].line == line:
            series.tail[-1].redrawn = True
        series.add(row, series.place(row.epoch, row.iteration), self.bounds.limit)

    # --- lines without a counter of their own -------------------------------------------------------------

    def _loose(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        """A value without a counter belongs to the counter or the epoch announced before it."""
        run = self.bounds.open
        held = plan.may_be_held_out and (run.evaluated or run.evaluating)
        if held or (run.evaluating and plan.may_be_summed_up):
            self._summary(plan, groups, line, redrawn, "validation")  # what follows the loss of an evaluation
            return
        if self._of_epoch(run):
            if plan.loss is not None or any(f.what in _OF_EPOCH for f in plan.fields):
                self._summary(plan, groups, line, redrawn, "epoch")
            return
        epoch, iteration, at = run.announced or (*run.position, run.position_line)
        if plan.loss is not None and self._is_of_next(run, plan, line, at):
            return
        if iteration is None or line - at > NEAR or self.bounds.banner > at:
            if plan.loss is not None and run.context is not None:
                self._summary(plan, groups, line, redrawn, "epoch")
            return
        row = self._make(plan, groups, line, redrawn)
        row.kind, row.epoch, row.iteration = "train", epoch, iteration
        name = plan.series or plan.rule
        verdict = GOES_ON
        if run.announced is not None:
            verdict = self.bounds.verdict(run.series.get(name), plan, row, None)
        run = self._begin(verdict, line)
        series = run.series.get(name)
        if series is None:
            series = self.bounds.new_series(plan, name, "train")
        self._advance(run, series, row)
        if run.announced is None:
            run.position_line = line

    def _is_of_next(self, run: Open, plan: Plan, line: int, at: int) -> bool:
        """Whether a loss belongs to a counter below it, which is not read yet: the first of its kind came before any
        counter, nearer to the first counter than this one is to the counter above it. None of them is told."""
        if run.announced is None and run.position[1] is None and run.early is None:
            run.early = (plan.canonical, line)
        return run.early is not None and run.early[0] == plan.canonical and 0 < run.below < line - at

    def _of_epoch(self, run: Open) -> bool:
        """Whether the header of an epoch is nearer than any counter."""
        header = self.bounds.header
        if run.announced is not None and run.announced[2] > (header[2] if header else run.header_line):
            return False
        return header is not None or (run.context is not None and run.header_line >= run.position_line)

    def _context(self, plan: Plan, groups: Sequence[str], line: int) -> None:
        """An epoch begins, or a counter stands on a line of its own."""
        values = {f.what: plan.value(f, groups) for f in plan.fields}
        bounds, context = self.bounds, self.bounds.open.context
        epoch = values.get("epoch")
        if epoch is None:
            if "iteration" in values:
                self._announce(values, line)
            return
        total = values.get("epochs", context[1] if context else None)
        now = bounds.epoch
        if now is not None and epoch < now:
            if not bounds.trial and now - epoch < 2 and epoch > bounds.open.first_epoch(epoch):
                return  # another rank's late line
            at = bounds.starts[-1] if bounds.starts else None
            bounds.stretch(line, new=at is None or not at.is_bare_banner)
        if now is not None and epoch > now:
            bounds.open.evaluating = False
        stretch = bounds.stretch(line)
        stretch.epoch = (epoch, total, line)
        stretch.epoch_time, stretch.epoch_rule = self._time(plan, groups), plan.rule
        stretch.facts.numbers["epoch_count"] = values.get("epoch_count", 1)
        if "iterations_per_epoch" in values:
            stretch.facts.numbers["iterations_per_epoch"] = values["iterations_per_epoch"]

    def _announce(self, values: dict[str, float], line: int) -> None:
        """A counter stands on a line of its own, in the epoch announced last."""
        run = self.bounds.open
        if run.announced is None and run.early is not None:
            run.below = line - run.early[1]
        run.announced = (self.bounds.epoch, values["iteration"], line)
        beside = {"iterations": "counted_to", "iterations_per_epoch": "iterations_per_epoch"}
        for what in beside.keys() & values.keys():
            self.bounds.stretch(line).facts.numbers[beside[what]] = values[what]

    def _setup(self, plan: Plan, groups: Sequence[str], line: int) -> None:
        """What a run says of itself."""
        bounds = self.bounds
        counts_ranks = any(f.what in ("world", "gpus", "gpus_per_node") for f in plan.fields)
        if counts_ranks and bounds.broken and bounds.starts[-1].failure is not None:
            bounds.stretch(line, new=True).banner = True  # after a failure ranks are counted again: a restart
        facts = bounds.stretch(line).facts
        for f in plan.fields:
            value = plan.value(f, groups)
            if value >= 0:
                facts.numbers[f.what] = max(value, facts.numbers.get(f.what, 0)) if f.what == "world" else value
        if plan.rank is not None:
            facts.ranks.add(plan.rank_of(groups) or 0)


def _goes_on(stood: tuple[float | None, float | None], epoch: float | None, iteration: float | None) -> bool:
    """Whether a line lies beyond the newest point of training."""
    if epoch is not None and stood[0] is not None and epoch != stood[0]:
        return epoch > stood[0]
    return iteration is None or stood[1] is None or iteration > stood[1]


def _stands(run: Open) -> tuple[float | None, float | None]:
    """Where training stands: at its newest point, or at a counter on a line of its own behind that."""
    announced = run.announced
    return announced[:2] if announced is not None and announced[2] > run.position_line else run.position


def _newest_epoch(run: Open, epoch: float | None) -> float | None:
    """The epoch that an evaluation is of: the one that was summed up last, where that is newer than the lines of
    training tell (a bar's own lines may still stand under the epoch before)."""
    if epoch is None:
        return None
    for series in run.series.values():
        if series.kind == "epoch" and series.last_line > run.position_line:
            epoch = max(epoch, series.last_epoch or 0.0)
    return epoch


def _lasted(run: Open, row: Row) -> float | None:
    """How long the epoch took that ends on this line, by its stamp and that of the header."""
    if row.plan.rule != run.header_rule + "-stop" or row.time_s is None or run.header_time is None:
        return None
    lasted = (row.time_s - run.header_time) / max(run.facts.numbers.get("epoch_count", 1), 1)
    return lasted if lasted > 0 else None


def _summed_up(run: Open, series: Series, epoch: float | None, iteration: float | None) -> None:
    """The lines of an evaluation under way are replaced by its summary."""
    for other in run.series.values():
        if other.kind == "validation" and other is not series and other.tail and other.advances:
            last = other.tail[-1]
            if last.epoch == epoch and last.iteration == iteration:
                last.redrawn = True


__all__ = ["MAX_POINTS", "Runs"]
