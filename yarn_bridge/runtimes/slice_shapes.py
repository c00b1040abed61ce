"""A slice: GPUs of one job on one node, held by one distributed shell of Hadoop's own. Pure.

The shell's application master asks for the slice's containers, one GPU each, and starts the same script in all of them.
Its name says whose it is, where and how large, its tags which bridge submitted it for which grant: the
ResourceManager's list of applications is the only book of slices, and a bridge that was killed reads it there.

    h-train-1a2b3c4d/n2/3      three GPUs of that job on node n2; `*` for a node: wherever YARN likes

Facts of Hadoop 3.3 and 3.4 that this rests on:

* The GPUs of the body's `resource` are dropped; what its application master asks for is given.
* The script is renamed to SCRIPT.sh before each container starts, and read from there. So SCRIPT.sh is what is
  written, once a job; renaming what is not there is nothing.
* Only base64 of a placement is taken. One that names a node that is full or gone is no error: it waits.
* One container that ends is not replaced; the shell ends when all of its containers have.
* An address without a host (`hdfs:///path`) is of the cluster's own file system.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horae.port import Never
from horae.spec import JobSpec
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.clients.records import GPU, App
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import Record
from yarn_bridge.options import Options

#: application type of a slice
SLICE_KIND = "HORAE-SLICE"
_NAME = re.compile(r"(h-[a-z0-9-]+)/([^/\s]+)/([0-9]{1,6})")
_MASTER = "org.apache.hadoop.yarn.applications.distributedshell.ApplicationMaster"
_CLASSES = (
    "$HADOOP_CONF_DIR", "$HADOOP_COMMON_HOME/share/hadoop/common/*", "$HADOOP_COMMON_HOME/share/hadoop/common/lib/*",
    "$HADOOP_HDFS_HOME/share/hadoop/hdfs/*", "$HADOOP_HDFS_HOME/share/hadoop/hdfs/lib/*",
    "$HADOOP_YARN_HOME/share/hadoop/yarn/*", "$HADOOP_YARN_HOME/share/hadoop/yarn/lib/*",
)  # fmt: skip
#: before the job's own launch script: the in-job part of Horae lies behind both, in this very file
_HEAD = b"""\
#!/bin/bash
ln -sf ExecScript.sh %s
export HADOOP_USER_NAME="${HADOOP_USER_NAME:-$USER}"
"""


@dataclass(frozen=True, slots=True)
class Slice:
    app: App
    service: str
    node: str  #: or `shapes.ANYWHERE`
    gpus: int


@dataclass(frozen=True, slots=True)
class Classes:
    """Where a slice's application master finds Hadoop: an archive in HDFS, or what the nodes have installed."""

    archive: str = ""
    status: Status | None = None
    path: str = ""  #: a class path, in Hadoop's words


def root_tag(folder: str) -> str:
    """Whose slices these are: two bridges of one cluster keep their jobs in different folders."""
    return f"horae-{hashlib.sha256(folder.encode()).hexdigest()[:12]}"


def epoch_tag(epoch: int) -> str:
    return f"epoch-{epoch}"


def slice_of(app: App) -> Slice | None:
    """None for an application that is no slice."""
    found = _NAME.fullmatch(app.name) if app.kind == SLICE_KIND else None
    return None if found is None else Slice(app, found[1], found[2], int(found[3]))


def change(held: Iterable[Slice], wanted: Mapping[str, int]) -> tuple[list[Slice], dict[str, int]]:
    """(slices to end, node -> GPUs to submit) from what is held to what is wanted.

    A slice is kept whole or not at all; of those on a node, as many GPUs as fit stay, in as old slices as can be.
    """
    by_node: dict[str, list[Slice]] = {}
    for each in sorted(held, key=lambda each: (each.app.submitted_s, each.app.id)):
        by_node.setdefault(each.node, []).append(each)
    ending, submitting = [], {}
    for node in sorted(by_node.keys() | wanted.keys()):
        fitting: dict[int, tuple[Slice, ...]] = {0: ()}
        for each in by_node.get(node, ()):
            for total, chosen in list(fitting.items()):
                if total + each.gpus <= wanted.get(node, 0):
                    fitting.setdefault(total + each.gpus, (*chosen, each))
        most = max(fitting)
        ending += [each for each in by_node.get(node, ()) if each not in fitting[most]]
        if wanted.get(node, 0) > most:
            submitting[node] = wanted[node] - most
    return ending, submitting


