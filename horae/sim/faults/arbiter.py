"""One life of the arbiter: its own code, over a disk that outlives it and a connection on which things go wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from math import inf
from random import Random
from typing import Any
from zlib import crc32

from horae.arbiter.admit.models import standard
from horae.arbiter.core import Core, Stage
from horae.arbiter.decide.policy_runner import Answer, Question
from horae.arbiter.driver import Driver
from horae.arbiter.execute.executor import Executor
from horae.arbiter.observe.measurements import Profiles, ReadLog
from horae.config import Config
from horae.journal import Clock, Draft, Event, events
from horae.journal.codec import plain, text
from horae.journal.events import Verb
from horae.journal.form import Kind
from horae.journal.measured import Measurement
from horae.port import Capabilities, JobId, LogChunk, Never, Observation, TryLater
from horae.sim.engine.arbiter import WorldProgress, decision_of
from horae.sim.engine.asking import AskedPolicy
from horae.sim.engine.memory_journal import MemoryJournal
from horae.sim.engine.world import SimulatedJob
from horae.sim.faults import bad_policies
from horae.sim.faults.cluster import FaultyCluster
from horae.sim.faults.hazards import Hazards
from horae.sim.faults.schedule import LATEST_S, FaultKind, PlannedFault
from horae.sim.faults.watch import InvariantBroken
from horae.spec import JobSpec
from policy.model import Allocation, Decision, JobName, Seconds

#: Events that a journal has when its next writer stores its ledger in their place.
COMPACTED_AT = 500


class BrokenRule(StrEnum):
    """What an arbiter does wrong on purpose, so that the watch is seen to be awake."""

    NO_INTENT = "no-intent"
    NO_FENCE = "no-fence"
    DOUBLE_START = "double-start"
    OLD_CHECKPOINT = "old-checkpoint"
    OVER_LIMIT = "over-limit"
    FORGET_JOB = "forget-job"
    STARVE = "starve"
    TORN_CHECKPOINT = "torn-checkpoint"
    FORGET_ORDER = "forget-order"
    BELIEVE_POLICY = "believe-policy"
    WITHDRAW = "withdraw"


#: What each does, and the invariant that finds it.
BREAKS: Mapping[BrokenRule, tuple[str, str]] = {
    BrokenRule.NO_INTENT: ("acts without its intent in the journal", "intent"),
    BrokenRule.NO_FENCE: ("starts come twice, and are obeyed though their time is over", "gpu-twice"),
    BrokenRule.DOUBLE_START: ("starts a job again that it has just started", "doubled"),
    BrokenRule.OLD_CHECKPOINT: ("starts jobs from nothing though they have kept something", "old-state"),
    BrokenRule.OVER_LIMIT: ("gives more GPUs than the job may have", "over-limit"),
    BrokenRule.FORGET_JOB: ("takes the first job in and does not write it down", "lost"),
    BrokenRule.STARVE: ("never starts the first job", "starved"),
    BrokenRule.TORN_CHECKPOINT: ("starts jobs from checkpoints that are not whole", "torn-state"),
    BrokenRule.FORGET_ORDER: ("takes an owner's order and does not write it down", "disobeyed"),
    BrokenRule.BELIEVE_POLICY: ("carries out whatever a policy says on a bad day", "over-limit"),
    BrokenRule.WITHDRAW: ("withdraws each start as soon as it is made", "progress"),
}
#: What its journal does not get.
DROPPED: Mapping[BrokenRule, tuple[type[Draft], ...]] = {
    BrokenRule.NO_INTENT: (events.Intent,),
    BrokenRule.FORGET_ORDER: (events.CancelAsked, events.JobHeld),
}


@dataclass(slots=True)
class KeptDisk:
    """What outlives the arbiter: its events as text. (A killed program leaves all that it wrote; the power stays.)"""

    events: list[tuple[Event, str]] = field(default_factory=list)
    intents: Counter[tuple[JobId, str]] = field(default_factory=Counter)
    calls: Counter[tuple[JobId, str]] = field(default_factory=Counter)
    unreadable: str | None = None  #: a journal that was found to be, and put away

    def copied(self) -> KeptDisk:
        return KeptDisk([*self.events], Counter(self.intents), Counter(self.calls))

    def damaged(self, how: str | None, chance: Random) -> None:
        """Gone, unreadable, as a copy of some time before has it, or without its last few events."""
        left = 0
        if how == "old":
            left = chance.randrange(len(self.events) + 1)
        elif how == "cut":
            left = max(len(self.events) - chance.randint(1, 5), 0)
        self.unreadable = "journal.db.unreadable" if how == "unreadable" else None
        del self.events[left:]

    def read(self) -> Iterable[Event]:
        """Events as they are read back."""
        read = json.loads(f"[{','.join(data for _, data in self.events)}]")  # at once: births are many
        kept = zip(self.events, read, strict=True)
        return [Event(e.seq, e.wall_s, e.at_s, e.kind, data, e.job, e.pool) for (e, _), data in kept]


class KeptJournal(MemoryJournal):
    """Events go to a `KeptDisk`; it may be full, and its writer may be killed before and after."""

    def __init__(self, clock: Clock, disk: KeptDisk, hazards: Hazards, drops: tuple[type[Draft], ...] = ()) -> None:
        super().__init__(clock, disk.read())
        self.quarantined, disk.unreadable = disk.unreadable, None
        if len(disk.events) > COMPACTED_AT:
            (mark,) = super().append([events.Compacted(plain(self.ledger))])
            disk.events = [(mark, text(mark.data))]
        self._disk, self._hazards, self._drops = disk, hazards, drops

    def append(self, drafts: Iterable[Draft], *, durable: bool = False) -> tuple[Event, ...]:
        drafts = [draft for draft in drafts if not isinstance(draft, self._drops)]
        if not drafts:
            return ()
        self._hazards.write()
        self._hazards.crossing("before-write")
        fresh = super().append(drafts, durable=durable)
        disk = self._disk
        disk.events += [(event, text(event.data)) for event in fresh]
        for event in fresh:
            if event.kind is Kind.INTENT and event.job is not None:
                disk.intents[event.job, event.data["verb"]] += 1
        self._hazards.crossing("after-write")
        return fresh


class FaultyConnection:
    """The port as the arbiter has it."""

    def __init__(self, cluster: FaultyCluster, disk: KeptDisk, hazards: Hazards, broken: BrokenRule | None) -> None:
        self._cluster, self._disk, self._hazards, self._broken = cluster, disk, hazards, broken
        self._mislead: Callable[[Observation], Observation] | None = None
        self._misled_until_s: Seconds = 0.0  #: another arbiter may be misled for longer, by what it saw itself

    def capabilities(self) -> Capabilities:
        return self._cluster.capabilities()

    def observe(self) -> Observation:
        hazards, cluster = self._hazards, self._cluster
        hazards.answers("looks")
        seen = cluster.observe()
        if (job := next(cluster.running(), None)) and hazards.of(FaultKind.BAD_CHECKPOINT) is not None:
            cluster.tear(job)
        true_again = hazards.now_s >= cluster.misleading_until_s + LATEST_S  # no two without a look at what is
        if true_again and (fault := hazards.of(FaultKind.BAD_LOOK)) is not None:
            self._misled_until_s = cluster.misleading_until_s = hazards.now_s + (fault.by_s or 0.0)
            self._mislead = partial(_as_it_was, seen) if fault.how == "old" else partial(_in_part, fault)
        if self._mislead is None or hazards.now_s >= self._misled_until_s:
            return seen
        shown = self._mislead(seen)
        told = {job.id: job for job in shown.jobs}
        cluster.unseen(job.id for job in seen.jobs if told.get(job.id) != job)
        return shown

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        return self._cluster.read_log(job, offset, limit)

    def claim(self, token: str) -> None:
        self._bounded(lambda: self._cluster.claim(token))

    def heartbeat(self) -> None:
        self._bounded(self._cluster.heartbeat)

    def submit(self, job: JobId, spec: JobSpec) -> None:
        self._act(job, Verb.SUBMIT, lambda: self._cluster.submit(job, spec))

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        if (refused := self._hazards.refusal()) is not None:
            self._asked(job, Verb.START)
            raise refused
        if self._broken is BrokenRule.OVER_LIMIT:
            allocation = self._too_much(job, allocation)

        def again() -> None:
            self._cluster.start_late(job, allocation, epoch)

        self._act(job, Verb.START, lambda: self._cluster.start(job, allocation, epoch), again)
        self._dies(job)
        if self._broken is BrokenRule.NO_FENCE:
            self._hazards.unfenced.append((job, allocation))
        if self._broken is BrokenRule.DOUBLE_START:
            self._cluster.start(job, allocation, epoch + 1)
        if self._broken is BrokenRule.WITHDRAW:
            self._cluster.checkpoint_and_stop(job, 0.0)

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        self._dies(job)
        self._act(job, Verb.STOP, lambda: self._cluster.checkpoint_and_stop(job, grace_s))

    def cancel(self, job: JobId) -> None:
        self._act(job, Verb.CANCEL, lambda: self._cluster.cancel(job))

    def release(self, job: JobId) -> None:
        self._cluster.release(job)

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        self._cluster.reshape(job, allocation, epoch)

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, Never]:
        return self._cluster.follow_up(jobs)

    def set_order(self, jobs: Sequence[JobId]) -> None:
        self._cluster.set_order(jobs)

    def set_reason(self, job: JobId, text: str) -> None:
        self._cluster.set_reason(job, text)

    def close(self) -> None:
        """Nothing is held open."""

    # --- what goes wrong ----------------------------------------------------------------------------------

    def _bounded(self, deed: Callable[[], None]) -> None:
        self._hazards.crossing("before-call")
        self._hazards.answers("calls")
        deed()
        self._hazards.crossing("after-call")

    def _asked(self, job: JobId, verb: Verb) -> None:
        """Each call has its own intent on record."""
        key = (job, verb.value)
        self._disk.calls[key] += 1
        if self._disk.calls[key] > self._disk.intents[key]:
            text = f"{verb.value} is asked for without an intent on record"
            raise InvariantBroken("intent", self._hazards.now_s, job, text)

    def _act(
        self,
        job: JobId,
        verb: Verb,
        deed: Callable[[], None],
        again: Callable[[], None] | None = None,
    ) -> None:
        """`again`: the same, as it comes late."""
        self._hazards.crossing("before-call")
        self._asked(job, verb)
        self._hazards.answers("calls")
        fault = self._hazards.of_call()
        if fault is not None and fault.kind is FaultKind.LATE_ANSWER:
            self._hazards.later(fault.by_s or 0.0, again or deed)
            raise TryLater("no answer yet")
        deed()
        self._hazards.crossing("after-call")
        if fault is None:
            return
        if fault.kind is FaultKind.LOST_ANSWER:
            raise TryLater("the answer was lost")
        self._hazards.later(fault.by_s or 0.0, again or deed)

    def _dies(self, job: JobId) -> None:
        """In the middle of a move."""
        if job in self._cluster.running() and (fault := self._hazards.of(FaultKind.JOB_DIES)) is not None:
            self._cluster.dies(job, fault.how)

    def _too_much(self, job: JobId, allocation: Allocation) -> Allocation:
        more, node = dict(allocation), next(iter(allocation))
        most = self._cluster.most(job)
        more[node] += most - sum(more.values()) + 1
        return more


def _as_it_was(before: Observation, seen: Observation) -> Observation:
    """A cluster that stands on what it knew some time ago."""
    return replace(before, now_s=seen.now_s)


def _in_part(fault: PlannedFault, seen: Observation) -> Observation:
    """Half of the jobs."""
    odd = [job for job in seen.jobs if crc32(f"{fault.at!r}/{job.id}".encode()) % 2]
    return replace(seen, jobs=tuple(odd))


#: How an arbiter learns what jobs do, from those that are active and the clock.
Learning = Callable[[Mapping[JobName, SimulatedJob], Callable[[], Seconds]], Profiles]


class _Lies:
    """What is learnt of jobs, unless one lies."""

    def __init__(
        self, told: Profiles, active: Mapping[JobName, SimulatedJob], hazards: Hazards, lies: dict[str, Any]
    ) -> None:
        self._told, self._active, self._hazards, self._lies = told, active, hazards, lies
        self.read_s, self.restore = told.read_s, told.restore

    def update(self, observation: Observation, read_log: ReadLog) -> Mapping[JobId, Measurement]:
        told = dict(self._told.update(observation, read_log))
        now_s = self._hazards.now_s
        running = sorted(job for job in told if self._lies.get(job, 0.0) <= now_s and self._active[job].allocation)
        if running and (fault := self._hazards.of(FaultKind.LIE)) is not None:
            self._lies[running[0]] = now_s + (fault.by_s or 0.0)
        for job, until_s in self._lies.items():
            if job in told and now_s < until_s:
                plain = self._active[job].plain
                rates = {t: {g: 1e6 * rate for g, rate in table.items()} for t, table in plain.throughput.items()}
                told[job] = Measurement(done=10 * self._active[job].total, rates=rates)
        return told


class _Unfair:
    """The policy in this process; `never`: a job that its answers leave out; `believed`: whatever it says."""

    def __init__(self, asked: AskedPolicy, hazards: Hazards, never: JobName | None, *, believed: bool) -> None:
        self._asked, self._hazards, self._never, self._believed = asked, hazards, never, believed

    def ask(self, question: Question) -> Answer:
        if (fault := self._hazards.of_policy()) is not None:
            return bad_policies.answered(fault, question, self._said, believed=self._believed)
        return Answer(self._said(question))

    def _said(self, question: Question) -> Decision:
        decision = decision_of(question, self._asked.about(question.snapshot))
        if self._never is None:
            return decision
        given = {job: a for job, a in decision.allocation.items() if job != self._never}
        return replace(decision, allocation=given)

    def close(self) -> None:
        """Nothing is held open."""


@dataclass(slots=True)
class ArbiterLife:
    """From a start to its end. Raises JournalStopped where it cannot start."""

    asked: AskedPolicy
    config: Config
    cluster: FaultyCluster
    hazards: Hazards
    disk: KeptDisk
    active: Mapping[JobName, SimulatedJob]
    lies: dict[str, Any]
    broken: BrokenRule | None = None
    never: JobName | None = None
    step_s: Seconds = 0.0  #: the wall clock of its host is ahead by
    learning: Learning = WorldProgress
    core: Core = field(init=False)
    connection: FaultyConnection = field(init=False)
    _driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        def now_s() -> Seconds:
            return self.hazards.now_s

        clock = Clock(lambda: self.hazards.now_s + self.step_s, now_s)
        dropped = () if self.broken is None else DROPPED.get(self.broken, ())
        journal = KeptJournal(clock, self.disk, self.hazards, dropped)
        self.core = Core(self.config, journal, standard())
        self.connection = FaultyConnection(self.cluster, self.disk, self.hazards, self.broken)
        profiles = _Lies(self.learning(self.active, now_s), self.active, self.hazards, self.lies)
        executor = Executor(self.connection, profiles, now_s)
        believed = self.broken is BrokenRule.BELIEVE_POLICY
        self._driver = Driver(self.core, executor, _Unfair(self.asked, self.hazards, self.never, believed=believed))

    @property
    def over(self) -> bool:
        """Another arbiter has the cluster."""
        return self.core.stage is Stage.OVER

    def next_s(self) -> Seconds:
        """When it has something to do, on the world's clock."""
        if self.over:
            return inf
        return self.hazards.now_s + max(self.core.next_s() - self.core.now_s(), 1e-6)

    def tick(self) -> None:
        self._driver.tick()
