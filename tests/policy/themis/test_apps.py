"""Apps of several jobs under Themis, and bids that come from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from policy.contract import Context
from policy.model import App, BadInput, Code, Job, Phase, Tenant
from policy.themis import schedule as schedules
from policy.themis.auction import valuation
from policy.themis.round import Round, bids, run
from policy.themis.schedule import Task
from policy.throughput import Throughput
from tests.policy.themis.worlds import decide, job, nodes, rounds, world

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
    from policy.themis.auction.valuation import valuations
    from policy.themis.options import Options

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
    from policy.themis.auction.valuation import valuations
    from policy.themis.options import Options

    snapshot = world(nodes(1, 4), jobs)
    left = {
        a: v.phases[0][0].iterations for a, v in valuations(snapshot, Options(), Throughput(snapshot.cluster)).items()
    }
    assert left == {"new": 7200.0, "long": 90_000.0, "secret": 7200.0}


def test_splitting_an_app_buys_nothing_with_weights() -> None:
    """T_id of an app grows with the number of its tenant's apps; with one app a tenant, nothing changes."""
    from policy.themis.auction.valuation import valuations
    from policy.themis.options import Options

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


# --- apps of very many jobs --------------------------------------------------------------------------------


def differing(jobs: int, top: int | None, **more: Any) -> list[Job]:
    """One app's jobs, each with a speed of its own."""
    curves = [{"v100": {1: 1 + i / 1000, 2: 1.9 + i / 1000, 4: 3.4, 8: 5.5}} for i in range(jobs)]
    shared = {"app": "sweep", "tenant": "us", **more}
    return [job(f"j{i}", (1, top), total=1e5 + i, rate=curve, **shared) for i, curve in enumerate(curves)]


def leased_in_part(jobs: list[Job]) -> list[Job]:
    """Four of its jobs run on a node each; a job of another app came first."""
    held = [
        replace(each, allocation={f"n{i}": 8}, lease_until={f"n{i}": (400.0,) * 8}) if i < 4 else each
        for i, each in enumerate(jobs)
    ]
    return [*held, job("other", (1, 2), submitted=-50.0)]


@pytest.mark.parametrize(
    ("top", "jobs_of"),
    [
        (8, list),
        (None, list),
        (8, leased_in_part),
    ],
    ids=[
        "up to eight GPUs",
        "any number of GPUs",
        "some under lease",
    ],
)
def test_an_app_of_many_jobs_that_differ_takes_no_more_work_than_one_of_few(
    monkeypatch: pytest.MonkeyPatch, top: int | None, jobs_of: Callable[[list[Job]], list[Job]]
) -> None:
    """Each bundle that is looked at costs a schedule of all jobs: it stopped everybody's decisions."""

    def work(jobs: int) -> int:
        placed = 0

        def counted(tasks: Sequence[Task], order: Sequence[int], *rest: Any) -> Any:
            nonlocal placed
            placed += len(order)
            return real(tasks, order, *rest)

        monkeypatch.setattr(schedules, "_run", counted)
        decided = decide(world(nodes(10, 8, racks=2), jobs_of(differing(jobs, top)), now=100.0), fairness_knob=0.8)
        assert sum(sum(held.values()) for held in decided.allocation.values()) == 80
        return placed

    real = schedules._run
    assert work(400) <= 2 * work(100)


@pytest.mark.parametrize(("ours", "others"), [(60, 30), (40, 100)])
def test_looked_at_coarsely_the_auction_is_worth_as_much(
    monkeypatch: pytest.MonkeyPatch, ours: int, others: int
) -> None:
    """What each app may expect to keep of what it won, by its own measure, where not every bundle is bid for. (What
    is left over goes by chance.)"""
    theirs = [replace(each, name=f"their-{each.name}") for each in differing(others, 8, app="theirs", tenant="them")]
    snapshot = world(nodes(10, 8, racks=2), [*differing(ours, 8), *theirs], now=100.0)
    coarse = rounds(snapshot)
    monkeypatch.setattr(valuation, "CLOSELY", 1 << 40)
    close = rounds(snapshot)
    for app in ("sweep", "theirs"):
        assert coarse.payments[app].exact
        assert coarse.payments[app].expected == pytest.approx(close.payments[app].expected, rel=0.1)


def test_what_the_auctions_time_does_not_reach_costs_no_program_and_takes_nothing_from_anybody() -> None:
    """A c that was not worked out may be too large, never too small; and the certificate says that a clock ended it."""
    jobs = [replace(each, app=each.name, tenant=each.name) for each in differing(60, 8)]
    snapshot = world(nodes(5, 8), jobs, now=100.0)
    speeds, options = Throughput(snapshot.cluster), {"fairness_knob": 0.0}
    whole = run(snapshot, options, Context(speeds)).outcome
    late = run(snapshot, options, Context(speeds, time_limit_s=1e-6))
    assert whole is not None and late.outcome is not None
    assert whole.solves > len(whole.wins) > 2 * late.outcome.solves
    assert late.outcome.clock
    assert sum(sum(held.values()) for held in late.gangs.values()) == 40
    for app, fraction in whole.kept_fraction.items():
        assert late.outcome.kept_fraction[app] >= fraction - 1e-9
