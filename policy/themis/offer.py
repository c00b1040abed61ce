"""What is on offer in a round: GPUs that are free, freed or whose lease has expired (§3.3.2, §4.2.2).

Leases expire per GPU. GPUs under an unexpired lease stay with their app and are part of every row it bids; all
others of healthy nodes are offered, those that a job still runs on included. A draining node keeps what it runs and
offers nothing. Nodes that no bidder can tell apart (type, rack, offered GPUs, free CPUs and memory) form a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from policy.model import Bytes, Cluster, Gpus, GpuType, Health, Job, NodeName, Seconds, Snapshot


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes alike in everything that a bid may depend on."""

    index: int
    gpu_type: GpuType
    rack: str
    free: Gpus  #: offered on each
    nodes: tuple[NodeName, ...]  #: in the cluster's order
    cpus: float | None = None  #: free on each; None: not a constraint
    memory: Bytes | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """`free`: offered GPUs by node, cluster order. `leased`: app -> node -> expiry times of what it keeps."""

    free: Mapping[NodeName, Gpus]
    leased: Mapping[str, Mapping[NodeName, tuple[Seconds, ...]]]
    cpus: Mapping[NodeName, float]
    memory: Mapping[NodeName, Bytes]
    rack: Mapping[NodeName, str]
    gpu_type: Mapping[NodeName, GpuType]
    held: Mapping[str, Mapping[NodeName, Gpus]] = field(default_factory=dict)  #: app -> what it runs on now

    def base(self, app: str) -> dict[NodeName, Gpus]:
        """GPUs that the app keeps under unexpired leases."""
        return {node: len(times) for node, times in self.leased.get(app, {}).items() if times}

    @property
    def total(self) -> Gpus:
        return sum(self.free.values())


def offer(snapshot: Snapshot) -> Offer:
    """The offer of this moment."""
    room = {n.name: max(n.gpus - n.foreign, 0) if n.health is not Health.DOWN else 0 for n in snapshot.cluster.nodes}
    health = {n.name: n.health for n in snapshot.cluster.nodes}
    leased: dict[str, dict[NodeName, tuple[Seconds, ...]]] = {}
    held: dict[str, dict[NodeName, Gpus]] = {}
    cpus = {n.name: n.cpus for n in snapshot.cluster.nodes if n.cpus is not None}
    memory = {n.name: n.memory for n in snapshot.cluster.nodes if n.memory is not None}
    for job in sorted(snapshot.jobs, key=lambda j: j.order):
        for node, gpus in job.allocation.items():
            if health.get(node, Health.DOWN) is Health.DOWN:
                continue
            mine = held.setdefault(job.app, {})
            mine[node] = mine.get(node, 0) + gpus
            times = kept(job, node, gpus, snapshot.now_s, drain=health[node] is Health.DRAIN)[: room[node]]
            if not times:
                continue
            room[node] -= len(times)
            by_node = leased.setdefault(job.app, {})
            by_node[node] = tuple(sorted((*by_node.get(node, ()), *times)))
            if node in cpus:
                cpus[node] = max(cpus[node] - (job.cpus_per_gpu or 0.0) * len(times), 0.0)
            if node in memory:
                memory[node] = max(memory[node] - (job.memory_per_gpu or 0) * len(times), 0)
    return Offer(
        free={n.name: room[n.name] if n.health is Health.UP else 0 for n in snapshot.cluster.nodes},
        leased=leased,
        cpus=cpus,
        memory=memory,
        rack={n.name: n.rack or "" for n in snapshot.cluster.nodes},
        gpu_type={n.name: n.gpu_type for n in snapshot.cluster.nodes},
        held=held,
    )


def kept(job: Job, node: NodeName, gpus: Gpus, now_s: Seconds, *, drain: bool) -> tuple[Seconds, ...]:
    """Expiry times of the GPUs on `node` that the job keeps whatever happens; latest first.

    On a draining node a job keeps all it has: nobody else could take it.
    """
    times = tuple(sorted((t for t in job.lease_until.get(node, ()) if t > now_s), reverse=True))[:gpus]
    return times + (now_s,) * (gpus - len(times)) if drain else times


def classes(cluster: Cluster, offered: Offer, apart: Iterable[NodeName] = ()) -> list[NodeClass]:
    """Classes of the nodes with GPUs on offer; each node of `apart` is a class of its own."""
    single = set(apart)
    groups: dict[tuple[object, ...], list[NodeName]] = {}
    for node in cluster.nodes:
        free = offered.free[node.name]
        if free > 0:
            key = (
                node.gpu_type,
                offered.rack[node.name],
                free,
                offered.cpus.get(node.name),
                offered.memory.get(node.name),
                node.name if node.name in single else None,
            )
            groups.setdefault(key, []).append(node.name)
    return [
        NodeClass(
            i,
            offered.gpu_type[names[0]],
            offered.rack[names[0]],
            offered.free[names[0]],
            tuple(names),
            offered.cpus.get(names[0]),
            offered.memory.get(names[0]),
        )
        for i, names in enumerate(groups.values())
    ]
