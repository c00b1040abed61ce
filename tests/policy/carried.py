"""A decision on its way: what the cluster shows while it is being carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from policy.model import Decision, Health, Proposal, Snapshot

Stage = Callable[[int], str]
STAGES: dict[str, Stage] = {
    "nothing yet": lambda i: "as it was",
    "all movers stopped": lambda i: "stopped",
    "some movers stopped": lambda i: ("stopped", "as it was")[i % 2],
    "some carried out": lambda i: ("as decided", "stopped", "as it was")[i % 3],
    "some in place": lambda i: ("as decided", "both", "as it was")[i % 3],
    "all carried out": lambda i: "as decided",
}


def at(snapshot: Snapshot, decision: Decision | Proposal, stage: Stage, later_s: float = 1.0) -> Snapshot:
    """What the cluster shows while `decision` is being carried out."""
    draining = {n.name for n in snapshot.cluster.nodes if n.health is Health.DRAIN}
    jobs = []
    for i, job in enumerate(snapshot.jobs):
        to = decision.allocation[job.name]
        leases = decision.leases.get(job.name, {})
        how = stage(i)
        if dict(to) == dict(job.allocation):
            jobs.append(replace(job, lease_until=leases or job.lease_until))
        elif how == "as decided" or (how == "stopped" and draining & set(to)):  # nobody starts anew where it drains
            jobs.append(replace(job, allocation=dict(to), lease_until=leases))
        elif how == "stopped":
            jobs.append(replace(job, allocation={}, lease_until={}))
        elif how == "both" and job.allocation:  # a shape that changes in place: either may be true
            nodes = job.allocation.keys() | to.keys()
            both = {node: max(job.allocation.get(node, 0), to.get(node, 0)) for node in sorted(nodes)}
            jobs.append(replace(job, allocation=both, lease_until=leases))
        else:
            jobs.append(job)
    return replace(snapshot, jobs=tuple(jobs), state=decision.state, now_s=snapshot.now_s + later_s)
