"""Shortest first: SRTF and SRSF, and their elastic forms (AFS §2.2, §5.5).

SRTF orders by remaining time on the requested gang, SRSF by remaining service, time x GPUs. Both pre-empt. The elastic
forms first do the same, then give left-over GPUs to the jobs whose throughput grows most by them (§5.5, altruistic);
throughputs of different models are made comparable by normalising each to one GPU of its slowest type.

Jobs of unknown length or speed come last, earliest submitted first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from policy.contract import Context
from policy.model import Gpus, Job, Proposal, Snapshot
from policy.parts.ordered import Ranked, active, grow, serve
from policy.places.placement import Placer
from policy.throughput import Throughput


def srtf(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _shortest(snapshot, context, service=False, elastic=False)


def srsf(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _shortest(snapshot, context, service=True, elastic=False)


def srtf_elastic(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _shortest(snapshot, context, service=False, elastic=True)


def srsf_elastic(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return _shortest(snapshot, context, service=True, elastic=True)


def fastest_rate(job: Job, size: Gpus, speeds: Throughput) -> float:
    """iterations/s of a gang of `size` on its fastest type here; 0 where no speed is known."""
    return max((speeds.at(job, t, size) or 0.0 for t in speeds.types(job)), default=0.0)


def _remaining_s(job: Job, rate: float) -> float:
    """Remaining time; inf where length or speed is not known."""
    return inf if job.work_left is None or rate <= 0 else job.work_left / rate


def normalised_rate(job: Job, gpus: Gpus, speeds: Throughput) -> float:
    """Throughput of a gang at best placement on its fastest type, in GPUs of its slowest type."""
    if not job.throughput:
        return float(gpus)
    return fastest_rate(job, gpus, speeds) / (speeds.reference(job) or inf)


def _shortest(snapshot: Snapshot, context: Context, *, service: bool, elastic: bool) -> Proposal:
    placer, speeds = Placer(snapshot, context.speeds), context.speeds
    fastest: dict[tuple[int, Gpus], float] = {}  #: by kind of job and size

    def entry(job: Job) -> tuple[float, Ranked]:
        size = placer.usual(job, anew=True)
        alike = (speeds.kind(job), size)
        if alike not in fastest:
            fastest[alike] = fastest_rate(job, size, speeds)
        left = _remaining_s(job, fastest[alike])
        key = left * size if service else left
        what, unit = ("service", "GPU-s") if service else ("time", "s")
        why = f"its remaining {what} is {key:.6g} {unit}" if key < inf else f"its remaining {what} is not known"
        return key, Ranked(job, why, {f"remaining_{'service_gpu_s' if service else 's'}": key if key < inf else None})

    jobs = active(snapshot)
    ranked = sorted((entry(j) for j in jobs), key=lambda e: (e[0], e[1].job.order))
    served = serve(snapshot, [r for _, r in ranked], context)
    if elastic:

        def gain(job: Job, has: Gpus, then: Gpus) -> float:
            return normalised_rate(job, then, context.speeds) - normalised_rate(job, has, context.speeds)

        def again(now: Snapshot) -> Placer:
            named = {j.name: j for j in now.jobs}
            return serve(now, [Ranked(named[r.job.name], r.why) for _, r in ranked], context, told=False).placer

        first = [r.job for _, r in ranked]
        grow(snapshot, served, jobs, context, gain, "its throughput grows most by them", again, first=first)
    return Proposal(served.placer.taken, reasons=served.reasons)
