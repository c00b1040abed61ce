"""Reasons that elastic policies share: why a job has the size it has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from policy.contract import Context
from policy.model import Code, Job, JobName, Reason, Snapshot
from policy.parts.assign import Assignment
from policy.parts.reasons import gpus, outcome


def explain(
    snapshot: Snapshot, jobs: Sequence[Job], sated: Collection[JobName], placed: Assignment, context: Context
) -> dict[JobName, Reason]:
    """Reasons of the jobs that hold GPUs, where more would not help them or did not fit.

    NO_GAIN is said of the jobs in `sated` (allowed more GPUs, but no faster with more) while GPUs that they could use
    stand idle: that is why these are idle.
    """
    placer = placed.placer
    out: dict[JobName, Reason] = {}
    for job in jobs:
        now = placer.taken.get(job.name)
        if not now:
            continue
        larger = job.name in sated and job.gpus.above(sum(now.values())) is not None
        idle = sum(placer.free(t) for t in context.speeds.types(job)) if larger else 0
        if not (idle or job.name in placed.short):
            continue
        found = outcome(job, now, context.speeds)
        if found is None:
            continue
        if job.name in placed.short:
            text = f"{found.text}; no place for more obeys the limits"
            out[job.name] = replace(found, text=text, change="GPUs that come free on the same nodes")
        else:
            text = f"{found.text}; more would not make it faster, so {gpus(idle)} may stay idle"
            change = "a measurement that shows a gain from more GPUs"
            out[job.name] = Reason(Code.NO_GAIN, text, {**found.numbers, "idle": idle}, change)
    return out
