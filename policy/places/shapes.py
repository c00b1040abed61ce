"""Jobs that keep a shape of their own, under policies that hand out GPUs by the count.

A policy may place a gang where the job's shape is not kept (other GPUs a node, too few CPUs, a node that lacks a
feature). Such a place is taken back and looked for anew beside everybody else's; where there is none, the job waits.
What a job holds already is as its cluster gave it, and is left alone; nobody new comes beside one that shares no node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from policy.model import EMPTY, Allocation, Code, Gpus, GpuType, Job, JobName, NodeName, Proposal, Reason, Snapshot
from policy.places.placement import Placer
from policy.throughput import Throughput


def settle(snapshot: Snapshot, proposal: Proposal, speeds: Throughput) -> Proposal:
    """The proposal with every new allocation in its job's shape."""
    closed = _closed(snapshot, proposal)
    shaped = [job for job in snapshot.jobs if _is_new(job, proposal, closed)]
    if not shaped:
        return proposal
    placer = Placer(snapshot, speeds)
    names = {job.name for job in shaped}
    for job in snapshot.jobs:
        if job.name not in names and not _took(placer, job, proposal.allocation.get(job.name, EMPTY)):
            return _without_wrong(snapshot, proposal, shaped, speeds)
    wrong = [
        job for job in sorted(shaped, key=lambda j: j.order) if not _took(placer, job, proposal.allocation[job.name])
    ]
    if not wrong:
        return proposal
    allocation: dict[JobName, Allocation] = dict(proposal.allocation)
    reasons = dict(proposal.reasons)
    leases = dict(proposal.leases)
    for job in wrong:
        gpus = sum(proposal.allocation[job.name].values())
        place = placer.best(job, gpus) or EMPTY
        placer.take(job, place)
        allocation[job.name] = place
        until = [time for times in leases.pop(job.name, EMPTY).values() for time in times]
        if place and until:
            leases[job.name] = {node: (max(until),) * count for node, count in place.items()}
        if not place:
            reasons[job.name] = _waits(job, placer.why_not(job, gpus))
    return replace(proposal, allocation=allocation, reasons=reasons, leases=leases)


def _without_wrong(snapshot: Snapshot, proposal: Proposal, shaped: list[Job], speeds: Throughput) -> Proposal:
    """Where the others' places cannot be rebuilt one by one (their caps depend on the order): no new place at all."""
    alone = Placer(snapshot, speeds)
    wrong = [job for job in shaped if not alone.could_take(job, proposal.allocation[job.name])]
    allocation = {**proposal.allocation, **{job.name: EMPTY for job in wrong}}
    leases = {name: times for name, times in proposal.leases.items() if allocation.get(name)}
    reasons = {**proposal.reasons, **{job.name: _waits(job, Code.WAITS_GANG) for job in wrong}}
    return replace(proposal, allocation=allocation, reasons=reasons, leases=leases)


def beside(job: Job, gpu_type: GpuType | None, placer: Placer, whole: Mapping[NodeName, Gpus]) -> Gpus:
    """GPUs that nobody has beside a job that shares no node, on a type (None: any): where it runs, or where it would
    with nothing of ours there (of `placer` nothing is taken). `whole`: GPUs of the healthy nodes."""
    here = job.allocation
    stays = bool(here) and (gpu_type is None or placer.speeds.by_type(here).keys() == {gpu_type})
    place = here if stays else placer.best(job, job.gpus.above(0) or 1, gpu_type) or EMPTY
    return sum(max(whole.get(node, 0) - gpus, 0) for node, gpus in place.items())


def _closed(snapshot: Snapshot, proposal: Proposal) -> set[NodeName]:
    """Nodes of jobs that share none and keep what they hold."""
    out: set[NodeName] = set()
    for job in snapshot.jobs:
        if job.shape is not None and job.shape.exclusive and proposal.allocation.get(job.name) == job.allocation:
            out.update(job.allocation)
    return out


def _is_new(job: Job, proposal: Proposal, closed: Collection[NodeName]) -> bool:
    """Whether what it gets is to be looked at: it asked for more than a number, or comes onto one of `closed`."""
    now = proposal.allocation.get(job.name, EMPTY)
    if not now or now == job.allocation:
        return False
    if job.shape is not None or job.gpu_types is not None:
        return True
    return bool(closed) and any(now[name] > job.allocation.get(name, 0) for name in now.keys() & closed)


def _took(placer: Placer, job: Job, allocation: Allocation) -> bool:
    try:
        placer.take(job, allocation)
    except ValueError:
        return False
    return True


def _waits(job: Job, code: Code) -> Reason:
    text = "no free nodes have the shape that it asks for"
    if code is Code.INFEASIBLE:
        text = "no set of healthy nodes could hold the shape that it asks for"
    return Reason(code, text, change="another shape, or nodes that have it")
