"""Curves of one run: training loss, accuracy and validation against the position, one value a position.

Position. Where the log counts iterations over the whole run, a position is the index as printed. Where the counter
starts again each epoch, positions are unrolled: iterations of the epochs before (as printed or as last seen; they
may differ from epoch to epoch) plus the index. Where nothing counts iterations, a position is the epoch.

One value a position. Ranks that print the same position are averaged. A position that comes again later, after the
run was resumed behind it, replaces what was there: the weights of the first pass are gone. Stragglers that are at
most one logging interval behind are ranks without a prefix, not a resumed run.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Literal, TypeVar

from profiler.model import Kind, LossKind, LossSummary, Point, Run, SeriesSummary, Value
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.words import against_each_other, averaged, words_of

LATE = 1.5  #: logging intervals that a rank's line may be behind
SUMMED = 3  #: losses of which one may be the sum of the others
FEWEST_SUMS = 2  #: positions at which it is
FEWEST_STEPS = 6  #: from one value to the next, from which a curve falls steadily
STEADY = 0.75  #: where so many of them go down
FEWEST_SORTED = 4  #: positions at which of two losses the same is the higher, where they are of two sorts
SORTED = 0.9  #: of the positions, at least this share
SEVERAL = 1.5  #: times as many accuracies of a position as losses
APART = 1.05  #: and how far it is above the other
LIKE_THE_SUM = 1e-3  #: and how near: they are printed with few digits

T = TypeVar("T", bound=Hashable)
Axis = Literal["iteration", "epoch"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at ascending, distinct positions."""

    name: str
    kind: LossKind
    axis: Axis
    points: tuple[tuple[float, float], ...]
    parts: tuple[str, ...] = ()


@dataclass(slots=True)
class Positions:
    """Turns (epoch, iteration) as printed into a position on the axis of the whole run."""

    axis: Axis
    #: epoch -> iterations before it; empty where the counter runs through
    before: dict[float, float] = field(default_factory=dict)
    passes: dict[int, float] = field(default_factory=dict)  #: line -> epoch, where no line tells one
    unnamed: float = 0.0  #: the epoch of lines before the first that is told

    @classmethod
    def of(cls, run: Run) -> Positions:
        counted = [p for p in run.points if p.kind is not Kind.VALIDATION and p.iteration is not None]
        if not counted:
            return cls("epoch")
        if run.scope != "epoch":
            return cls("iteration")
        passes = _passes(counted)
        counted = [replace(p, epoch=passes.get(p.line, p.epoch)) for p in counted] if passes else counted
        unnamed = _before_the_first(counted)
        seen = _lengths(counted, unnamed)
        more = _beyond_the_last(run, counted)
        seen = {epoch: length + more for epoch, length in seen.items()}
        base = 0.0 if 0.0 in seen else 1.0
        length = run.iterations_per_epoch or max(seen.values())
        before: dict[float, float] = {}
        total, expected = 0.0, base
        for epoch in sorted(seen):
            total += max(epoch - expected, 0.0) * length  # epochs that the log does not show
            before[epoch] = total
            total += seen[epoch]
            expected = epoch + 1
        return cls("iteration", before, passes, unnamed)

    def __call__(self, p: Point) -> float | None:
        if self.axis == "epoch":
            return p.epoch
        if p.iteration is None or p.scope != "epoch":
            return p.iteration
        return self.behind(self.passes.get(p.line, p.epoch)) + p.iteration

    def behind(self, epoch: float | None) -> float:
        """Iterations of the epochs before; 0 where the counter runs through."""
        return self.before.get(_whole(epoch, self.unnamed), 0.0)


def _before_the_first(counted: Sequence[Point]) -> float:
    """The epoch of lines that tell none: where an epoch is told behind its lines, the one before the first told."""
    told = [p.epoch for p in counted if p.epoch is not None]
    return _whole(min(told, default=1.0)) - 1


