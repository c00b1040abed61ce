"""Gandiva-fair's trades on random tenant-level and rigid instances, against the rule played by hand in fractions.

The rule (§3.4; OEF §2.4 plays the same rounds): for each pair of types, fastest first, whoever gains most from fast
GPUs buys from whoever gains least, at the second-highest speed-up of those who still have slow GPUs to pay with (half
the surplus where nobody else has), until one of them has no more to give or no more jobs to use what it would get.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from policy.decide import decide
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant

Have = dict[str, list[Fraction]]


def instance(seed: int, *, divisible: bool) -> Snapshot:
    random = Random(seed)
    types = ("slow", "mid", "fast")[: random.randint(2, 3)]
    nodes = tuple(Node(f"n{t}", t, random.randint(1, 12)) for t in types)
    jobs, tenants = [], []
    for i in range(random.randint(2, 5)):
        tenants.append(Tenant(f"t{i}", float(random.choice((1, 1, 2, 1000)))))
        speeds = [4]
        for _ in types[1:]:
            speeds.append(speeds[-1] + random.randint(0, 12))
        table = {t: {1: s / 4} for t, s in zip(types, speeds, strict=True)}
        if divisible:
            jobs.append(Job(f"j{i}", f"t{i}", f"j{i}", GpuRange(1, 1, None), float(i), throughput=table))
            continue
        for n in range(random.randint(1, 14)):
            jobs.append(Job(f"j{i}-{n}", f"t{i}", f"j{i}-{n}", GpuRange(1, 1, 1), float(i), throughput=table))
    return Snapshot(Cluster(nodes, gpu_types=types), tuple(jobs), tuple(tenants))


def fair(snapshot: Snapshot) -> Have:
    """Tickets, those of tenants with too few jobs divided among the others; each its part of every type."""
    gpus = [n.gpus for n in snapshot.cluster.nodes]
    total = Fraction(sum(gpus))
    wants = {
        t.name: (total if any(j.gpus.max is None for j in mine) else Fraction(len(mine)))
        for t in snapshot.tenants
        if (mine := [j for j in snapshot.jobs if j.tenant == t.name])
    }
    weight = {t.name: Fraction(t.weight) for t in snapshot.tenants}
    has: dict[str, Fraction] = {}
    while True:
        rest = [t for t in wants if t not in has]
        left = total - sum(has.values())
        share = {t: left * weight[t] / sum(weight[o] for o in rest) for t in rest}
        small = [t for t in rest if wants[t] <= share[t]]
        has |= {t: wants[t] for t in small}
        if not small:
            has |= share
            return {t: [x * g / total for g in gpus] for t, x in has.items()}
        if len(has) == len(wants):
            return {t: [x * g / total for g in gpus] for t, x in has.items()}


def traded(snapshot: Snapshot) -> tuple[Have, list[Fraction]]:
    have = fair(snapshot)
    types = [n.gpu_type for n in snapshot.cluster.nodes]
    table = {j.tenant: [Fraction(j.throughput[t][1]) for t in types] for j in snapshot.jobs}
    room = {t: None if any(j.gpus.max is None for j in snapshot.jobs if j.tenant == t)
            else sum(j.tenant == t for j in snapshot.jobs) for t in have}  # fmt: skip
    prices = []
    for fast in range(len(types) - 1, 0, -1):
        for slow in range(fast):
            ratio = {t: table[t][fast] / table[t][slow] for t in have}
            out: set[str] = set()
            while True:
                buyers = sorted((t for t in have if t not in out and have[t][slow] > 0), key=lambda t: (-ratio[t], t))
                sellers = sorted((t for t in have if t not in out and have[t][fast] > 0), key=lambda t: (ratio[t], t))
                if not buyers or not sellers or ratio[buyers[0]] <= ratio[sellers[0]]:
                    break
                buyer, seller = buyers[0], sellers[0]
                others = [ratio[t] for t in buyers[1:] if t != seller]
                low, high = ratio[seller], ratio[buyer]
                price = others[0] if others and others[0] >= low else (low + high) / 2
                amount = min(have[seller][fast], have[buyer][slow] / price)
                grows = seller if price > 1 else buyer
                most = room[grows]
                if most is not None and price != 1:
                    amount = min(amount, (most - sum(have[grows])) / abs(price - 1))
                if amount <= 0:
                    out.add(grows)
                    continue
                have[buyer][fast] += amount
                have[seller][fast] -= amount
                have[buyer][slow] -= amount * price
                have[seller][slow] += amount * price
                prices.append(price)
    return have, prices


@pytest.mark.parametrize("divisible", [False, True], ids=["jobs", "tenant-level"])
@pytest.mark.parametrize("seed", range(40))
def test_trades_are_those_of_the_rule_and_leave_nobody_below_its_fair_share(seed: int, divisible: bool) -> None:
    snapshot = instance(seed, divisible=divisible)
    decision = decide(snapshot, "gandiva-fair")
    have, prices = traded(snapshot)
    assert [t["price"] for t in decision.state["trades"]] == pytest.approx([float(p) for p in prices], rel=1e-6)
    types = [n.gpu_type for n in snapshot.cluster.nodes]
    if divisible:
        for tenant, row in have.items():
            shares = decision.tenants[tenant].shares
            assert [shares.get(t, 0.0) for t in types] == pytest.approx([float(x) for x in row], abs=1e-5)
    table = {j.tenant: [Fraction(j.throughput[t][1]) for t in types] for j in snapshot.jobs}
    for tenant, row in fair(snapshot).items():
        before = sum(s * x for s, x in zip(table[tenant], row, strict=True))
        assert sum(s * x for s, x in zip(table[tenant], have[tenant], strict=True)) >= before
    assert decision.certificate.work_conserving
    used = sum(sum(place.values()) for place in decision.allocation.values())
    jobs = sum(n.gpus for n in snapshot.cluster.nodes) if divisible else len(snapshot.jobs)
    assert divisible or used == min(jobs, sum(n.gpus for n in snapshot.cluster.nodes))
