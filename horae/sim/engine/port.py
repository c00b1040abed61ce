"""The simulated cluster behind the real port: the world as an adapter shows it.

A stop takes effect at once and a start runs at once; what both cost, the job pays before it makes progress
(`world.py`), so that an allocation changes at one moment in either engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import floor

from horae.port import Capabilities, JobId, JobState, LogChunk, Never, Observation, ObservedJob, TryLater
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.spec import JobSpec
from policy.model import Allocation, Cluster, NodeName, Seconds


@dataclass(slots=True)
class KnownJob:
    """What the cluster knows of a job beyond its GPUs. `change`: since then it is what it is."""

    run: SimulatedJob
    epoch: int = 0
    stopped: bool = False
    since_s: Seconds = 0.0
    shown: ObservedJob | None = None


class SimPort:
    def __init__(self, world: SimulatedWorld, cluster: Cluster) -> None:
        self.now_s: Seconds = 0.0
        self.deeds = 0  #: requests that changed something
        self.lost: list[SimulatedJob] = []  #: ended by their apps since the arbiter's engine looked
        self._world, self._cluster = world, cluster
        self._jobs: dict[JobId, KnownJob] = {}
        self._held: Counter[NodeName] = Counter()
        self._gpus = {n.name: n.gpus - n.foreign for n in cluster.nodes}
        self._claim: str | None = None

    # --- looking ------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        return Capabilities(cluster="simulated", limits=self._cluster.limits)

    def observe(self) -> Observation:
        jobs = tuple(self._shown(job, known) for job, known in self._jobs.items())
        return Observation(self.now_s, self._cluster.nodes, jobs, self._claim)

    def _shown(self, job: JobId, known: KnownJob) -> ObservedJob:
        if known.shown is None:
            run = known.run
            if run.finished_s is not None:
                state, since_s = JobState.COMPLETED, run.finished_s
            elif run.lost_s is not None:
                state, since_s = JobState.CANCELLED, run.lost_s
            elif run.allocation:
                state, since_s = JobState.RUNNING, known.since_s
            else:
                state, since_s = (JobState.STOPPED if known.stopped else JobState.QUEUED), known.since_s
            code = 0 if state is JobState.COMPLETED else None
            known.shown = ObservedJob(job, state, known.epoch, run.allocation, since_s, code)
        return known.shown

    def over(self, runs: Sequence[SimulatedJob]) -> None:
        """These jobs have ended: their GPUs are free."""
        for run in runs:
            self._held.subtract(run.last)
            self._jobs[run.plain.name].shown = None

    def forget(self, job: JobId) -> None:
        """It ended and the arbiter knows: it is shown no more."""
        del self._jobs[job]

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        """What it says since it was last read, if its SDK says one line: how far it is now."""
        known = self._job(job)
        run = known.run
        if not run.rate or self.now_s < run.since_s + 1 / run.rate:
            return LogChunk(b"", offset)
        step, total = floor(run.done_at(self.now_s)), round(run.total)
        words = f"[horae] step={step}/{total} iter_s={1 / run.rate!r} world={run.gpus} epoch={known.epoch}\n"
        return LogChunk(words.encode(), offset + len(words))

    # --- acting -------------------------------------------------------------------------------------------

    def claim(self, token: str) -> None:
        self._claim, self.deeds = token, self.deeds + 1

    def heartbeat(self) -> None:
        """Nothing in this world looks for it."""

    def submit(self, job: JobId, spec: JobSpec) -> None:
        if job not in self._jobs:
            self._jobs[job], self.deeds = KnownJob(self._world.jobs[job], since_s=self.now_s), self.deeds + 1

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        known = self._job(job)
        if epoch <= known.epoch:
            return  # asked again, or late
        self.refuse(known, allocation)
        self._world.start(known.run, dict(allocation), self.now_s)
        self._held.update(known.run.allocation)
        self._change(known)
        known.epoch, known.stopped = epoch, False

    def refuse(self, known: KnownJob, allocation: Allocation) -> None:
        """Raises TryLater where it cannot be started there now."""
        if known.run.over_s is not None or known.run.allocation:
            raise TryLater(f"job {known.run.plain.name} is not to be started")
        for node, gpus in allocation.items():
            if gpus > self._gpus[node] - self._held[node]:
                raise TryLater(f"{node} has {self._gpus[node] - self._held[node]} GPUs free, not {gpus}")

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        known = self._job(job)
        if known.run.allocation:
            self._world.stop(known.run, self.now_s)
            self._held.subtract(known.run.last)
            self._change(known)
            known.stopped = True

    def cancel(self, job: JobId) -> None:
        known = self._job(job)
        if known.run.over_s is None:
            held = known.run.allocation
            self._world.lose(known.run, self.now_s)
            self._held.subtract(held)
            self._change(known)
            self.lost.append(known.run)

    def release(self, job: JobId) -> None:
        raise Never("nobody hands back in a simulation")

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise Never("this cluster cannot reshape a running job")

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, Never]:
        return {}

    def set_order(self, jobs: Sequence[JobId]) -> None:
        """Nobody but the arbiter starts anything here."""

    def set_reason(self, job: JobId, text: str) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """Nothing is held open."""

    # --- shared -------------------------------------------------------------------------------------------

    def _job(self, job: JobId) -> KnownJob:
        if job not in self._jobs:
            raise Never(f"there is no job {job}")
        return self._jobs[job]

    def _change(self, known: KnownJob) -> None:
        known.since_s, known.shown = self.now_s, None
        self.deeds += 1
