"""The short way for the lines that most lines are: the next position of the same counter, all else as it was.

Lines of one shape come many at once; nothing is made of them but what is kept. `Series.settle` makes the newest one a
row before anything else looks at the series.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler.rules.plan import Plan
from profiler.runs.series import RECENT, Line, Series, beyond


def drawn(
    series: Series, plan: Plan, lines: Sequence[Line], redrawn: bool, order: int, time_s: float | None, limit: int
) -> int:
    """Take those of a bar's states that only go on where the one before stood. How many: see `goes_on`."""
    slot, steady_of, steady, whole = plan.at_iteration, plan.steady_of, series.steady, series.whole
    full = series.total if plan.needs_header else None
    before = last = series.last_iteration or 0.0
    took = 0
    for line, groups in lines:
        try:
            iteration = float(groups[slot])
        except ValueError:
            break
        if iteration <= last or iteration == full or (steady_of is not None and steady_of(groups) != steady):
            break
        before, last = last, iteration
        pending = (plan, groups, line, redrawn, iteration, order + took, time_s)
        if whole and series.pending is None:
            series.replace_last(limit)
        elif (series.state_count + 1) % series.state_stride:
            series.state_count += 1
        else:
            series.keep_state(series.pending if whole and series.pending is not None else pending, limit)
        series.pending = pending
        took += 1
    if took:
        series.interval = last - before
        series.last_iteration = last
        series.count += took
        series.last_line = lines[took - 1][0]
    return took


def goes_on(series: Series, plan: Plan, lines: Sequence[Line], order: int, time_s: float | None, limit: int) -> int:
    """Take those of the lines, none redrawn, that only go on where the one before stood: each the next position,
    or the summary of the next epoch. How many: the line behind them needs a closer look."""
    epochs = plan.kind == "epoch"
    top = series.top
    last = series.last_epoch if epochs else (series.last_iteration or 0.0)
    if last is None or (not epochs and (top is None or top[1] is None)):
        return 0
    epoch = series.last_epoch if series.last_epoch is not None else series.passes
    rises = epochs or top is None or epoch == top[0] or beyond((epoch, None), top)
    furthest = last if epochs or top is None or top[1] is None else max(last, top[1])
    values = _ahead(series, plan, lines, furthest, rises)
    took = len(values)
    if not took:
        return 0
    base = series.ordinal + 1
    at = -base % series.stride
    while at < took:  # the positions that are kept
        line, groups = lines[at]
        series.ordinal = base + at
        if epochs:
            series.last_epoch = values[at]
        made = (plan, groups, line, False, None if epochs else values[at], order + at, time_s)
        series.keep(series.row_of(made), limit)
        at += 1
        at += -(base + at) % series.stride
    series.recent.extend((value, None) if epochs else (epoch, value) for value in values[-RECENT:])
    _stand_at(series, plan, values, last)
    if rises:
        series.top = series.recent[-1]
    line, groups = lines[took - 1]
    series.pending = (plan, groups, line, False, None if epochs else values[-1], order + took - 1, time_s)
    series.ordinal = base + took - 1
    if plan.loss is not None:
        series.loss_positions = series.ordinal + 1
    series.count += took
    series.last_line = line
    return took


def _ahead(series: Series, plan: Plan, lines: Sequence[Line], furthest: float, rises: bool) -> list[float]:
    """The counter of those lines, from the first on, that lie beyond `furthest` (and, where it `rises`, each beyond
    the one before) and are else like the line before."""
    slot, steady_of, steady = plan.at_iteration, plan.steady_of, series.steady
    whole = series.total if plan.needs_header and plan.kind != "epoch" else None
    values: list[float] = []
    for _, groups in lines:
        try:
            value = float(groups[slot])
        except ValueError:
            break
        if value <= furthest or value == whole or (steady_of is not None and steady_of(groups) != steady):
            break
        if rises:
            furthest = value
        values.append(value)
    return values


def _stand_at(series: Series, plan: Plan, values: Sequence[float], before: float) -> None:
    if plan.kind == "epoch":
        series.last_epoch = values[-1]
        return
    series.last_iteration = values[-1]
    series.interval = values[-1] - (values[-2] if len(values) > 1 else before)
