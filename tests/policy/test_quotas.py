"""What a site's limits bind and what they do not: whoever is outside of them sees nothing of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import catalogue, decide
from policy.model import Cluster, Code, GpuRange, Job, Limits, Node, PolicyChoice, Quota, Snapshot, Tenant, Work
from policy.parts.quotas import divided
from policy.text import instance

_LONG = Work(1e9, 0.0)
NODES = tuple(Node(f"n{at}", "v100", 4) for at in range(8))


def elastic(name: str, held: dict[str, int] | None = None, low: int = 1, high: int = 32, at_s: float = 0.0) -> Job:
    rates = {"v100": {count: float(count) for count in (1, 32)}}
    return Job(name, "lab", name, GpuRange(low, low, high), at_s, throughput=rates, allocation=held or {}, work=_LONG)


def seen(jobs: tuple[Job, ...], *quotas: Quota, policy: str = "max-min") -> Snapshot:
    cluster = Cluster(NODES, gpu_types=("v100",))
    return Snapshot(cluster, jobs, (Tenant("lab"),), policy=PolicyChoice(policy), quotas=quotas)


def sizes(snapshot: Snapshot) -> dict[str, int]:
    return {name: sum(nodes.values()) for name, nodes in decide.decide(snapshot).allocation.items()}


def test_a_limit_of_one_users_qos_binds_his_jobs_and_nobody_else() -> None:
    """Bob's QOS lets him hold 4 GPUs; alice, of the same account, was kept at 8 with 24 idle."""
    jobs = (elastic("bob1"), elastic("bob2"), elastic("alice"))
    given = seen(jobs, Quota("QOS small of user bob", ("bob1", "bob2"), gpus=4))
    assert sizes(given) == {"bob1": 2, "bob2": 2, "alice": 28}
    decision = decide.decide(given)
    assert decision.certificate.work_conserving
    assert decision.reasons["bob1"].numbers["limit"] == "QOS small of user bob"
    assert "limit" not in decision.reasons["alice"].numbers


def test_who_finds_no_room_waits_and_is_told_which_limit_it_is() -> None:
    jobs = (elastic("a", {"n0": 4}, low=4), elastic("b", low=2, at_s=1.0), elastic("c", at_s=2.0), elastic("d"))
    given = seen(jobs, Quota("account lab", ("a", "b", "c"), gpus=5), Quota("jobs of user x", ("d",), jobs=0))
    decision = decide.decide(given)
    assert sizes(given) == {"a": 4, "b": 0, "c": 1, "d": 0}
    assert decision.reasons["b"].code is Code.WAITS_CAP
    assert decision.reasons["b"].text.startswith("account lab: it leaves no room for this one, since its other jobs")
    assert decision.reasons["d"].text == "jobs of user x: it leaves no room for this one", "nobody holds any of it"
    assert decision.reasons["d"].change == "a higher limit"
    assert decision.reasons["d"].numbers["limit_jobs"] == 0
    assert list(decision.allocation) == ["a", "b", "c", "d"]


def test_a_limit_that_came_later_takes_nothing_from_a_job_that_cannot_shrink() -> None:
    rigid = Job("r", "lab", "r", GpuRange(8, 8, 8), throughput={"v100": {8: 1.0}}, allocation={"n0": 4, "n1": 4})
    assert sizes(seen((rigid, elastic("e")), Quota("account lab", ("r", "e"), gpus=4))) == {"r": 8, "e": 0}


def test_sizes_that_are_not_allowed_are_not_parts() -> None:
    rates = {"v100": {1: 1.0, 4: 4.0}}
    odd = Job("o", "lab", "o", GpuRange(1, 1, 4, (1, 4)), throughput=rates, work=_LONG)
    assert sizes(seen((odd,), Quota("q", ("o",), gpus=3))) == {"o": 1}


@pytest.mark.parametrize("policy", sorted(catalogue.entries()))
def test_under_every_policy(policy: str) -> None:
    jobs = tuple(elastic(f"j{at}", at_s=float(at)) for at in range(6))
    given = seen(jobs, Quota("q", ("j0", "j1", "j2"), gpus=4, jobs=2), policy=policy)
    got = sizes(given)
    assert sum(got[name] for name in ("j0", "j1", "j2")) <= 4
    assert sum(bool(got[name]) for name in ("j0", "j1", "j2")) <= 2
    assert sum(got.values()) > 4, "others are not bound"


@pytest.mark.parametrize("policy", sorted(catalogue.entries()))
def test_limits_on_nodes_hold_under_every_policy(policy: str) -> None:
    """Three GPUs of a node, and no more than two nodes; what it held before the limit came it may hold on."""
    wide = replace(elastic("wide"), gpus=GpuRange(6, 1, 32))
    jobs = (wide, elastic("held", {"n0": 4, "n1": 4, "n2": 4}, low=12, high=12), elastic("free"))
    given = seen(jobs, Quota("q", ("wide", "held"), nodes=2, gpus_per_node=3), policy=policy)
    decision = decide.decide(given)
    got = decision.allocation["wide"]
    assert len(got) <= 2
    assert max(got.values(), default=0) <= 3
    assert decision.allocation["held"] in ({}, jobs[1].allocation)
    assert decision.certificate.feasible
    assert decision.allocation["wide"] or decision.allocation["free"]


