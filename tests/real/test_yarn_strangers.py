"""What ill-meaning or odd users and a site in motion do beside jobs: names and tags like Horae's own, somebody else's
folder, a queue that is stopped, a ResourceManager that goes in a submission, a federated HDFS. On a real Hadoop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.port import FixConfiguration, JobState, TryLater, attend
from policy.model import Quota
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
)
from tests.real.yarn_queues import ADS, own_queue
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.queues import Queue, queues
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import SLICES, parse_options
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND, root_tag

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


def bridge(harness: YarnHarness) -> YarnCluster:
    assert isinstance(harness.port, YarnCluster)
    return harness.port


def submitted(port: YarnCluster, name: str, kind: str, *tags: str) -> str:
    """A plain application of mallory's, that sleeps."""
    manager = port.manager
    app_id = manager.new_application("mallory")
    body = {"application-id": app_id, "application-name": name, "application-type": kind, "queue": "default",
            "application-tags": {"tag": tags}, "max-app-attempts": 1, "resource": {"memory": 64, "vCores": 1},
            "am-container-spec": {"commands": {"command": "sleep 900"}}}  # fmt: skip
    manager.submit(body, "mallory")
    return app_id


def test_names_and_tags_that_look_like_ours_are_left_alone(harness: YarnHarness, tmp_path: Path) -> None:
    cluster, port = Driver(harness), bridge(harness)
    slices = YarnHarness(harness.lab, tmp_path, SLICES)
    theirs, service = bridge(slices), port.files.service_name("job")
    strange = [submitted(port, 'it\'s "quoted" ünï\u202e\n<b>\x1b[31m', "YARN")]
    for root in (root_tag(port.files.jobs), root_tag(theirs.files.jobs)):
        strange += [
            submitted(port, service, "yarn-service", root, service),
            submitted(port, f"{service}/n1/4", SLICE_KIND, root, service),
            submitted(port, f"{port.files.service_name('gone')}/n2/2", SLICE_KIND, root),
            submitted(port, f"{service}/n1/{'9' * 40}", SLICE_KIND, root, service),
        ]
    theirs.submit("job", slices.spec("job", Behaviour.TRAINS))
    job = cluster.running("job", allocation=cluster.spread(1))
    cluster.wait_progress(job, 5)
    cluster.cancel(job)
    cluster.wait(job, JobState.CANCELLED)
    for each in (port, theirs):
        for _ in range(5):
            seen = patiently(lambda each=each: attend(each))  # type: ignore[misc]
            assert [due for due in seen.due if due.stray] == []
    states = {port.manager.app(each).state for each in strange}
    assert states <= {"ACCEPTED", "RUNNING"}, "a stranger's application was ended"


def test_another_users_folder_is_refused_to_who_names_it(harness: YarnHarness) -> None:
    """As the job's owner: nothing in it is read, believed or changed."""
    cluster, port = Driver(harness), bridge(harness)
    options = parse_options(harness.options)
    whole, private = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)), "/user/ann/private"
    for user in ("ann", "ben"):
        harness.lab._change(f"/user/{user}", "MKDIRS", permission="755")
        harness.lab._change(f"/user/{user}", "SETOWNER", owner=user)
    whole.as_user("ann").make_folder(private, "700")
    url = str(harness.lab.facts()["webhdfs"]).replace("http:", "webhdfs:") + private
    hers = replace(harness.spec("hers", Behaviour.TRAINS), owner="ann", checkpoint=url)
    port.submit("hers", hers)
    cluster.start("hers", cluster.one())
    cluster.wait_progress("hers", 10)
    port.checkpoint_and_stop("hers", 120.0)
    assert cluster.wait("hers", JobState.STOPPED).checkpoint is not None
    before = whole.as_user("ann").entries(private)

    port.submit("theft", replace(hers, name="theft", owner="ben"))
    cluster.start("theft", cluster.one())
    ended = cluster.wait("theft", JobState.FAILED)
    assert ended.checkpoint is None
    assert b"Permission denied: user=ben" in harness.log("theft")
    assert whole.as_user("ann").entries(private) == before


