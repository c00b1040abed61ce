"""Requests that come before a supervisor listens, and after it has written its end down."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.horae.elastic.exec_job import PATIENCE_S, ROOT

EARLY = """
    import os, signal, sys
    from horae.elastic.supervisor.jobfolder import JobFolder
    from horae.elastic.supervisor.processes import keep
    from horae.elastic.supervisor.run import Run
    from horae.elastic.supervisor.spool import Spool
    from horae.elastic.supervisor.supervisor import STOP_SIGNALS, Supervisor

    keep(STOP_SIGNALS)
    for number in STOP_SIGNALS:
        os.kill(os.getpid(), number)
    supervisor = Supervisor(Run("job", 1, lambda: []), JobFolder(sys.argv[1]), Spool(sys.argv[1] + "/output.log"))
    before = supervisor._departure.stop_at
    supervisor._listen()
    print(before, supervisor._departure.stop_at is not None)
"""
LATE = """
    import signal, sys
    from horae.elastic.supervisor.command import main
    from horae.elastic.supervisor.supervisor import STOP_SIGNALS

    code = main(["--folder", sys.argv[1], "--", "sh", "-c", "exit 7"])
    print(code, {signal.getsignal(number).name for number in STOP_SIGNALS})
"""


def said(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()[-1] if done.stdout else f"nothing, and ended with {done.returncode}"


def test_a_request_that_comes_before_the_supervisor_listens_is_heard(tmp_path: Path) -> None:
    assert said(EARLY, tmp_path) == "None True"


def test_a_request_that_comes_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """Python restores the default actions on its way out: exit code 86, say, would become 138."""
    assert said(LATE, tmp_path) == "7 {'SIG_IGN'}"


TEARDOWN = """
    import os, signal, sys
    from horae.elastic.sdk.stopping import StopRequest

    class Leaves:
        def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGUSR1):
            kill(pid, number)
            os.write(1, b"it lives\\n")

    StopRequest(None)
    # as a framework that puts back, at its end, the handlers of its beginning
    signal.signal(signal.SIGUSR1, lambda *_: None)
    leaves = Leaves()
"""


def test_a_request_while_the_trainers_interpreter_is_torn_down_does_not_kill_it(tmp_path: Path) -> None:
    assert said(TEARDOWN, tmp_path) == "it lives"
