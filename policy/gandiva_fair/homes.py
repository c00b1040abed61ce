"""Where jobs live: a job is bound to nodes and shares them in time (§3.2, §3.5, Algorithm 2).

New jobs go to the least loaded nodes of the GPU type on which they make most progress for their tickets; jobs move
only when the loads of two nodes differ by more than a threshold, or when another GPU type would serve their tenant
better by more than a threshold.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policy.model import Gpus, GpuType, Health, Job, JobName, NodeName, Snapshot
from policy.places.gangs import divisors
from policy.throughput import Throughput

Home = dict[NodeName, Gpus]
#: (load per GPU, order, node) of nodes.
Heap = list[tuple[float, int, NodeName]]


def tickets_per_gpu(tickets: Mapping[str, float], requested: Mapping[str, int]) -> dict[str, float]:
    """Eq. 1: a tenant's tickets over the GPUs that all its jobs request; 0 for a tenant without jobs."""
    return {t: tickets[t] / requested[t] if requested.get(t) else 0.0 for t in tickets}


@dataclass(slots=True)
class Site:
    """The nodes that take our work, who lives there, and the tickets each node has to serve."""

    gpus: dict[NodeName, Gpus]
    type_of: dict[NodeName, GpuType]
    order: dict[NodeName, int]
    homes: dict[JobName, Home] = field(default_factory=dict)
    load: dict[NodeName, float] = field(default_factory=dict)
    #: By type and GPUs of a node; entries of loads that have changed are stale.
    calm: dict[tuple[GpuType, Gpus], Heap] = field(default_factory=dict)
    _by_size: dict[GpuType, list[tuple[Gpus, Heap]]] = field(default_factory=dict)
    _able: dict[tuple[GpuType, Gpus], list[Heap]] = field(default_factory=dict)  #: of nodes with so many GPUs
    _heap_of: dict[NodeName, Heap] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot) -> Site:
        usable = [n for n in snapshot.cluster.nodes if n.health is Health.UP and n.gpus > n.foreign]
        site = Site(
            {n.name: n.gpus - n.foreign for n in usable},
            {n.name: n.gpu_type for n in usable},
            {n.name: i for i, n in enumerate(usable)},
        )
        for node, gpus in site.gpus.items():
            site._heap_of[node] = site.calm.setdefault((site.type_of[node], gpus), [])
            site._weigh(node, 0.0)
        return site

    def settle(self, job: Job, home: Mapping[NodeName, Gpus], per_gpu: float) -> None:
        self.homes[job.name] = dict(home)
        load = self.load
        for node, n in home.items():
            self._weigh(node, load[node] + n * per_gpu)

    def leave(self, job: Job, per_gpu: float) -> None:
        for node, n in self.homes.pop(job.name, {}).items():
            self._weigh(node, self.load[node] - n * per_gpu)

    def _weigh(self, node: NodeName, load: float) -> None:
        self.load[node] = load
        heapq.heappush(self._heap_of[node], (load / self.gpus[node], self.order[node], node))

    def load_per_gpu(self, node: NodeName) -> float:
        """Eq. 2: the tickets of the jobs that live there (Eq. 1, by the GPUs they request there) over its GPUs."""
        return self.load[node] / self.gpus[node]

    def stands(self, home: Mapping[NodeName, Gpus]) -> bool:
        return bool(home) and all(n <= self.gpus.get(node, 0) for node, n in home.items())

    def types(self, home: Mapping[NodeName, Gpus]) -> set[GpuType]:
        return {self.type_of[node] for node in home}

    def best(self, size: Gpus, gpu_type: GpuType, equal: bool) -> Home | None:
        """The least loaded nodes of a type for a gang (Algorithm 2, lines 9-11): one node if one is large enough,
        else the fewest. None: the type is too small for it."""
        if found := self._calmest(gpu_type, size, nodes=1):
            return {found[0]: size}
        if not equal:
            home, left = Home(), size
            for node in self._calmest(gpu_type, 1, gpus=size):
                home[node] = min(self.gpus[node], left)
                left -= home[node]
            return None if left else {n: home[n] for n in sorted(home, key=self.order.__getitem__)}
        for count in divisors(size):
            each = size // count
            found = self._calmest(gpu_type, each, nodes=count)
            if len(found) == count:
                return dict.fromkeys(sorted(found, key=self.order.__getitem__), each)
        return None

    def _heaps(self, gpu_type: GpuType) -> list[tuple[Gpus, Heap]]:
        """Of the nodes of a type, by their GPUs, the largest first; which nodes there are does not change."""
        found = self._by_size.get(gpu_type)
        if found is None:
            of_type = [(g, heap) for (t, g), heap in self.calm.items() if t == gpu_type]
            found = self._by_size[gpu_type] = sorted(of_type, key=lambda h: -h[0])
        return found

    def _calmest(self, gpu_type: GpuType, least: Gpus, *, nodes: int = 0, gpus: Gpus = 0) -> list[NodeName]:
        """Nodes of a type with at least `least` GPUs: the `nodes` least loaded; or, the largest first and the least
        loaded among equals, until they have `gpus` GPUs."""
        heaps = self._able.get((gpu_type, least))
        if heaps is None:
            heaps = self._able[gpu_type, least] = [h for g, h in self._heaps(gpu_type) if g >= least]
        if nodes == 1 and len(heaps) == 1:
            heap = heaps[0]
            while heap:
                load, _, node = heap[0]
                if load == self.load[node] / self.gpus[node]:
                    return [node]
                heapq.heappop(heap)
            return []
        taken: list[tuple[Heap, tuple[float, int, NodeName]]] = []
        total = 0
        while len(taken) < nodes or total < gpus:
            for heap in heaps:
                while heap and heap[0][0] != self.load_per_gpu(heap[0][2]):
                    heapq.heappop(heap)
            able = [h for h in heaps if h]
            if not able:
                break
            heap = min(able, key=lambda h: h[0]) if nodes else able[0]
            entry = heapq.heappop(heap)
            while heap and heap[0] == entry:  # a load that was left and reached again
                heapq.heappop(heap)
            taken.append((heap, entry))
            total += self.gpus[entry[2]]
        for heap, entry in taken:
            heapq.heappush(heap, entry)
        return [entry[2] for _, entry in taken]


