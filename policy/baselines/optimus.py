"""Optimus (EuroSys 2018): marginal gain in predicted remaining time by more GPUs.

Every job first gets its smallest gang, in the order of submission. Then the next step always goes to the job whose
predicted remaining time falls most per GPU, while it falls. The remaining time is the iterations left (stated, or to
the convergence of the forecast loss curve) over the throughput. A job of which neither is known comes last: what
nobody else can use goes, step by step, to the one whose throughput it raises most (the paper is silent on such jobs;
they would leave GPUs idle).

`metric=scaling` is the variant of Themis §6.1: the step goes to the job with the largest ratio of new to old
throughput, whatever it has left.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from math import inf
from typing import Any

from policy.contract import Context
from policy.model import Job, JobName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.assign import assign, explain, wants
from policy.parts.forecast import iterations_left
from policy.parts.ordered import active
from policy.parts.pools import Pools, Step
from policy.parts.standing import beside_known


@beside_known
def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    jobs = active(snapshot)
    pools = Pools(snapshot, context.speeds)
    left = {j.name: iterations_left(j, options["convergence"]) for j in jobs}
    for job in jobs:
        step = pools.first_step(job)
        if step is not None and pools.fits(job, step):
            pools.give(job, step)
    scaling = options["metric"] == "scaling"

    def gain(job: Job, step: Step) -> float | None:
        """The fall of the remaining time by a GPU of the step; None where that is not known."""
        now = pools.rate(job, step.gpu_type, pools.count[job.name])
        then = pools.rate(job, step.gpu_type, step.gpus)
        if scaling:
            return speeding(pools, job, step)
        remaining = left[job.name]
        return None if remaining is None or not job.throughput else (remaining / now - remaining / then) / step.add

    heap: list[tuple[bool, float, tuple[float, str], int, Step]] = []
    last: dict[JobName, float] = {}
    sated: set[JobName] = set()

    def push(n: int) -> None:
        step = pools.next_step(jobs[n])
        if step is None:
            sated.add(jobs[n].name)
            return
        worth = gain(jobs[n], step)
        if worth is not None and worth > 0:
            heapq.heappush(heap, (False, -worth, jobs[n].order, n, step))
        else:
            heapq.heappush(heap, (True, -speeding(pools, jobs[n], step), jobs[n].order, n, step))

    for n, job in enumerate(jobs):
        if pools.count.get(job.name):
            push(n)
    while heap and not pools.empty:
        blind, worth, _, n, step = heapq.heappop(heap)
        if pools.fits(jobs[n], step):
            pools.give(jobs[n], step)
            if not blind:
                last[jobs[n].name] = -worth
            push(n)
    placed = assign(snapshot, wants(pools), jobs, context)
    said = explain(snapshot, jobs, sated, placed, context)
    unknown = [j.name for j in jobs if left[j.name] is None and not scaling]
    return Proposal(
        placed.placer.taken,
        reasons={**_reasons(jobs, placed.placer.taken, left, last, context, scaling), **said},
        notes=(f"{len(unknown)} jobs without a length or a loss forecast grow after all others",) if unknown else (),
    )


def speeding(pools: Pools, job: Job, step: Step) -> float:
    """By which part of itself a step raises the job's throughput, a GPU."""
    now = pools.rate(job, step.gpu_type, pools.count[job.name])
    return (pools.rate(job, step.gpu_type, step.gpus) / now - 1) / step.add if now > 0 else inf


def _reasons(
    jobs: list[Job],
    taken: Mapping[JobName, Any],
    left: Mapping[JobName, float | None],
    last: Mapping[JobName, float],
    context: Context,
    scaling: bool,
) -> dict[JobName, Reason]:
    out: dict[JobName, Reason] = {}
    for job in jobs:
        seen = reasons.outcome(job, taken.get(job.name, {}), context.speeds) if taken.get(job.name) else None
        if seen is None:
            continue
        numbers = {**seen.numbers, "iterations_left": left[job.name], "last_gain": last.get(job.name)}
        text = f"{seen.text}; its smallest gang comes before anybody's second step"
        if job.name in last:
            what = "raised its throughput by" if scaling else "cut its remaining time by"
            unit = "of itself" if scaling else "s"
            text = f"{seen.text}; its last step {what} {last[job.name]:.4g} {unit} per GPU, more than others' would"
        out[job.name] = Reason(seen.code, text, numbers, seen.change)
    return out
