"""Two times: `wall_s`, for people and records, and `now_s`, for durations, which never jumps.

`now_s` starts at the wall's time (or at the newest recorded `at_s`, when the wall was set back meanwhile) and then
follows the monotonic clock. So leases, waiting times and minimum run times survive a clock step, and in the
ordinary case both times are the same number. They survive one while no arbiter runs, too, as long as the host was not
started anew: its monotonic clock then went on, and tells how long that was (`Origin`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from policy.model import Seconds

#: A wall clock that moved against the monotonic one by more than this was stepped, not slewed.
STEP_S = 1.0
_BOOT = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Origin:
    """What `now_s` is counted from."""

    boot: str  #: of the host, by its kernel's name for it; "": nobody knows, and it is compared with none
    base_s: Seconds  #: `now_s` where that boot's monotonic clock was 0


def this_boot() -> str:
    try:
        with open(_BOOT) as file:
            return file.read().strip()
    except OSError:  # no Linux, or hidden
        return ""


class Clock:
    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        boot: str = "",
    ) -> None:
        """`boot`: which start of a host `monotonic` is counted from."""
        self._wall, self._monotonic, self._boot = wall, monotonic, boot
        self._base = self._offset()
        self._drift = 0.0

    def anchor(self, newest_at_s: Seconds, origin: Origin | None = None) -> None:
        """Never start before a time that is already on record. `origin`: of whoever recorded it."""
        offset, so_far_s = self._offset(), self._monotonic()
        self._base = max(offset, newest_at_s - so_far_s)
        if origin is not None and self._boot and origin.boot == self._boot and origin.base_s + so_far_s >= newest_at_s:
            self._base = origin.base_s
        self._drift = offset - self._base

    @property
    def origin(self) -> Origin:
        return Origin(self._boot, self._base)

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
