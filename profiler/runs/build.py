"""One open run -> the immutable `Run`: which series is the training, what its counter means, which points belong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from profiler.model import Failure, FailureKind, Kind, Point, Run, Scope
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.units import TIME_UNITS
from profiler.rules.lexicon.words import words_of
from profiler.rules.plan import Field, Row
from profiler.rules.rule import MEASURES
from profiler.runs.counting import Counted, as_it_counts, interval_of, unit_of, with_length
from profiler.runs.series import Series

if TYPE_CHECKING:
    from profiler.runs.open_run import Open

_COUNTED_WORDS = frozenset(
    (
        "epoch",
        "epochs",
        "step",
        "steps",
        "iter",
        "iters",
        "iteration",
        "iterations",
        "batch",
        "batches",
        "update",
        "updates",
    )
)
_TOTAL = frozenset(
    (
        "total",
        "overall",
        "sum",
    )
)
_OF_A_STEP = frozenset(("step_time", "step_rate"))  #: beside them an ambiguous time says nothing more
SUMMED, MOST_SUMMED = 3, 16  #: losses of which one may be the sum of the others
LIKE_THE_SUM = 1e-3  #: a loss this near to the sum is it
LIKE_THE_CLOCK = 0.25  #: a time this near to what the stamps say is what they say


@dataclass(frozen=True, slots=True)
class Cast:
    """Which series plays which part in a run."""

    chosen: list[Series]  #: those whose points are the run's
    main: Series | None  #: whose loss is the training's
    counter: Series | None  #: whose counter is the training's
    lead: Series | None  #: whose counter is told

    @property
    def summary(self) -> Series | None:
        """The newest summary of epochs that prints a counter."""
        counted = (s for s in self.chosen if s.kind == "epoch" and s.last_iteration is not None)
        return max(counted, key=lambda s: s.last_line, default=None)


def build(run: Open) -> Run:
    """The run as far as it was read. Changes nothing."""
    cast = _cast(run)
    points = _points(cast.chosen, cast.main)
    numbers = run.facts.numbers
    counted = _up_to_date(_counted(cast, numbers), cast.lead, run)
    counted, points = as_it_counts(cast.lead, cast.main, counted, points)
    counted = with_length(counted, points)
    ranks = _ranks(run, points)
    return Run(
        format=_format(cast.main or cast.counter, cast.chosen),
        first_line=min([run.first_line, *(p.line for p in points)]),
        last_line=max([run.last_line, *(p.line for p in points)]),
        points=tuple(points),
        positions=_positions(cast.main),
        thinned=max((_thinned(s) for s in cast.chosen), default=1),
        scope=counted.scope,
        unit=counted.unit,
        first_iteration=counted.first,
        last_iteration=counted.last,
        total_iterations=counted.total,
        iterations_per_epoch=counted.per_epoch,
        last_epoch=_last_epoch(run, cast.chosen, cast.lead),
        total_epochs=_total_epochs(run, points),
        ranks=ranks,
        gpus=_gpus(numbers, ranks),
        batch_size=numbers.get("batch_size"),
        accumulation=int(numbers["accumulation"]) if "accumulation" in numbers else None,
        timed_by=next((f.name for s in cast.chosen for f in s.plan.fields if f.what == "step_time"), ""),
        elapsed_by=next(filter(_without_unit, _heads_of_elapsed(cast.chosen)), ""),
        failure=_failure(run, cast.main),
        warnings=(),
    )


def _cast(run: Open) -> Cast:
    training = [s for s in run.series.values() if s.kind in ("train", "epoch")]
    main = _main([s for s in training if s.has_loss])
    counter = _counter(main, training)
    if main is None:
        main = counter
    chosen = _one_validation(_chosen(run, main, counter), main or counter)
    lead = counter or main or next((s for s in chosen if s.last_iteration is not None), None)
    return Cast(chosen, main, counter, lead)


def _counted(cast: Cast, numbers: dict[str, float]) -> Counted:
    """The counter of the series that leads; without one, what the log says of epochs."""
    lead = cast.lead
    told = numbers.get("iterations_per_epoch")
    if lead is None or lead.last_iteration is None:
        return Counted(per_epoch=told)
    of_run = numbers.get("counted_to", numbers.get("iterations"))  # beside the counter, before what stands elsewhere
    scope = "run" if lead.counts_run(of_run) else lead.scope
    unit = unit_of(lead, numbers)
    total = lead.total if lead.total is not None else numbers.get("counted_to")
    if scope == "epoch" and total is not None:
        told = total
    if scope == "run" and total is None:
        total = of_run
    per_epoch = None if unit == "sample" else told
    return Counted(
        scope, unit, _first_iteration(cast, lead, scope), _last_iteration(lead, cast.summary), total, per_epoch
    )


def _up_to_date(counted: Counted, lead: Series | None, run: Open) -> Counted:
    """With the newest index where counters stand on lines of their own: their values may stand above them."""
    newest = run.announced
    if newest is None or lead is None or lead.plan.iteration is not None or counted.last is None:
        return counted
    goes_on = newest[2] > lead.last_line and newest[1] > counted.last and newest[0] in (None, lead.last_epoch)
    return replace(counted, last=newest[1]) if goes_on else counted


def _first_iteration(cast: Cast, lead: Series, scope: Scope) -> float | None:
    """The first index; lines of the same counter and total may begin before the first loss is told."""
    first, total = lead.first_iteration, lead.total
    if first is None or total is None or scope != "run" or lead.bar:
        return first
    same = [s for s in cast.chosen if s.kind == "train" and s.total == total and not s.bar]
    early = [s.first_iteration for s in same if s.first_iteration is not None and s.first_line < lead.first_line]
    return min([first, *early])


def _ranks(run: Open, points: list[Point]) -> int | None:
    """Ranks as the newest line tells; else as the run says of itself, or as many as wrote lines."""
    printed = [p.world for p in points if p.world]
    if printed:
        return printed[-1]
    numbers = run.facts.numbers
    world = numbers.get("world")
    if world is None and "gpus_per_node" in numbers:
        world = numbers["gpus_per_node"] * numbers.get("nodes", 1)
    tagged = len(run.facts.ranks) if len(run.facts.ranks) > 1 else 0
    return max(int(world or 0), tagged) or None


def _total_epochs(run: Open, points: list[Point]) -> float | None:
    printed = [p.epochs for p in points if p.epochs is not None]
    if printed:
        return printed[-1]
    announced = run.context[1] if run.context else None
    return announced or run.facts.numbers.get("epochs")


def _heads_of_elapsed(chosen: list[Series]) -> Iterator[str]:
    return (f.name for s in chosen for f in s.plan.fields if f.what == "elapsed" and f.name)


def _without_unit(head: str) -> bool:
    return TIME_UNITS.keys().isdisjoint(words_of(head))


def _thinned(s: Series) -> int:
    return max(s.stride, s.state_stride if _one_bar(s) else 1)


def _last_iteration(lead: Series, summary: Series | None) -> float | None:
    """The newest index; an epoch's summary may print a newer one of a counter that runs on."""
    last = lead.last_iteration
    if summary is None or last is None or lead.scope != "run" or summary.plan.scope != "run":
        return last
    return max(last, summary.last_iteration or last) if summary.last_line > lead.last_line else last


