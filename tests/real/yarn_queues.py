"""A queue beside Horae's, that jobs name themselves, on a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from horae.port import attend
from tests.contract.waiting import patiently, wait_for
from tests.real.books import ALIVE, of_queues
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.resource_manager import QueueEdits

ADS = "root.ads"
_DEFAULT = "root.default"


@contextmanager
def own_queue(port: YarnCluster, admin: str = "horae") -> Iterator[dict[str, str]]:
    """It has half of what the default queue had, and may hold half of the cluster; its parameters."""
    manager = port.manager
    conf = manager.scheduler_conf(admin) or {}
    share = float(conf[f"yarn.scheduler.capacity.{_DEFAULT}.capacity"])
    half = str(share / 2)
    made = {"capacity": half, "maximum-capacity": "50", "user-limit-factor": "100", "state": "RUNNING"}
    made["maximum-am-resource-percent"] = "1"
    manager.edit_scheduler(QueueEdits(add={ADS: made}, update={_DEFAULT: {"capacity": half}}), admin)
    yield made
    wait_for("its applications end", lambda: attend(port) and not manager.apps(queue=ADS, states=ALIVE))
    if ADS in of_queues(manager):
        manager.edit_scheduler(QueueEdits(update={ADS: {"state": "STOPPED"}}), admin)
        back = QueueEdits(remove=(ADS,), update={_DEFAULT: {"capacity": str(share)}})
        patiently(lambda: manager.edit_scheduler(back, admin))
