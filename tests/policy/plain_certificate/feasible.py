"""Can this allocation run, and does it leave idle what somebody could use?

Written apart from `policy/places/placement.py` on purpose: the planner's mistakes must not be the inspector's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policy.model import (
    Allocation,
    GpuRange,
    Gpus,
    GpuType,
    Health,
    Job,
    JobName,
    Limits,
    Node,
    NodeName,
    Shape,
    Snapshot,
)
from policy.throughput import Throughput

MOST_STEPS = 16


def violations(snapshot: Snapshot, allocation: Mapping[JobName, Allocation]) -> Iterator[str]:
    """Every way in which `allocation` cannot run, one sentence each."""
    nodes = {n.name: n for n in snapshot.cluster.nodes}
    limits = snapshot.cluster.limits
    used: dict[NodeName, int] = {}
    cpus: dict[NodeName, float] = {}
    memory: dict[NodeName, float] = {}
    holds: dict[str, int] = {}
    alone: dict[NodeName, JobName] = {}
    kept: dict[NodeName, JobName] = {}
    for job in snapshot.jobs:
        now = allocation.get(job.name)
        if not now:
            continue
        total = sum(now.values())
        holds[job.tenant] = holds.get(job.tenant, 0) + total
        unknown = [n for n in now if n not in nodes]
        if unknown:
            yield f"{job.name} is placed on {unknown[0]}, which is no node"
            continue
        if not job.gpus.feasible(total):
            yield f"{job.name} gets {total} GPUs, which is no size of its gang"
        if now != job.allocation and all(n in nodes for n in now):
            yield from _unshaped(job, now, nodes)
            if job.shape is not None and job.shape.exclusive:
                alone |= dict.fromkeys(now, job.name)
        elif job.shape is not None and job.shape.exclusive:
            kept |= dict.fromkeys(now, job.name)
        types = set()
        for name, gpus in now.items():
            node = nodes[name]
            types.add(node.gpu_type)
            used[name] = used.get(name, 0) + gpus
            if gpus < 1:
                yield f"{job.name} gets {gpus} GPUs on {name}"
            if node.health is Health.DOWN:
                yield f"{job.name} is placed on {name}, which is down"
            if node.health is Health.DRAIN and gpus > job.allocation.get(name, 0):
                yield f"{job.name} takes GPUs on {name}, which is draining"
            if job.throughput and node.gpu_type not in job.throughput:
                yield f"{job.name} is placed on {name}, a {node.gpu_type} node, on which it cannot run"
            cpus[name] = cpus.get(name, 0.0) + _cpus(job, gpus)
            memory[name] = memory.get(name, 0.0) + _memory(job, gpus)
        if limits.one_type_per_job and len(types) > 1:
            yield f"{job.name} spans GPU types, which the cluster cannot carry out"
        if limits.equal_gpus_per_node and job.shape is None and len(set(now.values())) > 1:
            yield f"{job.name} has unequal GPUs on its nodes, which the cluster cannot carry out"
    for name, gpus in used.items():
        node = nodes[name]
        if gpus > node.gpus - node.foreign:
            yield f"{name} gives {gpus} GPUs and has {node.gpus - node.foreign} for us"
        if node.cpus is not None and cpus.get(name, 0.0) > node.cpus * (1 + 1e-9):
            yield f"{name} gives {cpus[name]:g} CPUs and has {node.cpus:g}"
        if node.memory is not None and memory.get(name, 0.0) > node.memory:
            yield f"{name} gives {memory[name]:g} bytes of memory and has {node.memory}"
    for name, owner in alone.items():
        if nodes[name].foreign or used[name] > allocation[owner][name]:
            yield f"{owner} shares {name} with others, where it asks for whole nodes"
    for name, owner in kept.items():
        if used[name] > sum(job.allocation.get(name, 0) for job in snapshot.jobs):
            yield f"{owner} is joined by others on {name}, where it asked for whole nodes"
    for tenant in snapshot.tenants:
        has = holds.get(tenant.name, 0)
        if tenant.cap is not None and has > max(tenant.cap, _kept(snapshot, allocation, tenant.name)):
            yield f"tenant {tenant.name} holds {has} GPUs, above its limit of {tenant.cap}"


def _unshaped(job: Job, now: Allocation, nodes: Mapping[NodeName, Node]) -> Iterator[str]:
    """How a new allocation is not what the job asked for."""
    for name in now:
        if job.gpu_types is not None and not job.gpu_types.allows(nodes[name].gpu_type):
            yield f"{job.name} is placed on {name}, a {nodes[name].gpu_type} node, a type that it rules out"
    shape = job.shape
    if shape is None:
        return
    if shape.gpus_per_node is not None and set(now.values()) != {shape.gpus_per_node}:
        yield f"{job.name} gets {dict(now)}, where it asks for {shape.gpus_per_node} GPUs on each node"
    even = shape.gpus_per_node is not None or (shape.nodes and sum(now.values()) % shape.nodes == 0)
    if shape.nodes is not None and even and len(now) != shape.nodes:
        yield f"{job.name} is placed on {len(now)} nodes, where it asks for {shape.nodes}"
    for name in now:
        lacks = sorted(set(shape.features) - set(nodes[name].features))
        if lacks:
            yield f"{job.name} is placed on {name}, which has no {lacks[0]}"


def _cpus(job: Job, gpus: Gpus) -> float:
    """That it uses on a node with so many of its GPUs."""
    if job.shape is not None and job.shape.cpus_per_node:
        return job.shape.cpus_per_node
    return gpus * (job.cpus_per_gpu or 0.0)


def _memory(job: Job, gpus: Gpus) -> float:
    if job.shape is not None and job.shape.memory_per_node:
        return float(job.shape.memory_per_node)
    return float(gpus * (job.memory_per_gpu or 0))


def _kept(snapshot: Snapshot, allocation: Mapping[JobName, Allocation], tenant: str) -> int:
    """GPUs of the tenant's jobs that stay exactly as they are: a limit learnt later takes nothing away."""
    return sum(
        j.held for j in snapshot.jobs if j.tenant == tenant and j.held and allocation.get(j.name) == j.allocation
    )


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one more step would take: jobs with the same wish need asking once."""

    types: tuple[GpuType, ...]
    gpus: Gpus
    cpus: float
    memory: float
    table: int  #: whose speeds: one who would gain nothing does not speak for another
    range: GpuRange  #: of a rigid gang follows how many GPUs a shape has on each node
    shape: Shape | None = None


def idle_but_wanted(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> tuple[JobName, Gpus] | None:
    """A job that could run on more GPUs, and faster, with what is idle: (job, size). None: work-conserving.

    A job's next size may use the idle GPUs and the job's own; others' stay. Sizes that would not make it faster,
    that no set of idle GPUs holds under the limits, or that its tenant's cap forbids are no wish. Looks at sizes up
    to MOST_STEPS GPUs above what the job has (a curve may fall and rise again).
    """
    idle, cpus, memory = _idle(snapshot, allocation)
    if not any(idle.values()):
        return None
    caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
    holds: dict[str, int] = {}
    for job in snapshot.jobs:
        now = allocation.get(job.name)
        if now:
            holds[job.tenant] = holds.get(job.tenant, 0) + sum(now.values())
    free = [n for n in snapshot.cluster.nodes if idle[n.name] > 0]
    idle_by_type: dict[GpuType, int] = {}
    for n in free:
        idle_by_type[n.gpu_type] = idle_by_type.get(n.gpu_type, 0) + idle[n.name]
    nodes = {n.name: n for n in snapshot.cluster.nodes}
    refused: set[_Wish] = set()
    for job in snapshot.jobs:
        now = allocation.get(job.name) or {}
        if job.work.left == 0:
            continue
        has = sum(now.values())
        size = job.gpus.above(has)
        while size is not None:
            if job.tenant in caps and holds.get(job.tenant, 0) - has + size > caps[job.tenant]:
                break
            types = speeds.types(job)
            if size - has > sum(idle_by_type.get(t, 0) for t in types):
                break
            beside = (job.cpus_per_gpu or 0.0, float(job.memory_per_gpu or 0))
            wish = _Wish(types, size, *beside, id(job.throughput), job.gpus, job.shape)
            if (has or wish not in refused) and _could_help(job, now, size, types, speeds):
                room = [*free, *(nodes[n] for n in now if idle[n] <= 0)]
                if _faster(job, now, size, room, snapshot.cluster.limits, idle, cpus, memory, speeds):
                    return job.name, size
            if not has:
                refused.add(wish)
            if size - has >= MOST_STEPS:
                break
            size = job.gpus.above(size)
    return None


def _idle(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation]
) -> tuple[dict[NodeName, int], dict[NodeName, float | None], dict[NodeName, float | None]]:
    up = {n.name: n.health is Health.UP for n in snapshot.cluster.nodes}
    idle = {n.name: n.gpus - n.foreign if up[n.name] else 0 for n in snapshot.cluster.nodes}
    cpus: dict[NodeName, float | None] = {n.name: n.cpus for n in snapshot.cluster.nodes}
    memory: dict[NodeName, float | None] = {
        n.name: None if n.memory is None else float(n.memory) for n in snapshot.cluster.nodes
    }
    for job in snapshot.jobs:
        for name, gpus in (allocation.get(job.name) or {}).items():
            if up[name]:
                idle[name] -= gpus
            c, m = cpus[name], memory[name]
            if c is not None:
                cpus[name] = c - _cpus(job, gpus)
            if m is not None:
                memory[name] = m - _memory(job, gpus)
            if job.shape is not None and job.shape.exclusive:
                idle[name] = 0
    return idle, cpus, memory


def _could_help(job: Job, now: Allocation, size: Gpus, types: tuple[GpuType, ...], speeds: Throughput) -> bool:
    """False if no placement of `size` GPUs, however good, is faster than what it has."""
    was = speeds.rate(job, now)
    if was is None or not job.throughput:
        return True
    return any((speeds.at(job, t, size) or 0.0) / job.slowdown.node > was * (1 + 1e-9) for t in types)


def _faster(
    job: Job,
    now: Allocation,
    size: Gpus,
    room: list[Node],
    limits: Limits,
    idle: Mapping[NodeName, int],
    cpus: Mapping[NodeName, float | None],
    memory: Mapping[NodeName, float | None],
    speeds: Throughput,
) -> bool:
    """True if `size` GPUs, out of the idle ones and the job's own, hold the gang and make it faster."""
    offers: dict[NodeName, int] = {}
    allowed = speeds.types(job)
    for n in room:
        own = now.get(n.name, 0)
        offer = idle[n.name] + own
        if offer <= 0 or n.gpu_type not in allowed:
            continue
        c, m = cpus[n.name], memory[n.name]
        if job.shape is not None:
            offers |= _offered(job, job.shape, n, offer, c, m)
            continue
        if c is not None and job.cpus_per_gpu:
            offer = min(offer, own + int(c / job.cpus_per_gpu + 1e-9))
        if m is not None and job.memory_per_gpu:
            offer = min(offer, own + int(m // job.memory_per_gpu))
        if offer > 0:
            offers[n.name] = offer
    by_type: dict[GpuType, list[NodeName]] = {}
    for n in room:
        if n.name in offers:
            by_type.setdefault(n.gpu_type, []).append(n.name)
    groups = list(by_type.values())
    if not limits.one_type_per_job and len(groups) > 1:
        groups.append(list(offers))
    was = speeds.rate(job, now)
    for group in groups:
        found = _spread(group, offers, size, limits.equal_gpus_per_node and job.shape is None)
        if found is None:
            continue
        rate = speeds.rate(job, found)
        if rate is None or was is None:
            return not job.throughput
        if rate > was * (1 + 1e-9):
            return True
    return False


def _offered(
    job: Job, shape: Shape, node: Node, idle: Gpus, cpus: float | None, memory: float | None
) -> dict[NodeName, Gpus]:
    """What an idle node is to a job with a shape: GPUs for it, or nothing."""
    each = shape.gpus_per_node
    if each is None and shape.nodes and job.gpus.rigid and job.gpus.min % shape.nodes == 0:
        each = job.gpus.min // shape.nodes
    gpus = min(idle, each) if each else idle
    if (each and idle < each) or (shape.exclusive and idle < node.gpus):
        return {}
    if not set(shape.features) <= set(node.features):
        return {}
    if cpus is not None and _cpus(job, gpus) > cpus * (1 + 1e-9):
        return {}
    if memory is not None and _memory(job, gpus) > memory:
        return {}
    return {node.name: gpus}


def _spread(group: list[NodeName], offers: Mapping[NodeName, int], size: Gpus, equal: bool) -> Allocation | None:
    """`size` GPUs on the fewest nodes of `group`, largest offers first."""
    order = sorted(group, key=lambda n: -offers[n])
    if equal:
        for k in range(1, min(size, len(order)) + 1):
            if size % k == 0 and offers[order[k - 1]] >= size // k:
                return dict.fromkeys(order[:k], size // k)
        return None
    out: dict[NodeName, int] = {}
    left = size
    for n in order:
        if left == 0:
            break
        out[n] = min(offers[n], left)
        left -= out[n]
    return None if left else out
