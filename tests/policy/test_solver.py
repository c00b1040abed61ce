"""The solver's door: how runs end is told truly, on HiGHS and CBC, for expressions and for matrices."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from math import inf
from typing import Any

import highspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.model import Termination
from policy.parts.matrix import maximise_matrix
from policy.parts.solver import Backend, Constraint, Program, Result, Variable, make_known

BOTH = pytest.mark.parametrize("backend", list(Backend))


def knapsack(n: int, rows: int, seed: int = 1) -> Program:
    """A multi-dimensional knapsack; with many rows of similar weights it outlasts any small time limit."""
    rng = random.Random(seed)
    program = Program()
    items = [program.binary() for _ in range(n)]
    for _ in range(rows):
        weights = [rng.randint(400, 1000) for _ in items]
        program.at_most(dict(zip(items, map(float, weights), strict=True)), sum(weights) / 2)
    program.maximise({x: float(rng.randint(400, 1000)) for x in items})
    return program


@BOTH
def test_a_linear_program(backend: Backend) -> None:
    program = Program()
    x, y = program.variable(), program.variable(up=3.0)
    program.at_most({x: 1.0, y: 2.0}, 8.0)
    program.at_least({x: 1.0, y: -1.0}, -1.0)
    program.maximise({x: 1.0, y: 3.0})
    result = program.solve(backend=backend)
    assert result.termination is Termination.OPTIMAL
    assert result.objective == pytest.approx(11.0)
    assert (result[x], result[y]) == (pytest.approx(2.0), pytest.approx(3.0))
    assert result.gap == 0.0
    assert result.summary().solver == backend.value


@BOTH
def test_a_minimum_and_an_equality(backend: Backend) -> None:
    program = Program()
    x, y = program.variable(None), program.variable()
    program.equal({x: 1.0, y: 1.0}, 4.0)
    program.at_least({x: 1.0}, -2.0)
    program.minimise({x: 1.0, y: 2.0})
    result = program.solve(backend=backend)
    assert (result.objective, result.bound) == (pytest.approx(4.0), pytest.approx(4.0))


@BOTH
def test_infeasible_and_unbounded(backend: Backend) -> None:
    program = Program()
    x = program.variable()
    program.at_least({x: 1.0}, 2.0)
    program.maximise({x: 1.0})
    result = program.solve(backend=backend)
    assert result.termination is Termination.UNBOUNDED
    assert not result.has_solution
    program.at_most({x: 1.0}, 1.0)
    result = program.solve(backend=backend)
    assert result.termination is Termination.INFEASIBLE
    assert not result.has_solution
    assert result.objective is None
    assert result.values == ()


@BOTH
def test_a_run_stopped_by_its_clock_is_not_optimal(backend: Backend) -> None:
    """PuLP calls such a run "Optimal"."""
    result = knapsack(200, 40).solve(backend=backend, time_limit_s=1.0)
    assert result.termination in (Termination.FEASIBLE, Termination.TIME_LIMIT)
    assert not result.optimal
    if result.has_solution:
        assert result.objective is not None
        assert set(map(round, result.values)) <= {0, 1}
    if backend is Backend.HIGHS:
        assert result.has_solution
        assert result.gap is not None
        assert result.gap > 0
        assert result.bound is not None
        assert result.bound > (result.objective or inf)


@BOTH
def test_no_time_means_no_solution_or_an_incumbent(backend: Backend) -> None:
    result = knapsack(300, 60).solve(backend=backend, time_limit_s=0.0)
    assert result.clock
    assert result.termination in (Termination.TIME_LIMIT, Termination.FEASIBLE)
    assert (result.objective is None) == (not result.has_solution)


def test_time_limits_of_later_runs_count_from_their_start() -> None:
    """HiGHS' clock must not add up over the runs of one live model: a later run gets its own time to search."""
    program = knapsack(200, 40)
    assert not program.solve(time_limit_s=1.0).optimal
    program.set_row(0, bound=1e5)
    again = program.solve(time_limit_s=1.0)
    assert again.has_solution
    assert again.termination is Termination.FEASIBLE
    assert again.seconds > 0.5  # a clock that had added up would have ended it at once


