"""What a site's limits leave to each job, whatever the policy: they are divided before it is asked.

A quota binds some jobs together. Each of them gets a part of it, which bounds its range: first the smallest gang of
each, those that hold GPUs before those that wait, earlier before later; then the smallest parts grow, size by size.
One on the nodes of each becomes a part of its shape, and the fewest GPUs that it may hold the least of its range.
A limit that came later takes nothing from a job that cannot shrink. Who finds no room waits outside the decision, so
that every answer to what is left can be carried out, and jobs that a quota does not bind see nothing of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace

from policy.model import Code, Decision, GpuRange, Gpus, Job, JobName, Proposal, Quota, Reason, Shape, Snapshot
from policy.parts import carrying

#: The snapshot within its quotas; the jobs that are not in it, and those whose range is narrower, by quota.
Division = tuple[Snapshot, dict[JobName, Quota], dict[JobName, Quota]]
_NO_LIMIT = None, None, None


def divided(snapshot: Snapshot, proposal: Proposal | None = None) -> Division:
    """`proposal`: who holds GPUs once it is carried out counts as holding them; else who does now."""
    if not snapshot.quotas:
        return snapshot, {}, {}
    snapshot = shaped(snapshot)
    books = _Books(snapshot, carrying.holding(snapshot, proposal))
    parts, barred = books.smallest()
    books.grow(parts)
    jobs, narrowed = [], {}
    for job in snapshot.jobs:
        if job.name in barred:
            continue
        part = parts.get(job.name)
        wish = None if part is None else job.gpus.above(part)
        binds = None if part is None or wish is None or wish > books.gpus else books.full(job, wish - part)
        if part is not None and binds is not None:
            narrowed[job.name] = binds
            jobs.append(replace(job, gpus=_within(job.gpus, part)))
        else:
            jobs.append(job)
    return replace(snapshot, jobs=tuple(jobs), quotas=()), barred, narrowed


def shaped(snapshot: Snapshot) -> Snapshot:
    """With what quotas on each job make of its shape and its smallest gang."""
    of_each = [quota for quota in snapshot.quotas if (quota.nodes, quota.gpus_per_node, quota.least) != _NO_LIMIT]
    if not of_each:
        return snapshot
    jobs = {job.name: job for job in snapshot.jobs}
    for quota in of_each:
        for name in jobs.keys() & quota.whom:
            jobs[name] = _on_few(_no_fewer(jobs[name], quota.least), quota)
    return replace(snapshot, jobs=tuple(jobs.values()))


def _no_fewer(job: Job, least: Gpus | None) -> Job:
    """A limit that came later takes nothing; of one whose every gang is smaller its cluster says what is wrong."""
    range_ = job.gpus
    if least is None or range_.min >= least or 0 < job.held < least:
        return job
    smallest = range_.above(least - 1)
    if smallest is None:
        return job
    sizes = range_.allowed and tuple(size for size in range_.allowed if size >= smallest)
    return replace(job, gpus=GpuRange(max(range_.requested, smallest), smallest, range_.max, sizes))


def _on_few(job: Job, quota: Quota) -> Job:
    if quota.nodes is None and quota.gpus_per_node is None:
        return job
    shape = job.shape or Shape()
    nodes = _lower(shape.most_nodes, quota.nodes)
    per_node = _lower(shape.most_per_node, quota.gpus_per_node)
    return replace(job, shape=replace(shape, most_nodes=nodes, most_per_node=per_node))


def _lower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def told(
    decision: Decision, snapshot: Snapshot, barred: Mapping[JobName, Quota], narrowed: Mapping[JobName, Quota]
) -> Decision:
    """The decision about all jobs of `snapshot`, with what the quotas did to whom among the reasons."""
    if not barred and not narrowed:
        return decision
    reasons = dict(decision.reasons)
    for name, quota in barred.items():
        text = f"{quota.name}: it leaves no room for this one"
        change = "a higher limit"
        if any(_most_of(quota).values()):
            text += ", since its other jobs hold what it lets them"
            change = f"others of these jobs that end or shrink, or {change}"
        reasons[name] = Reason(Code.WAITS_CAP, text, {"gpus": 0, "limit": quota.name, **_most_of(quota)}, change)
    for name, quota in narrowed.items():
        reason = reasons[name]
        reasons[name] = replace(reason, numbers={**reason.numbers, "limit": quota.name, **_most_of(quota)})
    allocation = {job.name: decision.allocation.get(job.name, {}) for job in snapshot.jobs}
    return replace(decision, allocation=allocation, reasons={name: reasons[name] for name in allocation})


def _most_of(quota: Quota) -> dict[str, int]:
    most = {"limit_gpus": quota.gpus, "limit_jobs": quota.jobs}
    return {name: value for name, value in most.items() if value is not None}


class _Books:
    """What is left of each quota."""

    def __init__(self, snapshot: Snapshot, held: Mapping[JobName, Gpus]) -> None:
        self.gpus = sum(node.gpus for node in snapshot.cluster.nodes)
        self._held = held
        self._gpus = [quota.gpus for quota in snapshot.quotas]
        self._jobs = [quota.jobs for quota in snapshot.quotas]
        self._quotas = snapshot.quotas
        self._of: dict[JobName, list[int]] = {}
        for at, quota in enumerate(snapshot.quotas):
            for name in quota.whom:
                self._of.setdefault(name, []).append(at)
        self._bound = sorted((job for job in snapshot.jobs if job.name in self._of), key=lambda j: j.order)

    def smallest(self) -> tuple[dict[JobName, Gpus], dict[JobName, Quota]]:
        """The smallest gang of each job that finds room, and the quota in whose way each other is."""
        parts: dict[JobName, Gpus] = {}
        barred: dict[JobName, Quota] = {}
        for job in sorted(self._bound, key=lambda j: not self._held[j.name]):
            full = None if self._held[job.name] else self.full(job, job.gpus.min, 1)
            if full is None:
                parts[job.name] = job.gpus.min
                self._take(job, job.gpus.min, 1)
            else:
                barred[job.name] = full
        return parts, barred

    def grow(self, parts: dict[JobName, Gpus]) -> None:
        """The smallest part first, by one size, while there is room in all that bind it."""
        heap = [(part, at) for at, job in enumerate(self._bound) if (part := parts.get(job.name)) is not None]
        heapq.heapify(heap)
        while heap:
            part, at = heapq.heappop(heap)
            job = self._bound[at]
            size = job.gpus.above(part)
            if size is None or size > self.gpus or self.full(job, size - part) is not None:
                continue
            self._take(job, size - part)
            parts[job.name] = size
            heapq.heappush(heap, (size, at))

    def full(self, job: Job, gpus: Gpus = 1, jobs: int = 0) -> Quota | None:
        """The first quota that has no room for so many more."""
        for at in self._of[job.name]:
            left_gpus, left_jobs = self._gpus[at], self._jobs[at]
            if (left_gpus is not None and left_gpus < gpus) or (left_jobs is not None and left_jobs < jobs):
                return self._quotas[at]
        return None

    def _take(self, job: Job, gpus: Gpus, jobs: int = 0) -> None:
        for at in self._of[job.name]:
            left_gpus, left_jobs = self._gpus[at], self._jobs[at]
            self._gpus[at] = None if left_gpus is None else left_gpus - gpus
            self._jobs[at] = None if left_jobs is None else left_jobs - jobs


def _within(range_: GpuRange, most: Gpus) -> GpuRange:
    allowed = None if range_.allowed is None else tuple(size for size in range_.allowed if size <= most)
    return GpuRange(min(range_.requested, most), range_.min, most, allowed)
