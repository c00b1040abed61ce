"""What a reason says would change it, does: carried out on the snapshot, the policy answers otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policy.model import Away, Cluster, Code, Decision, GpuRange, Job, Node, Snapshot, Tenant, TypeChoice
from tests.policy.crowds import crowd
from tests.policy.remedies import asked, total, untrue, untrue_of_holders
from tests.policy.worlds import NAMES

TYPES = ("k80", "v100")


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A few nodes of two types, jobs of two tenants, some of which run."""
    nodes = tuple(
        Node(f"n{i}", draw(st.sampled_from(TYPES)), draw(st.integers(1, 4))) for i in range(draw(st.integers(1, 3)))
    )
    free = {n.name: n.gpus for n in nodes}
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        low = draw(st.integers(1, 5))
        gpus = GpuRange(low, low, low if draw(st.booleans()) else low + 3)
        held = {}
        node = draw(st.sampled_from(nodes))
        if draw(st.booleans()) and free[node.name] >= low:
            held, gpus = {node.name: low}, GpuRange(low, low, low)
            free[node.name] -= low
        choice = draw(st.sampled_from([None, *TYPES, "a100"])) if not held else None
        jobs.append(
            Job(str(number), draw(st.sampled_from(["ann", "ben"])), f"app{number}", gpus, submitted_s=float(number),
                allocation=held, gpu_types=None if choice is None else TypeChoice(require=(choice,)))
        )  # fmt: skip
    types = tuple(t for t in TYPES if any(n.gpu_type == t for n in nodes))
    return Snapshot(Cluster(nodes, gpu_types=types), tuple(jobs), (Tenant("ann"), Tenant("ben")))


def held(decision: Decision, job: str) -> int:
    return sum(decision.allocation.get(job, {}).values())


@settings(max_examples=40, deadline=None)
@given(snapshots(), st.sampled_from(NAMES))
def test_what_would_change_it_does(snapshot: Snapshot, policy: str) -> None:
    assert not untrue(snapshot, policy)


@pytest.mark.parametrize(
    ("seed", "jobs"),
    [
        (70000, 12),
        (70003, 12),
        (70009, 12),
        (1006, 14),
        (1012, 8),
        (1020, 4),
        (1043, 15),
        (3021, 13),
        (3032, 12),
        (5022, 10),
        (271606, 9),  # a gang of 8 that no type holds on equal parts of nodes has no time on any
        (271622, 11),  # its app has GPUs soon, other jobs of the app run on them
        (281600, 2),  # it runs where its nodes drain: it could not start anew, and keeps what it has
    ],
)
def test_on_crowded_clusters_what_would_change_it_does(seed: int, jobs: int) -> None:
    for policy in NAMES:
        assert not untrue(crowd(seed, jobs), policy)


@pytest.mark.parametrize(
    ("seed", "jobs", "policies"),
    [
        (350012, 9, ("afs-l", "optimus", "slaq")),  # what comes free goes to one ahead that runs on another type
        (350066, 10, ("gavel-makespan",)),  # smaller, it is one of several that its tenant's limit keeps
        (350047, 11, ("lottery",)),  # its claim was used up by quanta in which its tenant's limit refused it
    ],
)
def test_what_was_untrue_is_not(seed: int, jobs: int, policies: tuple[str, ...]) -> None:
    for policy in policies:
        assert not untrue(crowd(seed, jobs), policy)


@settings(max_examples=40, deadline=None)
@given(snapshots(), st.sampled_from(NAMES))
def test_what_would_change_it_does_for_those_who_hold_gpus(snapshot: Snapshot, policy: str) -> None:
    assert not untrue_of_holders(snapshot, policy)


@pytest.mark.parametrize(("seed", "jobs"), [(70000, 12), (70003, 8), (1012, 8), (1020, 4), (320529, 2), (350010, 6)])
def test_on_crowded_clusters_it_does_too(seed: int, jobs: int) -> None:
    for policy in NAMES:
        assert not untrue_of_holders(crowd(seed, jobs), policy)


@settings(max_examples=80, deadline=None)
@given(snapshots(), st.sampled_from(NAMES))
def test_what_is_infeasible_is_feasible_with_a_smaller_minimum_or_nodes(snapshot: Snapshot, policy: str) -> None:
    before = asked(snapshot, policy)
    stuck = [job for job in snapshot.jobs if before.reasons[job.name].code is Code.INFEASIBLE]
    assume(stuck)
    for job in stuck:
        if job.gpu_types is not None and not set(job.gpu_types.require) & set(snapshot.cluster.gpu_types):
            (gpu_type,) = job.gpu_types.require
            assert f"of {gpu_type}" in before.reasons[job.name].text
            nodes = (*snapshot.cluster.nodes, Node("back", gpu_type, job.gpus.min))
            types = (*snapshot.cluster.gpu_types, gpu_type)
            mended = replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes, gpu_types=types))
        else:
            smaller = replace(job, gpus=GpuRange(1, 1, 1))
            mended = replace(snapshot, jobs=tuple(smaller if j is job else j for j in snapshot.jobs))
        assert asked(mended, policy).reasons[job.name].code is not Code.INFEASIBLE


@settings(max_examples=60, deadline=None)
@given(snapshots(), st.sampled_from(NAMES), st.integers(0, 2))
def test_a_tenants_limit_is_what_it_says(snapshot: Snapshot, policy: str, cap: int) -> None:
    limited = replace(snapshot, tenants=(Tenant("ann", cap=cap), Tenant("ben")))
    before = asked(limited, policy)
    for job in limited.jobs:
        if before.reasons[job.name].code is Code.WAITS_CAP:
            assert asked(snapshot, policy).reasons[job.name].code is not Code.WAITS_CAP


@settings(max_examples=40, deadline=None)
@given(snapshots(), st.sampled_from(NAMES), st.sampled_from([None, 50.0, 500.0]))
def test_a_shorter_time_limit_or_the_end_of_what_is_ahead_lets_it_start(
    snapshot: Snapshot, policy: str, limit_s: float | None
) -> None:
    """Every node goes away, each at another time; what runs, and what waits, cannot be stopped."""
    nodes = tuple(
        replace(node, away=(Away("firmware", 100.0 * (number + 1), 1000.0, 100.0 * (number + 1)),))
        for number, node in enumerate(snapshot.cluster.nodes)
    )
    jobs = tuple(replace(job, stays=True, time_left_s=limit_s) for job in snapshot.jobs)
    there = replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes), jobs=jobs)
    before = asked(there, policy)
    waiting = [job for job in there.jobs if before.reasons[job.name].code is Code.WAITS_AWAY]
    assume(waiting)
    assert asked(replace(there, now_s=1000.0), policy).reasons[waiting[0].name].code is not Code.WAITS_AWAY
    for job in waiting:
        if (fits_s := before.reasons[job.name].numbers.get("fits_s")) is not None:
            shorter = replace(job, time_left_s=fits_s)
            after = asked(replace(there, jobs=tuple(shorter if j is job else j for j in there.jobs)), policy)
            assert after.reasons[job.name].code is not Code.WAITS_AWAY
            assert held(after, job.name) or total(after) > total(before) or len(waiting) > 1
