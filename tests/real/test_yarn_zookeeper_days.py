"""ZooKeeper dies under a ResourceManager that keeps its state there: it hangs, gives up, or comes back knowing nobody.

On a real Hadoop of its own, for the soak run. (A ZooKeeper that holds the registry of services alone: the storage
days. Two ResourceManagers without jobs: `test_hadoop_ha.py`.)
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from horae.port import JobState, TryLater, attend
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import wait_for
from tests.real.hadoop import ALIVE, YarnHarness, cluster_of, running, workers
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop, processes_of

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

_STORE = {
    "yarn.resourcemanager.store.class":
        "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore",
    "hadoop.zk.timeout-ms": "4000",
}  # fmt: skip
#: As Hadoop comes: a write is tried again for a quarter of an hour, and what cannot be written is let go.
_PATIENT = {"yarn.resourcemanager.fail-fast": "false", "hadoop.zk.num-retries": "1000"}
#: A few tries, and the ResourceManager exits.
_HASTY = {"yarn.resourcemanager.fail-fast": "true", "hadoop.zk.num-retries": "3"}
#: One of a pair, whose twin is away: it is active for as long as ZooKeeper says so.
_ELECTED = {
    "yarn.resourcemanager.ha.enabled": "true",
    "yarn.resourcemanager.cluster-id": "pair",
    "yarn.resourcemanager.ha.rm-ids": "rm1,rm2",
    "yarn.resourcemanager.ha.id": "rm1",
    "yarn.resourcemanager.hostname.rm1": "${yarn.resourcemanager.hostname}",
    "yarn.resourcemanager.webapp.address.rm1": "${yarn.resourcemanager.webapp.address}",
    "yarn.resourcemanager.hostname.rm2": "127.0.0.1",
}


class Impatient(YarnHarness):
    """Whoever is not answered for ten seconds gives up asking."""

    @property
    def options(self) -> dict[str, object]:
        return {**super().options, "timeout_s": 10.0}


@pytest.fixture(scope="module")
def lab(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateHadoop]:
    made = cluster_of("3.4.2", pytestconfig, tmp_path_factory, {**_STORE, **getattr(request, "param", _PATIENT)})
    yield made
    made.down()


@pytest.fixture
def harness(lab: PrivateHadoop, tmp_path: Path) -> Iterator[Impatient]:
    made = Impatient(lab, tmp_path)
    yield made
    for daemon in ("zookeeper", "resourcemanager"):  # a test that failed half-way must not take the others with it
        if lab._pid(daemon) is None:
            lab.start(daemon)
    lab.wait_manager()
    made.end()


@pytest.fixture
def cluster(harness: Impatient) -> Driver:
    return Driver(harness)


def manager_with(lab: PrivateHadoop, settings: Mapping[str, str]) -> None:
    lab.kill("resourcemanager")
    lab.settle(settings)
    lab.start("resourcemanager")


def trains_on(cluster: Driver, harness: YarnHarness, job: str) -> None:
    """By its log and its checkpoints in HDFS: the ResourceManager is not asked."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    record, spec = port.files.record(job), harness.spec(job, Behaviour.TRAINS)
    assert record is not None

    def saved() -> float:
        mark = port.files.newest(record, spec)
        return mark[1] if mark else -1.0

    steps, newest = len(cluster.steps(job)), saved()
    wait_for("it trains on", lambda: len(cluster.steps(job)) > steps + 10, 120.0)
    wait_for("it checkpoints", lambda: saved() > newest, 120.0)


def told_by(port: YarnCluster, job: str) -> set[str]:
    """Workers whose end is in HDFS."""
    record = port.files.record(job)
    assert record is not None
    return set(port.files.acks(record))


def gpus_used(port: YarnCluster) -> int:
    return sum(node.gpus_used for node in port.manager.nodes())


def ends_whole(cluster: Driver, harness: YarnHarness, job: str, starts: list[tuple[int, int]]) -> None:
    """A clean stop; these starts (epoch, world) and no other, and each step once."""
    cluster.stop(job, 120.0)
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86
    assert [(start.epoch, start.world) for start in cluster.starts(job)] == starts
    steps = cluster.steps(job)
    assert steps == list(range(1, len(steps) + 1)), "its log lacks steps, or has some twice"


