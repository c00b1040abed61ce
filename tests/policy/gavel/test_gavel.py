"""Gavel's programs against scipy's LP of the same definition, and the round mechanism against its fractions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from policy.decide import decide
from policy.gavel.programs import Jobs, Solving, equal_share, fifo, finish_time, makespan, max_min
from policy.model import Snapshot
from policy.parts.solver import Backend
from policy.text.instance import parse
from tests.policy.rounds import play

HOW = Solving()


def common_level(jobs: Jobs, need: np.ndarray) -> float:
    """The largest level such that rate . X >= need * level, by scipy."""
    n, k = jobs.rate.shape
    a, b = [], []
    for m in range(n):
        row = np.zeros(n * k + 1)
        row[m * k : (m + 1) * k] = 1
        a.append(row)
        b.append(1.0)
        row = np.zeros(n * k + 1)
        row[m * k : (m + 1) * k] = -jobs.rate[m]
        row[-1] = need[m]
        a.append(row)
        b.append(0.0)
    for t in range(k):
        row = np.zeros(n * k + 1)
        row[t : n * k : k] = jobs.gang
        a.append(row)
        b.append(jobs.gpus[t])
    result = linprog([0.0] * (n * k) + [-1.0], A_ub=np.array(a), b_ub=b, bounds=(0, None))
    assert result.status == 0
    return float(-result.fun)


problems = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.lists(st.tuples(*[st.floats(0.5, 6.0)] * 3), min_size=n, max_size=n),
        st.lists(st.sampled_from([1, 2, 4]), min_size=n, max_size=n),
        st.tuples(*[st.integers(1, 6)] * 3),
    )
)


def jobs_of(problem: tuple[list[tuple[float, ...]], list[int], tuple[int, ...]]) -> Jobs:
    rate, gang, gpus = problem
    return Jobs(np.array(rate), np.array(gang, dtype=float), np.array(gpus, dtype=float))


def feasible(jobs: Jobs, x: np.ndarray) -> bool:
    return bool((x.sum(axis=1) <= 1 + 1e-6).all() and (jobs.gang @ x <= jobs.gpus + 1e-6).all() and (x >= 0).all())


@settings(deadline=None, max_examples=50)
@given(problem=problems)
def test_max_min_is_the_optimum(problem: tuple[list[tuple[float, ...]], list[int], tuple[int, ...]]) -> None:
    jobs = jobs_of(problem)
    need = equal_share(jobs) / jobs.gang
    got = max_min(jobs, np.ones(len(need)), HOW)
    assert feasible(jobs, got.x)
    assert got.level == pytest.approx(common_level(jobs, need), rel=1e-6)
    assert ((jobs.rate * got.x).sum(axis=1) >= need * got.level * (1 - 1e-6)).all()


@settings(deadline=None, max_examples=30)
@given(problem=problems, left=st.lists(st.floats(10, 1000), min_size=5, max_size=5))
def test_makespan_is_the_optimum(
    problem: tuple[list[tuple[float, ...]], list[int], tuple[int, ...]], left: list[float]
) -> None:
    jobs = jobs_of(problem)
    todo = np.array(left[: len(jobs.rate)])
    got = makespan(jobs, todo, HOW)
    assert feasible(jobs, got.x)
    assert got.level == pytest.approx(common_level(jobs, todo), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    problem=problems,
    left=st.lists(st.floats(10, 1000), min_size=5, max_size=5),
    elapsed=st.lists(st.floats(0, 300), min_size=5, max_size=5),
)
def test_finish_time_fairness_cannot_be_bettered(
    problem: tuple[list[tuple[float, ...]], list[int], tuple[int, ...]], left: list[float], elapsed: list[float]
) -> None:
    jobs = jobs_of(problem)
    n = len(jobs.rate)
    todo, gone = np.array(left[:n]), np.array(elapsed[:n])
    alone = todo / (equal_share(jobs) * np.minimum(1, jobs.gpus.sum() / n / jobs.gang))
    got = finish_time(jobs, todo, gone, alone, HOW)
    rho = (gone + todo / (jobs.rate * got.x).sum(axis=1)) / alone
    assert feasible(jobs, got.x)
    assert rho.max() == pytest.approx(1 / got.level, rel=1e-4)
    better = rho.max() * 0.999
    room = better * alone - gone
    if (room > 0).all():
        assert common_level(jobs, todo / room) < 1.0
    else:
        assert (gone >= better * alone - 1e-9).any()


def test_fifo_gives_the_first_job_its_fastest_type() -> None:
    jobs = Jobs(np.array([[1.0, 4.0], [1.0, 8.0], [1.0, 2.0]]), np.ones(3), np.array([1.0, 1.0]))
    x = fifo(jobs, HOW).x
    assert x[0].tolist() == pytest.approx([0, 1])
    assert x[1].sum() + x[2].sum() == pytest.approx(1.0)


def two_types(gang: int = 2) -> Snapshot:
    return parse(
        """
        now: 100
        cluster:
          gpu_types: [k80, v100]
          nodes: [{name: a, gpu_type: k80, gpus: 2}, {name: b, gpu_type: v100, gpus: 2}]
        jobs:
          - {name: j1, gpus: 1, work: {total: 4000}, throughput: {k80: 1, v100: 2}}
          - {name: j2, gpus: 1, work: {total: 4000}, throughput: {k80: 1, v100: 5}}
          - {name: j3, gpus: GANG, work: {total: 8000}, throughput: {k80: {1: 1, 2: 2}, v100: {1: 4, 2: 7}}}
          - {name: j4, gpus: 1, work: {total: 2000}, throughput: {k80: 1, v100: 3}}
        """.replace("GANG", str(gang))
    )


NAMES = ["gavel-max-min", "gavel-finish-time", "gavel-makespan", "gavel-fifo"]


@pytest.mark.parametrize("policy", NAMES)
def test_rounds_realise_the_fractions(policy: str) -> None:
    # Gangs of one: beside narrow jobs a wide gang cannot have its whole fraction, whatever the rounds (the programs
    # count GPU time, not simultaneity).
    first = decide(two_types(1), policy)
    assert first.shares is not None
    if policy == "gavel-finish-time":
        check_feasible_only(policy)
        return
    got = play(two_types(1), policy, 120, 360.0)
    for name, share in first.shares.items():
        assert got.ran[name] >= sum(share.values()) - 0.05, (name, share, got.ran[name])


def check_feasible_only(policy: str) -> None:
    # Its fractions change as time passes (rho does), so rounds follow a moving target: only its floor is checked.
    got = play(two_types(), policy, 40, 360.0)
    assert all(part > 0 for part in got.ran.values())
    assert got.last.certificate.feasible


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("backend", list(Backend))
def test_every_job_has_a_reason_and_both_solvers_answer(policy: str, backend: Backend) -> None:
    decision = decide(two_types(), policy, solver=backend.value)
    assert decision.certificate.feasible and decision.certificate.work_conserving
    assert set(decision.reasons) == {"j1", "j2", "j3", "j4"}
    assert decision.solver is not None and decision.solver.termination == "optimal"


@pytest.mark.parametrize("policy", NAMES)
def test_no_jobs_no_gpus_no_lengths(policy: str) -> None:
    empty = parse("cluster: {nodes: [{name: n, gpu_type: v100, gpus: 4}]}\njobs: []")
    assert decide(empty, policy).allocation == {}
    down = parse("cluster: {nodes: [{name: n, gpu_type: v100, gpus: 4, health: down}]}\njobs: [{name: j, gpus: 1}]")
    assert decide(down, policy).allocation == {"j": {}}
    blind = parse(
        "cluster: {nodes: [{name: n, gpu_type: v100, gpus: 4}]}\njobs: [{name: j, gpus: 1}, {name: i, gpus: 4}]"
    )
    assert sum(bool(a) for a in decide(blind, policy).allocation.values()) == 1


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 8), st.booleans())
def test_finish_time_is_feasible_and_no_smaller_rho_is(seed: int, n: int, fresh: bool) -> None:
    draw = np.random.default_rng(seed)
    rate = draw.uniform(0.1, 10, (n, 3)) * (draw.random((n, 3)) < 0.8)
    rate[:, 0] = np.maximum(rate[:, 0], 0.1)
    jobs = Jobs(rate, draw.choice([1.0, 2.0, 4.0], n), np.array([4.0, 3.0, 5.0]))
    left = draw.choice([0.0, 10.0, 1e5], n)
    elapsed = np.zeros(n) if fresh else draw.uniform(0, 1e4, n)
    isolated = draw.uniform(1e2, 1e5, n)
    answer = finish_time(jobs, left, elapsed, isolated, Solving())
    assert answer.found
    rho = 1 / answer.level
    reached = (rate * answer.x).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = (elapsed + np.where(left > 0, left / reached, 0.0)) / isolated
    assert each.max() <= rho * (1 + 1e-5) + 1e-9
    room = rho * (1 - 1e-4) * isolated - elapsed
    if rho > 1e-6 and (room > 0).all():
        assert common_level(jobs, left / room) < 1
