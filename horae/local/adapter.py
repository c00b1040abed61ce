"""The port of the local cluster.

    STATE/claim  heartbeat          the arbiter's marks
    STATE/nodes/NAME                `down` or `drain`: the health of a virtual node, by whoever may write there
    STATE/books/                    what is known of each job, the arbiter's alone (books.py)
    STATE/keepers/                  who keeps what runs (operations.py)
    STATE/jobs/JOB/                 one folder a job, its owner's (jobfolders.py, horae/elastic/supervisor/jobfolder.py)

Nothing is remembered outside these files but caches. Two arbiters at once are safe: starts and notes are made under
one lock of the cluster, and a job's own lock admits one supervisor.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from horae import spec_json
from horae.elastic.files import read_bytes, write_mark
from horae.elastic.protocol import State
from horae.local.account import Account
from horae.local.asked import Asked
from horae.local.books import Book, Books, Unreadable
from horae.local.disks import shared
from horae.local.jobfolders import JobFolders
from horae.local.launch import Launcher, as_root, own_operations
from horae.local.operations import JOB, Operations
from horae.local.options import LocalOptions
from horae.local.records import Record, Records, gpus_of
from horae.local.upkeep import Keeper, Upkeep, despite
from horae.machine_gpus import Slots, Strangers, Use, told
from horae.port import (
    Capabilities,
    FixConfiguration,
    JobId,
    LogChunk,
    Never,
    Observation,
    ObservedJob,
    PortError,
    TryLater,
)
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Allocation, Health, Seconds


class LocalCluster:
    """A `horae.port.ClusterPort`. Thread-safe."""

    def __init__(self, options: LocalOptions, operations: Operations | Asked | None = None) -> None:
        """`operations`: by which folders are reached and programs started; left out: our own."""
        self._options = options
        self._state = options.state
        self._mutex = Lock()
        self._nodes = {node.name: node for node in options.nodes}
        with self._mending(f"cannot use {self._state}"):
            _usable(self._state)
        self._books = Books(self._state)
        self._operations = operations or own_operations(options)
        self._folders = JobFolders(self._operations)
        slots = {name: options.slots(node) for name, node in self._nodes.items()}
        self._records = Records(self._books, self._folders, slots)
        self._launcher = Launcher(options, self._operations)
        keeper = Keeper(self._folders, self._books, options.keep_s)
        self._upkeep = Upkeep(self._books, self._folders, self._records, self._operations, self._launcher.owner, keeper)
        self._gpus = Use() if options.devices else None
        self._slots: Slots = slots
        self._token: str | None = None  #: our claim
        self._prepared = False  #: its folders are there
        self._living: set[JobId] = set()  #: as the last look saw them
        self._ends = 0  #: noticed since

    # --- looking ------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        gpus = sum(node.gpus for node in self._options.nodes)
        kind = "real" if self._options.devices else "virtual"
        helped = isinstance(self._operations, Asked)
        with _reading():
            note = shared(self._books.path, self._folders.path) if helped or os.geteuid() == 0 else ""
        alone = "a released job that waits is not started by anybody: there is no other scheduler here"
        notes = (alone, note, "" if helped or self._options.account is not None else as_root())
        return Capabilities(
            cluster=f"local ({len(self._nodes)} {kind} nodes, {gpus} GPUs)", notes=tuple(filter(None, notes))
        )

    def observe(self) -> Observation:
        with self._mutex, _reading():
            records = self._records.scan() if (self._state / "jobs").exists() else []
            health = self._health()
            self._living = {record.id for record in records if record.lives}
            strangers = self._strangers(records)
            foreign = _foreign(records, strangers)
            claim = self._claim()
            ours = claim is not None and claim == self._token
            return Observation(
                now_s=time.time(),
                nodes=tuple(
                    replace(node, health=health.get(node.name, Health.UP), foreign=foreign.get(node.name, 0))
                    for node in self._options.nodes
                ),
                jobs=tuple(self._observed(record) for record in records if record.shown),
                claim=claim,
                notes=(*(record.trouble for record in records if record.trouble), *told(strangers)),
                unread=tuple(record.unread.told for record in records if record.unread is not None),
                due=tuple(self._upkeep.due(records, health)) if ours else (),
            )

    def noticed(self) -> int:
        """How many starts have ended, as their locks say."""
        with self._mutex, _reading():
            over = {job for job in self._living if not self._books.lives(job)}
            self._living -= over
            self._ends += len(over)
            return self._ends

    def _strangers(self, records: Sequence[Record]) -> Strangers:
        """Processes on real GPUs that no job holds."""
        if self._gpus is None:
            return {}
        self._gpus.refresh()
        return self._gpus.strangers(self._slots, gpus_of(record.slots for record in records))

    def _observed(self, record: Record) -> ObservedJob:
        seen = record.observed()
        return replace(seen, gpu_use=self._gpus.used(record.slots)) if self._gpus is not None else seen

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        with self._mutex, _reading():
            self._known(job)
            return self._folders.read_log(job, offset, limit)

    # --- the arbiter's marks ------------------------------------------------------------------------------

    def claim(self, token: str) -> None:
        with self._mending("cannot write the claim"):
            self._prepare()
            write_mark(str(self._state / "claim"), token.encode() + b"\n")
            self._token = token

    def _prepare(self) -> None:
        """The cluster's own folders, before anything is written there. Raises OSError."""
        if self._prepared:
            return
        for folder in (self._state, self._state / "jobs", self._state / "nodes"):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self._state, self._state / "jobs"):
            _ours_to_write(folder)
        self._books.prepare()
        self._operations.prepare(self._books.path)
        self._prepared = True

    def _claim(self) -> str | None:
        found = read_bytes(str(self._state / "claim"), 4096)
        return None if found is None else found.decode(errors="replace").strip()

    def heartbeat(self) -> None:
        with self._mending("cannot write the heartbeat"):
            write_mark(str(self._state / "heartbeat"), b"%.3f\n" % time.time(), sync=False)

    # --- acting -------------------------------------------------------------------------------------------

    def submit(self, job: JobId, spec: JobSpec) -> None:
        if not JOB.fullmatch(job):
            raise Never(f"{job!r} cannot be a job's id here: letters, digits and ._:+@=- only, at most 200")
        data = spec_json.encode(spec)
        self._launcher.check(spec)
        with self._mutex, self._mending(f"cannot keep job {job}"):
            self._prepare()
            record = self._records.one(job)
            if record is not None and record.book is not None:
                if record.released or record.book.spec != spec:
                    raise Never(f"there is already another job {job}")
                return
            with self._books.changing():
                if not self._books.is_of(job, spec):  # else only its folder was taken away
                    self._books.write(job, Book(spec, time.time()), sync=False)
                if record is None:  # else made during a power cut: the folder is there, its book was not
                    self._folders.make(job, data, self._launcher.owner(spec))

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        with self._mutex, self._mending(f"cannot start job {job}"):
            record = self._upkeep.settled(self._read(job))
            with self._books.changing():
                self._start(self._records.one(job) or record, allocation, epoch)

    def _start(self, record: Record, allocation: Allocation, epoch: int) -> None:
        record.readable()
        if record.job_state.ended:
            raise Never(f"job {record.id} is {record.job_state}: it never starts again")
        self._check(allocation)
        if epoch <= record.epoch:
            return  # asked twice, or by an arbiter that is behind
        if record.lives or not record.final:
            raise TryLater(f"job {record.id} is still {record.job_state} in epoch {record.epoch}")
        if record.book is None:
            raise Never(record.trouble)
        slots = self._free_slots(allocation)
        lock = self._books.take_lock(record.id)
        if lock is None:
            raise TryLater(f"job {record.id} is being looked at", retry_after_s=0.05)
        try:
            self._launch(record, record.book, slots, epoch, lock)
        finally:
            os.close(lock)

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise Never("the local cluster changes a job's GPUs by stopping and starting it")

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        with self._mutex, self._mending(f"cannot ask job {job} to stop"):
            record = self._read(job)
            if not record.lives or record.book is None or record.book.grace_s is not None:
                return
            book = self._change(job, lambda book: replace(book, grace_s=max(grace_s, 0.0)))
            # Where its folder does not take the request, the signal asks all the same, and in the end it is killed.
            with despite():
                self._folders.ask_stop(job, book.epoch, grace_s)
            self._operations.signal(job, signal.SIGUSR1)

    def cancel(self, job: JobId) -> None:
        with self._mutex, self._mending(f"cannot cancel job {job}"):
            record = self._read(job)
            if record.book is None or record.cancelled or (record.job_state.ended and not record.lives):
                return
            self._change(job, lambda book: replace(book, cancelled=True))
            with despite():
                self._folders.ask_cancel(job)
            self._operations.signal(job, signal.SIGUSR1)

    def release(self, job: JobId) -> None:
        with self._mutex, self._mending(f"cannot release job {job}"):
            record = self._records.one(job) if JOB.fullmatch(job) else None
            if record is None:
                return
            record.readable()
            if record.book is not None and not record.released:
                self._change(job, lambda book: replace(book, released=True))

    def set_order(self, jobs: Sequence[JobId]) -> None:
        raise Never("the local cluster starts nothing by itself: there is no order to set")

    def set_reason(self, job: JobId, text: str) -> None:
        with self._mutex, self._mending(f"cannot note why job {job} waits"):
            self._known(job)
            self._folders.reason(job, text)

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, PortError]:
        failed: dict[JobId, PortError] = {}
        with self._mutex:
            ours = self._token is not None and self._claim() == self._token
            for job in jobs if ours else ():
                try:
                    with self._mending(f"cannot see to job {job}"):
                        self._upkeep.see_to(job, self._health())
                except PortError as error:
                    failed[job] = error
        return failed

    def close(self) -> None:
        self._operations.close()

    # --- starting -----------------------------------------------------------------------------------------

    def _check(self, allocation: Allocation) -> None:
        if not allocation:
            raise Never("an allocation without GPUs cannot run anything")
        for name, gpus in allocation.items():
            node = self._nodes.get(name)
            if node is None:
                raise Never(f"there is no node {name} (there are {', '.join(self._nodes)})")
            if not 1 <= gpus <= node.gpus:
                raise Never(f"node {name} has {node.gpus} GPUs; {gpus} cannot be granted there")

    def _free_slots(self, allocation: Allocation) -> dict[str, list[int]]:
        """GPU indices for each node, the lowest free ones. Raises TryLater."""
        if self._gpus is not None and not self._gpus.refresh():
            raise TryLater("nvidia-smi is being asked who computes on the GPUs", retry_after_s=0.5)
        health, records = self._health(), self._records.scan()
        held, strangers = gpus_of(record.slots for record in records), self._strangers(records)
        slots = {}
        for name, gpus in allocation.items():
            if name in health:
                raise TryLater(f"node {name} is {health[name]}", retry_after_s=5.0)
            taken = held.get(name, set()) | set(strangers.get(name, ()))
            free = [i for i in self._slots[name] if i not in taken]
            if len(free) < gpus:
                raise TryLater(f"node {name} has {len(free)} GPUs free; {gpus} were granted")
            slots[name] = free[:gpus]
        return slots

    def _launch(self, record: Record, book: Book, slots: Mapping[str, Sequence[int]], epoch: int, lock: int) -> None:
        """Write the fence and the first account, then let the supervisor inherit the lock."""
        spec, now_s = book.spec, time.time()
        speeds = {n: s for n in slots if (s := self._options.speeds.get(self._nodes[n].gpu_type)) is not None}
        before = record.account or Account(0, State.LOST)
        state = {
            **replace(before, epoch=epoch, state=State.STARTING, since_s=now_s, exit_code=None).plain(),
            "native": "",
            "pid": None,
            "allocation": {node: len(held) for node, held in slots.items()},
            "slots": {node: list(held) for node, held in slots.items()},
            "speeds": speeds,
        }
        book = book.started(epoch, {node: tuple(held) for node, held in slots.items()}, now_s)
        self._books.set_aside(record.id, book)
        self._folders.prepare(record.id, epoch, state)
        self._books.write(record.id, book)
        self._launcher.start(record.id, spec, state, lock)

    def _change(self, job: JobId, how: Callable[[Book], Book]) -> Book:
        """Note something in a job's book, on top of what others noted. Raises OSError, Unbelievable."""
        with self._books.changing():
            changed = how(self._books.read(job) or self._records.older(job))
            self._books.write(job, changed)
            return changed

    def _health(self) -> dict[str, Health]:
        """Nodes that are not up."""
        found = {}
        told = self._state / "nodes"
        for path in told.iterdir() if told.exists() else ():
            word = (read_bytes(str(path), 64) or b"").decode(errors="replace").strip()
            if path.name in self._nodes and word in (Health.DOWN, Health.DRAIN):
                found[path.name] = Health(word)
        return found

    def _read(self, job: JobId) -> Record:
        """One to be acted on. Raises Never, Unreadable."""
        record = self._known(job)
        record.readable()
        return record

    def _mending(self, what: str) -> AbstractContextManager[None]:
        return _mending(what, self._state)

    def _known(self, job: JobId) -> Record:
        record = self._records.one(job) if JOB.fullmatch(job) else None
        if record is None or record.released:
            raise Never(f"there is no job {job}")
        return record


