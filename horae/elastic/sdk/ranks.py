"""Ranks that talk by plain TCP: agreement for the SDK, gradients for trainers without a framework.

A star: rank 0 gathers from all, combines in rank order (so the result does not depend on who was faster) and gives
the result to all. For a flag or a few megabytes that is all that is needed; frameworks bring their own collectives
for more. A rank that dies breaks the star for all at once, and the supervisor ends the gang.
"""

import array
import contextlib
import socket
import struct
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .environment import Environment

_HEADER = struct.Struct("!Q")
_HELLO = b"horae-ranks-2 "
_FORMED, _LEAVE = b"formed", b"leave"  #: rank 0's word to those that joined
_LOOK_S = 0.2  #: so often somebody who waits for others looks whether it is asked to leave
_HELLO_S = 30.0  #: so long whoever connected may take to say who it is: a rank's machine may be busy
_ALONE_S = 3.0  #: so long a rank that is asked to leave goes on looking for rank 0: one that joins leaves with all


class RankLost(ConnectionError):
    """Another rank of the gang is gone."""


class NotFormed(Exception):
    """The gang was asked to leave before it stood, so that nobody waits for ranks that will never come."""


class Alone:
    """A gang of one."""

    rank = 0
    world = 1

    def all_max(self, values: Sequence[float]) -> List[float]:
        return list(values)

    def all_sum(self, values: Any) -> Any:
        return values

    def broadcast(self, data: bytes) -> bytes:
        return data

    def barrier(self) -> None:
        return None

    def close(self) -> None:
        return None


