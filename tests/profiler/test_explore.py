from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.estimates.explore import Budget, Candidate, Known, _expected, plan
from profiler.estimates.scaling import Source


def candidate(job: str = "j1", key: str = "resnet", **more: object) -> Candidate:
    base = Candidate(
        job=job,
        key=key,
        gpu_type="v100",
        gpus=2,
        places={
            ("v100", 2): Known(2.0, 1.9, 2.1, Source.MEASURED),
            ("v100", 4): Known(4.0, 2.0, 4.0, Source.LINEAR),
            ("k80", 4): Known(1.0, 0.2, 3.0, "prior"),
        },
        restart_cost_s=20.0,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def test_the_probe_that_can_change_most_is_suggested_with_its_arithmetic() -> None:
    made = plan([candidate()], {"v100": 8, "k80": 8}, [], 0.0)
    (found,) = made.suggestions
    assert (found.job, found.gpu_type) == ("j1", "v100")
    assert found.net > 0
    assert "two restarts" in found.text


def test_nothing_measured_already_is_probed() -> None:
    known = candidate(
        places={("v100", 2): Known(2, 2, 2, Source.MEASURED), ("v100", 4): Known(3, 3, 3, Source.MEASURED)}
    )
    made = plan([known], {"v100": 8}, [], 0.0)
    assert made.suggestions == ()
    assert "no other place" in made.left_out["j1"]


def test_a_probe_that_cannot_change_the_decision_is_not_made() -> None:
    hopeless = candidate(
        places={("v100", 2): Known(2, 2, 2, Source.MEASURED), ("v100", 4): Known(2.2, 2.0, 2.4, Source.FIT)}
    )
    made = plan([hopeless], {"v100": 8}, [], 0.0)
    assert made.suggestions == ()
    assert "is worth 0 GPU-s" in made.left_out["j1"]


def test_dear_restarts_and_short_jobs_are_left_alone() -> None:
    assert plan([candidate(restart_cost_s=50_000.0)], {"v100": 8}, [], 0.0).suggestions == ()
    assert "ends too soon" in plan([candidate(left_s=200.0)], {"v100": 8}, [], 0.0).left_out["j1"]
    assert "cannot be stopped" in plan([candidate(movable=False)], {"v100": 8}, [], 0.0).left_out["j1"]
    assert "moved a moment ago" in plan([candidate(since_resize_s=10.0)], {"v100": 8}, [], 0.0).left_out["j1"]


def test_probes_take_no_gpus_from_others() -> None:
    made = plan([candidate(), candidate("j2", "bert")], {"v100": 2}, [], 0.0)
    assert len(made.suggestions) == 1
    assert plan([candidate()], {"v100": 1, "k80": 0}, [], 0.0).suggestions == ()


def test_one_probe_a_key_and_a_budget_an_hour() -> None:
    jobs = [candidate(f"j{i}", f"key{i % 3}") for i in range(9)]
    free = {"v100": 64, "k80": 64}
    assert len(plan(jobs, free, [], 0.0).suggestions) == 3
    assert len(plan(jobs, free, [], 0.0, Budget(probes_an_hour=2)).suggestions) == 2
    assert len(plan(jobs, free, [9000.0, 9900.0, 100.0], 10_000.0, Budget(probes_an_hour=3)).suggestions) == 2 - 1 + 0
    assert plan(jobs, free, [0.0], 1.0, Budget(probes_an_hour=0)).suggestions == ()


def test_a_key_with_many_jobs_is_worth_more() -> None:
    alone = plan([candidate()], {"v100": 8, "k80": 8}, [], 0.0).suggestions[0]
    shared = plan([candidate(), candidate("j2")], {"v100": 8, "k80": 8}, [], 0.0).suggestions[0]
    assert shared.gain == pytest.approx(2 * alone.gain)


@given(st.floats(-100, 100), st.floats(0, 100))
def test_information_is_never_worth_less_than_nothing(low: float, width: float) -> None:
    informed, blind = _expected(low, low + width)
    assert informed >= blind - 1e-9
    assert informed >= 0
    sure = _expected(low, low)
    assert sure[0] == sure[1]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.floats(0.1, 10), st.floats(0, 5), st.floats(0, 600), st.integers(0, 2)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 16),
    st.floats(0, 10),
)
def test_plans_stay_within_budget_and_free_gpus(
    rows: list[tuple[int, float, float, float, int]], free: int, probes: float
) -> None:
    jobs = [
        candidate(
            f"j{i}",
            f"k{key}",
            gpus=gpus,
            restart_cost_s=cost,
            places={
                ("v100", gpus): Known(rate, rate, rate, Source.MEASURED),
                ("v100", 2 * gpus): Known(rate, rate, rate + width, Source.FIT),
            },
        )
        for i, (gpus, rate, width, cost, key) in enumerate(rows)
    ]
    made = plan(jobs, {"v100": free}, [], 0.0, Budget(probes_an_hour=probes))
    assert len(made.suggestions) <= probes
    assert len({s.key for s in made.suggestions}) == len(made.suggestions)
    assert sum(s.gpus // 2 for s in made.suggestions) <= free
    assert all(s.net > 0 for s in made.suggestions)
    assert {s.job for s in made.suggestions} | set(made.left_out) == {j.job for j in jobs}
