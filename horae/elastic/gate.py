"""Waiting at the gate: a supervisor that stays while its job changes shape (YARN, where a container that ends is
replaced by a new one).

A gate is a folder or URL with small JSON documents:

    gate             the arbiter   {epoch, state, members: [{name, gpus, host, role}, ...], port}
    epoch            the arbiter   the fence, written before the gate opens
    members/NAME     the worker    {host, gpus, pid, time_s}: it is here and waits
    acks/NAME        the worker    {epoch, state, exit_code, checkpoint, text}: how its part of an epoch ended

`state` is `open` (members of `epoch` train), `stop` (they checkpoint and come back) or `closed` (for good). Ranks
are given by position: a worker's ranks follow those of the members before it. Rank 0's host is the first member's.
Completed work is acknowledged and ends the worker with 0; everything else comes back to the gate.

`role` is `worker` where it is left out. A member of another role (`ps`, `scheduler`) has no GPU and no rank: it runs
its own command once in every shape, is told of the gang in its framework's words (`tasks`), and is asked to end by
TERM, for it has nothing to save. Such members serve for ever: a job is complete when its workers are.
"""

import json
import os
import signal
import socket
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import documents, protocol, tasks
from .gang import Member
from .protocol import State
from .shape import Place, rank_environment

_POLL_S = 0.5


class _Entry(NamedTuple):
    """One member in the gate's list."""

    name: str
    gpus: int
    host: str
    role: str

    @classmethod
    def of(cls, value: Dict[str, Any]) -> "_Entry":
        role = str(value.get("role") or tasks.RANK)
        gpus = int(value["gpus"])
        if (gpus > 0) != (role == tasks.RANK):
            raise ValueError("a %s with %d GPUs" % (role, gpus))
        return cls(str(value["name"]), gpus, str(value.get("host") or ""), role)


class Opening:
    """One epoch of the gate, as one worker sees it."""

    def __init__(self, value: Dict[str, Any], name: str) -> None:
        """Raises ValueError for a gate that is not well-formed, or that is not open to `name`."""
        try:
            self.epoch = int(value["epoch"])
            listed = [_Entry.of(each) for each in value["members"]]
            self.port = int(value.get("port") or 0)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("the gate cannot be read: %r" % error) from None
        workers = [each for each in listed if each.role == tasks.RANK]
        others = [each for each in listed if each.role != tasks.RANK]
        mine = next((each for each in listed if each.name == name), None)
        if mine is None or not workers:
            raise ValueError("the gate of epoch %d is not open to %s" % (self.epoch, name))
        self.role = mine.role
        self.allocation: Dict[str, int] = {}
        for each in workers:
            self.allocation[each.name] = self.allocation.get(each.name, 0) + each.gpus
        hosts = [each.host for each in workers for _ in range(each.gpus)]
        self.tasks = tasks.tasks(hosts, [(each.role, each.host) for each in others])
        self.world = len(hosts)
        self.position = (others if mine in others else workers).index(mine)
        self.gpus = mine.gpus
        self.first_rank = sum(each.gpus for each in workers[: self.position])
        self.first_host = workers[0].host

    def members(self, command: Sequence[str], env: Dict[str, str], cwd: str, name: str) -> List[Member]:
        """This worker's ranks, or the one process of a member of another role."""
        if self.role != tasks.RANK:
            words = dict(env)
            tasks.fit(words, self.tasks, self.world + self.position, self.port)
            return [Member(command, words, cwd, 0)]
        found = []
        devices = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(str(i) for i in range(self.gpus))
        for i in range(self.gpus):
            place = Place(self.first_rank + i, name, i, self.gpus, devices, node_rank=self.position)
            words = dict(env)
            words.update(rank_environment(place, self.allocation, self.world, self.first_host, self.port))
            tasks.fit(words, self.tasks, place.rank, self.port)
            label = b"%d: " % place.rank if self.gpus > 1 else None
            found.append(Member(command, words, cwd, place.rank, label))
        return found


class Gate:
    """One worker's side of it. Trouble in reaching the gate is waited out: the arbiter sees who is late."""

    def __init__(self, url: str, name: str, gpus: int, say: Callable[[str], None]) -> None:
        self._url = url.rstrip("/")
        self._name = name
        self._gpus = gpus
        self._say = say
        self._trouble = ""

    @property
    def fence(self) -> str:
        return self._url + "/" + protocol.EPOCH_FILE

    def register(self) -> None:
        self._put("members/" + self._name, {"host": socket.getfqdn(), "gpus": self._gpus, "pid": os.getpid()})

    def acknowledge(self, epoch: int, state: str, code: int, mark: Optional[Dict[str, Any]], text: str) -> None:
        value = {"epoch": epoch, "state": state, "exit_code": code, "checkpoint": mark, "text": text}
        self._put("acks/" + self._name, value)

    def read(self) -> Dict[str, Any]:
        """What the arbiter says now; {} when that cannot be seen."""
        try:
            data = documents.get(self._url + "/gate")
            self._trouble = ""
        except OSError as error:
            self._complain("cannot see the gate: %s" % error)
            return {}
        try:
            value = json.loads(data.decode()) if data else {}
        except ValueError:
            return {}  # being replaced
        return value if isinstance(value, dict) else {}

    def wait(self, after: int) -> Optional[Opening]:
        """The next opening to us with an epoch above `after`; None when the gate is closed for good."""
        said = -1
        while True:
            value = self.read()
            if value.get("state") == "closed":
                return None
            epoch = value.get("epoch")
            if value.get("state") == "open" and isinstance(epoch, int) and epoch > after:
                try:
                    return Opening(value, self._name)
                except ValueError as error:
                    if epoch != said:
                        said = epoch
                        self._say(str(error))
            time.sleep(_POLL_S)

    def watch(self, epoch: int) -> "Callable[[], Watch]":
        return lambda: Watch(self, epoch)

    def _put(self, name: str, value: Dict[str, Any]) -> None:
        data = json.dumps(dict(value, time_s=time.time()), sort_keys=True).encode()
        while True:
            try:
                documents.put("%s/%s" % (self._url, name), data)
                return
            except OSError as error:
                self._complain("cannot write %s: %s" % (name, error))
                time.sleep(_POLL_S)

    def _complain(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self._say(text)


class Watch(threading.Thread):
    """While the gang trains: a gate that says `stop` or moves on is passed to the supervisor as its own signal.

    A thread, because a gate may be a round trip away and the supervisor's loop must not wait for it.
    """

    def __init__(self, gate: Gate, epoch: int) -> None:
        super().__init__(daemon=True)
        self._gate = gate
        self._epoch = epoch
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_POLL_S):
            value = self._gate.read()
            state, epoch = value.get("state"), value.get("epoch")
            if state in ("stop", "closed") or (isinstance(epoch, int) and epoch > self._epoch):
                os.kill(os.getpid(), signal.SIGUSR1)
                return

    def end(self) -> None:
        self._over.set()
        self.join()


def comes_back(state: str) -> bool:
    """Whether a worker whose part ended so waits for the next opening."""
    return state in (State.STOPPED, State.FAILED)
