"""Optimus and SLAQ, and the loss forecasts that they read."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decide import decide
from policy.model import BadInput, LossForecast, Snapshot
from policy.parts.forecast import check, forecast_of, iterations_left, loss_at
from policy.text.instance import parse


def snapshot(jobs: list[dict[str, Any]], gpus: int) -> Snapshot:
    nodes = [{"name": "n", "gpu_type": "v100", "gpus": gpus}]
    return parse(json.dumps({"cluster": {"nodes": nodes}, "jobs": jobs}))


def counts(snap: Snapshot, policy: str, **options: Any) -> dict[str, int]:
    return {n: sum(a.values()) for n, a in decide(snap, policy, options).allocation.items()}


curves = st.lists(st.floats(0.05, 1.0), min_size=5, max_size=5).map(
    lambda gains: [sum(sorted([1.0, *gains], reverse=True)[:n]) for n in range(1, 7)]
)
populations = st.lists(st.tuples(curves, st.integers(10, 5000)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(jobs=populations, gpus=st.integers(1, 12))
def test_optimus_is_its_greedy_rule(jobs: list[tuple[list[float], int]], gpus: int) -> None:
    rows = [
        {
            "name": f"j{i}", "submitted": i, "gpus": {"min": 1, "max": 6}, "work": {"total": left},
            "throughput": {"v100": {str(n + 1): r for n, r in enumerate(curve)}},
        }
        for i, (curve, left) in enumerate(jobs)
    ]  # fmt: skip
    has = [0] * len(jobs)
    free = gpus
    for i in range(len(jobs)):
        if free:
            has[i], free = 1, free - 1
    while free:
        gains = [
            (left / curve[n - 1] - left / curve[n], -i)
            for i, ((curve, left), n) in enumerate(zip(jobs, has, strict=True))
            if 0 < n < 6
        ]
        if not gains or max(gains)[0] <= 0:
            break
        best = -max(gains)[1]
        has[best] += 1
        free -= 1
    assert list(counts(snapshot(rows, gpus), "optimus").values()) == has


def test_optimus_of_themis_goes_by_scaling_alone() -> None:
    jobs = [
        {
            "name": "long",
            "gpus": {"min": 1, "max": 4},
            "work": {"total": 1e6},
            "throughput": {"v100": {"1": 1, "2": 1.2}},
        },
        {
            "name": "steep",
            "gpus": {"min": 1, "max": 4},
            "work": {"total": 10},
            "throughput": {"v100": {"1": 1, "2": 1.9}},
        },
    ]
    assert counts(snapshot(jobs, 3), "optimus") == {"long": 2, "steep": 1}
    assert counts(snapshot(jobs, 3), "optimus", metric="scaling") == {"long": 1, "steep": 2}


def falling(scale: float, done: float = 200.0, n: int = 12) -> dict[str, Any]:
    points = [[k, 1.0 + scale / (1 + k / 100)] for k in (i * done / (n - 1) for i in range(n))]
    return {"loss": points, "work": {"total": None, "done": done}}


def test_slaq_gives_gpus_to_the_loss_that_still_falls() -> None:
    base = {"gpus": {"min": 1, "max": 8}, "throughput": {"v100": 1.0}}
    early, late = {"name": "early", **base, **falling(5.0, 100)}, {"name": "late", **base, **falling(5.0, 5000, 40)}
    got = counts(snapshot([late, early], 8), "slaq")
    assert got["early"] > got["late"] >= 1
    assert sum(got.values()) == 8


def test_slaq_serves_the_blind_last_with_their_smallest_gang_and_says_so() -> None:
    base = {"gpus": {"min": 1, "max": 8}, "throughput": {"v100": 1.0}}
    decision = decide(snapshot([{"name": "blind", **base}, {"name": "seen", **base, **falling(5.0)}], 6), "slaq")
    assert {n: sum(a.values()) for n, a in decision.allocation.items()} == {"blind": 1, "seen": 5}
    assert any("without a loss curve" in note for note in decision.certificate.notes)


def test_points_are_fitted_by_optimus_law() -> None:
    (job,) = snapshot([{"name": "j", "gpus": 1, **falling(5.0)}], 1).jobs
    forecast = forecast_of(job)
    assert forecast is not None and forecast.law == "inverse"
    for k in (0, 50, 400, 1000):
        assert loss_at(forecast, k) == pytest.approx(1 + 5 / (1 + k / 100), rel=0.02)
    left = iterations_left(job, 1e-4)
    assert left is not None and left > 0
    assert iterations_left(job, 1e-2) < left


@pytest.mark.parametrize("points", [[], [[0, 1.0]], [[0, 1.0], [1, 2.0], [2, 3.0]], [[5, 1.0], [5, 0.9], [5, 0.8]]])
def test_a_curve_that_does_not_fall_has_no_forecast(points: list[list[float]]) -> None:
    (job,) = snapshot([{"name": "j", "gpus": 1, "loss": sorted(points)}], 1).jobs
    assert forecast_of(job) is None


def test_every_law_of_the_profiler_is_known_here() -> None:
    from profiler.estimates.laws import LAWS, evaluate

    shapes = {"s": 120.0, "t": 300.0, "p": 0.7}
    for law, k in itertools.product(LAWS, (1.0, 50.0, 4000.0)):
        parameters = {"origin": 0.0, "asymptote": 0.5, "scale": 2.0, **{n: shapes[n] for n in LAWS[law].shapes}}
        check(LossForecast(law, parameters))
        assert loss_at(LossForecast(law, parameters), k) == pytest.approx(float(evaluate(law, parameters, k)))


def test_a_law_that_is_unknown_or_incomplete_is_named() -> None:
    with pytest.raises(BadInput, match="is no law"):
        check(LossForecast("magic", {}))
    with pytest.raises(BadInput, match="lacks its parameter"):
        check(LossForecast("inverse", {"asymptote": 0.0, "scale": 1.0}))