def _format(lead: Series | None, chosen: list[Series]) -> str | None:
    """The rule set of the lines that carry training; without any, the one that read most."""
    if lead is not None:
        return lead.plan.rule.split("/")[0]
    return _formats_of(Counter({s.plan.rule: s.count for s in chosen}))


def _one_bar(s: Series) -> bool:
    """Whether one bar is all there is of the run: then its states are the curve, not only its end."""
    if not (s.bar and s.has_loss and s.state_count and s.last_epoch is None):
        return False
    finals = {row.order for row in (*s.rows, *s.tail) if not row.redrawn}
    return len(finals) <= 3 and s.state_count > min(len(finals), s.loss_positions)


def _positions(main: Series | None) -> int:
    if main is None:
        return 0
    return main.loss_positions + (main.state_count if _one_bar(main) else 0)


def _gpus(numbers: dict[str, float], ranks: int | None) -> int | None:
    """GPUs as told; a rank holds one where the log says that ranks hold GPUs."""
    if numbers.get("gpus"):
        return int(numbers["gpus"])
    return ranks if ranks and ("gpus_used" in numbers or "gpus_per_node" in numbers) else None


def thin(run: Run) -> Run:
    """The run with every second of its inner points."""
    last = len(run.points) - 1
    points = tuple(p for i, p in enumerate(run.points) if i % 2 == 0 or i == last)
    return replace(run, points=points, thinned=run.thinned * 2)


def _main(losing: list[Series]) -> Series | None:
    """The series whose loss is the training's: a whole before its parts, where it is told about as often."""
    main = max(losing, key=_weight, default=None)
    alike = [s for s in losing if main is not None and len(losing) > 1 and _weight(s) == _weight(main)]
    whole = next(filter(_called_total, alike), None) or _sum_of_others(alike)
    if whole is not None:
        return whole
    if main is None or main.plan.total:
        return main
    wholes = (s for s in losing if s.plan.total and s.kind == main.kind and 2 * s.loss_positions >= main.loss_positions)
    return max(wholes, key=_weight, default=main)


