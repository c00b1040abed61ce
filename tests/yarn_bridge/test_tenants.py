"""Tenants that are leaf queues: as the scheduler weighs and limits them, and for whom it lets in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.port import FixConfiguration, JobState, Never, TryLater, attend
from policy.model import BadInput
from tests.yarn_bridge.memory_site import SPEC, Site
from tests.yarn_bridge.queue_trees import gpus, queue, scheduler
from yarn_bridge.clients.queues import queues
from yarn_bridge.jobs.room import Holding, caps
from yarn_bridge.options import parse_options

VISION, SPEECH = "root.gpu.vision", "root.gpu.speech"

TREE = scheduler(queue("gpu", 80, queue("vision", 75, most=5), queue("speech", 25)), queue("default", 20))


@pytest.fixture
def site() -> Site:
    made = Site(tenants="queue", queue="gpu")
    made.yarn.tree = TREE
    return made


def test_the_leaf_queues_are_the_tenants_as_the_scheduler_weighs_and_limits_them(site: Site) -> None:
    seen = attend(site.port)
    assert [(each.name, each.weight, each.also) for each in seen.tenants] == [
        (VISION, 75.0, ("vision",)),
        (SPEECH, 25.0, ("speech",)),
    ]
    assert seen.caps == {VISION: 5}
    assert site.port.capabilities().tenant_key == "yarn.queue"


def test_users_are_the_tenants_where_the_site_says_nothing() -> None:
    site = Site()
    assert (attend(site.port).tenants, site.port.capabilities().tenant_key) == ((), "")


def test_a_job_runs_in_its_tenants_queue(site: Site) -> None:
    site.port.submit("job", replace(SPEC, tenant=VISION))
    site.port.start("job", {"n1": 2}, 1)
    assert site.yarn.bodies[-1]["queue"] == VISION


def test_the_queue_of_a_job_must_let_its_owner_in_and_be_there(site: Site) -> None:
    site.yarn.closed[VISION] = "User=alice doesn't have access to queue=root.gpu.vision"
    with pytest.raises(Never, match=r"alice not submit to queue root.gpu.vision.*acl_submit_applications"):
        site.port.submit("job", replace(SPEC, tenant=VISION, owner="alice"))
    with pytest.raises(Never, match=r"root\.gpu\.gone is none of the tenants' queues"):
        site.port.submit("job", replace(SPEC, tenant="root.gpu.gone"))
    site.port.submit("job", replace(SPEC, tenant=SPEECH, owner="alice"))


def test_nobody_is_told_apart_by_queues_that_are_not_known(site: Site) -> None:
    site.yarn.tree = scheduler(queue("default", 100))
    with pytest.raises(FixConfiguration, match="no queue 'gpu'"):
        site.port.observe()
    site.yarn.tree = {"type": "capacityScheduler", "queues": {"queue": [{}]}}
    with pytest.raises(TryLater, match="the queues that are the tenants are not known"):
        site.port.observe()
    site.yarn.tree = TREE
    assert len(site.port.observe().tenants) == 2


def test_where_the_queue_is_gone_nothing_is_offered_and_it_is_said(site: Site) -> None:
    """As after a restart of a ResourceManager that keeps its queues in memory."""
    site.port.observe()
    site.yarn.tree = scheduler(queue("default", 100))
    site.now_s += 30.0
    seen = site.port.observe()
    assert [each.gpus - each.foreign for each in seen.nodes] == [0, 0]
    assert any("no queue 'gpu'" in note for note in seen.notes)
    site.yarn.tree, site.now_s = TREE, site.now_s + 30.0
    assert [each.gpus - each.foreign for each in site.port.observe().nodes] == [4, 4]


def test_an_application_that_yarn_does_not_take_is_told_and_lets_its_gpus_go(site: Site) -> None:
    site.port.submit("job", replace(SPEC, tenant=VISION))
    refused = FixConfiguration("creating the service: submitted by user horae to unknown queue: root.gpu.vision")
    site.yarn.refuse = refused
    with pytest.raises(FixConfiguration, match="unknown queue"):
        site.port.start("job", {"n1": 2}, 1)
    assert site.look().state is JobState.QUEUED
    site.yarn.refuse = TryLater("the ResourceManager is busy")
    site.port.start("job", {"n1": 2}, 2)
    site.yarn.refuse = refused  # met where nobody waits for the answer
    seen = site.look()
    assert (seen.state, seen.native, dict(seen.allocation)) == (JobState.LOST, refused.text, {})
    site.yarn.refuse = None
    site.port.start("job", {"n1": 2}, 3)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING


def test_an_application_that_fails_before_its_gang_stands_is_told_and_backed_off(site: Site) -> None:
    site.port.submit("job", replace(SPEC, tenant=VISION))
    site.port.start("job", {"n1": 2}, 1)
    site.yarn.failed, site.yarn.services = "failed 2 times due to AM Container", {}
    seen = site.look()
    assert seen.state is JobState.LOST
    assert seen.native == "its YARN application failed: failed 2 times due to AM Container"
    assert site.calls["create"] == 1, "not made again before somebody decides so"


def test_an_application_that_is_put_into_another_queue_is_told() -> None:
    """By the scheduler's placement rules, which win where it says so: the limits of that queue are not looked at."""
    plain = Site()
    plain.running({"n1": 1})
    assert not [each for each in attend(plain.port).notes if "in queue" in each]
    plain.yarn.put_into = "root.users.alice"
    (told,) = [each for each in attend(plain.port).notes if "in queue" in each]
    assert "job: its application is in queue root.users.alice and was asked for in default: " in told
    plain.port.cancel("job")
    plain.look()
    assert not [each for each in attend(plain.port).notes if "in queue" in each]


