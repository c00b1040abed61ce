"""Whatever a log may say, its summary is made, is JSON, and claims nothing that was not said."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.estimates.summary import summarise
from profiler.model import Failure, FailureKind, Kind, LossKind, Pause, Point, Run, Throughput, Value
from tests.profiler.runs_made import point, run

number = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**6), 10**9).map(float) | st.floats(0, 1e4)
maybe = st.none() | number
index = st.none() | st.integers(0, 5000).map(float) | st.floats(0, 1e15)
values = st.lists(
    st.builds(Value, st.sampled_from(["loss", "val_loss", "acc", "test"]), number, st.sampled_from(list(LossKind))),
    max_size=3,
).map(tuple)
points = st.builds(
    Point,
    line=st.integers(1, 500),
    kind=st.sampled_from(list(Kind)),
    rule=st.just("any/thing"),
    rank=st.none() | st.integers(0, 3),
    redrawn=st.booleans(),
    iteration=index,
    iterations=index,
    epoch=index,
    scope=st.sampled_from(["run", "epoch"]),
    losses=values,
    total=st.booleans(),
    accuracies=values,
    validation_losses=values,
    step_s=maybe,
    step_s_average=maybe,
    from_bar=st.booleans(),
    epoch_s=maybe,
    elapsed_s=maybe,
    elapsed_of=st.sampled_from([None, "run", "epoch"]),
    throughput=st.none()
    | st.builds(
        Throughput, number, st.sampled_from(["samples/s", "tokens/s", "iterations/s"]), st.booleans(), st.booleans()
    ),
    time_s=maybe,
    batch_size=maybe,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(points, max_size=60),
    st.sampled_from(["run", "epoch", None]),
    st.sampled_from(["iteration", "sample", None]),
    maybe,
    maybe,
    st.none() | st.integers(1, 8),
    maybe,
)
def test_any_run_has_a_summary(
    made: list[Point],
    scope: str | None,
    unit: str | None,
    per_epoch: float | None,
    batch: float | None,
    ranks: int | None,
    target: float | None,
) -> None:
    whole = Run(
        format="any",
        first_line=1,
        last_line=500,
        points=tuple(sorted(made, key=lambda p: p.line)),
        scope=scope,  # type: ignore[arg-type]
        unit=unit,  # type: ignore[arg-type]
        iterations_per_epoch=per_epoch,
        batch_size=batch,
        ranks=ranks,
        pauses=(Pause(100, 120, "validation"),),
        failure=Failure(FailureKind.KILLED, 3, "x"),
    )
    summary = summarise(whole, target=target)
    json.dumps(summary.to_json(points=True), allow_nan=False)
    time = summary.iteration_time
    if time is not None:
        assert all(math.isfinite(x) and x > 0 for x in (time.median, time.mean, time.p95))
        assert time.n >= 1
    if not any(p.losses for p in made):
        assert summary.loss is None
    if not any(p.throughput for p in made):
        assert summary.throughput is None


def test_an_empty_run_is_all_null_but_its_failure() -> None:
    failed = run([], failure=Failure(FailureKind.OUT_OF_MEMORY, 9, "OOM"))
    body = summarise(failed).to_json()
    told = {key for key, value in body.items() if value not in (None, [])}
    assert told == {"format", "lines", "failure", "evidence"}


def test_the_summary_of_an_ordinary_run() -> None:
    made = run(
        [point(i, iteration=float(i), loss=5.0 / (1 + i / 30), step_s=0.2) for i in range(1, 200)],
        total_iterations=1000.0,
        ranks=4,
        gpus=4,
    )
    body = summarise(made).to_json()
    assert body["iterations"] == {"first": 1, "last": 199, "total": 1000, "scope": "run", "unit": "iteration"}
    assert body["iteration_time"]["median"] == 0.2
    assert (body["loss"]["n"], body["loss"]["first"][0], body["loss"]["last"][0]) == (199, 1, 199)
    assert body["fit"]["iterations_left"] == 801
    assert (body["ranks"], body["gpus"], body["warnings"]) == (4, 4, [])


@pytest.mark.parametrize("seconds", [0.15, 15.0])
def test_an_epoch_below_one_iteration_times_none(seconds: float) -> None:
    """Hypothesis found the second: seconds through such a length are no number."""
    timed = [point(line, epoch=float(line), epoch_s=seconds) for line in (1, 3)]
    counted = [point(line, epoch=float(line), iteration=1e-308) for line in (1, 3)]
    summary = summarise(
        run([timed[0], counted[0], timed[1], counted[1], point(5, epoch=4.0, iteration=0.0)], scope="epoch")
    )
    assert summary.iteration_time is None
    json.dumps(summary.to_json(points=True), allow_nan=False)


def test_of_losses_whose_sum_is_no_number_the_mean_is_one() -> None:
    """Four of forty seeds found it: ranks that diverged print what no sum holds."""
    made = run([point(line, iteration=1.0 + line // 2, loss=1.7e308) for line in range(2, 6)])
    summary = summarise(made)
    assert summary.loss is not None and summary.loss.last[1] == 1.7e308
    json.dumps(summary.to_json(points=True), allow_nan=False)


def test_positions_as_near_as_numbers_can_be_weigh_no_mean() -> None:
    """A weight that near to nothing made the mean of two times 0."""
    made = [point(i, epoch=at, step_s_average=s) for i, (at, s) in enumerate([(0.0, 1.0), (5e-324, 0.5)], 1)]
    time = summarise(run([point(0), *made], scope="run")).iteration_time
    assert time is None or time.mean > 0
