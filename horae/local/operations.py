"""What is done to the folders of jobs and to what runs for them: all that has to be root where users share a machine.

    STATE/jobs/JOB        the folder of a job, its owner's, who may change all in it at any moment
    STATE/keepers/JOB     the pid of the job's keeper and when that began, by the keeper itself

An arbiter that runs as who runs the jobs calls this; one with an account of its own asks a helper that is root for the
same (`helper.py`, `asked.py`). So nothing is parsed here that anybody wrote, and nothing is imported that reads
documents: folders are made, given and thrown away, bytes put into files, descriptors handed on, programs started as
their owners, keepers signalled. Whose a job is says its folder: only who was allowed this could give it away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from horae.descriptors import Folder, Unbelievable
from horae.elastic import protocol
from horae.elastic.supervisor import processes

JOBS, KEEPERS = "jobs", "keepers"
#: What a job's name may be: one name of a file, never hidden.
JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+@=-]{0,199}")
#: Where it is told why a job waits; what a version before wrote into the folder of a job that was handed back.
REASON_FILE, RELEASED_FILE = "reason", "released"
#: Files of a job's folder: those that are read, and those that are written there for its owner and supervisor.
READ = frozenset([protocol.SPEC_FILE, protocol.EPOCH_FILE, protocol.STATE_FILE, protocol.LOCK_FILE, protocol.LOG_FILE])
WRITTEN = frozenset([protocol.EPOCH_FILE, protocol.STOP_FILE, protocol.CANCEL_FILE, protocol.STATE_FILE, REASON_FILE])
_OWN = "|".join(map(re.escape, sorted(READ | WRITTEN | {RELEASED_FILE})))
#: These, their half-written and reserved forms, and older parts of the log.
OURS = re.compile(rf"(?:{_OWN}|output\.log\.\d+|\.(?:{_OWN})\.\d+\.[0-9a-f]+|\.state\.reserve-\d)")
_GONE = ".gone."
#: By which a process shows whose it is, in its environment.
_MARKS = (protocol.ENV_SUPERVISED, protocol.ENV_JOB_DIR)
#: A round waits no longer for the killed to be gone.
_KILL_S = 1.0
_ELASTIC = str(Path(__file__).resolve().parents[1] / "elastic")


class Operations:
    """On the jobs of one STATE."""

    def __init__(self, state: Path, python: str, environment: Mapping[str, str]) -> None:
        """`environment`: what every job gets of ours."""
        self.state, self._python, self._environment = state, python, dict(environment)
        self._children: list[subprocess.Popen[bytes]] = []

    def make_folders(self) -> None:
        """Raises OSError."""
        for name, mode in ((JOBS, 0o755), (KEEPERS, 0o700)):
            (self.state / name).mkdir(mode=mode, parents=True, exist_ok=True)

    def prepare(self, books: Path) -> None:
        """Their folders, with what a version before noted of keepers beside its `books`. Raises OSError."""
        self.make_folders()
        with Folder.open(books) as before, self._folder(KEEPERS) as keepers:
            if before.stat().st_uid == os.geteuid():
                adopt(before, keepers)
        self.leftovers()

    def close(self) -> None:
        """Collect the intermediate processes of past starts."""
        self._children = [child for child in self._children if child.poll() is None]

    def _folder(self, name: str) -> Folder:
        return Folder.open(self.state / name, one_mount=True)

    def path_of(self, job: str) -> str:
        return str(self.state / JOBS / job)

    # --- folders ------------------------------------------------------------------------------------------

    def open(self, job: str) -> Folder:
        """A job's folder. Raises OSError (FileNotFoundError), Unbelievable."""
        with self._folder(JOBS) as jobs:
            return jobs.below(job)

    def make(self, job: str, spec: bytes, owner: str) -> None:
        """Its folder, whole and its owner's, or nothing. `owner` "": ours. Raises OSError (FileExistsError too)."""
        user = pwd.getpwnam(owner) if owner else None
        hidden = f".{job}.{os.urandom(4).hex()}"
        with self._folder(JOBS) as jobs:
            if jobs.lstat(job) is not None:
                raise FileExistsError(errno.EEXIST, "there is such a folder", self.path_of(job))
            try:
                with jobs.make(hidden) as folder:
                    folder.replace(protocol.SPEC_FILE, spec, sync=False)
                    if user is not None:
                        folder.give(user.pw_uid, user.pw_gid)
                os.rename(hidden, job, src_dir_fd=jobs.fd, dst_dir_fd=jobs.fd)
            except OSError:
                _empty(jobs, hidden)
                raise

    def clear(self, job: str) -> None:
        """First out of sight, then file by file: nothing is followed and nothing else is touched. Raises OSError."""
        with self._folder(JOBS) as jobs:
            hidden = f"{_GONE}{job}.{os.urandom(4).hex()}"
            os.rename(job, hidden, src_dir_fd=jobs.fd, dst_dir_fd=jobs.fd)
            _empty(jobs, hidden)
        with self._folder(KEEPERS) as keepers:
            keepers.remove(job)

    def leftovers(self) -> None:
        """Finish what was interrupted while it was thrown away. Raises OSError."""
        with self._folder(JOBS) as jobs, os.scandir(jobs.fd) as entries:
            for name in [entry.name for entry in entries if entry.name.startswith(_GONE)]:
                _empty(jobs, name)

    # --- processes ----------------------------------------------------------------------------------------

    def start(self, job: str, owner: str, lock: int, document: int) -> None:
        """Start its keeper, which holds `lock` from the first moment and whose child becomes the owner before it reads
        the file `document`; returns at once. `owner` "": ourselves. Raises OSError, KeyError.

        Isolated and without site-packages: nothing of anybody's environment can break it.
        """
        user = pwd.getpwnam(owner) if owner else None
        self.close()
        path = self.path_of(job)
        with self._folder(KEEPERS) as keepers:
            keepers.replace(job, b" " * 64, mode=0o600, sync=False)  # written over: on a full disk too
            note = os.open(job, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=keepers.fd)
        try:
            argv = [self._python, "-I", "-S", _ELASTIC, "--job", path, "--daemon"]
            argv += ["--lock", str(lock), "--start", str(document), "--keeper", str(note)]
            argv += ["--user", user.pw_name] if user is not None and user.pw_uid != os.geteuid() else []
            self._children.append(
                subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(lock, document, note),
                    start_new_session=True,
                    cwd="/",
                    env={**self._environment, **_named(user), _MARKS[0]: path},
                )
            )
        finally:
            os.close(note)

    def signal(self, job: str, number: int) -> bool:
        """To its keeper, which was started here. False where it is gone, or has not said yet who it is."""
        with self._folder(KEEPERS) as keepers:
            words = (keepers.read(job, 100) or b"").split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            return False
        pid, began = int(words[0]), words[1]
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            # With the descriptor open the pid is not given to another: what began when it did is the keeper.
            if _began(pid) != began or select.select([fd], [], [], 0)[0]:
                return False
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True

    def kill_left(self, job: str, owner: str) -> None:
        """Kill what its owner runs under the mark of this job, until nothing is left or a second is over."""
        uid = pwd.getpwnam(owner).pw_uid if owner else os.geteuid()
        marks = frozenset(os.fsencode(f"{mark}={self.path_of(job)}") for mark in _MARKS)
        until = time.monotonic() + _KILL_S
        while (killed := [_killed(pid, uid, marks) for pid in _pids()]) and any(killed) and time.monotonic() < until:
            time.sleep(0.005)


