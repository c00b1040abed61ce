"""The schedule inside a phase against brute force over gang sizes and orders."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import permutations, product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.model import GpuRange, Job
from policy.themis.schedule import Gangs, Schedule, Task, prefer, schedule
from policy.themis.shapes import Chunk, canonical, size
from tests.policy.themis.worlds import job


def speed(one: Job, gang: Sequence[Chunk]) -> float:
    curve = one.throughput["v100"]
    gpus = size(gang)
    slow = 1.0 if len(gang) == 1 else 1.5
    return curve.get(gpus, 0.0) / slow


def gangs() -> Gangs:
    return Gangs(speed, ("v100",))


def one_node(gpus: int) -> tuple[Chunk, ...]:
    return canonical([Chunk("v100", "r", gpus)])


def brute(tasks: Sequence[Task], gpus: int) -> float:
    """The best end over all gang sizes and all orders of starting, on one node, without pre-emption."""
    best = inf
    sizes = [[g for g in range(1, gpus + 1) if t.job.gpus.feasible(g)] for t in tasks]
    for gang in product(*sizes):
        seconds = [t.iterations / t.job.throughput["v100"][g] for t, g in zip(tasks, gang, strict=True)]
        for order in permutations(range(len(tasks))):
            free, now, running = gpus, 0.0, []
            for i in order:  # each starts as early as it can, not before the one ahead of it in the order
                while free < gang[i]:
                    now, back = heapq.heappop(running)
                    free += back
                free -= gang[i]
                heapq.heappush(running, (now + seconds[i], gang[i]))
            best = min(best, max(end for end, _ in running))
    return best


def tasks_of(curves: Sequence[Sequence[float]], work: Sequence[float], ranges: Sequence[tuple[int, int]]) -> list[Task]:
    out = []
    for i, (curve, iterations, (low, high)) in enumerate(zip(curves, work, ranges, strict=True)):
        table = {"v100": dict(enumerate(sorted(curve), start=1))}
        out.append(Task(job(f"t{i}", (low, high), rate=table), iterations))
    return out


@st.composite
def phases(draw: st.DrawFn, linear: bool) -> tuple[list[Task], int]:
    gpus, count = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    curves = []
    for _ in range(count):
        base = draw(st.floats(0.5, 2.0))
        curve = [base * n for n in range(1, 5)]
        if not linear:
            curve = draw(st.lists(st.floats(0.5, 4.0), min_size=4, max_size=4))
        curves.append(curve)
    work = draw(st.lists(st.floats(1.0, 20.0), min_size=count, max_size=count))
    ranges = []
    for _ in range(count):
        low = draw(st.integers(1, gpus))
        ranges.append((low, draw(st.integers(low, gpus))))
    return tasks_of(curves, work, ranges), gpus


@settings(max_examples=150, deadline=None)
@given(phases(linear=True))
def test_near_the_best_schedule_for_linear_jobs(case: tuple[list[Task], int]) -> None:
    tasks, gpus = case
    assert brute(tasks, gpus) * (1 - 1e-9) <= schedule(tasks, one_node(gpus), gangs()).seconds
    assert schedule(tasks, one_node(gpus), gangs()).seconds <= brute(tasks, gpus) * 1.34


@settings(max_examples=150, deadline=None)
@given(phases(linear=False))
def test_within_half_of_the_best_schedule_for_any_jobs(case: tuple[list[Task], int]) -> None:
    tasks, gpus = case
    found = schedule(tasks, one_node(gpus), gangs()).seconds
    best = brute(tasks, gpus)
    assert best * (1 - 1e-9) <= found <= best * 1.5


def elastic(*seconds: float) -> list[Task]:
    return tasks_of([[n / s for n in range(1, 9)] for s in seconds], [1.0] * len(seconds), [(1, 8)] * len(seconds))


def test_linear_jobs_without_limits_are_optimal_one_after_the_other() -> None:
    assert schedule(elastic(80, 100, 100, 120), one_node(8), gangs()).seconds == pytest.approx(50.0)


def test_longest_first_on_lanes() -> None:
    """Rigid jobs of one GPU on two: 120 + 80 beside 100 + 100 (§4.3.3)."""
    tasks = tasks_of([[1 / s] * 8 for s in (80, 100, 100, 120)], [1.0] * 4, [(1, 1)] * 4)
    found = schedule(tasks, one_node(2), gangs())
    assert found.seconds == pytest.approx(200.0)
    assert len(found.first) == 2


def test_the_network_is_avoided_where_it_costs() -> None:
    """Two nodes of two: two jobs side by side, each on one node, rather than each on all four across."""
    halves = canonical([Chunk("v100", "r", 2), Chunk("v100", "r", 2)])
    found = schedule(elastic(100, 100), halves, gangs())
    assert found.seconds == pytest.approx(50.0)
    assert sorted(take for _, take in found.first) == [((0, 2),), ((1, 2),)]


def test_a_job_that_cannot_run_here_counts_as_running_afterwards() -> None:
    tasks = tasks_of([[1.0] * 8, [1.0] * 8], [10.0, 20.0], [(1, 1), (4, 4)])
    found = schedule(tasks, one_node(2), gangs())
    assert found.seconds == pytest.approx(30.0)
    assert [i for i, _ in found.first] == [0]
    assert schedule(tasks[1:], one_node(2), gangs()) == Schedule(inf, ())


def test_falling_curves_use_fewer_gpus() -> None:
    task = Task(job("f", (1, 4), rate={"v100": {1: 1.0, 2: 3.0, 3: 2.0, 4: 1.0}}), 6.0)
    found = schedule([task], one_node(4), gangs())
    assert found.seconds == pytest.approx(2.0)
    assert found.first == ((0, ((0, 2),)),)


def test_equal_gpus_on_each_node() -> None:
    bundle = canonical([Chunk("v100", "r", 3), Chunk("v100", "r", 2)])
    equal = Gangs(speed, ("v100",), equal=True)
    four = Task(Job("j", "t", "a", GpuRange(4, 4, 4), throughput={"v100": {4: 4.0}}), 4.0)
    found = schedule([four], bundle, equal)
    assert sorted(n for _, take in found.first for _, n in take) == [2, 2]
    five = Task(Job("five", "t", "a", GpuRange(5, 5, 5), throughput={"v100": {5: 5.0}}), 4.0)
    assert schedule([five], bundle, equal).seconds == inf
    assert schedule([five], bundle, gangs()).seconds < inf


def test_running_jobs_first() -> None:
    tasks = tasks_of([[1.0] * 4] * 3, [10.0, 10.0, 10.0], [(1, 1)] * 3)
    assert [i for i, _ in prefer(tasks, one_node(1), gangs(), {2}).first] == [2]


@pytest.mark.parametrize("gpus", [1, 4])
def test_jobs_of_one_size_are_scheduled_once_however_many_they_are(gpus: int) -> None:
    """An app of a few hundred such jobs took longer than a decision may, and nothing was decided for anybody."""
    asked = []

    def counted(one: Job, gang: Sequence[Chunk]) -> float:
        asked.append(one)
        return speed(one, gang)

    many = [Task(job(f"j{i}", gpus, rate={"v100": {gpus: 1.0}}), 100.0) for i in range(60)]
    bundle = canonical([Chunk("v100", f"{k}?", 4) for k in range(8)])
    found = schedule(many, bundle, Gangs(counted, ("v100",)))
    assert len(found.first) == 32 // gpus
    assert len(asked) <= 4 * len(many)


def test_jobs_that_are_alike_are_looked_at_once() -> None:
    """Of a sweep there are hundreds, of many sizes each."""

    def asked(jobs: int) -> int:
        found = []

        def counted(one: Job, gang: Sequence[Chunk]) -> float:
            found.append(one)
            return speed(one, gang)

        rate = {"v100": {n: n**0.8 for n in range(1, 9)}}
        many = [Task(job(f"j{i}", (1, 8), rate=rate), 100.0) for i in range(jobs)]
        bundle = canonical([Chunk("v100", f"{k}?", 8) for k in range(4)])
        schedule(many, bundle, Gangs(counted, ("v100",), kind=lambda _: "of the sweep"))
        return len(found)

    assert asked(200) <= 2 * asked(50)
