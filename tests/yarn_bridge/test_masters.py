"""Room for application masters, and what is said of one that gets none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import JobState, TryLater, attend
from policy.model import Node, Quota
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.records import NodeReport
from yarn_bridge.jobs.masters import MasterRoom, cost
from yarn_bridge.jobs.room import Held


@pytest.fixture
def site() -> Site:
    return Site(memory_mib=4096, cpus=2)


def without_master(site: Site, diagnostics: str) -> str:
    """What is told of a job whose application master got no container in time; YARN says these `diagnostics`."""
    site.yarn.app_state, site.yarn.room, site.yarn.diagnostics = "ACCEPTED", {"n1": 0}, diagnostics
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.now_s += 130.0
    seen = site.look()
    assert seen.blocked is not None
    told: str = seen.blocked.text
    return told


def test_no_node_is_blamed_for_an_application_master_that_gets_no_container(site: Site) -> None:
    """Its queue's share for them was used up, and the GPUs of its nodes were kept from everybody, longer each time."""
    told = without_master(site, "Queue's AM resource limit exceeded.")
    assert "Queue's AM resource limit exceeded.; no application in queue default begins for 60 s" in told
    now = attend(site.port)
    assert ([each.foreign for each in now.nodes], now.caps) == ([0, 0], {})
    why = "the last one got no container"
    assert now.quotas == (Quota(f"no application in queue default begins: {why}", ("job",), None, 0),)


def test_who_waits_where_nobody_says_why_costs_those_nothing_who_run(site: Site) -> None:
    """`user.max-parallel-apps`, which is told nowhere: his other jobs could not grow for up to half an hour."""
    site.running({"n1": 1})
    site.port.submit("next", SPEC)
    site.port.submit("hers", replace(SPEC, owner="ann"))
    site.yarn.app_state, site.yarn.room = "ACCEPTED", {"n2": 0}
    site.port.start("next", {"n2": 2}, 1)
    site.look("next")
    site.now_s += 130.0
    seen = site.look("next")
    assert seen.blocked is not None
    assert "`max-parallel-apps` of its user or of a queue" in seen.blocked.text
    now = attend(site.port)
    assert now.caps == {}
    assert [(each.whom, each.jobs) for each in now.quotas] == [(("next",), 0)], "another user's may begin"
    site.now_s += 60.0
    assert attend(site.port).quotas == ()


def test_an_application_master_that_is_slow_to_begin_gets_twice_the_time_and_teaches_nothing(site: Site) -> None:
    """It had its container, and was told to have none; its tenant was offered nothing for a while."""
    site.yarn.am_node = "n2:1"
    diagnostics = "AM container is launched, waiting for AM container to Register with RM"
    site.yarn.app_state, site.yarn.room, site.yarn.diagnostics = "ACCEPTED", {"n1": 0}, diagnostics
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.now_s += 130.0
    assert site.look().state is JobState.STARTING
    site.now_s += 120.0
    seen = site.look()
    assert seen.blocked is not None
    assert seen.blocked.text == (
        "0 of its 2 workers came within 120 s, 2 times that passed, and YARN had given its application master a "
        "container; what came was given back"
    )
    assert attend(site.port).caps == {}


def test_an_application_master_that_began_late_had_no_time_to_ask_and_no_node_is_blamed(site: Site) -> None:
    """It had some of its time when the patience was over: all GPUs of all its nodes were offered to nobody."""
    site.yarn.am_node = "n2:1"
    site.yarn.app_state, site.yarn.room = "ACCEPTED", {"n1": 0}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.now_s += 200.0
    site.yarn.app_state = "RUNNING"
    assert site.look().state is JobState.STARTING
    site.now_s += 60.0
    seen = site.look()
    assert seen.blocked is not None
    assert "0 of its 2 workers came within " in seen.blocked.text
    assert " s, which its application master was late to begin; what came was given back" in seen.blocked.text
    now = attend(site.port)
    assert ([each.foreign for each in now.nodes], now.caps) == ([0, 0], {})


