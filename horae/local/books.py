"""What the cluster knows of each job, in a folder that nobody but the arbiter's account can enter.

    STATE/books/JOB.json     whose job it is, what to run, which start is the newest, the GPUs granted to it, what was
                             asked of it, how its last start ended
    STATE/books/JOB.lock     flock-held by whoever starts the job, then by its keeper and supervisor: whether it lives
    STATE/books/JOB.spare    as long as a start lives: what its book is written into where the disk is full

The job's own folder (`jobs/JOB`) is its owner's: what stands there is told, not believed. A book is changed by whoever
holds the cluster's lock (`Books.changing`), so two arbiters do not undo each other's notes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from horae import spec_json
from horae.elastic.files import NO_ROOM, write_all
from horae.local import account
from horae.local.account import MOST_EPOCHS, Account
from horae.port import JobId
from horae.spec import JobSpec
from horae.untrusted import Facts, Folder, Unbelievable, parse
from policy.model import EMPTY, Seconds

FOLDER = "books"
_BOOK, _LOCK, _SPARE, _OLD = ".json", ".lock", ".spare", ".old"
#: A book is padded to whole blocks with at least so much room: for the end of a start, and what was asked of it.
_BLOCK, _SLACK = 4096, 3072
#: A specification may carry a long environment.
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Book:
    spec: JobSpec
    submitted_s: Seconds
    epoch: int = 0  #: the newest start
    slots: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: EMPTY)  #: GPU indices granted to it, by node
    granted_s: Seconds = 0.0
    grace_s: Seconds | None = None  #: it was asked to checkpoint and leave within so long
    cancelled: bool = False
    released: bool = False  #: handed back: no longer ours, its processes run on
    end: Account | None = None  #: of the newest start
    last: Account | None = None  #: the end of the start before
    older: bool = False  #: the newest start was made by a version that kept its lock in the job's folder

    @property
    def final(self) -> bool:
        """The newest start's end is on record, or there was none."""
        return self.epoch == 0 or self.end is not None

    def started(self, epoch: int, slots: Mapping[str, tuple[int, ...]], now_s: Seconds) -> Book:
        return replace(
            self, epoch=epoch, slots=slots, granted_s=now_s, grace_s=None, end=None, last=self.end, older=False
        )


