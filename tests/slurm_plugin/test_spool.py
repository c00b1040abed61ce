"""Files that users can replace: what is read of them, and who may write them."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.elastic.supervisor import start
from horae.port import CheckpointMark, FixConfiguration, PortError
from horae.untrusted import Unbelievable
from slurm_plugin.files.spool import Spool
from slurm_plugin.files.transport import LocalFiles, admit
from slurm_plugin.jobs.record import Memo, Memories

ME = os.getuid()


@pytest.mark.parametrize("trick", ["link", "pipe", "folder", "another's", "device"])
def test_only_a_plain_file_of_the_owner_is_read(tmp_path: Path, trick: str) -> None:
    path, owner = tmp_path / "output.log", ME
    if trick == "link":
        path.symlink_to("/etc/passwd")
        owner = ME or 1
    elif trick == "pipe":
        os.mkfifo(path)
    elif trick == "folder":
        path.mkdir()
    elif trick == "device":
        path = Path("/dev/zero")
        owner = 0
    else:
        path.write_text("not mine")
        owner = ME + 1
    for read in (
        lambda: LocalFiles().read(str(path.parent), path.name, owner=owner),
        lambda: LocalFiles().part(str(path), 0, 100, owner),
    ):
        with pytest.raises(Unbelievable):
            read()


def test_a_users_own_file_is_read_in_parts_also_through_a_link_of_theirs(tmp_path: Path) -> None:
    """Slurm's own output file may lie behind one: whose it is, the file itself tells."""
    (tmp_path / "log").write_text("abcdef")
    (tmp_path / "link").symlink_to(tmp_path / "log")
    found = LocalFiles().part(str(tmp_path / "link"), 2, 3, ME)
    assert found is not None
    assert (found.data, found.start, found.size) == (b"cde", 2, 6)
    shorter = LocalFiles().part(str(tmp_path / "link"), 9, 3, ME)
    assert shorter is not None
    assert (shorter.data, shorter.start) == (b"abc", 0)
    assert shorter.identity != found.identity
    assert LocalFiles().part(str(tmp_path / "none"), 0, 3, ME) is None
    with pytest.raises(Unbelievable):
        LocalFiles().read(str(tmp_path), "link", owner=ME)


def test_an_acl_admits_one_user_and_closes_the_folder_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir(mode=0o755)
    fd = os.open(folder, os.O_RDONLY)
    try:
        if not admit(fd, ME + 1):
            pytest.skip("no ACLs on this file system")
    finally:
        os.close(fd)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o770  # the group's bits are the ACL's mask
    named = (2).to_bytes(2, "little") + (7).to_bytes(2, "little") + (ME + 1).to_bytes(4, "little")
    assert named in os.getxattr(folder, "system.posix_acl_access")


def test_a_job_folder_is_not_for_others(tmp_path: Path) -> None:
    spool = Spool(LocalFiles(), str(tmp_path))
    spool.prepare()
    spool.grant("7.abc", ME, 1, 0)
    assert not (tmp_path / "jobs/7.abc").stat().st_mode & 0o007
    assert json.loads((tmp_path / "jobs/7.abc/slurm.json").read_text()) == {"epoch": 1, "restarts": 0}


@pytest.mark.root
def test_without_acls_a_jobs_own_files_are_found_among_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    spool = Spool(LocalFiles(), str(tmp_path))
    spool.prepare()
    with monkeypatch.context() as patch:
        patch.setattr("slurm_plugin.files.transport.os.fchown", refused)
        patch.setattr("slurm_plugin.files.transport.admit", lambda fd, uid: False)
        spool.grant("7.abc", ME, 1, 0)
    folder = tmp_path / "jobs/7.abc"
    told = {"state.json": {"exit_code": 3, "epoch": 9}, "slurm.exec": {"epoch": 9}, "output.log": {}}
    for suffix in ("", ".0"):
        for name in ("lock", *told):
            planted = folder / f"{name}{suffix}"
            planted.write_text(json.dumps(told.get(name, "")))
            os.chown(planted, ME + 1, -1)
    assert spool.account("7.abc", ME).epoch == 0
    own = start.open_folder(str(folder))
    own.write_state({"exit_code": 86, "epoch": 1})
    Path(own.file("slurm.exec")).write_text('{"epoch": 1, "direct": true}')
    Path(own.file("output.log")).write_text("a key")
    found = spool.account("7.abc", ME)
    assert (found.epoch, found.direct, found.ended, found.exit_code) == (1, True, 1, 86)
    assert spool.odd == {}
    assert spool.output("7.abc", ME, 0, 100) is None, "Slurm's own output file is read, where its owner lets us"
    spool.grant("7.abc", ME, 2, 1)
    assert spool.account("7.abc", ME).epoch == 0, "of the start before"


