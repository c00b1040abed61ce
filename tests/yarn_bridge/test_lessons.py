"""Gangs that did not form: what is said of them, and what is not offered for a while."""

from __future__ import annotations

import pytest

from horae.port import JobState, ObservedJob, TryLater, attend
from policy.model import Node
from tests.yarn_bridge.fake import recorded
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.records import Withheld, kept_nodes, withheld
from yarn_bridge.jobs.room import Held, Lessons


@pytest.fixture
def site() -> Site:
    return Site(memory_mib=4096, cpus=2)


def nodes(*gpus: int) -> tuple[Node, ...]:
    return tuple(Node(f"n{index}", "v100", each) for index, each in enumerate(gpus))


def test_no_node_is_blamed_for_a_gang_that_formed_while_the_manager_was_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise TryLater("no ResourceManager answers")

    site.yarn.room = {"n1": 1}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    with monkeypatch.context() as gone:
        gone.setattr(site.yarn, "nodes", away)
        site.now_s += 60.0
        with pytest.raises(TryLater):
            site.look()
    site.now_s += 20.0
    assert site.look().state is JobState.STARTING
    site.now_s += 90.0
    assert site.look().state is JobState.STARTING, "as long as ever since it is back"
    site.now_s += 20.0
    assert site.look().state is JobState.QUEUED, "and no longer"


def test_a_gang_that_did_not_form_teaches_where_for_how_long_and_says_so(site: Site) -> None:
    site.yarn.room = {"n1": 3}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 4}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.STARTING
    site.now_s += 130.0
    seen = site.look()
    assert (seen.state, site.yarn.services) == (JobState.QUEUED, {}), "its GPUs are given back at once"
    assert seen.blocked is not None
    assert "3 of its 4 workers came" in seen.blocked.text
    assert "not offered again: 1 on n1 for 60 s" in seen.blocked.text
    (first, second) = attend(site.port).nodes
    assert (first.foreign, second.foreign) == (1, 0)
    assert any("1 free GPUs of n1 are not offered" in note for note in attend(site.port).notes)
    site.port.start("job", {"n1": 3}, 2)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    site.now_s += 61.0
    assert attend(site.port).nodes[0].foreign == 0


def test_a_gang_that_came_in_part_teaches_of_memory_and_cores_too(site: Site) -> None:
    """With two more free GPUs on the node than were granted, one GPU fewer would grant the same gang again."""
    late(site, {"n1": 2}, {"n1": 1})
    (first, second) = attend(site.port).nodes
    assert (first.foreign, first.memory, first.cpus) == (1, (2 * 4096 - 1) << 20, 3.0), "no second worker of its size"
    assert (second.foreign, second.memory) == (0, 65536 << 20)
    site.yarn.room = {}
    site.port.submit("other", SPEC)
    site.port.start("other", {"n1": 1}, 1)  # what another job of ours holds is not what is free beside it
    site.look()
    assert attend(site.port).nodes[0].memory == (3 * 4096 - 1) << 20
    site.now_s += 61.0
    assert attend(site.port).nodes[0].memory == 65536 << 20


def test_the_pauses_grow_and_end() -> None:
    lessons, now_s, pauses = Lessons(), 0.0, []
    for _ in range(8):
        text = lessons.learn({"n0": 2, "n1": 0}, now_s)
        pauses.append(float(text.rsplit(" for ", 1)[1].split()[0]))
        assert [each.foreign for each in lessons.heeded(nodes(4, 4), {}, now_s)] == [2, 0]
        assert [each.foreign for each in lessons.heeded(nodes(4, 4), {"n0": Held(3)}, now_s)] == [1, 0]
        now_s += pauses[-1]
        assert [each.foreign for each in lessons.heeded(nodes(4, 4), {}, now_s)] == [0, 0]
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]
    assert "for 60 s" in lessons.learn({"n0": 1}, now_s + 3 * 1800.0 + 1), "long forgotten"
    assert lessons.learn({"n1": -1}, now_s) == ""


def late(site: Site, allocation: dict[str, int], came: dict[str, int], *withheld: Withheld) -> ObservedJob:
    """The job after a gang that came only in part was given back."""
    site.yarn.room, site.yarn.withheld = came, withheld
    site.port.submit("job", SPEC)
    site.port.start("job", allocation, 1)
    site.look()
    assert site.calls["activities"] == 0, "nobody asks about a gang that has just begun to form"
    site.now_s += 30.0
    site.look()
    site.now_s += 100.0
    found: ObservedJob = site.look()
    return found


def test_a_gang_that_did_not_form_says_why_in_the_schedulers_words(site: Site) -> None:
    why = "Node does not have sufficient resource for request, insufficient resources=[memory-mb]"
    seen = late(site, {"n1": 4}, {"n1": 3}, Withheld(why, ("n1",), False), Withheld("of another node", ("n2",), False))
    assert seen.blocked is not None
    assert f"YARN says: {why} (n1); not offered again: 1 on n1 for 60 s" in seen.blocked.text
    assert "of another node" not in seen.blocked.text


def test_a_node_that_yarn_keeps_for_somebody_elses_container_is_told(site: Site) -> None:
    """Who waits behind it is given no word by the scheduler, which does not even try."""
    site.yarn.tree = site.yarn.scheduler()
    site.yarn.tree["queues"]["queue"].append({"queueName": "other", "reservedContainers": 2})
    seen = late(site, {"n1": 4}, {"n1": 3})
    assert seen.blocked is not None
    assert "YARN keeps nodes for containers that wait: 2 of root.other; not offered again: 1 on n1" in seen.blocked.text


def test_what_the_queue_withholds_is_a_limit_of_the_tenant_and_no_nodes_fault(site: Site) -> None:
    seen = late(site, {"n1": 4}, {"n1": 3}, Withheld("Queue hits user max-capacity limit", ("n1", "n2"), True))
    assert seen.blocked is not None
    assert "Queue hits user max-capacity limit (n1, n2); horae is offered 3 GPUs in all for 60 s" in seen.blocked.text
    now = attend(site.port)
    assert ([each.foreign for each in now.nodes], now.caps) == ([0, 0], {"horae": 3})
    site.now_s += 61.0
    assert attend(site.port).caps == {}


def test_what_real_schedulers_say_of_a_gang_that_waits() -> None:
    def said(name: str) -> tuple[Withheld, ...]:
        return withheld(recorded("3.4.2-queues")[name]["response"]["appActivities"])

    assert said("activities-full-first") == ()
    assert kept_nodes(recorded("3.4.2-queues")["activities-full"]["response"]["appActivities"]) == {"n1"}
    assert kept_nodes(recorded("3.4.2-queues")["activities-full-first"]["response"]["appActivities"]) == set()
    text = "Node does not have sufficient resource for request, insufficient resources=[yarn.io/gpu]"
    assert said("activities-full") == (Withheld(text, ("n1",), False),)
    assert said("activities-user") == (Withheld("Queue hits user max-capacity limit", ("n1", "n2"), True),)
    (headroom,) = said("activities-queue")
    assert (headroom.text.partition(" for ")[0], headroom.by_queue) == ("Queue does not have enough headroom", True)
    assert said("activities-label") == (), (
        "the node of a partition that the queue does not get to is not even looked at"
    )
