"""What happens to a site around a job that runs there: its nodes, queues, daemons, and what others and its owner do to
its files. Nothing of a stranger's is harmed, no step is lost or done twice, nobody's GPU is kept for nobody, and what
stands in the way is said. On a real Hadoop, for the soak run."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import requests

from horae.port import FixConfiguration, JobState, PortError, TryLater, attend
from policy.model import Health
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import (
    hadoop_342,  # noqa: F401 - a fixture
    kill_container,
    workers,
)
from tests.real.yarn_days import ANN, applications, goes_on, gpus_used, grows, hdfs, running, strangers
from tests.real.yarn_shop import (
    ADMIN,
    Shop,
    a_shop,  # noqa: F401 - a fixture
    shop_harness,  # noqa: F401 - a fixture
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.clients.services import definition_path
from yarn_bridge.lab.private import processes_of

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


def rests(shop: Shop, job: str) -> bool:
    seen = shop.cluster.job(job)
    return not seen.state.ended and not seen.state.holds


# --- nodes, queues, daemons ---


def excluded(shop: Shop, *words: str) -> Path:
    """n2 is decommissioned; the list that says so."""
    lab = shop.harness.lab
    listed: Path = lab.folder / "excluded"
    listed.write_text("n2\n")
    lab.settle({"yarn.resourcemanager.nodes.exclude-path": str(listed)})
    lab.admin("rmadmin", "-refreshNodes", *words)
    return listed


def returns(shop: Shop, listed: Path) -> None:
    lab = shop.harness.lab
    listed.write_text("")
    lab.admin("rmadmin", "-refreshNodes")
    lab.kill("n2")  # it may be about to end by itself
    lab.start("n2")
    shop.cluster.until("it is back", lambda: shop.cluster.node("n2").health is Health.UP)


@contextmanager
def node_is_decommissioned(shop: Shop, job: str) -> Iterator[None]:
    """Gracefully: it takes nobody new, and is left by a resize."""
    listed = excluded(shop, "-g", "600", "-server")
    try:
        shop.cluster.until("it drains", lambda: shop.cluster.node("n2").health is Health.DRAIN)
        shop.cluster.wait_progress(job, 5)
        assert (shop.cluster.job(job).state, shop.cluster.job(job).epoch) == (JobState.RUNNING, 1)
        with pytest.raises(PortError):
            shop.port.reshape(job, {"n1": 1, "n2": 2}, 2)
        patiently(lambda: shop.port.reshape(job, {"n1": 2}, 2))
        shop.cluster.until("it is left", lambda: shop.cluster.job(job).epoch == 2)
        goes_on(shop, job)
        assert dict(shop.cluster.job(job).allocation) == {"n1": 2}
    finally:
        returns(shop, listed)
    yield


@contextmanager
def node_is_decommissioned_at_once(shop: Shop, job: str) -> Iterator[None]:
    listed = excluded(shop)
    try:
        lost = shop.cluster.wait(job, JobState.LOST)
        assert "n2" in lost.native, lost
        assert lost.checkpoint is not None
    finally:
        returns(shop, listed)
    yield


@contextmanager
def node_manager_is_restarted(shop: Shop, job: str) -> Iterator[None]:
    kept = workers(shop.port, job)
    shop.harness.lab.kill("n2")
    shop.harness.lab.start("n2")
    shop.harness.lab.wait_manager()
    shop.cluster.wait_progress(job, 5)
    assert (shop.cluster.job(job).state, workers(shop.port, job)) == (JobState.RUNNING, kept)
    yield


@contextmanager
def manager_is_restarted_in_a_resize(shop: Shop, job: str) -> Iterator[None]:
    shape = shop.cluster.spread(2)
    shop.port.reshape(job, shape, 2)
    shop.harness.lab.kill("resourcemanager")
    shop.harness.lab.start("resourcemanager")
    shop.harness.lab.wait_manager()
    shop.cluster.until("it has its new shape", lambda: shop.cluster.job(job).epoch == 2)
    goes_on(shop, job)
    assert [(each.epoch, each.world) for each in shop.cluster.starts(job)] == [(1, 2), (2, 4)]
    yield


@contextmanager
def queue_shrinks_below_what_is_used(shop: Shop, job: str) -> Iterator[None]:
    """It runs on, gets no more, and nothing is offered to others; until there is room again."""
    port, limits = shop.port, shop.port._observer.limits
    small = {"root.horae": {"capacity": "5", "maximum-capacity": "10"}, "root.default": {"capacity": "95"}}
    back = {"root.horae": {"capacity": "80", "maximum-capacity": "100"}, "root.default": {"capacity": "20"}}
    larger = shop.cluster.spread(2)
    port.manager.edit_scheduler(QueueEdits(update=small), "horae")
    try:
        limits.forget()
        seen = shop.cluster.observe()
        held = {name: gpus for job in seen.jobs for name, gpus in job.allocation.items()}
        assert [node.gpus - node.foreign - held.get(node.name, 0) for node in seen.nodes] == [0, 0, 0], seen.nodes
        with pytest.raises(TryLater):
            port.reshape(job, larger, 2)
        shop.cluster.wait_progress(job, 5)
        assert (shop.cluster.job(job).state, shop.cluster.job(job).epoch) == (JobState.RUNNING, 1)
    finally:
        port.manager.edit_scheduler(QueueEdits(update=back), "horae")
        limits.forget()
    shop.cluster.observe()
    grows(shop, job)
    yield


@contextmanager
def its_only_application_master_dies(shop: Shop, job: str) -> Iterator[None]:
    """Where a site allows one: the job is lost, and not the owner's who did nothing."""
    lab = shop.harness.lab
    lab.settle({"yarn.resourcemanager.am.max-attempts": "1"})
    lab.kill("resourcemanager")
    lab.start("resourcemanager")
    lab.wait_manager()
    try:
        shop.cluster.stop(job, 120.0)
        shop.cluster.wait(job, JobState.STOPPED)
        patiently(lambda: shop.port.manager.kill(shop.app(job).id, "for another", ADMIN))
        shop.cluster.until("it is gone", lambda: bool(shop.cluster.observe()) and not applications(shop, job))
        goes_on(shop, job)
        shop.cluster.wait_progress(job, 15)
        kill_container(master(shop, job))
        lost = shop.cluster.wait(job, JobState.LOST)
        assert "failed 1 times" in lost.native, lost
        yield
    finally:
        lab.settle({"yarn.resourcemanager.am.max-attempts": "20"})
        lab.kill("resourcemanager")
        lab.start("resourcemanager")
        lab.wait_manager()


