"""A policy may take only so long: CPU seconds of this process, after which `TooLong` is raised wherever it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class TooLong(BaseException):  # a policy's own failure is any Exception
    """The policy needs more time than it has."""


def _stop(*_about: object) -> None:
    raise TooLong


@contextmanager
def cpu_limit(most_s: float) -> Iterator[None]:
    """Raises TooLong, also where the signal comes as the timer is put off."""
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, most_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
