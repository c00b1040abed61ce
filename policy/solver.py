"""The only door to mathematical programming: PuLP for modelling, HiGHS or CBC behind it, our own answer.

Every solve has one thread, a seed and a time limit, and ends in a `Result` that says how it ended: PuLP 3.3.2 calls a
run that its time limit stopped "Optimal" (HiGHS and CBC alike), so its `status` is never read here. A round never
fails for lack of an optimum: a caller uses the incumbent (`has_solution`), else the previous allocation, and says so.

Lazy rows: `solve(separate=...)` asks for violated rows at each optimum and re-solves warm on the live HiGHS model
(`LpProblem.solverModel`, variables carry `.index`); with CBC the rows are added and the program is solved again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import highspy
import numpy as np
import pulp

from policy.model import SolverSummary, Termination

Variable = Any  #: pulp.LpVariable
Expression = Any  #: pulp.LpAffineExpression


class Backend(StrEnum):
    HIGHS = "highs"
    CBC = "cbc"


#: What a policy's solves get when nobody said otherwise.
DEFAULT_TIME_LIMIT_S = 30.0
#: The largest |primal infeasibility| that lazy rows may keep.
TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Row:
    """low <= sum(coefficients[v] * v) <= up; None: no bound on that side."""

    coefficients: Mapping[Variable, float]
    low: float | None = None
    up: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How a solve ended. `objective`, `bound` in the program's own sense; `gap` relative, None for an LP's end
    without a bound; `values` by variable name, empty without a solution; `rows` lazily added."""

    termination: Termination
    has_solution: bool
    objective: float | None
    bound: float | None
    gap: float | None
    seconds: float
    backend: Backend
    values: Mapping[str, float] = field(default_factory=dict)
    rows: int = 0

    @property
    def optimal(self) -> bool:
        return self.termination is Termination.OPTIMAL

    def __getitem__(self, variable: Variable) -> float:
        return self.values[variable.name]

    def summary(self) -> SolverSummary:
        return SolverSummary(self.termination, self.gap, self.seconds, self.backend.value)


Separate = Callable[[Callable[[Variable], float]], Iterable[Row]]


