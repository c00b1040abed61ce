"""Policies that a worker process must survive; named by `module:function`."""

from __future__ import annotations

import os
import time
from typing import Any

from policy.model import Decision, Snapshot
from tests.horae.arbiter.site import answer, first_come


def well(*asked: Any) -> Decision:
    return first_come(*asked)


def forever(*asked: Any) -> Decision:
    while True:
        time.sleep(0.01)


def deaf(*asked: Any) -> Decision:
    """Computes without ever letting go."""
    n = 0
    while True:
        n += 1


def exits(*asked: Any) -> Decision:
    os._exit(3)


def prints(snapshot: Snapshot, *asked: Any) -> Decision:
    print("solving ... done", flush=True)
    os.write(1, b"straight to the pipe\n")
    return first_come(snapshot, *asked)


def unsendable(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {}, state={"file": open("/dev/null")})


def exhausts(*asked: Any) -> Decision:
    raise MemoryError
