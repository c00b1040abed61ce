"""Two times: `wall_s`, for people and records, and `now_s`, for durations, which never jumps.

`now_s` starts at the wall's time (or at the newest recorded `at_s`, when the wall was set back meanwhile) and then
follows the monotonic clock. So leases, waiting times and minimum run times survive a clock step, and in the
ordinary case both times are the same number.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from policy.model import Seconds

#: A wall clock that moved against the monotonic one by more than this was stepped, not slewed.
STEP_S = 1.0


class Clock:
    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._base = self._offset()
        self._drift = 0.0

    def anchor(self, newest_at_s: Seconds) -> None:
        """Never start before a time that is already on record."""
        offset = self._offset()
        self._base = max(offset, newest_at_s - self._monotonic())
        self._drift = offset - self._base

    def now_s(self) -> Seconds:
        return self._base + self._monotonic()

    def wall_s(self) -> Seconds:
        return self._wall()

    def stepped(self) -> Seconds | None:
        """By how much the wall clock jumped since the last call, None if it did not."""
        drift = self._offset() - self._base
        step, self._drift = drift - self._drift, drift
        return step if abs(step) > STEP_S else None

    def _offset(self) -> Seconds:
        """The wall's time less the monotonic one, read as one moment: a busy machine may hold us up in between."""
        for _ in range(100):
            before, wall, after = self._monotonic(), self._wall(), self._monotonic()
            if after - before < STEP_S / 100:
                break
        return wall - after
