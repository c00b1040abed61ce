"""What holds for every policy of the catalogue, on random instances: the names of the interface, checked together."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy import catalogue
from policy.decide import decide
from policy.model import Decision, Snapshot
from policy.text.answer import from_json, to_json
from policy.text.instance import parse, to_text
from tests.policy.worlds import NAMES

#: the interface: to rename one is to break somebody; a new one needs no line here
PROMISED = {
    "themis",
    "oef-noncooperative",
    "oef-cooperative",
    "afs-l",
    "afs-p",
    "afs-s",
    "gandiva-fair",
    "gavel-max-min",
    "gavel-finish-time",
    "gavel-makespan",
    "gavel-fifo",
    "max-min",
    "drf",
    "fifo",
    "fifo-backfill",
    "srtf",
    "srtf-e",
    "srsf",
    "srsf-e",
    "las",
    "tiresias-l",
    "gandiva",
    "optimus",
    "slaq",
    "lottery",
    "lottery-backfill",
}

POLICIES = pytest.mark.parametrize("policy", NAMES)
RANDOM = settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])


def test_the_catalogue_is_the_interface() -> None:
    assert set(catalogue.entries()) >= PROMISED
    calls = [entry.call for entry in catalogue.entries().values()]
    assert len(set(calls)) == len(calls), "no policy is an alias of another"
    assert all(e.summary and e.paper and e.section for e in catalogue.entries().values())


@st.composite
def instances(draw: st.DrawFn) -> dict[str, Any]:
    types = draw(st.sampled_from([["v100"], ["k80", "v100"], ["k80", "p100", "v100"]]))
    nodes = [
        {"name": f"n{i}", "gpu_type": draw(st.sampled_from(types)), "gpus": draw(st.sampled_from([1, 2, 4])),
         "health": draw(st.sampled_from(["up", "up", "up", "down"]))}
        for i in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    present = sorted({n["gpu_type"] for n in nodes})
    jobs = []
    for i in range(draw(st.integers(0, 6))):
        low = draw(st.sampled_from([1, 1, 2]))
        high = draw(st.sampled_from([low, low * 2, 4 * low]))
        base = draw(st.floats(0.5, 4.0))
        curve = {str(n): round(base * n**0.8, 6) for n in (1, 2, 4, 8)}
        jobs.append({
            "name": f"j{i}", "tenant": f"t{i % 3}", "submitted": float(draw(st.integers(0, 50))),
            "gpus": {"min": low, "max": high, "requested": draw(st.sampled_from([low, high]))},
            "work": {"total": draw(st.one_of(st.none(), st.integers(50, 5000))), "done": draw(st.integers(0, 40))},
            "throughput": dict.fromkeys(present, curve) if draw(st.booleans()) else {},
            "attained": {t: float(draw(st.integers(0, 9000))) for t in present[:1]},
        })  # fmt: skip
    return {"now": 100.0, "cluster": {"nodes": nodes}, "jobs": jobs}


def plain(decision: Decision) -> str:
    return re.sub(r'"seconds": ?[0-9.e-]+', '"seconds": 0', to_json(decision))


def check(snapshot: Snapshot, decision: Decision) -> None:
    assert decision.certificate.feasible
    assert set(decision.allocation) == set(decision.reasons) == {j.name for j in snapshot.jobs}
    assert all(r.text for r in decision.reasons.values())
    for job in snapshot.jobs:
        held = sum(decision.allocation[job.name].values())
        assert job.gpus.feasible(held), (job.name, held)


@POLICIES
@RANDOM
@given(instance=instances())
def test_feasible_explained_and_the_same_bytes_again(policy: str, instance: dict[str, Any]) -> None:
    snapshot = parse(json.dumps(instance))
    first = decide(snapshot, policy, seed=5)
    check(snapshot, first)
    assert plain(decide(parse(to_text(snapshot)), policy, seed=5)) == plain(first)
    assert plain(from_json(to_json(first))) == plain(first)


@POLICIES
@RANDOM
@given(instance=instances(), order=st.randoms(use_true_random=False))
def test_the_order_of_jobs_in_the_file_means_nothing(policy: str, instance: dict[str, Any], order: Any) -> None:
    tenants = [{"name": t} for t in sorted({j["tenant"] for j in instance["jobs"]})]
    snapshot = parse(json.dumps({**instance, "tenants": tenants}))
    shuffled = list(instance["jobs"])
    order.shuffle(shuffled)
    other = parse(json.dumps({**instance, "tenants": tenants, "jobs": shuffled}))
    a, b = decide(snapshot, policy, seed=5), decide(other, policy, seed=5)
    assert {n: dict(x) for n, x in a.allocation.items()} == {n: dict(x) for n, x in b.allocation.items()}


@POLICIES
@RANDOM
@given(instance=instances())
def test_its_state_survives_the_file_and_the_next_round_goes_on_from_it(policy: str, instance: dict[str, Any]) -> None:
    snapshot = parse(json.dumps(instance))
    first = decide(snapshot, policy)
    jobs = tuple(replace(j, allocation=first.allocation[j.name]) for j in snapshot.jobs)
    leases = {j.name: first.leases.get(j.name, {}) for j in jobs}
    jobs = tuple(replace(j, lease_until=leases[j.name]) for j in jobs)
    later = replace(snapshot, jobs=jobs, state=first.state, now_s=160.0)
    again = parse(to_text(later))
    assert again == later
    second = decide(again, policy)
    check(again, second)
    assert plain(decide(later, policy)) == plain(second)


@POLICIES
@RANDOM
@given(instance=instances())
def test_an_idle_node_more_takes_nothing_from_the_total(policy: str, instance: dict[str, Any]) -> None:
    """More GPUs never leave fewer jobs' GPUs in use, for policies without a gang order of their own."""
    snapshot = parse(json.dumps(instance))
    more = {"name": "spare", "gpu_type": instance["cluster"]["nodes"][0]["gpu_type"], "gpus": 4}
    cluster = {"nodes": [*instance["cluster"]["nodes"], more]}
    wider = parse(json.dumps({**instance, "cluster": cluster}))
    check(wider, decide(wider, policy))
    if policy in ("max-min", "afs-l", "afs-p", "afs-s"):
        before = sum(sum(a.values()) for a in decide(snapshot, policy).allocation.values())
        after = sum(sum(a.values()) for a in decide(wider, policy).allocation.values())
        assert after >= before


@POLICIES
def test_an_option_that_does_not_exist_is_refused_with_the_list(policy: str) -> None:
    from policy.model import BadInput

    snapshot = parse("cluster: {nodes: [{name: n, gpu_type: v100, gpus: 1}]}\njobs: []")
    with pytest.raises(BadInput, match="no option 'frobnicate'"):
        decide(snapshot, policy, {"frobnicate": 1})
