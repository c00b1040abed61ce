"""Bad days of what jobs keep and are known by: a DataNode, a quota, ZooKeeper. On a real Hadoop, for the soak run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import FixConfiguration, JobState, PortError
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    running,
    wait_for,
    workers,
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    for daemon in ("zookeeper", "datanode"):  # a test that failed half-way must not take the others with it
        if hadoop_342._pid(daemon) is None:
            hadoop_342.start(daemon)
    options = parse_options(made.options)
    wait_for("HDFS takes files again", lambda: takes_files(Hdfs(options.access(options.webhdfs))), 180.0)
    made.end()


@pytest.fixture
def cluster(harness: YarnHarness) -> Driver:
    return Driver(harness)


@pytest.fixture
def hdfs(harness: YarnHarness) -> Hdfs:
    options = parse_options(harness.options)
    return Hdfs(options.access(options.webhdfs))


def takes_files(hdfs: Hdfs) -> bool:
    """By writing one: for ten seconds the NameNode sends data to a DataNode that is not there any more."""
    try:
        hdfs.write("/user/horae/probe", b"written")
    except PortError:
        return False
    return True


def once_each(steps: list[int]) -> bool:
    return steps == list(range(1, len(steps) + 1))


def test_a_datanode_lost_during_a_checkpoint_costs_nothing(cluster: Driver, harness: YarnHarness, hdfs: Hdfs) -> None:
    """The only one: no data can be read or written meanwhile. Whoever must write waits, and nobody ends."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = running(cluster, harness, "storage")
    kept = workers(port, job)
    lab.kill("datanode")
    assert not takes_files(hdfs)
    assert cluster.job(job).state is JobState.RUNNING, "what the bridge keeps of it needs no DataNode"
    lab.start("datanode")
    wait_for("HDFS takes files again", lambda: takes_files(hdfs), 180.0)
    cluster.wait_progress(job, 10)
    assert (cluster.job(job).epoch, workers(port, job)) == (1, kept)
    port.checkpoint_and_stop(job, 120.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert stopped.exit_code == 86
    assert stopped.checkpoint is not None
    steps = cluster.steps(job)
    assert len(cluster.starts(job)) == 1
    assert once_each(steps), "its log lacks steps, or has some twice"
    assert stopped.checkpoint.step == steps[-1]


def test_a_full_quota_is_told_and_the_old_checkpoint_kept(cluster: Driver, harness: YarnHarness, hdfs: Hdfs) -> None:
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = running(cluster, harness, "hoarder")
    folder = "/" + (harness.spec(job, Behaviour.TRAINS).checkpoint or "").partition("://")[2].partition("/")[2]
    lab.admin("dfsadmin", "-setSpaceQuota", "1m", folder)  # less than a block: nothing new fits
    cluster.until("it is told", lambda: b"quota of space there is used up" in cluster.log(job))
    cluster.wait_progress(job, 10)  # it trains on
    assert b"could not be written, training goes on" in cluster.log(job)
    kept = [each.name for each in hdfs.entries(folder) if not each.name.startswith(".")]
    port.checkpoint_and_stop(job, 120.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert stopped.exit_code == 74
    assert "could not write its checkpoint" in stopped.native
    assert stopped.checkpoint is not None
    assert any(name.startswith(f"step-{stopped.checkpoint.step:012.0f}.") for name in kept), "the one it had"
    reached = cluster.steps(job)[-1]
    assert stopped.checkpoint.step < reached

    # With room again it goes on from there, and what it did after that checkpoint it does again.
    lab.admin("dfsadmin", "-clrSpaceQuota", folder)
    cluster.start(job, cluster.one(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("it went on", lambda: [each.step for each in cluster.starts(job)] == [0, stopped.checkpoint.step])
    cluster.until("it went further", lambda: cluster.steps(job)[-1] > reached)
    port.checkpoint_and_stop(job, 120.0)
    again = cluster.wait(job, JobState.STOPPED)
    assert again.exit_code == 86
    assert again.checkpoint is not None
    assert again.checkpoint.step > reached


def test_a_quota_on_the_bridges_own_files_is_told_to_the_operator(
    cluster: Driver, harness: YarnHarness, hdfs: Hdfs
) -> None:
    """The job's record cannot be written: nothing is asked of YARN that nobody would remember."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = cluster.submit("unrecorded")
    lab.admin("dfsadmin", "-setQuota", "1", str(harness.options["folder"]))
    with pytest.raises(FixConfiguration, match=r"quota.*-setQuota"):
        port.start(job, cluster.one(), 1)
    assert cluster.job(job).state is JobState.QUEUED
    assert sum(node.gpus_used for node in port.manager.nodes()) == 0
    lab.admin("dfsadmin", "-clrQuota", str(harness.options["folder"]))
    cluster.start(job, cluster.one(), 1)
    cluster.wait(job, JobState.RUNNING)


def test_a_day_without_zookeeper(cluster: Driver, harness: YarnHarness) -> None:
    """The registry of services is away: who trains trains on, GPUs come free, and what waited is done afterwards."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = running(cluster, harness, "unregistered")
    doomed = cluster.running("doomed", allocation=cluster.other())
    waiting = cluster.submit("waiting")
    kept = workers(port, job)
    lab.kill("zookeeper")
    cluster.wait_progress(job, 10)
    assert (cluster.job(job).state, workers(port, job)) == (JobState.RUNNING, kept)
    port.cancel(doomed)
    wait_for("its GPU is free", lambda: sum(node.gpus_used for node in port.manager.nodes()) == len(kept), 300.0)
    cluster.start(waiting, cluster.other())
    cluster.observe()
    lab.start("zookeeper")
    assert cluster.wait(doomed, JobState.CANCELLED).allocation == {}
    cluster.wait(waiting, JobState.RUNNING)
    cluster.wait_progress(waiting, 2)
    port.reshape(job, cluster.spread(2), 2)
    cluster.until("it grows", lambda: cluster.job(job).epoch == 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 2)
    port.checkpoint_and_stop(job, 120.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert stopped.exit_code == 86
    assert once_each(cluster.steps(job))
    assert [(start.epoch, start.world) for start in cluster.starts(job)] == [(1, 2), (2, 4)]
