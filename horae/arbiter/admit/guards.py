"""May this change be made now? Each guard is one small question with one sentence for an answer.

A policy suggests; a guard refuses or postpones, and the refusal is recorded. A vetoed job keeps what it holds;
`repair.py` makes the rest fit around it. Guards look at changes of jobs that run: a start takes nothing from
anybody, and a job in its grace period (asked to checkpoint and leave) is asked nothing else until it has left
(`plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from horae.arbiter.standing import movable
from horae.config import Guards
from horae.journal import JobRecord
from horae.port import JobState
from horae.spec import STAYS
from policy.model import EMPTY, Allocation, Health, Job, NodeName, Seconds

#: Iterations/s of a job on an allocation; None: not known.
Speed = Callable[[Job, Allocation], float | None]


@dataclass(frozen=True, slots=True)
class Reallocation:
    """One job that holds GPUs and is to hold others, or none."""

    record: JobRecord
    job: Job  #: as the policy saw it
    held: Allocation
    target: Allocation
    config: Guards
    now_s: Seconds
    health: Mapping[NodeName, Health]
    maintenance: str | None
    speed: Speed
    wake_s: Mapping[NodeName, Seconds] = field(default_factory=lambda: EMPTY)  #: nodes that are powered down


@dataclass(frozen=True, slots=True)
class No:
    """One sentence, and when the answer will be another, where that is known."""

    text: str
    until_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Veto:
    guard: str
    text: str
    until_s: Seconds | None = None


def not_resumable(change: Reallocation) -> No | None:
    if movable(change.record):
        return None
    if trouble := change.record.checkpoint_trouble:
        return No(f"its checkpoints cannot be written: {trouble}")
    spec = change.record.spec
    what = "it has no checkpoint folder" if spec.checkpoint is None else spec.extra.get(STAYS, "it is not elastic")
    return No(f"it cannot be stopped and resumed: {what}")


def in_maintenance(change: Reallocation) -> No | None:
    return No(f"maintenance: {change.maintenance}") if change.maintenance is not None else None


def being_started(change: Reallocation) -> No | None:
    """A job whose gang does not stand yet has nothing to lose: where others need its GPUs, its start is withdrawn at
    once. Once: who had to leave within the hour stands first, or jobs of which each has as good a claim would take the
    GPUs from each other for ever, and none would run. What the cluster blocks is not about to stand. For its own good
    it stands first too, or an answer that depends on what is held could go round for ever."""
    if change.record.state is not JobState.STARTING or change.record.blocked is not None:
        return None
    own_good = sum(change.target.values()) >= sum(change.held.values())
    again = bool(_stops(change))
    return No("it is being started, and its gang does not stand yet") if own_good or again else None


def _stops(change: Reallocation) -> list[Seconds]:
    """When we asked it to leave within the hour."""
    return sorted(at_s for at_s in change.record.restarts if at_s > change.now_s - 3600.0)


def ran_too_shortly(change: Reallocation) -> No | None:
    record, least_s = change.record, change.config.min_run_s
    if record.state is not JobState.RUNNING or record.started_s is None:
        return None
    ran_s = change.now_s - record.started_s
    if ran_s >= least_s:
        return None
    text = f"it has run {ran_s:.0f} s of the {least_s:g} s between two resizes"
    return No(text, record.started_s + least_s)


def restarted_too_often(change: Reallocation) -> No | None:
    recent, limit = _stops(change), change.config.restarts_per_hour
    if len(recent) < limit:
        return None
    text = f"it was stopped {len(recent)} times within the hour; {limit} is the limit"
    return No(text, recent[-limit] + 3600.0)


def not_worth_it(change: Reallocation) -> No | None:
    """A resize that is for the job's own good must gain more work than its restart costs, over the horizon.

    A job that loses GPUs, or must leave a node that is not healthy, does not move for its own good.
    """
    config, held, target = change.config, sum(change.held.values()), sum(change.target.values())
    leaves = any(change.health.get(node, Health.DOWN) is not Health.UP for node in change.held)
    if target < held or leaves or config.gain == 0:
        return None
    before, after = change.speed(change.job, change.held), change.speed(change.job, change.target)
    if before is None or after is None:
        return None
    cost_s = change.job.restart_cost_s if change.job.restart_cost_s is not None else config.restart_cost_s
    cost_s += max((change.wake_s.get(node, 0.0) for node in change.target), default=0.0)
    horizon_s = config.horizon_s
    if change.job.work_left is not None and after > 0:
        horizon_s = min(horizon_s, change.job.work_left / after + cost_s)
    gain, cost = (after - before) * (horizon_s - cost_s), before * cost_s * config.gain
    if gain > cost:
        return None
    return No(
        f"the restart costs {cost_s:.0f} s and gains {max(gain, 0.0):.0f} iterations in {horizon_s:.0f} s, "
        f"less than the {cost:.0f} it loses"
    )


#: Its objection is over as soon as the gang stands.
BEING_STARTED = "being-started"

Guard = Callable[[Reallocation], No | None]

#: In the order in which they are asked; the first that objects is the reason.
GUARDS: tuple[tuple[str, Guard], ...] = (
    ("not-resumable", not_resumable),
    ("maintenance", in_maintenance),
    (BEING_STARTED, being_started),
    ("minimum-run-time", ran_too_shortly),
    ("restarts-per-hour", restarted_too_often),
)

#: Asked last, and heard only where the job's staying is in nobody else's way.
SOFT_GUARDS: tuple[tuple[str, Guard], ...] = (("not-worth-a-restart", not_worth_it),)


def veto(change: Reallocation, guards: tuple[tuple[str, Guard], ...] = GUARDS) -> Veto | None:
    for name, guard in guards:
        no = guard(change)
        if no is not None:
            return Veto(name, no.text, no.until_s)
    return None
