"""Leaf queues that are tenants, each with a share of two partitions: what is granted within their sum, and comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.port import JobState, TryLater, attend
from policy.model import Quota
from tests.yarn_bridge.memory_site import SPEC, Site, amounts

VISION, SPEECH, LABEL = "root.gpu.vision", "root.gpu.speech", "k80s"
WHOLE = {"yarn.io/gpu": 4, "memory-mb": 65536, "vcores": 16}


def part(label: str, most: int, least: int) -> dict[str, Any]:
    sizes = {"effectiveMaxResource": most, "effectiveMinResource": least}
    return {"partitionName": label, **{key: amounts(WHOLE | {"yarn.io/gpu": gpus}) for key, gpus in sizes.items()}}


def leaf(name: str, most: tuple[int, int], least: tuple[int, int], **more: Any) -> dict[str, Any]:
    """`most`, `least`: GPUs in the default partition and in the labelled one."""
    parts = [part(label, *each) for label, each in zip(("", LABEL), zip(most, least, strict=True), strict=True)]
    return {
        "queueName": name,
        "capacity": 50,
        "nodeLabels": [LABEL],
        "capacities": {"queueCapacitiesByPartition": parts},
        **more,
    }


def site_of(*leaves: dict[str, Any]) -> Site:
    """Two nodes of four GPUs, the second one labelled."""
    site = Site(tenants="queue", queue="gpu")
    site.yarn.labels = {"n2": (LABEL,)}
    whole = {"queueCapacitiesByPartition": [part("", 4, 4), part(LABEL, 4, 4)]}
    above = {
        "queueName": "gpu",
        "capacities": whole,
        "nodeLabels": [LABEL],
        "queues": {"queue": list(leaves)},
    }
    site.yarn.tree = {
        "type": "capacityScheduler",
        "queueName": "root",
        "capacities": whole,
        "queues": {"queue": [above]},
    }
    return site


def handed_in(site: Site, job: str, tenant: str = VISION, owner: str = "horae") -> None:
    site.port.submit(job, replace(SPEC, tenant=tenant, owner=owner))


@pytest.fixture
def site() -> Site:
    return site_of(leaf("vision", (3, 1), (2, 1)), leaf("speech", (4, 3), (2, 3)))


def test_a_tenant_may_hold_its_shares_of_all_partitions(site: Site) -> None:
    """The default one's alone was told: of its other share it had nothing."""
    handed_in(site, "job")
    assert attend(site.port).caps == {VISION: 4}
    site.port.start("job", {"n1": 3, "n2": 1}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    site.now_s += 21.0
    assert attend(site.port).caps[VISION] == 4, "what it holds is its own"


def test_what_would_not_come_of_a_partition_is_refused_at_once(site: Site) -> None:
    """Within the sum of its shares: half of the gang came, and its GPUs stood for all of its time."""
    handed_in(site, "job")
    attend(site.port)
    with pytest.raises(TryLater) as refused:
        site.port.start("job", {"n1": 1, "n2": 3}, 1)
    assert refused.value.text == (
        "job: 2 of its 4 GPUs would not come: queue root.gpu.vision may hold 1 GPUs at most in partition k80s; "
        "root.gpu.vision is offered 2 GPUs in all for 30 s"
    )
    assert site.yarn.services == {}
    now = attend(site.port)
    assert (now.caps[VISION], [each.foreign for each in now.nodes]) == (2, [0, 0])
    for _ in range(3):  # an arbiter asks again for what it has decided
        with pytest.raises(TryLater, match="for 30 s"):
            site.port.start("job", {"n1": 1, "n2": 3}, 1)
    site.now_s += 31.0
    assert attend(site.port).caps[VISION] == 4
    site.port.start("job", {"n1": 3, "n2": 1}, 1)


def test_nobody_is_stopped_for_a_shape_that_would_not_come(site: Site) -> None:
    handed_in(site, "job")
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    with pytest.raises(TryLater, match="1 of its 2 GPUs would not come"):
        site.port.reshape("job", {"n2": 2}, 2)
    assert site.look().state is JobState.RUNNING
    site.port.reshape("job", {"n2": 1}, 3)


def test_who_holds_more_than_a_limit_that_came_later_may_shrink(site: Site) -> None:
    """Nothing is asked for by it, and what is asked for beside must fit."""
    handed_in(site, "job")
    site.port.start("job", {"n1": 3}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    site.yarn.tree["queues"]["queue"][0]["queues"]["queue"][0] |= leaf("vision", (1, 1), (1, 1))  # type: ignore[index]
    site.now_s += 21.0
    attend(site.port)
    with pytest.raises(TryLater, match="1 of its 3 GPUs would not come"):
        site.port.reshape("job", {"n1": 1, "n2": 2}, 2)
    site.port.reshape("job", {"n1": 2, "n2": 1}, 3)


def test_what_jobs_of_other_tenants_hold_there_is_not_its_own(site: Site) -> None:
    for name, tenant in (("hers", SPEECH), ("job", VISION)):
        handed_in(site, name, tenant)
    site.port.start("hers", {"n2": 3}, 1)
    attend(site.port)
    site.port.start("job", {"n1": 3, "n2": 1}, 1)


def test_a_user_of_several_in_a_leaf_queue_has_his_own_limit() -> None:
    """The sum of all bound them alone, and one of them was granted all of it."""
    site = site_of(leaf("vision", (4, 4), (2, 1), userLimitFactor=1.0))
    for name, owner in (("anns", "ann"), ("bobs", "bob")):
        handed_in(site, name, owner=owner)
    seen = attend(site.port)
    assert seen.caps == {VISION: 6}
    text = "{} may hold 3 GPUs at most in queue root.gpu.vision"
    assert Quota(text.format("ann"), ("anns",), 3) in seen.quotas
    assert Quota(text.format("bob"), ("bobs",), 3) in seen.quotas
    with pytest.raises(TryLater, match=r"ann may hold 2 GPUs at most in queue root.gpu.vision; root.gpu.vision is"):
        site.port.start("anns", {"n1": 3}, 1)


def test_who_has_no_job_there_any_more_has_no_part_of_what_a_leaf_queues_users_may_hold() -> None:
    site = site_of(leaf("vision", (4, 4), (1, 1), userLimitFactor=1.0))
    handed_in(site, "job")
    handed_in(site, "anns", owner="ann")
    assert attend(site.port).caps == {VISION: 4}
    site.port.cancel("anns")
    site.now_s += 21.0
    assert attend(site.port).caps == {VISION: 2}