def master(shop: Shop, job: str) -> str:
    """The container of its application master."""
    return shop.port.manager.attempts(shop.app(job).id)[-1].am_container


# --- files ---


@contextmanager
def definition_is_taken_away(shop: Shop, job: str) -> Iterator[None]:
    """With all of `.yarn`, by an owner who tidies up."""
    assert hdfs(shop).delete(f"/user/{ANN}/.yarn")
    shop.cluster.wait_progress(job, 5)
    assert shop.cluster.job(job).state is JobState.RUNNING
    shop.cluster.stop(job, 120.0)
    stopped = shop.cluster.wait(job, JobState.STOPPED)
    assert stopped.exit_code == 86
    wait_for("its GPUs are free", lambda: gpus_used(shop) == 0)
    yield


def definition_becomes(data: bytes) -> Callable[[Shop, str], AbstractContextManager[None]]:
    @contextmanager
    def deed(shop: Shop, job: str) -> Iterator[None]:
        path = definition_path(shop.service(job), ANN)
        hdfs(shop).write(path, data)
        shop.cluster.wait_progress(job, 5)
        grows(shop, job)
        assert [node.foreign for node in shop.cluster.observe().nodes] == [0, 0, 0], "a node is blamed"
        shop.cluster.stop(job, 120.0)
        shop.cluster.wait(job, JobState.STOPPED, JobState.LOST)
        hdfs(shop).write(path, data)
        yield

    return deed


