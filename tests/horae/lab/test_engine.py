"""An engine is started once, however many ask: against a stand-in of dockerd, which no test may start for real."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from horae.lab import engine
from policy.model import BadInput
from tests.waiting import eventually

#: Takes a moment to listen, as dockerd does, and writes down that it was started. Nothing checks for another.
DOCKERD = """#!{python}
import http.server, json, os, socketserver, sys, time
print("the network is broken", file=sys.stderr, flush=True)
with open("{folder}/started", "a") as f:
    f.write(f"{{os.getpid()}}\\n")
time.sleep(1)
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"ApiVersion": "1.41", "MinAPIVersion": "1.12"}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        return
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def get_request(self):
        return (self.socket.accept()[0], ("here", 0))
if not os.path.exists("{folder}/broken"):
    if os.path.exists("{folder}/s"):
        os.unlink("{folder}/s")
    Server("{folder}/s", Answers).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    program = tmp_path / "bin/dockerd"
    program.parent.mkdir()
    program.write_text(DOCKERD.format(python=sys.executable, folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    monkeypatch.setattr(engine, "STARTING", str(tmp_path / "lock"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    yield tmp_path
    for pid in started(tmp_path):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def started(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "started").read_text().split()]


def test_many_who_ask_at_once_start_one_engine(folder: Path) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        clients = list(pool.map(lambda _: engine.engine(said.append), range(4)))
    assert {client.version()["ApiVersion"] for client in clients} == {"1.41"}
    assert len(started(folder)) == len(said) == 1


def test_one_that_does_not_start_is_told_with_its_last_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "broken").touch()
    waits = SimpleNamespace(sleep=lambda _: eventually((folder / "started").exists))
    monkeypatch.setattr(engine, "time", waits)
    with pytest.raises(BadInput, match=r"dockerd does not start.*the network is broken"):
        engine.engine(lambda _: None)