class Star:
    """All ranks of a gang, each call made by all of them in the same order.

    Raises RankLost when the gang does not form in time, NotFormed when `asked` says first that it is to leave.
    """

    def __init__(
        self, environment: Environment, patience_s: float = 300.0, asked: Callable[[], bool] = lambda: False
    ) -> None:
        self.rank = environment.rank
        self.world = environment.world
        self._peers: List[socket.socket] = []  # on rank 0: peer of rank i + 1; elsewhere: rank 0
        hello = _HELLO + environment.gang.encode()
        if self.rank == 0:
            self._accept(environment, hello, patience_s, asked)
        else:
            self._connect(environment, hello, patience_s, asked)

    # --- the calls ----------------------------------------------------------------------------------------

    def all_max(self, values: Sequence[float]) -> List[float]:
        """Element by element the largest value of any rank."""
        result = self._combine(array.array("d", values).tobytes(), _max_of)
        return array.array("d", result).tolist()

    def all_sum(self, values: Any) -> Any:
        """Element by element the sum over all ranks: of a NumPy array (any shape and float type), or of a list."""
        if isinstance(values, (list, tuple)):
            return array.array("d", self._combine(array.array("d", values).tobytes(), _sum_of)).tolist()
        import numpy

        def add(pieces: Sequence[bytes]) -> bytes:
            total = numpy.frombuffer(pieces[0], dtype=values.dtype).copy()
            for piece in pieces[1:]:
                total += numpy.frombuffer(piece, dtype=values.dtype)
            return bytes(total.tobytes())

        data = self._combine(numpy.ascontiguousarray(values).tobytes(), add)
        return numpy.frombuffer(data, dtype=values.dtype).reshape(values.shape).copy()

    def broadcast(self, data: bytes) -> bytes:
        """Rank 0's `data`, on every rank."""
        return self._combine(data if self.rank == 0 else b"", lambda pieces: pieces[0])

    def barrier(self) -> None:
        self._combine(b"", lambda pieces: b"")

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self._peers = []

    # --- the star -----------------------------------------------------------------------------------------

    def _combine(self, data: bytes, merge: Callable[[Sequence[bytes]], bytes]) -> bytes:
        if self.rank:
            _send(self._peers[0], data)
            return _receive(self._peers[0])
        result = merge([data] + [_receive(peer) for peer in self._peers])
        for peer in self._peers:
            _send(peer, result)
        return result

    def _accept(self, environment: Environment, hello: bytes, patience_s: float, asked: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience_s
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(
                ("" if environment.address not in ("127.0.0.1", "localhost") else "127.0.0.1", environment.port)
            )
            server.listen(environment.world)
            joined: List[Optional[socket.socket]] = [None] * (environment.world - 1)
            while None in joined:
                if asked():
                    _dismiss(server, hello, environment.world, [peer for peer in joined if peer is not None])
                    raise NotFormed
                if time.monotonic() > deadline:
                    missing = [i + 1 for i, peer in enumerate(joined) if peer is None]
                    raise RankLost("ranks %s did not come within %g s" % (missing, patience_s))
                server.settimeout(_LOOK_S)
                try:
                    peer, _address = server.accept()
                except socket.timeout:
                    continue
                rank = _welcome(peer, hello, environment.world)
                if rank is None or joined[rank - 1] is not None:
                    peer.close()  # a stranger on our port
                    continue
                joined[rank - 1] = peer
            self._peers = [peer for peer in joined if peer is not None]
        for peer in self._peers:
            _ready(peer)
            _send(peer, _FORMED)

    def _connect(self, environment: Environment, hello: bytes, patience_s: float, asked: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience_s
        pause, asked_at = 0.005, time.monotonic()
        while True:
            try:
                peer = socket.create_connection((environment.address, environment.port), timeout=5.0)
                break
            except OSError as error:
                if asked():
                    deadline = min(deadline, asked_at + _ALONE_S)
                    if time.monotonic() > deadline:
                        raise NotFormed from None
                else:
                    asked_at = time.monotonic()
                if time.monotonic() > deadline:
                    raise RankLost("rank 0 did not come within %g s: %s" % (patience_s, error)) from None
                time.sleep(pause)
                pause = min(0.1, pause * 1.5)
        _ready(peer)
        _send(peer, hello + b" %d" % self.rank)
        try:
            formed = _receive(peer, limit=16) == _FORMED
        except RankLost:
            if not asked():
                raise
            formed = False
        if not formed:
            peer.close()
            raise NotFormed
        self._peers = [peer]


def connect(environment: Optional[Environment] = None, asked: Callable[[], bool] = lambda: False) -> Any:
    """The gang this process belongs to: `Alone` or a connected `Star`. Raises as `Star` does."""
    found = environment or Environment()
    return Alone() if found.world == 1 else Star(found, asked=asked)


def _dismiss(server: socket.socket, hello: bytes, world: int, joined: "Sequence[socket.socket]") -> None:
    """Tell all that came, those at the door too, that there will be no gang."""
    here = list(joined)
    server.settimeout(0.0)
    with contextlib.suppress(OSError):  # until nobody waits
        while True:
            peer, _address = server.accept()
            if _welcome(peer, hello, world) is None:
                peer.close()
            else:
                here.append(peer)
    for peer in here:
        _ready(peer)
        with contextlib.suppress(RankLost):  # it has left already
            _send(peer, _LEAVE)
        peer.close()


def _welcome(peer: socket.socket, hello: bytes, world: int) -> Optional[int]:
    """The rank of whoever connected, None when it is not of this gang."""
    peer.settimeout(_HELLO_S)
    try:
        said, _, rank = _receive(peer, limit=4096).rpartition(b" ")
    except OSError:
        return None
    if said != hello or not rank.isdigit() or not 1 <= int(rank) < world:
        return None
    return int(rank)


def _ready(peer: socket.socket) -> None:
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _send(peer: socket.socket, data: bytes) -> None:
    try:
        peer.sendall(_HEADER.pack(len(data)) + data)
    except OSError as error:
        raise RankLost("another rank is gone: %s" % error) from None


def _receive(peer: socket.socket, limit: Optional[int] = None) -> bytes:
    (size,) = _HEADER.unpack(_exactly(peer, _HEADER.size))
    if limit is not None and size > limit:
        raise RankLost("not one of ours: announces %d bytes" % size)
    return _exactly(peer, size)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            got = peer.recv_into(view)
        except socket.timeout:
            raise RankLost("another rank fell silent") from None
        except OSError as error:
            raise RankLost("another rank is gone: %s" % error) from None
        if not got:
            raise RankLost("another rank is gone")
        view = view[got:]
    return bytes(data)


def _columns(pieces: Sequence[bytes]) -> "List[Tuple[float, ...]]":
    return list(zip(*(array.array("d", piece) for piece in pieces)))  # noqa: B905  (strict= is newer than Python 3.7)


def _max_of(pieces: Sequence[bytes]) -> bytes:
    return array.array("d", [max(column) for column in _columns(pieces)]).tobytes()


def _sum_of(pieces: Sequence[bytes]) -> bytes:
    return array.array("d", [sum(column) for column in _columns(pieces)]).tobytes()
