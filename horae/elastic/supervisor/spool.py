"""The spool: one file with what all ranks of all starts of a job wrote.

A spool never stops a job. What cannot be written (a full disk) is dropped and counted, and the count is written
down as soon as there is room again. Nothing here holds more than one piece of output in memory: a line without an
end is passed on in pieces.
"""

import errno
import os
import stat
import time
from typing import Optional

from ..files import remove

#: A rank's line is passed on at this length even without its newline.
_LONGEST_LINE = 64 * 1024
#: So often a line that is written over and over (a progress bar) is passed on as far as it has come.
_BAR_S = 10.0
#: Default size at which the spool is rotated; one older generation is kept.
DEFAULT_LIMIT = 1 << 30


class Spool:
    """Appends to `path`. At `limit` bytes (0: never) the file becomes `path.N`, N counting up; a new one begins."""

    def __init__(self, path: str, limit: int = DEFAULT_LIMIT, echo: Optional[int] = None) -> None:
        self.path = path
        self.limit = limit
        self.keep_free = 0  #: bytes that are left on the disk, for those who share it
        self.dropped = 0  #: bytes, since the spool was opened
        self._unreported = 0
        self._why = ""
        self._size = 0
        self._fd: Optional[int] = None
        self._echo = echo  #: descriptor that gets a copy (a batch job's own output)
        self._open()

    def write(self, data: bytes) -> None:
        if self._echo is not None:
            self._copy(data)
        if self._unreported and not self._report():
            self._drop(data)
            return
        self._put(data)

    def close(self) -> None:
        if self._unreported:
            self._report()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # --- the file -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._fd = os.open(self.path, flags, self._mode())
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self._fd = None
            self._why = error.strerror or str(error)

    def _mode(self) -> int:
        """What a job says is nobody else's to read, where its folder is open to all."""
        above = os.stat(os.path.dirname(self.path) or ".")
        return 0o600 if above.st_mode & stat.S_IWOTH else 0o644

    def _put(self, data: bytes) -> None:
        if self.limit and self._size and self._size + len(data) > self.limit:
            self._rotate()
        if self._fd is None:
            self._open()
        view = memoryview(data)
        while view and self._fd is not None:
            try:
                if self.keep_free:
                    self._check_room(len(view))
                written = os.write(self._fd, view)
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise
                self._why = error.strerror or str(error)
                break
            self._size += written
            view = view[written:]
        if view:
            self._drop(bytes(view))

    def _check_room(self, more: int) -> None:
        """Raises OSError where less than `keep_free`, or a twentieth of a small disk, would be left."""
        assert self._fd is not None
        disk = os.fstatvfs(self._fd)
        kept = min(self.keep_free, disk.f_blocks * disk.f_frsize // 20)
        if disk.f_bavail * disk.f_frsize - more < kept:
            raise OSError(errno.ENOSPC, "less than %d bytes would be left on the disk" % kept)

    def _drop(self, data: bytes) -> None:
        self.dropped += len(data)
        self._unreported += len(data)

    def _report(self) -> bool:
        """Say what was dropped; True when there was room to say it."""
        line = b"\n[horae-exec] %d bytes of output were dropped: %s\n" % (self._unreported, self._why.encode())
        before, self._unreported = self._unreported, 0
        dropped = self.dropped
        self._put(line)
        if self._unreported:  # no room for the line either; it does not count as the job's output
            self._unreported, self.dropped = before, dropped
            return False
        return True

    def _rotate(self) -> None:
        generations = rotated(self.path)
        try:
            os.rename(self.path, "%s.%d" % (self.path, (generations[-1] if generations else 0) + 1))
            for generation in generations:
                remove("%s.%d" % (self.path, generation))
        except OSError as error:
            self._why = error.strerror or str(error)
            return
        if self._fd is not None:
            os.close(self._fd)
        self._open()

    def _copy(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._echo is not None:
            try:
                view = view[os.write(self._echo, view) :]
            except OSError:  # nobody listens any more; the spool has it all
                self._echo = None


def rotated(path: str) -> "list[int]":
    """Numbers of the older generations of a spool, ascending."""
    folder, name = os.path.split(path)
    found = []
    for entry in os.listdir(folder or "."):
        stem, _, number = entry.rpartition(".")
        if stem == name and number.isdigit():
            found.append(int(number))
    return sorted(found)


class Lines:
    """One rank's output on its way to the spool: whole lines with the rank before each, where there are several."""

    def __init__(self, spool: Spool, label: Optional[bytes]) -> None:
        self._spool = spool
        self._label = label
        self._rest = b""
        self._passed_s = time.monotonic()

    def feed(self, data: bytes) -> None:
        if self._label is None:
            self._spool.write(data)
            return
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) >= _LONGEST_LINE:
            # Another rank may write before this line ends: end it here, so that no line mixes two ranks.
            lines.append(rest)
            rest = b""
        bar, _, begun = rest.rpartition(b"\r")
        if bar and time.monotonic() - self._passed_s >= _BAR_S:
            lines.append(bar)
            rest = begun
        self._rest = rest
        if lines:
            self._passed_s = time.monotonic()
            self._spool.write(b"".join(self._label + line + b"\n" for line in lines))

    def end(self) -> None:
        if self._rest:
            self._spool.write((self._label or b"") + self._rest + b"\n")
            self._rest = b""
