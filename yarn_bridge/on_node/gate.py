"""Waiting at the gate: a supervisor that stays while its job changes shape (YARN, where a container that ends is
replaced by a new one).

A gate is a folder or URL with small JSON documents:

    gate             the arbiter   {epoch, state, members: [{name, gpus, host}, ...], port}; its epoch is the fence
    members/NAME     the worker    {host, port, gpus, pid, time_s}: it is here and waits; two free ports from `port`
    secrets/NAME     the worker    {secret, time_s}: by what ranks know each other where it is the first member; its
                                   owner's alone to read
    acks/NAME        the worker    {epoch, state, exit_code, checkpoint, text}: how its part of an epoch ended; of one
                                   that is `running` why its checkpoints cannot be written, "" when they can again

In HDFS each of these changes the stamp of the folder, so that one listing of many gates tells which have news.

`state` is `open` (members of `epoch` train), `stop` (they checkpoint and come back, at most `grace_s` seconds after)
or `closed` (for good). Ranks are given by position: a worker's ranks follow those of the members before it. Rank 0's
host is the first member's. Completed work is acknowledged and ends the worker with 0; everything else comes back to
the gate.

A job with servers (`tasks`) ends together: a member whose ranks have finished writes `done/NAME` with the epoch, keeps
its servers, and tells its end once all members have written theirs.
"""

import json
import os
import signal
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from horae.elastic import protocol
from horae.elastic.protocol import State
from horae.elastic.stores import documents
from horae.elastic.supervisor import tasks
from horae.elastic.supervisor.gang import Member
from horae.elastic.supervisor.jobfolder import JobFolder
from horae.elastic.supervisor.shape import RankPlace, free_ports, new_secret, rank_environment

_POLL_S, _LEAST_POLL_S = 0.5, 0.1
#: A stop is heard of within this share of the time that the gang has trained.
_SHARE = 0.01
#: A worker that has just come, or come back, is waited for: it looks more often for a while.
_SOON_S, _SOON_FOR_S = 0.1, 10.0


class Opening:
    """One epoch of the gate, as one worker sees it."""

    def __init__(self, value: Dict[str, Any], name: str) -> None:
        """Raises ValueError for a gate that is not well-formed, or that is not open to `name`."""
        try:
            self.epoch = int(value["epoch"])
            listed = [(str(each["name"]), int(each["gpus"]), str(each.get("host") or "")) for each in value["members"]]
            self.port = int(value.get("port") or 0)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("the gate cannot be read: %r" % error) from None
        self.names = [each[0] for each in listed]
        if name not in self.names:
            raise ValueError("the gate of epoch %d is not open to %s" % (self.epoch, name))
        self.allocation: Dict[str, int] = {}
        for each, gpus, _host in listed:
            self.allocation[each] = self.allocation.get(each, 0) + gpus
        self.position = self.names.index(name)
        self.gpus = listed[self.position][1]
        self.first_rank = sum(gpus for _, gpus, _ in listed[: self.position])
        self.world = sum(gpus for _, gpus, _ in listed)
        self.hosts = [host for _, _, host in listed]
        self.first_host = self.hosts[0]
        self.secret = ""
        self.rank_hosts = [host for _, gpus, host in listed for _ in range(gpus)]

    def members(self, command: Sequence[str], env: Dict[str, str], cwd: str, name: str) -> List[Member]:
        """This worker's ranks, and the servers beside them. Raises ValueError for servers that cannot be read."""
        cluster = tasks.TaskLayout(env, self.rank_hosts, self.hosts, self.port)
        found = []
        devices = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(str(i) for i in range(self.gpus))
        for i in range(self.gpus):
            place = RankPlace(self.first_rank + i, name, i, self.gpus, devices, node_rank=self.position)
            words = dict(env)
            at = self.first_host, self.port, self.secret
            words.update(rank_environment(place, self.allocation, self.world, *at))
            cluster.fit(words, place.rank)
            label = b"%d: " % place.rank if self.gpus > 1 else None
            found.append(Member(command, words, cwd, place.rank, label))
        return found + cluster.beside(self.position, env, cwd)


