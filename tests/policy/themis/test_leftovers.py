"""What an auction of Themis leaves over goes to somebody (section 5.1)."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.model import Limits, Slowdown, Snapshot
from policy.throughput import Throughput
from tests.policy.themis.worlds import decide, job, node, nodes, rounds, world, worlds

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_leftovers_go_to_apps_that_did_not_bid_then_to_bidders() -> None:
    jobs = [job("worst", (1, 2), submitted=0.0), *[job(f"j{i}", (1, 2), submitted=590.0) for i in range(2)]]
    this = rounds(world(nodes(1, 4), jobs, now=600.0), fairness_knob=0.8)
    assert this.bidders == ["worst"]
    assert sum(this.outcome.wins["worst"].values()) == 2  # type: ignore[union-attr]
    assert sum(sum(g.values()) for g in this.leftover.values()) == 2
    assert "worst" not in this.leftover
    back = rounds(world(nodes(1, 4), [job("a", (1, 4), total=100.0), job("b", (1, 4), total=100.0)]))
    assert sum(sum(g.values()) for g in back.leftover.values()) == 4 - sum(
        sum(p.kept.values()) for p in back.payments.values()
    )


def test_leftovers_are_drawn_evenly() -> None:
    jobs = [job("worst", 1, submitted=0.0), *[job(f"j{i}", 1, submitted=599.0) for i in range(4)]]
    snapshot = world(nodes(1, 2), jobs, now=600.0)
    got: Counter[str] = Counter()
    for seed in range(200):
        this = rounds(snapshot, seed, fairness_knob=0.8)
        got.update(list(this.leftover))
    assert set(got) == {f"j{i}" for i in range(4)}
    assert min(got.values()) > 25  # 50 expected each


def test_leftover_gpus_stay_together() -> None:
    """Apps that may grow start on the emptiest node and grow there: no app ends up on two nodes."""
    jobs = [job("worst", 1, total=10.0), *[job(f"j{i}", (1, 4), submitted=599.0) for i in range(4)]]
    for seed in range(10):
        this = rounds(world(nodes(5, 4), jobs, now=600.0), seed, fairness_knob=0.8)
        assert all(len(this.bundles[f"j{i}"]) == 1 for i in range(4))


@SLOW
@given(worlds(), st.sampled_from([0.0, 0.5, 0.8, 1.0]), st.integers(0, 3))
def test_every_round_is_feasible_and_work_conserving(snapshot: Snapshot, knob: float, seed: int) -> None:
    decision = decide(snapshot, seed, fairness_knob=knob)
    assert decision.certificate.feasible, decision.certificate.notes
    assert decision.certificate.work_conserving, decision.certificate.notes
    for name, allocation in decision.allocation.items():
        times = decision.leases.get(name, {})
        assert {n: len(t) for n, t in times.items()} == dict(allocation)
        old = next(j for j in snapshot.jobs if j.name == name)
        for n, until in old.lease_until.items():
            running = [t for t in until if t > snapshot.now_s]
            if running and sum(map(len, old.lease_until.values())) == len(running):
                # what is wholly under lease is not taken away; the job may leave it for a place where it is faster
                speeds = Throughput(snapshot.cluster)
                stays = allocation.get(n, 0) >= len(running)
                assert stays or (speeds.rate(old, allocation) or 0.0) > (speeds.rate(old, old.allocation) or 0.0)


def test_an_app_leaves_its_lease_for_idle_gpus_where_it_is_better_off() -> None:
    """One GPU under lease; two idle ones on another rack, a network that halves the speed: it moves."""
    curve = {"v100": {1: 2.0, 2: 3.0}}
    a = job("a", (1, 2), rate=curve, slowdown=Slowdown(1.0, 2.0, 2.0), allocation={"n1": 1}, lease={"n1": [50.0]})
    decision = decide(world([node("n0", 2, rack="r"), node("n1", 1, rack="s")], [a]))
    assert decision.allocation == {"a": {"n0": 2}}
    assert "better off" in decision.reasons["a"].text


@SLOW
@given(worlds(limits=Limits(equal_gpus_per_node=True, one_type_per_job=True), held=False), st.integers(0, 3))
def test_every_round_obeys_the_limits(snapshot: Snapshot, seed: int) -> None:
    decision = decide(snapshot, seed, fairness_knob=0.5)
    assert decision.certificate.feasible, decision.certificate.notes