def _foreign(records: Iterable[Record], strangers: Strangers) -> dict[str, int]:
    """GPUs by node that are held, and not by a job that is shown to hold them."""
    elsewhere = [record.slots for record in records if record.released or record.unsure]
    held = gpus_of([*elsewhere, strangers])
    return {node: len(indices) for node, indices in held.items()}


def _usable(state: Path) -> None:
    """Raises OSError where it is no folder, and where none can be made."""
    there = next(path for path in (state, *state.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(there))
    if there != state and not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no folder can be made there", str(there))


def _ours_to_write(folder: Path) -> None:
    """Whatever the umask was: who may write here could put another folder in a job's place. Raises OSError."""
    found = folder.stat()
    if found.st_uid == os.geteuid() and found.st_mode & 0o022:
        folder.chmod(found.st_mode & 0o7755)


@contextmanager
def _mending(what: str, state: Path) -> Iterator[None]:
    """An operating-system error becomes the port's word for what to do about it; a user's doing is his to mend."""
    try:
        yield
    except Unreadable as odd:
        raise FixConfiguration(str(odd), odd.remedy) from None
    except Unbelievable as odd:
        raise TryLater(str(odd), retry_after_s=30.0) from None
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            raise TryLater(f"{what}: {error}", retry_after_s=5.0) from error
        where = error.filename or state
        raise FixConfiguration(f"{what}: {error.strerror or error}: {where}", _remedy(error, state)) from error


def _remedy(error: OSError, state: Path) -> str:
    again = "all goes on by itself"
    match error.errno:
        case errno.ENOSPC:
            return f"free some space on the disk of {state} (`du -xh --max-depth=2 {state}` says who fills it): {again}"
        case errno.EDQUOT:
            return f"raise the quota on the disk of {state}, or free some of what counts towards it: {again}"
        case errno.EROFS | errno.EIO:
            return f"mend the file system of {state}, which an error made read-only (`dmesg`): {again}"
    return "check the folder's owner and rights"


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except Unbelievable as odd:
        raise TryLater(str(odd), retry_after_s=5.0) from None
    except OSError as error:
        raise TryLater(f"the local cluster cannot be read: {error}", retry_after_s=5.0) from error
