"""One arbiter a state folder: an exclusive `flock`, which the kernel drops with the process, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from horae.port import FixConfiguration

#: Bytes of the note on who holds it: always the same, so that it takes no new block.
_HOLDER = 256


class AlreadyRunning(FixConfiguration):
    """Another arbiter on this host works on the same state folder."""


class StateLock:
    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        self._file: IO[str] = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._file.read().strip()
            self._file.close()
            raise AlreadyRunning(
                f"another arbiter works on {folder} ({_describe(holder)})",
                remedy="stop it first, or give this one a state folder of its own",
            ) from None
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        with suppress(OSError):  # a full disk: who holds it is only for people
            os.pwrite(self._file.fileno(), holder.ljust(_HOLDER).encode(), 0)  # over what is there

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> StateLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _describe(holder: str) -> str:
    try:
        data = json.loads(holder)
        return f"pid {data['pid']} on {data['host']}"
    except (ValueError, KeyError, TypeError):
        return "its lock file does not say which"
