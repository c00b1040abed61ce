"""A whole simulation: a trace, a cluster and a policy in, every job's life out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from horae.sim.engine.arbiter import ArbiterEngine
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.fast import Fast
from horae.sim.engine.moments import Engine, play
from horae.sim.engine.order import short_cut
from horae.sim.engine.restarts import constant, measured
from horae.sim.engine.workload import Table, Workload, runs
from horae.sim.engine.world import Change, SimulatedJob, SimulatedWorld
from horae.sim.traces.model import Trace, TraceJob
from policy.model import Seconds
from policy.parts.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Simulated:
    """Every job of the trace in its order, and what deciding took."""

    settings: Settings
    runs: Sequence[SimulatedJob]
    rounds: int
    decide_seconds: Sequence[Seconds]
    skipped: Mapping[str, int] = field(default_factory=dict)
    changes: Sequence[Change] = ()


def simulate(
    trace: Trace,
    settings: Settings,
    table: Table,
    *,
    engine: str = "fast",
    shortcuts: bool = True,
    skip_bad: bool = False,
    keep_changes: bool = False,
) -> Simulated:
    """`shortcuts` False: the fast engine asks the policy itself also where its order alone decides (`order.py`).

    Raises BadInput for a trace that the cluster or the tables cannot serve, PolicyFailed for a policy that fails."""
    speeds = Throughput(settings.cluster)
    large: list[TraceJob] = []
    jobs = runs(trace, Workload(settings.cluster, speeds, table), large.append if skip_bad else None)
    cost = constant(0.0) if settings.ideal else measured(settings.seed)
    if not settings.ideal and settings.restart_s is not None:
        cost = constant(settings.restart_s)
    changes: list[Change] = []
    world, asked = SimulatedWorld(speeds, cost, changes if keep_changes else None), AskedPolicy(settings, speeds)
    made: Engine | None = ArbiterEngine(asked, world) if engine == "arbiter" else None
    if made is None and shortcuts:
        made = short_cut(asked, world, jobs)
    if made is None:
        made = Fast(asked, world)
    rounds = play(settings, world, sorted(jobs, key=lambda run: run.plain.order), made)
    skipped = ({"malformed": 0} if skip_bad else {}) | trace.skipped() | ({"too large": len(large)} if large else {})
    return Simulated(settings, jobs, rounds, asked.seconds, skipped, changes)
