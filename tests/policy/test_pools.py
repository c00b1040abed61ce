"""Counts before places: what is handed out of types and of several types together can always be had by all."""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

import pytest

from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, TypeChoice
from policy.parts.pools import MOST_POOLS, Pools
from policy.throughput import Throughput

TYPES = ("a", "b", "c", "d")


@pytest.mark.parametrize("seed", range(40))
def test_gangs_over_some_types_never_ask_for_more_than_these_types_have(seed: int) -> None:
    rng = Random(seed)
    nodes = tuple(Node(t, t, rng.randint(1, 6)) for t in TYPES)
    tables = [{}, {t: {1: float(i + 1), 64: 64.0 * (i + 1)} for i, t in enumerate(TYPES)}]
    jobs = []
    for i in range(rng.randint(2, 9)):
        low = rng.choice((1, 1, 2, 7, 9))
        choice = rng.choice((None, TypeChoice(forbid=tuple(rng.sample(TYPES, rng.randint(1, 3))))))
        gpus = GpuRange(low, low, low + rng.randint(0, 5))
        jobs.append(Job(f"j{i}", "t", f"j{i}", gpus, throughput=rng.choice(tables), gpu_types=choice))
    speeds = Throughput(Cluster(nodes, gpu_types=TYPES))
    pools = Pools(Snapshot(Cluster(nodes, gpu_types=TYPES), tuple(jobs), (Tenant("t"),)), speeds)
    refused = dict[str, int]()
    for _ in range(60):
        job = rng.choice(jobs)
        step = pools.next_step(job)
        if step is None:
            continue
        if pools.fits(job, step):
            assert job.name not in refused or step.gpus != refused[job.name], "room came back"
            pools.give(job, step)
        elif job.name in pools.type:
            refused[job.name] = step.gpus
    has = {t: {t} for t in TYPES}
    for types in chain.from_iterable(combinations(TYPES, n) for n in range(1, 5)):
        asked = 0
        for job in jobs:
            if job.name in pools.count:
                within = has.get(pools.type[job.name], set(speeds.types(job)))
                asked += pools.count[job.name] if within <= set(types) else 0
        assert asked <= sum(n.gpus for n in nodes if n.gpu_type in types), types


def test_jobs_that_each_name_other_types_do_not_make_each_step_dear() -> None:
    """Their users choose the types: of twelve there are four thousand choices."""
    types = tuple(f"t{i}" for i in range(12))
    nodes = tuple(Node(t, t, 4) for t in types)
    rng = Random(1)
    choices = [TypeChoice(require=tuple(sorted(rng.sample(types, rng.randint(2, 11))))) for _ in range(300)]
    jobs = tuple(Job(f"j{i}", "t", f"j{i}", GpuRange(1, 1, 2), gpu_types=c) for i, c in enumerate(choices))
    cluster = Cluster(nodes, gpu_types=types)
    pools = Pools(Snapshot(cluster, jobs, (Tenant("t"),)), Throughput(cluster))
    given = 0
    for job in jobs:
        step = pools.next_step(job)
        assert step is not None
        if pools.fits(job, step):
            pools.give(job, step)
            given += step.add
    assert given == 48, "all GPUs are given out all the same"
    assert len(pools._unions) < 2**MOST_POOLS
