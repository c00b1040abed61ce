"""Families of loss curves, and how one of them is fitted.

Every law is asymptote + scale * shape(x) with a shape that falls from its start towards 0, scale >= 0, and
x = iteration - origin > 0. Scale and asymptote are linear, so a fit searches only the shape's one or two
parameters: a logarithmic grid, then finer grids around the best (variable projection). No start values, no local
minimum of a general optimiser, the same answer every time.

law (parameters)              shape(x)                      who uses it
inverse (s)                   1 / (1 + x/s)                 Optimus (EuroSys '18): 1/(b0 k + b1) + b2
inverse-quadratic (s, t)      1 / (1 + x/s + (x/t)^2)       SLAQ (SoCC '17), sub-linear: 1/(a k^2 + b k + c) + d
exponential (s)               exp(-x/s)                     SLAQ, linear convergence: mu^(k - b) + c
power (p)                     x^-p                          HyperDrive's set, see below: pow3
shifted-power (s, p)          (1 + x/s)^-p                  the same: pow4
log-power (s, p)              1 / (1 + (x/s)^p)             the same: log power, Hill
stretched-exponential (s, p)  exp(-(x/s)^p)                 the same: exp4, Weibull, Janoschek
inverse-log ()                1 / log(x + e)                the same: ilog2
constant ()                   0                             a curve that has levelled off

HyperDrive (Middleware '17) takes its set from Domhan et al. (IJCAI '15), written for accuracies that rise; here it
is mirrored. The members without an asymptote (vapour pressure, log-log-linear) are left out: they cannot be
extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: grid points of each shape parameter, and how often the grid is drawn closer
GRID = 15
ZOOMS = 3
STEPS = np.linspace(0.0, 1.0, GRID)


@dataclass(frozen=True, slots=True)
class Law:
    name: str
    shapes: tuple[str, ...]  #: names of the shape's parameters
    ranges: tuple[tuple[float, float], ...]  #: of each; "s" and "t" in units of the observed span
    shape: Callable[..., Array]  #: (x, *parameters) -> values, broadcast


LAWS: Mapping[str, Law] = {
    law.name: law
    for law in (
        Law("inverse", ("s",), ((1e-4, 1e2),), lambda x, s: 1 / (1 + x / s)),
        Law(
            "inverse-quadratic",
            ("s", "t"),
            ((1e-4, 1e2), (1e-2, 1e2)),
            lambda x, s, t: 1 / (1 + x / s + (x / t) ** 2),
        ),
        Law("exponential", ("s",), ((1e-3, 1e1),), lambda x, s: np.exp(-x / s)),
        # Powers by logarithms: on a grid there are many fewer of these.
        Law("power", ("p",), ((0.05, 2.5),), lambda x, p: np.exp(-p * np.log(x))),
        Law(
            "shifted-power",
            ("s", "p"),
            ((1e-4, 3.0), (0.05, 3.0)),
            lambda x, s, p: np.exp(-p * np.log1p(x / s)),
        ),
        Law(
            "log-power",
            ("s", "p"),
            ((1e-4, 1e1), (0.1, 4.0)),
            lambda x, s, p: 1 / (1 + np.exp(p * np.log(x / s))),
        ),
        Law(
            "stretched-exponential",
            ("s", "p"),
            ((1e-4, 1e1), (0.1, 1.5)),
            lambda x, s, p: np.exp(-np.exp(p * np.log(x / s))),
        ),
        Law("inverse-log", (), (), lambda x: 1 / np.log(x + np.e)),
        Law("constant", (), (), np.zeros_like),
    )
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A law with its numbers. `parameters`: origin, asymptote, scale and the shape's own."""

    law: str
    parameters: Mapping[str, float]
    error: float  #: weighted root mean square over the points it was fitted to

    def __call__(self, at: Array | float) -> Array:
        return evaluate(self.law, self.parameters, at)


def evaluate(law: str, parameters: Mapping[str, float], at: Array | float) -> Array:
    """The law's value at iterations `at`. Raises KeyError for a law or a parameter it does not know."""
    family = LAWS[law]
    x = np.maximum(np.asarray(at, dtype=np.float64) - parameters["origin"], 1e-9)
    with np.errstate(over="ignore", under="ignore"):
        shape = family.shape(x, *(parameters[name] for name in family.shapes))
    return np.asarray(parameters["asymptote"] + parameters["scale"] * shape, dtype=np.float64)


def _ranges(law: Law, span: float) -> list[tuple[float, float]]:
    return [
        (low * span, high * span) if name in ("s", "t") else (low, high)
        for name, (low, high) in zip(law.shapes, law.ranges, strict=True)
    ]


