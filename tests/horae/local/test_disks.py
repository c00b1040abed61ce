"""Which disks are bounded is the kernel's word, in a list in which users name places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from horae.local import disks


@pytest.mark.parametrize("place", [b"/home/ann/\xff", b"/home/ann/\x1cx\x1d", b"/home/ann/a\x0cb\x85\r", b"/x\r1 2 %b"])
@pytest.mark.parametrize(("options", "told"), [(b"rw", True), (b"rw,usrquota", False)])
def test_where_a_user_mounts_something_is_no_line_of_the_kernels_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: bytes, options: bytes, told: bool
) -> None:
    (tmp_path / "jobs").mkdir()
    disk = tmp_path.stat().st_dev
    number = b"%d:%d" % (os.major(disk), os.minor(disk))
    named = place.replace(b"%b", number).replace(b" ", b"\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(
        b"30 1 0:99 / "
        + named
        + b" rw - fuse.x x rw,quota\n"
        + b"1 0 "
        + number
        + b" / / rw - ext4 /dev/x "
        + options
        + b"\n"
    )
    monkeypatch.setattr(disks, "_MOUNTS", mounts)
    assert bool(disks.shared(tmp_path, tmp_path / "jobs")) is told
