"""The auction and the payments against brute force."""

from __future__ import annotations

from math import inf, log
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.contract import Context
from policy.model import Limits, Slowdown, Snapshot, Tenant, Termination
from policy.themis.auction import auction, knapsack
from policy.themis.round import Round, run
from policy.throughput import Throughput
from tests.policy.themis import oracle
from tests.policy.themis.worlds import job, node, world, worlds

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OPTIONS = {"fairness_knob": 0.0}


def rounds(snapshot: Snapshot, **options: object) -> Round:
    full = {"fairness_knob": 0.0, **options}
    return run(snapshot, full, Context(Throughput(snapshot.cluster)))


def assert_optimal_and_paid(snapshot: Snapshot) -> None:
    this = rounds(snapshot)
    free = oracle.free_vector(snapshot)
    if not any(free):
        assert this.outcome is None
        return
    assert this.outcome is not None
    stranded = [a for a, s in this.standings.items() if s.base and s.starving]
    bids = oracle.bidders(snapshot, 600.0)
    assert this.outcome.objective == pytest.approx(oracle.optimum(free, bids), abs=1e-6)
    names = [n.name for n in snapshot.cluster.nodes]
    by_app = {b.app: b for b in bids}
    total = [0] * len(free)
    for app, won in this.outcome.wins.items():
        vector = tuple(won.get(n, 0) for n in names)
        total = [a + b for a, b in zip(total, vector, strict=True)]
        own = by_app[app].log_null - log(this.outcome.rows[app].rho)
        assert by_app[app].rho[vector] <= this.outcome.rows[app].rho * (1 + 1e-9)
        expected = oracle.fraction(free, bids, app, this.outcome.objective, own)
        assert this.outcome.kept_fraction[app] == pytest.approx(expected, rel=1e-5), stranded
    assert all(t <= f for t, f in zip(total, free, strict=True))


@SLOW
@given(worlds())
def test_the_winners_are_optimal_and_pay_what_they_cost_others(snapshot: Snapshot) -> None:
    assert_optimal_and_paid(snapshot)


@SLOW
@given(worlds(limits=Limits(equal_gpus_per_node=True), held=False))
def test_also_with_equal_gpus_on_each_node(snapshot: Snapshot) -> None:
    assert_optimal_and_paid(snapshot)


@SLOW
@given(worlds(limits=Limits(one_type_per_job=True)))
def test_also_with_one_type_a_job(snapshot: Snapshot) -> None:
    assert_optimal_and_paid(snapshot)


@SLOW
@given(worlds(), st.sampled_from(["randomised", "floor"]))
def test_the_payment_is_c_of_the_value_in_expectation(snapshot: Snapshot, mode: str) -> None:
    this = rounds(snapshot, payment=mode)
    for app, payment in this.payments.items():
        assert this.outcome is not None
        won = this.outcome.wins[app]
        c = this.outcome.kept_fraction[app]
        assert all(0 < g <= won[n] for n, g in payment.kept.items())
        assert sum(p for _, p in payment.choices) == pytest.approx(1)
        if mode == "floor":
            assert sum(payment.kept.values()) <= c * sum(won.values()) + 1e-9
            continue
        agent, base = this.standings[app].agent, this.standings[app].base
        whole = {n: base.get(n, 0) + won.get(n, 0) for n in {*base, *won}}
        value = 1 / agent.rho(whole)
        assert payment.due == pytest.approx(c * value) or agent.rho(whole) == inf
        if payment.exact:
            assert payment.expected == pytest.approx(c * value)
        else:  # what the app has anyway is worth more than it would be left
            assert not payment.kept
            assert payment.expected > payment.due


