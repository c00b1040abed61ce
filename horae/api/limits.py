"""How much of the arbiter one caller can take: connections, bytes in flight, and how long each may last.

A connection that asks nothing, asks slowly or does not read its answer is closed. Nobody but root and the arbiter's
own user may have more than a share, all together leave descriptors to the arbiter's own work, and whoever comes above
that is told so and closed at once. A user's requests are answered a few at a time, and bodies wait until there is room
for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import time
from collections import Counter
from collections.abc import Collection, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from horae.api.errors import Code, body
from policy.model import Seconds

#: From the opening of a connection, or the answer before, to the last byte of a request.
REQUEST_S: Seconds = 20.0
#: From there to the last byte of the answer; waiting for an offer counts.
ANSWER_S: Seconds = 120.0
#: Descriptors left to the arbiter: journal, cluster, logs, policy, children.
RESERVE = 256
MOST_CONNECTIONS = 4096
#: Connections of one user.
MOST_OF_A_USER = 128
#: New connections that are taken before what others asked goes on: they cost who comes, not who is in.
TAKEN_AT_ONCE = 16
#: Those that wait to be taken, in their order; the kernel may allow fewer (`net.core.somaxconn`).
QUEUE = 4096
#: Kept for root and the arbiter's own user, who may have to mend what others did.
FOR_ROOT = 16
#: Requests of one user that are worked on, or whose answers are not taken yet, at once; and those that wait for that.
MOST_AT_WORK = 4
MOST_WAITING = 128
#: One waits so long for its turn.
TURN_S: Seconds = 60.0
#: Bytes of bodies that are read and worked on at once.
MOST_BYTES = 32 << 20
MOST_BYTES_OF_A_USER = 8 << 20
#: A body waits so long for room.
WAIT_S: Seconds = 10.0
LOOK_S: Seconds = 0.05
#: The same words of the event loop are logged once in this time.
SILENCE_S: Seconds = 60.0


def room() -> int:
    """Connections that may be open: what the limit of open files leaves beside the reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(min(soft - min(RESERVE, soft // 2), MOST_CONNECTIONS), 2 * FOR_ROOT)


class Doors:
    """Counts who is in. Used from the event loop's thread alone."""

    def __init__(self, most: int | None = None, of_a_user: int = MOST_OF_A_USER) -> None:
        self.most = room() if most is None else most
        self.of_a_user = min(of_a_user, max(self.most // 4, 1))
        self._inside: Counter[int] = Counter()
        self._mine = os.getuid()

    def enter(self, uid: int) -> str:
        """ "" and counted, or why not."""
        own = uid in (0, self._mine)
        if self._inside.total() >= self.most - (0 if own else FOR_ROOT):
            return f"{self._inside.total()} connections are open, no more are taken for now"
        if not own and self._inside[uid] >= self.of_a_user:
            return f"you have {self._inside[uid]} connections open, no more are taken for now"
        self._inside[uid] += 1
        return ""

    def leave(self, uid: int) -> None:
        self._inside[uid] -= 1
        if not self._inside[uid]:
            del self._inside[uid]


def refusal(text: str) -> bytes:
    """A whole answer, for a connection that is closed after it."""
    told = json.dumps(body(Code.TRY_LATER, text, remedy="close some, or try again", retry_after_s=5)).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
        f"Content-Length: {len(told)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + told


class Turns:
    """Lets few requests of a user be worked on at once, for the threads that answer are everybody's.

    Who has asked and left is counted until the answer is made: closing a connection makes no room for more.
    `free`: paths whose requests wait for news and hold no thread meanwhile; how many of these wait is bounded alone.
    """

    def __init__(self, app: ASGIApp, free: Collection[str] = (), at_work: int = MOST_AT_WORK) -> None:
        self._app, self._free, self._at_work = app, frozenset(free), at_work
        self._asked: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        who = _user(scope)
        if self._asked[who] >= self._at_work + MOST_WAITING:
            await _refuse(send, f"{self._asked[who]} requests of yours are not answered yet")
            return
        turn = self._turns.setdefault(who, asyncio.Semaphore(self._at_work))
        self._asked[who] += 1
        try:
            if scope["path"] in self._free:
                await self._app(scope, receive, send)
            else:
                await self._in_turn(turn, scope, receive, send)
        finally:
            self._asked[who] -= 1
            if not self._asked[who]:
                del self._asked[who], self._turns[who]

    async def _in_turn(self, turn: asyncio.Semaphore, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.wait_for(turn.acquire(), TURN_S)
        except TimeoutError:
            await _refuse(send, "other requests of yours take long")
            return
        try:
            await self._app(scope, receive, send)
        finally:
            turn.release()


def _user(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


async def _refuse(send: Send, text: str) -> None:
    told = json.dumps(body(Code.TRY_LATER, text, retry_after_s=5)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(told)).encode()),
        (b"retry-after", b"5"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": told})


class BodiesInFlight:
    """Lets a request's body in when there is room for it, among all and among its user's."""

    def __init__(
        self, app: ASGIApp, largest: int, most: int = MOST_BYTES, of_a_user: int = MOST_BYTES_OF_A_USER
    ) -> None:
        self._app, self._largest, self._most, self._of_a_user = app, largest, most, of_a_user
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = self._size(dict(scope["headers"])) if scope["type"] == "http" else 0
        if not size:
            await self._app(scope, receive, send)
            return
        who = _user(scope)
        until = time.monotonic() + WAIT_S
        while self._held[who] + size > self._of_a_user or self._held.total() + size > self._most:
            if time.monotonic() >= until:
                await _refuse(send, "too many large requests at once")
                return
            await asyncio.sleep(LOOK_S)
        self._held[who] += size
        try:
            await self._app(scope, receive, send)
        finally:
            self._held[who] -= size
            if not self._held[who]:
                del self._held[who]

    def _size(self, headers: Mapping[bytes, bytes]) -> int:
        """What the body may take; one that does not say is as large as any may be."""
        told = headers.get(b"content-length", b"")
        if told.isdigit() and len(told) < 12:
            return min(int(told), self._largest)
        return self._largest if b"transfer-encoding" in headers or told else 0


class Sparse(logging.Filter):
    """Lets the same message pass once in SILENCE_S: a loop that cannot accept says so thousands of times."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, key = time.monotonic(), f"{record.levelno} {record.getMessage()[:60]}"
        if now - self._last.get(key, float("-inf")) < SILENCE_S:
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[key] = now
        return True
