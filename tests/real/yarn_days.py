"""A job of ann's on a real Hadoop, what it does on a day, and a stranger beside it."""

from __future__ import annotations

from dataclasses import replace

from horae.port import JobState
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real import books
from tests.real.hadoop import workers
from tests.real.yarn_shop import Shop
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.options import parse_options

ANN = "ann"


def hdfs(shop: Shop) -> Hdfs:
    options = parse_options(shop.harness.options)
    return Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user(ANN)


def running(shop: Shop, job: str) -> list[str]:
    """A job of ann's, far enough for a checkpoint; its workers."""
    shop.harness.lab._change(f"/user/{ANN}", "MKDIRS", permission="755")
    shop.harness.lab._change(f"/user/{ANN}", "SETOWNER", owner=ANN)
    spec = replace(shop.harness.spec(job, Behaviour.TRAINS), owner=ANN)
    folder = "/" + (spec.checkpoint or "").partition("://")[2].partition("/")[2]
    hdfs(shop).as_user("horae").make_folder(folder, "777")
    shop.port.submit(job, spec)
    shop.cluster.wait(job, JobState.QUEUED)
    shop.cluster.start(job, shop.cluster.spread(1))
    shop.cluster.wait(job, JobState.RUNNING)
    shop.cluster.wait_progress(job, 15)
    return workers(shop.port, job)


def strangers(shop: Shop) -> str:
    """A plain application of mallory's, that sleeps, under a name and tags like Horae's own."""
    manager = shop.port.manager
    app_id = manager.new_application("mallory")
    body = {"application-id": app_id, "application-name": f"h-job-0/n1/{'9' * 5000}", "application-type": "HORAE-SLICE",
            "queue": "default", "application-tags": {"tag": ["horae"]}, "max-app-attempts": 9,
            "resource": {"memory": 64, "vCores": 1},
            "am-container-spec": {"commands": {"command": "sleep 900"}}}  # fmt: skip
    manager.submit(body, "mallory")
    return app_id


def grows(shop: Shop, job: str, epoch: int = 2) -> None:
    """From two workers to four, in the same service or in a new one."""
    patiently(lambda: shop.port.reshape(job, shop.cluster.spread(2), epoch))

    def is_over() -> bool:
        seen = shop.cluster.job(job)
        return seen.state.startable or (seen.state, seen.epoch) == (JobState.RUNNING, epoch)

    wait_for("it has its shape, or was given back", is_over, 300.0)
    goes_on(shop, job)


def goes_on(shop: Shop, job: str) -> None:
    """It runs, or is started again as an arbiter does, where its newest checkpoint is."""
    seen = shop.cluster.job(job)
    if seen.state.startable:
        shop.cluster.start(job, shop.cluster.spread(1), seen.epoch + 1)
    shop.cluster.wait(job, JobState.RUNNING)
    shop.cluster.wait_progress(job, 5)


def applications(shop: Shop, job: str) -> list[str]:
    return [each.id for each in shop.port.manager.apps(states=books.ALIVE) if each.name == shop.service(job)]


def gpus_used(shop: Shop) -> int:
    return sum(each.gpus_used for each in shop.port.manager.nodes())
