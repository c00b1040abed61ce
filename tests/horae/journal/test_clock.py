"""Two times, and what a busy machine does to whoever reads both."""

from __future__ import annotations

import pytest

from horae.journal import Clock
from horae.journal.clock import this_boot
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


@pytest.mark.parametrize("step_s", [86400.0, -86400.0, 5.0])
def test_a_step_while_no_arbiter_runs_is_no_time_that_passed(step_s: float) -> None:
    time = Time()
    first = Clock(time.wall, time.monotonic, "this start of the host")
    first.anchor(0.0)
    newest_s, origin = first.now_s(), first.origin
    time.now += 60.0
    time.wall_offset += step_s
    second = Clock(time.wall, time.monotonic, "this start of the host")
    second.anchor(newest_s, origin)
    assert second.now_s() == pytest.approx(newest_s + 60.0)
    assert second.stepped() is None
    another = Clock(time.wall, time.monotonic, "another start")
    another.anchor(newest_s, origin)
    assert another.now_s() == pytest.approx(max(time.wall(), newest_s)), "nothing else says how long it was"


def test_a_monotonic_clock_that_is_behind_the_record_is_another_one() -> None:
    time = Time()
    clock = Clock(time.wall, time.monotonic, "boot")
    clock.anchor(0.0)
    ahead_s = clock.now_s() + 500.0
    clock.anchor(ahead_s, clock.origin)
    assert clock.now_s() == pytest.approx(ahead_s)


def test_two_looks_tell_one_start_of_this_host() -> None:
    assert this_boot() == this_boot()
