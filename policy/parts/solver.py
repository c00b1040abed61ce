"""The only door to mathematical programming: PuLP for modelling, HiGHS or CBC behind it, our own answer.

Every solve has one thread, a seed and limits, and ends in a `Result` that says how it ended: PuLP 3.3.2 calls a
run that its time limit stopped "Optimal" (HiGHS and CBC alike), so its `status` is never read here. The limits are
iterations and nodes, which are the same on every machine; the clock is behind them, for what they do not foresee, and
a result that it ended says so (`clock`). A round never
fails for lack of an optimum: a caller uses the incumbent (`has_solution`), else the previous allocation, and says so.

Lazy rows: `solve(separate=...)` asks for violated rows at each optimum and re-solves warm on the live HiGHS model
(`LpProblem.solverModel`, variables carry `.index`); with CBC the rows are added and the program is solved again.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import highspy
import numpy as np
import pulp
from numpy.typing import NDArray

from policy.model import SolverSummary, Termination

Vector = NDArray[np.float64]
Indices = NDArray[np.int32]


def make_known() -> None:
    """Have HiGHS say its name where nobody reads it.

    From 1.16 on it does so on the standard output, once a process, when the first solver is made and before that can be
    told to be silent: it would stand before the JSON of a command.
    """
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        highspy.Highs()  # type: ignore[no-untyped-call]
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


with contextlib.suppress(OSError, ValueError):  # a process without a standard output hears nothing anyway
    make_known()


class Backend(StrEnum):
    HIGHS = "highs"
    CBC = "cbc"


#: What a policy's solves get when nobody said otherwise.
DEFAULT_TIME_LIMIT_S = 30.0
#: Simplex iterations of one LP; nodes of a MILP times its columns and rows, and the fewest nodes.
ITERATIONS = 2_000_000
NODE_WORK, NODES = 20_000_000, 100
#: The largest |primal infeasibility| that lazy rows may keep.
TOLERANCE = 1e-7
#: Passes of row generation after which it is given up, and after which slack lazy rows are dropped; what is slack.
MOST_PASSES = 1000
PURGE_EVERY = 2
SLACK = 1e-6


class Variable:
    """A variable of one program: its place in it, its bounds (None: none) and whether it is whole."""

    __slots__ = ("index", "integer", "low", "up")

    def __init__(self, index: int, low: float | None, up: float | None, integer: bool) -> None:
        self.index, self.low, self.up, self.integer = index, low, up, integer


@dataclass(frozen=True, slots=True)
class Constraint:
    """low <= sum(coefficients[v] * v) <= up; one bound, or two equal ones."""

    coefficients: Mapping[Variable, float]
    low: float | None = None
    up: float | None = None

    def __post_init__(self) -> None:
        if (self.low is None) == (self.up is None) and self.low != self.up:
            raise ValueError("a row has one bound, or two equal ones: HiGHS and CBC count a range differently")


@dataclass(frozen=True, slots=True)
class Result:
    """How a solve ended. `objective`, `bound` in the program's own sense; `gap` relative, None for an LP's end
    without a bound; `values` by variable index, empty without a solution; `rows` lazily
    added; `prices` by row (an LP's duals: what one more unit of the row's bound is worth, in the objective's own
    sense), empty for a MILP."""

    termination: Termination
    has_solution: bool
    objective: float | None
    bound: float | None
    gap: float | None
    seconds: float
    backend: Backend
    values: tuple[float, ...] = ()
    rows: int = 0
    prices: tuple[float, ...] = ()
    clock: bool = False  #: the wall clock ended this solve, or an earlier one of the same program

    @property
    def optimal(self) -> bool:
        return self.termination is Termination.OPTIMAL

    def __getitem__(self, variable: Variable) -> float:
        return self.values[variable.index]

    def summary(self) -> SolverSummary:
        return SolverSummary(self.termination, self.gap, self.seconds, self.backend.value, self.clock)


Separate = Callable[[Result], Iterable[Constraint]]


class Program:
    """A linear or mixed-integer program under construction, and its solves.

    Names need not be given: variables are numbered. Build with `variable`, `add`, `maximise`/`minimise`; then `solve`.
    A solved LP can be changed by `set_bounds`, `set_row` and a new goal and solved again: HiGHS starts from the last
    basis.
    """

    def __init__(self) -> None:
        self._variables: list[Variable] = []
        self._rows: list[Constraint] = []
        self._goal: dict[Variable, float] = {}
        self._sense = pulp.LpMaximize
        self._integer = False
        self._problem: Any = None  #: the PuLP problem of the last solve, and its variables
        self._made: list[Any] = []
        self._late = False  #: the clock ended a solve
        self._live: Any = None  #: its HiGHS model, while what was built since is in it too

    # --- building ---

    def variable(self, low: float | None = 0.0, up: float | None = None, *, integer: bool = False) -> Variable:
        self._integer |= integer
        self._live = None
        self._variables.append(Variable(len(self._variables), low, up, integer))
        return self._variables[-1]

    def binary(self) -> Variable:
        return self.variable(0, 1, integer=True)

    def add(self, row: Constraint) -> int:
        """Add a row; returns its index for `set_row`."""
        self._rows.append(row)
        self._live = None
        return len(self._rows) - 1

    def at_most(self, coefficients: Mapping[Variable, float], up: float) -> int:
        return self.add(Constraint(coefficients, up=up))

    def at_least(self, coefficients: Mapping[Variable, float], low: float) -> int:
        return self.add(Constraint(coefficients, low=low))

    def equal(self, coefficients: Mapping[Variable, float], value: float) -> int:
        return self.add(Constraint(coefficients, low=value, up=value))

    def maximise(self, coefficients: Mapping[Variable, float]) -> None:
        self._aim(coefficients, pulp.LpMaximize)

    def minimise(self, coefficients: Mapping[Variable, float]) -> None:
        self._aim(coefficients, pulp.LpMinimize)

    def _aim(self, coefficients: Mapping[Variable, float], sense: int) -> None:
        self._goal, self._sense = dict(coefficients), sense
        if self._live is not None:  # PuLP hands HiGHS a minimisation, whatever the sense
            cost = np.zeros(len(self._variables))
            for variable, value in coefficients.items():
                cost[variable.index] = value if sense == pulp.LpMinimize else -value
            self._live.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    # --- changing a solved program (HiGHS keeps its basis) ---

    def set_bounds(self, variable: Variable, low: float | None, up: float | None) -> None:
        variable.low, variable.up = low, up
        if self._live is not None:
            self._live.changeColBounds(variable.index, _low(low), _up(up))

    def set_row(
        self, row: int, *, bound: float | None = None, coefficients: Mapping[Variable, float] | None = None
    ) -> None:
        """Change a row's bound and some of its coefficients, keeping its sense."""
        old, new = self._rows[row], dict(coefficients or {})
        low = old.low if bound is None or old.low is None else bound
        up = old.up if bound is None or old.up is None else bound
        self._rows[row] = Constraint({**old.coefficients, **new}, low, up)
        if self._live is not None:
            if bound is not None:
                self._live.changeRowBounds(row, _low(low), _up(up))
            for variable, value in new.items():
                self._live.changeCoeff(row, variable.index, value)

    # --- solving ---

    def solve(
        self,
        *,
        backend: Backend = Backend.HIGHS,
        time_limit_s: float | None = None,
        seed: int = 0,
        gap: float = 0.0,
        separate: Separate | None = None,
        first: Iterable[Constraint] = (),
        start: Mapping[Variable, float] | None = None,
        heuristics: bool = True,
    ) -> Result:
        """Solve within `time_limit_s` of wall clock.

        `start` is a point to begin the search of a MILP from (integer variables suffice; HiGHS uses it when it solves
        the same program again). `heuristics` False: HiGHS spends nothing on sub-programs that look for solutions,
        which is faster for many small programs whose start is good. Neither changes what the optimum is.

        `separate(result)` returns the rows that the current optimum violates; it is called until it returns none or
        its passes or the time are over (`has_solution` is then False: the point violates rows). `first` are rows of the
        same kind to begin with. Such lazy rows are dropped again when they are slack: they come back if needed, and a
        small program re-solves faster than the few extra passes cost. An optimum is one of all rows.
        """
        limit = DEFAULT_TIME_LIMIT_S if time_limit_s is None else max(time_limit_s, 0.01)
        started = time.perf_counter()
        fixed = len(self._rows)
        self._extend(list(first))
        added, passes = len(self._rows) - fixed, 0
        while True:
            left = limit - (time.perf_counter() - started)
            if left <= 0:
                elapsed = time.perf_counter() - started
                self._late = True
                return Result(Termination.TIME_LIMIT, False, None, None, None, elapsed, backend, (), added, clock=True)
            result = self._run(backend, left, seed, gap, start or {}, heuristics)
            self._late |= result.clock
            new = list(separate(result)) if separate is not None and result.has_solution else []
            passes += 1
            if new and not (result.optimal and passes < MOST_PASSES):  # a limit came first: rows cut it off
                elapsed = time.perf_counter() - started
                return Result(
                    Termination.TIME_LIMIT, False, None, None, None, elapsed, backend, (), added, clock=self._late
                )
            if not new:
                return replace(result, seconds=time.perf_counter() - started, rows=added, clock=self._late)
            if passes % PURGE_EVERY == 0:
                self._purge(fixed, result)
            added += len(new)
            self._extend(new)

    def _purge(self, fixed: int, result: Result) -> None:
        """Drop the lazy rows (those from `fixed` on) that are slack at `result`."""

        bound = np.array([row.low if row.low is not None else row.up for row in self._rows[fixed:]], dtype=np.float64)
        if self._live is not None:
            value = np.array(self._live.getSolution().row_value, dtype=np.float64)[fixed:]
        else:
            lazy = self._rows[fixed:]
            value = np.array([sum(c * result[v] for v, c in row.coefficients.items()) for row in lazy])
        dead = [fixed + int(i) for i in np.flatnonzero(np.abs(value - bound) > SLACK)]
        gone = set(dead)
        self._rows = [row for i, row in enumerate(self._rows) if i not in gone]
        if self._live is not None and dead:
            self._live.deleteRows(len(dead), np.array(dead, dtype=np.int32))

    def _run(
        self, backend: Backend, limit: float, seed: int, gap: float, start: Mapping[Variable, float], heuristics: bool
    ) -> Result:
        if not self._variables:
            return Result(Termination.OPTIMAL, True, 0.0, 0.0, 0.0, 0.0, backend)
        if backend is Backend.CBC:
            return self._cbc(limit, seed, gap)
        return self._highs(limit, seed, gap, start, heuristics)

    def _extend(self, rows: Sequence[Constraint]) -> None:
        self._rows.extend(rows)
        if self._live is None:
            return
        low, up, starts, index, value = _arrays(rows)
        self._live.addRows(len(rows), low, up, len(index), starts, index, value)

    def _build(self) -> None:
        problem = pulp.LpProblem("horae", self._sense)
        kinds = {True: pulp.LpInteger, False: pulp.LpContinuous}
        # Zero-padded names keep PuLP's order, and so HiGHS' columns, equal to our indices.
        made = [problem.add_variable(f"v{v.index:07d}", v.low, v.up, kinds[v.integer]) for v in self._variables]
        # Every variable is in the goal, if by 0: PuLP forgets one that is named nowhere, and without a goal adds one of
        # its own whose name comes first. Either way every value behind it would stand one place off.
        goal = {**dict.fromkeys(self._variables, 0.0), **self._goal}
        problem.setObjective(pulp.LpAffineExpression([(made[v.index], c) for v, c in goal.items()]))
        for row in self._rows:
            terms = row.coefficients or {self._variables[0]: 0.0}
            expression = pulp.LpAffineExpression([(made[v.index], c) for v, c in terms.items()])
            if row.low is not None and row.up is not None:
                problem += expression == row.low
            elif row.up is not None:
                problem += expression <= row.up
            else:
                problem += expression >= row.low
        self._problem, self._made = problem, made

    def _highs(self, limit: float, seed: int, gap: float, start: Mapping[Variable, float], heuristics: bool) -> Result:
        options: dict[str, Any] = dict.fromkeys(_SEARCH, heuristics)
        options["simplex_iteration_limit"] = ITERATIONS
        options["mip_max_nodes"] = max(NODE_WORK // (len(self._variables) + len(self._rows)), NODES)
        if self._live is None:
            self._build()
            solver = pulp.HiGHS(msg=False, threads=1, timeLimit=limit, gapRel=gap, random_seed=seed, **options)
            try:
                with contextlib.suppress(KeyError):  # PuLP has no word for the limit of nodes; HiGHS is read below
                    self._problem.solve(solver)
            except IndexError:  # PuLP looks for the rows of a model that HiGHS refused: its coefficients are too large
                return Result(Termination.NUMERICAL, False, None, None, None, 0.0, Backend.HIGHS)
            self._live = self._problem.solverModel
        else:
            self._run_again({"time_limit": limit, **options}, start)
        model = self._live
        info, status = model.getInfo(), model.getModelStatus()
        has = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        termination = _ended(HIGHS_ENDS.get(status, Termination.ERROR), has)
        has = has and termination in (Termination.OPTIMAL, Termination.FEASIBLE)
        sign = -1.0 if self._sense == pulp.LpMaximize else 1.0
        objective = sign * float(info.objective_function_value) if has else None
        proven = objective if termination is Termination.OPTIMAL else None
        bound = sign * float(info.mip_dual_bound) if self._integer and has else proven
        solution = model.getSolution()
        values = tuple(map(float, solution.col_value)) if has else ()
        dual = solution.row_dual if has and not self._integer else ()
        prices = tuple((sign * np.array(dual)).tolist())
        relative = relative_gap(objective, bound)
        clock = status == _STATUS.kTimeLimit  # equal, never the same object: HiGHS makes one a call
        return Result(termination, has, objective, bound, relative, 0.0, Backend.HIGHS, values, 0, prices, clock)

    def _run_again(self, options: Mapping[str, Any], start: Mapping[Variable, float]) -> None:
        for option, value in options.items():
            self._live.setOptionValue(option, value)
        if start:
            index = np.array([v.index for v in start], dtype=np.int32)
            self._live.setSolution(len(start), index, np.array(list(start.values()), dtype=np.float64))
        self._live.run()

    def _cbc(self, limit: float, seed: int, gap: float) -> Result:
        self._build()
        self._live = None
        command = getattr(pulp, "PULP_CBC_CMD", None) or pulp.COIN_CMD  # PuLP 4 has the latter only
        solver = command(
            msg=False, threads=1, timeLimit=limit, gapRel=gap, options=[f"randomSeed {seed}", f"randomCbcSeed {seed}"]
        )
        started = time.perf_counter()
        try:
            self._problem.solve(solver)
        except pulp.PulpSolverError:
            return Result(Termination.ERROR, False, None, None, None, 0.0, Backend.CBC)
        late = time.perf_counter() - started >= limit * 0.98
        kind = self._cbc_ended(late)
        has = kind in (Termination.OPTIMAL, Termination.FEASIBLE)
        values = tuple(float(v.varValue or 0.0) for v in self._made) if has else ()
        objective = sum(c * values[v.index] for v, c in self._goal.items()) if has else None
        bound = objective if kind is Termination.OPTIMAL else None
        duals = [c.pi for c in self._problem.constraints.values()] if has and not self._integer else []
        prices = tuple(float(p or 0.0) for p in duals)
        gap_now = relative_gap(objective, bound)
        return Result(kind, has, objective, bound, gap_now, 0.0, Backend.CBC, values, 0, prices, clock=late)

    def _cbc_ended(self, late: bool) -> Termination:
        if self._problem.status == pulp.LpStatusUnbounded:
            return Termination.UNBOUNDED
        kind = _CBC.get(self._problem.sol_status, Termination.TIME_LIMIT)
        # CBC names the incumbent "optimal" when its clock ran out.
        return Termination.FEASIBLE if kind is Termination.OPTIMAL and late and self._integer else kind


def _ended(told: Termination, has: bool) -> Termination:
    """What HiGHS' own word for its end means, where it `has` a solution or none."""
    if told is Termination.TIME_LIMIT and has:
        return Termination.FEASIBLE
    return Termination.NUMERICAL if told is Termination.OPTIMAL and not has else told


#: HiGHS' options of the sub-programs that `heuristics` switches; all are on by default.
_SEARCH = (
    "mip_heuristic_run_rins",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_root_reduced_cost",
    "mip_allow_restart",
)


def _arrays(rows: Sequence[Constraint]) -> tuple[Vector, Vector, Indices, Indices, Vector]:
    """Lower and upper bounds of the rows, where each begins, columns and coefficients."""
    low = np.array([_low(r.low) for r in rows], dtype=np.float64)
    up = np.array([_up(r.up) for r in rows], dtype=np.float64)
    starts = np.cumsum([0, *(len(r.coefficients) for r in rows[:-1])]).astype(np.int32)[: len(rows)]
    index = np.array([v.index for r in rows for v in r.coefficients], dtype=np.int32)
    value = np.array([c for r in rows for c in r.coefficients.values()], dtype=np.float64)
    return low, up, starts, index, value


def _low(value: float | None) -> float:
    return -math.inf if value is None else value


def _up(value: float | None) -> float:
    return math.inf if value is None else value


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    if objective is None or bound is None or not math.isfinite(bound):
        return None
    return abs(objective - bound) / max(abs(objective), 1e-9)


_STATUS = highspy.HighsModelStatus
HIGHS_ENDS = {
    _STATUS.kOptimal: Termination.OPTIMAL,
    _STATUS.kModelEmpty: Termination.OPTIMAL,
    _STATUS.kInfeasible: Termination.INFEASIBLE,
    _STATUS.kUnboundedOrInfeasible: Termination.INFEASIBLE,
    _STATUS.kUnbounded: Termination.UNBOUNDED,
    _STATUS.kTimeLimit: Termination.TIME_LIMIT,
    _STATUS.kIterationLimit: Termination.TIME_LIMIT,
    _STATUS.kInterrupt: Termination.TIME_LIMIT,
    _STATUS.kSolutionLimit: Termination.TIME_LIMIT,
    _STATUS.kUnknown: Termination.NUMERICAL,
}
_CBC = {
    pulp.LpSolutionOptimal: Termination.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: Termination.FEASIBLE,
    pulp.LpSolutionInfeasible: Termination.INFEASIBLE,
    pulp.LpSolutionUnbounded: Termination.UNBOUNDED,
    pulp.LpSolutionNoSolutionFound: Termination.TIME_LIMIT,
}
