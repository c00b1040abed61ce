"""Real Slurm clusters for tests: one private (22.05, plain processes) and one of containers a release.

A cluster is brought up at the first test that asks for it, once a pytest worker, and taken down with the session;
what a crashed run left is cleaned up by its label. Each test gets a partition of its own on the same nodes, so that
nothing of an earlier test is seen.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from horae.lab import LabRequest, processes
from horae.lab.engine import engine as docker_engine
from policy.model import BadInput
from slurm_plugin.lab import settings
from slurm_plugin.lab.containers import SPOOL, ContainerSlurm
from slurm_plugin.lab.private import PrivateSlurm
from slurm_plugin.lab.pyslurm import with_pyslurm
from tests.contract.waiting import wait_for

ROOT = Path(__file__).parents[2]
#: slurm.conf of a host that is controller and node, `site`, with four GPUs; without its partition.
ONE_HOST = """ClusterName=c
SlurmctldHost=site
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
NodeName=site CPUs=8 RealMemory=4000 Gres=gpu:v100:4 State=UNKNOWN
"""
CACHE = ROOT / ".cache" / "slurm"
_numbers = itertools.count(1)
#: what test runs that were killed left behind
_FOLDERS = re.compile(rb"(?:^|\0)SLURM_CONF=(/[^\0]*/pytest-[^\0]*/slurm\d*)/etc/slurm\.conf(?:\0|$)")


class RealSlurm(Protocol):
    release: str

    def run(self, *argv: str) -> str:
        """A command as the cluster's administrator; its output. Raises on failure."""
        ...

    def submit(self, script: str, *options: str) -> str:
        """sbatch as an ordinary user (where there is one); the job's id."""
        ...

    def options(self, partition: str) -> dict[str, Any]: ...

    def shared(self) -> tuple[Path, str]:
        """The folder that nodes see: here, and there."""
        ...

    def lose_node(self, name: str) -> None:
        """The node and what runs on it are gone, and slurmctld knows."""
        ...

    def restore_node(self, name: str) -> None: ...

    def tool(self) -> str:
        """horae-exec, as nodes see it."""
        ...


class Private:
    release = "22.05"

    def __init__(self, folder: Path) -> None:
        reap_orphans()
        self.lab = PrivateSlurm(folder, CACHE)
        self.lab.up(LabRequest(name="test", nodes=8))
        self._shared = folder / "shared"
        self._shared.mkdir(exist_ok=True)

    def run(self, *argv: str) -> str:
        return self.lab.run(list(argv)).stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        path = self._shared / f"script-{next(_numbers)}.sh"
        path.write_text(script)
        return self.run("sbatch", "--parsable", f"--chdir={self._shared}", *options, str(path))

    def options(self, partition: str) -> dict[str, Any]:
        return {"partitions": [partition], "spool": str(self.lab.spool), "env": self.lab.env()}

    def shared(self) -> tuple[Path, str]:
        return self._shared, str(self._shared)

    def lose_node(self, name: str) -> None:
        self.lab.lose_node(name)
        _tell_lost(self, name)

    def restore_node(self, name: str) -> None:
        before = _slurmd_start(self, name)
        self.lab.start_node(name)
        wait_for("slurmd registers", lambda: _slurmd_start(self, name) not in {before, "None", ""})
        self.run("scontrol", "update", f"nodename={name}", "state=resume")

    def tool(self) -> str:
        return str(self.lab.folder / "horae/bin/horae-exec")

    def down(self) -> None:
        self.lab.down()


