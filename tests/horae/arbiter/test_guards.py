"""Each guard says no when it should, says why, and otherwise nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.admit.guards import GUARDS, SOFT_GUARDS, Reallocation, veto
from horae.config import Guards
from horae.port import JobState
from policy.model import GpuRange, Health, Job, Work
from tests.horae.arbiter.reallocations import change, said
from tests.horae.arbiter.site import ANN, BEN, Site, equal_shares, spec


def test_a_worthwhile_change_of_a_resumable_job_passes() -> None:
    assert said(change()) is None


@pytest.mark.parametrize(
    ("asked", "guard"),
    [
        (change(spec_changes={"checkpoint": None}), "not-resumable"),
        (change(spec_changes={"elastic": False}), "not-resumable"),
        (change(record={"guessed": True}), "not-resumable"),
        (change(target={}, spec_changes={"checkpoint": None}), "not-resumable"),
        (change(maintenance="new disks"), "maintenance"),
        (change(target={}, maintenance="new disks"), "maintenance"),
        (change(ran_s=59.0), "minimum-run-time"),
        (change(target={}, ran_s=59.0), "minimum-run-time"),
        (change(state=JobState.STARTING), "being-started"),
        (change(target={}, state=JobState.STARTING, record={"restarts": [9000.0]}), "being-started"),  # once is enough
        (change(record={"restarts": [9000.0] * 6}), "restarts-per-hour"),
        (change(held={"n1": 2}, target={"n2": 2}), "not-worth-a-restart"),
        (change(wake_s={"n1": 7000.0}), "not-worth-a-restart"),
    ],
)
def test_a_guard_objects_with_a_sentence(asked: Reallocation, guard: str) -> None:
    assert said(asked) == guard
    found = veto(asked) or veto(asked, SOFT_GUARDS)
    assert found is not None and len(found.text) > 10


@pytest.mark.parametrize(
    "asked",
    [
        change(ran_s=60.0),
        change(target={"n1": 1}, state=JobState.STARTING),  # a superseded start is withdrawn for others' sake
        change(target={}, state=JobState.STARTING),
        change(target={}, state=JobState.STARTING, record={"restarts": [6000.0]}),
        change(state=JobState.STARTING, record={"blocked": {"kind": "gang", "text": "", "since_s": 0.0}}),
        change(
            target={},
            state=JobState.STARTING,
            record={"restarts": [9000.0], "blocked": {"kind": "foreign", "text": "", "since_s": 0.0}},
        ),
        change(record={"restarts": [9000.0] * 5 + [6000.0] * 10}),  # only the newest hour counts
        change(target={}),  # it is stopped for others, whatever its restart costs
        change(target={"n1": 1}),
        change(target={"n2": 2}, health={"n1": Health.DRAIN, "n2": Health.UP}),  # it must leave anyway
        change(target={"n2": 2}, config=Guards(gain=0.0)),
        change(wake_s={"n1": 30.0, "n2": 7000.0}),
        change(target={"n2": 2}, speed=lambda job, gpus: None),  # nobody can say what it would gain
    ],
)
def test_a_guard_stays_out_of_the_way(asked: Reallocation) -> None:
    assert said(asked) is None


def test_a_resize_near_the_end_is_not_worth_it() -> None:
    job = Job("1", "ann", "ann/j", GpuRange(8, 1, 8), work=Work(1000.0, 900.0), restart_cost_s=30.0)
    assert said(change(job=job)) == "not-worth-a-restart"
    assert said(change(job=replace(job, restart_cost_s=1.0))) is None


def test_every_guard_has_a_name_of_its_own() -> None:
    names = [name for name, _ in (*GUARDS, *SOFT_GUARDS)]
    assert len(names) == len(set(names)) == 6


def test_a_veto_is_recorded_and_the_rest_fits_around_it(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares, guards={"min_run_s": 30.0, "gain": 0.0})
    (first,) = site.commands.submit([spec("first", (1, 16), steps=100_000)], ANN)
    site.until(first, JobState.RUNNING)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=100_000)], BEN)
    site.run(10)
    record = site.job(first)
    assert record.guard is not None and record.guard.guard == "minimum-run-time"
    assert sum(record.guard.wanted.values()) == 8
    assert sum(record.allocation.values()) == 16
    other = site.job(second).guard
    assert other is not None and "stay with job 1" in other.text
    site.run(40)
    assert site.job(first).guard is None
    assert [sum(site.job(j).allocation.values()) for j in (first, second)] == [8, 8]


def test_a_job_without_checkpoints_is_never_stopped(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares)
    (first,) = site.commands.submit([spec("first", (1, 12), steps=600, checkpoint=None)], ANN)
    site.until(first, JobState.RUNNING)
    size = sum(site.job(first).allocation.values())
    (second,) = site.commands.submit([spec("second", (1, 16), steps=100)], BEN)
    site.until(second, JobState.COMPLETED, patience_s=300)
    site.until(first, JobState.COMPLETED, patience_s=300)
    assert size == 12
    assert site.job(first).epoch == 1


def test_what_a_veto_left_free_is_given_to_who_lost_its_place(tmp_path: Path) -> None:
    """The policy moves the first job to make room on its node; the veto leaves the second elsewhere, not waiting."""

    def swap(snapshot: Any, *asked: Any) -> Any:
        from tests.horae.arbiter.site import answer

        jobs = sorted(j.name for j in snapshot.jobs)
        return answer(
            snapshot,
            dict(zip(jobs, ({"n1": 4}, {"n2": 4}) if len(jobs) == 1 else ({"n2": 4}, {"n1": 4}), strict=False)),
        )

    site = Site(tmp_path, policy=swap, guards={"min_run_s": 1000.0, "gain": 0.0})
    (first,) = site.commands.submit([spec("first", 4, steps=100_000)], ANN)
    site.until(first, JobState.RUNNING)
    (second,) = site.commands.submit([spec("second", 4, steps=100_000)], BEN)
    site.until(second, JobState.RUNNING, patience_s=30)
    assert site.job(first).allocation == {"n1": 4}
    assert "n1" not in site.job(second).allocation
