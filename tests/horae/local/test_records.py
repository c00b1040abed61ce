"""Reading job folders that change while they are read."""

from __future__ import annotations

import errno
import getpass
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae import spec_json
from horae.elastic.supervisor.jobfolder import JobFolder
from horae.local.account import Account
from horae.local.adapter import LocalCluster
from horae.local.books import Books, encode
from horae.local.jobfolders import JobFolders
from horae.local.options import parse
from horae.port import JobState, Never, attend
from horae.spec import JobSpec
from horae.untrusted import Folder, FromUser
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


@pytest.fixture
def books(port: LocalCluster, tmp_path: Path) -> Books:
    """With the job's first start in its book."""
    books = Books(tmp_path / "state")
    book = books.read("j")
    assert book is not None
    books.write("j", book.started(1, {"n": (0,)}, 1.0))
    return books


def after(monkeypatch: pytest.MonkeyPatch, where: type, method: str, happens: Callable[[], Any]) -> None:
    """`happens` right after somebody has called the method, once."""
    real, once = getattr(where, method), [happens]

    def spied(*args: Any) -> Any:
        found = real(*args)
        if once:
            once.pop()()
        return found

    monkeypatch.setattr(where, method, spied)


def test_a_job_that_ends_while_it_is_looked_at_is_not_taken_for_lost(
    port: LocalCluster, folder: JobFolder, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its account is read while it runs; when its lock is asked, the supervisor has written the end and left."""
    lock = books.take_lock("j")
    assert lock is not None
    folder.write_state(RUNS)
    assert port.observe().jobs[0].state is JobState.RUNNING

    def ends() -> None:
        folder.write_state(DONE)
        os.close(lock)

    after(monkeypatch, JobFolders, "account", ends)
    port.observe()
    assert port.observe().jobs[0].state is JobState.COMPLETED
    assert folder.state() == DONE


def test_an_end_that_somebody_else_wrote_down_is_left_as_it_is(
    port: LocalCluster, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the lock another arbiter may have seen to it."""
    end = Account(1, "completed", 2.0, 0)

    def noted() -> None:
        book = books.read("j")
        assert book is not None
        books.write("j", replace(book, end=end))

    after(monkeypatch, Books, "lives", noted)
    assert port.observe().jobs[0].state is JobState.COMPLETED
    book = books.read("j")
    assert book is not None
    assert book.end == end


def test_a_change_in_the_same_tick_is_seen_by_a_reader_that_was_held_up(
    port: LocalCluster, books: Books, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "state" / "books" / "j.json"
    book = books.read("j")
    assert book is not None
    books.write("j", replace(book, end=Account(1, "stopped", 2.0)))

    def changes() -> None:
        found = path.stat()
        path.write_bytes(encode(replace(book, end=Account(1, "completed", 2.0, 0))))  # the same file
        os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))  # the same tick of the clock
        time.sleep(0.2)  # held up

    after(monkeypatch, Books, "read", changes)
    os.utime(path)  # it changed just now, however slow this machine is
    port.observe()
    assert port.observe().jobs[0].state is JobState.COMPLETED


# --- folders that a version before made -------------------------------------------------------------------


def older(tmp_path: Path, state: dict[str, Any] | None, epoch: int) -> tuple[LocalCluster, JobFolder]:
    """As it left them: everything in the job's folder, its lock too."""
    folder = JobFolder(str(tmp_path / "state" / "jobs" / "old"))
    Path(folder.path).mkdir(parents=True)
    spec = JobSpec("old", ("true",), GpuRange(1, 1, 1), owner=getpass.getuser())
    Path(folder.file("spec.json")).write_bytes(spec_json.encode(spec))
    if epoch:
        folder.write_epoch(epoch)
    if state is not None:
        folder.write_state(state)
    return LocalCluster(
        parse({"state": tmp_path / "state", "nodes": [{"name": "n", "gpu_type": "v", "gpus": 2}]})
    ), folder


def test_an_older_job_that_waits_is_taken_over(tmp_path: Path) -> None:
    port, folder = older(tmp_path, None, 0)
    port.claim("tests")
    seen = attend(port).jobs[0]
    assert (seen.state, seen.epoch, seen.spec and seen.spec.command) == (JobState.QUEUED, 0, ("true",))
    Path(folder.file("spec.json")).write_text("{}")  # from now on what it runs stands elsewhere
    assert LocalCluster(port._options).observe().jobs[0].spec == seen.spec


def test_an_older_job_that_runs_holds_what_it_was_given_until_its_lock_is_free(tmp_path: Path) -> None:
    port, folder = older(tmp_path, {**RUNS, "epoch": 4, "slots": {"n": [1, 7], "m": [0]}}, 4)
    lock = folder.take_lock()
    assert lock is not None
    seen = port.observe().jobs[0]
    assert (seen.state, seen.epoch, dict(seen.allocation)) == (JobState.RUNNING, 4, {"n": 1})
    os.close(lock)
    assert port.observe().jobs[0].state is JobState.LOST


def test_an_older_job_that_ended_stays_ended(tmp_path: Path) -> None:
    port, _ = older(tmp_path, {**DONE, "epoch": 2}, 2)
    seen = port.observe().jobs[0]
    assert (seen.state, seen.epoch, seen.exit_code) == (JobState.COMPLETED, 2, 0)


def test_an_older_folder_that_names_another_owner_is_not_taken_over(tmp_path: Path) -> None:
    port, folder = older(tmp_path, None, 0)
    path = Path(folder.file("spec.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "owner": "daemon"}))
    seen = port.observe()
    assert seen.jobs[0].spec is None
    assert any("names another owner" in note for note in seen.notes)
    port.claim("tests")
    with pytest.raises(Never, match="names another owner"):
        port.start("old", {"n": 1}, 1)


def test_a_started_jobs_book_is_written_on_a_full_disk_as_often_as_it_takes(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turns over two files whose blocks are ours; without them the disk's own word is heard."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    book = books.read("j")
    assert book is not None
    books.set_aside("j", book)
    books.write("j", book)
    names = {path.name: path.stat().st_size for path in books.path.iterdir()}
    monkeypatch.setattr(Folder, "replace", full)
    for times in range(5):
        end = Account(1, "failed", float(times), 1, native=FromUser("\u20ac" * 200))
        books.write("j", replace(book, cancelled=True, grace_s=1e9 + times, end=end))
        found = books.read("j")
        assert found is not None and (found.end, found.cancelled, found.grace_s) == (end, True, 1e9 + times)
    assert {path.name: path.stat().st_size for path in books.path.iterdir()} == names
    books.free("j")
    with pytest.raises(OSError, match="No space left"):
        books.write("j", book)