@BOTH
def test_lazy_rows(backend: Backend) -> None:
    """max x + y inside the unit circle, by tangents that are added where they are violated."""
    program = Program()
    x, y = program.variable(up=1.0), program.variable(up=1.0)
    program.maximise({x: 1.0, y: 1.0})

    def tangent(result: Result) -> list[Constraint]:
        a, b = result[x], result[y]
        norm = (a * a + b * b) ** 0.5
        return [Constraint({x: a / norm, y: b / norm}, up=1.0)] if norm > 1 + 1e-6 else []

    result = program.solve(backend=backend, separate=tangent)
    assert result.optimal
    assert result.objective == pytest.approx(2**0.5, abs=1e-5)
    assert result.rows >= 1


@pytest.mark.parametrize(("limit_s", "clock"), [(0.01, True), (None, False)])
def test_rows_that_never_end_stop_after_so_many_passes_or_with_the_clock(limit_s: float | None, clock: bool) -> None:
    program = Program()
    x = program.variable(up=1.0)
    program.maximise({x: 1.0})
    bounds = iter(range(1, 10**9))

    def forever(result: Result) -> list[Constraint]:
        return [Constraint({x: 1.0}, up=0.5 + 0.5 / next(bounds))]

    result = program.solve(separate=forever, time_limit_s=limit_s)
    assert result.termination is Termination.TIME_LIMIT
    assert not result.has_solution
    assert result.clock is clock


def test_the_solvers_own_limit_is_no_answer_while_rows_are_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program()
    x = program.variable(up=1.0)
    program.maximise({x: 1.0})
    solved = Program._run

    def late(self: Program, *arguments: Any) -> Result:
        return replace(solved(self, *arguments), termination=Termination.FEASIBLE)

    monkeypatch.setattr(Program, "_run", late)
    cut = program.solve(separate=lambda result: [Constraint({x: 1.0}, up=0.5)])
    assert (cut.termination, cut.has_solution) == (Termination.TIME_LIMIT, False)
    whole = program.solve(separate=lambda result: [])
    assert (whole.termination, whole.has_solution) == (Termination.FEASIBLE, True)


@BOTH
def test_a_solved_program_can_be_changed(backend: Backend) -> None:
    program = Program()
    x, y = program.variable(), program.variable()
    row = program.at_most({x: 1.0, y: 1.0}, 4.0)
    program.maximise({x: 1.0, y: 2.0})
    assert program.solve(backend=backend).objective == pytest.approx(8.0)
    program.set_bounds(y, 0.0, 1.0)
    assert program.solve(backend=backend).objective == pytest.approx(5.0)
    program.set_row(row, bound=10.0, coefficients={x: 2.0})
    assert program.solve(backend=backend).objective == pytest.approx(6.5)


@BOTH
def test_without_a_goal_every_value_stands_at_its_variable(backend: Backend) -> None:
    program = Program()
    x = [program.variable(0, 1, integer=True) for _ in range(4)]
    program.equal({x[0]: 1.0, x[1]: 1.0}, 1)
    program.equal({x[2]: 1.0, x[3]: 1.0}, 1)
    program.at_most({x[0]: 1.0, x[2]: 1.0}, 0)
    program.maximise({})
    result = program.solve(backend=backend)
    assert [result[v] for v in x] == [0, 1, 0, 1]


