"""Jobs that name a queue of their own are bound by its limits, and by nobody's who is in another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import FixConfiguration, attend
from policy.model import Quota
from tests.yarn_bridge.memory_site import SPEC, Site
from tests.yarn_bridge.queue_trees import gpus, queue, scheduler
from yarn_bridge.clients.queues import CORES, GPUS, MEMORY, queues
from yarn_bridge.jobs.room import Held, Holding, own_queues

ADS = "root.shop.ads"
MIB = 1024


def tree(*more: dict[str, Any], **ads: Any) -> dict[str, Any]:
    """Horae's queue, and a shop's beside it. `ads`: of the shop's leaf, as `queue` takes it."""
    shop = queue("shop", 50, queue("ads", 50, **ads), *more, used=ads.get("used", 0))
    return scheduler(queue("default", 50), shop, partitions=("",))


def site_of(tree: dict[str, Any]) -> Site:
    site = Site(memory_mib=MIB, cpus=1)
    site.yarn.tree = tree
    return site


def handed_in(site: Site, job: str, queue: str = ADS, **more: Any) -> None:
    site.port.submit(job, replace(SPEC, name=job, extra={"yarn.queue": queue}, **more))


def told(site: Site) -> dict[str, tuple[tuple[str, ...], int | None]]:
    return {each.name: (tuple(sorted(each.whom)), each.gpus) for each in attend(site.port).quotas}


def test_the_limit_of_a_jobs_own_queue_binds_those_in_it_together_and_nobody_else() -> None:
    site = site_of(tree(most=5, used=2))
    for job, where in (("a", ADS), ("b", "ads"), ("c", "root.default"), ("d", "root.other")):
        handed_in(site, job, where)
    assert told(site) == {f"queue {ADS} may hold 5 GPUs at most": (("a", "b"), 3)}, "others use two"


def test_the_limit_of_a_queue_above_binds_those_in_all_below_it() -> None:
    whole = tree(queue("web", 50))
    whole["queues"]["queue"][1] |= queue("shop", 50, *whole["queues"]["queue"][1]["queues"]["queue"], most=6)
    site = site_of(whole)
    for job, where in (("a", ADS), ("b", "web"), ("c", "root.shop.new")):  # that one is made by who submits to it
        handed_in(site, job, where)
    assert told(site) == {"queue root.shop may hold 6 GPUs at most": (("a", "b", "c"), 6)}


def test_nothing_is_taken_from_who_holds_more_than_a_limit_that_came_later() -> None:
    site = site_of(tree())
    handed_in(site, "job")
    site.port.start("job", {"n1": 3}, 1)
    site.look()
    site.register()
    site.look()
    site.yarn.tree = tree(most=2, used=3)
    site.now_s += 21.0
    assert told(site) == {f"queue {ADS} may hold 2 GPUs at most": (("job",), 3)}
    site.port.cancel("job")
    site.look()
    site.yarn.tree = tree(most=2)
    handed_in(site, "next")
    site.now_s += 21.0
    assert told(site)[f"queue {ADS} may hold 2 GPUs at most"][1] == 2


def test_the_memory_and_cores_of_a_jobs_own_queue_are_limits_of_its_gpus() -> None:
    site = site_of(tree(bulk={"memory-mb": 8 * MIB, "vcores": 7}))
    handed_in(site, "small")
    handed_in(site, "large", memory_per_gpu=3 * MIB << 20)
    memory = f"queue {ADS} may hold {8 * MIB} MB of memory at most"
    assert told(site) == {
        f"{memory}, {MIB} or more with each GPU": (("large", "small"), 8),
        f"{memory}, {3 * MIB} or more with each GPU": (("large",), 2),
        f"queue {ADS} may hold 7 virtual cores at most, 1 or more with each GPU": (("large", "small"), 6),
    }, "one core is their next application master's"


def test_of_it_some_is_left_for_an_application_master() -> None:
    site = site_of(tree(bulk={"memory-mb": 4 * MIB}))
    site.port._observer.limits.master = Held(0, 1, 512)
    handed_in(site, "job")
    assert [most for _, most in told(site).values()] == [3]
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.yarn.tree = tree(bulk={"memory-mb": 4 * MIB})
    assert [most for _, most in told(site).values()] == [4], "it has its own, which counts as used"


