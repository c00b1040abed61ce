"""The job folder: what the cluster adapter and the supervisor tell each other, and nothing else they share.

    spec.json   what to run                                            written once by the adapter
    epoch       the newest epoch handed out: the fence                 adapter, before each start
    stop        a checkpoint-and-leave is asked for: {epoch, grace_s}  adapter; removed before each start
    cancel      end it for good                                        adapter
    state.json  the supervisor's own account                           the holder of the lock
    lock        flock-held by whoever starts the job and then by the supervisor: the test of whether it lives
    output.log  what all ranks of all starts wrote                     supervisor

All files are replaced atomically. Only the holder of `lock` writes `state.json`.

Where there are no ACLs everybody may put files there, and whoever takes a name keeps it: the job could not say how it
ends. There the names of the supervisor's own files have a suffix that nobody can know before they are there, and
`output.log` is its owner's alone to read.
"""

import errno
import fcntl
import json
import os
import stat
import time
from typing import Any, Dict, Optional

from .. import protocol
from ..files import NO_ROOM, ours, read_ours, remove, sync_folder, write_all, write_atomic
from ..sdk.stopping import stop_asked

#: Room set aside for the two states that may still have to be written when the disk is full.
_RESERVE = 4096
#: What the adapter writes, whose folder it is: it may put its own in any other's place.
_TOLD = (protocol.SPEC_FILE, protocol.EPOCH_FILE, protocol.STOP_FILE, protocol.CANCEL_FILE)


class JobFolder:
    def __init__(self, path: str, suffix: str = "") -> None:
        self.path = os.path.abspath(path)
        self.suffix = suffix

    def file(self, name: str) -> str:
        """Of the supervisor's own, and of those that every adapter writes."""
        return os.path.join(self.path, name if name in _TOLD else name + self.suffix)

    # --- life ---------------------------------------------------------------------------------------------

    def take_lock(self) -> Optional[int]:
        """The lock as an open descriptor, None while somebody holds it. Inherited descriptors keep it held."""
        fd = os.open(
            self.file(protocol.LOCK_FILE),
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK,
            0o644,
        )
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        return fd

    def hold_quietly(self) -> None:
        """Take the lock for as long as this process lives, for those who look here; another one is what counts."""
        try:
            self.take_lock()
        except OSError:
            return  # whatever stands there: nobody relies on it

    def lives(self) -> bool:
        """Whether a supervisor lives. A shared attempt: two observers do not see each other as a supervisor."""
        try:
            fd = os.open(self.file(protocol.LOCK_FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return False
            raise
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return True
            raise
        finally:
            os.close(fd)
        return False

    # --- epoch --------------------------------------------------------------------------------------------

    def epoch(self) -> int:
        return read_epoch(self.file(protocol.EPOCH_FILE))

    def write_epoch(self, epoch: int) -> None:
        write_atomic(self.file(protocol.EPOCH_FILE), b"%d\n" % epoch)

    # --- requests -----------------------------------------------------------------------------------------

    def request_stop(self, epoch: int, grace_s: float) -> None:
        request = {"epoch": epoch, "grace_s": grace_s, "time_s": time.time()}
        write_atomic(self.file(protocol.STOP_FILE), json.dumps(request).encode() + b"\n")

    def stop_request(self, epoch: int) -> Optional[float]:
        """See `stopping.stop_asked`."""
        return stop_asked(self.file(protocol.STOP_FILE), epoch)

    def withdraw_stop(self) -> None:
        remove(self.file(protocol.STOP_FILE))

    def cancelled(self) -> bool:
        path = self.file(protocol.CANCEL_FILE)
        try:
            return ours(path, os.lstat(path))
        except OSError:
            return False

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> Optional[Dict[str, Any]]:
        """The last account written, None when there is none or it cannot be read as one."""
        data = read_ours(self.file(protocol.STATE_FILE))
        return None if data is None else _decode(data)

    def write_state(self, state: Dict[str, Any], sync: bool = True, reserve: bool = True) -> None:
        """Raises OSError and leaves the last account in place when there is no room, even in the reserve."""
        data = json.dumps(state).encode() + b"\n"
        try:
            write_atomic(self.file(protocol.STATE_FILE), data, sync)
        except OSError as error:
            if not reserve or error.errno not in NO_ROOM or len(data) > _RESERVE:
                raise
            self._write_into_reserve(data)

    def reserve_room(self) -> bool:
        """Set room aside for `write_state` on a full disk. False when there is none to set aside."""
        try:
            for name in self._reserves():
                if not os.path.exists(name):
                    write_atomic(name, b"\0" * _RESERVE, sync=False)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def free_reserve(self) -> None:
        for name in self._reserves():
            remove(name)

    def _reserves(self) -> "list[str]":
        return [self.file(".state.reserve-%d" % i) for i in (1, 2)]

    def _write_into_reserve(self, data: bytes) -> None:
        """Overwrite blocks that are already ours, then rename: needs no new block on a full disk."""
        for name in self._reserves():
            try:
                fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                write_all(fd, data + b" " * (_RESERVE - len(data)))
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(name, self.file(protocol.STATE_FILE))
            sync_folder(self.path)
            return
        raise OSError(errno.ENOSPC, "no room for the job's state, and its reserve is used up", self.path)


def own_suffix(path: str) -> str:
    """Behind the names of this user's own files in a job folder; drawn here where there is none yet. Raises OSError."""
    if not os.stat(path).st_mode & stat.S_IWOTH:
        return ""
    for name in sorted(os.listdir(path)):
        if name.startswith(protocol.LOCK_FILE + ".") and _is_mine(os.path.join(path, name)):
            return name[len(protocol.LOCK_FILE) :]
    suffix = ".%s" % os.urandom(8).hex()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(os.path.join(path, protocol.LOCK_FILE + suffix), flags, 0o644))
    return suffix


def _is_mine(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def read_epoch(path: str) -> int:
    """The number in an epoch file; 0 when there is none."""
    data = read_ours(path, 64)
    text = (data or b"").strip()
    return int(text) if text.isdigit() else 0


def _decode(data: bytes) -> Optional[Dict[str, Any]]:
    try:
        value = json.loads(data.decode())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
