"""A real ResourceManager with many simulated NodeManagers: Hadoop's own scheduler load simulator, in the place of a
private Hadoop's ResourceManager and nodes. HDFS and ZooKeeper are that Hadoop's.

It starts no process: applications come as far as ACCEPTED.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import requests
from _yarn import RELEASE, ByHand, until

from horae.lab import LabRequest, default_folder
from yarn_bridge.lab import settings
from yarn_bridge.lab.private import PrivateHadoop

GPUS_A_NODE = 8
RUNNER = "org.apache.hadoop.yarn.sls.SLSRunner"
#: beside the jars of a lab
ARTIFACTS = (
    f"org.apache.hadoop:hadoop-sls:{RELEASE}",
    f"org.apache.hadoop:hadoop-rumen:{RELEASE}",
    f"org.apache.hadoop:hadoop-mapreduce-client-core:{RELEASE}",
    "io.dropwizard.metrics:metrics-core:3.2.4",
)
#: two cores lose nodes faster than they register them at a second's heartbeats
SLOW = {
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "10000",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-min-ms": "10000",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "900000",
    "yarn.am.liveness-monitor.expiry-interval-ms": "900000",
    "yarn.resourcemanager.recovery.enabled": "false",
}
SIMULATED = {
    "yarn.sls.nm.memory.mb": "65536",
    "yarn.sls.nm.vcores": "32",
    "yarn.sls.nm.yarn.io/gpu": str(GPUS_A_NODE),
    "yarn.sls.nm.heartbeat.interval.ms": "10000",
    # Else heartbeats tell no use at all, and after the first one the ResourceManager cannot list its nodes: 503.
    "yarn.sls.nm.resource.utilization.ratio": "0.1",
    "yarn.sls.runner.pool.size": "10",
    "yarn.sls.metrics.switch": "OFF",
}


@contextmanager
def simulated(nodes: int) -> Iterator[PrivateHadoop]:
    with tempfile.TemporaryDirectory(prefix="bench-yarn-sls-") as made:
        folder = Path(made)
        lab = PrivateHadoop(folder / "lab", default_folder() / "hadoop")
        try:
            lab.up(LabRequest(name="sls", nodes=1, gpus=(("v100", 1),), release=RELEASE, options=SLOW))
            for daemon in ("n1", "resourcemanager"):
                lab.kill(daemon)
            _start(lab, folder, nodes)
            yield lab
        finally:
            lab.down()


def _start(lab: PrivateHadoop, folder: Path, nodes: int) -> None:
    conf = lab.folder / "etc/sls"
    shutil.copytree(lab.folder / "etc/master", conf)
    # Its configuration is made without the other files, and without Hadoop's defaults.
    ports = {"address": 8032, "scheduler.address": 8030, "resource-tracker.address": 8031, "admin.address": 8033}
    own = {f"yarn.resourcemanager.{name}": f"{lab.master}:{port}" for name, port in ports.items()}
    text = "".join((conf / f"{name}-site.xml").read_text() for name in ("core", "hdfs", "yarn"))
    lines = [line for line in text.splitlines() if "<property>" in line]
    body = [*lines, *settings.xml(own | SIMULATED).splitlines()[1:-1]]
    (conf / "sls-runner.xml").write_text("\n".join(["<configuration>", *body, "</configuration>", ""]))
    rack = {"rack": "rack0", "nodes": [{"node": f"node{i}"} for i in range(nodes)]}
    (folder / "nodes.json").write_text(json.dumps(rack))
    (folder / "jobs.json").write_text("")
    words = ["-tracetype=SLS", f"-inputsls={folder}/jobs.json", f"-nodes={folder}/nodes.json", f"-output={folder}/out"]
    lab.program("resourcemanager", 1200, conf, ARTIFACTS, RUNNER, *words)
    hand = ByHand(lab)

    def there() -> bool:
        with suppress(requests.RequestException):  # it does not serve yet
            found = hand.ask("GET", "/ws/v1/cluster/nodes").json()["nodes"]
            return len((found or {}).get("node") or ()) == nodes
        return False

    until(f"{nodes} simulated nodes", there, 600.0)