def whose(folder: Folder) -> tuple[int, int] | None:
    """Whom what is written into it is given to; None: it is ours."""
    seen = folder.stat()
    return None if seen.st_uid == os.geteuid() else (seen.st_uid, seen.st_gid)


def adopt(books: Folder, keepers: Folder) -> None:
    """Notes of keepers whom a version before kept beside its books. Raises OSError."""
    for name in books.names(1 << 20):
        job = name.removesuffix(".keeper")
        if job != name and JOB.fullmatch(job):
            books.rename_to(name, keepers, job)


def put(folder: Folder, name: str, data: bytes, sync: bool = False) -> None:
    """A file of the folder's owner's; what stands in its way is moved aside. Raises OSError, Unbelievable."""
    owner = whose(folder)
    try:
        folder.replace(name, data, owner=owner, sync=sync)
    except Unbelievable:
        folder.remove(name)
        folder.replace(name, data, owner=owner, sync=sync)


def _empty(jobs: Folder, name: str) -> None:
    try:
        with jobs.below(name) as folder:
            for each in folder.names():
                if OURS.fullmatch(each):
                    folder.remove(each)
            if not folder.names():
                os.rmdir(name, dir_fd=jobs.fd)
    except (FileNotFoundError, Unbelievable):
        return  # not there, or its owner put something there that is not ours to remove


def _named(user: pwd.struct_passwd | None) -> dict[str, str]:
    try:
        user = user or pwd.getpwuid(os.geteuid())
    except KeyError:  # a container's number without a name
        return {}
    return {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}


# --- processes, as the kernel shows them ------------------------------------------------------------------


def _pids() -> list[int]:
    names = [path.name for path in Path("/proc").iterdir()]
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def _told(pid: int, file: str) -> bytes:
    """Empty once it is gone, or where it is another's."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as found:
        return found.read()
    return b""


def _began(pid: int) -> bytes:
    """When a process was started, in the kernel's ticks."""
    text = _told(pid, "stat")
    return text[text.rfind(b")") + 2 :].split()[19] if text else b""


def _killed(pid: int, uid: int, marks: frozenset[bytes]) -> bool:
    """Whether it is the user's and carried one of the marks, or has not yet been told whose it is."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # At line feeds alone: of a name that its user chose the kernel escapes no other end of a line.
        whose = [line.split()[1] for line in _told(pid, "status").split(b"\n") if line.startswith(b"Uid:")]
        if whose != [b"%d" % uid]:
            return False
        told = processes.environment(pid)
        if told is None:
            return True
        if marks.isdisjoint(told):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False
    finally:
        os.close(fd)
    return True
