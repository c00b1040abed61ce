"""Where Slurm's commands run: here, behind a prefix (sudo, docker exec), or over SSH (`ssh.py`).

A transport runs one command, keeps one open (scontrol reads commands from its input), and reaches the files that
live beside slurmctld (the spool). All of it is blocking and bounded by a time-out; a command that overruns is
killed, and whether a write of it was done is for the next read to say.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import selectors
import stat
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from horae.port import FixConfiguration, TryLater
from horae.untrusted import MOST_NAMES, Folder, Unbelievable

#: What people set for themselves so that Slurm's commands show, and touch, less than all there is, or another cluster.
_NARROWING = {
    "SLURM": "CLUSTERS",
    "SQUEUE": "ACCOUNT ARRAY FEDERATION FORMAT LICENSES LOCAL NAMES PARTITION PRIORITY QOS SIBLING SORT STATES USERS",
    "SINFO": "FEDERATION FORMAT LOCAL PARTITION SORT",
    "SCONTROL": "FEDERATION FUTURE LOCAL SIBLING",
    "SCANCEL": "ACCOUNT BATCH CRON CTLD FULL HURRY INTERACTIVE NAME PARTITION QOS STATE USER USERID WCKEY",
    "SACCT": "FEDERATION LOCAL",
}
NARROWING = tuple(f"{command}_{word}" for command, words in _NARROWING.items() for word in words.split())


def surroundings() -> dict[str, str]:
    """The environment of this process without what narrows Slurm's commands: whoever started it may have set that."""
    return {name: value for name, value in os.environ.items() if name not in NARROWING}


@dataclass(frozen=True, slots=True)
class Completed:
    rc: int
    out: str
    err: str
    seconds: float


class Conversation(Protocol):
    """A command kept open: text in, text out."""

    def send(self, text: str) -> None: ...

    def receive(self, timeout_s: float) -> tuple[str, str]:
        """(stdout, stderr) that came since; both empty after `timeout_s`. Raises TryLater when it has ended."""
        ...

    def close(self) -> None: ...


class Decoders:
    """What comes on stdout (0) and stderr (1) as text: a character may be split between two reads."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._each = (make(errors="replace"), make(errors="replace"))

    def text(self, stream: int, data: bytes) -> str:
        return self._each[stream].decode(data)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file, with what the very file that was read is."""

    data: bytes
    start: int  #: where `data` begins: where it was asked for, or at 0 of a file that has become shorter than that
    size: int
    identity: str  #: changes with the file behind the name, and when it has become shorter


class Files(Protocol):
    """Files beside slurmctld. Missing is None, not an error; OSError and `untrusted.Unbelievable` for the rest.

    `root` is a folder of the site's own, `names` lead from there through folders that users may write: no link among
    them is followed, and what is changed is changed by descriptors (`horae.untrusted`).
    """

    def read(self, root: str, *names: str, owner: int | None = None, most: int = 1 << 16) -> bytes | None:
        """A small file. With `owner`: only a plain file of that user."""
        ...

    def stat(self, root: str, *names: str) -> os.stat_result | None:
        """Of a name, not of what a link leads to."""
        ...

    def replace(self, root: str, *names: str, data: bytes, mode: int = 0o644, durable: bool = True) -> None:
        """Atomically; with `durable` it is on the disk when this returns."""
        ...

    def make(self, path: str, mode: int = 0o755) -> None:
        """A folder of ours with those above it; nothing where it is there."""
        ...

    def entrust(self, root: str, *names: str, uid: int, first: Mapping[str, bytes]) -> None:
        """A new folder with its `first` files, then a user's: given away where we may, else opened to that user alone
        by an ACL, else (no ACLs) writable by all with the sticky bit. FileExistsError where it is there."""
        ...

    def remove(self, root: str, *names: str) -> None: ...

    def weigh(self, root: str, *names: str, most: int = MOST_NAMES) -> dict[str, tuple[float, int]]:
        """(modification time, bytes) of each name in a folder, of links themselves; empty when it is missing. Raises
        Unbelievable where there are more than `most`."""
        ...

    def discard(self, root: str, *names: str) -> None:
        """A folder and what is right in it, links and not what they lead to. OSError where a folder is in it, or what
        we may not remove."""
        ...

    def part(self, path: str, offset: int, limit: int, owner: int) -> Part | None:
        """From a file wherever a user said that it is: only when it is a plain file of that user, which nothing but
        the opened file itself is asked for."""
        ...

    def names(self, path: str, owner: int) -> list[str]:
        """Of a folder that a user named and owns; empty when it is missing."""
        ...

    def size(self, path: str) -> int | None:
        """Of a file in such a folder; None for what is no plain file."""
        ...


