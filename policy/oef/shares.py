"""OEF (Middleware 2024): optimal efficiency with fairness on mixed GPUs, as linear programs.

Non-cooperative (Eq. 9): all tenants reach the same normalised throughput, as high as possible.
Cooperative (Eq. 10): total throughput is maximised and nobody prefers another's share.
Weighted (§4.2.3): the paper replicates a row by its weight. Replicas are interchangeable, so one block of variables
a distinct row with its total weight is the same program, exactly (tests compare both); that also admits weights that
are no integers, and merges tenants that run the same model.
Several job types a tenant (§4.2.4): one virtual tenant a type, with the tenant's weight divided among them.

Demand caps (a tenant that cannot use its share must not hold the others down) are not in the paper. Eq. 9 is
extended by progressive filling: who is at its cap is fixed there and the others go on, so throughput is lexicographic
max-min per weight and strategy-proofness is that of Eq. 9 among the tenants that are not capped. Eq. 10 is in
`envy_free.py`.

What holds when: Theorem 5.2 (adjacent types, n + k - 1 non-zeros) needs a common order of the GPU types and a vertex
solution; it was found to hold for Eq. 9 and to fail for Eq. 10 even then (docs/policies). Nothing here relies on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.model import SolverSummary, Termination
from policy.parts.solver import Backend, Program, Result, Variable

#: Relative slack within which two normalised throughputs are the same.
SAME = 1e-7
#: A level this many times its unit, or below this part of it, is solved for again in another unit, so many times.
FAR, AGAIN = 100.0, 5
#: A dual value above this part of what it would usually be, and above the noise, is one.
PRICED, NOISE = 1e-6, 3e-12
#: Rows of each envious tenant that a pass of row generation adds: its worst, among so many tenants like it first; and
#: of how many such each has a row to begin with.
WORST, ALIKE, FIRST = 4, 16, 3
#: Passes after which the envy of capped tenants is taken as it is.
PASSES = 12
#: The least unit of a row, to the mean, that counts in what GPUs are taken: below it HiGHS would not see it.
LIGHT = 1e-8
Matrix = NDArray[np.float64]
Pairs = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Users:
    """Virtual tenants, one a row.

    speed   (n, k) speed-up on each GPU type, normalised to the row's slowest usable type; 0: cannot run there
    weight  (n,)   > 0
    cap     (n,)   most GPUs it can use; inf: no limit
    gpus    (k,)   GPUs of each type
    """

    speed: Matrix
    weight: Matrix
    cap: Matrix
    gpus: Matrix


@dataclass(frozen=True, slots=True)
class Shares:
    """x (n, k) GPUs of each type for each row; how the program ended; what was left out, in words."""

    x: Matrix
    solver: SolverSummary
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        return self.solver.termination in (Termination.OPTIMAL, Termination.FEASIBLE)


def merged(users: Users) -> tuple[Users, NDArray[np.intp]]:
    """Rows with the same speeds and the same cap per weight become one with their total weight; and row -> block."""
    blocks: dict[tuple[float, ...], int] = {}
    of = np.empty(len(users.speed), dtype=np.intp)
    for i, row in enumerate(users.speed):
        key = (*np.round(row, 12), round(float(users.cap[i] / users.weight[i]), 12))
        of[i] = blocks.setdefault(key, len(blocks))
    first = np.array([int(np.flatnonzero(of == b)[0]) for b in range(len(blocks))], dtype=np.intp)
    weight = np.bincount(of, weights=users.weight, minlength=len(blocks)).astype(np.float64)
    cap = users.cap[first] / users.weight[first] * weight
    return Users(users.speed[first], weight, cap, users.gpus), of


def _split_level(x: Matrix, of: NDArray[np.intp], users: Users) -> Matrix:
    """A block's share among its rows so that each has its weight of the throughput, from the slowest type on.

    Keeps a vertex a vertex: rows + types - 1 non-zeros (§4.4). Who holds which type differs between rows of a block,
    which Eq. 9 does not mind.
    """
    out = np.zeros((len(of), x.shape[1]))
    for block in range(len(x)):
        rows = np.flatnonzero(of == block)
        if len(rows) == 1:
            out[rows[0]] = x[block]
            continue
        speed, left = users.speed[rows[0]], x[block].copy()
        level = float(speed @ left) / float(users.weight[rows].sum())
        for row in rows[:-1]:
            missing = level * float(users.weight[row])
            for j in np.flatnonzero(speed > 0):
                part = min(left[j], missing / speed[j])
                out[row, j] += part
                left[j] -= part
                missing -= part * speed[j]
        out[rows[-1]] = left
    return out


def split(x: Matrix, of: NDArray[np.intp], weight: Matrix) -> Matrix:
    """A block's share among its rows, by weight."""
    total = np.bincount(of, weights=weight, minlength=len(x))
    return np.asarray(x[of] * (weight / total[of])[:, None])


