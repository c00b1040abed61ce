"""A shop's own ways, on a real ResourceManager: queues that let in whom they name, a node that loses its attribute, and
a queue that is gone after a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState, Never, Observation, ObservedJob, PortError, attend
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real import books
from tests.real.hadoop import YarnHarness, cluster_of
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

ADMIN = "root"
SETTINGS = {"yarn.acl.enable": "true", "yarn.admin.acl": f"{ADMIN},horae"}
#: so long nothing is to be asked for in vain
QUIET_S = 15.0
QUEUE = "root.shop"
SHOP = {
    "root": {"acl_submit_applications": " ", "acl_administer_queue": " "},
    "root.default": {"acl_submit_applications": "horae", "acl_administer_queue": " "},
}


@pytest.fixture
def harness(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[YarnHarness]:
    made = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, SETTINGS), tmp_path)
    yield made
    made.end()


@pytest.fixture
def shop(harness: YarnHarness) -> Iterator[YarnCluster]:
    """The bridge of a queue that one user may submit to, below a root that is closed to all."""
    manager = bridge(harness).manager
    conf = manager.scheduler_conf(ADMIN) or {}
    share = float(conf["yarn.scheduler.capacity.root.default.capacity"])
    half = {"capacity": str(share / 2)}
    rights = {"acl_submit_applications": "alice", "acl_administer_queue": "horae", "user-limit-factor": "100"}
    closed = {**SHOP, "root.default": {**SHOP["root.default"], **half}}
    manager.edit_scheduler(QueueEdits(add={QUEUE: {**half, **rights}}, update=closed), ADMIN)
    port = YarnCluster(parse_options({**harness.options, "queue": QUEUE, "gang_s": 120.0}))
    patiently(lambda: port.claim("the shop's"))
    yield port
    for job in patiently(lambda: attend(port)).jobs:
        patiently(lambda job=job: port.cancel(job.id))  # type: ignore[misc]
    wait_for("its applications end", lambda: attend(port) and not books.of_apps(port.manager))
    port.close()
    if QUEUE in books.of_queues(manager):
        manager.edit_scheduler(QueueEdits(update={QUEUE: {"state": "STOPPED"}}), ADMIN)
        opened: dict[str, dict[str, str | None]] = {name: dict.fromkeys(rights) for name, rights in SHOP.items()}
        opened["root.default"] |= {"capacity": str(share)}
        back = QueueEdits(remove=(QUEUE,), update=opened)
        patiently(lambda: manager.edit_scheduler(back, ADMIN))


def bridge(harness: YarnHarness) -> YarnCluster:
    assert isinstance(harness.port, YarnCluster)
    return harness.port


def handed_in(harness: YarnHarness, port: YarnCluster, job: str, owner: str) -> None:
    """A job of this owner's, who has a home, and may write its checkpoints."""
    harness.lab._change(f"/user/{owner}", "MKDIRS", permission="755")
    harness.lab._change(f"/user/{owner}", "SETOWNER", owner=owner)
    spec = replace(harness.spec(job, Behaviour.TRAINS), owner=owner)
    options = parse_options(harness.options)
    folder = "/" + (spec.checkpoint or "").partition("://")[2].partition("/")[2]
    Hdfs(options.access(options.webhdfs)).as_user("horae").make_folder(folder, "777")
    port.submit(job, spec)


def applications(port: YarnCluster, owner: str) -> int:
    """All that were ever submitted, refused ones too."""
    return len(port.manager.apps(user=owner))


def free(seen: Observation) -> dict[str, int]:
    return {node.name: node.gpus - node.foreign for node in seen.nodes}