class Gate:
    """One worker's side of it. Trouble in reaching the gate is waited out: the arbiter sees who is late."""

    def __init__(self, url: str, name: str, gpus: int, say: Callable[[str], None]) -> None:
        self._url = url.rstrip("/")
        self._name = name
        self._gpus = gpus
        self._say = say
        self._trouble = ""
        self._secret = new_secret()

    @property
    def fence(self) -> str:
        return self._url + "/gate"

    def register(self) -> None:
        host = os.environ.get(protocol.ENV_HOST) or socket.getfqdn()
        value = {"host": host, "port": free_ports(), "gpus": self._gpus, "pid": os.getpid()}
        self._tell("secrets/" + self._name, {"secret": self._secret}, private=True)
        self._tell("members/" + self._name, value)

    def acknowledge(
        self,
        epoch: int,
        state: str,
        code: int,
        mark: Optional[Dict[str, Any]],
        text: str,
    ) -> None:
        value = {"epoch": epoch, "state": state, "exit_code": code, "checkpoint": mark, "text": text}
        self._tell("acks/" + self._name, value)

    def tell_trouble(self, epoch: int, text: str) -> bool:
        """While its part goes on: why checkpoints cannot be written. Tried once."""
        value = {"epoch": epoch, "state": State.RUNNING, "exit_code": 0, "checkpoint": None, "text": text}
        return self._tried("acks/" + self._name, value)

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
        soon_until = time.monotonic() + _SOON_FOR_S
        while True:
            value = self.read()
            if value.get("state") == "closed":
                return None
            epoch = value.get("epoch")
            if value.get("state") == "stop" and isinstance(epoch, int) and epoch > after and self._listed(value):
                # It opened and said stop between two looks: nothing was begun, and nobody need wait for us.
                after = epoch
                self.acknowledge(epoch, State.STOPPED, protocol.EXIT_STOPPED, None, "asked to stop before it began")
            if value.get("state") == "open" and isinstance(epoch, int) and epoch > after:
                try:
                    opening = Opening(value, self._name)
                    if self._heard_secret(opening):
                        return opening
                except ValueError as error:
                    if epoch != said:
                        said = epoch
                        self._say(str(error))
            time.sleep(_SOON_S if time.monotonic() < soon_until else _POLL_S)

    def _heard_secret(self, opening: Opening) -> bool:
        """What the first member has drawn; False when that cannot be seen now."""
        first = opening.names[0]
        if first == self._name:
            opening.secret = self._secret
            return True
        try:
            value = json.loads((documents.get("%s/secrets/%s" % (self._url, first)) or b"{}").decode())
        except OSError as error:
            self._complain("cannot see who is first: %s" % error)
            return False
        opening.secret = str(value.get("secret", ""))  # none of a worker of an older version
        return True

    def all_done(self, opening: Opening) -> "Callable[[], bool]":
        """To be asked when this member's ranks have finished: whether those of all others have too."""
        waiting = list(opening.names)

        def ask() -> bool:
            if self._name in waiting:
                # Tried once: the supervisor asks again, and must hear its own signals meanwhile.
                if not self._tried("done/" + self._name, {"epoch": opening.epoch}):
                    return False
                waiting.remove(self._name)
            waiting[:] = [name for name in waiting if not self._is_done(name, opening.epoch)]
            return not waiting

        return ask

    def _is_done(self, name: str, epoch: int) -> bool:
        try:
            data = documents.get("%s/done/%s" % (self._url, name))
            return data is not None and json.loads(data.decode()).get("epoch") == epoch
        except OSError as error:
            self._complain("cannot see who is done: %s" % error)
            return False
        except ValueError:
            return False  # being replaced

    def watch(self, opening: Opening, folder: JobFolder) -> "Callable[[], Watch]":
        return lambda: Watch(self, opening, folder)

    def _listed(self, value: Dict[str, Any]) -> bool:
        members = value.get("members")
        return isinstance(members, list) and any(
            isinstance(each, dict) and each.get("name") == self._name for each in members
        )

    def _tell(self, name: str, value: Dict[str, Any], private: bool = False) -> None:
        while not self._tried(name, value, private):
            time.sleep(_POLL_S)

    def _tried(self, name: str, value: Dict[str, Any], private: bool = False) -> bool:
        data = json.dumps(dict(value, time_s=time.time()), sort_keys=True).encode()
        try:
            documents.put("%s/%s" % (self._url, name), data, at=self._url, private=private)
        except OSError as error:
            self._complain("cannot write %s: %s" % (name, error))
            return False
        return True

    def _complain(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self._say(text)


class Watch(threading.Thread):
    """While the gang trains: a gate that says `stop` or moves on is passed to the supervisor as its own signal, and
    what the supervisor says of checkpoints that fail to the gate.

    A thread, because a gate may be a round trip away and the supervisor's loop must not wait for it.
    """

    def __init__(self, gate: Gate, opening: Opening, folder: JobFolder) -> None:
        super().__init__(daemon=True)
        self._gate = gate
        self._epoch = opening.epoch
        # One of the gang looks more often: what it hears the gang hears, by the trainers' own agreement.
        self._leads = opening.position == 0
        self._began = time.monotonic()
        self._folder = folder
        self._told = ""
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._pause_s()):
            self._pass_trouble()
            value = self._gate.read()
            state, epoch = value.get("state"), value.get("epoch")
            if state in ("stop", "closed") or (isinstance(epoch, int) and epoch > self._epoch):
                self._pass_grace(value.get("grace_s"))
                os.kill(os.getpid(), signal.SIGUSR1)
                return

    def _pause_s(self) -> float:
        if not self._leads:
            return _POLL_S
        return min(_POLL_S, max(_LEAST_POLL_S, _SHARE * (time.monotonic() - self._began)))

    def _pass_trouble(self) -> None:
        account = self._folder.state() or {}
        said = str(account.get("native") or "") if account.get("epoch") == self._epoch else ""
        trouble = said[len(protocol.CHECKPOINTS_FAIL) :] if said.startswith(protocol.CHECKPOINTS_FAIL) else ""
        if trouble != self._told and self._gate.tell_trouble(self._epoch, trouble):
            self._told = trouble

    def _pass_grace(self, grace_s: Any) -> None:
        """The time to leave goes by the stop file, which the supervisor reads when the signal wakes it."""
        if isinstance(grace_s, (int, float)):
            try:
                self._folder.request_stop(self._epoch, float(grace_s))
            except OSError:  # no room on the disk: the job's own grace holds
                return

    def end(self) -> None:
        self._over.set()
        self.join()


def comes_back(state: str) -> bool:
    """Whether a worker whose part ended so waits for the next opening."""
    return state in (State.STOPPED, State.FAILED)
