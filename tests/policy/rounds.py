"""Many quanta of one policy on one instance, with ideal service: what each job and tenant got."""

from __future__ import annotations

from dataclasses import dataclass, replace

from policy.decide import decide
from policy.model import Decision, Job, Snapshot
from policy.throughput import Throughput


@dataclass(frozen=True)
class Served:
    ran: dict[str, float]  #: part of the rounds in which each job ran
    gpus: dict[tuple[str, str], float]  #: mean GPUs by (tenant, type)
    last: Decision
    bid: frozenset[str]  #: jobs whose app bid in an auction after the first round


def play(
    snapshot: Snapshot,
    policy: str,
    rounds: int,
    quantum_s: float,
    seed: int = 0,
    *,
    works: bool = False,
    **options: object,
) -> Served:
    """`works`: what runs is measured, comes on with its work, and ends; else all jobs stand as they are for ever."""
    speeds = Throughput(snapshot.cluster)
    ran = dict.fromkeys((j.name for j in snapshot.jobs), 0)
    gpus: dict[tuple[str, str], float] = {}
    decision: Decision | None = None
    bid: set[str] = set()
    for number in range(rounds):
        decision = decide(snapshot, policy, options, seed)
        if number:
            bid.update(name for name, reason in decision.reasons.items() if reason.numbers.get("bid"))
        jobs = []
        for job in snapshot.jobs:
            allocation, attained = decision.allocation[job.name], dict(job.attained)
            ran[job.name] += bool(allocation)
            for t, n in speeds.by_type(allocation).items():
                attained[t] = attained.get(t, 0.0) + n * quantum_s
                gpus[job.tenant, t] = gpus.get((job.tenant, t), 0.0) + n / rounds
            ran_on = replace(job, attained=attained, allocation=allocation)
            jobs.append(_worked(ran_on, speeds, quantum_s) if works else ran_on)
        now = snapshot.now_s + quantum_s
        snapshot = replace(snapshot, jobs=tuple(jobs), state=decision.state, now_s=now)
    assert decision is not None
    return Served({j: n / rounds for j, n in ran.items()}, gpus, decision, frozenset(bid))


def _worked(job: Job, speeds: Throughput, seconds: float) -> Job:
    """After so long on what it holds. Where nobody knew how fast it runs there, it was an iteration a second a GPU."""
    if not job.allocation:
        return job
    rate = speeds.rate(job, job.allocation)
    if rate is None:
        rate = float(job.held)
        job = replace(job, throughput={t: {n: rate} for t, n in speeds.by_type(job.allocation).items()})
    done = job.work.done + rate * seconds
    return replace(job, work=replace(job.work, done=done if job.work.total is None else min(done, job.work.total)))
