"""Who calls: the kernel says which user opened a unix socket, and nobody can claim to be another."""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from dataclasses import dataclass

from uvicorn.protocols.http.h11_impl import H11Protocol

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


class PeerProtocol(H11Protocol):
    """HTTP on a unix socket, whose `client` is the caller's user id instead of an address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = (str(peer_uid(transport.get_extra_info("socket"))), 0)


def caller_of(client_host: str, operators: frozenset[str]) -> Caller:
    """The caller behind a connection."""
    name = user_name(int(client_host))
    return Caller(int(client_host), name, operator=name in operators)
