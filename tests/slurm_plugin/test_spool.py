"""Files that users can replace: what is read of them, and who may write them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from horae.port import FixConfiguration
from horae.untrusted import Unbelievable
from slurm_plugin.memory import Memo, Memories
from slurm_plugin.spool import Spool
from slurm_plugin.transport import LocalFiles, admit

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
