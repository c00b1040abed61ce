from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.estimates.trust import Claim, Watched, judge


def test_an_honest_job_is_believed() -> None:
    verdict = judge(Claim(1000, 4000, 0.1), Watched(60.0, 420.0), peers=[9.0, 10.5, 11.0])
    assert verdict.claimed_used
    assert verdict.progress_believed
    assert verdict.rate == pytest.approx(10.0)
    assert verdict.reasons == ()


def test_a_step_time_that_would_have_done_more_gives_way_to_the_clock() -> None:
    verdict = judge(Claim(620, None, 0.01), Watched(60.0, 20.0))
    assert not verdict.claimed_used
    assert verdict.rate == pytest.approx(10.0)
    assert "by the clock" in verdict.reasons[0]


def test_counting_faster_than_training_is_seen() -> None:
    verdict = judge(Claim(100_000, 200_000, 0.1), Watched(60.0, 0.0))
    assert "counts more than it trains" in verdict.reasons[0]


def test_a_rate_far_beyond_its_likes_is_replaced_by_theirs() -> None:
    verdict = judge(Claim(60_000, None, 0.001), Watched(60.0, 0.0), peers=[10.0, 11.0, 12.0])
    assert verdict.rate == pytest.approx(11.0)
    assert not verdict.progress_believed
    assert "same model key" in verdict.reasons[-1]
    alone = judge(Claim(60_000, None, 0.001), Watched(60.0, 0.0), peers=[10.0])
    assert alone.rate == pytest.approx(1000.0)  # one other job proves nothing


def test_progress_beyond_the_total_and_backwards() -> None:
    assert not judge(Claim(5000, 4000, 0.1), None).progress_believed
    assert "went back" in judge(Claim(100, None, 0.1), Watched(60.0, 400.0)).reasons[0]
    assert judge(Claim(100, None, 0.1), Watched(60.0, 400.0, restarted=True)).reasons == ()


def test_a_short_look_judges_nothing() -> None:
    verdict = judge(Claim(10, None, 0.1), Watched(5.0, 0.0))
    assert verdict.claimed_used
    assert verdict.reasons == ()


def test_without_a_claim_the_clock_is_the_rate() -> None:
    assert judge(Claim(600), Watched(60.0, 0.0)).rate == pytest.approx(10.0)
    assert judge(Claim(600), None).rate is None
    assert judge(Claim(float("nan"), None, 0.1), None).rate is None


@given(
    st.floats(0, 1e9),
    st.none() | st.floats(1, 1e9),
    st.none() | st.floats(1e-9, 1e6),
    st.none() | st.tuples(st.floats(0, 1e6), st.floats(0, 1e9), st.booleans()),
    st.lists(st.floats(0, 1e6), max_size=6),
)
def test_a_verdict_is_never_faster_than_all_that_is_known(
    done: float,
    total: float | None,
    seconds: float | None,
    watched: tuple[float, float, bool] | None,
    peers: list[float],
) -> None:
    verdict = judge(Claim(done, total, seconds), None if watched is None else Watched(*watched), peers)
    if verdict.rate is not None:
        known = [0.0, *peers]
        if seconds is not None:
            known.append(1 / seconds)
        if watched is not None and watched[0] > 0:
            known.append((done - watched[1]) / watched[0])
        assert 0 <= verdict.rate <= max(known) * 1.0001
    if not verdict.claimed_used and seconds is not None:
        assert verdict.reasons
