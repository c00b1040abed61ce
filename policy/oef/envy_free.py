"""Cooperative OEF (Eq. 10): the highest total throughput at which nobody prefers another's share.

Eq. 10c is printed as a tautology; meant, as Theorem 5.1 uses it, is w_l . x_l >= w_l . x_i for every pair.

Demand caps (not in the paper): with u_l(b) the most that l makes of a bundle b with at most its cap of GPUs, nobody has
less than u_l of its weight's part of everything, nor than u_l of another's share. The first is asked for in so many
words, since Theorem 5.1 proves it from the second for u that are linear only. The second is no linear constraint: u_l
is the least of some lines, a price of l's GPUs each (the value of one more GPU under its cap: 0, or its speed-up on a
type). A line that touches u_l at a point where nobody envies is one that all may keep to: it forbids too much
elsewhere, but never lets envy through. The even split is such a point, and so is every answer, so that the next
program's answer is no worse; one more, with everybody's next line, is tried where that ends. There may be a better one
between other lines still; how much better at most, a program with lines below says (docs/policies/index.md). Without
caps there is one line each, and one program ends it.

Nobody's envy is a row before somebody does envy: of n^2 rows few are ever needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from policy.model import SolverSummary, Termination
from policy.oef.shares import Matrix, Shares, Users, block, merged, split, values
from policy.parts.solver import TOLERANCE, Backend, Constraint, Program, Result, Variable, relative_gap

#: Rows of each envious tenant that a pass of row generation adds: its worst, among so many tenants like it first; and
#: of how many such each has a row to begin with.
WORST, ALIKE, FIRST = 4, 16, 3
#: Rows after which no further program is begun, and after which one that is NEAR is enough; relative gains below which
#: none is worth it.
ROWS, MANY, GAIN = 50_000, 5_000, 1e-4
#: Relative differences below this are none, where lines touch at a kink.
SAME = 1e-7
#: A total as near to a bound is the largest, for nearer is nothing that a solver tells; or is near enough of many rows.
EXACT, NEAR = 1e-6, 1e-3
#: How much of the even split there is in where the first program's lines touch, tried in this order.
NEARER = (0.0, 0.25, 0.5)
#: The least unit of a row, to the mean, that counts in what GPUs are taken: below it HiGHS would not see it.
LIGHT = 1e-8
Pairs = NDArray[np.intp]
_Solve = Callable[["_Lines"], tuple[Result, Matrix]]


def cooperative(
    users: Users, *, time_limit_s: float | None = None, seed: int = 0, backend: Backend = Backend.HIGHS
) -> Shares:
    """Eq. 10, weighted, with demand caps."""
    small, of = merged(users)
    if not len(small.speed):
        return Shares(np.zeros_like(users.speed), SolverSummary(Termination.OPTIMAL, 0.0, 0.0, backend.value))
    small = replace(small, weight=small.weight / small.weight.mean())
    done: list[Result] = []

    def solve(lines: _Lines) -> tuple[Result, Matrix]:
        answer = _solve(small, lines, time_limit_s, seed, backend)
        done.append(answer[0])
        return answer

    lines = _Lines(small)
    if not lines.bent:
        best, x = solve(lines)
        return Shares(split(x, of, users.weight), best.summary())
    bound, loose = solve(lines.below())
    best, x, notes = _climbed(*_begun(small, loose, solve), bound, solve, done)
    solver = _in_all(best, done).summary()
    gap = _gap(best, bound)
    if best.optimal and (gap is None or gap > EXACT):  # each program's optimum, and there may be a better one
        solver = replace(solver, termination=Termination.FEASIBLE, gap=gap)
    return Shares(split(x, of, users.weight), solver, notes)


def _demand(users: Users) -> Matrix:
    """(n,) caps, infinite where a tenant can use all GPUs that it runs on: that there are no more is no demand, and
    nothing of the paper's envy is to be taken off for it."""
    runs_on = (users.speed > 0) @ users.gpus
    return np.where((users.cap >= runs_on) & (runs_on > 0), np.inf, users.cap)


def _begun(users: Users, loose: Matrix, solve: _Solve) -> tuple[_Lines, Result, Matrix]:
    """The first answer, from lines that touch at what none can be above; or, where those leave none, nearer and nearer
    to the even split, at which they always do."""
    for part in NEARER:
        lines = _Lines(users)
        lines.touch(part * lines.even + (1 - part) * loose)
        result, x = solve(lines)
        if result.has_solution:
            return lines, result, x
    lines = _Lines(users)
    return lines, *solve(lines)


