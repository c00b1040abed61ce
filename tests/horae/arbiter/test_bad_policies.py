"""A policy that fails, or answers what cannot be, moves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.port import JobState
from policy.model import Decision, Limits, Shape, Snapshot
from policy.text import instance
from tests.horae.arbiter.site import ANN, BEN, Site, answer, equal_shares, first_come, spec


def raises(*asked: Any) -> Decision:
    raise ZeroDivisionError("division by zero")


def unknown_job(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {"nobody": {"n1": 1}})


def unknown_node(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {snapshot.jobs[0].name: {"n9": 1}} if snapshot.jobs else {})


def too_much(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {j.name: {"n1": 3} for j in snapshot.jobs} if len(snapshot.jobs) > 1 else {"x": {"n1": 9}})


def negative(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {j.name: {"n1": -1} for j in snapshot.jobs})


def half_a_gpu(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {j.name: {"n1": 0.5} for j in snapshot.jobs})  # type: ignore[dict-item]


def wrong_size(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {j.name: {"n1": 1} for j in snapshot.jobs})


def nothing(*asked: Any) -> Any:
    return None


def a_mess(snapshot: Snapshot, *asked: Any) -> Any:
    return answer(snapshot, {}, state={"made of": object()})


def no_state(snapshot: Snapshot, *asked: Any) -> Any:
    return answer(snapshot, {}, state=None)


BAD_POLICIES = [
    (raises, "raised ZeroDivisionError: division by zero"),
    (unknown_job, "no job of the snapshot"),
    (unknown_node, "there is no node 'n9'"),
    (too_much, "GPUs for our jobs and is given"),
    (negative, "no positive whole number"),
    (half_a_gpu, "no positive whole number"),
    (wrong_size, "cannot run on 1 GPUs"),
    (nothing, "NoneType, not a decision"),
    (a_mess, "no plain form"),
    (no_state, "its state is NoneType, not a mapping"),
]


@pytest.mark.parametrize(("policy", "said"), BAD_POLICIES, ids=[p.__name__ for p, _ in BAD_POLICIES])
def test_after_a_bad_answer_the_previous_allocation_stands(tmp_path: Path, policy: Any, said: str) -> None:
    site = Site(tmp_path)
    first, second = site.commands.submit([spec("first", 4, steps=4000), spec("second", 4, steps=4000)], ANN)
    site.until(first, JobState.RUNNING)
    site.until(second, JobState.RUNNING)
    before = {job: dict(site.job(job).allocation) for job in (first, second)}
    site.policy = policy
    (late,) = site.commands.submit([spec("late", 4, steps=50)], BEN)
    site.run(40)
    assert {job: dict(site.job(job).allocation) for job in (first, second)} == before
    assert {site.job(job).epoch for job in (first, second)} == {1}
    assert site.job(late).state is JobState.QUEUED
    assert said in site.core.ledger.alerts["policy:main"].text
    assert said in site.core.ledger.pools["main"].decided["fallback"]
    assert [j.name for j in instance.read(str(tmp_path / "failed-main.json")).jobs][:2] == [first, second]
    site.policy = first_come
    site.until(late, JobState.RUNNING, patience_s=120)
    assert site.core.ledger.alerts == {}


def test_gpus_that_lie_as_a_job_asks_are_no_bad_answer(tmp_path: Path) -> None:
    """Where nodes of a job have equally many, but for one that keeps its own shape: it held up all others."""
    limits = {"limits": Limits(equal_gpus_per_node=True)}
    site = Site(tmp_path, world_options=limits)
    (odd,) = site.commands.submit([spec("odd", 5, steps=4000, checkpoint=None, shape=Shape())], ANN)
    (other,) = site.commands.submit([spec("other", 3, steps=4000)], BEN)
    site.until(other, JobState.RUNNING)
    assert site.core.ledger.alerts == {}
    assert sorted(site.job(odd).allocation.values()) == [1, 4]


def test_a_job_between_two_starts_gets_its_gpus_back_though_the_policy_fails(tmp_path: Path) -> None:
    """A resize that was under way when the policy broke is finished, not left half done."""
    site = Site(tmp_path, policy=equal_shares)
    (first,) = site.commands.submit([spec("first", (1, 16), steps=4000)], ANN)
    site.until(first, JobState.RUNNING)
    site.run(5)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=4000)], BEN)
    site.until(first, JobState.STOPPING)
    site.policy = raises
    record = site.until(first, JobState.RUNNING, patience_s=60)
    assert (record.epoch, sum(record.allocation.values())) == (2, 8)
    assert sum(site.until(second, JobState.RUNNING).allocation.values()) == 8


def test_an_adopted_job_is_left_alone_while_no_policy_ever_answered(tmp_path: Path) -> None:
    first = Site(tmp_path / "one")
    (job,) = first.commands.submit([spec("runs", 4, steps=4000)], ANN)
    first.until(job, JobState.RUNNING)
    first.close()
    second = Site(tmp_path / "two", world=first.world, time=first.time, policy=raises)
    second.run(60)
    assert second.job(job).state is JobState.RUNNING
    assert first.world.jobs[job].epoch == 1
