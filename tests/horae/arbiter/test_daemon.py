"""The arbiter as systemd sees it, and what it does while its disk is full."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from horae.arbiter.notify import notify, watchdog_s
from horae.journal import JournalStopped
from horae.port import JobState
from tests.horae.arbiter.site import ANN, Site, spec

SERVES = """
import sys
from pathlib import Path
from tests.horae.arbiter.site import serve
raise SystemExit(serve(Path(sys.argv[1])).run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_stops_when_asked(tmp_path: Path, number: signal.Signals) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="horae-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear,
    ):
        ear.bind(f"{folder}/notify")
        ear.settimeout(60.0)
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": f"{folder}/notify",
            "WATCHDOG_USEC": "400000",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        process = subprocess.Popen([sys.executable, "-c", SERVES, str(tmp_path)], env=environment)
        try:
            said = {ear.recv(1000) for _ in range(2)}
            while len(said) < 2:  # a slow start is alive before it is ready
                said.add(ear.recv(1000))
            assert said == {b"WATCHDOG=1", b"READY=1\nSTATUS=fake (4 nodes in memory)"}
            process.send_signal(number)
            while (said := ear.recv(1000)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    again = Site(tmp_path)  # the lock went with it, the journal is whole
    assert again.core.ledger.opened == 2


def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert notify("READY=1") is False
    assert watchdog_s() is None
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    assert notify("READY=1") is False


def test_with_a_full_disk_nothing_is_done_and_everything_goes_on_when_there_is_room(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (runs,) = site.commands.submit([spec("runs", 2, steps=100_000)], ANN)
    site.until(runs, JobState.RUNNING)
    full = "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    site.journal._db.execute(full)
    with pytest.raises(JournalStopped, match="disk is full"):
        site.commands.submit([spec("refused", 2)], ANN)
    site.fake.faults.calls.clear()
    site.world.lose(site.world.jobs[runs])
    site.run(120)
    changing = ("submit", "start", "checkpoint_and_stop", "cancel", "heartbeat")
    assert [site.fake.faults.calls[v] for v in changing] == [0] * 5, "it acted, or claimed to be able to"
    assert site.core.stalled is not None and "free space" in site.core.stalled
    site.journal._db.execute("DROP TRIGGER full")
    site.run(20)
    assert site.core.stalled is None
    assert site.until(runs, JobState.RUNNING).epoch == 2
    assert site.core.ledger.alerts == {}
    assert [r.spec.name for r in site.core.ledger.jobs.values()] == ["runs"]