def test_shares_of_queues_at_any_depth_are_of_the_managed_one() -> None:
    info = scheduler(queue("gpu", 50, queue("a", 40, queue("x", 10), queue("y", 90)), queue("b", 60), queue("c", 0)))
    found = queues(info)
    weights = {each.name: each.weight for each in found.tenants(found.find("gpu"))}
    assert weights == {"root.gpu.a.x": 4.0, "root.gpu.a.y": 36.0, "root.gpu.b": 60.0, "root.gpu.c": 4.0}


def test_what_a_tenant_may_hold() -> None:
    """The least of the maxima up to the managed queue, less what others use there; and its users' limits."""
    options = parse_options(
        {"resource_manager": ["http://r:1"], "webhdfs": ["http://n:1"], "tenants": "queue", "queue": "g"}
    )
    a = queue("a", 50, queue("x", 50, most=6, used=5), queue("y", 50), most=7, used=6)
    b = queue("b", 50, least=4, userLimitFactor=0.5)
    tree = queues(scheduler(queue("g", 100, a, b, most=1)))
    held = (Holding("alice", "root.g.a.x", "root.g.a.x", 3), Holding("bob", "root.g.b", "root.g.b", 0))
    assert caps(tree, held, options) == {"root.g.a.x": 4, "root.g.a.y": 4, "root.g.b": 2}
    both = (*held, Holding("carol", "root.g.b", "root.g.b", 1))
    assert caps(tree, both, options)["root.g.b"] == 4, "two users"


def test_what_a_user_may_hold_of_one_queue_is_the_users_cap() -> None:
    options = parse_options({"resource_manager": ["http://r:1"], "webhdfs": ["http://n:1"], "queue": "g"})
    held = (Holding("alice", "alice", "g", 3), Holding("bob", "vision", "g", 1), Holding("carol", "carol", "other", 1))
    limited = queues(scheduler(queue("g", 100, least=7, userLimitFactor=1.5)))
    assert caps(limited, held, options) == {"alice": 10}
    free = queues(scheduler(queue("g", 100, least=7, userLimitFactor=-1.0)))
    assert caps(free, held, options) == {}


def test_the_option() -> None:
    with pytest.raises(BadInput, match=r"tenants: is not known .one of user, queue"):
        parse_options({"resource_manager": ["http://r:1"], "webhdfs": ["http://n:1"], "tenants": "role"})


def test_what_is_used_below_a_queue_that_does_not_tell_is_the_sum_of_its_children() -> None:
    def labelled(name: str, used: int) -> dict[str, Any]:
        leaf = queue(name, 50, used=1)
        part = {"partitionName": "gpu", "effectiveMaxResource": gpus(6)}
        leaf["capacities"]["queueCapacitiesByPartition"].append(part)
        leaf["resources"]["resourceUsagesByPartition"].append({"partitionName": "gpu", "used": gpus(used)})
        return leaf

    parent = queue("g", 100, labelled("a", 2), labelled("b", 3))
    part = {"partitionName": "gpu", "effectiveMaxResource": gpus(8)}
    parent["capacities"]["queueCapacitiesByPartition"].append(part)
    found = queues(scheduler(parent)).find("g")
    assert (found.used, found.limit("gpu")) == (2, (8, 5))
