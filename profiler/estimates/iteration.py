"""How long one iteration takes, from whatever a log tells, and how far to believe it.

Sources, best first: a printed step time; a printed rate; differences of timestamps; the time of an epoch over its
iterations; a progress bar's own rate. Each gives samples (seconds an iteration, over how many iterations). The best
source that exists is used; the others check it:

* more than 20 % apart, and more than their printed digits can tell: a warning names both;
* an epoch timed in whole seconds gives way to its bar's rate where a second is more than 5 % of it;
* the wall clock (timestamps or elapsed time, pauses left out) is never beaten: a printed time that is longer than
  the slowest intervals allow, or so short that even the fastest intervals take `WALL_FACTOR` times as long, is not
  the time of an iteration of this counter (one micro-batch of many, one rank's share), and the clock is used.

Left out of every source: the warm-up (first iterations that are slower than the run's own level, at most a third of
the run), pauses (validation, checkpoints: lines the reader marked, and lone samples far above the level), and of an
epoch counter the step over the end of an epoch.

Ranks that print the same position are averaged; a clock is read from one rank only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from profiler.estimates.curves import Positions, quantile
from profiler.model import EpochTime, IterationTime, Kind, Pause, Point, Run, ThroughputSummary, TimeSource, WarmUp

DISAGREE = 0.2  #: relative difference above which two sources are said to disagree
WALL_FACTOR = 1.5  #: printed times this much below the fastest clocked intervals are not an iteration's
WARM_UP = 1.3  #: a first sample this much above the level of the run belongs to the warm-up
LONE = 2.0  #: a sample this much above the level, and rare, is a pause and not an iteration
RARE = 0.1  #: at most this share of samples is left out as pauses
COARSE = 0.05  #: a time whose last digit is more than this share of it is coarse
TICKS = 20  #: a clocked interval shorter than so many ticks of its clock is joined with the next
FEWEST_TICKS = 8  #: the same in a log that is shorter than that


@dataclass(frozen=True, slots=True)
class Sample:
    """`steps` iterations that end at position `at` took `seconds` each."""

    at: float
    seconds: float
    steps: float
    line: int


@dataclass(frozen=True, slots=True)
class Timing:
    """What a run says of its speed. `samples` are those behind `iteration`, warm-up and pauses included."""

    iteration: IterationTime | None = None
    epoch: EpochTime | None = None
    throughput: ThroughputSummary | None = None
    warm_up: WarmUp | None = None
    warnings: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()


def timing(run: Run) -> Timing:
    """Everything a run tells about time. Fields are None where the log does not tell."""
    epoch = epoch_time(run)
    found: dict[TimeSource, list[Sample]] = {
        "printed": _printed(run),
        "throughput": _from_throughput(run),
        "timestamps": _from_clock(run),
        "epoch": _from_epochs(run, epoch),
        "bar": _from_bars(run),
    }
    levels = {source: _level(samples) for source, samples in found.items() if samples}
    throughput = throughput_summary(run)
    if not levels:
        return Timing(epoch=epoch, throughput=throughput)
    source, warnings = _choose(found, levels)
    samples = found[source]
    steady, warm_up = _without_warm_up(samples)
    kept = without_pauses(steady)
    values = [s.seconds for s in kept]
    time = IterationTime(
        median=quantile(values, 0.5),
        mean=float(np.average(values, weights=[s.steps for s in kept])),
        p95=quantile(values, 0.95),
        n=len(values),
        source=source,
    )
    return Timing(time, epoch, throughput, warm_up, tuple(warnings), tuple(samples))


def _choose(found: dict[TimeSource, list[Sample]], levels: dict[TimeSource, float]) -> tuple[TimeSource, list[str]]:
    """The source to use and what to say about those that disagree with it."""
    source: TimeSource = next(iter(levels))
    coarse = _coarseness(found["epoch"])
    if source == "epoch" and "bar" in levels and coarse > COARSE:
        source = "bar"
    best = levels[source]
    warnings: list[str] = []
    for clock in ("timestamps", "epoch"):
        if source in ("timestamps", "epoch") or clock not in levels:
            continue
        fast, slow = _spread(found[clock])
        if clock == "epoch":
            slow *= 1 + coarse
        # An epoch's time holds set-up and stray pauses, so it can only refute a claim that is too long.
        too_short = clock == "timestamps" and len(found[clock]) >= 3 and best * WALL_FACTOR < fast
        too_long = best > slow * (1 + DISAGREE)
        if too_short or too_long:
            why = "even the fastest intervals of the clock are longer" if too_short else "longer than the clock allows"
            warnings.append(
                f"{_says(source, best)} cannot be the time of an iteration as counted here ({why}): "
                f"{_says(clock, levels[clock])} is used"
            )
            source, best = clock, levels[clock]
    for other, level in levels.items():
        if other != source and not any(_says(other, level) in w for w in warnings):
            apart = abs(level - best) / best
            if apart > DISAGREE + (coarse if "epoch" in (source, other) else 0.0):
                warnings.append(f"{_says(source, best)} is used; {_says(other, level)}, {apart:.0%} apart")
    return source, warnings


_WORDS: dict[TimeSource, str] = {
    "printed": "the printed time",
    "throughput": "the printed rate",
    "timestamps": "the clock",
    "epoch": "the time of an epoch",
    "bar": "the progress bar",
}


def _coarseness(epochs: Sequence[Sample]) -> float:
    """What one unit of the last printed digit is of an epoch's time."""
    if not epochs:
        return 0.0
    durations = [s.seconds * s.steps for s in epochs]
    return _tick(durations) / median(durations)


