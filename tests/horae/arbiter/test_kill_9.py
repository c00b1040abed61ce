"""The same as `test_killed.py` with the operating system's own hand: SIGKILL to a serving process, threads and all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.fake import Program, World
from horae.port import JobState
from policy.model import Node
from tests.horae.arbiter.killing import check
from tests.horae.arbiter.mortal import STORY
from tests.horae.arbiter.remote import Host

NODES = (Node("n1", "k80", 4), Node("n2", "k80", 4))


@pytest.fixture
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="horae-") as folder:  # a short path: it is a socket's
        world = World(NODES, program=Program(iteration_s=0.02, start_s=0.05, stop_s=0.03))
        made = Host(world, Path(folder) / "s")
        yield made
        made.close()


def serve(folder: Path, host: Host, die_at: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "tests.horae.arbiter.mortal", str(folder), str(host.socket), str(die_at)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


#: Boundaries of a process that serves the story: opened, claimed, submissions, starts, resizes, ends. Threads move
#: them a little from run to run; `test_killed.py` enumerates them exactly.
@pytest.mark.parametrize("die_at", [1, 5, 11, 17, 24, 33, 44])
def test_a_killed_process_loses_and_doubles_nothing(tmp_path: Path, host: Host, die_at: int) -> None:
    killed = serve(tmp_path, host, die_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = serve(tmp_path, host)
    assert done.returncode == 0, done.stderr
    check(host.world, tmp_path / "journal.db", dict.fromkeys(STORY, JobState.COMPLETED), lossless=STORY)


def test_killed_again_and_again_it_still_comes_to_the_end(tmp_path: Path, host: Host) -> None:
    for die_at in (9, 15, 7, 21, 13):
        if serve(tmp_path, host, die_at).returncode == 0:
            break
    assert serve(tmp_path, host).returncode == 0
    check(host.world, tmp_path / "journal.db", dict.fromkeys(STORY, JobState.COMPLETED), lossless=STORY)
