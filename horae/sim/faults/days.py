"""Time on bad days: arrivals, ends, faults, late messages and the arbiter's own rounds, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Any

from horae.arbiter.core import Core
from horae.config import Config
from horae.journal import JournalStopped, events
from horae.journal.events import HORAE
from horae.port import JobState
from horae.sim.engine.arbiter import WorldProgress, submission
from horae.sim.engine.asking import AskedPolicy
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.sim.faults.arbiter import ArbiterLife, BrokenRule, KeptDisk, Learning
from horae.sim.faults.cluster import FaultyCluster
from horae.sim.faults.hazards import ArbiterKilled, Hazards
from horae.sim.faults.owners import Owners
from horae.sim.faults.schedule import FaultKind, PlannedFault
from policy.model import JobName, Seconds

#: Nothing runs and nothing is to come for so long: what has not started never will. Longer than any wait of the
#: arbiter's (a job that is lost again and again waits for up to an hour).
STARVED_S: Seconds = 4 * 3600.0
#: After between which times a service manager has started a killed arbiter again.
RESTARTS_S = (0.1, 30.0)
#: An arbiter that could not start, or a user who was turned away, tries again.
AGAIN_S: Seconds = 5.0


class BadDays:
    def __init__(
        self,
        asked: AskedPolicy,
        world: SimulatedWorld,
        arrivals: Sequence[SimulatedJob],
        schedule: Sequence[PlannedFault],
        broken: BrokenRule | None,
        config: Config,
        restarts_s: tuple[Seconds, Seconds] = RESTARTS_S,
        spawn_s: Seconds = 0.0,
        leave_s: Seconds = 0.0,
        learning: Learning = WorldProgress,
    ) -> None:
        """`spawn_s`, `leave_s`: see `FaultyCluster`; `learning`: how the arbiter learns what jobs do."""
        self._asked, self._world, self._broken = asked, world, broken
        self._restarts_s, self._learning = restarts_s, learning
        self._config = config
        self._arrivals, self._schedule = deque(arrivals), deque(schedule)
        self._runs = list(arrivals)
        self._first = arrivals[0].plain.name if arrivals else None
        cluster = asked.settings.cluster
        self.hazards = Hazards()
        self.cluster = FaultyCluster(
            world,
            cluster,
            self.hazards.later,
            spawn_s=spawn_s,
            leave_s=leave_s,
            forgetful=broken is BrokenRule.OLD_CHECKPOINT,
            trusting=broken is BrokenRule.TORN_CHECKPOINT,
        )
        self.rounds = 0
        self._door: deque[SimulatedJob] = deque()  #: jobs that the arbiter has not taken yet
        self._taken: dict[JobName, SimulatedJob] = {}  #: and that have not ended
        self._owners = Owners(self.hazards, self.cluster.invariants, self._taken)
        self._lies: dict[str, Any] = {}
        self._arbiter: ArbiterLife | None = None
        self._deposed: list[ArbiterLife] = []
        self._disk, self._step_s = KeptDisk(), 0.0
        self._start_s: Seconds = 0.0  #: when the arbiter is started, where none lives
        self._busy_s: Seconds = 0.0
        self._fallen = 0  #: faults that had taken effect at the last look

    def play(self) -> None:
        """Until every job has ended, or nothing happens any more. Raises InvariantBroken."""
        while (at_s := self._next_s()) < inf:
            self.hazards.now_s = self.cluster.now_s = max(at_s, self.hazards.now_s)
            if self._world_moves() and self._arbiter is not None:
                self._arbiter.core.wake()
            self._arbiters_act()
            self._ends()
            self._look()
            if self._is_over():
                break
        if self._arbiter is not None:
            ledger, cluster = self._arbiter.core.ledger, self.cluster
            cluster.invariants.at_the_end(ledger, self._runs, cluster.down, self.hazards.now_s, cluster.ending)

    def _next_s(self) -> Seconds:
        ends_s = self._world.next_end_s()
        times = [inf if ends_s is None else ends_s, self.hazards.next_s()]
        times += [arbiter.next_s() for arbiter in self._deposed]
        times.append(self._start_s if self._arbiter is None else self._arbiter.next_s())
        if self._arrivals:
            times.append(self._arrivals[0].plain.submitted_s)
        if self._schedule:
            times.append(self._schedule[0].at)
        return min(times)

    def _is_over(self) -> bool:
        now_s = self.hazards.now_s
        fell = self.hazards.counts.total()
        moves = self._world.next_end_s() is not None or self._arrivals or self._schedule or self.hazards.under_way()
        if moves or fell != self._fallen:
            self._busy_s, self._fallen = now_s, fell
        ended = not self._door and not self._taken and not self._arrivals and not self._schedule
        if ended and self._arbiter is not None and not any(self._arbiter.core.ledger.live()):
            return True
        return now_s - self._busy_s > STARVED_S

    # --- the world ----------------------------------------------------------------------------------------

    def _world_moves(self) -> bool:
        """Whether anything happened that an arbiter would be told of."""
        now_s, something = self.hazards.now_s, False
        if over := self._world.advance(now_s):
            something = True
            self.cluster.over(over)
            for run in over:
                self._taken.pop(run.plain.name, None)
        while self._schedule and self._schedule[0].at <= now_s:
            something = True
            self._befalls(self._schedule.popleft())
        something |= self.hazards.deliver()
        self._unfenced()
        while self._arrivals and self._arrivals[0].plain.submitted_s <= now_s:
            run = self._arrivals.popleft()
            self._world.jobs[run.plain.name] = run
            self._door.append(run)
        return something

    def _befalls(self, fault: PlannedFault) -> None:
        counts, node = self.hazards.counts, fault.node or ""
        match fault.kind:
            case FaultKind.NODE_LOSS:
                counts[fault.kind] += self.cluster.lose(node)
            case FaultKind.NODE_RETURN:
                counts[fault.kind] += self.cluster.regain(node, fault.by_s or 0.0)
            case FaultKind.CLOCK_STEP:
                counts[fault.kind] += 1
                self._step_s += fault.by_s or 0.0
                if self._arbiter is not None:
                    self._arbiter.step_s = self._step_s
            case FaultKind.SECOND_ARBITER:
                if self._arbiter is not None:
                    counts[fault.kind] += 1
                    self._deposed.append(self._arbiter)
                    self._arbiter, self._disk, self._step_s = None, self._disk.copied(), 0.0
                    self._start_s = self.hazards.now_s
            case FaultKind.LOST_JOURNAL:
                counts[fault.kind] += 1
                self._loses_its_journal(fault)
            case FaultKind.USER_ORDER:
                self._owners.wish(fault)
            case _:
                self.hazards.arm(fault)

    def _loses_its_journal(self, fault: PlannedFault) -> None:
        self._disk.damaged(fault.how, Random(f"{fault.at!r}"))
        self._arbiter, self._start_s = None, self.hazards.now_s + self._pause_s()
        self._knows_less()

    def _changes_hands(self) -> None:
        """An arbiter that was thought to be deposed has claimed the cluster after who deposed it: it is in charge."""
        if self._arbiter is None or not self._arbiter.over:
            return
        self._arbiter, self._start_s = None, self.hazards.now_s
        if claimed := [life for life in self._deposed if life.core.token == self.cluster.claimed]:
            (self._arbiter,) = claimed
            self._deposed.remove(self._arbiter)
            self._disk, self._step_s = self._arbiter.disk, self._arbiter.step_s
        self._knows_less()

    def _knows_less(self) -> None:
        """An arbiter whose journal is not the newest truth: what the cluster does not know either is handed in again,
        even what its owner had cancelled."""
        cluster = self.cluster
        cluster.telling = True
        self._owners.look_after()
        for name in [name for name in self._taken if not cluster.knows(name)]:
            self._door.append(self._taken.pop(name))
        self._door.extend(self._world.jobs[name] for name in sorted(cluster.invariants.gone))
        cluster.invariants.restored(self.hazards.now_s)

    def _ends(self) -> None:
        """Jobs that ended otherwise than by having done all."""
        for run in self.cluster.lost:
            self._taken.pop(run.plain.name, None)
        self.cluster.lost.clear()
        if self._arbiter is None:
            return
        jobs, invariants = self._arbiter.core.ledger.jobs, self.cluster.invariants
        for name in [name for name in self._taken if not self.cluster.knows(name)]:
            if name in jobs and jobs[name].ended is JobState.CANCELLED and jobs[name].cancel_by == jobs[name].owner:
                invariants.gone.add(name)
                self._taken.pop(name)
        for name in [name for name in invariants.ordered if name in jobs and not jobs[name].live]:
            del invariants.ordered[name]

    def _unfenced(self) -> None:
        """Starts whose time is over come when others hold the GPUs."""
        for job, allocation in self.hazards.unfenced:
            if self.cluster.runs_on(allocation, beside=job):
                self.cluster.collide(job, allocation)

    # --- arbiters -----------------------------------------------------------------------------------------

    def _arbiters_act(self) -> None:
        if self._arbiter is None and self._start_s <= self.hazards.now_s:
            self._arbiter = self._born()
        self._people(self._hand_in)
        self._people(self._owners.ask)
        if self._arbiter is not None and self._arbiter.core.next_s() <= self._arbiter.core.now_s():
            self.rounds += 1
            if not self._lives_through(self._arbiter):
                self._arbiter, self._start_s = None, self.hazards.now_s + self._pause_s()
        self._deposed = [a for a in self._deposed if self._lives_through(a) and not a.over]
        self._changes_hands()
        self._people(_release_held)

    def _pause_s(self) -> Seconds:
        """Until a service manager has started it again."""
        return round(Random(self.hazards.counts[FaultKind.KILL]).uniform(*self._restarts_s), 3)

    def _born(self) -> ArbiterLife | None:
        never = self._first if self._broken is BrokenRule.STARVE else None
        try:
            return ArbiterLife(
                self._asked, self._config, self.cluster, self.hazards, self._disk, self._taken, self._lies,
                self._broken, never, self._step_s, self._learning,
            )  # fmt: skip
        except JournalStopped:
            self._start_s = max(self.hazards.now_s + AGAIN_S, self.hazards.full_until_s)  # in vain before
        except ArbiterKilled:
            self._start_s = self.hazards.now_s + self._pause_s()
        return None

    def _lives_through(self, arbiter: ArbiterLife) -> bool:
        try:
            arbiter.tick()
        except ArbiterKilled:
            return False
        return True

    def _hand_in(self, core: Core) -> None:
        """Users whose jobs are not taken come again, and a job that was written down is not handed in twice."""
        while self._door:
            run = self._door[0]
            name = run.plain.name
            forgets = self._broken is BrokenRule.FORGET_JOB and name == self._first
            if name not in core.ledger.jobs and not forgets:
                core.write([submission(run.plain, core.now_s())], durable=True)
                core.wake()
            if run.over_s is None:
                self._taken[name] = run
            self._door.popleft()

    def _people(self, ask: Callable[[Core], None]) -> None:
        """They ask an arbiter that lives, and come again where it takes nothing."""
        if self._arbiter is None:
            return
        try:
            ask(self._arbiter.core)
        except JournalStopped:
            return
        except ArbiterKilled:
            self._arbiter, self._start_s = None, self.hazards.now_s + self._pause_s()

    def _look(self) -> None:
        invariants, now_s = self.cluster.invariants, self.hazards.now_s
        if self._arbiter is None or self.hazards.hindering():
            invariants.hindered(now_s)
        if self._arbiter is not None:
            ledger = self._arbiter.core.ledger
            invariants.books(ledger, self._taken.values(), now_s)
            invariants.orders(ledger, self._taken, now_s)
        invariants.gets_on(self._runs, self.rounds, self.hazards.counts.total() - len(self._arrivals), now_s)


def _release_held(core: Core) -> None:
    """An operator looks after what the arbiter held because the cluster refused it."""
    if held := [events.JobUnheld(r.id, "operator") for r in core.ledger.live() if r.hold_by == HORAE]:
        core.write(held, durable=True)
        core.wake()
