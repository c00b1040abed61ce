"""The spool: a folder shared by the arbiter, slurmctld's host (the Lua module) and the nodes (`horae-exec`).

    heartbeat        who lives and which partitions' new jobs are held; read by the Lua module at each submission
    claim            token of the arbiter that claimed the cluster last
    events           lines that hooks append; only a wake-up, its content is never trusted
    beside           partitions beside ours that jobs name in a list; the Lua module appends them, also only a wake-up
    holds            waiting jobs that the arbiter itself holds, for `release-all.sh`: other holds are others'
    ordered          jobs that have, or may have, a SiteFactor of ours, for the same; most are tagged by nobody
    reasons/JOBID    why a job waits or holds, for its owner to read
    jobs/JOB/        the job folder of `horae-exec`: epoch, stop, state.json, output.log

A job folder belongs to the job's owner where we may give files away (root), else an ACL admits the owner alone,
else (no ACLs there) it is writable by all with the sticky bit. All reading and writing of what users may change goes
through here: by descriptors (`transport.Files`), only plain files that the job's owner owns, typed and within bounds.
What cannot be believed costs that job alone, and is said in `odd`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from stat import S_ISDIR, S_IWOTH
from typing import Any

from horae import job_number
from horae.elastic.stores.checkpoints import newest_mark
from horae.elastic.stores.store import Store
from horae.port import CheckpointMark, FixConfiguration, PortError
from horae.untrusted import Facts, Unbelievable, parse, printable
from slurm_plugin.files.transport import Files, Part

PATH_MAX = 4096

_EVENTS_LIMIT = 1 << 20
_AT_ONCE = 16
_MOST_FOLDERS = 1_000_000  #: of jobs


@dataclass(frozen=True, slots=True)
class Account:
    """What the supervisor of a job wrote about itself."""

    epoch: int = 0  #: of the newest start that has one
    direct: bool = False  #: Slurm's signal to the batch shell reaches it
    ended: int = 0  #: newest epoch that it saw end
    exit_code: int | None = None  #: of that
    checkpoint: CheckpointMark | None = None


#: What a job's files may say at most
_MOST_EPOCH, _MOST_STEP, _MOST_TIME_S = 10**9, 1e15, 4e10
_MANIFEST = 16 << 20
_LISTINGS, _MANIFESTS = 4, 32  #: of a checkpoint folder, a look
#: What an owner's documents, or reading them, may raise; whatever it is costs that job
_THEIRS = (Unbelievable, OSError, ValueError, ArithmeticError, RecursionError, TypeError, KeyError, AttributeError)


class _FilesStore(Store):
    """A checkpoint folder as the SDK reads it, wherever the cluster's files are: so often and so much, and no more."""

    def __init__(self, files: Files, folder: str, uid: int) -> None:
        self._files, self._folder, self._uid, self.url = files, folder, uid, folder
        self._listings, self._manifests = _LISTINGS, _MANIFESTS

    def entries(self) -> list[str]:
        self._listings -= 1
        if self._listings < 0:
            raise Unbelievable(self._folder, "changes all the time")
        return [name for name in self._files.names(self._folder, self._uid) if not name.startswith(".")]

    def read(self, entry: str, name: str) -> bytes | None:
        self._manifests -= 1
        if self._manifests < 0:
            raise Unbelievable(self._folder, f"holds more than {_MANIFESTS} checkpoints that are not whole")
        part = self._files.part(f"{self._folder}/{entry}/{name}", 0, _MANIFEST, self._uid)
        return None if part is None else part.data

    def sizes(self, entry: str) -> dict[str, int]:
        folder = f"{self._folder}/{entry}"
        sizes = {name: self._files.size(f"{folder}/{name}") for name in self._files.names(folder, self._uid)}
        return {name: size for name, size in sizes.items() if size is not None}


