"""What happens to a queue that a job names itself, on a real scheduler: Horae's own is full beside it, it drains, it
lets its owner in no more, it is deleted; and it has shares of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState, Never, PortError
from policy.model import Quota
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real import books
from tests.real.hadoop import YarnHarness, cluster_of
from tests.real.yarn_days import ANN, hdfs
from tests.real.yarn_queues import ADS, own_queue
from tests.real.yarn_shop import Shop
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.resource_manager import QueueEdits

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

ADMIN = "root"
LABEL = "gold"
SETTINGS = {"yarn.acl.enable": "true", "yarn.admin.acl": f"{ADMIN},horae", "yarn.node-labels.enabled": "true"}
RIGHT, ADMINISTERS = "acl_submit_applications", "acl_administer_queue"  #: who does may submit, too


@pytest.fixture
def shop(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Shop]:
    """Below a root that lets nobody in, each queue lets in whom it names: the default one and Horae's everybody."""
    harness = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, SETTINGS), tmp_path)
    assert isinstance(harness.port, YarnCluster)
    made = Shop(harness, Driver(harness), harness.port)
    open_to = {"root.default": "*", "root.horae": "*"}
    edited(made, {"root": {RIGHT: " ", ADMINISTERS: " "}, **{name: {RIGHT: whom} for name, whom in open_to.items()}})
    yield made
    harness.end()
    edited(made, {"root": {RIGHT: None, ADMINISTERS: None}, **{name: {RIGHT: None} for name in open_to}})


@pytest.fixture
def ads(shop: Shop) -> Iterator[None]:
    with own_queue(shop.port, ADMIN):
        edited(shop, {ADS: {RIGHT: "*"}})
        yield
        for job in ("hers", "next", "plain"):
            if job in shop.port._observer.jobs:
                shop.cluster.cancel(job)


def edited(shop: Shop, changes: dict[str, dict[str, str | None]]) -> None:
    patiently(lambda: shop.port.manager.edit_scheduler(QueueEdits(update=changes), ADMIN))
    shop.port._observer.limits.forget()


def handed_in(shop: Shop, job: str, gpus: tuple[int, int] = (1, 12)) -> None:
    """A job of ann's that names the queue."""
    shop.harness.lab._change(f"/user/{ANN}", "MKDIRS", permission="755")
    shop.harness.lab._change(f"/user/{ANN}", "SETOWNER", owner=ANN)
    spec = replace(shop.harness.spec(job, Behaviour.TRAINS, gpus=gpus), owner=ANN, extra={"yarn.queue": ADS})
    folder = "/" + (spec.checkpoint or "").partition("://")[2].partition("/")[2]
    hdfs(shop).as_user("horae").make_folder(folder, "777")
    shop.port.submit(job, spec)
    shop.cluster.wait(job, JobState.QUEUED)


def starts(shop: Shop, job: str, shape: dict[str, int], epoch: int = 1) -> None:
    shop.cluster.start(job, shape, epoch)
    shop.cluster.wait(job, JobState.RUNNING)


def becomes(shop: Shop, job: str, shape: dict[str, int], epoch: int) -> None:
    patiently(lambda: shop.port.reshape(job, shape, epoch))
    shop.cluster.until("it has its shape", lambda: shop.cluster.job(job).epoch == epoch)
    shop.cluster.wait(job, JobState.RUNNING)
    assert dict(shop.cluster.job(job).allocation) == shape


def refused(shop: Shop, job: str, epoch: int) -> str:
    """Why it does not begin; it holds nothing then."""
    told = ""
    try:
        patiently(lambda: shop.port.start(job, {"n3": 1}, epoch))
    except PortError as error:
        told = error.text
    wait_for("it holds nothing", lambda: not shop.cluster.job(job).state.holds)
    seen = shop.cluster.job(job)
    blocked = "" if seen.blocked is None else seen.blocked.text
    return f"{told} {seen.native} {blocked}"


