"""Rows in the order of the text -> runs: what each kind of line does to the run being read.

Where a run begins and ends is in `boundaries`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profiler.rules.plan import Plan, Row
from profiler.runs.boundaries import MAX_POINTS, Boundaries
from profiler.runs.open_run import Open
from profiler.runs.series import Line, Series
from profiler.text.clock import Days

NEAR = 40  #: lines within which a value without a counter belongs to the counter before it


class Runs(Boundaries):
    """Takes rows; `all` gives the runs so far."""

    def rows(self, plan: Plan, lines: list[Line], redrawn: bool) -> None:
        """Take lines read by `plan`, one behind the other, all redrawn or none."""
        while lines:
            took = self._short(plan, lines, redrawn)
            if not took:
                (line, groups), took = lines[0], 1
                self.row(plan, groups, line, redrawn)
            lines = lines[took:]

    def _short(self, plan: Plan, lines: list[Line], redrawn: bool) -> int:
        """Take what only goes on; how many of the lines. Where stamps have no date there is but one line."""
        s = self.hot.get(plan.series) if plan.short and not self.starts else None
        if s is None or not (plan is s.plan or plan.steady_names == s.plan.steady_names):
            return 0
        time_s = self._time(plan, lines[0][1]) if plan.undated else None
        if (s.whole or redrawn) and plan.kind != "epoch":
            took = s.drawn(plan, lines, redrawn, self.order, time_s, self.limit)
        else:
            took = s.goes_on(plan, lines, self.order, time_s, self.limit)
        if took:
            self.order += took
            run = self.open
            run.last_line = line = lines[took - 1][0]
            if plan.kind == "epoch":
                run.header_line = line
                run.context = (s.last_epoch or 0.0, run.context[1] if run.context else None)
            else:
                run.position_line = line
                run.position = (s.last_epoch, s.last_iteration)
        return took

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
            self.start(plan.canonical, line, hard=plan.rule.endswith("!"))
            if plan.fields:
                self._setup(plan, groups, line)
        elif kind == "resume":
            self._stretch(line).resumed = True
        elif kind == "loose":
            self._loose(plan, groups, line, redrawn)

    def _make(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> Row:
        time_s = self._time(plan, groups)
        row = Row(plan, groups, line, plan.rank_of(groups), time_s, redrawn)
        row.order = self.order
        self.order += 1
        return row

    def _time(self, plan: Plan, groups: Sequence[str]) -> float | None:
        read = plan.clock.read(groups) if plan.clock is not None else None
        if read is None:
            return None
        return read[0] if read[1] else self.days.place(read[0])

    def _train(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        f = plan.iteration
        iteration = None if f is None else plan.value(f, groups)
        if plan.bar and not iteration:
            if iteration is None or plan.loss is None or plan.epoch is None:
                return
            return
        f = plan.epoch
        own_epoch = None if f is None else plan.value(f, groups)
        run = self.open
        if (
            plan.needs_header
            and run.header_line <= run.done_epoch
            and self._header_pending() is None
            and run.done_epoch
        ):
            # a bar without an epoch header after a complete one: an evaluation
            self._evaluation(plan, groups, line, redrawn)
            return
        row = self._make(plan, groups, line, redrawn)
        row.iteration = iteration
        self.hot.pop(plan.series, None)
        series = run.series.get(plan.series)
        verdict = self._verdict(series, plan, row, own_epoch)
        if self.starts or verdict == "new":
            run = self._begin(verdict == "new", line, row.rank)
            series = run.series.get(plan.series)
        epoch = own_epoch
        if epoch is None and run.context is not None:
            epoch = run.context[0]
            row.epochs = run.context[1]
        row.epoch = epoch
        if series is None:
            series = self._new_series(plan)
        if verdict == "pass":
            series.passes += 1
        self._advance(run, series, row, groups, plan, epoch, iteration, late=verdict == "late")
        series.epochs = row.epochs
        if (
            plan.short
            and series.plan.short
            and (plan.loss is None or series.nan_line is None)
            and series.has_loss == (plan.loss is not None)
        ):
            self.hot[plan.series] = series
            series.steady = plan.steady_of(groups) if plan.steady_of is not None else None
            series.whole = plan.bar and epoch is not None
        run.position = (epoch, iteration)
        run.position_line = line
        if plan.needs_header and not redrawn and series.total is not None and iteration == series.total:
            run.done_epoch = line
            self.hot.clear()

    def _advance(
        self,
        run: Open,
        series: Series,
        row: Row,
        groups: Sequence[str],
        plan: Plan,
        epoch: float | None,
        iteration: float | None,
        late: bool = False,
    ) -> None:
        """Take the row into its series. `late`: another rank's line, behind where the series stands."""
        line = row.line
        run.last_line = line
        rank = row.rank
        if rank is not None:
            run.facts.ranks.add(rank)
        before_epoch, before = series.last_epoch, series.last_iteration
        if series.first_epoch is None:
            series.first_epoch = epoch
        if iteration is not None and not late:
            if before is None:
                series.first_iteration = iteration
            else:
                step = iteration - before
                if step > 0:
                    if series.interval == 0 or epoch == before_epoch:
                        series.interval = step
                    if epoch is not None and before_epoch is not None and epoch > before_epoch:
                        series.runs_on += 1
                elif epoch is not None and before_epoch is not None and epoch > before_epoch:
                    series.epoch_restarts += 1
            series.last_iteration = iteration
            series.positions_of_rank[rank] = (epoch, iteration)
        if epoch is not None:
            series.last_epoch = epoch
        series.unit = plan.unit or series.unit
        loss = plan.loss
        whole = plan.bar and epoch is not None  # a bar is one position, its epoch, however often it is drawn
        if whole and series.tail and series.tail[-1].epoch == epoch and before_epoch == epoch:
            series.replace_last(self.limit)
        row.redrawn = row.redrawn and not whole  # until the same bar is drawn again
        ordinal = series.place(epoch, None if whole else iteration)
        if loss is not None:
            series.has_loss = True
            if not row.redrawn:
                series.loss_positions = ordinal + 1
            if loss.token < 0:
                if series.nan_line is None:
                    series.nan_line = line
            else:
                series.nan_line = None
        for f in plan.fields:
            if f.what == "iterations":
                total = plan.value(f, groups)
                if total != series.total:
                    series.total_changes += series.total is not None
                    if plan.bar and epoch is None and loss is None:
                        series.first_iteration = iteration  # another bar than the one before
                    series.total = total
            elif f.what == "iterations_per_epoch":
                run.facts.numbers[f.what] = plan.value(f, groups)
            elif f.what == "window_time":
                self._window(series, plan.value(f, groups))
        series.add(row, ordinal, self.limit)

    @staticmethod
    def _window(series: Series, value: float) -> None:
        if series.window is not None:
            if value > series.window:
                series.grew += 1
            elif value < series.window:
                series.shrank += 1
        series.window = value

    def _summary(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool, kind: str = "") -> None:
        row = self._make(plan, groups, line, redrawn)
        kind = row.kind = kind or plan.kind
        f = plan.iteration
        row.iteration = None if f is None else plan.value(f, groups)
        f = plan.epoch
        own = None if f is None else plan.value(f, groups)
        run = self.open
        series = run.series.get(plan.series)
        verdict = ""
        if kind == "epoch":
            verdict = self._verdict(series, plan, row, own)
            if verdict == "pass":
                verdict = ""
        if self.starts or verdict == "new":
            run = self._begin(verdict == "new", line, row.rank, progress=kind == "epoch")
            series = run.series.get(plan.series)
        if series is None:
            series = self._new_series(plan, kind=kind)
        if kind == "validation":
            self._validation(run, series, row, plan, groups, own)
            return
        epoch = own
        if epoch is None and run.context is not None:
            epoch, row.epochs = run.context
        elif epoch is None:
            epoch = run.position[0]
        row.epoch = epoch
        if own is not None:
            run.context = (own, run.context[1] if run.context else None)
            run.header_line = line
        if plan.rule == run.header_rule + "-stop" and row.time_s is not None and run.header_time is not None:
            lasted = (row.time_s - run.header_time) / max(run.facts.numbers.get("epoch_count", 1), 1)
            row.epoch_s = lasted if lasted > 0 else None
        self._advance(run, series, row, groups, plan, epoch, row.iteration)
        if plan.kind == "loose" and plan.rank is None and run.facts.numbers.get("world", 1) <= 1:
            series.replace_like()
        self.hot.pop(plan.series, None)
        if (
            plan.short
            and series.plan.short
            and kind == plan.kind == "epoch"
            and series.top is not None
            and series.top == (epoch, None)
            and (plan.loss is None or series.nan_line is None)
            and series.has_loss == (plan.loss is not None)
            and not run.header_rule
        ):
            self.hot[plan.series] = series
            series.steady = plan.steady_of(groups) if plan.steady_of is not None else None

    def _validation(
        self, run: Open, series: Series, row: Row, plan: Plan, groups: Sequence[str], own: float | None
    ) -> None:
        """A validation point stands where training stands, unless it prints training's own counter."""
        epoch, iteration = run.position
        total = next((plan.value(f, groups) for f in plan.fields if f.what == "iterations"), None)
        trained = {s.total for s in run.series.values() if s.kind == "train"}
        progress = plan.bar or (total is not None and total not in trained and plan.scope != "run")
        series.advances = progress
        if progress or row.iteration is None:
            if not progress:
                self._summed_up(run, series, own if own is not None else epoch, iteration)
            previous = series.tail[-1] if series.tail else None
            if (
                previous is not None
                and previous.epoch == (own if own is not None else epoch)
                and previous.iteration == iteration
            ):
                previous.redrawn = True
            row.iteration = iteration
        if own is None and epoch is None and run.context is not None:
            epoch = run.context[0]
        row.epoch = own if own is not None else epoch
        run.last_line = row.line
        ordinal = series.place(row.epoch, row.iteration)
        series.last_epoch = row.epoch
        series.last_iteration = row.iteration
        if series.first_epoch is None:
            series.first_epoch = row.epoch
        if series.first_iteration is None:
            series.first_iteration = row.iteration
        series.add(row, ordinal, self.limit)

    @staticmethod
    def _summed_up(run: Open, series: Series, epoch: float | None, iteration: float | None) -> None:
        """The lines of an evaluation under way are replaced by its summary."""
        for other in run.series.values():
            if other.kind == "validation" and other is not series and other.tail and other.advances:
                last = other.tail[-1]
                if last.epoch == epoch and last.iteration == iteration:
                    last.redrawn = True

    def _evaluation(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        if plan.loss is None:
            return
        row = self._make(plan, groups, line, redrawn)
        row.kind = "validation"
        run = self.open
        name = plan.series + ":evaluation"
        series = run.series.get(name)
        if series is None:
            series = self._new_series(plan, name, "validation")
        row.epoch, row.iteration = run.position
        run.last_line = line
        if series.tail and series.tail[-1].line == line:
            series.tail[-1].redrawn = True
        series.add(row, series.place(row.epoch, row.iteration), self.limit)

    def _loose(self, plan: Plan, groups: Sequence[str], line: int, redrawn: bool) -> None:
        """A value without a counter belongs to the counter or the epoch announced before it."""
        run = self.open
        if plan.may_be_held_out and any(
            s.kind == "validation" and s.last_line == run.last_line for s in run.series.values()
        ):
            self._summary(plan, groups, line, redrawn, "validation")  # what follows the loss of an evaluation
            return
        header = self._header_pending()
        counted = run.announced is not None and run.announced[2] > (header[2] if header else run.header_line)
        if not counted and (header is not None or (run.context is not None and run.header_line >= run.position_line)):
            if plan.loss is not None or any(f.what in ("epoch_time", "accuracy", "throughput") for f in plan.fields):
                self._summary(plan, groups, line, redrawn, "epoch")
            return
        epoch, iteration, at = run.announced or (*run.position, run.position_line)
        if iteration is None or line - at > NEAR or self._banner():
            if plan.loss is not None and run.context is not None:
                self._summary(plan, groups, line, redrawn, "epoch")
            return
        row = self._make(plan, groups, line, redrawn)
        row.kind = "train"
        row.iteration = iteration
        row.epoch = epoch
        name = plan.series or plan.rule
        series = run.series.get(name)
        verdict = self._verdict(series, plan, row, None) if run.announced is not None else ""
        if self.starts or verdict == "new":
            run = self._begin(verdict == "new", line, row.rank)
            series = run.series.get(name)
        if series is None:
            series = self._new_series(plan, name, "train")
        self._advance(run, series, row, groups, plan, epoch, iteration)
        if plan.kind == "loose" and plan.rank is None and run.facts.numbers.get("world", 1) <= 1:
            series.replace_like()
        if run.announced is None:
            run.position_line = line

    def _context(self, plan: Plan, groups: Sequence[str], line: int) -> None:
        values = {f.what: plan.value(f, groups) for f in plan.fields}
        epoch = values.get("epoch")
        if epoch is None:
            iteration = values.get("iteration")
            if iteration is not None:
                self.open.announced = (self.open.context[0] if self.open.context else None, iteration, line)
                total = values.get("iterations")
                if total is not None:
                    self._stretch(line).facts.numbers["iterations"] = total
            return
        total = values.get("epochs", self.open.context[1] if self.open.context else None)
        last = self._header_pending()
        now = last[0] if last is not None else self.open.context[0] if self.open.context else None
        if now is not None and epoch < now:
            first = min((s.first_epoch for s in self.open.series.values() if s.first_epoch is not None), default=epoch)
            if epoch > first and now - epoch < 2:
                return  # another rank's late line
            at = self.starts[-1] if self.starts else None
            self._stretch(line, new=at is None or not at.banner or at.epoch is not None or at.failure is not None)
        stretch = self._stretch(line)
        stretch.epoch = (epoch, total, line)
        stretch.epoch_time, stretch.epoch_rule = self._time(plan, groups), plan.rule
        stretch.facts.numbers["epoch_count"] = values.get("epoch_count", 1)
        if "iterations_per_epoch" in values:
            stretch.facts.numbers["iterations_per_epoch"] = values["iterations_per_epoch"]

    def _setup(self, plan: Plan, groups: Sequence[str], line: int) -> None:
        if self._broken() and any(f.what in ("world", "gpus", "gpus_per_node") for f in plan.fields):
            at = self.starts[-1]
            if at.failure is not None:
                self._stretch(line, new=True).banner = True  # after a failure ranks are counted again: a restart
        facts = self._stretch(line).facts
        for f in plan.fields:
            value = plan.value(f, groups)
            if value >= 0:
                facts.numbers[f.what] = max(value, facts.numbers.get(f.what, 0)) if f.what == "world" else value
        if plan.rank is not None:
            facts.ranks.add(plan.rank_of(groups) or 0)

    def last_groups(self, plan: Plan) -> Sequence[str]:
        """The numbers of the newest line read by this plan; empty when the newest line of its series is another's."""
        series = self.open.series.get(plan.series)
        if series is None:
            return ()
        series.settle()
        last = series.tail[-1] if series.tail else None
        return last.groups if last is not None and last.plan.canonical == plan.canonical else ()

    def copy(self) -> Runs:
        """A copy that may be read on without changing this one."""
        new = Runs(self.most)
        new.closed = list(self.closed)
        new.days = Days(self.days.day, self.days.last)
        new.order, new.late = self.order, self.late
        old = self.open
        new.open = run = Open(old.first_line)
        for slot in Open.__slots__:
            setattr(run, slot, getattr(old, slot))
        run.series = {name: s.copy() for name, s in old.series.items()}
        run.facts = old.facts.copy()
        new.starts = [replace(s, facts=s.facts.copy()) for s in self.starts]
        new.limit = self.limit
        return new


__all__ = ["MAX_POINTS", "Runs"]
