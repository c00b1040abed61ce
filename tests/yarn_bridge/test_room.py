"""What of the free GPUs can be had: beside foreign memory and cores, within the queue's limit, where gangs formed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import JobState, attend
from policy.model import Health, Node
from tests.yarn_bridge.memory_site import SPEC, Site, gpu_resource
from yarn_bridge.clients.queues import queues
from yarn_bridge.jobs.room import Held, Lessons, below, ceiling
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
    def queue(name: str, most: int | None, used: int, **more: object) -> dict[str, object]:
        capacities = {"queueCapacitiesByPartition": [{"effectiveMaxResource": gpu_resource(most or 0)}]}
        usage = {"resourceUsagesByPartition": [{"used": gpu_resource(used)}]}
        limit = 100.0 if most is None else 50.0
        return {"queueName": name, "maxCapacity": limit, "capacities": capacities, "resources": usage, **more}

    leaf, sister = queue("horae", 8, 5), queue("spark", None, 3)
    info = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [
        queue("gpu", 9, 8, queues={"queue": [leaf, sister]}), queue("other", 1, 1)]}}  # fmt: skip
    found = ceiling(queues(info), "horae", ours=4)
    assert found is not None
    assert (found.gpus, found.text) == (5, "queue root.gpu may hold 9 GPUs at most, and others use 4 of them")
    assert ceiling(queues(info), "spark", ours=0).gpus == 1  # type: ignore[union-attr]
    free = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [queue("a", None, 0)]}}
    assert ceiling(queues(free), "a", ours=0) is None


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
    found = below(made, held, most)
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
