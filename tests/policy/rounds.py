"""Many quanta of one policy on one instance, with ideal service: what each job and tenant got."""

from __future__ import annotations

from dataclasses import dataclass, replace

from policy.decide import decide
from policy.model import Decision, Snapshot
from policy.throughput import Throughput


@dataclass(frozen=True)
class Served:
    ran: dict[str, float]  #: part of the rounds in which each job ran
    gpus: dict[tuple[str, str], float]  #: mean GPUs by (tenant, type)
    last: Decision


def play(snapshot: Snapshot, policy: str, rounds: int, quantum_s: float, seed: int = 0, **options: object) -> Served:
    speeds = Throughput(snapshot.cluster)
    ran = dict.fromkeys((j.name for j in snapshot.jobs), 0)
    gpus: dict[tuple[str, str], float] = {}
    decision: Decision | None = None
    for _ in range(rounds):
        decision = decide(snapshot, policy, options, seed)
        jobs = []
        for job in snapshot.jobs:
            allocation, attained = decision.allocation[job.name], dict(job.attained)
            ran[job.name] += bool(allocation)
            for t, n in speeds.by_type(allocation).items():
                attained[t] = attained.get(t, 0.0) + n * quantum_s
                gpus[job.tenant, t] = gpus.get((job.tenant, t), 0.0) + n / rounds
            jobs.append(replace(job, attained=attained, allocation=allocation))
        now = snapshot.now_s + quantum_s
        snapshot = replace(snapshot, jobs=tuple(jobs), state=decision.state, now_s=now)
    assert decision is not None
    return Served({j: n / rounds for j, n in ran.items()}, gpus, decision)
