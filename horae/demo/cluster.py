"""The demo's stage: a private arbiter over a private local cluster, in one folder, gone without a trace afterwards."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

from horae.api.client import Client
from horae.api.errors import ApiError
from horae.api.service import Service
from horae.arbiter.observe.measurements import SdkProfiles
from horae.config import Config, parse
from horae.demo.scenario import Scenario
from policy import catalogue
from policy.model import BadInput, Seconds
from policy.text.textform import to_yaml

#: Logs are read this often: a picture that moves is worth the reading.
PROFILE_S = 1.0
#: Under policies that lease GPUs.
LEASE_S = 10.0
#: How long cancelled jobs have to be gone before the stage is taken down around them.
LEAVE_S = 60.0


@dataclass(frozen=True, slots=True)
class RunningDemo:
    folder: Path
    service: Service
    client: Client
    keep: bool
    _closing: Lock = field(default_factory=Lock)
    _closed: Event = field(default_factory=Event)

    def close(self) -> None:
        """End every job, wait until its processes are gone, stop the arbiter, take the folder away. Once is enough:
        who comes second returns when it is done."""
        with self._closing:
            if self._closed.is_set():
                return
            self._closed.set()
            try:
                _clear(self.client)
            finally:
                self.service.stop()
                if not self.keep:
                    shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def log(self, job: str) -> str:
        """Everything the job's ranks wrote, over all its starts."""
        try:
            return b"".join(self.client.log(job)).decode(errors="replace")
        except ApiError:  # handed in a moment ago: the cluster does not know it yet, so it has said nothing
            return ""


def config(scenario: Scenario, folder: Path, policy: str, nodes: str | None) -> Config:
    """The arbiter's configuration: an ordinary one, with the patience of somebody who watches."""
    options: dict[str, Any] = {
        "state": str(folder / "cluster"),
        "nodes": nodes or scenario.nodes,
        "speeds": dict(scenario.speeds),
    }
    data: Mapping[str, Any] = {
        "state_dir": str(folder / "arbiter"),
        "cluster": {"adapter": "local", "options": options},
        "pools": [{"name": "demo", "mode": "enforce", "policy": policy, "options": _options(policy)}],
        "tenants": [{"name": name, "weight": weight} for name, weight in scenario.tenants.items()],
        "gpu_types": dict(scenario.speeds),
        "rounds": {"tick_s": 1.0, "busy_s": 0.2, "debounce_s": 0.1, "quiet_s": 5.0, "decide_s": 10.0},
        "guards": {"min_run_s": 6.0, "restarts_per_hour": 120, "restart_cost_s": 3.0, "horizon_s": 60.0, "gain": 0.5},
        "api": {"socket": str(folder / "api.sock")},
    }
    return parse(to_yaml(data), "the demo's configuration")


def _options(policy: str) -> dict[str, Any]:
    """Leases as short as the demo: by default they are longer than it plays."""
    return {"lease": LEASE_S} if any(o.name == "lease" for o in catalogue.find(policy).options) else {}


@contextmanager
def stage(
    scenario: Scenario, policy: str, *, nodes: str | None = None, keep: bool = False, parent: Path | None = None
) -> Iterator[RunningDemo]:
    """An arbiter that serves. At the end every job is ended, every process is gone, and so is the folder."""
    folder = Path(tempfile.mkdtemp(prefix="horae-demo-", dir=parent))
    try:
        service = Service(config(scenario, folder, policy, nodes), profiles=SdkProfiles(every_s=PROFILE_S))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    service.start()
    built = RunningDemo(folder, service, Client(service.socket), keep)
    try:
        yield built
    finally:
        built.close()


def _clear(client: Client) -> None:
    """End what still runs, and wait until it has left."""
    deadline = time.monotonic() + LEAVE_S
    while time.monotonic() < deadline:
        left = [j["id"] for j in client.status()["jobs"]]
        if not left:
            return
        for job in left:
            client.cancel(job, "the demo is over")
        time.sleep(0.2)


def gpus(nodes: str) -> int:
    """How many GPUs a description of nodes has. Raises BadInput."""
    from horae.local.options import parse as parse_options

    try:
        return sum(n.gpus for n in parse_options({"state": "unused", "nodes": nodes}).nodes)
    except BadInput as error:
        raise BadInput(error.message, field="--nodes", value=nodes, remedy=error.remedy) from error


def wait_ready(client: Client, patience_s: Seconds = 90.0) -> None:
    """Until the arbiter has looked at its cluster."""
    deadline = time.monotonic() + patience_s
    while not client.status()["nodes"]:
        if time.monotonic() > deadline:
            raise TimeoutError("the arbiter does not show its cluster")
        time.sleep(0.05)
