"""Evaluations whose lines look like training's and count by themselves between its lines.

    [ 950/5000] loss: 0.71      training
    [  10/20] loss: 0.83        an evaluation, though no word of the line says so
    [1000/5000] loss: 0.70      training goes on where it stood

Read line by line the counter falls, which begins a run, and rises again. It is one run, and what stands between is an
evaluation, where the lines behind it have the total of those before and go on from them, and it has a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median

from profiler.model import Kind, Point, Run

TURNS = 3  #: training, an evaluation, training
MUCH_SMALLER = 0.8  #: epochs of one training may differ a little
NEAR = 32  #: points looked at on each side
FAR = 1.5  #: logging intervals that the next line of training may be from the last


def without_evaluations(runs: Sequence[Run]) -> list[Run]:
    """The runs, where an evaluation between two stretches of one training is a part of it."""
    out: list[Run] = []
    aside: set[float | None] = set()  #: totals of evaluations of the run that stands last
    left = [_without_turns(run) for run in reversed(runs)]
    while left:
        whole = left.pop()
        run, rest = _parted(whole, out[-1]) if out else (whole, [])
        after = [*rest, *left[-1:]][:1]
        if not out or not _is_aside(out[-1], run):
            out.append(whole)
            aside = set()
        elif after and _goes_on(out[-1], after[0]):
            aside.add(run.total_iterations)
            out[-1] = _one(out[-1], run, after)
            del left[len(left) - 1 + len(rest) :]
        elif run.total_iterations in aside and not rest:
            out[-1] = _one(out[-1], run, [])  # the last one: nothing follows
        else:
            out.append(whole)
            aside = set()
    return out


def _counted(run: Run) -> list[tuple[int, Point]]:
    """Its lines of training that print a total, each with its place among the points."""
    return [(i, p) for i, p in enumerate(run.points) if p.kind is Kind.TRAIN and p.iterations is not None]


def _without_turns(run: Run) -> Run:
    """A run whose lines take turns between a total and a much smaller one, each counted anew: after each pass over the
    training's data one over others."""
    told = [p for _, p in _counted(run)]
    turns = [total for total, _ in groupby(p.iterations or 0.0 for p in told)]
    total, small = max(turns, default=0.0), min(turns, default=0.0)
    if turns[:TURNS] != [total, small, total] or len(set(turns)) > 2 or small > MUCH_SMALLER * total:
        return run
    return run if any(p.epoch is not None or p.from_bar for p in told) else _set_aside(run, total)


def _set_aside(run: Run, total: float) -> Run:
    """The run whose points of another total are of evaluations, each where training stood."""
    points = list(run.points)
    for i, p in _counted(run):
        if p.iterations == total:
            run = replace(run, last_iteration=p.iteration)
        else:
            points[i] = _held_out(p, run)
    return replace(run, points=tuple(points), total_iterations=total)


def _parted(run: Run, before: Run) -> tuple[Run, list[Run]]:
    """A run that begins with lines of another total than the one before it: those, and what follows of its total."""
    told = _counted(run)
    at = next((i for i, p in told if p.iterations == before.total_iterations), 0)
    lead = [p for i, p in told if i < at]
    if len({p.iterations for p in lead}) != 1:
        return run, []
    first, rest = run.points[:at], run.points[at:]
    return (
        replace(
            run,
            points=first,
            last_line=first[-1].line,
            total_iterations=lead[0].iterations,
            last_iteration=lead[-1].iteration,
            failure=None,
        ),
        [
            replace(
                run,
                points=rest,
                first_line=rest[0].line,
                total_iterations=before.total_iterations,
                first_iteration=rest[0].iteration,
            )
        ],
    )


def _is_aside(before: Run, run: Run) -> bool:
    """Whether a run may be an evaluation of the one before it: it has another, smaller total, and came to no end."""
    smaller = (run.total_iterations or math.inf) < (before.total_iterations or 0.0)
    alike = (run.trial, run.format, None) == (before.trial, before.format, before.failure)
    return smaller and alike and run.last_epoch in (None, before.last_epoch)


def _goes_on(before: Run, after: Run) -> bool:
    """Whether a run is the next stretch of an earlier one, or its next epoch."""
    if after.total_iterations != before.total_iterations:
        return False
    begun = next((p.epoch for p in after.points if p.epoch is not None), 0.0)
    if after.scope == "epoch" and begun != (before.last_epoch or 0.0):
        return 0 < begun - (before.last_epoch or 0.0) <= 1
    return 0 < (after.first_iteration or 0.0) - (before.last_iteration or 0.0) <= FAR * _interval(before, after)


def _interval(before: Run, after: Run) -> float:
    """How far apart lines of training are, where one run gives way to the other: a look that costs the same however
    much was joined already."""
    ends = before.points[-NEAR:], after.points[:NEAR]
    told = [[p.iteration for p in points if p.kind is Kind.TRAIN and p.iteration is not None] for points in ends]
    return median([b - a for indices in told for a, b in pairwise(indices) if b > a] or [0.0])


def _one(before: Run, evaluation: Run, after: Sequence[Run]) -> Run:
    """A run with an evaluation, and what follows it."""
    held = [_held_out(p, before) for p in evaluation.points]
    last = [before, *after][-1]
    return replace(
        before,
        points=(*before.points, *held, *(p for run in after for p in run.points)),
        positions=sum(run.positions for run in (before, *after)),
        last_line=max(evaluation.last_line, last.last_line),
        last_iteration=last.last_iteration,
        last_epoch=last.last_epoch,
        thinned=max(before.thinned, last.thinned),
        failure=[evaluation, *after][-1].failure,
    )


def _held_out(p: Point, training: Run) -> Point:
    """A point of an evaluation, where training stood."""
    return replace(
        p,
        kind=Kind.VALIDATION,
        epoch=training.last_epoch,
        iteration=training.last_iteration,
        iterations=None,
        scope=training.scope or "run",
        losses=(),
        accuracies=(),
        validation_losses=p.validation_losses or p.losses,
        validation_accuracies=p.validation_accuracies or p.accuracies,
        step_s=None,
        step_s_average=None,
        throughput=None,
        elapsed_s=None,
        epoch_s=None,
    )
