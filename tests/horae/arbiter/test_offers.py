"""Offer, bid, win: apps' own agents under Themis, on the fake cluster and a clock that moves when told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.requests.agents import Agents
from horae.arbiter.requests.authority import NotAllowed
from horae.config import Mode
from horae.journal import Kind
from horae.journal.folds.bidding import MOST_MISSED
from horae.port import JobState
from horae.views.explain import explain
from horae.views.sentences import sentence
from policy.contract import Context
from policy.decide import choose, decide
from policy.model import BadInput
from policy.themis import bidding
from policy.themis.round import bids
from policy.throughput import Throughput
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, spec

EXT = "ann/tune"


def themis(tmp_path: Path, **options: Any) -> Site:
    """Two apps on 16 GPUs: ann's, which has an agent of its own, and ben's."""
    pool = {"name": "p", "policy": "themis", "options": {"lease": 60.0, "fairness_knob": 0.0, **options}}
    site = Site(tmp_path, policy=decide, pools=[pool])
    rates: dict[str, Any] = {"steps": 4000, "throughput": {"k80": {1: 1.0}, "v100": {1: 2.0}}}
    site.commands.submit([spec(name, (1, 8), app="tune", **rates) for name in ("a", "b")], ANN)
    site.commands.submit([spec("other", (1, 8), **rates)], BEN)
    return site


def registered(site: Site) -> Agents:
    """With an agent for ann's app and an open offer."""
    agents = Agents(site.core)
    assert agents.register("tune", ANN) == {"app": EXT, "pool": "p", "bid_s": 5.0}
    for _ in range(40):
        site.run(0.25)
        if agents.offer("tune", ANN)["offer"] is not None:
            return agents
    raise AssertionError("nothing is offered")


def sentences(site: Site, *kinds: Kind) -> list[str]:
    return [sentence(e) for e in site.journal.history(kinds=kinds)]