def _passes(counted: Sequence[Point]) -> dict[int, float]:
    """Line -> how often the counter began again before it: epochs that nobody numbered; of bars none. A rank's late
    line, not far behind, is no beginning."""
    if any(p.epoch is not None or p.from_bar for p in counted):
        return {}
    steps = [b - a for a, b in pairwise(p.iteration or 0.0 for p in counted) if b > a]
    slack = LATE * median(steps) if steps else 0.0
    made: dict[int, float] = {}
    now, ahead = 0.0, -math.inf
    for p in counted:
        at = p.iteration or 0.0
        if at < ahead - slack:
            now, ahead = now + 1, at
        ahead = max(ahead, at)
        made[p.line] = now
    return made


def _lengths(counted: Sequence[Point], unnamed: float) -> dict[float, float]:
    """Epoch -> its iterations, as printed or as last seen."""
    seen: dict[float, float] = defaultdict(float)
    for p in counted:
        if p.iteration is not None:
            epoch = _whole(p.epoch, unnamed)
            seen[epoch] = max(seen[epoch], p.iterations or 0.0, p.iteration)
    return seen


def _beyond_the_last(run: Run, counted: Sequence[Point]) -> float:
    """What an epoch holds more than its total, or where none is told than the last index seen: the next epoch's first
    must lie behind that."""
    if run.iterations_per_epoch is None and not any(p.iterations for p in counted):
        return _room(counted)
    return 1.0 if _counts_both_ends(counted) else 0.0


def _counts_both_ends(counted: Sequence[Point]) -> bool:
    """Whether a counter goes from 0 to its total by ones: an epoch has one more of them than the total says."""
    if any(p.from_bar for p in counted):
        return False  # a bar at 0 has done nothing yet
    full = any(p.iteration == p.iterations for p in counted)
    return full and _room(counted) == 1


def _room(counted: Sequence[Point]) -> float:
    """What to leave behind an epoch whose counter starts at 0: one step of it. A counter from 1 on leaves its own."""
    if not any(p.iteration == 0 for p in counted):
        return 0.0
    return min((b.iteration - a.iteration for a, b in pairwise(counted) if _steps(a, b)), default=1.0)  # type: ignore[operator]


def _steps(a: Point, b: Point) -> bool:
    return a.epoch == b.epoch and a.iteration is not None and b.iteration is not None and b.iteration > a.iteration


def quantile(values: Iterable[float], q: float) -> float:
    """The q-quantile, linear between values: numpy's, without its masked arrays (6 MB)."""
    ordered = sorted(map(float, values))
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _whole(epoch: float | None, unnamed: float = 0.0) -> float:
    return unnamed if epoch is None else float(int(epoch))


def loss_curve(run: Run) -> Curve | None:
    """The training loss of a run, None when the log prints none.

    Step lines are preferred to summaries of epochs. Partial losses are summed only when no total is printed.
    """
    for kind in (Kind.TRAIN, Kind.EPOCH):
        points = [p for p in run.points if p.kind is kind and p.losses and not p.redrawn]
        totals = [p for p in points if p.total]
        if totals:
            return None if tells_two_sorts(run) else _curve_of_totals(run, totals)
        if points:
            return _curve_of_parts(run, points)
    return None


def _curve_of_totals(run: Run, points: Sequence[Point]) -> Curve | None:
    name = most_common([p.losses[0].name for p in points])
    named = [p for p in points if p.losses[0].name == name]
    return _loss_curve(run, named, lambda p: p.losses[0].value, name, ())


def _two_sorts(run: Run, points: Sequence[Point]) -> bool:
    """Whether one process tells several losses of each position, always the same of them the higher: of two networks,
    or of training and held-out data. Ranks differ now this way and now that. What an epoch is so far may fall from line
    to line, so that there only one that rises is another's."""
    told = _in_twos(points)
    if (run.ranks or 1) > 1 or not told:
        return False
    apart = [b / a for a, b in told]
    rises = sum(share >= APART for share in apart) >= SORTED * len(told)
    falls = sum(share <= 1 / APART for share in apart) >= SORTED * len(told)
    return rises or (falls and not _so_far(run, points[0]))


def _in_twos(points: Sequence[Point]) -> list[list[float]]:
    """The losses of each position where nearly all have two of one process; else nothing."""
    cells: dict[tuple[object, object], list[float]] = defaultdict(list)
    for p in points:
        if p.rank is None and p.trial is None and not p.from_bar:
            cells[p.epoch, p.iteration].append(p.losses[0].value)
    told = [cell for cell in cells.values() if len(cell) == 2 and min(cell) > 0]
    return told if len(told) >= max(FEWEST_SORTED, SORTED * len(cells)) else []