def is_resized(cluster: Driver, harness: Impatient, job: str, kept: Collection[str]) -> None:
    """What was asked for meanwhile goes on: from two workers to four, `kept` among them."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    cluster.until("the resize goes on", lambda: cluster.job(job).epoch == 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 5)
    assert set(kept) <= set(workers(port, job)), "who was in both shapes kept its container"
    wait_for("no GPU is held by nobody", lambda: gpus_used(port) == 4)
    ends_whole(cluster, harness, job, [(1, 2), (2, 4)])


def test_a_manager_that_cannot_write_its_state_down(cluster: Driver, harness: Impatient) -> None:
    """It answers, and whatever it must write first hangs: new applications and ends. GPUs come free all the same, and
    training and resizes go on."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = running(cluster, harness, "kept")
    doomed = cluster.running("doomed", allocation=cluster.other())
    shape, elsewhere = cluster.spread(2), cluster.one()
    waiting = cluster.submit("waiting")
    lab.kill("zookeeper")
    trains_on(cluster, harness, job)
    assert (cluster.job(job).state, cluster.job(job).epoch) == (JobState.RUNNING, 1)

    # The end of an application is not written down, and waits: one request a round hangs. Nobody else waits for it.
    port.cancel(doomed)
    port.reshape(job, shape, 2)
    cluster.until("it grows", lambda: cluster.job(job).epoch == 2)
    cluster.wait(job, JobState.RUNNING)
    trains_on(cluster, harness, job)
    assert cluster.job(doomed).state is JobState.STOPPING
    cluster.until("its GPU is free", lambda: bool(cluster.observe().jobs) and gpus_used(port) == 4)

    # A new application is taken and not written down. It is told, and asked for once.
    cluster.start(waiting, elsewhere)
    cluster.until("it is told", lambda: any("state store (NEW_SAVING)" in note for note in cluster.observe().notes))
    assert cluster.job(waiting).state is JobState.STARTING
    assert cluster.job(job).state is JobState.RUNNING

    lab.start("zookeeper")
    assert cluster.wait(doomed, JobState.CANCELLED).allocation == {}
    cluster.wait(waiting, JobState.RUNNING)
    cluster.wait_progress(waiting, 2)
    names = [each.name for each in port.manager.apps(states=ALIVE)]
    assert len(names) == len(set(names)) == 2, names
    wait_for("no GPU is held by nobody", lambda: gpus_used(port) == 5)
    ends_whole(cluster, harness, job, [(1, 2), (2, 4)])


def test_a_manager_that_gives_up_in_the_middle_of_a_resize(cluster: Driver, harness: Impatient) -> None:
    """It exits at the first write; started again it answers, knows neither node nor application, and waits."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    manager_with(lab, _HASTY)
    lab.wait_manager()
    job = running(cluster, harness, "patient")
    shape, kept = cluster.spread(2), workers(port, job)
    lab.kill("zookeeper")
    app = port.manager.new_application("horae")
    master = {"commands": {"command": "sleep 1"}}
    port.manager.submit(
        {"application-id": app, "application-name": "plain", "am-container-spec": master, "queue": "default"}, "horae"
    )
    wait_for("the ResourceManager gives up", lambda: lab._pid("resourcemanager") is None, 300.0)
    with pytest.raises(TryLater, match=r"no ResourceManager answers: .*connection refused"):
        attend(port)
    trains_on(cluster, harness, job)

    # The resize is asked for all the same: the gang leaves at a checkpoint, and waits at the gate.
    port.reshape(job, shape, 2)
    wait_for("its workers have left", lambda: set(kept) <= told_by(port, job), 120.0)

    # It is started again while ZooKeeper is away: it answers, and there is nothing in it. No job is lost by that.
    lab.settle(_PATIENT)
    lab.start("resourcemanager")
    wait_for("it answers", lambda: port.manager.info().ha_state == "INITIALIZING", 120.0)
    with pytest.raises(TryLater, match=r"is not active \(INITIALIZING\).*ZKRMStateStore"):
        attend(port)
    again = harness.restart_arbiter()  # one that has seen nothing yet
    assert isinstance(again, YarnCluster)
    with pytest.raises(TryLater, match="is not active"):
        again.observe()

    lab.start("zookeeper")
    lab.wait_manager()
    is_resized(cluster, harness, job, kept)


def test_a_manager_whose_state_is_gone(cluster: Driver, harness: Impatient) -> None:
    """ZooKeeper comes back empty: the applications are unknown, what they ran is ended, the job goes on elsewhere."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = running(cluster, harness, "forgotten")
    (app,) = [each.id for each in port.manager.apps(states=("RUNNING",))]
    assert list(processes_of(f"/{app}"))
    lab.kill("zookeeper")
    lab.kill("resourcemanager")
    shutil.rmtree(lab.folder / "data/zk")
    lab.start("zookeeper")
    lab.start("resourcemanager")
    lab.wait_manager()
    lost = cluster.wait(job, JobState.LOST)
    assert f"the ResourceManager does not know {app} any more" in lost.native
    assert lost.checkpoint is not None
    wait_for("what it ran is ended", lambda: not list(processes_of(f"/{app}")), 180.0)
    cluster.start(job, cluster.one(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("its second start", lambda: len(cluster.starts(job)) == 2)
    assert cluster.starts(job)[1].step == lost.checkpoint.step
    wait_for("no GPU is held by nobody", lambda: gpus_used(port) == 1)
    cluster.stop(job, 120.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert (stopped.exit_code, stopped.epoch) == (86, 2)


@pytest.mark.parametrize("lab", [_ELECTED], indirect=True, ids=["elected"])
def test_a_manager_that_nobody_elects(cluster: Driver, harness: Impatient) -> None:
    """It steps back and serves nobody; the job trains, leaves for a resize, and is resized once it is elected again."""
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = running(cluster, harness, "elected")
    shape, kept = cluster.spread(2), workers(port, job)
    lab.kill("zookeeper")
    wait_for("it steps back", lambda: port.manager.info().ha_state == "STANDBY", 180.0)
    with pytest.raises(TryLater, match=r"no ResourceManager answers: \S+ is in standby"):
        attend(port)
    trains_on(cluster, harness, job)
    port.reshape(job, shape, 2)
    wait_for("its workers have left", lambda: set(kept) <= told_by(port, job), 120.0)
    lab.start("zookeeper")
    wait_for("it is elected", lambda: port.manager.info().ha_state == "ACTIVE", 180.0)
    is_resized(cluster, harness, job, kept)
