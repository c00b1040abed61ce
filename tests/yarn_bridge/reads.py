"""Every read of the adapter, and a good answer to each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.yarn_bridge.fake import Fake
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.clients.quirks import quirks_of
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services

STATUS = {"type": "FILE", "length": 3, "modificationTime": 5, "owner": "a", "permission": "644", "pathSuffix": "x"}


LISTED = {"FileStatuses": {"FileStatus": [STATUS, {**STATUS, "pathSuffix": "y"}]}}


GOOD: dict[str, Any] = {
    "nodes": {"nodes": {"node": [{"id": "n1:1", "nodeHostName": "n1", "state": "RUNNING", "usedMemoryMB": 1}]}},
    "apps": {"apps": {"app": [{"id": "application_1_1", "state": "RUNNING", "user": "a", "name": "s"}]}},
    "app": {"app": {"id": "application_1_1", "state": "RUNNING"}},
    "attempts": {"appAttempts": {"appAttempt": [{"appAttemptId": "x"}]}},
    "containers": {"container": [{"containerId": "c1", "containerState": "RUNNING"}]},
    "scheduler": {"scheduler": {"schedulerInfo": {"type": "capacityScheduler", "queueName": "root"}}},
    "service": {"name": "s", "state": "STABLE", "components": [{"name": "w", "number_of_containers": 1}]},
    "status": {"FileStatus": STATUS},
    "entries": LISTED,
    "some": {"DirectoryListing": {"partialListing": LISTED, "remainingEntries": 0}},
    "document": {"XAttrs": [{"name": "user.horae.0", "value": "0sQQ=="}]},
}


class Reads:
    def __init__(self, fake: Fake) -> None:
        access = Access((fake.url,), "horae", connect_s=2.0, read_s=2.0, requests_per_s=1e6)
        self.manager = ResourceManager(HttpClient(access, "ResourceManager"))
        self.services = Services(self.manager.http, quirks_of("3.4.2"))
        self.hdfs = Hdfs(access)

    def all(self) -> dict[str, Callable[[], Any]]:
        return {
            "nodes": self.manager.nodes,
            "apps": self.manager.apps,
            "app": lambda: self.manager.app("application_1_1"),
            "attempts": lambda: self.manager.attempts("application_1_1"),
            "containers": lambda: self.manager.containers("application_1_1", "x"),
            "scheduler": self.manager.scheduler,
            "service": lambda: self.services.get("s", "a"),
            "status": lambda: self.hdfs.status("/x"),
            "entries": lambda: self.hdfs.entries("/x"),
            "some": lambda: self.hdfs.some("/x", 10),
            "document": lambda: self.hdfs.document("/x"),
        }
