"""The contract over the local cluster: real processes on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.local import connect
from horae.local.books import Books
from horae.port import ClusterPort, JobId
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.contract.harness import Behaviour
from tests.contract.suite import *  # noqa: F403
from tests.contract.waiting import BUSY

_TRAINER = Path(__file__).with_name("trainer.py")
_ROOT = Path(__file__).parents[2]


class LocalHarness:
    patience_s = 120.0
    can_lose_nodes = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: list[ClusterPort] = []
        self.port = self.restart_arbiter()

    def pause(self) -> None:
        time.sleep(0.02)

    def spec(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobSpec:
        return JobSpec(
            name=name,
            command=(sys.executable, str(_TRAINER), behaviour.value),
            gpus=GpuRange(requested=gpus[0], min=gpus[0], max=gpus[1]),
            env={"PYTHONPATH": str(_ROOT)},
            cwd=str(self._folder),
            checkpoint=str(self._folder / "checkpoints" / name),
            retries=1 if behaviour is Behaviour.FAILS_ONCE else 0,
            grace_s=20.0,
        )

    def submit(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobId:
        self.port.submit(name, self.spec(name, behaviour, gpus=gpus))
        return name

    def other_arbiter(self) -> ClusterPort:
        self._ports.append(connect({"state": self._folder / "state", "nodes": "v100:2x3,k80:1x2"}))
        return self._ports[-1]

    def restart_arbiter(self) -> ClusterPort:
        self.port = self.other_arbiter()
        self.port.claim("ours")
        return self.port

    def lose_node(self, node: str) -> None:
        (self._folder / "state" / "nodes" / node).write_text("down\n")

    def restore_node(self, node: str) -> None:
        (self._folder / "state" / "nodes" / node).unlink()

    def end(self) -> None:
        """Cancel what still runs, released jobs too, and wait until no process is left."""
        for job in (self._folder / "state" / "jobs").iterdir():
            (job / "cancel").touch()
        deadline = time.monotonic() + BUSY * self.patience_s
        for job in (self._folder / "state" / "jobs").iterdir():
            while Books(self._folder / "state").lives(job.name):
                assert time.monotonic() < deadline, f"the supervisor of {job.name} does not end"
                time.sleep(0.01)
        for port in self._ports:
            port.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(tmp_path)
    yield made
    made.end()