def tells_two_sorts(run: Run) -> bool:
    """Whether the losses of a run are of two sorts, those that a later line replaced included."""
    told = [p for p in run.points if p.kind is not Kind.VALIDATION and p.losses and p.total]
    return any(_two_sorts(run, [p for p in told if p.kind is kind]) for kind in (Kind.TRAIN, Kind.EPOCH))


def _curve_of_parts(run: Run, points: Sequence[Point]) -> Curve | None:
    told, points = points, _on_one_line(points)
    if not points:
        return None
    apart = points is not told
    parts = most_common([_names(p) for p in points])
    named = [p for p in points if _names(p) == parts]
    whole = _sum_of_others(named)
    if whole is not None:
        return _loss_curve(run, named, lambda p: p.losses[whole].value, parts[whole], ())
    if apart and against_each_other(parts):
        return None  # each network's own whole may be among them: nothing says which are to be added
    return _loss_curve(run, named, lambda p: sum(v.value for v in p.losses), "+".join(parts), parts)


def _sum_of_others(points: Sequence[Point]) -> int | None:
    """Which of three or more losses told together is, at each position, the sum of the others, or their mean."""
    told = [[v.value for v in p.losses] for p in points]
    if len(told) < FEWEST_SUMS or len(told[0]) < SUMMED:
        return None
    many = len(told[0])
    shares = ((i, share) for share in (1.0, many - 1.0) for i in range(many))
    return next((i for i, share in shares if all(_is_share(row[i], sum(row), share) for row in told)), None)


def _is_share(value: float, total: float, share: float) -> bool:
    """Whether a value is so manieth of the others that it makes a total with."""
    return value > 0 and abs((total - value) / share - value) <= LIKE_THE_SUM * value


def _on_one_line(points: Sequence[Point]) -> Sequence[Point]:
    """Parts that are told on lines of their own, put together where they are of one position: none of them alone is
    the loss, nor is their mean."""
    told = Counter(map(_names, points))
    often = [names for names, n in told.items() if n > 1 and 2 * n >= max(told.values())]
    all_names = [name for names in often for name in names]
    if len(often) < 2 or len(set(all_names)) < len(all_names):
        return points
    cells: dict[tuple[object, ...], dict[str, Value]] = {}
    last: dict[tuple[object, ...], Point] = {}
    for p in points:
        at = (p.epoch, p.iteration, p.rank)
        cells.setdefault(at, {}).update((value.name, value) for value in p.losses)
        last[at] = p
    all_names = _less_extended(all_names)
    whole = [at for at, cell in cells.items() if cell.keys() >= set(all_names)]
    return [replace(last[at], losses=tuple(cells[at][name] for name in all_names)) for at in whole]


def _less_extended(names: list[str]) -> list[str]:
    """Without names that another one is the beginning of: of 'output' and 'output-xent' the first is the whole."""
    bare = {name: name.rstrip("'\"") for name in names}
    longer = tuple(each + mark for each in bare.values() for mark in "-_/")
    return [name for name in names if not bare[name].startswith(longer)]


def _names(p: Point) -> tuple[str, ...]:
    return tuple(v.name for v in p.losses)


def _loss_curve(
    run: Run, points: Sequence[Point], value: Callable[[Point], float], name: str, parts: tuple[str, ...]
) -> Curve | None:
    positions = _axis_of(run, points)
    so_far = _so_far(run, points[0])
    alone = [p.rank is None and (p.from_bar or so_far) for p in points]  # the last of them counts
    curve = curve_of((positions(p), -1 if one else p.rank, value(p)) for p, one in zip(points, alone, strict=True))
    if not curve:
        return None
    kind = most_common([p.losses[0].kind for p in points])
    if kind is LossKind.RUNNING and positions.axis == "epoch" and all(at.is_integer() for at, _ in curve):
        kind = LossKind.EPOCH  # an average that is told when its epoch is over
    return Curve(name, kind, positions.axis, curve, parts)


