"""The placer against brute force: fewest nodes, narrowest span, what is kept, and every limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.certificate.feasible import violations
from policy.model import Allocation, Code, Health, Job, Limits, Pinning, Snapshot, Tenant
from policy.places.placement import Placer
from policy.throughput import Span
from tests.policy.worlds import cluster, job, snapshots, world

FOUR = cluster("a1 v 4 r1", "a2 v 4 r1", "b1 v 4 r2", "b2 v 4 r2")


def taken(placer: Placer, *jobs: Job) -> Placer:
    for j in jobs:
        place = placer.best(j, j.gpus.min)
        assert place is not None
        placer.take(j, place)
    return placer


def test_one_node_tightest_first() -> None:
    a, b, c = job("a", 3), job("b", 1), job("c", 2)
    placer = taken(Placer(world(FOUR, a, b, c)), a, b, c)
    assert placer.taken == {"a": {"a1": 3}, "b": {"a1": 1}, "c": {"a2": 2}}


def test_one_rack_also_over_several_gpu_types() -> None:
    """No type holds three; of the nodes of both, rack r2 has three."""
    where = cluster("a k80 1 r1", "b v100 1 r2", "c k80 1 r2", "d v100 1 r2")
    three = job("three", 3, throughput={"k80": {1: 1.0, 3: 2.0}, "v100": {1: 1.0, 3: 2.0}})
    assert Placer(world(where, three)).best(three, 3) == {"b": 1, "c": 1, "d": 1}


def test_fewest_nodes_then_one_rack() -> None:
    a, b = job("a", 2), job("b", 8)
    placer = taken(Placer(world(FOUR, a, b)), a)
    assert placer.best(b, 8) == {"b1": 4, "b2": 4}
    assert placer.best(b, 5) == {"a1": 1, "a2": 4}  # the fuller rack
    assert placer.best(b, 14) == {"a1": 2, "a2": 4, "b1": 4, "b2": 4}
    assert placer.best(b, 15) is None


def test_keeps_what_it_holds_but_not_on_more_nodes() -> None:
    a = job("a", (1, 16), allocation={"a1": 1, "b1": 2})
    placer = Placer(world(FOUR, a))
    assert placer.best(a, 2) == {"b1": 2}
    assert placer.best(a, 4) == {"b1": 4}
    assert placer.best(a, 7) == {"b1": 4, "b2": 3}
    assert placer.best(a, 3) == {"b1": 3}


def test_others_claims_are_avoided_until_they_are_dropped() -> None:
    a, b = job("a", 2, allocation={"a1": 2}), job("b", 4)
    c = job("c", 4, allocation={"a2": 4})
    d = job("d", 8, allocation={"b1": 4, "b2": 4})
    placer = Placer(world(FOUR, a, b, c, d))
    assert placer.best(b, 2) == {"a1": 2}
    assert placer.best(b, 4) == {"a1": 4}  # somebody must move: two GPUs rather than four
    placer.drop(c)
    assert placer.best(b, 4) == {"a2": 4}


def test_moving_aside_rather_than_pushing_more_away() -> None:
    where = cluster("a1 v 4", "a2 v 4")
    a, b = job("a", 4, allocation={"a1": 1}), job("b", 3, allocation={"a1": 3})
    assert Placer(world(where, a, b)).best(a, 4) == {"a2": 4}


def test_types_by_speed_then_held_then_newest() -> None:
    where = cluster("k v1 4", "p v2 4", "v v3 4", types=("v1", "v2", "v3"))
    fast = job("f", (1, 4), throughput={"v1": {1: 1.0}, "v2": {1: 3.0}, "v3": {1: 2.0}})
    assert Placer(world(where, fast)).best(fast, 2) == {"p": 2}
    held = replace(fast, allocation={"k": 1})
    assert Placer(world(where, held)).best(held, 2) == {"k": 2}
    assert Placer(world(where, held)).best(held, 2, "v3") == {"v": 2}
    assert Placer(world(where, fast)).best(job("any", 1), 1) == {"v": 1}
    only = job("o", (1, 2), throughput={"v1": {1: 1.0, 2: 0.0}})
    assert Placer(world(where, only)).best(only, 1, "v3") is None
    assert Placer(world(where, only)).best(only, 2) is None  # its rate there is 0


def test_types_are_mixed_only_when_one_does_not_suffice() -> None:
    where = cluster("k v1 4", "v v2 4")
    a = job("a", (1, 8))
    assert Placer(world(where, a)).best(a, 4) == {"v": 4}
    assert Placer(world(where, a)).best(a, 6) == {"k": 4, "v": 2}
    one_type = replace(where, limits=Limits(one_type_per_job=True))
    assert Placer(world(one_type, a)).best(a, 6) is None
    assert Placer(world(one_type, a)).why_not(a, 6) is Code.INFEASIBLE


def test_equal_gpus_per_node() -> None:
    where = replace(cluster("a v 4", "b v 3", "c v 2"), limits=Limits(equal_gpus_per_node=True))
    a = job("a", (1, 9))
    placer = Placer(world(where, a))
    assert placer.best(a, 4) == {"a": 4}
    assert placer.best(a, 5) is None
    assert placer.best(a, 6) == {"a": 3, "b": 3}
    assert placer.best(a, 9) is None
    assert placer.why_not(a, 9) is Code.INFEASIBLE
    assert placer.possible(a, 6)


def test_foreign_drain_down() -> None:
    where = cluster("a v 4", "b v 4", "c v 4")
    nodes = (replace(where.nodes[0], foreign=3), replace(where.nodes[1], health=Health.DRAIN), where.nodes[2])
    where = replace(where, nodes=nodes)
    a, b = job("a", (1, 12), allocation={"b": 2}), job("b", 4)
    placer = Placer(world(where, a, b))
    assert placer.free() == 5
    assert placer.best(b, 5) == {"a": 1, "c": 4}
    assert placer.best(a, 2) == {"b": 2}
    assert placer.best(a, 3) == {"c": 3}  # one node rather than two
    assert placer.best(a, 7) == {"a": 1, "b": 2, "c": 4}
    assert placer.best(a, 8) is None
    down = replace(where, nodes=(nodes[0], replace(nodes[1], health=Health.DOWN), nodes[2]))
    placer = Placer(world(down, a, b))
    assert placer.keep(a) is None
    assert placer.best(a, 2) == {"c": 2}


def test_cpus_and_memory() -> None:
    where = cluster("a v 4", "b v 4")
    where = replace(where, nodes=(replace(where.nodes[0], cpus=8.0), replace(where.nodes[1], memory=2**33)))
    a = job("a", (1, 8), cpus_per_gpu=3.0, memory_per_gpu=2**31)
    placer = Placer(world(where, a))
    assert placer.best(a, 2) == {"a": 2}
    assert placer.best(a, 4) == {"b": 4}
    assert placer.best(a, 6) == {"a": 2, "b": 4}
    assert placer.best(a, 7) is None
    assert placer.why_not(a, 7) is Code.INFEASIBLE
    placer.take(a, {"a": 2, "b": 2})
    other = job("o", 1, cpus_per_gpu=3.0)
    assert placer.best(other, 1) == {"b": 1}
    assert placer.give_back(a) == {"a": 2, "b": 2}
    assert placer.best(a, 6) == {"a": 2, "b": 4}


def test_caps() -> None:
    a, b = job("a", 2, tenant="t"), job("b", 2, tenant="t")
    placer = taken(Placer(world(FOUR, a, b, tenants=(Tenant("t", cap=3),))), a)
    assert placer.room("t") == 1
    assert placer.best(b, 2) is None
    assert placer.why_not(b, 2) is Code.WAITS_CAP
    with pytest.raises(ValueError, match="may take 1 more"):
        placer.take(b, {"b1": 2})
    placer.give_back(a)
    assert placer.best(b, 2) is not None


def test_pinning_leaves_jobs_where_they_are() -> None:
    where = replace(FOUR, limits=Limits(pinning=Pinning.TYPE))
    a = job("a", 2, allocation={"a1": 1, "b1": 1})
    assert Placer(world(where, a)).best(a, 2) == {"a1": 1, "b1": 1}
    assert Placer(world(FOUR, a)).best(a, 2) == {"a1": 2}
    assert Placer(world(where, a)).best(a, 3) == {"a1": 3}


def test_leased_gpus_are_part_of_it() -> None:
    a = job("a", (1, 16), allocation={"a1": 1, "b1": 2})
    placer = Placer(world(FOUR, a))
    assert placer.best(a, 4, at_least={"a1": 1}) == {"a1": 4}
    assert placer.best(a, 4, at_least={"a1": 1, "b1": 1}) == {"a1": 2, "b1": 2}
    assert placer.best(a, 3, at_least={"a1": 1, "b1": 2}) == {"a1": 1, "b1": 2}
    equal = Placer(world(replace(FOUR, limits=Limits(equal_gpus_per_node=True)), a))
    assert equal.best(a, 4, at_least={"a1": 1, "b1": 2}) == {"a1": 2, "b1": 2}


def test_a_wrong_take_says_why() -> None:
    a, b = job("a", 2), job("b", 2, throughput={"x": {1: 1.0}})
    placer = Placer(world(FOUR, a, b))
    for wrong, says in (({"zz": 1}, "no node zz"), ({"a1": 5}, "5 GPUs on a1"), ({"a1": 0}, "0 GPUs on a1")):
        with pytest.raises(ValueError, match=says):
            placer.take(a, wrong)
    with pytest.raises(ValueError, match="cannot run on v"):
        placer.take(b, {"a1": 2})
    placer.take(a, {"a1": 2})
    with pytest.raises(ValueError, match="already"):
        placer.take(a, {"a1": 2})


def test_what_is_held_over_a_limit_that_came_later_is_found_whatever_the_gang_may_be() -> None:
    j = replace(job("j", 1, tenant="t"), allocation={"a1": 2})
    placer = Placer(world(FOUR, j, tenants=(Tenant("t", cap=0),)))
    assert placer.best(j, 2) == {"a1": 2}
    assert placer.best(j, 1) is None
    assert placer.keep(j) is None


def test_nothing_on_nothing() -> None:
    a = job("a", 1)
    for where in (
        cluster(),
        cluster("a v 0"),
        replace(FOUR, nodes=tuple(replace(n, health=Health.DOWN) for n in FOUR.nodes)),
    ):
        placer = Placer(world(where, a))
        assert placer.free() == 0
        assert placer.best(a, 1) is None
        assert placer.why_not(a, 1) is Code.INFEASIBLE
        assert placer.best(a, 0) == {}


# --- against brute force -------------------------------------------------------------------------------------


def places(s: Snapshot, j: Job, gpus: int) -> Iterator[Allocation]:
    """Every way to put a gang on the empty cluster that the inspector has nothing against."""
    names = [n.name for n in s.cluster.nodes if n.gpus]
    for k in range(1, min(len(names), gpus) + 1):
        for chosen in combinations(names, k):
            for cuts in combinations(range(1, gpus), k - 1):
                parts = [b - a for a, b in zip((0, *cuts), (*cuts, gpus), strict=True)]
                place = dict(zip(chosen, parts, strict=True))
                probe = replace(j, gpus=replace(j.gpus, min=1, max=None, allowed=None))
                if not list(violations(replace(s, jobs=(probe,)), {j.name: place})):
                    yield place


@settings(max_examples=120, deadline=None)
@given(snapshots(most_jobs=1), st.integers(1, 9))
def test_best_finds_the_fewest_nodes_and_the_narrowest_span(s: Snapshot, gpus: int) -> None:
    if not s.jobs:
        return
    j = s.jobs[0]
    placer = Placer(s)
    speeds = placer.speeds
    found = placer.best(j, gpus)
    all_places = [p for p in places(s, j, gpus) if speeds.rate(j, p) != 0.0]
    assert (found is None) == (not all_places)
    if found is None:
        assert placer.why_not(j, gpus) in (Code.INFEASIBLE, Code.WAITS_CAP, Code.WAITS_CAPACITY, Code.WAITS_GANG)
        return
    assert sum(found.values()) == gpus
    assert found in all_places
    types = set(speeds.by_type(found))
    if s.cluster.limits.pinning is not Pinning.EXACT and gpus == j.held:
        return  # it stays where it is
    if len(types) > 1:
        assert all(len(speeds.by_type(p)) > 1 for p in all_places)
        return
    same = [p for p in all_places if set(speeds.by_type(p)) == types]
    assert len(found) == min(len(p) for p in same)
    fewest = [p for p in same if len(p) == len(found)]
    assert speeds.span(found) == min(speeds.span(p) for p in fewest)
    if speeds.span(found) is not Span.CLUSTER or len(found) == 1:
        narrow = [p for p in fewest if speeds.span(p) == speeds.span(found)]
        assert kept(j, found) == max(kept(j, p) for p in narrow)


def kept(j: Job, place: Allocation) -> int:
    return sum(min(g, j.allocation.get(n, 0)) for n, g in place.items())


@settings(max_examples=80, deadline=None)
@given(snapshots(), st.data())
def test_whatever_is_taken_can_run(s: Snapshot, data: st.DataObject) -> None:
    """Random takes, drops and give-backs: the inspector agrees, and undoing everything restores the ledger."""
    placer = Placer(s)
    before = placer.free()
    for _ in range(data.draw(st.integers(0, 12))):
        if not s.jobs:
            break
        j = data.draw(st.sampled_from(s.jobs))
        if j.name in placer.taken:
            placer.give_back(j)
            continue
        gpus = j.gpus.at_most(data.draw(st.integers(0, 9)))
        place = placer.best(j, gpus)
        if place is None:
            placer.drop(j)
        else:
            placer.take(j, place)
        assert list(violations(s, placer.taken)) == []
    for j in s.jobs:
        placer.give_back(j)
    assert placer.free() == before
    fresh = Placer(s)
    for j in s.jobs:
        assert placer.best(j, j.gpus.min) == fresh.best(j, j.gpus.min)


@settings(max_examples=30, deadline=None)
@given(snapshots())
def test_one_snapshot_one_placement(s: Snapshot) -> None:
    def run() -> dict[str, Allocation]:
        placer = Placer(s)
        for j in s.jobs:
            place = placer.best(j, j.gpus.min)
            if place is not None:
                placer.take(j, place)
        return placer.taken

    first = run()
    assert {n: list(a.items()) for n, a in first.items()} == {n: list(a.items()) for n, a in run().items()}
