"""What the counter of a run counts, by how it behaves: iterations, samples, epochs, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from profiler.model import Kind, Point, Scope, Unit
from profiler.runs.series import Series

BATCH, BATCHES = 16, 10  #: samples a batch, and batches a line, from which a counter may be of samples
STILL = 3  #: lines of one index from which it is no counter
APART = 2  #: epochs from which a bar that stands where its epoch stands counts epochs
FROM_ONE = 8  #: lines of values that one counter above them may be of
SAME_LENGTH = 0.01  #: lengths of an epoch this near to each other are one


@dataclass(frozen=True, slots=True)
class Counted:
    """What the counter of a run is, as far as the log tells."""

    scope: Scope | None = None
    unit: Unit | None = None
    first: float | None = None
    last: float | None = None
    total: float | None = None
    per_epoch: float | None = None


def as_it_counts(
    lead: Series | None, main: Series | None, counted: Counted, points: list[Point]
) -> tuple[Counted, list[Point]]:
    """The counter and the points, where what leads counts nothing, epochs, or samples."""
    if lead is None:
        return counted, points
    if _stands_still(lead):
        return Counted(per_epoch=counted.per_epoch), _uncounted(points)
    if _is_of_epochs(lead) or _is_one_an_epoch(lead, main):
        return Counted(), list(map(_of_epochs, points))
    return counted, list(map(_of_samples, points)) if counted.unit == "sample" else points


def _stands_still(lead: Series) -> bool:
    """Whether what was taken for a counter is 0 epoch after epoch: `( 0 , 0 ): loss: 5.2`; or the same on a line of its
    own, a size; or stood once above many lines of values, as `step: 30` of a configuration does."""
    if lead.first_iteration != lead.last_iteration or (lead.total is not None and lead.plan.iteration is not None):
        return False
    if lead.last_epoch != lead.first_epoch:
        if lead.interval or lead.count < STILL:
            return False
        return lead.first_iteration == 0 or _stands_apart(lead)
    ranked = lead.positions_of_rank.keys() - {None}
    return lead.count > FROM_ONE and not ranked and not (lead.bar and lead.plan.iteration is not None)


def _stands_apart(lead: Series) -> bool:
    """Whether each of its lines had its index from a line of its own."""
    first = lead.first_row
    return lead.plan.iteration is None and first is not None and first.iteration is not None


def _uncounted(points: list[Point]) -> list[Point]:
    """The points without their index. Of what one process told at one place the last one printed stands: a mean of
    them was never printed."""
    told = [p if p.iteration is None else replace(p, iteration=None, step_s=None) for p in points]
    newest = {(p.kind, p.epoch, p.rank, p.trial): i for i, p in enumerate(told) if p.losses}
    kept = set(newest.values())
    return [replace(p, redrawn=True) if p.losses and i not in kept else p for i, p in enumerate(told)]


def _is_of_epochs(lead: Series) -> bool:
    """Whether a bar counts the epochs that the words before it count, or those that lines between its states begin:
    then it may stand one behind."""
    lead.settle()
    first, last = lead.first_epoch, lead.last_epoch
    at_first, at_last = lead.first_iteration, lead.last_iteration
    if not lead.bar or None in (first, last, at_first, at_last) or lead.epoch_restarts:
        return False
    first, last = first or 0.0, last or 0.0
    behind = {first - (at_first or 0.0), last - (at_last or 0.0)}
    return behind <= ({0.0} if lead.plan.epoch is not None else {0.0, 1.0}) and last - first >= APART


def _is_one_an_epoch(lead: Series, main: Series | None) -> bool:
    """Whether lines of their own count one for each epoch that the loss is told of: `Training finished iteration 4`."""
    if main is None or lead is main or main.plan.iteration is not None or lead.plan.epoch is not None:
        return False
    ends = (lead.first_iteration, lead.last_iteration, main.first_epoch, main.last_epoch)
    if None in ends or lead.interval != 1:
        return False
    first, last, first_epoch, last_epoch = (end or 0.0 for end in ends)
    return last - first >= APART and 0 <= first - first_epoch == last - last_epoch <= 1


def _of_epochs(p: Point) -> Point:
    if p.kind is not Kind.TRAIN:
        return p
    return replace(p, iteration=None, iterations=None, step_s=None, epoch_s=p.step_s, elapsed_s=None)


def _of_samples(point: Point) -> Point:
    counts = point.iteration is not None and point.kind is Kind.TRAIN
    return replace(point, unit="sample") if counts else point


def with_length(counted: Counted, points: list[Point]) -> Counted:
    """With the length of an epoch where its time over that of an iteration is the last index: `epoch: 1 step: 1875`,
    and behind it `epoch time: 12268 ms, per step time: 6.543 ms`."""
    timed = [p.epoch_s / p.step_s for p in points if p.epoch_s and p.step_s]
    if counted.scope != "epoch" or counted.per_epoch or counted.unit == "sample" or not (timed and counted.last):
        return counted
    apart = max(abs(length - counted.last) for length in timed) / counted.last
    return replace(counted, per_epoch=counted.last) if apart <= SAME_LENGTH else counted


def unit_of(s: Series, numbers: dict[str, float]) -> Unit:
    if s.unit is not None:
        return s.unit
    samples = numbers.get("samples")
    told = samples is not None and s.total == samples and samples > 1
    return "sample" if told or _goes_by_batches(s) else "iteration"


def _goes_by_batches(s: Series) -> bool:
    """Whether a counter within an epoch goes on by so many batches of a power of two, which do not divide its total:
    `[ 6400/60000]`, `[12800/60000]`. Nobody asks for a line every 640 iterations; every 64 somebody may."""
    interval, first, total = interval_of(s), s.first_iteration or 0.0, s.total
    if s.scope != "epoch" or total is None or not interval or interval % BATCHES or total % interval == 0:
        return False
    batches = int(interval)
    while batches % 10 == 0:
        batches //= 10
    return batches >= BATCH and batches & (batches - 1) == 0 and (first == 0 or interval % first == 0)


def interval_of(s: Series) -> float:
    """Iterations between two of its lines. The newest distance is not it: the last line may come early."""
    at = [row.iteration for row in s.kept() if row.iteration is not None]
    steps = [b - a for a, b in pairwise(at) if b > a]
    return median(steps) if steps and s.stride == 1 else s.interval
