"""The part of the local cluster that is root where the arbiter has its own account: operations, and rules for them.

    SOCKET STATE PYTHON LEAST ACCOUNT      its words, by `confine.py`, before the arbiter gives up being root

It answers the one socket that it was started with (a SOCK_SEQPACKET), a request at a time, and ends when
nobody holds the other end. A request has one size and these fields, and as many descriptors as its verb takes:

    verb, flag, number, job, word         as `REQUEST` packs them: a byte, a byte, an int, two texts padded with zeros
    MAKE   a folder for a job of user `word`; descriptor: its spec.json
    OPEN   a descriptor: of the job's folder (for its names), or of a plain file of its owner's, of `operations.READ`
    PUT    a file of its owner's, of `operations.WRITTEN`; descriptor: what is in it. flag: on the disk when it answers
    DROP   such a file goes
    START  the job's keeper, for user `word`, whose folder it must be; descriptors: the lock, what to run
    SIGNAL number, to the keeper: USR1 (look), USR2 (kill all), 0 (only whether it lives)
    KILL   what user `word` runs under the mark of the job
    CLEAR  the folder, once no keeper lives

An answer is a code, and two texts: 0; an errno; or `UNBELIEVABLE` with the file and why. A request that breaks a rule
is refused with EPERM and why, and the next one is answered. The rules are few, and no arbiter can change them: never a
user below LEAST, never root, never the arbiter's account; names of jobs and files as above; job folders in the folder
that was STATE/jobs when this began, which is root's alone. What a user or the arbiter wrote is moved, never read.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from horae.descriptors import Folder, Unbelievable
from horae.local import operations
from horae.local.operations import JOB, JOBS, KEEPERS, Operations

REQUEST, ANSWER = struct.Struct("=BBi256s256s"), struct.Struct("=i512s512s")
MAKE, OPEN, PUT, DROP, START, SIGNAL, KILL, CLEAR = range(1, 9)
UNBELIEVABLE = -1
#: Of a specification, which may carry a long environment, and of any other file.
MOST_BYTES = 8 << 20
_MOST_DESCRIPTORS = 8
_SIGNALS = frozenset([0, signal.SIGUSR1, signal.SIGUSR2])


class Refused(Exception):
    """It breaks a rule."""


class Confined(Operations):
    """In folders that were root's alone when they were opened, whatever stands in their places later."""

    def __init__(self, state: Path, python: str) -> None:
        super().__init__(state, python, os.environ)
        self.make_folders()
        self._held = {name: _roots(state, name) for name in (JOBS, KEEPERS)}

    def _folder(self, name: str) -> Folder:
        held = self._held[name]
        return Folder(os.dup(held.fd), held.path, one_mount=True)


def _roots(state: Path, name: str) -> Folder:
    """A folder that nobody but root can write. Raises OSError, Unbelievable, Refused."""
    with Folder.open(state) as outer:
        folder = outer.below(name)
    found = folder.stat()
    if found.st_uid != 0 or found.st_mode & 0o022 or (name == KEEPERS and found.st_mode & 0o077):
        raise Refused(f"{folder.path} is not root's alone: chown root {folder.path}; chmod go-w {folder.path}")
    return folder