def _climbed(
    lines: _Lines, best: Result, x: Matrix, bound: Result, solve: _Solve, done: Sequence[Result]
) -> tuple[Result, Matrix, tuple[str, ...]]:
    """The best of the programs, each with lines that touch at the best answer so far, and what is said of them."""
    gain, further = 1.0, False
    while best.has_solution and (gain > GAIN or not further):
        rows = sum(r.rows for r in done)
        if (gap := _gap(best, bound)) is not None and gap <= (EXACT if rows < MANY else NEAR):
            break
        if rows >= ROWS:
            return best, x, (f"with demand caps: the last program was better by {gain:.2g}, and no other was begun",)
        further, gain = gain <= GAIN, 0.0
        if lines.touch(x, further):
            result, found = solve(lines)
            gain = result.objective / max(best.objective or 0.0, 1e-300) - 1 if result.objective else 0.0
        if gain > 0:
            best, x = result, found
    return best, x, ()


def _gap(best: Result, bound: Result) -> float | None:
    return relative_gap(best.objective, bound.objective) if bound.optimal else None


def _in_all(best: Result, done: Sequence[Result]) -> Result:
    return replace(best, seconds=sum(r.seconds for r in done), clock=any(r.clock for r in done))


def _solve(
    users: Users, lines: _Lines, time_limit_s: float | None, seed: int, backend: Backend
) -> tuple[Result, Matrix]:
    """One program. x is zero without a solution.

    Its variables are in units of what each row might have: the few GPUs of a tenant of weight 1 beside one of a
    billion would be lost in a solver's tolerance.
    """
    n, k = users.speed.shape
    program = Program()
    unit = lines.unit
    x = block(program, users)
    takes: list[float] = np.maximum(unit, LIGHT).tolist()
    for j in range(k):
        program.at_most({x[i][j]: takes[i] for i in range(n)}, float(users.gpus[j]))
    for i in np.flatnonzero(np.isfinite(users.cap)).tolist():
        program.at_most({x[i][j]: 1.0 for j in range(k)}, float(users.cap[i] / unit[i]))
    if lines.bent:
        for i, fair in enumerate(lines.fair.tolist()):
            program.at_least({x[i][j]: lines.slopes[i][j] for j in range(k)}, fair)
    program.maximise({x[i][j]: float(users.speed[i, j]) * takes[i] for i in range(n) for j in range(k)})

    index = np.array([[v.index for v in row] for row in x], dtype=np.intp)
    alike, everyone = _alike(users.speed), np.broadcast_to(np.arange(n), (n, n))

    def separate(result: Result) -> list[Constraint]:
        envy, bound = lines.envy(np.array(result.values)[index])
        pairs = _worst(envy, bound, alike)
        settled = np.setdiff1d(np.arange(n), [who for who, _ in pairs])
        pairs += _worst(envy, bound, everyone, settled)
        return [lines.no_envy(x, who, other) for who, other in sorted(pairs)]

    first = [lines.no_envy(x, who, other) for who, other in _both_ways(alike[:, :FIRST])]
    result = program.solve(time_limit_s=time_limit_s, seed=seed, backend=backend, separate=separate, first=first)
    return result, values(result, x) * unit[:, None] if result.has_solution else np.zeros((n, k))


