"""The containers of a mini Hadoop: what each runs, sees and is told; and the same as a compose file for use by hand.

    python -m yarn_bridge.lab.roles NODES GPUS > compose.yaml        for example: 4 v100:2,k80:2

`containers/hadoop` keeps this file and the configuration; `--write` instead of these words renews both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from horae.lab import LabRequest, containers, parse_gpus
from policy.model import EMPTY, BadInput, Gpus, GpuType, Node
from yarn_bridge.lab import settings

IMAGE = "horae-hadoop"
#: where containers see what is mounted, always read-only
CONF, JARS, FRAMEWORK = "/etc/hadoop", "/opt/hadoop/jars", "/opt/hadoop/framework.tar.gz"
PACKAGES, SOURCE, CONFIG = "/opt/horae/lib", "/opt/horae/src", "/etc/horae/config.yaml"
DATANODES = 2
KEPT = LabRequest("compose", nodes=4, gpus=(("v100", 2), ("k80", 2)))  #: the cluster that containers/hadoop describes
OWNERS = ("alice", "bob", "horae")

_HEAD = """\
# The mini-cluster by hand: compose v1 (docker-compose) or v2 (docker compose). `horae lab up hadoop` needs neither.
#
#   .venv/bin/python -m yarn_bridge.lab.fetch      once, in the checkout: Hadoop's jars, and what Horae needs
#   cd containers/hadoop
#   docker-compose up -d                           3.4.2; RELEASE=3.3.6
#   docker-compose exec -u alice gateway horae status --nodes
#   docker-compose exec -u alice gateway horae submit --gpus 1:4 \\
#     --checkpoint webhdfs://nn:9870/user/alice/one -- python3 ...
#   docker-compose down -v -t 0
#
# Made by `python -m yarn_bridge.lab.roles NODES GPUS` (another shape: say so, and put it here): do not edit.
"""


@dataclass(frozen=True)
class Role:
    """One container. Its name is also the name by which the others know it."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    sees: tuple[str, ...] = (CONF, JARS)


def roles(request: LabRequest) -> tuple[Role, ...]:
    """In the order of their start. Every role waits for what it needs, so the order only saves time."""
    java = {"JDK_JAVA_OPTIONS": " ".join(settings.JVM)}

    def daemon(kind: str, *more: str) -> tuple[str, ...]:
        return (settings.heap(kind), settings.CLASSES[kind], *more)

    folders = " ".join(f"{path}={mode}" for path, mode in settings.FOLDERS)
    told = {"FOLDERS": folders, "OWNERS": " ".join(OWNERS), "FRAMEWORK": settings.FRAMEWORK}
    return (
        Role("nn", ("nn", *daemon("namenode")), java),
        Role("zk", ("zk", *daemon("zookeeper", f"{CONF}/zoo.cfg")), java),
        Role("rm", ("rm", *daemon("resourcemanager")), java),
        *(Role(f"dn{index + 1}", ("dn", *daemon("datanode")), java) for index in range(DATANODES)),
        *(
            Role(name, ("nm", *daemon("nodemanager")), {**java, "GPU_KIND": kind, "FAKE_GPUS": str(count)})
            for name, kind, count in request.node_kinds()
        ),
        Role("init", ("init",), told, (FRAMEWORK,)),
        Role("gateway", ("gateway",), {"FRAMEWORK": settings.FRAMEWORK}, (PACKAGES, SOURCE, CONFIG)),
    )


def real_gpus(
    kinds: Iterable[tuple[str, GpuType, Gpus]], there: Iterable[tuple[Node, tuple[int, ...]]]
) -> dict[str, tuple[int, ...]]:
    """Node of the lab -> indices of the host's GPUs it gets: of its type, as many as asked for, each once.

    `there`: the host's, by type. `h100` is what is asked for `h100-pcie` and `h100-80` too.
    """
    free = [(node.gpu_type, list(indices)) for node, indices in there]
    found = {}
    for name, kind, count in kinds:
        for gpu_type, indices in free:
            if kind in gpu_type.split("-") and len(indices) >= count:
                found[name], indices[:count] = tuple(indices[:count]), []
                break
    return found


def compose(request: LabRequest) -> str:
    """The file that makes the same cluster from containers/hadoop, with what `fetch` has put into the cache."""
    cache, release = "${HOME}/.cache/horae/lab/hadoop", f"${{RELEASE:-{settings.RELEASES[0]}}}"
    sources = {
        CONF: "./conf",
        JARS: f"{cache}/jars-{release}",
        FRAMEWORK: f"{cache}/framework-{release}.tar.gz",
        PACKAGES: f"{cache}/gateway",
        SOURCE: "../..",
        CONFIG: "./horae.yaml",
    }
    services: dict[str, dict[str, Any]] = {}
    for index, role in enumerate(roles(request)):
        services[role.name] = {
            "image": IMAGE,
            **({"depends_on": ["nn"]} if index else {"build": "."}),  # the image is built once
            "hostname": role.name,
            "init": True,
            "command": list(role.command),
            "environment": dict(role.env),
            "volumes": [f"{sources[each]}:{each}:ro" for each in role.sees],
        }
    return _HEAD + yaml.safe_dump({"services": services}, sort_keys=False, width=118)


def main(words: list[str]) -> int:
    """`--write` renews what containers/hadoop keeps; NODES GPUS prints the compose file of another shape."""
    try:
        if words == ["--write"]:
            settings.write_conf(containers("hadoop") / "conf", settings.DOCKED_SITE, settings.DOCKED_DAEMON)
            (containers("hadoop") / "compose.yaml").write_text(compose(KEPT))
        else:
            nodes, gpus = words
            print(compose(LabRequest("compose", nodes=int(nodes), gpus=parse_gpus(gpus))), end="")
    except (BadInput, ValueError) as error:
        print(f"{error}\nusage: python -m yarn_bridge.lab.roles NODES GPUS | --write", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
