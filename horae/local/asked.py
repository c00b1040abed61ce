"""The arbiter's end of the socket to its helper (`helper.py`): operations that are asked for, in place of one's own.

What comes back of a job's folder are descriptors: of the folder, for the names in it, and of plain files of its
owner's. All reading is done here, by an account that is nobody's.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from horae.descriptors import Folder, Unbelievable
from horae.elastic.files import write_all
from horae.local import helper
from horae.local.helper import ANSWER, REQUEST, UNBELIEVABLE
from horae.local.operations import JOBS

_TEXT = 255


class Asked:
    """`operations.Operations`, by a helper. Thread-safe."""

    def __init__(self, peer: socket.socket, state: Path) -> None:
        self.state = state
        self._peer, self._lock = peer, Lock()

    def ask(
        self, verb: int, job: str, word: str = "", given: Sequence[int] = (), number: int = 0, flag: bool = False
    ) -> int | None:
        """A descriptor, where the verb makes one. Raises OSError, Unbelievable."""
        texts = job.encode(), word.encode()
        if max(map(len, texts)) > _TEXT:
            raise OSError(errno.ENAMETOOLONG, "is too long", word or job)
        message = REQUEST.pack(verb, flag, number, *texts)
        with self._lock:
            try:
                socket.send_fds(self._peer, [message], given)
                data, made, _, _ = socket.recv_fds(self._peer, ANSWER.size, 1, socket.MSG_CMSG_CLOEXEC)
            except (BrokenPipeError, ConnectionError):
                data, made = b"", []
        if len(data) != ANSWER.size:
            raise OSError(errno.EPIPE, "the helper that starts programs as their owners is gone: restart the arbiter")
        code, where, why = ANSWER.unpack(data)
        if code == 0:
            return made[0] if made else None
        where, why = (field.rstrip(b"\0").decode(errors="replace") for field in (where, why))
        if code == UNBELIEVABLE:
            raise Unbelievable(where, why)
        raise OSError(code, why, where)

    def close(self) -> None:
        """It ends by itself when nobody holds the socket any more."""

    def prepare(self, books: Path) -> None:
        """That was done as root, before it began."""

    def path_of(self, job: str) -> str:
        return str(self.state / JOBS / job)

    def open(self, job: str) -> Folder:
        fd = self.ask(helper.OPEN, job)
        assert fd is not None
        return AskedFolder(fd, self.path_of(job), self, job)

    def make(self, job: str, spec: bytes, owner: str) -> None:
        with file_of(spec) as file:
            self.ask(helper.MAKE, job, owner, [file])

    def clear(self, job: str) -> None:
        self.ask(helper.CLEAR, job)

    def start(self, job: str, owner: str, lock: int, document: int) -> None:
        self.ask(helper.START, job, owner, [lock, document])

    def signal(self, job: str, number: int) -> bool:
        try:
            self.ask(helper.SIGNAL, job, number=number)
        except ProcessLookupError:
            return False
        return True

    def kill_left(self, job: str, owner: str) -> None:
        self.ask(helper.KILL, job, owner)


@contextmanager
def file_of(data: bytes) -> Iterator[int]:
    """A file without a name, on no disk. Raises OSError."""
    fd = os.memfd_create("horae", os.MFD_CLOEXEC)
    try:
        write_all(fd, data)
        yield fd
    finally:
        os.close(fd)


class AskedFolder(Folder):
    """A job's folder whose files only its owner and the helper may reach; its own descriptor shows names."""

    def __init__(self, fd: int, path: str, asked: Asked, job: str) -> None:
        super().__init__(fd, path, one_mount=True)
        self._asked, self._job = asked, job

    def open_plain(self, name: str, flags: int = os.O_RDONLY) -> int | None:
        try:
            fd = self._asked.ask(helper.OPEN, self._job, name)
        except FileNotFoundError:
            return None
        if fd is None or not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unbelievable(self.name_of(name), "is not a plain file")
        return fd

    def replace(
        self, name: str, data: bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None, sync: bool = True
    ) -> None:
        with file_of(data) as file:
            self._asked.ask(helper.PUT, self._job, name, [file], flag=sync)

    def remove(self, name: str) -> None:
        self._asked.ask(helper.DROP, self._job, name)