def fit(law: Law, at: Array, values: Array, weights: Array, *, origin: float, floor: float | None) -> Fitted | None:
    """Weighted least squares of one law. `floor`: the asymptote is not below it (0 for losses that cannot be).

    None when the law cannot be told from the points (fewer points than parameters, or no spread of positions).
    """
    x = at - origin
    few = len(x) < 3 + len(law.shapes)
    if few or float(x[0]) <= 0 or float(x[-1] - x[0]) <= 0:
        return None if law.name != "constant" or len(x) == 0 else _constant(at, values, weights, origin)
    if law.name == "constant":
        return _constant(at, values, weights, origin)
    ranges = _ranges(law, float(x[-1]))
    points = _Points(x, values, weights, floor)
    best: Found = (float("inf"), (), 0.0, 0.0)
    for _ in range(ZOOMS + 1 if ranges else 1):
        axes = [low * (high / low) ** STEPS for low, high in ranges]
        best = min(best, points.best(law, axes), key=lambda found: found[0])
        if not np.isfinite(best[0]):
            return None
        ranges = [_closer(axis, value, limits) for axis, value, limits in zip(axes, best[1], ranges, strict=True)]
    squares, shapes, scale, asymptote = best
    parameters = {"origin": origin, "asymptote": asymptote, "scale": scale}
    parameters.update({name: float(value) for name, value in zip(law.shapes, shapes, strict=True)})
    return Fitted(law.name, parameters, float(np.sqrt(squares / weights.sum())))


def _constant(at: Array, values: Array, weights: Array, origin: float) -> Fitted:
    """The mean of the last fifth: what "it stays as it is" predicts."""
    tail = slice(max(len(at) - max(len(at) // 5, 1), 0), None)
    level = float(np.average(values[tail], weights=weights[tail]))
    error = float(np.sqrt(np.average((values[tail] - level) ** 2, weights=weights[tail])))
    return Fitted("constant", {"origin": origin, "asymptote": level, "scale": 0.0}, error)


#: Of one fit: weighted sum of squares, the shape's parameters, scale, asymptote.
Found = tuple[float, tuple[float, ...], float, float]


class _Points:
    """What is fitted to: scale and asymptote of a shape follow from five sums over the points."""

    def __init__(self, x: Array, values: Array, weights: Array, floor: float | None) -> None:
        self.x, self.values, self.weights, self.floor = x, values, weights, floor
        self.total = float(weights.sum())
        self.level = float(values @ weights / self.total)
        self.apart = values - self.level  # sums of squares of what is far from zero tell little
        self.varies = float(self.apart**2 @ weights)
        self.sums = np.stack([weights, weights * self.apart], axis=1)

    def best(self, law: Law, axes: list[Array]) -> Found:
        """The best of a grid, `axes` by parameter."""
        grid = [axis.reshape(-1, *[1] * (len(axes) - i)) for i, axis in enumerate(axes)]
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            shapes = law.shape(self.x, *grid).reshape(-1, len(self.x))
            scale, asymptote, squares = self._solved(shapes)
        i = int(np.argmin(np.where(np.isfinite(squares), squares, np.inf)))
        at = np.unravel_index(i, [len(axis) for axis in axes]) if axes else ()
        exact = float((asymptote[i] + scale[i] * shapes[i] - self.values) ** 2 @ self.weights)
        chosen = tuple(float(axis[n]) for axis, n in zip(axes, at, strict=True))
        return exact if np.isfinite(exact) else float("inf"), chosen, float(scale[i]), float(asymptote[i])

    def _solved(self, shapes: Array) -> tuple[Array, Array, Array]:
        """Scale, asymptote and weighted sum of squares of each shape."""
        ones, with_values = (shapes @ self.sums).T
        twos = shapes**2 @ self.weights
        mean = ones / self.total
        variance = twos - ones * mean
        scale = np.maximum(np.where(variance > 0, with_values / variance, 0.0), 0.0)
        asymptote = self.level - scale * mean
        if self.floor is not None:
            low = asymptote < self.floor
            above = with_values + ones * (self.level - self.floor)
            scale = np.where(low, np.maximum(above / twos, 0.0), scale)
            asymptote = np.where(low, self.floor, asymptote)
        off = asymptote - self.level
        squares = self.varies + off**2 * self.total + scale * (scale * twos + 2 * (off * ones - with_values))
        return scale, asymptote, squares


def _closer(axis: Array, value: float, limits: tuple[float, float]) -> tuple[float, float]:
    """A range of two grid steps around a value, inside the old limits."""
    ratio = float(axis[1] / axis[0])
    return max(limits[0], value / ratio), min(limits[1], value * ratio)
