"""What owners and administrators do to jobs and queues by YARN's own commands, one after the other on one job: what
they change stands, or is said; nobody's GPU is kept for nobody, and the ResourceManager is left as it was. On a real
Hadoop, for the soak run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from horae.port import JobState, ObservedJob
from tests.contract.harness import Behaviour
from tests.contract.waiting import wait_for
from tests.real.hadoop import (
    hadoop_342,  # noqa: F401 - a fixture
    workers,
)
from tests.real.yarn_shop import (
    ADMIN,
    OWNER,
    Shop,
    a_shop,  # noqa: F401 - a fixture
    shop_harness,  # noqa: F401 - a fixture
)
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.jobs.state_machine import OUTLIVED

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


def runs_on(shop: Shop, job: str, kept: list[str]) -> None:
    shop.cluster.wait_progress(job, 5)
    assert (shop.cluster.job(job).state, workers(shop.port, job)) == (JobState.RUNNING, kept)


def is_taken_back(shop: Shop, job: str, kept: list[str]) -> None:
    """A worker more than it was granted: its GPU is nobody's until it is given back."""
    notes = "its workers than were granted"
    shop.cluster.until("it is said", lambda: any(notes in each for each in shop.cluster.observe().notes))
    shop.cluster.until("it is given back", lambda: bool(shop.cluster.observe()) and shop.app(job).gpus == len(kept))
    runs_on(shop, job, kept)


def is_cancelled(shop: Shop, job: str, kept: list[str]) -> None:
    ended = shop.cluster.wait(job, JobState.CANCELLED)
    assert f"by user {OWNER}" in ended.native, ended


def is_lost(shop: Shop, job: str, kept: list[str]) -> None:
    lost: ObservedJob = shop.cluster.wait(job, JobState.LOST, JobState.STOPPED)
    assert lost.checkpoint is not None


def leaves_before_its_end(shop: Shop, job: str, kept: list[str]) -> None:
    stopped = shop.cluster.wait(job, JobState.STOPPED)
    assert stopped.native == OUTLIVED, stopped


DEEDS: dict[str, tuple[Callable[[Shop, str], object], Callable[[Shop, str, list[str]], None]]] = {
    "an administrator changes its priority": (
        lambda shop, job: shop.change(job, "priority", {"priority": 0}, ADMIN), runs_on,
    ),
    "its owner moves it to another queue": (
        lambda shop, job: shop.change(job, "queue", {"queue": "default"}), runs_on,
    ),
    "its owner flexes it up": (
        lambda shop, job: shop.flex(job, **{shop.component(job, "n1"): 2}), is_taken_back,
    ),
    "its owner flexes it down": (
        lambda shop, job: shop.flex(job, **{shop.component(job, "n2"): 0}), is_lost,
    ),
    "its owner stops its service": (
        lambda shop, job: shop.port.services.stop(shop.service(job), OWNER), is_cancelled,
    ),
    "its owner destroys its service": (
        lambda shop, job: shop.port.services.destroy(shop.service(job), OWNER), is_cancelled,
    ),
    "an administrator gives it a lifetime": (
        lambda shop, job: shop.change(
            job, "timeout", {"timeout": {"type": "LIFETIME", "expiryTime": in_s(40.0)}}, ADMIN
        ), leaves_before_its_end,
    ),
}  # fmt: skip


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000+0000")


@pytest.mark.parametrize("deed", DEEDS)
def test_what_is_done_to_a_job_that_runs(shop: Shop, deed: str) -> None:
    does, follows = DEEDS[deed]
    job = shop.cluster.running(f"job{list(DEEDS).index(deed)}", allocation=shop.cluster.spread(1))
    shop.cluster.wait_progress(job, 15)
    kept = workers(shop.port, job)
    does(shop, job)
    follows(shop, job, kept)
    seen = shop.cluster.job(job)
    if not seen.state.ended and not seen.state.holds:
        shop.cluster.start(job, shop.cluster.one(), seen.epoch + 1)
        shop.cluster.wait(job, JobState.RUNNING)
        shop.cluster.wait_progress(job, 5)
    shop.cluster.cancel(job)
    shop.cluster.wait(job, JobState.CANCELLED)
    shop.cluster.until("no GPU is held by nobody", lambda: not any(e.gpus_used for e in shop.port.manager.nodes()))