def non_cooperative(
    users: Users, *, time_limit_s: float | None = None, seed: int = 0, backend: Backend = Backend.HIGHS
) -> Shares:
    """Eq. 9, weighted, with demand caps by progressive filling.

    Each pass maximises the common level (throughput per weight) of the rows that are not fixed yet. A row with a price
    is at that level in every optimum (complementary slackness): it is fixed there, and the others go on. Without caps
    one pass ends it.
    """
    small, of = merged(users)
    hopeless = (small.speed.max(axis=1, initial=0.0) <= 0) | (small.cap <= 0) | (small.speed @ small.gpus <= 0)
    rising = {int(i) for i in np.flatnonzero(~hopeless)}
    fixed: dict[int, float] = {}  #: levels of the rows that have reached theirs
    filling = _Filling(small, rising, fixed, _least(small, rising)) if rising else None
    seconds, result, found, again, late = 0.0, None, np.zeros(small.speed.shape), AGAIN, False
    while rising and filling is not None:
        answer = filling.program.solve(time_limit_s=time_limit_s, seed=seed, backend=backend)
        seconds, late = seconds + answer.seconds, late or answer.clock
        if not answer.has_solution:
            if result is None:
                return Shares(np.zeros(users.speed.shape), timed(answer, seconds, late))
            break  # float noise at the end of the filling: what was reached stands
        reached = answer[filling.level]
        if not 1 / FAR <= reached <= FAR and again:  # too far from 1 to be exact: the same pass, in that unit
            again -= 1
            filling = _Filling(small, rising, fixed, filling.unit * max(reached, 1 / FAR**2))
            continue
        again = AGAIN
        result, found = answer, filling.shares(answer)
        top = reached * filling.unit
        priced = filling.priced(result, rising) or set(rising)
        fixed |= dict.fromkeys(priced, top)
        rising -= priced
        filling.fix(priced, top)
    if result is None:
        return Shares(np.zeros(users.speed.shape), SolverSummary(Termination.OPTIMAL, 0.0, 0.0, backend.value))
    level_only = not _finite(small.cap)
    return Shares(
        _split_level(found, of, users) if level_only else split(found, of, users.weight), timed(result, seconds, late)
    )


def _least(users: Users, rising: set[int]) -> float:
    """A level that all of `rising` can reach together: each its weight of every type, as far as its cap allows."""
    part = np.minimum(1 / users.weight.sum(), users.cap / users.weight / users.gpus.sum())
    return float(min((users.speed[i] @ users.gpus) * part[i] for i in rising))


class _Filling:
    """Eq. 9 in numbers near 1: its variables are throughput per weight in units of a level that can be reached.

    In GPUs a tenant of weight 1 beside one of 1000, with a speed-up of thousands, has a share as small as a solver's
    tolerance; in its own throughput it has as much as everybody.
    """

    def __init__(self, users: Users, rising: set[int], fixed: dict[int, float], unit: float) -> None:
        n, k = users.speed.shape
        self.users, self.unit = users, unit
        self._units = np.array([fixed.get(i, unit) for i in range(n)])
        with np.errstate(divide="ignore"):  # GPUs that one unit of each variable takes
            self._gpus = np.where(users.speed > 0, (self._units * users.weight)[:, None] / users.speed, 0.0)
        p = self.program = Program()
        self._y = block(p, users)
        for j in range(k):
            m = float(users.gpus[j])
            p.at_most({self._y[i][j]: float(self._gpus[i, j]) / (m or 1.0) for i in range(n)}, float(m > 0))
        for i in _finite(users.cap):
            if users.cap[i] > 0:
                p.at_most({self._y[i][j]: float(self._gpus[i, j] / users.cap[i]) for j in range(k)}, 1.0)
        self.level = p.variable()
        self.reach: dict[int, int] = {}
        for i in sorted(rising | set(fixed)):
            row = {**dict.fromkeys(self._y[i], 1.0), self.level: -1.0 if i in rising else 0.0}
            self.reach[i] = p.at_least(row, 0.0 if i in rising else 1.0)
        for i in set(range(n)) - set(self.reach):
            for v in self._y[i]:
                p.set_bounds(v, 0.0, 0.0)
        p.maximise({self.level: 1.0})

    def priced(self, result: Result, rising: set[int]) -> set[int]:
        """The rows of `rising` whose level costs something: they are at it in every optimum. (What a light tenant's
        costs is compared with what its GPUs cost: it may be a billionth of a heavy one's.)"""
        price = np.abs(np.array(result.prices[: len(self.users.gpus)]))
        cost = np.where(self.users.speed > 0, self._gpus / np.maximum(self.users.gpus, 1.0) * price, np.inf)
        usual = np.maximum(np.minimum(cost.min(axis=1), 1.0) * PRICED, NOISE)
        return {i for i in rising if abs(result.prices[self.reach[i]]) > usual[i]}

    def fix(self, rows: set[int], level: float) -> None:
        for i in rows:
            self.program.set_row(self.reach[i], bound=level / self._units[i], coefficients={self.level: 0.0})

    def shares(self, result: Result) -> Matrix:
        """GPUs (n, k)."""
        return np.asarray(values(result, self._y) * self._gpus)


def block(program: Program, users: Users) -> list[list[Variable]]:
    """Variables x; a type on which a row cannot run is fixed at 0."""
    return [[program.variable(0.0, None if w > 0 else 0.0) for w in row] for row in users.speed]


def values(result: Result, x: Sequence[Sequence[Variable]]) -> Matrix:
    return np.maximum(np.array([[result[v] for v in row] for row in x], dtype=np.float64), 0.0)


def _finite(cap: Matrix) -> list[int]:
    return [int(i) for i in np.flatnonzero(np.isfinite(cap))]


def timed(result: Result, seconds: float, late: bool) -> SolverSummary:
    return replace(result.summary(), seconds=seconds, clock=late)