class Containers:
    def __init__(self, release: str, name: str, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self.release = release
        self.lab = ContainerSlurm(name, folder, lambda text: None)
        self.lab.down()
        self.lab.up(LabRequest(name=name, release=release, nodes=4, options=options or {}))

    def run(self, *argv: str) -> str:
        return self.lab.must("ctl", argv)

    def submit(self, script: str, *options: str) -> str:
        name = f"script-{os.getpid()}-{next(_numbers)}.sh"
        (self.shared()[0] / name).write_text(script)
        argv = ["sbatch", "--parsable", "--chdir=/shared", *options, f"/shared/{name}"]
        return self.lab.must("ctl", argv, user="alice").splitlines()[-1]  # before it may come warnings

    def options(self, partition: str) -> dict[str, Any]:
        return {**self.lab.facts(), "spool": SPOOL, "partitions": [partition]}

    def shared(self) -> tuple[Path, str]:
        return self.lab.folder / "shared", "/shared"

    def lose_node(self, name: str) -> None:
        # Told first: with the container gone its name does not resolve either, scontrol hangs over it and the update
        # is lost. What runs there dies with the container a moment later.
        _tell_lost(self, name)
        container = self.lab.container(name)
        container.kill()
        container.wait(timeout=300)

    def restore_node(self, name: str) -> None:
        before = _slurmd_start(self, name)
        self.lab.container(name).start()
        wait_for("slurmd registers", lambda: _slurmd_start(self, name) not in {before, "None", ""})
        self.run("scontrol", "update", f"nodename={name}", "state=resume")

    def tool(self) -> str:
        return "/shared/horae/bin/horae-exec"

    def pyslurm(self) -> str:
        return with_pyslurm(self.lab, CACHE)

    def rest_url(self) -> str:
        return f"http://{self.lab.address('rest')}:6820"

    def down(self) -> None:
        self.lab.down()


def _tell_lost(cluster: RealSlurm, name: str) -> None:
    """Drained too: a last registration of the dead slurmd, which a busy slurmctld reads after this, would bring a node
    that is only down back to service."""
    for state in ("drain", "down"):
        cluster.run("scontrol", "update", f"nodename={name}", f"state={state}", "reason=test")


def _slurmd_start(cluster: RealSlurm, name: str) -> str:
    """When the node's slurmd began, as slurmctld last heard: another time once a new one has registered."""
    text = cluster.run("scontrol", "show", "node", name)
    return text.partition("SlurmdStartTime=")[2].split()[0]


def fresh_partition(cluster: RealSlurm) -> str:
    """A managed partition of all nodes that no other test has used."""
    name = f"t{time.time_ns() // 1000 % 10**12}"
    cluster.run("scontrol", "create", f"PartitionName={name}", "Nodes=ALL", "MaxTime=INFINITE", "State=UP")
    return name


def clear_partition(cluster: RealSlurm, partition: str) -> None:
    """End every job in it and wait until its nodes are free."""

    def ended() -> bool:
        cluster.run("scancel", "-p", partition)
        return not cluster.run("squeue", "-h", "-p", partition, "-t", "PD,R,CG,CF,S,SE")

    wait_for("jobs of the test end", ended)


def reap_orphans() -> None:
    """End the private clusters of test runs that were killed."""
    processes.reap_orphans(_FOLDERS)


def worker_name() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


@pytest.fixture(scope="session")
def private_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    try:
        made = Private(tmp_path_factory.mktemp("slurm"))
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no private Slurm here: {error}")
    yield made
    made.down()


def containers_of(release: str, folder: Path, kind: str = "t", options: Mapping[str, str] | None = None) -> Containers:
    mark = hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]
    try:
        docker_engine(lambda text: None)
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no Docker for a cluster of containers: {error}")
    return Containers(release, f"{kind}-{mark}-{worker_name()}-{release.replace('.', '')}", folder, options)


@pytest.fixture(scope="session")
def slurm_2205(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    made = containers_of("22.05", tmp_path_factory.mktemp("slurm2205"))
    yield made
    made.down()


@pytest.fixture(scope="session")
def slurm_2411(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    made = containers_of("24.11", tmp_path_factory.mktemp("slurm2411"))
    yield made
    made.down()


@pytest.fixture(scope="session")
def slurm_2605(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    made = containers_of("26.05", tmp_path_factory.mktemp("slurm2605"))
    yield made
    made.down()


#: A cluster as sites run it: fair share, limits enforced, a partition that preempts, the scheduler's own pace.
SITE = {
    "accounting": "AccountingStorageTRES=gres/gpu,gres/gpu:v100,license/matlab\nLicenses=matlab:2\n"
    "AccountingStorageEnforce=associations,limits,qos,safe",
    "scheduling": "PriorityType=priority/multifactor\nPriorityWeightFairshare=10000\nPriorityWeightAge=1000\n"
    "PriorityCalcPeriod=1\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
    "SchedulerParameters=bf_continue,bf_max_job_test=500",
    "partitions": "PartitionName=dl Nodes=n[1-4] Default=YES PriorityTier=10 PreemptMode=REQUEUE MaxTime=1-0\n"
    "PartitionName=raw Nodes=n[1-4] PriorityTier=10 PreemptMode=OFF\n"
    "PartitionName=urgent Nodes=n[1-4] PriorityTier=100 PreemptMode=OFF",
}


#: The same with jobs confined to what they were granted, a prolog that takes its time, and memory that counts.
CONFINED = {
    **SITE,
    "select": "CR_Core_Memory",
    "isolation": settings.CGROUPS,
    "cgroup.conf": settings.CGROUP_CONF,
    "slurm.conf": "DefMemPerCPU=500\nProlog=/etc/slurm/prolog.sh\n",
}


def _limited(made: Containers) -> Containers:
    """Whom the site limits, and to what."""
    for words in ("add qos two MaxTRESPerUser=gres/gpu=2", "modify user alice set qos+=two"):
        made.run("sacctmgr", "-i", *words.split())
    return made


@pytest.fixture(scope="session")
def slurm_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    made = _limited(containers_of("24.11", tmp_path_factory.mktemp("slurmsite"), "s", SITE))
    yield made
    made.down()


@pytest.fixture(scope="session")
def slurm_site_2605(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    made = _limited(containers_of("26.05", tmp_path_factory.mktemp("slurmsite2605"), "s", SITE))
    yield made
    made.down()


@pytest.fixture(scope="session")
def slurm_confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    made = _limited(containers_of("24.11", tmp_path_factory.mktemp("slurmconf"), "c", CONFINED))
    prolog = made.lab.folder / "etc/prolog.sh"
    prolog.write_text("#!/bin/sh\nwhile [ -e /shared/prolog-waits ]; do sleep 0.1; done\n")
    prolog.chmod(0o755)
    yield made
    made.down()
