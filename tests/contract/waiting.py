"""Waiting for a real cluster: for conditions and never for times, while a busy one says to try later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from horae.port import TryLater
from policy.model import BadInput

T = TypeVar("T")
PATIENCE_S = 90.0
#: Limits are what a machine at rest needs; one that others use too takes longer, and nothing is wrong.
BUSY = 3.0


def _pause() -> None:
    time.sleep(0.2)


def patiently(call: Callable[[], T], limit_s: float = PATIENCE_S, pause: Callable[[], object] = _pause) -> T:
    """Its answer; asked again while the cluster says `TryLater`: one that is slow for a moment is no failure."""
    deadline = time.monotonic() + BUSY * limit_s
    while True:
        try:
            return call()
        except TryLater:
            if time.monotonic() > deadline:
                raise
            pause()


def wait_for(what: str, holds: Callable[[], object], limit_s: float = PATIENCE_S) -> None:
    """A cluster that does not answer now, to a command or to the port, shows nothing yet."""
    deadline, silent = time.monotonic() + BUSY * limit_s, ""
    while True:
        try:
            if holds():
                return
        except (BadInput, TryLater) as error:
            silent = f" ({error})"
        assert time.monotonic() < deadline, f"not within {BUSY * limit_s:g} s: {what}{silent}"
        time.sleep(0.05)