def _called_total(s: Series) -> bool:
    """Whether the words before its loss say that it is the whole."""
    name = s.plan.loss.name if s.plan.loss is not None else ""
    return not _TOTAL.isdisjoint((*s.name.rpartition(":")[2].split(), *name.lower().split()))


def _sum_of_others(alike: list[Series]) -> Series | None:
    """Of losses told as often as each other, the one that was at first, and is at last, the sum of the others."""
    if not SUMMED <= len(alike) <= MOST_SUMMED:
        return None
    ends = [(_loss_of(s.first_row), _loss_of(s.tail[-1] if s.tail else None)) for s in alike]
    at_first = sum(first for first, _ in ends) / 2
    at_last = sum(last for _, last in ends) / 2
    for s, (first, last) in zip(alike, ends, strict=True):
        near_first = abs(at_first - first) <= LIKE_THE_SUM * abs(first)
        near_last = abs(at_last - last) <= LIKE_THE_SUM * abs(last)
        if near_first and near_last:
            return s if first > 0 and last > 0 else None
    return None


def _loss_of(row: Row | None) -> float:
    told = None if row is None else row.plan.told(row.plan.loss, row.groups)
    return told if told is not None else 0.0


def _weight(s: Series) -> tuple[bool, int, bool]:
    """The loss of steps before that of epochs, then the one with most positions."""
    return (s.kind == "train", s.loss_positions, not s.bar)


def _counter(main: Series | None, training: list[Series]) -> Series | None:
    """The series whose counter is training's: the loss's own, else one that runs beside it."""
    steps = [s for s in training if s.kind == "train"]
    if main is None:
        return _counter_alone(steps, [s for s in training if s.kind == "epoch"])
    if main.last_iteration is None:
        return _counter_beside(main, [s for s in steps if s.last_iteration is not None])
    if main.plan.iteration is not None:
        return main
    # its values stand on other lines than the counter
    named = [s for s in steps if s.plan.iteration is not None and s.first_line <= main.last_line]
    own = [s for s in named if _stands_at(s, main.last_iteration)]
    return max(own, key=lambda s: (not s.bar, s.count), default=main)


def _stands_at(s: Series, iteration: float) -> bool:
    """Whether a counter stands where values on other lines do, or on its next line, whose values are not there yet."""
    ahead = (s.last_iteration or 0.0) - iteration
    return 0 <= ahead <= s.interval


def _counter_beside(main: Series, counted: list[Series]) -> Series | None:
    beside = [s for s in counted if s.first_line <= main.last_line and s.last_line >= main.first_line]
    summed_up = main.kind == "epoch"
    if not beside:  # a bar of an epoch that was announced, and its values behind it
        beside = [s for s in counted if s.bar and (s.last_epoch is not None or (summed_up and "train" in s.name))]
    return max(beside, key=lambda s: (not s.total_changes, s.count), default=None)


def _counter_alone(steps: list[Series], summaries: list[Series]) -> Series | None:
    """Of a run without a loss."""
    counted = [s for s in steps if s.last_iteration is not None]
    told = [s for s in counted if not s.bar or s.last_epoch is not None or _may_train(s)]
    if not told and summaries:
        told = counted
    return max(told, key=lambda s: s.count, default=max(summaries, key=lambda s: s.count, default=None))


def _may_train(bar: Series) -> bool:
    """Whether the words before a bar speak of training, or tell what was measured, or it has none: `Running
    loglikelihood requests:  5%|` is no training, whatever its words mean."""
    said = bar.name.rpartition(":")[2]
    if said.endswith(MEASURES):
        return True
    words = set(words_of(said))
    return not words or not words.isdisjoint(_COUNTED_WORDS) or side_of(said) == "train"


def _chosen(run: Open, main: Series | None, counter: Series | None) -> list[Series]:
    if main is None and counter is None:
        held = [s for s in run.series.values() if s.kind == "validation" and not s.bar]
        return [s for s in held if s.last_epoch is not None or (s.last_iteration is not None and not s.advances)]
    return [s for s in run.series.values() if s is main or s is counter or (_belongs(s) and not _beside(s, counter))]


def _beside(s: Series, counter: Series | None) -> bool:
    """Whether it is a bar that says nothing but how far it is, and of another length than training's own."""
    if counter is None or not (s.bar and counter.bar) or s.has_loss or s.kind != "train":
        return False
    return s.total is not None and s.total != counter.total


