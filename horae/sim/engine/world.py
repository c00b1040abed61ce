"""What is true in a simulation: which job holds which GPUs, how far it is, and what it cost. Both engines share it.

Progress is worked out where an allocation changes and nowhere else, so that two engines that change allocations at
the same moments have the same numbers to the last bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from horae.sim.conditions import sweeps
from horae.sim.conditions.pace import Pace, Stragglers
from horae.sim.conditions.sweeps import LossCurve
from policy.model import EMPTY, Allocation, Gpus, GpuSeconds, IterationsPerSecond, Job, JobName, Seconds
from policy.throughput import Throughput

#: Seconds that a job needs to be where it was: (job, number of its start, from 1).
RestartCost = Callable[[JobName, int], Seconds]
#: So much later than a job reaches the end of a phase it has surely done it, whatever the rounding.
MOMENT_S: Seconds = 1e-3
#: (time, job, GPUs that it holds from then on)
Change = tuple[Seconds, JobName, Gpus]


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """One job of the trace, and its life. `plain`: as a policy first sees it."""

    plain: Job
    total: float  #: iterations, whether anybody may know them or not
    real: Job | None = None  #: what it truly is, where `plain` is not
    curve: LossCurve | None = None
    ends: tuple[float, ...] = ()  #: iterations at which phases of its app end
    done: float = 0.0  #: iterations when `since_s` was
    rate: IterationsPerSecond = 0.0
    since_s: Seconds = 0.0  #: from when on `rate` counts
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    held_s: Seconds = 0.0  #: since when `allocation` is held
    gpus: Gpus = 0
    starts: int = 0
    last: Allocation = field(default_factory=lambda: EMPTY)  #: what it held before
    ends_s: Seconds | None = None
    pace: Pace | None = None  #: of the nodes that it holds, where some are slow now and then
    started_s: Seconds | None = None
    finished_s: Seconds | None = None
    lost_s: Seconds | None = None  #: when its app ended it
    gpu_seconds: GpuSeconds = 0.0
    resizes: int = 0
    migrations: int = 0
    restart_seconds: Seconds = 0.0

    def done_at(self, now_s: Seconds) -> float:
        """Iterations done."""
        passed_s = now_s - self.since_s
        if passed_s <= 0:
            return self.done
        worked_s = passed_s if self.pace is None else self.pace.worked(self.since_s, now_s)
        return min(self.done + self.rate * worked_s, self.total)

    @property
    def truth(self) -> Job:
        return self.plain if self.real is None else self.real

    @property
    def over_s(self) -> Seconds | None:
        """When it ended, by itself or for its app."""
        return self.finished_s if self.lost_s is None else self.lost_s

    def losses(self, done: float) -> tuple[tuple[float, float], ...]:
        return () if self.curve is None else sweeps.seen(self.curve, self.ends, done)

    def seconds_left(self, speeds: Throughput) -> Seconds:
        """What is left of it when it was last started or stopped, on what it holds, else on what it asks for."""
        rate = self.rate or max(
            speeds.at(self.truth, t, self.plain.gpus.requested) or 0.0 for t in self.plain.throughput
        )
        return (self.total - self.done) / (rate or 1.0)


class SimulatedWorld:
    """Jobs by name. Whoever starts a job knows that the GPUs are free: the engines see to it, and tests watch."""

    def __init__(
        self,
        speeds: Throughput,
        restart_cost: RestartCost,
        changes: list[Change] | None = None,
        stragglers: Stragglers | None = None,
        first_s: Seconds = 0.0,
        last_s: Seconds = 0.0,
    ) -> None:
        """`changes` takes every change of what jobs hold; `first_s`: what a job's first start costs; `last_s`: how
        long it holds its GPUs once it has done all."""
        self.jobs: dict[JobName, SimulatedJob] = {}
        self._speeds, self._restart_cost = speeds, restart_cost
        self._changes = changes
        self._stragglers, self._first_s, self._last_s = stragglers, first_s, last_s
        self._ends: list[tuple[Seconds, int, SimulatedJob]] = []
        self._marks: list[tuple[Seconds, int, int, SimulatedJob]] = []
        self._count = 0

    def next_end_s(self) -> Seconds | None:
        """When the next job ends, if nothing changes."""
        ends = self._ends
        while ends and ends[0][2].ends_s != ends[0][0]:
            heapq.heappop(ends)
        return ends[0][0] if ends else None

    def advance(self, now_s: Seconds) -> list[SimulatedJob]:
        """End the jobs that are done by then, in the order of their ends; returns them."""
        over = []
        while (next_s := self.next_end_s()) is not None and next_s <= now_s:
            run = heapq.heappop(self._ends)[2]
            self._release(run, next_s)
            run.done, run.finished_s, run.ends_s = run.total, next_s, None
            over.append(run)
        return over

    def start(self, run: SimulatedJob, allocation: Allocation, now_s: Seconds) -> None:
        """Give it GPUs; a start after its first costs a restart before it goes on."""
        run.starts += 1
        wait_s = self._first_s
        if run.starts == 1:
            run.started_s = now_s
        else:
            wait_s = self._restart_cost(run.plain.name, run.starts)
            before, after = sum(run.last.values()), sum(allocation.values())
            run.resizes += before != after
            run.migrations += before == after and dict(run.last) != dict(allocation)
        run.allocation, run.gpus = allocation, sum(allocation.values())
        run.held_s = now_s
        if self._changes is not None:
            self._changes.append((now_s, run.plain.name, run.gpus))
        run.rate, run.since_s = self._speeds.rate(run.truth, allocation) or 0.0, now_s + wait_s
        run.pace = None if self._stragglers is None else self._stragglers.of(allocation)
        if run.rate > 0:
            run.ends_s = self._reaches_s(run, run.total) + self._last_s
            self._count += 1
            heapq.heappush(self._ends, (run.ends_s, self._count, run))
            self._mark(run, run.done)

    @staticmethod
    def _reaches_s(run: SimulatedJob, iterations: float) -> Seconds:
        seconds = (iterations - run.done) / run.rate
        return run.since_s + seconds if run.pace is None else run.pace.until(run.since_s, seconds)

    def _mark(self, run: SimulatedJob, done: float) -> None:
        """The next phase that it will have done: something may have to be decided then."""
        end = next((e for e in run.ends if e > done), None)
        if end is not None:
            self._count += 1
            heapq.heappush(self._marks, (self._reaches_s(run, end) + MOMENT_S, self._count, run.starts, run))

    def next_mark_s(self, now_s: Seconds) -> Seconds:
        """When the next job that runs will have done a phase, later than now; inf: none will."""
        while self._marks:
            at_s, _, start, run = self._marks[0]
            current = run.starts == start and run.gpus > 0
            if current and at_s > now_s:
                return at_s
            heapq.heappop(self._marks)
            if current:
                self._mark(run, run.done_at(now_s))
        return inf

    def lose(self, run: SimulatedJob, now_s: Seconds) -> None:
        """Its app ends it."""
        if run.gpus:
            self.stop(run, now_s)
        run.lost_s = now_s

    def stop(self, run: SimulatedJob, now_s: Seconds) -> None:
        """Checkpoint and leave, at once: what a stop takes is part of the restart's cost."""
        run.done = run.done_at(now_s)
        self._release(run, now_s)
        run.ends_s = None

    def _release(self, run: SimulatedJob, now_s: Seconds) -> None:
        run.gpu_seconds += run.gpus * (now_s - run.held_s)
        if run.starts > 1:
            run.restart_seconds += min(run.since_s, now_s) - run.held_s
        if self._changes is not None:
            self._changes.append((now_s, run.plain.name, 0))
        run.last, run.allocation, run.gpus, run.rate = run.allocation, EMPTY, 0, 0.0