@BOTH
@settings(deadline=None, max_examples=25)
@given(data=st.data(), variables=st.integers(1, 5))
def test_every_variable_has_its_value_whatever_names_it(backend: Backend, data: st.DataObject, variables: int) -> None:
    """Variables that no row and no goal names, rows without coefficients, goals of zeros: a value for each, its own."""
    program = Program()
    x = [program.variable(0, 9, integer=data.draw(st.booleans())) for _ in range(variables)]
    fixed = {v: float(data.draw(st.integers(0, 9))) for v in data.draw(st.lists(st.sampled_from(x), unique=True))}
    for v, value in fixed.items():
        program.equal({v: 1.0}, value)
    program.at_most(dict.fromkeys(data.draw(st.lists(st.sampled_from(x), unique=True)), 0.0), 1.0)
    program.maximise(dict.fromkeys(data.draw(st.lists(st.sampled_from(x), unique=True)), 0.0))
    result = program.solve(backend=backend)
    assert result.optimal
    assert len(result.values) == variables
    assert {v: round(result[v]) for v in fixed} == fixed


def test_a_program_without_variables() -> None:
    assert Program().solve().optimal


def test_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="one bound"):
        Constraint({Variable(0, 0.0, None, False): 1.0}, low=0.0, up=1.0)


def test_equal_runs_are_equal() -> None:
    first, second = (knapsack(60, 5, seed=3).solve(seed=7, time_limit_s=60) for _ in range(2))
    assert first.optimal
    assert first.values == second.values


# --- matrices ------------------------------------------------------------------------------------------------

small = st.integers(0, 5).map(float)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_matrices_and_expressions_agree(data: st.DataObject, columns: int, rows: int, integer: bool) -> None:
    a = [[data.draw(small) for _ in range(columns)] for _ in range(rows)]
    up = [data.draw(st.integers(0, 20)) for _ in range(rows)]
    cost = [data.draw(small) for _ in range(columns)]
    program = Program()
    x = [program.variable(up=10.0, integer=integer) for _ in range(columns)]
    for row, bound in zip(a, up, strict=True):
        program.at_most(dict(zip(x, row, strict=True)), float(bound))
    program.maximise(dict(zip(x, cost, strict=True)))
    expected = program.solve()
    cells = [(i, j, a[i][j]) for i in range(rows) for j in range(columns) if a[i][j]]
    found = maximise_matrix(
        cost,
        [i for i, _, _ in cells],
        [j for _, j, _ in cells],
        [v for _, _, v in cells],
        [-inf] * rows,
        up,
        column_up=[10.0] * columns,
        integer=integer,
    )
    assert found.termination is expected.termination is Termination.OPTIMAL
    assert found.objective == pytest.approx(expected.objective)
    for row, bound in zip(a, up, strict=True):
        assert sum(c * v for c, v in zip(row, found.values, strict=True)) <= bound + 1e-6
    if not integer:  # weak duality holds with equality
        assert all(p >= -1e-9 for p in found.prices)
        reduced = [cost[j] - sum(found.prices[i] * a[i][j] for i in range(rows)) for j in range(columns)]
        dual = sum(p * b for p, b in zip(found.prices, up, strict=True)) + sum(max(r, 0.0) * 10.0 for r in reduced)
        assert dual == pytest.approx(found.objective, abs=1e-6)


def test_matrices_say_how_they_end() -> None:
    assert maximise_matrix([1.0], [0], [0], [1.0], [2.0], [1.0]).termination is Termination.INFEASIBLE
    unbounded = maximise_matrix([1.0], [0], [0], [1.0], [2.0], [inf])
    assert unbounded.termination is Termination.UNBOUNDED
    assert not unbounded.has_solution
    assert unbounded.summary().termination is Termination.UNBOUNDED


def test_what_highs_says_of_itself_is_not_on_the_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """1.16 names itself when a process makes its first solver; `horae decide --json` was no JSON then."""
    monkeypatch.setattr(highspy, "Highs", lambda: os.write(1, b"Running HiGHS 1.16.0\n"))
    make_known()
    os.write(1, b"answer\n")
    assert capfd.readouterr().out == "answer\n"
