"""Cooperative OEF with demand caps against the best envy-free shares there are, by an integer program of its own.

What l makes of a bundle with at most its cap of GPUs is the least of a few lines, so nobody's envy is "above one of
them": a disjunction, which branch and bound decides where there are few.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from policy.decide import decide
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Termination
from policy.oef.envy_free import cooperative
from policy.oef.shares import Users

Matrix = NDArray[np.float64]


def instance(seed: int) -> Users:
    random = np.random.default_rng(seed)
    n, k = random.integers(2, 4), random.integers(1, 4)
    speed = np.column_stack([np.ones(n), *(np.round(random.uniform(0.3, 5, n), 2) for _ in range(k - 1))])
    gpus = random.integers(1, 9, k).astype(float)
    weight = random.choice([1.0, 1.0, 2.0, 5.0], n)
    cap = np.where(random.random(n) < 0.5, np.inf, random.integers(1, 8, n))
    return Users(speed, weight, np.where(cap >= gpus.sum(), np.inf, cap), gpus)


def made_of(u: Users, who: int, bundle: Matrix) -> float:
    """By the greediest filling."""
    left, made = float(u.cap[who]), 0.0
    for j in np.argsort(-u.speed[who]):
        made += min(left, float(bundle[j])) * float(u.speed[who, j])
        left -= min(left, float(bundle[j]))
    return made


def fair(u: Users) -> list[float]:
    return [made_of(u, i, u.gpus * u.weight[i] / u.weight.sum()) for i in range(len(u.weight))]


def prices(u: Users, who: int) -> list[float]:
    return sorted({0.0, *map(float, u.speed[who])}) if math.isfinite(u.cap[who]) else [0.0]


def best(u: Users) -> float:
    """The most in total at which nobody has less than of its even part, nor than of another's share."""
    n, k = u.speed.shape
    lines = [(who, other, p) for who, other in itertools.permutations(range(n), 2) for p in prices(u, who)]
    rows: list[tuple[Matrix, float, float]] = []

    def row(low: float, up: float, shares: Matrix, which: tuple[int, ...] = (), value: float = 0.0) -> None:
        line = np.zeros(len(lines))
        line[list(which)] = value
        rows.append((np.concatenate([shares.ravel(), line]), low, up))

    for j in range(k):
        row(-np.inf, u.gpus[j], np.tile(np.arange(k) == j, (n, 1)).astype(float))
    for i, least in enumerate(fair(u)):
        own = (np.arange(n) == i)[:, None]
        row(-np.inf, u.cap[i], np.repeat(own, k, axis=1).astype(float))
        row(least, np.inf, own * u.speed)
    for at, (who, other, price) in enumerate(lines):
        steep = np.maximum(u.speed[who] - price, 0) * u.weight[who] / u.weight[other]
        charge = float(u.cap[who]) * price if price else 0.0
        most = charge + float(steep @ u.gpus)
        shares = np.zeros((n, k))
        shares[who], shares[other] = u.speed[who], -steep
        row(charge - most, np.inf, shares, (at,), -most)
    for pair in itertools.permutations(range(n), 2):
        row(1, np.inf, np.zeros((n, k)), tuple(a for a, line in enumerate(lines) if line[:2] == pair), 1.0)
    matrix, low, up = map(np.array, zip(*rows, strict=True))
    found = milp(
        np.concatenate([-u.speed.ravel(), np.zeros(len(lines))]),
        constraints=LinearConstraint(matrix, low - 1e-9, up + 1e-9),
        integrality=np.repeat([0, 1], [n * k, len(lines)]),
        bounds=Bounds(0, np.repeat([np.inf, 1], [n * k, len(lines)])),
        options={"mip_rel_gap": 1e-7},
    )
    assert found.success
    return float(-found.fun)


