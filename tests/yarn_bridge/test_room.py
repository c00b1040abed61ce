"""What of the free GPUs can be had: beside foreign memory and cores, within the queue's limit, where gangs formed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import FixConfiguration, JobState, Never, ObservedJob, TryLater, attend
from policy.model import Health, Node, Pinning
from tests.yarn_bridge.fake import recorded
from tests.yarn_bridge.memory_site import SPEC, Site, amounts, capacities
from yarn_bridge.clients.queues import Queues, queues
from yarn_bridge.clients.records import NodeReport, Withheld, kept_nodes, withheld
from yarn_bridge.jobs.masters import MasterRoom, cost
from yarn_bridge.jobs.partitions import reach
from yarn_bridge.jobs.room import Held, Lessons, below, ceilings, limited
from yarn_bridge.jobs.room import given as given_mib


@pytest.fixture
def site() -> Site:
    return Site(memory_mib=4096, cpus=2)


def nodes(*gpus: int) -> tuple[Node, ...]:
    return tuple(Node(f"n{index}", "v100", each) for index, each in enumerate(gpus))


def test_memory_and_cores_beside_foreign_applications_are_in_the_picture(site: Site) -> None:
    site.yarn.foreign_mib, site.yarn.foreign_cpus = 61440, 3
    (first, _) = attend(site.port).nodes
    assert (first.memory, first.cpus) == (4096 << 20, 5.0), "room for one worker, on a node of four free GPUs"
    can = site.port.capabilities()
    assert (can.cpus_per_gpu, can.memory_per_gpu) == (2.0, 4096 << 20)


def test_what_our_own_jobs_hold_is_there_for_us(site: Site) -> None:
    site.port.submit("job", replace(SPEC, memory_per_gpu=8192 << 20))
    site.port.start("job", {"n1": 2}, 1)
    site.yarn.foreign_mib = 2 * 8192 + 1000  # two workers of ours, and somebody else's
    site.look()
    (first, second) = attend(site.port).nodes
    assert (first.memory, second.memory) == ((65536 - 1000) << 20, (65536 - 17384) << 20)


def test_yarn_gives_memory_in_steps() -> None:
    assert [given_mib(1500, least) for least in (0, 64, 1024)] == [1500, 1536, 2048]


def test_the_queues_limit_takes_free_gpus_out_of_the_picture(site: Site) -> None:
    site.yarn.most = 5
    site.port.submit("job", SPEC)
    seen = attend(site.port)
    assert sum(each.gpus - each.foreign for each in seen.nodes) == 5
    assert any("may hold 5 GPUs at most" in note for note in seen.notes)
    site.port.start("job", {"n2": 3}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    assert sum(each.gpus - each.foreign for each in attend(site.port).nodes) == 5, "what it holds is its own"


def test_what_others_use_of_the_queue_is_not_ours() -> None:
    def queue(name: str, most: int, used: int, **more: object) -> dict[str, object]:
        usage = {"resourceUsagesByPartition": [{"used": amounts({"yarn.io/gpu": used})}]}
        return {"queueName": name, "capacities": capacities({"yarn.io/gpu": most}), "resources": usage, **more}

    def tree(*children: object) -> Queues:
        whole = capacities({"yarn.io/gpu": 16})
        root = {"queueName": "root", "capacities": whole, "queues": {"queue": list(children)}}
        return queues({"type": "capacityScheduler", **root})

    leaf, sister = queue("horae", 8, 5), queue("spark", 16, 3)
    info = tree(queue("gpu", 9, 8, queues={"queue": [leaf, sister]}), queue("other", 1, 1))
    found = ceilings(info, "horae", {"GPUs": 4})["GPUs"]
    assert (found.most, found.text) == (5, "queue root.gpu may hold 9 GPUs at most, and others use 4 of them")
    assert ceilings(info, "spark", {})["GPUs"].most == 1
    assert ceilings(tree(queue("a", 16, 0)), "a", {}) == {}


def test_the_queues_memory_is_a_limit_as_its_gpus_are(site: Site) -> None:
    """Else a gang that fits the nodes and the queue's GPUs never forms: half of it comes, and it is tried again."""
    site.yarn.most_bulk = {"memory-mb": 5 * 4096}
    site.port.submit("job", SPEC)
    seen = attend(site.port)
    assert sum((each.memory or 0) >> 20 for each in seen.nodes) == 5 * 4096
    assert [((each.memory or 0) >> 20) // 4096 for each in seen.nodes] == [4, 1], "whole nodes first"
    assert "queue root.default may hold 20480 MB of memory at most: no more is offered" in seen.notes
    site.yarn.used = {"memory-mb": 2 * 4096}
    site.port._observer.limits.forget()
    assert sum((each.memory or 0) >> 20 for each in attend(site.port).nodes) == 3 * 4096, "others use it too"


def test_of_the_queues_memory_some_is_left_for_an_application_master(site: Site) -> None:
    site.yarn.most_bulk = {"memory-mb": 16384, "vcores": 6}
    site.port._observer.limits.master = Held(0, 1, 1024)
    assert sum((each.memory or 0) >> 20 for each in attend(site.port).nodes) == 16384, "none is to come"
    site.port.submit("job", SPEC)
    seen = attend(site.port)
    assert sum((each.memory or 0) >> 20 for each in seen.nodes) == 15360
    assert sum(each.cpus or 0 for each in seen.nodes) == 5


def test_what_a_user_may_hold_of_memory_counts_in_gpus_of_his_largest_job(site: Site) -> None:
    tree = site.yarn.scheduler()
    (leaf,) = tree["queues"]["queue"]
    least = amounts({"yarn.io/gpu": 8, "memory-mb": 30000, "vcores": 64})
    leaf["capacities"]["queueCapacitiesByPartition"][0]["effectiveMinResource"] = least
    leaf["userLimitFactor"], site.yarn.tree = 1.0, tree
    site.port.submit("job", SPEC)
    assert attend(site.port).caps == {"horae": 7}, "of 4,096 MB each"
    site.port.submit("large", replace(SPEC, name="large", memory_per_gpu=12288 << 20))
    assert attend(site.port).caps == {"horae": 2}


def test_what_a_user_may_hold_is_a_limit_of_each_partition(site: Site) -> None:
    """Of half of the default partition's 8 GPUs and of half of another's 4, 1.2 times each: 4 and 2, not 7 in one."""
    tree = site.yarn.scheduler()
    (leaf,) = tree["queues"]["queue"]
    (part,) = leaf["capacities"]["queueCapacitiesByPartition"]
    shares = {"": {"yarn.io/gpu": 4, "memory-mb": 65536, "vcores": 8},
              "k80s": {"yarn.io/gpu": 2, "memory-mb": 32768, "vcores": 4}}  # fmt: skip
    leaf["capacities"]["queueCapacitiesByPartition"] = [
        {**part, "partitionName": label, "effectiveMinResource": amounts(share)} for label, share in shares.items()
    ]
    leaf["userLimitFactor"], site.yarn.tree = 1.2, tree
    for known in range(2):
        seen = attend(site.port)
        assert sum(each.gpus - each.foreign for each in seen.nodes) == 4, f"{known} jobs are known"
        assert any("one user may hold 4 GPUs at most in the default partition" in note for note in seen.notes)
        site.port.submit("job", SPEC)
    site.port.submit("other", replace(SPEC, name="other", owner="ann"))
    assert sum(each.gpus - each.foreign for each in attend(site.port).nodes) == 8, "two users"
    site.port.submit("third", replace(SPEC, name="third", owner="ben"))
    assert attend(site.port).caps["horae"] == 7, "of both partitions together"


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


def test_a_worker_that_is_larger_than_any_container_of_its_queue_is_refused_and_not_tried(site: Site) -> None:
    """YARN takes such a service, or fails without a word, as often as it is made."""
    site.port.submit("early", replace(SPEC, name="early", memory_per_gpu=8192 << 20))
    site.yarn.largest = {"memory-mb": 4096, "vcores": 2, "yarn.io/gpu": 1 << 62}
    site.port._observer.limits.forget()
    attend(site.port)
    why = "memory-mb 8192, 4096 at most; ask for less"
    with pytest.raises(Never, match=why):
        site.port.submit("job", replace(SPEC, memory_per_gpu=8192 << 20))
    with pytest.raises(Never, match="vcores 3, 2 at most"):
        site.port.submit("job", replace(SPEC, cpus_per_gpu=3))
    site.port.submit("job", SPEC)
    with pytest.raises(FixConfiguration, match="memory-mb 8192, 4096 at most"):
        site.port.start("early", {"n1": 1}, 1)  # it was lowered since
    assert site.calls["create"] == 0


def test_why_a_service_cannot_be_made_is_told_when_its_gang_is_given_up(site: Site) -> None:
    site.yarn.refuse = TryLater("creating the service h-job: UndeclaredThrowableException (HTTP 500)")
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.now_s += 130.0
    seen = site.look()
    assert seen.blocked is not None
    assert "its service does not run: creating the service h-job: UndeclaredThrowableException" in seen.blocked.text


def test_a_queue_that_takes_no_application_is_told(site: Site) -> None:
    tree = site.yarn.scheduler()
    tree["queues"]["queue"][0]["state"] = "STOPPED"
    site.yarn.tree = tree
    assert "queue root.default is STOPPED: it takes no new application" in attend(site.port).notes


def test_a_job_that_runs_is_not_stopped_for_a_shape_that_its_queue_gives_no_more(site: Site) -> None:
    site.running({"n1": 1})
    site.yarn.largest = {"memory-mb": 1024}
    site.port._observer.limits.forget()
    attend(site.port)
    with pytest.raises(FixConfiguration, match="more than YARN gives one container"):
        site.port.reshape("job", {"n1": 2}, 2)
    assert site.look().state is JobState.RUNNING


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
    assert "YARN says: Queue's AM resource limit exceeded.; horae is offered 0 GPUs in all for 60 s" in told
    now = attend(site.port)
    assert ([each.foreign for each in now.nodes], now.caps) == ([0, 0], {"horae": 0})


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


def test_an_application_master_behind_nodes_kept_for_others_is_told_so(site: Site) -> None:
    site.yarn.tree = site.yarn.scheduler()
    site.yarn.tree["queues"]["queue"].append({"queueName": "other", "reservedContainers": 2})
    told = without_master(site, "waiting for resources to be assigned for AM")
    kept = "YARN keeps nodes for containers that wait: 2 of root.other"
    assert f"assigned for AM; {kept}; horae is offered 0 GPUs in all" in told


def test_a_queue_that_may_have_all_memory_and_few_gpus_is_at_100_per_cent_and_limited() -> None:
    """As absolute limits may be: the scheduler tells the largest share as its `maxCapacity`."""
    whole = {"yarn.io/gpu": 8, "memory-mb": 1000}
    leaf = {"queueName": "a", "maxCapacity": 100.0, "capacities": capacities({**whole, "yarn.io/gpu": 3})}
    info = {"type": "capacityScheduler", "capacities": capacities(whole), "queues": {"queue": [leaf]}}
    found = queues(info).find("a")
    assert found.limits == {"": {"GPUs": 3}}


@given(
    st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=6),
    st.integers(0, 60),
    st.integers(0, 4),
)
def test_never_more_memory_than_the_limit_and_all_of_it_that_there_is(
    parts: list[tuple[int, int, int]], limit: int, size: int
) -> None:
    held = {f"n{index}": Held(0, 0, ours) for index, (_, ours, _) in enumerate(parts)}
    made = [Node(f"n{i}", "v100", g, memory=(ours + spare) << 20) for i, (g, ours, spare) in enumerate(parts)]
    found = limited(made, held, "memory-mb", limit, {"memory-mb": size}, {each.name for each in made})
    told = sum((each.memory or 0) >> 20 for each in found)
    ours = sum(each.memory_mib for each in held.values())
    assert told == max(ours, min(limit, sum((each.memory or 0) >> 20 for each in made)))
    assert all((each.memory or 0) >> 20 >= held[each.name].memory_mib for each in found)
    assert [each.name for each in found] == [each.name for each in made]


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8), st.integers(0, 8), st.booleans()), max_size=6),
    st.integers(0, 30),
)
def test_never_more_than_the_limit_and_never_less_than_can_be(
    parts: list[tuple[int, int, int, bool]], most: int
) -> None:
    made, held = [], {}
    for index, (gpus, foreign, ours, up) in enumerate(parts):
        health = Health.UP if up else Health.DRAIN
        made.append(Node(f"n{index}", "v100", gpus, foreign=min(foreign, gpus), health=health))
        held[f"n{index}"] = Held(min(ours, gpus - made[-1].foreign))
    found = below(made, held, most, {each.name for each in made})
    kept = sum(held[each.name].gpus for each in made)
    offered = sum(each.gpus - each.foreign - held[each.name].gpus for each in found if each.health is Health.UP)
    before = sum(each.gpus - each.foreign - held[each.name].gpus for each in made if each.health is Health.UP)
    assert offered == min(before, max(most - kept, 0))
    assert all(each.foreign + held[each.name].gpus <= each.gpus for each in found)


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


