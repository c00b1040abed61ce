"""What starts and requests still need: their ends on record, all of those killed who do not leave, folders cleared.

Each is shown as due and done for the jobs that the arbiter names, never by looking.

A folder goes once its job has ended for good `keep_s` ago and this process has shown the end for a while, so that an
arbiter that was down misses none. It stays for ever where it holds anything that is not the supervisor's own (a user
may have written there), or where a job's checkpoints or working folder are in it: somebody may still need those.
"""

# Names that users gave, compared as text.
# ruff: noqa: PTH117

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from urllib.parse import unquote, urlsplit

from horae.elastic.files import NO_ROOM
from horae.elastic.supervisor.run import checkpoint_url
from horae.local.asked import Asked
from horae.local.books import Books
from horae.local.jobfolders import JobFolders
from horae.local.operations import Operations
from horae.local.records import Record, Records
from horae.port import Due, JobId
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Health, Seconds

#: What a supervisor may take beyond the grace of a request, to end its gang and say so, before all is killed.
PRESS_S = 10.0
#: An end is shown this long at least before its folder goes.
SHOWN_S = 60.0
#: It is looked this often for folders whose time is over.
LOOK_S = 60.0
#: Folders that go in one look: more wait for the next, so that no round is held up.
MOST = 50


class Upkeep:
    def __init__(
        self,
        books: Books,
        folders: JobFolders,
        records: Records,
        operations: Operations | Asked,
        owner: Callable[[JobSpec], str],
        keeper: Keeper,
    ) -> None:
        self._books, self._folders, self._records = books, folders, records
        self._operations, self._owner, self._keeper = operations, owner, keeper
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
        if not self._operations.signal(record.id, signal.SIGUSR2):
            self._kill_marked(record)

    def _kill_marked(self, record: Record) -> None:
        if record.book is not None:
            self._operations.kill_left(record.id, self._owner(record.book.spec))


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


# --- folders ------------------------------------------------------------------------------------------------


class Keeper:
    def __init__(self, folders: JobFolders, books: Books, keep_s: Seconds | None) -> None:
        """`keep_s` None: everything is kept for ever."""
        self._folders, self._books, self._keep_s = folders, books, keep_s
        self._shown: dict[JobId, float] = {}  #: since when this process shows the end
        self._next = 0.0

    def due(self, records: Sequence[Record]) -> list[JobId]:
        """Whose folders may be thrown away now. Raises OSError."""
        now = time.monotonic()
        if self._keep_s is None or now < self._next:
            return []
        self._next = now + min(LOOK_S, self._keep_s)
        due = self._due(records, now, self._keep_s)
        needed = {path for r in records for path in _paths(r)} if due else set()
        return list(islice((record.id for record in due if self._mine(record, needed)), MOST))

    def _due(self, records: Sequence[Record], now: float, keep_s: Seconds) -> list[Record]:
        """Those that ended so long ago, and whose end was shown."""
        over = [record for record in records if is_over(record)]
        self._shown = {r.id: self._shown.get(r.id, now) for r in over}
        old_s, shown_s = time.time() - keep_s, min(SHOWN_S, keep_s)
        return [r for r in over if _ended_s(r) <= old_s and now - self._shown[r.id] >= shown_s]

    def _mine(self, record: Record, needed: set[str]) -> bool:
        folder = os.path.normpath(record.folder)
        if any(path == folder or path.startswith(folder + os.sep) for path in needed):
            return False
        try:
            return self._folders.only_ours(record.id)
        except Unbelievable:
            return False

    def remove(self, record: Record) -> None:
        """Throw its folder away, unless it came to life. Raises OSError."""
        lock = self._books.take_lock(record.id) if is_over(record) else None
        if lock is None:
            return
        try:
            self._folders.clear(record.id)
            self._books.forget(record.id)
        finally:
            os.close(lock)


def is_over(record: Record) -> bool:
    """It ended for good, and that is noted."""
    return record.job_state.ended and record.final and not record.lives and not record.trouble


def _ended_s(record: Record) -> Seconds:
    """A cancelled job that never started counts from its submission."""
    assert record.book is not None
    end = record.book.end
    return end.since_s if end is not None and end.since_s else record.book.submitted_s


def _paths(record: Record) -> list[str]:
    """Where the job's checkpoints are and where it runs, as named; none on other machines' stores.

    As text: a path that a user names is not looked at. Where it leads by links into a folder, that folder holds what
    is not ours, and stays for that.
    """
    if record.book is None:
        return []
    spec, out = record.book.spec, []
    if spec.cwd:
        out.append(spec.cwd)
    if spec.checkpoint is not None:
        url = checkpoint_url(spec.checkpoint, spec.cwd)
        parts = urlsplit(url)
        if "://" not in url or parts.scheme == "file":
            out.append(unquote(parts.path) if "://" in url else url)
    return [os.path.normpath(path) for path in out if os.path.isabs(path)]