@pytest.mark.parametrize("equal", [False, True])
def test_as_much_is_had_as_limits_on_nodes_let(equal: bool) -> None:
    cluster = Cluster(NODES, Limits(equal_gpus_per_node=equal), ("v100",))
    for quota, most in (
        (Quota("q", ("a",), 6, nodes=2, gpus_per_node=3), 6),
        (Quota("q", ("a",), 8, gpus_per_node=1), 8),
        (Quota("q", ("a",), 4, nodes=1), 4),
    ):
        snapshot = Snapshot(cluster, (elastic("a"),), (Tenant("lab"),), quotas=(quota,))
        decision = decide.decide(snapshot, "max-min")
        assert sum(decision.allocation["a"].values()) == most
        assert decision.certificate.feasible
        assert decision.certificate.work_conserving


def test_nobody_is_given_fewer_than_a_limit_wants_him_to_hold() -> None:
    jobs = tuple(elastic(f"j{at}", at_s=float(at)) for at in range(20))
    got = sizes(seen(jobs, Quota("q", tuple(job.name for job in jobs[:10]), least=4)))
    assert all(got[job.name] == 0 or got[job.name] >= 4 for job in jobs[:10])
    assert sum(got.values()) == 32


def test_a_least_that_came_later_takes_nothing_and_one_beyond_a_job_is_the_clusters_to_tell() -> None:
    jobs = (elastic("runs", {"n0": 1}, high=1), elastic("small", high=2), elastic("holds", {"n1": 2}))
    assert divided(seen(jobs, Quota("q", ("runs", "small", "holds"), least=4)))[0].jobs == jobs


def test_a_job_that_no_limited_number_of_nodes_holds_waits_for_ever() -> None:
    given = seen((elastic("a", low=8), elastic("b")), Quota("q", ("a",), nodes=1))
    assert sizes(given) == {"a": 0, "b": 32}
    assert decide.decide(given).reasons["a"].code is Code.INFEASIBLE


@given(st.data())
def test_parts_keep_within_all_quotas(data: st.DataObject) -> None:
    names = [f"j{at}" for at in range(data.draw(st.integers(1, 6)))]
    ranges = [(low, low + data.draw(st.integers(0, 8))) for low in data.draw(st.lists(st.integers(1, 6), min_size=6))]
    jobs = tuple(elastic(name, low=low, high=high) for name, (low, high) in zip(names, ranges, strict=False))
    quotas = tuple(
        Quota(
            f"q{at}",
            tuple(data.draw(st.lists(st.sampled_from(names), unique=True))),
            data.draw(st.none() | st.integers(0, 20)),
            data.draw(st.none() | st.integers(0, 4)),
        )
        for at in range(data.draw(st.integers(0, 4)))
    )
    within, barred, narrowed = divided(seen(jobs, *quotas))
    most = {job.name: job.gpus.max or 0 for job in within.jobs}
    least = {job.name: job.gpus.min for job in within.jobs}
    assert set(most) | set(barred) == set(names)
    assert set(narrowed) <= set(most)
    for quota in quotas:
        inside = [name for name in quota.whom if name in most]
        assert quota.jobs is None or len(inside) <= quota.jobs
        assert quota.gpus is None or sum(most[name] for name in inside) <= quota.gpus
    for job in jobs:
        if job.name in least:
            assert least[job.name] == job.gpus.min <= most[job.name] <= (job.gpus.max or 0)


def test_the_instance_file_says_them() -> None:
    text = """
cluster: {groups: [{count: 2, gpu_type: v100, gpus: 4}]}
tenants: [{name: lab}, {name: other}]
quotas:
  - {name: account lab, gpus: 4, match: {tenant: lab}}
  - {name: two at a time, jobs: 2, match: {jobs: [c]}}
jobs:
  - {name: a, tenant: lab, gpus: 1}
  - {name: b, tenant: lab, gpus: 1}
  - {name: c, tenant: other, gpus: 1}
"""
    found = instance.parse(text)
    assert found.quotas == (Quota("account lab", ("a", "b"), gpus=4), Quota("two at a time", ("c",), jobs=2))
    assert instance.parse(instance.to_text(found)).quotas == found.quotas


@pytest.mark.parametrize("policy", ["max-min", "afs-l", "gavel-max-min", "themis", "srtf-e"])
def test_who_is_stopped_to_get_other_gpus_has_its_place_in_a_limit_still(policy: str) -> None:
    """Of two of which one may run, the one that ran was stopped to grow, and the other took its place."""
    jobs = (elastic("early"), elastic("runs", {"n0": 2}, at_s=1.0))
    given = seen(jobs, Quota("jobs of user x", ("early", "runs"), jobs=1), policy=policy)
    first = decide.decide(given)
    assert not first.allocation["early"] and first.allocation["runs"] not in ({}, {"n0": 2})
    stopped = replace(given, jobs=(jobs[0], replace(jobs[1], allocation={})), state=first.state)
    assert decide.decide(stopped).allocation == first.allocation
