"""Slurm's clients, one at a time, on a real Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.base import Client, Operation
from tests.contract.driver import Driver
from tests.real.slurm import Containers
from tests.real.slurm_driving import harness
from tests.real.slurm_harness import SlurmHarness


def opened(cluster: Containers, tmp_path: Path, **more: Any) -> Driver:
    options = {"client": "slurmrestd", "rest_url": cluster.rest_url(), "timeout_s": 20, **more}
    return Driver(SlurmHarness(cluster, tmp_path / "memory", more=options))


def ended(driver: Driver) -> None:
    harness(driver).end()


def port_of(driver: Driver) -> SlurmCluster:
    assert isinstance(driver.port, SlurmCluster)
    return driver.port


def client(driver: Driver, name: str) -> Client:
    return next(each for each in port_of(driver).client.clients if each.name == name)


def way(driver: Driver, operation: Operation) -> str:
    return next(choice.client for choice in port_of(driver).client.choices() if choice.operation is operation)


class OwnRest:
    """A slurmrestd beside slurmctld, so that killing it harms nobody else."""

    def __init__(self, cluster: Containers, where: str, auth: str, user: str) -> None:
        self._cluster, self._where, self._auth, self._user = cluster, where, auth, user

    def start(self) -> None:
        jwt = "SLURM_JWT=daemon " if self._auth == "jwt" else ""
        start = f"cd /tmp; exec runuser -u {self._user} -- env {jwt}slurmrestd -a rest_auth/{self._auth} {self._where}"
        security = {"SLURMRESTD_SECURITY": "disable_unshare_sysv,disable_unshare_files"}
        self._cluster.lab.container("ctl").exec_run(["sh", "-c", start], detach=True, environment=security)

    def stop(self) -> None:
        self._cluster.lab.exec("ctl", ["pkill", "-KILL", "-u", self._user, "slurmrestd"])
