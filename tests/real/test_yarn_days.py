"""Bad days on a real Hadoop: its daemons, its application masters and our workers die, and no job is the worse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from horae.lab import processes
from horae.port import BlockKind, JobState, ObservedJob, PortError, TryLater, attend
from policy.model import Health, Pinning
from tests.contract.driver import Driver
from tests.real import books
from tests.real.hadoop import (
    YarnHarness,
    hadoop_336,  # noqa: F401 - a fixture
    hadoop_342,  # noqa: F401
    kill_container,
    wait_for,
    workers,
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.services import definition_path
from yarn_bridge.lab.private import PrivateHadoop, processes_of
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


@pytest.fixture
def cluster(harness: YarnHarness) -> Driver:
    return Driver(harness)


def test_one_job_through_many_deaths(cluster: Driver, harness: YarnHarness) -> None:
    port, lab = harness.port, harness.lab
    assert isinstance(port, YarnCluster)
    job = cluster.running("survivor", allocation=cluster.spread(1))
    cluster.wait_progress(job, 15)  # far enough for a periodic checkpoint
    kept = workers(port, job)
    leads_both_ways(harness, port, cluster.job(job))

    # Its application master: the workers live on, and the next one can be asked to flex.
    (app,) = [each.id for each in port.manager.apps(states=("RUNNING",))]
    kill_container(app.replace("application", "container") + "_01_000001")
    cluster.until("a new application master", lambda: len(port.manager.attempts(app)) >= 2)
    cluster.wait_progress(job, 5)
    assert (cluster.job(job).state, workers(port, job)) == (JobState.RUNNING, kept)

    # The ResourceManager, with recovery: nobody can be asked meanwhile, the gang trains on.
    lab.kill("resourcemanager")
    with pytest.raises(TryLater):
        attend(port)
    lab.start("resourcemanager")
    lab.wait_manager()
    cluster.wait_progress(job, 5)
    assert (cluster.job(job).state, workers(port, job)) == (JobState.RUNNING, kept)

    # One worker: the start is lost, the checkpoint is not.
    kill_container(kept[1])
    lost = cluster.wait(job, JobState.LOST)
    assert lost.checkpoint is not None
    assert lost.checkpoint.step >= 5
    assert dict(lost.allocation) == {}
    cluster.start(job, cluster.one(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("its second start", lambda: len(cluster.starts(job)) == 2)
    assert cluster.starts(job)[1].step == lost.checkpoint.step

    # A NameNode in safe mode: what must be written waits, and is done once it can be.
    safe_mode(harness, True)
    with pytest.raises(PortError):
        port.checkpoint_and_stop(job, 60.0)
    assert cluster.job(job).state is JobState.RUNNING
    safe_mode(harness, False)
    port.checkpoint_and_stop(job, 60.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert (stopped.exit_code, stopped.epoch) == (86, 2)
    assert stopped.checkpoint is not None
    assert stopped.checkpoint.epoch == 2


def leads_both_ways(harness: YarnHarness, port: YarnCluster, job: ObservedJob) -> None:
    """A job says where the ResourceManager's page of it is; that page and YARN's own account of it name the job."""
    name = port.files.service_name(job.id)
    page = job.native.partition(", ")[2]
    assert page.startswith(str(harness.lab.facts()["resource_manager"][0]))
    found = requests.get(page, params={"user.name": "root"}, timeout=60)
    assert found.status_code == 200
    assert name in found.text
    assert job.id in name
    told = port.services.http.ask("GET", f"/app/v1/services/{name}", owner="horae").check("reading the service")
    assert f"horae explain {job.id}" in told.data["description"]


def test_orphans_of_a_lost_node_write_nothing_and_end(cluster: Driver, harness: YarnHarness) -> None:
    """The NodeManager dies for good and what it had started lives on, unknown to YARN."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    here, there = cluster.nodes()[:2]
    job = cluster.running("orphaned", allocation={here.name: 1})
    cluster.wait_progress(job, 15)
    (orphan,) = workers(port, job)
    harness.lab.kill(here.name)
    cluster.until("the node is down", lambda: cluster.node(here.name).health is Health.DOWN)
    cluster.wait(job, JobState.LOST)
    cluster.start(job, {there.name: 1}, 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 5)
    wait_for("its trainer ends by itself", lambda: not trains(orphan))
    port.checkpoint_and_stop(job, 120.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert stopped.checkpoint is not None
    assert stopped.checkpoint.epoch == 2
    for pid in list(processes_of(f"/{orphan}")):
        processes.kill(pid)  # each may end by itself once another one is gone
    harness.restore_node(here.name)
    cluster.until("the node is up", lambda: cluster.node(here.name).health is Health.UP)


def test_half_a_gang_is_given_back(cluster: Driver, harness: YarnHarness) -> None:
    """Somebody takes a GPU between our look and our grant: what came goes back, and the job can run elsewhere."""
    slow = harness.port
    slow.close()
    options = {**harness.options, "gang_s": 10.0}
    harness.port = port = YarnCluster(parse_options(options))
    port.claim("the arbiter")
    job, (here, there) = cluster.submit("squeezed", gpus=(1, 8)), cluster.nodes()[:2]
    other = YarnHarness(harness.lab, harness.shared)
    elsewhere = Driver(other)
    rival = elsewhere.running("rival", allocation={there.name: there.gpus}, gpus=(1, 8))
    port.start(job, {here.name: 1, there.name: 1}, 1)
    cluster.until("it says why", lambda: cluster.job(job).blocked is not None)
    seen = cluster.job(job)
    assert seen.blocked is not None
    assert (seen.state, seen.blocked.kind, dict(seen.allocation)) == (JobState.QUEUED, BlockKind.GANG, {})
    assert elsewhere.job(rival).state is JobState.RUNNING
    cluster.until("its GPU is free", lambda: cluster.node(here.name).foreign == 0)
    port.close()
    harness.restart_arbiter()  # with the usual patience: this gang is to form, however slow the machine
    cluster.start(job, {here.name: 2}, 2)
    assert cluster.wait(job, JobState.RUNNING).epoch == 2
    other.end()


def test_a_refused_flex_that_is_stored_does_no_harm(cluster: Driver, harness: YarnHarness) -> None:
    """Somebody flexes the suspended service behind our back: the GPUs are taken back without a word from anybody.

    And before that, its first creation finds half a definition in its place.
    """
    port = harness.port
    assert isinstance(port, YarnCluster)
    job = cluster.submit("meddled")
    record = port.files.record(job)
    half = definition_path(record.service, record.owner)  # as a creation leaves it that broke off
    Hdfs(parse_options(harness.options).access((harness.facts["webhdfs"],))).write(half, b"")
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job)
    port.checkpoint_and_stop(job, 120.0)
    at_rest = cluster.wait(job, JobState.STOPPED)
    record = port.files.record(job)
    port.services.flex(record.service, record.owner, {name: 1 for _, name in record.components[:2]})
    wait_for("it holds GPUs", lambda: sum(node.gpus_used for node in port.manager.nodes()) > 0)
    told = f"{job} is stopped"
    wait_for("the books tell it", lambda: any(told in each for each in books.faults(port.manager, [at_rest])))
    cluster.until("it holds none", lambda: sum(node.foreign for node in cluster.observe().nodes) == 0)
    assert cluster.job(job).state is JobState.STOPPED
    cluster.start(job, cluster.one(), 2)
    cluster.wait(job, JobState.RUNNING)


