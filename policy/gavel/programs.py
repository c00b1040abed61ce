"""Gavel's programs. X (n, k): the fraction of time that job m spends on GPU type t, as a whole gang.

Feasible: each row sums to at most 1; type t serves at most its GPUs, sum over m of X[m, t] * gang[m] <= gpus[t].
A divisible demand (a tenant-level job without an upper limit) is a gang of one GPU whose row may sum to any number:
its X are GPUs. Effective throughput of a job: rate[m] . X[m]. Each program here maximises a common level that every
job's effective throughput reaches in proportion to a need, then, with the level kept, the total, so that no GPU idles
that could help somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.model import SolverSummary, Termination
from policy.parts.solver import Backend, Program, Result, Variable

Matrix = NDArray[np.float64]
#: Relative width of the interval at which the bisection over rho stops.
RHO = 1e-6
#: Relative slack of a level that is to be kept, in the tries of the second program.
SLACK = (1e-9, 1e-6)
#: Needs beyond this many times what a job can do at best are not told apart.
FAR = 1e12


@dataclass(frozen=True, slots=True)
class Jobs:
    """rate (n, k) iterations/s of the gang on each type, 0 where it cannot run; gang (n,) GPUs; gpus (k,); most (n,)
    the largest sum of a row: 1, or inf for a divisible demand (None: all 1)."""

    rate: Matrix
    gang: Matrix
    gpus: Matrix
    most: Matrix | None = None

    @property
    def limit(self) -> Matrix:
        """(n,) the largest sum of a row that can be."""
        total = max(float(self.gpus.sum()), 1.0)
        return np.ones(len(self.rate)) if self.most is None else np.minimum(self.most, total)

    def able(self) -> Matrix:
        """(n,) the most that each job can do with all GPUs its own."""
        one = self.rate.max(axis=1, initial=0.0)
        return np.where(self.limit > 1, self.rate @ self.gpus, one) if len(self.rate) else one


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
    able = jobs.able()
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(able > 0, (elapsed + left / able) / isolated, elapsed / isolated)
    low = float(least.max(initial=0.0))

    def need(rho: float) -> Matrix:
        room = rho * isolated - elapsed
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.minimum(np.where(room > 0, left / room, np.inf), 1e60))

    high, seconds = max(2 * low, 1.0), 0.0
    best: tuple[Matrix, Result] | None = None
    middle = high
    for step in range(200):
        result = model.solve(need(middle), how)
        seconds += result.seconds
        if not result.has_solution:
            break
        if model.level(result) >= 1 - 1e-9:
            high, best = middle, (need(middle), result)
        else:
            low = max(low, middle)
        price = model.prices(result)
        if price is not None:
            low = min(max(low, _bound(price, need, float(price @ need(middle)) * model.level(result), low, high)), high)
        if best is None:
            high = max(high, 4 * low)
            middle = high
        elif high - low <= RHO * high or high <= RHO * RHO:
            break
        else:
            close = low * (1 + RHO / 2)
            middle = close if step % 4 and 0 < close < high else (low + high) / 2
    if best is None:
        how_it_ended = Termination.TIME_LIMIT if result.clock else Termination.NUMERICAL
        return Fractions(np.zeros(jobs.rate.shape), SolverSummary(how_it_ended, None, seconds, clock=result.clock))
    return model.filled(best[0], 1.0, 1 / high, replace(best[1], seconds=seconds), how)


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
    goal = {
        model.x[m][t]: (n - m) * float(model.unit[m, t])
        for m in range(n)
        for t in range(len(jobs.gpus))
        if model.unit[m, t] > 0
    }
    result = model.maximise(goal, how)
    return Fractions(model.values(result), result.summary())


def _level(jobs: Jobs, need: Matrix, how: Solving) -> Fractions:
    model = _Model(jobs)
    result = model.solve(need, how)
    if not result.has_solution or not len(jobs.rate):
        return Fractions(np.zeros(jobs.rate.shape), result.summary())
    level = model.level(result)
    return model.filled(need, level, level, result, how)


class _Model:
    """The feasible set, and one row a job: its throughput reaches need x level.

    Jobs differ by many orders of magnitude, so a row counts in parts of the job's fastest rate, and needs in parts of
    the largest: every coefficient is at most 1, and the level inside the program (`scale` times smaller) at most `top`.
    """

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        n, k = jobs.rate.shape
        self.fastest = jobs.rate.max(axis=1, initial=0.0)
        self.unit = jobs.rate / np.where(self.fastest > 0, self.fastest, 1.0)[:, None]
        self.scale = 1.0
        self.top = float(jobs.limit.max(initial=1.0))
        p = self.program = Program()
        self.x: list[list[Variable]] = [[p.variable(0.0, None if r > 0 else 0.0) for r in row] for row in jobs.rate]
        for row, limit in zip(self.x, jobs.limit, strict=True):
            p.at_most(dict.fromkeys(row, 1.0), float(limit))
        for t in range(k):
            p.at_most({self.x[m][t]: float(jobs.gang[m]) for m in range(n)}, float(jobs.gpus[t]))
        self._level = p.variable(0.0, self.top)
        self._reach = [
            p.at_least({**dict(zip(row, map(float, unit), strict=True)), self._level: 0.0}, 0.0)
            for row, unit in zip(self.x, self.unit, strict=True)
        ]
        p.maximise({self._level: 1.0})

    def _needs(self, need: Matrix) -> None:
        parts = np.where(self.fastest > 0, need, 0.0) / np.where(self.fastest > 0, self.fastest, 1.0)
        parts = np.minimum(parts, FAR)
        self.scale = float(parts.max(initial=0.0)) or 1.0
        for row, part in zip(self._reach, parts / self.scale, strict=True):
            self.program.set_row(row, coefficients={self._level: -float(part)})

    def solve(self, need: Matrix, how: Solving) -> Result:
        self._needs(need)
        return self.program.solve(time_limit_s=how.time_limit_s, seed=how.seed, backend=how.backend)

    def level(self, result: Result) -> float:
        """The level reached, in the unit of the needs of the last `solve`."""
        return result[self._level] / self.scale

    def prices(self, result: Result) -> Matrix | None:
        """What a unit of each job's need costs; None where the solver gave no prices."""
        if not result.prices:
            return None
        price = np.abs(np.array([result.prices[row] for row in self._reach]))
        return np.asarray(np.where(self.fastest > 0, price / np.where(self.fastest > 0, self.fastest, 1.0), 0.0))

    def filled(self, need: Matrix, level: float, stated: float, reached: Result, how: Solving) -> Fractions:
        """The largest total normalised throughput at which every job keeps `level`; `reached` where a solver's noise
        leaves none."""
        self._needs(need)
        goal = {
            v: float(part * self.jobs.gang[m])
            for m, row in enumerate(self.x)
            for v, part in zip(row, self.unit[m], strict=True)
            if part > 0
        }
        result, seconds = reached, reached.seconds
        for slack in SLACK:
            kept = min(level * self.scale, self.top) * (1 - slack)
            self.program.set_bounds(self._level, kept, kept)
            result = self.maximise(goal, how)
            seconds += result.seconds
            if result.has_solution:
                break
        late = result.clock
        result = result if result.has_solution else reached
        return Fractions(self.values(result), replace(result.summary(), seconds=seconds, clock=late), stated)

    def maximise(self, goal: dict[Variable, float], how: Solving) -> Result:
        self.program.maximise(goal)
        return self.program.solve(time_limit_s=how.time_limit_s, seed=how.seed, backend=how.backend)

    def values(self, result: Result) -> Matrix:
        if not result.has_solution or not self.x:
            return np.zeros(self.jobs.rate.shape)
        found = np.array([[result[v] for v in row] for row in self.x], dtype=np.float64)
        return np.asarray(np.clip(found, 0.0, self.top), dtype=np.float64)
