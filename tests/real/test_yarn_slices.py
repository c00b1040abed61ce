"""A job as slices of GPUs on a real Hadoop: started, grown, shrunk, suspended, resumed, moved and finished.

The cluster has the Services API and node attributes; only the slices are used here. Clusters without both, and the
3.3 line, run the whole contract in `make soak` (`tests/contract/test_yarn_slices.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.doctor import Verdict
from horae.port import JobState, TryLater, attend
from policy.model import Health
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.real.hadoop import (
    NODES,
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    hadoop_bare,  # noqa: F401
    kill_container,
    workers,
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import AUTO, SLICES
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND
from yarn_bridge.site import checks

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path, SLICES)
    yield made
    made.end()


def slices(harness: YarnHarness) -> list[str]:
    """node/GPUs of every slice that has not ended."""
    assert isinstance(harness.port, YarnCluster)
    listed = harness.port.manager.apps(kinds=(SLICE_KIND,), states=("NEW", "SUBMITTED", "ACCEPTED", "RUNNING"))
    return sorted(each.name.partition("/")[2] for each in listed)


def test_a_job_as_slices_through_its_shapes(harness: YarnHarness) -> None:
    cluster = Driver(harness)
    port = harness.port
    assert isinstance(port, YarnCluster)
    here, there = (node.name for node in cluster.nodes()[:2])
    job = cluster.running("sliced", allocation={here: 1})
    assert slices(harness) == [f"{here}/1"]
    kept = workers(port, job)

    port.reshape(job, {here: 1, there: 1}, 2)
    cluster.until("both train", lambda: cluster.job(job).epoch == 2 and cluster.job(job).state is JobState.RUNNING)
    assert dict(cluster.job(job).allocation) == {here: 1, there: 1}
    assert (slices(harness), workers(port, job)[0]) == ([f"{here}/1", f"{there}/1"], kept[0])
    cluster.wait_progress(job, 2)

    # Shrunk to the other node while the arbiter is killed and another one takes over: nothing is lost, nothing held.
    port.reshape(job, {there: 1}, 3)
    port = harness.restart_arbiter()
    cluster.until("it moved", lambda: cluster.job(job).epoch == 3 and cluster.job(job).state is JobState.RUNNING)
    cluster.wait_progress(job, 2)
    assert dict(cluster.job(job).allocation) == {there: 1}
    cluster.until("one slice is left", lambda: slices(harness) == [f"{there}/1"])

    port.checkpoint_and_stop(job, 120.0)
    stopped = cluster.wait(job, JobState.STOPPED)
    assert (stopped.exit_code, slices(harness)) == (86, [])
    starts, steps = cluster.starts(job), cluster.steps(job)
    assert [(start.epoch, start.world) for start in starts] == [(1, 1), (2, 2), (3, 1)]
    assert steps == sorted(set(steps)), "a step was done twice although every stop was clean"
    port.cancel(job)


def test_a_job_that_finishes_as_slices_leaves_none(harness: YarnHarness) -> None:
    cluster = Driver(harness)
    job = cluster.submit("ends", Behaviour.FINISHES)
    cluster.start(job, cluster.one(2))
    seen = cluster.wait(job, JobState.COMPLETED)
    assert (seen.exit_code, dict(seen.allocation)) == (0, {})
    cluster.until("no slice is left", lambda: slices(harness) == [])


@pytest.mark.soak
def test_bad_days_of_slices(hadoop_bare: PrivateHadoop, tmp_path: Path) -> None:  # noqa: F811
    """Where there is neither the Services API nor a node attribute: what dies, and what becomes of the job."""
    harness = YarnHarness(hadoop_bare, tmp_path, AUTO)
    cluster, lab, port = Driver(harness), harness.lab, harness.port
    assert isinstance(port, YarnCluster)
    try:
        told = {check.name: check for check in checks({**harness.options})}
        assert told["runtime"].text == "slices, YARN chooses the nodes: the Services API is off"
        assert told["Services API"].verdict is Verdict.WARN

        # The ResourceManager, with recovery: what is asked for meanwhile waits, the gang trains on.
        job = cluster.running("survivor", allocation=cluster.one(2), gpus=(1, 4))
        kept = workers(port, job)
        lab.kill("resourcemanager")
        lab.start("resourcemanager")
        nodes = len(NODES)

        def back() -> bool:
            """Looked at all the while, as an arbiter does: it comes up before its nodes and application masters."""
            try:
                seen = attend(port)
            except TryLater:
                return False
            assert [each.state for each in seen.jobs] == [JobState.RUNNING]
            up = [node for node in seen.nodes if node.health is Health.UP]
            return len(up) == nodes and [each.state for each in port.manager.apps(kinds=(SLICE_KIND,))] == ["RUNNING"]

        cluster.until("all have come back", back)
        cluster.wait_progress(job, 5)
        assert (cluster.job(job).state, workers(port, job)) == (JobState.RUNNING, kept)

        # One worker: the start is lost, and nothing of it is held.
        kill_container(kept[1])
        cluster.wait(job, JobState.LOST)
        cluster.until("nothing is held", lambda: slices(harness) == [])

        # A slice's application master: YARN ends its workers with it.
        cluster.start(job, cluster.one(2), 2)
        cluster.wait(job, JobState.RUNNING)
        kill_container("_".join(workers(port, job)[0].split("_")[:-1]) + "_000001")
        cluster.wait(job, JobState.LOST)
        cluster.until("nothing is held", lambda: slices(harness) == [])

        # Slices of which nobody knows any more.
        cluster.start(job, cluster.one(1), 3)
        cluster.wait(job, JobState.RUNNING)
        port.files._hdfs.as_user("horae").delete(port.files.folder(job))
        cluster.until("what is of no job ends", lambda: [*attend(port).jobs, *slices(harness)] == [])
    finally:
        harness.end()
