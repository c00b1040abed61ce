"""What the cluster knows of each job, in a folder that nobody but the arbiter's account can enter.

    STATE/books/JOB.json     whose job it is, what to run, which start is the newest, the GPUs granted to it, what was
                             asked of it, how its last start ended
    STATE/books/JOB.lock     flock-held by whoever starts the job, then by its keeper and supervisor: whether it lives
    STATE/books/JOB.spare    as long as a start lives: what its book is written into where the disk is full

The job's own folder (`jobs/JOB`) is its owner's: what stands there is told, not believed. A book is changed by whoever
holds the cluster's lock (`Books.changing`), so two arbiters do not undo each other's notes.

A book that cannot be read is `Unreadable`, and never taken for no book: of a damaged one the spare is read while a
start lives, one of a newer form says at least what its job holds (`FORM`). Neither is written over.
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
from horae.untrusted import Facts, Folder, Unbelievable, parse, printable
from policy.model import EMPTY, Seconds

FOLDER = "books"
_BOOK, _LOCK, _SPARE, _OLD = ".json", ".lock", ".spare", ".old"
#: Whatever changes in a book, or in the specification in it, is a new form, which older arbiters refuse in words;
#: newer ones read what older ones wrote. In each of them `form`, `epoch` and `slots` stand as they do here: who cannot
#: read the rest gives nothing away. Books without a number are of form 1. `tests/horae/local/forms/` has one of each.
FORM = 1
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


class Unreadable(Unbelievable):
    """A book of which not all can be read: why, what an operator does, and what its job holds where that is told."""

    def __init__(
        self, where: str, why: str, remedy: str, epoch: int = 0, slots: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """`slots` None: nobody knows."""
        super().__init__(where, why)
        self.remedy, self.epoch, self.slots = remedy, epoch, slots

    @property
    def told(self) -> str:
        return f"{self} ({self.remedy})"


class Newer(Unreadable):
    """It is whole, and not for us."""


def encode(book: Book) -> bytes:
    value: dict[str, Any] = {
        "form": FORM,
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
    """Raises Unreadable: a disk may be broken, a person have edited it, a newer version have written it."""
    try:
        value = parse(data, where, digits=400)
        facts = Facts(value, where)
    except Unbelievable as odd:
        raise damaged(where, odd.why) from None
    assert isinstance(value, dict)
    epoch, slots = _granted(value)
    try:
        form = facts.whole("form", 1) or 1
        if form > FORM:
            why = f"was written by a newer Horae (form {form}; this one knows {FORM})"
            raise Newer(where, why, "run the newer Horae", epoch, slots)
        if slots is None:
            raise Unbelievable(where, "does not say what its job was granted")
        return _book(value, facts, epoch, slots)
    except Newer:
        raise
    except Unbelievable as odd:
        raise damaged(where, odd.why, epoch, slots) from None


def damaged(where: str, why: str, epoch: int = 0, slots: Mapping[str, tuple[int, ...]] | None = None) -> Unreadable:
    remedy = (
        "put back a copy of this file; or, once nothing of the job runs any more, remove it: then what stands in the "
        "job's own folder counts"
    )
    return Unreadable(where, why, remedy, epoch, slots)


def _granted(value: Mapping[str, Any]) -> tuple[int, Mapping[str, tuple[int, ...]] | None]:
    """The newest start and what it was granted: what can be read in each form."""
    epoch, slots = value.get("epoch"), value.get("slots")
    if type(epoch) is not int or not 0 <= epoch <= MOST_EPOCHS or not isinstance(slots, Mapping):
        return 0, None
    try:
        return epoch, {str(node): tuple(int(i) for i in held) for node, held in slots.items()}
    except (TypeError, ValueError):
        return 0, None


def _book(value: Mapping[str, Any], facts: Facts, epoch: int, slots: Mapping[str, tuple[int, ...]]) -> Book:
    """Raises Unbelievable."""
    try:
        spec = spec_json.made(value.get("spec"))
    except ValueError as error:
        raise Unbelievable(facts.where, f"is not a job's book: {error}") from None
    end, last = facts.inner("end"), facts.inner("last")
    return Book(
        spec=spec,
        submitted_s=facts.number("submitted_s") or 0.0,
        epoch=epoch,
        slots=slots,
        granted_s=facts.number("granted_s") or 0.0,
        grace_s=facts.number("grace_s"),
        cancelled=_flag(value, "cancelled", facts.where),
        released=_flag(value, "released", facts.where),
        end=None if end is None else account.of(end),
        last=None if last is None else account.of(last),
        older=_flag(value, "older", facts.where),
    )


def _flag(value: Mapping[str, Any], name: str, where: str) -> bool:
    """Raises Unbelievable."""
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise Unbelievable(where, f"says {name}: {printable(repr(found), 60)}, which is not true or false")
    return found


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
        """None: there is none, and nothing lives by it. Raises OSError, Unreadable."""
        if not self.path.exists():
            return None
        with Folder.open(self.path) as folder:
            try:
                return self._read(folder, job)
            except Newer:
                raise
            except Unreadable:
                if (spare := _spare(folder, job)) is not None:
                    return spare
                raise

    def _read(self, folder: Folder, job: JobId) -> Book | None:
        """Raises OSError, Unreadable."""
        where = folder.name_of(job + _BOOK)
        try:
            data = folder.read(job + _BOOK, _MOST_BYTES)
        except Unbelievable as odd:
            raise damaged(where, odd.why) from None
        if data is not None:
            return decode(data, where)
        if folder.held(job + _LOCK):
            raise damaged(where, "is missing, and the job lives")
        return None

    def is_of(self, job: JobId, spec: JobSpec) -> bool:
        """Whether there is a book of this very job. Raises OSError; Unreadable where it may have been started: what a
        power cut left of one that was not is written again."""
        try:
            book = self.read(job)
        except Newer:
            raise
        except Unreadable:
            if (self.path / (job + _LOCK)).exists():  # made by its first start
                raise
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


def _spare(folder: Folder, job: JobId) -> Book | None:
    """As its newest start began: all but what was asked of it since. None where that cannot be read either."""
    try:
        data = folder.read(job + _SPARE, _MOST_BYTES)
        return None if data is None else decode(data, folder.name_of(job + _SPARE))
    except Unbelievable:
        return None


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
