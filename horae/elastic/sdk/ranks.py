"""Ranks that talk by plain TCP: agreement for the SDK, gradients for trainers without a framework.

A star: rank 0 gathers from all, combines in rank order (so the result does not depend on who was faster) and gives
the result to all. For a flag or a few megabytes that is all that is needed; frameworks bring their own collectives
for more. A rank that dies breaks the star for all at once, and the supervisor ends the gang.

Every user of the machine, and of the network, can connect to rank 0, and can listen where it is to be. So both sides
prove that they know the start's secret, which the supervisor gives to the ranks alone, before either believes a word;
and whoever connects and says nothing keeps nobody else waiting. Ranks that no supervisor started have no secret: then
all that is asked for is the name of the gang.
"""

import array
import contextlib
import hmac
import os
import select
import socket
import struct
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .environment import Environment

_HEADER = struct.Struct("!Q")
_HELLO = b"horae-ranks-3 "
_NONCE = 16  #: bytes that each side draws anew, so that no proof serves twice
_PROOF = 32
_SIGNED = _NONCE + _PROOF  #: before the text of a hello
_SAID = 4096  #: bytes of a hello at most
_FORMED, _LEAVE = b"formed", b"leave"  #: rank 0's word to those that joined
_STRANGER = b"stranger"  #: and to others
_MOST_GUESTS = 128  #: who connected and has not said who it is; of more the one that came first has to go
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
        if self.rank == 0:
            self._accept(environment, patience_s, asked)
        else:
            self._connect(environment, patience_s, asked)

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

    def _accept(self, environment: Environment, patience_s: float, asked: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience_s
        with contextlib.closing(_Door(environment)) as door:
            while len(door.joined) < self.world - 1:
                if asked():
                    door.dismiss()
                    raise NotFormed
                if time.monotonic() > deadline:
                    missing = [rank for rank in range(1, self.world) if rank not in door.joined]
                    raise RankLost("ranks %s did not come within %g s" % (missing, patience_s))
                door.look(_LOOK_S)
            self._peers = door.form()

    def _connect(self, environment: Environment, patience_s: float, asked: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience_s
        pause, asked_at, met = 0.005, time.monotonic(), False
        while True:
            try:
                peer, bond = _introduced(environment)
                met = True
                word = _receive(peer, limit=_PROOF + 16)
                break
            except OSError as error:
                if met and isinstance(error, ConnectionRefusedError):  # it is gone: it failed, or was asked before us
                    deadline = min(deadline, time.monotonic() + _ALONE_S)
                if asked():
                    deadline = min(deadline, asked_at + _ALONE_S)
                    if time.monotonic() > deadline:
                        raise NotFormed from None
                else:
                    asked_at = time.monotonic()
                if time.monotonic() > deadline:
                    if met:
                        raise RankLost("rank 0 is gone") from None
                    raise RankLost("rank 0 did not come within %g s: %s" % (patience_s, error)) from None
                time.sleep(pause)
                pause = min(0.1, pause * 1.5)
        if word == bond.signed(_FORMED):
            self._peers = [peer]
            return
        peer.close()
        if word == bond.signed(_LEAVE):
            raise NotFormed
        raise RankLost("who answers at %s:%d is not of this gang" % (environment.address, environment.port))


def connect(environment: Optional[Environment] = None, asked: Callable[[], bool] = lambda: False) -> Any:
    """The gang this process belongs to: `Alone` or a connected `Star`. Raises as `Star` does."""
    found = environment or Environment()
    return Alone() if found.world == 1 else Star(found, asked=asked)


def _introduced(environment: Environment) -> "Tuple[socket.socket, _Bond]":
    """A connection to whoever is where rank 0 is to be, which has been told who we are; and what proves its words.
    Raises OSError."""
    peer = socket.create_connection((environment.address, environment.port), timeout=5.0)
    try:
        drawn = _exactly(peer, _NONCE)
        ours = os.urandom(_NONCE)
        said = _said(environment, environment.rank)
        proof = _Bond(environment, drawn, ours).proof(said)
        _send(peer, ours + proof + said)
        _ready(peer)
    except BaseException:
        peer.close()
        raise
    return peer, _Bond(environment, ours, drawn)


def _said(environment: Environment, rank: int) -> bytes:
    return _HELLO + environment.gang.encode() + b" %d" % rank


class _Bond:
    """Between two ends of a connection, each of which has drawn bytes that nobody else can have heard before."""

    def __init__(self, environment: Environment, asker: bytes, answerer: bytes) -> None:
        self._secret = environment.secret.encode()
        self._drawn = asker + answerer

    def proof(self, text: bytes) -> bytes:
        """That the answerer, who says this, knows the secret."""
        return hmac.new(self._secret, self._drawn + text, "sha256").digest()

    def signed(self, text: bytes) -> bytes:
        return text + self.proof(text)


class _Guest:
    """Who connected, and has not said yet who it is."""

    def __init__(self) -> None:
        self.came_at = time.monotonic()
        self.nonce = os.urandom(_NONCE)
        self.data = b""

    def hello(self) -> Optional[bytes]:
        """What it said; None until that is whole. Raises RankLost."""
        begins = _HEADER.size
        if len(self.data) < begins:
            return None
        (size,) = _HEADER.unpack(self.data[:begins])
        there = len(self.data) - begins
        if size > _SAID or there > size:
            raise RankLost("not one of ours")
        if there < size:
            return None
        return self.data[begins:]


class _Door:
    """Where rank 0 lets the others in. All that knock are heard side by side, each for a while."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.joined: Dict[int, socket.socket] = {}  #: by rank
        self._bonds: Dict[int, _Bond] = {}
        self._guests: Dict[socket.socket, _Guest] = {}  #: in the order in which they came
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            here = environment.address in ("127.0.0.1", "localhost")
            self._server.bind(("127.0.0.1" if here else "", environment.port))
            self._server.listen(max(environment.world, _MOST_GUESTS))
            self._server.setblocking(False)
        except BaseException:
            self._server.close()
            raise

    def look(self, patience_s: float) -> bool:
        """Who knocks, and what they say; False where nobody did."""
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        known = {}
        for peer in self._guests:
            known[peer.fileno()] = peer
            poll.register(peer, select.POLLIN)
        heard = poll.poll(patience_s * 1000)
        for fd, _ in heard:
            if fd in known:
                self._hear(known[fd])
            else:
                self._open()
        self._tidy()
        return bool(heard)

    def _tidy(self) -> None:
        """Turn away who has had its time, and the first of too many."""
        since = time.monotonic() - _HELLO_S
        for peer, guest in list(self._guests.items()):
            if guest.came_at < since or len(self._guests) > _MOST_GUESTS:
                self._turn_away(peer)

    def dismiss(self) -> None:
        """Tell all that came, those at the door too, that there will be no gang."""
        until = time.monotonic() + _ALONE_S
        while self.look(_LOOK_S) and time.monotonic() < until:
            pass  # until nobody comes, or says who he is, any more
        for rank in self.joined:
            with contextlib.suppress(RankLost):  # it has left already
                self._tell(rank, _LEAVE)

    def form(self) -> "List[socket.socket]":
        """Tell all that they are a gang; in the order of their ranks, and the caller's from now on. Raises RankLost."""
        peers = []
        for rank in sorted(self.joined):
            self._tell(rank, _FORMED)
            peers.append(self.joined[rank])
        self.joined = {}
        return peers

    def close(self) -> None:
        self._server.close()
        for guest in self._guests:
            guest.close()
        for peer in self.joined.values():
            peer.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            peer, _address = self._server.accept()
            peer.setblocking(False)
            guest = self._guests[peer] = _Guest()
            peer.send(guest.nonce)

    def _hear(self, peer: socket.socket) -> None:
        guest = self._guests[peer]
        try:
            data = peer.recv(_SAID)
            guest.data += data
            said = guest.hello()
            if not data:
                self._turn_away(peer)
            elif said is not None:
                self._join(peer, guest, said)
        except OSError:  # a RankLost is one too
            self._turn_away(peer)

    def _join(self, peer: socket.socket, guest: _Guest, said: bytes) -> None:
        drawn = said[:_NONCE]
        proof = said[_NONCE:_SIGNED]
        text = said[_SIGNED:]
        rank = self._rank(text)
        right = _Bond(self._environment, guest.nonce, drawn).proof(text)
        proven = hmac.compare_digest(proof, right)
        if not proven or rank is None:
            _send(peer, _STRANGER)  # or a rank of another start
            raise RankLost("not one of ours")
        del self._guests[peer]
        _ready(peer)
        self.joined[rank] = peer
        self._bonds[rank] = _Bond(self._environment, drawn, guest.nonce)

    def _rank(self, text: bytes) -> Optional[int]:
        """Which of those that are not there yet says so."""
        for rank in range(1, self._environment.world):
            if rank not in self.joined and text == _said(self._environment, rank):
                return rank
        return None

    def _tell(self, rank: int, word: bytes) -> None:
        _send(self.joined[rank], self._bonds[rank].signed(word))

    def _turn_away(self, peer: socket.socket) -> None:
        if self._guests.pop(peer, None) is not None:
            peer.close()


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
