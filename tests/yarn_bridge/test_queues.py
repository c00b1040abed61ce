"""Queue trees of both schedulers as real ResourceManagers tell them, and the tenants in them."""

from __future__ import annotations

import copy

import pytest

from policy.model import BadInput
from tests.yarn_bridge.fake import recorded
from yarn_bridge.clients.queues import CAPACITY, FAIR, Queues, queues


def tree(lane: str) -> Queues:
    return queues(recorded(lane)["scheduler"]["response"]["scheduler"]["schedulerInfo"])


@pytest.mark.parametrize(
    ("lane", "shares"),
    [("3.2.0", (50.0, 50.0)), ("3.3.6", (20.0, 80.0)), ("3.4.2", (20.0, 80.0))],
)
def test_the_capacity_scheduler(lane: str, shares: tuple[float, float]) -> None:
    found = tree(lane)
    assert found.kind == CAPACITY
    assert [queue.path for queue in found.root.walk()] == ["root", "root.default", "root.themis"]
    default, themis = found.root.leaves()
    assert (default.weight, themis.weight) == shares
    # of 8 GPUs, rounded down
    assert (default.guaranteed, themis.guaranteed) == (int(8 * shares[0] / 100), int(8 * shares[1] / 100))
    assert (themis.most, themis.used, themis.state, themis.policy) == (None, 0, "RUNNING", "fifo")
    assert not themis.preemptable
    assert themis.labels == ("*",)


def test_a_capacity_queue_with_a_ceiling_has_a_cap_and_one_in_weight_mode_its_weight() -> None:
    info = copy.deepcopy(recorded("3.4.2")["scheduler"]["response"]["scheduler"]["schedulerInfo"])
    themis = info["queues"]["queue"][1]
    themis["maxCapacity"], themis["weight"] = 50.0, 3.0
    (partition,) = themis["capacities"]["queueCapacitiesByPartition"]
    for each in partition["effectiveMaxResource"]["resourceInformations"]["resourceInformation"]:
        each["value"] //= 2
    found = queues(info).find("themis")
    assert (found.most, found.weight) == (4, 3.0)


def test_the_fair_scheduler() -> None:
    found = tree("3.4.2-fair")
    assert found.kind == FAIR
    assert [queue.path for queue in found.root.leaves()] == ["root.gpu.speech", "root.gpu.vision", "root.default"]
    gpu = found.find("gpu")
    assert (gpu.guaranteed, gpu.most, gpu.policy, gpu.preemptable) == (6, 6, "drf", True)
    vision = found.find("root.gpu.vision")
    assert (vision.guaranteed, vision.most, vision.used, vision.pending) == (4, None, 0, 0)


def test_queues_as_tenants_weigh_what_the_scheduler_guarantees() -> None:
    found = tree("3.4.2-fair")
    weights = {each.name: round(each.weight, 1) for each in found.tenants(found.find("gpu"))}
    assert weights == {"root.gpu.speech": 33.3, "root.gpu.vision": 66.7}


def test_a_queue_without_a_share_can_still_be_weighed() -> None:
    info = copy.deepcopy(recorded("3.4.2")["scheduler"]["response"]["scheduler"]["schedulerInfo"])
    info["queues"]["queue"][0]["capacity"] = 0.0
    found = queues(info)
    assert [tenant.weight for tenant in found.tenants(found.root)] == [100.0, 100.0]


def test_queues_that_are_not_there() -> None:
    found = tree("3.4.2")
    with pytest.raises(BadInput, match=r"no queue 'nope' \(one of root.default, root.themis\)"):
        found.find("nope")
    assert found.find("root.themis") is found.find("themis")
    with pytest.raises(BadInput, match="scheduler is fifoScheduler"):
        queues({"type": "fifoScheduler"})


def test_a_name_that_two_queues_have_is_not_guessed() -> None:
    info = copy.deepcopy(recorded("3.4.2-fair")["scheduler"]["response"]["scheduler"]["schedulerInfo"])
    info["rootQueue"]["childQueues"]["queue"][1]["queueName"] = "root.other.vision"
    with pytest.raises(BadInput, match=r"2 queues are called 'vision' \(one of root.gpu.vision, root.other.vision\)"):
        queues(info).find("vision")


def test_queues_with_absolute_resources_weigh_the_gpus_that_they_are_guaranteed() -> None:
    """Their per cent is the largest of their shares: one with more memory weighed more GPUs."""
    info = copy.deepcopy(recorded("3.4.2")["scheduler"]["response"]["scheduler"]["schedulerInfo"])
    for each, capacity in zip(info["queues"]["queue"], (75.0, 80.0), strict=True):
        each |= {"isAbsoluteResource": True, "capacity": capacity}
    found = queues(info)
    assert [queue.weight for queue in found.root.leaves()] == [1.0, 6.0]


def test_a_parent_that_makes_its_leaf_queues_itself_is_none() -> None:
    info = copy.deepcopy(recorded("3.4.2")["scheduler"]["response"]["scheduler"]["schedulerInfo"])
    info["queues"]["queue"][0]["queueType"] = "parent"
    found = queues(info)
    assert [queue.path for queue in found.root.leaves()] == ["root.themis"]
    assert found.tenants(found.find("default")) == ()
