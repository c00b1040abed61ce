"""A real Hadoop as the owners of jobs and its administrators use it: the bridge beside YARN's own commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.driver import Driver
from tests.contract.waiting import patiently
from tests.real import books
from tests.real.hadoop import YarnHarness
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.records import App
from yarn_bridge.lab.private import PrivateHadoop

APPS = "/ws/v1/cluster/apps"
OWNER, ADMIN = "horae", "root"


@pytest.fixture(name="harness")
def shop_harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


@dataclass
class Shop:
    harness: YarnHarness
    cluster: Driver
    port: YarnCluster

    def service(self, job: str) -> str:
        return self.port.files.service_name(job)

    def app(self, job: str) -> App:
        (found,) = [
            each
            for each in patiently(lambda: self.port.manager.apps(states=books.ALIVE))
            if each.name == self.service(job)
        ]
        return found

    def change(self, job: str, what: str, body: dict[str, object], who: str = OWNER) -> None:
        path = f"{APPS}/{self.app(job).id}/{what}"
        self.port.manager.http.ask("PUT", path, owner=who, json=body).check(f"{what} of {job}")

    def flex(self, job: str, **counts: int) -> None:
        self.port.services.flex(self.service(job), OWNER, counts)

    def component(self, job: str, node: str) -> str:
        record = self.port.files.record(job)
        assert record is not None
        return dict(record.components)[node]


@pytest.fixture(name="shop")
def a_shop(harness: YarnHarness) -> Shop:
    assert isinstance(harness.port, YarnCluster)
    return Shop(harness, Driver(harness), harness.port)
