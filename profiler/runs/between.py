"""Evaluations whose lines look like training's and count by themselves between its lines.

    [ 950/5000] loss: 0.71      training
    [  10/20] loss: 0.83        an evaluation, though no word of the line says so
    [1000/5000] loss: 0.70      training goes on where it stood

Read line by line the counter falls, which begins a run, and rises again. It is one run, and what stands between is an
evaluation, where the lines behind it have the total of those before and go on from them, and it has a smaller one.
"""

from __future__ import annotations

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
        whole, before = left.pop(), out[-1] if out else None
        if before is None or before.total_iterations is None:
            out.append(whole)
            continue
        run, rest = _parted(whole, before.total_iterations)
        after = rest if rest is not None else left[-1] if left else None
        if _is_aside(before, run) and after is not None and _goes_on(before, after):
            aside.add(run.total_iterations)
            out[-1] = _one(before, run, after)
            if rest is None:
                left.pop()
        elif rest is None and run.total_iterations in aside and _is_aside(before, run):
            out[-1] = _one(before, run)  # the last one: nothing follows
        else:
            aside.clear()
            out.append(whole)
    return out


def _without_turns(run: Run) -> Run:
    """A run whose lines take turns between a total and a much smaller one, each counted anew: after each pass over the
    training's data one over others."""
    told = [p for p in run.points if p.kind is Kind.TRAIN and p.iterations is not None and not p.from_bar]
    turns = [total for total, _ in groupby(p.iterations or 0.0 for p in told)]
    total, small = max(turns, default=0.0), min(turns, default=0.0)
    if turns[:TURNS] != [total, small, total] or len(set(turns)) > 2 or small > MUCH_SMALLER * total:
        return run
    return run if any(p.epoch is not None for p in told) else _set_aside(run, total, small)


def _set_aside(run: Run, total: float, small: float) -> Run:
    """The run whose points of the smaller total are of evaluations, each where training stood."""
    points = []
    for p in run.points:
        if p.kind is Kind.TRAIN and p.iterations == total:
            run = replace(run, last_iteration=p.iteration)
        points.append(_held_out(p, run) if p.kind is Kind.TRAIN and p.iterations == small else p)
    return replace(run, points=tuple(points), total_iterations=total)


def _parted(run: Run, total: float) -> tuple[Run, Run | None]:
    """A run that begins with lines of another total: those, and what follows of this total."""
    told = [(i, p) for i, p in enumerate(run.points) if p.kind is Kind.TRAIN and p.iterations is not None]
    at = next((i for i, p in told if p.iterations == total), 0)
    lead = [p for i, p in told if i < at]
    if not lead or len({p.iterations for p in lead}) > 1:
        return run, None
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
        replace(run, points=rest, first_line=rest[0].line, total_iterations=total, first_iteration=rest[0].iteration),
    )


def _is_aside(before: Run, run: Run) -> bool:
    """Whether a run may be an evaluation of the one before it: it has another, smaller total, and came to no end."""
    totals = before.total_iterations, run.total_iterations
    if totals[0] is None or totals[1] is None or totals[1] >= totals[0] or run.trial != before.trial:
        return False
    return before.failure is None and before.format == run.format and run.last_epoch in (None, before.last_epoch)


def _goes_on(before: Run, after: Run) -> bool:
    """Whether a run is the next stretch of an earlier one."""
    first, last = after.first_iteration, before.last_iteration
    if after.total_iterations != before.total_iterations or first is None or last is None:
        return False
    if before.last_epoch is not None and after.last_epoch is not None and after.scope == "epoch":
        begun = next((p.epoch for p in after.points if p.epoch is not None), after.last_epoch)
        if begun != before.last_epoch:
            return 0 < begun - before.last_epoch <= 1
    return 0 < first - last <= FAR * _interval(before, after)


def _interval(before: Run, after: Run) -> float:
    """How far apart lines of training are, where one run gives way to the other: a look that costs the same however
    much was joined already."""
    ends = before.points[-NEAR:], after.points[:NEAR]
    told = [[p.iteration for p in points if p.kind is Kind.TRAIN and p.iteration is not None] for points in ends]
    return median([b - a for indices in told for a, b in pairwise(indices) if b > a] or [0.0])


def _one(before: Run, evaluation: Run, after: Run | None = None) -> Run:
    held = [_held_out(p, before) for p in evaluation.points]
    last = after or evaluation
    made = replace(
        before,
        points=(*before.points, *held, *(after.points if after is not None else ())),
        last_line=last.last_line,
        failure=last.failure,
        thinned=max(before.thinned, last.thinned),
    )
    if after is None:
        return made
    positions = before.positions + after.positions
    return replace(made, positions=positions, last_iteration=after.last_iteration, last_epoch=after.last_epoch)


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
