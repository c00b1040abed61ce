from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from horae.api import peers
from horae.api.client import Client
from horae.api.limits import Doors
from horae.api.privacy.access import AccessRules
from horae.api.routes import create_app
from horae.api.server import Server
from horae.api.service import Service
from horae.config import Config
from tests.horae.api.backend import Book
from tests.waiting import eventually


@dataclass
class Caller:
    """Who the kernel says is calling; tests that are not root change it here, under the socket's own code."""

    monkeypatch: pytest.MonkeyPatch

    def becomes(self, name: str, uid: int = 54321) -> None:
        self.monkeypatch.setattr(peers, "peer_uid", lambda _: uid)
        self.monkeypatch.setattr(
            peers, "user_name", lambda number: name if number == uid else "root" if number == 0 else str(number)
        )


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Caller:
    return Caller(monkeypatch)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path that every user can enter: unix sockets take 107 bytes, and other users must reach it."""
    path = Path(tempfile.mkdtemp(prefix="horae-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


Serve = Callable[..., Client]


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Serve a backend on a real unix socket; returns a client of it."""
    servers: list[Server] = []

    def start(book: Book, doors: Doors | None = None, **site: Any) -> Client:
        path = folder / f"{len(servers)}.sock"
        server = Server(create_app(book, AccessRules(**site)), path, doors=doors)
        server.start()
        servers.append(server)
        client = Client(path, timeout_s=200)
        _ready(client)
        return client

    yield start
    for server in servers:
        server.stop()


def _ready(client: Client) -> None:
    client.metrics()  # the socket listens before the thread answers: the first call waits for it


@pytest.fixture
def me() -> str:
    return peers.user_name(os.getuid())


TENANTS = [{"name": "vision", "weight": 2.0, "users": ["ann"]}, {"name": "speech", "users": ["ben"]}]


Build = Callable[..., Client]


def config(folder: Path, **changes: Any) -> Config:
    data: dict[str, Any] = {
        "state_dir": str(folder / "state"),
        "cluster": {"adapter": "fake", "options": {"iteration_s": 0.02, "start_s": 0.05, "stop_s": 0.05}},
        "pools": [{"name": "main", "mode": "enforce", "policy": "fifo"}],
        "tenants": TENANTS,
        "operators": ["olga"],
        "rounds": {"tick_s": 0.2, "busy_s": 0.05, "debounce_s": 0.01},
        "api": {"socket": str(folder / "a.sock")},
        **changes,
    }
    return Config.model_validate(data)


@pytest.fixture
def build(folder: Path) -> Iterator[Build]:
    """A service over a fresh in-memory cluster; returns a client."""
    running: list[Service] = []

    def start(**changes: Any) -> Client:
        service = Service(config(folder, **changes))
        service.start()
        running.append(service)
        client = Client(service.socket, timeout_s=200)
        eventually(lambda: client.status()["nodes"])
        return client

    yield start
    for service in running:
        service.stop()
