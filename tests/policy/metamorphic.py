"""Changes of a snapshot after which a decision must change in a known way, or not at all. Any policy's tests use them.

Each takes a snapshot and returns the changed one, and how an allocation of the old one reads in the new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from policy.decide import decide
from policy.model import Allocation, Decision, Job, Node, Snapshot

Translate = Callable[[Mapping[str, Allocation]], dict[str, Allocation]]


def counts(decision: Decision) -> dict[str, int]:
    return {name: sum(a.values()) for name, a in decision.allocation.items()}


def renamed(s: Snapshot) -> tuple[Snapshot, Translate]:
    """New names for nodes, jobs, tenants and apps, in the same alphabetical order (ties go by name)."""

    def other(name: str) -> str:
        return "renamed-" + name

    def job(j: Job) -> Job:
        return replace(
            j,
            name=other(j.name),
            tenant=other(j.tenant),
            app=other(j.app),
            allocation={other(n): g for n, g in j.allocation.items()},
            lease_until={other(n): t for n, t in j.lease_until.items()},
        )

    nodes = tuple(replace(n, name=other(n.name)) for n in s.cluster.nodes)
    changed = replace(
        s,
        cluster=replace(s.cluster, nodes=nodes),
        jobs=tuple(job(j) for j in s.jobs),
        tenants=tuple(replace(t, name=other(t.name)) for t in s.tenants),
        apps=tuple(replace(a, name=other(a.name)) for a in s.apps),
    )
    return changed, lambda a: {other(j): {other(n): g for n, g in p.items()} for j, p in a.items()}


def reordered(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Jobs and tenants listed the other way round: order in the file means nothing."""
    return replace(s, jobs=s.jobs[::-1], tenants=s.tenants[::-1]), dict


def in_other_units(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Iterations counted by the thousand."""

    def job(j: Job) -> Job:
        total = None if j.work.total is None else j.work.total / 1024
        return replace(
            j,
            work=replace(j.work, total=total, done=j.work.done / 1024),
            throughput={t: {n: r / 1024 for n, r in c.items()} for t, c in j.throughput.items()},
        )

    return replace(s, jobs=tuple(job(j) for j in s.jobs)), dict


def with_a_node_of_no_use(s: Snapshot) -> tuple[Snapshot, Translate]:
    """One more node that has no GPUs."""
    gpu_type = s.cluster.nodes[0].gpu_type if s.cluster.nodes else "none"
    nodes = (*s.cluster.nodes, Node("zzz-empty", gpu_type, 0))
    types = s.cluster.gpu_types if s.cluster.nodes else (*s.cluster.gpu_types, gpu_type)
    return replace(s, cluster=replace(s.cluster, nodes=nodes, gpu_types=types)), dict


CHANGES = (renamed, reordered, in_other_units, with_a_node_of_no_use)


def check(
    s: Snapshot, policy: str, change: Callable[[Snapshot], tuple[Snapshot, Translate]], **options: object
) -> None:
    """The decision on the changed snapshot is the translated one."""
    changed, translate = change(s)
    before, after = decide(s, policy, options), decide(changed, policy, options)
    assert after.allocation == translate(before.allocation)
