"""Network packing: shares that need no shared network links (AFS §4.4, Appendix E).

On nodes of G GPUs a share becomes 0, a divisor of G, or a multiple of G. For G = 2^k these are the paper's 2^l and
multiples of 2^k. For other G not all divisors pack (6 and 4 do not fill nodes of 12), so a chain is taken in which
each divides the next: G divided by its prime factors, small ones first (12, 6, 3, 1). Then first-fit decreasing fills
nodes without a hole, and with the allocation in whole nodes for multiples of G:

- Proposition 1: every job is on the fewest nodes that its share needs, and at most one job of any node uses others;
- Proposition 2: no GPU is lost to the regulation, and nobody gets less than the largest regulated size within its
  share (where jobs may have any size, and every step helps them).

The difference to the shares as decided is kept small: what rounding down frees goes to the jobs that lost most by it.

G is the size of most of a type's GPUs. A job none of whose sizes is regulated keeps its share as it is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right

from policy.model import Gpus, GpuType, Health, Job, Snapshot
from policy.parts.pools import Pools
from policy.throughput import NOISE


def chain(node_size: Gpus) -> list[Gpus]:
    """Sizes within a node, ascending: each divides the next, the last is the node."""
    out = [node_size]
    factor = 2
    while out[-1] > 1:
        if out[-1] % factor:
            factor += 1
        else:
            out.append(out[-1] // factor)
    return out[::-1]


def node_sizes(snapshot: Snapshot) -> dict[GpuType, Gpus]:
    """G by type: the size that most of its healthy GPUs are in."""
    by_size: dict[GpuType, dict[int, int]] = {}
    for n in snapshot.cluster.nodes:
        size = n.gpus - n.foreign
        if n.health is Health.UP and size > 0:
            sizes = by_size.setdefault(n.gpu_type, {})
            sizes[size] = sizes.get(size, 0) + size
    return {t: max(sizes, key=lambda s: (sizes[s], s)) for t, sizes in by_size.items()}


def regulated(job: Job, within: Gpus, links: list[Gpus]) -> Gpus:
    """The largest size of the job's gang that is regulated and at most `within`; 0 where there is none."""
    node = links[-1]
    for size in range(within // node * node, 0, -node):
        if job.gpus.feasible(size):
            return size
    below = links[: bisect_right(links, min(within, node - 1))]
    return next((n for n in reversed(below) if job.gpus.feasible(n)), 0)


def above(job: Job, size: Gpus, links: list[Gpus], most: Gpus) -> Gpus | None:
    """The next regulated size of the job's gang above `size`, at most `most`."""
    node = links[-1]
    for n in links:
        if size < n <= most and job.gpus.feasible(n):
            return n
    for n in range((size // node + 1) * node, most + 1, node):
        if job.gpus.feasible(n):
            return n
    return None


def pack(snapshot: Snapshot, jobs: list[Job], pools: Pools) -> None:
    """Regulate the counts in `pools`, type by type; the sum of a type's counts never grows."""
    sizes = node_sizes(snapshot)
    for gpu_type, node in sizes.items():
        mine = [j for j in jobs if pools.type.get(j.name) == gpu_type and pools.count.get(j.name)]
        _pack_type(mine, gpu_type, chain(node), pools)


def _pack_type(jobs: list[Job], gpu_type: GpuType, links: list[Gpus], pools: Pools) -> None:
    """Round down, then give what that freed to those who lost most, as far as it makes them faster."""
    shares = {j.name: pools.count[j.name] for j in jobs}
    spare = 0
    packed: dict[str, Gpus] = {}
    for job in jobs:
        size = regulated(job, shares[job.name], links)
        if size:
            packed[job.name] = size
            spare += shares[job.name] - size
    queue: list[tuple[int, int, Job]] = []
    for n, job in enumerate(jobs):
        if job.name in packed:
            queue.append((packed[job.name] - shares[job.name], n, job))
    heapq.heapify(queue)
    while queue and spare:
        _, n, job = heapq.heappop(queue)
        has = packed[job.name]
        more = above(job, has, links, has + spare)
        if more is None or pools.rate(job, gpu_type, more) <= pools.rate(job, gpu_type, has) * (1 + NOISE):
            continue
        packed[job.name] = more
        spare -= more - has
        heapq.heappush(queue, (more - shares[job.name], n, job))
    pools.count.update(packed)
