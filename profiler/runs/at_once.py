"""Trainings that ran at once and wrote in turns into one log: from one run as it was read, a run of each.

Each line says whose it is (`text.trials`). Where the tags are of processes that may be ranks of one training, their
losses decide: ranks differ now this way and now that, trainings of other settings always the same way. Where hardly a
position is common, their counters do: those of one training count on together, those of several go forth and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby, pairwise

from profiler.model import Kind, Point, Run

FEWEST = 2  #: points of training of each
PROCESSES = 64  #: beyond so many, ranks of one training: each is compared with each
COMMON = 4  #: positions that two have in common, from which it is told whether they differ
APART = 0.05  #: and by what share of their losses
BACK = 0.25  #: the share of lines that go back, from which two counters are not one


def parted(run: Run) -> list[Run]:
    """The runs of the trainings that took turns; the run itself where none did."""
    tags = [p.trial for p in run.points if p.trial is not None]
    if not tags:
        return [run]
    run = replace(run, points=tuple(p if p.trial is None else replace(p, rank=None) for p in run.points))
    each = list(dict.fromkeys(tags))
    if len(each) == 1:
        return [replace(run, trial=each[0])]
    own = _own(run.points, each[0])
    if not _took_turns(tags, own) or not _coincide(own) or (min(each) < 0 and not _are_trainings(list(own.values()))):
        return [run]
    made = [_run(run, tag, points) for tag, points in own.items()]
    last = max(range(len(made)), key=lambda i: made[i].last_line)
    made[last] = replace(made[last], failure=run.failure, last_line=run.last_line)
    return made


def _took_turns(tags: Sequence[int], own: Mapping[int, Sequence[Point]]) -> bool:
    counts = [sum(p.kind is not Kind.VALIDATION for p in points) for points in own.values()]
    return min(counts) >= FEWEST and sum(1 for _ in groupby(tags)) > len(own)


def _coincide(own: Mapping[int, Sequence[Point]]) -> bool:
    """Whether some position was told under two tags: else they may be settings that one training goes through."""
    if min(own) < 0:
        return True
    told = [{_position(p) for p in points if p.kind is not Kind.VALIDATION} for points in own.values()]
    return len(set[tuple[float, float]]().union(*told)) < sum(map(len, told))


def _are_trainings(each: Sequence[Sequence[Point]]) -> bool:
    """Of processes, and not ranks of one training."""
    return len(each) <= PROCESSES and _differ(each)


def joined(runs: Sequence[Run]) -> list[Run]:
    """The runs, where one that goes on from an earlier one of the same training is a part of it."""
    out: list[Run] = []
    for run in runs:
        earlier = next((i for i, r in enumerate(out) if run.trial is not None and r.trial == run.trial), None)
        if earlier is None or not _goes_on(out[earlier], run):
            out.append(run)
        else:
            out[earlier] = _run(out[earlier], out[earlier].trial, [*out[earlier].points, *run.points])
    return out


def _own(points: Sequence[Point], first: int) -> dict[int, list[Point]]:
    """The points of each tag; one without a tag is of the tag before it."""
    own: dict[int, list[Point]] = {}
    tag = first
    for p in points:
        tag = tag if p.trial is None else p.trial
        own.setdefault(tag, []).append(p)
    return own


def _position(p: Point) -> tuple[float, float]:
    return (-1.0 if p.epoch is None else p.epoch, -1.0 if p.iteration is None else p.iteration)


def _goes_on(before: Run, after: Run) -> bool:
    trained = [[p for p in run.points if p.kind is not Kind.VALIDATION] for run in (before, after)]
    return all(trained) and _position(trained[1][0]) > _position(trained[0][-1])


def _differ(each: Sequence[Sequence[Point]]) -> bool:
    """Whether the losses of all two of them differ always the same way, and by more than a little, or their counters
    have nothing in common."""
    curves = [{_position(p): p.losses[0].value for p in points if p.losses and not p.redrawn} for points in each]
    pairs = combinations(zip(curves, each, strict=True), 2)
    return all(
        _apart(a, b) if len(a.keys() & b.keys()) >= COMMON else _back_and_forth(p, q) for (a, p), (b, q) in pairs
    )


def _apart(a: dict[tuple[float, float], float], b: dict[tuple[float, float], float]) -> bool:
    common = [(a[at], b[at]) for at in a.keys() & b.keys()]
    if len({x > y for x, y in common}) > 1:
        return False
    between = sum(abs(x - y) for x, y in common)
    size = sum(max(abs(x), abs(y)) for x, y in common)
    return between > APART * size


def _back_and_forth(one: Sequence[Point], other: Sequence[Point]) -> bool:
    both = [_position(p) for p in sorted([*one, *other], key=lambda p: p.line) if p.losses and not p.redrawn]
    return sum(b < a for a, b in pairwise(both)) > BACK * len(both)


def _run(run: Run, tag: int | None, points: Sequence[Point]) -> Run:
    """The run of one tag: what its own points tell, and of the rest what the log says of all."""
    trained = [p for p in points if p.kind is Kind.TRAIN and p.iteration is not None]
    totals = [p.iterations for p in trained if p.iterations is not None]
    losing = {_position(p) for p in points if p.losses and not p.redrawn}
    made = replace(
        run,
        trial=tag,
        points=tuple(points),
        first_line=points[0].line,
        last_line=points[-1].line,
        positions=len(losing) * run.thinned,
        last_epoch=_last_epoch(points),
        failure=None,
    )
    if totals and run.total_iterations is not None:
        made = replace(made, total_iterations=totals[-1])
    if not trained:
        return replace(made, first_iteration=None, last_iteration=None)
    return replace(made, first_iteration=trained[0].iteration, last_iteration=trained[-1].iteration)


def _last_epoch(points: Sequence[Point]) -> float | None:
    told = [p.epoch for p in points if p.epoch is not None and p.kind is not Kind.VALIDATION]
    return told[-1] if told else None
