"""The loss curve of a run: which law it follows, where it goes from here, and how sure that is.

1. The curve is averaged into at most `BINS` bins of equal count: what is predicted is the mean loss, not the next
   noisy value.
2. Every law of `profiler.estimates.laws` is fitted to the whole curve and to the curve without its first 15, 30 and
45 %
   (what the first steps do, warm-up of the learning rate included, often follows no law).
3. The choice is made by held-out error on the curve's own tail: each candidate is fitted to the first 50, 65 and
   80 % of the bins and judged on the rest; "it stays as it is" (constant) is a candidate too.
4. No forecast where the tail is not predictable: too few positions, or the chosen candidate's held-out error is
   above `UNPREDICTABLE` of the level of the tail. Then the answer is None and says why.
5. The prediction interval is value +- z * sqrt(noise^2 + (h * reach^0.75)^2 + (2 d)^2): noise of a bin, h the
   held-out error, reach the distance ahead over the typical distance of the held-out bins, d the disagreement of
   the candidates that are nearly as good as the chosen one. z was set on the curves under `tests/profiler/curves`
   and synthetic ones; `benchmarks/loss_prediction.py` measures what the interval covers.

A curve that a learning-rate schedule bends later than it was observed is not predictable by any of this; the
interval widens with the reach for that reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from profiler.estimates.curves import Curve, quantile
from profiler.estimates.laws import LAWS, Array, Fitted, fit
from profiler.model import Fit

BINS = 100
WINDOWS = (
    0.0,
    0.15,
    0.3,
    0.45,
)  #: shares of the curve left out at its start
CUTS = (0.5, 0.65, 0.8)  #: shares of the curve that a candidate sees before it is judged on the rest
FEWEST = 8  #: distinct positions below which nothing is forecast
UNPREDICTABLE = 0.3
NEARLY = 1.5  #: candidates whose held-out error is within this factor of the best say how much they disagree
#: factors of the interval by nominal level, set as described above
Z: Mapping[float, float] = {0.5: 0.45, 0.8: 1.2, 0.9: 1.75}
#: levelled off: over the next tenth of its iterations the curve falls by less than this share of its fall so far
LEVEL = 0.005
#: nothing is extrapolated further than this many times the observed span
FURTHEST = 1000.0

Key = tuple[str, float]


class State(StrEnum):
    IMPROVING = "improving"
    PLATEAU = "plateau"
    DIVERGING = "diverging"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Forecast:
    """A fitted curve that can be asked. Positions are on the curve's own axis (iterations or epochs)."""

    fitted: Fitted
    members: tuple[Fitted, ...]  #: the chosen one first
    first: float
    last: float
    n: int
    noise: float  #: standard deviation of a bin's mean
    held_out: float  #: mean root-mean-square error on the held-out tails
    reach: float  #: typical distance of the held-out bins, over the span observed before them

    @property
    def law(self) -> str:
        return self.fitted.law

    def at(self, position: float) -> float:
        """The expected loss there."""
        return float(self.fitted(position))

    def interval(self, position: float, level: float = 0.9) -> tuple[float, float]:
        """Where the mean loss there lies with probability `level` (0.5, 0.8 or 0.9)."""
        half = self._half(np.array([position]), level)[0]
        value = self.at(position)
        return value - float(half), value + float(half)

    def _half(self, positions: Array, level: float) -> Array:
        span = max(self.last - float(self.fitted.parameters["origin"]), 1e-12)
        ahead = np.maximum((positions - self.last) / span, 0.0) / max(self.reach, 1e-9)
        values = self.fitted(positions)
        apart = np.zeros_like(values)
        if len(self.members) > 1:
            apart = np.sqrt(np.mean([(m(positions) - values) ** 2 for m in self.members], axis=0))
        grown = self.held_out * np.maximum(ahead, 0.3) ** 0.75
        return np.asarray(Z[level] * np.sqrt(self.noise**2 + grown**2 + (2 * apart) ** 2))

    def iterations_to(self, target: float, level: float = 0.9) -> tuple[float, tuple[float, float]] | None:
        """Iterations from the last one until the mean loss is `target`, and their interval.

        The upper end is infinite where the interval's upper edge never gets there. None when the fit itself says
        that the target is not reached (within `FURTHEST` spans).
        """
        grid = self._grid()
        values = self.fitted(grid)
        half = self._half(grid, level)
        middle = _first_below(grid, values, target)
        if middle is None:
            return None
        soonest = _first_below(grid, values - half, target)
        latest = _first_below(grid, values + half, target)
        low = middle if soonest is None else min(soonest, middle)
        high = float("inf") if latest is None else latest
        return middle - self.last, (max(low - self.last, 0.0), high - self.last)

    def iterations_to_level(self) -> tuple[float, tuple[float, float]] | None:
        """Iterations until the curve has levelled off (see `LEVEL`), with the range over the candidates."""
        found = [k for m in self.members if (k := self._levels_off(m)) is not None]
        middle = self._levels_off(self.fitted)
        if middle is None:
            return None
        return middle - self.last, (min(found) - self.last, max(found) - self.last)

    def _levels_off(self, fitted: Fitted) -> float | None:
        grid = self._grid()
        origin = float(fitted.parameters["origin"])
        now = fitted(grid)
        later = fitted(origin + (grid - origin) * 1.1)
        fallen = float(fitted(self.first)) - now
        flat = now - later <= LEVEL * np.maximum(fallen, 1e-300)
        return float(grid[int(np.argmax(flat))]) if bool(flat.any()) else None

    def _grid(self) -> Array:
        span = max(self.last - float(self.fitted.parameters["origin"]), 1e-12)
        return np.asarray(self.last + span * np.concatenate(([0.0], np.geomspace(1e-3, FURTHEST, 600))))