def test_nobody_envies_or_has_less_than_its_part_and_the_total_is_nearly_the_best_there_is() -> None:
    """Of seeds 0 to 299 two are not the best (59 by 3.1 %, 70)."""
    parts, proven = [], 0
    for seed in range(39, 79):
        u = instance(seed)
        answer = cooperative(u)
        x = answer.x
        own, total = (u.speed * x).sum(axis=1), float((u.speed * x).sum())
        assert (x.sum(axis=0) <= u.gpus + 1e-6).all()
        assert (x.sum(axis=1) <= u.cap + 1e-6).all()
        assert (own >= np.array(fair(u)) - 1e-6 * total).all(), seed
        for who, other in itertools.permutations(range(len(own)), 2):
            assert made_of(u, who, x[other] * u.weight[who] / u.weight[other]) <= own[who] + 1e-6 * total, seed
        most = best(u)
        parts.append(total / most)
        assert answer.solver.gap is not None
        assert most <= total * (1 + answer.solver.gap) + 1e-5 * total, f"{seed}: better than was said to be possible"
        proven += answer.solver.termination is Termination.OPTIMAL
    assert max(parts) < 1 + 1e-5
    assert min(parts) > 0.96
    assert sum(parts) / len(parts) > 0.995
    assert proven > 30


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_the_certificate_finds_no_envy_and_no_part_below_the_fair_one(seed: int) -> None:
    u = instance(seed)
    n, k = u.speed.shape
    nodes = tuple(Node(f"n{j}", f"g{j}", int(u.gpus[j])) for j in range(k))
    most = [int(cap) if math.isfinite(cap) else None for cap in u.cap]
    tables = [{f"g{j}": {1: float(u.speed[i, j])} for j in range(k)} for i in range(n)]
    jobs = tuple(Job(f"j{i}", f"t{i}", f"j{i}", GpuRange(1, 1, most[i]), throughput=tables[i]) for i in range(n))
    tenants = tuple(Tenant(f"t{i}", float(u.weight[i])) for i in range(n))
    cluster = Cluster(nodes, gpu_types=tuple(f"g{j}" for j in range(k)))
    certificate = decide(Snapshot(cluster, jobs, tenants), "oef-cooperative").certificate
    assert certificate.envy.who is None
    assert certificate.sharing_incentive.worst >= 1 - 1e-6


def test_what_a_tenant_could_use_of_a_share_is_not_a_part_of_all_of_it() -> None:
    """It was asked for in proportion of what the other held, which left 20 % of all throughput out."""
    u = Users(np.array([[1, 1.56], [1, 4.39], [1, 1.28]]), np.array([5.0, 2, 1]), np.array([2, np.inf, 2]),
              np.array([7.0, 8]))  # fmt: skip
    assert (u.speed * cooperative(u).x).sum() == pytest.approx(best(u))


def test_who_has_all_that_it_can_use_holds_nobody_down() -> None:
    """What it could use of the other's share was said by how much the other held: it was to hold no more than that."""
    u = Users(np.ones((2, 1)), np.ones(2), np.array([2.0, 9.0]), np.array([11.0]))
    assert cooperative(u).x == pytest.approx(np.array([[2.0], [9.0]]))
    many = Users(np.ones((9, 1)), np.ones(9), np.array([*range(1, 9), 19.0]), np.array([55.0]))
    assert cooperative(many).x.sum() == pytest.approx(55.0)


def test_that_there_are_no_more_gpus_of_its_types_is_no_demand() -> None:
    """A tenant that runs on one type only was taken to be capped at what there is of it, and had all 14: with the
    paper's envy rows, which nothing else is against, all together make 9 % more."""
    gpus = {"a": 14, "b": 18, "c": 4}
    rows = {
        "t0": {"a": 2.0, "b": 2.0, "c": 1.0},
        "t1": {"a": 1.0},
        "t2": {"a": 1.0, "b": 1.2, "c": 1.3},
        "t3": {"a": 1.0, "b": 2.0},
    }
    nodes = tuple(Node(f"n{t}", t, n) for t, n in gpus.items())
    jobs = tuple(
        Job(name, name, name, GpuRange(1, 1, None), throughput={t: {1: w} for t, w in row.items()})
        for name, row in rows.items()
    )
    tenants = tuple(Tenant(name, 2.0 if name == "t1" else 1.0) for name in rows)
    snapshot = Snapshot(Cluster(nodes, gpu_types=tuple(gpus)), jobs, tenants)
    capped = decide(snapshot, "oef-cooperative")
    paper = decide(snapshot, "oef-cooperative", {"demand_caps": False})
    assert capped.solver is not None
    assert capped.solver.termination is Termination.OPTIMAL
    assert capped.certificate.throughput == pytest.approx(paper.certificate.throughput, rel=1e-6)
