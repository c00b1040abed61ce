"""fifo and max-min against their definitions, and what every greedy policy keeps when the snapshot is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decide import decide
from policy.model import Code, Decision, GpuRange, Health, Limits, Snapshot, Tenant, Work
from tests.policy import metamorphic
from tests.policy.worlds import cluster, job, snapshots, sublinear, world

GREEDY = ("fifo", "max-min", "afs-l")


def counts(decision: Decision) -> dict[str, int]:
    return metamorphic.counts(decision)


# --- fifo ----------------------------------------------------------------------------------------------------


def test_a_gang_that_does_not_fit_stops_the_queue() -> None:
    a, b, c = job("a", 3), job("b", 2, submitted_s=1.0), job("c", 1, submitted_s=2.0)
    decision = decide(world(cluster("n v 4"), c, b, a), "fifo")
    assert counts(decision) == {"a": 3, "b": 0, "c": 0}
    assert decision.reasons["b"].code is Code.WAITS_CAPACITY
    assert decision.reasons["c"].code is Code.WAITS_TURN
    assert decision.reasons["c"].numbers["ahead"] == "b"
    assert not decision.certificate.work_conserving


def test_ties_go_by_name() -> None:
    assert counts(decide(world(cluster("n v 1"), job("b", 1), job("a", 1)), "fifo")) == {"b": 0, "a": 1}


def test_what_runs_is_never_stopped() -> None:
    late, early = job("late", 3, submitted_s=9.0, allocation={"n": 3}), job("early", 2)
    assert counts(decide(world(cluster("n v 4"), early, late), "fifo")) == {"early": 0, "late": 3}


def test_jobs_that_can_never_run_and_capped_ones_stop_nobody() -> None:
    a, b, c = job("a", 9), job("b", 2, tenant="t"), job("c", 1)
    s = world(cluster("n v 4"), a, b, c, tenants=(Tenant("a"), Tenant("t", cap=1), Tenant("c")))
    assert counts(decide(s, "fifo")) == {"a": 0, "b": 0, "c": 1}


def test_who_could_run_smaller_but_never_as_requested_is_to_have_what_fits() -> None:
    """b's request could never be met; 4 of its range could, and nobody overtakes it on the way to them."""
    a, b, c = job("a", 3), job("b", (2, 9)), job("c", 1)
    b = replace(b, gpus=replace(b.gpus, requested=5))
    decision = decide(world(cluster("n v 4"), a, b, c), "fifo")
    assert counts(decision) == {"a": 3, "b": 0, "c": 0}
    assert decision.reasons["b"].code is Code.WAITS_CAPACITY
    assert counts(decide(world(cluster("n v 4"), b, c), "fifo")) == {"b": 4, "c": 0}


def test_elastic_jobs_get_what_they_requested() -> None:
    a = job("a", (1, 8))
    a = replace(a, gpus=replace(a.gpus, requested=3))
    assert counts(decide(world(cluster("n v 4"), a), "fifo")) == {"a": 3}


@settings(max_examples=100, deadline=None)
@given(snapshots(plain=True))
def test_fifo_is_the_longest_prefix_of_the_queue(s: Snapshot) -> None:
    """On plain nodes a gang fits iff enough GPUs of types that it can use are free: checked job by job."""
    jobs = tuple(replace(j, allocation={}, lease_until={}, throughput={}) for j in s.jobs)
    s = replace(s, jobs=jobs)
    free = total = sum(n.gpus for n in s.cluster.nodes)
    expected = {}
    stopped = False
    for j in sorted(jobs, key=lambda j: j.order):
        size = j.gpus.at_most(min(j.gpus.requested, total))
        runs = j.work.left != 0 and not stopped and 0 < size <= free
        expected[j.name] = size if runs else 0
        free -= expected[j.name]
        stopped |= not runs and j.work.left != 0 and size > 0
    assert counts(decide(s, "fifo")) == expected


# --- max-min -------------------------------------------------------------------------------------------------