def test_a_job_beside_a_full_queue_of_horaes_is_offered_what_its_own_has_room_for(shop: Shop, ads: None) -> None:
    before = shop.port.manager.scheduler_conf(ADMIN) or {}
    share = {"capacity": before["yarn.scheduler.capacity.root.horae.capacity"]}
    rest = {"capacity": before["yarn.scheduler.capacity.root.default.capacity"]}
    most = before.get("yarn.scheduler.capacity.root.horae.maximum-capacity")
    moved = str(float(rest["capacity"]) + float(share["capacity"]) - 25.0)
    full: dict[str, dict[str, str | None]] = {
        "root.horae": {"capacity": "25", "maximum-capacity": "25"}, "root.default": {"capacity": moved}
    }  # fmt: skip
    edited(shop, full)
    try:
        shop.port.submit("plain", shop.harness.spec("plain", Behaviour.TRAINS, gpus=(3, 3)))
        (where,) = (node.name for node in shop.cluster.observe().nodes if node.gpus - node.foreign >= 3)
        starts(shop, "plain", {where: 3})
        assert sum(node.gpus - node.foreign for node in shop.cluster.observe().nodes) == 3, "nobody else waits"
        handed_in(shop, "hers", (2, 6))
        seen = shop.cluster.observe()
        assert sum(node.gpus - node.foreign for node in seen.nodes) == 12
        bound = {each.name: (each.whom, each.gpus) for each in seen.quotas}
        assert bound["queue root.horae may hold 3 GPUs at most"] == (("plain",), 3)
        assert bound[f"queue {ADS} may hold 6 GPUs at most"] == (("hers",), 6)
        first, second = (node.name for node in seen.nodes if node.name != where)
        starts(shop, "hers", {first: 4, second: 2})
        seen = shop.cluster.observe()
        assert sum(node.gpus - node.foreign for node in seen.nodes) == 3 + 6, "she has all that she may"
        shop.cluster.wait_progress("plain", 3)
        for job in ("plain", "hers"):
            shop.cluster.cancel(job)
    finally:
        edited(shop, {"root.horae": {**share, "maximum-capacity": most}, "root.default": {**rest}})


def test_a_queue_that_drains_and_then_lets_its_owner_in_no_more_and_then_is_deleted(shop: Shop, ads: None) -> None:
    """What runs there goes on in the service that it has, is resized, suspended and started; what waits is told why."""
    handed_in(shop, "hers")
    starts(shop, "hers", {"n1": 2})
    handed_in(shop, "next")
    shop.cluster.wait_progress("hers", 15)

    conf = shop.port.manager.scheduler_conf(ADMIN) or {}
    own = conf[f"yarn.scheduler.capacity.{ADS}.capacity"]
    rest = conf["yarn.scheduler.capacity.root.default.capacity"]
    deletes = QueueEdits(remove=(ADS,), update={"root.default": {"capacity": str(float(own) + float(rest))}})
    edited(shop, {ADS: {"state": "STOPPED"}})
    closed = f"queue {ADS} is DRAINING and takes no new application: 0 more may begin"
    shop.cluster.until("it is said", lambda: Quota(closed, ("next",), None, 0) in shop.cluster.observe().quotas)
    becomes(shop, "hers", {"n1": 2, "n2": 2}, 2)
    with pytest.raises(PortError, match=ADS):
        shop.port.manager.edit_scheduler(deletes, ADMIN)
    shop.cluster.wait_progress("hers", 3)

    edited(shop, {ADS: {"state": "RUNNING", RIGHT: "carol"}})
    words = refused(shop, "next", 1)
    assert ADS in words, words
    assert ANN in words, words
    becomes(shop, "hers", {"n2": 1}, 3)
    shop.cluster.stop("hers", 120.0)
    mark = shop.cluster.wait("hers", JobState.STOPPED).checkpoint
    assert mark is not None
    starts(shop, "hers", {"n1": 1}, 4)
    shop.cluster.until("it goes on", lambda: shop.cluster.starts("hers")[-1].step == mark.step)
    shop.cluster.cancel("hers")
    wait_for("it is gone", lambda: shop.cluster.observe() and not shop.port.manager.apps(queue=ADS, states=books.ALIVE))

    edited(shop, {ADS: {"state": "STOPPED"}})
    patiently(lambda: shop.port.manager.edit_scheduler(deletes, ADMIN))
    shop.port._observer.limits.forget()
    words = refused(shop, "next", 2)
    assert ADS in words, words
    again = {"capacity": own, "maximum-capacity": "50", "user-limit-factor": "100", RIGHT: "*", "state": "RUNNING"}
    back = QueueEdits(add={ADS: again}, update={"root.default": {"capacity": rest}})
    patiently(lambda: shop.port.manager.edit_scheduler(back, ADMIN))
    shop.port._observer.limits.forget()
    starts(shop, "next", {"n3": 1}, 3)
    shop.cluster.wait_progress("next", 3)