def test_what_one_user_may_hold_of_it_is_his_limit_alone() -> None:
    site = site_of(tree(least=2, userLimitFactor=1.5))
    handed_in(site, "anns", owner="ann")
    handed_in(site, "bens", owner="ben")
    found = {name: told for name, told in told(site).items() if "GPUs" in name}
    assert found == {
        f"ann may hold 3 GPUs at most in queue {ADS}": (("anns",), 3),
        f"ben may hold 3 GPUs at most in queue {ADS}": (("bens",), 3),
    }
    site.yarn.tree = tree(userLimitFactor=1.5)
    site.now_s += 21.0
    assert told(site) == {}, "a queue that is guaranteed nothing limits no user by it"


def labelled(*nodes: str, gpu: int = 2, **ads: Any) -> Site:
    """A shop's queue with `gpu` GPUs of 16 in the partition of these nodes, where Horae's is let in."""
    shop = queue("ads", 50, **ads)
    share = {"partitionName": "gpu", "effectiveMaxResource": gpus(gpu), "effectiveMinResource": gpus(1)}
    shop["capacities"]["queueCapacitiesByPartition"].append(share)
    shop["resources"]["resourceUsagesByPartition"].append({"partitionName": "gpu", "used": gpus(1)})
    site = site_of(scheduler(queue("default", 50, nodeLabels=["gpu"]), shop))
    site.yarn.labels = dict.fromkeys(nodes, ("gpu",))
    return site


def test_a_share_of_the_partition_that_all_gpus_are_in_is_a_limit() -> None:
    site = labelled("n1", "n2", nodeLabels=["gpu"], most=3)
    handed_in(site, "job", "ads")
    assert told(site) == {"queue root.ads may hold 2 GPUs at most in partition gpu": (("job",), 1)}, "others use one"


def test_where_a_job_may_come_to_several_partitions_the_share_of_each_binds_it() -> None:
    site = labelled("n2", nodeLabels=["gpu"], most=3, userLimitFactor=1, least=2)
    handed_in(site, "job", "ads")
    found = {name: told for name, told in told(site).items() if "GPUs" in name}
    assert found == {
        "queue root.ads may hold 3 GPUs at most": (("job",), 3),
        "horae may hold 2 GPUs at most in queue root.ads": (("job",), 2),
        "queue root.ads may hold 2 GPUs at most in partition gpu": (("job",), 1),
        "horae may hold 1 GPUs at most in queue root.ads, partition gpu": (("job",), 1),
    }


def test_what_our_jobs_hold_of_a_partition_is_not_taken_for_somebody_elses() -> None:
    site = labelled("n2", nodeLabels=["gpu"], gpu=4, most=3)
    handed_in(site, "job", "ads")
    site.port.start("job", {"n2": 1}, 1)
    site.now_s += 21.0
    limits = {name: most for name, (_, most) in told(site).items()}
    assert limits == {
        "queue root.ads may hold 3 GPUs at most": 3,
        "queue root.ads may hold 4 GPUs at most in partition gpu": 4,
    }


def test_a_job_does_not_begin_on_nodes_of_a_partition_that_its_queue_is_not_let_into() -> None:
    site = labelled("n2", gpu=0, most=3)
    handed_in(site, "job", "ads")
    assert told(site) == {"queue root.ads may hold 3 GPUs at most": (("job",), 3)}
    with pytest.raises(FixConfiguration, match=r"queue root\.ads is not let into partition gpu, where n2 is"):
        site.port.start("job", {"n1": 1, "n2": 1}, 1)
    assert not site.yarn.bodies
    site.port.start("job", {"n1": 1}, 1)
    assert site.yarn.bodies


def test_a_queue_of_a_jobs_own_that_drains_lets_it_not_begin() -> None:
    site = site_of(tree(state="DRAINING"))
    handed_in(site, "job")
    handed_in(site, "other", "root.default")
    (found,) = attend(site.port).quotas
    name = f"queue {ADS} is DRAINING and takes no new application: 0 more may begin"
    assert found == Quota(name, ("job",), None, 0)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    held=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    most=st.integers(1, 60),
)
def test_what_fits_is_never_refused_and_of_one_size_nothing_else_is_let(
    sizes: list[int], held: list[int], most: int
) -> None:
    info = queues(tree(bulk={"memory-mb": most}))
    jobs = {f"j{at}": Holding("ann", "ann", ADS, 0, {GPUS: 1, MEMORY: size, CORES: 0}) for at, size in enumerate(sizes)}
    found = own_queues(info, jobs, tuple(jobs.values()), frozenset(), {}, {"": ["n1"]})
    gpus = dict(zip(jobs, held, strict=False))
    fits = sum(gpus[job] * each.size[MEMORY] for job, each in jobs.items()) <= most
    let = all(sum(gpus[job] for job in quota.whom) <= (quota.gpus or 0) for quota in found)
    assert let or not fits
    assert let == fits or len(set(sizes)) > 1
