"""Requests and results on their way to the core, which is asked by one thread alone."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar

from horae.arbiter.requests.authority import Requester
from horae.port import JobId, TryLater
from horae.spec import JobSpec
from policy.model import Seconds

T = TypeVar("T")

#: Requests taken together in one go; more wait for the next, so that results are not starved.
BATCH = 20_000
#: How long a caller waits for his answer.
PATIENCE_S = 60.0
#: Who calls while it comes up waits so long: its socket is there a moment before its core.
BEGINS_S: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class Submission:
    specs: Sequence[JobSpec]
    caller: Requester
    answer: Future[tuple[JobId, ...]]


@dataclass(frozen=True, slots=True)
class Posted:
    what: Callable[[], Any]
    answer: Future[Any] | None  #: None: a result that comes back, nobody waits


class Mailbox:
    """Any thread puts, the core's takes."""

    def __init__(self) -> None:
        self._mail: queue.SimpleQueue[Submission | Posted | None] = queue.SimpleQueue()
        self._opened, self._closing, self._closed = Event(), Event(), Event()

    def open(self) -> None:
        """From now on somebody reads it."""
        self._opened.set()

    def close(self) -> None:
        """Nothing more is taken; who reads wakes up."""
        self._closing.set()
        self._mail.put(None)

    def refuse(self) -> None:
        """Nobody reads it any more: who waits is told so."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._mail.get_nowait()
                if message is not None and message.answer is not None:
                    message.answer.set_exception(TryLater("the arbiter is stopping"))

    def put(self, what: Callable[[], Any]) -> None:
        """A result; nobody waits for what becomes of it."""
        self._mail.put(Posted(what, None))

    def ask(self, what: Callable[[], T], timeout_s: Seconds = PATIENCE_S) -> T:
        """Raises TryLater, and what `what` raises."""
        answer: Future[T] = Future()
        return self._wait(Posted(what, answer), answer, timeout_s)

    def submit(self, specs: Sequence[JobSpec], caller: Requester) -> tuple[JobId, ...]:
        """Raises TryLater, and what becomes of the submission."""
        answer: Future[tuple[JobId, ...]] = Future()
        return self._wait(Submission(tuple(specs), caller, answer), answer, PATIENCE_S)

    def _wait(self, message: Submission | Posted, answer: Future[T], timeout_s: Seconds) -> T:
        if self._closing.is_set() or not self._opened.wait(BEGINS_S):
            raise TryLater("the arbiter is not running")
        self._mail.put(message)
        if self._closed.is_set():  # it came after the last look into the mailbox
            self.refuse()
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            raise TryLater(f"the arbiter did not answer within {timeout_s:g} s") from None

    def batch(self, wait_s: Seconds | None) -> list[list[Submission] | Posted]:
        """What there is; waits so long for it, None: until something comes. Submissions in a row are one."""
        found: list[Submission | Posted | None] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._mail.get(timeout=wait_s) if wait_s != 0 else self._mail.get_nowait())
            while len(found) < BATCH:
                found.append(self._mail.get_nowait())
        together: list[list[Submission] | Posted] = []
        came: list[Submission | Posted] = list(filter(None, found))
        for message in came:
            if isinstance(message, Posted):
                together.append(message)
            elif together and isinstance(together[-1], list):
                together[-1].append(message)
            else:
                together.append([message])
        return together
