"""AFS-L against a literal Algorithm 1, and what it does where the paper is silent."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.afs.priority import Leaders, beats
from policy.decide import decide
from policy.model import BadInput, Code, Decision, Slowdown, Snapshot, Work
from tests.policy.afs.literal import literal
from tests.policy.worlds import cluster, curves, job, sublinear, world


def counts(decision: Decision) -> dict[str, int]:
    return {name: sum(a.values()) for name, a in decision.allocation.items()}


@st.composite
def single_type(draw: st.DrawFn, linear: bool = False) -> Snapshot:
    gpus = draw(st.integers(1, 24))
    jobs = []
    for i in range(draw(st.integers(1, 8))):
        table = draw(curves(concave=True))
        if linear or draw(st.integers(0, 4)) == 0:
            table = {1: draw(st.sampled_from((1.0, 3.0, 0.1)))}
        most = draw(st.none() | st.integers(1, 12))
        jobs.append(
            job(
                f"j{i}",
                (1, most),
                throughput={"v": table},
                work=Work(draw(st.sampled_from((1.0, 7.0, 1e3)) | st.floats(1, 1e5)), 0.0),
                submitted_s=draw(st.sampled_from((0.0, 1.0))),
            )
        )
    return world(cluster(f"a v {gpus}"), *jobs)


@settings(max_examples=250, deadline=None)
@given(single_type())
def test_equal_to_algorithm_1(s: Snapshot) -> None:
    assert counts(decide(s, "afs-l")) == literal(s)


@settings(max_examples=100, deadline=None)
@given(single_type(linear=True), st.booleans())
def test_equal_to_algorithm_1_where_everything_ties(s: Snapshot, shorter: bool) -> None:
    found = counts(decide(s, "afs-l", {"tie": "shorter" if shorter else "submitted"}))
    assert found == literal(s, shorter=shorter)


def test_the_comparison_is_not_transitive() -> None:
    """Why no tournament is played: a leads b, b leads c, c leads a."""
    a, b, c = (0.35 / 1.35, 0.40, 1.0), (1 / 3, 0.5, 2.0), (0.45, 0.9, 3.0)
    assert not beats(*b, *a, shorter=False)
    assert not beats(*c, *b, shorter=False)
    assert beats(*c, *a, shorter=False)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 20), st.booleans())
def test_the_line_of_leaders_is_the_walk(data: st.DataObject, n: int, shorter: bool) -> None:
    """Whatever the numbers, and however the top changes: the same top as walking over all jobs."""
    number = st.sampled_from((0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0))

    def draw() -> tuple[float, float, float]:
        return data.draw(number), data.draw(number), data.draw(number)

    now = [draw() for _ in range(n)]
    alive = [True] * n
    leaders = Leaders([v[0] for v in now], [v[1] for v in now], [v[2] for v in now], shorter)
    for _ in range(12):
        star = None
        for i in range(n):
            if alive[i] and (star is None or beats(*now[i], *now[star], shorter=shorter)):
                star = i
        assert leaders.top == star
        if star is None:
            break
        if data.draw(st.integers(0, 3)) == 0:
            alive[star] = False
            leaders.leave()
        else:
            now[star] = draw()
            leaders.change(*now[star])


def test_stage_one_gives_one_gpu_each_to_the_shortest() -> None:
    jobs = [job(f"j{i}", (1, 8), throughput={"v": {1: 1.0}}, work=Work(float(100 - i))) for i in range(6)]
    assert counts(decide(world(cluster("a v 4"), *jobs), "afs-l")) == {
        "j0": 0, "j1": 0, "j2": 1, "j3": 1, "j4": 1, "j5": 1,
    }  # fmt: skip


def test_more_to_the_efficient_job_although_it_is_longer() -> None:
    short = job("short", (1, 8), throughput={"v": sublinear(1.0, 0.3, 8)}, work=Work(10.0))
    long = job("long", (1, 8), throughput={"v": sublinear(1.0, 0.95, 8)}, work=Work(1000.0))
    found = counts(decide(world(cluster("a v 8"), short, long), "afs-l"))
    assert found["long"] > found["short"]


def test_gpus_that_help_nobody_stay_idle_and_the_reason_says_so() -> None:
    flat = job("flat", (1, 8), throughput={"v": {1: 1.0, 2: 1.6, 4: 1.6, 8: 1.6}}, work=Work(10.0))
    decision = decide(world(cluster("a v 8"), flat), "afs-l")
    assert counts(decision) == {"flat": 2}
    reason = decision.reasons["flat"]
    assert reason.code is Code.NO_GAIN
    assert reason.numbers["idle"] == 6
    assert "more would not make it faster" in reason.text
    assert decision.certificate.work_conserving


def test_a_dip_in_the_curve_is_stepped_over() -> None:
    dip = job("dip", (1, 8), throughput={"v": {1: 1.0, 2: 1.8, 3: 1.5, 4: 3.0}}, work=Work(10.0))
    assert counts(decide(world(cluster("a v 3"), dip), "afs-l")) == {"dip": 2}
    assert counts(decide(world(cluster("a v 4"), dip), "afs-l")) == {"dip": 4}


def test_gangs_and_allowed_sizes() -> None:
    gang = job("gang", (4, 8), throughput={"v": sublinear(1.0, 0.9, 8)}, work=Work(1.0))
    steps = job("steps", (1, 8), throughput={"v": sublinear(1.0, 0.9, 8)}, work=Work(100.0))
    steps = replace(steps, gpus=replace(steps.gpus, allowed=(1, 2, 4, 8)))
    found = counts(decide(world(cluster("a v 8"), gang, steps), "afs-l"))
    assert found["gang"] in range(4, 9)
    assert found["steps"] in (1, 2, 4)
    assert counts(decide(world(cluster("a v 3"), gang, steps), "afs-l")) == {"gang": 0, "steps": 2}


def test_unknown_lengths_are_the_longest_or_refused() -> None:
    known = job("known", (1, 4), throughput={"v": {1: 1.0}}, work=Work(1e9))
    unknown = job("unknown", (1, 4), throughput={"v": {1: 1.0}})
    hidden = job("hidden", (1, 4), throughput={"v": {1: 1.0}}, work=Work(1.0), known=False)
    s = world(cluster("a v 1"), hidden, unknown, known)
    decision = decide(s, "afs-l")
    assert counts(decision) == {"hidden": 0, "unknown": 0, "known": 1}
    assert "2 jobs of unknown length" in decision.certificate.notes[0]
    with pytest.raises(BadInput, match="afs-p"):
        decide(s, "afs-l", {"unknown": "refuse"})


def test_unknown_speed_is_linear_up_to_the_fair_share() -> None:
    new, old = job("new", (1, 8)), job("old", (1, 8), throughput={"v": sublinear(1.0, 0.5, 8)}, work=Work(10.0))
    assert counts(decide(world(cluster("a v 8"), new, old), "afs-l")) == {"new": 4, "old": 4}


def test_types_fill_up_and_later_jobs_take_the_next() -> None:
    table = {"k": {1: 1.0}, "v": {1: 4.0}}
    jobs = [job(f"j{i}", (1, 1), throughput=table, work=Work(float(i + 1))) for i in range(4)]
    decision = decide(world(cluster("k1 k 2", "v1 v 1"), *jobs), "afs-l")
    assert decision.allocation == {"j0": {"v1": 1}, "j1": {"k1": 1}, "j2": {"k1": 1}, "j3": {}}


def test_span_counts_when_asked() -> None:
    wide = job("w", (1, 8), throughput={"v": sublinear(1.0, 0.9, 8)}, work=Work(1.0), slowdown=Slowdown(1.0, 3.0, 3.0))
    s = world(cluster("a v 4", "b v 4"), wide)
    assert counts(decide(s, "afs-l")) == {"w": 8}
    assert counts(decide(s, "afs-l", {"span": "best"})) == {"w": 4}


@settings(max_examples=60, deadline=None)
@given(single_type(), st.sampled_from((60.0, 0.5)))
def test_units_do_not_matter(s: Snapshot, scale: float) -> None:
    scaled = [
        replace(j, throughput={t: {n: r * scale for n, r in c.items()} for t, c in j.throughput.items()})
        for j in s.jobs
    ]
    assert counts(decide(replace(s, jobs=tuple(scaled)), "afs-l")) == counts(decide(s, "afs-l"))


@settings(max_examples=60, deadline=None)
@given(single_type())
def test_one_more_gpu_takes_none_away_in_sum(s: Snapshot) -> None:
    totals = []
    for extra in range(3):
        where = replace(s.cluster, nodes=(replace(s.cluster.nodes[0], gpus=s.cluster.nodes[0].gpus + extra),))
        totals.append(sum(counts(decide(replace(s, cluster=where), "afs-l")).values()))
    assert all(b >= a for a, b in pairwise(totals))
