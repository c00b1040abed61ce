"""Tenants whose GPU-hours are used up, under every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.decide import decide
from policy.model import Beyond, Code, Snapshot, Tenant
from policy.text.instance import parse, to_text
from tests.policy.worlds import NAMES, cluster, job, sublinear, world

POLICIES = pytest.mark.parametrize("policy", NAMES)


def two(how: Beyond | None, gpus: int = 2, held: int = 0, other: int | None = 2) -> Snapshot:
    """A tenant that is over its budget and came first, and another that wants `other` GPUs."""
    speed = {"throughput": {"v100": sublinear(1.0, 1.0, 4)}}
    over = job("over", 2, **speed, allocation={"n1": held} if held else {}, attained={"v100": 100.0 * held})
    jobs = [over] if other is None else [over, replace(job("paid", other, **speed), submitted_s=1.0)]
    jobs = [replace(j, work=replace(j.work, total=1000.0)) for j in jobs]
    tenants = (Tenant("over", 1.0, None, how), Tenant("paid"))
    return world(cluster(f"n1 v100 {gpus}"), *jobs, tenants=tenants, now_s=100.0)


@POLICIES
def test_what_others_can_use_is_theirs(policy: str) -> None:
    decision = decide(two(Beyond.IDLE), policy)
    assert (decision.allocation["over"], decision.allocation["paid"]) == ({}, {"n1": 2})
    assert decision.reasons["over"].code is Code.WAITS_CAP
    assert "GPU-hours of tenant over are used up" in decision.reasons["over"].text
    assert any("GPU-hours of tenant over are used up" in note for note in decision.certificate.notes)


@POLICIES
def test_what_is_idle_it_gets_and_gives_back(policy: str) -> None:
    alone = decide(two(Beyond.IDLE, other=None), policy)
    assert alone.allocation["over"] == {"n1": 2}
    beside = decide(two(Beyond.IDLE, gpus=4), policy)
    assert beside.allocation == {"over": {"n1": 2}, "paid": {"n1": 2}}
    back = decide(two(Beyond.IDLE, held=2), policy)
    assert back.allocation == {"over": {}, "paid": {"n1": 2}}


@POLICIES
def test_who_waits_does_not_start_and_who_runs_does_not_grow(policy: str) -> None:
    waits = decide(two(Beyond.WAIT, gpus=4, other=None), policy)
    assert waits.allocation["over"] == {} and waits.reasons["over"].code is Code.WAITS_CAP
    assert "none of its jobs starts" in waits.reasons["over"].text
    held = two(Beyond.WAIT, gpus=4, held=2, other=None)
    elastic = replace(held, jobs=tuple(replace(j, gpus=replace(j.gpus, max=4, requested=4)) for j in held.jobs))
    assert decide(elastic, policy).allocation["over"] == {"n1": 2}


def test_the_instance_file_says_it() -> None:
    for how in Beyond:
        assert parse(to_text(two(how))) == two(how)
    assert "beyond" not in to_text(two(None))


def test_who_is_stopped_to_shrink_is_no_job_that_would_start() -> None:
    held = two(Beyond.WAIT, gpus=4, held=4)
    over, paid = (replace(j, gpus=replace(j.gpus, min=1, max=4, requested=4)) for j in held.jobs)
    first = decide(replace(held, jobs=(over, paid)), "max-min")
    assert (first.allocation["over"], first.allocation["paid"]) == ({"n1": 2}, {"n1": 2})
    stopped = replace(held, jobs=(replace(over, allocation={}), paid), state=first.state)
    assert decide(stopped, "max-min").allocation == first.allocation


@pytest.mark.parametrize("policy", ["drf", "fifo", "max-min", "las"])
def test_what_is_idle_goes_to_and_fro_between_nobody(policy: str) -> None:
    """Two that grow by turns met in the middle; asked again, who had grown last had it taken by the other."""
    speed = {"throughput": {"v100": sublinear(1.0, 1.0, 16)}, "tenant": "over"}
    early, late = job("early", (8, 16), **speed), job("late", (1, 64), submitted_s=1.0, **speed)
    tenants = (Tenant("over", 1.0, None, Beyond.IDLE),)
    snapshot = world(cluster("n1 v100 8", "n2 v100 5", "n3 v100 5"), early, late, tenants=tenants, now_s=100.0)
    first = decide(snapshot, policy)
    again = tuple(replace(j, allocation=first.allocation[j.name]) for j in snapshot.jobs)
    assert decide(replace(snapshot, jobs=again, state=first.state), policy).allocation == first.allocation
    fewer = (replace(early, allocation={"n1": 8}), replace(late, allocation={"n2": 5, "n3": 5}))
    assert decide(replace(snapshot, jobs=fewer), policy).allocation == {"early": {"n1": 8}, "late": {"n2": 5, "n3": 5}}
