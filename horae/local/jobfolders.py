"""The folders of jobs as this cluster touches them: every read and write of a user's place goes through here.

The folder is its owner's. He may remove, replace, link, fill and swap everything in it at any moment, so all is done
by descriptors (`horae/untrusted.py`), and whatever is odd is an `Unbelievable` that costs his job alone. What is
written here is for him and his supervisor to read; nothing of it is believed when it is read back.
"""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from horae import spec_json
from horae.elastic import protocol
from horae.local import account
from horae.local.account import MOST_EPOCHS, Account
from horae.local.asked import Asked
from horae.local.books import Book
from horae.local.operations import JOBS, OURS, REASON_FILE, RELEASED_FILE, Operations, put, whose
from horae.port import JobId, LogChunk
from horae.untrusted import Facts, Folder, Unbelievable, parse
from policy.model import Seconds

_MOST_SPEC = 8 << 20


class JobFolders:
    """STATE/jobs: the folder itself is ours, what lies in its folders is not."""

    def __init__(self, operations: Operations | Asked) -> None:
        self._operations = operations
        self.path = operations.state / JOBS
        self._truncations: dict[JobId, int] = {}

    def jobs(self) -> list[JobId]:
        """Every folder. Raises OSError."""
        with os.scandir(self.path) as entries:
            return [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]

    def path_of(self, job: JobId) -> str:
        return self._operations.path_of(job)

    def make(self, job: JobId, spec: bytes, owner: str) -> None:
        """The folder, whole and its owner's, or nothing; "": ours. Raises OSError (FileExistsError too)."""
        self._operations.make(job, spec, owner)

    # --- looking ------------------------------------------------------------------------------------------

    def account(self, job: JobId) -> Account | None:
        """What its supervisor says, None while it says nothing. Raises OSError, Unbelievable."""
        with self._open(job) as folder:
            data = folder.read(protocol.STATE_FILE)
        return None if data is None else account.read(data, f"{job}/{protocol.STATE_FILE}")

    def older_lives(self, job: JobId) -> bool:
        """Whether the lock of a start by a version before is held. Raises OSError, Unbelievable."""
        with self._open(job) as folder:
            return folder.held(protocol.LOCK_FILE)

    def owner(self, job: JobId) -> int:
        """The uid of him whom we gave it to. Raises OSError, Unbelievable."""
        with self._open(job) as folder:
            return folder.stat().st_uid

    def read_log(self, job: JobId, offset: int, limit: int) -> LogChunk:
        """At most `limit` bytes from `offset`. An offset beyond the end starts over: the file was replaced.

        Raises OSError, Unbelievable.
        """
        with self._open(job) as folder:
            fd = folder.open_plain(protocol.LOG_FILE)
            if fd is None:
                return LogChunk(b"", 0, identity="none")
            try:
                found = os.fstat(fd)
                if offset > found.st_size:
                    self._truncations[job] = self._truncations.get(job, 0) + 1
                    offset = 0
                data = os.pread(fd, max(0, min(limit, found.st_size - offset)), max(0, offset))
                identity = f"{found.st_ino}.{_generation(folder)}.{self._truncations.get(job, 0)}"
                end = max(0, offset) + len(data)
                return LogChunk(data, end, identity=identity, eof=end >= found.st_size)
            finally:
                os.close(fd)

    def older_book(self, job: JobId, known: Mapping[str, tuple[int, ...]]) -> Book:
        """The book of a job whose folder a version before made, from what stands there; asked once, then kept.

        Whose it is says the folder's own owner: only root could give it away. A specification that names somebody
        else was changed by him. Raises OSError, Unbelievable.
        """
        with self._open(job) as folder:
            where = folder.name_of(protocol.SPEC_FILE)
            data = folder.read(protocol.SPEC_FILE, _MOST_SPEC)
            if data is None:
                raise Unbelievable(where, "is missing")
            try:
                spec = spec_json.made(parse(data, where))
            except ValueError as error:
                raise Unbelievable(where, str(error)) from None
            _same_owner(spec.owner, folder.stat().st_uid, where)
            epoch = _epoch(folder)
            state, slots = _older_state(folder, known)
            names = folder.names()
            ended = state is not None and state.final and state.epoch == epoch
            return Book(
                spec=spec,
                submitted_s=_changed_s(folder, protocol.SPEC_FILE),
                epoch=epoch,
                slots=slots,
                cancelled=protocol.CANCEL_FILE in names,
                released=RELEASED_FILE in names,
                end=state if ended else None,
                last=None if ended else state,
                older=epoch > 0,
            )

    # --- telling ------------------------------------------------------------------------------------------

    def prepare(self, job: JobId, epoch: int, state: Mapping[str, Any]) -> None:
        """The fence and the first account of a start. What stands in their way is moved aside.

        Raises OSError, Unbelievable.
        """
        with self._open(job) as folder:
            put(folder, protocol.EPOCH_FILE, b"%d\n" % epoch, sync=True)
            folder.remove(protocol.STOP_FILE)
            put(folder, protocol.STATE_FILE, json.dumps(state).encode() + b"\n")

    def ask_stop(self, job: JobId, epoch: int, grace_s: Seconds) -> None:
        request = {"epoch": epoch, "grace_s": grace_s, "time_s": time.time()}
        self.write(job, protocol.STOP_FILE, json.dumps(request).encode() + b"\n")

    def ask_cancel(self, job: JobId) -> None:
        self.write(job, protocol.CANCEL_FILE, b"%d\n" % int(time.time()))

    def write(self, job: JobId, name: str, data: bytes) -> None:
        """Raises OSError, Unbelievable."""
        with self._open(job) as folder:
            put(folder, name, data)

    def tell_end(self, job: JobId, end: Account) -> None:
        """What its supervisor would have written."""
        value = {**end.plain(), "pid": None, "allocation": {}, "slots": {}}
        self.write(job, protocol.STATE_FILE, json.dumps(value).encode() + b"\n")

    def reason(self, job: JobId, text: str) -> None:
        """Raises OSError, Unbelievable."""
        with self._open(job) as folder:
            folder.replace(REASON_FILE, text.encode(errors="replace") + b"\n", owner=whose(folder), sync=False)

    # --- clearing -----------------------------------------------------------------------------------------

    def only_ours(self, job: JobId) -> bool:
        """Whether it holds nothing but what the supervisor and we write. Raises OSError, Unbelievable."""
        with self._open(job) as folder:
            return all(OURS.fullmatch(name) for name in folder.names())

    def clear(self, job: JobId) -> None:
        """Raises OSError."""
        self._operations.clear(job)
        self._truncations.pop(job, None)

    @contextmanager
    def _open(self, job: JobId) -> Iterator[Folder]:
        """Raises OSError, Unbelievable."""
        with self._operations.open(job) as folder:
            yield folder


