"""The certificate against its plain form, which works job by job: equal values on random snapshots of every kind.

`plain_certificate/` is the inspector as it was first written: each job by itself, nothing kept from one to the next.
The real one works on kinds of jobs. Both look at the same decisions, good and bad ones, whole and fractional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.certificate import certify
from policy.decide import decide
from policy.model import Allocation, Certificate, GpuRange, Job, JobName, Shape, Share, Snapshot, TypeChoice
from policy.places.placement import Placer
from policy.throughput import Throughput
from tests.policy import plain_certificate
from tests.policy.worlds import choosy, cluster, snapshots

#: Floats are sums over the same numbers in the same order; on newer Pythons `sum` rounds better than a loop.
NEAR = 1e-12


def same(found: Certificate, plain: Certificate) -> None:
    for part in fields(Certificate):
        ours, theirs = getattr(found, part.name), getattr(plain, part.name)
        if part.name == "rho":
            assert list(ours) == list(theirs)
            assert {a for a in ours if ours[a] is None} == {a for a in theirs if theirs[a] is None}
            known = {a: rho for a, rho in ours.items() if rho is not None}
            assert known == pytest.approx({a: theirs[a] for a in known}, rel=NEAR, abs=0.0)
        else:
            assert ours == theirs, part.name


def crowded(snapshot: Snapshot, copies: int) -> Snapshot:
    """Each job several times over: some with the very same parts, some with equal ones."""
    jobs: list[Job] = []
    for job in snapshot.jobs:
        jobs.append(job)
        for n in range(copies):
            table = job.throughput
            if n % 2:
                table = {t: dict(points) for t, points in table.items()}
            app = job.app if n % 3 else f"{job.app}-{n}"
            name = f"{job.name}-{n}"
            jobs.append(replace(job, name=name, app=app, throughput=table, allocation={}, lease_until={}))
    return replace(snapshot, jobs=tuple(jobs))


def placed(snapshot: Snapshot, seed: int) -> dict[JobName, Allocation]:
    """Some jobs somewhere: not what any policy would say, but possible."""
    rng, placer = Random(seed), Placer(snapshot)
    for job in rng.sample(snapshot.jobs, len(snapshot.jobs)):
        size = job.gpus.at_most(rng.randrange(0, 9))
        place = placer.best(job, size) if size and rng.random() < 0.8 else None
        placer.take(job, place or {})
    return placer.taken


def impossible(snapshot: Snapshot, seed: int) -> dict[JobName, Allocation]:
    """Anybody anywhere, whatever is there."""
    rng = Random(seed)
    names = [n.name for n in snapshot.cluster.nodes]
    if not names:
        return {}
    return {
        j.name: {n: rng.randrange(1, 5) for n in rng.sample(names, rng.randrange(1, min(len(names), 3) + 1))}
        for j in snapshot.jobs
        if rng.random() < 0.6
    }


def shared(snapshot: Snapshot, seed: int) -> dict[JobName, Share]:
    """Fractional shares, some of them."""
    rng, speeds = Random(seed), Throughput(snapshot.cluster)
    out: dict[JobName, Mapping[str, float]] = {}
    for job in snapshot.jobs:
        out[job.name] = {t: rng.random() for t in speeds.types(job) if rng.random() < 0.5}
    return out


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(snapshots(most_jobs=5), st.integers(0, 4), st.integers(0, 1_000))
def test_equal_to_the_plain_form(snapshot: Snapshot, copies: int, seed: int) -> None:
    s = crowded(snapshot, copies)
    for allocation in (placed(s, seed), impossible(s, seed), {}):
        same(certify(s, allocation), plain_certificate.certify(s, allocation))
    shares = shared(s, seed)
    same(certify(s, placed(s, seed), shares), plain_certificate.certify(s, placed(s, seed), shares))


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(snapshots(most_jobs=5), st.integers(0, 4), st.integers(0, 1_000))
def test_equal_to_the_plain_form_with_shapes_and_types(snapshot: Snapshot, copies: int, seed: int) -> None:
    s = choosy(crowded(snapshot, copies), seed)
    for allocation in (placed(s, seed), impossible(s, seed), {}):
        same(certify(s, allocation), plain_certificate.certify(s, allocation))
    shares = shared(s, seed)
    same(certify(s, {}, shares), plain_certificate.certify(s, {}, shares))


def test_kinds_tell_shapes_and_types_apart() -> None:
    where = cluster("a v100 4", "b v100 4", "c k80 4")
    table = {"v100": {1: 2.0}, "k80": {1: 1.0}}
    plain = Job("j", "t", "j", GpuRange(2, 2, 2), throughput=table)
    others = [
        replace(plain, shape=Shape(nodes=2)),
        replace(plain, shape=Shape(exclusive=True)),
        replace(plain, gpu_types=TypeChoice(require=("v100",))),
        replace(plain, gpu_types=TypeChoice(prefer=("k80",))),
    ]
    speeds = Throughput(where)
    assert len({speeds.kind(one) for one in (plain, *others)}) == 5
    assert speeds.kind(replace(others[0], shape=Shape(nodes=2))) == speeds.kind(others[0])
    assert speeds.types(others[2]) == ("v100",)
    assert speeds.reference(others[2]) == 2.0
    assert speeds.reference(plain) == 1.0
    assert speeds.types(plain) == ("v100", "k80")


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(snapshots(most_jobs=5), st.integers(0, 3), st.sampled_from(("fifo", "max-min", "afs-l", "oef-noncooperative")))
def test_equal_to_the_plain_form_after_a_policy(snapshot: Snapshot, copies: int, policy: str) -> None:
    s = crowded(replace(snapshot, policy=None, state={}), copies)
    decision = decide(s, policy)
    staying = replace(s, jobs=tuple(j for j in s.jobs if j.name not in decision.cancel))
    allocation = {j.name: decision.allocation[j.name] for j in staying.jobs}
    same(
        certify(staying, allocation, decision.shares),
        plain_certificate.certify(staying, allocation, decision.shares),
    )
