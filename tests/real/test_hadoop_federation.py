"""A federated HDFS of two real NameNodes: jobs and what they run in one nameservice, checkpoints in the other, named by
nameservice and behind a mount table. The configuration that jobs read is the cluster's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.lab import LabRequest, default_folder
from horae.port import JobState
from horae.spec import JobSpec
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.real.hadoop import YarnHarness, workers
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Access
from yarn_bridge.lab.private import FEDERATION, PrivateHadoop
from yarn_bridge.lab.settings import NN_PORT, NN_RPC

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHadoop]:
    made = PrivateHadoop(tmp_path_factory.mktemp("hadoopfed-"), default_folder() / "hadoop")
    try:
        kinds = (("v100", 2), ("v100", 2))
        made.up(LabRequest(name="fed", nodes=2, gpus=kinds, release="3.4.2", features=frozenset({FEDERATION})))
        yield made
    finally:
        made.down()


@pytest.fixture
def harness(lab: PrivateHadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnHarness]:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(lab.folder / "etc/master"))  # as the arbiter has it
    made = YarnHarness(lab, tmp_path)
    yield made
    made.end()


@pytest.fixture
def cluster(harness: YarnHarness) -> Driver:
    return Driver(harness)


def at(host: str) -> Hdfs:
    return Hdfs(Access((f"http://{host}:{NN_PORT}",), user="horae"), {})


def elsewhere(harness: YarnHarness, name: str, checkpoint: str) -> JobSpec:
    conf = {"HADOOP_CONF_DIR": str(harness.lab.folder / "etc/master")}
    spec = replace(harness.spec(name, Behaviour.TRAINS), checkpoint=checkpoint, env=conf, grace_s=40.0)
    harness.port.submit(name, spec)
    return spec


def checkpoints(host: str, path: str) -> list[str]:
    return [each.name for each in at(host).entries(path) if not each.name.startswith(".")]


@pytest.mark.parametrize(
    ("url", "path", "far"),
    [("hdfs://far/ck-service", "/ck-service", True), ("viewfs://lab/far/ck-mounted", "/ck-mounted", True),
     ("viewfs://lab/user/horae/ck-own", "/user/horae/ck-own", False)],
    ids=["by its nameservice", "behind a mount point", "behind another one"],
)  # fmt: skip
def test_checkpoints_are_in_the_nameservice_that_they_name(
    cluster: Driver, harness: YarnHarness, url: str, path: str, far: bool
) -> None:
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = path.rpartition("-")[2]
    spec = elsewhere(harness, job, url)
    cluster.wait(job, JobState.QUEUED)
    cluster.start(job, cluster.spread(1))
    cluster.wait_progress(job, 15)
    port.checkpoint_and_stop(job, 120.0)
    mark = cluster.wait(job, JobState.STOPPED).checkpoint
    assert mark is not None
    there, other = (lab.far, lab.master) if far else (lab.master, lab.far)
    assert any(f"{int(mark.step):012d}" in name for name in checkpoints(there, path))
    assert checkpoints(other, path) == []
    record = port.files.record(job)
    assert record is not None
    known = None if far else (mark.epoch, mark.step, mark.time_s)
    assert port.files.newest(record, spec) == known, "the bridge looks into its own nameservice only"
    cluster.start(job, cluster.one(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("it goes on", lambda: len(cluster.starts(job)) == 2)
    assert cluster.starts(job)[1].step == mark.step
    port.reshape(job, cluster.spread(1), 3)
    cluster.until("it grows", lambda: cluster.job(job).epoch == 3)
    cluster.wait(job, JobState.RUNNING)
    port.cancel(job)
    cluster.wait(job, JobState.CANCELLED)


def test_a_full_quota_in_the_other_nameservice_is_told_and_nothing_is_lost(
    cluster: Driver, harness: YarnHarness
) -> None:
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    elsewhere(harness, "hoarder", "hdfs://far/ck-hoarder")
    cluster.wait("hoarder", JobState.QUEUED)
    cluster.start("hoarder", cluster.spread(1))
    cluster.wait_progress("hoarder", 15)
    folder = f"hdfs://{lab.far}:{NN_RPC}/ck-hoarder"
    lab.admin("dfsadmin", "-fs", folder, "-setSpaceQuota", "1m", "/ck-hoarder")  # less than a block
    cluster.until("it is told", lambda: "quota of space there is used up" in cluster.job("hoarder").native)
    cluster.wait_progress("hoarder", 10)
    assert cluster.job("hoarder").state is JobState.RUNNING, "and it trains on"
    lab.admin("dfsadmin", "-fs", folder, "-clrSpaceQuota", "/ck-hoarder")
    cluster.until("it can write again", lambda: "quota" not in cluster.job("hoarder").native)
    port.checkpoint_and_stop("hoarder", 120.0)
    stopped = cluster.wait("hoarder", JobState.STOPPED)
    assert (stopped.exit_code, stopped.checkpoint and int(stopped.checkpoint.step)) == (
        86,
        cluster.steps("hoarder")[-1],
    )


def test_a_day_without_the_other_namenode(cluster: Driver, harness: YarnHarness) -> None:
    """Who writes there trains on; who does not knows nothing of it, and comes and goes."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    elsewhere(harness, "there", "hdfs://far/ck-there")
    cluster.wait("there", JobState.QUEUED)
    cluster.start("there", cluster.spread(1))
    cluster.wait_progress("there", 15)
    kept = workers(port, "there")
    lab.kill("namenode2")
    here = cluster.running("here", allocation={"n1": 1})
    port.checkpoint_and_stop(here, 120.0)
    assert cluster.wait(here, JobState.STOPPED).exit_code == 86
    cluster.wait_progress("there", 10)
    assert (cluster.job("there").state, workers(port, "there")) == (JobState.RUNNING, kept)
    lab.start("namenode2")
    cluster.until("it answers", lambda: bool(at(lab.far).entries("/")))
    lab.admin("dfsadmin", "-fs", f"hdfs://{lab.far}:{NN_RPC}", "-safemode", "wait")
    port.checkpoint_and_stop("there", 120.0)
    stopped = cluster.wait("there", JobState.STOPPED)
    assert (stopped.exit_code, stopped.checkpoint and int(stopped.checkpoint.step)) == (86, cluster.steps("there")[-1])