def _says(source: TimeSource, level: float) -> str:
    return f"{_WORDS[source]} ({level:.4g} s an iteration)"


# --- sources ------------------------------------------------------------------------------------------------


def _train(run: Run) -> list[Point]:
    return [p for p in run.points if p.kind is Kind.TRAIN]


def _by_position(run: Run, rows: Iterable[tuple[Point, float]]) -> list[Sample]:
    """Mean over the points of one position, in order of the text; `steps` from the position before."""
    positions = Positions.of(run)
    cells: dict[float, list[tuple[float, int]]] = {}
    for order, (p, seconds) in enumerate(rows):
        at = positions(p)
        if seconds > 0 and np.isfinite(seconds):
            cells.setdefault(float(order) if at is None else at, []).append((seconds, p.line))
    ordered = [(at, fmean(s for s, _ in cell), cell[-1][1]) for at, cell in cells.items()]
    if not ordered:
        return []
    steps = [1.0] + [b - a for (a, _, _), (b, _, _) in pairwise(ordered)]
    typical = median([s for s in steps[1:] if s > 0] or [1.0])
    return [
        Sample(at, seconds, step if 0 < step <= typical else typical, line)
        for (at, seconds, line), step in zip(ordered, steps, strict=True)
    ]


def _printed(run: Run) -> list[Sample]:
    """Printed step times; else differences of a printed elapsed time; else running averages; else epochs' means."""
    train = [p for p in _train(run) if not p.from_bar]
    steps = [(p, p.step_s) for p in train if p.step_s is not None]
    if steps:
        return _by_position(run, steps)
    clocked = _differences(run, [(p, p.elapsed_s) for p in train if p.elapsed_s is not None])
    averages = [(p, p.step_s_average) for p in train if p.step_s_average is not None]
    if len(clocked) >= 3 or (clocked and not averages):
        return clocked
    # An average over everything so far forgets its start slowly: its later half tells the level.
    averaged = _by_position(run, averages)
    if averaged:
        return averaged[len(averaged) // 2 :]
    means = [p for p in run.points if p.kind is Kind.EPOCH and p.step_s is not None and not p.from_bar]
    return _by_position(run, [(p, p.step_s) for p in means if p.step_s is not None])


def _from_throughput(run: Run) -> list[Sample]:
    """Printed rates turned into times: iterations/s directly, samples/s by the batch over all ranks."""
    rows: list[tuple[Point, float]] = []
    averaged: list[tuple[Point, float]] = []
    ranks = run.ranks or 1
    for p in run.points:
        rate = p.throughput
        if rate is None or rate.value <= 0 or p.kind is Kind.VALIDATION:
            continue
        batch = 1.0 if rate.unit == "iterations/s" else (p.batch_size or run.batch_size)
        if rate.unit not in ("iterations/s", "samples/s") or batch is None:
            continue
        whole = rate.value * (ranks if rate.of_rank and rate.unit != "iterations/s" else 1)
        (averaged if rate.averaged or p.kind is Kind.EPOCH else rows).append((p, batch / whole))
    return _by_position(run, rows or averaged)


def _from_clock(run: Run) -> list[Sample]:
    """Differences of the timestamps of one rank's lines."""
    stamped = [p for p in _train(run) if p.time_s is not None and p.iteration is not None]
    counts: dict[int | None, int] = defaultdict(int)
    for p in stamped:
        counts[p.rank] += 1
    if not counts:
        return []
    rank = max(counts, key=lambda r: counts[r])
    return _differences(run, [(p, p.time_s) for p in stamped if p.rank == rank and p.time_s is not None])


def _from_epochs(run: Run, epoch: EpochTime | None) -> list[Sample]:
    length = run.iterations_per_epoch or _length_of_epoch(run)
    if epoch is None or not length or (run.unit == "sample" and not run.batch_size):
        return []
    steps = length / run.batch_size if run.unit == "sample" and run.batch_size else length
    return [Sample(float(i), seconds / steps, steps, line) for i, (seconds, line) in enumerate(_epoch_durations(run))]


def _length_of_epoch(run: Run) -> float | None:
    """Iterations an epoch as far as they were seen: the last index before the counter starts again.

    What is not printed behind it is less than one logging interval: half of one is the best guess.
    """
    if run.scope != "epoch" or run.unit == "sample":
        return None
    seen: dict[float, list[float]] = defaultdict(list)
    for p in run.points:
        if p.kind is Kind.TRAIN and p.iteration is not None and p.epoch is not None:
            seen[float(int(p.epoch))].append(p.iteration)
    full = [max(seen[e]) for e in sorted(seen)[:-1]]
    steps = [b - a for own in seen.values() for a, b in pairwise(own) if b > a]
    return median(full) + (median(steps) / 2 if steps and median(steps) > 1 else 0.0) if full else None


def _from_bars(run: Run) -> list[Sample]:
    """A bar's own rate; by its elapsed time where it has one (differences are steps, the rate is smoothed)."""
    bars = [p for p in _train(run) if p.from_bar]
    final = [p for p in bars if not p.redrawn]
    if len(final) < 5:
        final = bars
    return _by_position(run, [(p, p.step_s) for p in final if p.step_s is not None])


def _differences(run: Run, rows: Sequence[tuple[Point, float]]) -> list[Sample]:
    """(point, clock) -> seconds an iteration between points, joined until the clock's tick does not matter."""
    positions = Positions.of(run)
    # a counter of samples times a step only where the batch is known
    batch = run.batch_size if run.unit == "sample" else 1.0
    if not batch:
        return []
    known = [(at / batch, t, p) for p, t in rows if (at := positions(p)) is not None]
    tick = _tick([t for _, t, _ in known])
    return _joined(run, known, TICKS * tick) or _joined(run, known, FEWEST_TICKS * tick)


def _joined(run: Run, known: Sequence[tuple[float, float, Point]], least: float) -> list[Sample]:
    """Intervals of at least so many seconds."""
    samples: list[Sample] = []
    start: tuple[float, float, Point] | None = None
    for now in known:
        if start is None or _broken(run, start[2], now[2], start, now):
            start = now
            continue
        steps, seconds = now[0] - start[0], now[1] - start[1]
        if steps > 0 and seconds > 0 and seconds >= least:
            samples.append(Sample(now[0], seconds / steps, steps, now[2].line))
            start = now
    return samples


def _broken(run: Run, a: Point, b: Point, start: tuple[float, float, Point], now: tuple[float, float, Point]) -> bool:
    """True where the interval between two points is not all training of one stretch."""
    if now[0] < start[0] or now[1] < start[1]:  # resumed behind, or the clock stepped back or began again
        return True
    if run.scope == "epoch" and a.epoch is not None and b.epoch is not None and int(a.epoch) != int(b.epoch):
        return True
    return any(_overlaps(pause, a.line, b.line) for pause in run.pauses)


def _overlaps(pause: Pause, first: int, last: int) -> bool:
    return pause.first_line <= last and pause.last_line >= first


def _tick(times: Sequence[float]) -> float:
    """The resolution of a printed clock, in s: the largest power of ten that all its readings are multiples of."""
    for tick in (1.0, 0.1, 0.01, 0.001):
        if all(abs(t / tick - round(t / tick)) < 1e-4 for t in times):
            return tick
    return 0.0


# --- epochs and throughput --------------------------------------------------------------------------------


def _epoch_durations(run: Run) -> list[tuple[float, int]]:
    """(seconds, line) of every whole epoch of training whose time is printed."""
    ranked: dict[float, list[tuple[float, int]]] = {}
    for order, p in enumerate(run.points):
        if p.kind is Kind.VALIDATION or p.redrawn:
            continue
        seconds = p.epoch_s
        if seconds is None and p.elapsed_of == "epoch" and p.iteration is not None and p.iteration == p.iterations:
            seconds = p.elapsed_s  # a bar that reached its end
        if seconds is not None and seconds > 0:
            key = float(order) if p.epoch is None else float(int(p.epoch))
            ranked.setdefault(key, []).append((seconds, p.line))
    return [(fmean(s for s, _ in rows), rows[-1][1]) for rows in ranked.values()]


def epoch_time(run: Run) -> EpochTime | None:
    """Median printed duration of an epoch."""
    durations = [seconds for seconds, _ in _epoch_durations(run)]
    return EpochTime(median=median(durations), n=len(durations)) if durations else None


def throughput_summary(run: Run) -> ThroughputSummary | None:
    """Median of the printed rates after the warm-up, over all ranks when the log says that they are one rank's."""
    rated = [(p, p.throughput) for p in run.points if p.throughput is not None and p.kind is not Kind.VALIDATION]
    if not rated:
        return None
    ranking = [
        [(p, t) for p, t in rated if p.kind is Kind.TRAIN and not t.averaged],
        [(p, t) for p, t in rated if p.kind is Kind.TRAIN],
        rated,
    ]
    chosen = next(rows for rows in ranking if rows)
    units: dict[str, int] = defaultdict(int)
    for _, t in chosen:
        units[t.unit] += 1
    unit = max(units, key=lambda u: units[u])
    values: list[float] = []
    own: dict[tuple[float | None, float | None], list[float]] = defaultdict(list)
    for p, t in chosen:
        if t.unit != unit or not np.isfinite(t.value) or t.value <= 0:
            continue
        if t.of_rank and p.rank is not None:
            own[p.epoch, p.iteration].append(t.value)
        else:
            values.append(t.value * (run.ranks or 1 if t.of_rank else 1))
    ranks = run.ranks or max((len(v) for v in own.values()), default=1)
    values += [fmean(v) * ranks for v in own.values()]
    return ThroughputSummary(median=median(values), unit=unit) if values else None


# --- robust levels ----------------------------------------------------------------------------------------


def _level(samples: Sequence[Sample]) -> float:
    """The run's own level: the median of the later two thirds (of all when there are few)."""
    tail = samples[len(samples) // 3 :] if len(samples) > 5 else samples[len(samples) // 2 :]
    return median(s.seconds for s in tail)


def _spread(samples: Sequence[Sample]) -> tuple[float, float]:
    """Fast and slow end (5th and 95th percentile) of the samples after the warm-up."""
    values = [s.seconds for s in _without_warm_up(samples)[0]]
    return quantile(values, 0.05), quantile(values, 0.95)


def _without_warm_up(samples: Sequence[Sample]) -> tuple[list[Sample], WarmUp | None]:
    """Cut the leading samples that are slower than the run's level; at most a third of them."""
    level = _level(samples)
    count = 0
    for sample in samples[: max(len(samples) // 3, 1 if len(samples) > 1 else 0)]:
        if sample.seconds <= WARM_UP * level:
            break
        count += 1
    if count == 0:
        return list(samples), None
    cut = samples[:count]
    iterations = sum(s.steps for s in cut)
    return list(samples[count:]), WarmUp(iterations, sum(s.seconds * s.steps for s in cut))


def without_pauses(samples: Sequence[Sample]) -> list[Sample]:
    """Drop lone samples far above the level; keep everything when they are not rare (then they are the level)."""
    level = median(s.seconds for s in samples)
    deviation = 1.4826 * median(abs(s.seconds - level) for s in samples)
    limit = max(LONE * level, level + 8 * deviation)
    kept = [s for s in samples if s.seconds <= limit]
    return kept if len(kept) >= (1 - RARE) * len(samples) else list(samples)