def test_water_filling_by_weight() -> None:
    a, b = job("a", (1, None)), job("b", (1, None))
    s = world(cluster("n v 9"), a, b, tenants=(Tenant("a", 2.0), Tenant("b", 1.0)))
    assert counts(decide(s, "max-min")) == {"a": 6, "b": 3}


def test_what_one_cannot_use_goes_to_the_others() -> None:
    a, b, c = job("a", (1, 2)), job("b", (1, None)), job("c", (1, None))
    assert counts(decide(world(cluster("n v 9"), a, b, c), "max-min")) == {"a": 2, "b": 4, "c": 3}


def test_tenants_or_jobs_are_the_equals() -> None:
    jobs = [job(f"a{i}", (1, None), tenant="a") for i in range(3)] + [job("b", (1, None))]
    s = world(cluster("n v 8"), *jobs)
    assert counts(decide(s, "max-min")) == {"a0": 2, "a1": 1, "a2": 1, "b": 4}
    assert counts(decide(s, "max-min", {"over": "job"})) == {"a0": 2, "a1": 2, "a2": 2, "b": 2}


def test_a_gang_that_does_not_fit_is_skipped() -> None:
    a, b = job("a", 5), job("b", (1, None), submitted_s=1.0)
    assert counts(decide(world(cluster("n v 4"), a, b), "max-min")) == {"a": 0, "b": 4}


def test_no_more_than_helps() -> None:
    a = job("a", (1, 8), throughput={"v": {1: 1.0, 2: 2.0, 8: 2.0}})
    decision = decide(world(cluster("n v 4"), a, job("b", 1)), "max-min")
    assert counts(decision) == {"a": 2, "b": 1}
    assert decision.reasons["a"].code is Code.NO_GAIN
    assert decision.certificate.work_conserving


@settings(max_examples=120, deadline=None)
@given(st.data(), st.integers(1, 20), st.sampled_from(("tenant", "job")))
def test_max_min_fairness(data: st.DataObject, gpus: int, over: str) -> None:
    """Whoever could use one more GPU has, by weight, no less than anybody had before their last GPU."""
    tenants = tuple(Tenant(f"t{i}", data.draw(st.sampled_from((0.5, 1.0, 2.0, 3.0)))) for i in range(3))
    jobs = [
        job(
            f"j{i}",
            (1, data.draw(st.none() | st.integers(1, 8))),
            tenant=data.draw(st.sampled_from(tenants)).name,
            submitted_s=float(data.draw(st.integers(0, 1))),
        )
        for i in range(data.draw(st.integers(1, 6)))
    ]
    s = world(cluster(f"n v {gpus}"), *jobs, tenants=tenants)
    has = counts(decide(s, "max-min", {"over": over}))
    weight = {t.name: t.weight for t in tenants}
    limit = {j.name: j.gpus.max if j.gpus.max is not None else gpus for j in jobs}
    assert sum(has.values()) == min(gpus, sum(limit.values()))

    def holder(name: str) -> str:
        return next(j.tenant for j in jobs if j.name == name) if over == "tenant" else name

    total: dict[str, int] = {}
    for name, n in has.items():
        total[holder(name)] = total.get(holder(name), 0) + n
    level = {h: weight[h] if over == "tenant" else weight[next(j.tenant for j in jobs if j.name == h)] for h in total}
    for hungry in jobs:
        if has[hungry.name] < limit[hungry.name]:
            mine = total[holder(hungry.name)] / level[holder(hungry.name)]
            for h, n in total.items():
                if h != holder(hungry.name) and n:
                    assert (n - 1) / level[h] <= mine + 1e-9
            if over == "tenant":  # and within a tenant
                for j in jobs:
                    if j.tenant == hungry.tenant and has[j.name]:
                        assert has[j.name] - 1 <= has[hungry.name]


# --- all of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", metamorphic.CHANGES)
@settings(max_examples=40, deadline=None)
@given(snapshots(concave=True), st.sampled_from(GREEDY))
def test_metamorphic(
    change: Callable[[Snapshot], tuple[Snapshot, metamorphic.Translate]], s: Snapshot, policy: str
) -> None:
    if change is metamorphic.renamed or change is metamorphic.in_other_units or change is metamorphic.reordered:
        s = replace(s, policy=None)
    metamorphic.check(s, policy, change)


