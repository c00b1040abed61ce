"""Worlds without end: nothing is lost in those looked at here; `benchmarks/bad_days.py` keeps the account of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import SystemRandom

import pytest

from horae.sim.faults.arbiter import BREAKS, BrokenRule
from horae.sim.faults.schedule import FaultKind
from horae.sim.faults.worlds import LATER_FROM, lived, world


def test_a_world_is_its_seed() -> None:
    assert lived(6) == lived(6)
    assert world(5).schedule != world(6).schedule


def test_later_worlds_have_more_of_what_takes_effect_least_often() -> None:
    def share(first: int) -> float:
        kinds = [fault.kind for seed in range(first, first + 20) for fault in world(seed).schedule]
        return kinds.count(FaultKind.JOB_DIES) / len(kinds)

    assert share(LATER_FROM) > 1.5 * share(LATER_FROM - 20)


def test_nothing_is_lost_in_the_first_worlds() -> None:
    faults: Counter[str] = Counter()
    for seed in (0, 2, 4, 10, 11, 12, 13):  # of each sky but the calm one, whose years take too long
        found = lived(seed)
        assert found["violations"] == []
        faults.update(found["faults"])
    assert {kind for kind in FaultKind if faults[kind]} == set(FaultKind)


def test_jobs_with_as_good_a_claim_do_not_withdraw_each_others_starts_for_ever() -> None:
    """Under `las`, where a start takes longer than a round: they did, and none of 37 jobs ran."""
    found = lived(3791)
    assert found["violations"] == []
    assert found["rounds"] < 1000


def test_a_cancelled_job_that_another_arbiter_was_handed_anew_is_reopened_and_not_lost() -> None:
    """The first arbiter is back in charge, and its journal has the job as cancelled before it reached the cluster."""
    assert lived(5854)["violations"] == []


@pytest.mark.parametrize("rule", BrokenRule)
def test_each_broken_rule_is_found_in_some_world(rule: BrokenRule) -> None:
    for seed in (4, 10, 12, 13, 3, 5):
        whole = world(seed)
        outcome = replace(whole, run=replace(whole.run, broken=rule)).lived()
        if outcome.broken is not None:
            assert outcome.broken.rule == BREAKS[rule][1]
            return
    pytest.fail(f"no world shows {rule}")


@pytest.mark.soak
def test_nothing_is_lost_in_worlds_that_nobody_has_seen() -> None:
    """New ones each time: it neither resumes nor counts, which `benchmarks/bad_days.py` does."""
    first = SystemRandom().randrange(10**6, 10**9)
    for seed in range(first, first + 200):
        assert lived(seed)["violations"] == [], f"seed {seed}"
