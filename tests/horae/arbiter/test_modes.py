"""How far the arbiter goes: each mode does what it says, and the way back is one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.requests.authority import NotAllowed
from horae.config import Mode, parse
from horae.fake.faults import Raise
from horae.journal import Kind
from horae.port import FixConfiguration, JobState, TryLater
from horae.views.explain import explain
from horae.views.sentences import sentence
from policy.model import BadInput, Decision, Snapshot
from tests.horae.arbiter.site import ANN, BEN, NODES, ROOT, Site, answer, equal_shares, spec

CHANGES = {
    "follow_up",
    "submit",
    "start",
    "checkpoint_and_stop",
    "cancel",
    "release",
    "claim",
    "heartbeat",
    "set_order",
    "set_reason",
}


def pools(*modes: str, **more: Any) -> list[dict[str, Any]]:
    nodes = {1: ["n[1-4]"], 2: ["n[1-2]", "n[3-4]"]}[len(modes)]
    return [{"name": f"p{i}", "nodes": n, "mode": m, **more} for i, (n, m) in enumerate(zip(nodes, modes, strict=True))]


def occupied(tmp_path: Path, mode: str) -> Site:
    """A site that takes over a cluster with one running and two waiting jobs."""
    before = Site(tmp_path / "before")
    before.commands.submit([spec("runs", 16, steps=4000), spec("one", 4, steps=50), spec("two", 4, steps=50)], ANN)
    before.until("1", JobState.RUNNING)
    before.close()
    return Site(tmp_path / "site", world=before.world, time=before.time, pools=pools(mode))


def calls(site: Site) -> set[str]:
    return {verb for verb in CHANGES if site.fake.faults.calls[verb]}


def test_observe_reads_only(tmp_path: Path) -> None:
    site = occupied(tmp_path, "observe")
    site.run(100)
    assert calls(site) == set()
    assert site.core.decisions == {}
    assert {r.state for r in site.core.ledger.live()} == {JobState.RUNNING, JobState.QUEUED}
    with pytest.raises(NotAllowed, match="only watched"):
        site.commands.cancel("1", ANN)


def test_advise_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    site = occupied(tmp_path, "advise")
    site.world.lose(site.world.jobs["1"])
    site.run(30)
    assert calls(site) == set()
    steps = site.core.ledger.pools["p0"].advised
    assert [(s["verb"], s["job"], s["ready"]) for s in steps] == [("start", "1", True)]
    assert len(site.journal.history(kinds=[Kind.ADVISED])) >= 1
    assert site.job("1").reason is not None


def test_a_job_that_is_handed_in_is_decided_about_where_nothing_is_handed_on(tmp_path: Path) -> None:
    site = occupied(tmp_path, "advise")
    site.run(2)
    (job,) = site.commands.submit([spec("new", 4, steps=50)], ANN)
    site.world.lose(site.world.jobs["1"])
    site.policy = equal_shares
    site.run(70)
    assert calls(site) == set()
    advised = {step["job"]: step for step in site.core.ledger.pools["p0"].advised}
    assert advised[job]["verb"] == "start"
    record = site.job(job)
    found = explain(site.core.ledger, site.config, record, site.core.now_s(), site.core.plans["p0"])
    texts = [cause.text for cause in found.causes]
    assert any(text.startswith("pool p0 is in mode advise: nothing is started by us") for text in texts)
    assert any(text.startswith("the advice is to start it on ") for text in texts)
    site.commands.set_mode("p0", Mode.OBSERVE, ROOT)
    site.run(5)
    found = explain(site.core.ledger, site.config, site.job(job), site.core.now_s(), ())
    assert any(cause.text.startswith("pool p0 is in mode observe: nothing is started by us") for cause in found.causes)
    site.commands.set_mode("p0", Mode.ENFORCE, ROOT)
    site.until(job, JobState.RUNNING)


@pytest.mark.parametrize(("mode", "ends"), [("advise", False), ("order", False), ("enforce", True)])
def test_the_losers_of_an_app_end_only_where_we_may_end_jobs(tmp_path: Path, mode: str, ends: bool) -> None:
    def second_loses(snapshot: Snapshot, policy: str, *_: Any) -> Decision:
        lost = tuple(j.name for j in snapshot.jobs if j.name == "2")
        return answer(snapshot, {j.name: j.allocation for j in snapshot.jobs}, policy, cancel=lost)

    site = occupied(tmp_path, mode)
    site.policy = second_loses
    site.run(10)
    asked = site.journal.history(kinds=[Kind.CANCEL_ASKED])
    assert [e.job for e in asked] == (["2"] if ends else [])
    assert (site.job("2").ended is JobState.CANCELLED) is ends
    (told, *_) = [sentence(e) for e in site.journal.history(kinds=[Kind.DECIDED]) if e.data.get("cancel")]
    assert "jobs 2 have lost in their app" in told
    if ends:
        assert asked[0].data["by"] == "the scheduler of app 2"


def test_order_moves_only_the_order_of_waiting_jobs(tmp_path: Path) -> None:
    site = occupied(tmp_path, "order")
    site.run(60)
    assert calls(site) == {"claim", "set_order", "set_reason"}, "no heartbeat: hooks would hold jobs that nobody starts"
    assert site.world.order == ("2", "3")
    assert site.fake.faults.calls["set_order"] == 1, "the same order is set once"
    site.commands.cancel("3", ANN)
    site.run(5)
    assert site.world.order == ("2",)


def test_an_order_that_does_not_show_is_asked_for_again(tmp_path: Path) -> None:
    """A right that was missing, and is given; a factor that somebody takes away."""
    site = occupied(tmp_path, "order")
    site.fake.faults.on("set_order", Raise(FixConfiguration("not an Operator")), times=2)
    site.run(60)
    assert site.world.order == ("2", "3")
    assert site.fake.faults.calls["set_order"] == 3
    site.world.order = ()
    site.run(60)
    assert site.world.order == ("2", "3")


def test_enforce_starts_and_a_mode_may_change_while_it_runs(tmp_path: Path) -> None:
    site = occupied(tmp_path, "observe")
    site.run(5)
    site.world.lose(site.world.jobs["1"])
    site.commands.set_mode("p0", Mode.ENFORCE, ROOT)
    site.until("1", JobState.RUNNING)
    site.reopen()
    site.run(2)
    assert site.core.ledger.pools["p0"].mode == "enforce"
    site.commands.set_mode("p0", Mode.OBSERVE, ROOT)
    site.fake.faults.calls.clear()
    site.run(30)
    assert calls(site) == set()
    with pytest.raises(NotAllowed):
        site.commands.set_mode("p0", Mode.ENFORCE, BEN)
    with pytest.raises(BadInput, match="there is no pool p9"):
        site.commands.set_mode("p9", Mode.ENFORCE, ROOT)


def test_release_all_hands_everything_back_and_running_jobs_run_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    runs, waits = site.commands.submit([spec("runs", 16, steps=2000), spec("waits", 16, steps=50)], ANN)
    site.until(runs, JobState.RUNNING)
    (late,) = site.commands.submit([spec("late", 1)], ANN)
    assert set(site.commands.release_all(ROOT)) == {runs, waits, late}
    site.run(10)
    assert site.job(runs).released and site.job(waits).released
    assert site.job(late).ended is JobState.CANCELLED
    assert site.world.jobs[runs].released and site.world.jobs[runs].state is JobState.RUNNING
    assert sum(n.foreign for n in site.world.observe().nodes) == 16
    site.fake.faults.calls.clear()
    site.run(60)
    assert calls(site) == set()
    assert runs not in site.world.jobs, "it ran to its end"
    with pytest.raises(NotAllowed):
        site.commands.release_all(ANN)


def test_a_release_that_was_cut_short_goes_on_after_a_restart(tmp_path: Path) -> None:
    site = Site(tmp_path)
    jobs = site.commands.submit([spec(f"j{i}", 2, steps=4000) for i in range(4)], ANN)
    for job in jobs:
        site.until(job, JobState.RUNNING)
    site.commands.release_all(ROOT)
    site.reopen()
    site.run(5)
    assert all(site.job(job).released for job in jobs)


def test_pools_are_decided_apart(tmp_path: Path) -> None:
    site = Site(tmp_path, pools=pools("enforce", "advise"))
    here, there = site.commands.submit([spec("here", 4), spec("there", 4, extra={"pool": "p1"})], ANN)
    site.run(10)
    assert site.job(here).state is JobState.RUNNING
    assert set(site.job(here).allocation) <= {"n1", "n2"}
    assert there not in site.world.jobs
    assert set(site.core.decisions) == {"p0", "p1"}


def test_nodes_of_no_pool_are_left_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, pools=[{"name": "small", "nodes": "n1"}])
    jobs = site.commands.submit([spec(f"j{i}", 4, steps=4000) for i in range(3)], ANN)
    site.run(20)
    assert [site.job(job).allocation for job in jobs] == [{"n1": 4}, {}, {}]


def test_maintenance_lets_run_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (runs,) = site.commands.submit([spec("runs", 4, steps=100)], ANN)
    site.until(runs, JobState.RUNNING)
    site.commands.maintenance("main", True, ROOT, "new power supply")
    (waits,) = site.commands.submit([spec("waits", 4, steps=10)], ANN)
    site.until(runs, JobState.COMPLETED)
    site.run(20)
    assert site.job(waits).state is JobState.QUEUED
    site.commands.maintenance("main", False, ROOT)
    site.until(waits, JobState.COMPLETED)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{name: a, nodes: 'n[1-3]'}, {name: b, nodes: 'n[3-4]'}]", "n3 is in pool a and in pool b"),
        ("[{name: a}, {name: b}]", "pools a and b both take all other nodes"),
        ("[{name: a, nodes: n1}, {name: a, nodes: n2}]", "pool a stands twice"),
        ("[{name: a, nodes: 'n[1-'}]", "is no hostlist"),
        ("[]", "pools"),
        ("[{name: a, mode: force}]", "observe"),
        ("[{name: a, polcy: fifo}]", "did you mean 'policy'"),
    ],
)
def test_pools_that_cannot_be_are_refused_with_their_line(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(f"cluster: {{adapter: fake}}\npools: {text}\n", "site.yaml")
    assert said in str(caught.value)
    assert (caught.value.where, caught.value.line) == ("site.yaml", 2)


def test_the_other_nodes_go_to_the_pool_that_names_none(tmp_path: Path) -> None:
    from horae.config import pools_by_node

    config = parse("cluster: {adapter: fake}\npools: [{name: a, nodes: 'n[1-2]'}, {name: rest}]\n")
    assert pools_by_node(config, [n.name for n in NODES]) == {"n1": "a", "n2": "a", "n3": "rest", "n4": "rest"}


@pytest.mark.parametrize("mode", ["observe", "advise", "order"])
def test_what_is_due_is_done_only_where_starts_and_stops_are_ours(tmp_path: Path, mode: str) -> None:
    """A pool beside it enforces, so that the arbiter is in charge of the cluster."""
    site = Site(tmp_path, pools=pools("enforce", "enforce"))
    there = {"extra": {"pool": "p1"}}
    ours, theirs = site.commands.submit([spec("ours", 4, steps=4000), spec("theirs", 4, steps=4000, **there)], ANN)
    for job in (ours, theirs):
        site.until(job, JobState.RUNNING)
    site.commands.set_mode("p1", Mode(mode), ROOT)
    site.run(5)
    site.world.unfinished = {ours: "its fence", theirs: "its fence", "never heard of": "its fence"}
    site.run(20)
    assert site.world.followed == [ours]
    assert set(site.world.unfinished) == {theirs, "never heard of"}
    told = [event for event in site.journal.history() if event.data.get("verb") == "follow_up"]
    assert [(event.kind, event.job) for event in told] == [(Kind.INTENT, ours), (Kind.OUTCOME, ours)]
    assert sentence(told[0]) == "is followed up: its fence"


def test_a_follow_up_that_fails_is_tried_again_soon_and_the_journal_does_not_swell(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("runs", 4, steps=40_000)], ANN)
    site.until(job, JobState.RUNNING)
    site.fake.faults.on("follow_up", Raise(TryLater("busy")), times=10)
    site.world.unfinished = {job: "its fence"}
    began_s = site.time.now
    while site.world.followed != [job]:
        assert site.time.now - began_s < 120.0
        site.run(0.25)
    assert site.fake.faults.calls["follow_up"] == 11
    assert site.time.now - began_s > 30.0, "later each time, up to some seconds"


def test_nothing_is_followed_up_for_an_arbiter_that_was_replaced(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("runs", 4, steps=4000)], ANN)
    site.until(job, JobState.RUNNING)
    site.world.claim = "somebody else"
    site.world.unfinished = {job: "its fence"}
    site.run(30)
    assert site.world.followed == []
