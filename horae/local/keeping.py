"""How long the folders of ended jobs are kept, and what is never thrown away.

A folder goes once its job has ended for good `keep_s` ago and this process has shown the end for a while, so that an
arbiter that was down misses none. It stays for ever where it holds anything that is not the supervisor's own (a user
may have written there), or where a job's checkpoints or working folder are in it: somebody may still need those.
"""

# Names that users gave, compared as text.
# ruff: noqa: PTH117

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import islice
from urllib.parse import unquote, urlsplit

from horae.elastic.supervisor.run import checkpoint_url
from horae.local.books import Books
from horae.local.jobfolders import JobFolders
from horae.local.records import Record
from horae.port import JobId
from horae.untrusted import Unbelievable
from policy.model import Seconds

#: An end is shown this long at least before its folder goes.
SHOWN_S = 60.0
#: It is looked this often for folders whose time is over.
LOOK_S = 60.0
#: Folders that go in one look: more wait for the next, so that no round is held up.
MOST = 50


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
