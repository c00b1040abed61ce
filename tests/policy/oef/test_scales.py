"""OEF where tenants differ by many orders of magnitude, against the same programs in exact fractions.

A tenant of weight 1 beside one of 1000, with speed-ups of thousands, has a share of a millionth of a GPU: the answer
must be as exact for it as for everybody.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from policy.decide import decide
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Termination
from policy.oef.envy_free import cooperative
from policy.oef.shares import Users, non_cooperative
from tests.policy.exact import maximise

#: Relative error of anybody's throughput.
CLOSE = 1e-6


def instance(seed: int) -> Users:
    random = Random(seed)
    n, k = random.randint(2, 5), random.randint(2, 3)
    widest = random.choice((2.0, 30.0, 5000.0, 2e4))
    speed = np.array([[1.0, *(round(random.uniform(1, widest), 4) for _ in range(k - 1))] for _ in range(n)])
    for row in speed:
        random.shuffle(row)
    if random.random() < 0.3:
        speed[0, 0] = 0.0
    weight = np.array([random.choice((1.0, 1.0, 2.0, 1000.0)) for _ in range(n)])
    gpus = np.array([random.choice((1.0, 3.0, 8.0, 200.0)) for _ in range(k)])
    cap = np.array([random.choice((math.inf, math.inf, 0.0, 1.0, 4.0)) for _ in range(n)])
    return Users(speed, weight, cap if seed % 2 else np.full(n, math.inf), gpus)


def level_rows(u: Users) -> tuple[list[list[float]], list[float]]:
    """Capacity and caps over the variables x (n x k) and the level."""
    n, k = u.speed.shape
    rows = [[float(c % k == j) for c in range(n * k)] + [0.0] for j in range(k)]
    up = [float(m) for m in u.gpus]
    for i in range(n):
        if math.isfinite(u.cap[i]):
            rows.append([float(c // k == i) for c in range(n * k)] + [0.0])
            up.append(float(u.cap[i]))
    return rows, up


def reach(u: Users, i: int, level: Fraction | None) -> list[Fraction]:
    """-throughput of i (+ weight x the level, where that is still to be found) <= ..."""
    n, k = u.speed.shape
    row = [Fraction(-float(u.speed[i, c % k])) if c // k == i else Fraction(0) for c in range(n * k)]
    return [*row, Fraction(float(u.weight[i])) if level is None else Fraction(0)]


def levels(u: Users) -> list[Fraction]:
    """Throughput per weight by lexicographic max-min: Eq. 9 with progressive filling."""
    n, k = u.speed.shape
    able = [i for i in range(n) if u.cap[i] > 0 and float(u.speed[i] @ u.gpus) > 0]
    fixed: dict[int, Fraction] = {}
    while len(fixed) < len(able):
        rows, up = level_rows(u)
        full, bound = [*rows], [Fraction(v) for v in up]
        for i in able:
            full.append(reach(u, i, fixed.get(i)))  # type: ignore[arg-type]
            bound.append(-fixed[i] * Fraction(float(u.weight[i])) if i in fixed else Fraction(0))
        found = maximise([0] * (n * k) + [1], full, bound)
        assert found is not None
        top = found[0]
        kept = {i: fixed.get(i, top) for i in able}
        for i in set(able) - set(fixed):  # who cannot have more while all others keep theirs is at its level
            rows, up = level_rows(u)
            full, bound = [*rows], [Fraction(v) for v in up]
            for other in able:
                if other != i:
                    full.append(reach(u, other, kept[other]))  # type: ignore[arg-type]
                    bound.append(-kept[other] * Fraction(float(u.weight[other])))
            own = [-v for v in reach(u, i, kept[i])]
            most = maximise(own, full, bound)
            assert most is not None
            if most[0] <= top * Fraction(float(u.weight[i])):
                fixed[i] = top
    return [fixed.get(i, Fraction(0)) for i in range(n)]


@pytest.mark.parametrize("seed", range(90))
def test_equation_9_is_exact_for_light_and_fast_tenants_too(seed: int) -> None:
    u = instance(seed)
    x = non_cooperative(u).x
    own = (u.speed * x).sum(axis=1) / u.weight
    assert own == pytest.approx([float(v) for v in levels(u)], rel=CLOSE)
    assert (x.sum(axis=0) <= u.gpus * (1 + 1e-6)).all()
    assert (x.sum(axis=1) <= u.cap * (1 + 1e-6)).all()


def envy_free(u: Users) -> Fraction:
    """Eq. 10 with all its rows."""
    n, k = u.speed.shape
    rows, up = level_rows(u)
    full, bound = [[Fraction(v) for v in row[:-1]] for row in rows], [Fraction(v) for v in up]
    for i in range(n):
        for other in range(n):
            if i != other:
                row = [Fraction(0)] * (n * k)
                for j in range(k):
                    row[i * k + j] = -Fraction(float(u.speed[i, j])) / Fraction(float(u.weight[i]))
                    row[other * k + j] = Fraction(float(u.speed[i, j])) / Fraction(float(u.weight[other]))
                full.append(row)
                bound.append(Fraction(0))
    found = maximise([float(v) for v in u.speed.ravel()], full, bound)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_equation_10_envies_nobody_by_more_than_a_millionth_of_its_own_share(seed: int) -> None:
    u = instance(seed)
    x = cooperative(u).x
    share = x / u.weight[:, None]
    own = (u.speed * share).sum(axis=1)
    assert ((u.speed @ share.T).max(axis=1) <= own * (1 + CLOSE)).all()
    assert (own >= u.speed @ u.gpus / u.weight.sum() * (1 - CLOSE)).all(), "sharing incentive, Theorem 5.1"
    assert (u.speed * x).sum() == pytest.approx(float(envy_free(u)), rel=CLOSE)


@pytest.mark.parametrize("seed", range(0, 30, 2))
def test_the_shares_of_a_decision_are_as_exact_as_the_program(seed: int) -> None:
    u = instance(seed)
    n, k = u.speed.shape
    nodes = tuple(Node(f"n{j}", f"g{j}", int(u.gpus[j])) for j in range(k))
    tables = [{f"g{j}": {1: float(u.speed[i, j])} for j in range(k) if u.speed[i, j] > 0} for i in range(n)]
    jobs = tuple(Job(f"j{i}", f"t{i}", f"j{i}", GpuRange(1, 1, None), throughput=tables[i]) for i in range(n))
    tenants = tuple(Tenant(f"t{i}", float(u.weight[i])) for i in range(n))
    decision = decide(Snapshot(Cluster(nodes, gpu_types=tuple(f"g{j}" for j in range(k))), jobs, tenants),
                      "oef-noncooperative")  # fmt: skip
    slowest = [min(v for v in row if v > 0) for row in u.speed]
    u = Users(np.array([row / s for row, s in zip(u.speed, slowest, strict=True)]), u.weight, u.cap, u.gpus)
    right = [float(v) * w for v, w in zip(levels(u), u.weight, strict=True)]
    assert [decision.tenants[f"t{i}"].throughput for i in range(n)] == pytest.approx(right, rel=CLOSE)


FAR_APART = (1e-6, 1e-3, 1.0, 1e3, 1e9)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_equation_10_holds_for_weights_fifteen_orders_apart(seed: int) -> None:
    """In GPUs, what the lightest have is far below a solver's tolerance: it found envy, and rows against it that were
    there already, until the clock ended it."""
    u = instance(2 * seed)
    weight = np.array([Random(seed + i).choice(FAR_APART) for i in range(len(u.weight))])
    u = Users(u.speed, weight, u.cap, u.gpus)
    answer = cooperative(u)
    assert answer.solver.termination is Termination.OPTIMAL
    each = answer.x / u.weight[:, None]
    own = (u.speed * each).sum(axis=1)
    assert ((u.speed @ each.T).max(axis=1) <= own * (1 + CLOSE)).all()
    assert (own >= u.speed @ u.gpus / u.weight.sum() * (1 - CLOSE)).all(), "sharing incentive, Theorem 5.1"
    assert (answer.x.sum(axis=0) <= u.gpus * (1 + CLOSE)).all()
    assert (u.speed * answer.x).sum() == pytest.approx(float(envy_free(u)), rel=CLOSE)


@pytest.mark.parametrize("seed", range(1, 30, 4))
def test_equation_10_is_the_same_in_any_unit_of_weight(seed: int) -> None:
    """Of weights of a billion each, no envy was large enough to be seen."""
    u = instance(seed)
    x = cooperative(u).x
    for unit in (2.0**-19, 2.0**30):
        assert cooperative(Users(u.speed, u.weight * unit, u.cap, u.gpus)).x == pytest.approx(x, abs=1e-9)


def test_beside_capped_tenants_the_lightest_has_its_fair_share() -> None:
    """It had nothing: its share was below the solver's tolerance."""
    speed = np.array([[1.0, 2.0], [1.0, 1.000001], [1.0, 1.245], [1.0, 2.0], [1.0, 1.0]])
    weight = np.array([5e-7, 5e-7, 5e8, 5e8, 1.0])
    u = Users(speed, weight, np.array([3.0, math.inf, 16.0, math.inf, 4.0]), np.array([18.0, 17.0]))
    answer = cooperative(u)
    assert answer.solver.termination is Termination.OPTIMAL
    own = (speed * answer.x).sum(axis=1) / weight
    free = np.isinf(u.cap)
    assert (own[free] >= (speed @ u.gpus / weight.sum())[free] * (1 - CLOSE)).all()


def test_what_a_capped_tenant_cannot_use_goes_to_the_lightest() -> None:
    """GPUs of the lightest are then no part of its weight, and in units of weight beyond any solver."""
    one = cooperative(Users(np.ones((2, 1)), np.array([1e-3, 1e6]), np.array([math.inf, 5.0]), np.array([27.0])))
    assert one.x == pytest.approx(np.array([[22.0], [5.0]]))
    speed = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    weight, cap = np.array([1.0, 1e-6, 1e9, 1.0]), np.array([6.0, 19.0, 16.0, 7.0])
    four = cooperative(Users(speed, weight, cap, np.array([10.0, 20.0])))
    assert four.solver.termination is Termination.OPTIMAL
    assert (speed * four.x).sum(axis=1)[1:3] == pytest.approx([19.0, 10.0])
