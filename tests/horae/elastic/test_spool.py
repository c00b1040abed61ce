"""The spool: lines of ranks, rotation, and a disk that is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from horae.elastic.supervisor.spool import Lines, Spool, rotated


def test_lines_of_several_ranks_are_whole_and_labelled(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "log"))
    zero, one = Lines(spool, b"0: "), Lines(spool, b"1: ")
    zero.feed(b"hel")
    one.feed(b"a\nb\nc")
    zero.feed(b"lo\n\xff\n")
    one.end()
    zero.end()
    spool.close()
    assert (tmp_path / "log").read_bytes() == b"1: a\n1: b\n0: hello\n0: \xff\n1: c\n"


def test_a_single_rank_passes_through_untouched(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "log"))
    line = Lines(spool, None)
    line.feed(b"half a ")
    assert (tmp_path / "log").read_bytes() == b"half a "
    line.feed(b"line\r50%\r100%\n")
    line.end()
    assert (tmp_path / "log").read_bytes() == b"half a line\r50%\r100%\n"


def test_a_line_without_end_is_cut_and_stays_its_ranks_own(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "log"))
    zero = Lines(spool, b"0: ")
    zero.feed(b"x" * 70_000)
    Lines(spool, b"1: ").feed(b"mine\n")
    zero.feed(b"y\n")
    assert (tmp_path / "log").read_bytes().split(b"\n") == [b"0: " + b"x" * 70_000, b"1: mine", b"0: y", b""]


def test_a_bar_of_one_of_several_ranks_is_passed_on_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody saw how far an epoch was before it was over: not its user, not the arbiter."""
    spool = Spool(str(tmp_path / "log"))
    zero = Lines(spool, b"0: ")
    zero.feed(b"\r1%")
    assert (tmp_path / "log").read_bytes() == b"", "not each time that it moves"
    monkeypatch.setattr("horae.elastic.supervisor.spool._BAR_S", 0.0)
    zero.feed(b"\r2%\r3")
    zero.feed(b"%\n")
    assert (tmp_path / "log").read_bytes() == b"0: \r1%\r2%\n0: 3%\n"


def test_rotation_keeps_this_generation_and_one_before(tmp_path: Path) -> None:
    path = tmp_path / "log"
    spool = Spool(str(path), limit=10)
    for i in range(5):
        spool.write(b"%d-------\n" % i)
    assert path.read_bytes() == b"4-------\n"
    assert rotated(str(path)) == [4]
    assert (tmp_path / "log.4").read_bytes() == b"3-------\n"
    again = Spool(str(path), limit=10)
    again.write(b"another start\n")
    assert rotated(str(path)) == [5]


def test_what_finds_no_room_is_counted_and_told_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    spool = Spool(str(path))
    room = [4]
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real(fd, bytes(data)[: room[0]])  # a nearly full disk takes part of it
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", write)
    spool.write(b"123456")
    spool.write(b"78")
    assert spool.dropped == 4
    room[0] = 1000
    spool.write(b"9\n")
    assert spool.dropped == 4
    assert path.read_bytes() == b"1234\n[horae-exec] 4 bytes of output were dropped: No space left on device\n9\n"


def test_a_spool_that_cannot_be_opened_drops_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    spool = Spool(str(folder / "log"))
    spool.write(b"lost")
    assert spool.dropped == 4
    folder.mkdir()
    spool.write(b"kept\n")
    assert (folder / "log").read_bytes().endswith(b"kept\n")
    assert b"4 bytes of output were dropped: No such file" in (folder / "log").read_bytes()


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    (tmp_path / "log").symlink_to(secret)
    spool = Spool(str(tmp_path / "log"))
    spool.write(b"overwritten?")
    assert secret.read_text() == "untouched"
    assert spool.dropped == 12


def test_an_echo_nobody_reads_is_given_up(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    spool = Spool(str(tmp_path / "log"), echo=writer)
    spool.write(b"one\n")
    spool.write(b"two\n")
    os.close(writer)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_output_leaves_room_on_the_disk_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shares the disk with, the arbiter's journal perhaps, still finds room; what was dropped is said."""
    real = os.fstatvfs
    free = [100_000]

    def shrinking(fd: int) -> os.statvfs_result:
        found = list(real(fd))
        found[0] = found[1] = 1
        found[2], found[4] = 1_000_000, free[0] - (tmp_path / "log").stat().st_size
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "fstatvfs", shrinking)
    spool = Spool(str(tmp_path / "log"))
    spool.keep_free = 1 << 30  # of a small disk a twentieth, 50,000
    for _ in range(100):
        spool.write(b"x" * 999 + b"\n")
    assert 48_000 <= (tmp_path / "log").stat().st_size <= 50_000
    assert spool.dropped >= 50_000
    free[0] = 1_000_000
    spool.write(b"again\n")
    spool.close()
    end = (tmp_path / "log").read_bytes()[-200:]
    assert b"bytes of output were dropped: less than 50000 bytes would be left on the disk" in end
    assert end.endswith(b"again\n")
