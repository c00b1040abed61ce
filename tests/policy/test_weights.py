"""Tenants' weights: who reads them says so, and gives by them in the long run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from policy import catalogue
from policy.decide import decide
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Work
from tests.policy.rounds import play
from tests.policy.worlds import NAMES

TYPES = ("k80", "p100", "v100")
WEIGHTS = (10.0, 1e3, 1e6)
#: the option without which it reads none
WEIGHING = {"themis": {"weigh": "tenants"}}


def unequal(seed: int) -> Snapshot:
    """A tenant of a great weight and one of 1, more gangs than GPUs, on one to three types; speeds known or not."""
    rng = Random(seed)
    types = TYPES[: rng.randint(1, 3)]
    nodes = tuple(Node(f"{t}-{i}", t, rng.choice((2, 4, 8))) for t in types for i in range(2))
    jobs: list[Job] = []
    for tenant in ("heavy", "light"):
        speeds = (
            {t: {n: rng.choice((1.0, 1.5, 4.0)) * n for n in (1, 2, 4)} for t in types} if rng.random() < 0.6 else {}
        )
        left = sum(n.gpus for n in nodes)
        while left > 0:
            low, high = rng.choice(((1, 1), (1, 1), (2, 2), (1, 4)))
            name, left = f"j{len(jobs):02}", left - high
            jobs.append(Job(name, tenant, name, GpuRange(high, low, high), float(len(jobs) % 7), Work(1e7), speeds))
    return Snapshot(
        Cluster(nodes, gpu_types=types), tuple(jobs), (Tenant("heavy", rng.choice(WEIGHTS)), Tenant("light"))
    )


def as_equals(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, tenants=tuple(replace(t, weight=1.0) for t in snapshot.tenants))


@pytest.mark.parametrize("policy", NAMES)
def test_a_policy_says_whether_it_reads_them(policy: str) -> None:
    options = WEIGHING.get(policy, {})
    worlds = [unequal(seed) for seed in range(12)]
    differ = [
        s for s in worlds if decide(s, policy, options).allocation != decide(as_equals(s), policy, options).allocation
    ]
    assert bool(differ) is catalogue.find(policy).weighs


@pytest.mark.parametrize("policy", ["gandiva-fair", "lottery", "oef-cooperative", "gavel-max-min"])
@pytest.mark.parametrize("types", [1, 2, 3])
def test_tenants_of_unknown_speed_have_their_parts_of_time_on_every_type(policy: str, types: int) -> None:
    """The jobs of the light one all lived on the newest type, where it is entitled to a part of its share only."""
    nodes = tuple(Node(f"{t}-{i}", t, 4) for t in TYPES[:types] for i in range(2))
    jobs = tuple(
        Job(name, tenant, name, GpuRange(1, 1, 1), float(i % 5))
        for tenant in ("heavy", "light")
        for i in range(8 * types + 4)
        for name in [f"{tenant}{i:02}"]
    )
    tenants = (Tenant("heavy", 3.0), Tenant("light", 1.0))
    served = play(Snapshot(Cluster(nodes, gpu_types=TYPES[:types]), jobs, tenants), policy, 60, 360.0)
    has = {tenant: sum(g for (t, _), g in served.gpus.items() if t == tenant) for tenant in ("heavy", "light")}
    assert has["heavy"] + has["light"] == pytest.approx(8 * types)
    assert has["light"] == pytest.approx(2 * types, rel=0.2)
