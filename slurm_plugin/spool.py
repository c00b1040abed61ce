"""The spool: a folder shared by the arbiter, slurmctld's host (the Lua module) and the nodes (`horae-exec`).

    heartbeat        who lives and which partitions' new jobs are held; read by the Lua module at each submission
    claim            token of the arbiter that claimed the cluster last
    events           lines that hooks append; only a wake-up, its content is never trusted
    reasons/JOB      why a job waits or holds, for its owner to read
    jobs/JOB/        the job folder of `horae-exec`: epoch, stop, state.json, output.log

A job folder belongs to the job's owner where we may give files away (root), else an ACL admits the owner alone,
else (no ACLs there) it is writable by all with the sticky bit. Only plain files that the job's owner owns are read.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from stat import S_ISDIR
from typing import Any

from horae.elastic.checkpoints import newest_mark
from horae.elastic.stores import Store
from horae.port import CheckpointMark, FixConfiguration, PortError
from slurm_plugin.transport import Files

_EVENTS_LIMIT = 1 << 20
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Account:
    """What the supervisor of a job wrote about itself."""

    epoch: int = 0  #: of the newest start that has one
    direct: bool = False  #: Slurm's signal to the batch shell reaches it
    ended: int = 0  #: newest epoch that it saw end
    exit_code: int | None = None  #: of that
    checkpoint: CheckpointMark | None = None


class _FilesStore(Store):
    """A checkpoint folder as the SDK reads it, wherever the cluster's files are."""

    def __init__(self, files: Files, folder: str, uid: int) -> None:
        self._files, self._folder, self._uid, self.url = files, folder, uid, folder

    def entries(self) -> list[str]:
        return [name for name in self._files.names(self._folder) if not name.startswith(".")]

    def read(self, entry: str, name: str) -> bytes | None:
        return self._files.read(f"{self._folder}/{entry}/{name}", 0, 16 << 20, owner=self._uid)

    def sizes(self, entry: str) -> dict[str, int]:
        found = {}
        for name in self._files.names(f"{self._folder}/{entry}"):
            stat = self._files.stat(f"{self._folder}/{entry}/{name}")
            if stat is not None and not S_ISDIR(stat.st_mode):
                found[name] = stat.st_size
        return found