class _Lines:
    """What each makes of another's share, in l's own unit of GPUs: the least of some lines, and which of them l keeps
    to towards i."""

    def __init__(self, users: Users) -> None:
        self.unit = _units(users)
        self._users = users = replace(users, cap=_demand(users))
        n, k = users.speed.shape
        capped = np.isfinite(users.cap)
        self.bent = bool(capped.any())
        self._price = np.where(capped[:, None], np.column_stack([np.zeros(n), np.sort(users.speed, axis=1)]), 0.0)
        self._charge = self._price * np.where(capped, users.cap / self.unit, 0.0)[:, None]
        each = self.unit / users.weight
        self._rates = each[None, :] / each[:, None]  # what a unit of i's is to l, by their weights
        self._top = users.speed.max(axis=1)
        self.slopes: list[list[float]] = (users.speed / self._top[:, None]).tolist()
        self.even = users.gpus[None, :] * (users.weight / users.weight.sum())[:, None]
        even = self.even / self.unit[:, None]
        fair = np.array([(self._steep(q) * even).sum(axis=1) + self._charge[:, q] for q in range(k + 1)])
        self.fair = fair.min(axis=0) / self._top
        first = np.argmax(fair <= fair.min(axis=0) * (1 + SAME), axis=0)
        self._at = np.broadcast_to(first[:, None], (n, n))

    def _steep(self, line: int) -> Matrix:
        return np.asarray(np.maximum(self._users.speed - self._price[:, line, None], 0.0))

    def _worth(self, each: Matrix) -> Iterator[Matrix]:
        """By line: what l makes of i's share (l, i). `each`: x in units."""
        for line in range(self._price.shape[1]):
            yield self._steep(line) @ each.T * self._rates + self._charge[:, line, None]

    def envy(self, each: Matrix) -> tuple[Matrix, Matrix]:
        """How much l would rather have i's share (l, i), and the most of it that counts as none (l,)."""
        lines = self._worth(each)
        least = next(lines)
        bound = TOLERANCE * np.maximum(1.0, least.max(axis=1, initial=0.0))
        for line in lines:
            np.minimum(least, line, out=least)
        return least - np.einsum("lj,lj->l", self._users.speed, each)[:, None], bound

    def touch(self, x: Matrix, further: bool = False) -> bool:
        """From now on the lines that touch at x, at a kink the flattest, or one `further`; whether they are others. Who
        has all that it can use is to keep that, and envies nobody."""
        each = x / self.unit[:, None]
        least = np.minimum.reduce(list(self._worth(each)))
        at = np.zeros_like(self._at)
        for q, line in enumerate(self._worth(each)):
            at[line <= least * (1 + SAME) + SAME] = q
        own = np.einsum("lj,lj->l", self._users.speed, each)
        at[own >= self._charge[:, -1] * (1 - SAME)] = self._price.shape[1] - 1
        at = np.minimum(at + further, self._price.shape[1] - 1)
        at[np.isinf(self._users.cap)] = 0
        others = bool((at != self._at).any())
        self._at = at
        return others

    def below(self) -> _Lines:
        """The same with one line each that is nowhere above: of whatever share, the part that would fit under the cap
        of the largest that there can be. Whoever envies nobody keeps to it, so that its program is a bound of all."""
        users = self._users
        made = copy(self)
        largest = self._rates * (np.minimum(users.cap, users.gpus.sum()) / self.unit)
        fits = np.minimum(1.0, (users.cap / self.unit)[:, None] / np.maximum(largest, 1e-300))
        made._price = made._charge = np.zeros((len(users.weight), 1))
        made._rates = self._rates * fits
        made._at = np.zeros_like(self._at)
        return made

    def no_envy(self, x: list[list[Variable]], who: int, other: int) -> Constraint:
        """`who` does not prefer the share of `other`, by the line that it keeps to; the largest coefficient is 1."""
        line = self._at[who, other]
        rate = float(self._rates[who, other])
        top = float(self._top[who])
        price = float(self._price[who, line])
        mine = 1.0 / max(rate, 1.0)
        row = {v: mine * s for v, s in zip(x[who], self.slopes[who], strict=True)}
        slopes = (max(s - price / top, 0.0) for s in self.slopes[who])
        row.update((v, -mine * rate * s) for v, s in zip(x[other], slopes, strict=True))
        return Constraint(row, low=mine * float(self._charge[who, line]) / top)


def _units(users: Users) -> Matrix:
    """(n,) GPUs by weight, nobody above its cap, to their mean: 1 for equals."""
    left = float(users.gpus.sum())
    part = np.zeros(len(users.weight))
    rising = users.cap > 0
    while rising.any():
        level = left / users.weight[rising].sum()
        full = rising & (users.cap <= level * users.weight)
        if not full.any():
            part[rising] = level * users.weight[rising]
            break
        part[full] = users.cap[full]
        left = max(left - users.cap[full].sum(), 0.0)
        rising = rising & ~full
    mean = float(part.mean()) or 1.0
    return np.where(part > 0, part / mean, 1.0)


def _alike(speed: Matrix) -> Pairs:
    """(n, up to ALIKE) for each row those whose speed-ups have the most similar proportions, the most similar first.

    In an optimum many tenants alike hold the same share, and a row against one of them only moves the envy to the
    next. With rows among the alike first, 1,000 tenants on 10 types need 11 passes instead of 51, and a third of the
    time that the worst rows of all take.
    """
    n = len(speed)
    unit = speed / np.maximum(np.linalg.norm(speed, axis=1, keepdims=True), 1e-300)
    far = -(unit @ unit.T)
    np.fill_diagonal(far, np.inf)
    return np.argsort(far, axis=1, kind="stable")[:, : min(ALIKE, n - 1)]


def _both_ways(others: Pairs) -> list[tuple[int, int]]:
    """Each row with each of its `others`, and the other way round; each pair once."""
    pairs = {(who, int(other)) for who, row in enumerate(others) for other in row}
    return sorted(pairs | {(other, who) for who, other in pairs})


def _worst(envy: Matrix, bound: Matrix, among: Pairs, who: Pairs | None = None) -> list[tuple[int, int]]:
    """(l, i): of what `who` (else everybody) envies, the WORST in `among` (n, m), the others it is compared with."""
    rows = np.arange(len(envy)) if who is None else who
    rows = rows[envy[rows].max(axis=1, initial=0.0) > bound[rows]]
    few = min(WORST, among.shape[1])
    if not len(rows) or not few:
        return []
    found = np.take_along_axis(envy[rows], among[rows], axis=1)
    worst = np.argpartition(-found, few - 1, axis=1)[:, :few]
    much = np.take_along_axis(found, worst, axis=1) > bound[rows, None]
    others = np.take_along_axis(among[rows], worst, axis=1)
    return list(zip(np.repeat(rows, much.sum(axis=1)).tolist(), others[much].tolist(), strict=True))