def not_theirs(path: str) -> Unbelievable:
    return Unbelievable(path, "is not a plain file of the job's owner")


class Transport(Protocol):
    where: str  #: for people
    files: Files

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        stdin: str | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        """`env`: more variables, that no other user of the host may see on the way."""
        ...

    def open(self, argv: Sequence[str]) -> Conversation: ...

    def close(self) -> None: ...


_NOBODY = 0xFFFFFFFF


class LocalFiles:
    def read(self, root: str, *names: str, owner: int | None = None, most: int = 1 << 16) -> bytes | None:
        try:
            with Folder.open(root, *names[:-1]) as folder:
                if owner is not None:
                    found = folder.lstat(names[-1])
                    if found is None:
                        return None
                    if found.st_uid != owner:
                        raise not_theirs(folder.name_of(names[-1]))
                return _whole(folder, names[-1], owner, most)
        except FileNotFoundError:
            return None

    def stat(self, root: str, *names: str) -> os.stat_result | None:
        try:
            with Folder.open(root, *names[:-1]) as folder:
                return folder.lstat(names[-1]) if names else folder.stat()
        except FileNotFoundError:
            return None

    def replace(self, root: str, *names: str, data: bytes, mode: int = 0o644, durable: bool = True) -> None:
        with Folder.open(root, *names[:-1]) as folder:
            folder.replace(names[-1], data, mode=mode, sync=durable)

    def make(self, path: str, mode: int = 0o755) -> None:
        folder = Path(path)
        if folder.is_dir():
            return
        self.make(str(folder.parent), mode)
        with Folder.open(folder.parent) as above, contextlib.suppress(FileExistsError), above.make(folder.name) as new:
            os.fchmod(new.fd, mode)

    def entrust(self, root: str, *names: str, uid: int, first: Mapping[str, bytes]) -> None:
        with Folder.open(root, *names[:-1]) as above:
            if above.lstat(names[-1]) is not None:
                raise FileExistsError(errno.EEXIST, "exists", above.name_of(names[-1]))
            hidden = f".{names[-1]}.{os.urandom(6).hex()}"  # it gets its name whole, or not at all
            with above.make(hidden) as folder:
                for name, data in first.items():
                    folder.replace(name, data)
                try:
                    os.fchown(folder.fd, uid, -1)  # the folder alone: what we wrote stays ours
                except PermissionError:
                    if not admit(folder.fd, uid):
                        os.fchmod(folder.fd, 0o1777)
            above.rename_to(hidden, above, names[-1])
            above.sync()

    def remove(self, root: str, *names: str) -> None:
        with contextlib.suppress(FileNotFoundError), Folder.open(root, *names[:-1]) as folder:
            folder.remove(names[-1])

    def weigh(self, root: str, *names: str, most: int = MOST_NAMES) -> dict[str, tuple[float, int]]:
        try:
            with Folder.open(root, *names) as folder:
                each = ((name, folder.lstat(name)) for name in folder.names(most))
                return {name: (found.st_mtime, found.st_size) for name, found in each if found is not None}
        except FileNotFoundError:
            return {}

    def discard(self, root: str, *names: str) -> None:
        with Folder.open(root, *names[:-1]) as above:
            with above.below(names[-1]) as folder:
                for name in folder.names():
                    os.unlink(name, dir_fd=folder.fd)
            os.rmdir(names[-1], dir_fd=above.fd)

    def part(self, path: str, offset: int, limit: int, owner: int) -> Part | None:
        try:
            # Looked at before it is opened: to open some devices is to use them, and a pipe waits for its writer.
            seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if not _is_plain(os.fstat(seen), owner):
                raise not_theirs(path)
            fd = os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            os.close(seen)
        try:
            found = os.fstat(fd)
            start, identity = part_of(offset, found.st_size, f"{found.st_dev}:{found.st_ino}")
            return Part(os.pread(fd, limit, start), start, found.st_size, identity)
        finally:
            os.close(fd)

    def names(self, path: str, owner: int) -> list[str]:
        try:
            with Folder.open(path) as folder:
                if folder.stat().st_uid != owner:
                    raise Unbelievable(path, "is not a folder of the job's owner")
                return folder.names()
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None


def part_of(offset: int, size: int, identity: str) -> tuple[int, str]:
    """Where to read, and what of: from the beginning where the file has become shorter."""
    return (0, identity + ":truncated") if offset > size else (offset, identity)


