"""The simulated cluster on a bad day: nodes go and come back, jobs fall back to their checkpoints, and an arbiter in
charge is obeyed, so that what it does wrong is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor

from horae.port import CheckpointMark, JobId, JobState, Observation, ObservedJob, TryLater
from horae.sim.engine.port import KnownJob, SimPort
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.sim.faults.watch import Invariants
from policy.model import EMPTY, Allocation, Cluster, Health, NodeName, Seconds

#: A job that runs writes a checkpoint so often, and ten times in its life at least.
CHECKPOINT_S: Seconds = 60.0


class FaultyCluster(SimPort):
    def __init__(
        self,
        world: SimulatedWorld,
        cluster: Cluster,
        later: Callable[[Seconds, Callable[[], None]], None],
        *,
        spawn_s: Seconds = 0.0,
        leave_s: Seconds = 0.0,
        forgetful: bool = False,
    ) -> None:
        """`later` does something in so many seconds; `spawn_s`: how long a job that is started does not run yet;
        `leave_s`: how long a job that is asked to leave holds its GPUs; `forgetful`: jobs start anew, whatever they
        have kept."""
        super().__init__(world, cluster)
        self.down: set[NodeName] = set()
        self.invariants = Invariants(dict(self._gpus))
        self._kept: dict[JobId, CheckpointMark] = {}  #: the newest complete checkpoint
        self._lost: set[JobId] = set()
        self._forgetful = forgetful
        self._later, self._spawn_s, self._leave_s = later, spawn_s, leave_s
        self._leaving: set[JobId] = set()

    def observe(self) -> Observation:
        seen = super().observe()
        nodes = tuple(replace(n, health=Health.DOWN) if n.name in self.down else n for n in seen.nodes)
        return replace(seen, nodes=nodes)

    def _shown(self, job: JobId, known: KnownJob) -> ObservedJob:
        shown = super()._shown(job, known)
        if (kept := self._kept.get(job)) is not None:
            shown = replace(shown, checkpoint=kept)
        if shown.state is JobState.RUNNING:
            return self._shown_running(shown)
        return replace(shown, state=JobState.LOST) if job in self._lost and shown.state.startable else shown

    def _shown_running(self, shown: ObservedJob) -> ObservedJob:
        if shown.id in self._leaving:
            return replace(shown, state=JobState.STOPPING)
        if self.now_s < shown.since_s + self._spawn_s:
            return replace(shown, state=JobState.STARTING)
        return replace(shown, since_s=shown.since_s + self._spawn_s) if self._spawn_s else shown

    def runs_on(self, allocation: Allocation, *, beside: JobId) -> bool:
        """Whether another job holds GPUs that this allocation cannot have beside it."""
        mine = self._jobs[beside].run.allocation
        return any(gpus > self._gpus[n] - self._held[n] + mine.get(n, 0) for n, gpus in allocation.items())

    def most(self, job: JobId) -> int:
        """GPUs that it may have."""
        most = self._jobs[job].run.plain.gpus.max
        return sum(self._gpus.values()) if most is None else most

    # --- what happens -------------------------------------------------------------------------------------

    def lose(self, node: NodeName) -> bool:
        """The node and what runs there are gone. False: it was gone already."""
        if node in self.down:
            return False
        self.down.add(node)
        for job, known in self._jobs.items():
            if node in known.run.allocation:
                self._leave(known, self._checkpoint(known.run))
                self._lost.add(job)
        return True

    def regain(self, node: NodeName) -> bool:
        """False: it was there."""
        there = node not in self.down
        self.down.discard(node)
        return not there

    def _checkpoint(self, run: SimulatedJob) -> float:
        """Iterations that the newest complete checkpoint of a job that runs holds."""
        done = run.done_at(self.now_s)
        each = min(CHECKPOINT_S * run.rate, run.total / 10)
        return run.done + floor((done - run.done) / each) * each if each > 0 else run.done

    def _leave(self, known: KnownJob, kept: float) -> None:
        """With so many iterations in its newest complete checkpoint."""
        run = known.run
        self._world.stop(run, self.now_s)
        self._held.subtract(run.last)
        self._change(known)
        run.done = kept
        self._kept[run.plain.name] = CheckpointMark(known.epoch, kept, self.now_s)

    # --- what is asked ------------------------------------------------------------------------------------

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        known = self._job(job)
        if epoch <= known.epoch:
            return  # asked again, or late: the fence
        if known.run.finished_s is not None and not known.run.allocation and known.shown is None:
            raise TryLater(f"job {job} has just ended")
        self._closed(allocation)
        self.obey(job, allocation, epoch)

    def obey(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Start it, whoever says so."""
        known = self._job(job)
        run = known.run
        if self._forgetful:
            run.done = 0.0
        kept = self._kept.get(job)
        self.invariants.starts(run, allocation, self._held, 0.0 if kept is None else kept.step, self.now_s)
        self._world.start(run, dict(allocation), self.now_s)
        self._held.update(run.allocation)
        self._change(known)
        self._lost.discard(job)
        known.epoch, known.stopped = max(epoch, known.epoch), False

    def collide(self, job: JobId, allocation: Allocation) -> None:
        """A second copy of it on GPUs that others hold."""
        run, held = self._jobs[job].run, self._held.copy()
        held.subtract(run.allocation)
        alone = replace(run, allocation=EMPTY, finished_s=None, done=run.total)
        self.invariants.starts(alone, allocation, held, 0.0, self.now_s)

    def start_late(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """A start that was on its way: the cluster takes it where there is room still."""
        known = self._job(job)
        if known.run.finished_s is not None or known.run.allocation or epoch <= known.epoch:
            return
        if all(gpus <= self._gpus[n] - self._held[n] for n, gpus in allocation.items()) and not self._gone(allocation):
            self.obey(job, allocation, epoch)

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        known = self._job(job)
        if not known.run.allocation or job in self._leaving:
            return
        done, epoch = known.run.done_at(self.now_s), known.epoch

        def left() -> None:
            self._leaving.discard(job)
            if known.run.allocation and known.epoch == epoch:  # nothing else has ended it meanwhile
                self._leave(known, done)
                known.stopped = True

        if not self._leave_s:
            left()
            return
        self._leaving.add(job)
        self._later(self._leave_s, left)

    def _closed(self, allocation: Allocation) -> None:
        if gone := self._gone(allocation):
            raise TryLater(f"{', '.join(gone)} is down")

    def _gone(self, allocation: Allocation) -> Sequence[NodeName]:
        return sorted(self.down & allocation.keys())
