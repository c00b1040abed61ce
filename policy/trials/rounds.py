"""Many rounds in a row: what a policy that works in quanta does over time.

Each round decides, and the next snapshot is what the cluster would show one quantum later: jobs hold what was
decided and have been served for it, and the policy has its state back. Nothing is vetoed and nothing takes time. The
load is steady: no job arrives or ends, and its work left stays what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from policy.contract import Context
from policy.decide import choose, finish, its_own, propose
from policy.model import EMPTY, BadInput, Decision, Job, JobName, Proposal, Seconds, Snapshot
from policy.throughput import Throughput

#: The quantum of policies that have no option of that name.
QUANTUM_S: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """The last decision, and in which part of the rounds each job ran."""

    decision: Decision
    fractions: Mapping[JobName, float]


def run(
    snapshot: Snapshot,
    rounds: int,
    policy: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_limit_s: Seconds | None = None,
    solver: str | None = None,
) -> Rounds:
    """`rounds` rounds from `snapshot`. Raises BadInput for a policy that does not work in quanta."""
    entry, resolved = choose(snapshot, policy, options)
    if not entry.quantum:
        raise BadInput(
            f"{entry.name} does not work in quanta",
            field="rounds",
            value=rounds,
            remedy="leave the number of rounds out",
        )
    if rounds < 1:
        raise BadInput("must be at least 1", field="rounds", value=rounds, remedy="a number of rounds")
    quantum = quantum_of(resolved)
    ran = dict.fromkeys((j.name for j in snapshot.jobs), 0)
    speeds = Throughput(snapshot.cluster)
    context = Context(speeds, seed, time_limit_s, solver)
    now, proposal = its_own(snapshot, entry), None
    for _ in range(rounds):
        if proposal is not None:
            now = after(now, proposal, quantum, speeds)
        proposal = propose(now, entry, resolved, context)
        for name, place in proposal.allocation.items():
            ran[name] += bool(place)
    assert proposal is not None
    decision = finish(now, entry.name, resolved, proposal, context)
    return Rounds(decision, {name: n / rounds for name, n in ran.items()})


def quantum_of(options: Mapping[str, Any]) -> Seconds:
    """How long a round of a policy with these options is."""
    quantum = options.get("quantum")
    return float(quantum) if isinstance(quantum, int | float) else QUANTUM_S


def after(snapshot: Snapshot, proposal: Proposal, quantum_s: Seconds, speeds: Throughput) -> Snapshot:
    """The snapshot one quantum after `proposal` was carried out at once."""
    return replace(
        snapshot,
        now_s=snapshot.now_s + quantum_s,
        jobs=tuple(_served(j, proposal, quantum_s, speeds) for j in snapshot.jobs),
        state=proposal.state,
    )


def _served(job: Job, proposal: Proposal, quantum_s: Seconds, speeds: Throughput) -> Job:
    now = proposal.allocation.get(job.name, EMPTY)
    leases = proposal.leases.get(job.name, EMPTY)
    if not now:
        return replace(job, allocation=now, lease_until=leases)
    attained = dict(job.attained)
    for gpu_type, gpus in speeds.by_type(now).items():
        attained[gpu_type] = attained.get(gpu_type, 0.0) + gpus * quantum_s
    return replace(job, allocation=now, lease_until=leases, attained=attained)
