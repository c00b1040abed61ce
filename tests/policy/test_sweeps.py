"""Early stopping: who loses a sweep, and that a decision ends them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy import catalogue
from policy import decide as deciding
from policy.model import App, Code, LossForecast, Phase
from policy.parts.sweeps import losers, resting
from tests.policy.themis.worlds import decide, job, nodes, world

APP = App("s", "successive-halving", None, None, (Phase(4, 10), Phase(2, 20), Phase(1, 40)))


def four(done: tuple[float, ...], losses: tuple[float | None, ...]) -> list:  # type: ignore[type-arg]
    return [
        job(f"j{i}", (1, 2), total=70, done=d, app="s", tenant="t", loss=() if y is None else ((d, y),))
        for i, (d, y) in enumerate(zip(done, losses, strict=True))
    ]


def test_the_worst_half_ends_when_all_have_done_the_phase() -> None:
    snapshot = world(nodes(1, 4), four((10, 12, 10, 11), (0.4, 0.1, 0.3, 0.2)), apps=[APP])
    assert set(losers(snapshot)) == {"j0", "j2"}
    decision = decide(snapshot)
    assert set(decision.cancel) == {"j0", "j2"}
    assert decision.reasons["j0"].code is Code.LOST_SWEEP
    assert decision.allocation["j0"] == {}
    assert sum(sum(a.values()) for a in decision.allocation.values()) == 4


def test_running_on_past_the_end_of_the_phase_makes_nobody_better() -> None:
    jobs = four((10, 30, 10, 10), (0.4, 0.5, 0.45, 0.6))
    jobs[1] = replace(jobs[1], loss=((5.0, 0.9), (10.0, 0.5), (20.0, 0.2), (30.0, 0.1)))
    found = losers(world(nodes(1, 4), jobs, apps=[APP]))
    assert set(found) == {"j1", "j3"}
    assert found["j1"].numbers["loss"] == 0.5


def test_nobody_ends_before_the_last_is_there() -> None:
    assert not losers(world(nodes(1, 4), four((10, 10, 10, 9), (0.4, 0.1, 0.3, 0.2)), apps=[APP]))


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_worst(bad: float | None) -> None:
    snapshot = world(nodes(1, 4), four((10,) * 4, (9.0, bad, 8.0, 9.0)), apps=[APP])
    assert set(losers(snapshot)) == {"j1", "j3"}  # of equal losses, the earlier name stays


def test_jobs_of_other_apps_and_unphased_ones_stay() -> None:
    jobs = four((10,) * 4, (1.0, 2.0, 3.0, 4.0))
    assert not losers(world(nodes(1, 4), jobs))
    assert not losers(world(nodes(1, 4), jobs, apps=[replace(APP, scheduler="external")]))
    assert not losers(world(nodes(1, 4), [replace(j, app="other") for j in jobs], apps=[APP]))


def test_a_late_phase_may_end_several_at_once() -> None:
    snapshot = world(nodes(1, 4), four((30,) * 4, (4.0, 3.0, 2.0, 1.0)), apps=[APP])
    assert set(losers(snapshot)) == {"j0", "j1", "j2"}


def test_a_curve_that_cannot_reach_what_another_has_ends() -> None:
    flat = LossForecast("power", {"asymptote": 0.9, "scale": 0.5, "p": 0.5})
    steep = LossForecast("power", {"asymptote": 0.1, "scale": 5.0, "p": 0.5})
    jobs = [
        job("best", 1, app="c", tenant="t", done=500.0, loss=((500.0, 0.5),)),
        job("flat", 1, app="c", tenant="t", done=500.0, loss=((500.0, 0.95),), loss_forecast=flat),
        job("steep", 1, app="c", tenant="t", done=500.0, loss=((500.0, 0.8),), loss_forecast=steep),
        job("unfitted", 1, app="c", tenant="t", done=500.0, loss=((500.0, 5.0),)),
    ]
    found = losers(world(nodes(1, 4), jobs, apps=[App("c", "curve-stopping")]))
    assert set(found) == {"flat"}
    assert found["flat"].numbers["best"] == 0.5


@pytest.mark.parametrize("policy", sorted(catalogue.entries()))
def test_losers_end_under_every_policy(policy: str) -> None:
    other = job("z", (1, 2), total=70, tenant="u")
    snapshot = world(nodes(2, 4), [*four((10, 12, 10, 11), (0.4, 0.1, 0.3, 0.2)), other], apps=[APP])
    decision = deciding.decide(snapshot, policy)
    assert set(decision.cancel) == {"j0", "j2"}
    assert decision.reasons["j2"].code is Code.LOST_SWEEP
    assert decision.allocation["j0"] == decision.allocation["j2"] == {}
    assert any(decision.allocation[j] for j in ("j1", "j3", "z"))
    assert not any("j0" in note or "j2" in note for note in decision.certificate.notes), "who ends wants nothing"


@pytest.mark.parametrize("policy", sorted(n for n, e in catalogue.entries().items() if e.bids is None))
def test_who_is_ahead_rests_until_the_last_is_there(policy: str) -> None:
    """On two GPUs a job after the other does the phase; without the rest the first would run to its end."""
    jobs = four((10, 0, 0, 0), (0.4, None, None, None))
    running = [replace(jobs[0], allocation={"n0": 2}), *jobs[1:]]
    decision = deciding.decide(world(nodes(1, 2), running, apps=[APP]), policy)
    assert decision.allocation["j0"] == {}
    assert "3 of the 4 jobs of s have not" in decision.reasons["j0"].text
    assert any(decision.allocation.values())


@pytest.mark.parametrize("policy", sorted(n for n, e in catalogue.entries().items() if e.bids is None))
def test_who_is_ahead_takes_nothing_from_who_is_behind(policy: str) -> None:
    """Once all that are behind hold GPUs too: who was ahead took part again, had them, and rested when asked again."""
    jobs = four((20, 20, 5, 5), (0.4, 0.3, None, None))
    held = [replace(j, allocation={"n0": 1}) for j in jobs]
    without = deciding.decide(world(nodes(1, 4), held[2:], apps=[APP]), policy).allocation
    decision = deciding.decide(world(nodes(1, 4), held, apps=[APP]), policy).allocation
    assert {j: decision[j] for j in ("j2", "j3")} == without
    stopped = [*jobs[:2], *held[2:]]
    again = deciding.decide(world(nodes(1, 4), stopped, apps=[APP]), policy).allocation
    assert {j: again[j] for j in ("j2", "j3")} == without


def test_who_is_ahead_goes_on_with_what_nobody_else_can_use() -> None:
    jobs = four((10, 5, 5, 5), (0.4, None, None, None))
    held = [replace(j, allocation={f"n{i}": 1}) for i, j in enumerate(jobs)]
    snapshot = world(nodes(4, 1), held, apps=[APP])
    assert set(resting(snapshot)) == {"j0"}
    assert deciding.decide(snapshot, "fifo").allocation["j0"] == {"n0": 1}
    last = four((70, 30, 30, 30), (0.1,) * 4)
    assert not resting(world(nodes(1, 1), last, apps=[APP])), "in the last phase nobody is waited for"


@pytest.mark.parametrize("policy", sorted(catalogue.entries()))
def test_who_runs_on_after_the_last_phase_is_not_forgotten(policy: str) -> None:
    """A trainer that was given more steps than the sweep said, or saves its model after its last one, is not done."""
    left = job("j0", (1, 2), total=100, done=75, app="s", tenant="t", loss=((70, 0.1),))
    decision = deciding.decide(world(nodes(1, 4), [left], apps=[APP]), policy)
    assert decision.allocation["j0"]
    over = replace(left, work=replace(left.work, total=75))
    assert not deciding.decide(world(nodes(1, 4), [over], apps=[APP]), policy).allocation["j0"]
