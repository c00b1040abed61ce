"""First in, first out: jobs start in the order of submission, each with the gang it requested, and run to their end.

A job whose request is larger than the cluster starts with the largest size of its range that the cluster could hold.
A running job is never stopped or resized. The first waiting job whose gang does not fit stops the queue: nobody
overtakes it. Two kinds of jobs stop nobody, because waiting for them could last for ever: those that no set of
healthy nodes could hold, and those that their own tenant's limit holds back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy.contract import Context
from policy.model import Allocation, Code, Job, JobName, Proposal, Reason, Snapshot
from policy.parts.reasons import gpus, unknown_speed, waits
from policy.places.placement import Placer


def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """One FIFO round."""
    placer = Placer(snapshot, context.speeds)
    queue = sorted((j for j in snapshot.jobs if j.work.left != 0), key=lambda j: j.order)
    for job in snapshot.jobs:
        if job.work.left == 0:
            placer.drop(job)
    waiting: list[Job] = []
    for job in queue:
        stay = placer.keep(job)
        if stay is not None:
            placer.take(job, stay)
        else:
            waiting.append(job)
    reasons: dict[JobName, Reason] = {}
    head: Job | None = None
    for position, job in enumerate(waiting):
        place: Allocation | None = None
        size = placer.usual(job)
        if head is None:
            place = placer.best(job, size)
        if place is not None:
            placer.take(job, place)
            continue
        placer.drop(job)
        if not placer.possible(job, size):
            code = Code.UNKNOWN_SPEED if unknown_speed(job, placer.speeds) else Code.INFEASIBLE
        elif head is not None:
            code = Code.WAITS_TURN
        else:
            code = placer.why_not(job, size)
        if code in (Code.INFEASIBLE, Code.UNKNOWN_SPEED, Code.WAITS_CAP):
            reasons[job.name] = waits(job, code, size, placer)
        elif head is None:
            head = job
            reasons[job.name] = waits(job, code, size, placer)
        else:
            reasons[job.name] = Reason(
                Code.WAITS_TURN,
                f"job {head.name} is ahead of it and waits for {gpus(placer.usual(head))}",
                {"gpus": 0, "position": position, "ahead": head.name, "free": placer.free()},
                f"job {head.name} starting, or a policy that lets jobs overtake (fifo-backfill)",
            )
    return Proposal(allocation=placer.taken, reasons=reasons)
