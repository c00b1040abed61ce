"""JobBooks that policies keep of every job, and the orders that follow from them: Tiresias-L's, AFS-P's and AFS-S'.

The same numbers as the policies' own state, worked out the same way, for jobs of one pool: who runs is charged at
every decision, who waits only comes due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol

from horae.sim.engine.reviews import LEAST_S
from horae.sim.engine.world import SimulatedJob
from policy.model import Gpus, GpuSeconds, JobName, Seconds

#: What a job that runs holds, and has attained.
Running = tuple[SimulatedJob, Gpus, GpuSeconds]


class JobBooks(Protocol):
    """One book a job, from its arrival to its end."""

    def open(self, run: SimulatedJob) -> None: ...

    def close(self, run: SimulatedJob) -> None: ...

    def charged(self, running: Sequence[tuple[SimulatedJob, GpuSeconds]]) -> bool:
        """Those that run have attained so much by now; True: somebody's key is another."""
        ...

    def stopped(self, run: SimulatedJob, attained: GpuSeconds, now_s: Seconds) -> None:
        """It waits from now on."""
        ...

    def due(self, now_s: Seconds) -> Sequence[SimulatedJob]:
        """Those that wait whose key is another from now on."""
        ...

    def key(self, run: SimulatedJob, held: bool, attained: GpuSeconds) -> float:
        """The smaller, the earlier; equal ones in order of submission."""
        ...

    def review_s(self, running: Sequence[Running], now_s: Seconds) -> Seconds:
        """When a key will be another, while somebody waits. `running`: with what they hold and have attained."""
        ...


@dataclass(slots=True)
class _Account:
    base: GpuSeconds = 0.0  #: attained when it was last promoted, or began its unit
    attained: GpuSeconds = 0.0  #: when it was last stopped
    ran_s: Seconds = 0.0  #: when it last ran
    level: int = 0  #: its queue, or the units it has completed


#: When it is due, and who waits for it.
_Promotion = tuple[Seconds, JobName, SimulatedJob]


class TwoQueues:
    """Tiresias-L's: queue 1 below the threshold, 2 above, and back after waiting `promote_knob` times its run."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._threshold, self._knob = options["threshold"], options["promote_knob"]
        self._of: dict[JobName, _Account] = {}
        self._promotions: list[_Promotion] = []

    def open(self, run: SimulatedJob) -> None:
        self._of[run.plain.name] = _Account(ran_s=run.plain.submitted_s, level=1)

    def close(self, run: SimulatedJob) -> None:
        del self._of[run.plain.name]

    def charged(self, running: Sequence[tuple[SimulatedJob, GpuSeconds]]) -> bool:
        moved, threshold = False, self._threshold
        for run, attained in running:
            account = self._of[run.plain.name]
            if account.level == 1 and attained - account.base >= threshold:
                account.level = 2
                moved = True
        return moved

    def stopped(self, run: SimulatedJob, attained: GpuSeconds, now_s: Seconds) -> None:
        account = self._of[run.plain.name]
        account.attained = attained
        account.ran_s = now_s
        if account.level == 2 and self._knob > 0:
            heappush(self._promotions, (self._promoted_s(run, account), run.plain.name, run))

    def _promoted_s(self, run: SimulatedJob, account: _Account) -> Seconds:
        served = account.attained - account.base
        return float(account.ran_s + self._knob * served / run.plain.gpus.requested)

    def due(self, now_s: Seconds) -> Sequence[SimulatedJob]:
        back = []
        early: list[_Promotion] = []
        while self._promotions and self._promotions[0][0] <= now_s + LEAST_S:
            entry = heappop(self._promotions)
            if not self._stands(entry):
                continue
            account = self._of[entry[1]]
            executed = (account.attained - account.base) / entry[2].plain.gpus.requested
            if now_s - account.ran_s >= self._knob * executed:
                account.level = 1
                account.base = account.attained
                back.append(entry[2])
            else:
                early.append(entry)
        for entry in early:
            heappush(self._promotions, entry)
        return back

    def _stands(self, entry: _Promotion) -> bool:
        """Whether it has waited ever since."""
        at_s, name, run = entry
        account = self._of.get(name)
        return account is not None and account.level == 2 and not run.gpus and self._promoted_s(run, account) == at_s

    def key(self, run: SimulatedJob, held: bool, attained: GpuSeconds) -> float:
        return self._of[run.plain.name].level

    def review_s(self, running: Sequence[Running], now_s: Seconds) -> Seconds:
        soonest = inf
        for run, gpus, attained in running:
            account = self._of[run.plain.name]
            if account.level == 1:
                served = attained - account.base
                soonest = min(soonest, now_s + (self._threshold - served) / gpus)
        given = {run.plain.name for run, _, _ in running}
        while self._promotions:
            first = self._promotions[0]
            if self._stands(first) and first[1] not in given:
                break
            heappop(self._promotions)
        if self._promotions:
            soonest = min(soonest, max(self._promotions[0][0], now_s))
        return max(soonest, now_s + LEAST_S)


class Units:
    """AFS-P's and AFS-S', of rigid jobs: those with fewer units of time completed first, not pre-empted amid one."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._unit: Seconds = options["unit"]
        self._of: dict[JobName, _Account] = {}

    def open(self, run: SimulatedJob) -> None:
        self._of[run.plain.name] = _Account()

    def close(self, run: SimulatedJob) -> None:
        del self._of[run.plain.name]

    def charged(self, running: Sequence[tuple[SimulatedJob, GpuSeconds]]) -> bool:
        moved = False
        for run, attained in running:
            account, length = self._of[run.plain.name], self._unit * run.plain.gpus.min
            done = int(max(attained - account.base, 0.0) / length + 1e-9)
            if done:
                account.level += done
                account.base += done * length
                moved = True
        return moved

    def stopped(self, run: SimulatedJob, attained: GpuSeconds, now_s: Seconds) -> None:
        """It was charged when this moment began."""

    def due(self, now_s: Seconds) -> Sequence[SimulatedJob]:
        return ()

    def key(self, run: SimulatedJob, held: bool, attained: GpuSeconds) -> float:
        account = self._of[run.plain.name]
        return 2 * account.level + (not (held and attained > account.base + 1e-9))

    def review_s(self, running: Sequence[Running], now_s: Seconds) -> Seconds:
        soonest = inf
        for run, gpus, attained in running:
            rest = self._unit * run.plain.gpus.min - (attained - self._of[run.plain.name].base)
            soonest = min(soonest, now_s + max(rest / gpus, LEAST_S))
        return soonest


BOOKS: Mapping[str, Callable[[Mapping[str, Any]], JobBooks]] = {
    "afs-p": Units,
    "afs-s": Units,
    "tiresias-l": TwoQueues,
}
