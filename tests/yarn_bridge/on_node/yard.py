"""Workers at a gate, each a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from horae.elastic.stores import documents
from horae.elastic.supervisor.shape import free_ports
from tests.horae.elastic.exec_job import ELASTIC, PATIENCE_S, ROOT, until


class Yard:
    """Some workers and the arbiter's side of their gate."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gate = path / "gate"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def worker(self, name: str, source: str, gpus: int = 1, **env: str) -> None:
        path = self.path / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        self.supervise(name, [sys.executable, str(path)], gpus, PYTHONPATH=str(ROOT), **env)

    def supervise(self, name: str, command: list[str], gpus: int = 1, **env: str) -> None:
        home = self.path / name
        home.mkdir()
        argv = [sys.executable, str(ELASTIC), "--gate", f"file://{self.gate}", "--member", name, "--gpus", str(gpus)]
        argv += ["--checkpoint", str(self.path / "ckpt"), "--", *command]
        self.workers[name] = subprocess.Popen(
            argv,
            cwd=home,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(f"{name} waits", (self.gate / "members" / name).exists)

    def open(self, epoch: int, *members: str, gpus: int = 1) -> None:
        documents.put(str(self.gate / "epoch"), b"%d" % epoch)
        listed = [{"name": name, "gpus": gpus, "host": "127.0.0.1"} for name in members]
        self.say({"epoch": epoch, "state": "open", "members": listed, "port": free_ports()})

    def say(self, value: dict[str, Any]) -> None:
        documents.put(str(self.gate / "gate"), json.dumps(value).encode())

    def ack(self, name: str, epoch: int, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        path = self.gate / "acks" / name

        def found() -> Any:
            value = json.loads(path.read_text()) if path.exists() else {}
            return value if value.get("epoch") == epoch else None

        return dict(until(f"{name} acknowledges epoch {epoch}", found, patience_s))

    def log(self, name: str) -> str:
        path = self.path / name / ".horae" / "output.log"
        return path.read_text() if path.exists() else ""