class Program:
    """A linear or mixed-integer program under construction, and its solves.

    Names need not be given: variables are numbered. Build with `variable`, `add`, `maximise`/`minimise`; then `solve`.
    A solved LP can be changed by `set_bounds` / `set_row` and solved again: HiGHS starts from the last basis.
    """

    def __init__(self) -> None:
        self._problem = pulp.LpProblem("horae", pulp.LpMaximize)
        self._count = 0
        self._integer = False
        self._rows: list[str] = []
        self._live: Any = None

    # --- building ---

    def variable(self, low: float | None = 0.0, up: float | None = None, *, integer: bool = False) -> Variable:
        self._count += 1
        self._integer |= integer
        self._live = None
        kind = pulp.LpInteger if integer else pulp.LpContinuous
        return self._problem.add_variable(f"v{self._count:07d}", low, up, kind)

    def binary(self) -> Variable:
        return self.variable(0, 1, integer=True)

    def add(self, row: Row) -> int:
        """Add a row; returns its index for `set_row`."""
        expression = pulp.LpAffineExpression(list(row.coefficients.items()))
        if row.low is not None and row.low == row.up:
            self._problem += expression == row.low
            self._rows.append("==")
        elif row.up is not None and row.low is None:
            self._problem += expression <= row.up
            self._rows.append("<=")
        elif row.low is not None and row.up is None:
            self._problem += expression >= row.low
            self._rows.append(">=")
        else:
            raise ValueError("a row needs exactly one bound, or two equal ones")
        self._live = None
        return len(self._rows) - 1

    def at_most(self, coefficients: Mapping[Variable, float], up: float) -> int:
        return self.add(Row(coefficients, up=up))

    def at_least(self, coefficients: Mapping[Variable, float], low: float) -> int:
        return self.add(Row(coefficients, low=low))

    def equal(self, coefficients: Mapping[Variable, float], value: float) -> int:
        return self.add(Row(coefficients, low=value, up=value))

    def maximise(self, coefficients: Mapping[Variable, float]) -> None:
        self._objective(coefficients, pulp.LpMaximize)

    def minimise(self, coefficients: Mapping[Variable, float]) -> None:
        self._objective(coefficients, pulp.LpMinimize)

    def _objective(self, coefficients: Mapping[Variable, float], sense: int) -> None:
        self._problem.sense = sense
        self._problem.setObjective(pulp.LpAffineExpression(list(coefficients.items())))
        self._live = None

    # --- changing a solved program (HiGHS keeps its basis) ---

    def set_bounds(self, variable: Variable, low: float | None, up: float | None) -> None:
        variable.lowBound, variable.upBound = low, up
        if self._live is not None:
            self._live.changeColBounds(variable.index, _low(low), _up(up))

    def set_row(
        self, row: int, *, bound: float | None = None, coefficients: Mapping[Variable, float] | None = None
    ) -> None:
        """Change a row's bound and some of its coefficients, keeping its sense."""
        constraint = list(self._problem.constraints.values())[row]
        if bound is not None:
            constraint.changeRHS(bound)
        for variable, value in (coefficients or {}).items():
            constraint[variable] = value
        if self._live is not None:
            if bound is not None:
                sense = self._rows[row]
                low, up = (None if sense == "<=" else bound), (None if sense == ">=" else bound)
                self._live.changeRowBounds(row, _low(low), _up(up))
            for variable, value in (coefficients or {}).items():
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
    ) -> Result:
        """Solve within `time_limit_s` of wall clock. `separate(value_of)` returns the rows that the current optimum
        violates; it is called until it returns none or the time is over (then TIME_LIMIT or FEASIBLE is not claimed:
        the point violates rows, so `has_solution` is False)."""
        limit = DEFAULT_TIME_LIMIT_S if time_limit_s is None else max(time_limit_s, 0.01)
        started = time.perf_counter()
        rows = 0
        while True:
            left = limit - (time.perf_counter() - started)
            if left <= 0:
                return Result(
                    Termination.TIME_LIMIT, False, None, None, None, time.perf_counter() - started, backend, {}, rows
                )
            result = self._run(backend, left, seed, gap)
            if separate is None or not result.optimal:
                return _with(result, time.perf_counter() - started, rows)
            new = list(separate(result.__getitem__))
            if not new:
                return _with(result, time.perf_counter() - started, rows)
            rows += len(new)
            self._extend(new)

    def _run(self, backend: Backend, limit: float, seed: int, gap: float) -> Result:
        if not self._problem.variables():
            return Result(Termination.OPTIMAL, True, 0.0, 0.0, 0.0, 0.0, backend)
        return self._highs(limit, seed, gap) if backend is Backend.HIGHS else self._cbc(limit, seed, gap)

    def _extend(self, rows: Sequence[Row]) -> None:
        live, self._live_kept = self._live, self._live
        for row in rows:
            self.add(row)
        if live is None:
            return
        low = np.array([_low(r.low) for r in rows], dtype=np.float64)
        up = np.array([_up(r.up) for r in rows], dtype=np.float64)
        starts = np.cumsum([0] + [len(r.coefficients) for r in rows[:-1]]).astype(np.int32)
        index = np.array([v.index for r in rows for v in r.coefficients], dtype=np.int32)
        value = np.array([c for r in rows for c in r.coefficients.values()], dtype=np.float64)
        live.addRows(len(rows), low, up, len(index), starts, index, value)
        self._live = live

    def _highs(self, limit: float, seed: int, gap: float) -> Result:
        if self._live is None:
            solver = pulp.HiGHS(msg=False, threads=1, timeLimit=limit, gapRel=gap, random_seed=seed)
            self._problem.solve(solver)
            self._live = self._problem.solverModel
        else:
            self._live.setOptionValue("time_limit", limit)
            self._live.run()
        model = self._live
        info, status = model.getInfo(), model.getModelStatus()
        has = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        termination = _HIGHS.get(status, Termination.ERROR)
        if termination is Termination.TIME_LIMIT and has:
            termination = Termination.FEASIBLE
        if termination is Termination.OPTIMAL and not has:
            termination = Termination.NUMERICAL
        has = has and termination in (Termination.OPTIMAL, Termination.FEASIBLE)
        sign = -1.0 if self._problem.sense == pulp.LpMaximize else 1.0
        constant = float(self._problem.objective.constant) if self._problem.objective is not None else 0.0
        objective = sign * float(info.objective_function_value) + constant if has else None
        bound = sign * float(info.mip_dual_bound) + constant if self._integer and has else objective
        column = model.getSolution().col_value if has else ()
        values = {v.name: float(column[v.index]) for v in self._problem.variables()} if has else {}
        return Result(termination, has, objective, bound, _gap(objective, bound), 0.0, Backend.HIGHS, values)

    def _cbc(self, limit: float, seed: int, gap: float) -> Result:
        self._live = None
        solver = pulp.PULP_CBC_CMD(
            msg=False, threads=1, timeLimit=limit, gapRel=gap, options=[f"randomSeed {seed}", f"randomCbcSeed {seed}"]
        )
        started = time.perf_counter()
        try:
            self._problem.solve(solver)
        except pulp.PulpSolverError:
            return Result(Termination.ERROR, False, None, None, None, 0.0, Backend.CBC)
        late = time.perf_counter() - started >= limit * 0.98
        kind = _CBC.get(self._problem.sol_status, Termination.TIME_LIMIT)
        if kind is Termination.OPTIMAL and late and self._integer:
            kind = Termination.FEASIBLE  # CBC names the incumbent "optimal" when its clock ran out
        if self._problem.status == pulp.LpStatusUnbounded:
            kind = Termination.UNBOUNDED
        has = kind in (Termination.OPTIMAL, Termination.FEASIBLE)
        values = {v.name: float(v.varValue or 0.0) for v in self._problem.variables()} if has else {}
        objective = float(pulp.value(self._problem.objective)) if has else None
        bound = objective if kind is Termination.OPTIMAL else None
        return Result(kind, has, objective, bound, _gap(objective, bound), 0.0, Backend.CBC, values)


