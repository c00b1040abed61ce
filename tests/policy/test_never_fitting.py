"""A job that can never run, or that only its own tenant's limit holds back, stands in nobody's way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.decide import decide
from policy.model import Code, LossForecast, Work
from policy.text.instance import parse
from policy.themis.auction.valuation import iterations_left
from tests.policy.worlds import NAMES, job

BLOCKERS: dict[str, tuple[dict[str, Any], dict[str, Any], set[Code]]] = {
    "wider than the cluster": ({"gpus": 64}, {}, {Code.INFEASIBLE}),
    "no speed here": ({"gpus": 1, "throughput": {"h100": 1.0}}, {}, {Code.INFEASIBLE, Code.UNKNOWN_SPEED}),
    "speed 0 here": ({"gpus": 2, "throughput": {"v100": 0.0}}, {}, {Code.INFEASIBLE, Code.UNKNOWN_SPEED}),
    "above its tenant's limit": ({"gpus": 2}, {"cap": 1}, {Code.WAITS_CAP}),
    "its tenant's limit is 0": ({"gpus": 1}, {"cap": 0}, {Code.WAITS_CAP}),
}


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("blocker", BLOCKERS)
@pytest.mark.parametrize("known", [True, False])
def test_it_stops_nobody(policy: str, blocker: str, known: bool) -> None:
    fields, limit, codes = BLOCKERS[blocker]
    work = {"total": 100.0} if known else {"total": None}
    first = {"name": "a", "tenant": "stuck", "submitted": 0.0, "throughput": {"v100": 1.0}, "work": work, **fields}
    others = [
        {"name": n, "tenant": n, "submitted": 1.0, "gpus": 1, "work": work, "throughput": {"v100": 1.0}} for n in "bc"
    ]  # rigid: elastic policies would grow them
    snapshot = parse(
        json.dumps(
            {
                "now": 10.0,
                "cluster": {"nodes": [{"name": "n", "gpu_type": "v100", "gpus": 4}], "gpu_types": ["v100", "h100"]},
                "tenants": [{"name": "stuck", **limit}, {"name": "b"}, {"name": "c"}],
                "jobs": [first, *others],
            }
        )
    )
    decision = decide(snapshot, policy)
    assert {n: sum(a.values()) for n, a in decision.allocation.items()} == {"a": 0, "b": 1, "c": 1}
    assert decision.reasons["a"].code in codes, decision.reasons["a"]


NEVER: dict[str, dict[str, Any]] = {
    "wider than the cluster": {"gpus": 999},
    "of a type that no node has": {"gpus": 1, "gpu_types": {"require": ["a100"]}},
    "no speed here": {"gpus": 1, "throughput": {"a100": 1.0}},
    "above its tenant's limit": {"gpus": 99, "tenant": "limited"},
}


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("never", NEVER)
@pytest.mark.parametrize("whose", ["a tenant with nothing else", "a tenant with others"])
def test_it_changes_nothing_for_the_others(policy: str, never: str, whose: str) -> None:
    """Not what they get, nor what tenants are owed by the certificate's measure. Speeds are unknown, so that a policy
    that hands out GPUs of any type is asked too; a program that looks after who has least found its least here."""
    jobs = [
        {"name": "a", "tenant": "t1", "gpus": {"min": 1, "max": 12}, "submitted": 1.0},
        {"name": "b", "tenant": "t2", "gpus": {"min": 1, "max": 12}, "submitted": 2.0},
    ]
    instance = {
        "now": 10.0,
        "cluster": {
            "groups": [{"count": 2, "gpu_type": "v100", "gpus": 4}, {"count": 2, "gpu_type": "k80", "gpus": 2}]
        },
        "tenants": [{"name": "t0"}, {"name": "t1"}, {"name": "t2"}, {"name": "limited", "cap": 2}],
        "jobs": jobs,
    }
    alone = decide(parse(json.dumps(instance)), policy)
    own = {"tenant": "t0" if whose == "a tenant with nothing else" else "t2", **NEVER[never]}
    stuck = [{"name": name, "submitted": 0.0, "work": {"total": 100.0}, **own} for name in ("aa", "zz")]
    beside = decide(parse(json.dumps({**instance, "jobs": [*jobs, *stuck]})), policy)
    assert {n: dict(a) for n, a in beside.allocation.items()} == {**alone.allocation, "aa": {}, "zz": {}}
    before, after = alone.certificate, beside.certificate
    assert (after.sharing_incentive, after.envy, after.pareto) == (before.sharing_incentive, before.envy, before.pareto)
    assert {"aa", "zz"}.isdisjoint(beside.shares or ())
    assert {beside.reasons[n].code for n in ("aa", "zz")} <= {Code.INFEASIBLE, Code.UNKNOWN_SPEED, Code.WAITS_CAP}


def test_backfill_goes_past_a_job_that_its_tenants_limit_holds_back() -> None:
    """It used to reserve for it, could not, and stopped everybody behind."""
    text = """
        cluster: {nodes: [{name: n, gpu_type: v, gpus: 4}]}
        tenants: [{name: t, cap: 1}, {name: u}]
        jobs:
          - {name: runs, tenant: u, gpus: 1, work: {total: 10}, throughput: {v: 1.0}, allocation: {n: 1}}
          - {name: wide, tenant: t, gpus: 2, work: {total: 10}, throughput: {v: 1.0}, submitted: 1}
          - {name: next, tenant: u, gpus: 2, work: {total: 10}, throughput: {v: 1.0}, submitted: 2}
        """
    for variant in ("easy", "conservative", "slurm", "aggressive"):
        decision = decide(parse(text), "fifo-backfill", {"variant": variant})
        assert decision.allocation["next"] == {"n": 2}
        assert decision.reasons["wide"].code is Code.WAITS_CAP


@pytest.mark.parametrize("policy", ["gavel-max-min", "gavel-finish-time", "gavel-makespan", "gavel-fifo"])
def test_gavel_plans_no_time_on_a_type_that_is_too_small_for_the_gang(policy: str) -> None:
    text = """
        cluster: {nodes: [{name: a, gpu_type: k, gpus: 2}, {name: b, gpu_type: v, gpus: 4}]}
        jobs:
          - {name: i, gpus: 4, work: {total: 10}, throughput: {k: 1.0, v: 1.0}}
          - {name: j, gpus: 4, work: {total: 10}, throughput: {k: 1.0, v: 1.0}}
        """
    shares = decide(parse(text), policy).shares
    assert shares is not None
    assert [s.get("k", 0.0) for s in shares.values()] == [0.0, 0.0]
    assert sum(s["v"] for s in shares.values()) == pytest.approx(4.0)


@pytest.mark.parametrize("ends", [float("nan"), float("inf"), -5.0, 0.0])
def test_a_curve_that_ends_at_no_iteration_says_nothing(ends: float) -> None:
    forecast = LossForecast("inverse", {"iterations": ends}, (0.5, float("inf")))
    one = job("j", 1, work=Work(100.0, 40.0), loss_forecast=forecast)
    assert iterations_left(one, 1.0, curve_stopping=True) == 60.0
    stops = job("j", 1, work=Work(100.0, 40.0), loss_forecast=LossForecast("inverse", {"iterations": 80.0}, (0.5, 1.5)))
    assert iterations_left(stops, 1.0, curve_stopping=True) == 60.0
    assert iterations_left(stops, 1.0) == 60.0


@pytest.mark.parametrize("policy", ["afs-p", "afs-s"])
@pytest.mark.parametrize("cap", [None, 1])
def test_afs_without_lengths_leaves_stage_one_though_a_job_can_never_run(policy: str, cap: int | None) -> None:
    """It used to share the processor for ever: nobody grew beyond its smallest gang."""
    stuck = {"name": "stuck", "gpus": 2 if cap else 64, "throughput": {"v": 1.0}}
    grows = {"name": "grows", "gpus": {"min": 1, "max": 4}, "throughput": {"v": 1.0}, "submitted": 1.0}
    snapshot = parse(
        json.dumps(
            {
                "cluster": {"nodes": [{"name": "n", "gpu_type": "v", "gpus": 4}]},
                "tenants": [{"name": "stuck", "cap": cap} if cap else {"name": "stuck"}, {"name": "grows"}],
                "jobs": [stuck, grows],
            }
        )
    )
    decision = decide(snapshot, policy)
    assert decision.allocation["grows"] == {"n": 4}
    assert decision.reasons["stuck"].code is (Code.WAITS_CAP if cap else Code.INFEASIBLE)
