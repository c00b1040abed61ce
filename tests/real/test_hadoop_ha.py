"""Two ResourceManagers: the standby's redirect is followed, and the survivor is found when the active one is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from horae.lab import default_folder
from horae.port import TryLater
from policy.model import BadInput
from tests.contract.waiting import patiently, wait_for
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.lab import private, settings
from yarn_bridge.lab.jars import jars

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]
_ROLES = {"zookeeper": "zookeeper", "rm1": "resourcemanager", "rm2": "resourcemanager"}


class Pair:
    """ZooKeeper and two ResourceManagers, each at its own loopback address."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.libraries = jars(cache, settings.RELEASES[0], print)
        self.net = private._free_net()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        names = {"rm1": f"{self.net}.1", "rm2": f"{self.net}.2"}
        self.urls = {name: f"http://{address}:{settings.RM_PORT}" for name, address in names.items()}
        shared = {
            "yarn.resourcemanager.ha.enabled": "true",
            "yarn.resourcemanager.cluster-id": "pair",
            "yarn.resourcemanager.ha.rm-ids": ",".join(names),
            "hadoop.zk.address": f"{self.net}.1:{settings.ZK_PORT}",
            "hadoop.zk.timeout-ms": "4000",
            "yarn.resourcemanager.store.class":
                "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore",
            # An application master nobody needs here, and its API wants HDFS.
            "yarn.webapp.api-service.enable": "false",
        }  # fmt: skip
        for name, address in names.items():
            shared[f"yarn.resourcemanager.hostname.{name}"] = address
            shared[f"yarn.resourcemanager.webapp.address.{name}"] = f"{address}:{settings.RM_PORT}"
        for name, address in names.items():
            site = settings.Site(address, address, address, f"{self.net}.1", data=str(folder / "data"))
            extra = {**shared, "yarn.resourcemanager.ha.id": name}
            settings.write_conf(folder / "etc" / name, site, settings.Daemon(bind=address), extra)
        (folder / "data").mkdir()

    def start(self, name: str) -> None:
        java = shutil.which("java")
        if java is None:
            pytest.skip("Hadoop needs Java")
        conf = self.folder / "etc" / ("rm1" if name == "zookeeper" else name)
        words = [java, "-Xmx300m", *settings.JVM, "-cp", f"{conf}:{self.libraries}/*", settings.CLASSES[_ROLES[name]]]
        if name == "zookeeper":
            words.append(str(conf / "zoo.cfg"))
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                words, env={**os.environ, "HADOOP_CONF_DIR": str(conf)}, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name, None)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    try:
        made = Pair(tmp_path, default_folder() / "hadoop")
    except BadInput as error:
        pytest.skip(f"no private Hadoop here: {error}")
    try:
        for name in _ROLES:
            made.start(name)
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)


def state(url: str) -> str:
    """ACTIVE, STANDBY, or empty while it does not answer. This page alone is not redirected."""
    manager = ResourceManager(HttpClient(Access((url,), "horae"), "ResourceManager"))
    try:
        return manager.info().ha_state
    except TryLater:
        return ""
    finally:
        manager.close()


def test_the_active_one_is_found_and_found_again(pair: Pair) -> None:
    wait_for("one is active, one stands by", lambda: roles(pair) == ["ACTIVE", "STANDBY"], 180.0)
    active = next(name for name, url in pair.urls.items() if state(url) == "ACTIVE")
    standby = next(name for name in pair.urls if name != active)

    # The standby first: it says where the active one is.
    manager = ResourceManager(HttpClient(Access((pair.urls[standby], pair.urls[active]), "horae"), "ResourceManager"))
    assert manager.metrics().nodes == 0
    assert manager.http.url == pair.urls[active]
    assert manager.nodes() == []

    # With the standby's address alone nobody else is told who asks, and the address that is missing is named.
    alone = ResourceManager(HttpClient(Access((pair.urls[standby],), "horae"), "ResourceManager"))
    with pytest.raises(TryLater, match=f"in standby and names {pair.urls[active].removeprefix('http://')}"):
        alone.metrics()
    alone.close()

    pair.kill(active)

    def answers() -> bool:
        try:
            return manager.metrics().nodes == 0
        except TryLater:
            return False

    wait_for("the survivor answers", answers, 120.0)
    assert manager.http.url == pair.urls[standby]
    manager.close()


def test_without_zookeeper_none_is_active_and_afterwards_one_is(pair: Pair) -> None:
    """The one that is active cannot prove it any more, and steps back; both answer, and name nobody."""
    wait_for("one is active, one stands by", lambda: roles(pair) == ["ACTIVE", "STANDBY"], 180.0)
    manager = ResourceManager(HttpClient(Access(tuple(pair.urls.values()), "horae"), "ResourceManager"))
    assert manager.nodes() == []
    pair.kill("zookeeper")
    wait_for("both stand by", lambda: roles(pair) == ["STANDBY", "STANDBY"], 180.0)
    with pytest.raises(TryLater, match=r"no ResourceManager answers: \S+ is in standby; \S+ is in standby.*ZooKeeper"):
        manager.apps()
    pair.start("zookeeper")
    wait_for("one is active again", lambda: roles(pair) == ["ACTIVE", "STANDBY"], 180.0)
    assert patiently(manager.apps) == []
    manager.close()


def roles(pair: Pair) -> list[str]:
    return sorted(state(url) for url in pair.urls.values())