def test_gpus_that_were_given_back_are_free_though_their_node_has_not_told_yet(site: Site) -> None:
    names = site.running({"n1": 3})
    site.yarn.lag["n1"] = 3  # what the node will show when the service has none any more
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    for _ in range(3):
        site.now_s += 1.0
        seen = attend(site.port)
    assert seen.jobs[0].state is JobState.STOPPED
    assert seen.nodes[0].foreign == 0
    site.now_s += 11.0
    assert attend(site.port).nodes[0].foreign == 3, "somebody else's after all"


def test_what_somebody_else_took_while_a_gang_formed_is_not_offered(site: Site) -> None:
    """The node told of three GPUs in use, the gang claimed three: two of them were somebody else's. They counted as
    free while it formed, and as given back for a while after."""
    attend(site.port)
    site.port.submit("job", SPEC)
    site.yarn.room, site.yarn.withheld = {"n1": 1}, (Withheld("Queue hits user max-capacity limit", ("n1",), True),)
    site.port.start("job", {"n1": 3}, 1)
    site.yarn.lag["n1"] = 2
    site.look()
    forming = attend(site.port)
    assert forming.jobs[0].allocation == {"n1": 3}
    assert forming.nodes[0].foreign == 1, "the gang's claim stands, and nothing more is free"
    site.now_s += 130.0
    attend(site.port)
    for _ in range(3):
        site.now_s += 1.0
        seen = attend(site.port)
    assert not seen.jobs[0].state.holds
    assert seen.nodes[0].foreign == 2


def test_what_a_resize_gave_back_is_free_though_its_node_has_not_told_yet(site: Site) -> None:
    """Else it is somebody else's for a moment, and a policy gives the job back what it has just taken."""
    names = site.running({"n1": 3})
    site.port.reshape("job", {"n1": 1, "n2": 1}, 2)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    site.yarn.lag["n1"] = 2  # what the node will show when two of the three have gone
    for _ in range(3):
        site.now_s += 1.0
        assert [each.foreign for each in attend(site.port).nodes] == [0, 0]
    site.register()
    site.now_s += 1.0
    seen = attend(site.port)
    assert (seen.jobs[0].state, seen.nodes[0].foreign) == (JobState.RUNNING, 0)


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
