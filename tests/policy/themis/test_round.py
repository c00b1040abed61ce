"""One round of Themis: filter, leases, starving apps, payments, leftovers, external bids, state, determinism."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf, log2
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.answer import to_json, to_plain
from policy.contract import Context
from policy.decide import decide as decide_any
from policy.model import App, BadInput, Code, Health, Limits, Phase, Slowdown, Snapshot, Tenant, Termination
from policy.themis.offer import offer
from policy.themis.payment import pay
from policy.themis.round import Round, bids, run, share
from policy.themis.valuation import cap
from policy.throughput import Throughput
from tests.policy.themis.test_oracle import worlds
from tests.policy.themis.worlds import decide, job, node, nodes, world

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rounds(snapshot: Snapshot, seed: int = 0, **options: Any) -> Round:
    full = {"fairness_knob": 0.0, **options}
    return run(snapshot, full, Context(Throughput(snapshot.cluster), seed))


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


# --- payment -----------------------------------------------------------------------------------------------


def contended() -> Snapshot:
    return world(nodes(2, 4), [job(f"j{i}", (1, 8), total=500.0 * (i + 1)) for i in range(3)])


def test_the_share_kept_is_what_others_lose() -> None:
    """Two equal apps, linear speed-up, four GPUs: two each, and each would have left the other all four."""
    jobs = [job(n, (1, 4), total=100.0) for n in ("a", "b")]
    this = rounds(world(nodes(1, 4), jobs))
    assert this.outcome is not None
    assert this.outcome.wins == {"a": {"n0": 2}, "b": {"n0": 2}}
    assert this.outcome.kept_fraction == pytest.approx({"a": 0.5, "b": 0.5})
    assert this.payments["a"].expected == pytest.approx(0.5 / this.standings["a"].agent.rho({"n0": 2}))
    assert sum(sum(b.values()) for b in this.bundles.values()) == 4  # leftovers come back: nothing idles


def test_nobody_pays_where_nobody_is_in_the_way() -> None:
    this = rounds(world(nodes(2, 4), [job("a", (1, 4)), job("b", (1, 4))]))
    assert this.outcome is not None
    assert this.outcome.kept_fraction == {"a": 1.0, "b": 1.0}
    assert this.outcome.solves == 1  # no solve without a winner was needed


def test_floor_is_the_largest_gang_below_the_share() -> None:
    rho = {1: 4.0, 2: 2.0, 3: inf, 4: 1.0}
    for fraction, kept in ((1.0, 4), (0.99, 2), (0.75, 2), (0.5, 2), (0.49, 1), (0.24, 0)):
        from random import Random

        paid = pay({"n": 4}, {}, {"n": ""}, fraction, 0.1, lambda b: rho[b["n"]], "floor", Random(0))
        assert sum(paid.kept.values()) == kept


def test_the_draw_has_the_expected_value() -> None:
    """Ten thousand draws come within three standard errors of c times the value of the win."""
    from random import Random

    random = Random(1)
    values = []
    for _ in range(10_000):
        paid = pay({"n": 4}, {}, {"n": ""}, 0.6, 0.1, lambda b: 4 / b["n"], "randomised", random)
        values.append(sum(paid.kept.values()) / 4)
    mean = sum(values) / len(values)
    spread = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    assert set(values) == {0.5, 0.75}
    assert abs(mean - 0.6) < 3 * spread / 100


def test_gpus_go_back_from_the_least_local_node() -> None:
    from random import Random

    rack = {"a": "r", "b": "r", "c": "s"}
    won = {"a": 3, "b": 2, "c": 3}
    paid = pay(won, {}, rack, 0.5, 0.0, lambda b: 8 / sum(b.values()), "floor", Random(0))
    assert paid.kept == {"a": 3, "b": 1}


def test_a_lease_can_be_worth_more_than_what_is_due() -> None:
    """With most of the value under lease, giving back all of the win is still too little: kept as far as it goes."""
    from random import Random

    paid = pay({"n": 1}, {"n": 3}, {"n": ""}, 0.5, 1 / (4 / 3), lambda b: 4 / (3 + b["n"]), "randomised", Random(0))
    assert paid.kept == {}
    assert not paid.exact
    assert paid.expected > paid.due


# --- leftovers ---------------------------------------------------------------------------------------------


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


# --- apps of several jobs ----------------------------------------------------------------------------------


def test_an_app_divides_its_gpus_among_its_jobs() -> None:
    jobs = [job(f"t{i}", (1, 8), app="sweep", tenant="us", total=80.0) for i in range(4)]
    app = App("sweep", "successive-halving", None, None, (Phase(4, 8), Phase(2, 16), Phase(1, 32)))
    decision = decide(world(nodes(2, 2, racks=2), jobs, apps=[app]), fairness_knob=0.0)
    assert sum(sum(a.values()) for a in decision.allocation.values()) == 4
    assert decision.certificate.feasible
    held = {n: a for n, a in decision.allocation.items() if a}
    assert all(len(a) == 1 for a in held.values())  # nobody pays for the network where it need not


def test_jobs_that_run_go_on_where_it_costs_little() -> None:
    """Two of four equal jobs run, one GPU each: the next round does not swap them for the other two."""
    ends = {"t2": ("n0", 100.0), "t3": ("n1", 100.0)}
    jobs = [
        job(
            f"t{i}",
            1,
            app="sweep",
            tenant="us",
            total=100.0,
            done=1.0 if f"t{i}" in ends else 0.0,
            allocation={ends[f"t{i}"][0]: 1} if f"t{i}" in ends else {},
            lease={ends[f"t{i}"][0]: [ends[f"t{i}"][1]]} if f"t{i}" in ends else {},
        )
        for i in range(4)
    ]
    decision = decide(world(nodes(2, 1), jobs, now=600.0), fairness_knob=0.0)
    assert decision.allocation == {"t0": {}, "t1": {}, "t2": {"n0": 1}, "t3": {"n1": 1}}
    assert decision.reasons["t0"].code is Code.WAITS_TURN
    assert "runs other jobs first" in decision.reasons["t0"].text


def test_curve_stopping_takes_the_most_optimistic_curve() -> None:
    from policy.model import LossForecast
    from policy.themis.options import Options
    from policy.themis.valuation import valuations

    forecast = LossForecast("power", {"iterations": 500.0}, (0.8, 1.5))
    jobs = [job("t0", 1, app="a", tenant="t", total=None, done=100.0, loss_forecast=forecast)]
    snapshot = world(nodes(1, 1), jobs, apps=[App("a", "curve-stopping")])
    (value,) = valuations(snapshot, Options(), Throughput(snapshot.cluster)).values()
    assert value.phases[0][0].iterations == pytest.approx((500 - 100) * 1.5)
    plain = valuations(replace(snapshot, apps=()), Options(), Throughput(snapshot.cluster))["a"]
    assert plain.phases[0][0].iterations == pytest.approx(400)


def test_an_unknown_length_is_as_much_again_at_least_an_hour() -> None:
    jobs = [
        job("new", 1, total=None, rate=2.0),
        job("long", 1, total=None, done=90_000.0, rate=2.0),
        replace(job("secret", 1, total=10.0, rate=2.0), known=False),
    ]
    from policy.themis.options import Options
    from policy.themis.valuation import valuations

    snapshot = world(nodes(1, 4), jobs)
    left = {
        a: v.phases[0][0].iterations for a, v in valuations(snapshot, Options(), Throughput(snapshot.cluster)).items()
    }
    assert left == {"new": 7200.0, "long": 90_000.0, "secret": 7200.0}


def test_splitting_an_app_buys_nothing_with_weights() -> None:
    """T_id of an app grows with the number of its tenant's apps; with one app a tenant, nothing changes."""
    from policy.themis.options import Options
    from policy.themis.valuation import valuations

    jobs = [job("a", 1, tenant="x"), job("b", 1, tenant="x"), job("c", 1, tenant="y")]
    snapshot = world(nodes(1, 4), jobs)
    speeds = Throughput(snapshot.cluster)
    plain = {a: v.ideal_s for a, v in valuations(snapshot, Options(), speeds).items()}
    weighed = {a: v.ideal_s for a, v in valuations(snapshot, Options(weigh="tenants"), speeds).items()}
    assert plain["a"] == plain["c"]
    assert weighed["a"] == pytest.approx(2 * weighed["c"])
    assert 3 / weighed["c"] == pytest.approx(3 * 3 / (2 * plain["c"]))


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_weights_are_exponents_in_the_product_and_roots_in_the_payment(weight: float) -> None:
    """Against all choices of rows, for three apps of two tenants on five GPUs of one node."""
    from itertools import product
    from math import exp, log

    jobs = [job("a", (1, 5), tenant="x", total=2000.0), job("b", (1, 4), tenant="x"), job("c", (1, 5), tenant="y")]
    held = [replace(j, allocation={"n0": 1}, lease_until={"n0": (9999.0,)}) for j in jobs]
    tenants = [Tenant("x", 1.0), Tenant("y", weight)]
    snapshot = replace(world(nodes(1, 8), held, now=600.0), tenants=tuple(tenants))
    this = rounds(snapshot, weigh="tenants")
    assert this.outcome is not None
    weighs = {b.app: b.weight for b in this.bids}
    assert weighs["c"] == pytest.approx(2 * weight * weighs["a"])

    def best(bids: list[Any]) -> tuple[float, dict[str, float]]:
        """The most that these bidders reach on the five GPUs, and each one's part of it."""
        top, parts = 0.0, dict.fromkeys((b.app for b in bids), 0.0)
        for rows in product(*([None, *b.rows] for b in bids)):
            if sum(r.gpus for r in rows if r is not None) > 5:
                continue
            gains = {
                b.app: b.weight * log(b.null_rho / r.rho) if r is not None else 0.0
                for b, r in zip(bids, rows, strict=True)
            }
            if sum(gains.values()) > top + 1e-12:
                top, parts = sum(gains.values()), gains
        return top, parts

    top, parts = best(this.bids)
    assert this.outcome.objective == pytest.approx(top)
    for app, fraction in this.outcome.kept_fraction.items():
        without, _ = best([b for b in this.bids if b.app != app])
        assert fraction == pytest.approx(exp((top - parts[app] - without) / weighs[app]), rel=1e-6), app


