from __future__ import annotations

import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.estimates.iteration import timing
from profiler.evidence import Ground
from profiler.model import Kind, Pause, Point, Throughput
from tests.profiler.runs_made import point, run, steps


def noisy(level: float, n: int, seed: int = 1, share: float = 0.05) -> list[float]:
    made = random.Random(seed)
    return [level * (1 + made.gauss(0, share)) for _ in range(n)]


def test_printed_times_are_used_as_they_are() -> None:
    found = timing(run(steps(noisy(0.2, 200))))
    assert found.iteration is not None
    assert found.iteration.source == "printed"
    assert found.iteration.median == pytest.approx(0.2, rel=0.02)
    assert found.iteration.n == 200
    assert found.warm_up is None
    assert found.warnings == ()


def test_the_warm_up_is_cut_and_told() -> None:
    found = timing(run(steps([30.0, 2.0, 1.0, *noisy(0.2, 100)])))
    assert found.iteration is not None and found.warm_up is not None
    assert found.iteration.mean == pytest.approx(0.2, rel=0.03)
    assert found.warm_up.iterations == 3
    assert found.warm_up.seconds == pytest.approx(33.0)


def test_lone_pauses_are_left_out_but_a_slow_half_is_not() -> None:
    paused = noisy(0.2, 200)
    paused[50] = paused[120] = 25.0
    found = timing(run(steps(paused))).iteration
    assert found is not None
    assert found.mean == pytest.approx(0.2, rel=0.02)
    assert found.n == 198
    halves = timing(run(steps(noisy(0.2, 100) + noisy(1.0, 100)))).iteration
    assert halves is not None
    assert halves.n == 200
    assert halves.mean == pytest.approx(0.6, rel=0.03)


def test_steps_of_a_window_weigh_as_many() -> None:
    points = [point(i, iteration=float(k), step_s=s) for i, (k, s) in enumerate([(10, 1.0), (20, 1.0), (30, 1.0)])]
    found = timing(run(points))
    assert {s.steps for s in found.samples[1:]} == {10.0}


@pytest.mark.parametrize(
    ("throughput", "batch", "ranks"),
    [
        (Throughput(5.0, "iterations/s"), None, None),
        (Throughput(640.0, "samples/s"), 128.0, None),
        (Throughput(80.0, "samples/s", of_rank=True), 128.0, 8),
    ],
)
def test_rates_become_times(throughput: Throughput, batch: float | None, ranks: int | None) -> None:
    points = [point(i, iteration=float(i), throughput=throughput) for i in range(1, 20)]
    found = timing(run(points, batch_size=batch, ranks=ranks)).iteration
    assert found is not None
    assert found.source == "throughput"
    assert found.median == pytest.approx(0.2)


def test_a_rate_of_samples_without_a_batch_tells_no_time() -> None:
    points = [point(i, iteration=float(i), throughput=Throughput(640.0, "samples/s")) for i in range(1, 20)]
    found = timing(run(points))
    assert found.iteration is None
    assert found.throughput is not None
    assert found.throughput.median == 640.0


