"""Small files that must be whole or absent: write, rename, and survive a power cut."""

import contextlib
import errno
import os
import stat
from typing import Callable, Iterator, Optional

#: Errors that mean "no room now, perhaps later".
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: str) -> None:
    """Make renames in `folder` durable, where the filesystem can (some network ones cannot)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def write_atomic(path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
    """Replace `path` by `data`, or leave it as it is and raise OSError, which names `path`.

    The temporary name is made anew (`O_EXCL`, `O_NOFOLLOW`): in a folder that a user may write to, a planted link
    is not followed.
    """
    try:
        _write_atomic(path, data, sync, mode)
    except OSError as error:
        error.filename, error.filename2 = path, None  # the temporary name is another at each try
        raise


def _write_atomic(path: str, data: bytes, sync: bool, mode: int) -> None:
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, ".%s.%d.%s" % (name, os.getpid(), os.urandom(4).hex()))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    if sync:
        sync_folder(folder or ".")


@contextlib.contextmanager
def saved(path: "os.PathLike[str]") -> Iterator[str]:
    """A name to write to instead of `path`, which a person chose: `path` is what was written when the block ends well,
    and as it was before otherwise. What is no file (a pipe, a device) is written as it comes. Raises OSError.
    """
    try:
        known = os.stat(path)  # type: Optional[os.stat_result]
    except FileNotFoundError:
        known = None
    if known is not None and not stat.S_ISREG(known.st_mode):
        yield os.fspath(path)
        return
    folder, name = os.path.split(os.path.realpath(path))
    beside = os.path.join(folder, ".%s-%s" % (os.urandom(4).hex(), name[-200:]))  # its ending says the form
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            if known is not None:
                with contextlib.suppress(PermissionError):  # another's file that one may replace becomes one's own
                    os.fchown(fd, known.st_uid, known.st_gid)
                os.fchmod(fd, stat.S_IMODE(known.st_mode))
            yield beside
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, os.path.join(folder, name))
    except BaseException as error:
        remove(beside)
        if isinstance(error, OSError) and error.filename in (None, beside):
            error.filename = os.fspath(path)
        raise


def write_mark(path: str, data: bytes, sync: bool = True) -> None:
    """As `write_atomic`; on a full disk over what is there, if that is as long: into the same block."""
    try:
        write_atomic(path, data, sync)
    except OSError as error:
        if error.errno not in NO_ROOM or not os.path.lexists(path):
            raise
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != len(data):
                raise
            os.pwrite(fd, data, 0)
        finally:
            os.close(fd)


def ours(path: str, found: os.stat_result) -> bool:
    """Whether a file of a job folder is root's, this user's, or of whoever the folder is: where there are no ACLs
    everybody may put files there."""
    return found.st_uid in (0, os.geteuid(), os.stat(os.path.dirname(path) or ".").st_uid)


def anybodys(folder: str) -> bool:
    """Whether any user may have written into this folder, or have made it, where it was to be: one of another user's,
    or those around it that are his too, right in a folder in which everybody may write."""
    path = os.path.realpath(folder)
    found = os.stat(path)
    maker = found.st_uid
    while not found.st_mode & stat.S_IWOTH:
        above = os.path.dirname(path)
        if maker in (0, os.geteuid()) or found.st_uid != maker or above == path:
            return False
        path, found = above, os.stat(above)
    return True


def owner_here(folder: str) -> int:
    """Whose what this process makes there is shown to be: some file systems know one user alone."""
    trial = os.path.join(folder, ".trial.%s" % os.urandom(4).hex())
    try:
        os.mkdir(trial)
        try:
            return os.stat(trial).st_uid
        finally:
            os.rmdir(trial)
    except OSError:
        return os.geteuid()


def read_ours(path: str, limit: int = 1 << 20) -> Optional[bytes]:
    """As `read_bytes`; None too for a file that anybody else put there."""
    return read_bytes(path, limit, believed=ours)


def read_bytes(
    path: str, limit: int = 1 << 20, believed: Callable[[str, os.stat_result], bool] = lambda _path, _found: True
) -> Optional[bytes]:
    """The first `limit` bytes of a regular file, None when there is none. Links are not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    try:
        if not believed(path, os.fstat(fd)):
            return None
        data = b""
        while len(data) < limit:
            more = os.read(fd, limit - len(data))
            if not more:
                break
            data += more
        return data
    except IsADirectoryError:
        return None
    finally:
        os.close(fd)


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def unwritable(folder: str) -> str:
    """Why nothing can be written into `folder`, which need not be there yet; "": it can. Leaves nothing behind."""
    made, path = [], os.path.abspath(folder)
    try:
        while not os.path.lexists(path):
            made.append(path)
            path = os.path.dirname(path)
        for each in reversed(made):
            os.mkdir(each)
        trial = os.path.join(folder, ".trial.%s" % os.urandom(4).hex())
        write_atomic(trial, b"checkpoints can be written here\n")
        os.unlink(trial)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for each in made:
            try:
                os.rmdir(each)
            except OSError:
                break  # it was not made, or somebody uses it already
    return ""
