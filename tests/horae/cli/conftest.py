"""A small site for commands: an arbiter over the in-memory cluster, and the command line in this process."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client
from horae.api.service import Service
from horae.arbiter import service as arbiter
from horae.arbiter.decide.policy_runner import Inline
from horae.cli import main
from horae.config import Config
from policy.decide import decide
from tests.waiting import eventually


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Horae = Callable[..., Said]


@pytest.fixture
def horae(capsys: pytest.CaptureFixture[str]) -> Horae:
    """`horae WORDS`: what it said and how it ended. A traceback is never said."""

    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    return run


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """An arbiter that every command of the test finds. Its policy runs in here: a process for it costs as much."""
    monkeypatch.setattr(arbiter, "Worker", lambda: Inline(decide))
    folder = Path(tempfile.mkdtemp(prefix="horae-"))
    data = {
        "state_dir": str(folder / "state"),
        "cluster": {"adapter": "fake", "options": {"iteration_s": 0.05, "start_s": 0.05, "stop_s": 0.05}},
        "pools": [{"name": "main", "mode": "enforce", "policy": "fifo"}],
        "tenants": [{"name": "vision", "weight": 2.0}, {"name": "speech"}],
        "rounds": {"tick_s": 0.2, "busy_s": 0.05, "debounce_s": 0.01},
        "api": {"socket": str(folder / "a.sock")},
    }
    service = Service(Config.model_validate(data))
    service.start()
    monkeypatch.setenv("HORAE_SOCKET", str(service.socket))
    client = Client(service.socket)
    eventually(lambda: client.status()["nodes"])
    yield client
    service.stop()
    shutil.rmtree(folder)
