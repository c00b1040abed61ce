"""How many jobs may get an application of theirs, as their queue lets applications begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from horae.port import FixConfiguration, JobState, Never, attend
from policy.model import Quota
from tests.yarn_bridge.memory_site import SPEC, Site, amounts, capacities
from tests.yarn_bridge.slice_site import SliceSite, running
from yarn_bridge.jobs.room import Held

WHOLE = {"yarn.io/gpu": 8, "memory-mb": 131072, "vcores": 512}
MASTER = Held(0, 1, 1024)
Deed = Callable[[Site], None]


def masters(memory_mib: int, cores: int = 100) -> dict[str, Any]:
    return amounts({"memory-mb": memory_mib, "vcores": cores})


def tree(**more: Any) -> dict[str, Any]:
    """One leaf, whose application masters have 2,048 MB of at most 4,096. `more`: of the leaf, and `usage` of its
    partition."""
    part = {"amUsed": masters(2048, 2), "amLimit": masters(4096), **more.pop("usage", {})}
    leaf = {"queueName": "default", "capacities": capacities(WHOLE), "numApplications": 2, "numActiveApplications": 2,
            "resources": {"resourceUsagesByPartition": [part]}, **more}  # fmt: skip
    return {"type": "capacityScheduler", "queueName": "root", "capacities": capacities(WHOLE),
            "maxParallelApps": 2147483647, "queues": {"queue": [leaf]}}  # fmt: skip


def told(queued: dict[str, Any], jobs: int = 4) -> tuple[Quota, ...]:
    """Of so many jobs that wait, every other one ann's."""
    site = Site()
    site.yarn.tree = queued
    site.port._observer.limits.master = MASTER
    for number in range(jobs):
        site.port.submit(f"j{number}", replace(SPEC, owner="ann" if number % 2 else ""))
    return attend(site.port).quotas


SHARE = "application masters in queue root.default may have 4096 MB: {} more may begin"
ALL, ANNS = ("j0", "j1", "j2", "j3"), ("j1", "j3")


@pytest.mark.parametrize(
    ("queued", "whom", "name", "most"),
    [
        (tree(), ALL, SHARE.format(2), 2),
        (tree(numApplications=9), ALL, SHARE.format(2), 2),  # who waits for a limit of his own has no share
        (tree(usage={"amUsed": masters(8192, 2)}), ALL, SHARE.format(0), 0),
        (tree(usage={"amUsed": masters(8192, 2)}, numActiveApplications=0, numApplications=0), ALL, SHARE.format(1), 1),
        (tree(usage={"amLimit": masters(131072)}, userAMResourceLimit=masters(1024)), ANNS,
         "application masters of ann in queue root.default may have 1024 MB: 1 more may begin", 1),
        (tree(maxParallelApps=6, numPendingApplications=1, numApplications=9, usage={"amLimit": masters(131072)}), ALL,
         "queue root.default lets 6 applications run at a time: 3 more may begin", 3),
    ],
)  # fmt: skip
def test_no_more_jobs_are_granted_than_may_begin(queued: dict[str, Any], whom: Any, name: str, most: int) -> None:
    assert Quota(name, whom, None, most) in told(queued)


@pytest.mark.parametrize("state", ["DRAINING", "STOPPED"])
def test_a_queue_that_takes_no_new_application_lets_none_begin(state: str) -> None:
    """A job that was granted GPUs there was refused its application at each try."""
    name = f"queue root.default is {state} and takes no new application: 0 more may begin"
    assert Quota(name, ALL, None, 0) in told(tree(state=state))


def test_what_ends_in_a_queue_that_drains_makes_no_place_in_it() -> None:
    site = Site()
    site.running({"n1": 1})
    site.yarn.tree = tree(state="DRAINING")
    site.now_s += 21.0
    assert attend(site.port).quotas == (), "it has its application"
    site.port.submit("next", replace(SPEC, name="next"))
    site.port.cancel("job")
    site.look("next")
    assert not site.yarn.services
    assert {each.jobs for each in attend(site.port).quotas} == {0}