@SLOW
@given(worlds())
def test_the_knapsack_finds_the_same_winners_value(snapshot: Snapshot) -> None:
    """The way of large auctions, in which no tie is settled by the program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auction, "SETTLED", 0)
        assert_optimal_and_paid(snapshot)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("below", [1e-6, 0.05])
def test_the_knapsack_and_the_whole_program_agree_on_crowded_clusters(seed: int, below: float) -> None:
    """More bidders than brute force can tell: nodes of several sizes, two racks, gangs that fragment them."""
    draw = Random(seed)
    nodes = [node(f"n{i}", draw.choice([1, 3, 4]), "v100", f"r{i % 2}") for i in range(6)]
    jobs = []
    for i in range(9):
        least, s = draw.choice([1, 2, 3]), sorted((draw.uniform(1, 2), draw.uniform(1, 2)))
        rate = {"v100": {n: n ** draw.uniform(0.6, 1) for n in (1, 2, 4, 8)}}
        span = (least, draw.choice([least, least + 3]))
        jobs.append(job(f"j{i}", span, rate=rate, slowdown=Slowdown(1.0, *s), submitted=draw.uniform(0, 500)))
    snapshot = world(nodes, jobs, now=600.0, tenants=[Tenant(f"j{i}", cap=3 if i == 0 else None) for i in range(9)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auction, "SETTLED", 0)
        patch.setattr(auction, "NEAR", below)
        quick = rounds(snapshot).outcome
        patch.setattr(auction.Knapsack, "fits", lambda bids, room: False)
        whole = rounds(snapshot).outcome
    assert quick is not None
    assert whole is not None
    assert quick.objective == pytest.approx(whole.objective, abs=1e-5)
    total = sum(quick.rows[a].gpus for a in quick.rows)
    assert total <= sum(n.gpus for n in nodes)
    # Which of several optima is chosen may differ, and with it who wins; a bidder that wins the same pays the same.
    for app in quick.rows.keys() & whole.rows.keys():
        if quick.rows[app] == whole.rows[app]:
            assert quick.kept_fraction[app] == pytest.approx(whole.kept_fraction[app], rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cells", [600, 8_000_000])
def test_two_types_in_whole_tables_and_in_windows(seed: int, cells: int) -> None:
    """A scarce fast type: windows say what they may have missed, and no more than that is missed."""
    draw = Random(seed)
    nodes = [node(f"n{i}", 4, ("k80", "v100")[i % 2], f"r{i // 2 % 2}") for i in range(4)]
    jobs = []
    for i in range(8):
        slow = {n: n ** draw.uniform(0.6, 1) for n in (1, 2, 4)}
        rate = {"k80": slow, "v100": {n: r * draw.uniform(1.5, 4) for n, r in slow.items()}}
        least = draw.choice([1, 2])
        jobs.append(job(f"j{i}", (least, least + 2), rate=rate, submitted=draw.uniform(0, 500)))
    snapshot = world(nodes, jobs, now=600.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auction, "SETTLED", 0)
        patch.setattr(knapsack, "CELLS", cells)
        patch.setattr(knapsack, "LEAST_SIDE", 1)
        quick = rounds(snapshot).outcome
        patch.setattr(auction.Knapsack, "fits", lambda bids, room: False)
        whole = rounds(snapshot).outcome
    assert quick is not None
    assert whole is not None
    assert whole.termination is Termination.OPTIMAL
    short = whole.objective - quick.objective
    assert -1e-5 <= short <= (quick.gap or 0.0) * abs(quick.objective) + 1e-5
    if quick.termination is Termination.OPTIMAL:
        assert short <= 1e-5


@st.composite
def sweeps(draw: st.DrawFn) -> Snapshot:
    """Apps of two or three jobs beside an app of one."""
    nodes = [node(f"n{i}", draw(st.integers(1, 3)), "v100", draw(st.sampled_from("rs"))) for i in range(2)]
    jobs = []
    for app, count in (("a", 2), ("b", draw(st.integers(2, 3))), ("c", 1)):
        for i in range(count):
            low = draw(st.integers(1, 2))
            jobs.append(
                job(
                    f"{app}{i}",
                    draw(st.sampled_from([low, (low, low + 2), (1, 4)])),
                    app=app,
                    total=draw(st.sampled_from([100.0, 400.0])),
                    rate={"v100": {1: 1.0, 4: draw(st.floats(1.0, 4.0))}},
                    submitted=draw(st.sampled_from([0.0, 300.0])),
                )
            )
    return world(nodes, jobs, now=600.0)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sweeps())
def test_apps_of_several_jobs_win_the_best_there_is_for_them(snapshot: Snapshot) -> None:
    """What a bundle is worth is the app's own schedule's answer (see `test_schedule`); the rest is brute force."""
    this = rounds(snapshot)
    outcome = this.outcome
    assert outcome is not None
    free = oracle.free_vector(snapshot)
    names = [n.name for n in snapshot.cluster.nodes]
    bids = []
    for app, standing in this.standings.items():
        worth = {
            v: standing.agent.rho({n: g for n, g in zip(names, v, strict=True) if g}) if any(v) else inf
            for v in oracle.vectors(free)
        }
        bids.append(oracle.Bidder(app, tuple(0 for _ in free), outcome.log_null[app], worth))
    assert outcome.objective == pytest.approx(oracle.optimum(free, bids), abs=1e-6)
    for app, row in outcome.rows.items():
        own = outcome.log_null[app] - log(row.rho)
        expected = oracle.fraction(free, bids, app, outcome.objective, own)
        assert outcome.kept_fraction[app] == pytest.approx(expected, rel=1e-5)
