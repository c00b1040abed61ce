"""Of which GPU type a job of unknown speed gets GPUs: of the one it holds, else of the newest with room.

To a policy such a job is worth as much on every type, so which one it names is a tie, and each broke it in its own
way. Once everybody has a place it is broken alike, under every policy, out of what is idle: nobody loses a GPU by it.
Where somebody could use what they would leave, `policy.decide` lets them be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from policy.model import Allocation, Job, JobName, NodeName, Proposal, Reason, Seconds, Snapshot
from policy.parts.carrying import said_again
from policy.parts.reasons import left_over
from policy.throughput import Throughput


def on_newest(snapshot: Snapshot, proposal: Proposal, speeds: Throughput) -> Proposal:
    """The proposal, which can be, with such jobs where they are to be."""
    unknown = (job for job in snapshot.jobs if not job.throughput and proposal.allocation.get(job.name))
    elsewhere = [job for job in unknown if _elsewhere(job, proposal.allocation[job.name], speeds)]
    if not elsewhere:
        return proposal
    placer = left_over(snapshot, proposal.allocation, speeds)
    allocation: dict[JobName, Allocation] = dict(proposal.allocation)
    reasons: dict[JobName, Reason] = dict(proposal.reasons)
    leases: dict[JobName, Mapping[NodeName, tuple[Seconds, ...]]] = dict(proposal.leases)
    for job in sorted(elsewhere, key=lambda j: j.order):
        has = placer.give_back(job)
        place = placer.best(job, sum(has.values())) or has
        if speeds.by_type(place) == speeds.by_type(has):
            place = has
        placer.take(job, place)
        allocation[job.name] = place
        if job.name in reasons:
            reasons[job.name] = said_again(job, reasons[job.name], has, place, speeds)
        if job.name in leases:
            leases[job.name] = _moved(leases[job.name], place)
    return replace(proposal, allocation=allocation, reasons=reasons, leases=leases)


def _elsewhere(job: Job, place: Allocation, speeds: Throughput) -> bool:
    """True for new GPUs, of a type that the job does not hold and that is not the newest that it may have."""
    types = speeds.by_type(place)
    if place.keys() & job.allocation.keys() or (not job.allocation and types.keys() == {speeds.types(job)[-1]}):
        return False
    return types.keys() != speeds.by_type(job.allocation).keys()


def _moved(leases: Mapping[NodeName, tuple[Seconds, ...]], place: Allocation) -> dict[NodeName, tuple[Seconds, ...]]:
    until_s = max(time for times in leases.values() for time in times)
    return {node: (until_s,) * gpus for node, gpus in place.items()}
