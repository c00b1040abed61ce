"""What a policy is shown: everything it may decide about, nothing it may not move, and the same each time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.round import question
from horae.journal import events
from horae.journal.measured import Measurement
from horae.port import JobState
from policy.decide import decide
from policy.model import BadInput, Code, GpuRange, Health, Job, Limits, Provenance, Shape, Snapshot, TypeChoice, Work
from policy.text import instance
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, spec


def picture(site: Site) -> Snapshot:
    site.run(0.25)
    assert site.core.view is not None
    return question(site.core.ledger, site.config.pools[0], site.core.view).snapshot


def job(site: Site, name: str) -> Job:
    return next(j for j in picture(site).jobs if j.name == name)


def running(site: Site, *specs: Any) -> tuple[str, ...]:
    jobs = site.commands.submit(specs, ANN)
    for name in jobs:
        site.until(name, JobState.RUNNING)
    return jobs


def test_it_is_the_instance_file_of_the_moment(tmp_path: Path) -> None:
    site = Site(tmp_path)
    running(site, spec("a", (1, 4), steps=5000, throughput={"k80": {1: 1.5, 4: 5.0}}), spec("b", 2))
    site.run(30)
    first, again = picture(site), question(site.core.ledger, site.config.pools[0], site.core.view).snapshot  # type: ignore[arg-type]
    assert first == again
    text = instance.to_text(first)
    assert instance.parse(text) == first
    assert instance.to_text(instance.parse(text)) == text
    assert decide(instance.parse(text), "fifo") == decide(first, "fifo")


def test_what_a_policy_may_not_move_is_foreign_use(tmp_path: Path) -> None:
    site = Site(tmp_path)
    cancelled, held, kept = running(
        site,
        spec("cancelled", 4, steps=10**6, extra={"fake.stop_s": "50"}),
        spec("held", 4, steps=10**6, extra={"fake.stop_s": "50"}, grace_s=60.0),
        spec("kept", 4, steps=10**6),
    )
    site.commands.cancel(cancelled, ANN)
    site.commands.hold(held, ANN)
    site.run(3)
    shown = picture(site)
    assert [j.name for j in shown.jobs] == [kept]
    assert {n.name: n.foreign for n in shown.cluster.nodes} == {"n1": 4, "n2": 4, "n3": 0, "n4": 0}


def test_a_job_without_gpus_is_the_clusters_alone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    plain = replace(spec("plain", 0, elastic=False, owner="ann"), workers=2)
    with pytest.raises(BadInput, match="runs one worker a GPU"):
        site.run(0.25)
        site.commands.submit([plain], ANN)
    fake = site.world.submit("9", plain)
    fake.state, fake.epoch = JobState.RUNNING, 1
    (other,) = running(site, spec("a", 4, steps=10**6))
    shown = picture(site)
    assert [j.name for j in shown.jobs] == [other]
    assert [n.foreign for n in shown.cluster.nodes] == [0, 0, 0, 0]
    record = site.core.ledger.jobs["9"]
    assert (record.state, dict(record.allocation), record.attained) == (JobState.RUNNING, {}, {})
    fake.state = JobState.LOST
    site.run(60)
    assert fake.epoch == 1, "nobody but the cluster starts it"
    fake.state = JobState.RUNNING
    site.commands.cancel("9", ANN)
    site.until("9", JobState.CANCELLED)


def test_gpus_that_could_not_be_had_are_foreign_for_a_while(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run(1)
    site.core.write([events.Avoided("main", "n2", 3, site.core.now_s() + 10, "blocked")])
    assert {n.name: n.foreign for n in picture(site).cluster.nodes}["n2"] == 3
    site.run(20)
    assert {n.name: n.foreign for n in picture(site).cluster.nodes}["n2"] == 0


def test_maintenance_closes_the_nodes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.commands.maintenance("main", True, ROOT)
    assert {n.health for n in picture(site).cluster.nodes} == {Health.DRAIN}


def test_a_job_that_cannot_be_resumed_keeps_the_size_it_was_started_at(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (name,) = running(site, spec("fixed", (1, 3), steps=10**6, checkpoint=None))
    assert job(site, name).gpus == GpuRange(3, 3, 3)
    (rigid,) = site.commands.submit([spec("rigid", (1, 3), elastic=False)], ANN)
    site.run(3)
    assert job(site, rigid).gpus == GpuRange(3, 3, 3)


def test_measured_speed_goes_before_stated_and_the_rest_follows_the_sites_ratios(tmp_path: Path) -> None:
    site = Site(tmp_path, gpu_types={"k80": 1.0, "v100": 4.0})
    stated, unknown, tied = running(
        site,
        spec("stated", 1, throughput={"v100": {1: 8.0, 2: 15.0}}),
        spec("unknown", 1),
        spec("tied", 1, gpu_types=("v100",)),
    )
    found = job(site, stated)
    assert found.throughput == {"k80": {1: 2.0, 2: 3.75}, "v100": {1: 8.0, 2: 15.0}}
    assert found.provenance == {"k80": Provenance.PRIOR, "v100": Provenance.STATED}
    assert job(site, unknown).throughput == {"k80": {1: 1.0}, "v100": {1: 4.0}}
    assert job(site, tied).throughput == {"v100": {1: 4.0}}
    site.core.fresh[stated] = Measurement(
        rates={"v100": {1: 6.0}}, provenance={"v100": Provenance.MEASURED}, done=40.0, total=500.0
    )
    found = job(site, stated)
    assert found.throughput["v100"] == {1: 6.0, 2: 15.0}
    assert found.provenance["v100"] is Provenance.MEASURED
    assert (found.work.done, found.work.total) == (40.0, 1000.0)


def test_without_any_table_or_ratio_no_speed_is_invented(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (name,) = running(site, spec("unknown", 1))
    assert job(site, name).throughput == {}


def test_weights_and_caps_come_from_the_site(tmp_path: Path) -> None:
    site = Site(tmp_path, tenants=[{"name": "ann", "weight": 3.0}, {"name": "ben"}])
    site.commands.submit([spec("a", 1)], ANN)
    site.commands.submit([spec("b", 1)], BEN)
    site.run(3)
    site.core.write([events.Capped("main", "ben", 5, site.core.now_s() + 10, "MaxTRES")])
    assert [(t.name, t.weight, t.cap) for t in picture(site).tenants] == [("ann", 3.0, None), ("ben", 1.0, 5)]
    site.run(20)
    assert [t.cap for t in picture(site).tenants] == [None, None]


def test_apps_of_one_name_are_apart_in_different_tenants(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.commands.submit([spec("a", 1, app="sweep"), spec("b", 1, app="sweep")], ANN)
    site.commands.submit([spec("c", 1, app="sweep")], BEN)
    site.run(3)
    shown = picture(site)
    assert [j.app for j in shown.jobs] == ["ann/sweep", "ann/sweep", "ben/sweep"]
    assert shown.active_apps[-1][1] == 2


def test_service_is_charged_as_it_was_observed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (name,) = running(site, spec("a", 2, steps=10**6))
    first = job(site, name).attained["k80"]
    site.run(50)
    assert 95 <= job(site, name).attained["k80"] - first <= 105


def test_a_policys_state_comes_back_and_is_dropped_with_the_policy(tmp_path: Path) -> None:
    from tests.horae.arbiter.site import answer, first_come

    def counts(snapshot: Snapshot, *asked: Any) -> Any:
        decided = first_come(snapshot, *asked)
        return answer(snapshot, decided.allocation, state={"rounds": snapshot.state.get("rounds", 0) + 1})

    site = Site(tmp_path, policy=counts)
    site.run(200)
    rounds = picture(site).state["rounds"]
    assert rounds >= 3
    site.reopen()
    assert picture(site).state["rounds"] in (rounds, rounds + 1)
    site.config = site.config.model_copy(
        update={"pools": [site.config.pools[0].model_copy(update={"policy": "other"})]}
    )
    site.reopen()
    assert picture(site).state.get("rounds", 1) == 1


def test_the_adapters_limits_are_in_it(tmp_path: Path) -> None:
    limits = Limits(equal_gpus_per_node=True, one_type_per_job=True)
    site = Site(tmp_path, world_options={"limits": limits})
    assert picture(site).cluster.limits == limits


def test_leases_of_what_is_held_are_in_it(tmp_path: Path) -> None:
    from tests.horae.arbiter.site import answer, first_come

    def leases(snapshot: Snapshot, *asked: Any) -> Any:
        decided = first_come(snapshot, *asked)
        given = {
            j: {n: tuple(snapshot.now_s + 600 for _ in range(g)) for n, g in a.items()}
            for j, a in decided.allocation.items()
            if a and not next(x for x in snapshot.jobs if x.name == j).lease_until
        }
        held = {x.name: x.lease_until for x in snapshot.jobs if x.lease_until}
        return answer(snapshot, decided.allocation, leases={**held, **given})

    site = Site(tmp_path, policy=leases)
    (name,) = running(site, spec("a", 2, steps=10**6))
    (times,) = job(site, name).lease_until.values()
    assert len(times) == 2 and all(t > site.core.now_s() for t in times)
    site.reopen()
    assert job(site, name).lease_until != {}


def test_a_job_past_its_stated_length_is_let_end_by_itself(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (name,) = running(site, spec("longer", 2, steps=10**6, throughput={"k80": {1: 1.0, 2: 2.0}}))
    picture(site)
    site.core.fresh[name] = Measurement(done=2e6, total=1e6)
    assert site.core.view is not None
    shown = question(site.core.ledger, site.config.pools[0], site.core.view).snapshot
    assert shown.jobs[0].work == Work(2e6 + 1, 2e6)
    assert sum(decide(shown, "srtf").allocation[name].values()) == 2


def test_a_rigid_jobs_own_shape_and_types_are_in_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    shape = Shape(nodes=2, gpus_per_node=1, features=("ib",), exclusive=True)
    (name,) = site.commands.submit([spec("rigid", 2, elastic=False, shape=shape, gpu_types=("a100",))], ANN)
    site.run(3)
    seen = job(site, name)
    assert (seen.shape, seen.gpu_types) == (shape, TypeChoice(require=("a100",)))
    assert seen.throughput == {}, "no node has the type"
    waiting = replace(seen, allocation={}, lease_until={}, gpus=GpuRange(2, 2, 2))
    decision = decide(replace(picture(site), jobs=(waiting,)), "themis")
    assert (decision.allocation[name], decision.reasons[name].code) == ({}, Code.INFEASIBLE)