# --- external bids -----------------------------------------------------------------------------------------


def bid_state(time_s: float, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"bids": {"ext": {"time_s": time_s, "rows": rows}}}


def test_an_external_bid_takes_the_place_of_the_agents() -> None:
    jobs = [job("ext", (1, 4)), job("other", (1, 4))]
    rows = [{"nodes": {"n1": 3}, "rho": 0.01}]
    this = rounds(world(nodes(2, 4), jobs, now=600.0, state=bid_state(590.0, rows)))
    assert this.outcome is not None
    assert this.outcome.wins["ext"] == {"n1": 3}


def test_rows_that_cannot_be_are_left_out_and_counted() -> None:
    rows = [
        {"nodes": {"n9": 1}, "rho": 0.5},
        {"nodes": {"n1": 9}, "rho": 0.5},
        {"nodes": {"n1": True}, "rho": 0.5},
        {"nodes": {"n1": 2}, "rho": float("nan")},
        {"nodes": {"n1": 2}, "rho": -1},
        {"nodes": "n1", "rho": 1},
        {"nodes": {"n1": 2}, "rho": 0.5},
    ]
    this = rounds(world(nodes(2, 4), [job("ext", (1, 4))], now=600.0, state=bid_state(600.0, rows)))
    assert this.outcome is not None
    assert this.outcome.wins == {"ext": {"n1": 2}}
    assert "6 rows of the bid of ext cannot be and were left out" in this.notes


