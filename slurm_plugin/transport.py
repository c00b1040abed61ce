"""Where Slurm's commands run: here, behind a prefix (sudo, docker exec), or over SSH (`ssh.py`).

A transport runs one command, keeps one open (scontrol reads commands from its input), and reaches the files that
live beside slurmctld (the spool). All of it is blocking and bounded by a time-out; a command that overruns is
killed, and whether a write of it was done is for the next read to say.
"""

from __future__ import annotations

import codecs
import errno
import os
import selectors
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from horae.port import FixConfiguration, TryLater


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


class Files(Protocol):
    """Files beside slurmctld. Paths are absolute. Missing is None, not an error; OSError for the rest."""

    def read(self, path: str, offset: int = 0, limit: int = 1 << 20, owner: int | None = None) -> bytes | None:
        """With `owner`: a file that users can replace. Refused unless it is a plain file of that user: a link would
        show them what only we may read, and a pipe would stop us."""
        ...

    def stat(self, path: str) -> os.stat_result | None: ...

    def names(self, path: str) -> list[str]:
        """Of a folder; empty when it is missing."""
        ...

    def replace(self, path: str, data: bytes, mode: int = 0o644, *, durable: bool = True) -> None:
        """Atomically; with `durable` it is on the disk when this returns."""
        ...

    def mkdir(self, path: str, mode: int = 0o755) -> None: ...

    def chmod(self, path: str, mode: int) -> None: ...

    def chown(self, path: str, uid: int) -> bool:
        """True when the file was given away; False where we may not."""
        ...

    def admit(self, path: str, uid: int) -> bool:
        """Give a user all rights in a folder of ours, and others none, by an ACL; False where there are no ACLs."""
        ...

    def remove(self, path: str) -> None: ...


def not_theirs(path: str) -> PermissionError:
    return PermissionError(errno.EACCES, "not a plain file of the job's owner", path)


class Transport(Protocol):
    where: str  #: for people
    files: Files

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str | None = None) -> Completed: ...

    def open(self, argv: Sequence[str]) -> Conversation: ...

    def close(self) -> None: ...


_NOBODY = 0xFFFFFFFF


class LocalFiles:
    def read(self, path: str, offset: int = 0, limit: int = 1 << 20, owner: int | None = None) -> bytes | None:
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                found = os.fstat(file.fileno())
                if owner is not None and (found.st_uid != owner or not stat.S_ISREG(found.st_mode)):
                    raise not_theirs(path)
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return None

    def stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)  # noqa: PTH116 - the protocol speaks in strings
        except FileNotFoundError:
            return None

    def names(self, path: str) -> list[str]:
        folder = Path(path)
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []

    def replace(self, path: str, data: bytes, mode: int = 0o644, *, durable: bool = True) -> None:
        folder = Path(path).parent
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".horae-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.chmod(temporary, mode)  # noqa: PTH101
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        if not durable:
            return
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        folder = Path(path)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)

    def chmod(self, path: str, mode: int) -> None:
        Path(path).chmod(mode)

    def chown(self, path: str, uid: int) -> bool:
        try:
            os.chown(path, uid, -1)
        except PermissionError:
            return False
        return True

    def admit(self, path: str, uid: int) -> bool:
        #: (tag, rights, id) as the kernel keeps them: owner, this user, group, mask, others
        entries = ((1, 7, _NOBODY), (2, 7, uid), (4, 0, _NOBODY), (16, 7, _NOBODY), (32, 0, _NOBODY))
        value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        try:
            os.setxattr(path, "system.posix_acl_access", value)
        except OSError:
            return False
        return True

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


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
        self._env = {**os.environ, **(env or {}), "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        self.where = "this host" if not prefix else " ".join(prefix)
        self.files: Files = LocalFiles()

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str | None = None) -> Completed:
        full = [*self._prefix, *argv]
        begin = time.monotonic()
        try:
            done = subprocess.run(
                full, input=stdin or "", env=self._env, capture_output=True, text=True, errors="replace",
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


def _cannot_run(argv: Sequence[str], error: OSError) -> FixConfiguration:
    return FixConfiguration(
        f"cannot run {argv[0]}: {error.strerror}", "install Slurm's client commands on this host, or set `path`"
    )
