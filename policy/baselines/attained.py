"""Least attained service: LAS, and Tiresias-L (NSDI 2019).

Attained service is two-dimensional: GPUs x time. LAS orders by it continuously, so that young and starved jobs go
first. Tiresias-L makes it discrete: below `threshold` a job is in queue 1, else in queue 2; within a queue first come,
first served; a job of queue 2 that has waited `promote_knob` times as long as it has run goes back to queue 1, with
its account started anew. Neither knows lengths.

`scope=app` is the variant of Themis §6.1: the service of all jobs of an app is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy.contract import Context
from policy.model import Job, Proposal, Snapshot
from policy.parts.ordered import Ranked, active, serve


def las(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    jobs = active(snapshot)
    of_app: dict[str, float] = {}
    for job in jobs:
        of_app[job.app] = of_app.get(job.app, 0.0) + attained(job)
    whole_app = options["scope"] == "app"

    def key(job: Job) -> float:
        return of_app[job.app] if whole_app else attained(job)

    whose = "its app" if whole_app else "it"
    ranked = [
        Ranked(j, f"{whose} has attained {key(j):.6g} GPU-s", {"attained_gpu_s": key(j)})
        for j in sorted(jobs, key=lambda j: (key(j), j.order))
    ]
    served = serve(snapshot, ranked, context)
    return Proposal(served.placer.taken, reasons=served.reasons)


def attained(job: Job) -> float:
    """GPU-seconds so far, on all types."""
    return sum(job.attained.values())


def tiresias_l(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """State, by job: `ran_s` when it was last seen running, `base` its account at the last promotion."""
    threshold, knob = options["threshold"], options["promote_knob"]
    old = snapshot.state.get("jobs", {})
    state: dict[str, dict[str, float]] = {}
    entries: list[tuple[int, tuple[float, str], Ranked]] = []
    for job in active(snapshot):
        before = old.get(job.name, {"ran_s": job.submitted_s, "base": 0.0})
        ran = snapshot.now_s if job.held else before["ran_s"]
        base = before["base"]
        waited, executed = snapshot.now_s - ran, (attained(job) - base) / job.gpus.requested
        queue = 1 if attained(job) - base < threshold else 2
        why = f"it is in queue {queue} ({attained(job) - base:.6g} of {threshold:g} GPU-s)"
        if queue == 2 and knob > 0 and not job.held and waited >= knob * executed:
            queue, base = 1, attained(job)
            why = f"it waited {waited:.6g} s, {knob:g} times as long as it ran, and is back in queue 1"
        state[job.name] = {"ran_s": ran, "base": base}
        numbers = {"queue": queue, "attained_gpu_s": attained(job) - state[job.name]["base"], "waited_s": waited}
        entries.append((queue, job.order, Ranked(job, why, numbers)))
    entries.sort(key=lambda e: e[:2])
    served = serve(snapshot, [r for *_, r in entries], context)
    return Proposal(served.placer.taken, reasons=served.reasons, state={"jobs": state})
