"""Which nodes workers get to: by partition, and by their names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from horae.port import JobState, attend
from policy.model import Pinning
from tests.yarn_bridge.fake import recorded
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.records import NodeReport
from yarn_bridge.jobs.partitions import reach
from yarn_bridge.jobs.room import ceilings


@pytest.fixture
def site() -> Site:
    return Site(memory_mib=4096, cpus=2)


def test_partitions_that_the_queue_does_not_get_to_are_not_offered(site: Site) -> None:
    site.yarn.labels = {"n2": ("gpu",)}
    seen = attend(site.port)
    assert [each.foreign for each in seen.nodes] == [0, 4]
    assert "n2 is not offered: it is in partition gpu, where workers of root.default do not get to" in seen.notes


def test_workers_ask_for_the_partition_that_their_queue_is_let_into(site: Site) -> None:
    site.yarn.labels, site.yarn.accessible = {"n2": ("gpu",)}, ["gpu"]
    assert [each.foreign for each in attend(site.port).nodes] == [0, 0]
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1, "n2": 1}, 1)
    made = [each["placement_policy"]["constraints"] for each in site.yarn.bodies[-1]["components"]]
    assert [[each.get("node_partitions") for each in constraints] for constraints in made] == [[None], [["gpu"]]]


@pytest.mark.parametrize(("before", "after"), [(("gpu",), ()), ((), ("gpu",))])
def test_a_node_that_changed_its_partition_is_asked_for_in_the_new_one(
    site: Site, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """A component asks for what it was made with: nothing came, and the node was blamed."""
    site.yarn.labels, site.yarn.accessible = {"n2": before}, ["gpu"]
    names = site.running({"n1": 1})
    site.yarn.labels = {"n2": after}
    attend(site.port)
    site.port.reshape("job", {"n1": 1, "n2": 1}, 2)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    parts = [each["placement_policy"]["constraints"][0] for each in site.yarn.bodies[-1]["components"]]
    made = [each.get("node_partitions") for each in parts]
    assert (site.calls["create"], made) == (2, [None, list(after) or None])
    names = [each.name for each in site.port.files.record("job").workers]  # type: ignore[union-attr]
    site.port.reshape("job", {"n1": 1}, 3)
    site.acknowledge(names, 2, "stopped", 86, 1.0)
    site.look()
    assert (site.look().state, site.calls["create"]) == (JobState.RUNNING, 2), "once"


def test_a_partition_has_limits_of_its_own_and_one_that_lends_is_lent() -> None:
    info = recorded("3.4.2-queues")["scheduler"]["response"]["scheduler"]["schedulerInfo"]
    tree = queues(info)
    horae = tree.find("horae")
    assert (horae.labels, horae.label, horae.most) == (("gpu",), "", 4)
    assert ceilings(tree, "horae", {}, "gpu") == {}
    reports = [
        NodeReport(f"{host}:1", host, "/r", "RUNNING", "", 4, 0, 8, 0, 1, 0, labels)
        for host, labels in (("n1", ()), ("n2", ("soft",)), ("n3", ("gpu",)), ("n4", ("closed",)))
    ]
    got = reach(reports, [horae], {"gpu", "closed"}, asks=True, named="")
    assert (dict(got.asked), list(got.out)) == ({"n3": "gpu"}, ["n4"])
    assert dict(got.of) == {"n2": "soft", "n3": "gpu", "n4": "closed"}
    never = reach(reports, [horae], {"gpu", "closed"}, asks=False, named="")
    assert (dict(never.asked), sorted(never.out)) == ({}, ["n3", "n4"])
    at_home = reach(reports, [replace(horae, label="gpu")], {"gpu", "closed"}, asks=True, named="")
    assert (dict(at_home.asked), sorted(at_home.out)) == ({}, ["n1", "n2", "n4"])


def test_a_node_that_does_not_tell_its_name_any_more_is_not_offered_until_it_does(site: Site) -> None:
    attend(site.port)
    site.yarn.nameless = {"n1"}
    assert site.port.capabilities().limits.pinning is Pinning.EXACT
    seen = attend(site.port)
    assert [each.foreign for each in seen.nodes] == [4, 0]
    assert any("n1 is not offered: it does not tell its own name" in note for note in seen.notes)
    site.yarn.nameless = set()
    assert [each.foreign for each in attend(site.port).nodes] == [0, 0]
    site.yarn.nameless = {"n1", "n2"}
    assert site.port.capabilities().limits.pinning is Pinning.NONE


def test_a_job_whose_workers_cannot_be_sent_to_nodes_any_more_gets_another_service(site: Site) -> None:
    names = site.running({"n1": 1})
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    assert site.look().state is JobState.STOPPED
    site.yarn.nameless = {"n1", "n2"}
    attend(site.port)
    site.port.start("job", {"n2": 1}, 2)
    assert [each.get("placement_policy") for each in site.yarn.bodies[-1]["components"]] == [None]