def test_a_gang_whose_place_its_own_application_master_took_is_given_back_at_once() -> None:
    """It can never stand: its nodes were kept for all of its time, and what other nodes had given with them."""
    site = Site(memory_mib=16384, cpus=1)
    site.port._observer.limits.master = Held(0, 1, 1024)
    site.yarn.am_node, site.yarn.room = "n1:45454", {"n1": 3}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 4, "n2": 2}, 1)
    seen = site.look()
    assert (seen.state, site.yarn.services) == (JobState.QUEUED, {})
    assert seen.blocked is not None
    assert seen.blocked.text == (
        "its application master came to n1, and beside it 3 of its 4 workers there have room; what came was given "
        "back; not offered again: 1 on n1 for 60 s"
    )
    first, second = attend(site.port).nodes
    assert (first.foreign, (first.memory or 0) >> 34) == (1, 3)
    assert (second.foreign, (second.memory or 0) >> 34) == (0, 4), "the other node is blamed for nothing"


def test_a_gang_beside_its_application_master_waits_for_others_who_may_go() -> None:
    site = Site(memory_mib=8192, cpus=1)
    site.port._observer.limits.master = Held(0, 1, 1024)
    site.yarn.am_node, site.yarn.room = "n1:45454", {"n1": 1}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 4}, 1)
    site.yarn.foreign_mib = 65536 - 9216
    assert site.look().state is JobState.STARTING


def test_an_application_master_behind_nodes_kept_for_others_is_told_so(site: Site) -> None:
    site.yarn.tree = site.yarn.scheduler()
    site.yarn.tree["queues"]["queue"].append({"queueName": "other", "reservedContainers": 2})
    told = without_master(site, "waiting for resources to be assigned for AM")
    kept = "YARN keeps nodes for containers that wait: 2 of root.other"
    assert f"assigned for AM; {kept}; no application of horae in queue default begins for 60 s" in told


@pytest.fixture
def tight() -> Site:
    """Two nodes of four GPUs, each with memory for three workers of ours and none beside; masters of 1,024 MB."""
    site = Site(memory_mib=4096, cpus=2)
    site.yarn.foreign_mib = 65536 - 3 * 4096
    site.port._observer.limits.master = Held(0, 1, 1024)
    return site


def offered(site: Site) -> list[int]:
    return [(each.memory or 0) >> 20 for each in attend(site.port).nodes]


def test_room_for_an_application_master_is_kept_on_one_node_while_a_job_waits(tight: Site) -> None:
    assert offered(tight) == [12288, 12288], "none is to come"
    tight.port.submit("job", SPEC)
    assert offered(tight) == [11264, 12288]
    assert "1024 MB and 1 cores of n1 are kept for an application master: 1 of its free GPUs cannot be used" in (
        attend(tight.port).notes
    )
    tight.yarn.app_state = "ACCEPTED"
    tight.port.start("job", {"n1": 2}, 1)
    assert any("kept for an application master" in note for note in attend(tight.port).notes), "it is on its way"
    tight.yarn.app_state = "RUNNING"
    assert not any("application master" in note for note in attend(tight.port).notes), "it is there"


def test_it_is_kept_where_it_costs_no_gpus(tight: Site) -> None:
    tight.yarn.foreign_mib -= 1024
    tight.port.submit("job", SPEC)
    seen = attend(tight.port)
    assert offered(tight) == [12288, 13312]
    assert not any("application master" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("used_mib", "state", "labels", "kept"),
    [(0, "RUNNING", (), [12288, 12288]), (64512, "RUNNING", (), [11264, 12288]),
     (0, "LOST", (), [11264, 12288]), (0, "RUNNING", ("cpu",), [11264, 12288])],
    ids=["a node without GPUs has room", "it is full", "it is down", "it is in another partition"],
)  # fmt: skip
def test_an_application_master_may_be_where_no_gpus_are(
    tight: Site, monkeypatch: pytest.MonkeyPatch, used_mib: int, state: str, labels: tuple[str, ...], kept: list[int]
) -> None:
    listed = tight.yarn.nodes
    plain = NodeReport("c1:1", "c1", "/r", state, "", 0, 0, 8, 0, 65536 - 1, used_mib, labels)
    monkeypatch.setattr(tight.yarn, "nodes", lambda: [*listed(), plain])
    tight.port.submit("job", SPEC)
    assert offered(tight) == kept


