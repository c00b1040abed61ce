"""Under the fair scheduler, which is never told of nodes' attributes: nobody waits for a named node, and the limits of
its queues bind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import JobState
from policy.model import Allocation, Pinning
from tests.contract.driver import Driver
from tests.real.hadoop import YarnHarness, cluster_of
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.runtimes.chooser import HANDLER, PROCESSOR

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

#: it asks for its file again every ten seconds
ALLOCATIONS = """\
<?xml version="1.0"?>
<allocations>
  <defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>
  <queue name="default"><weight>1</weight></queue>
  <queue name="horae">
    <weight>4</weight>
    <maxRunningApps>{apps}</maxRunningApps>
    <maxResources>memory-mb=30000,vcores=60,yarn.io/gpu=6</maxResources>
  </queue>
</allocations>
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fair") / "fair-scheduler.xml"


@pytest.fixture
def harness(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, file: Path
) -> Iterator[YarnHarness]:
    file.write_text(ALLOCATIONS.format(apps=2))
    settings = {
        "yarn.resourcemanager.scheduler.class":
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler",
        "yarn.scheduler.fair.allocation.file": str(file),
        HANDLER: PROCESSOR,
    }  # fmt: skip
    made = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, settings), tmp_path)
    yield made
    made.end()


def free(cluster: Driver) -> dict[str, int]:
    return {node.name: node.gpus - node.foreign for node in cluster.observe().nodes}


def somewhere(cluster: Driver, gpus: int) -> Allocation:
    """YARN chooses the nodes; the bridge asks for so many where it was offered them."""
    seen = cluster.observe()
    held = dict.fromkeys(free(cluster), 0)
    for job in seen.jobs:
        for name, count in job.allocation.items():
            held[name] += count
    return next({name: gpus} for name, count in free(cluster).items() if count - held[name] >= gpus)


def test_gangs_form_wherever_yarn_puts_them_and_no_more_begin_than_may(harness: YarnHarness, file: Path) -> None:
    cluster = Driver(harness)
    assert isinstance(harness.port, YarnCluster)
    assert harness.port.capabilities().limits.pinning is Pinning.NONE
    for name in ("first", "second", "third"):
        cluster.submit(name)
    assert sum(free(cluster).values()) == 6, "the most that its queue may hold"
    for name in ("first", "second"):
        cluster.start(name, somewhere(cluster, 2))
        cluster.wait(name, JobState.RUNNING)
    text = "queue root.horae lets 2 applications run at a time: 0 more may begin"
    limits = harness.port._observer.limits

    def says() -> set[str]:
        limits.forget()
        return {each.name for each in cluster.observe().quotas}

    cluster.until("no third one may begin", lambda: text in says())
    cluster.wait_progress("first", 15)
    harness.port.reshape("first", somewhere(cluster, 2), 2)
    cluster.until("it has its new shape", lambda: cluster.job("first").epoch == 2)
    cluster.wait("first", JobState.RUNNING)
    file.write_text(ALLOCATIONS.format(apps=3))
    cluster.until("a third one may begin", lambda: not says())
    cluster.start("third", somewhere(cluster, 1))
    cluster.wait("third", JobState.RUNNING)
    assert {job.id: sum(job.allocation.values()) for job in cluster.observe().jobs} == {
        "first": 2, "second": 2, "third": 1
    }  # fmt: skip
