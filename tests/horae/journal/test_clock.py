"""Two times, and what a busy machine does to whoever reads both."""

from __future__ import annotations

import pytest

from horae.journal import Clock
from tests.horae.arbiter.site import Time


def test_being_held_up_between_two_readings_is_no_step_of_the_clock() -> None:
    time, held_up = Time(), [0.0]

    def wall() -> float:
        found, held = time.wall(), held_up.pop() if held_up else 0.0
        time.now += held
        return found

    clock = Clock(wall, time.monotonic)
    clock.anchor(0.0)
    held_up.append(7.0)
    assert clock.stepped() is None
    assert clock.stepped() is None
    held_up.append(7.0)
    clock.anchor(0.0)
    assert clock.now_s() == pytest.approx(time.wall())
    time.wall_offset += 60.0
    assert clock.stepped() == pytest.approx(60.0)
    assert clock.stepped() is None