def test_offer_bid_win(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    found = agents.offer(EXT, ANN)
    offer = found["offer"]
    assert sum(offer["gpus"].values()) == 16
    assert offer["nodes"]["n1"]["gpu_type"] == "k80"
    assert [j["name"] for j in found["jobs"]] == ["a", "b"]
    assert site.job("1").reason is None, "the policy is not asked before the bids are in"
    assert not agents.win("tune", offer["number"], ANN)["settled"]
    agents.bid("tune", offer["number"], [{"nodes": {"n3": 2}, "rho": 0.9, "gpus": 2}], ANN)
    site.run(1.0)
    won = agents.win("tune", offer["number"], ANN)
    assert won["settled"]
    assert won["numbers"]["bid_by"] == "agent"
    assert won["numbers"]["won"] == 2
    assert won["jobs"], "nobody else wants so little that nothing is left for it"
    told = explain(site.core.ledger, site.config, site.job("1"), site.core.now_s())
    (cause,) = [c for c in told.causes if c.what == "app"]
    assert "table of 1 rows came in time" in cause.text
    assert cause.numbers["won"] == 2
    assert any("app ann/tune bids 1 rows" in s for s in sentences(site, Kind.BID))
    site.until("1", JobState.RUNNING)


def test_without_a_bid_the_built_in_agent_bids_at_the_deadline(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    number = agents.offer("tune", ANN)["offer"]["number"]
    site.run(3.0)
    assert site.job("1").reason is None, "there is time left to bid"
    site.run(4.0)
    won = agents.win("tune", number, ANN)
    assert (won["settled"], won["came"], won["numbers"]["bid_by"]) == (True, False, "built-in")
    assert "sent no table in time, the built-in agent bid for it" in won["text"]
    assert any("sent no table in time" in s for s in sentences(site, Kind.SETTLED))
    assert won["jobs"]
    with pytest.raises(BadInput, match="is not the open offer"):
        agents.bid("tune", number, [], ANN)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"nodes": {"n9": 1}, "rho": 1}], "n9, which offers 0"),
        ([{"nodes": {"n1": 5}, "rho": 1}], "5 GPUs of n1, which offers 4"),
        ([{"nodes": {"n1": True}, "rho": 1}], "asks for True"),
        ([{"nodes": {"n1": 1}, "rho": 0}], "must be a number above 0"),
        ([{"nodes": {"n1": 1}, "rho": float("inf")}], "must be a number above 0"),
        ([{"nodes": {"n1": 1}}], "must be a number above 0"),
        ([{"nodes": 3, "rho": 1}], "must map nodes to GPUs"),
        ([{"nodes": {"n1": 1}, "rho": 1, "gpus": 3}], "says 3 GPUs"),
        ([{"nodes": {"n1": 1}, "rho": 1}] * 1001, "has 1001 rows"),
    ],
)
def test_a_row_that_cannot_be_is_refused_in_words(rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        bidding.checked(rows, {"n1": 4})
    assert caught.value.field.startswith("bids")
    assert caught.value.remedy


def test_after_a_refused_table_the_built_in_agent_bids(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    number = agents.offer("tune", ANN)["offer"]["number"]
    words = "5 GPUs of n1, which offers 4"
    for _ in range(3):
        with pytest.raises(BadInput, match=words):
            agents.bid("tune", number, [{"nodes": {"n1": 5}, "rho": 1}], ANN)
    assert len(site.journal.history(kinds=[Kind.BID_REFUSED])) == 1, "on record once, however often it is sent"
    site.run(6.0)
    won = agents.win("tune", number, ANN)
    assert "was refused" in won["text"] and words in won["text"]
    assert won["numbers"]["bid_by"] == "built-in"


def test_a_bid_after_the_deadline_is_late(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    number = agents.offer("tune", ANN)["offer"]["number"]
    site.time.now += 6.0  # the arbiter has not looked again yet
    with pytest.raises(BadInput, match="s after the deadline"):
        agents.bid("tune", number, [{"nodes": {"n1": 1}, "rho": 1.0}], ANN)
    site.run(1.0)
    assert "after the deadline" in agents.win("tune", number, ANN)["text"]


def test_an_agent_that_is_gone_is_not_waited_for_any_more(tmp_path: Path) -> None:
    site = themis(tmp_path, lease=5.0)
    registered(site)
    site.run(60.0)
    assert len(site.journal.history(kinds=[Kind.OFFERED])) == MOST_MISSED
    assert EXT not in site.core.ledger.pool("p").agents
    with pytest.raises(BadInput, match="no agent is registered"):
        Agents(site.core).offer("tune", ANN)
    decided = len(site.journal.history(kinds=[Kind.DECIDED]))
    site.run(20.0)
    assert len(site.journal.history(kinds=[Kind.DECIDED])) > decided, "rounds go on without it"


def test_an_agent_may_leave_and_takes_its_last_table_along(tmp_path: Path) -> None:
    site = themis(tmp_path, lease=10.0)
    agents = registered(site)
    agents.bid("tune", 1, [{"nodes": {"n1": 1}, "rho": 5.0}], ANN)
    site.run(2.0)
    assert EXT in site.core.ledger.pool("p").state["tables"]
    agents.leave("tune", ANN)
    site.run(60.0)
    assert EXT not in site.core.ledger.pool("p").state.get("tables", {})
    assert len(site.journal.history(kinds=[Kind.OFFERED])) == 1


def test_only_the_owner_of_all_its_jobs_speaks_for_an_app(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    asks: list[Any] = [
        lambda who: agents.register("ann/tune", who),
        lambda who: agents.leave("ann/tune", who),
        lambda who: agents.offer("ann/tune", who),
        lambda who: agents.bid("ann/tune", 1, [], who),
        lambda who: agents.win("ann/tune", 1, who),
        lambda who: agents.picture("ann/tune", who),
    ]
    for ask in asks:
        with pytest.raises(NotAllowed, match="only their owner bids"):
            ask(BEN)
    assert agents.offer("tune", ROOT)["app"] == EXT
    with pytest.raises(BadInput, match="there is no app nothing"):
        agents.register("nothing", ANN)
    site.commands.submit([spec("c", app="tune")], BEN)
    with pytest.raises(BadInput, match="several tenants"):
        agents.offer("tune", ANN)


def test_where_no_bids_are_taken_nobody_registers(tmp_path: Path) -> None:
    site = Site(tmp_path, pools=[{"name": "p", "mode": "enforce", "policy": "max-min"}])
    site.commands.submit([spec("a", app="tune")], ANN)
    with pytest.raises(BadInput, match="takes no bids"):
        Agents(site.core).register("tune", ANN)


def test_what_the_agent_sees_gives_the_bids_that_the_arbiter_would_make(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    key, seen = agents.picture("tune", ANN)
    _, options = choose(seen)
    assert options["weigh"] == "tenants", "in a living cluster an app weighs by its tenant"
    rows = bids(seen, options, Context(Throughput(seen.cluster)), key)
    assert [r["gpus"] for r in rows][:2] == [1, 2]
    agents.bid("tune", 1, rows, ANN)
    site.run(1.0)
    mine = agents.win("tune", 1, ANN)
    alone = themis(tmp_path / "without")
    while (reason := alone.job("1").reason) is None:
        alone.run(0.25)
    built_in = reason["numbers"]
    assert mine["numbers"]["rho_before"] == pytest.approx(built_in["rho_before"], rel=0.05)
    assert mine["numbers"]["won"] == built_in["won"]


def test_an_acknowledged_bid_survives_a_crash(tmp_path: Path) -> None:
    site = themis(tmp_path)
    agents = registered(site)
    agents.bid("tune", 1, [{"nodes": {"n3": 2}, "rho": 0.9}], ANN)
    site.reopen()
    site.run(3.0)
    won = Agents(site.core).win("tune", 1, ANN)
    assert (won["came"], won["numbers"]["bid_by"]) == (True, "agent")


def test_an_offer_is_not_decided_in_a_pool_that_is_only_watched(tmp_path: Path) -> None:
    site = themis(tmp_path)
    registered(site)
    site.commands.set_mode("p", Mode.OBSERVE, ROOT)
    rounds = site.core.rounds
    site.run(30.0)
    assert site.job("1").reason is None
    assert site.core.rounds - rounds < 60, "and nobody spins on it"


def test_the_state_of_agents_and_offers_is_the_fold_of_the_journal(tmp_path: Path) -> None:
    site = themis(tmp_path, lease=5.0)
    agents = registered(site)
    agents.bid("tune", 1, [{"nodes": {"n1": 2}, "rho": 0.9}], ANN)
    site.run(20.0)
    before = site.core.ledger.pool("p")
    site.close()
    site.journal = site.open_journal()
    after = site.journal.ledger.pool("p")
    assert (before.agents, before.offer, before.offers, before.settled) == (
        after.agents,
        after.offer,
        after.offers,
        after.settled,
    )
    assert before.offers > 1
