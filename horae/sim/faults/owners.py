"""Owners of jobs, who change their minds: what they order is asked through the door that the command line asks at."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from horae.arbiter.core import Core
from horae.arbiter.requests.authority import Requester
from horae.arbiter.requests.commands import Commands
from horae.sim.engine.world import SimulatedJob
from horae.sim.faults.hazards import Hazards
from horae.sim.faults.schedule import FaultKind, PlannedFault
from horae.sim.faults.watch import Invariants
from policy.model import JobName, Seconds

#: Who comes before whom within a tenant: an owner may put a job of theirs back.
BACK = -1


@dataclass(frozen=True, slots=True)
class Wish:
    what: str  #: `cancel`, `hold`, `back`, `unhold`
    job: JobName
    for_s: Seconds = 0.0  #: how long a hold is to last


@dataclass(slots=True)
class Owners:
    """Who finds nobody, or is turned away, comes again."""

    hazards: Hazards
    invariants: Invariants
    active: Mapping[JobName, SimulatedJob]
    _waiting: deque[Wish] = field(default_factory=deque)

    def wish(self, fault: PlannedFault) -> None:
        """An owner of one of the jobs that have not ended wants something."""
        free = [job for job in self.active if job not in self.invariants.ordered]
        if free:
            job = Random(f"{fault.at!r}").choice(free)
            self.hazards.counts[FaultKind.USER_ORDER] += 1
            self._waiting.append(Wish(fault.how or "hold", job, fault.by_s or 0.0))

    def look_after(self) -> None:
        """What was ordered last may be forgotten: a job that its owner let go on is held again, say."""
        self._waiting.extend(Wish("unhold", job) for job in self.active)

    def ask(self, core: Core) -> None:
        """What they want, of an arbiter that lives. Raises JournalStopped, ArbiterKilled: it is asked for again."""
        while self._waiting:
            order = self._waiting[0]
            if order.job in self.active and order.job in core.ledger.jobs:
                self._carried(order, Commands(core), Requester(core.ledger.jobs[order.job].owner))
            self._waiting.popleft()

    def _carried(self, order: Wish, commands: Commands, owner: Requester) -> None:
        job, now_s = order.job, self.hazards.now_s
        match order.what:
            case "cancel":
                commands.cancel(job, owner)
                self.invariants.ordered[job] = order.what, now_s
            case "hold":
                commands.hold(job, owner)
                self.invariants.ordered[job] = order.what, now_s
                self.hazards.later(order.for_s, lambda: self._waiting.append(Wish("unhold", job)))
            case "back":
                commands.prioritise(job, BACK, owner)
            case "unhold":
                if self.invariants.ordered.get(job, ("",))[0] == "hold":
                    del self.invariants.ordered[job]
                commands.unhold(job, owner)
