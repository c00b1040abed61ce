"""Changes of a snapshot that must change a Themis decision in a known way, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.model import Job, Snapshot
from tests.policy.themis.worlds import decide, node, worlds

Name = Callable[[str], str]


def same(name: str) -> str:
    return name


def prefixed(name: str) -> str:
    return "x-" + name


def renamed(s: Snapshot) -> Snapshot:
    def job(j: Job) -> Job:
        return replace(
            j,
            name=prefixed(j.name),
            app=prefixed(j.app),
            tenant=prefixed(j.tenant),
            allocation={prefixed(n): g for n, g in j.allocation.items()},
            lease_until={prefixed(n): t for n, t in j.lease_until.items()},
        )

    nodes = tuple(replace(n, name=prefixed(n.name), rack=prefixed(n.rack or "")) for n in s.cluster.nodes)
    tenants = tuple(replace(t, name=prefixed(t.name)) for t in s.tenants)
    return replace(s, cluster=replace(s.cluster, nodes=nodes), jobs=tuple(map(job, s.jobs)), tenants=tenants)


def permuted(s: Snapshot) -> Snapshot:
    return replace(s, jobs=s.jobs[::-1], tenants=s.tenants[::-1])


def later(s: Snapshot) -> Snapshot:
    """Another origin of time."""

    def job(j: Job) -> Job:
        lease = {n: tuple(t + 2.0**20 for t in times) for n, times in j.lease_until.items()}
        return replace(j, submitted_s=j.submitted_s + 2.0**20, lease_until=lease)

    return replace(s, now_s=s.now_s + 2.0**20, jobs=tuple(map(job, s.jobs)))


def slower_clock(s: Snapshot) -> Snapshot:
    """Four seconds where there was one: times, leases and rates."""

    def job(j: Job) -> Job:
        return replace(
            j,
            submitted_s=4 * j.submitted_s,
            lease_until={n: tuple(4 * t for t in times) for n, times in j.lease_until.items()},
            throughput={t: {n: r / 4 for n, r in c.items()} for t, c in j.throughput.items()},
        )

    return replace(s, now_s=4 * s.now_s, jobs=tuple(map(job, s.jobs)))


def fewer_iterations(s: Snapshot) -> Snapshot:
    """Iterations counted in units of 1024."""

    def job(j: Job) -> Job:
        assert j.work.total is not None
        return replace(
            j,
            work=replace(j.work, total=j.work.total / 1024, done=j.work.done / 1024),
            throughput={t: {n: r / 1024 for n, r in c.items()} for t, c in j.throughput.items()},
        )

    return replace(s, jobs=tuple(map(job, s.jobs)))


def with_nodes_of_no_use(s: Snapshot) -> Snapshot:
    """An empty node, and one of a type that no job can run on."""
    extra = (node("zz-empty", 0, s.cluster.nodes[0].gpu_type), node("zz-other", 4, "tpu"))
    types = (*s.cluster.gpu_types, "tpu")
    return replace(s, cluster=replace(s.cluster, nodes=(*s.cluster.nodes, *extra), gpu_types=types))


CHANGES: dict[str, tuple[Callable[[Snapshot], Snapshot], dict[str, Any], Name]] = {
    "renamed": (renamed, {}, prefixed),
    "permuted": (permuted, {}, same),
    "later": (later, {}, same),
    "slower-clock": (slower_clock, {"lease": 2400.0}, same),
    "fewer-iterations": (fewer_iterations, {}, same),
    "nodes-of-no-use": (with_nodes_of_no_use, {}, same),
}


@pytest.mark.parametrize("name", CHANGES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=worlds(), knob=st.sampled_from([0.0, 0.6]))
def test_a_change_that_means_nothing_changes_nothing(name: str, snapshot: Snapshot, knob: float) -> None:
    change, options, named = CHANGES[name]
    before = decide(snapshot, fairness_knob=knob)
    after = decide(change(snapshot), fairness_knob=knob, **options)
    expected = {named(j): {named(n): g for n, g in a.items()} for j, a in before.allocation.items()}
    assert after.allocation == expected
    for job, reason in before.reasons.items():
        other = after.reasons[named(job)].numbers
        for key in ("rho", "won", "kept", "leftover", "kept_fraction"):
            if key in reason.numbers:
                assert other[key] == pytest.approx(reason.numbers[key]), key


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(held=False))
def test_one_more_idle_node_lets_nobody_lose_at_the_auction(snapshot: Snapshot) -> None:
    """More on offer: the product of the bids that win does not fall (N_avg and T_id move, so compare log sums)."""
    from policy.contract import Context
    from policy.themis.round import run
    from policy.throughput import Throughput

    def objective(s: Snapshot) -> float:
        outcome = run(s, {"fairness_knob": 0.0}, Context(Throughput(s.cluster))).outcome
        return outcome.objective if outcome else 0.0

    more = replace(
        snapshot.cluster, nodes=(*snapshot.cluster.nodes, replace(snapshot.cluster.nodes[0], name="zz-more"))
    )
    assert objective(replace(snapshot, cluster=more)) >= objective(snapshot) - 1e-6
