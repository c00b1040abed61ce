"""A job's whole life under the arbiter, on the in-memory cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.cli.options import kind_of
from horae.fake import FakePort
from horae.journal import Kind
from horae.journal.store import rebuilt
from horae.port import Blocked, BlockKind, JobId, JobState, Observation
from horae.views.status import status_of
from horae.views.watch import explained
from policy.model import Allocation, Decision, Snapshot
from tests.horae.arbiter.site import ANN, BEN, Site, Time, answer, config, equal_shares, first_come, spec


def test_a_job_is_submitted_started_and_completed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("train", 2, steps=20)], ANN)
    record = site.until(job, JobState.RUNNING)
    assert (record.epoch, sum(record.allocation.values())) == (1, 2)
    record = site.until(job, JobState.COMPLETED)
    assert (record.ended, record.exit_code, record.live) == (JobState.COMPLETED, 0, False)
    kinds = [e.kind for e in site.journal.history(job=job)]
    assert kinds.index(Kind.SUBMITTED) < kinds.index(Kind.INTENT) < kinds.index(Kind.OUTCOME) < kinds.index(Kind.ENDED)
    assert record.attained["k80"] > 0
    assert site.world.refusals == []


def test_an_arrival_shrinks_a_running_job_by_checkpoint_and_restart(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares)
    (first,) = site.commands.submit([spec("first", (1, 16), steps=2000)], ANN)
    assert sum(site.until(first, JobState.RUNNING).allocation.values()) == 16
    site.run(5)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=2000)], BEN)
    site.until(second, JobState.RUNNING)
    record = site.until(first, JobState.RUNNING)
    assert sum(record.allocation.values()) == sum(site.job(second).allocation.values()) == 8
    assert record.epoch == 2
    assert record.restart_cost_s is not None
    assert 1.0 <= record.restart_cost_s <= 3.0
    site.until(first, JobState.COMPLETED, patience_s=1000)
    site.until(second, JobState.COMPLETED, patience_s=1000)
    assert site.world.refusals == [] and site.world.violations == []


@pytest.mark.parametrize("gpus", [4, 6])
def test_a_job_that_cannot_leave_stays_on_nodes_that_are_its_pools_no_more(tmp_path: Path, gpus: int) -> None:
    """All of its nodes, or one: it would seem to hold nothing, or less, and be asked to leave for its own good."""
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("rigid", gpus, checkpoint=None)], ANN)
    held = dict(site.until(job, JobState.RUNNING).allocation)
    assert "n1" in held
    site.close()
    site.config = config(tmp_path, pools=[{"name": "main", "nodes": "n[2-4]"}])
    site.open()
    (other,) = site.commands.submit([spec("other", 8)], BEN)
    site.until(other, JobState.RUNNING)
    site.run(30)
    record = site.job(job)
    assert (record.state, record.epoch, dict(record.allocation)) == (JobState.RUNNING, 1, held)
    assert not [event for event in site.journal.history(job=job) if event.data.get("verb") == "stop"]
    assert site.world.refusals == [] and site.world.violations == []


def test_a_job_that_is_held_in_the_cluster_takes_nothing_from_others(tmp_path: Path) -> None:
    """Its owner or an administrator holds it there: its GPUs would wait with it, idle, for ever."""
    site = Site(tmp_path)
    held = site.world.submit("held", spec("held", 16, steps=4000, owner="ann"))
    held.blocked = Blocked(BlockKind.ASIDE, "held by its owner")
    site.run(2)
    (other,) = site.commands.submit([spec("other", 4, steps=20)], BEN)
    site.until(other, JobState.COMPLETED)
    assert site.job("held").state is JobState.QUEUED
    assert "held by its owner" in str(explained(site.core, "held").causes)
    held.blocked = None
    site.until("held", JobState.RUNNING)


class Passing(Time):
    """Every look at it takes a moment."""

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now


def test_a_job_that_has_left_is_started_in_the_round_that_sees_it(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares, time=Passing())
    (first,) = site.commands.submit([spec("first", (1, 16), steps=2000)], ANN)
    site.until(first, JobState.RUNNING)
    site.run(5)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=2000)], BEN)
    site.until(second, JobState.RUNNING)
    events = site.journal.history(job=first)
    (left,) = (e.at_s for e in events if e.kind is Kind.SEEN and e.data["state"] == JobState.STOPPED)
    again = [e.at_s for e in events if e.kind is Kind.INTENT and e.data["verb"] == "start"][-1]
    assert 0 < again - left < 0.1, "rounds are 0.25 s apart here"


def test_an_awaited_end_is_looked_at_when_the_cluster_tells_of_it(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares, rounds={"debounce_s": 3.0, "busy_s": 3.0})
    core = site.core
    site.run(1)
    core.wake()
    assert core.next_s() >= core.now_s() + 2.0, "what is asked of us together is one round"
    (first,) = site.commands.submit([spec("first", (1, 16), steps=2000)], ANN)
    site.until(first, JobState.RUNNING)
    site.commands.submit([spec("second", (1, 16), steps=2000)], BEN)
    while not core.awaited:
        site.run(0.25)
    assert core.next_s() > core.now_s()
    core.told()
    assert core.next_s() <= core.now_s() + 1e-9


def test_the_live_ledger_is_the_one_the_file_gives(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares)
    site.commands.submit([spec(f"job{i}", (1, 4), steps=30) for i in range(8)], ANN)
    for _ in range(20):
        site.run(3)
        assert rebuilt(site.journal.path) == site.core.ledger


class Limited(FakePort):
    """A cluster that keeps a time limit for every job, and counts it down while the job runs."""

    left_s, looks = 3600.0, 0

    def observe(self) -> Observation:
        self.looks += 1
        seen = super().observe()
        ran = {job.id: seen.now_s - job.since_s if job.state is JobState.RUNNING else 0.0 for job in seen.jobs}
        return replace(seen, jobs=tuple(replace(job, time_left_s=self.left_s - ran[job.id]) for job in seen.jobs))


def test_an_arbiter_that_is_started_again_and_again_compacts_what_its_earlier_lives_wrote(tmp_path: Path) -> None:
    """Else a start folds ever more: each life by itself writes too little."""
    site = Site(tmp_path, history={"compact_events": 100})
    for life in range(12):
        (job,) = site.commands.submit([spec(f"life{life}", 2, steps=20)], ANN)
        site.until(job, JobState.COMPLETED)
        site.run(3)
        site.reopen()
        assert site.journal.uncovered < 150
    assert len(site.journal.history(kinds=[Kind.CHECKPOINT])) == 1
    assert rebuilt(site.journal.path) == site.journal.ledger


def test_the_clusters_time_limit_is_shown_and_costs_no_event_a_round(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.port = port = Limited(site.world)
    site.reopen()
    (job,) = site.commands.submit([spec("limited", 1, steps=100_000)], ANN)
    record, seen_s = site.until(job, JobState.RUNNING), site.core.now_s()
    begin_s = record.time_left_at(seen_s)
    assert begin_s is not None
    looks = port.looks
    seen = len(site.journal.history(job=job))
    site.run(100)
    assert site.job(job).time_left_at(site.core.now_s()) == pytest.approx(begin_s - (site.core.now_s() - seen_s))
    looks = port.looks - looks
    assert len(site.journal.history(job=job)) - seen < looks / 5, "what counts down by itself is no news"
    port.left_s += 7200.0  # an administrator is kind
    site.run(10)
    left_s = site.job(job).time_left_at(site.core.now_s())
    assert left_s == pytest.approx(begin_s + 7200.0 - (site.core.now_s() - seen_s), abs=1.0)


def test_the_kind_of_cluster_is_known_before_the_first_look(tmp_path: Path) -> None:
    """The command line asks for it: what was typed on one machine is carried there, and nowhere else."""
    site = Site(tmp_path)
    before = status_of(site.core).cluster
    site.run(5)
    after = status_of(site.core).cluster
    assert (kind_of(before), kind_of(after)) == ("fake", "fake")
    assert before != after


class Deaf(FakePort):
    """A cluster that takes starts and does nothing about them, and counts looks."""

    looks = 0

    def observe(self) -> Observation:
        self.looks += 1
        return super().observe()

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Lost on the way."""


