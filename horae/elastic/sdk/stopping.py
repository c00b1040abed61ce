"""The request to checkpoint and leave: USR1, TERM or a stop file, all alike."""

import atexit
import json
import signal
import threading
import time
from contextlib import contextmanager
from typing import Iterator, Optional

from ..files import read_ours

_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
_LOOK_S = 0.02  #: the stop file is looked at no more often than this


class StopRequest:
    """Installs the handlers (in the main thread; elsewhere the stop file has to do)."""

    def __init__(self, stop_file: Optional[str], epoch: int = 0, install: bool = True) -> None:
        self._file = stop_file
        self._epoch = epoch
        self._asked = False
        self._next_look = 0.0
        if install and threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._on_signal)
            atexit.register(ignore_from_now_on)  # frameworks put back at their end what was there at their beginning

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._asked = True

    def asked(self, fresh: bool = False) -> bool:
        """`fresh`: the file is looked at now, however short ago that was done."""
        if not self._asked and self._file is not None and (fresh or time.monotonic() >= self._next_look):
            self._next_look = time.monotonic() + _LOOK_S
            self._asked = stop_asked(self._file, self._epoch) is not None
        return self._asked


@contextmanager
def held() -> "Iterator[None]":
    """A request that comes meanwhile is delivered afterwards. For calls that take an interrupted system call for an
    error, as PyTorch's rendezvous does: a gang asked to leave while it forms would die of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_asked(path: str, epoch: int) -> Optional[float]:
    """Seconds of grace that a stop file gives this epoch; -1 where it does not say, None where nothing is asked.

    A file that names another epoch is a request that came too late for the start it meant. An empty one, a person's
    `touch`, asks whoever reads it.
    """
    data = read_ours(path, 4096)
    if data is None:
        return None
    try:
        request = json.loads(data.decode())
    except ValueError:
        return -1.0
    if not isinstance(request, dict):
        return -1.0
    if request.get("epoch", epoch) != epoch:
        return None
    grace = request.get("grace_s")
    return float(grace) if isinstance(grace, (int, float)) else -1.0


def ignore_from_now_on() -> None:
    """After the loop: a request that reaches a rank on its way out must not kill it (Python would restore the
    default action at shutdown; an ignored signal stays ignored)."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