def test_a_job_that_waits_is_ended_by_its_owner(shop: Shop) -> None:
    """Its application master stays while it is suspended: who kills that means the job."""
    job = shop.cluster.stopped("waits")
    shop.port.manager.kill(shop.app(job).id, "enough", OWNER)
    is_cancelled(shop, job, [])


@pytest.mark.parametrize(
    ("queue", "limit", "says"),
    [
        ("root.horae", {"maximum-am-resource-percent": "0.0001"}, "application masters in queue root.horae may have"),
        ("root.horae", {"max-parallel-apps": "1"}, "queue root.horae lets 1 applications run at a time"),
        ("root", {"max-parallel-apps": "1"}, "queue root lets 1 applications run at a time"),
    ],
)
def test_what_a_queue_would_not_let_begin_is_known_ahead(
    shop: Shop, queue: str, limit: dict[str, str], says: str
) -> None:
    cluster, manager = shop.cluster, shop.port.manager
    before = dict.fromkeys(limit)
    manager.edit_scheduler(QueueEdits(update={queue: limit}), OWNER)
    try:
        first = cluster.running("first", allocation=cluster.one())
        shop.port.submit("second", shop.harness.spec("second", Behaviour.TRAINS))
        shop.port._observer.limits.forget()
        quotas = [each for each in cluster.observe().quotas if each.whom == ("second",)]
        assert {each.jobs for each in quotas} == {0}, quotas
        assert any(each.name.startswith(says) for each in quotas), quotas
        # And it is true: granted all the same, it does not begin.
        shop.port.start("second", {"n3": 1}, 1)
        wait_for("its application waits", lambda: shop.app("second").state == "ACCEPTED")
        cluster.wait_progress(first, 30)
        assert (shop.app("second").state, cluster.job("second").state) == ("ACCEPTED", JobState.STARTING)
        cluster.cancel("second")
        cluster.cancel(first)
        cluster.wait(first, JobState.CANCELLED)
        cluster.wait("second", JobState.CANCELLED)
        shop.port._observer.limits.forget()
        assert cluster.observe().quotas == ()
    finally:
        manager.edit_scheduler(QueueEdits(update={queue: before}), OWNER)


def test_a_limit_of_its_owner_that_is_told_nowhere_lets_his_other_job_grow(shop: Shop) -> None:
    """Of a user's `max-parallel-apps` the ResourceManager tells nobody, nor why the application waits."""
    cluster, manager = shop.cluster, shop.port.manager
    key = "yarn.scheduler.capacity.user.max-parallel-apps"
    manager.edit_scheduler(QueueEdits(globals={key: "1"}), OWNER)
    try:
        first = cluster.running("first", allocation=cluster.one())
        cluster.wait_progress(first, 15)
        shop.port.submit("second", shop.harness.spec("second", Behaviour.TRAINS))
        shop.port.start("second", {"n3": 1}, 1)
        cluster.until("it is given back", lambda: cluster.job("second").blocked is not None)
        seen = cluster.observe()
        assert seen.caps.get(OWNER, 99) > 12
        assert [(each.whom, each.jobs) for each in seen.quotas] == [(("second",), 0)]
        shop.port.reshape(first, cluster.one(2), 2)
        cluster.until("it has grown", lambda: cluster.job(first).epoch == 2)
        cluster.wait(first, JobState.RUNNING)
        for job in ("second", first):
            cluster.cancel(job)
            cluster.wait(job, JobState.CANCELLED)
    finally:
        manager.edit_scheduler(QueueEdits(globals={key: None}), OWNER)


def test_jobs_that_come_and_go_cost_the_manager_no_connection(shop: Shop) -> None:
    """Each service that is ended by YARN's own DELETE costs it one to ZooKeeper, for as long as it lives."""

    def connections() -> int:
        host = urlsplit(shop.harness.lab.facts()["resource_manager"][0]).hostname
        words = ["ss", "-tnH", "state", "established", "dst", f"{host}:2181"]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        return len(told.stdout.splitlines())

    before = connections()
    for number in range(4):
        job = shop.cluster.running(f"comes-{number}", allocation=shop.cluster.one())
        shop.cluster.cancel(job)
        shop.cluster.wait(job, JobState.CANCELLED)
    wait_for("its application masters let go of theirs", lambda: connections() <= before)
