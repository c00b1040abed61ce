"""From a snapshot and the profiles to the probes that would pay (`profiler.explore`).

A place is a GPU type and a count that the job may have. What is known of a rate there: a measured point or a fit
with its interval; on a type that nothing was measured on, the site's ratio between the types, with a factor of
`TYPE_DOUBT` on either side. Nothing here acts, and nobody calls it in `observe` and `advise` unless told to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from policy.model import Gpus, GpuType, Health, Job, JobName, Seconds, Snapshot
from profiler.explore import Budget, Candidate, Known, Plan, plan
from profiler.profiles import Store

TYPE_DOUBT = 2.0
#: assumed until a restart of the job was measured
RESTART_S = 60.0


def probes(
    snapshot: Snapshot,
    store: Store,
    key_of: Callable[[JobName], str],
    *,
    ratios: Mapping[GpuType, float] | None = None,
    movable: Callable[[Job], bool] = lambda job: not job.gpus.rigid,
    resized_s: Mapping[JobName, Seconds] | None = None,
    recent_s: Sequence[Seconds] = (),
    budget: Budget | None = None,
) -> Plan:
    """`ratios`: the site's relative speeds by GPU type. `resized_s`: when a job was moved last. `recent_s`: when
    probes began. `movable`: may be stopped and resumed now."""
    free = idle(snapshot)
    types = {n.name: n.gpu_type for n in snapshot.cluster.nodes}
    found = []
    for job in snapshot.jobs:
        held = {types[n] for n in job.allocation if n in types}
        if len(held) != 1:
            continue  # it waits, or it spans types: its rate says nothing of either
        gpu_type = held.pop()
        rate = None
        places = _places(job, store, key_of(job.name), free, ratios or {})
        if (here := places.get((gpu_type, job.held))) is not None:
            rate = here.value
        left = job.work_left
        found.append(
            Candidate(
                job=job.name,
                key=key_of(job.name),
                gpu_type=gpu_type,
                gpus=job.held,
                places=places,
                restart_cost_s=job.restart_cost_s if job.restart_cost_s is not None else RESTART_S,
                left_s=left / rate if left is not None and rate else None,
                movable=movable(job),
                since_resize_s=snapshot.now_s - (resized_s or {}).get(job.name, float("-inf")),
            )
        )
    return plan(found, free, recent_s, snapshot.now_s, budget)


def idle(snapshot: Snapshot) -> dict[GpuType, Gpus]:
    """GPUs by type that nobody holds, on healthy nodes."""
    held: dict[str, int] = {}
    for job in snapshot.jobs:
        for name, gpus in job.allocation.items():
            held[name] = held.get(name, 0) + gpus
    free: dict[GpuType, Gpus] = {}
    for node in snapshot.cluster.nodes:
        if node.health is Health.UP:
            left = max(node.gpus - node.foreign - held.get(node.name, 0), 0)
            free[node.gpu_type] = free.get(node.gpu_type, 0) + left
    return free


def _places(
    job: Job, store: Store, key: str, free: Mapping[GpuType, Gpus], ratios: Mapping[GpuType, float]
) -> dict[tuple[GpuType, Gpus], Known]:
    scaling = store.scaling(key)
    places: dict[tuple[GpuType, Gpus], Known] = {}
    for gpu_type in free:
        for gpus in _counts(job, free[gpu_type] + job.held):
            rate = scaling[gpu_type].rate(gpus) if gpu_type in scaling else None
            if rate is not None:
                places[gpu_type, gpus] = Known(rate.value, *rate.interval, rate.source)
                continue
            for other, own in scaling.items():
                like = own.rate(gpus)
                if like is not None and ratios.get(other) and ratios.get(gpu_type):
                    value = like.value * ratios[gpu_type] / ratios[other]
                    places[gpu_type, gpus] = Known(value, value / TYPE_DOUBT, value * TYPE_DOUBT, "prior")
                    break
    return places


def _counts(job: Job, most: Gpus) -> list[Gpus]:
    """The gangs worth asking about: what the job may have, in doublings, and what it has."""
    counts = {1 << i for i in range(max(most, 1).bit_length())} | {job.held, job.gpus.min}
    if job.gpus.allowed is not None:
        counts |= set(job.gpus.allowed)
    return sorted(n for n in counts if 0 < n <= most and job.gpus.feasible(n))
