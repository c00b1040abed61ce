"""The baselines that are an order, and DRF: by hand on small clusters, by literal re-implementations on random ones."""

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


def snapshot(jobs: list[dict[str, Any]], gpus: int = 4, **more: Any) -> Snapshot:
    nodes = [{"name": "n", "gpu_type": "v100", "gpus": gpus, **more.pop("node", {})}]
    return parse(json.dumps({"cluster": {"nodes": nodes}, "jobs": jobs, **more}))


def job(name: str, gpus: Any = 1, left: float | None = 100.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "gpus": gpus, "work": {"total": left}, "throughput": {"v100": 1.0}, **more}


def running(decision: Decision) -> list[str]:
    return [name for name, place in decision.allocation.items() if place]


def test_srtf_orders_by_time_and_srsf_by_service() -> None:
    # a: 100 iterations at 4/s = 25 s, service 100 GPU-s; b: 60 s on one GPU, service 60.
    two = snapshot([job("a", 4, 100), job("b", 1, 60)])
    assert running(decide(two, "srtf")) == ["a"]
    assert running(decide(two, "srsf")) == ["b"]
    assert decide(two, "srtf").reasons["a"].numbers["remaining_s"] == 25.0


def test_shortest_first_preempts_and_skips_gangs_that_do_not_fit() -> None:
    held = snapshot([job("long", 3, 900, allocation={"n": 3}), job("wide", 4, 4000), job("short", 2, 10)])
    decision = decide(held, "srtf")
    assert running(decision) == ["short"]
    assert decision.reasons["long"].code is Code.PREEMPTED
    assert decision.reasons["wide"].numbers["ahead"] == "short"


def test_unknown_lengths_come_last() -> None:
    blind = [job("x", 4, None), job("hidden", 4, 1, known=False), job("known", 4, 999)]
    assert running(decide(snapshot(blind), "srtf")) == ["known"]


orders = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 500)), min_size=1, max_size=7)


@settings(deadline=None, max_examples=60)
@given(rows=orders, gpus=st.integers(1, 8))
def test_srtf_and_srsf_equal_the_textbook(rows: list[tuple[int, int]], gpus: int) -> None:
    jobs = [job(f"j{i}", size, left, submitted=i) for i, (size, left) in enumerate(rows)]
    for policy, key in (
        ("srtf", lambda i: (rows[i][1] / rows[i][0], i)),
        ("srsf", lambda i: (rows[i][1], i)),
    ):
        free, expected = gpus, []
        for i in sorted(range(len(rows)), key=key):
            if rows[i][0] <= free:
                free -= rows[i][0]
                expected.append(f"j{i}")
        assert sorted(running(decide(snapshot(jobs, gpus), policy))) == sorted(expected)


def test_the_elastic_forms_give_what_is_left_to_whoever_gains_most() -> None:
    flat = {"v100": {"1": 1.0, "2": 1.1, "4": 1.2}}
    steep = {"v100": {"1": 1.0, "2": 1.9, "4": 3.5}}
    elastic = {"requested": 1, "min": 1, "max": 4}
    two = snapshot([job("short", elastic, 10, throughput=flat), job("long", elastic, 99, throughput=steep)])
    assert {n: sum(a.values()) for n, a in decide(two, "srtf").allocation.items()} == {"short": 1, "long": 1}
    assert {n: sum(a.values()) for n, a in decide(two, "srtf-e").allocation.items()} == {"short": 1, "long": 3}
    assert "left over" in decide(two, "srsf-e").reasons["long"].text


def test_las_puts_the_least_attained_first_by_job_or_by_app() -> None:
    jobs = [
        job("a1", 2, app="a", attained={"v100": 10.0}),
        job("a2", 4, app="a", attained={"v100": 500.0}),
        job("b", 4, app="b", attained={"v100": 100.0}),
    ]
    assert running(decide(snapshot(jobs), "las")) == ["a1"]
    assert running(decide(snapshot(jobs), "las", {"scope": "app"})) == ["b"]


