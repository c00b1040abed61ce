"""Jobs that nothing could be given now, under every policy.

No set of healthy nodes could hold any of a job's sizes, or its tenant's limit is below all of them. Such a job has a
claim on nothing: it stands in nobody's way, and its tenant is owed nothing for it. So neither the policy nor the
measurer of its decision sees it (a program that looks after who has least would else look after a job that cannot have
anything, and let go of all others); `told` gives it its reason. A job that holds GPUs is never one of them.
"""

from __future__ import annotations

from dataclasses import replace

from policy.model import EMPTY, Decision, Health, Job, JobName, Snapshot
from policy.parts import reasons
from policy.places.gangs import need_of
from policy.places.placement import Placer
from policy.throughput import Throughput


def divided(snapshot: Snapshot, speeds: Throughput) -> tuple[Snapshot, frozenset[JobName]]:
    """The snapshot without the jobs that nothing could be given, and their names; the same object where there is
    none."""
    could = Could(snapshot, speeds)
    unable = frozenset(
        job.name for job in snapshot.jobs if not job.allocation and not could(job) and job.work.left != 0
    )
    if not unable:
        return snapshot, unable
    return replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.name not in unable)), unable


def told(decision: Decision, snapshot: Snapshot, unable: frozenset[JobName], speeds: Throughput) -> Decision:
    """The decision about all jobs of `snapshot`, with why some can have nothing."""
    if not unable:
        return decision
    allocation = {job.name: decision.allocation.get(job.name, {}) for job in snapshot.jobs}
    measured, note = decision.certificate, f"no part in any share: {len(unable)} jobs that nothing could hold"
    rho = {job.app: measured.rho.get(job.app) for job in snapshot.jobs}
    certificate = replace(measured, rho=rho, notes=(*measured.notes, note))
    return replace(
        decision,
        allocation=allocation,
        reasons=reasons.fill(snapshot, allocation, decision.reasons, speeds),
        certificate=certificate,
    )


class Could:
    """Whether a job could run, were nothing else of ours there; asked once for jobs that are alike."""

    def __init__(self, snapshot: Snapshot, speeds: Throughput) -> None:
        self._speeds = speeds
        self._snapshot = snapshot
        self._caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
        self._found: dict[object, bool] = {}
        self._placer: Placer | None = None
        up = [n for n in snapshot.cluster.nodes if n.health is Health.UP]
        self._most = sum(n.gpus - n.foreign for n in up)
        self._kinds = {
            (
                n.gpu_type,
                n.gpus - n.foreign,
                n.cpus,
                n.memory,
                n.features,
                not n.foreign,
            )
            for n in up
        }

    def __call__(self, job: Job) -> bool:
        cap = self._caps.get(job.tenant) if self._caps else None
        alike = (self._speeds.kind(job), job.cpus_per_gpu, job.memory_per_gpu, cap)
        found = self._found.get(alike)
        if found is None:
            found = self._found[alike] = self._on_one_node(job, cap) or self._on_many(job, cap)
        return found

    def _on_one_node(self, job: Job, cap: int | None) -> bool:
        """True for most jobs, and soon told: some node has all of the smallest gang."""
        size, need = job.gpus.min, need_of(job)
        if cap is not None and size > cap:
            return False
        if need.per_node not in (None, size):
            return False
        types = {t for t in self._speeds.types(job) if self._speeds.at(job, t, size) != 0.0}
        return any(
            kind in types
            and need.usable(gpus, cpus, None if memory is None else float(memory), (frozenset(features), alone)) >= size
            for kind, gpus, cpus, memory, features, alone in self._kinds
        )

    def _on_many(self, job: Job, cap: int | None) -> bool:
        if self._placer is None:
            self._placer = Placer(self._snapshot, self._speeds, taken=EMPTY)
        most = self._most if cap is None else min(cap, self._most)
        size: int | None = job.gpus.min
        while size is not None and size <= most:
            if self._placer.possible(job, size):
                return True
            size = job.gpus.above(size)
        return False
