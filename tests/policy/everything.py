"""Everything that a snapshot can say, at once, from a seed: what crowds lack is added to one.

Leases in the middle and run out, memory, features and shapes, types required and ruled out, what is to be away, limits
of a site over some jobs, tenants whose budgets are used up, apps with schedulers of their own, work that is done to
some part, losses, priorities, and sizes that no node of the cluster holds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from policy.model import (
    App,
    Away,
    Beyond,
    GpuRange,
    Health,
    Job,
    Limits,
    LossForecast,
    Node,
    Phase,
    Pinning,
    Quota,
    Shape,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)
from tests.policy.crowds import NOW, crowd

CHOICES = (
    *[None] * 8,
    TypeChoice(require=("v100",)),
    TypeChoice(prefer=("k80",)),
    TypeChoice(forbid=("k80",)),
    TypeChoice(require=("a100",)),
)
WEIGHTS = (1.0, 1.0, 1.0, 2.0, 10.0, 1000.0, 1e6)


def everything(seed: int, most_jobs: int = 14) -> Snapshot:
    """The same for the same seed."""
    rng, plain = Random(-seed - 1), crowd(seed, most_jobs)
    nodes = tuple(_node(rng, node) for node in plain.cluster.nodes)
    jobs = tuple(_job(rng, job, nodes) for job in plain.jobs)
    tenants = tuple(_tenant(rng, tenant) for tenant in plain.tenants)
    pinning = rng.choice((Pinning.EXACT, Pinning.EXACT, Pinning.TYPE, Pinning.NONE))
    limits = Limits(plain.cluster.limits.equal_gpus_per_node, plain.cluster.limits.one_type_per_job, pinning)
    apps = tuple(_app(rng, name) for name in sorted({job.app for job in jobs}) if rng.random() < 0.3)
    return replace(
        plain,
        cluster=replace(plain.cluster, nodes=nodes, limits=limits),
        jobs=jobs,
        tenants=tenants,
        apps=apps,
        active_apps=rng.choice(((), ((0.0, 3), (2000.0, 5)))),
        quotas=_quotas(rng, jobs),
    )


def _node(rng: Random, node: Node) -> Node:
    away = ()
    if rng.random() < 0.1:
        leave_s = NOW + rng.choice((-900.0, 900.0, 7200.0))
        away = (Away("firmware", leave_s + 300.0, leave_s + 4000.0, leave_s),)
    features = rng.choice(((), (), ("ib",)))
    return replace(node, memory=rng.choice((None, None, 2**38)), features=features, away=away)


def _job(rng: Random, job: Job, nodes: tuple[Node, ...]) -> Job:
    job = replace(
        job,
        gpus=_gpus(rng, job),
        work=_work(rng, job),
        known=rng.random() < 0.8,
        lease_until=_leases(rng, job),
        priority=rng.choice((0, 0, 0, 5)),
        restart_cost_s=rng.choice((None, 20.0, 600.0)),
        time_left_s=rng.choice((None, 3000.0)),
        loss=rng.choice(((), ((0.0, 5.0), (100.0, 3.0), (200.0, 2.5)))),
        loss_forecast=rng.choice((None, LossForecast("power", {"asymptote": 0.1, "scale": 5.0, "p": 0.5}))),
    )
    if job.allocation:
        return job
    job = replace(job, gpu_types=rng.choice(CHOICES), memory_per_gpu=rng.choice((None, None, 2**34)))
    return replace(job, shape=_shape(rng, job.gpus.min)) if job.gpus.rigid else job


def _gpus(rng: Random, job: Job) -> GpuRange:
    """Now and then a size that is above the cluster, asked for by one that could do with less, or not."""
    if job.allocation or rng.random() > 0.15:
        return job.gpus
    low = rng.choice((1, 2, 40, 200))
    return GpuRange(rng.choice((low, 256)), low, 256)


def _work(rng: Random, job: Job) -> Work:
    total = job.work.total
    return job.work if total is None else Work(total, total * rng.choice((0.0, 0.0, 0.5, 0.9, 1.0)))


def _leases(rng: Random, job: Job) -> dict[str, tuple[float, ...]]:
    if rng.random() < 0.5:
        return {}
    ends = (NOW - 10, NOW + 300, NOW + 600)
    return {node: tuple(sorted(rng.choice(ends) for _ in range(gpus))) for node, gpus in job.allocation.items()}


def _shape(rng: Random, gpus: int) -> Shape | None:
    if rng.random() < 0.5:
        return None
    nodes = rng.choice((None, *(k for k in (1, 2) if gpus % k == 0)))
    return Shape(
        nodes=nodes,
        gpus_per_node=rng.choice((None, gpus // nodes)) if nodes else None,
        cpus_per_node=rng.choice((None, 4.0)),
        features=rng.choice(((), (), ("ib",))),
        exclusive=rng.random() < 0.2,
    )


def _tenant(rng: Random, tenant: Tenant) -> Tenant:
    beyond = rng.choice((*[None] * 10, Beyond.IDLE, Beyond.WAIT))
    return replace(tenant, weight=rng.choice(WEIGHTS), beyond=beyond)


def _app(rng: Random, name: str) -> App:
    scheduler = rng.choice(("external", "successive-halving", "hyperband", "curve-stopping"))
    phases = () if scheduler in ("external", "curve-stopping") else (Phase(4, 600.0), Phase(2, 2000.0), Phase(1, 1e5))
    return App(name, scheduler, None, rng.choice((None, None, 2, 8)), phases)


def _quotas(rng: Random, jobs: tuple[Job, ...]) -> tuple[Quota, ...]:
    """A limit that what runs may be above of already."""
    if rng.random() < 0.7 or not jobs:
        return ()
    whom = tuple(job.name for job in jobs if rng.random() < 0.5)
    few, small = rng.choice(((None, None), (2, None), (None, 2), (2, 3)))
    return (
        Quota(
            "QOS small", whom, rng.choice((None, 4, 9)), rng.choice((None, 2)), few, small, rng.choice((None, None, 2))
        ),
    )


def leaving(snapshot: Snapshot) -> set[str]:
    """Nodes on which nothing new starts."""
    return {
        node.name
        for node in snapshot.cluster.nodes
        if node.health is Health.DRAIN or any(a.leave_s <= snapshot.now_s < a.to_s for a in node.away)
    }


def odd_rates(seed: int) -> Snapshot:
    """`everything`, and sizes or types on which a job does no work at all, or less than on fewer GPUs."""
    rng, plain = Random(-seed - 2), everything(seed, 10)
    return replace(plain, jobs=tuple(replace(job, throughput=_odd(rng, job)) for job in plain.jobs))


def _odd(rng: Random, job: Job) -> dict[str, dict[int, float]]:
    table = {t: dict(rates) for t, rates in job.throughput.items()}
    for rates in table.values():
        how = rng.choice(("as it is", "as it is", "nothing", "not on one", "falls"))
        if how == "nothing":
            rates.update(dict.fromkeys(rates, 0.0))
        elif how == "not on one":
            rates[1] = 0.0
        elif how == "falls":
            rates[8] = min(rates.values()) / 2
    return table


def odd_holdings(seed: int) -> Snapshot:
    """`everything`, and jobs that hold what no policy gives: GPUs of nodes that are down, of types on which they do not
    run, parts of a gang, more than they asked for."""
    rng, plain = Random(-seed - 3), everything(seed, 10)
    free = {node.name: node.gpus - node.foreign for node in plain.cluster.nodes}
    for job in plain.jobs:
        for node, gpus in job.allocation.items():
            free[node] -= gpus
    return replace(plain, jobs=tuple(_oddly_held(rng, job, free) for job in plain.jobs))


def _oddly_held(rng: Random, job: Job, free: dict[str, int]) -> Job:
    how = rng.choice(("as it is", "as it is", "more", "less"))
    holds = dict(job.allocation)
    room = [node for node, gpus in free.items() if gpus > 0]
    if how == "more" and room:
        node = rng.choice(room)
        gpus = rng.randint(1, free[node])
        holds[node] = holds.get(node, 0) + gpus
        free[node] -= gpus
    elif how == "less" and holds:
        node = rng.choice(sorted(holds))
        free[node] += 1
        holds[node] -= 1
    holds = {node: gpus for node, gpus in holds.items() if gpus}
    return job if holds == job.allocation else replace(job, allocation=holds, lease_until={})
