"""What disk the jobs' folders are on, and whether one user can take all of it from the others."""

from __future__ import annotations

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_QUOTAS = (b"usrquota", b"uquota", b"usrjquota=", b"prjquota", b"pquota", b"quota")


def shared(books: Path, jobs: Path) -> str:
    """A note where users may fill the disk of the arbiter's books; else, and before both are there, nothing.

    Raises OSError.
    """
    if not books.exists() or not jobs.exists():
        return ""
    disk = jobs.stat().st_dev
    if books.stat().st_dev != disk or _bounded(disk):
        return ""
    return (
        f"{jobs} is on the disk of {books} and has no quotas: one user's files can fill both; "
        f"mount a file system of its own at {jobs}, or turn quotas on"
    )


def _bounded(disk: int) -> bool:
    """Whether the kernel lists it as mounted with quotas of users or projects.

    Users name the places where they mount their own (FUSE): only spaces, tabs and line feeds of those are escaped.
    """
    number = b"%d:%d" % (os.major(disk), os.minor(disk))
    for line in _MOUNTS.read_bytes().split(b"\n"):
        words = line.split(b" ")
        if words[2:3] == [number] and any(option.startswith(_QUOTAS) for option in words[-1].split(b",")):
            return True
    return False
