"""A tenant of several job types: its weight and its limit are divided among them by what each can use."""

from __future__ import annotations

from random import Random

import pytest

from policy.decide import decide
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant

BOTH = pytest.mark.parametrize("policy", ["oef-noncooperative", "oef-cooperative"])


def instance(seed: int) -> Snapshot:
    """Tenants of one to three job types, some of which can use a few GPUs only; some tenants have a limit."""
    random = Random(seed)
    types = ("a", "b", "c")[: random.randint(2, 3)]
    nodes = tuple(Node(f"n{t}", t, random.randint(2, 8)) for t in types)
    jobs, tenants = [], []
    for i in range(random.randint(2, 4)):
        tenants.append(Tenant(f"t{i}", float(random.choice((1, 1, 2, 5))), random.choice((None, None, 3, 6))))
        for k in range(random.randint(1, 3)):
            speeds = [1.0]
            for _ in types[1:]:
                speeds.append(speeds[-1] + random.randint(1, 12) / 4 + k / 64)  # another type of job each
            table = {t: {1: s} for t, s in zip(types, speeds, strict=True)}
            gpus = GpuRange(1, 1, random.choice((None, 1, 2, 5)))
            jobs.append(Job(f"j{i}-{k}", f"t{i}", f"j{i}-{k}", gpus, float(i), throughput=table))
    return Snapshot(Cluster(nodes, gpu_types=types), tuple(jobs), tuple(tenants))


def filled(wants: dict[str, float], weights: dict[str, float], water: float) -> dict[str, float]:
    """`water` by weight, nobody above what it wants, by small steps of a level."""
    low, high = 0.0, 1e9
    for _ in range(200):
        level = (low + high) / 2
        if sum(min(w, level * weights[n]) for n, w in wants.items()) > water:
            high = level
        else:
            low = level
    return {n: min(w, low * weights[n]) for n, w in wants.items()}


@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_the_shares_of_its_job_types_are_within_a_tenants_limit(seed: int, policy: str) -> None:
    snapshot = instance(seed)
    decision = decide(snapshot, policy)
    for tenant in snapshot.tenants:
        if tenant.cap is not None:
            assert sum(decision.tenants[tenant.name].shares.values()) <= tenant.cap + 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_what_one_job_type_cannot_use_of_its_tenants_part_is_the_other_types(seed: int) -> None:
    """Cooperative: each type has at least what it makes of its part of every GPU type (Theorem 5.1, of what it can
    use), where a tenant's part is what it can use of its weight's, and its types fill it up equally."""
    snapshot = instance(seed)
    gpus = [float(n.gpus) for n in snapshot.cluster.nodes]
    total = sum(gpus)
    able = {j.name: min(total, j.gpus.max or total) for j in snapshot.jobs}
    of = {t.name: [j for j in snapshot.jobs if j.tenant == t.name] for t in snapshot.tenants}
    wants = {t.name: min(sum(able[j.name] for j in of[t.name]), t.cap or total) for t in snapshot.tenants}
    parts = filled(wants, {t.name: t.weight for t in snapshot.tenants}, total)
    shares = decide(snapshot, "oef-cooperative").shares
    assert shares is not None
    weight = {t.name: t.weight for t in snapshot.tenants}
    for tenant, jobs in of.items():
        mine, equal = {j.name: able[j.name] for j in jobs}, dict.fromkeys(able, 1.0)
        own, most = filled(mine, equal, parts[tenant]), filled(mine, equal, wants[tenant])
        for job in jobs:
            part = weight[tenant] * own[job.name] / sum(own.values()) / sum(weight.values())
            left, least = most[job.name], 0.0
            for n, table in sorted(zip(gpus, job.throughput.values(), strict=True), key=lambda x: -x[1][1]):
                least += min(left, n * part) * table[1]
                left -= min(left, n * part)
            has = sum(x * job.throughput[t][1] for t, x in shares[job.name].items())
            assert has >= least * (1 - 1e-6)


@BOTH
def test_one_more_gpu_of_another_type_costs_a_tenant_little(policy: str) -> None:
    """It used to cost half of the tenant's weight, of which the new type could use a tenth."""
    speeds = {"big": (1.0, 2.0), "small": (1.0, 2.5), "other": (1.0, 3.0)}
    jobs = [
        Job(name, "u" if name != "other" else "v", name, GpuRange(1, 1, 1 if name == "small" else None),
            throughput={"a": {1: a}, "b": {1: b}})
        for name, (a, b) in speeds.items()
    ]  # fmt: skip
    where = Cluster((Node("na", "a", 8), Node("nb", "b", 8)), gpu_types=("a", "b"))
    tenants = (Tenant("u"), Tenant("v"))
    without = decide(Snapshot(where, (jobs[0], jobs[2]), tenants), policy).tenants["u"].throughput
    with_it = decide(Snapshot(where, tuple(jobs), tenants), policy).tenants
    assert with_it["u"].throughput >= without * 0.98
    if policy == "oef-noncooperative":  # "each tenant the same", of two types together too
        assert with_it["u"].throughput == pytest.approx(with_it["v"].throughput, rel=1e-6)
