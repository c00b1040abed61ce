"""Numbers of a job: outside what they can mean they are refused with their place, within it every policy answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy import bounds, catalogue
from policy.decide import decide
from policy.model import BadInput
from policy.text.instance import parse

GOOD: dict[str, Any] = {
    "name": "odd", "gpus": {"min": 1, "max": 4}, "throughput": {"v100": {"1": 2.0, "2": 3.0}},
    "work": {"total": 1000.0, "done": 3.0}, "memory": 1000, "cpus": 1.0, "submitted": 1.0, "restart_cost": 1.0,
    "attained": {"v100": 1.0}, "slowdown": {"rack": 1.1}, "loss": [[1.0, 2.0], [2.0, 1.5]],
}  # fmt: skip


def instance(odd: dict[str, Any]) -> str:
    nodes = [{"name": f"n{i}", "gpu_type": "v100", "gpus": 4, "cpus": 32.0, "memory": "256G"} for i in (1, 2)]
    other = {"name": "plain", "gpus": {"min": 1, "max": 8}, "throughput": {"v100": 2.0}, "work": {"total": 100.0}}
    return json.dumps({"schema": 1, "now": 10.0, "cluster": {"nodes": nodes}, "jobs": [other, odd]}, indent=1)


OUTSIDE = [
    ({"throughput": {"v100": {"1": 1e308}}}, "jobs[1].throughput.v100.1"),
    ({"throughput": {"v100": {"1": 5e-324}}}, "jobs[1].throughput.v100.1"),
    ({"throughput": {"v100": 1e308}}, "jobs[1].throughput.v100"),
    ({"throughput": {"v100": {"1" + "0" * 400: 1.0}}}, "jobs[1].throughput.v100"),
    ({"throughput": {"v100": {str(bounds.MOST_GPUS + 1): 1.0}}}, "jobs[1].throughput.v100"),
    ({"gpus": 10**400}, "jobs[1].gpus"),
    ({"gpus": bounds.MOST_GPUS + 1}, "jobs[1].gpus"),
    ({"gpus": {"allowed": [1, 10**12]}}, "jobs[1].gpus.allowed[1]"),
    ({"work": {"total": 1e16}}, "jobs[1].work.total"),
    ({"work": {"total": 5e-324}}, "jobs[1].work.total"),
    ({"work": {"total": 1e308, "done": 1e307}}, "jobs[1].work"),
    ({"memory": 10**400}, "jobs[1].memory.per_gpu"),
    ({"memory": "9" * 400 + "G"}, "jobs[1].memory.per_gpu"),
    ({"memory": "99999999P"}, "jobs[1].memory.per_gpu"),
    ({"cpus": 1e300}, "jobs[1].cpus.per_gpu"),
    ({"submitted": -1e300}, "jobs[1].submitted"),
    ({"restart_cost": 1e300}, "jobs[1].restart_cost"),
    ({"attained": {"v100": 1e300}}, "jobs[1].attained.v100"),
    ({"slowdown": {"cluster": 1e300}}, "jobs[1].slowdown.cluster"),
    ({"loss": [[1.0, 1e300]]}, "jobs[1].loss[0][1]"),
]


@pytest.mark.parametrize(("odd", "field"), OUTSIDE, ids=[f"{i}-{field}" for i, (_, field) in enumerate(OUTSIDE)])
def test_what_lies_outside_is_refused_with_its_place(odd: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(instance({**GOOD, **odd}), "x.json")
    assert refused.value.field.startswith(field)
    assert refused.value.line is not None
    assert refused.value.remedy
    assert len(str(refused.value)) < 500


EXTREME: list[dict[str, Any]] = [
    {},
    {"throughput": {"v100": {"1": bounds.MOST_RATE}}},
    {"throughput": {"v100": {"1": bounds.LEAST_RATE}}},
    {"throughput": {"v100": {"1": bounds.LEAST_RATE, "2": bounds.MOST_RATE}}},
    {"throughput": {"v100": {"1": 0.0, "4": 1.0}}},
    {"throughput": {"v100": {str(bounds.MOST_GPUS): 1.0}}},
    {"work": {"total": bounds.MOST_WORK}},
    {"work": {"total": bounds.LEAST_WORK}},
    {"work": {"total": bounds.MOST_WORK}, "throughput": {"v100": {"1": bounds.LEAST_RATE}}},
    {"work": {"total": bounds.LEAST_WORK}, "throughput": {"v100": {"1": bounds.MOST_RATE}}},
    {"work": {"total": 0.0}},
    {"gpus": bounds.MOST_GPUS},
    {"gpus": {"min": 1, "max": bounds.MOST_GPUS}},
    {"memory": bounds.MOST_BYTES, "cpus": bounds.MOST_CPUS},
    {"submitted": -bounds.MOST_S},
    {"submitted": bounds.MOST_S},
    {"restart_cost": bounds.MOST_S, "attained": {"v100": bounds.MOST_GPU_S}},
    {"slowdown": {"node": bounds.MOST_SLOWDOWN, "rack": bounds.MOST_SLOWDOWN, "cluster": bounds.MOST_SLOWDOWN}},
    {"loss": [[1.0, bounds.MOST_LOSS], [bounds.MOST_WORK, -bounds.MOST_LOSS]]},
]


@pytest.mark.parametrize("policy", sorted(catalogue.entries()))
def test_at_the_bounds_every_policy_answers(policy: str) -> None:
    for odd in EXTREME:
        snapshot = parse(instance({**GOOD, **odd}), "x.json")
        assert all(bounds.problem(job) is None for job in snapshot.jobs)
        decision = decide(snapshot, policy, time_limit_s=10.0)
        assert decision.allocation.keys() == {"odd", "plain"}, odd
