"""Parameter servers and MXNet's scheduler: they run beside the workers, in the workers' containers.

A container then is as large as a worker and the servers that may stand beside it. `horae.elastic.supervisor.tasks`
starts them,
tells the framework of them, and ends them with the gang.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horae.elastic.supervisor.tasks import BOARD
from yarn_bridge.submarine.resources import Resources

__all__ = ["BOARD", "BOARD_SIZE", "ServerRole", "beside", "board_command", "words"]


BOARD_SIZE = "memory=4G,vcores=1"  #: where nothing else is said, as Submarine gave it


@dataclass(frozen=True, slots=True)
class ServerRole:
    name: str  #: as the supervisor knows it: ps, scheduler
    count: int
    resources: Resources
    command: str
    env: Mapping[str, str]


def board_command(logs: str) -> str:
    """TensorBoard at any free port; it writes its address into the job's output. Where the program is missing, that is
    said, and the job trains on."""
    run = f"tensorboard --logdir={shlex.quote(logs)} --bind_all --port=0"
    return f"export LC_ALL=C; {run}; echo 'TensorBoard has ended, or is not installed here' >&2; sleep infinity"


def words(roles: Sequence[ServerRole]) -> str:
    """The value of HORAE_SERVERS."""
    listed = [
        {"role": role.name, "count": role.count, "command": ["bash", "-c", role.command], "env": dict(role.env)}
        for role in roles
    ]
    return json.dumps(listed, sort_keys=True)


def beside(roles: Sequence[ServerRole], workers: int) -> Resources:
    """The most that the servers beside one of `workers` ask for: server k stands beside worker k, counted around."""
    asked = [role.resources for role in roles for _ in range(role.count)]
    shares = [asked[place::workers] for place in range(min(workers, len(asked)))] or [[]]
    memory = max(sum(each.memory_mb for each in share) for share in shares)
    return Resources(memory, max(sum(each.vcores for each in share) for share in shares))
