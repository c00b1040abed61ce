"""What starts and requests still need: their ends on record, all of those killed who do not leave, folders cleared.

Each is shown as due and done for the jobs that the arbiter names, never by looking.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from horae.elastic.files import NO_ROOM
from horae.local.asked import Asked
from horae.local.books import Books
from horae.local.hands import Hands
from horae.local.jobfolders import JobFolders
from horae.local.keeping import Keeper
from horae.local.records import Record, Records
from horae.port import Due, JobId
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Health, Seconds

#: What a supervisor may take beyond the grace of a request, to end its gang and say so, before all is killed.
PRESS_S = 10.0


class Upkeep:
    def __init__(
        self,
        books: Books,
        folders: JobFolders,
        records: Records,
        hands: Hands | Asked,
        owner: Callable[[JobSpec], str],
        keeper: Keeper,
    ) -> None:
        self._books, self._folders, self._records = books, folders, records
        self._hands, self._owner, self._keeper = hands, owner, keeper
        self._until: dict[JobId, tuple[int, Seconds]] = {}  #: start, and when all of it is killed
        self._clear: set[JobId] = set()  #: whose folders' time was over at the last look for them

    def due(self, records: Sequence[Record], health: Mapping[str, Health]) -> list[Due]:
        """Raises OSError."""
        found = []
        for record in records:
            self._press(record)
            if what := self._needs(record, health):
                found.append(Due(record.id, what, stray=record.released))
        self._clear = set(self._keeper.due(records))
        return [*found, *(Due(job, "its folder's time is over", stray=True) for job in sorted(self._clear))]

    def see_to(self, job: JobId, health: Mapping[str, Health]) -> None:
        """Do what is due for one job, as far as it still is. Raises OSError, Unbelievable."""
        record = self._records.one(job)
        if record is None:
            return
        if job in self._clear:
            self._clear.discard(job)
            self._keeper.remove(record)
        elif self._needs(record, health):
            self._do(record)

    def _needs(self, record: Record, health: Mapping[str, Health]) -> str:
        """What, in words; empty: nothing."""
        if record.book is None:
            return ""
        if not record.kept:
            return "what a version before left of it is written down"
        if not record.lives:
            return "" if record.final else "its end is written down"
        if record.released:
            return ""
        if any(health.get(node) is Health.DOWN for node in record.allocation):
            return "its node is down and takes it along"
        late = record.id in self._until and time.monotonic() >= self._until[record.id][1]
        return "it did not leave in its time and is killed" if late else ""

    def _do(self, record: Record) -> None:
        if record.book is not None and not record.kept:
            with self._books.changing():
                if self._books.read(record.id) is None:
                    self._books.write(record.id, record.book)
        elif record.lives:
            self._kill(record)
        else:
            self.settled(record)

    # --- ends ---------------------------------------------------------------------------------------------

    def settled(self, record: Record) -> Record:
        """The end of a start is noted in its book once nothing of it lives; from then on its owner cannot change it.

        One whose supervisor died without a word is lost, and what it left is killed. Raises OSError, Unbelievable.
        """
        if record.book is None or record.final or record.lives:
            return record
        lock = self._books.take_lock(record.id)
        if lock is None:
            return record
        try:
            # Under the lock once more: it may have ended in order, or another arbiter have seen to it, since the look.
            book = self._books.read(record.id)
            if book is not None and book.epoch == record.epoch and not book.final:
                self._note(self._records.over(replace(record, book=book)))
        finally:
            os.close(lock)
        return self._records.one(record.id) or record

    def _note(self, record: Record) -> None:
        job, end = record.id, record.end
        if not record.ended_in_order:
            self._kill_marked(record)
        with self._books.changing():
            book = self._books.read(job)
            if book is not None:  # with what was asked of it meanwhile
                self._books.write(job, replace(book, end=end))
        self._books.free(job)
        if end is not None and not record.ended_in_order:
            with despite():
                self._folders.tell_end(job, end)

    # --- those who do not leave -----------------------------------------------------------------------------

    def _press(self, record: Record) -> None:
        """By when one that was asked to leave is to be gone, whatever its folder says."""
        book = record.book
        if book is None or not record.lives or (not book.cancelled and book.grace_s is None):
            self._until.pop(record.id, None)
            return
        # Counted from the first look that shows the request: a clock that was set must not shorten anybody's grace.
        until = time.monotonic() + PRESS_S + (0.0 if book.cancelled else book.grace_s or 0.0)
        epoch, known = self._until.get(record.id, (book.epoch, until))
        self._until[record.id] = (book.epoch, min(known, until) if epoch == book.epoch else until)

    def _kill(self, record: Record) -> None:
        """Its keeper kills all below it. Where that is gone: its owner's processes that carry the job's mark."""
        if not self._hands.signal(record.id, signal.SIGUSR2):
            self._kill_marked(record)

    def _kill_marked(self, record: Record) -> None:
        if record.book is not None:
            self._hands.kill_left(record.id, self._owner(record.book.spec))


@contextmanager
def despite() -> Iterator[None]:
    """What a job's folder does not take is not needed."""
    try:
        yield
    except (Unbelievable, FileNotFoundError):
        return
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
