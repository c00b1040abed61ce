"""Why a policy may leave GPUs idle that somebody could use: a closed list, each with the paper that says so.

Every policy is work-conserving unless its entry in the catalogue names one of these. A decision that leaves GPUs idle
says which one holds, in its certificate's notes; a test shows of each that without it the policy would be another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from policy.certificate.feasible import wishes
from policy.model import EMPTY, Allocation, Gpus, Job, JobName, Snapshot
from policy.parts.reasons import left_over
from policy.places.placement import Placer
from policy.throughput import Throughput


class Idle(StrEnum):
    ORDER = "order"  #: nobody overtakes the head of a queue: first in, first out
    RESERVED = "reserved"  #: a start that is promised to a job ahead (Lifka 1995; Mu'alem and Feitelson 2001)
    REQUESTED = "requested"  #: gangs have the size that was requested, no other (Tiresias §2, AFS §2.2, Gavel §4)
    PACKED = "packed"  #: shares are divisors or multiples of a node (AFS §4.4, Appendix E)
    DEMAND = "demand"  #: the app says that it uses no more (Themis §4.3.3)


SENTENCES: Mapping[Idle, str] = {
    Idle.ORDER: "nobody overtakes the head of the queue, which waits for more",
    Idle.RESERVED: "they are kept for a job ahead whose start would be delayed",
    Idle.REQUESTED: "the policy gives a gang the size that it requested, never more or less",
    Idle.PACKED: "shares are packed into divisors and multiples of a node",
    Idle.DEMAND: "its app says that it uses no more",
}


def why(
    snapshot: Snapshot,
    allocation: Mapping[JobName, Allocation],
    allowed: tuple[Idle, ...],
    options: Mapping[str, Any],
    speeds: Throughput,
) -> Idle | None:
    """The reason of `allowed` that holds for GPUs left idle; None: of somebody who could use them none holds, which is
    a fault of the policy."""
    if not allowed:
        return None
    demand = {a.name for a in snapshot.apps if a.demand_max is not None}
    jobs = {j.name: j for j in snapshot.jobs}
    usual, left = Placer(snapshot, speeds).usual, left_over(snapshot, allocation, speeds)

    def holds(reason: Idle, job: Job) -> bool:
        match reason:
            case Idle.DEMAND:
                return job.app in demand
            case Idle.PACKED:
                return bool(options.get("network_packing"))
            case Idle.REQUESTED:
                return bool(allocation.get(job.name)) or not _fits(job, usual(job), left)
        return True

    first: Idle | None = None
    for name, _ in wishes(snapshot, allocation, speeds):
        reason = next((r for r in _FIRST if r in allowed and holds(r, jobs[name])), None)
        if reason is None:
            return None
        first = first or reason
    return first


#: Which is told where several hold.
_FIRST = (Idle.DEMAND, Idle.PACKED, Idle.REQUESTED, Idle.ORDER, Idle.RESERVED)


def _fits(job: Job, size: Gpus, left: Placer) -> bool:
    place = left.best(job, size)
    return bool(place) and (not job.throughput or bool(left.speeds.rate(job, place or EMPTY)))
