"""How fast a model runs on how many GPUs of which type: measured points, and a curve between them.

Merged over all jobs of one model key. A measured point is the median over its stretches, brought to best placement
by dividing by S of their span, and it always wins. Between points, and beyond them where at least three counts are
known, a fit of the iteration time helps (constant global batch):

    t(n) = parallel / n + serial + communication * log2(n)        all >= 0

Amdahl's law plus a term that grows with the number of workers; a ring's bandwidth term (n - 1) / n is already in
the span of the first two. The fit is corrected to pass through every measured point (interpolated on log n). Beyond
the largest measured count with fewer than three: CoDDL's rule (AFS §4.5), linear from the last point, until the
measurement is there. Below the smallest: the fit with at least two counts, else linear through the origin.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from statistics import median

import numpy as np
import numpy.typing as npt

from profiler.estimates.slowdown import Estimate
from profiler.estimates.stretch import Span, Stretch, reference_batch, seconds_at

FEWEST_FOR_BEYOND = 3  #: distinct counts before anything but CoDDL's rule is said beyond the last


class Source(StrEnum):
    MEASURED = "measured"
    FIT = "fit"
    LINEAR = "linear"  #: CoDDL's rule, or through the origin


@dataclass(frozen=True, slots=True)
class Rate:
    """Iterations/s at best placement."""

    value: float
    source: Source
    interval: tuple[float, float]  #: 90 %
    n: int = 0  #: samples behind a measured one


@dataclass(slots=True)
class Scaling:
    """One model on one GPU type. `measured` must not be empty for `rate` to say anything."""

    measured: Mapping[int, Rate]
    #: coefficients of 1/n, 1 and log2 n; None with fewer than two counts
    fitted: tuple[float, float, float] | None = field(init=False)
    _misfit: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.fitted, self._misfit = _fit({n: r.value for n, r in self.measured.items()})

    def rate(self, gpus: int) -> Rate | None:
        """The rate on `gpus` GPUs, and where it comes from; None where nothing was measured on this type."""
        if gpus <= 0 or not self.measured:
            return None
        if gpus in self.measured:
            return self.measured[gpus]
        counts = sorted(self.measured)
        beyond = gpus > counts[-1]
        if self._fit_tells(gpus) and (not beyond or len(counts) >= FEWEST_FOR_BEYOND):
            return self._from_fit(gpus, counts)
        near = counts[-1] if beyond else counts[0] if gpus < counts[0] else counts[bisect_left(counts, gpus)]
        if not beyond and gpus > counts[0]:
            return self._between(gpus, counts)
        last = self.measured[near]
        linear = last.value * gpus / near
        # Beyond: linear is the most that can be hoped for, the last rate the least that is likely; and below
        # the smallest count more than linear is what a smaller gang without overheads would do.
        edge = (last.value, linear) if beyond else (linear, last.value)
        return Rate(linear, Source.LINEAR, (min(edge), max(edge)))

    def _between(self, gpus: int, counts: Sequence[int]) -> Rate:
        i = bisect_left(counts, gpus)
        a, b = counts[i - 1], counts[i]
        share = (gpus - a) / (b - a)
        low, high = self.measured[a], self.measured[b]
        value = low.value + (high.value - low.value) * share
        return Rate(value, Source.LINEAR, (min(low.interval[0], value), max(high.interval[1], value)))

    def _from_fit(self, gpus: int, counts: Sequence[int]) -> Rate:
        logs = np.log(counts)
        off = [math.log(self.measured[n].value * self._seconds(n)) for n in counts]
        correction = math.exp(float(np.interp(math.log(gpus), logs, off)))
        value = correction / self._seconds(gpus)
        i = bisect_left(counts, gpus)
        inside = 0 < i < len(counts)
        edges = (counts[max(i - 1, 0)], counts[min(i, len(counts) - 1)])
        near = min(edges, key=lambda n: abs(math.log(n / gpus)))
        away = abs(math.log2(gpus / near))
        low, high = self.measured[near].interval
        own = max(high / self.measured[near].value, self.measured[near].value / low) - 1
        slack = own + (self._misfit + 0.05) * away * (1 if inside else 2)
        return Rate(value, Source.FIT, (value / (1 + slack), value * (1 + slack)))

    def _fit_tells(self, gpus: int) -> bool:
        """A fit without parallel and serial part says that one GPU takes no time; it is not asked there."""
        return self.fitted is not None and all(self._seconds(n) > 0 for n in (gpus, *self.measured))

    def _seconds(self, gpus: int) -> float:
        if self.fitted is None:
            raise ValueError("there is no fit with fewer than two measured counts")
        a, b, c = self.fitted
        return a / gpus + b + c * math.log2(gpus)

    def best(self, counts: Iterable[int]) -> int | None:
        """The count with the highest rate among these: beyond it, more GPUs do not help."""
        rated = [(r.value, -n) for n in counts if (r := self.rate(n)) is not None]
        return -max(rated)[1] if rated else None


def _fit(points: Mapping[int, float]) -> tuple[tuple[float, float, float] | None, float]:
    """Non-negative least squares on relative errors of the iteration time; with the relative misfit."""
    counts = sorted(points)
    if len(counts) < 2:
        return None, 0.0
    seconds = np.array([1 / points[n] for n in counts])
    columns = [[1 / n for n in counts], [1.0] * len(counts)]
    if len(counts) >= FEWEST_FOR_BEYOND:
        columns.append([math.log2(n) for n in counts])
    matrix = np.array(columns).T / seconds[:, None]
    solution = non_negative(matrix, np.ones(len(counts)))
    a, b, c = (*[float(x) for x in solution], 0.0)[:3]
    made = matrix @ solution
    if not (made > 0).all() or a + b <= 0:  # a fit of overheads alone says that one GPU takes no time
        return None, 0.0
    return (a, b, c), float(np.sqrt(np.mean((1 / made - 1) ** 2)))


def non_negative(matrix: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The x >= 0 that brings `matrix @ x` nearest to `wanted`.

    At the optimum some columns are used and the others are zero, and the used ones solve ordinary least squares.
    There are at most three columns: each of the seven ways to use them is tried.
    """
    columns = matrix.shape[1]
    best = np.zeros(columns)
    least = float(np.sum(wanted**2))
    for size in range(1, columns + 1):
        for used in map(list, combinations(range(columns), size)):
            found = np.linalg.lstsq(matrix[:, used], wanted, rcond=None)[0]
            if (found < 0).any():
                continue
            misfit = float(np.sum((matrix[:, used] @ found - wanted) ** 2))
            if misfit < least:
                least = misfit
                best = np.zeros(columns)
                best[used] = found
    return best


