"""The simulated cluster on a bad day: nodes go and come back, jobs fall back to their checkpoints, and an arbiter in
charge is obeyed, so that what it does wrong is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import floor

from horae.elastic.protocol import EXIT_STOPPED, State
from horae.elastic.supervisor.departure import Departure, Pressure
from horae.elastic.supervisor.verdict import End, judge
from horae.port import CheckpointMark, JobId, JobState, Observation, ObservedJob, TryLater
from horae.sim.engine.port import KnownJob, SimPort
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.sim.faults.schedule import LATEST_S
from horae.sim.faults.watch import Invariants
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Cluster, Health, Node, NodeName, Seconds

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
        trusting: bool = False,
    ) -> None:
        """`later` does something in so many seconds; `spawn_s`: how long a job that is started does not run yet;
        `leave_s`: how long a job that is asked to leave holds its GPUs; `forgetful`: jobs start anew, whatever they
        have kept; `trusting`: they start from what they kept last, whether it is whole or not."""
        super().__init__(world, cluster)
        self.down: set[NodeName] = set()
        self.invariants = Invariants(dict(self._gpus))
        self.specs: dict[JobId, JobSpec] = {}
        self.telling = False  #: whether it shows the specifications, as clusters do that hold them
        self.misleading_until_s: Seconds = -LATEST_S  #: an arbiter may not know better
        self._kept: dict[JobId, CheckpointMark] = {}  #: the newest complete checkpoint
        self._lost: set[JobId] = set()
        self._failed: set[JobId] = set()
        self._torn: set[JobId] = set()  #: jobs whose next checkpoint will be none
        self._deaf: set[JobId] = set()  #: jobs that hear nothing but SIGKILL
        self._forgetful, self._trusting = forgetful, trusting
        self._later, self._spawn_s, self._leave_s = later, spawn_s, leave_s
        self._leaving: dict[JobId, Departure] = {}  #: as their supervisors have it
        self._failures: Counter[JobId] = Counter()  #: and count
        self._unreached: Counter[NodeName] = Counter()  #: GPUs of workers that ran on nodes as these were lost
        self._left: Counter[NodeName] = Counter()  #: GPUs that such workers hold still where the node is back

    def observe(self) -> Observation:
        seen = super().observe()
        return replace(seen, nodes=tuple(map(self._node, seen.nodes)))

    def _node(self, node: Node) -> Node:
        if node.name in self.down:
            return replace(node, health=Health.DOWN)
        left = self._left[node.name]
        return replace(node, foreign=node.foreign + left) if left else node

    def _shown(self, job: JobId, known: KnownJob) -> ObservedJob:
        shown = super()._shown(job, known)
        if (kept := self._kept.get(job)) is not None:
            shown = replace(shown, checkpoint=kept)
        if self.telling:
            shown = replace(shown, spec=self.specs[job])
        if shown.state is JobState.RUNNING:
            return self._shown_running(shown)
        if job in self._failed:
            return replace(shown, state=JobState.FAILED, exit_code=1)
        return replace(shown, state=JobState.LOST) if job in self._lost and shown.state.startable else shown

    @property
    def claimed(self) -> str | None:
        """The token of whom it obeys."""
        return self._claim

    def knows(self, job: JobId) -> bool:
        return job in self._jobs

    def unseen(self, jobs: Iterable[JobId]) -> None:
        """These were not shown after all."""
        for job in jobs:
            self._jobs[job].shown = None

    def running(self) -> Iterator[JobId]:
        return (job for job, known in self._jobs.items() if known.run.allocation)

    def ending(self, job: JobId) -> JobState:
        """How a job that is over has ended."""
        return self._shown(job, self._jobs[job]).state

    def _shown_running(self, shown: ObservedJob) -> ObservedJob:
        if shown.id in self._leaving:
            return replace(shown, state=JobState.STOPPING)
        if self.now_s < shown.since_s + self._spawn_s:
            return replace(shown, state=JobState.STARTING)
        return replace(shown, since_s=shown.since_s + self._spawn_s) if self._spawn_s else shown

    def runs_on(self, allocation: Allocation, *, beside: JobId) -> bool:
        """Whether another job holds GPUs that this allocation cannot have beside it."""
        mine = self._jobs[beside].run.allocation
        room = {node: self._gpus[node] - self._held[node] + mine.get(node, 0) for node in allocation}
        return any(gpus > room[node] for node, gpus in allocation.items())

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
                self._unreached[node] += known.run.allocation[node]
                self._leave(known, self._checkpoint(known.run))
                self._lost.add(job)
        return True

    def regain(self, node: NodeName, by_s: Seconds) -> bool:
        """With the workers that nobody could reach: they hold its GPUs for so long still. False: it was there."""
        if node not in self.down:
            return False
        self.down.discard(node)
        left = Counter({node: self._unreached.pop(node, 0)})
        self._left.update(left)
        self._held.update(left)

        def ended() -> None:
            self._left.subtract(left)
            self._held.subtract(left)

        if left[node]:
            self._later(by_s, ended)
        return True

    def _checkpoint(self, run: SimulatedJob) -> float:
        """Iterations that the newest complete checkpoint of a job that runs holds."""
        done = run.done_at(self.now_s)
        each = min(CHECKPOINT_S * run.rate, run.total / 10)
        return run.done + floor((done - run.done) / each) * each if each > 0 else run.done

    def _leave(self, known: KnownJob, kept: float) -> None:
        """With so many iterations in its newest checkpoint, which may not be whole: then in the one it came with."""
        run = known.run
        job, came_with = run.plain.name, run.done
        self._world.stop(run, self.now_s)
        self._held.subtract(run.last)
        self._change(known)
        self._leaving.pop(job, None)
        self._deaf.discard(job)
        whole = came_with if job in self._torn else kept
        self._torn.discard(job)
        run.done = kept if self._trusting else whole
        self._kept[job] = CheckpointMark(known.epoch, whole, self.now_s)

    def tear(self, job: JobId) -> None:
        """Its next checkpoint is half-written, or its disk is full."""
        self._torn.add(job)

    def dies(self, job: JobId, how: str | None) -> None:
        """A job that runs ends by itself, by its owner's own command, by the site; or it hears nobody any more."""
        known = self._jobs[job]
        if how == "deaf":
            self._deaf.add(job)
        elif how == "lost":
            self._leave(known, self._checkpoint(known.run))
            self._lost.add(job)
        else:
            if how == "failed":
                self._failed.add(job)
            super().cancel(job)

    # --- what is asked ------------------------------------------------------------------------------------

    def submit(self, job: JobId, spec: JobSpec) -> None:
        super().submit(job, spec)
        self.specs.setdefault(job, spec)

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        known = self._job(job)
        if epoch <= known.epoch:
            return  # asked again, or late: the fence
        if known.run.over_s is not None and known.shown is None:
            raise TryLater(f"job {job} has just ended")
        if self.now_s < self.misleading_until_s:
            self.refuse(known, allocation)
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
        alone = replace(run, allocation=EMPTY, finished_s=None, lost_s=None)
        self.invariants.starts(alone, allocation, held, run.done, self.now_s)

    def start_late(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """A start that was on its way: the cluster takes it where there is room still."""
        known = self._job(job)
        if epoch > known.epoch and not self._gone(allocation):
            with suppress(TryLater):
                self.refuse(known, allocation)
                self.obey(job, allocation, epoch)

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        known = self._job(job)
        if not known.run.allocation:
            return
        if job in self._leaving:
            self._leaving[job].ask(self.now_s, grace_s)
            return
        departure = self._leaving[job] = Departure(grace_s)
        departure.ask(self.now_s)
        self._press(known, departure)

    def _press(self, known: KnownJob, departure: Departure) -> None:
        """What its supervisor does by now, and its trainer makes of it."""
        run = known.run
        job = run.plain.name
        if self._leaving.get(job) is not departure:
            return  # something else has ended it meanwhile
        deaf = job in self._deaf
        for step in departure.press(self.now_s, failed=False):
            if step == Pressure.KILLED or (step == Pressure.TERMINATED and not deaf):
                return self._ended(known, departure, self._checkpoint(run), 137)
            if step == Pressure.ASKED and not deaf:
                done = run.done_at(self.now_s)
                self._soon(self._leave_s, partial(self._ended, known, departure, done, EXIT_STOPPED))
        due_s = departure.due()
        if due_s is not None and (deaf or self._leave_s >= departure.grace_s):
            self._later(due_s - self.now_s, partial(self._press, known, departure))

    def _soon(self, by_s: Seconds, deed: Callable[[], None]) -> None:
        if by_s:
            self._later(by_s, deed)
        else:
            deed()

    def _ended(self, known: KnownJob, departure: Departure, kept: float, code: int) -> None:
        """Its gang has ended: what its supervisor makes of that."""
        run = known.run
        job = run.plain.name
        if self._leaving.get(job) is not departure:
            return
        torn = job in self._torn
        self._leave(known, kept)
        ending = judge(
            End(
                code,
                stop=True,
                killed=departure.overdue,
                complete=run.done > 0 or not torn,
                failures=self._failures[job],
                retries=self.specs[job].retries,
            )
        )
        self._failures[job] += ending.failure
        known.stopped = ending.state == State.STOPPED
        if not known.stopped:
            self._failed.add(job)
            super().cancel(job)

    def _closed(self, allocation: Allocation) -> None:
        if gone := self._gone(allocation):
            raise TryLater(f"{', '.join(gone)} is down")

    def _gone(self, allocation: Allocation) -> Sequence[NodeName]:
        return sorted(self.down & allocation.keys())
