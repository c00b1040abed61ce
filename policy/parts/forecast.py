"""Where a loss curve goes from here: what loss-driven policies (Optimus, SLAQ) ask of a snapshot.

A live snapshot carries a fitted curve (`loss_forecast`, made by the profiler): law, origin, asymptote, scale and the
shape's parameters, loss(k) = asymptote + scale * shape(k - origin). An instance may carry bare points instead; they
are fitted here by the law of the Optimus paper, 1 / (b0 k + b1) + b2, which is `inverse` below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from policy.bounds import MOST_WORK
from policy.model import BadInput, Job, LossForecast

_SHAPES: Mapping[str, Callable[[float, Mapping[str, float]], float]] = {
    "inverse": lambda x, p: 1 / (1 + x / p["s"]),
    "inverse-quadratic": lambda x, p: 1 / (1 + x / p["s"] + (x / p["t"]) ** 2),
    "exponential": lambda x, p: math.exp(-min(x / p["s"], 700.0)),
    "power": lambda x, p: x ** -p["p"],
    "shifted-power": lambda x, p: (1 + x / p["s"]) ** -p["p"],
    "log-power": lambda x, p: 1 / (1 + (x / p["s"]) ** p["p"]),
    "stretched-exponential": lambda x, p: math.exp(-min((x / p["s"]) ** p["p"], 700.0)),
    "inverse-log": lambda x, p: 1 / math.log(x + math.e),
    "constant": lambda x, p: 0.0,
}
#: Of each law, the parameters that its shape has of its own.
_OWN: Mapping[str, str] = {
    "inverse": "s", "inverse-quadratic": "st", "exponential": "s", "power": "p", "shifted-power": "sp",
    "log-power": "sp", "stretched-exponential": "sp", "inverse-log": "", "constant": "",
}  # fmt: skip
#: Within these no power of any iteration overflows, and no length is nothing or runs backwards.
_WITHIN = {"origin": (-MOST_WORK, MOST_WORK), "s": (1e-15, 1e18), "t": (1e-15, 1e18), "p": (0.0, 10.0)}


def check(forecast: LossForecast) -> None:
    """Raises BadInput for a law or a parameter that is not known here, or means no curve. One that says where it ends
    (`iterations`) needs no curve."""
    if forecast.law not in _SHAPES:
        raise BadInput(
            "is no law",
            field="loss_forecast.law",
            value=forecast.law,
            remedy=f"one of {', '.join(_SHAPES)}",
        )
    missing = _needed(forecast) - forecast.parameters.keys()
    if missing and "iterations" not in forecast.parameters:
        raise BadInput(
            f"law {forecast.law} lacks its parameter {min(missing)!r}",
            field="loss_forecast.parameters",
            remedy="as `horae profile --json` prints it under fit",
        )
    for name, value in forecast.parameters.items():
        least, most = _WITHIN.get(name, (-math.inf, math.inf))
        if not least <= value <= most:
            raise BadInput(
                f"must be in {least:g} .. {most:g}",
                field=f"loss_forecast.parameters.{name}",
                value=value,
                remedy="correct the value",
            )


def has_curve(forecast: LossForecast) -> bool:
    """Whether it says what the loss will be. (A law that this version does not know promises nothing.)"""
    return forecast.law in _SHAPES and _needed(forecast) <= forecast.parameters.keys()


def _needed(forecast: LossForecast) -> set[str]:
    return {"asymptote", "scale", *_OWN[forecast.law]}


def loss_at(forecast: LossForecast, iteration: float) -> float:
    """The predicted loss, of one that was checked and has a curve."""
    p = forecast.parameters
    x = max(iteration - p.get("origin", 0.0), 1e-9)
    return p["asymptote"] + p["scale"] * _SHAPES[forecast.law](x, p)


def forecast_of(job: Job) -> LossForecast | None:
    """The job's forecast; None with neither a fitted curve nor three points that fall."""
    if job.loss_forecast is not None and has_curve(job.loss_forecast):
        return job.loss_forecast
    if len(job.loss) < 3:
        return None
    k, y = np.array(job.loss, dtype=np.float64).T
    origin, span = float(k[0]), float(k[-1] - k[0])
    if span <= 0 or not np.isfinite(y).all():
        return None
    rates = span * np.logspace(-4, 2, 121)
    with np.errstate(over="ignore", invalid="ignore"):
        shape = 1 / (1 + (k - origin) / rates[:, None])  # one row a candidate: linear least squares in closed form
        about = shape - shape.mean(axis=1, keepdims=True)
        scale = (about @ (y - y.mean())) / np.maximum((about * about).sum(axis=1), 1e-300)
        asymptote = y.mean() - scale * shape.mean(axis=1)
        below = asymptote < 0  # a loss does not fall below 0
        scale = np.where(below, (shape @ y) / (shape * shape).sum(axis=1), scale)
        asymptote = np.where(below, 0.0, asymptote)
        error = ((scale[:, None] * shape + asymptote[:, None] - y) ** 2).sum(axis=1)
    error = np.where((scale > 0) & np.isfinite(error), error, np.inf)
    best = int(error.argmin())
    if not np.isfinite(error[best]):
        return None
    fitted = {"s": float(rates[best]), "scale": float(scale[best]), "asymptote": float(asymptote[best])}
    return LossForecast("inverse", {"origin": origin, **fitted})


def iterations_left(job: Job, threshold: float) -> float | None:
    """Iterations until the loss falls by less than `threshold` of its whole fall in a hundredth of the work done so
    far and to come: Optimus' convergence, made free of units. The stated length where the policy may know it; None
    where neither is there.
    """
    if job.work_left is not None:
        return job.work_left
    forecast = forecast_of(job)
    if forecast is None:
        return None
    start = loss_at(forecast, forecast.parameters.get("origin", 0.0))
    fall = start - forecast.parameters["asymptote"]
    at, step = job.work.done, max(job.work.done, 100.0) / 100
    while at < 1e9:
        if loss_at(forecast, at) - loss_at(forecast, at + step) < threshold * fall:
            return at - job.work.done
        at += step
        step = max(step, at / 100)
    return None