def test_a_late_bid_gives_way_to_the_last_table() -> None:
    jobs = [job("ext", (1, 4)), job("other", (1, 4))]
    rows = [{"nodes": {"n1": 2}, "rho": 0.01}]
    snapshot = world(nodes(2, 4), jobs, now=600.0, state=bid_state(600.0, rows))
    first = decide(snapshot, fairness_knob=0.0, trust=1e9)
    assert first.reasons["ext"].numbers["bid_by"] == "agent"
    assert first.state["tables"] == {"ext": [{"gpus": 2, "span": "node", "rho": 0.01}]}
    assert "bids" not in first.state
    late = {**first.state, **bid_state(600.0, [{"nodes": {"n1": 4}, "rho": 0.001}])}
    this = rounds(world(nodes(2, 4), jobs, now=1200.0, state=late))
    assert this.outcome is not None
    assert [r.gpus for b in this.bids if b.app == "ext" for r in b.rows] == [2]
    assert any("last table stands in" in n for n in this.notes)


def test_a_lie_is_believed_only_as_far_as_trust_goes() -> None:
    """What an agent says beyond `trust` times what was measured changes nothing any more."""
    jobs = [job("ext", (1, 4), total=4000.0), job("other", (1, 4))]

    def told(rho: float, trust: float = 2.0) -> Round:
        rows = [{"nodes": {"n0": 4}, "rho": rho}, {"nodes": {}, "rho": 1e9}]
        snapshot = world(nodes(1, 4), jobs, now=600.0, state=bid_state(600.0, rows))
        return rounds(snapshot, trust=trust)

    def row(this: Round) -> float:
        return next(b for b in this.bids if b.app == "ext").rows[0].rho

    honest = row(rounds(world(nodes(1, 4), jobs, now=600.0)))
    assert row(told(honest * 3)) == pytest.approx(honest * 3), "what says to be worse is taken at its word"
    assert row(told(1e-9)) == row(told(honest / 100)) == pytest.approx(honest / 2)
    assert row(told(honest / 1.5)) == pytest.approx(honest / 1.5)
    assert row(told(1e-9, trust=1.0)) == pytest.approx(honest)
    assert any("more than 2 times better than was measured" in note for note in told(1e-9).notes)
    liar = decide(world(nodes(1, 4), jobs, now=600.0, state=bid_state(600.0, [{"nodes": {"n0": 4}, "rho": 1e-9}])))
    assert liar.certificate.rho["ext"] is None or liar.certificate.rho["ext"] > 1e-3, "measured, not believed"


def test_bids_of_an_unknown_app_are_refused() -> None:
    snapshot = world(nodes(1, 1), [job("a", 1)])
    with pytest.raises(BadInput, match="no active app"):
        bids(snapshot, {}, Context(Throughput(snapshot.cluster)), "nobody")


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
        assert any("c of" in n and "incumbent" in n for n in decision.certificate.notes)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_both_solvers_agree(solver: str) -> None:
    this = rounds(contended())
    other = run(contended(), {"fairness_knob": 0.0}, Context(Throughput(contended().cluster), 0, None, solver))
    assert this.outcome is not None
    assert other.outcome is not None
    assert other.outcome.objective == pytest.approx(this.outcome.objective)
