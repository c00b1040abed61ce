"""The fake cluster in another process: a host that keeps the world, and a connection to it over a socket.

So that an arbiter can be killed by the operating system while its cluster lives on.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from horae.arbiter.decide.pickling import dumps
from horae.fake import FakePort, World
from horae.port import Capabilities, LogChunk, Observation, PortError
from horae.spec import JobSpec
from policy.model import Allocation


class Host:
    """Serves the port of one world to any number of connections."""

    def __init__(self, world: World, socket: Path) -> None:
        self.world, self.socket = world, socket
        self._listener = Listener(str(socket), "AF_UNIX")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept(),), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        port = FakePort(self.world)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                verb, values = pickle.loads(connection.recv_bytes())
                try:
                    answer = (getattr(port, verb)(*values), None)
                except PortError as error:
                    answer = (None, error)
                connection.send_bytes(dumps(answer))

    def close(self) -> None:
        self._listener.close()


class RemotePort:
    def __init__(self, socket: Path) -> None:
        self._connection = Client(str(socket), "AF_UNIX")

    def _call(self, verb: str, *values: Any) -> Any:
        self._connection.send_bytes(dumps((verb, values)))
        answer, error = pickle.loads(self._connection.recv_bytes())
        if error is not None:
            raise error
        return answer

    def capabilities(self) -> Capabilities:
        found: Capabilities = self._call("capabilities")
        return found

    def observe(self) -> Observation:
        found: Observation = self._call("observe")
        return found

    def read_log(self, job: str, offset: int, limit: int = 1 << 20) -> LogChunk:
        found: LogChunk = self._call("read_log", job, offset, limit)
        return found

    def claim(self, token: str) -> None:
        self._call("claim", token)

    def heartbeat(self) -> None:
        self._call("heartbeat")

    def submit(self, job: str, spec: JobSpec) -> None:
        self._call("submit", job, spec)

    def start(self, job: str, allocation: Allocation, epoch: int) -> None:
        self._call("start", job, dict(allocation), epoch)

    def reshape(self, job: str, allocation: Allocation, epoch: int) -> None:
        self._call("reshape", job, dict(allocation), epoch)

    def checkpoint_and_stop(self, job: str, grace_s: float) -> None:
        self._call("checkpoint_and_stop", job, grace_s)

    def cancel(self, job: str) -> None:
        self._call("cancel", job)

    def release(self, job: str) -> None:
        self._call("release", job)

    def set_order(self, jobs: Sequence[str]) -> None:
        self._call("set_order", tuple(jobs))

    def set_reason(self, job: str, text: str) -> None:
        self._call("set_reason", job, text)

    def close(self) -> None:
        self._connection.close()
