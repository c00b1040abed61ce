"""A file that a person named, opened to be read from its beginning to its end."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from pathlib import Path
from typing import cast


def opened(path: str | Path) -> io.BufferedReader:
    """A file, `-` for standard input, or a pipe that somebody writes (`<(zcat jobs.gz)` in a shell). A named pipe that
    nobody writes would be waited for, and a device has no end. Raises OSError."""
    if str(path) == "-":
        return _whole(_standard_input())
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    raw = io.FileIO(descriptor) if not stat.S_ISDIR(mode) else None
    if raw is None:
        os.close(descriptor)
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if (stat.S_ISCHR(mode) and not os.isatty(descriptor)) or stat.S_ISBLK(mode):
        raw.close()
        raise OSError(errno.EINVAL, "it is a device, and no file", str(path))
    first = raw.read(1 << 16) if stat.S_ISFIFO(mode) else None  # None: nothing was written yet
    if first == b"":
        raw.close()
        raise OSError(errno.EINVAL, "it is a pipe that nobody writes (`-` is standard input)", str(path))
    os.set_blocking(descriptor, True)
    if not stat.S_ISFIFO(mode):
        return io.BufferedReader(raw)
    with raw:
        return _whole((first or b"") + (raw.readall() or b""))


def _standard_input() -> bytes:
    if sys.stdin is None:  # closed by whoever started this
        raise OSError(errno.EBADF, "standard input is closed", "-")
    return sys.stdin.buffer.read()


def _whole(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content)))