def gpu_type(site: Site, home: Mapping[NodeName, Gpus]) -> GpuType:
    return site.type_of[next(iter(home))]


def types_by_worth(
    rated: Sequence[tuple[GpuType, float]],
    size: Gpus,
    tickets: Mapping[GpuType, float],
    demand: Mapping[GpuType, float],
) -> list[GpuType]:
    """The types to try for a job, best first (Algorithm 2, lines 4-7).

    rated    its `rates` as a gang of `size`
    tickets  its tenant's entitled GPUs by type; demand: GPUs that the tenant's other jobs there request.
    The worth of a type is the job's rate there times the entitled GPUs it would put to use that its tenant's other
    jobs leave idle; where it adds none anywhere, the type whose entitlement is least crowded; of equals the newest.
    """
    ranked = []
    place = 0
    for t, rate in rated:
        have, there = tickets.get(t, 0.0), demand.get(t, 0.0)
        more = round(rate * added(have, there, size), 9) if have > there else 0.0
        wants = there + size
        crowded = rate if have >= wants else rate * (have / wants)
        ranked.append((-more, -crowded, place, t))
        place -= 1
    ranked.sort()
    return [found[3] for found in ranked]


def rates(job: Job, size: Gpus, speeds: Throughput) -> Sequence[tuple[GpuType, float]]:
    """Of a gang by type. Where nobody knows it, one a GPU on each: were all such jobs on the newest type, their tenant
    would have nobody on what it is entitled to of the others."""
    return speeds.by_types(job, size) if job.throughput else [(t, float(size)) for t in speeds.types(job)]


def added(entitled: float, demand: float, size: Gpus) -> float:
    """Entitled GPUs that a gang of `size` puts to use when its tenant's other jobs request `demand` of them."""
    return min(entitled, demand + size) - min(entitled, demand)


def rebalance(
    site: Site, jobs: Iterable[Job], per_gpu: Mapping[str, float], threshold: float, most: int
) -> list[tuple[JobName, Home]]:
    """Moves between nodes of one type (§3.5, Migration): from the most to the least loaded node, while their loads
    per GPU differ by more than `threshold` (relative to the mean) and the move shrinks the difference; at most `most`.
    """
    moves: list[tuple[JobName, Home]] = []
    known = {j.name: j for j in jobs}
    for t in sorted(set(site.type_of.values())):
        nodes = [n for n, kind in site.type_of.items() if kind == t]
        while len(moves) < most and len(nodes) > 1:
            mean = sum(site.load[n] for n in nodes) / sum(site.gpus[n] for n in nodes)
            high = max(nodes, key=lambda n: (site.load_per_gpu(n), -site.order[n]))
            low = min(nodes, key=lambda n: (site.load_per_gpu(n), site.order[n]))
            gap = site.load_per_gpu(high) - site.load_per_gpu(low)
            if mean <= 0 or gap <= threshold * mean + 1e-9:
                break
            could: list[tuple[float, Job]] = []
            for name, home in site.homes.items():
                if set(home) != {high} or home[high] > site.gpus[low] or name not in known:
                    continue
                weight = home[high] * per_gpu[known[name].tenant]
                leaves = (site.load[high] - weight) / site.gpus[high]
                makes = (site.load[low] + weight) / site.gpus[low]
                after = abs(leaves - makes)
                if after < gap - 1e-9:
                    could.append((after, known[name]))
            if not could:
                break
            _, job = min(could, key=lambda found: (found[0], found[1].order))
            size, tickets = site.homes[job.name][high], per_gpu[job.tenant]
            site.leave(job, tickets)
            site.settle(job, {low: size}, tickets)
            moves.append((job.name, {low: size}))
    return moves
