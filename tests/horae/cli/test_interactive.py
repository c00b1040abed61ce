"""`horae submit --interactive` on a local cluster: real jobs, a real terminal at their end."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from horae.api.client import Client
from horae.api.service import Service
from horae.config import Config
from horae.elastic import terminal
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

HORAE = str(Path(sys.executable).with_name("horae"))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    folder = Path(tempfile.mkdtemp(prefix="horae-"))
    data = {
        "state_dir": str(folder / "state"),
        "cluster": {"adapter": "local", "options": {"state": str(folder / "local"), "nodes": "v100:1x2"}},
        "pools": [{"name": "main", "mode": "enforce", "policy": "fifo"}],
        "rounds": {"tick_s": 0.3, "busy_s": 0.05, "debounce_s": 0.01},
        "api": {"socket": str(folder / "a.sock")},
    }
    monkeypatch.setenv("HORAE_SOCKET", str(folder / "a.sock"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "own"))  # not every user of tests has a home
    service = Service(Config.model_validate(data))
    service.start()
    try:
        yield Client(folder / "a.sock")
    finally:
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)


def begun(*words: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([HORAE, "submit", "-i", *words], stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd)


def test_a_session_is_a_rigid_job_that_ends_as_its_program_did(client: Client, tmp_path: Path) -> None:
    """In a folder in which somebody else may have put modules."""
    for name in ("horae", "termios", "pty", "struct"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('somebody else')\n")
    program = "stty -echo; test -t 0 && echo on $CUDA_VISIBLE_DEVICES; read word; echo got $word; exit 3"
    process = begun("-g", "2", "--time-limit", "5m", "--", "sh", "-c", program, cwd=tmp_path)
    out, err = process.communicate(b"hello\n", timeout=300)
    assert process.returncode == 3, err
    assert b"on 0,1" in out and b"got hello" in out
    eventually(lambda: client.job("1")["ended"])
    job = client.job("1")
    assert (job["exit_code"], job["starts"], job["elastic"], job["name"]) == (3, 1, False, "interactive")
    assert not job["allocation"]


def test_who_leaves_gives_the_gpus_back(client: Client) -> None:
    process = begun("--", "sleep", "1000")
    eventually(lambda: any(job["state"] == "running" for job in client.status()["jobs"]))
    second = begun("-g", "2", "--", "true")
    assert second.stderr is not None
    eventually(lambda: len(client.status()["jobs"]) == 2)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert second.wait(60) == 0, "it had waited for them"
    eventually(lambda: client.job("1")["ended"])


def test_what_no_session_can_be_is_refused(client: Client, horae: Horae) -> None:
    for words, says in (
        (("-g", "1:2"), "is a range"),
        (("-c", "/tmp/ck"), "is a training's"),
        (("--wait",), "is not for --interactive"),
    ):
        said = horae("submit", "-i", *words)
        assert said.code == 3 and says in said.err, said.err
    assert not client.status()["jobs"]


def test_elsewhere_it_says_what_does_it(site: Client, horae: Horae) -> None:
    said = horae("submit", "--interactive", "-g", "1")
    assert said.code == 3 and "is for one machine" in said.err


def test_the_job_ends_when_the_other_end_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE_S", 0.2)
    ours, theirs = socket.socketpair()
    found: list[int] = []
    stubborn = ["sh", "-c", "trap '' HUP; echo deaf; sleep 1000"]
    thread = Thread(target=lambda: found.append(terminal.session(theirs, stubborn)))
    thread.start()
    said = b""
    while b"deaf" not in said:
        said += ours.recv(1000)
    ours.close()
    thread.join(30)
    assert found == [128 + signal.SIGKILL]


def test_nobody_there_ends_the_job_at_once(tmp_path: Path) -> None:
    assert terminal.main([str(tmp_path / "gone"), "sh"]) == 0


def test_messages_come_in_any_pieces() -> None:
    whole = terminal.message(b"d", b"abc") + terminal.size(24, 80) + terminal.message(b"e")
    reader = terminal.Messages()
    found = [part for at in range(len(whole)) for part in reader.of(whole[at : at + 1])]
    assert [kind for kind, _ in found] == [b"d", b"w", b"e"] and found[0][1] == b"abc"
    with pytest.raises(ValueError, match="a message of"):
        terminal.Messages().of(terminal._HEAD.pack(b"d", terminal.MOST + 1))
