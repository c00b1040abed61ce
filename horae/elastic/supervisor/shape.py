"""Which ranks run where: the environment of each, from an allocation on this machine.

Ranks are numbered node by node in the order of the allocation, so neighbours share a node.
"""

import json
import os
import socket
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .. import protocol
from .gang import Member
from .tasks import TaskLayout

#: Ports for rendezvous: below Linux's ephemeral range, so that no outgoing connection takes one meanwhile.
_PORTS = (20000, 32000)


class RankPlace:
    """One rank's place."""

    def __init__(
        self,
        rank: int,
        node: str,
        local_rank: int,
        local_world: int,
        devices: str,
        speed: Optional[float] = None,
        node_rank: int = 0,
    ):
        self.rank = rank
        self.node_rank = node_rank
        self.node = node
        self.local_rank = local_rank
        self.local_world = local_world
        self.devices = devices
        self.speed = speed


def places(
    allocation: Mapping[str, int],
    slots: Optional[Mapping[str, Sequence[int]]] = None,
    speeds: Optional[Mapping[str, float]] = None,
) -> List[RankPlace]:
    """One place a GPU. `slots`: the GPU indices granted on each node (default: the first ones)."""
    found: List[RankPlace] = []
    for node_rank, (node, gpus) in enumerate(allocation.items()):
        granted = list((slots or {}).get(node, range(gpus)))
        devices = ",".join(str(index) for index in granted)
        speed = (speeds or {}).get(node)
        for local_rank in range(gpus):
            found.append(RankPlace(len(found), node, local_rank, gpus, devices, speed, node_rank))
    return found


def new_secret() -> str:
    """For the ranks of one start, who hear it by their environment, which the kernel shows to their user alone."""
    return os.urandom(16).hex()


def rank_environment(
    place: RankPlace, allocation: Mapping[str, int], world: int, address: str, port: int, secret: str
) -> Dict[str, str]:
    """What a rank is told about the gang. All GPUs granted on its node are visible to it; LOCAL_RANK is its own."""
    env = {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world),
        "NODE_RANK": str(place.node_rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "CUDA_VISIBLE_DEVICES": place.devices,
        protocol.ENV_PORT: str(port + 1),
        protocol.ENV_SECRET: secret,
        protocol.ENV_NODES: json.dumps(dict(allocation)),
    }
    if place.speed is not None:
        env[protocol.ENV_SPEED] = repr(place.speed)
    return env


def local_members(
    command: Sequence[str],
    base: Mapping[str, str],
    cwd: str,
    allocation: Mapping[str, int],
    slots: Optional[Mapping[str, Sequence[int]]] = None,
    speeds: Optional[Mapping[str, float]] = None,
) -> List[Member]:
    """The whole gang as processes of this machine."""
    ranks = places(allocation, slots, speeds)
    port, secret = free_ports(), new_secret()
    here = "127.0.0.1"
    cluster = TaskLayout(base, [here] * len(ranks), [here], port)
    members = []
    for place in ranks:
        env = dict(base)
        env.update(rank_environment(place, allocation, len(ranks), here, port, secret))
        if slots:
            env["CUDA_DEVICE_ORDER"] = (
                "PCI_BUS_ID"  # nvidia-smi's, by which they were granted; CUDA's: the fastest first
            )
        cluster.fit(env, place.rank)
        label = b"%d: " % place.rank if len(ranks) > 1 else None
        members.append(Member(command, env, cwd, place.rank, label))
    return members + cluster.beside(0, base, cwd)


def free_ports(address: str = "127.0.0.1", attempts: int = 50) -> int:
    """A port p such that p and p + 1 are free at `address` now. Random, so that gangs started together differ."""
    low, high = _PORTS
    for _ in range(attempts):
        port = low + 2 * (int.from_bytes(os.urandom(4), "little") % ((high - low) // 2))
        if _free(address, port) and _free(address, port + 1):
            return port
    raise OSError("no two neighbouring free ports found between %d and %d" % _PORTS)


def _free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def trainer_environment(
    job: str, folder: str, epoch: int, checkpoint: Optional[str], fence: str, grace_s: float
) -> Dict[str, str]:
    """What every rank of a start is told about its job."""
    env = {
        protocol.ENV_JOB: job,
        protocol.ENV_JOB_DIR: folder,
        protocol.ENV_EPOCH: str(epoch),
        protocol.ENV_STOP_FILE: os.path.join(folder, protocol.STOP_FILE),
        protocol.ENV_FENCE_FILE: fence,
        protocol.ENV_GRACE: repr(grace_s),
    }
    if checkpoint is not None:
        env[protocol.ENV_CHECKPOINT] = checkpoint
    return env


def plain_environment(spec_env: Mapping[str, Any]) -> Dict[str, str]:
    """The supervisor's own environment without another job's words in it, and the user's on top.

    A supervisor may itself have been started from inside a job (a test, a shell in an allocation).
    """
    env = {key: value for key, value in os.environ.items() if key not in protocol.ENVIRONMENT}
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.update({str(key): str(value) for key, value in spec_env.items()})
    return env
