"""Tenants whose budget of GPU time is used up, under every policy.

`idle`: their jobs rest, as those do that are ahead of their app's phase: the policy decides about the others alone, and
what it leaves idle is theirs. So they run on nothing that anybody else could use, and give it back by a checkpoint.
`wait`: those that hold GPUs keep them, or fewer, and grow no more; the others are left out.
"""

from __future__ import annotations

from dataclasses import replace

from policy.model import Beyond, Code, Decision, GpuRange, JobName, Proposal, Reason, Snapshot
from policy.parts import carrying

_CHANGE = "the next period of the budget, or a larger one"


def resting(snapshot: Snapshot) -> dict[JobName, Reason]:
    """Jobs that get what others leave idle, and what is said to those that get nothing."""
    whom = _of(snapshot, Beyond.IDLE)
    out = {}
    for job in snapshot.jobs:
        if job.tenant in whom and job.work.left != 0:
            text = f"the GPU-hours of tenant {job.tenant} are used up: it gets what others leave idle, and nothing is"
            numbers = {"gpus": 0, "held": job.held, "budget": job.tenant}
            out[job.name] = Reason(Code.WAITS_CAP, text, numbers, f"GPUs that others do not use; {_CHANGE}")
    return out


def divided(snapshot: Snapshot, proposal: Proposal | None = None) -> tuple[Snapshot, dict[JobName, Reason]]:
    """The snapshot without the jobs that are not to start, and why those are left out. `proposal`: who holds GPUs once
    it is carried out counts as holding them; else who does now."""
    whom = _of(snapshot, Beyond.WAIT)
    if not whom:
        return snapshot, {}
    jobs, out, held = [], {}, carrying.holding(snapshot, proposal)
    for job in snapshot.jobs:
        if job.tenant not in whom or job.work.left == 0:
            jobs.append(job)
        elif held[job.name]:
            jobs.append(replace(job, gpus=_at_most(job.gpus, held[job.name])))
        else:
            text = f"the GPU-hours of tenant {job.tenant} are used up: none of its jobs starts"
            out[job.name] = Reason(Code.WAITS_CAP, text, {"gpus": 0, "held": 0, "budget": job.tenant}, _CHANGE)
    return replace(snapshot, jobs=tuple(jobs)), out


def told(decision: Decision, snapshot: Snapshot, left_out: dict[JobName, Reason]) -> Decision:
    """The decision about all jobs of `snapshot`; the certificate says whose budgets are used up."""
    notes = [f"the GPU-hours of tenant {t.name} are used up: {_SAID[t.beyond]}" for t in snapshot.tenants if t.beyond]
    if not notes:
        return decision
    certificate = replace(decision.certificate, notes=(*decision.certificate.notes, *notes))
    reasons = {**decision.reasons, **left_out}
    return replace(
        decision,
        allocation={job.name: decision.allocation.get(job.name, {}) for job in snapshot.jobs},
        reasons={job.name: reasons[job.name] for job in snapshot.jobs},
        certificate=certificate,
    )


_SAID = {
    Beyond.IDLE: "its jobs run on what others leave idle",
    Beyond.WAIT: "what it runs runs on and does not grow, and nothing of it starts",
}


def _of(snapshot: Snapshot, how: Beyond) -> set[str]:
    return {t.name for t in snapshot.tenants if t.beyond is how}


def _at_most(gpus: GpuRange, held: int) -> GpuRange:
    """The range up to what is held; as it is where that is no size of it."""
    if not gpus.feasible(held):
        return gpus
    allowed = None if gpus.allowed is None else tuple(n for n in gpus.allowed if n <= held)
    return GpuRange(min(gpus.requested, held), gpus.min, held, allowed)
