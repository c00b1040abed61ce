"""Processes of private labs: found by what they say of themselves, so that no stranger with an old pid is touched.

A daemon leaves its pid in a file of the lab's folder, and its command line or environment names that folder. The
lab's owner is the process that brought it up; a test run that was killed leaves labs whose owner is gone.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from horae.elastic.supervisor import processes

_OWNER = "owner"


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def gone(pid: int) -> bool:
    """Whether it has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def end(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal it and, where that ends it, wait until it is gone."""
    kill(pid, number)
    while number in {signal.SIGKILL, signal.SIGTERM} and not gone(pid):
        time.sleep(0.02)


def end_all(pids: list[int], patience_s: float = 10.0) -> None:
    """SIGTERM to all, and SIGKILL to those that have not ended within `patience_s`."""
    for pid in pids:
        kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while (left := [pid for pid in pids if not gone(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        kill(pid)


def environment(pid: int, patience_s: float = 10.0) -> set[bytes]:
    """What it was told, waiting for one that is just being started. Raises OSError for other users' and gone ones."""
    deadline = time.monotonic() + patience_s
    while (told := processes.environment(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.002)
    return told or set()


def words_of(pid: int) -> bytes:
    """Its environment and command line, parts ended by a zero byte. Raises OSError for other users' and gone ones."""
    return b"\0".join([*environment(pid), Path(f"/proc/{pid}/cmdline").read_bytes()])


def noted(pid_file: Path, mark: Path) -> int | None:
    """The pid in this file, if it lives and names the folder `mark` on its command line or in its environment."""
    try:
        pid = int(pid_file.read_text())
        ours = os.fsencode(mark) in words_of(pid)
    except (OSError, ValueError):
        return None
    return pid if ours and not gone(pid) else None


def everybody() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        yield int(path.name)


def own(folder: Path) -> None:
    """The calling process is responsible for the lab in this folder."""
    (folder / _OWNER).write_text(str(os.getpid()))


def reap_orphans(folders: re.Pattern[bytes]) -> None:
    """SIGKILL to every process that names, as the pattern's first group, a lab's folder that is gone or whose owner is.

    A folder in which nobody said that he owns it is no lab's, and left alone.
    """
    for pid in everybody():
        with suppress(OSError, ValueError):
            found = folders.search(words_of(pid))
            if found is None or pid == os.getpid():
                continue
            folder = Path(os.fsdecode(found.group(1)))
            if not folder.exists() or gone(int((folder / _OWNER).read_text())):
                kill(pid)
