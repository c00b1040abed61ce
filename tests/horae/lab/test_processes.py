"""Private labs' processes: found by what they say, reaped when their owner is gone, strangers left alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from horae.elastic.supervisor import processes as supervisor
from horae.lab import processes
from tests.waiting import eventually

_SLEEP = "import sys, time; print('up', flush=True); time.sleep(600)"


def daemon(folder: Path, code: str = _SLEEP) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code, f"{folder}/conf"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = daemon(tmp_path)
    yield process
    process.kill()
    process.communicate()


def test_a_daemon_is_known_by_its_file_and_its_folder(running: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{running.pid}\n")
    assert processes.noted(tmp_path / "pid", tmp_path) == running.pid
    assert processes.noted(tmp_path / "pid", tmp_path / "another lab") is None, "a pid that was given to a stranger"
    assert processes.noted(tmp_path / "none", tmp_path) is None
    processes.end(running.pid)
    assert processes.gone(running.pid)
    assert processes.noted(tmp_path / "pid", tmp_path) is None


def test_who_does_not_heed_sigterm_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + _SLEEP
    process = daemon(tmp_path, stubborn)
    processes.end_all([process.pid], patience_s=0.2)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_labs_whose_owner_is_gone_are_reaped_and_others_live(tmp_path: Path) -> None:
    pattern = re.compile(b"(" + re.escape(os.fsencode(tmp_path)) + rb"/lab\d)/")
    folders = [tmp_path / f"lab{number}" for number in range(4)]
    for folder in folders:
        folder.mkdir()
    owned, orphan, homeless, stranger = (daemon(folder) for folder in folders)
    processes.own(folders[0])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (folders[1] / "owner").write_text(str(gone.pid))
    folders[2].rmdir()
    processes.reap_orphans(pattern)
    for process in (orphan, homeless):
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    for process in (owned, stranger):
        assert process.poll() is None
        process.kill()
        process.communicate()


def test_a_process_that_is_just_being_started_is_waited_for(
    running: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine one in thirty shows nothing of itself for up to 30 ms after its exec, and counted as ended."""
    shown, untold = supervisor._shown, [True]
    name, value = Path(f"/proc/{running.pid}/environ").read_bytes().split(b"\0")[0].decode().split("=", 1)
    monkeypatch.setattr(supervisor, "_shown", lambda *what: b"" if what[0] == running.pid and untold else shown(*what))
    (tmp_path / "pid").write_text(str(running.pid))
    assert supervisor.environment(running.pid) is None
    assert running.pid not in supervisor.marked(name, value, patience_s=0.01)
    with ThreadPoolExecutor() as pool:
        noted = pool.submit(processes.noted, tmp_path / "pid", tmp_path)
        found = pool.submit(supervisor.marked, name, value, 100.0)
        time.sleep(0.1)
        assert not noted.done()
        untold.clear()
        assert noted.result() == running.pid
        assert running.pid in found.result()


def test_a_process_that_was_told_nothing_is_not_waited_for() -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={}) as process:
        try:
            eventually(lambda: supervisor.environment(process.pid) is not None)
            assert supervisor.environment(process.pid) == {b""}
        finally:
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with pytest.raises((ProcessLookupError, PermissionError)):  # ended, and not reaped
                supervisor.environment(process.pid)