def test_nobody_is_stopped_for_a_shape_that_needs_an_application_which_his_queue_lets_him_not_submit() -> None:
    """Its ACL was changed while he trained."""
    site = Site()
    site.running({"n1": 1})
    site.yarn.hosts.append("n3")
    site.yarn.closed["default"] = "User=horae doesn't have access to queue=default"
    site.now_s += 21.0
    attend(site.port)
    with pytest.raises(FixConfiguration, match="job: YARN lets horae not submit to queue default") as refused:
        site.port.reshape("job", {"n3": 1}, 2)
    assert "acl_submit_applications" in refused.value.remedy
    assert site.look().state is JobState.RUNNING
    site.port.reshape("job", {"n1": 2}, 3)
    assert attend(site.port).jobs[0].state is JobState.STOPPING, "its service does that"


def test_nobody_is_stopped_for_a_shape_that_needs_an_application_which_his_queue_would_not_take() -> None:
    """As slices each does; as a service, one with a node that came later."""
    sliced, served = SliceSite(), Site()
    sliced.port.submit("job", SPEC)
    running(sliced, {"n1": 1})
    served.running({"n1": 1})
    served.yarn.hosts.append("n3")
    closed = tree(state="DRAINING")
    sliced.manager.scheduler = lambda: closed  # type: ignore[method-assign]
    served.yarn.tree = closed
    for site, shape in ((sliced, {"n1": 2}), (served, {"n3": 1})):
        site.now_s += 21.0
        attend(site.port)
        with pytest.raises(FixConfiguration, match="DRAINING and takes no new application"):
            site.port.reshape("job", shape, 2)
        assert site.look().state is JobState.RUNNING
    served.port.reshape("job", {"n1": 2}, 3)
    assert attend(served.port).jobs[0].state is JobState.STOPPING, "its service does that"


def drained(site: Site) -> None:
    """Its queue refuses every new application from now on."""
    site.yarn.tree = tree(state="DRAINING")
    site.yarn.refuse = FixConfiguration("queue root.default is DRAINING", "set it to RUNNING")
    site.now_s += 21.0
    attend(site.port)


def closed_to_him(site: Site) -> None:
    """As `drained`, and others may submit."""
    site.yarn.closed["default"] = "User=horae doesn't have access to queue=default"
    site.yarn.refuse = FixConfiguration("User horae does not have permission to submit", "name him")
    site.now_s += 21.0
    attend(site.port)


@pytest.mark.parametrize("drained", [drained, closed_to_him])
def test_in_a_queue_that_drains_a_job_is_resized_in_the_service_that_it_has_of_whatever_age(drained: Deed) -> None:
    """Its next service would have been refused: it had left its GPUs, and came to none again."""
    site = Site(token_life_s=1000.0)
    names = site.running({"n1": 2})
    site.now_s += 500.0
    drained(site)
    site.port.reshape("job", {"n1": 1}, 2)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    site.look()
    site.register()
    assert (site.look().state, site.calls["create"]) == (JobState.RUNNING, 1)


@pytest.mark.parametrize("drained", [drained, closed_to_him])
def test_in_a_queue_that_drains_a_suspended_job_keeps_the_service_that_it_can_still_train_in(drained: Deed) -> None:
    site = Site(token_life_s=1000.0)
    names = site.running({"n1": 2})
    site.now_s += 500.0
    drained(site)
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    assert (site.look().state, len(site.yarn.services)) == (JobState.STOPPED, 1)
    site.port.start("job", {"n1": 2}, 2)
    site.look()
    names = site.register()
    assert site.look().state is JobState.RUNNING
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 2, "stopped", 86, 1.0)
    assert (site.look().state, len(site.yarn.services)) == (JobState.STOPPED, 1)
    site.now_s += 200.0
    assert (site.look().state, site.yarn.services) == (JobState.STOPPED, {}), "too old to train in"


def test_a_job_is_not_stopped_for_a_node_of_another_partition_where_its_queue_takes_no_new_service() -> None:
    site = Site()
    site.running({"n1": 1})
    drained(site)
    site.yarn.labels = {"n2": ("gpu",)}
    site.yarn.tree = tree(state="DRAINING", nodeLabels=["gpu"])
    site.now_s += 21.0
    attend(site.port)
    with pytest.raises(FixConfiguration, match="DRAINING and takes no new application"):
        site.port.reshape("job", {"n1": 1, "n2": 1}, 2)
    assert site.look().state is JobState.RUNNING


