"""Can this allocation run, and does it leave idle what somebody could use?

Written apart from `policy/places/placement.py` on purpose: the planner's mistakes must not be the inspector's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from policy.model import (
    Allocation,
    Away,
    Gpus,
    GpuType,
    Health,
    Job,
    JobName,
    Limits,
    Node,
    NodeName,
    Seconds,
    Shape,
    Snapshot,
)
from policy.throughput import Throughput

MOST_STEPS = 16


def violations(snapshot: Snapshot, allocation: Mapping[JobName, Allocation]) -> Iterator[str]:
    """Every way in which `allocation` cannot run, one sentence each."""
    nodes = {n.name: n for n in snapshot.cluster.nodes}
    up = {n.name: n.gpu_type for n in snapshot.cluster.nodes if n.health is Health.UP and not n.away}
    used: dict[NodeName, int] = {}
    cpus: dict[NodeName, float] = {}
    memory: dict[NodeName, float] = {}
    holds: dict[str, int] = {}
    alone: list[Job] = []
    for job in snapshot.jobs:
        now = allocation.get(job.name)
        if not now:
            continue
        holds[job.tenant] = holds.get(job.tenant, 0) + sum(now.values())
        if not _surely(job, now, up):
            if unknown := now.keys() - nodes.keys():
                yield f"{job.name} is placed on {min(unknown)}, which is no node"
                continue
            yield from _wrong(job, now, nodes, snapshot)
            if job.shape is not None and job.shape.exclusive:
                alone.append(job)
        more = _brings_along(job)
        for name, gpus in now.items():
            used[name] = used.get(name, 0) + gpus
            if more:
                cpus[name] = cpus.get(name, 0.0) + _cpus(job, gpus)
                memory[name] = memory.get(name, 0.0) + _memory(job, gpus)
    yield from _overfull(nodes, used, cpus, memory)
    yield from _beside(alone, snapshot, allocation, used)
    yield from _above_caps(snapshot, allocation, holds)


def _beside(
    alone: list[Job], snapshot: Snapshot, allocation: Mapping[JobName, Allocation], used: Mapping[NodeName, int]
) -> Iterator[str]:
    """Who is where the jobs of `alone` are, that share no node: on new ones nobody, on what they hold nobody new."""
    kept: dict[NodeName, JobName] = {}
    new: dict[NodeName, JobName] = {}
    for job in alone:
        now = allocation[job.name]
        (kept if now == job.allocation else new).update(dict.fromkeys(now, job.name))
    foreign = {n.name: n.foreign for n in snapshot.cluster.nodes if n.name in new}
    for name, owner in new.items():
        if foreign[name] or used[name] > allocation[owner][name]:
            yield f"{owner} shares {name} with others, where it asks for whole nodes"
    yield from _joined(snapshot, used, kept)


def _joined(snapshot: Snapshot, used: Mapping[NodeName, int], kept: Mapping[NodeName, JobName]) -> Iterator[str]:
    """Who holds a node alone is joined by nobody; who is there already may stay."""
    was = dict.fromkeys(kept, 0)
    for job in snapshot.jobs:
        for name in was.keys() & job.allocation.keys():
            was[name] += job.allocation[name]
    for name, owner in kept.items():
        if used[name] > was[name]:
            yield f"{owner} is joined by others on {name}, where it asked for whole nodes"


def _above_caps(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], holds: Mapping[str, int]
) -> Iterator[str]:
    above = {t.name: t.cap for t in snapshot.tenants if t.cap is not None and holds.get(t.name, 0) > t.cap}
    kept = dict.fromkeys(above, 0)  #: by jobs that stay exactly as they are: a limit learnt later takes nothing away
    for job in snapshot.jobs if above else ():
        if job.tenant in above and allocation.get(job.name) == job.allocation:
            kept[job.tenant] += job.held
    for tenant, cap in above.items():
        if holds[tenant] > kept[tenant]:
            yield f"tenant {tenant} holds {holds[tenant]} GPUs, above its limit of {cap}"


def _overfull(
    nodes: Mapping[NodeName, Node],
    used: Mapping[NodeName, int],
    cpus: Mapping[NodeName, float],
    memory: Mapping[NodeName, float],
) -> Iterator[str]:
    """Nodes that give more than they have."""
    for name, gpus in used.items():
        node = nodes[name]
        if gpus > node.gpus - node.foreign:
            yield f"{name} gives {gpus} GPUs and has {node.gpus - node.foreign} for us"
        if node.cpus is not None and cpus.get(name, 0.0) > node.cpus * (1 + 1e-9):
            yield f"{name} gives {cpus.get(name, 0.0):g} CPUs and has {node.cpus:g}"
        if node.memory is not None and memory.get(name, 0.0) > node.memory:
            yield f"{name} gives {memory.get(name, 0.0):g} bytes of memory and has {node.memory}"


def _brings_along(job: Job) -> bool:
    """Whether its GPUs take CPUs or memory with them."""
    return bool(job.cpus_per_gpu or job.memory_per_gpu or job.shape is not None)


def _surely(job: Job, now: Allocation, up: Mapping[NodeName, GpuType]) -> bool:
    """The quick answer for nearly all: a size of its gang, on one node that is up and of a type that it runs on, of a
    job that asks for no more."""
    if len(now) != 1 or job.shape is not None or job.gpu_types is not None:
        return False
    ((name, gpus),) = now.items()
    gpu_type = up.get(name)
    if gpu_type is None or gpus < 1 or not job.gpus.feasible(gpus):
        return False
    return not job.throughput or gpu_type in job.throughput


def _wrong(job: Job, now: Allocation, nodes: Mapping[NodeName, Node], snapshot: Snapshot) -> Iterator[str]:
    """What is wrong with one job's allocation, whatever the others have. All its nodes are known."""
    limits, total = snapshot.cluster.limits, sum(now.values())
    if not job.gpus.feasible(total):
        yield f"{job.name} gets {total} GPUs, which is no size of its gang"
    if now != job.allocation:
        yield from _unshaped(job, now, nodes)
    for name, gpus in now.items():
        yield from _wrong_on(job, nodes[name], gpus, snapshot.now_s)
    yield from _beyond(job, now, nodes, limits)


