"""The words by which a training framework finds its gang, made anew for every shape of it.

`HORAE_FRAMEWORK` of a job says which: `tensorflow` gets TF_CONFIG, `mxnet` gets DMLC_*; `pytorch` and anything else
need no more than the ranks' RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which every rank has.

A gang is its ranks, in their order, and the members of other roles (`ps`, `scheduler`), in theirs. Ports follow from
the order too, so that all members say the same: rank i has `port + 2 + i` (below are MASTER_PORT and the SDK's own),
the other roles' members come after the ranks.
"""

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

FRAMEWORK = "HORAE_FRAMEWORK"
RANK = "worker"  #: the role of those who train
_FIRST = 2
#: What an outer job of the same framework may have left in the environment.
_STALE = {
    "tensorflow": ("TF_CONFIG", "_TASK_TYPE", "_TASK_INDEX"),
    "mxnet": ("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"),
}
_DMLC = {RANK: "worker", "ps": "server", "scheduler": "scheduler"}


class Task(NamedTuple):
    """One process of the gang."""

    role: str
    number: int  #: among those of its role
    host: str


def tasks(ranks: Sequence[str], others: "Sequence[tuple[str, str]]") -> List[Task]:
    """All of a gang's, from the host of each rank and (role, host) of each member of another role."""
    found = [Task(RANK, number, host) for number, host in enumerate(ranks)]
    for role, host in others:
        found.append(Task(role, sum(each.role == role for each in found), host))
    return found


def fit(env: Dict[str, str], gang: Sequence[Task], position: int, port: int) -> None:
    """Put into `env` what its own framework asks of the task at `position`; take out what is another gang's."""
    framework = env.get(FRAMEWORK, "")
    for name in _STALE.get(framework, ()):
        env.pop(name, None)
    if framework == "tensorflow":
        env.update(_tensorflow(gang, position, port))
    elif framework == "mxnet":
        env.update(_mxnet(gang, position, port))


def _tensorflow(gang: Sequence[Task], position: int, port: int) -> Dict[str, str]:
    """TF_CONFIG: the first rank is the chief, the others are workers (TensorFlow 1.4 to 2). Alone it has none."""
    words = [_tensorflow_task(task) for task in gang]
    kind, index = words[position]
    found = {"_TASK_TYPE": kind, "_TASK_INDEX": str(index)}
    if len(gang) > 1:
        cluster: Dict[str, List[str]] = {}
        for place, (task, (role, _)) in enumerate(zip(gang, words)):  # noqa: B905  (strict= is newer than Python 3.7)
            cluster.setdefault(role, []).append("%s:%d" % (task.host, port + _FIRST + place))
        value: Mapping[str, Any] = {"cluster": cluster, "task": {"type": kind, "index": index}}
        found["TF_CONFIG"] = json.dumps(value, sort_keys=True)
    return found


def _tensorflow_task(task: Task) -> "tuple[str, int]":
    if task.role != RANK:
        return task.role, task.number
    return ("chief", 0) if task.number == 0 else ("worker", task.number - 1)


def _mxnet(gang: Sequence[Task], position: int, port: int) -> Dict[str, str]:
    """ps-lite's variables; nothing without a scheduler, who is the root that everybody asks."""
    counts = {role: sum(task.role == role for task in gang) for role in _DMLC}
    root = next((place for place, task in enumerate(gang) if task.role == "scheduler"), None)
    if root is None:
        return {}
    return {
        "DMLC_ROLE": _DMLC.get(gang[position].role, gang[position].role),
        "DMLC_PS_ROOT_URI": gang[root].host,
        "DMLC_PS_ROOT_PORT": str(port + _FIRST + root),
        "DMLC_NUM_SERVER": str(counts["ps"]),
        "DMLC_NUM_WORKER": str(counts[RANK]),
    }