def test_the_older_line_resizes_without_pinning(hadoop_336: PrivateHadoop, tmp_path: Path) -> None:  # noqa: F811
    """Hadoop 3.3 refuses node attributes: the cluster chooses the nodes, counts and checkpoints hold."""
    harness = YarnHarness(hadoop_336, tmp_path)
    cluster = Driver(harness)
    try:
        assert harness.port.capabilities().limits.pinning is Pinning.NONE
        job = cluster.running("older", allocation=cluster.one(1))
        harness.port.reshape(job, cluster.spread(1), 2)
        cluster.until("two GPUs in epoch 2", lambda: cluster.job(job).epoch == 2)
        seen = cluster.wait(job, JobState.RUNNING)
        assert sum(seen.allocation.values()) == 2
        cluster.wait_progress(job)
        harness.port.checkpoint_and_stop(job, 120.0)
        assert cluster.wait(job, JobState.STOPPED).exit_code == 86
        first, second = cluster.starts(job)
        assert (first.world, second.world, second.epoch) == (1, 2, 2)
        assert second.step > first.step
    finally:
        harness.end()


def trains(container: str) -> bool:
    """Whether a trainer runs in this container (its supervisor may wait at the gate)."""
    for pid in processes_of(f"/{container}"):
        with suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1].endswith(b"/trainer.py"):
                return True
    return False


def safe_mode(harness: YarnHarness, on: bool) -> None:
    harness.lab.admin("dfsadmin", "-safemode", "enter" if on else "leave")
