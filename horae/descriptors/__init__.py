"""Folders and files that somebody else may change at any moment, reached by descriptors.

`Folder` holds an open directory; what is in it is reached by `openat` and `O_NOFOLLOW`, so that a link planted in
between leads nowhere and a folder that is swapped stays the one that was opened. Nothing is parsed here, and nothing
but the standard library is needed: this is all of `horae/untrusted.py` that what runs as root loads.

`Unbelievable` says which file of a job cannot be believed and why. It costs that job. What is ours (no descriptors
left, no memory, no room on the disk) stays an `OSError`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

#: What a small document may have.
MOST_BYTES = 1 << 16
#: Names in a folder.
MOST_NAMES = 4096
#: Folders within each other that are given away.
DEEP = 32

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: openat2(2), of the same number on all machines but Alpha, and how it opens: no mount is entered, no link followed.
_OPENAT2, _STAY = 437, 0x01 | 0x04
_LIBC = ctypes.CDLL(None, use_errno=True)
#: Errors that no user's file can cause by itself: not his job's alone.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EBADF})
_ODD = {
    errno.ELOOP: "is a link",
    errno.ENXIO: "is not a plain file",
    errno.EISDIR: "is a folder",
    errno.ENOTDIR: "is not a folder",
    errno.EXDEV: "is on another file system, which was mounted there",
    errno.EWOULDBLOCK: "is held open by somebody so that it cannot be read",
}


class Unbelievable(Exception):
    """This job's file cannot be believed: why, for people."""

    def __init__(self, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(f"{where} {why}")


@contextmanager
def _his(where: str) -> Iterator[None]:
    """What goes wrong here is the folder's owner's doing, unless this process or the disk is at its end."""
    try:
        yield
    except OSError as error:
        raise _blamed(where, error) from None


def _blamed(where: str, error: OSError) -> OSError | Unbelievable:
    if error.errno in _OURS:
        return error
    return Unbelievable(where, _ODD.get(error.errno or 0) or f"cannot be used: {error.strerror or error}")


class Folder:
    """An open directory that its owner may change at any moment. Closes with `with` or `close`."""

    def __init__(self, fd: int, path: str, one_mount: bool = False) -> None:
        """Takes the descriptor over; `path` is for messages only."""
        self.fd, self.path, self._one_mount = fd, path, one_mount

    @classmethod
    def open(cls, root: str | Path, *names: str, one_mount: bool = False) -> Folder:
        """The folder `names` below `root`, no link followed below it; with `one_mount` no mount entered either.

        Raises OSError for the root, FileNotFoundError for a name that is not there, Unbelievable for anything else.
        """
        folder = cls(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(root), one_mount)
        for name in names:
            try:
                inner = folder.below(name)
            finally:
                folder.close()
            folder = inner
        return folder

    def below(self, name: str) -> Folder:
        """A folder in it. Raises FileNotFoundError, Unbelievable."""
        where = self.name_of(name)
        try:
            return Folder(self._openat(name, _FOLDER), where, self._one_mount)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _blamed(where, error) from None

    def make(self, name: str, mode: int = 0o700) -> Folder:
        """A new folder in it, open. Raises OSError (FileExistsError too)."""
        os.mkdir(_plain(name), mode, dir_fd=self.fd)
        return self.below(name)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def name_of(self, name: str) -> str:
        """For messages."""
        return f"{self.path}/{name}"

    def _openat(self, name: str, flags: int) -> int:
        """Raises OSError; EXDEV for a mount that is not to be entered."""
        if not self._one_mount:
            return os.open(_plain(name), flags, dir_fd=self.fd)
        sys.audit("open", name, None, flags)
        how = struct.pack("QQQ", flags, 0, _STAY)
        while (fd := _LIBC.syscall(_OPENAT2, self.fd, os.fsencode(_plain(name)), how, len(how))) < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSYS, errno.EPERM):  # a kernel before 5.6, or a filter that does not know the call
                return os.open(name, flags, dir_fd=self.fd)
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), name)
        return int(fd)

    # --- looking ------------------------------------------------------------------------------------------

    def stat(self) -> os.stat_result:
        return os.fstat(self.fd)

    def lstat(self, name: str) -> os.stat_result | None:
        """None where there is nothing. Raises Unbelievable."""
        try:
            fd = self._openat(name, _PATH)
            try:
                return os.fstat(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _blamed(self.name_of(name), error) from None

    def names(self, most: int = MOST_NAMES) -> list[str]:
        """Raises Unbelievable where there are more than `most`."""
        found: list[str] = []
        with _his(self.path), os.scandir(self.fd) as entries:
            for entry in entries:
                if len(found) == most:
                    raise Unbelievable(self.path, f"holds more than {most} names")
                found.append(entry.name)
        return found

    def open_plain(self, name: str, flags: int = _READ) -> int | None:
        """A regular file's descriptor, None where there is nothing. Never waits. Raises Unbelievable."""
        where = self.name_of(name)
        try:
            fd = self._openat(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _blamed(where, error) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Unbelievable(where, "is not a plain file")
        return fd

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """A whole small file, None where there is none. Raises Unbelievable, also for one that is larger."""
        fd = self.open_plain(name)
        if fd is None:
            return None
        try:
            with _his(self.name_of(name)):
                if os.fstat(fd).st_size > most:
                    raise Unbelievable(self.name_of(name), f"is larger than {most} bytes")
                data = _up_to(fd, most + 1)
        finally:
            os.close(fd)
        if len(data) > most:  # it grew meanwhile
            raise Unbelievable(self.name_of(name), f"is larger than {most} bytes")
        return data

    def held(self, name: str) -> bool:
        """Whether somebody holds the lock that this file is. Raises Unbelievable."""
        fd = self.open_plain(name)
        if fd is None:
            return False
        try:
            with _his(self.name_of(name)):
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
        finally:
            os.close(fd)
        return False

    # --- changing -----------------------------------------------------------------------------------------

    def replace(
        self, name: str, data: bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None, sync: bool = True
    ) -> None:
        """The file `name` is `data` afterwards, whole, or as it was. `owner`: (uid, gid) to give it to.

        Mode and owner are set on the descriptor of a file made anew, before it gets its name.
        Raises Unbelievable where a folder of that name is in the way, OSError, which names the file, where the disk is
        full.
        """
        try:
            self._replace(name, data, mode, owner, sync)
        except OSError as error:
            error.filename, error.filename2 = self.name_of(name), None  # the temporary name is another at each try
            raise

    def _replace(self, name: str, data: bytes, mode: int, owner: tuple[int, int] | None, sync: bool) -> None:
        temporary = f".{_plain(name)}.{os.getpid()}.{os.urandom(6).hex()}"
        where = self.name_of(name)
        with _his(where):
            fd = os.open(temporary, _NEW, 0o600, dir_fd=self.fd)
        try:
            try:
                _write_all(fd, data)
                os.fchmod(fd, mode)
                if owner is not None:
                    os.fchown(fd, *owner)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            with _his(where):
                os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self.fd)
            raise
        if sync:
            self.sync()

    def sync(self) -> None:
        """Make renames durable, where the filesystem can."""
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise

    def remove(self, name: str) -> None:
        """A file or a link goes; a folder of that name is moved aside, for its owner to keep. Raises Unbelievable."""
        with _his(self.name_of(name)):
            try:
                os.unlink(_plain(name), dir_fd=self.fd)
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):  # POSIX leaves the choice of the error open
                aside = f"{name}.odd-{os.urandom(4).hex()}"
                os.rename(name, aside, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def rename_to(self, name: str, other: Folder, new: str) -> None:
        """Raises OSError."""
        os.rename(_plain(name), _plain(new), src_dir_fd=self.fd, dst_dir_fd=other.fd)

    # --- giving away --------------------------------------------------------------------------------------

    def give(self, uid: int, gid: int, mode: int | None = None, deep: int = DEEP) -> None:
        """This folder and all in it become somebody's: what is in it first, itself last, each by its descriptor.

        For a folder that only we could write so far. Raises Unbelievable for what is neither file nor folder, or has
        a second name elsewhere: that would be given away too.
        """
        for name in self.names():
            found = self.lstat(name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                if deep == 0:
                    raise Unbelievable(self.name_of(name), "lies too deep")
                with self.below(name) as inner:
                    inner.give(uid, gid, deep=deep - 1)
                continue
            fd = self.open_plain(name)
            if fd is None:
                continue
            try:
                if os.fstat(fd).st_nlink != 1:
                    raise Unbelievable(self.name_of(name), "has a second name elsewhere")
                os.fchown(fd, uid, gid)
            finally:
                os.close(fd)
        if mode is not None:
            os.fchmod(self.fd, mode)
        os.fchown(self.fd, uid, gid)


def _plain(name: str) -> str:
    """A single name, never a path."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file's name")
    return name


def _up_to(fd: int, most: int) -> bytes:
    parts, left = [], most
    while left:
        part = os.read(fd, left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