def encode(book: Book) -> bytes:
    value: dict[str, Any] = {
        "spec": spec_json.plain(book.spec),
        "submitted_s": book.submitted_s,
        "epoch": book.epoch,
        "slots": {node: list(held) for node, held in book.slots.items()},
        "granted_s": book.granted_s,
        "grace_s": book.grace_s,
        "cancelled": book.cancelled,
        "released": book.released,
        "end": None if book.end is None else book.end.plain(),
        "last": None if book.last is None else book.last.plain(),
        "older": book.older,
    }
    data = json.dumps(value, sort_keys=True).encode() + b"\n"
    return data.ljust(-(-(len(data) + _SLACK) // _BLOCK) * _BLOCK)


def decode(data: bytes, where: str) -> Book:
    """Raises Unbelievable, also here: a disk may be broken, or a person have edited it."""
    value = parse(data, where, digits=400)
    facts = Facts(value, where)
    assert isinstance(value, dict)
    try:
        spec = spec_json.made(value["spec"])
        slots = {str(node): tuple(int(i) for i in held) for node, held in value["slots"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unbelievable(where, f"is not a job's book: {error}") from None
    end, last = facts.inner("end"), facts.inner("last")
    return Book(
        spec=spec,
        submitted_s=facts.number("submitted_s") or 0.0,
        epoch=facts.whole("epoch", 0, MOST_EPOCHS) or 0,
        slots=slots,
        granted_s=facts.number("granted_s") or 0.0,
        grace_s=facts.number("grace_s"),
        cancelled=value.get("cancelled") is True,
        released=value.get("released") is True,
        end=None if end is None else account.of(end),
        last=None if last is None else account.of(last),
        older=value.get("older") is True,
    )


class Books:
    def __init__(self, state: Path) -> None:
        self.path = state / FOLDER
        self._lock = state / "start.lock"

    def prepare(self) -> None:
        """Its folder. Raises OSError."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        if self._owner is None:
            self.path.chmod(0o700)  # also where it was there before us

    @property
    def _owner(self) -> tuple[int, int] | None:
        """Whose the folder is, where it is not ours: root beside an arbiter with an account of its own takes nothing
        away from it."""
        found = self.path.stat()
        return (found.st_uid, found.st_gid) if found.st_uid != os.geteuid() else None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change at a time on the whole cluster, whoever the arbiter is. Raises OSError."""
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._given(fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def stamps(self) -> dict[JobId, tuple[int, int]]:
        """For every job with a book, what changes with it. Raises OSError."""
        found: dict[JobId, tuple[int, int]] = {}
        if not self.path.exists():  # nobody has claimed the cluster yet
            return found
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(_BOOK) and not entry.name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        seen = entry.stat(follow_symlinks=False)
                        found[entry.name.removesuffix(_BOOK)] = (seen.st_mtime_ns, seen.st_ino)
        return found

    def read(self, job: JobId) -> Book | None:
        """Raises OSError, Unbelievable."""
        if not self.path.exists():
            return None
        with Folder.open(self.path) as folder:
            data = folder.read(job + _BOOK, _MOST_BYTES)
        return None if data is None else decode(data, f"{self.path}/{job}{_BOOK}")

    def is_of(self, job: JobId, spec: JobSpec) -> bool:
        """Whether there is a book of this very job. Raises OSError."""
        try:
            book = self.read(job)
        except Unbelievable:
            return False
        return book is not None and book.spec == spec

    def write(self, job: JobId, book: Book, sync: bool = True) -> None:
        """Raises OSError."""
        data = encode(book)
        with Folder.open(self.path) as folder:
            try:
                folder.replace(job + _BOOK, data, mode=0o600, owner=self._owner, sync=sync)
            except OSError as error:
                if error.errno not in NO_ROOM or not _into_spare(folder, job, data.rstrip()):
                    raise

    def set_aside(self, job: JobId, book: Book) -> None:
        """Room for what is still to be noted of a start, however full the disk is then. Raises OSError."""
        with Folder.open(self.path) as folder:
            folder.replace(job + _SPARE, encode(book), mode=0o600, owner=self._owner, sync=False)

    def free(self, job: JobId) -> None:
        """Nothing more is to be noted of it in a hurry."""
        with Folder.open(self.path) as folder:
            folder.remove(job + _SPARE)

    def forget(self, job: JobId) -> None:
        with Folder.open(self.path) as folder:
            for suffix in (_LOCK, _SPARE, _OLD, _BOOK):
                folder.remove(job + suffix)

    # --- life ---------------------------------------------------------------------------------------------

    def take_lock(self, job: JobId) -> int | None:
        """The lock as an open descriptor, None while somebody holds it. Inherited descriptors keep it held."""
        with Folder.open(self.path) as folder:
            fd = os.open(job + _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder.fd)
        try:
            self._given(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def _given(self, fd: int) -> None:
        owner = self._owner
        if owner is not None and os.fstat(fd).st_uid == os.geteuid():
            os.fchown(fd, *owner)

    def lives(self, job: JobId) -> bool:
        with Folder.open(self.path) as folder:
            return folder.held(job + _LOCK)


def _into_spare(folder: Folder, job: JobId, data: bytes) -> bool:
    """Write over blocks that are ours, then let the two files change places: no new block, as often as it takes."""
    try:
        fd = os.open(job + _SPARE, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.fd)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(fd).st_size
        if len(data) > size:
            return False
        write_all(fd, data.ljust(size))
        os.fsync(fd)
    finally:
        os.close(fd)
    folder.remove(job + _OLD)
    os.link(job + _BOOK, job + _OLD, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=False)
    folder.rename_to(job + _SPARE, folder, job + _BOOK)
    folder.rename_to(job + _OLD, folder, job + _SPARE)
    folder.sync()
    return True
