"""The spool over SFTP: files that users may write, on a host that is reached by SSH alone."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import secrets
import stat as modes
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import paramiko

from horae.port import TryLater
from horae.untrusted import MOST_NAMES, Unbelievable
from slurm_plugin.files.transport import Completed, Part, not_theirs, part_of

#: To open and read a file of a user's. Who made us wait longer is not asked again for a while.
_THEIRS_S, _NOT_AGAIN_S = 10.0, 600.0
T = TypeVar("T")


class Unanswered(TryLater):
    """A request for a file was sent, and nothing came."""


class Connection(Protocol):
    """What carries it (`ssh.SshTransport`)."""

    def with_sftp(self, do: Callable[[paramiko.SFTPClient], T], seconds: float | None = None) -> T: ...

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> Completed: ...


class SftpFiles:
    """The spool on the other side. The connection is the transport's; it is opened again after a break.

    SFTP has no `openat`. The folders above a job's own are ours, so that only the last name of a path can be a user's:
    that one is made anew (O_EXCL follows no link), changed by its handle, and read by a handle whose owner was asked.
    SFTP has no O_NONBLOCK either: a pipe that takes a file's place after we looked makes us wait. Where the other side
    answers otherwise, that is its owner's fault, and costs the owner alone.
    """

    def __init__(self, transport: Connection) -> None:
        self._transport = transport
        self._not_before: dict[int, float] = {}  #: owner -> when their files are looked at again, monotonic

    def _theirs(self, path: str, owner: int, do: Callable[[paramiko.SFTPClient], T]) -> T:
        if time.monotonic() < self._not_before.get(owner, 0.0):
            raise Unbelievable(path, "is of somebody whose files made us wait")
        try:
            return self._transport.with_sftp(do, _THEIRS_S)
        except Unanswered:
            self._transport.with_sftp(lambda sftp: sftp.normalize("."))  # else it is the host that does not answer
            self._not_before[owner] = time.monotonic() + _NOT_AGAIN_S
            raise Unbelievable(path, f"was not read within {_THEIRS_S:g} s: is it a pipe?") from None
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, path) from error  # SFTP's answers name no file

    def read(self, root: str, *names: str, owner: int | None = None, most: int = 1 << 16) -> bytes | None:
        path = posixpath.join(root, *names)

        def do(sftp: paramiko.SFTPClient) -> bytes | None:
            try:
                data = _opened(sftp, path, owner, 0, most + 1)[0]
            except FileNotFoundError:
                return None
            if len(data) > most:
                raise Unbelievable(path, f"is larger than {most} bytes")
            return data

        return self._transport.with_sftp(do) if owner is None else self._theirs(path, owner, do)

    def stat(self, root: str, *names: str) -> os.stat_result | None:
        def do(sftp: paramiko.SFTPClient) -> os.stat_result | None:
            try:
                return _stat_of(sftp.lstat(posixpath.join(root, *names)))
            except FileNotFoundError:
                return None

        return self._transport.with_sftp(do)

    def replace(self, root: str, *names: str, data: bytes, mode: int = 0o644, durable: bool = True) -> None:
        self._transport.with_sftp(lambda sftp: _replace(sftp, posixpath.join(root, *names), data, mode))

    def make(self, path: str, mode: int = 0o755) -> None:
        def do(sftp: paramiko.SFTPClient) -> None:
            parts = [path]
            while posixpath.dirname(parts[-1]) not in {parts[-1], ""}:
                parts.append(posixpath.dirname(parts[-1]))
            for part in reversed(parts):
                try:
                    if not modes.S_ISDIR(sftp.stat(part).st_mode or 0):
                        raise NotADirectoryError(20, "Not a directory", part)
                except FileNotFoundError:
                    sftp.mkdir(part, mode)
                    sftp.chmod(part, mode)

        self._transport.with_sftp(do)

    def entrust(self, root: str, *names: str, uid: int, first: Mapping[str, bytes]) -> None:
        path = posixpath.join(root, *names)
        hidden = posixpath.join(posixpath.dirname(path), f".{names[-1]}.{secrets.token_hex(6)}")
        if self.stat(path) is not None:
            raise FileExistsError(errno.EEXIST, "exists", path)

        def make(sftp: paramiko.SFTPClient) -> bool:
            sftp.mkdir(hidden, 0o700)
            for name, data in first.items():
                _replace(sftp, f"{hidden}/{name}", data, 0o644)
            try:
                sftp.chown(hidden, uid, sftp.lstat(hidden).st_gid or 0)
            except PermissionError:
                return False
            return True

        if not self._transport.with_sftp(make):
            words = ["setfacl", "-m", f"u:{uid}:rwx,g::-,o::-", hidden]
            if self._transport.run(words).rc != 0:
                self._transport.with_sftp(lambda sftp: sftp.chmod(hidden, 0o1777))
        self._transport.with_sftp(lambda sftp: sftp.posix_rename(hidden, path))

    def remove(self, root: str, *names: str) -> None:
        def do(sftp: paramiko.SFTPClient) -> None:
            path = posixpath.join(root, *names)
            try:
                sftp.remove(path)
            except FileNotFoundError:
                return
            except OSError:
                if not _set_aside(sftp, path):
                    raise

        self._transport.with_sftp(do)

    def weigh(self, root: str, *names: str, most: int = MOST_NAMES) -> dict[str, tuple[float, int]]:
        def do(sftp: paramiko.SFTPClient) -> dict[str, tuple[float, int]]:
            try:
                found = sftp.listdir_attr(posixpath.join(root, *names))
            except FileNotFoundError:
                return {}
            if len(found) > most:
                raise Unbelievable(posixpath.join(root, *names), f"holds more than {most} names")
            return {each.filename: (float(each.st_mtime or 0), each.st_size or 0) for each in found}

        return self._transport.with_sftp(do)

    def discard(self, root: str, *names: str) -> None:
        def do(sftp: paramiko.SFTPClient) -> None:
            path = posixpath.join(root, *names)  # in a folder of ours: nobody else can put a link in its place
            for name in sftp.listdir(path):
                sftp.remove(posixpath.join(path, name))
            sftp.rmdir(path)

        self._transport.with_sftp(do)

    def part(self, path: str, offset: int, limit: int, owner: int) -> Part | None:
        def do(sftp: paramiko.SFTPClient) -> Part | None:
            try:
                data, found = _opened(sftp, path, owner, offset, limit)
            except FileNotFoundError:
                return None
            # SFTP tells no inode: a file that is replaced by a longer one looks like the same one that grew
            start, identity = part_of(offset, found.st_size or 0, "sftp")
            return Part(data, start, found.st_size or 0, identity)

        return self._theirs(path, owner, do)

    def names(self, path: str, owner: int) -> list[str]:
        def do(sftp: paramiko.SFTPClient) -> list[str]:
            try:
                found = sftp.stat(path)
                if found.st_uid != owner or not modes.S_ISDIR(found.st_mode or 0):
                    raise Unbelievable(path, "is not a folder of the job's owner")
                return [each.filename for each in islice(sftp.listdir_iter(path), MOST_NAMES)]
            except FileNotFoundError:
                return []

        return self._theirs(path, owner, do)

    def size(self, path: str) -> int | None:
        found = self.stat(path)
        return found.st_size if found is not None and modes.S_ISREG(found.st_mode) else None


def _opened(
    sftp: paramiko.SFTPClient, path: str, owner: int | None, offset: int, limit: int
) -> tuple[bytes, paramiko.SFTPAttributes]:
    def theirs(found: paramiko.SFTPAttributes) -> bool:
        return modes.S_ISREG(found.st_mode or 0) and owner in {None, found.st_uid}

    if not theirs(sftp.stat(path)):  # before: opening a pipe would wait, opening a device may do anything
        raise not_theirs(path)
    with sftp.open(path, "rb") as file:
        found = file.stat()
        if not theirs(found):
            raise not_theirs(path)
        file.seek(part_of(offset, found.st_size or 0, "")[0])
        return file.read(limit), found


def _replace(sftp: paramiko.SFTPClient, path: str, data: bytes, mode: int) -> None:
    temporary = posixpath.join(posixpath.dirname(path), f".horae-{secrets.token_hex(6)}")
    try:
        with sftp.open(temporary, "wx") as file:  # a new one, or none
            file.chmod(mode)
            file.write(data)
        try:
            sftp.posix_rename(temporary, path)
        except OSError:
            if not _set_aside(sftp, path):
                raise
            sftp.posix_rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            sftp.remove(temporary)
        raise


def _set_aside(sftp: paramiko.SFTPClient, path: str) -> bool:
    """A folder of a user's that has one of our names, with whatever is in it, loses it. False for anything else."""
    try:
        if not modes.S_ISDIR(sftp.lstat(path).st_mode or 0):
            return False
    except FileNotFoundError:
        return False
    sftp.posix_rename(path, posixpath.join(posixpath.dirname(path), f".gone-{secrets.token_hex(6)}"))
    return True


def _stat_of(found: paramiko.SFTPAttributes) -> os.stat_result:
    values = (
        found.st_mode, 0, 0, 0, found.st_uid, found.st_gid, found.st_size, found.st_atime, found.st_mtime,
    )  # fmt: skip
    return os.stat_result((*(value or 0 for value in values), found.st_mtime or 0))
