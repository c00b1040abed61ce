"""Models of a trace: gaps between arrivals, GPUs, durations by GPUs; how far each is from it; jobs drawn from them.

A model is a quantile function. Three families are tried (exponential, Weibull, lognormal), each with the trace's own
mean, so that what is drawn asks for as much; where none comes near enough, the model is the trace's own quantiles
joined by straight lines. Its distance from the trace is the largest
difference of the two distribution functions (Kolmogorov-Smirnov), the model taken at `POINTS` even steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gamma, log
from statistics import NormalDist
from typing import Any

import numpy as np

from horae.sim.traces.describing import Columns, Numbers
from horae.sim.traces.writing import plain

POINTS = 10_000
#: A family this near is taken before the quantiles: it says more with less.
NEAR = 0.05
KNOTS = 65


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    parameters: dict[str, Any]
    #: Quantile function: u in [0, 1) -> value, s.
    at: Callable[[float], float]
    ks: float

    def to_plain(self) -> dict[str, Any]:
        return {"model": self.name, **self.parameters, "ks": self.ks}


def fitted(values: Numbers) -> Model:
    """The best model of numbers of 0 or more; at least one is needed."""
    ordered = np.sort(values)
    families = [f for f in (_exponential(ordered), _weibull(ordered), _lognormal(ordered)) if f is not None]
    measured = [Model(name, p, at, distance(ordered, at)) for name, p, at in families]
    best = min(measured, key=lambda m: m.ks, default=None)
    if best is not None and best.ks <= NEAR:
        return best
    name, parameters, at = _quantiles(ordered)
    return Model(name, parameters, at, distance(ordered, at))


Family = tuple[str, dict[str, Any], Callable[[float], float]]


def _exponential(ordered: Numbers) -> Family | None:
    mean = float(ordered.mean())
    return None if mean <= 0 else ("exponential", {"mean": mean}, lambda u: -mean * np.log1p(-u))


def _weibull(ordered: Numbers) -> Family | None:
    """Its shape by maximum likelihood, by bisection of its one equation; zeros count as a millisecond."""
    x = np.maximum(ordered, 1e-3)
    logs = np.log(x / x.max())
    if logs.min() == 0:
        return None

    def surplus(shape: float) -> float:
        powers = np.exp(shape * logs)
        return float((powers * logs).sum() / powers.sum() - 1 / shape - logs.mean())

    low, high = 1e-2, 1e2
    if surplus(low) > 0 or surplus(high) < 0:
        return None
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if surplus(middle) < 0 else (low, middle)
    shape = (low * high) ** 0.5
    scale = float(ordered.mean()) / gamma(1 + 1 / shape)
    return "weibull", {"shape": shape, "scale": scale}, lambda u: scale * (-np.log1p(-u)) ** (1 / shape)


def _lognormal(ordered: Numbers) -> Family | None:
    logs = np.log(np.maximum(ordered, 1e-3))
    sigma, mean = float(logs.std()), float(ordered.mean())
    if sigma == 0 or mean <= 0:
        return None
    mu = log(mean) - sigma**2 / 2
    normal = NormalDist(mu, sigma)
    return "lognormal", {"mu": mu, "sigma": sigma}, lambda u: float(np.exp(normal.inv_cdf(max(u, 1e-12))))


def _quantiles(ordered: Numbers) -> Family:
    steps = min(KNOTS, ordered.size)
    at = np.linspace(0, 1, steps)
    if steps == KNOTS:
        # Ever closer towards the ends: few jobs there hold most of the time.
        ends = 2.0 ** -np.arange(7, np.log2(ordered.size))
        at = np.concatenate([[0.0], ends[::-1], at[1:-1], 1 - ends, [1.0]])
    values = np.quantile(ordered, at)
    return "quantiles", {"quantiles": values.tolist()}, lambda u: float(np.interp(u, at, values))


def distance(ordered: Numbers, at: Callable[[float], float]) -> float:
    """Kolmogorov-Smirnov: the largest difference between the trace's distribution function and the model's."""
    model = np.sort(np.array([at((n + 0.5) / POINTS) for n in range(POINTS)]))
    return two_samples(ordered, model)


def two_samples(one: Numbers, other: Numbers) -> float:
    """The Kolmogorov-Smirnov distance of two sorted samples."""
    points = np.concatenate([one, other])
    below = np.searchsorted(one, points, side="right") / one.size
    return float(np.abs(below - np.searchsorted(other, points, side="right") / other.size).max())


@dataclass(frozen=True, slots=True)
class Fitted:
    arrivals: Model
    #: GPUs -> part of the jobs.
    gpus: dict[int, float]
    durations: dict[int, Model]
    #: Of all durations together, each model by its part.
    duration_ks: float
    mean_gap_s: float
    jobs: int

    def to_plain(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "arrivals": {**self.arrivals.to_plain(), "jobs_per_hour": 3600 / self.mean_gap_s if self.mean_gap_s else 0},
            "gpus": {"parts": {str(n): part for n, part in self.gpus.items()}, "ks": 0.0},
            "duration_s": {
                "ks": self.duration_ks,
                "by_gpus": {str(n): model.to_plain() for n, model in self.durations.items()},
            },
        }

    def draw(self, count: int, seed: int) -> Iterator[list[str]]:
        """Rows `submitted, duration, gpus`: at the trace's rate over all, in order."""
        chance = random.Random(seed)
        gaps = [self.arrivals.at(chance.random()) for _ in range(count - 1)]
        total = sum(gaps)
        stretch = self.mean_gap_s * len(gaps) / total if total else 0.0
        sizes, parts = list(self.gpus), list(self.gpus.values())
        at = 0.0
        for number in range(count):
            gpus = chance.choices(sizes, parts)[0]
            duration = self.durations[gpus].at(chance.random())
            yield [plain(round(at, 3)), plain(round(duration, 3)), str(gpus)]
            at += gaps[number] * stretch if number < len(gaps) else 0.0


def fit(columns: Columns) -> Fitted:
    """Raises ValueError where there are fewer than two jobs: no gap, no rate."""
    submitted, duration = np.sort(np.array(columns.submitted)), np.array(columns.duration)
    if submitted.size < 2:
        raise ValueError(f"{submitted.size} jobs")
    gpus = np.array(columns.gpus)
    gaps = np.diff(submitted)
    sizes, counts = np.unique(gpus, return_counts=True)
    durations = {int(n): fitted(duration[gpus == n]) for n in sizes}
    parts = {int(n): float(c) / gpus.size for n, c in zip(sizes, counts, strict=True)}
    drawn = []
    for n, count in zip(sizes, counts, strict=True):
        steps = max(1, round(POINTS * 4 * count / gpus.size))
        drawn += [durations[int(n)].at((k + 0.5) / steps) for k in range(steps)]
    together = two_samples(np.sort(duration), np.sort(np.array(drawn)))
    return Fitted(fitted(gaps), parts, durations, together, float(gaps.mean()), int(submitted.size))
