"""Memory, cores and the queue's limit, as a real scheduler tells them, are what is offered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState, Never, ObservedJob, TryLater, attend
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    wait_for,
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


def test_what_is_offered_is_what_a_foreign_application_and_the_queue_leave(harness: YarnHarness) -> None:
    cluster, port = Driver(harness), harness.port
    assert isinstance(port, YarnCluster)
    whole = {each.name: each for each in cluster.observe().nodes}
    reports = {each.host: each for each in port.manager.nodes()}
    for name, node in whole.items():
        assert (node.memory, node.cpus) == (reports[name].memory_mib << 20, float(reports[name].cpus))

    hungry = {"name": "w", "number_of_containers": 1, "restart_policy": "ON_FAILURE",
              "launch_command": "exec sleep 3600", "resource": {"cpus": 3, "memory": "4096"}}  # fmt: skip
    port.services.create({"name": "spark", "version": "1.0", "queue": "default", "components": [hungry]}, "horae")
    wait_for("it has memory and no GPU", lambda: any(each.memory_used_mib >= 4096 for each in port.manager.nodes()))
    after = {each.name: each for each in cluster.observe().nodes}
    (fuller,) = [name for name in whole if (whole[name].memory or 0) - (after[name].memory or 0) >= 4096 << 20]
    assert (whole[fuller].cpus or 0) - (after[fuller].cpus or 0) >= 3
    assert [each.foreign for each in after.values()] == [0, 0, 0]
    each_mib = 2048  # What is offered beside it can be had, where YARN may also put the job's application master there.
    left_mib = ((after[fuller].memory or 0) >> 20) - 512
    most = min(after[fuller].gpus, left_mib // each_mib, int(after[fuller].cpus or 0) - 1)
    port.submit("beside", replace(harness.spec("beside", Behaviour.TRAINS), memory_per_gpu=each_mib << 20))
    cluster.wait("beside", JobState.QUEUED)
    cluster.start("beside", {fuller: most})
    assert cluster.wait("beside", JobState.RUNNING).allocation == {fuller: most}
    port.services.destroy("spark", "horae")
    cluster.cancel("beside")
    cluster.wait("beside", JobState.CANCELLED)
    cluster.until("its GPUs are free", lambda: not any(each.gpus_used for each in port.manager.nodes()))

    before = port.manager.scheduler_conf("horae") or {}
    names = ("root.horae", "root.default")
    said = {name: {"capacity": before[f"yarn.scheduler.capacity.{name}.capacity"]} for name in names}
    said["root.horae"]["maximum-capacity"] = before.get("yarn.scheduler.capacity.root.horae.maximum-capacity", "100")
    half = {"root.horae": {"capacity": "50", "maximum-capacity": "50"}, "root.default": {"capacity": "50"}}
    port.manager.edit_scheduler(QueueEdits(update=half), "horae")
    try:
        seen = harness.other_arbiter().observe()
        assert sum(each.gpus - each.foreign for each in seen.nodes) == 6
        assert any("queue root.horae may hold 6 GPUs at most" in note for note in seen.notes)
    finally:
        port.manager.edit_scheduler(QueueEdits(update=said), "horae")
    assert sum(each.gpus - each.foreign for each in harness.other_arbiter().observe().nodes) == 12


def test_memory_of_the_queue_and_its_share_for_application_masters_are_limits(harness: YarnHarness) -> None:
    """A gang within the queue's GPUs and beyond its memory comes in part, and one whose application master gets nothing
    does not come at all: the first is not offered, of the second no node is blamed."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    mine = YarnCluster(parse_options({**harness.options, "gang_s": 75.0}))
    mine.capabilities()
    mine.claim("limits")
    conf = port.manager.scheduler_conf("horae") or {}
    names = ("root.horae", "root.default")
    before = {name: {"capacity": conf[f"yarn.scheduler.capacity.{name}.capacity"]} for name in names}
    before["root.horae"] |= {"maximum-capacity": "100", "maximum-am-resource-percent": None}
    half = {"root.horae": {"capacity": "50", "maximum-capacity": "50"}, "root.default": {"capacity": "50"}}
    port.manager.edit_scheduler(QueueEdits(update=half), "horae")
    try:
        worker_mib, most_mib = 5632, sum(each.memory_mib for each in port.manager.nodes()) // 2
        mine.submit("large", replace(harness.spec("large", Behaviour.TRAINS), memory_per_gpu=worker_mib << 20))
        seen = attend(mine)
        offered = {each.name: (each.memory or 0) >> 20 for each in seen.nodes}
        assert 0 < most_mib - sum(offered.values()) < 1024, "all but an application master's"
        assert any(f"queue root.horae may hold {most_mib} MB of memory" in note for note in seen.notes), seen.notes
        fitting = {name: mib // worker_mib for name, mib in offered.items() if mib >= worker_mib}
        mine.start("large", fitting, 1)
        wait_for("what is offered forms", lambda: _job(mine, "large").state is JobState.RUNNING, 120.0)
        with pytest.raises(Never, match=r"memory-mb \d+, \d+ at most"):
            mine.submit("huge", replace(harness.spec("huge", Behaviour.TRAINS), memory_per_gpu=64 << 30))

        whole = {**before, "root.horae": {**before["root.horae"], "maximum-am-resource-percent": "0.0001"}}
        port.manager.edit_scheduler(QueueEdits(update=whole), "horae")
        mine._observer.limits.forget()
        mine.submit("second", harness.spec("second", Behaviour.TRAINS))
        assert next(each.foreign for each in attend(mine).nodes if each.name == "n3") == 0
        mine.start("second", {"n3": 1}, 1)
        wait_for("its gang is given back", lambda: _job(mine, "second").blocked is not None, 120.0)
        blocked = _job(mine, "second").blocked
        assert blocked is not None
        assert "AM resource limit exceeded" in blocked.text
        after = attend(mine)
        assert [each.foreign for each in after.nodes if each.name == "n3"] == [0]
        assert after.caps["horae"] > sum(fitting.values()), "who runs may grow"
        assert any(each.whom == ("second",) and each.jobs == 0 for each in after.quotas), after.quotas
        for job in ("large", "second"):
            mine.cancel(job)
            wait_for(f"{job} is over", lambda job=job: _job(mine, job).state is JobState.CANCELLED, 60.0)
    finally:
        port.manager.edit_scheduler(QueueEdits(update=before), "horae")
        mine.close()


def test_a_gang_leaves_its_application_master_room(harness: YarnHarness) -> None:
    """Nodes whose memory their workers fill: YARN places the master first, on whichever it likes."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    mine = YarnCluster(parse_options({**harness.options, "gang_s": 90.0}))
    mine.capabilities()
    mine.claim("masters")
    try:
        whole = {each.host: each for each in port.manager.nodes()}
        (memory_mib,) = {each.memory_mib for each in whole.values()}
        each_mib = memory_mib // 2
        mine.submit("tight", replace(harness.spec("tight", Behaviour.TRAINS), memory_per_gpu=each_mib << 20))
        seen = attend(mine)
        with pytest.raises(TryLater, match="no node would have room for its application master"):
            mine.start("tight", dict.fromkeys(whole, 2), 1)
        assert any("kept for an application master: 1 of its free GPUs" in note for note in seen.notes), seen.notes
        taught = list[dict[str, int]]()
        told = list[str]()
        for epoch in range(1, _MOST_TRIES):  # where it comes to another node than was thought, that one teaches
            offered = {each.name: ((each.memory or 0) >> 20) // each_mib for each in attend(mine).nodes}
            free = {each.name: each.gpus - each.foreign for each in attend(mine).nodes}
            grant = {name: min(gpus, free[name]) for name, gpus in offered.items() if gpus}
            assert grant not in taught, "what did not form is not offered again"
            mine.start("tight", grant, epoch)
            wait_for("it stands or is given back", lambda: _settled(_job(mine, "tight")), 300.0)
            blocked = _job(mine, "tight").blocked
            if blocked is None:
                break
            taught += [grant] if "not offered again" in blocked.text else []
            told += [blocked.text]
            assert len(taught) < len(whole), blocked.text
        assert _job(mine, "tight").state is JobState.RUNNING, told
        mine.cancel("tight")
        wait_for("it is over", lambda: _job(mine, "tight").state is JobState.CANCELLED, 60.0)
    finally:
        mine.close()


#: of a gang: so many end because its application master was slow to begin, which teaches nothing
_MOST_TRIES = 8


def _settled(job: ObservedJob) -> bool:
    return job.state is JobState.RUNNING or job.blocked is not None


def test_leaf_queues_are_tenants_and_a_gang_that_its_queue_holds_back_says_so(
    harness: YarnHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, limits and words are the real scheduler's."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    conf = port.manager.scheduler_conf("horae") or {}
    share = conf["yarn.scheduler.capacity.root.horae.capacity"]
    half = str(float(share) / 2)
    teams = {
        "root.teams": {"capacity": half},
        "root.teams.vision": {"capacity": "75", "user-limit-factor": "10"},
        "root.teams.speech": {"capacity": "25", "user-limit-factor": "0.5"},
    }
    port.manager.edit_scheduler(QueueEdits(add=teams, update={"root.horae": {"capacity": half}}), "horae")
    try:
        more = {"queue": "root.teams", "tenants": "queue", "gang_s": 75.0}
        theirs = YarnCluster(parse_options({**harness.options, **more}))
        seen = theirs.observe()
        assert [(each.name, each.weight) for each in seen.tenants] == [
            ("root.teams.vision", 75.0),
            ("root.teams.speech", 25.0),
        ]
        theirs.claim("tenants")
        with pytest.raises(Never, match=r"root\.teams\.nlp is none of the tenants' queues"):
            theirs.submit("nlp", replace(harness.spec("nlp", Behaviour.TRAINS), tenant="root.teams.nlp"))
        # What one user may hold there is half of what is guaranteed: YARN lets one container more through at most.
        theirs.submit("a", replace(harness.spec("a", Behaviour.TRAINS), tenant="root.teams.speech"))
        assert theirs.observe().caps["root.teams.speech"] == 1
        would = "3 of its 4 GPUs would not come: horae may hold 1 GPUs at most in queue root.teams.speech"
        with pytest.raises(TryLater, match=would):
            theirs.start("a", {"n1": 4}, 1)
        # And it is true: granted all the same, it does not come.
        with monkeypatch.context() as patched:
            patched.setattr(theirs._observer, "check_shares", lambda *_: None)
            theirs.start("a", {"n1": 4}, 1)
        wait_for("its gang is given back", lambda: _job(theirs, "a").blocked is not None, 110.0)
        blocked = _job(theirs, "a").blocked
        assert blocked is not None
        assert "YARN says: Queue hits user max-capacity limit" in blocked.text
        theirs.start("a", {"n1": 1}, 2)
        wait_for("it runs within its limit", lambda: _job(theirs, "a").state is JobState.RUNNING, 60.0)
        assert {each.queue for each in port.manager.apps(states=("RUNNING",))} >= {"root.teams.speech"}
        theirs.cancel("a")
        wait_for("it is over", lambda: _job(theirs, "a").state is JobState.CANCELLED, 60.0)
        theirs.close()
    finally:
        stopped = {path: {"state": "STOPPED"} for path in teams}
        port.manager.edit_scheduler(QueueEdits(update=stopped), "horae")
        back = QueueEdits(remove=tuple(reversed(teams)), update={"root.horae": {"capacity": share}})
        patiently(lambda: port.manager.edit_scheduler(back, "horae"))


def _job(port: YarnCluster, job: str) -> ObservedJob:
    return next(each for each in patiently(lambda: attend(port)).jobs if each.id == job)
