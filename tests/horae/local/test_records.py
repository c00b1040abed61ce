"""Reading job folders that change while they are read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horae.elastic.jobfolder import JobFolder
from horae.local.adapter import LocalCluster
from horae.local.options import parse
from horae.port import JobState
from horae.spec import JobSpec
from policy.model import GpuRange

RUNS = {"epoch": 1, "state": "running", "pid": 1, "allocation": {"n": 1}, "slots": {"n": [0]}}
DONE = {**RUNS, "state": "completed", "allocation": {}, "slots": {}, "exit_code": 0}


@pytest.fixture
def port(tmp_path: Path) -> LocalCluster:
    """A cluster with one job that was looked at before its first start."""
    port = LocalCluster(parse({"state": tmp_path / "state", "nodes": "n:1"}))
    port.submit("j", JobSpec("j", ("true",), GpuRange(1, 1, 1)))
    assert port.observe().jobs[0].state is JobState.QUEUED
    return port


@pytest.fixture
def folder(port: LocalCluster, tmp_path: Path) -> JobFolder:
    return JobFolder(str(tmp_path / "state" / "jobs" / "j"))


def after_reading(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """`happens` right after somebody has read a job's account, once."""
    real, once = JobFolder.state, [happens]

    def state(self: JobFolder) -> Any:
        found = real(self)
        if once:
            once.pop()()
        return found

    monkeypatch.setattr(JobFolder, "state", state)


def test_a_job_that_ends_while_it_is_looked_at_is_not_taken_for_lost(
    port: LocalCluster, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its account is read while it runs; when its lock is asked, the supervisor has written the end and left."""
    lock = folder.take_lock()
    assert lock is not None
    folder.write_epoch(1)
    folder.write_state(RUNS)

    def ends() -> None:
        folder.write_state(DONE)
        os.close(lock)

    after_reading(monkeypatch, ends)
    assert port.observe().jobs[0].state is JobState.COMPLETED
    assert folder.state() == DONE


def test_an_end_that_somebody_else_wrote_down_is_left_as_it_is(
    port: LocalCluster, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the lock another arbiter may have started the job, and it may have ended."""
    folder.write_epoch(1)
    folder.write_state(RUNS)
    real = JobFolder.take_lock

    def take_lock(self: JobFolder) -> int | None:
        folder.write_state(DONE)
        return real(self)

    monkeypatch.setattr(JobFolder, "take_lock", take_lock)
    assert port.observe().jobs[0].state is JobState.COMPLETED
    assert folder.state() == DONE


def test_a_change_in_the_same_tick_is_seen_by_a_reader_that_was_held_up(
    port: LocalCluster, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_epoch(1)
    folder.write_state({**DONE, "state": "stopped"})

    def changes() -> None:
        stamp = Path(folder.path).stat().st_mtime_ns
        folder.write_state(DONE)
        os.utime(folder.path, ns=(stamp, stamp))  # the same tick of the clock
        time.sleep(0.2)  # held up

    after_reading(monkeypatch, changes)
    port.observe()
    assert port.observe().jobs[0].state is JobState.COMPLETED
