"""AFS-P against a literal walk of the modified TOPPRIORITY, AFS-S against max-min, and the turns of stage one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.afs import afs_p
from policy.decide import decide
from policy.model import Snapshot
from policy.text.instance import parse
from tests.policy import worlds


def snapshot(jobs: list[dict[str, Any]], gpus: int) -> Snapshot:
    nodes = [{"name": "n", "gpu_type": "v100", "gpus": gpus}]
    return parse(json.dumps({"cluster": {"nodes": nodes}, "jobs": jobs}))


def counts(snap: Snapshot, policy: str) -> list[int]:
    return [sum(a.values()) for a in decide(snap, policy).allocation.values()]


concave = st.lists(st.integers(1, 100), min_size=7, max_size=7).map(
    lambda gains: [sum(sorted(gains, reverse=True)[:n]) / 10 for n in range(1, 8)]
)


def rows(curves: list[list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"j{i}", "submitted": i, "gpus": {"min": 1, "max": len(c)}, "work": {"total": None},
            "throughput": {"v100": {str(n + 1): r for n, r in enumerate(c)}},
        }
        for i, c in enumerate(curves)
    ]  # fmt: skip


def literal(curves: list[list[float]], gpus: int) -> list[int]:
    has = [1] * len(curves)
    for _ in range(gpus - len(curves)):
        leader = -1
        for j, c in enumerate(curves):
            if has[j] >= len(c) or c[has[j]] <= c[has[j] - 1]:
                continue
            if leader < 0:
                leader = j
                continue
            a, n = curves[leader], has[leader]
            left = (c[has[j]] - c[has[j] - 1]) / c[has[j]]  # (3) with the challenger as b, the leader as a
            right = (a[n] - a[n - 1]) / a[n - 1]
            if left > right * (1 + 1e-12):
                leader = j
        if leader < 0:
            break
        has[leader] += 1
    return has


@settings(deadline=None, max_examples=80)
@given(curves=st.lists(concave, min_size=1, max_size=5), more=st.integers(0, 20))
def test_stage_two_is_the_literal_walk(curves: list[list[float]], more: int) -> None:
    gpus = len(curves) + more
    assert counts(snapshot(rows(curves), gpus), "afs-p") == literal(curves, gpus)


@settings(deadline=None, max_examples=40)
@given(curves=st.lists(concave, min_size=1, max_size=5), more=st.integers(0, 20))
def test_afs_s_is_max_min_up_to_the_peak(curves: list[list[float]], more: int) -> None:
    gpus = len(curves) + more
    got = counts(snapshot(rows(curves), gpus), "afs-s")
    peaks = [max(range(len(c)), key=lambda n: (c[n], -n)) + 1 for c in curves]
    assert sum(got) == min(gpus, sum(peaks))
    level = max(got)
    assert all(g == p or g >= level - 1 for g, p in zip(got, peaks, strict=True))


def test_under_contention_jobs_take_turns_of_a_unit() -> None:
    jobs = [{"name": f"j{i}", "submitted": i, "gpus": 1, "throughput": {"v100": 1.0}} for i in range(3)]
    snap, ran = snapshot(jobs, 1), dict.fromkeys(("j0", "j1", "j2"), 0)
    order = []
    for _ in range(12):
        decision = decide(snap, "afs-p", {"unit": 100.0})
        (now,) = [n for n, a in decision.allocation.items() if a]
        ran[now] += 1
        order.append(now)
        made = []
        for job in snap.jobs:
            served = 50.0 if job.name == now else 0.0
            attained = {"v100": job.attained.get("v100", 0.0) + served}
            made.append(replace(job, attained=attained, allocation=decision.allocation[job.name]))
        snap = replace(snap, jobs=tuple(made), state=decision.state, now_s=snap.now_s + 50.0)
    assert order == ["j0", "j0", "j1", "j1", "j2", "j2"] * 2
    assert set(ran.values()) == {4}


@pytest.mark.parametrize("policy", ["afs-p", "afs-s"])
def test_where_nobody_waits_no_job_moves_because_one_has_begun_its_unit(policy: str) -> None:
    """Asked while a decision is carried out: some jobs run already and are in the middle of a unit, others are not."""
    table = {"k80": {1: 1.0}, "v100": {1: 2.0}}
    sizes = {"a": (1, 8), "b": (1, 4), "c": (1, 2), "d": (1, 2), "e": (1, 2), "f": 2}
    jobs = tuple(
        worlds.job(name, gpus, throughput=table, submitted_s=float(n)) for n, (name, gpus) in enumerate(sizes.items())
    )
    asked = worlds.world(worlds.cluster("n1 k80 4", "n2 v100 4"), *jobs, now_s=10.0)
    first = decide(asked, policy)
    for runs in jobs:
        now = tuple(
            replace(j, allocation=first.allocation[j.name], attained={"k80": 1.0} if j is runs else {}) for j in jobs
        )
        again = decide(replace(asked, jobs=now, state=first.state, now_s=11.0), policy)
        assert again.allocation == first.allocation, f"{runs.name} has begun"


@pytest.mark.parametrize(("attained", "walks"), (({}, 1), ({"v100": 60.0}, 2)))
def test_the_queue_is_walked_again_only_where_turns_have_changed_its_order(
    monkeypatch: pytest.MonkeyPatch, attained: dict[str, float], walks: int
) -> None:
    """Where nobody waits, sizes are those of the order of submission: mostly the queue is in that order anyway."""
    walked: list[list[str]] = []
    stage_one = afs_p._stage_one

    def counted(pools: Any, queue: Any, placer: Any) -> Any:
        walked.append([job.name for job in queue])
        return stage_one(pools, queue, placer)

    monkeypatch.setattr(afs_p, "_stage_one", counted)
    jobs = [worlds.job(f"j{i}", (1, 4), submitted_s=float(i)) for i in range(3)]
    jobs[2] = replace(jobs[2], attained=attained, allocation={"n1": 1} if attained else {})
    decide(worlds.world(worlds.cluster("n1 v100 4"), *jobs), "afs-p")
    assert len(walked) == walks
    assert walked[-1] == ["j0", "j1", "j2"]
