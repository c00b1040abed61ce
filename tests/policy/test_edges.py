"""What every policy answers at the edges of what an instance can say: nothing there, nothing left, nothing allowed.

Judged here by counting alone, not by the certificate: what is held, and whether somebody waits whose gang would fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from policy import catalogue
from policy.decide import decide
from policy.model import Decision, Job, Snapshot
from policy.text.instance import parse

ONE = "cluster: {groups: [{count: 1, gpu_type: g, gpus: 4}]}"
TWO = "cluster: {nodes: [{name: a, gpu_type: k, gpus: 4}, {name: b, gpu_type: v, gpus: 2}]}"
NONE = "cluster: {nodes: []}"
SINGLE = "cluster: {nodes: [{name: a, gpu_type: k, gpus: 1}]}"
OPEN = "gpus: {min: 1, max: null}"


def one_node(more: str) -> str:
    return f"cluster: {{nodes: [{{name: a, gpu_type: k, gpus: 4, {more}}}]}}"


def many(count: int, row: str) -> list[str]:
    """`row` with its `#` numbered."""
    return [row.replace("#", str(i)) for i in range(count)]


EDGES: dict[str, tuple[str, list[str]]] = {
    "no jobs": (ONE, []),
    "nothing at all": (NONE, []),
    "no nodes": (NONE, ["gpus: 1", "gpus: {min: 1, max: 4}"]),
    "no nodes, whole tenants": (NONE, [OPEN, f"{OPEN}, throughput: {{g: 2.0}}"]),
    "all have ended": (
        ONE,
        ["gpus: 1, work: {total: 10, done: 10}",
         "gpus: {min: 1, max: 4}, work: {total: 10, done: 10}, allocation: {g-1: 2}"],
    ),
    "all but one have ended": (
        ONE,
        ["gpus: 1, work: {total: 10, done: 10}, allocation: {g-1: 1}",
         "gpus: {min: 1, max: 4}, work: {total: 10, done: 9}"],
    ),
    "a limit of nothing": (
        f"tenants: [{{name: t, cap: 0}}, {{name: u}}]\n{ONE}",
        ["tenant: t, gpus: 1", f"tenant: t, {OPEN}", "tenant: u, gpus: {min: 1, max: 2}"],
    ),
    "a limit of nothing for all": (f"tenants: [{{name: t, cap: 0}}]\n{ONE}", many(2, f"tenant: t, {OPEN}")),
    "a limit of nothing, learnt late": (
        f"tenants: [{{name: t, cap: 0}}, {{name: u}}]\n{ONE}",
        ["tenant: t, gpus: 2, allocation: {g-1: 2}", "tenant: u, gpus: {min: 1, max: 4}"],
    ),
    "a tenant of one GPU": (
        f"tenants: [{{name: t, cap: 1}}, {{name: u}}]\n{TWO}",
        [f"tenant: t, {OPEN}, throughput: {{k: 1.0, v: 3.0}}", f"tenant: u, {OPEN}, throughput: {{k: 1.0, v: 2.0}}"],
    ),
    "weights a million apart": (
        f"tenants: [{{name: t, weight: 1000}}, {{name: u, weight: 0.001}}]\n{TWO}",
        [f"tenant: t, {OPEN}, throughput: {{k: 1.0, v: 3.0}}", f"tenant: u, {OPEN}, throughput: {{k: 1.0, v: 2.0}}"],
    ),
    "down": (one_node("health: down"), ["gpus: 1", OPEN]),
    "draining": (
        one_node("health: drain"),
        ["gpus: 1", "gpus: {min: 1, max: 4}, allocation: {a: 2}", "app: s, gpus: 1, allocation: {a: 1}",
         "app: s, gpus: 1"],
    ),
    "foreign": (one_node("foreign: 4"), ["gpus: 1", OPEN]),
    "a node without GPUs": (
        "cluster: {nodes: [{name: a, gpu_type: k, gpus: 0}, {name: b, gpu_type: k, gpus: 2}]}",
        ["gpus: {min: 1, max: 64}", "gpus: 1"],
    ),
    "one app of many singles": (
        TWO, many(9, "app: s, tenant: t, gpus: 1, work: {total: 1#0}, throughput: {k: 1.0, v: 1.#}")
    ),
    "one app of gangs beside a job": (
        TWO, [*(f"app: s, tenant: t, gpus: {i % 3 + 1}, work: {{total: 100}}" for i in range(7)),
              "gpus: {min: 1, max: 6}"],
    ),
    "apps of which jobs have ended": (
        TWO,
        [f"app: s{i % 2}, tenant: t, gpus: {{min: 1, max: 3}}, work: {{total: 9, done: {9 if i % 3 == 0 else 5}}}"
         for i in range(8)],
    ),
    "an app that wants one": (
        f"apps: [{{name: s, scheduler: external, demand_max: 1}}]\n{ONE}", ["app: s, gpus: {min: 1, max: 4}"]
    ),
    "listed sizes": (
        TWO,
        ["gpus: {allowed: [3, 5]}", "gpus: {allowed: [2, 8]}", "gpus: {allowed: [1, 6]}, throughput: {v: 2.0}"],
    ),
    "listed sizes above": (TWO, ["gpus: {allowed: [7, 9]}", "gpus: {allowed: [4, 8]}"]),
    "requests above": (TWO, ["gpus: {min: 1, max: 64}, work: {total: 9}", "gpus: {min: 2, max: 16}"]),
    "one GPU": (SINGLE, ["gpus: {min: 1, max: 64}", "gpus: {min: 1, max: 16}", "gpus: 1"]),
    "one GPU, least sizes above": (SINGLE, ["gpus: {min: 2, max: 64}", "gpus: 1"]),
    "one GPU, five tenants": (SINGLE, many(5, f"{OPEN}, throughput: {{k: #.5}}")),
    "speeds of nothing": (
        TWO, ["gpus: 1, throughput: {k: 0.0, v: 1.0}", "gpus: {min: 1, max: 6}, throughput: {k: 0.0}", "gpus: 2"]
    ),
    "a type that is not there": (
        TWO, ["gpus: 1, throughput: {x: 1.0}", f"{OPEN}, throughput: {{x: 2.0}}", "gpus: 2"]
    ),
    "holdings of two types": (
        TWO, ["gpus: {min: 1, max: 6}, allocation: {a: 1, b: 1}", "gpus: 3, allocation: {a: 2, b: 1}", "gpus: 1"]
    ),
    "equal tenants": (TWO, many(3, f"{OPEN}, throughput: {{k: 1.0, v: 2.0}}")),
    "tenants of unknown speed": (TWO, many(4, OPEN)),
    "tenants of two kinds of jobs": (
        TWO, [f"tenant: u{i}, {OPEN}, throughput: {{k: 1.0, v: {1 + i + m}.5}}" for i in range(3) for m in range(2)]
    ),
}  # fmt: skip


def instance(edge: str) -> Snapshot:
    head, rows = EDGES[edge]
    jobs = [f"- {{name: j{i}, {row}}}" for i, row in enumerate(rows)]
    return parse("\n".join([head, "jobs:" if jobs else "jobs: []", *jobs]))


def waits_in_vain(snapshot: Snapshot, decision: Decision) -> Iterator[str]:
    """Jobs without GPUs that a gang's number of idle ones is left for, of types on which they run."""
    free = {n.name: n.gpus - n.foreign if n.health == "up" else 0 for n in snapshot.cluster.nodes}
    holds: dict[str, int] = {}
    for job in snapshot.jobs:
        for node, gpus in decision.allocation[job.name].items():
            holds[job.tenant] = holds.get(job.tenant, 0) + gpus
            free[node] -= gpus
    caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
    for job in snapshot.jobs:
        usable = sum(max(free[n.name], 0) for n in snapshot.cluster.nodes if runs(job, n.gpu_type))
        most = min(usable, caps.get(job.tenant, usable) - holds.get(job.tenant, 0))
        if job.work.left == 0 or decision.allocation[job.name]:
            continue
        if any(job.gpus.feasible(size) for size in range(1, most + 1)):
            yield job.name


def runs(job: Job, gpu_type: str) -> bool:
    return not job.throughput or any(job.throughput.get(gpu_type, {}).values())


@pytest.mark.parametrize("edge", EDGES)
def test_every_policy_answers_and_nobody_waits_beside_what_it_could_have(edge: str) -> None:
    snapshot = instance(edge)
    turned = replace(snapshot, jobs=snapshot.jobs[::-1], tenants=snapshot.tenants[::-1])
    nodes = {n.name: n for n in snapshot.cluster.nodes}
    for policy in sorted(catalogue.entries()):
        options = {"fairness_knob": 0.0} if policy == "themis" else {}
        decision = decide(snapshot, policy, options)
        taken = dict.fromkeys(nodes, 0)
        for job in snapshot.jobs:
            place = decision.allocation[job.name]
            assert not place or job.gpus.feasible(sum(place.values())), (policy, job.name)
            for node, gpus in place.items():
                taken[node] += gpus
        assert all(taken[name] <= node.gpus - node.foreign for name, node in nodes.items()), policy
        stated = any(note.startswith("left idle (") for note in decision.certificate.notes)
        assert stated or not list(waits_in_vain(snapshot, decision)), policy
        assert decide(turned, policy, options).allocation == decision.allocation, policy