def _so_far(run: Run, of: Point) -> bool:
    """Whether several values at one position are what an epoch, or a step of several micro-batches, is so far: their
    mean was never printed. Of a bar's states, and of one rank's lines, the last one counts too."""
    return (run.ranks or 1) <= 1 and (of.kind is Kind.EPOCH or (run.accumulation or 1) > 1)


def _axis_of(run: Run, points: Sequence[Point]) -> Positions:
    """Iterations where most of these lines have one, else epochs."""
    counted = sum(1 for p in points if p.iteration is not None)
    return Positions.of(run) if 2 * counted > len(points) else Positions("epoch")


def curve_of(values: Iterable[tuple[float | None, int | None, float]]) -> tuple[tuple[float, float], ...]:
    """(position, rank, value) in order of the text -> one value a position, positions ascending."""
    known = [(at, rank, value) for at, rank, value in values if at is not None]
    steps = [b[0] - a[0] for a, b in pairwise(known) if b[0] > a[0]]
    slack = LATE * median(steps) if steps else 0.0
    cells: dict[float, dict[tuple[int, int | None, int], float]] = {}
    pass_no, ahead = 0, float("-inf")
    for at, rank, value in known:
        if at < ahead - slack:
            pass_no, ahead = pass_no + 1, at
        ahead = max(ahead, at)
        cell = cells.setdefault(at, {})
        if cell and next(iter(cell))[0] != pass_no:
            cell.clear()
        # Without a prefix each line counts as a rank of its own; with one, a rank's last word counts.
        cell[pass_no, rank, len(cell) if rank is None else 0] = value
    return tuple((at, _mean(cells[at].values())) for at in sorted(cells))


def _mean(values: Collection[float]) -> float:
    """The mean, also of numbers whose sum is none."""
    try:
        return fmean(values)
    except (OverflowError, ValueError):
        return sum(value / len(values) for value in values)


def accuracy_curve(run: Run) -> Curve | None:
    """Training accuracy: step lines before summaries of epochs; the first of a line (top-1 before top-5). Where one is
    called training's, what is called accuracy and no more is another's."""
    told = [p for p in run.points if p.kind is not Kind.VALIDATION and p.accuracies and not p.redrawn]
    told = [p for p in told if side_of(p.accuracies[0].name) == "train"] or told
    for kind in (Kind.TRAIN, Kind.EPOCH):
        points = [p for p in told if p.kind is kind]
        if points:
            return None if _are_several(run, points) else _named_curve(run, [(p, p.accuracies) for p in points])
    return None


def _are_several(run: Run, points: Sequence[Point]) -> bool:
    """Whether far more accuracies are told of a position than losses: of several heads or data sets, and their mean
    was never printed. Ranks tell as many of each."""
    told = {(p.epoch, p.iteration, p.accuracies[0].value) for p in points}
    places = {at[:2] for at in told}
    losing = [p for p in run.points if p.losses]
    return len(told) > SEVERAL * max(len(places), len(losing))


def falls_together(accuracy: Curve | None, loss: Curve | None) -> bool:
    """Whether what was taken for an accuracy falls as steadily as the loss does, or without any that is told: then it
    is the share that is wrong."""
    told = [[v for _, v in curve.points] for curve in (accuracy, loss) if curve is not None]
    return accuracy is not None and all(map(_falls_steadily, told))


def _falls_steadily(values: Sequence[float]) -> bool:
    steps = [b < a for a, b in pairwise(values)]
    return len(steps) >= FEWEST_STEPS and sum(steps) >= STEADY * len(steps)


def validation_curves(run: Run) -> tuple[Curve | None, Curve | None]:
    """Loss and accuracy of held-out data: lines of an evaluation, and values printed beside the training's."""
    losses: list[tuple[Point, tuple[Value, ...]]] = []
    accuracies: list[tuple[Point, tuple[Value, ...]]] = []
    for p in run.points:
        if p.redrawn:
            continue
        if p.kind is Kind.VALIDATION:
            losses.append((p, p.validation_losses or (p.losses if p.total else ())))
            accuracies.append((p, p.validation_accuracies or p.accuracies))
        else:
            losses.append((p, p.validation_losses))
            accuracies.append((p, p.validation_accuracies))
    return _named_curve(run, losses), _named_curve(run, accuracies)


