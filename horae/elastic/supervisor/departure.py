"""What is asked of a job, and how far its gang has been pressed to follow. Pure: events and times in, signals out."""

from typing import List, Optional

KILL_WAIT_S = 2.0  #: between TERM and KILL


class Pressure:
    """How far a gang has been pressed; only ever more."""

    NONE, ASKED, TERMINATED, KILLED = range(4)


class Departure:
    """One start of a job, gang after gang. Times are of one monotonic clock, in seconds."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.stop_at: Optional[float] = None  #: checkpoint-and-leave was asked for
        self.cancel = False
        self.out_of_time = False
        self.overdue = False  #: it was still there when its grace was over
        self._pressure = Pressure.NONE
        self._terminated_at = 0.0

    # --- events -------------------------------------------------------------------------------------------

    def ask(self, now: float, grace_s: Optional[float] = None) -> None:
        """To checkpoint and leave. The first time counts, and the newest grace."""
        if self.stop_at is None:
            self.stop_at = now
        if grace_s is not None and grace_s >= 0:
            self.grace_s = grace_s

    def time_over(self, now: float) -> bool:
        """Its time limit is used up: asked to leave. False when that was known."""
        known, self.out_of_time = self.out_of_time, True
        if not known:
            self.ask(now)
        return not known

    def next_gang(self) -> None:
        self._pressure = Pressure.NONE

    # --- what follows -------------------------------------------------------------------------------------

    @property
    def asked(self) -> bool:
        return self.stop_at is not None or self.cancel

    @property
    def terminated(self) -> bool:
        return self._pressure >= Pressure.TERMINATED

    def press(self, now: float, failed: bool) -> List[int]:
        """What the living gang is to be pressed by now, mildest first. `failed`: a rank of it did."""
        steps = []
        if self.stop_at is not None and self._pressure < Pressure.ASKED:
            steps.append(Pressure.ASKED)
        overdue = self.stop_at is not None and now >= self.stop_at + self.grace_s
        if not self.terminated and (self.cancel or overdue or failed):
            self.overdue = self.overdue or (overdue and not self.cancel and not failed)
            self._terminated_at = now
            steps.append(Pressure.TERMINATED)
        if self._pressure == Pressure.TERMINATED and now >= self._terminated_at + KILL_WAIT_S:
            steps.append(Pressure.KILLED)
        self._pressure = max([self._pressure] + steps)
        return steps

    def due(self) -> Optional[float]:
        """When `press` has more to say without an event."""
        if self._pressure == Pressure.TERMINATED:
            return self._terminated_at + KILL_WAIT_S
        if self.stop_at is not None and not self.terminated:
            return self.stop_at + self.grace_s
        return None