@contextmanager
def folder_is_closed(shop: Shop, job: str) -> Iterator[None]:
    """By its owner: a new arbiter looks all the same, and he keeps no GPU by it."""
    hdfs(shop).set_permission(shop.port.files.folder(job), "700")
    shop.harness.restart_arbiter()
    cluster = Driver(shop.harness)
    assert cluster.job(job).state is JobState.RUNNING
    port = shop.harness.port
    assert isinstance(port, YarnCluster)
    port.checkpoint_and_stop(job, 5.0)
    cluster.wait(job, JobState.STOPPED)
    wait_for("its GPUs are free", lambda: gpus_used(shop) == 0)
    hdfs(shop).set_permission(shop.port.files.folder(job), "755")
    shop.port, shop.cluster = port, cluster
    yield


def snapshot(shop: Shop, method: str, folder: str, operation: str) -> None:
    query = {"op": operation, "snapshotname": "before", "user.name": ADMIN}
    url = f"{shop.harness.lab.facts()['webhdfs']}/webhdfs/v1{folder}"
    requests.request(method, url, params=query, timeout=60).raise_for_status()


@contextmanager
def folders_have_snapshots(shop: Shop, job: str) -> Iterator[None]:
    lab = shop.harness.lab
    roots = (str(shop.harness.options["folder"]), f"/user/{ANN}")
    for root in roots:
        lab.admin("dfsadmin", "-allowSnapshot", root)
        snapshot(shop, "PUT", root, "CREATESNAPSHOT")
    grows(shop, job)
    shop.cluster.stop(job, 120.0)
    assert shop.cluster.wait(job, JobState.STOPPED).exit_code == 86
    yield
    for root in roots:
        snapshot(shop, "DELETE", root, "DELETESNAPSHOT")
        lab.admin("dfsadmin", "-disallowSnapshot", root)


@contextmanager
def launch_script_is_taken_away(shop: Shop, job: str) -> Iterator[None]:
    """Its containers come and end at once: that is no node's fault, and costs nobody else a GPU."""
    shop.cluster.stop(job, 120.0)
    shop.cluster.wait(job, JobState.STOPPED)
    patiently(lambda: shop.port.manager.kill(shop.app(job).id, "for another", ADMIN))
    shop.cluster.until("it is gone", lambda: bool(shop.cluster.observe()) and not applications(shop, job))
    path = f"{shop.port.files.folder(job)}/launch.sh"
    script = hdfs(shop).read(path)
    assert script is not None
    assert hdfs(shop).delete(path)
    shop.cluster.start(job, shop.cluster.spread(1), 2)
    wait_for("it is given up", lambda: rests(shop, job), 300.0)
    seen = shop.cluster.observe()
    now = shop.cluster.job(job)
    assert now.blocked is None, "an arbiter leaves GPUs alone that block"
    assert "launch.sh" in now.native, now
    assert [node.foreign for node in seen.nodes] == [0, 0, 0], seen.notes
    hdfs(shop).write(path, script)
    yield


@contextmanager
def application_master_is_stopped(shop: Shop, job: str) -> Iterator[None]:
    """By its owner, who has the bridge ask for it beside: others' rounds go on, and he keeps nothing by it."""
    pids = list(processes_of(f"/{master(shop, job)}"))
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    folder = shop.port.files.folder(job)
    hdfs(shop).keep_document(f"{folder}/members/somebody", b'{"host": "h", "port": 1}', folder)
    took_s = []
    for _ in range(6):
        began_s = time.monotonic()
        shop.cluster.observe()
        took_s.append(time.monotonic() - began_s)
        time.sleep(1.0)
    assert sum(each > 10.0 for each in took_s) <= 1, took_s
    shop.cluster.stop(job, 120.0)
    assert shop.cluster.wait(job, JobState.STOPPED).exit_code == 86
    wait_for("its GPUs are free", lambda: gpus_used(shop) == 0)
    yield