def check(spec: JobSpec) -> None:
    """Raises Never for what a slice's container cannot be given."""
    for name in (shapes.EXTRA_SERVICE, shapes.EXTRA_WORKER):
        asked = sorted(json.loads(spec.extra.get(name) or "{}"))
        if asked:
            raise Never(
                f"extra.{name} asks for {', '.join(asked)}: only YARN services have that, and jobs of this cluster "
                "run as slices (see `horae doctor yarn`)"
            )


def script(launch: bytes) -> tuple[str, bytes]:
    """(name, bytes) of the file that every container of a job runs: a shell script with Horae's archive behind it.

    The script ends in `exec`, so the shell never reads on; Python finds an archive by its end.
    """
    head = _HEAD % shapes.SDK.encode()
    data = head + launch.rstrip(b"\n") + b"\n" + shapes.sdk()[1]
    return f"worker-{hashlib.sha256(data).hexdigest()[:12]}.sh", data


def submission(
    app_id: str,
    where: tuple[str, int],
    record: Record,
    spec: JobSpec,
    options: Options,
    root: str,
    worker: tuple[str, Status],
    classes: Classes,
    gpu: str = GPU,
) -> dict[str, Any]:
    """The body that submits a slice. `where`: node and GPUs; `gpu`: the resource that they are; `root`: this bridge's
    tag; `worker`: the job's script."""
    node, gpus = where
    cpus, memory_mib = shapes.worker_size(spec, options)
    path, status = worker
    words = [
        "{{JAVA_HOME}}/bin/java", f"-Xmx{options.slice_memory_mib * 5 // 8}m", _MASTER,
        "--container_type", "GUARANTEED", "--num_containers", str(gpus), "--priority", "0",
        "--container_resources", f"memory-mb={memory_mib},vcores={cpus},{gpu}=1",
    ]  # fmt: skip
    if node != shapes.ANYWHERE:
        placed = f"w({gpus}),{shapes.HOST_ATTRIBUTE}={node}"
        words += ["--placement_spec", base64.b64encode(placed.encode()).decode()]
    words += ["1><LOG_DIR>/AppMaster.stdout", "2><LOG_DIR>/AppMaster.stderr"]
    environment = {
        "CLASSPATH": "{{HADOOP_CONF_DIR}}:./hadoop/*" if classes.archive else class_path(classes.path),
        "DISTRIBUTEDSHELLSCRIPTLOCATION": "hdfs://" + path.removesuffix(".sh"),
        "DISTRIBUTEDSHELLSCRIPTTIMESTAMP": str(_milliseconds(status)),
        "DISTRIBUTEDSHELLSCRIPTLEN": str(status.length),
    }
    resources = []
    if classes.status is not None:
        resources.append({
            "key": "hadoop",
            "value": {
                "resource": f"hdfs://{classes.archive}", "type": "ARCHIVE", "visibility": "PUBLIC",
                "size": classes.status.length, "timestamp": _milliseconds(classes.status),
            },
        })  # fmt: skip
    return {
        "application-id": app_id,
        "application-name": f"{record.service}/{node}/{gpus}",
        "application-type": SLICE_KIND,
        "application-tags": {"tag": [root, record.service, epoch_tag(record.granted)]},
        "queue": shapes.queue_of(spec, options),
        # A second application master would ask for all containers of a placed slice again, and be given them.
        "max-app-attempts": 1,
        "keep-containers-across-application-attempts": False,
        "unmanaged-AM": False,
        "resource": {"memory": options.slice_memory_mib, "vCores": 1},
        "am-container-spec": {
            "local-resources": {"entry": resources},
            "environment": {"entry": [{"key": key, "value": value} for key, value in environment.items()]},
            "commands": {"command": " ".join(words)},
        },
    }


def class_path(said: str) -> str:
    """`yarn.application.classpath` as a class path; Hadoop's own default where it is not set."""
    parts: Sequence[str] = [each.strip() for each in said.split(",") if each.strip()] or _CLASSES
    return ":".join(["{{HADOOP_CONF_DIR}}", *parts])


def _milliseconds(status: Status) -> int:
    return round(status.modified_s * 1000)
