"""The simulated cluster: from `v100:8x4,k80:16x8` or an instance's `cluster:` part, in whole or as pools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from policy.model import BadInput, Cluster, Node
from policy.text import instance
from policy.text.textform import Document, load_file

_GROUP = re.compile(
    r"(?P<type>[A-Za-z0-9_.+-]+):(?P<nodes>[0-9]{1,6})x(?P<gpus>[0-9]{1,6})(?:/rack(?P<racks>[0-9]{1,6}))?"
)
REMEDY = "TYPE:NODESxGPUS, several with commas between them, /rackN for N racks (v100:8x4,k80:16x8/rack2); or a file"


def cluster_of(spec: str) -> Cluster:
    """The cluster of a `--cluster` value, types slowest first as they are written. Raises BadInput."""
    if not spec.strip():
        raise BadInput("names no cluster", field="--cluster", value=spec, remedy=REMEDY)
    if ":" not in spec or is_file(spec):
        return _from_file(spec)
    groups: list[dict[str, Any]] = []
    for number, part in enumerate(spec.split(","), 1):
        match = _GROUP.fullmatch(part.strip())
        if match is None or not int(match["nodes"]) or not int(match["gpus"]) or match["racks"] == "0":
            raise BadInput("is no part of a cluster", field="--cluster", value=part, remedy=REMEDY)
        group: dict[str, Any] = {
            "count": int(match["nodes"]),
            "gpu_type": match["type"],
            "gpus": int(match["gpus"]),
            "name": f"{match['type']}-{number}-",
        }
        groups.append(group | ({"racks": int(match["racks"])} if match["racks"] else {}))
    return _read(Document({"cluster": {"groups": groups}}, "--cluster"))


def is_file(name: str) -> bool:
    """Groups of many types are longer than a file's name may be, which is no error."""
    try:
        return Path(name).is_file()
    except OSError:
        return False


def _from_file(path: str) -> Cluster:
    document = load_file(path)
    data = document.value
    if isinstance(data, dict) and "cluster" not in data:
        data = {"cluster": data}
    part = {"cluster": data.get("cluster")} if isinstance(data, dict) else data
    return _read(Document(part, document.where, document.text, document.first_line))


def _read(document: Document) -> Cluster:
    cluster = instance.from_document(document).cluster
    if not sum(n.gpus - n.foreign for n in cluster.nodes):
        raise BadInput("the cluster has no GPU", where=document.where, field="cluster", remedy=REMEDY)
    return cluster


def pooled(cluster: Cluster) -> Cluster:
    """One node a type with all its GPUs: placement never matters."""
    return Cluster(
        tuple(
            Node(t, t, sum(n.gpus - n.foreign for n in cluster.nodes if n.gpu_type == t))
            for t in cluster.gpu_types
            if any(n.gpu_type == t for n in cluster.nodes)
        ),
        gpu_types=cluster.gpu_types,
    )
