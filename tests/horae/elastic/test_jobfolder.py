"""The job folder: what is written is whole, the lock tells life, and a full disk takes nothing back."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from horae.elastic import files, protocol
from horae.elastic.sdk.stopping import stop_asked
from horae.elastic.supervisor import start
from horae.elastic.supervisor.jobfolder import JobFolder
from horae.elastic.supervisor.spool import Spool


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(str(tmp_path))


def test_the_lock_is_held_by_whoever_inherits_it(folder: JobFolder) -> None:
    assert not folder.lives()
    lock = folder.take_lock()
    assert lock is not None
    assert folder.lives()
    assert folder.take_lock() is None
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=(lock,)
    )
    os.close(lock)
    assert folder.lives()
    child.communicate()
    assert not folder.lives()


def test_epochs_are_numbers_and_rubbish_is_none(folder: JobFolder, tmp_path: Path) -> None:
    assert folder.epoch() == 0
    folder.write_epoch(12)
    assert folder.epoch() == 12
    for rubbish in (b"", b"12x", b"-3", b"\xff\xfe"):
        (tmp_path / "epoch").write_bytes(rubbish)
        assert folder.epoch() == 0


def test_state_that_is_not_json_is_no_state(folder: JobFolder, tmp_path: Path) -> None:
    assert folder.state() is None
    for rubbish in (b"", b"{", b"[1]", b"\xff"):
        (tmp_path / "state.json").write_bytes(rubbish)
        assert folder.state() is None
    folder.write_state({"state": "running"})
    assert folder.state() == {"state": "running"}


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", -1.0),
        ("{}", -1.0),
        ("rubbish", -1.0),
        ("[]", -1.0),
        ('{"epoch": 3, "grace_s": 2}', 2.0),
        ('{"epoch": 2}', None),
    ],
)
def test_stop_files(tmp_path: Path, text: str, asked: float | None) -> None:
    (tmp_path / "stop").write_text(text)
    assert stop_asked(str(tmp_path / "stop"), 3) == asked
    assert stop_asked(str(tmp_path / "none"), 3) is None


@pytest.mark.root
@pytest.mark.parametrize(("owner", "heeded"), [(0, True), (1001, True), (1002, True), (1003, False)])
def test_nothing_of_a_strangers_is_heeded_where_everybody_may_write(
    folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, heeded: bool
) -> None:
    """The folder of a job of 1001's, made by an arbiter of 1002's where there are no ACLs."""
    from slurm_plugin.on_node.batch import said_of_stop, translate

    tmp_path.chmod(0o1777)
    os.chown(tmp_path, 1002, -1)
    planted = {"cancel": "", "stop": '{"stay": true}', "state.json": "{}", "epoch": "7", ".ended-1": "9"}
    for name, text in planted.items():
        (tmp_path / name).write_text(text)
        os.chown(tmp_path / name, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert folder.cancelled() is heeded
    assert (folder.stop_request(1) is not None) is heeded
    assert (folder.state() is not None, folder.epoch() == 7) == (heeded, heeded)
    assert said_of_stop(folder, "stay", True) is heeded
    assert translate(folder, 1, 1) == (9 if heeded else 1)


@pytest.mark.root
def test_a_stranger_who_takes_names_where_everybody_may_write_keeps_no_job_from_its_own() -> None:
    """Without ACLs a job's folder is open to all: its lock, its account and its log are the job's all the same, in
    each of its starts, and its log is nobody else's to read."""
    place = tempfile.mkdtemp()  # not pytest's own, which is closed to users
    try:
        Path(place).chmod(0o1777)
        for name in (protocol.LOCK_FILE, protocol.STATE_FILE, protocol.LOG_FILE, ".ended-1", "lock.0"):
            Path(place, name).write_text("{}")
            os.chown(Path(place, name), 12345, 12345)
        os.seteuid(12346)
        for word in ("running", "stopped"):
            folder = start.open_folder(place)
            lock = folder.take_lock()
            assert lock is not None
            os.close(lock)
            assert folder.state() == (None if word == "running" else {"state": "running"})
            folder.write_state({"state": word})
            spool = Spool(folder.file(protocol.LOG_FILE))
            spool.write(b"a key\n")
            spool.close()
            assert spool.dropped == 0
        (log,) = (path for path in Path(place).glob("output.log*") if path.stat().st_uid == 12346)
        assert log.stat().st_mode & 0o077 == 0
        assert log.read_bytes() == b"a key\n" * 2
    finally:
        os.seteuid(0)
        shutil.rmtree(place)


def test_a_full_disk_keeps_the_old_account_whole_or_takes_the_new_one_from_the_reserve(
    folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_state({"state": "running"})
    assert folder.reserve_room()
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if os.lseek(fd, 0, os.SEEK_CUR) >= os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    for word in ("stopping", "stopped"):
        folder.write_state({"state": word})
        assert folder.state() == {"state": word}
    with pytest.raises(OSError, match="reserve is used up"):
        folder.write_state({"state": "third"})
    assert folder.state() == {"state": "stopped"}
    monkeypatch.undo()
    folder.write_state({"state": "third"})
    assert {path.name for path in tmp_path.iterdir()} == {"state.json"}


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_atomic(str(path), b"old")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        files.write_atomic(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_links_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert files.read_bytes(str(tmp_path / "link")) is None
    assert files.read_bytes(str(tmp_path)) is None
