"""The scheduler's answers to the agent, the offer desk, and the hook over a real ledger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from horae.apps import hook
from horae.apps.desk import Desk, wins
from horae.apps.scheduler import AppScheduler, Sweep
from horae.apps.sweep import VARIABLE, to_text
from policy.decide import decide
from policy.model import App, BadInput, Phase, Snapshot
from policy.throughput import Throughput
from tests.policy.themis.worlds import job, nodes, world

APP = App("s", "successive-halving", None, None, (Phase(4, 8), Phase(2, 16), Phase(1, 36)))


def sweep(done: float = 0.0) -> Sweep:
    jobs = [job(f"j{t}", (1, 8), total=60, done=done, rate=1 / t, app="s", tenant="t") for t in (80, 100, 101, 120)]
    snapshot = world(nodes(2, 4), jobs, apps=[APP])
    return Sweep(APP, snapshot.jobs, Throughput(snapshot.cluster))


def test_the_questions_of_figure_7() -> None:
    asked = sweep(done=3.0)
    assert isinstance(asked, AppScheduler)
    assert asked.get_num_phases() == 3
    now = asked.get_jobs_in_phase(0, [2])
    assert [i.iterations_remaining for i in now] == [5.0] * 4
    assert [i.seconds_per_iteration for i in now] == pytest.approx([80, 100, 101, 120])
    assert now[0].locality_sensitivity == pytest.approx(1.3)
    later = asked.get_jobs_in_phase(1, [2])
    assert [(i.iterations_remaining, round(i.seconds_per_iteration)) for i in later] == [(16, 101), (16, 101)]
    assert [i.iterations_remaining for i in asked.get_jobs_remaining([2])] == [57.0] * 4
    assert sweep(done=8.0).get_jobs_in_phase(0, [2]) == []
    with pytest.raises(IndexError):
        asked.get_jobs_in_phase(3, [2])


def test_the_hook_reads_apps_from_the_journal() -> None:
    def record(name: str, app: str, text: str | None, at: float) -> Any:
        env = {} if text is None else {VARIABLE: text}
        return SimpleNamespace(id=name, app_key=app, submitted_s=at, spec=SimpleNamespace(env=env))

    records = [
        record("1", "s", to_text(APP, {"lr": 0.1}), 0.0),
        record("2", "s", to_text(APP, {"lr": 0.2}), 0.0),
        record("3", "plain", None, 1.0),
        record("4", "liar", '{"phases": 3}', 2.0),
    ]
    ledger: Any = SimpleNamespace(live=lambda pool: records if pool == "p" else [])
    assert hook.apps(ledger, "p") == (APP,)
    assert hook.apps(ledger, "q") == ()


# --- external agents ---------------------------------------------------------------------------------------


def contested() -> Snapshot:
    apps = [App("ext", "external")]
    return world(nodes(2, 4), [job("ext", (1, 4)), job("other", (1, 4))], now=600.0, apps=apps)


def test_offer_bid_win() -> None:
    snapshot, desk = contested(), Desk()
    offer = desk.open(snapshot, patience_s=5.0)
    assert offer is not None
    assert offer.gpus == {"n0": 4, "n1": 4}
    assert desk.waiting_for(snapshot.apps, 601.0) == ["ext"]
    desk.bid("ext", offer.number, [{"nodes": {"n1": 3}, "rho": 0.01}], 602.0)
    assert desk.waiting_for(snapshot.apps, 602.0) == []
    state = Desk.from_plain(desk.to_plain()).into({"round": 3})
    with_bid = world(snapshot.cluster.nodes, snapshot.jobs, now=603.0, apps=snapshot.apps, state=state)
    decision = decide(with_bid, "themis", {"fairness_knob": 0.0})
    assert decision.reasons["ext"].numbers["won"] == 3
    assert wins(with_bid, decision, "ext")["ext"] == decision.allocation["ext"]


def test_late_and_false_bids_are_refused_in_words() -> None:
    desk = Desk()
    with pytest.raises(BadInput, match="none is open"):
        desk.bid("ext", 1, [], 0.0)
    offer = desk.open(contested(), patience_s=5.0)
    assert offer is not None
    with pytest.raises(BadInput, match="after the deadline"):
        desk.bid("ext", offer.number, [], 606.0)
    rows: list[dict[str, Any]] = [
        {"nodes": {"n9": 1}, "rho": 1},
        {"nodes": {"n0": 5}, "rho": 1},
        {"nodes": {"n0": 1}, "rho": 0},
        {"nodes": {"n0": True}, "rho": 1},
        {"nodes": 3, "rho": 1},
        {"nodes": {}, "rho": float("inf")},
    ]
    for row in rows:
        with pytest.raises(BadInput, match="rows"):
            desk.bid("ext", offer.number, [row], 601.0)
    assert desk.bids == {}
    assert desk.waiting_for([App("ext", "external")], 606.0) == []


def test_a_new_offer_voids_old_bids_and_nothing_free_is_no_offer() -> None:
    desk = Desk()
    first = desk.open(contested(), 5.0)
    assert first is not None
    desk.bid("ext", first.number, [{"nodes": {"n0": 1}, "rho": 1.0}], 601.0)
    second = desk.open(contested(), 5.0)
    assert second is not None
    assert second.number == first.number + 1
    assert desk.into({}) == {}
    full = world(nodes(1, 1), [job("a", 1, allocation={"n0": 1}, lease={"n0": [9.0]})])
    assert Desk().open(full, 5.0) is None
