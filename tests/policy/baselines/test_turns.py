"""Backfilling and Gandiva: who overtakes, who takes turns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decide import decide
from policy.model import Code, Decision, Snapshot
from policy.text.instance import parse


def snapshot(jobs: list[dict[str, Any]], nodes: list[int] | None = None, **more: Any) -> Snapshot:
    made = [{"name": f"n{i}", "gpu_type": "v100", "gpus": g} for i, g in enumerate(nodes or [4])]
    return parse(json.dumps({"cluster": {"nodes": made}, "jobs": jobs, **more}))


def job(name: str, gpus: Any, seconds: float | None, **more: Any) -> dict[str, Any]:
    """A job that runs `seconds` on the gang it requests."""
    size = gpus if isinstance(gpus, int) else gpus["requested"]
    total = None if seconds is None else seconds * size
    return {"name": name, "gpus": gpus, "work": {"total": total}, "throughput": {"v100": 1.0}, **more}


def running(decision: Decision) -> list[str]:
    return [name for name, place in decision.allocation.items() if place]


QUEUE = [
    job("runs", 3, 100, allocation={"n0": 3}),
    job("head", 4, 50, submitted=1),
    job("fits-before", 1, 99, submitted=2),
    job("too-long", 1, 101, submitted=3),
]


def test_easy_lets_overtake_what_ends_before_the_heads_start() -> None:
    decision = decide(snapshot(QUEUE), "fifo-backfill")
    assert running(decision) == ["runs", "fits-before"]
    assert decision.reasons["head"].numbers["starts_in_s"] == pytest.approx(100)
    assert "overtakes head" in decision.reasons["fits-before"].text
    longer_first = [QUEUE[0], QUEUE[1], QUEUE[3]]
    blocked = decide(snapshot(longer_first), "fifo-backfill")
    assert running(blocked) == ["runs"]
    assert "delay head" in blocked.reasons["too-long"].text


def test_aggressive_lets_everything_overtake_that_fits() -> None:
    jobs = [QUEUE[0], QUEUE[1], QUEUE[3]]
    assert running(decide(snapshot(jobs), "fifo-backfill", {"variant": "aggressive"})) == ["runs", "too-long"]


def test_conservative_protects_also_the_second_in_the_queue() -> None:
    # `second` is to start at 100 on what head leaves; `third` (300 s on one GPU) delays only second.
    jobs = [
        job("runs", 2, 100, allocation={"n0": 2}),
        job("head", 3, 50, submitted=1),
        job("second", 4, 10, submitted=2),
        job("third", 1, 300, submitted=3),
    ]
    assert running(decide(snapshot(jobs), "fifo-backfill")) == ["runs", "third"]
    decision = decide(snapshot(jobs), "fifo-backfill", {"variant": "conservative"})
    assert running(decision) == ["runs"]
    assert decision.reasons["second"].numbers["starts_in_s"] == pytest.approx(150)


@pytest.mark.parametrize(
    ("ends", "last", "starts_s"),
    [(10, 50, 50), (10, 61, 10), (29, 60, 60), (31, 90, 90), (31, 91, 31)],
)
def test_slurm_looks_at_ends_in_windows_of_half_a_minute(ends: float, last: float, starts_s: float) -> None:
    """The head could start when the first of the two ends; whoever ends within its window counts as ended with it."""
    jobs = [
        job("soon", 2, ends, allocation={"n0": 2}),
        job("later", 1, last, allocation={"n0": 1}),
        job("head", 3, 50, submitted=1),
        job("short", 1, 45, submitted=2),
    ]
    exact = decide(snapshot(jobs), "fifo-backfill", {"variant": "conservative"})
    assert exact.reasons["head"].numbers["starts_in_s"] == pytest.approx(ends)
    assert "short" not in running(exact)
    coarse = decide(snapshot(jobs), "fifo-backfill", {"variant": "slurm"})
    assert coarse.reasons["head"].numbers["starts_in_s"] == pytest.approx(starts_s)
    assert ("short" in running(coarse)) is (starts_s > 45)


def test_slurms_windows_are_twice_as_long_each_time() -> None:
    # Ends at 10 | 100, 150 | 280: the first window is until 60, the second until 30 + 120, the third far enough.
    jobs = [job(f"r{end}", 1, end, allocation={"n0": 1}) for end in (10, 100, 150, 280)]
    starts_in_s = []
    for gpus in (1, 2, 3, 4):
        decision = decide(snapshot([*jobs, job("head", gpus, 50, submitted=1)]), "fifo-backfill", {"variant": "slurm"})
        starts_in_s.append(decision.reasons["head"].numbers["starts_in_s"])
    assert starts_in_s == pytest.approx([10, 150, 150, 280])


def test_nothing_overtakes_when_no_end_is_known() -> None:
    jobs = [job("runs", 3, None, allocation={"n0": 3}), job("head", 4, 50, submitted=1), job("s", 1, 1, submitted=2)]
    decision = decide(snapshot(jobs), "fifo-backfill")
    assert running(decision) == ["runs"]
    assert "no known length" in decision.reasons["s"].text


rows = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 60)), min_size=2, max_size=8)


def starts(jobs: list[tuple[int, int]], policy: str, gpus: int = 6) -> dict[str, float]:
    """When each job starts, if nothing arrives later and estimates hold: rounds at every end."""
    now, left = 0.0, {f"j{i}": float(s * g) for i, (g, s) in enumerate(jobs)}
    held: dict[str, dict[str, int]] = {}
    began: dict[str, float] = {}
    while left:
        made = [
            {
                "name": n, "gpus": jobs[int(n[1:])][0], "submitted": int(n[1:]), "throughput": {"v100": 1.0},
                "work": {"total": work}, "allocation": held.get(n, {}),
            }
            for n, work in left.items()
        ]  # fmt: skip
        decision = decide(snapshot(made, [gpus]), policy)
        held = {n: dict(a) for n, a in decision.allocation.items() if a}
        for n in held:
            began.setdefault(n, now)
        step = min(left[n] / sum(a.values()) for n, a in held.items())
        now += step
        left = {n: w - (step * sum(held[n].values()) if n in held else 0.0) for n, w in left.items()}
        left = {n: w for n, w in left.items() if w > 1e-6}
    return began


@settings(deadline=None, max_examples=25)
@given(jobs=rows)
def test_easy_never_starts_the_first_blocked_job_later_than_fifo(jobs: list[tuple[int, int]]) -> None:
    fifo, easy = starts(jobs, "fifo"), starts(jobs, "fifo-backfill")
    blocked = [n for n in fifo if fifo[n] > 0]
    if blocked:
        head = min(blocked, key=lambda n: int(n[1:]))
        assert easy[head] <= fifo[head] + 1e-6


# --- Gandiva ---------------------------------------------------------------------------------------------------


def play(jobs: list[dict[str, Any]], nodes: list[int], rounds: int, quantum: float = 60.0) -> dict[str, int]:
    snap = snapshot(jobs, nodes)
    ran = dict.fromkeys((j["name"] for j in jobs), 0)
    for _ in range(rounds):
        decision = decide(snap, "gandiva", {"quantum": quantum})
        for name in running(decision):
            ran[name] += 1
        now = snap.now_s + quantum
        moved = tuple(replace(j, allocation=decision.allocation[j.name]) for j in snap.jobs)
        snap = replace(snap, jobs=moved, state=decision.state, now_s=now)
    return ran


def test_gandiva_slices_time_when_jobs_wait() -> None:
    jobs = [job(f"j{i}", 4, 1e6, submitted=i) for i in range(3)]
    assert set(play(jobs, [4], 30).values()) == {10}


def test_gandiva_does_not_slice_within_a_quantum() -> None:
    jobs = [job("a", 4, 1e6, allocation={"n0": 4}), job("b", 4, 1e6, submitted=1)]
    snap = snapshot(jobs, [4], now=30.0, state={"turns": {"a": {"since_s": 0.0, "until_s": 30.0}}})
    assert running(decide(snap, "gandiva")) == ["a"]
    later = replace(snap, now_s=60.0)
    decision = decide(later, "gandiva")
    assert running(decision) == ["b"]
    assert decision.reasons["a"].code is Code.PREEMPTED


def asked_again(snap: Snapshot, decision: Decision, now_s: float) -> Snapshot:
    jobs = tuple(replace(j, allocation=dict(decision.allocation[j.name])) for j in snap.jobs)
    return replace(snap, jobs=jobs, state=decision.state, now_s=now_s)


def test_gandiva_gives_turns_away_once_a_quantum() -> None:
    """Who goes on after its turn was over begins another one: it does not give way to who has just stopped."""
    jobs = [job("a", 1, 1e6, allocation={"n0": 1}), job("b", 1, 1e6, submitted=1, allocation={"n0": 1})]
    jobs.append(job("c", 1, 1e6, submitted=2))
    turns = {n: {"since_s": 0.0, "until_s": 60.0} for n in ("a", "b")}
    snap = snapshot(jobs, [2], now=60.0, state={"turns": turns})
    first = decide(snap, "gandiva")
    assert "c" in running(first) and len(running(first)) == 2
    for now_s in (61.0, 90.0, 119.0):
        snap = asked_again(snap, first, now_s)
        again = decide(snap, "gandiva")
        assert running(again) == running(first)
        first = again
    assert set(running(decide(asked_again(snap, first, 121.0), "gandiva"))) != set(running(first))


def test_gandiva_migrates_one_job_a_quantum() -> None:
    slow = {"node": 1.0, "rack": 2.0, "cluster": 2.0}
    jobs = [
        job("a", 4, 1e6, allocation={"n0": 2, "n1": 2}, slowdown=slow),
        job("b", 4, 1e6, submitted=1, allocation={"n2": 2, "n3": 2}, slowdown=slow),
    ]
    snap = snapshot(jobs, [4, 4, 4, 4])
    decision = decide(snap, "gandiva")
    moved = [j.name for j in snap.jobs if dict(decision.allocation[j.name]) != dict(j.allocation)]
    assert len(moved) == 1
    snap = asked_again(snap, decision, 30.0)
    again = decide(snap, "gandiva")
    assert all(dict(again.allocation[j.name]) == dict(j.allocation) for j in snap.jobs)
    snap = asked_again(snap, again, 61.0)
    assert all(len(place) == 1 for place in decide(snap, "gandiva").allocation.values())


def test_gandiva_puts_equals_beside_equals() -> None:
    jobs = [
        job("pair", 2, 1e6, allocation={"n0": 2}),
        job("single", 1, 1e6, allocation={"n1": 1}),
        job("other-pair", 2, 1e6, submitted=5),
        job("other-single", 1, 1e6, submitted=6),
    ]
    state = {"turns": {n: {"since_s": 0.0, "until_s": 1.0} for n in ("pair", "single")}}
    decision = decide(snapshot(jobs, [4, 4], now=1.0, state=state), "gandiva")
    assert decision.allocation["other-pair"] == {"n0": 2}
    assert decision.allocation["other-single"] == {"n1": 1}


def test_gandiva_grows_on_idle_gpus_and_shrinks_back() -> None:
    elastic = {"requested": 1, "min": 1, "max": 4}
    alone = decide(snapshot([job("a", elastic, 1e6)], [4]), "gandiva")
    assert sum(alone.allocation["a"].values()) == 4
    jobs = [job("a", elastic, 1e6, allocation={"n0": 4}), job("b", 3, 1e6, submitted=1)]
    state = {"turns": {"a": {"since_s": 0.0, "until_s": 1.0}}}
    both = decide(snapshot(jobs, [4], now=1.0, state=state), "gandiva")
    assert {n: sum(a.values()) for n, a in both.allocation.items()} == {"a": 1, "b": 3}


def test_gandiva_migrates_to_where_it_runs_faster() -> None:
    spread = job("a", 4, 1e6, allocation={"n0": 2, "n1": 2}, slowdown={"node": 1.0, "rack": 2.0, "cluster": 2.0})
    decision = decide(snapshot([spread], [4, 4]), "gandiva")
    assert decision.allocation["a"] in ({"n0": 4}, {"n1": 4})
    assert decision.reasons["a"].code is Code.MOVED
    still = decide(snapshot([spread], [4, 4]), "gandiva", {"migration_threshold": 3.0})
    assert still.allocation["a"] == {"n0": 2, "n1": 2}


def test_gandiva_of_themis_places_the_best_scores_first() -> None:
    # `wide` must span nodes (score 1.3); the two that fit a node go first.
    jobs = [job("wide", 6, 1e6), job("x", 4, 1e6, submitted=1), job("y", 4, 1e6, submitted=2)]
    decision = decide(snapshot(jobs, [4, 4]), "gandiva", {"variant": "themis"})
    assert running(decision) == ["x", "y"]