def test_nobody_but_the_owner_reads_by_what_ranks_know_each_other(harness: YarnHarness) -> None:
    """Not a stranger, and not the bridge itself either: each would be let in as one of the gang's ranks."""
    cluster, port = Driver(harness), bridge(harness)
    options = parse_options(harness.options)
    whole = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
    harness.lab._change("/user/ann", "MKDIRS", permission="755")
    harness.lab._change("/user/ann", "SETOWNER", owner="ann")
    url = str(harness.lab.facts()["webhdfs"]).replace("http:", "webhdfs:") + "/user/ann/told"
    port.submit("hers", replace(harness.spec("hers", Behaviour.TRAINS), owner="ann", checkpoint=url))
    cluster.start("hers", cluster.spread(1))
    cluster.wait_progress("hers", 10)
    folder = f"{port.files.folder('hers')}/secrets"
    names = [each.name for each in whole.as_user("ann").entries(folder)]
    assert len(names) == 2
    for name in names:
        secret = whole.as_user("ann").document(f"{folder}/{name}")
        assert secret is not None
        assert b"secret" in secret
        for stranger in ("mallory", "horae"):
            with pytest.raises(FixConfiguration, match="Permission denied"):
                whole.as_user(stranger).document(f"{folder}/{name}")
    cluster.cancel("hers")
    cluster.wait("hers", JobState.CANCELLED)


def test_an_owner_who_lets_nobody_write_at_his_gate_keeps_no_gpu_by_it(harness: YarnHarness) -> None:
    """The folder is his: his own rights to it are his to take away."""
    cluster, port = Driver(harness), bridge(harness)
    options = parse_options(harness.options)
    whole = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
    harness.lab._change("/user/ann", "MKDIRS", permission="755")
    harness.lab._change("/user/ann", "SETOWNER", owner="ann")
    url = str(harness.lab.facts()["webhdfs"]).replace("http:", "webhdfs:") + "/user/ann/shut"
    port.submit("hers", replace(harness.spec("hers", Behaviour.TRAINS), owner="ann", checkpoint=url))
    cluster.start("hers", cluster.one())
    cluster.wait_progress("hers", 10)
    folder = port.files.folder("hers")
    for path, mode in ((f"{folder}/gate", "400"), (folder, "500")):
        whole.as_user("ann").set_permission(path, mode)
    port.checkpoint_and_stop("hers", 5.0)
    cluster.until("it is said", lambda: any("cannot be told to go" in note for note in cluster.observe().notes))
    assert cluster.wait("hers", JobState.STOPPED).exit_code == 137
    cluster.until("its GPUs are free", lambda: not any(node.foreign for node in cluster.observe().nodes))
    whole.as_user("ann").set_permission(folder, "755")


def test_a_queue_that_is_stopped_in_the_middle(harness: YarnHarness) -> None:
    """What runs there may still change its shape; nothing new is let in, which is said, until that is over."""
    cluster, port = Driver(harness), bridge(harness)
    job = cluster.running("inside", allocation=cluster.one())
    port.submit("outside", harness.spec("outside", Behaviour.TRAINS))
    port.manager.edit_scheduler(QueueEdits(update={"root.horae": {"state": "STOPPED"}}), "horae")
    try:
        port._observer.limits.forget()
        assert "queue root.horae is DRAINING: it takes no new application" in cluster.observe().notes  # a job is in it
        cluster.wait_progress(job, 5)
        port.reshape(job, cluster.spread(1), 2)
        cluster.until("it has its new shape", lambda: cluster.job(job).epoch == 2)
        cluster.wait(job, JobState.RUNNING)
        with pytest.raises(FixConfiguration) as refused:
            port.start("outside", {"n3": 1}, 1)
        assert refused.value.remedy == "set the queue's state to RUNNING"
        cluster.wait("outside", JobState.QUEUED)
    finally:
        port.manager.edit_scheduler(QueueEdits(update={"root.horae": {"state": "RUNNING"}}), "horae")
    wait_for("it takes jobs again", lambda: all(each.state == "RUNNING" for each in _leaves(port)))
    cluster.start("outside", {"n3": 1}, 2)
    cluster.wait("outside", JobState.RUNNING)


