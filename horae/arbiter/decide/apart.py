"""Each try of a policy in a process of its own: one that ends its process, or never answers, costs that try.

The process is a fork of the policy's, which has everything loaded: a try costs milliseconds. It is ended with its time,
and dies with the process that forked it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

from horae.arbiter.decide.aside import Said, Try
from policy.model import Seconds, Snapshot

PR_SET_PDEATHSIG = 1
_MOST = 4000  #: characters of what it raised
_DONE = b"."


def apart(tried: Try, limit_s: Seconds) -> Try:
    """As `tried`, in a process of its own that has so long. Raises Said for whatever goes wrong there."""

    def alone(snapshot: Snapshot) -> None:
        read, write = os.pipe()
        forked = os.fork()
        if forked == 0:
            _try(tried, snapshot, write)
        os.close(write)
        try:
            said = _heard(read, time.monotonic() + limit_s)
        finally:
            os.close(read)
            os.kill(forked, signal.SIGKILL)
            _, status = os.waitpid(forked, 0)
        if said is None:
            raise Said(f"it did not answer within {limit_s:.3g} s")
        if not said.startswith(_DONE):
            raise Said(f"its process ended with code {os.waitstatus_to_exitcode(status)}")
        if said != _DONE:
            raise Said(said.removeprefix(_DONE).decode(errors="replace"))

    return alone


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _try(tried: Try, snapshot: Snapshot, write: int) -> None:
    """In the fork; does not return."""
    die_with_parent()
    code = 1
    try:
        text = ""
        try:
            tried(snapshot)
        except Exception as error:  # noqa: BLE001  (a policy is code of any origin)
            text = f"{type(error).__name__}: {error}"[:_MOST] or type(error).__name__
        os.write(write, _DONE + text.encode(errors="replace"))
        code = 0
    finally:
        os._exit(code)


def _heard(read: int, deadline: float) -> bytes | None:
    """All that it says until it closes the pipe; None where it does not in time."""
    parts: list[bytes] = []
    poll = select.poll()
    poll.register(read, select.POLLIN)
    while True:
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            return None
        part = os.read(read, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