def merge(
    stretches: Iterable[Stretch], slowdown: Mapping[Span, Estimate], batch: float | None = None
) -> dict[str, Scaling]:
    """Stretches of one model, of any jobs -> scaling by GPU type.

    `batch`: what iterations are counted at (default: the newest known). One vote a job and placement, so that a
    job that runs long does not outvote the others.
    """
    usable = [s for s in stretches if s.seconds > 0 and math.isfinite(s.seconds) and s.gpus > 0]
    batch = batch if batch is not None else reference_batch(usable)
    votes: dict[tuple[str, int], list[tuple[float, Stretch]]] = {}
    for s in usable:
        penalty = slowdown[s.span].value if s.span in slowdown else 1.0
        votes.setdefault((s.gpu_type, s.gpus), []).append((seconds_at(s, batch) / penalty, s))
    table: dict[str, dict[int, Rate]] = {}
    for (gpu_type, gpus), rows in votes.items():
        table.setdefault(gpu_type, {})[gpus] = _measured(rows, slowdown)
    return {gpu_type: Scaling(points) for gpu_type, points in table.items()}


def _measured(rows: Sequence[tuple[float, Stretch]], slowdown: Mapping[Span, Estimate]) -> Rate:
    """(seconds an iteration at best placement, the stretch that tells it) -> the rate, one vote a job."""
    # Where the best placement was measured itself, converted ones are not needed.
    tightest = min(s.span for _, s in rows)
    kept = [(t, s) for t, s in rows if s.span == tightest]
    by_job: dict[str, list[float]] = {}
    for t, s in kept:
        by_job.setdefault(s.job, []).append(math.log(t))
    logs = np.array([median(own) for own in by_job.values()])
    variance = float(np.mean([s.variance for _, s in kept])) / len(logs)
    if len(logs) > 2:
        variance += float(np.var(logs, ddof=1)) / len(logs)
    e = slowdown.get(tightest)
    if e is not None and e.value > 1:
        variance += (math.log(e.interval[1] / e.interval[0]) / 3.29) ** 2
    slack = 1.645 * math.sqrt(variance)
    value = math.exp(-float(np.median(logs)))
    interval = (value * math.exp(-slack), value * math.exp(slack))
    return Rate(value, Source.MEASURED, interval, sum(s.n for _, s in kept))
