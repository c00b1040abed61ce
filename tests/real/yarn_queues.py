"""On a real scheduler: a queue beside Horae's, that jobs name themselves, and a node that is a partition of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from horae.port import attend
from tests.contract.waiting import patiently, wait_for
from tests.real.books import ALIVE, of_queues
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.resource_manager import QueueEdits, ResourceManager

ADS = "root.ads"
LABEL, LABELLED = "k80s", "n3"
#: of the ResourceManager, for `label`
LABELS_ON = {"yarn.node-labels.enabled": "true"}
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


def label(manager: ResourceManager) -> None:
    """One node is a partition of its own, that lends nothing."""
    labels = {"nodeLabelInfo": [{"name": LABEL, "exclusivity": "true"}]}
    manager.http.ask("POST", "/ws/v1/cluster/add-node-labels", owner="root", json=labels).check("adding a label")
    (node,) = [each.id for each in manager.nodes() if each.host == LABELLED]
    where = {"nodeToLabels": [{"nodeId": node, "labels": [LABEL]}]}
    manager.http.ask("POST", "/ws/v1/cluster/replace-node-to-labels", owner="root", json=where).check("labelling")
    wait_for("it is labelled", lambda: any(each.labels == (LABEL,) for each in manager.nodes()))
