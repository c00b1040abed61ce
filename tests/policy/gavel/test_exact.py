"""Gavel's four objectives on random instances, against the same programs in exact fractions.

Rigid gangs that contend, and tenant-level instances (jobs without an upper limit, whose shares are GPUs).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from random import Random

import pytest

from policy.decide import decide
from policy.model import Cluster, Decision, GpuRange, Job, Node, Proposal, Snapshot, Tenant, Work
from policy.throughput import Throughput
from policy.trials.rounds import after
from tests.policy.exact import maximise

GOALS = ("max-min", "finish-time", "makespan", "fifo")
CLOSE = 1e-5
ROUNDS = 60
SEEDS = range(10)
Rows = list[list[Fraction]]


def instance(seed: int, *, divisible: bool, sizes: tuple[int, ...] = (1, 2, 4), jobs: int = 4) -> Snapshot:
    random = Random(seed)
    types = ("a", "b", "c")[: random.randint(1, 3)]
    nodes = tuple(Node(f"n{t}", t, random.choice((4, 4, 8))) for t in types)
    made = []
    for i in range(random.randint(2, jobs)):
        size = 1 if divisible else random.choice(sizes)
        table = {t: {size: float(size * random.randint(1, 9))} for t in types if t == types[0] or random.random() < 0.8}
        total = float(random.choice((1000, 5000, 80000)))
        work = Work(total, total * random.choice((0, 1, 3)) / 8)
        gpus = GpuRange(1, 1, None) if divisible else GpuRange(size, size, size)
        made.append(Job(f"j{i}", f"t{i % 3}", f"j{i}", gpus, float(random.randint(0, 900)), work, table))
    tenants = tuple(Tenant(f"t{i}", float(random.choice((1, 1, 2, 1000)))) for i in range(3))
    return Snapshot(Cluster(nodes, gpu_types=types), tuple(made), tenants, 1000.0)


class Plain:
    """The instance in fractions. Variables: the part of its time that job m spends on type t, as a gang."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.jobs = sorted(snapshot.jobs, key=lambda j: j.order)
        self.gpus = [n.gpus for n in snapshot.cluster.nodes]
        self.types = [n.gpu_type for n in snapshot.cluster.nodes]
        self.n, self.k = len(self.jobs), len(self.types)
        self.gang = [j.gpus.min for j in self.jobs]
        self.rate = [
            [Fraction(int(j.throughput.get(t, {}).get(g, 0))) for t in self.types]
            for j, g in zip(self.jobs, self.gang, strict=True)
        ]
        self.most = [None if j.gpus.max is None else 1 for j in self.jobs]
        self.left = [Fraction(j.work.total or 0) - Fraction(j.work.done) for j in self.jobs]
        weight = {t.name: Fraction(t.weight) for t in snapshot.tenants}
        self.weight = [weight[j.tenant] / sum(o.tenant == j.tenant for o in self.jobs) for j in self.jobs]
        self.even = [sum(r * g for r, g in zip(row, self.gpus, strict=True)) / sum(self.gpus) for row in self.rate]
        self.elapsed = [Fraction(1000 - j.submitted_s) for j in self.jobs]
        self.fair = [w * e / g for w, e, g in zip(self.weight, self.even, self.gang, strict=True)]

    def capacity(self) -> tuple[Rows, list[Fraction]]:
        width = self.n * self.k + 1
        rows, up = [], []
        for m, most in enumerate(self.most):
            if most is not None:
                rows.append([Fraction(c // self.k == m and c < width - 1) for c in range(width)])
                up.append(Fraction(most))
        for t in range(self.k):
            row = [Fraction(self.gang[c // self.k] if c % self.k == t else 0) for c in range(width - 1)]
            rows.append([*row, Fraction(0)])
            up.append(Fraction(self.gpus[t]))
        for c in range(width - 1):  # no time on a type where it cannot run
            if not self.rate[c // self.k][c % self.k]:
                rows.append([Fraction(v == c) for v in range(width)])
                up.append(Fraction(0))
        return rows, up

    def level(self, need: list[Fraction]) -> Fraction:
        """The largest L at which every job reaches need x L."""
        rows, up = self.capacity()
        for m in range(self.n):
            row = [-self.rate[m][c % self.k] if c // self.k == m else Fraction(0) for c in range(self.n * self.k)]
            rows.append([*row, need[m]])
            up.append(Fraction(0))
        found = maximise([0] * (self.n * self.k) + [1], rows, up)
        assert found is not None
        return found[0]

    def isolated(self) -> list[Fraction]:
        """Seconds of each job from its beginning, alone on a 1/n share of every type."""
        whole = [Fraction(j.work.total or 0) for j in self.jobs]
        share = Fraction(sum(self.gpus), self.n)
        out = []
        for m in range(self.n):
            part = share / self.gang[m] if self.most[m] is None else min(Fraction(1), share / self.gang[m])
            out.append(whole[m] / (self.even[m] * part))
        return out

    def rho(self) -> float:
        """The least largest finish-time ratio, by bisection over exact programs."""
        isolated, low, high = self.isolated(), Fraction(0), Fraction(1)

        def possible(rho: Fraction) -> bool:
            room = [rho * t - e for t, e in zip(isolated, self.elapsed, strict=True)]
            if any(r <= 0 for r in room):
                return False
            return self.level([left / r for left, r in zip(self.left, room, strict=True)]) >= 1

        while not possible(high):
            low, high = high, high * 2
        for _ in range(18):
            middle = (low + high) / 2
            low, high = (low, middle) if possible(middle) else (middle, high)
        return float(high)

    def first_come(self) -> Fraction:
        rows, up = self.capacity()
        goal = [
            (self.n - c // self.k) * self.rate[c // self.k][c % self.k] / max(self.rate[c // self.k])
            for c in range(self.n * self.k)
        ]
        found = maximise([*goal, 0], rows, up)
        assert found is not None
        return found[0]

    # --- what a decision's shares are worth ---

    def done(self, decision: Decision) -> list[float]:
        """iterations/s of each job under the decision's fractions, which must be ones that can be."""
        assert decision.shares is not None
        x = [
            [decision.shares[j.name].get(t, 0.0) / g for t in self.types]
            for j, g in zip(self.jobs, self.gang, strict=True)
        ]
        for m, most in enumerate(self.most):
            assert most is None or sum(x[m]) <= most + 1e-6
        for t in range(self.k):
            assert sum(x[m][t] * self.gang[m] for m in range(self.n)) <= self.gpus[t] * (1 + 1e-6)
        return [sum(float(r) * v for r, v in zip(self.rate[m], x[m], strict=True)) for m in range(self.n)]

    def measures(self, decided: list[float]) -> dict[str, float]:
        """How good these iterations/s are by each objective: 1 is the optimum, more is worse."""
        done, isolated, best = [max(d, 1e-30) for d in decided], self.isolated(), self.best
        rho = max(float((self.elapsed[m] + self.left[m] / Fraction(done[m])) / isolated[m]) for m in range(self.n))
        weights = [(self.n - m) / float(max(self.rate[m])) for m in range(self.n)]
        return {
            "max-min": best["max-min"] / min(d / float(f) for d, f in zip(done, self.fair, strict=True)),
            "finish-time": rho / best["finish-time"],
            "makespan": best["makespan"] * max(float(s) / d for s, d in zip(self.left, done, strict=True)),
            "fifo": best["fifo"] / sum(w * d for w, d in zip(weights, done, strict=True)),
        }

    @cached_property
    def best(self) -> dict[str, float]:
        """Of each objective the exact optimum."""
        return {
            "max-min": float(self.level(self.fair)),
            "finish-time": self.rho(),
            "makespan": float(self.level(self.left)),
            "fifo": float(self.first_come()),
        }


@pytest.mark.parametrize("divisible", [False, True], ids=["gangs", "tenant-level"])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_objective_is_at_its_own_optimum(seed: int, divisible: bool) -> None:
    snapshot = instance(seed, divisible=divisible)
    plain = Plain(snapshot)
    for goal in GOALS:
        measured = plain.measures(plain.done(decide(snapshot, f"gavel-{goal}")))
        assert measured[goal] == pytest.approx(1.0, abs=CLOSE), goal


def test_on_contended_gangs_each_objective_is_better_by_its_own_measure_than_the_others() -> None:
    """Somewhere: where nobody contends they may agree."""
    beaten: set[tuple[str, str]] = set()
    for seed in range(16):
        snapshot = instance(seed, divisible=False)
        plain = Plain(snapshot)
        for other in GOALS:
            measured = plain.measures(plain.done(decide(snapshot, f"gavel-{other}")))
            beaten |= {(goal, other) for goal in GOALS if measured[goal] > 1.02}
    assert beaten == {(goal, other) for goal in GOALS for other in GOALS if goal != other}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("goal", GOALS)
def test_on_tenant_level_instances_every_gpu_is_somebodys(seed: int, goal: str) -> None:
    snapshot = instance(seed, divisible=True)
    decision = decide(snapshot, f"gavel-{goal}")
    usable = [n for n in snapshot.cluster.nodes if any(n.gpu_type in j.throughput for j in snapshot.jobs)]
    total = sum(n.gpus for n in usable)
    assert sum(sum(t.shares.values()) for t in decision.tenants.values()) == pytest.approx(total, rel=1e-5)
    assert decision.certificate.work_conserving  # whole GPUs of a round: one gang a job, which types may slow down


@pytest.mark.parametrize("goal", ["max-min", "makespan", "fifo"])
def test_over_rounds_whole_gpus_do_what_the_optimum_does(goal: str) -> None:
    """One-GPU jobs, so that whatever fractions say goes into rounds (of gangs, see `test_gavel.py`)."""
    for seed in range(6):
        snapshot = instance(seed, divisible=False, sizes=(1,), jobs=7)
        plain, speeds, now = Plain(snapshot), Throughput(snapshot.cluster), snapshot
        for _ in range(ROUNDS):
            decision = decide(now, f"gavel-{goal}")
            now = after(now, Proposal(decision.allocation, state=decision.state), 360.0, speeds)
        ran = {j.name: j.attained for j in now.jobs}
        done = [
            sum(float(r) * ran[j.name].get(t, 0.0) for t, r in zip(plain.types, plain.rate[m], strict=True))
            for m, j in enumerate(plain.jobs)
        ]
        assert plain.measures([d / 360.0 / ROUNDS for d in done])[goal] < 1.03, seed
