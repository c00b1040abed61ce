"""Where YARN would take strangers' containers for requests that were met long ago, no worker asks for a named node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.port import JobState, attend
from policy.model import Pinning
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.queues import Queues, queues
from yarn_bridge.clients.settings import Settings
from yarn_bridge.runtimes import chooser
from yarn_bridge.runtimes.chooser import HANDLER, OFF, PROCESSOR, Chooser, Probes


def leaf(name: str, capacity: float = 50.0, *, loses: bool = False, users: bool = False) -> dict[str, Any]:
    return {"queueName": name, "capacity": capacity, "maxCapacity": 100.0, "preemptionDisabled": not loses,
            "intraQueuePreemptionDisabled": not users}  # fmt: skip


def tree(*leaves: dict[str, Any]) -> dict[str, Any]:
    return {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": list(leaves)}}


def seen(*leaves: dict[str, Any]) -> Queues:
    return queues(tree(*leaves))


def test_who_loses_containers() -> None:
    ours, theirs, third = leaf("ours"), leaf("theirs", loses=True), leaf("third")
    assert seen(ours, theirs, third).losers({"ours"}) == ("root.theirs",)
    assert seen(ours, theirs, third).losers({"root.ours"}) == ("root.theirs",)
    assert seen(leaf("ours", loses=True), third).losers({"ours"}) == (), "its own containers are not taken for it"
    assert seen(leaf("ours", 0.0), theirs).losers({"ours"}) == (), "it is guaranteed nothing: nobody gives for it"
    assert seen(leaf("ours", 0.0), theirs).losers({"ours", "third"}) == ()
    assert seen(leaf("ours", users=True), third).losers({"ours"}) == ("root.ours",), "one user of it for another"
    both = leaf("ours", loses=True), leaf("theirs", loses=True)
    assert seen(*both).losers({"ours", "theirs"}) == ("root.ours", "root.theirs")
    assert replace(seen(ours, theirs), kind="fair").losers({"ours"}) == ()


@pytest.fixture
def site() -> Site:
    made = Site(queue="ours")
    made.yarn.tree = tree(leaf("ours"), leaf("theirs", loses=True))
    return made


def handler(site: Site, name: str) -> None:
    port: Any = site.port
    port._executor.chooser.probes = Probes("3.4.2", True, True, name)


@pytest.mark.parametrize(
    ("name", "pinning"), [("scheduler", Pinning.NONE), ("", Pinning.NONE), (PROCESSOR, Pinning.EXACT)]
)
def test_beside_queues_that_lose_containers_yarn_chooses_the_nodes(site: Site, name: str, pinning: Pinning) -> None:
    handler(site, name)
    can = site.port.capabilities()
    assert can.limits.pinning is pinning
    told = "take containers from root.theirs for workers that have come" in str(can.notes)
    assert told is (pinning is Pinning.NONE)
    site.port.submit("job", SPEC)
    attend(site.port)
    site.port.start("job", {"n1": 2}, 1)
    record = site.port.files.record("job")
    assert record is not None
    assert (dict(record.components).keys() == {"*"}) is (pinning is Pinning.NONE)


def nodes_of(site: Site, job: str) -> set[str]:
    record = site.port.files.record(job)
    assert record is not None
    return {node for node, _ in record.components}


def test_a_job_leaves_its_named_nodes_when_preemption_is_switched_on(site: Site) -> None:
    """It runs, or is suspended: its application's requests are counted as long as that lives."""
    site.yarn.tree = tree(leaf("ours"), leaf("theirs"))
    site.port.submit("job", SPEC)
    site.look()
    site.port.start("job", {"n1": 2}, 1)
    names = site.register()
    assert site.look().state is JobState.RUNNING
    assert nodes_of(site, "job") == {"n1", "n2"}
    site.yarn.tree = tree(leaf("ours"), leaf("theirs", loses=True))
    site.now_s += 60.0
    assert site.look().state is JobState.STOPPING
    site.acknowledge(names, 1, "stopped", 86, 7)
    stopped = site.look()
    assert stopped.state is JobState.STOPPED
    assert "started elsewhere: YARN would take containers from root.theirs" in stopped.native
    assert not site.yarn.services, "its application has ended, and its requests with it"
    site.port.start("job", {"n2": 1}, 2)
    assert nodes_of(site, "job") == {"*"}
    site.register()
    assert site.look().state is JobState.RUNNING, "and there it stays"


def test_queues_that_nobody_tells_of_may_lose(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Any:
        raise Gone("no such page")

    monkeypatch.setattr(site.yarn, "scheduler", refused)
    assert site.port.capabilities().limits.pinning is Pinning.NONE
    handler(site, PROCESSOR)
    assert site.port.capabilities().limits.pinning is Pinning.EXACT


@pytest.mark.parametrize("name", ["scheduler", PROCESSOR])
def test_a_scheduler_that_knows_no_attributes_of_nodes_is_asked_for_none(site: Site, name: str) -> None:
    """The fair scheduler: every gang was refused by the processor, and its GPUs stood for nobody."""
    port: Any = site.port
    port._executor.chooser.probes = Probes("3.4.2", True, True, name, by_attributes=False)
    told = port.capabilities()
    assert told.limits.pinning is Pinning.NONE
    assert "workers cannot be pinned to nodes here: the cluster chooses where they run" in told.notes


def test_the_handler_is_asked_for_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ResourceManager was started again with another one: what was right before would harm now."""
    now_s, said = [0.0], [Settings({HANDLER: PROCESSOR})]
    monkeypatch.setattr(chooser, "setting_of", lambda *_: said[0])
    port: Any = site.port
    choosing = Chooser(replace(port._options, runtime="services"), port.manager, lambda: now_s[0])
    assert choosing.choice(True, ("root.theirs",)).pinned
    said[0] = Settings({HANDLER: "scheduler"})
    assert choosing.choice(True, ("root.theirs",)).pinned, "not asked again yet"
    now_s[0] = 61.0
    assert not choosing.choice(True, ("root.theirs",)).pinned
    assert choosing.choice(True).pinned, "nobody loses anything"
    said[0], now_s[0] = Settings({}, "not reachable"), 200.0
    assert choosing.choice(True).pinned, "as it was told last"
    said[0], now_s[0] = Settings({HANDLER: OFF}), 300.0
    assert not choosing.choice(True).pinned
