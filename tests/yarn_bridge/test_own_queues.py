"""Jobs that name a queue of their own are bound by its limits, and by nobody's who is in another."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.port import FixConfiguration, Never, TryLater, attend
from policy.model import GpuRange, Quota
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


@pytest.mark.parametrize("more", [{"queueType": "parent"}, {"queues": {"queue": [queue("cars", 100)]}}])
def test_a_parent_takes_no_job_and_what_waits_in_a_queue_that_became_one_does_not_begin(more: dict[str, Any]) -> None:
    """YARN takes no application there: one more failed every few seconds, and the GPUs stood for them."""
    site = site_of(tree())
    handed_in(site, "job")
    site.yarn.tree = tree(**more)
    site.now_s += 21.0
    name = f"queue {ADS} is a parent and takes no application itself: 0 more may begin"
    assert Quota(name, ("job",), None, 0) in attend(site.port).quotas
    with pytest.raises(Never, match=f"queue {ADS} is a parent and takes no application itself: name a leaf"):
        handed_in(site, "next")


def test_nothing_is_offered_where_horaes_own_queue_is_a_parent() -> None:
    site = Site(queue="shop")
    site.yarn.tree = tree()
    seen = attend(site.port)
    assert [each.gpus - each.foreign for each in seen.nodes] == [0, 0]
    assert "queue root.shop is a parent and takes no application itself: nothing is started in it" in seen.notes


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
    found = own_queues(info, jobs, (), frozenset(), tuple(jobs.values()), frozenset(), {}, {"": ["n1"]})
    gpus = dict(zip(jobs, held, strict=False))
    fits = sum(gpus[job] * each.size[MEMORY] for job, each in jobs.items()) <= most
    let = all(sum(gpus[job] for job in quota.whom) <= (quota.gpus or 0) for quota in found)
    assert let or not fits
    assert let == fits or len(set(sizes)) > 1


# --- and the queue that is Horae's beside them ---


def beside(home: dict[str, Any], **ads: Any) -> Site:
    """`home`: of Horae's queue, `root.default`, as `queue` takes it."""
    return site_of(
        scheduler(queue("default", 50, **home), queue("shop", 50, queue("ads", 50, **ads)), partitions=("",))
    )


def free(site: Site) -> int:
    return sum(each.gpus - each.foreign for each in attend(site.port).nodes)


def test_a_queue_above_ours_and_another_binds_the_jobs_in_both_and_nobody_else() -> None:
    pair = queue("gpu", 50, queue("default", 50, most=2), queue("ads", 50), most=5, used=1)
    site = site_of(scheduler(pair, queue("shop", 50), partitions=("",)))
    for job, where in (("a", "default"), ("b", "ads"), ("c", "shop")):
        handed_in(site, job, where)
    assert free(site) == 8
    assert told(site) == {
        "queue root.gpu may hold 5 GPUs at most": (("a", "b"), 4),
        "queue root.gpu.default may hold 2 GPUs at most": (("a",), 2),
    }


def test_memory_of_our_queue_that_workers_of_several_sizes_share_is_taken_off_the_nodes() -> None:
    """No number of GPUs says how many of which there is room for."""
    site = beside({"most": 3, "bulk": {"memory-mb": 8 * MIB}})
    for job, gib in (("small", 1), ("large", 3)):
        handed_in(site, job, "default", memory_per_gpu=gib * MIB << 20)
    handed_in(site, "other")
    seen = attend(site.port)
    assert sum((each.memory or 0) >> 20 for each in seen.nodes) == 8 * MIB
    assert told(site) == {"queue root.default may hold 3 GPUs at most": (("large", "small"), 3)}


def test_a_user_is_bound_in_our_queue_by_its_limit_and_not_by_that_in_another() -> None:
    site = beside({"least": 2, "userLimitFactor": 1})
    for job, where in (("home", "default"), ("away", ADS)):
        handed_in(site, job, where, owner="ann")
    handed_in(site, "bens", "default", owner="ben")
    seen = attend(site.port)
    assert set(seen.caps) == {"ben"}
    found = {each.name: (each.whom, each.gpus) for each in seen.quotas}
    assert found["ann may hold 2 GPUs at most in queue root.default"] == (("home",), 2)