def _first_below(grid: Array, values: Array, target: float) -> float | None:
    below = values <= target
    if not bool(below.any()):
        return None
    i = int(np.argmax(below))
    if i == 0:
        return float(grid[0])
    a, b = float(values[i - 1]), float(values[i])
    share = 1.0 if a == b else (a - target) / (a - b)
    return float(grid[i - 1] + share * (grid[i] - grid[i - 1]))


# --- fitting ----------------------------------------------------------------------------------------------


def forecast(points: Sequence[tuple[float, float]]) -> tuple[Forecast | None, str]:
    """The forecast of a curve of (position, loss), or None and why there is none."""
    at, values = _clean(points)
    if len(at) < FEWEST:
        return None, f"{len(at)} positions with a loss are too few for a forecast (at least {FEWEST})"
    k, y, w = binned(at, values)
    step = quantile(np.diff(k), 0.5)
    floor = 0.0 if float(values.min()) >= 0 else None
    origin = float(k[0]) - step
    errors, reaches = _held_out(k, y, w, origin, floor)
    final = _candidates(k, y, w, origin, floor)
    scores = {key: float(np.mean(e)) for key, e in errors.items() if key in final and len(e) == len(CUTS)}
    if not scores:
        return None, "the curve is too short to hold a tail out"
    order = sorted(scores, key=lambda key: (scores[key], key))
    best = order[0]
    level = abs(float(np.mean(y[-max(len(y) // 5, 1) :])))
    if scores[best] > UNPREDICTABLE * level:
        return None, (
            f"the tail is not predictable: the best law ({best[0]}) misses the curve's own last points by "
            f"{scores[best] / max(level, 1e-12):.0%} of the loss"
        )
    near = [key for key in order if scores[key] <= NEARLY * scores[best]][:7]
    made = Forecast(
        fitted=final[best],
        members=tuple(final[key] for key in near),
        first=float(at[0]),
        last=float(at[-1]),
        n=len(at),
        noise=_noise(y),
        held_out=scores[best],
        reach=float(np.mean(reaches)),
    )
    return made, ""


def _clean(points: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """Finite points, ascending."""
    kept = sorted((float(k), float(v)) for k, v in points if np.isfinite(k) and np.isfinite(v) and abs(v) < 1e30)
    array = np.array(kept, dtype=np.float64).reshape(len(kept), 2)
    return array[:, 0], array[:, 1]


def binned(at: Array, values: Array, bins: int = BINS) -> tuple[Array, Array, Array]:
    """Means of at most `bins` bins of equal count: positions, values, counts."""
    parts = np.array_split(np.arange(len(at)), min(bins, len(at)))
    return (
        np.array([at[i].mean() for i in parts]),
        np.array([values[i].mean() for i in parts]),
        np.array([float(len(i)) for i in parts]),
    )


def _candidates(k: Array, y: Array, w: Array, origin: float, floor: float | None) -> dict[Key, Fitted]:
    found: dict[Key, Fitted] = {}
    for window in WINDOWS:
        start = int(len(k) * window)
        for law in LAWS.values():
            if law.name == "constant" and window:
                continue
            made = fit(law, k[start:], y[start:], w[start:], origin=origin, floor=floor)
            if made is not None:
                found[law.name, window] = made
    return found


def _held_out(
    k: Array, y: Array, w: Array, origin: float, floor: float | None
) -> tuple[dict[Key, list[float]], list[float]]:
    """Root-mean-square errors on the held-out tails by candidate, and the mean distance of those tails."""
    errors: dict[Key, list[float]] = {}
    reaches: list[float] = []
    for cut in CUTS:
        seen = max(int(len(k) * cut), 3)
        span = float(k[seen - 1]) - origin
        reaches.append(float(np.mean((k[seen:] - k[seen - 1]) / span)))
        for key, made in _candidates(k[:seen], y[:seen], w[:seen], origin, floor).items():
            missed = made(k[seen:]) - y[seen:]
            errors.setdefault(key, []).append(float(np.sqrt(np.average(missed**2, weights=w[seen:]))))
    return errors, reaches


def _noise(y: Array) -> float:
    """Standard deviation of a bin's mean, from differences of neighbours (the trend drops out)."""
    steps = np.diff(y)
    return float(1.4826 * quantile(np.abs(steps - quantile(steps, 0.5)), 0.5) / np.sqrt(2))


# --- what a run's summary says ----------------------------------------------------------------------------


def fit_of(
    curve: Curve | None,
    *,
    target: float | None = None,
    total: float | None = None,
    iterations_per_epoch: float | None = None,
) -> tuple[Fit | None, tuple[str, ...]]:
    """The part `fit` of a run's summary, and what there is to say about it.

    `total`: the run's last iteration where the log tells it. Without a target, `iterations_left` is up to there
    (told, so without an interval), else until the fitted curve has levelled off.
    """
    if curve is None or not curve.points:
        return None, ()
    made, why = forecast(curve.points)
    notes = [f"loss: {why}"] if made is None and len(curve.points) >= FEWEST else []
    if state(curve.points) is State.DIVERGING:
        notes.append("loss: it rises at the end of what was read")
    if made is None:
        return None, tuple(notes)
    left: float | None = None
    interval: tuple[float, float] | None = None
    if target is None and total is not None and curve.axis == "iteration":
        left = max(total - made.last, 0.0)
    else:
        found = made.iterations_to_level() if target is None else made.iterations_to(target)
        per = 1.0 if curve.axis == "iteration" else iterations_per_epoch
        if found is None:
            notes += [] if target is None else [f"loss: by the fit it does not reach {target:g}"]
        elif per is not None:
            left, interval = found[0] * per, (found[1][0] * per, found[1][1] * per)
    return Fit(made.law, dict(made.fitted.parameters), target, left, interval), tuple(notes)


def state(points: Sequence[tuple[float, float]]) -> State:
    """Whether the loss still falls, has levelled off, or rises, by the last third of the curve.

    Diverging: not finite at the end, or a significant rise (Kendall, p < 0.01) larger than the noise and 2 % of
    the loss. Plateau: no significant fall, or one below 1 % of the loss over that third.
    """
    if points and not np.isfinite(points[-1][1]):
        return State.DIVERGING
    at, values = _clean(points)
    if len(at) < FEWEST:
        return State.UNCLEAR
    k, y, _ = binned(at, values, 30)
    start = min(2 * len(k) // 3, len(k) - 5)
    k, y = k[start:], y[start:]
    if float(np.ptp(y)) == 0:
        return State.PLATEAU
    slope, doubt = _trend(k, y)
    moved = slope * float(k[-1] - k[0])
    size = max(float(np.mean(np.abs(y))), 1e-12)
    sure = doubt < (0.01 if len(k) > 5 else 0.05)
    if sure and moved > max(3 * _noise(y), 0.02 * size):
        return State.DIVERGING
    if not sure or moved > -0.01 * size:
        return State.PLATEAU if sure or abs(moved) < max(2 * _noise(y), 0.01 * size) else State.UNCLEAR
    return State.IMPROVING


def _trend(k: Array, y: Array) -> tuple[float, float]:
    """Theil-Sen slope, and the probability of so clear an order by chance (Mann-Kendall, normal approximation)."""
    i, j = np.triu_indices(len(k), 1)
    rises = y[j] - y[i]
    n = len(k)
    clear = abs(float(np.sign(rises).sum()))
    z = max(clear - 1, 0.0) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return quantile(rises / (k[j] - k[i]), 0.5), math.erfc(z / math.sqrt(2))
