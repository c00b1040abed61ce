"""Numerically hard and degenerate instances: every policy answers them, feasibly and with every job explained."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from policy.decide import decide
from policy.model import Code, Decision, Snapshot, Termination
from policy.text.answer import to_json
from policy.text.instance import parse
from tests.policy.worlds import NAMES

PROGRAMS = ("themis", "oef-noncooperative", "oef-cooperative", "gavel-max-min", "gavel-finish-time", "gavel-makespan")
NODES = [{"name": "a", "gpu_type": "k80", "gpus": 4}, {"name": "b", "gpu_type": "v100", "gpus": 4}]


def instance(rows: list[dict[str, Any]], nodes: list[dict[str, Any]] | None = None, **more: Any) -> Snapshot:
    """One elastic job a tenant, with a loss curve; `rows`: its throughput."""
    job = {
        "gpus": {"min": 1, "max": 4, "requested": 2},
        "work": {"total": 1000, "done": 1},
        "loss": [[0, 5.0], [100, 3.0], [200, 2.5]],
        **more,
    }
    jobs = [{"name": f"j{i:04}", "tenant": f"t{i:04}", "throughput": row, **job} for i, row in enumerate(rows)]
    nodes = NODES if nodes is None else nodes
    return parse(json.dumps({"now": 50.0, "cluster": {"nodes": nodes, "gpu_types": ["k80", "v100"]}, "jobs": jobs}))


def wild(seed: int, jobs: int) -> list[dict[str, Any]]:
    draw = Random(seed)
    return [{t: {str(n): 10 ** draw.uniform(-9, 9) for n in (1, 2, 4)} for t in ("k80", "v100")} for _ in range(jobs)]


HARD = {
    "all tiny": instance([{"k80": 1e-9, "v100": 2e-9}, {"k80": 1e-9, "v100": 5e-9}, {"k80": 3e-9, "v100": 4e-9}]),
    "all huge": instance([{"k80": 2e8, "v100": 4e8}, {"k80": 2e8, "v100": 1e9}]),
    "18 orders apart": instance(
        [{"k80": 1e-9, "v100": 1e9}, {"k80": 1e9, "v100": 1e-9}, {"k80": 1.0, "v100": 1.0}, {"k80": 1e-9, "v100": 1e-9}]
    ),
    "18 orders apart, rigid": instance([{"k80": 1e-9, "v100": 1e9}, {"k80": 1e9, "v100": 1e-9}], gpus=2),
    "curves that jump": instance(
        [{"k80": {"1": 1e-9, "2": 1e9, "4": 1e-9}}, {"v100": {"1": 1e9, "2": 1e-9, "4": 1e9}}]
    ),
    "random orders": instance(wild(1, 12)),
    "huge work": instance([{"k80": 1.0, "v100": 3.0}] * 3, work={"total": 1e15, "done": 0}),
    "hardly any work": instance([{"k80": 1.0, "v100": 3.0}] * 3, work={"total": 1e-6, "done": 0}),
    "long served": instance([{"k80": 1.0, "v100": 3.0}] * 3, attained={"k80": 1e12}),
    "zero rows": instance([{"k80": 0.0, "v100": 0.0}, {"k80": 1.0, "v100": 0.0}, {"k80": 0.0, "v100": 2.0}]),
    "nothing but a zero row": instance([{"k80": 0.0, "v100": 0.0}]),
    "one tenant": instance([{"k80": 1.0, "v100": 2.0}]),
    "one GPU": instance([{"k80": 1.0}, {"k80": 2.0}], [{"name": "a", "gpu_type": "k80", "gpus": 1}], gpus=1),
    "one GPU, wanted in pairs": instance([{"k80": 1.0}] * 2, [{"name": "a", "gpu_type": "k80", "gpus": 1}], gpus=2),
    "no GPU": instance([{"k80": 1.0}, {"k80": 2.0}], [{"name": "a", "gpu_type": "k80", "gpus": 0}]),
    "nodes down": instance([{"k80": 1.0}], [{"name": "a", "gpu_type": "k80", "gpus": 4, "health": "down"}]),
    "no nodes": instance([{}], []),
    "no jobs": instance([]),
    "60 equal tenants": instance([{"k80": 1.0, "v100": 3.0}] * 60),
}
IDLE = {"nothing but a zero row", "one GPU, wanted in pairs", "no GPU", "nodes down", "no nodes", "no jobs"}


def check(snapshot: Snapshot, decision: Decision) -> None:
    assert decision.certificate.feasible
    assert set(decision.reasons) == {j.name for j in snapshot.jobs}
    json.loads(to_json(decision))
    gpus = {t: sum(n.gpus for n in snapshot.cluster.nodes if n.gpu_type == t) for t in ("k80", "v100")}
    for t, n in gpus.items():
        assert sum(s.get(t, 0.0) for s in (decision.shares or {}).values()) <= n + 1e-6
    if decision.solver is not None:
        assert decision.solver.termination is Termination.OPTIMAL


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("name", HARD)
def test_it_is_answered(policy: str, name: str) -> None:
    snapshot = HARD[name]
    decision = decide(snapshot, policy)
    check(snapshot, decision)
    used = sum(sum(a.values()) for a in decision.allocation.values())
    assert (used == 0) == (name in IDLE)
    if name == "one GPU, wanted in pairs":  # nobody waits for a turn that cannot come
        assert {r.code for r in decision.reasons.values()} == {Code.INFEASIBLE}


@pytest.mark.parametrize("policy", PROGRAMS)
@pytest.mark.parametrize("name", ["all tiny", "18 orders apart", "random orders", "zero rows", "one GPU", "no jobs"])
def test_cbc_answers_it_too(policy: str, name: str) -> None:
    snapshot = HARD[name]
    decision = decide(snapshot, policy, solver="cbc")
    check(snapshot, decision)
    used = sum(sum(a.values()) for a in decision.allocation.values())
    assert (used == 0) == (name in IDLE)


@pytest.mark.parametrize("policy", ["themis", "oef-noncooperative", "oef-cooperative", "gavel-max-min"])
def test_a_thousand_equal_tenants(policy: str) -> None:
    snapshot = instance([{"k80": 1.0, "v100": 3.0}] * 1000)
    decision = decide(snapshot, policy)
    check(snapshot, decision)
    assert sum(sum(a.values()) for a in decision.allocation.values()) == 8


def test_weights_many_orders_apart_end_a_lottery() -> None:
    jobs = [{"name": n, "tenant": n, "gpus": 1} for n in "ab"]
    tenants = [{"name": "a", "weight": 1e-6}, {"name": "b", "weight": 1e9}]
    cluster = {"nodes": [{"name": "n", "gpu_type": "v100", "gpus": 2}]}
    snapshot = parse(json.dumps({"cluster": cluster, "tenants": tenants, "jobs": jobs}))
    decision = decide(snapshot, "lottery")
    assert decision.allocation == {"a": {"n": 1}, "b": {"n": 1}}


@pytest.mark.parametrize("policy", PROGRAMS)
def test_a_time_limit_that_is_over_leaves_a_decision_that_says_so(policy: str) -> None:
    snapshot = instance(wild(2, 40))
    decision = decide(snapshot, policy, time_limit_s=0.0)
    assert decision.certificate.feasible
    assert decision.solver is not None
    if decision.solver.termination is not Termination.OPTIMAL:
        assert decision.certificate.notes
