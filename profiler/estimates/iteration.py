"""How long one iteration takes, from whatever a log tells, and how far to believe it.

Sources, best first: a printed step time; a printed rate; differences of timestamps; the time of an epoch over its
iterations; a progress bar's own rate. Each gives samples (seconds an iteration, over how many iterations). The best
source that exists is used; the others check it:

* more than 20 % apart, and more than their printed digits can tell: a warning names both;
* an epoch timed in whole seconds gives way to its bar's rate where a second is more than 5 % of it, and so does one
  that took longer than its bar by more than that: it holds an evaluation;
* a time or rate printed with one digit (`0.03 it/s`) gives way to a clock that lies within its rounding;
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from profiler.estimates.curves import most_common, quantile
from profiler.estimates.sources import (
    Sample,
    epoch_refuted,
    epoch_time,
    from_bars,
    from_clock,
    from_elapsed,
    from_epochs,
    from_throughput,
    printed,
    tick_of,
    torn,
    unit_unknown,
)
from profiler.evidence import Evidence, Ground, confidence, some
from profiler.model import (
    EpochTime,
    IterationTime,
    Kind,
    Point,
    Run,
    Throughput,
    ThroughputSummary,
    TimeSource,
    WarmUp,
)  # fmt: skip

DISAGREE = 0.2  #: relative difference above which two sources are said to disagree
WALL_FACTOR = 1.5  #: printed times this much below the fastest clocked intervals are not an iteration's
WARM_UP = 1.3  #: a first sample this much above the level of the run belongs to the warm-up
LONE = 2.0  #: a sample this much above the level, and rare, is a pause and not an iteration
RARE = 0.1  #: at most this share of samples is left out as pauses
COARSE = 0.05  #: a time whose last digit is more than this share of it is coarse
ONE_DIGIT = 0.1  #: printed values whose last digit is more than this share of them give way to a clock


@dataclass(frozen=True, slots=True)
class Timing:
    """What a run says of its speed. `samples` are those behind `iteration`, warm-up and pauses included."""

    iteration: IterationTime | None = None
    epoch: EpochTime | None = None
    throughput: ThroughputSummary | None = None
    warm_up: WarmUp | None = None
    warnings: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    evidence: Evidence | None = None  #: of the iteration's time; below the threshold `iteration` is None


def timing(run: Run) -> Timing:
    """Everything a run tells about time. Fields are None where the log does not tell."""
    epoch, apart = epoch_time(run), torn(run)
    said = _doubted(run, apart)
    if epoch is not None and (refuted := epoch_refuted(run, epoch)):
        epoch, said = None, [*said, refuted]
    found: dict[TimeSource, list[Sample]] = {
        "printed": [] if apart else printed(run),
        "throughput": from_throughput(run),
        "timestamps": from_clock(run),
        "epoch": from_epochs(run, epoch),
        "bar": from_bars(run),
    }
    levels = {source: _level(samples) for source, samples in found.items() if samples}
    throughput = throughput_summary(run)
    if not levels:
        return Timing(epoch=epoch, throughput=throughput, warnings=tuple(said))
    elapsed = from_elapsed(run, bar=next(iter(levels)) == "bar")
    clocks = {"timestamps": found["timestamps"], "elapsed": elapsed, "epoch": found["epoch"]}
    source, samples, warnings = _choose(found, levels, {name: made for name, made in clocks.items() if made})
    warnings = [*said, *warnings]
    steady, warm_up = _without_warm_up(samples)
    kept = without_pauses(steady)
    values = [s.seconds for s in kept]
    time = IterationTime(
        median=_middle(kept, source),
        mean=float(np.average(values, weights=[s.steps for s in kept])),
        p95=quantile(values, 0.95),
        n=len(values),
        source=source,
    )
    says: dict[str, float] = dict(levels.items())
    if elapsed:
        says["elapsed"] = _level(elapsed)
    told = _evidence(run, source, samples, says)
    if not told.told:
        why = _DOUBTS.get(told.ground or "", "too rarely right")
        warnings.append(f"{_says(source, time.median)} is not told: {why}")
        return Timing(None, epoch, throughput, None, tuple(warnings), (), told)
    return Timing(time, epoch, throughput, warm_up, tuple(warnings), tuple(samples), told)


def _doubted(run: Run, apart: tuple[float, float] | None) -> list[str]:
    """What is said of the times that are told and not used. `apart`: two that are told of each step, far apart."""
    said = [f"{apart[0]:.4g} s and {apart[1]:.4g} s are told of each step: neither is used"] if apart else []
    unknown = unit_unknown(run)
    return [*said, unknown] if unknown else said


def _middle(samples: Sequence[Sample], source: TimeSource) -> float:
    """The median; of a clock whose tick is coarse beside its intervals the mean of those near the median, since the
    median of whole ticks is one of them."""
    middle = quantile([s.seconds for s in samples], 0.5)
    if source != "timestamps" or _coarseness(samples) < COARSE / 2:
        return middle
    near = [s for s in samples if abs(s.seconds - middle) <= 2 * COARSE * middle]
    return float(np.average([s.seconds for s in near], weights=[s.steps for s in near])) if near else middle


_DOUBTS: Mapping[str, str] = {
    Ground.UNIT_UNKNOWN: "it may be of one micro-batch of many or of one rank, and nothing in the log decides",
    Ground.DISPUTED: "other sources say otherwise",
}


def _of_batch(words: str) -> bool:
    """Whether the words of a time speak of batches: beside accumulation that may be one micro-batch of many."""
    return "batch" in words.lower()


def _evidence(run: Run, source: TimeSource, samples: Sequence[Sample], levels: Mapping[str, float]) -> Evidence:
    """What the time rests on, and what the other sources say."""
    best = _level(samples)
    others = {name: level for name, level in levels.items() if name != source}
    against = tuple(_says(n, level) for n, level in others.items() if abs(level - best) > DISAGREE * best)
    agree = any(abs(level - best) <= DISAGREE * best for level in others.values())
    own = levels.get(source)  # None: the elapsed time of a log that prints no other is used
    corrected = own is None or abs(own - best) > DISAGREE * best
    printed_too = source == "timestamps" and bool({"printed", "throughput", "bar"} & others.keys())
    if corrected or (printed_too and not agree):
        ground = Ground.CORRECTED
    elif agree:
        ground = Ground.CONFIRMED
    elif against:
        ground = Ground.DISPUTED
    else:
        ground = _ground_alone(run, source, len(samples))
    lines = some([s.line for s in samples])
    return Evidence(confidence("iteration_time.median", ground), lines, against, ground)


def _ground_alone(run: Run, source: TimeSource, samples: int) -> Ground:
    """Of a time that nothing in the log can be held against."""
    if source == "timestamps":
        return Ground.CLOCK if samples >= 3 else Ground.TWO_STAMPS
    if source == "printed" and (run.accumulation or 1) > 1 and run.unit == "iteration" and _of_batch(run.timed_by):
        return Ground.UNIT_UNKNOWN
    return Ground.WORDS if run.format in (None, "generic") else Ground.PRINTED


def _choose(
    found: Mapping[TimeSource, list[Sample]], levels: Mapping[TimeSource, float], clocks: Mapping[str, list[Sample]]
) -> tuple[TimeSource, list[Sample], list[str]]:
    """The source to use, its samples, and what to say about those that disagree with it."""
    source: TimeSource = next(iter(levels))
    coarse = _coarseness(found["epoch"])
    # an epoch may hold more than training
    if source == "epoch" and "bar" in levels and (coarse > COARSE or levels["epoch"] > (1 + COARSE) * levels["bar"]):
        source = "bar"
    pick = _Pick(source, found[source], levels[source])
    if source in ("printed", "throughput", "bar"):
        pick.refine(clocks)
    pick.hold_against(clocks, coarse)
    for other, level in levels.items():
        if other != pick.source and other not in pick.said:
            apart = abs(level - pick.best) / pick.best
            if apart > DISAGREE + (coarse if "epoch" in (pick.source, other) else 0.0):
                pick.warnings.append(
                    f"{_says(pick.source, pick.best)} is used; {_says(other, level)}, {apart:.0%} apart"
                )
    return pick.source, pick.samples, pick.warnings


class _Pick:
    """The source that is used so far, and what was said of the others."""

    def __init__(self, source: TimeSource, samples: list[Sample], best: float) -> None:
        self.source, self.samples, self.best = source, samples, best
        self.warnings: list[str] = []
        self.said: set[str] = {source}

    def refine(self, clocks: Mapping[str, list[Sample]]) -> None:
        """What is printed with too few digits gives way to a clock within its rounding."""
        finer = _finer(self.samples, self.best, clocks)
        if not finer:
            return
        level = _level(clocks[finer])
        if abs(level - self.best) > COARSE * self.best:
            self.warnings.append(
                f"{_says(self.source, self.best)} is printed with too few digits: {_says(finer, level)} is used"
            )
        self.said.add(finer)
        self.samples, self.best = clocks[finer], level
        self.source = _SOURCE_OF.get(finer, self.source)

    def hold_against(self, clocks: Mapping[str, list[Sample]], coarse: float) -> None:
        """What no clock allows gives way to the first that refutes it."""
        others = {c: made for c, made in clocks.items() if c != "epoch"}
        if any(abs(_level(made) - self.best) <= DISAGREE * self.best for made in others.values()):
            clocks = others  # another clock stands for it
        for clock, clocked in clocks.items():
            if self.source in ("timestamps", "epoch") or clock in self.said:
                continue
            why = _refuted(self.best, clock, clocked, coarse)
            if why:
                self.warnings.append(
                    f"{_says(self.source, self.best)} cannot be the time of an iteration as counted here ({why}): "
                    f"{_says(clock, _level(clocked))} is used"
                )
                self.said |= {self.source, clock}
                self.samples, self.best = clocked, _level(clocked)
                self.source = _SOURCE_OF.get(clock, "printed")
                break


_SOURCE_OF: Mapping[str, TimeSource] = {"timestamps": "timestamps", "epoch": "epoch"}


def _refuted(best: float, clock: str, clocked: Sequence[Sample], coarse: float) -> str:
    """Why a clock does not allow a time; "" where it does. An epoch's time holds set-up and stray pauses, so it can
    only refute a claim that is too long."""
    fast, slow = _spread(clocked)
    if clock == "epoch":
        slow *= 1 + coarse
    elif len(clocked) >= 3 and best * WALL_FACTOR < fast:
        return "even the fastest intervals of the clock are longer"
    return "longer than the clock allows" if best > slow * (1 + DISAGREE) else ""


def _finer(samples: Sequence[Sample], best: float, clocks: Mapping[str, list[Sample]]) -> str:
    """The clock to read instead of values that are printed with one digit; "" where there is none."""
    times = [s.seconds for s in samples]
    grain = max(_grain(times), _grain([1 / s for s in times]))
    if grain < ONE_DIGIT:
        return ""
    low = best / (1 + grain / 2) * (1 - COARSE)
    high = best / max(1 - grain / 2, 0.1) * (1 + COARSE)
    near = [c for c in ("timestamps", "elapsed", "epoch") if len(clocks.get(c, ())) >= 2]
    return next((c for c in near if low <= _level(clocks[c]) <= high), "")


def _grain(values: Sequence[float]) -> float:
    """What one unit of their last printed digit is of some values; 0 where they were not printed so."""
    return tick_of(values) / median(values)


_WORDS: Mapping[str, str] = {
    "printed": "the printed time",
    "throughput": "the printed rate",
    "timestamps": "the clock",
    "elapsed": "the elapsed time",
    "epoch": "the time of an epoch",
    "bar": "the progress bar",
}


def _coarseness(epochs: Sequence[Sample]) -> float:
    """What one unit of the last printed digit is of an epoch's time."""
    if not epochs:
        return 0.0
    return _grain([s.seconds * s.steps for s in epochs])