def test_tiresias_queues_by_threshold_first_come_first_served_within() -> None:
    jobs = [
        job("old", 2, submitted=0, attained={"v100": 9000.0}),
        job("late", 2, submitted=2, attained={"v100": 3599.0}),
        job("early", 2, submitted=1, attained={"v100": 1.0}),
    ]
    decision = decide(snapshot(jobs), "tiresias-l")
    assert running(decision) == ["late", "early"]
    assert decision.reasons["old"].numbers["queue"] == 2


def test_tiresias_promotes_what_waited_knob_times_its_run() -> None:
    jobs = [job("starved", 4, attained={"v100": 8000.0}), job("fresh", 4, submitted=1)]
    first = decide(snapshot(jobs, now=10.0), "tiresias-l")
    assert running(first) == ["fresh"]
    # It ran 8000 / 4 = 2000 s; 8 x 2000 s of waiting bring it back, ahead of the later job.
    waited = replace(snapshot(jobs, now=16000.0), state=first.state)
    again = decide(waited, "tiresias-l")
    assert running(again) == ["starved"]
    assert again.state["jobs"]["starved"]["base"] == 8000.0
    assert running(decide(waited, "tiresias-l", {"promote_knob": 0})) == ["fresh"]


def test_drf_reproduces_the_example_of_its_paper() -> None:
    # 9 CPUs, 18 GB; A: 1 CPU, 4 GB a task; B: 3 CPUs, 1 GB: A runs 3 tasks, B runs 2 (DRF §4.1). GPUs abound.
    node = {"cpus": 9, "memory": "18G"}
    jobs = [job(f"a{i}", 1, tenant="A", cpus={"per_gpu": 1}, memory={"per_gpu": "4G"}) for i in range(6)]
    jobs += [job(f"b{i}", 1, tenant="B", cpus={"per_gpu": 3}, memory={"per_gpu": "1G"}) for i in range(6)]
    decision = decide(snapshot(jobs, 64, node=node), "drf")
    assert [sum(n.startswith(t) for n in running(decision)) for t in "ab"] == [3, 2]
    assert decision.reasons["a0"].numbers["resource"] in ("memory", "gpus", "cpus")


def test_drf_weights() -> None:
    jobs = [job(f"{t}{i}", 1, tenant=t) for t in "xy" for i in range(8)]
    tenants = [{"name": "x", "weight": 3}, {"name": "y", "weight": 1}]
    decision = decide(snapshot(jobs, 8, tenants=tenants), "drf")
    assert [sum(n.startswith(t) for n in running(decision)) for t in "xy"] == [6, 2]


@pytest.mark.parametrize("policy", ["srtf", "srsf", "srtf-e", "srsf-e", "las", "tiresias-l", "drf", "optimus", "slaq"])
def test_a_tenants_cap_is_kept_and_said(policy: str) -> None:
    jobs = [job("a", 2, tenant="t"), job("b", 2, tenant="t")]
    decision = decide(snapshot(jobs, 8, tenants=[{"name": "t", "cap": 2}]), policy)
    assert len(running(decision)) == 1
    assert Code.WAITS_CAP in {r.code for r in decision.reasons.values()}


def test_backfilling_takes_another_place_where_the_best_one_would_delay_the_head() -> None:
    """The head is to have all of a and two of b when `short` ends: one GPU of b is in nobody's way."""
    text = (
        "cluster: {nodes: [{name: a, gpu_type: g, gpus: 4}, {name: b, gpu_type: g, gpus: 4}]}\n"
        "jobs:\n- {name: short, gpus: 2, allocation: {a: 2}, work: {total: 100}, throughput: {g: 1.0}}\n"
        "- {name: runs, gpus: 1, allocation: {b: 1}}\n"
        "- {name: head, gpus: 6, submitted: 1, work: {total: 100}, throughput: {g: 1.0}}\n"
        "- {name: long, gpus: 1, submitted: 2, work: {total: 900}, throughput: {g: 1.0}}\n"
        "- {name: longer, gpus: 1, submitted: 3, work: {total: 900}, throughput: {g: 1.0}}"
    )
    decision = decide(parse(text), "fifo-backfill")
    assert dict(decision.allocation["long"]) == {"b": 1}
    assert not decision.allocation["head"]
    assert not decision.allocation["longer"]
