"""The arbiter's journal without a disk: the same events, the same fold, what was durable and what was not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from horae.journal import Clock, Draft, Event, Journal, Ledger, events
from horae.journal.fold import fold
from horae.journal.form import Kind, numbered
from horae.journal.room import Room
from horae.port import JobId
from policy.model import Seconds

_ROOM = Room(disk=1 << 40, free=1 << 40, own=1 << 22, size=1 << 22)


class MemoryJournal(Journal):
    """A `Journal` whose file is a list."""

    def __init__(self, clock: Clock, kept: Iterable[Event] = ()) -> None:
        """`kept`: the events of an earlier life, folded anew."""
        self.clock, self.path, self.folder = clock, Path("memory"), Path("memory")
        self.quarantined, self.id = None, "memory"
        self.ledger, self._seq = Ledger(), 0
        for event in kept:
            fold(self.ledger, event)
            self._seq = event.seq
        self.new, self._covered = not self._seq, self._seq
        clock.anchor(self.ledger.at_s)

    def append(self, drafts: Iterable[Draft], *, durable: bool = False) -> tuple[Event, ...]:
        wall_s, at_s = self.clock.wall_s(), max(self.clock.now_s(), self.ledger.at_s)
        fresh = tuple(numbered(draft, seq, wall_s, at_s) for seq, draft in enumerate(drafts, self._seq + 1))
        for event in fresh:
            fold(self.ledger, event)
            self._seq = event.seq
        return fresh

    @property
    def written(self) -> int:
        """Events so far."""
        return self._seq

    def compact(self, *, history_s: Seconds, forget_after_s: Seconds, keep: Collection[JobId] = frozenset()) -> int:
        """Forget the jobs that ended and that the cluster does not show any more."""
        old = [job.id for job in self.ledger.jobs.values() if not job.live and job.id not in keep]
        if old:
            self.append([events.Forgotten(old)])
        self._covered = self._seq
        return len(old)

    def room(self) -> Room:
        return _ROOM

    def take_room(self) -> None:
        """There is always room."""

    def refill(self) -> None:
        """Likewise."""

    def size(self) -> tuple[int, int]:
        return self._seq, 0

    def history(
        self,
        *,
        job: str | None = None,
        kinds: Sequence[Kind] = (),
        after: int = 0,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> tuple[Event, ...]:
        """Nothing: nobody reads a simulation's history by events."""
        return ()

    def close(self) -> None:
        """Nothing is held open."""
