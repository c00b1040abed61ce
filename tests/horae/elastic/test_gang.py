"""A gang's first moment: between the fork of a rank and its program."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from horae.elastic.supervisor.gang import Gang
from tests.horae.elastic.exec_job import PATIENCE_S, ROOT

HELD_UP = """
    import os, signal, sys, time
    from horae.elastic.supervisor.gang import Gang, Member
    from horae.elastic.supervisor.processes import exit_code

    number = int(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: None)  # as the supervisor does
    reader, writer = os.pipe()
    real = os.setsid

    def setsid():
        os.read(reader, 1)  # the rank is held up before it is the head of its group
        real()

    os.setsid = setsid
    gang = Gang([Member(["sleep", "600"], dict(os.environ), "/", 0)])
    gang.spawn()
    gang.signal(number)
    os.write(writer, b"x")
    (pid,) = gang._alive
    until = time.monotonic() + 240
    ended, status = 0, 0
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        raise SystemExit("the rank runs on")
    print(exit_code(status))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_rank_that_has_no_group_yet_is_reached_all_the_same(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HELD_UP), str(int(number))],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.stderr, done.stdout) == ("", f"{128 + number}\n")


def test_a_killed_rank_is_the_cause_also_when_its_peers_are_reaped_before_it() -> None:
    gang = Gang([])
    gang._alive = {-1: 0, -2: 1, -3: 2}
    gang.ended([(-1, 1)])
    assert gang.result() == 1
    gang.ended([(-3, 137)])
    assert gang.result() == 137


def test_a_rank_that_we_killed_ourselves_is_no_cause() -> None:
    gang = Gang([])
    gang.signal(signal.SIGKILL)
    gang._alive = {-1: 0, -2: 1}
    gang.ended([(-1, 1)])
    gang.ended([(-2, 137)])
    assert gang.result() == 1