def test_the_limits_of_a_queue_that_jobs_name_themselves(harness: YarnHarness, ads: dict[str, str]) -> None:
    """They bind these jobs as the scheduler has them; and when that queue drains, none begins in it."""
    cluster, port = Driver(harness), bridge(harness)

    def edited(**changes: str) -> None:
        port.manager.edit_scheduler(QueueEdits(update={ADS: {**ads, **changes}}), "horae")
        port._observer.limits.forget()

    def gpus() -> dict[tuple[str, ...], int | None]:
        found = [each for each in cluster.observe().quotas if each.name.startswith(f"queue {ADS} may hold")]
        return {tuple(sorted(each.whom)): each.gpus for each in found if "GPUs at most" in each.name}

    for name in ("first", "second"):
        spec = harness.spec(name, Behaviour.TRAINS, gpus=(1, 12))
        port.submit(name, replace(spec, extra={"yarn.queue": ADS}))
    harness.submit("plain", Behaviour.TRAINS)
    cluster.until("the limit is told", lambda: gpus() == {("first", "second"): 6})
    cluster.start("first", {"n1": 4, "n2": 2})
    cluster.wait("first", JobState.RUNNING)
    assert gpus() == {("first", "second"): 6}, "what it holds is its own"

    edited(**{"maximum-capacity": "25"})
    cluster.until("nothing is taken from it", lambda: gpus() == {("first", "second"): 6})
    edited(state="STOPPED")
    closed = f"queue {ADS} is DRAINING and takes no new application: 0 more may begin"
    cluster.until("none begins", lambda: Quota(closed, ("second",), None, 0) in cluster.observe().quotas)
    cluster.start("plain", {"n3": 1})
    cluster.wait("plain", JobState.RUNNING)
    cluster.wait_progress("first", 5)
    edited(state="RUNNING")
    cluster.until("it may begin", lambda: all(each.jobs is None for each in cluster.observe().quotas))
    for name in ("first", "second", "plain"):
        cluster.cancel(name)


@pytest.fixture
def ads(harness: YarnHarness) -> Iterator[dict[str, str]]:
    with own_queue(bridge(harness)) as made:
        yield made


def _leaves(port: YarnCluster) -> list[Queue]:
    return [each for each in queues(port.manager.scheduler()).root.leaves() if each.path == "root.horae"]


def test_a_manager_that_goes_in_the_middle_of_a_submission(
    harness: YarnHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the application, and nobody heard: there is one, and not two."""
    cluster, port = Driver(harness), bridge(harness)
    plain = port.services.create

    def cut(body: Any, owner: str) -> str:
        plain(body, owner)
        harness.lab.kill("resourcemanager")
        raise TryLater("ResourceManager broke off (connection closed); it may be done all the same")

    port.submit("cut", harness.spec("cut", Behaviour.TRAINS))
    cluster.wait("cut", JobState.QUEUED)
    monkeypatch.setattr(port.services, "create", cut)
    port.start("cut", cluster.spread(1), 1)
    monkeypatch.setattr(port.services, "create", plain)
    harness.lab.start("resourcemanager")
    harness.lab.wait_manager()
    cluster.wait("cut", JobState.RUNNING)
    living = port.manager.apps(kinds=("yarn-service",), states=("ACCEPTED", "RUNNING"))
    assert [each.name for each in living] == [port.files.service_name("cut")]
    cluster.wait_progress("cut", 3)


def test_checkpoints_behind_a_mount_table(
    harness: YarnHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's configuration with a mount table onto the lab's NameNode, under the name of a nameservice."""
    cluster, port = Driver(harness), bridge(harness)
    spec = harness.spec("mounted", Behaviour.TRAINS)
    url, name = spec.checkpoint or "", "horae-mounted"
    address, _, folder = url.partition("://")[2].partition("/")
    values = {"fs.defaultFS": "viewfs://shop", "fs.viewfs.mounttable.shop.link./ck": f"hdfs://far/{folder}",
              "dfs.nameservices": "far", "dfs.namenode.http-address.far": address}  # fmt: skip
    listed = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
    tmp_path.chmod(0o755)
    (tmp_path / "core-site.xml").write_text(f"<configuration>{listed}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    there = replace(spec, name=name, checkpoint="viewfs://shop/ck", env={"HADOOP_CONF_DIR": str(tmp_path)})
    port.submit("mounted", there)
    wait_for("it is seen", lambda: cluster.job("mounted").state is JobState.QUEUED)
    cluster.start("mounted", cluster.spread(1))
    cluster.wait_progress("mounted", 15)
    port.checkpoint_and_stop("mounted", 120.0)
    mark = cluster.wait("mounted", JobState.STOPPED).checkpoint
    assert mark is not None
    options = parse_options(harness.options)
    found = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).entries(f"/{folder}")
    assert any(f"{int(mark.step):012d}" in each.name for each in found), found
    record = port.files.record("mounted")
    assert record is not None
    assert port.files.newest(record, there) == (mark.epoch, mark.step, mark.time_s), "the bridge looks there too"
    cluster.start("mounted", cluster.one(), 2)
    cluster.wait("mounted", JobState.RUNNING)
    cluster.until("it goes on", lambda: len(cluster.starts("mounted")) == 2)
    assert cluster.starts("mounted")[1].step == mark.step
