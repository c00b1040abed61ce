"""Finish-time fairness of each app under an allocation: rho = T_sh / T_id (Themis §3.1, Eq. 1).

    T_sh = now - submitted + iterations left / rate(allocation)        (the longest of the app's jobs)
    T_id = T_cluster * N_avg
    T_cluster = GPU-seconds of the whole app at its largest demand / min(R_C, largest demand)

The measured throughput table takes the place of Eq. 1's linear speed-up; the reference GPU type is the slowest that a
job can run on, without slowdown. R_C are the cluster's GPUs that the app can run on. N_avg is the time-weighted mean
number of active apps since the app's submission, from the snapshot's history where it has one, else the number of
apps in the snapshot. An app that holds nothing, or whose length nobody knows, has no rho.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.model import Allocation, Health, Job, JobName, Seconds, Snapshot
from policy.throughput import Throughput


def rho_by_app(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> tuple[dict[str, float | None], list[str]]:
    """rho by app, in the order of the snapshot, and what was left out."""
    apps: dict[str, list[Job]] = {}
    for job in snapshot.jobs:
        apps.setdefault(job.app, []).append(job)
    active = sum(any(j.work.left != 0 for j in jobs) for jobs in apps.values())
    capacity: dict[str, int] = {}
    for n in snapshot.cluster.nodes:
        if n.health is not Health.DOWN:
            capacity[n.gpu_type] = capacity.get(n.gpu_type, 0) + n.gpus - n.foreign
    out: dict[str, float | None] = {}
    unknown = 0
    own_scheduler = {a.name for a in snapshot.apps} & set(apps)
    for app, jobs in apps.items():
        running = [j for j in jobs if j.work.left != 0]
        if not any(allocation.get(j.name) for j in running):
            out[app] = None
            continue
        shared = _shared(snapshot, running, allocation, speeds)
        alone = _alone(jobs, capacity, speeds)
        start = min(j.submitted_s for j in jobs)
        if shared is None or alone is None or alone <= 0:
            out[app] = None
            unknown += 1
            continue
        out[app] = shared / (alone * mean_active(snapshot, start, active))
    notes = []
    if unknown:
        notes.append(f"rho: left out for {unknown} running apps whose length or speed nobody knows")
    if own_scheduler:
        notes.append(
            f"rho: {len(own_scheduler)} apps with a scheduler of their own are measured by their jobs in the snapshot"
        )
    return out, notes


def mean_active(snapshot: Snapshot, since: Seconds, now_active: int) -> float:
    """N_avg: the time-weighted mean number of active apps from `since` to now; at least 1."""
    history = snapshot.active_apps
    if not history:
        return float(max(now_active, 1))
    now = snapshot.now_s
    if since >= now:
        return float(max([n for t, n in history if t <= now][-1:] or [history[0][1]])) or 1.0
    total = 0.0
    for i, (start, n) in enumerate(history):
        begin = since if i == 0 else max(start, since)
        end = min(history[i + 1][0] if i + 1 < len(history) else now, now)
        if end > begin:
            total += n * (end - begin)
    return max(total / (now - since), 1.0)


def _shared(
    snapshot: Snapshot, running: list[Job], allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> Seconds | None:
    """T_sh: the jobs that hold GPUs, to the end of the longest."""
    longest: Seconds = 0.0
    start = min(j.submitted_s for j in running)
    for job in running:
        now = allocation.get(job.name)
        if not now:
            continue
        rate, left = speeds.rate(job, now), job.work.left
        if rate is None or rate <= 0 or left is None:
            return None
        longest = max(longest, left / rate)
    return snapshot.now_s - start + longest


def _alone(jobs: list[Job], capacity: Mapping[str, int], speeds: Throughput) -> Seconds | None:
    """T_cluster: the whole app on the whole cluster, or on as much as it can use."""
    gpu_seconds, longest, demand, most = 0.0, 0.0, 0, 0
    for job in jobs:
        if job.work.total is None:
            return None
        types = [t for t in speeds.types(job) if t in speeds.curves(job) and capacity.get(t)]
        if not types:
            return None
        room = sum(capacity[t] for t in types)
        size = job.gpus.at_most(room) or job.gpus.min
        rate = min(_peak(speeds, job, t, size) for t in types)
        if rate <= 0:
            return None
        seconds = job.work.total / rate
        gpu_seconds += seconds * size
        longest, demand, most = max(longest, seconds), demand + size, max(most, room)
    return max(gpu_seconds / min(demand, max(most, 1)), longest) if demand else None


def _peak(speeds: Throughput, job: Job, gpu_type: str, size: int) -> float:
    """The best rate with at most `size` GPUs: measured curves may fall again."""
    curve = speeds.curves(job)[gpu_type]
    return max([curve(n) for n in curve.points if n <= size] + [curve(size)])
