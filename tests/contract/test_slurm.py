"""The contract over real, unpatched Slurm: 22.05 as private processes, 24.11 and 26.05 in containers over SSH."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import ClusterPort, JobId
from horae.spec import JobSpec
from slurm_plugin import connect
from tests.contract.harness import Behaviour
from tests.contract.suite import *  # noqa: F403
from tests.real.slurm import (
    RealSlurm,
    clear_partition,
    fresh_partition,
    private_slurm,  # noqa: F401 - a fixture
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
)

pytestmark = pytest.mark.real

_TRAINER = Path(__file__).with_name("trainer.py")


class SlurmHarness:
    patience_s = 40.0
    can_lose_nodes = True

    def __init__(self, cluster: RealSlurm, memory: Path) -> None:
        self.cluster = cluster
        self.partition = fresh_partition(cluster)
        self._memory = memory
        self._ports: list[ClusterPort] = []
        here, self._there = cluster.shared()
        shutil.copy(_TRAINER, here / "trainer.py")
        self.port = self._connect()

    def pause(self) -> None:
        time.sleep(0.05)

    def spec(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobSpec:
        raise AssertionError("Slurm's users own their specifications")

    def submit(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobId:
        retries = 1 if behaviour is Behaviour.FAILS_ONCE else 0
        checkpoints = f"{self._there}/checkpoints-{self.partition}-{name}"
        script = (
            f"#!/bin/bash\nexec {self.cluster.tool()} --retries {retries} --grace 20 --checkpoint {checkpoints} -- "
            f"python3 {self._there}/trainer.py {behaviour.value}\n"
        )
        word = f"--comment=horae:min={gpus[0]},max={gpus[1]},grace=20"
        number = self.cluster.submit(
            script,
            f"--partition={self.partition}",
            f"--job-name={name}",
            "--gres=gpu:1",
            word,
            "--open-mode=append",
        )
        return next(job.id for job in self.port.observe().jobs if job.id.split(".")[0] == number)

    def other_arbiter(self) -> ClusterPort:
        port = connect({**self.cluster.options(self.partition), "state": str(self._memory)})
        self._ports.append(port)
        return port

    def restart_arbiter(self) -> ClusterPort:
        self.port = self._connect()
        return self.port

    def lose_node(self, node: str) -> None:
        self.cluster.lose_node(node)

    def restore_node(self, node: str) -> None:
        self.cluster.restore_node(node)

    def end(self) -> None:
        for job in self.port.observe().jobs:  # not scancel alone: its TERM is a request to checkpoint
            self.port.cancel(job.id)
        clear_partition(self.cluster, self.partition)
        for port in self._ports:
            port.close()

    def _connect(self) -> ClusterPort:
        port = self.other_arbiter()
        port.claim("the arbiter")
        port.heartbeat()
        return port


@pytest.fixture(params=["private_slurm", "slurm_2411", "slurm_2605"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SlurmHarness]:
    made = SlurmHarness(request.getfixturevalue(request.param), tmp_path / "memory")
    yield made
    made.end()