class Helper:
    def __init__(self, at: Operations, least: int, account: int) -> None:
        self._operations, self._least, self._account = at, least, account
        #: verb -> how many descriptors it takes, and what answers it
        self._verbs: dict[int, tuple[int, Callable[[str, str, bool, int, Sequence[int]], int | None]]] = {
            MAKE: (1, self._make),
            OPEN: (0, self._open),
            PUT: (1, self._put),
            DROP: (0, self._drop),
            START: (2, self._start),
            SIGNAL: (0, self._signal),
            KILL: (0, self._kill),
            CLEAR: (0, self._clear),
        }

    def serve(self, peer: socket.socket) -> None:
        """Until nobody holds the other end."""
        while True:
            data, given, flags, _ = socket.recv_fds(peer, REQUEST.size + 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            try:
                if not data and not given:
                    return
                self._operations.close()
                answer, made = self.answer(data, given, flags)
            finally:
                for fd in given:
                    os.close(fd)
            try:
                socket.send_fds(peer, [answer], [] if made is None else [made])
            except ConnectionError:
                return
            finally:
                if made is not None:
                    os.close(made)

    def answer(self, data: bytes, given: Sequence[int], flags: int = 0) -> tuple[bytes, int | None]:
        """(an answer, a descriptor to go with it). Never raises: the next request is another one."""
        try:
            made = self._answered(data, given, flags)
        except Unbelievable as odd:
            return _packed(UNBELIEVABLE, odd.where, str(odd).removeprefix(odd.where).strip()), None
        except Refused as why:
            return _packed(errno.EPERM, "refused", str(why)), None
        except OSError as error:
            return _packed(error.errno or errno.EIO, str(error.filename or ""), error.strerror or str(error)), None
        except Exception as error:  # noqa: BLE001 - whatever was asked, others' jobs need the next answer
            return _packed(errno.EINVAL, "helper", f"{type(error).__name__}: {error}"), None
        return _packed(0, "", ""), made

    def _answered(self, data: bytes, given: Sequence[int], flags: int) -> int | None:
        if len(data) != REQUEST.size or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Refused(f"a request has {REQUEST.size} bytes, and at most {_MOST_DESCRIPTORS} descriptors")
        verb, flag, number, job, word = REQUEST.unpack(data)
        if verb not in self._verbs or flag not in (0, 1):
            raise Refused("there is no such verb")
        takes, does = self._verbs[verb]
        if len(given) != takes or not all(stat.S_ISREG(os.fstat(fd).st_mode) for fd in given):
            raise Refused(f"verb {verb} takes {takes} descriptors of files, and no others")
        name = _text(job)
        if not JOB.fullmatch(name):
            raise Refused("that is no job's name")
        return does(name, _text(word), flag == 1, number, given)

    # --- verbs --------------------------------------------------------------------------------------------

    def _make(self, job: str, user: str, _flag: bool, _number: int, given: Sequence[int]) -> None:
        self._admitted(user)
        self._operations.make(job, _bytes(given[0]), user)

    def _open(self, job: str, name: str, _flag: bool, _number: int, _given: Sequence[int]) -> int:
        with self._his(job) as folder:
            if not name:
                return os.dup(folder.fd)
            if name not in operations.READ:
                raise Refused("that is no file that is read")
            fd = folder.open_plain(name)
            if fd is None:
                raise FileNotFoundError(errno.ENOENT, "there is none", folder.name_of(name))
            if os.fstat(fd).st_uid != folder.stat().st_uid:
                os.close(fd)
                raise Unbelievable(folder.name_of(name), "is another user's file")
            return fd

    def _put(self, job: str, name: str, sync: bool, _number: int, given: Sequence[int]) -> None:
        if name not in operations.WRITTEN:
            raise Refused("that is no file that is written")
        with self._his(job) as folder:
            operations.put(folder, name, _bytes(given[0]), sync)

    def _drop(self, job: str, name: str, _flag: bool, _number: int, _given: Sequence[int]) -> None:
        if name not in operations.WRITTEN:
            raise Refused("that is no file that is written")
        with self._his(job) as folder:
            folder.remove(name)

    def _start(self, job: str, user: str, _flag: bool, _number: int, given: Sequence[int]) -> None:
        entry = self._admitted(user)
        with self._his(job) as folder:
            if folder.stat().st_uid != entry.pw_uid:
                raise Refused(f"{job} is another user's job")
        if os.fstat(given[1]).st_size > MOST_BYTES:
            raise Refused(f"what to run has more than {MOST_BYTES} bytes")
        if self._operations.signal(job, 0):
            raise BlockingIOError(errno.EAGAIN, "its keeper lives", job)
        self._operations.start(job, user, given[0], given[1])

    def _signal(self, job: str, _word: str, _flag: bool, number: int, _given: Sequence[int]) -> None:
        if number not in _SIGNALS:
            raise Refused("that is no signal that a keeper is sent")
        if not self._operations.signal(job, number):
            raise ProcessLookupError(errno.ESRCH, "no keeper", job)

    def _kill(self, job: str, user: str, _flag: bool, _number: int, _given: Sequence[int]) -> None:
        self._admitted(user)
        self._operations.kill_left(job, user)

    def _clear(self, job: str, _word: str, _flag: bool, _number: int, _given: Sequence[int]) -> None:
        if self._operations.signal(job, 0):
            raise BlockingIOError(errno.EAGAIN, "its keeper lives", job)
        self._operations.clear(job)

    # --- rules --------------------------------------------------------------------------------------------

    def _admitted(self, user: str) -> pwd.struct_passwd:
        """Raises Refused for whom nothing is done here."""
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise Refused("there is no such user") from None
        self._uid(entry.pw_uid)
        return entry

    def _uid(self, uid: int) -> None:
        if uid == 0 or uid < self._least or uid == self._account:
            raise Refused(f"nothing is done for user {uid}: root, the arbiter's own or one below {self._least}")

    def _his(self, job: str) -> Folder:
        """A job's folder, of somebody for whom something is done. Raises OSError, Unbelievable."""
        folder = self._operations.open(job)
        try:
            self._uid(folder.stat().st_uid)
        except Refused as why:
            folder.close()
            raise Unbelievable(folder.path, str(why)) from None
        return folder


def _text(field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise Refused("a text goes on behind its end")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Refused("a text is not UTF-8") from None


def _bytes(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    if size > MOST_BYTES:
        raise Refused(f"a file has more than {MOST_BYTES} bytes")
    data = b""
    while len(data) < size and (part := os.pread(fd, size - len(data), len(data))):
        data += part
    return data


def _packed(code: int, where: str, why: str) -> bytes:
    return ANSWER.pack(code, *(text.encode(errors="replace")[:511] for text in (where, why)))


def main(arguments: Sequence[str]) -> None:
    peer_fd, state, python, least, account = arguments
    with socket.socket(fileno=int(peer_fd)) as peer:
        try:
            at = Confined(Path(state), python)
            at.leftovers()
        except (OSError, Unbelievable, Refused) as error:
            peer.send(_packed(errno.EPERM, "", str(error)))
            return
        peer.send(_packed(0, "", ""))
        Helper(at, int(least), int(account)).serve(peer)


if __name__ == "__main__":
    main(sys.argv[1:])