@settings(max_examples=60, deadline=None)
@given(snapshots(plain=True, concave=True), st.sampled_from(("max-min", "afs-l")))
def test_elastic_policies_leave_nothing_idle_that_helps(s: Snapshot, policy: str) -> None:
    jobs = tuple(
        replace(
            j,
            gpus=replace(j.gpus, min=1, allowed=None, max=None, requested=1),
            slowdown=replace(j.slowdown, rack=1.0, cluster=1.0),
        )
        for j in s.jobs
    )
    decision = decide(replace(s, jobs=jobs), policy)
    assert decision.certificate.work_conserving
    assert decision.certificate.pareto is not None


def test_equal_gpus_per_node_shrinks_to_a_shape_that_runs() -> None:
    where = replace(cluster("a v 4", "b v 3"), limits=Limits(equal_gpus_per_node=True))
    x = job("x", (1, 8), throughput={"v": sublinear(1.0, 0.9, 8)})
    decision = decide(world(where, x), "max-min")
    assert decision.allocation["x"] == {"a": 3, "b": 3}
    assert decision.certificate.feasible


def test_draining_nodes_keep_who_is_there() -> None:
    where = cluster("a v 4", "b v 4")
    where = replace(where, nodes=(replace(where.nodes[0], health=Health.DRAIN), where.nodes[1]))
    x = job("x", 2, allocation={"a": 2})
    y = job("y", (1, 8))
    for policy in GREEDY:
        decision = decide(world(where, x, y), policy)
        assert decision.allocation["x"] == {"a": 2}, policy
        assert decision.allocation["y"] in ({"b": 4}, {}), policy


# --- what stands, and what does not --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["max-min", "afs-l", "afs-p", "afs-s", "optimus", "slaq", "srtf-e"])
def test_gpus_that_slow_a_job_down_do_not_stay_with_it(policy: str) -> None:
    falls = {"v100": {1: 1.0, 2: 2.0, 4: 4.0, 8: 2.0}}
    held = job("a", (1, 8), throughput=falls, allocation={"n0": 8}, work=Work(1e4), loss=())
    decision = decide(world(cluster("n0 v100 8"), replace(held, gpus=GpuRange(1, 1, 8))), policy)
    assert decision.allocation["a"] == {"n0": 4}


def test_a_share_that_is_packed_does_not_stay_wider() -> None:
    held = job("a", (1, 3), throughput={"v100": {1: 1.0}}, allocation={"n0": 3}, work=Work(1e4))
    decision = decide(world(cluster("n0 v100 4"), held), "afs-l", {"network_packing": True})
    assert decision.allocation["a"] == {"n0": 2}


def test_whoever_waits_comes_before_what_others_hold_beyond_their_share() -> None:
    elastic = {"throughput": {"v100": {1: 1.0, 8: 8.0}}, "work": Work(1e4)}
    jobs = [job("a", (1, 8), allocation={"n0": 8}, **elastic), job("b", (1, 8), submitted_s=1.0, **elastic)]
    decision = decide(world(cluster("n0 v100 8"), *jobs), "max-min")
    assert {name: sum(place.values()) for name, place in decision.allocation.items()} == {"a": 4, "b": 4}


def test_nobody_moves_to_another_type_on_which_it_is_as_fast() -> None:
    alike = {"throughput": {"k80": {1: 1.0}, "v100": {1: 1.0}}, "work": Work(1e4)}
    where = cluster("n0 k80 4", "n1 v100 4")
    decision = decide(world(where, job("a", 4, allocation={"n0": 4}, **alike)), "max-min")
    assert decision.allocation["a"] == {"n0": 4}
    # but it makes room for who can run there only
    other = job("b", 4, submitted_s=1.0, throughput={"k80": {1: 1.0}}, work=Work(1e4))
    decision = decide(world(where, job("a", 4, allocation={"n0": 4}, **alike), other), "max-min")
    assert decision.allocation == {"a": {"n1": 4}, "b": {"n0": 4}}
