"""Crowded clusters from a seed: many elastic jobs on few nodes of several types, most GPUs held in some odd way.

What `mixtures.py` makes is small, so that everything is mixed with everything; here whole clusters are full, so that
sizes, places and what is idle depend on each other.
"""

from __future__ import annotations

from random import Random

from policy.model import (
    Cluster,
    GpuRange,
    Health,
    Job,
    Limits,
    Node,
    Slowdown,
    Snapshot,
    Tenant,
    Work,
)

NOW = 5000.0
TYPES = ("k80", "p100", "v100")


def crowd(seed: int, most_jobs: int = 24) -> Snapshot:
    """The same for the same seed."""
    rng = Random(seed)
    types = TYPES[: rng.randint(1, 3)]
    nodes = tuple(_node(rng, f"n{i}", types) for i in range(rng.randint(2, 12)))
    present = tuple(t for t in types if any(n.gpu_type == t for n in nodes))
    free = {n.name: n.gpus - n.foreign for n in nodes if n.health is not Health.DOWN}
    tables = [_table(rng, types) for _ in range(rng.randint(1, 4))]
    jobs = tuple(_job(rng, i, tables, nodes, free) for i in range(rng.randint(2, most_jobs)))
    tenants = tuple(Tenant(f"t{i}", rng.choice((1.0, 1.0, 2.0, 1000.0)), rng.choice((None, None, None, 3, 9)))
                    for i in range(4))  # fmt: skip
    limits = Limits(rng.random() < 0.2, rng.random() < 0.2)
    return Snapshot(Cluster(nodes, limits, present), jobs, tenants, NOW)


def _node(rng: Random, name: str, types: tuple[str, ...]) -> Node:
    gpus = rng.choice((2, 3, 4, 4, 8, 8))
    health = rng.choice((*[Health.UP] * 30, Health.DRAIN, Health.DOWN))
    return Node(
        name,
        rng.choice(types),
        gpus,
        rack=rng.choice((None, "r1", "r2", "r3")),
        health=health,
        foreign=rng.choice((0, 0, 0, 0, 1)),
        cpus=rng.choice((None, None, None, 16.0)),
    )


def _table(rng: Random, types: tuple[str, ...]) -> dict[str, dict[int, float]]:
    """Nothing known now and then; else curves that bend, fall, or stand still between points."""
    if rng.random() < 0.15:
        return {}
    out = {}
    for t in types:
        if rng.random() < 0.85:
            speed, bend = rng.choice((0.5, 1.0, 1.0, 3.0)), rng.choice((0.4, 0.8, 1.0))
            out[t] = {n: speed * n**bend for n in (1, 2, 4, 8)}
            if rng.random() < 0.2:
                out[t][8] = out[t][4]
    return out or {types[0]: {1: 1.0, 4: 3.0}}


def _sizes(rng: Random) -> GpuRange:
    low = rng.choice((1, 1, 1, 2, 2, 3, 4))
    kind = rng.choice(("rigid", "range", "range", "open", "listed"))
    if kind == "rigid":
        return GpuRange(low, low, low)
    if kind == "open":
        return GpuRange(low, low, None)
    if kind == "listed":
        sizes = tuple(sorted(rng.sample((1, 2, 4, 6, 8), rng.randint(1, 3))))
        return GpuRange(rng.choice(sizes), sizes[0], sizes[-1], sizes)
    return GpuRange(rng.randint(low, low + 6), low, low + 6)


def _job(
    rng: Random, i: int, tables: list[dict[str, dict[int, float]]], nodes: tuple[Node, ...], free: dict[str, int]
) -> Job:
    gpus, table = _sizes(rng), rng.choice(tables)
    cpus = rng.choice((None, None, None, 2.0))
    total = rng.choice((None, 1e3, 1e4, 1e5))
    held = _held(rng, gpus, table, cpus, nodes, free) if rng.random() < 0.7 else {}
    tenant = f"t{rng.randint(0, 3)}"
    return Job(
        f"j{i:02}",
        tenant,
        rng.choice((f"j{i:02}", f"j{i:02}", f"sweep-{tenant}")),
        gpus,
        rng.choice((0.0, 10.0, 20.0 + i)),
        allocation=held,
        throughput=table,
        slowdown=rng.choice((Slowdown(), Slowdown(1.0, 1.0, 1.0), Slowdown(1.0, 1.5, 4.0))),
        work=Work(total),
        cpus_per_gpu=cpus,
        attained={t: rng.choice((0.0, 300.0, 9000.0)) for t in sorted({n.gpu_type for n in nodes if n.name in held})},
    )


def _held(
    rng: Random,
    gpus: GpuRange,
    table: dict[str, dict[int, float]],
    cpus: float | None,
    nodes: tuple[Node, ...],
    free: dict[str, int],
) -> dict[str, int]:
    """A gang on some nodes with room, and no more than two jobs' CPUs on a node that counts them."""
    out: dict[str, int] = {}
    for node in rng.sample(nodes, len(nodes)):
        most = free.get(node.name, 0)
        if most and (not table or node.gpu_type in table) and (cpus is None or node.cpus is None):
            out[node.name] = rng.randint(1, most)
        if out and gpus.feasible(sum(out.values())):
            for name, n in out.items():
                free[name] -= n
            return out
    return {}
