"""Whether workers have written to their jobs' folders since the last look: one listing tells, and nothing is believed.

An arbiter looks a few times a minute while its jobs run, and once a second while one moves. What it waits for then, a
worker that has come or a part that has ended, changes the stamp of the job's folder: this hears of it, and the arbiter
looks. A stamp that we changed ourselves is no news, or each reason that a look writes down would ask for another look.
What a job's owner may do to its folder is heard so often a minute and then no more: its ends are seen by the looks that
come anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from horae.port import JobId
from yarn_bridge.clients.hdfs import Status

#: between two listings, while a job moves and while all rest or run
MOVES_S, RUNS_S = 0.1, 0.5
#: a listing of many jobs takes the NameNode longer: one part in so many of the time at most, while a job moves or none
_SHARE_MOVES, _SHARE_RUNS = 10.0, 100.0
#: how often one job is heard
_MOST, _PER_S = 60, 60.0


class Stamps:
    """Threads may share it; nobody is kept waiting by a listing that is on its way."""

    def __init__(
        self, listing: Callable[[], Mapping[str, Status]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listing, self._clock = listing, clock
        self._lock = threading.Lock()
        self._known: dict[JobId, float] = {}
        self._listed_s = self._next_s = float("-inf")  #: when the last listing was asked for; when the next may be
        self._wrote: dict[JobId, float] = {}  #: when we last wrote to a job's folder; never ended while we do
        self._heard: dict[JobId, tuple[float, int]] = {}  #: a minute's begin, and how often in it
        self.count = 0  #: of news

    @contextmanager
    def writing(self, job: JobId) -> Iterator[None]:
        """What changes the stamp meanwhile is our doing."""
        self._wrote[job] = float("inf")
        try:
            yield
        finally:
            self._wrote[job] = self._clock()

    def saw(self, entries: Mapping[str, Status], asked_s: float) -> None:
        """A look has listed them, and reads what is new by itself. `asked_s`: by `now_s`, when it asked."""
        if self._lock.acquire(blocking=False):  # else a listing is on its way, and this look may be called for twice
            try:
                self._learn(entries, asked_s)
            finally:
                self._lock.release()

    def now_s(self) -> float:
        return self._clock()

    def news(self, *, moves: bool) -> int:
        """How often there was some. Raises PortError. `moves`: whether a job is waited for."""
        asked_s = self._clock()
        if asked_s < self._next_s or not self._lock.acquire(blocking=False):
            return self.count
        try:
            listed = self._listing()
            fresh = [name for name, each in listed.items() if self._is_news(name, each.modified_s, asked_s)]
            self.count += bool(fresh)
            self._learn(listed, asked_s)
        finally:
            least_s, share = (MOVES_S, _SHARE_MOVES) if moves else (RUNS_S, _SHARE_RUNS)
            now_s = self._clock()
            self._next_s = now_s + max(least_s, (now_s - asked_s) * share)
            self._lock.release()
        return self.count

    def _learn(self, entries: Mapping[str, Status], asked_s: float) -> None:
        if asked_s < self._listed_s:
            return
        self._known, self._listed_s = {name: each.modified_s for name, each in entries.items()}, asked_s
        for known in (self._wrote, self._heard):
            for gone in [name for name in list(known) if name not in entries]:
                known.pop(gone, None)

    def _is_news(self, name: str, stamp: float, now_s: float) -> bool:
        before = self._known.get(name)
        if before is None or stamp == before or self._wrote.get(name, float("-inf")) >= self._listed_s:
            return False
        began_s, times = self._heard.get(name, (now_s, 0))
        if now_s - began_s >= _PER_S:
            began_s, times = now_s, 0
        self._heard[name] = (began_s, times + 1)
        return times < _MOST