def looks_in(site: Site, port: Deaf, seconds: float) -> int:
    before = port.looks
    site.run(seconds)
    return port.looks - before


def test_a_start_that_never_came_and_is_not_wanted_any_more_costs_no_looks(tmp_path: Path) -> None:
    """Seed 1051 of the bad days: a grant without an effect, then others were first; looked at each second for weeks."""
    given: list[bool] = [True]

    def policy(snapshot: Snapshot, name: str, *rest: Any) -> Decision:
        return first_come(snapshot, name, *rest) if given[0] else answer(snapshot, {})

    site = Site(tmp_path, policy=policy, rounds={"quiet_s": 10.0})
    site.port = port = Deaf(site.world)
    site.reopen()
    (job,) = site.commands.submit([spec("first")], ANN)
    site.run(5)
    assert site.job(job).grant is not None
    given[0] = False
    site.run(60)
    assert site.job(job).state is JobState.QUEUED and not site.job(job).target
    assert looks_in(site, port, 100.0) <= 100 / site.config.rounds.tick_s + 100 / 10 + 1


def test_a_job_that_is_only_advised_about_costs_no_looks(tmp_path: Path) -> None:
    site = Site(tmp_path, pools=[{"name": "main", "mode": "advise"}])
    site.port = port = Deaf(site.world)
    site.reopen()
    (job,) = site.commands.submit([spec("first")], ANN)
    site.run(60)
    assert not site.job(job).shown
    assert looks_in(site, port, 100.0) <= 100 / site.config.rounds.tick_s + 100 / 60 + 1