def test_a_closed_queue_lets_in_whom_it_names_and_a_refusal_is_told_and_not_repeated(
    harness: YarnHarness, shop: YarnCluster
) -> None:
    with pytest.raises(Never, match=rf"YARN lets bob not submit to queue {QUEUE}.*acl_submit_applications"):
        handed_in(harness, shop, "of-bob", "bob")
    handed_in(harness, shop, "of-alice", "alice")
    attend(shop)
    shop.manager.edit_scheduler(QueueEdits(update={QUEUE: {"acl_submit_applications": "carol"}}), ADMIN)
    before = applications(shop, "alice")
    with suppress(PortError):  # at once, or when the bridge looks after it
        shop.start("of-alice", {"n1": 2}, 1)
    wait_for("it holds nothing", lambda: not job(shop, "of-alice").state.holds)
    refused = job(shop, "of-alice")
    words = refused.native if refused.blocked is None else refused.blocked.text
    assert "alice" in words, refused
    assert QUEUE in words, refused
    asked = applications(shop, "alice")
    assert asked <= before + 1
    until_s = time.monotonic() + QUIET_S
    while time.monotonic() < until_s:
        attend(shop)
        time.sleep(1.0)
    assert applications(shop, "alice") == asked, "asked for again before anybody granted it anew"
    shop.manager.edit_scheduler(QueueEdits(update={QUEUE: {"acl_submit_applications": "alice"}}), ADMIN)
    patiently(lambda: shop.start("of-alice", {"n1": 2}, 2))
    wait_for("it runs in its queue", lambda: job(shop, "of-alice").state is JobState.RUNNING, 180.0)
    (app,) = shop.manager.apps(user="alice", states=("RUNNING",))
    assert app.queue == QUEUE


def test_a_node_that_loses_its_attribute_is_left_out_from_the_next_look_on(harness: YarnHarness) -> None:
    cluster, lab = Driver(harness), harness.lab
    assert free(cluster.observe()) == {"n1": 4, "n2": 4, "n3": 4}
    site = lab.folder / "etc" / "n1" / "yarn-site.xml"
    whole = site.read_text()
    site.write_text(whole.replace("host,STRING,n1:", ""))
    try:
        lab.kill("n1")
        lab.start("n1")
        cluster.until("it is left out", lambda: free(cluster.observe()) == {"n1": 0, "n2": 4, "n3": 4})
        assert any(
            note.startswith("n1 is not offered: it does not tell its own name") for note in cluster.observe().notes
        )
        name = cluster.running("elsewhere", allocation={"n2": 2})
        assert cluster.job(name).allocation == {"n2": 2}
    finally:
        site.write_text(whole)
        lab.kill("n1")
        lab.start("n1")
    cluster.until("it is offered again", lambda: free(cluster.observe())["n1"] == 4)
    assert cluster.job(name).state is JobState.RUNNING


def test_a_queue_that_is_gone_after_a_restart_is_said_and_nothing_is_asked_for(
    harness: YarnHarness, shop: YarnCluster
) -> None:
    """The ResourceManager kept it in memory."""
    handed_in(harness, shop, "runs", "alice")
    handed_in(harness, shop, "waits", "alice")
    patiently(lambda: shop.start("runs", {"n1": 2}, 1))
    wait_for("it runs", lambda: job(shop, "runs").state is JobState.RUNNING, 180.0)
    harness.lab.kill("resourcemanager")
    harness.lab.start("resourcemanager")
    harness.lab.wait_manager()
    wait_for("it is said", lambda: any(f"no queue '{QUEUE}'" in note for note in attend(shop).notes))
    wait_for("nothing is offered", lambda: not any(free(attend(shop)).values()))
    asked = applications(shop, "alice")
    with pytest.raises(PortError):
        shop.start("waits", {"n1": 2}, 1)
    until_s = time.monotonic() + QUIET_S
    while time.monotonic() < until_s:
        attend(shop)
        time.sleep(1.0)
    assert applications(shop, "alice") <= asked


def job(port: YarnCluster, name: str) -> ObservedJob:
    return next(each for each in patiently(lambda: attend(port)).jobs if each.id == name)
