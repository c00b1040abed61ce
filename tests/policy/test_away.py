"""Nodes that are to be away: who starts there, who leaves, and what it is told. Every policy."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy import away
from policy.certificate.feasible import violations
from policy.decide import decide
from policy.model import Away, BadInput, Code, GpuRange, Health, Job, Node, Snapshot, Tenant
from policy.text import instance
from tests.policy.worlds import NAMES, snapshots

HOUR = 3600.0
MAINTENANCE = Away("firmware", from_s=10 * HOUR, to_s=12 * HOUR, leave_s=10 * HOUR - 300, reason="new firmware")
CURVE = {"v100": {1: 1.0, 2: 2.0, 4: 4.0}}


def job(name: str, gpus: int = 2, **changes: object) -> Job:
    plain = Job(name, name, name, GpuRange(gpus, gpus, gpus), throughput=CURVE)
    return replace(plain, **changes)  # type: ignore[arg-type]


def world(*jobs: Job, now_s: float = 0.0, other: Node | None = None) -> Snapshot:
    text = "cluster: {groups: [{count: 1, gpu_type: v100, gpus: 4}]}\njobs: []\n"
    bare = instance.parse(text)
    nodes = (Node("n1", "v100", 4, away=(MAINTENANCE,)), *([other] if other else []))
    tenants = tuple(Tenant(j.tenant) for j in jobs)
    return replace(bare, cluster=replace(bare.cluster, nodes=nodes), jobs=jobs, tenants=tenants, now_s=now_s)


@pytest.mark.parametrize("policy", NAMES)
def test_a_job_that_could_not_end_before_is_not_started(policy: str) -> None:
    long, short = job("long", stays=True, time_left_s=11 * HOUR), job("short", stays=True, time_left_s=9 * HOUR)
    found = decide(world(long, short), policy)
    assert not found.allocation["long"] and found.allocation["short"] == {"n1": 2}
    assert found.reasons["long"].code is Code.WAITS_AWAY
    assert found.reasons["long"].text.startswith("n1 goes away for firmware (new firmware); its time limit reaches")
    assert found.certificate.feasible


@pytest.mark.parametrize("policy", NAMES)
def test_one_without_a_limit_runs_where_nothing_goes_away(policy: str) -> None:
    endless = job("endless", stays=True)
    assert decide(world(endless), policy).reasons["endless"].code is Code.WAITS_AWAY
    assert decide(world(endless, other=Node("n2", "v100", 4)), policy).allocation["endless"] == {"n2": 2}


@pytest.mark.parametrize("policy", NAMES)
def test_who_can_be_resumed_uses_it_until_it_is_emptied_and_then_is_elsewhere(policy: str) -> None:
    held = job("elastic", allocation={"n1": 2})
    assert decide(world(held), policy).allocation["elastic"] == {"n1": 2}
    late = world(held, now_s=10 * HOUR - 299, other=Node("n2", "v100", 4))
    found = decide(late, policy)
    assert found.allocation["elastic"] == {"n2": 2} and found.certificate.feasible
    alone = decide(world(held, now_s=10 * HOUR - 299), policy)
    assert not alone.allocation["elastic"], "there is no other place: it waits"
    assert decide(world(job("elastic"), now_s=12 * HOUR), policy).allocation["elastic"] == {"n1": 2}, "it is back"


@pytest.mark.parametrize("policy", NAMES)
def test_who_waits_until_a_node_is_back_is_not_infeasible(policy: str) -> None:
    """While it is emptied and away; with a limit, without one, and of jobs that can be resumed."""
    waiting = [job("elastic"), job("endless", stays=True), job("limited", stays=True, time_left_s=60.0)]
    drained = Node("n2", "v100", 4, health=Health.DRAIN)
    for now_s, state in ((10 * HOUR - 100, "being emptied"), (11 * HOUR, "away")):
        for one in waiting:
            said = decide(world(one, now_s=now_s, other=drained), policy).reasons[one.name]
            assert said.code is Code.WAITS_AWAY, said
            assert said.text == f"n1 is {state} for firmware (new firmware), and nothing else could hold it"
            assert said.change == "the end of firmware"
            assert decide(world(one, now_s=MAINTENANCE.to_s), policy).allocation[one.name]
        large = job("large", 5)
        assert decide(world(large, now_s=now_s), policy).reasons["large"].code is Code.INFEASIBLE, "for ever"
        away = replace(world(waiting[0]).cluster.nodes[0], health=Health.DRAIN)
        there = world(waiting[0], now_s=now_s)
        there = replace(there, cluster=replace(there.cluster, nodes=(away,)))
        assert decide(there, policy).reasons["elastic"].code is Code.INFEASIBLE, "it is drained besides"


@pytest.mark.parametrize("policy", NAMES)
def test_who_cannot_be_stopped_keeps_what_it_holds(policy: str) -> None:
    rigid = job("rigid", stays=True, allocation={"n1": 2})
    there = world(rigid)
    assert decide(there, policy).allocation["rigid"] == {"n1": 2}
    draining = replace(there.cluster, nodes=(Node("n1", "v100", 4, health=Health.DRAIN),))
    usual = decide(replace(there, cluster=draining), policy).allocation
    for now_s in (10 * HOUR - 100, 11 * HOUR):
        found = decide(world(rigid, now_s=now_s), policy)
        assert found.allocation == usual and found.certificate.feasible, "as on any node that is being drained"


def test_the_limit_that_it_says_would_do_does() -> None:
    other = Node("n2", "v100", 4, away=(replace(MAINTENANCE, name="power", from_s=4 * HOUR, leave_s=4 * HOUR),))
    long = job("long", 4, stays=True, time_left_s=11 * HOUR)
    said = decide(world(long, other=other), "fifo").reasons["long"]
    fits_s = said.numbers["fits_s"]
    assert said.change.startswith(f"a time limit of at most {fits_s:.0f} s, or the end of") and fits_s == 10 * HOUR
    assert decide(world(replace(long, time_left_s=fits_s), other=other), "fifo").allocation["long"] == {"n1": 4}
    assert not decide(world(replace(long, time_left_s=fits_s + 1), other=other), "fifo").allocation["long"]


def test_the_inspector_sees_who_would_be_there_then() -> None:
    long, held = job("long", stays=True, time_left_s=11 * HOUR), job("held", allocation={"n1": 2})
    (found,) = violations(world(long), {"long": {"n1": 2}})
    assert found == "long would be on n1 when that goes away for firmware"
    assert not list(violations(world(held), {"held": {"n1": 2}}))
    assert len(list(violations(world(held, now_s=10 * HOUR - 1), {"held": {"n1": 2}}))) == 1


def test_it_is_written_and_read_and_wrong_times_are_refused() -> None:
    there = world(job("a", stays=True, time_left_s=60.0))
    assert instance.parse(instance.to_text(there)) == there
    text = "cluster: {nodes: [{name: n, gpu_type: v100, gpus: 1, away: [{name: m, from: 10, to: 5}]}]}\njobs: []\n"
    with pytest.raises(BadInput, match="ends before it begins"):
        instance.parse(text)


def aging(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same with nodes that go away, and jobs of which some stay until their end."""
    rng = Random(seed)
    now_s, nodes = snapshot.now_s, []
    for node in snapshot.cluster.nodes:
        times = []
        for number in range(rng.choice((0, 1, 1, 2))):
            from_s = now_s + rng.choice((-50.0, 5.0, 100.0, 1000.0))
            times.append(
                Away(f"away{number}", from_s, from_s + rng.choice((20.0, 500.0)), from_s - rng.choice((0, 60)))
            )
        nodes.append(replace(node, away=tuple(times)))
    jobs = tuple(
        replace(j, stays=rng.random() < 0.5, time_left_s=rng.choice((None, 4.0, 90.0, 2000.0)), loss_forecast=None)
        for j in snapshot.jobs
    )
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=tuple(nodes)), jobs=jobs)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policy=st.sampled_from(NAMES), snapshot=snapshots(), seed=st.integers(0, 10_000))
def test_nobody_is_on_a_node_when_it_goes_away(policy: str, snapshot: Snapshot, seed: int) -> None:
    there = aging(snapshot, seed)
    found = decide(there, policy, {}, 0, 20.0)
    nodes = {n.name: n for n in there.cluster.nodes}
    for one in there.jobs:
        for name in found.allocation[one.name]:
            time = away.closing(nodes[name], there.now_s)
            if not one.stays:
                assert time is None, f"{one.name} is on {name} while that is emptied"
            elif not one.allocation:
                assert time is None and not away.runs_into(one, nodes[name], there.now_s)
    assert found.certificate.feasible
    assert away.prepared(away.prepared(there)) == away.prepared(there)