def test_the_hooks_notes_are_counted_and_never_grow_without_end(tmp_path: Path) -> None:
    spool = Spool(LocalFiles(), str(tmp_path))
    spool.prepare()
    first = spool.noticed()
    with (tmp_path / "events").open("a") as events:
        events.write("submit\n")
    second = spool.noticed()
    assert second != first
    (tmp_path / "events").write_bytes(b"x" * (1 << 21))
    assert spool.noticed() != second
    assert spool.noticed()[1] == 0
    assert (tmp_path / "events").read_bytes() == b""


def test_a_memory_that_cannot_be_written_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    memories = Memories(tmp_path / "memory")
    (tmp_path / "memory").rmdir()
    with pytest.raises(FixConfiguration) as raised:
        memories.put(Memo("7.abc"))
    assert "memory/memos" in str(raised.value)


WORDS = [
    b'{"checkpoint":{"epoch":Infinity,"step":1,"time_s":1}}',
    b'{"checkpoint":{"epoch":1,"step":1e400,"time_s":1}}',
    b'{"checkpoint":{"epoch":1,"step":1}}',
    b'{"checkpoint":[]}',
    b'{"exit_code":' + b"9" * 401 + b"}",
    b'{"exit_code":NaN,"epoch":1}',
    b'{"epoch":-1,"exit_code":0}',
    b'{"epoch":[1],"exit_code":0}',
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b"\xff\xfe",
    b"x" * (1 << 20),
    b"[]",
    b"",
]


@pytest.mark.parametrize("name", ["state.json", "slurm.exec"])
@pytest.mark.parametrize("data", WORDS, ids=lambda data: repr(data[:30]))
def test_what_an_owner_writes_costs_his_job_and_is_said(tmp_path: Path, name: str, data: bytes) -> None:
    spool = Spool(LocalFiles(), str(tmp_path))
    spool.prepare()
    for job in ("7.abc", "8.abc"):
        spool.grant(job, ME, 1, 0)
    good = {"epoch": 1, "exit_code": 86, "checkpoint": {"epoch": 1, "step": 50, "time_s": 1.7e9}}
    (tmp_path / "jobs/8.abc/state.json").write_text(json.dumps(good))
    (tmp_path / "jobs/7.abc" / name).write_bytes(data)
    assert spool.account("7.abc", ME).checkpoint is None
    assert spool.newest_checkpoint("7.abc", ME) is None
    told = spool.account("8.abc", ME)
    assert (told.ended, told.exit_code, told.checkpoint) == (1, 86, CheckpointMark(1, 50.0, 1.7e9))
    assert set(spool.odd) <= {"7.abc"}
    assert all(why.isprintable() and len(why) < 400 for why in spool.odd.values())