@pytest.mark.parametrize(
    ("ads", "where"),
    [({"state": "DRAINING"}, ADS), ({"most": 1}, ADS), ({}, "root.shop.mistyped")],
    ids=["it drains", "too small for the gang", "not there"],
)
def test_our_queues_limit_is_a_policys_to_divide_while_nobody_beside_could_begin(
    ads: dict[str, Any], where: str
) -> None:
    """Else whoever names another queue changed for as long as he likes how those in ours are served."""
    site = beside({"most": 3}, **ads)
    handed_in(site, "home", "default")
    handed_in(site, "away", where, gpus=GpuRange(2, 2, 4))
    assert free(site) == 3
    assert all("away" in each.whom for each in attend(site.port).quotas)


def test_where_there_are_several_partitions_the_limit_is_one_of_each_ones_nodes() -> None:
    site = labelled("n2", nodeLabels=["gpu"])
    assert site.yarn.tree is not None
    site.yarn.tree["queues"]["queue"][0]["capacities"]["queueCapacitiesByPartition"][0] |= {
        "effectiveMaxResource": gpus(1)
    }
    handed_in(site, "home", "default")
    handed_in(site, "away", "ads")
    assert [each.gpus - each.foreign for each in attend(site.port).nodes] == [1, 4]


def test_where_our_queue_is_gone_jobs_in_others_begin_all_the_same() -> None:
    site = beside({})
    handed_in(site, "home", "default")
    handed_in(site, "away")
    attend(site.port)
    site.yarn.tree = scheduler(queue("shop", 50, queue("ads", 50, most=5)), partitions=("",))
    site.now_s += 21.0
    seen = attend(site.port)
    assert (free(site), any("no queue 'default'" in note for note in seen.notes)) == (8, True)
    assert [(each.whom, each.gpus) for each in seen.quotas] == [(("away",), 5), (("home",), 0)]
    site.port.cancel("away")
    site.look("home")
    assert free(site) == 0


def test_that_a_queue_is_gone_stands_while_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    site = beside({})
    site.yarn.tree = scheduler(queue("shop", 50), partitions=("",))
    assert free(site) == 0

    def silent() -> dict[str, Any]:
        raise TryLater("the ResourceManager is busy")

    monkeypatch.setattr(site.yarn, "scheduler", silent)
    site.now_s += 21.0
    assert free(site) == 0
    assert any("are not known: the ResourceManager is busy" in note for note in attend(site.port).notes)


@settings(max_examples=40)
@given(
    most=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    bulk=st.integers(1, 24),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
def test_what_is_offered_is_what_the_queues_give(most: tuple[int, int], bulk: int, sizes: list[int]) -> None:
    """To one or two jobs at home and one beside them: all that fits, and nothing else; where workers at home are of
    several sizes, nothing else."""
    site = beside({"most": most[0], "bulk": {"memory-mb": bulk * MIB}}, most=most[1])
    for at, gib in enumerate(sizes):
        handed_in(site, f"home{at}", "default", memory_per_gpu=gib * MIB << 20)
    handed_in(site, "away")
    seen = attend(site.port)
    assert len({each.name for each in seen.quotas}) == len(seen.quotas)
    offered = sum(each.gpus - each.foreign for each in seen.nodes)
    room_mib = sum((each.memory or 0) >> 20 for each in seen.nodes)
    for held in itertools.product(range(5), repeat=len(sizes) + 1):
        gpus = dict(zip([*(f"home{at}" for at in range(len(sizes))), "away"], held, strict=True))
        memory = sum(each * gib for each, gib in zip(held, sizes, strict=False))
        fits = held[-1] <= most[1] and sum(held[:-1]) <= most[0] and memory <= bulk and sum(held) <= 8
        bound = all(sum(gpus[job] for job in each.whom) <= (each.gpus or 0) for each in seen.quotas)
        let = bound and sum(held) <= offered and (memory + held[-1]) * MIB <= room_mib
        assert fits or not let, (gpus, seen.quotas)
        assert let or not fits or len(set(sizes)) > 1, (gpus, seen.quotas)
