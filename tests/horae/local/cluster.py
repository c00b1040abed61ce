"""A local cluster for tests, and jobs on it given as Python source."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from horae.elastic.supervisor.jobfolder import JobFolder
from horae.elastic.supervisor.processes import kill_marked
from horae.local.adapter import LocalCluster
from horae.local.books import Books
from horae.local.options import parse
from horae.port import JobState, ObservedJob, attend
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.horae.elastic.exec_job import ROOT, counter, until


class Cluster:
    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.state = path / "state"
        self.options = parse({"state": self.state, "nodes": "v100:2x2,k80:1x2", **options})
        self.port = LocalCluster(self.options)
        self.port.claim("tests")

    def spec(self, name: str, source: str | None = None, **changes: Any) -> JobSpec:
        """A job whose trainer is `source` (default: counts until it is stopped)."""
        script = self.path / f"{name}.py"
        script.write_text(textwrap.dedent(counter() if source is None else source))
        options: dict[str, Any] = {
            "name": name,
            "command": (sys.executable, str(script)),
            "gpus": GpuRange(1, 1, 4),
            "env": {"PYTHONPATH": str(ROOT)},
            "cwd": str(self.path),
            "checkpoint": str(self.path / "checkpoints" / name),
            "retries": 0,
            **changes,
        }
        return JobSpec(**options)

    def submit(self, name: str, source: str | None = None, **changes: Any) -> str:
        self.port.submit(name, self.spec(name, source, **changes))
        return name

    def job(self, name: str) -> ObservedJob:
        return next(job for job in attend(self.port).jobs if job.id == name)

    def wait(self, name: str, *states: JobState) -> ObservedJob:
        return self.wait_state(name, *states, log=self.log(name)[-2000:])

    def wait_state(self, name: str, *states: JobState, log: str = "not read") -> ObservedJob:
        def reached() -> ObservedJob | None:
            job = self.job(name)
            return job if job.state in states else None

        return until(f"{name} {' or '.join(states)} (log: {log})", reached)

    def running(self, name: str, source: str | None = None, where: dict[str, int] | None = None, **changes: Any) -> str:
        self.submit(name, source, **changes)
        self.port.start(name, where or {"v100-1": 1}, 1)
        self.wait(name, JobState.RUNNING)
        return name

    def folder(self, name: str) -> JobFolder:
        return JobFolder(str(self.state / "jobs" / name))

    def supervisor(self, name: str) -> int:
        state = self.folder(name).state()
        assert state is not None
        return int(state["pid"])

    def log(self, name: str) -> str:
        return self.port.read_log(name, 0).data.decode(errors="replace")

    def lives(self, name: str) -> bool:
        return Books(self.state).lives(name)

    def end(self) -> None:
        for path in (self.state / "jobs").iterdir():
            (path / "cancel").touch()
        deadline = time.monotonic() + 240
        for path in (self.state / "jobs").iterdir():
            while self.lives(path.name):
                assert time.monotonic() < deadline, f"the supervisor of {path.name} does not end"
                time.sleep(0.01)
            kill_marked("HORAE_JOB_DIR", str(path))
        self.port.close()