@given(st.binary(max_size=300) | st.recursive(st.none() | st.floats() | st.integers() | st.text(), st.lists).map(
    lambda value: json.dumps({"checkpoint": value, "epoch": value, "exit_code": value, "direct": value}).encode()
))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_no_document_raises_past_its_job(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(LocalFiles(), folder)
        spool.prepare()
        spool.grant("7.abc", ME, 1, 0)
        for name in ("state.json", "slurm.exec"):
            (Path(folder) / "jobs/7.abc" / name).write_bytes(data)
        spool.account("7.abc", ME)
        spool.newest_checkpoint("7.abc", ME)


@pytest.mark.parametrize(
    "told", ["/", "/proc/self", "/dev", "relative", "/no/such", "/x\0y", 7, ["/"], "/" + "x" * 9999]
)
def test_a_checkpoint_folder_is_its_owners_or_not_looked_into(tmp_path: Path, told: object) -> None:
    spool = Spool(LocalFiles(), str(tmp_path))
    spool.prepare()
    spool.grant("7.abc", ME, 1, 0)
    (tmp_path / "jobs/7.abc/slurm.exec").write_text(json.dumps({"checkpoint": told}))
    assert spool.newest_checkpoint("7.abc", ME) is None


def test_checkpoints_that_come_and_go_all_the_time_hold_nobody_up(tmp_path: Path) -> None:
    class Restless(LocalFiles):
        def __init__(self) -> None:
            self.looks = 0

        def names(self, path: str, owner: int) -> list[str]:
            self.looks += 1
            return [f"step-{self.looks:012d}.epoch-00000001"] if path.endswith("checkpoints") else []

    files = Restless()
    spool = Spool(files, str(tmp_path))
    spool.prepare()
    spool.grant("7.abc", ME, 1, 0)
    (tmp_path / "jobs/7.abc/slurm.exec").write_text(json.dumps({"checkpoint": str(tmp_path / "checkpoints")}))
    assert spool.newest_checkpoint("7.abc", ME) is None
    assert "changes all the time" in spool.odd["7.abc"]


def test_no_mode_or_owner_is_set_on_what_the_owner_puts_in_its_place(tmp_path: Path) -> None:
    """The owner replaces each file that is being made by a link to a file that is not his to change."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    spool = Spool(LocalFiles(), str(tmp_path / "spool"))
    spool.prepare()
    spool.grant("7.abc", ME, 1, 0)
    folder, stop = tmp_path / "spool/jobs/7.abc", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for path in folder.glob(".*"):
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.symlink_to(secret)

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for epoch in range(2, 60):
            with contextlib.suppress(PortError):
                spool.grant("7.abc", ME, epoch, epoch)
    finally:
        stop.set()
        attacker.join()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text() == "secret"


def test_a_folder_of_a_job_that_is_a_link_is_neither_written_nor_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "state.json").write_text(json.dumps({"epoch": 3, "exit_code": 1}))
    spool = Spool(LocalFiles(), str(tmp_path / "spool"))
    spool.prepare()
    (tmp_path / "spool/jobs/7.abc").symlink_to(elsewhere)
    with pytest.raises(FixConfiguration):
        spool.grant("7.abc", ME, 1, 0)
    spool.ask_to_stop("7.abc", 1, 1.0, 1.0)
    assert spool.account("7.abc", ME).ended == 0
    assert [path.name for path in elsewhere.iterdir()] == ["state.json"]


def test_folders_of_jobs_that_are_over_leave_by_age_and_by_size(tmp_path: Path) -> None:
    spool, now_s, day_s = Spool(LocalFiles(), str(tmp_path)), 1e9, 86400.0
    spool.prepare()
    for number, days, size in (("1", 40, 5), ("2", 40, 9000), ("3", 20, 1000), ("4", 10, 2000), ("5", 1, 1000)):
        folder = tmp_path / "jobs" / f"{number}.abc"
        folder.mkdir()
        (folder / "output.log").write_bytes(b"x" * size)
        for path in (folder / "output.log", folder):
            os.utime(path, (now_s - days * day_s, now_s - days * day_s))

    def left(most: int) -> list[str]:
        assert spool.clean(now_s, 30 * day_s, most, {"2.abc"}) == []
        return sorted(path.name[0] for path in (tmp_path / "jobs").iterdir())

    assert left(10**9) == ["2", "3", "4", "5"], "who lives stays, however old"
    assert left(3000) == ["2", "3", "5"], "the largest went, until the rest had room"
    assert left(1500) == ["2", "5"], "of equal ones the older"


@pytest.mark.parametrize("kept", [True, False])
def test_what_an_owner_writes_into_his_folder_costs_no_other_folder(tmp_path: Path, kept: bool) -> None:
    """A file of a terabyte takes no room, and anybody may write one."""
    spool = Spool(LocalFiles(), str(tmp_path))
    spool.prepare()
    for number in ("1", "2", "3"):
        (tmp_path / "jobs" / f"{number}.abc").mkdir()
        (tmp_path / "jobs" / f"{number}.abc" / "output.log").write_text("done")
    os.truncate(tmp_path / "jobs/2.abc/output.log", 10**12)
    if kept:
        (tmp_path / "jobs/2.abc/deep").mkdir()
    os.utime(tmp_path / "jobs/2.abc", (4e9, 4e9))
    for living in ({"2.abc"}, set[str]()):
        spool.clean(2e9, 1e9, 100, living)
        assert {"1.abc", "3.abc"} <= {path.name for path in (tmp_path / "jobs").iterdir()}, living


def test_cleaning_follows_no_link_and_says_what_stays(tmp_path: Path) -> None:
    spool = Spool(LocalFiles(), str(tmp_path / "spool"))
    spool.prepare()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kept").write_text("data")
    folder = tmp_path / "spool/jobs/1.abc"
    folder.mkdir()
    (folder / "output.log").symlink_to(mine / "kept")
    (folder / "all").symlink_to(mine)
    (tmp_path / "spool/jobs/2.abc").symlink_to(mine)
    (tmp_path / "spool/jobs/.4.abc.0123").mkdir()  # of a start that is just being made
    other = tmp_path / "spool/jobs/3.abc"
    (other / "deep").mkdir(parents=True)
    notes = spool.clean(4e9, 1.0, 0, set())
    assert (mine / "kept").read_text() == "data"
    assert not folder.exists()
    assert (tmp_path / "spool/jobs/.4.abc.0123").exists()
    assert (other / "deep").exists()
    assert [note.split(":")[0].split()[0][-5:] for note in notes] == ["2.abc", "3.abc"]