DAYS: dict[str, Callable[[Shop, str], AbstractContextManager[None]]] = {
    "a node is decommissioned gracefully": node_is_decommissioned,
    "a node is decommissioned at once": node_is_decommissioned_at_once,
    "a NodeManager is restarted": node_manager_is_restarted,
    "the ResourceManager is restarted in a resize": manager_is_restarted_in_a_resize,
    "its queue shrinks below what is used": queue_shrinks_below_what_is_used,
    "its only application master dies": its_only_application_master_dies,
    "its service's definition is taken away": definition_is_taken_away,
    "its service's definition is garbage": definition_becomes(b"garbage"),
    "its service's definition is huge": definition_becomes(b" " * (32 << 20)),
    "its service's definition is another service's": definition_becomes(b'{"name": "h-other-1", "components": []}'),
    "its folder is closed by its owner": folder_is_closed,
    "its folders have snapshots": folders_have_snapshots,
    "its launch script is taken away": launch_script_is_taken_away,
    "its application master is stopped": application_master_is_stopped,
}


@pytest.mark.parametrize("day", DAYS)
def test_what_happens_around_a_job_that_runs(shop: Shop, day: str) -> None:
    job, theirs = f"day{list(DAYS).index(day)}", strangers(shop)
    running(shop, job)
    with DAYS[day](shop, job):
        goes_on(shop, job)
        shop.cluster.stop(job, 120.0)
        assert shop.cluster.wait(job, JobState.STOPPED).exit_code == 86
    assert not shop.port.manager.app(theirs).ended, "a stranger's application was ended"
    starts, steps = shop.cluster.starts(job), shop.cluster.steps(job)
    # Of a worker that is killed, what it printed in its last second is not copied; it goes on from what it had saved.
    unseen = set(range(1, steps[-1] + 1)) - set(steps)
    assert all(any(each - 100 < step <= each for each in [one.step for one in starts]) for step in unseen), unseen
    assert [each.epoch for each in starts] == sorted({each.epoch for each in starts}), "a start was doubled"
    shop.cluster.cancel(job)
    shop.cluster.wait(job, JobState.CANCELLED)
    wait_for("no GPU is held by nobody", lambda: gpus_used(shop) == 0)
    wait_for("its application is over", lambda: not applications(shop, job))


def test_a_service_of_its_owners_under_the_name_of_a_job_is_left_alone(shop: Shop) -> None:
    name = shop.port.files.service_name("taken")
    worker = {"name": "w", "number_of_containers": 1, "launch_command": "exec sleep 900",
              "resource": {"cpus": 1, "memory": "64"}}  # fmt: skip
    body = {"name": name, "version": "1.0", "queue": "default", "components": [worker]}
    shop.port.services.create(body, "horae")
    wait_for("it runs", lambda: [each for each in shop.port.manager.apps(states=("RUNNING",)) if each.name == name])
    shop.port.submit("taken", shop.harness.spec("taken", Behaviour.TRAINS))
    (app,) = applications(shop, "taken")
    shop.cluster.wait("taken", JobState.QUEUED)
    with pytest.raises(FixConfiguration, match="which Horae did not make"):
        shop.port.start("taken", {"n1": 1}, 1)
    assert applications(shop, "taken") == [app]
    read = functools.partial(shop.port.services.get, name, "horae")
    patiently(lambda: shop.port.manager.kill(app, "mine", "horae"))
    wait_for("it has ended", lambda: (found := patiently(read)) is None or found.ended)
    wait_for("that is seen", lambda: attend(shop.port) and not applications(shop, "taken"))
    shop.cluster.start("taken", {"n1": 1}, 1)
    shop.cluster.wait("taken", JobState.RUNNING)