def _changed_s(folder: Folder, name: str) -> Seconds:
    fd = folder.open_plain(name)
    if fd is None:
        return time.time()
    try:
        return os.fstat(fd).st_mtime
    finally:
        os.close(fd)


def _generation(folder: Folder) -> int:
    """How often the log was rotated: the number of its older part."""
    stem = protocol.LOG_FILE + "."
    numbers = [name.removeprefix(stem) for name in folder.names() if name.startswith(stem)]
    return max((int(n) for n in numbers if n.isdecimal() and n.isascii() and len(n) < 10), default=0)


def _same_owner(named: str, uid: int, where: str) -> None:
    """Raises Unbelievable."""
    if not named and uid == os.geteuid():
        return
    try:
        if pwd.getpwnam(named).pw_uid == uid:
            return
    except (KeyError, ValueError):
        pass  # nobody has that name: said below
    raise Unbelievable(where, f"names another owner than user {uid}, whose folder it is")


def _epoch(folder: Folder) -> int:
    data = (folder.read(protocol.EPOCH_FILE, 64) or b"").strip()
    if not data.isdigit():
        return 0
    epoch = int(data)
    if epoch > MOST_EPOCHS:
        raise Unbelievable(folder.name_of(protocol.EPOCH_FILE), "is a number without bounds")
    return epoch


def _older_state(
    folder: Folder, known: Mapping[str, tuple[int, ...]]
) -> tuple[Account | None, dict[str, tuple[int, ...]]]:
    data = folder.read(protocol.STATE_FILE)
    if data is None:
        return None, {}
    where = folder.name_of(protocol.STATE_FILE)
    facts = Facts(parse(data, where), where)
    return account.of(facts), account.slots(facts.inner("slots"), known)
