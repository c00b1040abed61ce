"""What of the free GPUs can be had: beside foreign memory and cores, within the queue's limit, where gangs formed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import FixConfiguration, JobState, Never, TryLater, attend
from policy.model import GpuRange, Health, Node, Quota
from tests.yarn_bridge.memory_site import SPEC, Site, amounts, capacities
from yarn_bridge.clients.queues import Queues, queues
from yarn_bridge.clients.records import Withheld
from yarn_bridge.jobs.room import Held, below, ceilings, limited
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


def with_another_queue(site: Site, most: int) -> None:
    """Ours may hold so many GPUs, `root.other` all."""
    site.yarn.most = most
    tree = site.yarn.scheduler()
    tree["queues"]["queue"].append({"queueName": "other"})
    site.yarn.tree = tree


def offered(site: Site) -> int:
    return sum(each.gpus - each.foreign for each in attend(site.port).nodes)


def test_a_job_in_another_queue_takes_the_limit_from_nobody_and_lifts_it_for_nobody(site: Site) -> None:
    """Whoever named a queue of his own, and be it for a job that has long ended, lifted it for all; and while our queue
    was full, nobody else was offered a GPU."""
    with_another_queue(site, 3)
    bound = Quota("queue root.default may hold 3 GPUs at most", ("plain",), 3)
    site.port.submit("job", replace(SPEC, extra={"yarn.queue": "root.other"}))
    site.port.submit("plain", replace(SPEC, name="plain", extra={"yarn.queue": "root.default"}))
    site.port.start("plain", {"n1": 3}, 1)
    site.look("plain")
    seen = attend(site.port)
    assert ([each.foreign for each in seen.nodes], seen.quotas) == ([0, 0], (bound,)), "it waits, and may have five"
    site.port.start("job", {"n2": 3}, 1)
    site.look("plain")
    site.now_s += 21.0
    assert (offered(site), attend(site.port).quotas) == (8, (bound,)), "it could have one more"
    site.port.cancel("job")
    site.look()
    site.now_s += 21.0
    assert (offered(site), attend(site.port).quotas) == (3, ()), "it has ended"


def test_the_limit_of_our_queue_is_taken_off_the_nodes_where_nobody_else_could_have_more(site: Site) -> None:
    """There a policy divides it: as a quota it is divided before that, evenly."""
    with_another_queue(site, 3)
    rigid = replace(SPEC, gpus=GpuRange(2, 2, 2))
    site.port.submit("job", replace(rigid, extra={"yarn.queue": "root.other"}))
    site.port.submit("plain", replace(SPEC, name="plain"))
    assert offered(site) == 8
    site.port.start("job", {"n2": 2}, 1)
    site.look()
    assert (offered(site), attend(site.port).quotas) == (3 + 2, ()), "it has all that it wants"


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


def test_what_is_reserved_for_others_counts_against_all_that_there_is(site: Site) -> None:
    """Five of eight GPUs are in use, two are reserved where others will be free: YARN gives one more, anywhere."""
    site.yarn.lag.update({"n1": 2, "n2": 3})
    tree = site.yarn.scheduler()
    taken = {"resourceUsagesByPartition": [{"used": amounts({"yarn.io/gpu": 7})}]}
    tree["queues"]["queue"].append({"queueName": "other", "resources": taken, "reservedContainers": 2})
    site.yarn.tree = {**tree, "resources": taken}
    seen = attend(site.port)
    assert sum(each.gpus - each.foreign for each in seen.nodes) == 1
    assert "queue root may hold 8 GPUs at most, and others use 7 of them: no more is offered" in seen.notes
    tree["queues"]["queue"][-1]["reservedContainers"] = 0
    site.now_s += 21.0
    assert sum(each.gpus - each.foreign for each in attend(site.port).nodes) == 3, "the nodes know it sooner"


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
    assert (seen.state, seen.blocked) == (JobState.LOST, None)
    assert "its service does not run: creating the service h-job: UndeclaredThrowableException" in seen.native


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


def test_gpus_that_were_given_back_are_free_though_their_node_has_not_told_yet(site: Site) -> None:
    names = site.running({"n1": 3})
    site.yarn.lag["n1"] = site.yarn.ending["n1"] = 3  # what the node will show when the service has none any more
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
    site.yarn.lag["n1"] = site.yarn.ending["n1"] = 2  # what the node will show when two of the three have gone
    for _ in range(3):
        site.now_s += 1.0
        assert [each.foreign for each in attend(site.port).nodes] == [0, 0]
    site.register()
    site.now_s += 1.0
    seen = attend(site.port)
    assert (seen.jobs[0].state, seen.nodes[0].foreign) == (JobState.RUNNING, 0)
