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

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from operator import attrgetter

from policy.model import Allocation, GpuType, Health, Job, JobName, Seconds, Snapshot
from policy.throughput import Throughput


def rho_by_app(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> tuple[dict[str, float | None], list[str]]:
    """rho by app, in the order of the snapshot, and what was left out."""
    apps = list(map(attrgetter("app"), snapshot.jobs))
    count = Counter(apps)
    several: dict[str, list[Job]] = {}  #: apps of more jobs than one
    alone_at = _AtBest(_capacity(snapshot), speeds)
    mean = MeanActive(snapshot)
    out: dict[str, float | None] = dict.fromkeys(apps)
    unknown = 0
    own_scheduler = {a.name for a in snapshot.apps} & out.keys()
    for job, app in zip(snapshot.jobs, apps, strict=True):
        if count[app] > 1:
            several.setdefault(app, []).append(job)
            continue
        now = allocation.get(job.name)
        if now and (left := job.work.left) != 0:
            rho = out[app] = _by_itself(job, left, now, snapshot.now_s, speeds, alone_at, mean)
            unknown += rho is None
    for app, jobs in several.items():
        if any(j.work.left != 0 and allocation.get(j.name) for j in jobs):
            rho = out[app] = _together(jobs, allocation, snapshot.now_s, speeds, alone_at, mean)
            unknown += rho is None
    notes = []
    if unknown:
        notes.append(f"rho: left out for {unknown} running apps whose length or speed nobody knows")
    if own_scheduler:
        notes.append(
            f"rho: {len(own_scheduler)} apps with a scheduler of their own are measured by their jobs in the snapshot"
        )
    return out, notes


def _capacity(snapshot: Snapshot) -> dict[GpuType, int]:
    out: dict[GpuType, int] = {}
    for n in snapshot.cluster.nodes:
        if n.health is not Health.DOWN:
            out[n.gpu_type] = out.get(n.gpu_type, 0) + n.gpus - n.foreign
    return out


def _together(
    jobs: list[Job],
    allocation: Mapping[JobName, Allocation],
    now_s: Seconds,
    speeds: Throughput,
    alone_at: _AtBest,
    mean: MeanActive,
) -> float | None:
    """rho of an app of several jobs, of which some run; None where nobody knows their length or speed."""
    works = [j for j in jobs if j.work.left != 0]
    running = [j for j in works if allocation.get(j.name)]
    start = min([j.submitted_s for j in works])
    shared, alone = _shared(now_s - start, running, allocation, speeds), _alone(jobs, alone_at)
    if shared is None or alone is None or alone <= 0:
        return None
    first = start if len(works) == len(jobs) else min([j.submitted_s for j in jobs])
    return shared / (alone * mean.since(first))


def _by_itself(
    job: Job,
    left: float | None,
    now: Allocation,
    now_s: Seconds,
    speeds: Throughput,
    alone_at: _AtBest,
    mean: MeanActive,
) -> float | None:
    """rho of an app of one job, which most are; None where nobody knows its length or speed."""
    rate, alone = speeds.rate(job, now), _alone_by_itself(job, alone_at)
    if rate is None or rate <= 0 or left is None or alone is None or alone <= 0:
        return None
    return (now_s - job.submitted_s + max(0.0, left / rate)) / (alone * mean.since(job.submitted_s))


class MeanActive:
    """N_avg: the time-weighted mean number of active apps from a time to now; at least 1."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._history, self._now = snapshot.active_apps, snapshot.now_s
        self._starts = [t for t, _ in self._history]
        self._known: dict[Seconds, float] = {}
        self._always = None if self._history else float(max(_active(snapshot), 1))
        ends = self._ends = [min(t, self._now) for t in [*self._starts[1:], self._now]]
        #: Apps x seconds of each entry, from its time to the next's.
        self._areas = [n * max(end - t, 0.0) for (t, n), end in zip(self._history, ends, strict=False)]

    def since(self, time_s: Seconds) -> float:
        if self._always is not None:
            return self._always
        found = self._known.get(time_s)
        if found is None:
            found = self._known[time_s] = self._mean(time_s)
        return found

    def _mean(self, since: Seconds) -> float:
        history, now = self._history, self._now
        if since >= now:
            return float(max([n for t, n in history if t <= now][-1:] or [history[0][1]])) or 1.0
        first = max(bisect_right(self._starts, since) - 1, 0)
        end = self._ends[first]
        total = history[first][1] * (end - since) if end > since else 0.0
        total = sum(self._areas[first + 1 :], total)
        return max(total / (now - since), 1.0)


def _active(snapshot: Snapshot) -> int:
    return len({job.app for job in snapshot.jobs if job.work.left != 0})


def _shared(
    age_s: Seconds, running: list[Job], allocation: Mapping[JobName, Allocation], speeds: Throughput
) -> Seconds | None:
    """T_sh: the jobs that hold GPUs, to the end of the longest. `age_s`: since the first of the app was submitted."""
    longest: Seconds = 0.0
    for job in running:
        rate, left = speeds.rate(job, allocation[job.name]), job.work.left
        if rate is None or rate <= 0 or left is None:
            return None
        longest = max(longest, left / rate)
    return age_s + longest


class _AtBest:
    """(GPUs of the types that it can run on, its largest demand, its rate there) by kind of job; None: not known."""

    def __init__(self, capacity: Mapping[str, int], speeds: Throughput) -> None:
        self._capacity, self._speeds = capacity, speeds
        self._known: dict[int, tuple[int, int, float] | None] = {}

    def of(self, job: Job) -> tuple[int, int, float] | None:
        kind = self._speeds.kind(job)
        if kind in self._known:
            return self._known[kind]
        found = self._known[kind] = self._found(job)
        return found

    def _found(self, job: Job) -> tuple[int, int, float] | None:
        speeds, capacity = self._speeds, self._capacity
        types = [t for t in speeds.types(job) if t in speeds.curves(job) and capacity.get(t)]
        if not types:
            return None
        room = sum(capacity[t] for t in types)
        size = job.gpus.at_most(room) or job.gpus.min
        rate = min(_peak(speeds, job, t, size) for t in types)
        return None if rate <= 0 else (room, size, rate)


def _alone(jobs: list[Job], at_best: _AtBest) -> Seconds | None:
    """T_cluster: the whole app on the whole cluster, or on as much as it can use."""
    if len(jobs) == 1:
        return _alone_by_itself(jobs[0], at_best)
    gpu_seconds, longest, demand, most = 0.0, 0.0, 0, 0
    for job in jobs:
        if job.work.total is None:
            return None
        found = at_best.of(job)
        if found is None:
            return None
        room, size, rate = found
        seconds = job.work.total / rate
        gpu_seconds += seconds * size
        longest, demand, most = max(longest, seconds), demand + size, max(most, room)
    return max(gpu_seconds / min(demand, max(most, 1)), longest) if demand else None


def _alone_by_itself(job: Job, at_best: _AtBest) -> Seconds | None:
    """The same of an app of one job, which most are."""
    found, total = at_best.of(job), job.work.total
    if total is None or found is None:
        return None
    room, size, rate = found
    seconds = total / rate
    return max(seconds * size / min(size, max(room, 1)), seconds, 0.0) if size else None


def _peak(speeds: Throughput, job: Job, gpu_type: str, size: int) -> float:
    """The best rate with at most `size` GPUs: measured curves may fall again."""
    curve = speeds.curves(job)[gpu_type]
    return max([curve(n) for n in curve.points if n <= size] + [curve(size)])
