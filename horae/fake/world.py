"""What is true in the fake cluster: nodes, jobs and time. Knows nothing of connections and their faults.

Time is whatever `clock` says; nothing moves between two looks, `advance` (called by every look and every action)
replays in order what was due meanwhile. What an arbiter must never do is written down in `refusals` (it asked for
GPUs that were in use) and `violations` (it broke a rule of the cluster).
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from horae.fake.program import Program, ProgramRun, iteration_s, program_of
from horae.port import Absence, Blocked, BlockKind, CheckpointMark, Due, JobId, JobState, Observation, ObservedJob
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Gpus, Health, Limits, Node, NodeName, Seconds

CHECKPOINTED = 86
KILLED = 137


@dataclass(slots=True, eq=False)
class FakeJob:
    id: JobId
    spec: JobSpec
    program: Program
    submitted_s: Seconds
    state: JobState = JobState.QUEUED
    epoch: int = 0
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    since_s: Seconds = 0.0
    exit_code: int | None = None
    checkpoint: CheckpointMark | None = None
    blocked: Blocked | None = None
    waiting: tuple[Allocation, int] | None = None  #: a start that the cluster took and does not let run
    run: ProgramRun | None = None
    log: bytearray = field(default_factory=bytearray)
    failures: int = 0
    due_s: Seconds | None = None
    stopped_step: int | None = None  #: where it was when it was asked to stop
    stopped_s: Seconds = 0.0
    old_nodes: frozenset[NodeName] = frozenset()
    cancelling: bool = False
    released: bool = False
    reason: str = ""
    says: str = ""  #: its supervisor's word while it runs
    gpu_use: dict[str, float] = field(default_factory=dict)


class World:
    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        clock: Callable[[], Seconds] = time.time,
        limits: Limits | None = None,
        program: Program | None = None,
        owns_submission: bool = True,
        keeps_specs: bool = True,
        restart_gap_s: Seconds = 0.0,
        queues_when_full: bool = False,
    ) -> None:
        """`keeps_specs` False: as YARN, the cluster cannot say what a job is. `queues_when_full`: as Slurm, a start
        on GPUs that are in use is taken and waits, instead of being refused."""
        self.clock, self.lock = clock, threading.RLock()
        self.nodes = {node.name: node for node in nodes}
        self.shown_gpus: dict[NodeName, Gpus] = {}  #: lies about a node's size
        self.foreign: Counter[NodeName] = Counter({n.name: n.foreign for n in nodes})
        self.limits, self.program = limits or Limits(), program or Program()
        self.owns_submission, self.keeps_specs = owns_submission, keeps_specs
        self.restart_gap_s, self.queues_when_full = restart_gap_s, queues_when_full
        self.jobs: dict[JobId, FakeJob] = {}
        self.held: Counter[NodeName] = Counter()
        self.unfinished: dict[JobId, str] = {}  #: what an earlier request of these jobs still needs, in words
        self.followed: list[JobId] = []  #: whom a follow-up was done for, in order
        self.tenant_limits: dict[str, Gpus] = {}
        self.blocks: dict[JobId, Blocked] = {}  #: starts of these jobs are taken and do not run
        self.claim: str | None = None
        self.away: tuple[Absence, ...] = ()
        self.order: tuple[JobId, ...] = ()
        self.order_asked: tuple[JobId, ...] = ()  #: whatever came of it
        self.refusals: list[str] = []
        self.violations: list[str] = []
        self._due: list[tuple[Seconds, int, FakeJob]] = []
        self._effects: list[tuple[Seconds, int, Callable[[], None]]] = []
        self._count = 0
        self._now_s = clock()

    # --- time ---------------------------------------------------------------------------------------------

    def now_s(self) -> Seconds:
        return self._now_s

    def advance(self) -> Seconds:
        """Replay what was due since the last look; returns the time it is now."""
        until = max(self.clock(), self._now_s)
        while True:
            job_due = self._due[0][0] if self._due else float("inf")
            effect_due = self._effects[0][0] if self._effects else float("inf")
            if min(job_due, effect_due) > until:
                break
            if effect_due <= job_due:
                self._now_s, _, effect = heapq.heappop(self._effects)
                effect()
            else:
                due_s, _, job = heapq.heappop(self._due)
                if job.due_s == due_s:
                    self._now_s, job.due_s = due_s, None
                    self._step(job)
        self._now_s = until
        return until

    def later(self, delay_s: Seconds, effect: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._effects, (self._now_s + delay_s, self._count, effect))

    def _at(self, job: FakeJob, due_s: Seconds) -> None:
        job.due_s = due_s
        self._count += 1
        heapq.heappush(self._due, (due_s, self._count, job))

    def _step(self, job: FakeJob) -> None:
        if job.state is JobState.STARTING:
            self._run(job)
        elif job.state is JobState.RUNNING:
            self._finish(job)
        elif job.state is JobState.STOPPING:
            self._left(job)

    # --- a job's life -------------------------------------------------------------------------------------

    def submit(self, job: JobId, spec: JobSpec) -> FakeJob:
        self.jobs[job] = fake = FakeJob(job, spec, program_of(spec, self.program), self._now_s, since_s=self._now_s)
        return fake

    def free(self, node: NodeName) -> Gpus:
        return self.nodes[node].gpus - self.foreign[node] - self.held[node]

    def obstacle(self, job: FakeJob, allocation: Allocation) -> Blocked | None:
        """Why the cluster does not let this start run now."""
        if job.id in self.blocks:
            return self.blocks[job.id]
        tenant = job.spec.tenant or job.spec.owner
        limit = self.tenant_limits.get(tenant)
        if limit is not None:
            theirs = sum(
                sum(j.allocation.values()) for j in self.jobs.values() if (j.spec.tenant or j.spec.owner) == tenant
            )
            if theirs + sum(allocation.values()) > limit:
                return Blocked(BlockKind.LIMIT, f"MaxTRESPerUser: {tenant} may hold {limit} GPUs", limit)
        for node, gpus in allocation.items():
            if self.nodes[node].health is not Health.UP:
                return Blocked(BlockKind.NODE, f"{node} is {self.nodes[node].health}")
            if gpus > self.free(node):
                kind = BlockKind.FOREIGN if self.foreign[node] else BlockKind.GANG
                return Blocked(kind, f"{node} has {self.free(node)} of {gpus} GPUs")
        return None

    def grant(self, job: FakeJob, allocation: Allocation, epoch: int) -> None:
        """The start takes effect: the gang is being formed, or it waits for what stands in its way."""
        job.blocked = self.obstacle(job, allocation)
        if job.blocked is not None:
            job.waiting = (dict(allocation), epoch)
            self._into(job, JobState.STARTING)
            return
        if job.old_nodes & allocation.keys() and self._now_s < job.stopped_s + self.restart_gap_s:
            self.violations.append(f"{job.id} was restarted on {sorted(allocation)} within the restart gap")
        job.waiting, job.epoch, job.exit_code, job.stopped_step = None, epoch, None, None
        self._hold(job, allocation)
        self._into(job, JobState.STARTING)
        self._at(job, self._now_s + job.program.start_s)

    def retry_waiting(self) -> None:
        """Starts that wait get their GPUs as soon as nothing stands in their way."""
        for job in list(self.jobs.values()):
            if job.waiting is not None:
                allocation, epoch = job.waiting
                job.blocked = self.obstacle(job, allocation)
                if job.blocked is None:
                    self.grant(job, allocation, epoch)

    def _run(self, job: FakeJob) -> None:
        gpus = sum(job.allocation.values())
        types = {self.nodes[node].gpu_type for node in job.allocation}
        first = int(job.checkpoint.step) if job.checkpoint else 0
        job.run = ProgramRun(
            job.program,
            job.epoch,
            first,
            gpus,
            iteration_s(job.spec, job.program, types, gpus),
            self._now_s + job.program.warmup_s,
            fails=bool(job.program.fail_at) and job.failures < job.program.fail_runs,
        )
        self._into(job, JobState.RUNNING)
        self._at(job, job.run.ends_s)

    def stop(self, job: FakeJob, grace_s: Seconds) -> None:
        """The request to checkpoint and leave, as its program takes it."""
        if job.waiting is not None:
            job.waiting = job.blocked = None
            self._into(job, JobState.STOPPED if job.epoch else JobState.QUEUED)
        elif job.state in (JobState.STARTING, JobState.RUNNING):
            leaves_s = grace_s if job.program.ignores else min(job.program.stop_s, grace_s)
            if job.run is not None:
                job.stopped_step = job.run.step_at(self._now_s)
            self._into(job, JobState.STOPPING)
            self._at(job, self._now_s + leaves_s)

    def cancel(self, job: FakeJob) -> None:
        job.waiting = job.blocked = None
        if job.state.holds and job.allocation:
            job.cancelling = True
            self._into(job, JobState.STOPPING)
            self._at(job, self._now_s + job.program.stop_s)
        elif not job.state.ended:
            self._into(job, JobState.CANCELLED)

    def _finish(self, job: FakeJob) -> None:
        assert job.run is not None
        if job.run.fails:
            job.failures += 1
            over = job.failures > job.spec.retries
            self._leave(job, JobState.FAILED if over else JobState.LOST, job.program.fail_code)
        else:
            self._leave(job, JobState.COMPLETED, 0)

    def _left(self, job: FakeJob) -> None:
        if job.cancelling:
            self._leave(job, JobState.CANCELLED, KILLED)
        elif job.program.ignores:
            self._leave(job, JobState.STOPPED, KILLED)
        else:
            if job.run is not None and job.stopped_step is not None:
                if job.stopped_step >= job.run.last_step and not job.run.fails:
                    self._leave(job, JobState.COMPLETED, 0)
                    return
                job.checkpoint = CheckpointMark(job.epoch, job.stopped_step, self._now_s)
            self._leave(job, JobState.STOPPED, CHECKPOINTED)

    def _leave(self, job: FakeJob, state: JobState, code: int) -> None:
        self.flush(job)
        job.checkpoint = self.checkpoint(job)
        job.exit_code, job.run, job.cancelling = code, None, False
        job.old_nodes, job.stopped_s = frozenset(job.allocation), self._now_s
        self._hold(job, EMPTY)
        self._into(job, state)
        job.due_s = None
        self.retry_waiting()
        if job.released:
            del self.jobs[job.id]

    def lose(self, job: FakeJob) -> None:
        """Ended by the cluster: what was not checkpointed is gone."""
        if job.state.holds:
            job.waiting = job.blocked = None
            self._leave(job, JobState.CANCELLED if job.cancelling else JobState.LOST, KILLED)

    def _into(self, job: FakeJob, state: JobState) -> None:
        if job.state is not state:
            job.state, job.since_s = state, self._now_s

    def _hold(self, job: FakeJob, allocation: Allocation) -> None:
        self.held.subtract(job.allocation)
        job.allocation = dict(allocation)
        self.held.update(job.allocation)

    # --- looking ------------------------------------------------------------------------------------------

    def step_of(self, job: FakeJob) -> int | None:
        if job.run is None:
            return None
        frozen = job.stopped_step if not job.program.ignores else None
        return job.run.step_at(self._now_s) if frozen is None else frozen

    def flush(self, job: FakeJob) -> None:
        """Bring its log up to now."""
        step = self.step_of(job)
        if job.run is not None and step is not None:
            job.log += job.run.log_until(step)

    def checkpoint(self, job: FakeJob) -> CheckpointMark | None:
        step = self.step_of(job)
        own = job.run.own_checkpoint(step) if job.run is not None and step is not None else None
        if own is None or (job.checkpoint is not None and job.checkpoint.step >= own):
            return job.checkpoint
        assert job.run is not None
        written_s = job.run.since_s + (own - job.run.first_step) * job.run.iteration_s
        return CheckpointMark(job.epoch, own, written_s)

    def observe(self) -> Observation:
        foreign = Counter(self.foreign)
        for job in self.jobs.values():
            if job.released:
                foreign.update(job.allocation)
        nodes = tuple(
            replace(n, gpus=self.shown_gpus.get(n.name, n.gpus), foreign=foreign[n.name]) for n in self.nodes.values()
        )
        jobs = tuple(self._observed(job) for job in self.jobs.values() if not job.released)
        due = tuple(Due(job, what) for job, what in sorted(self.unfinished.items()))
        lost = self.order != self.order_asked
        return Observation(self._now_s, nodes, jobs, self.claim, due=due, order_lost=lost, away=self.away)

    def _observed(self, job: FakeJob) -> ObservedJob:
        return ObservedJob(
            job.id,
            job.state,
            job.epoch,
            job.allocation,
            job.since_s,
            job.exit_code,
            spec=job.spec if self.keeps_specs else None,
            blocked=job.blocked,
            checkpoint=self.checkpoint(job),
            submitted_s=job.submitted_s if self.keeps_specs else None,
            gpu_use=dict(job.gpu_use),
            native="CANCELLING" if job.cancelling else job.says if job.state is JobState.RUNNING else "",
        )

    # --- what happens to a cluster ------------------------------------------------------------------------

    def set_health(self, node: NodeName, health: Health) -> None:
        self.nodes[node] = replace(self.nodes[node], health=health)
        if health is Health.DOWN:
            for job in list(self.jobs.values()):
                if node in job.allocation:
                    self.lose(job)
        self.retry_waiting()

    def set_foreign(self, node: NodeName, gpus: Gpus) -> None:
        """Jobs that are not ours hold `gpus` there; ours that no longer fit are preempted, newest first."""
        self.foreign[node] = gpus
        for job in reversed(list(self.jobs.values())):
            if self.free(node) >= 0:
                break
            if node in job.allocation:
                self.lose(job)
        self.retry_waiting()