def _beyond(job: Job, now: Allocation, nodes: Mapping[NodeName, Node], limits: Limits) -> Iterator[str]:
    """What the cluster cannot carry out."""
    if limits.one_type_per_job and len({nodes[name].gpu_type for name in now}) > 1:
        yield f"{job.name} spans GPU types, which the cluster cannot carry out"
    if limits.equal(job.shape) and len(set(now.values())) > 1:
        yield f"{job.name} has unequal GPUs on its nodes, which the cluster cannot carry out"


def _wrong_on(job: Job, node: Node, gpus: Gpus, now_s: Seconds) -> Iterator[str]:
    name = node.name
    if gpus < 1:
        yield f"{job.name} gets {gpus} GPUs on {name}"
    if node.health is Health.DOWN:
        yield f"{job.name} is placed on {name}, which is down"
    if (time := _goes_away(job, node, now_s)) is not None:
        yield f"{job.name} would be on {name} when that goes away for {time.name}"
    if node.health is Health.DRAIN and gpus > job.allocation.get(name, 0):
        yield f"{job.name} takes GPUs on {name}, which is draining"
    if job.throughput and node.gpu_type not in job.throughput:
        yield f"{job.name} is placed on {name}, a {node.gpu_type} node, on which it cannot run"


def _goes_away(job: Job, node: Node, now_s: Seconds) -> Away | None:
    """The time in which the node is away, where the job may not be there until then."""
    for time in node.away:
        if time.to_s <= now_s:
            continue
        if not job.stays and now_s >= time.leave_s:
            return time
        limit_s = inf if job.time_left_s is None else job.time_left_s
        if job.stays and not job.allocation and now_s + limit_s > time.from_s:
            return time
    return None


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
    yield from _beyond_limits(job, shape, now)
    for name in now:
        lacks = sorted(set(shape.features) - set(nodes[name].features))
        if lacks:
            yield f"{job.name} is placed on {name}, which has no {lacks[0]}"


def _beyond_limits(job: Job, shape: Shape, now: Allocation) -> Iterator[str]:
    if shape.most_nodes is not None and len(now) > shape.most_nodes:
        yield f"{job.name} is placed on {len(now)} nodes, where a limit lets it have {shape.most_nodes}"
    most = shape.most_per_node
    if most is not None and max(now.values(), default=0) > most:
        yield f"{job.name} gets {dict(now)}, where a limit lets it have {most} GPUs on a node"


def _cpus(job: Job, gpus: Gpus) -> float:
    """That it uses on a node with so many of its GPUs."""
    if job.shape is not None and job.shape.cpus_per_node:
        return job.shape.cpus_per_node
    return gpus * (job.cpus_per_gpu or 0.0)


