"""The bridge's clients on a Hadoop under full Kerberos, with a real KDC: tickets, acting for owners, who is let in."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.doctor import Verdict
from horae.port import FixConfiguration, JobState, ObservedJob, attend
from tests.real.hadoop import wait_for
from tests.real.kerberos import REALM, job_of, options_of, secured
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services
from yarn_bridge.clients.spnego import Spnego
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import Options
from yarn_bridge.site.doctor import examine

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

#: writes to HDFS by the job's own means: no ticket, no keytab, only the token of its container
WORKER = """
import io, time
from horae.elastic.stores.webhdfs import locate
hdfs, path = locate("{url}/user/alice/from-a-worker")
hdfs.write(path, io.BytesIO(b"with the container's token"), 26)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHadoop]:
    with secured(tmp_path_factory.mktemp("hadoopkrb-")) as found:
        yield found


@pytest.fixture(scope="module")
def options(lab: PrivateHadoop) -> Options:
    return options_of(lab)


@pytest.fixture
def manager(options: Options) -> Iterator[ResourceManager]:
    made = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    yield made
    made.close()


def test_an_elastic_service_of_the_owners_whose_workers_write_to_hdfs(
    manager: ResourceManager, options: Options, tmp_path: Path
) -> None:
    services = Services(manager.http, manager.quirks())
    name, owner = "krb-life", "alice"
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(url=options.webhdfs[0].replace("http:", "webhdfs:")))
    tmp_path.chmod(0o755)
    worker = {
        "name": "w",
        "number_of_containers": 1,
        "restart_policy": "ON_FAILURE",
        "launch_command": f"exec {sys.executable} {script}",
        "resource": {"cpus": 1, "memory": "64", "additional": {"yarn.io/gpu": {"value": 1, "unit": ""}}},
    }
    spec: dict[str, Any] = {"name": name, "version": "1.0", "queue": options.queue, "components": [worker]}
    with pytest.raises(FixConfiguration, match="alice/horae@REALM"):
        services.create({**spec, "kerberos_principal": {}}, owner)
    application = services.create(spec, owner)

    def workers() -> int:
        found = services.get(name, owner)
        return sum(len(each.instances) for each in found.components.values()) if found and found.flexible else -1

    wait_for("one worker", lambda: workers() == 1, 180.0)
    assert manager.app(application).user == "alice"
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user(owner)
    wait_for("the worker's file", lambda: hdfs.read("/user/alice/from-a-worker") == b"with the container's token")
    found = hdfs.status("/user/alice/from-a-worker")
    assert found is not None
    assert found.owner == owner
    services.flex(name, owner, {"w": 3})
    wait_for("three workers", lambda: workers() == 3)
    services.flex(name, owner, {"w": 0})
    wait_for("no worker", lambda: workers() == 0)
    services.destroy(name, owner)
    assert services.get(name, owner) is None


def test_files_are_the_owners(options: Options) -> None:
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user("alice")
    hdfs.write("/user/alice/checkpoint", b"x" * 10_000)
    found = hdfs.status("/user/alice/checkpoint")
    assert found is not None
    assert (found.owner, found.length) == ("alice", 10_000)
    assert hdfs.read("/user/alice/checkpoint", offset=9_990) == b"x" * 10
    assert hdfs.delete("/user/alice/checkpoint")


def test_the_bridge_may_act_for_those_it_was_given_only(manager: ResourceManager, options: Options) -> None:
    services = Services(manager.http, manager.quirks())
    with pytest.raises(FixConfiguration, match=r"not allowed to impersonate bob.*hadoop.proxyuser"):
        services.get("x", "bob")
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
    with pytest.raises(FixConfiguration, match=r"not allowed to impersonate bob"):
        hdfs.as_user("bob").entries("/user")


