"""Snapshots that mix everything a snapshot can say: for properties that every policy has on every one of them.

Draining and down nodes, foreign GPUs, CPU and memory limits, racks; leases in the middle, holdings that mix GPU types;
caps, weights up to 1:1,000,000; unknown speeds and lengths, curves that fall, jobs at their end; rigid, elastic and
listed sizes, types required and ruled out, gangs and ranges above the cluster; apps of many jobs, with and without a
scheduler of their own. What jobs hold is always a state that a cluster can show: within its nodes, their CPUs and
memory, sizes of their gangs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from policy.model import (
    App,
    Cluster,
    GpuRange,
    Health,
    Job,
    Limits,
    Node,
    Phase,
    Slowdown,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)

NOW = 5000.0
TYPES = ("k80", "p100", "v100")
#: What a user says of types; a100 is in no cluster.
CHOICES = (
    *[None] * 6,
    TypeChoice(require=("k80",)),
    TypeChoice(require=("p100", "v100")),
    TypeChoice(require=("a100",)),
    TypeChoice(forbid=("k80",)),
    TypeChoice(prefer=("p100",)),
)


@st.composite
def mixtures(draw: st.DrawFn, *, most_jobs: int = 6, limits: bool = True) -> Snapshot:
    """Any snapshot of up to `most_jobs` jobs; `limits` False: the cluster can carry out every shape."""
    types = TYPES[: draw(st.integers(1, 3))]
    nodes = tuple(draw(_nodes(f"n{i}", types)) for i in range(draw(st.integers(1, 4))))
    weights = draw(st.lists(st.sampled_from((1.0, 1.0, 2.0, 10.0, 1000.0, 1e6)), min_size=3, max_size=3))
    caps = [draw(st.sampled_from((None, None, None, 0, 1, 3))) for _ in weights]
    tenants = tuple(Tenant(f"t{i}", w, c) for i, (w, c) in enumerate(zip(weights, caps, strict=True)))
    room = _Room(nodes)
    jobs: list[Job] = []
    for i in range(draw(st.integers(0, most_jobs))):
        jobs.append(draw(_jobs(f"j{i}", types, nodes, room)))
    apps = tuple(draw(_apps(name)) for name in sorted({j.app for j in jobs}) if not draw(st.integers(0, 4)))
    active = ((0.0, 3), (2000.0, 5)) if draw(st.booleans()) else ()
    shape = Limits()
    if limits:
        shape = Limits(draw(st.sampled_from((False, False, True))), draw(st.sampled_from((False, False, True))))
    present = tuple(t for t in types if any(n.gpu_type == t for n in nodes))
    return Snapshot(Cluster(nodes, shape, present), tuple(jobs), tenants, NOW, apps, active)


class _Room:
    """What nodes have left for what jobs hold: GPUs, CPUs, memory."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.gpus = {n.name: 0 if n.health is Health.DOWN else n.gpus - n.foreign for n in nodes}
        self.cpus = {n.name: n.cpus for n in nodes if n.cpus is not None}
        self.memory = {n.name: float(n.memory) for n in nodes if n.memory is not None}

    def most(self, node: str, cpus: float | None, memory: int | None) -> int:
        """GPUs of a node that a job with these needs a GPU could hold."""
        most = self.gpus[node]
        if cpus and node in self.cpus:
            most = min(most, int(self.cpus[node] // cpus))
        if memory and node in self.memory:
            most = min(most, int(self.memory[node] // memory))
        return most

    def take(self, node: str, gpus: int, cpus: float | None, memory: int | None) -> None:
        self.gpus[node] -= gpus
        if cpus and node in self.cpus:
            self.cpus[node] -= cpus * gpus
        if memory and node in self.memory:
            self.memory[node] -= memory * gpus


@st.composite
def _apps(draw: st.DrawFn, name: str) -> App:
    scheduler = draw(st.sampled_from(("external", "successive-halving", "hyperband")))
    phases = () if scheduler == "external" else (Phase(2, 1e4), Phase(1, 1e5))
    return App(name, scheduler, None, draw(st.sampled_from((None, None, 1, 3, 8))), phases)


@st.composite
def _nodes(draw: st.DrawFn, name: str, types: tuple[str, ...]) -> Node:
    gpus = draw(st.sampled_from((1, 2, 3, 4, 4, 8)))
    return Node(
        name,
        draw(st.sampled_from(types)),
        gpus,
        rack=draw(st.sampled_from((None, "r1", "r2"))),
        health=draw(st.sampled_from((*[Health.UP] * 6, Health.DRAIN, Health.DOWN))),
        foreign=min(draw(st.sampled_from((0, 0, 0, 1, 3))), gpus),
        cpus=draw(st.sampled_from((None, None, None, 8.0, 32.0))),
        memory=draw(st.sampled_from((None, None, None, 2**36))),
    )


@st.composite
def _ranges(draw: st.DrawFn) -> GpuRange:
    kind = draw(st.sampled_from(("rigid", "range", "open", "listed", "above")))
    low = draw(st.sampled_from((1, 1, 1, 2, 2, 3, 5, 40)))
    if kind == "rigid":
        return GpuRange(low, low, low)
    if kind == "open":
        return GpuRange(low, low, None)
    if kind == "listed":
        sizes = tuple(sorted(draw(st.sets(st.sampled_from((1, 2, 3, 4, 8)), min_size=1, max_size=3))))
        return GpuRange(draw(st.sampled_from(sizes)), sizes[0], sizes[-1], sizes)
    high = 64 if kind == "above" else low + draw(st.integers(0, 6))
    return GpuRange(draw(st.sampled_from((low, high))), low, high)


@st.composite
def _jobs(draw: st.DrawFn, name: str, types: tuple[str, ...], nodes: tuple[Node, ...], room: _Room) -> Job:
    gpus = draw(_ranges())
    table: dict[str, dict[int, float]] = {}
    if draw(st.integers(0, 3)):
        for t in draw(st.sets(st.sampled_from(types), min_size=1)):
            speed, bend = draw(st.sampled_from((0.5, 1.0, 3.0))), draw(st.sampled_from((0.5, 0.8, 1.0)))
            table[t] = {n: speed * n**bend for n in (1, 2, 4, 8)}
            if not draw(st.integers(0, 5)):
                table[t][8] = table[t][4] / 2
    more: dict[str, Any] = {
        "cpus_per_gpu": draw(st.sampled_from((None, None, 4.0))),
        "memory_per_gpu": draw(st.sampled_from((None, None, 2**34))),
        "slowdown": draw(st.sampled_from((Slowdown(), Slowdown(1.0, 1.0, 1.0), Slowdown(1.0, 1.5, 4.0)))),
        "gpu_types": draw(st.sampled_from(CHOICES)),
    }
    allocation = draw(_held(gpus, table, nodes, room, more))
    lease: dict[str, tuple[float, ...]] = {}
    if allocation and draw(st.booleans()):
        lease = {n: tuple(sorted(draw(st.sampled_from((NOW - 10, NOW + 300))) for _ in range(g))) for n, g in
                 allocation.items()}  # fmt: skip
    total = draw(st.sampled_from((None, 1e4, 1e6)))
    tenant = draw(st.sampled_from(("t0", "t1", "t2")))
    return Job(
        name,
        tenant=tenant,
        app=draw(st.sampled_from((name, name, f"sweep-{tenant}"))),
        gpus=gpus,
        submitted_s=draw(st.sampled_from((0.0, 1.0, 3000.0))),
        work=Work(total, 0.0 if total is None else total * draw(st.sampled_from((0.0, 0.0, 0.5, 0.5, 1.0)))),
        throughput=table,
        attained={t: draw(st.sampled_from((100.0, 9000.0))) for t in types[:1]} if draw(st.booleans()) else {},
        allocation=allocation,
        lease_until=lease,
        known=draw(st.booleans()),
        **more,
    )


@st.composite
def _held(
    draw: st.DrawFn,
    gpus: GpuRange,
    table: dict[str, dict[int, float]],
    nodes: tuple[Node, ...],
    room: _Room,
    more: dict[str, Any],
) -> dict[str, int]:
    """A gang on some nodes with room, types mixed as it happens; or nothing."""
    if draw(st.booleans()):
        return {}
    out: dict[str, int] = {}
    needs, choice = (more["cpus_per_gpu"], more["memory_per_gpu"]), more["gpu_types"]
    for node in draw(st.permutations(nodes)):
        runs = (not table or node.gpu_type in table) and (choice is None or choice.allows(node.gpu_type))
        most = room.most(node.name, *needs) if runs else 0
        if most:
            out[node.name] = draw(st.integers(1, most))
        if gpus.feasible(sum(out.values())) and out:
            for name, n in out.items():
                room.take(name, n, *needs)
            return out
    return {}
