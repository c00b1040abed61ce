"""What a rank knows about its gang: from the supervisor's environment, a launcher's, or nothing (a laptop)."""

import json
import os
from typing import Dict, Mapping, Optional

from .. import protocol


class Environment:
    """Read once at the start of a trainer. Without any launcher: one rank, no fence, no stop file."""

    def __init__(self, variables: Optional[Mapping[str, str]] = None) -> None:
        env = os.environ if variables is None else variables
        self.rank = _number(env, "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", default=0)
        self.world = _number(env, "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", default=1)
        self.local_rank = _number(env, "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", default=0)
        self.local_world = _number(env, "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", default=self.world)
        if not 0 <= self.rank < self.world:
            raise ValueError("RANK=%d is not below WORLD_SIZE=%d" % (self.rank, self.world))
        self.address = env.get("MASTER_ADDR", "127.0.0.1")
        self.port = _number(env, protocol.ENV_PORT, default=0) or _number(env, "MASTER_PORT", default=29500) + 1
        self.job = env.get(protocol.ENV_JOB, "")
        self.epoch = _number(env, protocol.ENV_EPOCH, default=0)
        self.checkpoint = env.get(protocol.ENV_CHECKPOINT) or None
        self.stop_file = env.get(protocol.ENV_STOP_FILE) or None
        self.fence_file = env.get(protocol.ENV_FENCE_FILE) or None
        self.speed = float(env.get(protocol.ENV_SPEED) or 1.0)
        self.nodes: Dict[str, int] = json.loads(env.get(protocol.ENV_NODES) or "{}")
        self.secret = env.get(protocol.ENV_SECRET, "")  #: that the ranks of one start alone know
        #: Names one start among all that ever used these ports, so that no stray rank joins another's gang.
        self.gang = "%s/%d/%s" % (self.job, self.epoch, env.get("MASTER_PORT", ""))


def _number(env: Mapping[str, str], *names: str, default: int) -> int:
    for name in names:
        text = env.get(name, "")
        if text:
            try:
                return int(text)
            except ValueError:
                raise ValueError("%s=%r is not a whole number" % (name, text)) from None
    return default
