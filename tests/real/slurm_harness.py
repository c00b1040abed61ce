"""What the contract suite and the bad days need of a real Slurm: jobs of users, arbiters, nodes that are lost."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from horae.port import ClusterPort, JobId, PortError, attend
from horae.spec import JobSpec
from slurm_plugin import connect
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently
from tests.real.slurm import RealSlurm, clear_partition, fresh_partition

T = TypeVar("T")
_TRAINER = Path(__file__).parents[1] / "contract" / "trainer.py"


class SlurmHarness:
    patience_s = 120.0
    can_lose_nodes = True

    def __init__(
        self,
        cluster: RealSlurm,
        memory: Path,
        partition: str | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`more`: options of the adapter beyond those that reach the cluster. On a busy host Slurm may need longer
        than a site's to follow a grant."""
        self.cluster, self._more = cluster, {"blocked_after_s": 12.0, **more}
        self.partition = partition or fresh_partition(cluster)
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
            f"#!/bin/bash\nexec {self.cluster.tool()} --retries {retries} --grace 60 --checkpoint {checkpoints} -- "
            f"python3 {self._there}/trainer.py {behaviour.value}\n"
        )
        word = f"--comment=horae:min={gpus[0]},max={gpus[1]},grace=60"
        return self.submit_script(script, f"--job-name={name}", "--gres=gpu:1", word)

    def submit_script(self, script: str, *options: str) -> JobId:
        """A user's own script; the port's id of the job (a task of it), which is observed by then."""
        patiently(self.port.heartbeat)  # a test that took long: a stale one lets new jobs pass
        number = self.cluster.submit(script, f"--partition={self.partition}", "--open-mode=append", *options)
        seen = patiently(lambda: attend(self.port))
        return next(job.id for job in seen.jobs if re.split("[._]", job.id)[0] == number)

    def other_arbiter(self) -> ClusterPort:
        port = connect({**self.cluster.options(self.partition), "state": str(self._memory), **self._more})
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
        with suppress(PortError):  # what is left then is ended, or found, by what follows
            for job in patiently(lambda: attend(self.port)).jobs:  # not scancel alone: its TERM asks to checkpoint
                with suppress(PortError):
                    self.port.cancel(job.id)
        clear_partition(self.cluster, self.partition)
        for port in self._ports:
            port.close()

    def _connect(self) -> ClusterPort:
        port = self.other_arbiter()
        patiently(lambda: port.claim("the arbiter"))
        patiently(port.heartbeat)
        return port
