"""A gang in the words of its training framework, made anew for every shape of it; and who serves its ranks.

`HORAE_FRAMEWORK` of a job says which words: `tensorflow` gets TF_CONFIG, `mxnet` gets DMLC_*; `pytorch` and anything
else need no more than RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which every rank has.

`HORAE_SERVERS` of a job is a list of {role, count, command, env}: processes that serve the ranks and train nothing
themselves (parameter servers, MXNet's scheduler). Server k runs beside the ranks of member k, counted around; it sees
no GPU, and it is ended when the ranks of all members are.

A gang's tasks are its ranks, in their order, then its servers. Ports follow from the order, so that all say the same:
task i has `port + 2 + i` (below are MASTER_PORT and the SDK's own connection).
"""

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from .gang import Member

FRAMEWORK = "HORAE_FRAMEWORK"
SERVERS = "HORAE_SERVERS"
RANK = "worker"  #: the role of those who train
_FIRST = 2
#: What an outer job of the same framework may have left in the environment.
_STALE = {
    "tensorflow": ("TF_CONFIG", "_TASK_TYPE", "_TASK_INDEX"),
    "mxnet": ("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"),
}
#: runs beside the gang and is no task of its training
BOARD = "tensorboard"
_DMLC = {RANK: "worker", "ps": "server", "scheduler": "scheduler"}


class Task(NamedTuple):
    """One process of the gang."""

    role: str
    number: int  #: among those of its role
    host: str


class TaskServer(NamedTuple):
    role: str
    number: int
    command: List[str]
    env: Dict[str, str]


def servers(env: Mapping[str, str]) -> List[TaskServer]:
    """Those that a job asks for, one by one. Raises ValueError."""
    text = env.get(SERVERS, "")
    if not text:
        return []
    found: List[TaskServer] = []
    try:
        for each in json.loads(text):
            role, command = str(each["role"]), [str(word) for word in each["command"]]
            words = {str(name): str(value) for name, value in (each.get("env") or {}).items()}
            if not command or role == RANK:
                raise ValueError("a server has a command and a role of its own")
            found += [TaskServer(role, number, command, words) for number in range(int(each["count"]))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("%s cannot be read: %r" % (SERVERS, error)) from None
    return found


class TaskLayout:
    """All tasks of one shape: `ranks` is the host of each rank, `members` the host of each member, in their order."""

    def __init__(self, env: Mapping[str, str], ranks: Sequence[str], members: Sequence[str], port: int) -> None:
        """Raises ValueError for servers that cannot be read."""
        self.servers = servers(env)
        self._places = [k % len(members) for k in range(len(self.servers))]
        self._world = len(ranks)
        self._port = port
        self.tasks = [Task(RANK, number, host) for number, host in enumerate(ranks)]
        self.tasks += [
            Task(each.role, each.number, members[place])
            for each, place in zip(self.servers, self._places)  # noqa: B905  (strict= is newer than Python 3.7)
        ]

    def fit(self, env: Dict[str, str], position: int) -> None:
        """Put into `env` what its framework asks of the task at `position`; take out what is another gang's."""
        framework = env.get(FRAMEWORK, "")
        for name in _STALE.get(framework, ()):
            env.pop(name, None)
        if framework == "tensorflow":
            env.update(_tensorflow(self.tasks, position, self._port))
        elif framework == "mxnet":
            env.update(_mxnet(self.tasks, position, self._port))

    def beside(self, member: int, env: Mapping[str, str], cwd: str) -> List[Member]:
        """The servers that run beside the ranks of the member at this position."""
        found = []
        for k, server in enumerate(self.servers):
            if self._places[k] != member:
                continue
            words = dict(env, CUDA_VISIBLE_DEVICES="")
            words.update(server.env)
            self.fit(words, self._world + k)
            label = ("%s-%d: " % (server.role, server.number)).encode()
            found.append(Member(server.command, words, cwd, self._world + k, label, serves=True))
        return found


def _tensorflow(gang: Sequence[Task], position: int, port: int) -> Dict[str, str]:
    """TF_CONFIG: the first rank is the chief, the others are workers (TensorFlow 1.4 to 2). Alone it has none."""
    words = [_tensorflow_task(task) for task in gang]
    kind, index = words[position]
    found = {"_TASK_TYPE": kind, "_TASK_INDEX": str(index)}
    if kind != BOARD and sum(task.role != BOARD for task in gang) > 1:
        cluster: Dict[str, List[str]] = {}
        for place, task in enumerate(gang):
            if task.role == BOARD:
                continue
            cluster.setdefault(words[place][0], []).append("%s:%d" % (task.host, port + _FIRST + place))
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
