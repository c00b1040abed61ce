"""Brute force: the auction over every vector of GPUs on named nodes, by code that shares nothing with the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import exp, inf, log, log2

from policy.model import Job, Snapshot
from policy.throughput import Throughput

Vector = tuple[int, ...]  #: GPUs by node, in the cluster's order


@dataclass(frozen=True)
class Bidder:
    app: str
    base: Vector
    log_null: float
    rho: Mapping[Vector, float]  #: by the GPUs it wins beside its base


def free_vector(snapshot: Snapshot) -> Vector:
    """GPUs on offer by node: not foreign, not under an unexpired lease, the node up."""
    out = []
    for n in snapshot.cluster.nodes:
        leased = sum(sum(t > snapshot.now_s for t in j.lease_until.get(n.name, ())) for j in snapshot.jobs)
        out.append(n.gpus - n.foreign - leased if n.health == "up" else 0)
    return tuple(out)


def vectors(free: Vector) -> Iterator[Vector]:
    return product(*(range(f + 1) for f in free))


def rho_of(snapshot: Snapshot, job: Job, total: Vector, n_avg: float, speeds: Throughput) -> float:
    """Eq. 1 with the measured table; inf where the gang cannot run so."""
    names = [n.name for n in snapshot.cluster.nodes]
    held = {n: g for n, g in zip(names, total, strict=True) if g}
    limits = snapshot.cluster.limits
    types = {n.name: n.gpu_type for n in snapshot.cluster.nodes}
    if not held or not job.gpus.feasible(sum(held.values())):
        return inf
    if limits.equal_gpus_per_node and len(set(held.values())) > 1:
        return inf
    if limits.one_type_per_job and len({types[n] for n in held}) > 1:
        return inf
    rate = speeds.rate(job, held)
    if not rate:
        return inf
    assert job.work.total is not None
    shared = snapshot.now_s - job.submitted_s + (job.work.total - job.work.done) / rate
    return shared / (t_cluster(snapshot, job, speeds) * n_avg)


def t_cluster(snapshot: Snapshot, job: Job, speeds: Throughput) -> float:
    capacity = sum(
        n.gpus - n.foreign for n in snapshot.cluster.nodes if n.health != "down" and n.gpu_type in job.throughput
    )
    most = capacity if job.gpus.max is None else min(capacity, job.gpus.max)
    sizes = [n for n in range(1, max(most, job.gpus.min) + 1) if job.gpus.feasible(n)]
    assert job.work.total is not None
    return job.work.total / min(max(speeds.at(job, t, n) or 0.0 for n in sizes) for t in speeds.types(job))


def bidders(snapshot: Snapshot, lease: float) -> list[Bidder]:
    """One bidder a job, its cap by the documented formula."""
    speeds = Throughput(snapshot.cluster)
    free = free_vector(snapshot)
    found = []
    for job in sorted(snapshot.jobs, key=lambda j: j.order):
        base = tuple(sum(t > snapshot.now_s for t in job.lease_until.get(n.name, ())) for n in snapshot.cluster.nodes)
        n_avg = float(len(snapshot.jobs))
        rho = {
            v: rho_of(snapshot, job, tuple(a + b for a, b in zip(base, v, strict=True)), n_avg, speeds)
            for v in vectors(free)
        }
        zero = tuple(0 for _ in free)
        worst = worst_rho(snapshot, job, n_avg, speeds)
        waited = 0.0 if job.allocation else snapshot.now_s - job.submitted_s
        cap = (1 + log2(2 + waited / lease)) * worst
        served = rho[zero] < inf
        found.append((job.name, base, rho, served, rho[zero] if served else cap))
    boost = sum(log(null / min(r for r in rho.values())) for _, _, rho, served, null in found if served)
    return [Bidder(name, base, log(null) + (0.0 if served else boost), rho) for name, base, rho, served, null in found]


def worst_rho(snapshot: Snapshot, job: Job, n_avg: float, speeds: Throughput) -> float:
    """On the smallest gang, on its slowest type, on one node or on as many as it has GPUs."""
    worst = 0.0
    assert job.work.total is not None
    for gpu_type in speeds.types(job):
        rate = speeds.at(job, gpu_type, job.gpus.min) or 0.0
        spans = [job.slowdown.node] + ([job.slowdown.cluster] if job.gpus.min > 1 else [])
        for slow in spans:
            if rate > 0:
                left = (job.work.total - job.work.done) / (rate / slow)
                shared = snapshot.now_s - job.submitted_s + left
                worst = max(worst, shared / (t_cluster(snapshot, job, speeds) * n_avg))
    return worst


def optimum(free: Vector, bids: Sequence[Bidder], without: str | None = None) -> float:
    """The largest sum of log(null / rho) over the bidders."""
    options = []
    for bid in bids:
        if bid.app == without:
            continue
        zero = tuple(0 for _ in free)
        gains = [(zero, 0.0)]
        gains += [(v, bid.log_null - log(r)) for v, r in bid.rho.items() if r < inf and bid.log_null > log(r)]
        options.append(gains)

    @cache
    def best(at: int, left: Vector) -> float:
        if at == len(options):
            return 0.0
        top = -inf
        for vector, gain in options[at]:
            if all(v <= room for v, room in zip(vector, left, strict=True)):
                rest = best(at + 1, tuple(room - v for v, room in zip(vector, left, strict=True)))
                top = max(top, gain + rest)
        return top

    return best(0, free)


def fraction(free: Vector, bids: Sequence[Bidder], app: str, objective: float, own_gain: float) -> float:
    """c of one winner, given its own gain in the optimum that was chosen."""
    return exp(objective - own_gain - optimum(free, bids, without=app))
