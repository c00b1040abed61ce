"""Real Hadoop clusters for tests: private processes, one cluster a release, once a test session.

What a killed run left behind is ended first: daemons and containers carry the folder of their lab, which says who
owns it. The tests of a release that run in one xdist group share its GPUs; each has a folder of its own.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from horae.lab import LabRequest, default_folder, processes
from horae.port import ClusterPort, JobId, JobState, attend
from horae.spec import JobSpec
from policy.model import EMPTY, BadInput, GpuRange, Pinning
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real import books
from tests.real.books import ALIVE
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop, processes_of
from yarn_bridge.options import SERVICES, parse_options

_TRAINER = Path(__file__).parents[1] / "contract" / "trainer.py"
_numbers = itertools.count(1)
#: What test runs that were killed left behind. A shell's line (`... 1>/FOLDER/stdout 2>/FOLDER/stderr`) holds a folder
#: too: read as one long name, it would be of a lab that is gone, and a living lab's container would be killed.
FOLDERS = re.compile(rb"(/[^\0=,:;<>&|'\"\s]*/pytest-[^\0=,:;<>&|'\"\s]*/hadoop[^/\0\s]*)/")
_CLUSTERS = pytest.StashKey[dict[str, PrivateHadoop]]()
NODES = (("v100", 4), ("v100", 4), ("k80", 4))
#: Nodes with as much memory and as many cores, on paper, as the samples of others ask for.
ROOMY = {
    "yarn.nodemanager.resource.memory-mb": "1048576",
    "yarn.nodemanager.resource.cpu-vcores": "1024",
    "yarn.scheduler.maximum-allocation-mb": "1048576",
    "yarn.scheduler.maximum-allocation-vcores": "1024",
}
T = TypeVar("T")


def cluster_of(
    release: str, config: pytest.Config, folders: pytest.TempPathFactory, settings: Mapping[str, str] = EMPTY
) -> PrivateHadoop:
    """The session's cluster of this release: every module has a fixture of its own, and they share it.

    `settings`: in yarn-site.xml; clusters with other ones are other clusters.
    """
    made = config.stash.setdefault(_CLUSTERS, {})
    name = " ".join([release, *sorted(f"{key}={value}" for key, value in settings.items())])
    if name not in made:
        processes.reap_orphans(FOLDERS)
        lab = PrivateHadoop(folders.mktemp(f"hadoop{release.replace('.', '')}-"), default_folder() / "hadoop")
        config.add_cleanup(lab.down)
        try:
            lab.up(LabRequest(name="test", nodes=len(NODES), gpus=NODES, release=release, options=settings))
        except BadInput as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no private Hadoop here: {error}")
        made[name] = lab
    return made[name]


@contextmanager
def ends_without_a_trace(lab: PrivateHadoop) -> Iterator[None]:
    """The lab is taken down behind this, and leaves its logs alone: no process, nothing in the temporary folder."""
    shared = Path(tempfile.gettempdir())
    before = {each.name for each in shared.iterdir()}
    try:
        yield
    finally:
        lab.down()
    assert not list(processes_of(f"{lab.folder}/"))
    assert {each.name for each in lab.folder.iterdir()} <= {"log"}
    # Others may make files there at the same time: by Java's names, and by Hadoop's.
    ours = ("jetty-", "libleveldbjni", "libnetty", "hsperfdata", "hadoop-", "Jetty_")
    left = {each.name for each in shared.iterdir() if each.name.startswith(ours)} - before
    assert not left


@pytest.fixture(scope="session")
def hadoop_342(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> PrivateHadoop:
    return cluster_of("3.4.2", pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def hadoop_336(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> PrivateHadoop:
    return cluster_of("3.3.6", pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def hadoop_bare(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> PrivateHadoop:
    """Neither the Services API nor node attributes."""
    settings = {"yarn.webapp.api-service.enable": "false", "yarn.nodemanager.node-attributes.provider": ""}
    return cluster_of("3.4.2", pytestconfig, tmp_path_factory, settings)


class YarnHarness:
    patience_s = 120.0

    def __init__(self, lab: PrivateHadoop, shared: Path, runtime: str = SERVICES) -> None:
        self.lab, self.shared, self.runtime = lab, shared, runtime
        self._mark = f"t{os.getpid()}-{next(_numbers)}"
        self._ports: list[YarnCluster] = []
        shutil.copy(_TRAINER, shared / "trainer.py")
        self.port: ClusterPort = self._connect()

    @property
    def can_lose_nodes(self) -> bool:
        """Only where a job can be pinned to the node that will be lost."""
        return self.port.capabilities().limits.pinning is Pinning.EXACT

    @property
    def options(self) -> dict[str, object]:
        more = {"folder": f"/user/horae/{self._mark}", "runtime": self.runtime, "slice_memory_mib": 320}
        return {**self.lab.facts(), **more}

    @property
    def facts(self) -> dict[str, str]:
        return {key: value for key, value in self.lab.facts().items() if isinstance(value, str)}

    def log(self, job: JobId) -> bytes:
        data, offset = b"", 0
        while True:
            chunk = patiently(functools.partial(self.port.read_log, job, offset))
            data, offset = data + chunk.data, chunk.next_offset
            if chunk.eof:
                return data

    def pause(self) -> None:
        time.sleep(0.2)  # each look at a job on the move costs the ResourceManager a question to its service

    def spec(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobSpec:
        url = str(self.lab.facts()["webhdfs"]).replace("http:", "webhdfs:")
        checkpoint = f"{url}/user/horae/{self._mark}-checkpoints/{name}"
        if behaviour is Behaviour.FAILS_ONCE:  # its trainer leaves a mark beside them, as in a folder
            checkpoint = str(self.shared / "checkpoints" / name)
        return JobSpec(
            name=name,
            command=(str(self.lab.facts()["python"]), str(self.shared / "trainer.py"), behaviour.value),
            gpus=GpuRange(requested=gpus[0], min=gpus[0], max=gpus[1]),
            checkpoint=checkpoint,
            memory_per_gpu=256 << 20,
            retries=1 if behaviour is Behaviour.FAILS_ONCE else 0,
            grace_s=60.0,  # a busy machine may take long over a clean stop
        )

    def submit(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobId:
        self.port.submit(name, self.spec(name, behaviour, gpus=gpus))
        return name

    def other_arbiter(self) -> ClusterPort:
        self._ports.append(YarnCluster(parse_options(self.options)))
        return self._ports[-1]

    def restart_arbiter(self) -> ClusterPort:
        self.port = self._connect()
        return self.port

    def lose_node(self, node: str) -> None:
        self.lab.lose_node(node)

    def restore_node(self, node: str) -> None:
        self.lab.start(node)

    def end(self) -> None:
        """End every service of the test, released ones too, and wait until all nodes are back and free. The scheduler's
        books must be right before and after."""
        port = YarnCluster(parse_options(self.options))
        self._ports.append(port)
        self.lab.wait_manager()
        patiently(lambda: port.claim("the end"))
        wrong = books.told(port.manager, lambda: attend(port).jobs)
        for job in patiently(lambda: attend(port)).jobs:
            port.cancel(job.id)
        for app in port.manager.apps(states=ALIVE):
            port.manager.kill(app.id, owner=app.user)
        wait_for("services end", lambda: not port.manager.apps(states=ALIVE))
        wait_for("GPUs are free", lambda: not any(node.gpus_used for node in port.manager.nodes()))
        after = books.told(port.manager, empty=True)
        for each in self._ports:
            each.close()
        assert not wrong, f"the scheduler's books before the end: {wrong}"
        assert not after, f"the scheduler's books when all had ended: {after}"

    def _connect(self) -> ClusterPort:
        port = self.other_arbiter()
        port.claim("the arbiter")
        return port


def kill_container(container: str) -> None:
    """Everything that runs in it, at once."""
    found = list(processes_of(f"/{container}"))
    assert found, f"nothing runs in {container}"
    for pid in found:
        processes.kill(pid)


def running(cluster: Driver, harness: YarnHarness, name: str) -> str:
    """A gang of two that checkpoints all the time, and may fail once."""
    spec = replace(harness.spec(name, Behaviour.TRAINS), retries=1, grace_s=120.0)
    harness.port.submit(name, spec)
    cluster.wait(name, JobState.QUEUED)
    cluster.start(name, cluster.spread(1))
    cluster.wait(name, JobState.RUNNING)
    cluster.wait_progress(name, 15)  # far enough for a checkpoint
    return name


def workers(port: YarnCluster, job: str) -> list[str]:
    return [each.name for each in port.files.record(job).workers]  # type: ignore[union-attr]