def _memory(job: Job, gpus: Gpus) -> float:
    if job.shape is not None and job.shape.memory_per_node:
        return float(job.shape.memory_per_node)
    return float(gpus * (job.memory_per_gpu or 0))


def idle_but_wanted(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> tuple[JobName, Gpus] | None:
    """A job that could run on more GPUs, and faster, with what is idle: (job, size). None: work-conserving.

    A job's next size may use the idle GPUs and the job's own; others' stay. Sizes that would not make it faster,
    that no set of idle GPUs holds under the limits, or that its tenant's cap forbids are no wish. Looks at sizes up
    to MOST_STEPS GPUs above what the job has (a curve may fall and rise again). Waiting jobs of one kind have the
    same wishes, so they are asked once.
    """
    return next(wishes(snapshot, allocation, speeds), None)


def wishes(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> Iterator[tuple[JobName, Gpus]]:
    """Every such job, with the next size it wishes; of waiting jobs of one kind the first."""
    idle = _Idle(snapshot, allocation)
    if not idle.by_type:
        return
    caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
    holds: dict[str, int] = {}
    for job in snapshot.jobs:
        now = allocation.get(job.name)
        if now and job.tenant in caps:
            holds[job.tenant] = holds.get(job.tenant, 0) + sum(now.values())
    asked: set[object] = set()
    for job in snapshot.jobs:
        if job.work.left == 0:
            continue
        now = allocation.get(job.name) or {}
        room = None if job.tenant not in caps else caps[job.tenant] - holds.get(job.tenant, 0)
        if not now:
            alike = (speeds.kind(job), room, job.cpus_per_gpu, job.memory_per_gpu)
            if alike in asked:
                continue
            asked.add(alike)
        size = _wanted(job, now, room, idle, speeds)
        if size is not None:
            yield job.name, size


def _wanted(job: Job, now: Allocation, room: Gpus | None, idle: _Idle, speeds: Throughput) -> Gpus | None:
    """The next size that the job could have now and would be faster with. `room`: within its tenant's cap."""
    has = sum(now.values())
    types = speeds.types(job)
    there = sum(idle.by_type.get(t, 0) for t in types)
    size = job.gpus.above(has)
    while size is not None and size - has <= there and (room is None or size - has <= room):
        if _could_help(job, now, size, types, speeds) and idle.faster(job, now, size, speeds):
            return size
        if size - has >= MOST_STEPS:
            return None
        size = job.gpus.above(size)
    return None


#: GPUs offered (negative: the largest sort first), the node's place among all that offer, its name.
_Offer = tuple[int, float, NodeName]


class _Idle:
    """What is idle, by node and by how much of it a job could use, the largest offers first."""

    def __init__(self, snapshot: Snapshot, allocation: Mapping[JobName, Allocation]) -> None:
        self.gpus, self.cpus, self.memory = _idle(snapshot, allocation)
        self._limits = snapshot.cluster.limits
        self._nodes = {n.name: n for n in snapshot.cluster.nodes}
        self._free = [n for n in snapshot.cluster.nodes if self.gpus[n.name] > 0]
        self.by_type: dict[GpuType, int] = {}
        for n in self._free:
            self.by_type[n.gpu_type] = self.by_type.get(n.gpu_type, 0) + self.gpus[n.name]
        self._place = {n.name: place for place, n in enumerate(self._free)}
        self._offers: dict[object, tuple[dict[GpuType, float], dict[GpuType, list[_Offer]]]] = {}

    def faster(self, job: Job, now: Allocation, size: Gpus, speeds: Throughput) -> bool:
        """True if `size` GPUs, out of the idle ones and the job's own, hold the gang and make it faster."""
        by_type = self._within(job, now, size, speeds.types(job))
        groups = list(by_type.values())
        if not self._limits.one_type_per_job:
            groups += _of_several(by_type, job, size, speeds)
        was = speeds.rate(job, now)
        for group in groups:
            found = _spread(group, size, self._limits.equal(job.shape))
            most = None if job.shape is None else job.shape.most_nodes
            if found is None or (most is not None and len(found) > most):
                continue
            rate = speeds.rate(job, found)
            if rate is None or was is None:
                return not job.throughput
            if rate > was * (1 + 1e-9):
                return True
        return False

    def _within(self, job: Job, now: Allocation, most: Gpus, types: tuple[GpuType, ...]) -> dict[GpuType, list[_Offer]]:
        """By type the largest offers to the job, sorted: as many as a gang of `most` could use. The type of the node
        that comes first is first."""
        mine: dict[GpuType, list[_Offer]] = {}
        for number, name in enumerate(now):
            node = self._nodes[name]
            offer = self._offer(node, job, now[name])
            if offer > 0:
                place = self._place.get(name, len(self._free) + number)
                mine.setdefault(node.gpu_type, []).append((-offer, place, name))
        first, others = self._others(job)
        first = dict(first)
        for gpu_type, offers in mine.items():
            first[gpu_type] = min(first.get(gpu_type, inf), *(place for _, place, _ in offers))
        out: dict[GpuType, list[_Offer]] = {}
        for gpu_type in sorted(first, key=first.__getitem__):
            if gpu_type not in types:
                continue
            largest = [o for o in others.get(gpu_type, ())[: most + len(now)] if o[2] not in now]
            out[gpu_type] = sorted([*largest, *mine.get(gpu_type, ())])
        return {gpu_type: offers for gpu_type, offers in out.items() if offers}

    def _others(self, job: Job) -> tuple[dict[GpuType, float], dict[GpuType, list[_Offer]]]:
        """Of the idle nodes, what each offers to a job that holds nothing there: the first place by type, and all."""
        key = (job.cpus_per_gpu, job.memory_per_gpu, job.shape, job.shape and _each(job, job.shape))
        found = self._offers.get(key)
        if found is None:
            first: dict[GpuType, float] = {}
            offers: dict[GpuType, list[_Offer]] = {}
            for place, node in enumerate(self._free):
                offer = self._offer(node, job, 0)
                if offer > 0:
                    first.setdefault(node.gpu_type, place)
                    offers.setdefault(node.gpu_type, []).append((-offer, place, node.name))
            for of_type in offers.values():
                of_type.sort()
            found = self._offers[key] = (first, offers)
        return found

    def _offer(self, node: Node, job: Job, own: Gpus) -> Gpus:
        """GPUs of the node that the job could have, of which it has `own` already."""
        offer = self.gpus[node.name] + own
        cpus, memory = self.cpus[node.name], self.memory[node.name]
        if job.shape is not None:
            return _offered(job, job.shape, node, offer, cpus, memory) if offer > 0 else 0
        if cpus is not None and job.cpus_per_gpu:
            offer = min(offer, own + int(cpus / job.cpus_per_gpu + 1e-9))
        if memory is not None and job.memory_per_gpu:
            offer = min(offer, own + int(memory // job.memory_per_gpu))
        return offer


def _offered(job: Job, shape: Shape, node: Node, idle: Gpus, cpus: float | None, memory: float | None) -> Gpus:
    """What an idle node is to a job with a shape: GPUs for it, or nothing."""
    each = _each(job, shape)
    gpus = min(idle, each) if each else idle
    if shape.most_per_node is not None:
        gpus = min(gpus, shape.most_per_node)
    if (each and idle < each) or (shape.exclusive and idle < node.gpus):
        return 0
    if not set(shape.features) <= set(node.features):
        return 0
    if cpus is not None and _cpus(job, gpus) > cpus * (1 + 1e-9):
        return 0
    if memory is not None and _memory(job, gpus) > memory:
        return 0
    return gpus


def _each(job: Job, shape: Shape) -> Gpus | None:
    """GPUs that it asks for on each of its nodes; None: any number."""
    if shape.gpus_per_node is None and shape.nodes and job.gpus.rigid and job.gpus.min % shape.nodes == 0:
        return job.gpus.min // shape.nodes
    return shape.gpus_per_node


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


def _of_several(
    by_type: Mapping[GpuType, list[_Offer]], job: Job, size: Gpus, speeds: Throughput
) -> Iterator[list[_Offer]]:
    """Offers of the two types on which a gang of the size is fastest, of the three, and so on: it runs at the pace of
    its slowest."""
    fastest = sorted(by_type, key=lambda t: -(speeds.at(job, t, size) or 0.0))
    for count in range(2, len(fastest) + 1):
        yield [offer for t in fastest[:count] for offer in by_type[t]]


def _spread(group: list[_Offer], size: Gpus, equal: bool) -> Allocation | None:
    """`size` GPUs on the fewest nodes of `group`, largest offers first."""
    order = sorted(group)
    if equal:
        for k in range(1, min(size, len(order)) + 1):
            if size % k == 0 and -order[k - 1][0] >= size // k:
                return {name: size // k for _, _, name in order[:k]}
        return None
    out: dict[NodeName, int] = {}
    left = size
    for negative, _, name in order:
        if left == 0:
            break
        out[name] = min(-negative, left)
        left -= out[name]
    return None if left else out