class Spool:
    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, PurePosixPath(folder)
        self._root = str(self._folder)
        self.odd: dict[str, str] = {}  #: job -> what of its files cannot be believed
        self._noted: dict[str, frozenset[str]] = {}  #: as written; after a restart nobody knows
        self._suffixes: dict[str, str] = {}  #: behind the names of an owner's files, where everybody may write

    def prepare(self) -> None:
        """Create the folders. Raises FixConfiguration when the spool cannot be written."""
        try:
            for path in (self._root, self.path("jobs"), self.path("reasons")):
                self._files.make(path, 0o755)
            for name in ("events", "beside"):  # the hooks, of slurmctld's group, append to them
                if self._files.stat(self._root, name) is None:
                    self._files.replace(self._root, name, data=b"", mode=0o664)
        except (OSError, Unbelievable) as error:
            raise FixConfiguration(
                f"cannot write the spool {self._folder}: {_why(error)}",
                "make it, owned by Horae's account, or set `spool`",
            ) from error

    def probe(self) -> None:
        """Write and remove one small file. Raises FixConfiguration."""
        self._write(".probe", data=b"probe\n")
        self._files.remove(self._root, ".probe")

    def path(self, *parts: str) -> str:
        return str(self._folder.joinpath(*parts))

    # --- the arbiter's marks ---

    def beat(self, now_s: float, partitions: tuple[str, ...]) -> None:
        text = f"time {int(now_s)}\nhold {','.join(partitions)}\nhost {socket.gethostname()}\n"
        self._write("heartbeat", data=text.encode(), durable=False)

    def claim(self, token: str, now_s: float) -> None:
        mark = {"token": token, "host": socket.gethostname(), "pid": os.getpid(), "time_s": now_s}
        self._write("claim", data=json.dumps(mark).encode())

    def claimed(self) -> str | None:
        """The token that stands there now; None where nobody claimed, or the mark cannot be read."""
        try:
            raw = self._files.read(self._root, "claim")
            return None if raw is None else str(json.loads(raw)["token"])
        except _THEIRS:
            return None

    def note_holds(self, jobs: frozenset[str]) -> None:
        """Which waiting jobs we hold, before we do. What cannot be written keeps nobody from holding: it is tried again
        at the next heartbeat, which says so."""
        self._note("holds", jobs)

    def note_ordered(self, jobs: frozenset[str]) -> None:
        """Whose SiteFactor we write, before we do; otherwise as `note_holds`."""
        self._note("ordered", jobs)

    def note_marks(self, lines: frozenset[str]) -> None:
        """Marks that somebody wrote over; otherwise as `note_holds`."""
        self._note("marks", lines)

    def _note(self, name: str, lines: frozenset[str]) -> None:
        if lines != self._noted.get(name):
            with suppress(FixConfiguration):
                self._write(name, data="".join(f"{line}\n" for line in sorted(lines)).encode(), durable=False)
                self._noted[name] = lines

    def noticed(self) -> tuple[float, int]:
        """(when, how much) the hooks wrote last. What they wrote is never read."""
        found = self._files.stat(self._root, "events")
        if found is None:
            return 0.0, 0
        if found.st_size > _EVENTS_LIMIT:
            self._files.replace(self._root, "events", data=b"", mode=0o664)
        return found.st_mtime, found.st_size

    def beside(self) -> frozenset[str]:
        """Words that may be partitions in which jobs of ours wait too: whoever uses them knows which there are."""
        try:
            data = self._files.read(self._root, "beside") or b""
        except (OSError, Unbelievable):
            return frozenset()  # such a job waits in the others, as in plain Slurm
        return frozenset(data.decode("ascii", "replace").split())

    # --- a job ---

    def folder(self, job: str) -> str:
        return self.path("jobs", job)

    def grant(self, job: str, uid: int, epoch: int, restarts: int, fenced: bool = False) -> None:
        """Before a start: the fence (newest epoch) and which restart count it belongs to; no stop is asked for.
        `fenced`: a later restart that was not granted is to leave with 86, which Slurm holds."""
        note: dict[str, Any] = {"epoch": epoch, "restarts": restarts}
        if fenced:
            note["fenced"] = True
        fence = {"slurm.json": json.dumps(note).encode(), "epoch": b"%d\n" % epoch}
        try:
            self._files.make(self.path("jobs"))
            try:
                self._files.entrust(self._root, "jobs", job, uid=uid, first=fence)
                return
            except FileExistsError:
                for name in ("stop", "cancel", "slurm.exec" + self._suffix(job, uid)):
                    self._files.remove(self._root, "jobs", job, name)
        except (OSError, Unbelievable) as error:
            raise _unwritable(self.folder(job), error) from error
        for name, data in fence.items():
            self._write("jobs", job, name, data=data)

    def grant_all(self, grants: Sequence[tuple[str, int, int, int, bool]]) -> dict[str, PortError]:
        """`grant` of each (job, uid, epoch, restarts, fenced), side by side: a disk makes many small files
        durable in hardly more time than one. What failed, by job."""

        def one(grant: tuple[str, int, int, int, bool]) -> PortError | None:
            try:
                self.grant(*grant)
            except PortError as error:
                return error
            return None

        if len(grants) < 2:
            found = [one(grant) for grant in grants]
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                found = list(pool.map(one, grants))
        return {grant[0]: error for grant, error in zip(grants, found, strict=True) if error is not None}

    def ask_to_stop(self, job: str, epoch: int, grace_s: float, now_s: float, stay: bool = False) -> None:
        """The stop file: polled by the supervisor and the SDK. `stay`: do not end the batch job, we requeue it."""
        request: dict[str, Any] = {"epoch": epoch, "grace_s": grace_s, "time_s": now_s}
        if stay:
            request["stay"] = True
        self._ask(job, "stop", json.dumps(request).encode() + b"\n")

    def ask_to_go_on(self, job: str, epoch: int) -> None:
        """In place of the stop file: who has checkpointed because of it goes on in this very start."""
        request = {"epoch": 0, "withdrawn": epoch}
        self._ask(job, "stop", json.dumps(request).encode() + b"\n")

    def ask_to_end(self, job: str) -> None:
        self._ask(job, "cancel", b"")

    def account(self, job: str, uid: int) -> Account:
        """What the job's supervisor says of itself; nothing where there is none, or the file is not the owner's."""
        try:
            self.odd.pop(job, None)
            state, words = self._own(job, "state.json", uid), self._own(job, "slurm.exec", uid)
            mark, code = state.inner("checkpoint"), state.whole("exit_code", -255, 255)
            return Account(
                epoch=words.whole("epoch", 0, _MOST_EPOCH) or 0,
                direct=words.truth("direct"),
                ended=(state.whole("epoch", 0, _MOST_EPOCH) or 0) if code is not None else 0,
                exit_code=code,
                checkpoint=_mark(mark) if mark is not None else None,
            )
        except _THEIRS as error:
            self.odd[job] = f"{job}: {_why(error)}"
            return Account()

    def newest_checkpoint(self, job: str, uid: int) -> CheckpointMark | None:
        """The newest complete checkpoint in the folder that the supervisor named: also what a lost one had no time
        to tell. None where there is none, or its owner lets nobody read it."""
        try:
            folder = self._own(job, "slurm.exec", uid).path("checkpoint")
            if folder is None:
                return None
            found = newest_mark(_FilesStore(self._files, folder, uid))
            if found is None:
                return None
            mark, at_s = found
            told = {"epoch": mark.epoch, "step": mark.step, "time_s": at_s}
            return _mark(_Facts(told, f"{folder}/{mark.name}"))
        except _THEIRS as error:
            self.odd[job] = f"{job}: {_why(error)}"
            return None

    def _own(self, job: str, name: str, uid: int) -> _Facts:
        """A document of the job's owner. Raises Unbelievable, OSError."""
        data = self._files.read(self._root, "jobs", job, name + self._suffix(job, uid), owner=uid)
        return _Facts({} if data is None else parse(data, name), name)

    def _suffix(self, job: str, uid: int) -> str:
        """As its supervisor drew it: behind the name of its lock. Raises Unbelievable, OSError."""
        if job in self._suffixes:
            return self._suffixes[job]
        found = self._files.stat(self._root, "jobs", job)
        if found is None:
            return ""
        suffix = self._drawn(job, uid) if found.st_mode & S_IWOTH else ""
        if suffix or not found.st_mode & S_IWOTH:
            self._suffixes[job] = suffix
        return suffix

    def _drawn(self, job: str, uid: int) -> str:
        for name in sorted(self._files.weigh(self._root, "jobs", job)):
            if name.startswith("lock."):
                found = self._files.stat(self._root, "jobs", job, name)
                if found is not None and found.st_uid == uid:
                    return name.removeprefix("lock")
        return ""

    def output(self, job: str, uid: int, offset: int, limit: int) -> Part | None:
        """Of the job's own output, as its supervisor mirrors it. Raises Unbelievable, OSError."""
        folder = self._files.stat(self._root, "jobs", job)
        if folder is None:
            return None
        if not S_ISDIR(folder.st_mode):
            raise Unbelievable(self.folder(job), "is not a folder")
        if folder.st_mode & S_IWOTH:
            return None  # its owner's alone to read
        return self._files.part(f"{self.folder(job)}/output.log", offset, limit, uid)

    def output_of(self, path: str, uid: int, offset: int, limit: int) -> Part | None:
        """Of the file that Slurm writes the job's output to, wherever it is: the owner's own, or none. Raises
        Unbelievable, OSError."""
        return self._files.part(path, offset, limit, uid)

    def _ask(self, job: str, what: str, data: bytes) -> None:
        with suppress(FixConfiguration, OSError, Unbelievable):  # the signal goes out all the same
            if self._files.stat(self._root, "jobs", job) is not None:
                self._write("jobs", job, what, data=data, durable=False)

    def reason(self, job: str, text: str) -> None:
        try:
            self._files.make(self.path("reasons"))
        except (OSError, Unbelievable) as error:
            raise _unwritable(self.path("reasons"), error) from error
        self._write("reasons", job_number(job), data=(text.strip() + "\n").encode(), durable=False)

    def forget(self, job: str) -> None:
        self._suffixes.pop(job, None)
        for names in (("reasons", job_number(job)), ("jobs", job, "epoch"), ("jobs", job, "stop")):
            with suppress(OSError, Unbelievable):
                self._files.remove(self._root, *names)

    def clean(self, now_s: float, keep_s: float, most: int, living: Collection[str]) -> list[str]:
        """Remove folders of jobs that are over: those in which nothing changed for `keep_s`, then the largest until
        they hold at most `most` bytes: an owner says how large his are, and what he says costs nobody else's. What of
        it could not be removed, in words."""
        found: list[tuple[int, float, str]] = []
        notes: list[str] = []
        total = 0
        for job, (made_s, _) in self._files.weigh(self._root, "jobs", most=_MOST_FOLDERS).items():
            if job.startswith(".") or job in living:  # or it is being made
                continue
            try:
                inside = self._files.weigh(self._root, "jobs", job)
            except _THEIRS as error:
                notes.append(f"{self.folder(job)}: {_why(error)}")
                continue
            size = sum(size for _, size in inside.values())
            total += size
            newest_s = max([made_s, *(at_s for at_s, _ in inside.values())])
            found.append((size, now_s - newest_s, job))
        for size, age_s, job in sorted(found, key=lambda each: (each[1] < keep_s, -each[0], -each[1])):
            if age_s < keep_s and total <= most:
                break
            total -= size  # also of one that stays: no other's goes for it
            try:
                self._files.discard(self._root, "jobs", job)
            except _THEIRS as error:
                notes.append(f"{self.folder(job)} is of a job that is over, and stays: {_why(error)}")
        return notes

    def _write(self, *names: str, data: bytes, durable: bool = True) -> None:
        """`durable` False: what is written again soon, or asked again, and is not worth waiting for the disk."""
        try:
            self._files.replace(self._root, *names, data=data, durable=durable)
        except (OSError, Unbelievable) as error:
            raise _unwritable(self.path(*names), error) from error