class Spool:
    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, PurePosixPath(folder)

    def prepare(self) -> None:
        """Create the folders. Raises FixConfiguration when the spool cannot be written."""
        try:
            self._files.mkdir(str(self._folder), 0o755)
            self._files.mkdir(self.path("jobs"), 0o755)
            self._files.mkdir(self.path("reasons"), 0o755)
            if self._files.stat(self.path("events")) is None:  # the hooks, of slurmctld's group, append to it
                self._files.replace(self.path("events"), b"", 0o664)
        except OSError as error:
            raise FixConfiguration(
                f"cannot write the spool {self._folder}: {error.strerror or error}",
                "make it, owned by Horae's account, or set `spool`",
            ) from error

    def probe(self) -> None:
        """Write and remove one small file. Raises FixConfiguration."""
        path = self.path(".probe")
        self._write(path, b"probe\n")
        self._files.remove(path)

    def path(self, *parts: str) -> str:
        return str(self._folder.joinpath(*parts))

    # --- the arbiter's marks ---

    def beat(self, now_s: float, partitions: tuple[str, ...]) -> None:
        text = f"time {int(now_s)}\nhold {','.join(partitions)}\nhost {socket.gethostname()}\n"
        self._write(self.path("heartbeat"), text.encode(), durable=False)

    def silence(self) -> None:
        """No heartbeat: the Lua module stops holding at once."""
        with suppress(OSError):
            self._files.remove(self.path("heartbeat"))

    def claim(self, token: str, now_s: float) -> None:
        mark = {"token": token, "host": socket.gethostname(), "pid": os.getpid(), "time_s": now_s}
        self._write(self.path("claim"), json.dumps(mark).encode())

    def claimed(self) -> str | None:
        """The token that stands there now; None where nobody claimed, or the mark cannot be read."""
        try:
            raw = self._files.read(self.path("claim"))
            return None if raw is None else str(json.loads(raw)["token"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def noticed(self) -> tuple[float, int]:
        """(when, how much) the hooks wrote last. What they wrote is never read."""
        path = self.path("events")
        found = self._files.stat(path)
        if found is None:
            return 0.0, 0
        if found.st_size > _EVENTS_LIMIT:
            self._files.replace(path, b"", 0o664)
        return found.st_mtime, found.st_size

    # --- a job ---

    def folder(self, job: str) -> str:
        return self.path("jobs", job)

    def grant(self, job: str, uid: int, epoch: int, restarts: int, fenced: bool = False) -> None:
        """Before a start: the fence (newest epoch) and which restart count it belongs to; no stop is asked for.
        `fenced`: a later restart that was not granted is to leave with 86, which Slurm holds."""
        folder = self.folder(job)
        try:
            fresh = self._files.stat(folder) is None
            self._files.mkdir(folder, 0o700)
            if fresh and not self._files.chown(folder, uid) and not self._files.admit(folder, uid):
                self._files.chmod(folder, 0o1777)
            for name in ("stop", "cancel", "slurm.exec"):
                self._files.remove(f"{folder}/{name}")
        except OSError as error:
            raise _unwritable(folder, error) from error
        note: dict[str, Any] = {"epoch": epoch, "restarts": restarts}
        if fenced:
            note["fenced"] = True
        self._write(f"{folder}/slurm.json", json.dumps(note).encode())
        self._write(f"{folder}/epoch", f"{epoch}\n".encode())

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

    def ask_to_end(self, job: str) -> None:
        self._ask(job, "cancel", b"")

    def account(self, job: str, uid: int) -> Account:
        """What the job's supervisor says of itself; nothing where there is none, or the file is not the owner's."""
        state = self._own(f"{self.folder(job)}/state.json", uid)
        words = self._own(f"{self.folder(job)}/slurm.exec", uid)
        try:
            mark = state.get("checkpoint")
            checkpoint = (
                CheckpointMark(int(mark["epoch"]), float(mark["step"]), float(mark["time_s"])) if mark else None
            )
            code = state.get("exit_code")
            return Account(
                epoch=int(words.get("epoch") or 0),
                direct=bool(words.get("direct")),
                ended=int(state.get("epoch") or 0) if code is not None else 0,
                exit_code=int(code) if code is not None else None,
                checkpoint=checkpoint,
            )
        except (ValueError, KeyError, TypeError):
            return Account()  # the job's own file: whatever it says, it must not stop a round

    def newest_checkpoint(self, job: str, uid: int) -> CheckpointMark | None:
        """The newest complete checkpoint in the folder that the supervisor named: also what a lost one had no time
        to tell. None where there is none, or its owner lets nobody read it."""
        folder = self._own(f"{self.folder(job)}/slurm.exec", uid).get("checkpoint")
        if not isinstance(folder, str) or not folder.startswith("/"):
            return None
        try:
            found = newest_mark(_FilesStore(self._files, folder, uid))
        except (OSError, ValueError):
            return None
        return CheckpointMark(found[0].epoch, found[0].step, found[1]) if found else None

    def _own(self, path: str, uid: int) -> dict[str, Any]:
        try:
            value = json.loads(self._files.read(path, 0, 65536, owner=uid) or b"{}")
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def _ask(self, job: str, what: str, data: bytes) -> None:
        if self._files.stat(self.folder(job)) is not None:
            with suppress(FixConfiguration):  # the signal goes out all the same
                self._write(f"{self.folder(job)}/{what}", data, durable=False)

    def reason(self, job: str, text: str) -> None:
        try:
            self._files.mkdir(self.path("reasons"))
        except OSError as error:
            raise _unwritable(self.path("reasons"), error) from error
        self._write(self.path("reasons", job), (text.strip() + "\n").encode(), durable=False)

    def forget(self, job: str) -> None:
        for path in (self.path("reasons", job), f"{self.folder(job)}/epoch", f"{self.folder(job)}/stop"):
            with suppress(OSError):
                self._files.remove(path)

    def log(self, job: str) -> str | None:
        path = f"{self.folder(job)}/output.log"
        return path if self._files.stat(path) is not None else None

    def _write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """`durable` False: what is written again soon, or asked again, and is not worth waiting for the disk."""
        try:
            self._files.replace(path, data, durable=durable)
        except OSError as error:
            raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> FixConfiguration:
    why = error.strerror or str(error)  # SFTP has no word for a full disk
    return FixConfiguration(f"cannot write {path}: {why}", "free space there, or give it to Horae's account")
