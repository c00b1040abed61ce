"""Waiting for conditions, never for moments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(what: Callable[[], Any], patience_s: float = 200.0) -> Any:
    """The first answer that is true."""
    until = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < until, "not in time"
        time.sleep(0.02)
    return found
