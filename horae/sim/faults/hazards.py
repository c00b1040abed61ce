"""Faults that wait for their moment: a call, a write, a look. Each says when it has taken effect."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from horae.journal import JournalStopped
from horae.port import FixConfiguration, JobId, Never, PortError, TryLater
from horae.sim.faults.schedule import CALLS, FaultKind, PlannedFault
from policy.model import Allocation, Seconds

#: What a fault waits for: calls of its kind, and a kill for its own boundary.
Awaited = tuple[FaultKind, str | None]
#: (which call, in order of arming, the fault)
Armed = tuple[int, int, PlannedFault]
#: (until when, what)
Lasting = tuple[Seconds, PlannedFault | None]


class ArbiterKilled(BaseException):
    """The arbiter ends here, whatever it was about to do. Nothing of it may catch this."""


class Hazards:
    def __init__(self) -> None:
        self.now_s: Seconds = 0.0
        self.counts: Counter[FaultKind] = Counter()  #: that took effect
        #: starts that come once more when others hold the GPUs (`--break no-fence`)
        self.unfenced: list[tuple[JobId, Allocation]] = []
        self._armed: defaultdict[Awaited, list[Armed]] = defaultdict(list)
        self._passed: Counter[Awaited] = Counter()  #: calls so far
        self.full_until_s: Seconds = 0.0
        self._away: Lasting = (0.0, None)
        self._mad: Lasting = (0.0, None)
        self._later: list[tuple[Seconds, int, Callable[[], None]]] = []
        self._count = 0

    def arm(self, fault: PlannedFault) -> None:
        awaited = fault.kind, fault.how if fault.kind is FaultKind.KILL else None
        self._count += 1
        heappush(self._armed[awaited], (self._passed[awaited] + (fault.port_call or 1), self._count, fault))

    def _hit(self, *kinds: FaultKind, how: str | None = None) -> PlannedFault | None:
        """Count one more call for each that waits for it; the first whose turn it is has taken effect."""
        due: list[tuple[int, list[Armed]]] = []
        for kind in kinds:
            self._passed[kind, how] += 1
            armed = self._armed[kind, how]
            if armed and armed[0][0] <= self._passed[kind, how]:
                due.append((armed[0][1], armed))
        if not due:
            return None
        fault = heappop(min(due)[1])[2]
        self.counts[fault.kind] += 1
        return fault

    def crossing(self, boundary: str) -> None:
        if self._hit(FaultKind.KILL, how=boundary) is not None:
            raise ArbiterKilled

    def of_call(self) -> PlannedFault | None:
        return self._hit(*(kind for kind in CALLS if kind is not FaultKind.KILL))

    def refusal(self) -> PortError | None:
        fault = self._hit(FaultKind.REFUSED_START)
        return None if fault is None else _REFUSALS[fault.how or "later"]()

    def of(self, kind: FaultKind) -> PlannedFault | None:
        """One that waits for what is done now."""
        return self._hit(kind)

    def answers(self, what: str) -> None:
        """Raises TryLater while the cluster does not: `looks` or `calls`."""
        until_s, fault = self._away = self._lasting(FaultKind.CLUSTER_AWAY, self._away)
        if fault is not None and self.now_s < until_s and fault.how in (what, "whole"):
            raise TryLater("the cluster does not answer")

    def of_policy(self) -> PlannedFault | None:
        """What is the matter with it now."""
        until_s, fault = self._mad = self._lasting(FaultKind.BAD_POLICY, self._mad)
        return fault if self.now_s < until_s else None

    def _lasting(self, kind: FaultKind, before: Lasting) -> Lasting:
        fault = self._hit(kind)
        return before if fault is None else (self.now_s + (fault.by_s or 0.0), fault)

    def write(self) -> None:
        """Raises JournalStopped while the disk is full."""
        if (fault := self._hit(FaultKind.FULL_DISK)) is not None:
            self.full_until_s = max(self.full_until_s, self.now_s + (fault.by_s or 0.0))
        if self.now_s < self.full_until_s:
            raise JournalStopped("the disk is full", remedy="free space")

    # --- what comes later ---------------------------------------------------------------------------------

    def later(self, by_s: Seconds, deed: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._later, (self.now_s + by_s, self._count, deed))

    def next_s(self) -> Seconds:
        return self._later[0][0] if self._later else float("inf")

    def under_way(self) -> bool:
        """Whether something is late still, or an arbiter can do nothing."""
        return bool(self._later) or self.hindering()

    def hindering(self) -> bool:
        """Whether an arbiter cannot act, whatever it would."""
        return self.now_s < max(self.full_until_s, self._away[0], self._mad[0])

    def deliver(self) -> bool:
        """What is due by now; whether anything was."""
        any_ = False
        while self._later and self._later[0][0] <= self.now_s:
            any_ = True
            heappop(self._later)[2]()
        return any_


_REFUSALS: Mapping[str, Callable[[], PortError]] = {
    "later": lambda: TryLater("the cluster is busy"),
    "never": lambda: Never("the cluster does not start it there"),
    "fix-configuration": lambda: FixConfiguration("the cluster refuses this account", remedy="mend it"),
}