def _is_plain(found: os.stat_result, owner: int) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == owner


def _whole(folder: Folder, name: str, owner: int | None, most: int) -> bytes | None:
    """By the descriptor whose owner was asked: the name may mean another file a moment later."""
    fd = folder.open_plain(name)
    if fd is None:
        return None
    try:
        found = os.fstat(fd)
        if owner is not None and not _is_plain(found, owner):
            raise not_theirs(folder.name_of(name))
        data = os.pread(fd, most + 1, 0)
    finally:
        os.close(fd)
    if len(data) > most:
        raise Unbelievable(folder.name_of(name), f"is larger than {most} bytes")
    return data


def admit(fd: int, uid: int) -> bool:
    """Give a user all rights in an open folder of ours, and others none, by an ACL; False where there are no ACLs."""
    #: (tag, rights, id) as the kernel keeps them: owner, this user, group, mask, others
    entries = ((1, 7, _NOBODY), (2, 7, uid), (4, 0, _NOBODY), (16, 7, _NOBODY), (32, 0, _NOBODY))
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(fd, "system.posix_acl_access", value)
    except OSError:
        return False
    return True


#: How long a program whose stdout has closed may take to say why.
_LAST_WORDS_S = 2.0


class LocalConversation:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._name = Path(argv[0]).name
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                bufsize=0,
            )
        except OSError as error:
            raise _cannot_run(argv, error) from error
        self._decoders = Decoders()
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout and self._process.stderr
        self._selector.register(self._process.stdout, selectors.EVENT_READ, 0)
        self._selector.register(self._process.stderr, selectors.EVENT_READ, 1)

    def send(self, text: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(text.encode())
        except OSError as error:
            raise TryLater(f"{self._name} has ended: {error.strerror}") from error

    def receive(self, timeout_s: float) -> tuple[str, str]:
        parts = ["", ""]
        ended = False
        for key, _ in self._selector.select(timeout_s):
            data = os.read(key.fd, 65536)
            parts[key.data] += self._decoders.text(key.data, data)
            if not data and key.data:  # a closed stderr says nothing of the answers still in stdout
                self._selector.unregister(key.fileobj)
            ended = ended or not (data or key.data)
        if ended:
            last = parts[1] + self._last_words()
            raise TryLater(f"{self._name} has ended" + (f": {last.strip()}" if last.strip() else ""))
        return parts[0], parts[1]

    def _last_words(self) -> str:
        """What it still says on stderr, which may close after stdout; waits a moment for that."""
        assert self._process.stderr
        said, until = b"", time.monotonic() + _LAST_WORDS_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stderr, selectors.EVENT_READ)
            while selector.select(max(until - time.monotonic(), 0.0)):
                data = os.read(self._process.stderr.fileno(), 65536)
                if not data:
                    break
                said += data
        return said.decode(errors="replace")

    def close(self) -> None:
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LocalTransport:
    """Commands of this host, each behind `prefix` (for example `sudo -n -u slurm`)."""

    def __init__(self, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        self._prefix = tuple(prefix)
        self._env = {**surroundings(), **(env or {}), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        self.where = "this host" if not prefix else " ".join(prefix)
        self.files: Files = LocalFiles()

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        stdin: str | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        full = self._placed(argv)
        begin = time.monotonic()
        try:
            done = subprocess.run(
                full, input=stdin or "", env={**self._env, **env}, capture_output=True, text=True, errors="replace",
                timeout=timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise TryLater(f"{argv[0]} gave no answer for {timeout_s:.0f} s", retry_after_s=5.0) from error
        except OSError as error:
            raise _cannot_run(full, error) from error
        return Completed(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)

    def open(self, argv: Sequence[str]) -> Conversation:
        return LocalConversation([*self._prefix, *argv], self._env)

    def close(self) -> None:
        """Nothing is kept open here."""

    def _placed(self, argv: Sequence[str]) -> list[str]:
        """Behind the prefix. `timeout` stands before sudo, which passes its signal on: a rule that allowed `timeout`
        would allow anything."""
        if self._prefix and argv[0] == "timeout" and Path(self._prefix[0]).name == "sudo":
            return [*argv[:4], *self._prefix, *argv[4:]]
        return [*self._prefix, *argv]


def _cannot_run(argv: Sequence[str], error: OSError) -> FixConfiguration:
    return FixConfiguration(
        f"cannot run {argv[0]}: {error.strerror}", "install Slurm's client commands on this host, or set `path`"
    )
