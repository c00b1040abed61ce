"""How long the folders of ended jobs are kept, and what is never thrown away.

A folder goes once its job has ended for good `keep_s` ago and this process has shown the end for a while, so that an
arbiter that was down misses none. It stays for ever where it holds anything that is not the supervisor's own (a user
may have written there), or where a job's checkpoints or working folder are in it: somebody may still need those.
"""

# Descriptors and plain strings, since a user may change his folder under us.
# ruff: noqa: PTH104, PTH117, PTH208

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from horae.elastic import protocol
from horae.elastic.run import checkpoint_url
from horae.local.records import REASON_FILE, RELEASED_FILE, Record
from horae.port import JobId
from policy.model import Seconds

#: An end is shown this long at least before its folder goes.
SHOWN_S = 60.0
#: It is looked this often for folders whose time is over.
LOOK_S = 60.0
#: Folders that go in one look: more wait for the next, so that no round is held up.
MOST = 50
_GONE = ".gone."
_OWN = "|".join(
    re.escape(name)
    for name in (
        protocol.SPEC_FILE,
        protocol.EPOCH_FILE,
        protocol.STOP_FILE,
        protocol.CANCEL_FILE,
        protocol.STATE_FILE,
        protocol.LOCK_FILE,
        protocol.LOG_FILE,
        REASON_FILE,
        RELEASED_FILE,
    )
)
#: The supervisor's and the adapter's files, their half-written and reserved forms, and older parts of the log.
_OURS = re.compile(rf"(?:{_OWN}|{re.escape(protocol.LOG_FILE)}\.\d+|\.(?:{_OWN})\.\d+\.[0-9a-f]+|\.state\.reserve-\d)$")


class Keeper:
    def __init__(self, jobs: Path, keep_s: Seconds | None) -> None:
        """`keep_s` None: everything is kept for ever."""
        self._jobs, self._keep_s = jobs, keep_s
        self._shown: dict[JobId, float] = {}  #: since when this process shows the end
        self._next = 0.0

    def clear(self, records: Iterable[Record]) -> list[JobId]:
        """Throw away what is due; the jobs whose folders are gone. Raises OSError."""
        now = time.monotonic()
        if self._keep_s is None or now < self._next:
            return []
        records = list(records)
        self._next = now + min(LOOK_S, self._keep_s)
        over = {r.id: r for r in records if r.job_state.ended and r.final and not r.lives and not r.trouble}
        self._shown = {job: self._shown.get(job, now) for job in over}
        old_s = time.time() - self._keep_s
        shown_s = min(SHOWN_S, self._keep_s)
        due = [r for r in over.values() if _ended_s(r) <= old_s and now - self._shown[r.id] >= shown_s]
        if not due:
            return []
        needed = {path for r in records for path in _paths(r)}
        gone: list[JobId] = []
        for record in due:
            if len(gone) == MOST:
                break
            if self._mine(record, needed) and self._remove(record):
                gone.append(record.id)
        return gone

    def _mine(self, record: Record, needed: set[str]) -> bool:
        folder = os.path.realpath(record.folder.path)
        if any(path == folder or path.startswith(folder + os.sep) for path in needed):
            return False
        return all(_OURS.match(name) for name in os.listdir(record.folder.path))

    def _remove(self, record: Record) -> bool:
        """First out of sight, then file by file: nothing is followed and nothing else is touched."""
        lock = record.folder.take_lock()
        if lock is None:
            return False
        try:
            hidden = self._jobs / f"{_GONE}{record.id}.{os.urandom(4).hex()}"
            os.rename(record.folder.path, hidden)
        finally:
            os.close(lock)
        _empty(hidden)
        return True


def leftovers(jobs: Path) -> None:
    """Finish what a killed arbiter began to throw away. Raises OSError."""
    for path in list(jobs.iterdir()):
        if path.name.startswith(_GONE):
            _empty(path)


def _empty(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(fd):
            if _OURS.match(name):
                os.unlink(name, dir_fd=fd)
        if not os.listdir(fd):
            path.rmdir()
    finally:
        os.close(fd)


def _ended_s(record: Record) -> Seconds:
    since = record.state.get("since_s")
    return float(since) if isinstance(since, int | float) else record.stamp / 1e9


def _paths(record: Record) -> list[str]:
    """Where the job's checkpoints are and where it runs, as real paths; none on other machines' stores."""
    spec, out = record.spec, []
    if spec is None:
        return []
    if spec.cwd:
        out.append(spec.cwd)
    if spec.checkpoint is not None:
        url = checkpoint_url(spec.checkpoint, spec.cwd)
        parts = urlsplit(url)
        if "://" not in url or parts.scheme == "file":
            out.append(unquote(parts.path) if "://" in url else url)
    return [os.path.realpath(path) for path in out if os.path.isabs(path)]