def test_shares_of_partitions_bind_the_jobs_of_a_queue_of_their_own(shop: Shop, ads: None) -> None:
    """What the bridge offers there, YARN gives."""
    manager = shop.port.manager
    labels = {"nodeLabelInfo": [{"name": LABEL, "exclusivity": "true"}]}
    manager.http.ask("POST", "/ws/v1/cluster/add-node-labels", owner=ADMIN, json=labels).check("adding a label")
    shares = f"accessible-node-labels.{LABEL}"
    half = {"accessible-node-labels": LABEL, f"{shares}.capacity": "50"}
    edited(shop, {
        "root": {**half, f"{shares}.capacity": "100"},
        "root.horae": {**half, f"{shares}.maximum-capacity": "100"},
        ADS: {**half, f"{shares}.maximum-capacity": "50"},
    })  # fmt: skip
    labelled(shop, {"n3": LABEL})
    try:
        handed_in(shop, "hers")
        text = f"queue {ADS} may hold 2 GPUs at most in partition {LABEL}"
        shop.cluster.until("it is told", lambda: Quota(text, ("hers",), 2) in shop.cluster.observe().quotas)
        starts(shop, "hers", {"n3": 2})
        becomes(shop, "hers", {"n1": 1, "n3": 1}, 2)
        shop.cluster.wait_progress("hers", 3)
        shop.cluster.cancel("hers")
        shop.cluster.until("it is over", lambda: not manager.apps(queue=ADS, states=books.ALIVE))
    finally:
        labelled(shop, {})
        none: dict[str, str | None] = dict.fromkeys(("accessible-node-labels", f"{shares}.capacity"))
        more: dict[str, str | None] = {**none, f"{shares}.maximum-capacity": None}
        edited(shop, {"root.horae": more, ADS: more, "root": none})


def labelled(shop: Shop, labels: dict[str, str]) -> None:
    nodes = {each.host: each.id for each in shop.port.manager.nodes()}
    where = {"nodeToLabels": [{"nodeId": id_, "labels": [labels[host]] if host in labels else []}
                              for host, id_ in nodes.items()]}  # fmt: skip
    answer = shop.port.manager.http.ask("POST", "/ws/v1/cluster/replace-node-to-labels", owner=ADMIN, json=where)
    answer.check("labelling the nodes")
    wait_for(
        "they are labelled",
        lambda: (
            {each.host: each.labels for each in shop.port.manager.nodes() if each.labels}
            == {host: (label,) for host, label in labels.items()}
        ),
    )
    shop.port._observer.limits.forget()


def test_a_queue_that_becomes_a_parent_lets_none_begin_and_nothing_is_submitted_there(shop: Shop, ads: None) -> None:
    """Each try would be one more application that failed, every few seconds."""
    handed_in(shop, "next")
    leaf = {"capacity": "100", "user-limit-factor": "100"}
    edited(shop, {ADS: {"state": "STOPPED"}})
    manager = shop.port.manager
    patiently(lambda: manager.edit_scheduler(QueueEdits(add={f"{ADS}.cars": leaf}), ADMIN))
    edited(shop, {ADS: {"state": "RUNNING"}})
    edited(shop, {f"{ADS}.cars": {"state": "RUNNING"}})
    try:
        closed = f"queue {ADS} is a parent and takes no application itself: 0 more may begin"
        shop.cluster.until("it is said", lambda: Quota(closed, ("next",), None, 0) in shop.cluster.observe().quotas)
        with pytest.raises(Never, match="name a leaf queue below it"):
            handed_in(shop, "late")
        asked = len(manager.apps(user=ANN))
        assert "leaf" in refused(shop, "next", 1)
        assert len(manager.apps(user=ANN)) <= asked + 1, "tried once"
        shop.cluster.cancel("next")
        plain = shop.harness.spec("plain", Behaviour.TRAINS)
        shop.port.submit("plain", replace(plain, owner=ANN, extra={"yarn.queue": f"{ADS}.cars"}))
        starts(shop, "plain", {"n3": 1})
        shop.cluster.cancel("plain")
        wait_for("it has ended", lambda: not manager.apps(user=ANN, states=books.ALIVE))
    finally:
        edited(shop, {f"{ADS}.cars": {"state": "STOPPED"}, ADS: {"state": "STOPPED"}})
        patiently(lambda: manager.edit_scheduler(QueueEdits(remove=(f"{ADS}.cars",)), ADMIN))
        edited(shop, {ADS: {"state": "RUNNING"}})
