"""Gavel's programs. X (n, k): the fraction of time that job m spends on GPU type t, as a whole gang.

Feasible: each row sums to at most 1; type t serves at most its GPUs, sum over m of X[m, t] * gang[m] <= gpus[t].
Effective throughput of a job: rate[m] . X[m]. Each program here maximises a common level that every job's effective
throughput reaches in proportion to a need, then, with the level kept, the total, so that no GPU idles that could
help somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.model import SolverSummary, Termination
from policy.solver import Backend, Program, Result, Variable

Matrix = NDArray[np.float64]
#: Relative width of the interval at which the bisection over rho stops.
RHO = 1e-6


@dataclass(frozen=True, slots=True)
class Jobs:
    """rate (n, k) iterations/s of the gang on each type, 0 where it cannot run; gang (n,) GPUs; gpus (k,)."""

    rate: Matrix
    gang: Matrix
    gpus: Matrix


@dataclass(frozen=True, slots=True)
class Fractions:
    x: Matrix
    solver: SolverSummary
    level: float = 0.0

    @property
    def found(self) -> bool:
        return self.solver.termination is Termination.OPTIMAL


@dataclass(frozen=True, slots=True)
class Solving:
    time_limit_s: float | None = None
    seed: int = 0
    backend: Backend = Backend.HIGHS


def equal_share(jobs: Jobs) -> Matrix:
    """Effective throughput (n,) of a job that spends its time on the types in proportion to their GPUs (Gavel §4.1)."""
    total = jobs.gpus.sum()
    return np.asarray(jobs.rate @ jobs.gpus / total) if total > 0 else np.zeros(len(jobs.rate))


def max_min(jobs: Jobs, weight: Matrix, how: Solving) -> Fractions:
    """Max-min over 1/weight x throughput / equal-share throughput x gang (Gavel §4.1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(jobs.gang > 0, weight * equal_share(jobs) / jobs.gang, 0.0)
    return _level(jobs, need, how)


def makespan(jobs: Jobs, left: Matrix, how: Solving) -> Fractions:
    """The earliest time by which all `left` (n,) iterations can be done (§4.2): 1 / level."""
    return _level(jobs, left, how)


def finish_time(jobs: Jobs, left: Matrix, elapsed: Matrix, isolated: Matrix, how: Solving) -> Fractions:
    """The smallest largest rho = (elapsed + left / throughput) / isolated (§4.2, after Themis), between two bounds.

    rho is feasible iff all jobs reach left / (rho x isolated - elapsed) together: one program whose needs change, so
    each solve starts from the last one's basis. Its prices are a bound for every other rho too: needs that cost more
    than the capacity is worth cannot be met. So a solve at a rho just above the bound either meets it, and the search
    ends, or raises the bound (Newton's method; bisection where a bound is too weak). `level` is 1 / rho.
    """
    if not len(jobs.rate):
        return Fractions(np.zeros(jobs.rate.shape), SolverSummary(Termination.OPTIMAL, 0.0, 0.0))
    model = _Model(jobs)
    able = jobs.rate.max(axis=1, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(able > 0, (elapsed + left / able) / isolated, elapsed / isolated)
    low = float(least.max(initial=0.0))

    def need(rho: float) -> Matrix:
        room = rho * isolated - elapsed
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.minimum(np.where(room > 0, left / room, np.inf), 1e12))

    high, seconds = max(2 * low, 1.0), 0.0
    best: Matrix | None = None
    middle = high
    for step in range(200):
        result = model.solve(need(middle), how)
        seconds += result.seconds
        if not result.has_solution:
            break
        if result[model.level] >= 1 - 1e-9:
            high, best = middle, need(middle)
        else:
            low = max(low, middle)
        price = model.prices(result)
        if price is not None:
            low = min(max(low, _bound(price, need, float(price @ need(middle)) * result[model.level], low, high)), high)
        if best is None:
            high = max(high, 4 * low)
            middle = high
        elif high - low <= RHO * high or high <= RHO * RHO:
            break
        else:
            close = low * (1 + RHO / 2)
            middle = close if step % 4 and 0 < close < high else (low + high) / 2
    if best is None:
        return Fractions(np.zeros(jobs.rate.shape), SolverSummary(Termination.NUMERICAL, None, seconds))
    filled = model.fill(best, 1.0, how)
    summary = replace(filled.summary(), seconds=seconds + filled.seconds)
    return Fractions(model.values(filled), summary, 1 / high)


def _bound(price: Matrix, need: Callable[[float], Matrix], worth: float, low: float, high: float) -> float:
    """The largest rho (a little less) at which the needs still cost more than the capacity is worth."""
    if float(price @ need(low)) <= worth:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        if float(price @ need(middle)) > worth * (1 + 1e-9):
            low = middle
        else:
            high = middle
    return low


def fifo(jobs: Jobs, how: Solving) -> Fractions:
    """First come first served on the fastest types (§4.2): maximise the sum of throughput / fastest, weighted n - m."""
    model = _Model(jobs)
    n = len(jobs.rate)
    fastest = jobs.rate.max(axis=1, initial=0.0)
    goal = {
        model.x[m][t]: (n - m) * float(jobs.rate[m, t] / fastest[m])
        for m in range(n)
        for t in range(len(jobs.gpus))
        if fastest[m] > 0
    }
    result = model.maximise(goal, how)
    return Fractions(model.values(result), result.summary())


def _level(jobs: Jobs, need: Matrix, how: Solving) -> Fractions:
    model = _Model(jobs)
    result = model.solve(need, how)
    if not result.has_solution or not len(jobs.rate):
        return Fractions(np.zeros(jobs.rate.shape), result.summary())
    level = result[model.level]
    filled = model.fill(need, level, how)
    summary = replace(filled.summary(), seconds=result.seconds + filled.seconds)
    return Fractions(model.values(filled if filled.has_solution else result), summary, level)


class _Model:
    """The feasible set, and one row a job: its throughput reaches need x level."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        n, k = jobs.rate.shape
        p = self.program = Program()
        self.x: list[list[Variable]] = [[p.variable(0.0, None if r > 0 else 0.0) for r in row] for row in jobs.rate]
        for row in self.x:
            p.at_most(dict.fromkeys(row, 1.0), 1.0)
        for t in range(k):
            p.at_most({self.x[m][t]: float(jobs.gang[m]) for m in range(n)}, float(jobs.gpus[t]))
        self.level = p.variable()
        self._reach = [
            p.at_least({**dict(zip(row, map(float, rate), strict=True)), self.level: 0.0}, 0.0)
            for row, rate in zip(self.x, jobs.rate, strict=True)
        ]
        self._capped = p.at_most({self.level: 1.0}, 1e15)
        p.maximise({self.level: 1.0})

    def _needs(self, need: Matrix) -> None:
        able = self.jobs.rate.max(axis=1, initial=0.0) > 0
        for m, row in enumerate(self._reach):
            self.program.set_row(row, coefficients={self.level: -float(need[m]) if able[m] else 0.0})

    def solve(self, need: Matrix, how: Solving) -> Result:
        self._needs(need)
        return self.program.solve(time_limit_s=how.time_limit_s, seed=how.seed, backend=how.backend)

    def prices(self, result: Result) -> Matrix | None:
        """What a unit of each job's need costs; None where the solver gave no prices."""
        return np.abs(np.array([result.prices[row] for row in self._reach])) if result.prices else None

    def fill(self, need: Matrix, level: float, how: Solving) -> Result:
        """The largest total normalised throughput at which every job keeps `level`."""
        self._needs(need)
        self.program.set_bounds(self.level, level * (1 - 1e-9), level * (1 - 1e-9))
        fastest = self.jobs.rate.max(axis=1, initial=0.0)
        goal = {
            v: float(r / fastest[m] * self.jobs.gang[m])
            for m, row in enumerate(self.x)
            for v, r in zip(row, self.jobs.rate[m], strict=True)
            if fastest[m] > 0
        }
        return self.maximise(goal, how)

    def maximise(self, goal: dict[Variable, float], how: Solving) -> Result:
        self.program.maximise(goal)
        return self.program.solve(time_limit_s=how.time_limit_s, seed=how.seed, backend=how.backend)

    def values(self, result: Result) -> Matrix:
        if not result.has_solution or not self.x:
            return np.zeros(self.jobs.rate.shape)
        found = np.array([[result[v] for v in row] for row in self.x], dtype=np.float64)
        return np.asarray(np.clip(found, 0.0, 1.0), dtype=np.float64)
