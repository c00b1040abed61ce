"""Dominant resource fairness (NSDI 2011) over GPUs, CPUs and memory, in whole gangs.

Progressive filling: the tenant with the smallest dominant share, by weight, places its next job (earliest submitted
first) with the gang it requests (or the largest below it that could ever run), until nobody's next job fits. A tenant's
dominant share is its largest share of one resource. Resources that some node does not state are left out; GPUs always
count.

Gangs are whole, and nobody takes turns: who has nothing yet is first by submission, whatever its weight, and a gang
that takes all leaves the others nothing until it ends. Tenants that are to share such a cluster in time want
`gandiva-fair`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from policy.contract import Context
from policy.model import Code, Health, Job, JobName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.ordered import active
from policy.places.placement import Placer


def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    placer = Placer(snapshot, context.speeds)
    jobs = active(snapshot)
    for job in snapshot.jobs:
        if job.work.left == 0:
            placer.drop(job)
    total = _capacity(snapshot)
    weight = {t.name: t.weight for t in snapshot.tenants}
    used: dict[str, dict[str, float]] = {j.tenant: {} for j in jobs}
    queue: dict[str, list[Job]] = {}
    for job in reversed(jobs):
        queue.setdefault(job.tenant, []).append(job)

    def dominant(tenant: str) -> tuple[float, str]:
        shares = [(used[tenant].get(r, 0.0) / n, r) for r, n in total.items() if n > 0]
        share, resource = max(shares, default=(0.0, "gpus"))
        return share / weight.get(tenant, 1.0), resource

    heap = [(0.0, jobs_of[-1].order, tenant, dominant(tenant)[1]) for tenant, jobs_of in queue.items()]
    heapq.heapify(heap)
    out: dict[JobName, Reason] = {}
    while heap:
        share, _, tenant, resource = heapq.heappop(heap)
        job = queue[tenant].pop()
        size = placer.usual(job)
        place = placer.best(job, size)
        numbers = {"dominant_share": round(share, 6), "resource": resource}
        if place is not None:
            placer.take(job, place)
            for what, amount in _demand(job, size).items():
                used[tenant][what] = used[tenant].get(what, 0.0) + amount
            now_share, now_resource = dominant(tenant)
            seen = reasons.outcome(job, place, context.speeds)
            if seen is not None:
                text = f"{seen.text}; {tenant} had the smallest dominant share, {share:.3g} by weight"
                out[job.name] = Reason(seen.code, text, {**seen.numbers, **numbers}, seen.change)
        else:
            now_share, now_resource = share, resource  # who waits uses nothing
            placer.drop(job)
            found = reasons.waits(job, placer.why_not(job, size), size, placer)
            text = f"{found.text}; {tenant}'s dominant share is {share:.3g} by weight, of {numbers['resource']}"
            code = Code.PREEMPTED if job.held and found.code is not Code.INFEASIBLE else found.code
            out[job.name] = Reason(code, text, {**found.numbers, **numbers}, found.change)
        if queue[tenant]:
            heapq.heappush(heap, (now_share, queue[tenant][-1].order, tenant, now_resource))
    return Proposal(placer.taken, reasons=out)


def _capacity(snapshot: Snapshot) -> dict[str, float]:
    nodes = [n for n in snapshot.cluster.nodes if n.health is not Health.DOWN]
    out = {"gpus": float(sum(n.gpus - n.foreign for n in nodes))}
    if nodes and all(n.cpus is not None for n in nodes):
        out["cpus"] = sum(n.cpus or 0.0 for n in nodes)
    if nodes and all(n.memory is not None for n in nodes):
        out["memory"] = float(sum(n.memory or 0 for n in nodes))
    return out


def _demand(job: Job, gpus: int) -> dict[str, float]:
    return {
        "gpus": float(gpus),
        "cpus": gpus * (job.cpus_per_gpu or 0.0),
        "memory": float(gpus * (job.memory_per_gpu or 0)),
    }