class _Facts(Facts):
    """With what documents of a supervisor hold besides numbers."""

    def truth(self, name: str) -> bool:
        return bool(self._value.get(name))

    def path(self, name: str) -> str | None:
        """An absolute path, for what is opened as its owner's alone."""
        value = self._value.get(name)
        good = isinstance(value, str) and value.startswith("/") and "\0" not in value and len(value) <= PATH_MAX
        return value if isinstance(value, str) and good else None


def _mark(told: Facts) -> CheckpointMark:
    epoch, step = told.whole("epoch", 0, _MOST_EPOCH), told.number("step", 0, _MOST_STEP)
    at_s = told.number("time_s", 0, _MOST_TIME_S)
    if epoch is None or step is None or at_s is None:
        raise Unbelievable(told.where, "lacks one of epoch, step and time_s")
    return CheckpointMark(epoch, step, at_s)


def _why(error: BaseException) -> str:
    if isinstance(error, Unbelievable):
        return str(error)
    why = error.strerror if isinstance(error, OSError) else None
    return why or printable(str(error)) or type(error).__name__  # SFTP has no word for a full disk


def _unwritable(path: str, error: OSError | Unbelievable) -> FixConfiguration:
    return FixConfiguration(f"cannot write {path}: {_why(error)}", "free space there, or give it to Horae's account")
