"""OEF's programs against the paper's printed matrices, the replicated forms, and an independent LP of all rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from policy.oef.envy_free import cooperative
from policy.oef.shares import Users, merged, non_cooperative
from policy.parts.solver import Backend


def users(speed: object, gpus: object, weight: object = None, cap: object = None) -> Users:
    rows = np.array(speed, dtype=np.float64)
    n = len(rows)
    weights = np.ones(n) if weight is None else np.array(weight, dtype=np.float64)
    caps = np.full(n, np.inf) if cap is None else np.array(cap, dtype=np.float64)
    return Users(rows, weights, caps, np.array(gpus, dtype=np.float64))


BOTH = pytest.mark.parametrize("backend", list(Backend))


@BOTH
def test_equation_6_and_its_lies(backend: Backend) -> None:
    honest = cooperative(users([[1, 2], [1, 5]], [1, 1]), backend=backend).x
    assert honest == pytest.approx(np.array([[1, 0.25], [0, 0.75]]))
    lied = cooperative(users([[1, 4], [1, 5]], [1, 1]), backend=backend).x
    assert lied == pytest.approx(np.array([[1, 0.375], [0, 0.625]]))
    assert lied[0] @ [1, 2] == pytest.approx(1.75)  # 16.7 % more than 1.5: cooperative OEF is not strategy-proof
    figure_2 = cooperative(users([[1, 2], [1, 4]], [1, 1]), backend=backend).x
    assert figure_2 == pytest.approx(np.array([[1, 0.25], [0, 0.75]]))
    figure_2_lie = cooperative(users([[1, 3], [1, 4]], [1, 1]), backend=backend).x
    assert figure_2_lie == pytest.approx(np.array([[1, 1 / 3], [0, 2 / 3]]))


@BOTH
def test_section_4_2_3_weights(backend: Backend) -> None:
    got = non_cooperative(users([[1, 2], [1, 5]], [1, 1], weight=[1, 2]), backend=backend).x
    assert got == pytest.approx(np.array([[1, 1 / 3], [0, 2 / 3]]))


@BOTH
def test_section_4_2_4_job_types(backend: Backend) -> None:
    got = non_cooperative(users([[1, 2], [1, 3], [1, 5]], [1, 1], weight=[0.5, 0.5, 1]), backend=backend).x
    assert got == pytest.approx(np.array([[1, 0.108], [0, 0.405], [0, 0.486]]), abs=1e-3)


rows_of_speeds = st.lists(st.floats(1.0, 3.0), min_size=2, max_size=3).map(
    lambda r: [float(v) for v in itertools.accumulate([1.0, *r], lambda a, b: a * b)]
)
speeds = st.lists(rows_of_speeds, min_size=1, max_size=5)


def same_width(rows: list[list[float]]) -> list[list[float]]:
    k = min(len(r) for r in rows)
    return [r[:k] for r in rows]


def all_rows(u: Users) -> float:
    """Eq. 10 with every envy row at once, by another solver interface."""
    n, k = u.speed.shape
    a, b = [], []
    for j in range(k):
        row = np.zeros((n, k))
        row[:, j] = 1
        a.append(row.ravel())
        b.append(u.gpus[j])
    for who, other in itertools.permutations(range(n), 2):
        row = np.zeros((n, k))
        row[who] -= u.speed[who] / u.weight[who]
        row[other] += u.speed[who] / u.weight[other]
        a.append(row.ravel())
        b.append(0.0)
    result = linprog(-u.speed.ravel(), A_ub=np.array(a), b_ub=np.array(b), bounds=(0, None))
    assert result.status == 0
    return float(-result.fun)


@settings(deadline=None, max_examples=60)
@given(rows=speeds, gpus=st.lists(st.integers(0, 12), min_size=4, max_size=4), seed=st.integers(1, 3))
def test_cooperative_is_the_optimum_of_all_rows_envy_free_and_shares_by_theorem_5_1(
    rows: list[list[float]], gpus: list[int], seed: int
) -> None:
    speed = same_width(rows)
    u = users(speed, gpus[: len(speed[0])], weight=[1 + (i * seed) % 3 for i in range(len(speed))])
    x = cooperative(u).x
    total = float((u.speed * x).sum())
    assert total == pytest.approx(all_rows(u), rel=1e-5, abs=1e-6)
    own = np.einsum("lj,lj->l", u.speed, x) / u.weight
    worth = u.speed @ (x / u.weight[:, None]).T
    assert (worth <= own[:, None] + 1e-5 * max(1.0, total)).all()
    assert (own >= (u.speed @ u.gpus) / u.weight.sum() - 1e-5 * max(1.0, total)).all(), "sharing incentive"
    assert (x.sum(axis=0) <= u.gpus + 1e-6).all()


@settings(deadline=None, max_examples=60)
@given(rows=speeds, gpus=st.lists(st.integers(1, 12), min_size=4, max_size=4))
def test_non_cooperative_levels_everyone_and_wastes_nothing(rows: list[list[float]], gpus: list[int]) -> None:
    speed = same_width(rows)
    u = users(speed, gpus[: len(speed[0])])
    x = non_cooperative(u).x
    own = np.einsum("lj,lj->l", u.speed, x)
    assert own == pytest.approx(np.full(len(own), own[0]), rel=1e-6, abs=1e-6)
    assert x.sum(axis=0) == pytest.approx(u.gpus, rel=1e-6)
    n, k = x.shape
    assert (x > 1e-9).sum() <= n + k - 1, "a vertex: the Extreme Point Theorem of §4.4"


@settings(deadline=None, max_examples=30)
@given(rows=speeds, weights=st.lists(st.integers(1, 3), min_size=5, max_size=5))
def test_the_aggregated_form_equals_the_replicated_one(rows: list[list[float]], weights: list[int]) -> None:
    speed = np.array(same_width(rows))
    w = np.array(weights[: len(speed)])
    gpus = [3, 5, 2, 4][: speed.shape[1]]
    copies = np.repeat(np.arange(len(speed)), w)
    for solve in (non_cooperative, cooperative):
        one = (speed * solve(users(speed, gpus, weight=w)).x).sum(axis=1)
        many = (speed[copies] * solve(users(speed[copies], gpus)).x).sum(axis=1)
        total = np.bincount(copies, weights=many, minlength=len(speed))
        if solve is non_cooperative:
            assert one == pytest.approx(total, rel=1e-5, abs=1e-6)
        assert one.sum() == pytest.approx(total.sum(), rel=1e-5)


def test_demand_caps_let_the_others_rise() -> None:
    got = non_cooperative(users([[1, 2], [1, 5]], [4, 4], cap=[1, np.inf])).x
    assert got[0].sum() <= 1 + 1e-9
    assert got.sum(axis=0) == pytest.approx([4, 4])
    three = non_cooperative(users([[1, 2], [1, 5], [1, 3]], [4, 4], cap=[1, 3, np.inf]))
    own = np.einsum("lj,lj->l", np.array([[1, 2], [1, 5], [1, 3]]), three.x)
    assert three.x.sum(axis=0) == pytest.approx([4, 4])
    assert own[0] == pytest.approx(2.0)
    assert own[1] == pytest.approx(own[2], rel=1e-6)
    together = cooperative(users([[1, 2], [1, 5], [1, 3]], [4, 4], cap=[1, 3, np.inf]))
    assert together.x.sum() == pytest.approx(8.0, abs=1e-3)


def test_understating_pays_in_the_non_cooperative_form() -> None:
    # Theorem 5.4 proves strategy-proofness against overstating; the level is that of *reported* throughput.
    true = np.array([[1.0, 4.0], [1.0, 5.0]])
    honest = non_cooperative(users(true, [1, 1])).x[0] @ true[0]
    best = max(non_cooperative(users([[1.0, lie], true[1]], [1, 1])).x[0] @ true[0] for lie in np.linspace(1, 4, 13))
    assert best > honest * 1.01
    over = max(non_cooperative(users([[1.0, lie], true[1]], [1, 1])).x[0] @ true[0] for lie in np.linspace(4, 9, 11))
    assert over <= honest * (1 + 1e-6)


def test_theorem_5_2_fails_for_the_cooperative_form_even_with_ordered_tenants() -> None:
    speed = [[1, 1.233, 1.63, 2.219], [1, 1.512, 2.51, 4.878], [1, 1.669, 3.645, 7.153]]
    x = cooperative(users(speed, [6, 10, 1, 5])).x
    n, k = x.shape
    support = [np.flatnonzero(row > 1e-7) for row in x]
    gaps = any(len(s) and s[-1] - s[0] + 1 != len(s) for s in support)
    assert gaps or (x > 1e-7).sum() > n + k - 1


def test_theorem_5_3_compares_envy_free_shares_only() -> None:
    speed = np.array([[1.0, 1, 2], [1, 5, 6], [1, 2, 1]])
    u = users(speed, [2, 1, 2])
    own = (speed * cooperative(u).x).sum(axis=1)
    assert own == pytest.approx([2.8, 9.2, 2.0])
    better = np.array([[2.0, 0, 0.4], [0, 0, 1.6], [0, 1, 0]])  # less for nobody, and the first envies the second
    assert better.sum(axis=0) == pytest.approx(u.gpus)
    assert (speed * better).sum(axis=1) == pytest.approx([2.8, 9.6, 2.0])
    assert speed[0] @ better[1] > 2.8 + 0.3


def test_tenants_that_run_the_same_model_merge() -> None:
    small, of = merged(users([[1, 2], [1, 3], [1, 2]], [1, 1], weight=[1, 1, 2]))
    assert small.speed.tolist() == [[1, 2], [1, 3]]
    assert small.weight.tolist() == [3, 1]
    assert of.tolist() == [0, 1, 0]


def test_nobody_and_nothing() -> None:
    none = users(np.zeros((0, 2)), [1, 1])
    assert cooperative(none).x.shape == non_cooperative(none).x.shape == (0, 2)
    no_gpus = users([[1, 2], [1, 5]], [0, 0])
    assert cooperative(no_gpus).x.sum() == non_cooperative(no_gpus).x.sum() == 0
