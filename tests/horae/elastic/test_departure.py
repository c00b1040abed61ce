"""How a gang is pressed to leave: every order of requests, failures and times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horae.elastic.supervisor.departure import KILL_WAIT_S, Departure, Pressure

ASKED, TERMINATED, KILLED = Pressure.ASKED, Pressure.TERMINATED, Pressure.KILLED


def test_asked_then_terminated_when_its_grace_is_over_then_killed() -> None:
    leaving = Departure(30.0)
    assert leaving.press(0.0, failed=False) == []
    assert leaving.due() is None
    leaving.ask(1.0)
    assert leaving.press(1.0, failed=False) == [ASKED]
    assert leaving.due() == 31.0
    assert leaving.press(30.9, failed=False) == []
    assert leaving.press(31.0, failed=False) == [TERMINATED]
    assert leaving.overdue
    assert leaving.due() == 31.0 + KILL_WAIT_S
    assert leaving.press(31.0 + KILL_WAIT_S, failed=False) == [KILLED]
    assert leaving.due() is None
    assert leaving.press(1000.0, failed=True) == []


def test_a_cancel_needs_no_grace_and_nobody_was_late() -> None:
    leaving = Departure(30.0)
    leaving.cancel = True
    assert leaving.asked
    assert leaving.press(5.0, failed=False) == [TERMINATED]
    assert leaving.terminated
    assert not leaving.overdue
    leaving.ask(6.0)
    assert leaving.press(6.0, failed=False) == [], "what was told to end is not asked to checkpoint"


def test_the_newest_grace_counts_from_the_first_request() -> None:
    leaving = Departure(30.0)
    leaving.ask(0.0)
    leaving.ask(10.0, 15.0)
    assert leaving.due() == 15.0
    leaving.ask(11.0, -1.0)
    assert leaving.due() == 15.0
    assert leaving.press(16.0, failed=False) == [ASKED, TERMINATED], "a busy machine: both at once, mildest first"


def test_a_time_limit_asks_once() -> None:
    leaving = Departure(30.0)
    assert leaving.time_over(7.0)
    assert not leaving.time_over(8.0)
    assert leaving.stop_at == 7.0
    assert leaving.out_of_time


def test_the_next_gang_is_pressed_from_the_beginning() -> None:
    leaving = Departure(30.0)
    assert leaving.press(0.0, failed=True) == [TERMINATED]
    leaving.next_gang()
    assert not leaving.terminated
    assert leaving.press(9.0, failed=False) == []


EVENTS = st.lists(
    st.tuples(st.sampled_from(["ask", "cancel", "time", "fail", "wait"]), st.floats(0.0, 20.0, width=16)), max_size=30
)


@given(EVENTS)
def test_in_any_order_each_step_comes_once_and_a_request_always_ends_in_a_kill(events: list[tuple[str, float]]) -> None:
    leaving, now, failed, steps = Departure(5.0), 0.0, False, []
    for event, later in events:
        now += later
        if event == "ask":
            leaving.ask(now)
        elif event == "cancel":
            leaving.cancel = True
        elif event == "time":
            leaving.time_over(now)
        elif event == "fail":
            failed = True
        steps += leaving.press(now, failed)
    while (due := leaving.due()) is not None:
        steps += leaving.press(due, failed)
    assert steps == sorted(set(steps)), "only ever more, each once"
    assert (KILLED in steps) == (leaving.asked or failed)
    assert (ASKED in steps) <= (leaving.stop_at is not None)
