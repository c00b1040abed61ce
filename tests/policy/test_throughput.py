"""The throughput model: between, below and beyond the points, spans, mixed types, normalisation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model import Slowdown, Snapshot
from policy.throughput import Curve, Span, Throughput
from tests.policy.worlds import cluster, curves, job, snapshots

LAB = cluster(
    "a1 v100 4 r1", "a2 v100 4 r1", "b1 v100 4 r2", "k1 k80 4 r1", "k2 k80 4", "k3 k80 4", types=("k80", "v100")
)
TABLE = {"v100": {1: 2.0, 2: 3.8, 4: 7.0}, "k80": {2: 1.0}}


def test_curve_at_between_below_and_beyond_points() -> None:
    curve = Curve({2: 4.0, 4: 6.0, 8: 8.0}, None)
    assert [curve(n) for n in (0, 1, 2, 3, 4, 6, 8)] == [0.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert curve(16) == 16.0  # linear scaling from the last point
    assert curve(1.5) == 3.0


def test_curve_is_flat_beyond_the_stated_maximum() -> None:
    curve = Curve({1: 1.0, 2: 1.5}, 4)
    assert [curve(n) for n in (3, 4, 5, 100)] == [2.25, 3.0, 3.0, 3.0]
    assert Curve({1: 1.0, 8: 2.0}, 4)(6) == Curve({1: 1.0, 8: 2.0}, None)(4)


def test_a_bare_number_scales_linearly() -> None:
    speeds = Throughput(LAB)
    assert speeds.at(job("j", (1, 8), throughput={"v100": {1: 2.5}}), "v100", 6) == 15.0


def test_span_and_slowdown() -> None:
    speeds = Throughput(LAB)
    j = job("j", (1, 8), throughput=TABLE, slowdown=Slowdown(1.0, 1.25, 2.0))
    assert speeds.rate(j, {"a1": 4}) == 7.0
    assert speeds.rate(j, {"a1": 2, "a2": 2}) == 7.0 / 1.25
    assert speeds.rate(j, {"a1": 2, "b1": 2}) == 3.5
    assert speeds.span(["k2", "k3"]) is Span.RACK  # nodes without a rack are one rack
    assert speeds.span(["k1", "k2"]) is Span.CLUSTER
    assert speeds.span([]) is Span.NODE
    assert speeds.rate(j, {}) == 0.0


def test_mixed_types_run_at_the_slowest_members_rate() -> None:
    speeds = Throughput(LAB)
    j = job("j", (1, 8), throughput=TABLE)
    assert speeds.rate(j, {"a1": 2, "k1": 2}) == pytest.approx(2.0 / 1.1)  # four k80 rather than four v100
    assert speeds.by_type({"a1": 2, "k1": 1, "a2": 1}) == {"k80": 1, "v100": 3}


def test_types_and_unknown_speed() -> None:
    speeds = Throughput(LAB)
    only = job("j", 1, throughput={"v100": {1: 1.0}, "h100": {1: 9.0}})
    assert speeds.types(only) == ("v100",)
    assert speeds.rate(only, {"k1": 1}) is None
    nothing = job("n", 1)
    assert speeds.types(nothing) == ("k80", "v100")
    assert speeds.rate(nothing, {"k1": 1}) is None
    assert not speeds.known(nothing)
    assert not speeds.known(job("h", 1, throughput={"h100": {1: 9.0}}))
    assert speeds.normalised(nothing, {"a1": 2, "a2": 1}) == pytest.approx(3 / 1.1)


def test_normalised_to_the_jobs_own_slowest_type() -> None:
    speeds = Throughput(LAB)
    j = job("j", (1, 8), throughput=TABLE)  # one k80: 0.5
    assert speeds.reference(j) == 0.5
    assert (speeds.speedup(j, "k80"), speeds.speedup(j, "v100"), speeds.speedup(j, "h100")) == (1.0, 4.0, 0.0)
    assert speeds.normalised(j, {"a1": 4}) == 14.0
    assert speeds.of_share(j, {"k80": 1.0, "v100": 0.25}) == 2.0
    backwards = job("b", 1, throughput={"v100": {1: 1.0}, "k80": {1: 2.0}})
    assert speeds.speedup(backwards, "k80") == 2.0


def test_a_model_that_one_gpu_does_not_hold() -> None:
    speeds = Throughput(LAB)
    j = job("j", (2, 4), throughput={"v100": {1: 0.0, 2: 3.0, 4: 5.0}})
    assert speeds.at(j, "v100", 1) == 0.0
    assert speeds.reference(j) == 1.5
    assert speeds.normalised(j, {"a1": 2}) == 2.0
    dead = job("d", 1, throughput={"v100": {1: 0.0}})
    assert speeds.reference(dead) is None
    assert speeds.normalised(dead, {"a1": 1}) == 0.0


@given(curves(), st.integers(1, 20), st.none() | st.integers(1, 20))
def test_between_points_means_between_values(points: dict[int, float], n: int, most: int | None) -> None:
    curve = Curve(points, most)
    at = n if most is None else min(n, most)
    if at in points:
        assert curve(n) == points[at]
    below = max((m for m in points if m < at), default=0)
    above = min((m for m in points if m > at), default=None)
    if at not in points and above is not None:
        ends = sorted((points.get(below, 0.0), points[above]))
        assert ends[0] - 1e-9 <= curve(n) <= ends[1] + 1e-9
    assert curve(n) >= 0


@given(snapshots(), st.floats(0.1, 10))
def test_units_of_iterations_do_not_matter_to_normalised_throughput(s: Snapshot, scale: float) -> None:
    speeds = Throughput(s.cluster)
    for j in s.jobs:
        if not j.throughput:
            continue
        other = job("x", 1, throughput={t: {n: r * scale for n, r in c.items()} for t, c in j.throughput.items()})
        mine = job("x", 1, throughput=j.throughput)
        for t in speeds.present:
            assert speeds.speedup(other, t) == pytest.approx(speeds.speedup(mine, t))
