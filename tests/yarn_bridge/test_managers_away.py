"""ResourceManagers that are away, not ready or have forgotten all, and application masters that are silent."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count

import pytest

from horae.port import JobState, ObservedJob, TryLater, attend
from tests.yarn_bridge.memory_site import SPEC, Site, instances
from yarn_bridge.clients.errors import refusal
from yarn_bridge.clients.records import NodeReport


def test_gpus_of_a_service_that_nobody_can_ask_come_free(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.yarn.away = True
    assert site.look().state is JobState.STARTING
    site.now_s += 3.0
    assert any("does not answer" in note for note in attend(site.port).notes)
    site.now_s += 125.0
    site.look()
    site.now_s += 20.0
    seen = site.look()
    assert (seen.state, seen.allocation, site.yarn.services) == (JobState.LOST, {}, {})
    assert (seen.blocked, "does not answer; what came was given back" in seen.native) == (None, True)
    site.yarn.away = False
    site.port.start("job", {"n1": 2}, 2)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING


@pytest.mark.parametrize("away", [True, False])
def test_a_cancelled_job_whose_application_master_does_not_answer_ends(site: Site, away: bool) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.yarn.away = away
    site.port.cancel("job")
    assert site.look().state is JobState.CANCELLED
    assert site.yarn.services == {}


def test_a_manager_that_cannot_list_its_nodes_now_loses_no_job(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while one of them has come and not said a word yet: every other look is refused, and a resize goes on."""
    site.port.submit("job", SPEC)
    body = {"exception": "NullPointerException", "message": '"SchedulerNodeReport.getUtilization()" is null'}
    said = refusal(503, json.dumps({"RemoteException": body}).encode()).error("reading the nodes")
    asked, nodes = count(), site.yarn.nodes

    def some_nodes() -> list[NodeReport]:
        if next(asked) % 2:
            return nodes()
        raise said

    def until(state: JobState) -> ObservedJob:
        for _ in range(30):
            site.now_s += 3.0
            with suppress(TryLater):
                seen = attend(site.port).jobs[0]
                assert seen.state not in (JobState.LOST, JobState.FAILED)
                if seen.state is state:
                    return seen
        raise AssertionError(f"it is not {state}")

    monkeypatch.setattr(site.yarn, "nodes", some_nodes)
    with pytest.raises(TryLater, match="getUtilization"):
        attend(site.port)
    until(JobState.QUEUED)
    site.port.start("job", {"n1": 1, "n2": 1}, 1)
    until(JobState.STARTING)
    names = site.register()
    until(JobState.RUNNING)
    site.port.reshape("job", {"n2": 1}, 2)
    until(JobState.STOPPING)
    site.acknowledge(names, 1, "stopped", 86, step=40.0)
    seen = until(JobState.RUNNING)
    assert (seen.epoch, seen.allocation, seen.checkpoint and seen.checkpoint.step) == (2, {"n2": 1}, 40.0)
    assert site.calls["create"] == 1


def test_a_manager_that_waits_for_its_nodes_loses_no_job(site: Site) -> None:
    """Started anew, it knows a node only when that has come back."""
    site.running({"n1": 1})
    site.yarn.hosts = ["n2"]
    for _ in range(10):
        site.now_s += 10.0
        with pytest.raises(TryLater, match="does not know n1"):
            attend(site.port)
    site.yarn.hosts = ["n1", "n2"]
    assert site.look().state is JobState.RUNNING
    site.yarn.hosts = ["n2"]
    with pytest.raises(TryLater):
        attend(site.port)
    site.now_s += 130.0
    seen = attend(site.port)
    assert ([node.name for node in seen.nodes], seen.jobs[0].native) == (["n2"], "clearing")
    assert site.look().state is JobState.LOST


def test_a_manager_that_is_not_active_yet_loses_no_job(site: Site) -> None:
    """It waits for its state store, answers, and knows neither nodes nor applications: however long that takes."""
    site.running({"n1": 1})
    services, site.yarn.services = site.yarn.services, {}
    site.yarn.hosts, site.yarn.ha_state = [], "INITIALIZING"
    for _ in range(10):
        site.now_s += 100.0
        with pytest.raises(TryLater, match=r"not active \(INITIALIZING\): .* state store \(ZKRMStateStore\)"):
            attend(site.port)
    site.port = site.connect()  # one that has seen no node yet
    with pytest.raises(TryLater, match="not active"):
        attend(site.port)
    # Active again, its nodes are awaited as after any start.
    site.yarn.services, site.yarn.hosts, site.yarn.ha_state = services, ["n1", "n2"], "ACTIVE"
    assert site.look().state is JobState.RUNNING
    site.calls.clear()
    attend(site.port)
    assert site.calls["info"] == 0


def test_a_manager_whose_state_is_gone_costs_a_restart_and_says_so(site: Site) -> None:
    site.running({"n1": 1})
    site.yarn.services.clear()
    lost = site.look()
    assert (lost.state, dict(lost.allocation)) == (JobState.LOST, {})
    assert lost.native.endswith("was ended: the ResourceManager does not know application_1 any more")
    site.port.start("job", {"n1": 1}, 2)
    assert site.look().state is JobState.STARTING


def test_an_application_that_cannot_be_written_down_is_told(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.yarn.app_state = "NEW_SAVING"
    site.now_s += 5.0
    assert attend(site.port).notes == ()
    site.now_s += 20.0
    (note,) = attend(site.port).notes
    assert note.startswith("application_1 (h-job-")
    assert "waits since 25 s for the ResourceManager to write it into its state store (NEW_SAVING)" in note


def test_a_round_waits_for_one_answer_at_most_and_nobody_for_another(site: Site) -> None:
    """Two ends that hang: one is asked for a round, by turns, and the job beside them moves."""
    for job in ("one", "two", "job"):
        site.port.submit(job, SPEC)
        site.port.start(job, {"n1": 1}, 1)
    attend(site.port)
    site.yarn.hung = "application_1"
    site.calls.clear()
    for job in ("one", "two"):
        site.port.cancel(job)  # does not fail: the next rounds see to it
    assert site.calls["kill"] == 2
    asked = []
    for _ in range(4):
        site.now_s += 3.0
        site.calls.clear()
        seen = attend(site.port)
        assert site.calls["kill"] == 1
        asked += [note.partition(":")[0] for note in seen.notes if "not tried" not in note]
    assert asked in (["one", "two"] * 2, ["two", "one"] * 2)
    for name, service in site.yarn.services.items():
        if "-job-" in name:
            for each in instances(service):
                site.tell(f"members/{each.container}", {"host": "h", "port": 21000})
    assert site.look().state is JobState.RUNNING
    site.yarn.hung = ""
    assert site.look("one").state is JobState.CANCELLED
    assert site.look("two").state is JobState.CANCELLED