def test_throughput_of_ranks_is_summed() -> None:
    points = [
        point(i, iteration=float(i // 4), rank=i % 4, throughput=Throughput(100.0, "tokens/s", of_rank=True))
        for i in range(40)
    ]
    found = timing(run(points, ranks=4)).throughput
    assert found is not None
    assert found.median == 400.0


def clocked(seconds: float, n: int, every: int = 10, start: float = 1e9, **more: Any) -> list[Point]:
    return [point(i, iteration=float(i * every), time_s=start + i * every * seconds, **more) for i in range(n)]


def test_timestamps_tell_when_nothing_else_does() -> None:
    found = timing(run(clocked(0.5, 30))).iteration
    assert found is not None
    assert (found.source, found.median) == ("timestamps", pytest.approx(0.5))


def test_whole_seconds_of_short_steps_are_joined() -> None:
    points = [point(i, iteration=float(i), time_s=float(int(1e6 + i * 0.07))) for i in range(3000)]
    found = timing(run(points)).iteration
    assert found is not None
    assert found.median == pytest.approx(0.07, rel=0.06)


def test_marked_pauses_and_steps_over_the_end_of_an_epoch_are_not_training() -> None:
    points = []
    clock, line = 0.0, 0
    for epoch in range(4):
        for k in range(0, 100, 10):
            line += 1
            points.append(
                point(line, epoch=float(epoch), iteration=float(k), iterations=100.0, scope="epoch", time_s=clock)
            )
            clock += 3.0
        clock += 500.0  # evaluation
    found = timing(run(points, scope="epoch")).iteration
    assert found is not None
    assert found.median == found.p95 == pytest.approx(0.3)
    through = [point(i, iteration=float(i), time_s=i * 1.0 + (900.0 if i >= 25 else 0.0)) for i in range(50)]
    marked = run(through, pauses=(Pause(24, 25, "checkpoint"),))
    assert all(s.seconds < 2 for s in timing(marked).samples)


def test_a_clock_that_steps_back_breaks_the_interval_only() -> None:
    points = [point(i, iteration=float(i), time_s=i * 2.0 - (3600.0 if i >= 40 else 0.0)) for i in range(80)]
    found = timing(run(points)).iteration
    assert found is not None
    assert found.median == pytest.approx(2.0)
    assert found.mean == pytest.approx(2.0)


def test_elapsed_time_that_is_printed_is_differenced() -> None:
    points = [point(i, iteration=float(i), elapsed_s=70.0 + 0.21 * i, step_s_average=0.5) for i in range(1, 60)]
    found = timing(run(points)).iteration
    assert found is not None
    assert (found.source, found.median) == ("printed", pytest.approx(0.21))


def test_running_averages_are_read_late() -> None:
    points = [point(i, iteration=float(i), step_s_average=0.2 + 10.0 / i) for i in range(1, 201)]
    found = timing(run(points)).iteration
    assert found is not None
    assert found.median == pytest.approx(0.27, rel=0.05)


def test_an_epochs_time_over_its_iterations() -> None:
    points = [point(i, Kind.EPOCH, epoch=float(i), epoch_s=50.0) for i in range(1, 6)]
    found = timing(run(points, iterations_per_epoch=100.0))
    assert found.iteration is not None and found.epoch is not None
    assert (found.iteration.source, found.iteration.median) == ("epoch", pytest.approx(0.5))
    assert (found.epoch.median, found.epoch.n) == (50.0, 5)
    assert timing(run(points)).iteration is None  # iterations an epoch are not known


def test_a_bar_that_reached_its_end_times_an_epoch() -> None:
    points = [
        point(e, epoch=float(e), iteration=100.0, iterations=100.0, scope="epoch", elapsed_s=8.0, elapsed_of="epoch")
        for e in (1, 2, 3)
    ]
    found = timing(run(points, scope="epoch", iterations_per_epoch=100.0))
    assert found.epoch is not None and found.iteration is not None
    assert found.epoch.median == 8.0
    assert found.iteration.median == pytest.approx(0.08)


def test_bars_are_the_last_resort() -> None:
    points = [point(1, iteration=float(i), step_s=0.1, from_bar=True, redrawn=i < 30) for i in range(1, 31)]
    found = timing(run(points)).iteration
    assert found is not None
    assert (found.source, found.median) == ("bar", pytest.approx(0.1))


def test_an_epochs_mean_step_is_printed_too() -> None:
    points = [point(e, Kind.EPOCH, epoch=float(e), epoch_s=3.0, step_s=0.083) for e in (1, 2, 3)]
    found = timing(run(points, iterations_per_epoch=40.0))
    assert found.iteration is not None
    assert (found.iteration.source, found.iteration.median) == ("printed", 0.083)


def test_a_bars_rate_is_finer_than_an_epoch_in_whole_seconds() -> None:
    def bars(seconds: float) -> list[Point]:
        return [
            point(
                e,
                epoch=float(e),
                iteration=40.0,
                iterations=40.0,
                scope="epoch",
                epoch_s=seconds,
                step_s=0.083,
                from_bar=True,
            )
            for e in (1, 2, 3)
        ]

    coarse = timing(run(bars(3.0), scope="epoch", iterations_per_epoch=40.0))
    assert coarse.iteration is not None
    assert (coarse.iteration.source, coarse.iteration.median, coarse.warnings) == ("bar", 0.083, ())
    fine = timing(run(bars(3.29), scope="epoch", iterations_per_epoch=40.0)).iteration
    assert fine is not None
    assert fine.source == "epoch"


def test_sources_that_disagree_are_named() -> None:
    points = [point(i, iteration=float(i), step_s=0.8, time_s=i * 1.0) for i in range(1, 60)]
    found = timing(run(points))
    assert found.iteration is not None
    assert found.iteration.source == "printed"
    assert len(found.warnings) == 1
    assert "the clock" in found.warnings[0] and "25%" in found.warnings[0]


def test_a_time_of_something_else_gives_way_to_the_clock() -> None:
    micro_batches = [point(i, iteration=float(i), step_s=0.1, time_s=i * 9.1) for i in range(30)]
    found = timing(run(micro_batches))
    assert found.iteration is not None
    assert (found.iteration.source, found.iteration.median) == ("timestamps", pytest.approx(9.1))
    assert "cannot be the time of an iteration" in found.warnings[0]


def test_a_rate_slower_than_its_epoch_is_not_believed() -> None:
    points = [
        point(
            10 * e + k,
            epoch=float(e),
            iteration=float(100 * k),
            scope="epoch",
            throughput=Throughput(10.0, "samples/s"),
        )
        for e in range(3)
        for k in range(1, 10)
    ] + [point(10 * e + 10, Kind.EPOCH, epoch=float(e), epoch_s=1000.0) for e in range(3)]
    found = timing(run(points, scope="epoch", batch_size=64.0, iterations_per_epoch=1000.0))
    assert found.iteration is not None
    assert (found.iteration.source, found.iteration.median) == ("epoch", pytest.approx(1.0))
    assert "longer than the clock allows" in found.warnings[0]


def test_ranks_are_averaged_and_one_clock_is_read() -> None:
    points = [
        point(4 * i + r, iteration=float(i), rank=r, step_s=0.1 + 0.1 * (r % 2), time_s=i * 0.15 + r * 50.0)
        for i in range(40)
        for r in range(4)
    ]
    found = timing(run(points))
    assert found.iteration is not None
    assert found.iteration.median == pytest.approx(0.15)
    assert found.iteration.n == 40


def test_validation_points_time_nothing() -> None:
    points = steps([0.2] * 20) + [point(100 + i, Kind.VALIDATION, step_s=9.0, iteration=float(i)) for i in range(50)]
    found = timing(run(points)).iteration
    assert found is not None
    assert found.median == 0.2


def test_no_time_is_no_time() -> None:
    found = timing(run([point(i, iteration=float(i), loss=1.0) for i in range(10)]))
    assert (found.iteration, found.epoch, found.throughput, found.warm_up) == (None, None, None, None)


@given(st.lists(st.floats(1e-6, 1e6) | st.just(float("nan")) | st.just(float("inf")), min_size=1, max_size=60))
def test_any_printed_times_give_times_within_their_range(seconds: list[float]) -> None:
    found = timing(run(steps(seconds))).iteration
    finite = [s for s in seconds if 0 < s < float("inf")]
    if not finite:
        assert found is None
    else:
        assert found is not None
        slack = 1e-9
        assert min(finite) * (1 - slack) <= found.median <= max(finite) * (1 + slack)
        assert min(finite) * (1 - slack) <= found.mean <= max(finite) * (1 + slack)
        assert 1 <= found.n <= len(finite)


@given(st.integers(20, 120), st.floats(0.01, 5.0), st.integers(0, 5), st.integers(0, 2**31))
def test_warm_up_and_rare_pauses_do_not_move_the_median(n: int, level: float, slow: int, seed: int) -> None:
    made = random.Random(seed)
    tail = noisy(level, n, seed)
    for i in made.sample(range(n), n // 20):
        tail[i] *= 20
    found = timing(run(steps([level * 10] * min(slow, n // 3) + tail))).iteration
    assert found is not None
    assert found.median == pytest.approx(median(noisy(level, n, seed)), rel=0.06)


def test_a_bar_that_its_own_clock_contradicts() -> None:
    """The bar's elapsed time is used, as what corrects its rate; nothing else in the log is printed."""
    points = [point(i, iteration=float(i), from_bar=True, step_s=0.01, elapsed_s=30.0 * i) for i in range(1, 60)]
    found = timing(run(points))
    assert found.iteration is not None and found.evidence is not None
    assert found.iteration.median == pytest.approx(30.0)
    assert found.evidence.ground is Ground.CORRECTED