def _named_curve(run: Run, rows: Sequence[tuple[Point, tuple[Value, ...]]]) -> Curve | None:
    valued = [(p, values) for p, values in rows if values]
    if not valued:
        return None
    name = _summing_up([(p, values[0].name) for p, values in valued])
    kept = [(p, values[0]) for p, values in valued if values[0].name == name]
    beside = [p for p, _ in kept if p.kind is not Kind.VALIDATION]
    positions = _axis_of(run, beside) if beside else Positions.of(run)
    curve = _placed(run, kept, positions, alone=not beside)
    return Curve(name, kept[0][1].kind, positions.axis, curve) if curve else None


def _placed(
    run: Run, kept: Sequence[tuple[Point, Value]], positions: Positions, *, alone: bool
) -> tuple[tuple[float, float], ...]:
    """The values where they belong. `alone`: all are of evaluations, whose meters print the same position again and
    again: the last word counts, per rank."""
    where = _held_out_positions(run)
    placed = [(where[p.line] if p.kind is Kind.VALIDATION else positions(p), p.rank, v.value) for p, v in kept]
    return curve_of((at, -1 if rank is None and alone else rank, value) for at, rank, value in placed)


def _summing_up(told: Sequence[tuple[Point, str]]) -> str:
    """The name that counts: of `loss` on the lines of an evaluation and `loss_avg` at its end the latter, which tells
    once of each what the others tell so far."""
    name = _name_of([name for _, name in told])
    if averaged(name):
        return name
    epochs: dict[str, set[float | None]] = defaultdict(set)
    for point, each in told:
        epochs[each].add(point.epoch)
    newest = told[-1][0].epoch  # its end may not have come yet
    for other, ended in epochs.items():
        if not averaged(other) or _measured(other) != _measured(name):
            continue
        if ended >= epochs[name] - {newest}:
            return other
    return name


def _measured(name: str) -> list[str]:
    """The words of a name, but for those that say of which data and that it is an average."""
    return [word for word in words_of(name) if not averaged(word) and not side_of(word)]


def _name_of(names: Sequence[str]) -> str:
    """The name that counts: the commonest, but of a test set beside a validation set the latter."""
    name = most_common(names)
    return next((n for n in names if "val" in n.casefold()), name) if "test" in name.casefold() else name


def _held_out_positions(run: Run) -> dict[int, float | None]:
    """Line of an evaluation -> the training position it was made at.

    An evaluation that prints the step of the training is at that step; one that counts its own batches, or
    nothing, is at the training position last seen before it, or at its epoch where training counts epochs.
    """
    positions = Positions.of(run)
    last: float | None = None
    stood: float | None = None  #: the same as the log prints it
    found: dict[int, float | None] = {}
    for p in run.points:
        if p.kind is not Kind.VALIDATION:
            at = positions(p)
            if at is not None:
                last, stood = at, p.iteration
            continue
        if positions.axis == "epoch":
            found[p.line] = p.epoch if p.epoch is not None else (0.0 if last is None else last)
        elif p.iteration not in (None, stood) and p.scope == "run":
            found[p.line] = (p.iteration or 0.0) + positions.behind(p.epoch)
        else:
            found[p.line] = last if last is not None else 0.0
    return found


def most_common(items: Sequence[T]) -> T:
    counts: dict[T, int] = defaultdict(int)
    for item in items:
        counts[item] += 1
    return max(counts, key=lambda item: counts[item])


def loss_summary(run: Run, curve: Curve | None) -> LossSummary | None:
    if curve is None:
        return None
    return LossSummary(
        name=curve.name,
        kind=curve.kind,
        axis=curve.axis,
        n=max(len(curve.points), run.positions) if run.thinned > 1 else len(curve.points),
        first=curve.points[0],
        last=curve.points[-1],
        parts=curve.parts,
        points=curve.points,
    )


def series_summary(curve: Curve | None, named: bool) -> SeriesSummary | None:
    if curve is None:
        return None
    return SeriesSummary(n=len(curve.points), last=curve.points[-1], name=curve.name if named else None)
