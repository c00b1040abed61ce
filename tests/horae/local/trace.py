"""System calls of an arbiter that runs, by strace, and which of them touch job folders otherwise than they may.

What its processes do once they have become a user is that user's affair and left out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Calls with paths, those that make processes, and those by which one becomes somebody else.
CALLS = "trace=%file,fork,vfork,clone,clone3,setuid,setreuid,setresuid"
_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += +(-?\d+|\?)")
_UNFINISHED = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)$")
#: A descriptor (with what it is open at) and a name, or a name alone.
_TOUCH = re.compile(r'(?:(AT_FDCWD|\d+)(?:<((?:[^>\\]|\\.)*)>)?, )?"((?:[^"\\]|\\.)*)"')
#: What keeps the last name of a path from being followed as a link.
_STAYS = ("O_NOFOLLOW", "AT_SYMLINK_NOFOLLOW", "RESOLVE_NO_SYMLINKS", "O_EXCL")
#: Calls that act on the name itself.
_ON_NAMES = frozenset({"renameat", "renameat2", "unlinkat", "mkdirat", "linkat", "symlinkat", "readlinkat"})


@dataclass(frozen=True, slots=True)
class Call:
    pid: int
    name: str
    text: str  #: its arguments as strace shows them
    result: str


@contextmanager
def traced(into: Path, *pids: int) -> Iterator[None]:
    """These and every process that they start from here on.

    Skips, which CI takes for a failure, where that is not permitted.
    """
    if shutil.which("strace") is None:
        pytest.skip("there is no strace (tests/real/setup installs it)")
    command = ["strace", "-f", "-y", "-s", "4096", "-e", CALLS, "-o", str(into)]
    command += [word for pid in pids for word in ("-p", str(pid))]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for _ in pids:
            line = process.stderr.readline()
            if "attached" not in line:
                process.kill()
                pytest.skip(f"strace may not attach to a process here: {line.strip()}")
        try:
            yield
        finally:
            process.terminate()
            process.stderr.read()


def calls(path: Path) -> Iterator[Call]:
    """Finished calls of processes that are still root's."""
    begun: dict[str, str] = {}
    users: set[int] = set()
    for raw in path.read_text(errors="replace").splitlines():
        line = raw
        if (cut := _UNFINISHED.match(line)) is not None:
            begun[cut[1]] = cut[2]
            continue
        if (rest := _RESUMED.match(line)) is not None:
            line = f"{rest[1]} {begun.pop(rest[1], '')}{rest[2]}"
        found = _LINE.match(line)
        if found is None:
            continue  # a signal, an exit
        call = Call(int(found[1]), found[2], found[3], found[4])
        if call.name in ("fork", "vfork", "clone", "clone3"):
            if call.pid in users:
                users.add(int(call.result) if call.result.isdigit() else 0)
        elif call.name.startswith("set"):
            if call.result == "0" and not call.text.startswith("0"):
                users.add(call.pid)
        elif call.pid not in users:
            yield call


def touches(call: Call, jobs: str) -> list[tuple[str, str]]:
    """(folder that a descriptor is open at, name) of each path of the call that is in or below `jobs`."""
    found = _TOUCH.findall(call.text)
    if call.name in ("execve", "symlink"):
        found = found[:1]  # the rest are words
    told = [("" if name.startswith("/") else at, name) for _, at, name in found]
    return [(at, name) for at, name in told if (at + "/").startswith(jobs + "/") or name.startswith(jobs + "/")]


def wrong(call: Call, jobs: str) -> str:
    """How it touches a job folder otherwise than it may; empty where it does not."""
    for at, name in touches(call, jobs):
        if not at:
            return "by a path"
        if not name:
            continue  # the descriptor itself
        if "/" in name:
            return "by a path below a descriptor"
        if call.name not in _ON_NAMES and not any(word in call.text for word in _STAYS):
            return "through a link, if there is one"
    return ""
