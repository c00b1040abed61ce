"""Horae's clients, `install yarn` and `doctor` on a real cluster's daemons."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae import sites
from horae.doctor import Verdict
from horae.port import Never, TryLater
from tests.real import books
from tests.real.hadoop import cluster_of, patiently, wait_for
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services, definition_path
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import Options, parse_options
from yarn_bridge.site import YarnSite, checks

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]


@pytest.fixture(scope="module", params=["3.4.2", pytest.param("3.3.6", marks=pytest.mark.soak)])
def cluster(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> PrivateHadoop:
    return cluster_of(request.param, pytestconfig, tmp_path_factory)


@pytest.fixture
def options(cluster: PrivateHadoop) -> Options:
    return parse_options(cluster.facts())


@pytest.fixture
def manager(options: Options) -> Iterator[ResourceManager]:
    made = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    yield made
    books.check(made)
    made.close()


def test_install_puts_a_queue_in_and_takes_it_out(manager: ResourceManager, options: Options, tmp_path: Path) -> None:
    given = {
        "rm": options.resource_manager[0],
        "until": "restart",  # these labs keep their queues in memory
        "queue": "root.trial",
        "capacity": "10",
        "from": "default",
        "out": str(tmp_path / "out"),
        "units": str(tmp_path / "units"),
    }
    site, record = YarnSite(), tmp_path / "record.json"
    before = manager.scheduler_conf()
    sites.apply(site.changes(given)[0], record)
    found = queues(manager.scheduler())
    assert found.find("root.trial").state == "RUNNING"
    assert found.find("default").weight == 10.0
    assert sites.pending(site.changes(given)[0]) == []
    done, left = sites.restore(record, site.place)
    assert (len(done), left) == (4, [])
    assert manager.scheduler_conf() == before


def test_doctor_finds_the_lab_fit_for_horae(cluster: PrivateHadoop) -> None:
    found = checks(cluster.facts())
    failed = [f"{check.name}: {check.text}" for check in found if check.verdict is Verdict.FAIL]
    assert failed == []
    passed = {check.name for check in found if check.verdict is Verdict.OK}
    assert {"Services API", "GPUs", "node attributes", "queue", "ZooKeeper", "WebHDFS",
            "HDFS /tmp", "framework", "restart of a NodeManager", "HDFS attributes"} <= passed  # fmt: skip
    (end,) = [check for check in found if check.name == "end of a file"]
    assert (end.verdict, "400 ms for the end of a file (DataNode" in end.text) == (Verdict.WARN, True)
    (way,) = [check.text.partition(":")[0] for check in found if check.name == "runtime"]
    if cluster.release == "3.3.6":
        assert way == "slices, on named nodes"
        found = checks({**cluster.facts(), "runtime": "services"})
        (unpinned,) = [check for check in found if check.name == "named nodes"]
        assert unpinned.verdict is Verdict.WARN
        assert "3.4.0" in unpinned.remedy
    else:
        assert way == "services, on named nodes"
        assert "placement handler" in passed


def test_a_service_through_its_life_with_the_traps_of_the_api(
    manager: ResourceManager, options: Options, request: pytest.FixtureRequest
) -> None:
    services = Services(manager.http, manager.quirks())
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
    name, owner = "site-life", options.user
    request.addfinalizer(lambda: services.destroy(name, owner))
    worker = {
        "name": "w",
        "number_of_containers": 0,
        "restart_policy": "ON_FAILURE",
        "launch_command": "exec sleep 3600",
        "resource": {"cpus": 1, "memory": "64", "additional": {"yarn.io/gpu": {"value": 1, "unit": ""}}},
    }
    spec = {"name": name, "version": "1.0", "queue": options.queue, "components": [worker]}
    application = services.create(spec, owner)
    with pytest.raises(Exists):
        services.create(spec, owner)
    try:
        services.flex(name, owner, {"w": 1})
    except TryLater as refused:
        assert "its application master does not answer yet" in refused.text
    else:
        assert flexible(services, name, owner), "it was flexed before it ran"
    wait_for("the service runs", lambda: flexible(services, name, owner))
    assert hdfs.as_user(owner).status(definition_path(name, owner)) is not None
    with pytest.raises(Never, match="no component x"):
        services.flex(name, owner, {"x": 1})
    services.flex(name, owner, {"w": 2})
    services.flex(name, owner, {"w": 2})  # asked twice: the workers that start must not be lost
    wait_for("two workers", lambda: len(workers(services, name, owner)) == 2)
    assert manager.app(application).kind == "yarn-service"
    patiently(lambda: services.stop(name, owner))
    services.stop(name, owner)
    patiently(lambda: services.start(name, owner))
    wait_for("the service runs again", lambda: flexible(services, name, owner))
    again = services.get(name, owner)
    assert again is not None
    assert again.app not in ("", application), "the one that was stopped still answers"
    services.destroy(name, owner)
    services.destroy(name, owner)
    assert services.get(name, owner) is None
    with pytest.raises(Gone):
        services.flex(name, owner, {"w": 1})


def test_files_in_hdfs(options: Options) -> None:
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user(options.user)
    folder = f"/user/{options.user}/site-{time.time_ns()}"
    hdfs.write(f"{folder}/a", b"one")
    hdfs.write(f"{folder}/a", b"three")
    with pytest.raises(Exists):
        hdfs.write(f"{folder}/a", b"four", replace=False)
    hdfs.write(f"{folder}/b", iter([b"x" * 100_000] * 20))
    assert hdfs.read(f"{folder}/a") == b"three"
    assert hdfs.read(f"{folder}/b", offset=1_999_990) == b"x" * 10
    assert [entry.name for entry in hdfs.entries(folder)] == ["a", "b"]
    assert hdfs.usage(folder).length == 2_000_005
    assert hdfs.delete(folder)
    assert hdfs.read(f"{folder}/b") is None


def flexible(services: Services, name: str, owner: str) -> bool:
    found = services.get(name, owner)
    return found is not None and found.flexible and bool(found.components)


def workers(services: Services, name: str, owner: str) -> list[str]:
    found = services.get(name, owner)
    assert found is not None
    return [worker.name for worker in found.components["w"].instances]
