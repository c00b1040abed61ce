"""Options of the local cluster: validated once, with the remedy in every complaint.

state: ~/.local/state/horae/local     folder of everything this cluster remembers
nodes: auto                           the GPUs that nvidia-smi shows, on one node named after this machine
nodes: "v100:2x4,k80:2x2"             virtual: 2 nodes of 4 v100 (v100-1, v100-2) and 2 of 2 k80
nodes:                                virtual, one by one
  - {name: n1, gpu_type: v100, gpus: 4, rack: r1, cpus: 8, memory: 16000000000}
speeds: {v100: 1.0, k80: 0.4}         relative speed by GPU type, told to trainers as HORAE_SPEED (a demo's toy)
keep_s: 604800                        folders (log, account) of jobs that ended so long ago go; null: never. A week
python: /usr/bin/python3              interpreter of the supervisor; default: the arbiter's own
log_limit_bytes: 1073741824           a job's output is rotated at this size at the latest. 1 GiB; one older part stays
keep_free_bytes: 67108864             output that would leave less room than this on the disk is dropped. 64 MiB, and
                                      never more than a twentieth of the disk
account: horae                        who the arbiter is; only a helper stays root. Default: whoever starts it
least_uid: 1000                       with an account: nothing is started as a user below, and never as root
pass_env: [CUDA_HOME]                 what jobs get of the arbiter's environment beside PATH, LD_LIBRARY_PATH, the
                                      language and the time zone
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae import machine_gpus
from policy.model import EMPTY, BadInput, GpuType, Node, Seconds

_GROUP = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):(?:([0-9]{1,9})x)?([0-9]{1,9})$")
#: Nodes, and GPUs of one, that a cluster of processes on one machine may pretend to have
_MOST_NODES, _MOST_GPUS = 100_000, 1024
_MOST_CPUS, _MOST_MEMORY, _MOST_SPEED = 1e6, 1 << 60, 1e6
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*$")
_FIELDS = frozenset({"name", "gpu_type", "gpus", "rack", "cpus", "memory"})
_MOST_KEPT_S = 100 * 366 * 86400.0
_OPTIONS = frozenset(
    "state nodes speeds python keep_s log_limit_bytes keep_free_bytes account least_uid pass_env".split()
)
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}$")
#: Users of systems made in the last ten years begin here; below are accounts of services.
LEAST_UID, _MOST_UID = 1000, (1 << 32) - 2
#: What an account is called unless a site says otherwise, and how it is made.
ACCOUNT = "horae"
USERADD = "useradd --system --user-group --home-dir /var/lib/horae --shell /usr/sbin/nologin {}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
#: A week: as long as an arbiter remembers ended jobs unless it is told otherwise.
KEEP_S: Seconds = 7 * 86400.0
LOG_LIMIT_BYTES = 1 << 30
KEEP_FREE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LocalOptions:
    state: Path
    nodes: tuple[Node, ...]
    speeds: Mapping[GpuType, float] = field(default_factory=lambda: EMPTY)
    python: str = sys.executable
    keep_s: Seconds | None = KEEP_S  #: how long the folder of an ended job stays; None: for ever
    log_limit_bytes: int = LOG_LIMIT_BYTES  #: whatever a job asks for
    keep_free_bytes: int = KEEP_FREE_BYTES
    account: str | None = None  #: who the arbiter is where root starts it; None: root
    least_uid: int = LEAST_UID
    pass_env: tuple[str, ...] = ()  #: names
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: EMPTY)  #: real GPUs' indices, by node

    def slots(self, node: Node) -> tuple[int, ...]:
        """What CUDA_VISIBLE_DEVICES may name on this node."""
        return self.devices.get(node.name, tuple(range(node.gpus)))


def parse(options: Mapping[str, Any]) -> LocalOptions:
    """Raises BadInput."""
    for name in options:
        if name not in _OPTIONS:
            raise BadInput(
                "unknown option of the local cluster",
                field=str(name),
                remedy=f"known: {', '.join(sorted(_OPTIONS))}",
            )
    folder = state(options)
    wanted = options.get("nodes", "auto")
    real = wanted == "auto"
    found = machine_gpus.this_machine() if real else ()
    nodes = tuple(node for node, _ in found) if real else _nodes(wanted)
    if not nodes:
        raise BadInput(
            "no GPU found on this machine" if real else "there must be at least one node",
            field="nodes",
            value=wanted,
            remedy='describe virtual nodes, for example "v100:2x4,k80:2x2"',
        )
    names = [node.name for node in nodes]
    for name, count in Counter(names).items():
        if count > 1:
            raise BadInput("two nodes have the same name", field="nodes", value=name)
    return LocalOptions(
        state=folder,
        nodes=nodes,
        speeds=_speeds(options.get("speeds", {})),
        python=str(options.get("python") or sys.executable),
        keep_s=_keep_s(options.get("keep_s", KEEP_S)),
        log_limit_bytes=_bytes(options.get("log_limit_bytes", LOG_LIMIT_BYTES), "log_limit_bytes", 4096),
        keep_free_bytes=_bytes(options.get("keep_free_bytes", KEEP_FREE_BYTES), "keep_free_bytes", 0),
        account=account(options),
        least_uid=least_uid(options),
        pass_env=pass_env(options),
        devices={node.name: indices for node, indices in found},
    )


def state(options: Mapping[str, Any]) -> Path:
    """Raises BadInput."""
    value = options.get("state")
    if not isinstance(value, str | Path) or not str(value):
        raise BadInput("the local cluster needs a folder to remember its jobs in", field="state", value=value)
    return Path(value).expanduser().absolute()


def account(options: Mapping[str, Any]) -> str | None:
    """Raises BadInput."""
    value = options.get("account")
    if value is not None and not (isinstance(value, str) and _ACCOUNT.match(value)):
        raise BadInput("not a user's name", field="account", value=value, remedy="such as horae")
    return value


def least_uid(options: Mapping[str, Any]) -> int:
    """Raises BadInput."""
    value = options.get("least_uid", LEAST_UID)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_UID:
        raise BadInput(f"a user's number from 1 to {_MOST_UID}", field="least_uid", value=value, remedy="1000")
    return value


def _nodes(value: object) -> tuple[Node, ...]:
    if isinstance(value, str):
        return _groups(value)
    if isinstance(value, Sequence):
        return tuple(_node(entry, f"nodes[{i}]") for i, entry in enumerate(value))
    raise BadInput("neither text nor a list", field="nodes", value=value, remedy='for example "v100:2x4,k80:2x2"')


def _groups(text: str) -> tuple[Node, ...]:
    nodes: list[Node] = []
    counted: dict[str, int] = {}
    for part in text.split(","):
        match = _GROUP.match(part.strip())
        if match is None or not int(match[2] or 1) or not int(match[3]):
            raise BadInput(
                f"cannot read {part.strip()!r} as a group of nodes",
                field="nodes",
                value=text,
                remedy="TYPE:NODESxGPUS, for example v100:2x4",
            )
        _bounded(len(nodes) + int(match[2] or 1), "nodes", text, _MOST_NODES, "nodes")
        _bounded(int(match[3]), "nodes", text, _MOST_GPUS, "GPUs a node")
        for _ in range(int(match[2] or 1)):
            counted[match[1]] = counted.get(match[1], 0) + 1
            nodes.append(Node(name=f"{match[1]}-{counted[match[1]]}", gpu_type=match[1], gpus=int(match[3])))
    return tuple(nodes)


def _node(entry: object, where: str) -> Node:
    if not isinstance(entry, Mapping):
        raise BadInput("not a node", field=where, value=entry, remedy="{name: n1, gpu_type: v100, gpus: 4}")
    for name in entry:
        if name not in _FIELDS:
            raise BadInput(
                "unknown field of a node", field=f"{where}.{name}", remedy=f"known: {', '.join(sorted(_FIELDS))}"
            )
    count, rack = entry.get("gpus"), entry.get("rack")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BadInput("a whole number of at least 1", field=f"{where}.gpus", value=count)
    _bounded(count, f"{where}.gpus", count, _MOST_GPUS, "GPUs a node")
    if rack is not None and not isinstance(rack, str):
        raise BadInput("a rack is a name", field=f"{where}.rack", value=rack)
    cpus = _above_0(entry.get("cpus"), f"{where}.cpus", _MOST_CPUS, "cpus")
    memory = _above_0(entry.get("memory"), f"{where}.memory", _MOST_MEMORY, "memory")
    return Node(
        name=_name(entry.get("name"), f"{where}.name"),
        gpu_type=_name(entry.get("gpu_type"), f"{where}.gpu_type"),
        gpus=count,
        rack=rack,
        cpus=cpus,
        memory=None if memory is None else int(memory),
    )


def _name(value: object, field: str) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise BadInput("letters, digits, dot, dash, underscore", field=field, value=value)
    return value


def _above_0(value: object, field: str, most: float, what: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise BadInput("a number above 0", field=field, value=value)
    _bounded(value, field, value, most, what)
    return float(value)


def _bounded(number: float, field: str, value: object, most: float, what: str) -> None:
    """Raises BadInput above `most`, and for what is no number."""
    if not number <= most:
        raise BadInput(f"more {what} than there can be", field=field, value=value, remedy=f"at most {most:.15g}")


def _keep_s(value: object) -> Seconds | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST_KEPT_S:
        raise BadInput("seconds, or null", field="keep_s", value=value, remedy="604800 is a week; null keeps for ever")
    return float(value)


def _bytes(value: object, name: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 62:
        raise BadInput(f"a number of bytes, at least {least}", field=name, value=value, remedy="1073741824 is a GiB")
    return value


def pass_env(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Raises BadInput."""
    value = options.get("pass_env", ())
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BadInput("a list of variables' names", field="pass_env", value=value, remedy="[CUDA_HOME, NCCL_DEBUG]")
    for i, name in enumerate(value):
        if not isinstance(name, str) or not _VARIABLE.match(name):
            raise BadInput("not a variable's name", field=f"pass_env[{i}]", value=name, remedy="such as CUDA_HOME")
    return tuple(value)


def _speeds(value: object) -> Mapping[GpuType, float]:
    if not isinstance(value, Mapping):
        raise BadInput("not a map from GPU type to speed", field="speeds", value=value, remedy="{v100: 1.0, k80: 0.4}")
    for gpu_type, speed in value.items():
        if not isinstance(speed, int | float) or isinstance(speed, bool) or speed <= 0:
            raise BadInput("a number above 0", field=f"speeds.{gpu_type}", value=speed)
        _bounded(speed, f"speeds.{gpu_type}", speed, _MOST_SPEED, "speed")
    return {str(gpu_type): float(speed) for gpu_type, speed in value.items()}
