"""What administrators change around a job that runs: labels, partitions, placement rules; and a folder of
checkpoints that is taken away. No step is lost or done twice, nobody's GPU is kept for nobody, and what stands in the
way is said. On a real Hadoop, for the soak run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from horae.port import JobState
from policy.model import Allocation
from tests.contract.driver import Driver
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import YarnHarness, cluster_of
from tests.real.yarn_days import applications, goes_on, gpus_used, grows, hdfs, running, strangers
from tests.real.yarn_shop import ADMIN, Shop
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.resource_manager import QueueEdits

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

SETTINGS = {"yarn.node-labels.enabled": "true"}
LABEL = "k80s"


@pytest.fixture(name="shop")
def labelled_shop(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[Shop]:
    """n3 is a partition of its own, that lends nothing and that both queues are let into."""
    harness = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, SETTINGS), tmp_path)
    assert isinstance(harness.port, YarnCluster)
    manager = harness.port.manager
    labels = {"nodeLabelInfo": [{"name": LABEL, "exclusivity": "true"}]}
    manager.http.ask("POST", "/ws/v1/cluster/add-node-labels", owner=ADMIN, json=labels).check("adding a label")
    access = {"accessible-node-labels": LABEL, f"accessible-node-labels.{LABEL}.capacity": "50",
              f"accessible-node-labels.{LABEL}.maximum-capacity": "100"}  # fmt: skip
    whole = {**access, f"accessible-node-labels.{LABEL}.capacity": "100"}
    manager.edit_scheduler(QueueEdits(update={"root": whole, "root.horae": access, "root.default": access}), "horae")
    made = Shop(harness, Driver(harness), harness.port)
    labels_are(made, n3=LABEL)
    yield made
    labels_are(made, n3=LABEL)
    harness.end()


def labels_are(shop: Shop, **labels: str) -> None:
    """Of all nodes; of those that are not named, none."""
    nodes = {each.host: each.id for each in patiently(shop.port.manager.nodes)}
    wanted = {node: [labels[host]] if host in labels else [] for host, node in nodes.items()}
    where = {"nodeToLabels": [{"nodeId": node, "labels": each} for node, each in wanted.items()]}
    answer = shop.port.manager.http.ask("POST", "/ws/v1/cluster/replace-node-to-labels", owner=ADMIN, json=where)
    answer.check("labelling")
    wait_for(
        "they are labelled",
        lambda: (
            {each.host: each.labels for each in shop.port.manager.nodes()}
            == {host: (labels[host],) if host in labels else () for host in nodes}
        ),
    )
    shop.port._observer.limits.forget()


@contextmanager
def its_owners_are_sent_to_another_queue(shop: Shop, job: str) -> Iterator[None]:
    """By a placement rule that wins over what is asked for: what is made from then on is there, which is said."""
    rule = {"yarn.scheduler.capacity.queue-mappings": "u:ann:default",
            "yarn.scheduler.capacity.queue-mappings-override.enable": "true"}  # fmt: skip
    shop.port.manager.edit_scheduler(QueueEdits(globals=rule), "horae")
    try:
        assert not [each for each in shop.cluster.observe().notes if "in queue" in each]
        becomes(shop, job, {"n1": 2, "n2": 2}, 2)
        shop.cluster.stop(job, 120.0)
        shop.cluster.wait(job, JobState.STOPPED)
        patiently(lambda: shop.port.manager.kill(shop.app(job).id, "for another", ADMIN))
        shop.cluster.until("it is gone", lambda: bool(shop.cluster.observe()) and not applications(shop, job))
        goes_on(shop, job)
        (told,) = [each for each in shop.cluster.observe().notes if "in queue" in each]
        assert f"{job}: its application is in queue root.default and was asked for in horae" in told
    finally:
        shop.port.manager.edit_scheduler(QueueEdits(globals=dict.fromkeys(rule)), "horae")
    yield


def becomes(shop: Shop, job: str, shape: Allocation, epoch: int) -> None:
    patiently(lambda: shop.port.reshape(job, shape, epoch))
    shop.cluster.until("it has its shape", lambda: shop.cluster.job(job).epoch == epoch)
    assert dict(shop.cluster.job(job).allocation) == dict(shape)
    goes_on(shop, job)


@contextmanager
def its_label_moves(shop: Shop, job: str) -> Iterator[None]:
    """From a node that it has nothing on to one of its own, and away again: it runs on, and grows where it is."""
    labels_are(shop, n2=LABEL)
    shop.cluster.wait_progress(job, 5)
    assert (shop.cluster.job(job).state, shop.cluster.job(job).epoch) == (JobState.RUNNING, 1)
    assert [each.foreign for each in shop.cluster.observe().nodes] == [0, 0, 0]
    becomes(shop, job, {"n1": 2, "n2": 2}, 2)
    labels_are(shop, n1=LABEL)
    becomes(shop, job, {"n1": 1, "n2": 1, "n3": 1}, 3)
    labels_are(shop)
    becomes(shop, job, {"n1": 2, "n3": 2}, 4)
    yield


@contextmanager
def its_queue_loses_the_partition(shop: Shop, job: str) -> Iterator[None]:
    """Into which one of its nodes was just put: it runs on where it is, and is not offered more there."""
    labels_are(shop, n2=LABEL)
    none = {"accessible-node-labels": " "}
    shop.port.manager.edit_scheduler(QueueEdits(update={"root.horae": none}), "horae")
    try:
        shop.port._observer.limits.forget()
        shop.cluster.wait_progress(job, 5)
        assert (shop.cluster.job(job).state, shop.cluster.job(job).epoch) == (JobState.RUNNING, 1)
        n2 = shop.cluster.node("n2")
        assert n2.gpus - n2.foreign <= 1, n2
        becomes(shop, job, {"n1": 3}, 2)
    finally:
        back = {"accessible-node-labels": LABEL, f"accessible-node-labels.{LABEL}.capacity": "50"}
        shop.port.manager.edit_scheduler(QueueEdits(update={"root.horae": back}), "horae")
        labels_are(shop, n3=LABEL)
    yield


@contextmanager
def checkpoints_are_taken_away(shop: Shop, job: str) -> Iterator[None]:
    """With their folder, by somebody who makes room: it trains on, and its next one is there again."""
    record = shop.port._observer.jobs[job]
    folder = "/" + (record.spec.checkpoint or "").partition("://")[2].partition("/")[2]
    shop.harness.lab._asked.hdfs("DELETE", folder, "DELETE", recursive="true")
    hdfs(shop).as_user("horae").make_folder(folder, "777")
    shop.cluster.wait_progress(job, 5)
    grows(shop, job)
    yield


DAYS: dict[str, Callable[[Shop, str], AbstractContextManager[None]]] = {
    "its label moves": its_label_moves,
    "its queue loses the partition": its_queue_loses_the_partition,
    "its checkpoints are taken away": checkpoints_are_taken_away,
    "its owners are sent to another queue": its_owners_are_sent_to_another_queue,
}


@pytest.mark.parametrize("day", DAYS)
def test_what_is_changed_around_a_job_that_runs(shop: Shop, day: str) -> None:
    job, theirs = f"change{list(DAYS).index(day)}", strangers(shop)
    running(shop, job)
    began_s = time.monotonic()
    with DAYS[day](shop, job):
        goes_on(shop, job)
        shop.cluster.stop(job, 120.0)
        assert shop.cluster.wait(job, JobState.STOPPED).exit_code == 86
    print(f"{day}: {time.monotonic() - began_s:.0f} s")
    assert not shop.port.manager.app(theirs).ended, "a stranger's application was ended"
    starts = shop.cluster.starts(job)
    assert [each.epoch for each in starts] == sorted({each.epoch for each in starts}), "a start was doubled"
    assert all(each.step > 0 for each in starts[1:]), f"all was done again: {starts}"
    shop.cluster.cancel(job)
    shop.cluster.wait(job, JobState.CANCELLED)
    wait_for("no GPU is held by nobody", lambda: gpus_used(shop) == 0)
    wait_for("its application is over", lambda: not applications(shop, job))