def _with(result: Result, seconds: float, rows: int) -> Result:
    return Result(
        result.termination,
        result.has_solution,
        result.objective,
        result.bound,
        result.gap,
        seconds,
        result.backend,
        result.values,
        rows,
    )


def _low(value: float | None) -> float:
    return -math.inf if value is None else value


def _up(value: float | None) -> float:
    return math.inf if value is None else value


def _gap(objective: float | None, bound: float | None) -> float | None:
    if objective is None or bound is None or not math.isfinite(bound):
        return None
    return abs(objective - bound) / max(abs(objective), 1e-9)


_STATUS = highspy.HighsModelStatus
_HIGHS = {
    _STATUS.kOptimal: Termination.OPTIMAL,
    _STATUS.kModelEmpty: Termination.OPTIMAL,
    _STATUS.kInfeasible: Termination.INFEASIBLE,
    _STATUS.kUnboundedOrInfeasible: Termination.INFEASIBLE,
    _STATUS.kUnbounded: Termination.UNBOUNDED,
    _STATUS.kTimeLimit: Termination.TIME_LIMIT,
    _STATUS.kIterationLimit: Termination.TIME_LIMIT,
    _STATUS.kInterrupt: Termination.TIME_LIMIT,
    _STATUS.kUnknown: Termination.NUMERICAL,
}
_CBC = {
    pulp.LpSolutionOptimal: Termination.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: Termination.FEASIBLE,
    pulp.LpSolutionInfeasible: Termination.INFEASIBLE,
    pulp.LpSolutionUnbounded: Termination.UNBOUNDED,
    pulp.LpSolutionNoSolutionFound: Termination.TIME_LIMIT,
}