def test_a_ticket_that_ends_is_followed_by_a_new_one(lab: PrivateHadoop, options: Options) -> None:
    assert lab.kdc is not None
    keytab = lab.kdc.keytab("short", "short", life="6seconds")
    access = replace(options.access(options.resource_manager), principal=f"short@{REALM}", keytab=str(keytab))
    manager = ResourceManager(HttpClient(access, "ResourceManager"))
    auth = manager.http._session.auth
    assert isinstance(auth, Spnego)
    assert manager.info().version
    assert auth.left_s() <= 6
    time.sleep(8)
    assert manager.info().version
    manager.close()


def test_a_keytab_that_does_not_fit_is_told_plainly(options: Options) -> None:
    access = replace(options.access(options.resource_manager), principal=f"nobody@{REALM}")
    with pytest.raises(FixConfiguration, match="no Kerberos ticket with keytab"):
        ResourceManager(HttpClient(access, "ResourceManager")).info()


def test_delegation_tokens(manager: ResourceManager, options: Options) -> None:
    token = manager.delegation_token("horae", owner="alice")
    assert token.owner.startswith("alice")
    access = replace(options.access(options.resource_manager), auth="token", token=token.token)
    holder = ResourceManager(HttpClient(access, "ResourceManager"))
    assert holder.info().version
    assert manager.renew_token(token) > time.time()
    holder.close()


def test_doctor_finds_all_three_doors_closed(options: Options) -> None:
    checks = list(examine(options))
    failed = [f"{check.name}: {check.text}" for check in checks if check.verdict is Verdict.FAIL]
    assert failed == []
    found = {check.name: check for check in checks}
    for door in ("ResourceManager", "Services API", "WebHDFS"):
        assert found[f"credentials: {door}"].verdict is Verdict.OK, found[f"credentials: {door}"].text
    assert found["ticket"].verdict is Verdict.OK
    assert found["acting for owners: ResourceManager"].verdict is Verdict.OK
    assert found["acting for owners: NameNode"].verdict is Verdict.OK
    assert "7.0 days" in found["token lifetime"].text


def test_a_job_whose_owner_has_no_keytab_is_not_begun(
    manager: ResourceManager, options: Options, tmp_path: Path
) -> None:
    """YARN would run its workers and then answer no question about them, nor resize them."""
    port = YarnCluster(options)
    try:
        port.claim("the arbiter")
        port.submit("keyless", job_of("carol", options, tmp_path))
        attend(port)
        with pytest.raises(FixConfiguration, match=r"no keytab /user/carol/horae.keytab.*mode 600"):
            port.start("keyless", {"n1": 1}, 1)
        (seen,) = [each for each in attend(port).jobs if each.id == "keyless"]
        assert seen.state is JobState.QUEUED
        assert seen.blocked is None, "an arbiter leaves GPUs alone that block"
        assert "/user/carol/horae.keytab" in seen.native
        assert manager.apps(user="carol") == []
        port.cancel("keyless")
    finally:
        port.close()


def test_a_whole_elastic_job_of_the_owners(options: Options, tmp_path: Path) -> None:
    """Through the adapter: started, stopped at a checkpoint, resumed with more GPUs, cancelled."""
    spec = job_of("alice", options, tmp_path)
    port = YarnCluster(options)
    try:
        port.claim("the arbiter")
        port.submit("krb", spec)

        def job() -> ObservedJob:
            return next(each for each in attend(port).jobs if each.id == "krb")

        port.start("krb", {"n1": 1}, 1)
        wait_for("it runs", lambda: job().state is JobState.RUNNING, 180.0)
        hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user("alice")
        wait_for("it checkpoints", lambda: bool(hdfs.entries("/user/alice/krb-checkpoints")), 180.0)
        port.checkpoint_and_stop("krb", 120.0)
        wait_for("it stops", lambda: job().state is JobState.STOPPED, 180.0)
        assert job().checkpoint is not None
        port.start("krb", {"n1": 1, "n2": 2}, 2)
        wait_for("it runs on", lambda: job().state is JobState.RUNNING and job().epoch == 2, 180.0)
        assert job().allocation == {"n1": 1, "n2": 2}
        port.cancel("krb")
        wait_for("it is cancelled", lambda: job().state is JobState.CANCELLED, 180.0)
    finally:
        port.close()