def test_a_gang_that_would_leave_its_application_master_no_room_waits_for_another_shape(tight: Site) -> None:
    tight.port.submit("job", SPEC)
    attend(tight.port)
    with pytest.raises(TryLater, match="no node would have room for its application master"):
        tight.port.start("job", {"n1": 3, "n2": 3}, 1)
    assert tight.port.files.record("job").granted == 0  # type: ignore[union-attr]
    tight.port.start("job", {"n1": 3, "n2": 2}, 1)
    tight.look()
    tight.register()
    assert tight.look().state is JobState.RUNNING


def test_two_jobs_of_one_round_leave_room_for_two_application_masters(tight: Site) -> None:
    tight.port._observer.limits.master = Held(0, 1, 4096)
    for name in ("job", "next"):
        tight.port.submit(name, SPEC)
    attend(tight.port)
    tight.port.start("job", {"n1": 3}, 1)
    with pytest.raises(TryLater, match="no node would have room for its application master"):
        tight.port.start("next", {"n2": 2}, 1)
    tight.port.start("next", {"n2": 1}, 1)


def test_a_node_that_yarn_keeps_for_somebody_elses_container_is_not_offered(tight: Site) -> None:
    """Its free GPUs go to nobody, and neither does its room for an application master."""
    tight.yarn.tree, tight.yarn.keeps = tight.yarn.scheduler(), {"application_9": frozenset({"n1"})}
    tight.yarn.tree["queues"]["queue"].append({"queueName": "other", "reservedContainers": 1})
    attend(tight.port)
    tight.now_s += 4.0  # the scheduler notes it from the first question on
    seen = attend(tight.port)
    assert [each.foreign for each in seen.nodes] == [4, 0]
    assert "n1 is not offered: YARN keeps it for a container of application_9" in seen.notes
    tight.port.submit("job", SPEC)
    attend(tight.port)
    with pytest.raises(TryLater, match="no node would have room for its application master"):
        tight.port.start("job", {"n2": 3}, 1)
    tight.yarn.tree["queues"]["queue"].pop()
    tight.now_s += 21.0
    assert [each.foreign for each in attend(tight.port).nodes] == [0, 0]
    tight.port.start("job", {"n2": 3}, 1)


def test_a_suspended_job_goes_on_with_the_application_master_that_it_has(tight: Site) -> None:
    names = tight.running({"n1": 1})
    tight.port.checkpoint_and_stop("job", 5.0)
    tight.acknowledge(names, 1, "stopped", 86)
    assert tight.look().state is JobState.STOPPED
    tight.port.start("job", {"n1": 3, "n2": 3}, 2)
    tight.look()
    tight.register()
    assert tight.look().state is JobState.RUNNING


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 40), st.integers(0, 10)), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_room_for_a_master_costs_the_fewest_gpus_and_is_there(
    sizes: list[tuple[int, int, int]], master_gib: int, cores: int
) -> None:
    room, master, size = MasterRoom(), Held(0, cores, master_gib << 10), {"GPUs": 1, "memory-mb": 4096, "vcores": 1}
    about = tuple(
        Node(f"n{index}", "v100", gpus or 1, cpus=float(cpus), memory=gib << 30)
        for index, (gpus, gib, cpus) in enumerate(sizes)
    )
    reports = [NodeReport(f"{n.name}:1", n.name, "/r", "RUNNING", "", n.gpus, 0, 99, 0, 99999, 0) for n in about]
    room.look(about, reports, master, {""})
    left, text = room.kept({}, master, size)
    able = {each.name: cost(each, {}, master, size) for each in about
            if (each.memory or 0) >> 30 >= master_gib and (each.cpus or 0) >= cores}  # fmt: skip
    changed = [(old, new) for old, new in zip(about, left, strict=True) if old != new]
    assert bool(changed) is bool(able)
    for old, new in changed:
        assert able[old.name] == min(able.values())
        assert ((old.memory or 0) - (new.memory or 0)) >> 20 == master.memory_mib
        assert (old.cpus or 0) - (new.cpus or 0) == cores
        assert bool(text) is bool(able[old.name])
