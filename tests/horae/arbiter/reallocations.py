"""A reallocation that a guard is asked about, all but what a test says as good as can be."""

from __future__ import annotations

from typing import Any

from horae.arbiter.admit.guards import SOFT_GUARDS, Reallocation, veto
from horae.config import Guards
from horae.journal import JobRecord
from horae.port import JobState
from policy.model import Allocation, GpuRange, Health, Job, Work
from tests.horae.arbiter.site import spec

HEALTH = {"n1": Health.UP, "n2": Health.UP}


def change(
    held: Allocation | None = None,
    target: Allocation | None = None,
    *,
    ran_s: float = 1000.0,
    state: JobState = JobState.RUNNING,
    record: dict[str, Any] | None = None,
    spec_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> Reallocation:
    now_s = 10_000.0
    made = JobRecord(
        "1", spec("j", (1, 8), **(spec_changes or {})), "main", "ann", "j", "ann", 0.0, shown=True, state=state
    )
    made.started_s = now_s - ran_s
    for name, value in (record or {}).items():
        setattr(made, name, value)
    job = Job("1", "ann", "ann/j", GpuRange(8, 1, 8), work=Work(1e6), restart_cost_s=30.0)
    values: dict[str, Any] = {
        "record": made,
        "job": job,
        "held": {"n1": 2} if held is None else held,
        "target": {"n1": 4} if target is None else target,
        "config": Guards(),
        "now_s": now_s,
        "health": HEALTH,
        "maintenance": None,
        "speed": lambda job, gpus: float(sum(gpus.values())),
        **changes,
    }
    return Reallocation(**values)


def said(asked: Reallocation) -> str | None:
    found = veto(asked) or veto(asked, SOFT_GUARDS)
    return found.guard if found else None
