"""Random instances near each case of `test_cases.py`, against counts that a plain loop or a formula gives.

Trades and tenant-level instances: `gandiva_fair/test_trades.py`, `gavel/test_exact.py`; numbers of many orders of
magnitude: `oef/test_scales.py`; everything at once: `test_mixtures.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from policy import catalogue
from policy.decide import decide
from policy.model import (
    App,
    Cluster,
    Code,
    Decision,
    GpuRange,
    Health,
    Job,
    Limits,
    Node,
    Snapshot,
    Tenant,
    Work,
)

POLICIES = sorted(catalogue.entries())
NEVER_IDLE = [name for name in POLICIES if not set(catalogue.find(name).idle) - {"packed", "demand"}]
SEEDS = range(12)


def nodes(random: Random, types: Iterable[str] = ("g",)) -> tuple[Node, ...]:
    kinds = tuple(types)
    return tuple(
        Node(f"n{i}", random.choice(kinds), random.choice((1, 2, 3, 4, 8))) for i in range(random.randint(1, 4))
    )


def snapshot(where: tuple[Node, ...], jobs: Iterable[Job], limits: Limits = Limits(), **more: object) -> Snapshot:  # noqa: B008
    listed = tuple(jobs)
    tenants = more.pop("tenants", None) or tuple(Tenant(t) for t in dict.fromkeys(j.tenant for j in listed))
    types = tuple(dict.fromkeys(n.gpu_type for n in where))
    return Snapshot(Cluster(where, limits, types), listed, tenants, 1000.0, **more)  # type: ignore[arg-type]


def used(decision: Decision, *names: str) -> int:
    return sum(sum(decision.allocation[n].values()) for n in names or decision.allocation)


def holds(where: tuple[Node, ...], size: int, equal: bool) -> bool:
    """Whether nodes of one type with nobody on them hold a gang."""
    if not equal:
        return sum(n.gpus for n in where) >= size
    return any(size % k == 0 and sum(n.gpus >= size // k for n in where) >= k for k in range(1, len(where) + 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_requests_more_than_there_is_runs_at_the_largest_size_that_fits(seed: int) -> None:
    random = Random(seed)
    where, equal = nodes(random), bool(seed % 2)
    total = sum(n.gpus for n in where)
    least = random.choice((1, 1, 2, 3))
    above = random.choice((total + 1, total + 3, 64))
    sizes = tuple(sorted({least, random.randint(least, 12), above + least}))
    gpus = (
        GpuRange(sizes[-1], sizes[0], sizes[-1], sizes)
        if seed % 3 == 0
        else GpuRange(above + least, least, above + least)
    )
    table = {"g": {n: float(n) for n in (1, 2, 4, 8, 128)}} if seed % 4 else {}
    job = Job("e", "t", "e", gpus, throughput=table, work=Work(1e6, 0.0))
    fitting = [s for s in range(1, total + 1) if gpus.feasible(s) and holds(where, s, equal)]
    right = max(fitting, default=0)
    for policy in POLICIES:
        decision = decide(snapshot(where, [job], Limits(equal_gpus_per_node=equal)), policy)
        # Steps of growth end where no next size has a place, so elastic policies may stop before a gap.
        assert used(decision) == right or (used(decision) in fitting and policy in NEVER_IDLE and equal), policy
        assert right or decision.reasons["e"].code is Code.INFEASIBLE, policy


@pytest.mark.parametrize("seed", SEEDS)
def test_elastic_jobs_of_unknown_length_or_speed_take_all_that_they_can_use(seed: int) -> None:
    random = Random(seed)
    where = nodes(random)
    jobs, most = [], 0
    for i in range(random.randint(1, 5)):
        top = random.choice((1, 2, 5, 40))
        most += top
        table = {"g": {1: 1.0, 64: 64.0}} if random.random() < 0.6 else {}
        work = Work(random.choice((None, 1e4)), 0.0)
        jobs.append(Job(f"j{i}", f"t{i % 2}", f"j{i}", GpuRange(1, 1, top), float(i), work, table))
    for policy in NEVER_IDLE:
        assert used(decide(snapshot(where, jobs), policy)) == min(most, sum(n.gpus for n in where)), policy


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_does_nothing_on_few_gpus_or_on_one_type_runs_where_it_does(seed: int) -> None:
    """Its first sizes, or a type, have a rate of 0; with others beside it that leave room."""
    random = Random(seed)
    first = random.choice((2, 3, 4))
    rates = {n: 0.0 if n < first else float(n) for n in range(1, 5)}
    dead = dict.fromkeys(rates, 0.0)
    table = {"k80": random.choice((rates, dead)), "v100": rates}
    where = (Node("a", "k80", 4), Node("b", "v100", 4), Node("c", "v100", 4))
    odd = Job("odd", "t", "odd", GpuRange(4, 1, 4), 5.0, Work(1e6), table)
    held = {"a": 2} if seed % 2 else {}
    runs = Job("runs", "u", "runs", GpuRange(2, 1, 2), 0.0, Work(1e6), {"k80": {1: 1.0, 2: 2.0}}, allocation=held)
    for policy in POLICIES:
        decision = decide(snapshot(where, [odd, runs]), policy)
        assert used(decision, "odd") == 4, policy
        assert decision.certificate.work_conserving, policy


@pytest.mark.parametrize("seed", SEEDS)
def test_behind_a_wide_gang_that_waits_running_jobs_take_what_is_idle(seed: int) -> None:
    random = Random(seed)
    where = nodes(random)
    total = sum(n.gpus for n in where)
    wide = Job("wide", "w", "wide", GpuRange(total, total, total), 0.0, Work(None), {"g": {1: 1.0, 64: 64.0}})
    runs = Job("runs", "r", "runs", GpuRange(1, 1, 64), 1.0, Work(None), {"g": {1: 1.0, 64: 64.0}},
               allocation={where[0].name: 1})  # fmt: skip
    for policy in NEVER_IDLE:
        decision = decide(snapshot(where, [wide, runs]), policy)
        assert used(decision) == total, policy


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("one_type", [False, True])
def test_a_gang_that_only_several_types_hold_runs_where_the_cluster_can_mix_them(seed: int, one_type: bool) -> None:
    random = Random(seed)
    where = (*nodes(random, ("k80",)), *(Node(f"v{i}", "v100", random.randint(1, 4)) for i in range(2)))
    slow = sum(n.gpus for n in where if n.gpu_type == "k80")
    fast = sum(n.gpus for n in where) - slow
    size = random.randint(max(slow, fast) + 1, slow + fast)
    table = {"k80": {1: 1.0, 64: 64.0}, "v100": {1: 3.0, 64: 192.0}} if seed % 2 else {}
    gang = Job("gang", "t", "gang", GpuRange(size, size, size), throughput=table)
    for policy in POLICIES:
        decision = decide(snapshot(where, [gang], Limits(one_type_per_job=one_type)), policy)
        assert used(decision) == (0 if one_type else size), policy
        assert not one_type or decision.reasons["gang"].code is Code.INFEASIBLE, policy


@pytest.mark.parametrize("knob", [0.0, 0.34, 0.8, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_themis_runs_every_job_that_has_a_gpu_whatever_its_app(seed: int, knob: float) -> None:
    """One-GPU jobs of apps with many, some on a draining node, under leases, tenants with limits."""
    random = Random(seed)
    up = nodes(random)
    drain = Node("drain", "g", 4, health=Health.DRAIN)
    tenants = tuple(Tenant(f"t{i}", cap=random.choice((None, None, 0, 2))) for i in range(3))
    room = {n.name: n.gpus for n in (*up, drain)}
    left = {t.name: t.cap if t.cap is not None else 99 for t in tenants}
    jobs = []
    for i in range(random.randint(1, 12)):
        tenant = random.choice(tenants).name
        held = random.choice([None, None, "drain", *(n.name for n in up)])
        place = {held: 1} if held and room[held] and left[tenant] else {}
        if place and held:
            room[held] -= 1
            left[tenant] -= 1
        lease = {held: (random.choice((900.0, 1100.0)),)} if place and held else {}
        length = Work(float(random.choice((100, 5000))), 0.0)
        app = f"{tenant}-{random.randint(0, 1)}"
        jobs.append(Job(f"j{i}", tenant, app, GpuRange(1, 1, 1), float(i), length, {"g": {1: 1.0}},
                        allocation=place, lease_until=lease))  # fmt: skip
    held_there = {j.name for j in jobs if "drain" in j.allocation}
    decision = decide(snapshot((*up, drain), jobs, tenants=tenants), "themis", {"fairness_knob": knob}, seed)
    assert decision.certificate.feasible
    # On the draining node stays who is there, or moves: GPUs that are up go to as many as have a limit that allows it.
    able = sum(min(99 if t.cap is None else t.cap, sum(j.tenant == t.name for j in jobs)) for t in tenants)
    running = used(decision)
    stay = sum("drain" in decision.allocation[n] for n in held_there)
    assert running == min(able, sum(n.gpus for n in up) + stay)


def test_an_app_of_which_one_job_can_never_run_bids_for_the_others() -> None:
    """rho counts the jobs that can run: an app is not worth nothing for one that no node holds."""
    where = (Node("n", "g", 2),)
    lost = Job("lost", "a", "a", GpuRange(1, 1, 1), throughput={"other": {1: 1.0}}, work=Work(100.0))
    runs = Job("runs", "a", "a", GpuRange(1, 1, 1), throughput={"g": {1: 1.0}}, work=Work(100.0))
    rival = Job("rival", "b", "b", GpuRange(1, 1, 2), 5.0, throughput={"g": {1: 1.0, 2: 2.0}}, work=Work(100.0))
    apps = (App("a", "external"), App("b", "external"))
    decision = decide(snapshot(where, [lost, runs, rival], apps=apps), "themis", {"fairness_knob": 0.0})
    assert used(decision, "runs") == used(decision, "rival") == 1
    assert decision.reasons["runs"].numbers["won"] == 1
