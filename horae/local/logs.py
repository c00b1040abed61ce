"""Reading a job's spool: from an offset, also over rotation and truncation, and never anything but a plain file."""

from __future__ import annotations

import os
import stat

from horae.elastic.spool import rotated
from horae.port import JobId, LogChunk


class LogReader:
    def __init__(self) -> None:
        self._truncations: dict[JobId, int] = {}

    def read(self, job: JobId, path: str, offset: int, limit: int) -> LogChunk:
        """At most `limit` bytes from `offset`. An offset beyond the end starts over: the file was replaced.

        Raises OSError. A spool is its owner's to write: a link, a device or a pipe in its place is not followed.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return LogChunk(b"", 0, identity="none")
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(f"{path} is not a plain file")
            if offset > found.st_size:
                self._truncations[job] = self._truncations.get(job, 0) + 1
                offset = 0
            data = os.pread(fd, max(0, min(limit, found.st_size - offset)), max(0, offset))
            generation = (rotated(path) or [0])[-1]
            identity = f"{found.st_ino}.{generation}.{self._truncations.get(job, 0)}"
            end = max(0, offset) + len(data)
            return LogChunk(data, end, identity=identity, eof=end >= found.st_size)
        finally:
            os.close(fd)
