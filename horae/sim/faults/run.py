"""A trace on bad days: what became of its jobs, what took effect, what did not hold, and how little shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import Any

from horae.config import Guards, Probes
from horae.sim.engine.arbiter import config_of
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.simulation import Simulated, cost_of, left_out, rows_of
from horae.sim.engine.workload import LeftOut, Table, Workload, runs
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.sim.faults.arbiter import BrokenRule
from horae.sim.faults.days import RESTARTS_S, BadDays
from horae.sim.faults.schedule import FaultKind, PlannedFault, every_kind, read_schedule
from horae.sim.faults.shrink import shortest
from horae.sim.faults.watch import InvariantBroken
from horae.sim.traces.model import Trace
from policy.model import BadInput, Seconds
from policy.throughput import Throughput

ALL = "all"
#: As a site has them, looked at less often where nothing happens.
ROUNDS = {"tick_s": 15.0, "quiet_s": 60.0}
#: Without it an order that changes with time would move jobs in every round, and none would get on.
MIN_RUN_S: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class FaultyOutcome:
    simulated: Simulated
    faults: Mapping[str, int]  #: that took effect, every kind named
    broken: InvariantBroken | None
    schedule: Sequence[PlannedFault]  #: what was played

    @property
    def violations(self) -> list[dict[str, Any]]:
        """The first, which ended the run."""
        return [] if self.broken is None else [self.broken.plain()]


@dataclass(frozen=True, slots=True)
class FaultyRun:
    """Everything but the schedule, which may be played again with less of it."""

    trace: Trace
    settings: Settings
    table: Table
    broken: BrokenRule | None = None
    skip_bad: bool = False
    rounds: Mapping[str, Seconds] = field(default_factory=lambda: ROUNDS)
    restarts_s: tuple[Seconds, Seconds] = RESTARTS_S
    spawn_s: Seconds = 0.0  #: how long jobs take to come to run, and to leave
    leave_s: Seconds = 0.0
    guarded: bool = False  #: with the guards and probes of a site that sets none, not with the least alone

    def _jobs(self, speeds: Throughput) -> tuple[Sequence[SimulatedJob], LeftOut]:
        unplayable: LeftOut = {}
        workload = Workload(self.settings.cluster, speeds, self.table)
        return runs(self.trace, workload, unplayable if self.skip_bad else None), unplayable

    def schedule(self, asked_for: str) -> tuple[PlannedFault, ...]:
        """Of a file, or of `all`. Raises BadInput, OSError."""
        nodes = [node.name for node in self.settings.cluster.nodes]
        if asked_for != ALL:
            return read_schedule(Path(asked_for), self.settings.seed, nodes)
        speeds = Throughput(self.settings.cluster)
        jobs, _ = self._jobs(speeds)
        times_s = sorted(job.plain.submitted_s for job in jobs)
        if not times_s:
            return ()
        gpus = sum(node.gpus for node in self.settings.cluster.nodes)
        work_s = fsum(job.seconds_left(speeds) * job.plain.gpus.requested for job in jobs) / gpus
        return every_kind(self.settings.seed, times_s, max(times_s[-1], times_s[0] + work_s), nodes)

    def play(self, schedule: Sequence[PlannedFault]) -> FaultyOutcome:
        """Raises BadInput for a trace that the cluster or the tables cannot serve, PolicyFailed."""
        speeds = Throughput(self.settings.cluster)
        jobs, unplayable = self._jobs(speeds)
        asked, world = AskedPolicy(self.settings, speeds), SimulatedWorld(speeds, cost_of(self.settings))
        config = config_of(self.settings, self.rounds, MIN_RUN_S)
        if self.guarded:
            config = config.model_copy(update={"guards": Guards(), "probes": Probes()})
        arrivals = sorted(jobs, key=lambda run: run.plain.order)
        days = BadDays(
            asked, world, arrivals, schedule, self.broken, config, self.restarts_s, self.spawn_s, self.leave_s
        )
        found: InvariantBroken | None = None
        try:
            days.play()
        except InvariantBroken as broken:
            found = broken
        skipped = left_out(self.trace, unplayable, self.skip_bad)
        outcome = Simulated(self.settings, jobs, days.rounds, asked.seconds, skipped, unplayable=rows_of(unplayable))
        counts = {kind.value: days.hazards.counts[kind] for kind in FaultKind}
        return FaultyOutcome(outcome, counts, found, tuple(schedule))

    def shrunk(self, outcome: FaultyOutcome) -> FaultyOutcome:
        """The same invariant broken by as little as can be."""
        broken = outcome.broken
        assert broken is not None
        newest = outcome

        def shows(part: Sequence[PlannedFault]) -> bool:
            nonlocal newest
            found = self.play(part)
            if found.broken is None or found.broken.rule != broken.rule:
                return False
            newest = found
            return True

        # What comes after the violation has no part in it.
        shortest([fault for fault in outcome.schedule if fault.at <= broken.at_s], shows)
        return newest


def rule_of(word: str) -> BrokenRule:
    """Raises BadInput."""
    try:
        return BrokenRule(word)
    except ValueError:
        rules = ", ".join(BrokenRule)
        raise BadInput("is no rule", field="--break", value=word, remedy=f"one of {rules}, or list") from None