def test_cores_are_a_limit_as_memory_is() -> None:
    assert [each.jobs for each in told(tree(usage={"amLimit": masters(131072, 3)}))] == [1]


def test_what_binds_nobody_is_not_told() -> None:
    assert told(tree(), jobs=2) == ()
    fewer = tree()
    del fewer["queues"]["queue"][0]["resources"]["resourceUsagesByPartition"][0]["amLimit"]
    assert told(fewer) == (), "an older ResourceManager says nothing of it"


def test_who_has_begun_since_the_queues_were_asked_counts() -> None:
    site = Site()
    site.yarn.tree = tree()
    site.port._observer.limits.master = MASTER
    for number in range(4):
        site.port.submit(f"j{number}", SPEC)
    assert [each.jobs for each in attend(site.port).quotas] == [2]
    site.port.start("j0", {"n1": 1}, 1)
    site.now_s += 1.0
    seen = attend(site.port)
    assert [(each.jobs, each.whom) for each in seen.quotas] == [(1, ("j1", "j2", "j3"))]


def test_a_limit_above_several_queues_is_of_the_jobs_of_all_of_them() -> None:
    """It was read of the leaf alone: a gang was granted there and its application waited for others to end."""
    site = Site(queue="gpu", tenants="queue")
    leaves = [{"queueName": name, "capacities": capacities(WHOLE), "numActiveApplications": 1} for name in ("a", "b")]
    above = {
        "queueName": "gpu",
        "capacities": capacities(WHOLE),
        "queues": {"queue": leaves},
        "maxParallelApps": 3,
    }
    site.yarn.tree = {
        "type": "capacityScheduler",
        "queueName": "root",
        "capacities": capacities(WHOLE),
        "queues": {"queue": [above]},
    }
    for name, queue in (("first", "root.gpu.a"), ("second", "root.gpu.b")):
        site.port.submit(name, replace(SPEC, extra={"yarn.queue": queue}))
    text = "queue root.gpu lets 3 applications run at a time: 1 more may begin"
    assert attend(site.port).quotas == (Quota(text, ("first", "second"), None, 1),)


def fair(**more: Any) -> dict[str, Any]:
    """A leaf of the fair scheduler, as it tells of itself."""
    whole = amounts(WHOLE)
    leaf = {
        "type": "fairSchedulerLeafQueueInfo",
        "queueName": "root.default",
        "maxResources": whole,
        "clusterResources": whole,
        "numActiveApps": 1,
        "numPendingApps": 1,
        **more,
    }
    root = {
        "queueName": "root",
        "maxResources": whole,
        "clusterResources": whole,
        "childQueues": {"queue": [leaf]},
    }
    return {"type": "fairScheduler", "rootQueue": root}


@pytest.mark.parametrize(
    ("queued", "name", "most"),
    [
        (fair(maxApps=3), "queue root.default lets 3 applications run at a time: 1 more may begin", 1),
        (fair(amUsedResources=masters(2048, 2), amMaxResources=masters(4096)), SHARE.format(2), 2),
    ],
)
def test_the_fair_scheduler_lets_as_many_begin_as_it_says(queued: dict[str, Any], name: str, most: int) -> None:
    """Nothing of it was read: each gang more was granted, and never stood."""
    assert Quota(name, ALL, None, most) in told(queued)
    assert told(fair()) == ()


def test_the_fair_scheduler_gives_a_container_as_much_as_it_says() -> None:
    site = Site(memory_mib=9000)
    site.yarn.tree = fair(maxContainerAllocation=amounts({"memory-mb": 8192, "vcores": 4}))
    attend(site.port)
    with pytest.raises(Never, match="memory-mb 9000, 8192 at most"):
        site.port.submit("job", SPEC)


def test_a_job_as_slices_is_on_no_more_nodes_than_applications_may_begin() -> None:
    """Each slice is one: a job alone was granted both nodes, and the second slice waited for the first to end."""
    site = SliceSite()
    few = tree(maxParallelApps=3, usage={"amLimit": masters(131072)})
    site.manager.scheduler = lambda: few  # type: ignore[method-assign]
    site.port.submit("job", SPEC)
    text = "queue root.default lets 3 applications run at a time: 1 more may begin"
    assert Quota(text, ("job",), None, 1, 1) in attend(site.port).quotas
