"""Why a policy may leave GPUs idle that somebody could use: a closed list, each with the paper that says so.

Every policy is work-conserving unless its entry in the catalogue names one of these. A decision that leaves GPUs idle
says which one holds, in its certificate's notes; a test shows of each that without it the policy would be another.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from policy.certificate.feasible import idle_but_wanted
from policy.model import Allocation, JobName, Snapshot
from policy.parts.throughput import Throughput
from policy.places.placement import Placer


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
    """The reason of `allowed` that holds for GPUs left idle; None: there is none, which is a fault of the policy."""
    wanted = idle_but_wanted(snapshot, allocation, speeds)
    if wanted is None:
        return None
    job = next(j for j in snapshot.jobs if j.name == wanted[0])
    demand = {a.name for a in snapshot.apps if a.demand_max is not None}
    if Idle.DEMAND in allowed and job.app in demand:
        return Idle.DEMAND
    if Idle.PACKED in allowed and options.get("network_packing"):
        return Idle.PACKED
    if Idle.REQUESTED in allowed and (allocation.get(job.name) or wanted[1] != Placer(snapshot, speeds).usual(job)):
        return Idle.REQUESTED
    return next((r for r in (Idle.ORDER, Idle.RESERVED) if r in allowed), None)
