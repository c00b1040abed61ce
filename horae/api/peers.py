"""Who calls: the kernel says which user opened a unix socket, and nobody can claim to be another."""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from horae.api import limits

#: SO_PEERCRED: pid, uid, gid of the process that connected.
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    uid: int
    name: str
    operator: bool = False

    def sees(self, owner: str) -> bool:
        """Whether what is private of `owner`'s jobs is shown: to themselves, and to operators."""
        return self.operator or self.name == owner


def peer_uid(connection: socket.socket) -> int:
    """The user id of the process at the other end of a unix socket, as it was when it connected."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def user_name(uid: int) -> str:
    """The user's name, or the number where the system has none for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class _Sized(h11.Connection):
    """Takes bodies whose length stands in their head. In chunks of a byte, a body costs thousands of times its size."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise h11.RemoteProtocolError("a body needs its Content-Length", error_status_hint=411)
        return event


class PeerProtocol(H11Protocol):
    """HTTP on a unix socket, whose `client` is the caller's user id instead of an address, within `limits.py`."""

    doors = limits.Doors()
    _uid: int | None = None  #: None: not let in
    _timer: asyncio.TimerHandle | None = None
    _answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        uid = peer_uid(transport.get_extra_info("socket"))
        if why_not := self.doors.enter(uid):
            transport.write(limits.refusal(why_not))
            transport.close()
            return
        self._uid = uid
        self.conn = _Sized(h11.SERVER, 1 << 16)
        super().connection_made(transport)
        self.client = (str(uid), 0)
        self._wait(limits.REQUEST_S)

    def data_received(self, data: bytes) -> None:
        if self._uid is None:
            return  # it was told to go
        super().data_received(data)
        self._asked()

    def on_response_complete(self) -> None:
        self._answering = False
        self._wait(limits.REQUEST_S)
        super().on_response_complete()
        self._asked()  # the next one may have come meanwhile

    def _asked(self) -> None:
        """A request that is whole is answered in time, whatever else its caller sends meanwhile."""
        if not self._answering and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._answering = True
            self._wait(limits.ANSWER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._uid is not None:
            self.doors.leave(self._uid)
            super().connection_lost(exc)

    def eof_received(self) -> None:
        if self._uid is not None:
            super().eof_received()

    def _wait(self, seconds: float) -> None:
        """Close the connection unless the next thing happens within this time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)


def caller_of(client_host: str, operators: frozenset[str]) -> Caller:
    """The caller behind a connection."""
    name = user_name(int(client_host))
    return Caller(int(client_host), name, operator=name in operators)
