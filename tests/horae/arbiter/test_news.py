"""When what a cluster tells of is looked at."""

from __future__ import annotations

from horae.arbiter.observe.news import CLOSELY_S, SELDOM_S, News


def looks(events: list[float], *, awaited: bool = False, until_s: float = 2.0) -> list[float]:
    """When it is looked, of events at these times, asked every `CLOSELY_S`."""
    news, found = News(0.2), []
    for step in range(int(until_s / CLOSELY_S)):
        now_s = step * CLOSELY_S
        seen = sum(at_s <= now_s for at_s in events)
        if news.settled(seen, now_s, awaited=awaited):
            found.append(now_s)
    return found


def test_an_event_alone_is_looked_at_one_wait_later() -> None:
    (at_s,) = looks([1.0])
    assert 1.0 < at_s < 1.0 + 3 * CLOSELY_S


def test_a_loop_of_submissions_is_one_round_until_it_is_debounced() -> None:
    (at_s,) = looks([1.0 + 0.015 * count for count in range(10)])
    assert 1.135 < at_s < 1.3, "when it paused"
    first_s, *_ = looks([1.0 + 0.015 * count for count in range(60)])
    assert 1.2 <= first_s < 1.3, "when its first event was old enough"


def test_what_is_awaited_is_looked_at_at_once() -> None:
    first_s, *_ = looks([1.0 + 0.015 * count for count in range(10)], awaited=True)
    assert first_s < 1.0 + 2 * CLOSELY_S


def test_nothing_is_told_of_nothing_and_of_what_was_before() -> None:
    assert looks([]) == []
    assert looks([-5.0]) == []


def test_who_answers_slowly_is_asked_seldom() -> None:
    news = News(0.2)
    assert not news.settled(1, 0.0, awaited=False)
    assert news.wait_s(0.00002, awaited=False) == CLOSELY_S
    assert news.wait_s(0.03, awaited=False) == SELDOM_S
    assert 0.1 < news.wait_s(0.0015, awaited=False) < 0.2
    assert news.wait_s(0.03, awaited=True) == CLOSELY_S
    assert not news.settled(2, 1.0, awaited=False)
    assert news.wait_s(0.03, awaited=False) == CLOSELY_S, "what came is followed until it pauses"