def _says(source: str, level: float) -> str:
    return f"{_WORDS[source]} ({level:.4g} s an iteration)"


# --- throughput ---


def throughput_summary(run: Run) -> ThroughputSummary | None:
    """Median of the printed rates after the warm-up, over all ranks when the log says that they are one rank's."""
    rated = [(p, p.throughput) for p in run.points if p.throughput is not None and p.kind is not Kind.VALIDATION]
    if not rated:
        return None
    chosen = _most_telling(rated)
    unit = most_common([t.unit for _, t in chosen])
    alike = [(p, t) for p, t in chosen if t.unit == unit]
    values = _whole_rates(run, [(p, t) for p, t in alike if np.isfinite(t.value) and t.value > 0])
    return ThroughputSummary(median=median(values), unit=unit) if values else None


def _most_telling(rated: list[tuple[Point, Throughput]]) -> list[tuple[Point, Throughput]]:
    """Rates of steps before averages before those of epochs."""
    training = [(p, t) for p, t in rated if p.kind is Kind.TRAIN]
    return [(p, t) for p, t in training if not t.averaged] or training or rated


def _whole_rates(run: Run, rated: Sequence[tuple[Point, Throughput]]) -> list[float]:
    """Rates of the whole run: a rank's own times the ranks, of those that print the same position their mean."""
    values: list[float] = []
    together = run.ranks or run.gpus or 1
    own: dict[tuple[float | None, float | None], list[float]] = defaultdict(list)
    for p, t in rated:
        if t.of_rank and p.rank is not None:
            own[p.epoch, p.iteration].append(t.value)
        else:
            values.append(t.value * (together if t.of_rank else 1))
    ranks = run.ranks or max((len(v) for v in own.values()), default=1)
    return values + [fmean(v) * ranks for v in own.values()]


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
