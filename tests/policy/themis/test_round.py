"""One round of Themis: filter, leases, starving apps, state, determinism."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log2
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.contract import Context
from policy.decide import decide as decide_any
from policy.model import BadInput, Code, Health, Snapshot, Tenant, Termination
from policy.text.answer import to_json, to_plain
from policy.text.instance import parse
from policy.themis.auction.valuation import cap
from policy.themis.offer import offer
from policy.themis.round import run, share
from policy.throughput import Throughput
from tests.policy.themis.worlds import contended, decide, job, node, nodes, rounds, world, worlds

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- the filter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apps", "knob", "bidders"),
    [
        (40, 0.8, 8),
        (10, 0.8, 2),
        (8, 0.8, 2),
        (5, 0.8, 1),
        (3, 0.8, 1),
        (1, 0.8, 1),
        (7, 1.0, 1),
        (7, 0.0, 7),
        (10, 0.5, 5),
    ],
)
def test_the_worst_share_bids_and_at_least_one(apps: int, knob: float, bidders: int) -> None:
    assert share(apps, knob) == bidders
    jobs = [job(f"j{i:02}", (1, 2), submitted=float(i)) for i in range(apps)]
    this = rounds(world(nodes(10, 4), jobs, now=100.0), fairness_knob=knob)
    assert len(this.bidders) == bidders


def test_the_worst_off_bid() -> None:
    """Equal apps: those that wait longest. An app under lease comes after all that hold nothing."""
    waiting = [job(f"w{i}", 2, submitted=float(10 * i)) for i in range(4)]
    served = job("served", (2, 4), submitted=0.0, allocation={"n0": 2}, lease={"n0": [900.0, 900.0]}, total=10.0)
    this = rounds(world(nodes(2, 4), [*waiting, served], now=600.0), fairness_knob=0.6)
    assert this.bidders == ["w0", "w1"]


def test_apps_that_cannot_use_the_offer_leave_their_turn_to_others() -> None:
    wide = job("wide", 8, submitted=0.0)
    narrow = job("narrow", 1, submitted=500.0)
    this = rounds(world(nodes(1, 4), [wide, narrow], now=600.0), fairness_knob=0.8)
    assert this.bidders == ["narrow"]


# --- apps that hold nothing --------------------------------------------------------------------------------


def test_the_cap_is_finite_and_grows_without_limit() -> None:
    assert cap(3.0, 0.0, 600.0) == 2 * 3.0
    assert cap(3.0, 600.0, 600.0) == pytest.approx(3 * (1 + log2(3)))
    values = [cap(3.0, 600.0 * 2**k, 600.0) for k in range(20)]
    assert values == sorted(values)
    assert values[-1] < inf


@pytest.mark.parametrize("served", [1, 3])
def test_a_starving_app_wins_over_all_that_hold_gpus(served: int) -> None:
    """Served apps with everything to gain (hundredfold speed-up each) against one with little."""
    machines = [node("big", 4), *nodes(served, 1)]
    fast = {"v100": {1: 0.001, 2: 10.0, 4: 100.0}}
    holders = [
        job(f"s{i}", (1, 5), rate=fast, total=1e6, allocation={f"n{i}": 1}, lease={f"n{i}": [1e6]})
        for i in range(served)
    ]
    hungry = job("hungry", 4, total=1e6, rate=100.0, submitted=599.0)
    this = rounds(world(machines, [*holders, hungry], now=600.0))
    assert this.outcome is not None
    assert this.outcome.wins["hungry"] == {"big": 4}


def test_the_longest_starving_wins_among_equals() -> None:
    jobs = [job("young", 4, submitted=500.0), job("old", 4, submitted=100.0), job("older", 4, submitted=50.0)]
    this = rounds(world(nodes(2, 4), jobs, now=600.0))
    assert this.outcome is not None
    assert set(this.outcome.wins) == {"old", "older"}


def test_waiting_is_remembered_in_the_state() -> None:
    """The same two apps; what they have lived through is the same, who holds nothing since when is not."""
    jobs = [job("a", 4, submitted=0.0), job("b", 4, submitted=0.0)]
    machines = nodes(1, 4)
    for first, second in (("a", "b"), ("b", "a")):
        state = {"round": 5, "waiting_since": {first: 100.0, second: 900.0}}
        this = rounds(world(machines, jobs, now=1000.0, state=state))
        assert this.outcome is not None
        assert set(this.outcome.wins) == {first}


def test_an_app_that_loses_its_gpus_starts_to_wait() -> None:
    jobs = [job("runs", 4, allocation={"n0": 4}), job("waits", 4, submitted=-5000.0)]
    decision = decide(world(nodes(1, 4), jobs, now=700.0), fairness_knob=0.0)
    (loser,) = [n for n, a in decision.allocation.items() if not a]
    since = decision.state["waiting_since"]
    assert since == {loser: 700.0 if loser == "runs" else -5000.0}


# --- leases ------------------------------------------------------------------------------------------------


def test_leases_expire_by_gpu() -> None:
    """Of four GPUs held, two are on offer again; the two under lease stay and keep their expiry."""
    a = job("a", (1, 4), allocation={"n0": 4}, lease={"n0": [500.0, 600.0, 700.0, 800.0]})
    here = world(nodes(1, 4), [a, job("b", 2, submitted=-9e5)], now=600.0)
    assert offer(here).free == {"n0": 2}
    assert offer(here).leased == {"a": {"n0": (700.0, 800.0)}}
    decision = decide(here, fairness_knob=0.0, lease=100.0)
    assert decision.allocation == {"a": {"n0": 2}, "b": {"n0": 2}}
    assert decision.leases["a"] == {"n0": (700.0, 800.0)}
    assert decision.leases["b"] == {"n0": (700.0, 700.0)}


def test_nothing_on_offer_changes_nothing() -> None:
    a = job("a", 4, allocation={"n0": 4}, lease={"n0": [700.0] * 4})
    decision = decide(world(nodes(1, 4), [a, job("b", 2)], now=600.0), fairness_knob=0.0)
    assert decision.allocation == {"a": {"n0": 4}, "b": {}}
    assert decision.reasons["b"].code is Code.WAITS_LEASE
    assert decision.reasons["b"].numbers["lease_ends_s"] == 700.0
    assert decision.solver is None


def test_a_gang_that_leases_cut_below_its_least_size_goes_whole_or_comes_back_whole() -> None:
    a = job("a", 4, allocation={"n0": 4}, lease={"n0": [500.0, 500.0, 800.0, 800.0]})
    alone = decide(world(nodes(1, 4), [a], now=600.0))
    assert alone.allocation["a"] == {"n0": 4}
    assert alone.leases["a"]["n0"] == (800.0, 800.0, 1200.0, 1200.0)
    against = decide(
        world(nodes(1, 4), [replace(a, work=replace(a.work, total=1e9)), job("b", 2, submitted=-1e6)], now=600.0),
        fairness_knob=0.0,
    )
    assert sum(against.allocation["a"].values()) in (0, 4)
    assert against.certificate.feasible


def test_draining_nodes_keep_what_runs_and_take_nothing_new() -> None:
    machines = [node("n0", 4, health=Health.DRAIN), node("n1", 4, health=Health.DOWN), node("n2", 2)]
    jobs = [
        job("stays", 2, allocation={"n0": 2}, lease={"n0": [10.0, 10.0]}),
        job("lost", 2, allocation={"n1": 2}, lease={"n1": [900.0, 900.0]}),
        job("new", 2, submitted=300.0),
    ]
    decision = decide(world(machines, jobs, now=600.0), fairness_knob=0.0)
    assert decision.allocation["stays"] == {"n0": 2}
    assert decision.allocation["lost"] in ({}, {"n2": 2})
    assert sum(bool(a) for a in decision.allocation.values()) == 2


def test_foreign_gpus_and_caps_are_respected() -> None:
    machines = [node("n0", 4, foreign=3), node("n1", 4)]
    jobs = [job(f"j{i}", (1, 4), tenant="t") for i in range(3)]
    decision = decide(world(machines, jobs, tenants=[Tenant("t", 1.0, 2)]), fairness_knob=0.0)
    assert sum(sum(a.values()) for a in decision.allocation.values()) == 2
    assert decision.certificate.feasible


def test_a_cap_learnt_later_stops_growth_only() -> None:
    a = job("a", (1, 8), tenant="t", allocation={"n0": 4}, lease={"n0": [900.0] * 4})
    here = world(nodes(2, 4), [a, job("b", (1, 8), tenant="t")], now=600.0, tenants=[Tenant("t", 1.0, 2)])
    decision = decide(here, fairness_knob=0.0)
    assert decision.allocation == {"a": {"n0": 4}, "b": {}}
    assert decision.reasons["b"].code is Code.WAITS_CAP


def test_cpus_and_memory_limit_what_a_node_offers() -> None:
    machines = [node("n0", 4, cpus=8.0), node("n1", 4, memory=64 << 30)]
    jobs = [job("c", 4, cpus_per_gpu=4.0), job("m", 4, memory_per_gpu=32 << 30)]
    decision = decide(world(machines, jobs), fairness_knob=0.0)
    assert decision.allocation["m"] == {"n0": 4}
    assert decision.allocation["c"] == {"n1": 4}


# --- determinism, state, options, edges --------------------------------------------------------------------


@SLOW
@given(worlds(), st.integers(0, 2))
def test_the_same_question_has_the_same_answer(snapshot: Snapshot, seed: int) -> None:
    def answer() -> str:
        plain = to_plain(decide(snapshot, seed, fairness_knob=0.3))
        plain.get("solver", {}).pop("seconds", None)
        return str(plain)

    assert answer() == answer()


def test_chance_differs_from_round_to_round_and_repeats_on_replay() -> None:
    jobs = [job("worst", 1, submitted=0.0), *[job(f"j{i}", 1, submitted=599.0) for i in range(6)]]
    chosen = []
    for number in range(12):
        snapshot = world(nodes(1, 2), jobs, now=600.0, state={"round": number})
        decision = decide(snapshot, fairness_knob=1.0)
        assert decision.state["round"] == number + 1
        assert decide(snapshot, fairness_knob=1.0).allocation == decision.allocation
        chosen += [n for n, a in decision.allocation.items() if a and n != "worst"]
    assert len(set(chosen)) > 2


def test_the_state_survives_text() -> None:
    import json

    decision = decide(world(nodes(1, 2), [job(f"j{i}", 1) for i in range(4)], now=600.0))
    assert json.loads(to_json(decision))["state"] == decision.state


@pytest.mark.parametrize(
    "bad",
    [{"fairness_knob": 1.5}, {"fairness_knob": -0.1}, {"lease": 0}, {"payment": "none"}, {"speedup": "x"}, {"f": 1}],
)
def test_options_that_cannot_be_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        decide_any(contended(), "themis", bad)


@pytest.mark.parametrize(
    "snapshot",
    [
        world([], []),
        world(nodes(1, 4), []),
        world([node("n", 0)], [job("a", 1)]),
        world([node("n", 4, health=Health.DOWN)], [job("a", 1, allocation={"n": 1})]),
        world(nodes(1, 4), [job("huge", 64), job("a", 1)]),
        world(nodes(1, 4), [job("done", 1, total=5.0, done=5.0, allocation={"n0": 1}), job("a", 4)]),
        world(nodes(1, 4), [job("elsewhere", 1, rate={"tpu": {1: 1.0}}), job("a", 4)]),
        world(nodes(1, 4), [job("unmeasured", (1, 4), rate={}), job("a", 4)]),
        world(nodes(1, 4), [job("never", 1, rate={"v100": {1: 0.0}}), job("a", 4)]),
        world(nodes(1, 1), [job(f"j{i}", 1, total=10.0**i) for i in range(-9, 10)]),
    ],
    ids=["nothing", "no-jobs", "no-gpus", "down", "infeasible", "finished", "no-type", "unmeasured", "zero", "scales"],
)
def test_edges_are_answered(snapshot: Snapshot) -> None:
    decision = decide(snapshot, fairness_knob=0.0)
    assert decision.certificate.feasible
    assert set(decision.reasons) == {j.name for j in snapshot.jobs}
    assert decision.certificate.work_conserving, decision.certificate.notes
    for name in ("huge", "elsewhere", "never", "done"):
        assert not decision.allocation.get(name)


def test_reasons_say_what_was_won_and_paid() -> None:
    decision = decide(contended(), fairness_knob=0.0)
    for name, allocation in decision.allocation.items():
        numbers = decision.reasons[name].numbers
        assert {"rho", "won", "kept_fraction", "kept", "leftover"} <= numbers.keys()
        assert numbers["kept"] + numbers["leftover"] == sum(allocation.values())
        assert numbers["kept"] <= numbers["won"]
        if allocation:
            assert numbers["rho"] == pytest.approx(decision.certificate.rho[name])


def test_without_time_the_incumbent_is_used_and_said() -> None:
    from tests.policy.themis.worlds import job as make

    jobs = [make(f"j{i:02}", (1, 16), total=1000.0 * (1 + i % 7), submitted=float(i)) for i in range(30)]
    snapshot = world(nodes(16, 8, racks=4), jobs, now=5000.0)
    decision = decide_any(snapshot, "themis", {"fairness_knob": 0.0}, time_limit_s=0.02)
    assert decision.certificate.feasible
    assert decision.certificate.work_conserving
    assert decision.solver is not None
    if decision.solver.termination is not Termination.OPTIMAL:
        assert any("incumbent" in n for n in decision.certificate.notes)
    else:
        assert any("c of" in n and "at most" in n for n in decision.certificate.notes)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_both_solvers_agree(solver: str) -> None:
    this = rounds(contended())
    other = run(contended(), {"fairness_knob": 0.0}, Context(Throughput(contended().cluster), 0, None, solver))
    assert this.outcome is not None
    assert other.outcome is not None
    assert other.outcome.objective == pytest.approx(this.outcome.objective)


def test_who_runs_on_no_smallest_gang_has_a_finite_gain_and_the_auction_an_answer() -> None:
    """Its rho without a win was infinite, the program refused the infinite gain, and nobody won anything."""
    snapshot = parse(
        "cluster: {nodes: [{name: a, gpu_type: v, gpus: 2}, {name: b, gpu_type: v, gpus: 2}]}\nnow: 100\njobs:\n"
        "- {name: pairs, gpus: {min: 1, max: 4}, work: {total: 100}, throughput: {v: {1: 0, 2: 1.0, 4: 2.0}}}\n"
        "- {name: other, gpus: {min: 1, max: 4}, work: {total: 100}, throughput: {v: {1: 1.0, 4: 3.0}}}\n"
    )
    decision = decide_any(snapshot, "themis", {"fairness_knob": 0.0})
    assert decision.solver is not None and decision.solver.termination is Termination.OPTIMAL
    assert all(reason.numbers["won"] for reason in decision.reasons.values())
