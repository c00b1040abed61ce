"""A job's output where others can read it while it runs: rank 0's spool, copied to a document that only grows.

There is one document an epoch and one writer of it, so a fence is not needed: what a lost worker still copies lands
in the document of its own epoch.
"""

import os
import threading
import time
from typing import Any, Callable

from horae.elastic.stores import documents

_EVERY_S = 1.0
_PIECE = 1 << 20
#: how long the end of the output may take to get there; after that it is left out
_PATIENCE_S = 30.0


class Mirror:
    """Copies what is written to `path` from now on to `url`. `start` and `end` frame the gang; `finish` comes last,
    then `await_sent` where this process goes on, and `await_end`.
    """

    def __init__(self, path: str, url: str) -> None:
        self._path = path
        self._url = url
        self._begin = _size(path)
        self._sent = 0
        self._sure = True  #: `_sent` is what the document holds
        self._over = threading.Event()
        self._finishing = False
        self._sent_all = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._last = threading.Thread(target=self._finish, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()

    def finish(self) -> None:
        """Begin to copy what is left."""
        self._last.start()

    def await_sent(self) -> None:
        """Until what is left is on its way, or was not to be sent in time."""
        self._sent_all.wait()

    def await_end(self) -> None:
        """Until it is there: HDFS takes half a second for the end of a file."""
        self._last.join()

    def _finish(self) -> None:
        try:
            if self._thread.ident is not None:  # the gang was spawned
                self._thread.join()
            self._finishing = True
            until = time.monotonic() + _PATIENCE_S
            while not self.push() and time.monotonic() < until:
                time.sleep(_EVERY_S)
        finally:  # the job's end is told whatever becomes of its output
            self._sent_all.set()

    def push(self) -> bool:
        """Copy what there is; False when the document could not be written."""
        try:
            if not self._sure:
                self._sent = documents.size(self._url)
                self._sure = True
            if _size(self._path) < self._begin + self._sent:  # the spool began a new file
                self._begin = -self._sent
            with open(self._path, "rb") as file:
                while True:
                    file.seek(self._begin + self._sent)
                    data = file.read(_PIECE)
                    if not data:
                        return True
                    self._sure = False  # an answer that is lost leaves the bytes there
                    last = self._finishing and len(data) < _PIECE
                    documents.append(self._url, data, self._sent_all.set if last else int)
                    self._sent += len(data)
                    self._sure = True
        except OSError:
            return False

    def _follow(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.push()


class Together:
    """Several things that are started and ended with the gang."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    @classmethod
    def of(cls, make: Callable[[], Any], mirror: Mirror) -> "Callable[[], Together]":
        return lambda: cls(make(), mirror)

    def start(self) -> None:
        for part in self._parts:
            part.start()

    def end(self) -> None:
        for part in self._parts:
            part.end()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
