"""Programs given as matrices: HiGHS directly. With `policy/parts/solver.py` the only door to mathematical
programming."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from policy.model import SolverSummary, Termination
from policy.parts.solver import DEFAULT_TIME_LIMIT_S, HIGHS_ENDS, Backend, relative_gap


@dataclass(frozen=True, slots=True)
class MatrixResult:
    """How a matrix program ended. `values` by column and `prices` by row (LP duals: what one more unit of a row's
    bound is worth, in the objective's own sense); both empty without a solution, `prices` also for a MILP."""

    termination: Termination
    has_solution: bool
    objective: float | None
    bound: float | None
    gap: float | None
    seconds: float
    values: Any
    prices: Any

    def summary(self) -> SolverSummary:
        return SolverSummary(self.termination, self.gap, self.seconds, Backend.HIGHS.value)


def maximise_matrix(
    objective: Sequence[float] | Any,
    rows: Sequence[int] | Any,
    columns: Sequence[int] | Any,
    coefficients: Sequence[float] | Any,
    row_low: Sequence[float] | Any,
    row_up: Sequence[float] | Any,
    *,
    column_up: Sequence[float] | Any | None = None,
    integer: bool = False,
    time_limit_s: float | None = None,
    node_limit: int | None = None,
    seed: int = 0,
) -> MatrixResult:
    """Maximise objective . x over x >= 0 with row_low <= A x <= row_up; A as (row, column, coefficient) triples.

    For large programs whose matrix is at hand: HiGHS directly, without an expression a row. An LP ends in a vertex.
    `node_limit` bounds the work of a MILP so that equal runs end equally, on slow machines and fast ones.
    """
    started = time.perf_counter()
    cost = np.asarray(objective, dtype=np.float64)
    r, c = np.asarray(rows, dtype=np.int32), np.asarray(columns, dtype=np.int32)
    v = np.asarray(coefficients, dtype=np.float64)
    order = np.lexsort((r, c))
    r, c, v = r[order], c[order], v[order]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(row_up)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = cost
    lp.col_lower_ = np.zeros(len(cost))
    lp.col_upper_ = np.full(len(cost), np.inf) if column_up is None else np.asarray(column_up, dtype=np.float64)
    lp.row_lower_ = np.asarray(row_low, dtype=np.float64)
    lp.row_upper_ = np.asarray(row_up, dtype=np.float64)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(c, np.arange(len(cost) + 1)).astype(np.int32)
    lp.a_matrix_.index_ = r
    lp.a_matrix_.value_ = v
    if integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("random_seed", seed)
    model.setOptionValue("time_limit", DEFAULT_TIME_LIMIT_S if time_limit_s is None else max(time_limit_s, 0.01))
    model.setOptionValue("mip_rel_gap", 0.0)
    if node_limit is not None:
        model.setOptionValue("mip_max_nodes", node_limit)
    model.passModel(lp)
    model.run()
    info, status = model.getInfo(), model.getModelStatus()
    has = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    termination = HIGHS_ENDS.get(status, Termination.ERROR)
    if termination is Termination.TIME_LIMIT and has:
        termination = Termination.FEASIBLE
    has = has and termination in (Termination.OPTIMAL, Termination.FEASIBLE)
    solution = model.getSolution()
    best = float(info.objective_function_value) if has else None
    bound = float(info.mip_dual_bound) if integer and has else best if termination is Termination.OPTIMAL else None
    return MatrixResult(
        termination,
        has,
        best,
        bound,
        relative_gap(best, bound),
        time.perf_counter() - started,
        np.asarray(solution.col_value) if has else np.empty(0),
        np.asarray(solution.row_dual) if has and not integer else np.empty(0),
    )
