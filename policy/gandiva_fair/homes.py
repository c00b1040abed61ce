"""Where jobs live: a job is bound to nodes and shares them in time (§3.2, §3.5, Algorithm 2).

New jobs go to the least loaded nodes of the GPU type on which they make most progress for their tickets; jobs move
only when the loads of two nodes differ by more than a threshold, or when another GPU type would serve their tenant
better by more than a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from policy.model import Gpus, GpuType, Health, Job, JobName, NodeName, Snapshot
from policy.throughput import Throughput

Home = dict[NodeName, Gpus]


@dataclass(slots=True)
class Site:
    """The nodes that take our work, who lives there, and the tickets each node has to serve."""

    gpus: dict[NodeName, Gpus]
    type_of: dict[NodeName, GpuType]
    order: dict[NodeName, int]
    homes: dict[JobName, Home] = field(default_factory=dict)
    load: dict[NodeName, float] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot) -> Site:
        usable = [n for n in snapshot.cluster.nodes if n.health is Health.UP and n.gpus > n.foreign]
        return Site(
            {n.name: n.gpus - n.foreign for n in usable},
            {n.name: n.gpu_type for n in usable},
            {n.name: i for i, n in enumerate(usable)},
            load=dict.fromkeys((n.name for n in usable), 0.0),
        )

    def settle(self, job: Job, home: Mapping[NodeName, Gpus], per_gpu: float) -> None:
        self.homes[job.name] = dict(home)
        for node, n in home.items():
            self.load[node] += n * per_gpu

    def leave(self, job: Job, per_gpu: float) -> None:
        for node, n in self.homes.pop(job.name, {}).items():
            self.load[node] -= n * per_gpu

    def load_per_gpu(self, node: NodeName) -> float:
        """Eq. 2."""
        return self.load[node] / self.gpus[node]

    def stands(self, home: Mapping[NodeName, Gpus]) -> bool:
        return bool(home) and all(n <= self.gpus.get(node, 0) for node, n in home.items())

    def best(self, size: Gpus, gpu_type: GpuType, equal: bool) -> Home | None:
        """The least loaded nodes of a type for a gang (Algorithm 2, lines 9-11): one node if one is large enough,
        else the fewest. None: the type is too small for it."""
        nodes = [n for n, t in self.type_of.items() if t == gpu_type]
        whole = [n for n in nodes if self.gpus[n] >= size]
        if whole:
            best = min(whole, key=lambda n: ((self.load[n]) / self.gpus[n], self.order[n]))
            return {best: size}
        largest = max((self.gpus[n] for n in nodes), default=0)
        if largest == 0 or sum(self.gpus[n] for n in nodes) < size:
            return None
        for count in range(math.ceil(size / largest), len(nodes) + 1):
            if equal and size % count:
                continue
            each = size // count if equal else 0
            fit = [n for n in nodes if self.gpus[n] >= max(each, 1)]
            fit.sort(key=lambda n: (-self.gpus[n] if not equal else 0, self.load_per_gpu(n), self.order[n]))
            if len(fit) < count:
                continue
            if equal:
                return dict.fromkeys(sorted(fit[:count], key=self.order.__getitem__), each)
            home, left = Home(), size
            for n in fit[:count]:
                home[n] = min(self.gpus[n], left)
                left -= home[n]
            if left == 0:
                return {n: home[n] for n in sorted(home, key=self.order.__getitem__) if home[n]}
        return None


def gpu_type(site: Site, home: Mapping[NodeName, Gpus]) -> GpuType:
    return site.type_of[next(iter(home))]


def types_by_worth(
    job: Job, size: Gpus, tickets: Mapping[GpuType, float], demand: Mapping[GpuType, float], speeds: Throughput
) -> list[GpuType]:
    """The types to try for a job, best first (Algorithm 2, lines 4-7).

    tickets  its tenant's entitled GPUs by type; demand: GPUs that the tenant's other jobs there request.
    The worth of a type is the job's rate there times the entitled GPUs it would put to use that its tenant's other
    jobs leave idle; where it adds none anywhere, the type whose entitlement is least crowded. A job whose speed is not
    known goes to the newest type.
    """
    types = list(speeds.types(job))
    if not job.throughput:
        return list(reversed(types))

    def worth(t: GpuType) -> tuple[float, float]:
        rate, have, there = speeds.at(job, t, size) or 0.0, tickets.get(t, 0.0), demand.get(t, 0.0)
        return (round(rate * added(have, there, size), 9), rate * min(1.0, have / (there + size)))

    return sorted(types, key=lambda t: (*(-w for w in worth(t)), -types.index(t)))


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
            best: tuple[float, Job] | None = None
            for name, home in site.homes.items():
                if set(home) != {high} or home[high] > site.gpus[low] or name not in known:
                    continue
                weight = home[high] * per_gpu[known[name].tenant]
                after = abs((site.load[high] - weight) / site.gpus[high] - (site.load[low] + weight) / site.gpus[low])
                if after < gap - 1e-9 and (best is None or (after, known[name].order) < (best[0], best[1].order)):
                    best = (after, known[name])
            if best is None:
                break
            job = best[1]
            size, tickets = site.homes[job.name][high], per_gpu[job.tenant]
            site.leave(job, tickets)
            site.settle(job, {low: size}, tickets)
            moves.append((job.name, {low: size}))
    return moves