def _belongs(s: Series) -> bool:
    """Whether a series is the run's, whatever counts there: a bare bar is not."""
    if s.kind == "train":
        return s.last_iteration is not None and (not s.bar or s.last_epoch is not None)
    return s.kind in ("validation", "epoch")


def _one_validation(chosen: list[Series], main: Series | None) -> list[Series]:
    """Two programs may print the same accuracy (a framework and MLPerf's log): the training's own counts."""
    held = [s for s in chosen if s.kind == "validation" and not s.bar]
    formats = {_format_of(s) for s in held}
    own = _format_of(main) if main is not None else ""
    if len(formats) > 1 and any(_format_of(s) == own and not s.advances for s in held):
        return [s for s in chosen if s not in held or _format_of(s) == own]
    return chosen


def _format_of(series: Series) -> str:
    return series.plan.rule.split("/")[0]


def _points(chosen: list[Series], main: Series | None) -> list[Point]:
    points = [placed for s in chosen for placed in _points_of(s, s is main)]
    points.sort(key=lambda t: t[:2])
    return [p for _, _, p in points]


def _points_of(s: Series, main: bool) -> Iterator[tuple[int, int, Point]]:
    """(line, order, point) of a series; only the main one's losses count."""
    scope = s.scope
    time_is = s.time_is() or _time_by_clock(s)
    curve = main and _one_bar(s)
    interval = interval_of(s) if time_is == "window" else 0.0
    for row in s.kept():
        p = row.point(scope, None, time_is)
        if curve and p.redrawn:
            p = replace(p, redrawn=False)  # one bar is all there is of this run: its states are the curve
        if not main and p.kind is Kind.TRAIN and p.losses:
            p = replace(p, losses=())
        if interval and p.step_s is not None:
            p = replace(p, step_s=p.step_s / interval)
        yield row.line, row.order, p


def _time_by_clock(s: Series) -> str:
    """What an ambiguous time means where the lines are stamped: the step's, the window's, or "" where neither fits."""
    field = s.plan.window
    if field is None or any(f.what in _OF_A_STEP for f in s.plan.fields):
        return ""
    shares = list(_shares(s, field))
    if len(shares) < 2:
        return ""
    of_window = median(share for share, _ in shares)
    of_step = median(share * count for share, count in shares)
    window, step = (abs(share - 1) < LIKE_THE_CLOCK for share in (of_window, of_step))
    return "" if window is step else "window" if window else "step"


def _shares(s: Series, field: Field) -> Iterator[tuple[float, float]]:
    """(share of the stamps' distance that a line's time is, iterations in it) for each line after the first."""
    rows = [r for r in s.kept() if r.time_s is not None and r.iteration is not None and r.plan is s.plan]
    for a, b in pairwise(rows):
        lasted, count = (b.time_s or 0.0) - (a.time_s or 0.0), (b.iteration or 0.0) - (a.iteration or 0.0)
        if lasted > 0 and count > 0:
            yield s.plan.value(field, b.groups) / lasted, count


def _last_epoch(run: Open, chosen: list[Series], lead: Series | None) -> float | None:
    """The newest epoch as the training lines print it; headers count for lines that print none."""
    if lead is not None and lead.plan.epoch is not None and lead.last_epoch is not None:
        return _furthest(chosen, lead)
    trained = [s.last_epoch for s in chosen if s.kind != "validation" and s.last_epoch is not None]
    if not trained:
        trained = [s.last_epoch for s in chosen if s.last_epoch is not None]
    if run.context is not None and any(s.kind != "validation" for s in chosen):
        trained.append(run.context[0])
    return max(trained, default=None)


def _furthest(chosen: list[Series], lead: Series) -> float | None:
    alike = [s.last_epoch for s in chosen if s.last_epoch is not None and _alike(s, lead)]
    return max(alike)


def _alike(series: Series, lead: Series) -> bool:
    """Whether lines tell what the lead's tell, in a form of their own: the best epoch so far behind a mark."""
    if (series.kind, series.plan.rule) != (lead.kind, lead.plan.rule):
        return False
    told = {f.what for f in series.plan.fields}
    return told == {f.what for f in lead.plan.fields}


def _failure(run: Open, main: Series | None) -> Failure | None:
    if run.failure is not None:
        return run.failure
    if main is not None and main.nan_line is not None:
        return Failure(FailureKind.NAN_LOSS, main.nan_line, "the training loss is not a number")
    return None


def _formats_of(rows: Counter[str]) -> str | None:
    """The rule set that read most points."""
    best: dict[str, int] = {}
    for rule, n in rows.items():
        name = rule.split("/")[0]
        best[name] = best.get(name, 0) + n
    return max(best, key=lambda k: best[k]) if best else None
