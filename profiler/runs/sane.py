"""Numbers that a log may print and no estimate may meet: not finite, negative where nothing is negative, absurd.

They become None, as if the line had not told them. Losses and accuracies are left alone: a loss that is not a number
is news.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from profiler.model import Point, Run

LARGEST = 1e15  #: an index above this is no index
LONGEST_S = 1e11  #: 3,000 years
PHANTOMS = 6  #: so many runs
PHANTOM_POINTS = 3  #: of so few points each
UNLIKE = 0.6  #: whose first positions are so different
UPWARDS = 0.75  #: and go neither up nor down this often, or have no line between them this often
TWO = "its counter goes forth and back from line to line, as of two logs in one file: no number of it is told"

_COUNTED = frozenset(("iteration", "first_iteration", "last_iteration", "total_iterations"))
_COUNTER, _POSITIVE, _LASTING, _PASSED = (0.0, LARGEST), (1e-9, LARGEST), (1e-12, LONGEST_S), (0.0, LONGEST_S)
#: What a number of a point, or of a run, may be: (lowest, highest).
_OF_A_POINT = {
    "iteration": _COUNTER,
    "iterations": _COUNTER,
    "epoch": _COUNTER,
    "epochs": _COUNTER,
    "step_s": _LASTING,
    "step_s_average": _LASTING,
    "epoch_s": _LASTING,
    "batch_size": _LASTING,
    "elapsed_s": _PASSED,
    "time_s": (-LONGEST_S, LONGEST_S),
}
_OF_A_RUN = {
    "first_iteration": _COUNTER,
    "last_iteration": _COUNTER,
    "total_iterations": _COUNTER,
    "last_epoch": _COUNTER,
    "total_epochs": _COUNTER,
    "iterations_per_epoch": _POSITIVE,
    "batch_size": _POSITIVE,
}


def sane(run: Run) -> Run:
    """The run without such numbers; the same object when there are none."""
    points = tuple(_point(p) for p in run.points)
    bad = _bad(run, _OF_A_RUN)
    if any(a is not b for a, b in zip(points, run.points, strict=True)):
        bad["points"] = points
    return replace(run, **bad) if bad else run


def _point(p: Point) -> Point:
    bad = _bad(p, _OF_A_POINT)
    rate = p.throughput
    if rate is not None and not 1e-12 <= rate.value <= LARGEST:
        bad["throughput"] = None
    return replace(p, **bad) if bad else p


def _bad(of: Point | Run, limits: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (low, high) in limits.items():
        value = getattr(of, name)
        if value is None:
            continue
        part = 0 < value < 1 and name in _COUNTED  # of a step: such a number is no counter
        if part or not low <= value <= high:  # nan is never between
            found[name] = None
    return found


def _share(found: Iterable[bool]) -> float:
    return fmean(map(float, found))


def counting(runs: list[Run]) -> list[Run]:
    """The runs, but for those of a counter that is none, or of two that take turns.

    Such a counter begins anew every few lines, each time elsewhere, though nothing stands between the lines that could
    have begun a run. A job that resumes prints something, and each of many trials begins alike. Of two logs in one file
    no number is told: which of them a line is of is not known.
    """
    told = [run for run in runs if run.points and run.first_iteration is not None]
    if len(told) < PHANTOMS or not _begins_elsewhere(told):
        return runs
    rises = _share((b.first_iteration or 0.0) > (a.first_iteration or 0.0) for a, b in pairwise(told))
    wanders = 1 - UPWARDS <= rises <= UPWARDS
    if not wanders and _share(b.first_line - a.last_line <= 1 for a, b in pairwise(told)) < UPWARDS:
        return runs
    rest = [run for run in runs if run not in told]
    if wanders:
        return rest
    both = Run(told[0].format, told[0].first_line, told[-1].last_line, (), warnings=(TWO,))
    return sorted([*rest, both], key=lambda run: run.first_line)


def is_list(run: Run) -> bool:
    """Whether a table tells results, row by row, and no progress: its rows are all at one position."""
    rows = {(p.iteration, p.epoch, p.rank) for p in run.points if p.rule.startswith("generic/table")}
    return len(rows) == 1 < len(run.points) and None not in next(iter(rows))[:1]


def unnamed(run: Run) -> Run:
    """The run without the losses of a file of two columns where they rise: an accuracy or a reward, with no name."""
    unnamed_points = (p for p in run.points if p.rule == "generic/two-columns")
    told = [p.losses[0].value for p in unnamed_points if p.losses]
    third = len(told) // 3
    if third < 2:
        return run
    first, last = told[:third], told[-third:]
    if median(last) <= max(first):
        return run
    points = (replace(p, losses=(), validation_losses=()) for p in run.points)
    return replace(run, points=tuple(points))


def is_silent(run: Run) -> bool:
    """Whether its lines count nothing and measure nothing, once numbers that cannot count are left out."""
    counts = run.first_iteration is not None or run.last_epoch is not None
    return bool(run.points) and not counts and run.failure is None and not any(map(_measures, run.points))


def _measures(p: Point) -> bool:
    told = (p.losses, p.accuracies, p.validation_losses, p.validation_accuracies, p.throughput)
    return any((*told, p.step_s, p.step_s_average, p.epoch_s))


def _begins_elsewhere(told: list[Run]) -> bool:
    """Whether most of the runs are a few points long, and hardly two begin alike."""
    short = median(len(run.points) for run in told) <= PHANTOM_POINTS
    return short and len({run.first_iteration for run in told}) >= UNLIKE * len(told)
