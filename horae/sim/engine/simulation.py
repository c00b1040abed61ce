"""A whole simulation: a trace, a cluster and a policy in, every job's life out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from horae.sim.conditions.pace import Stragglers
from horae.sim.conditions.sweeps import apps_of
from horae.sim.engine.arbiter import ArbiterEngine
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.fast import Fast
from horae.sim.engine.moments import Engine, play
from horae.sim.engine.order import short_cut
from horae.sim.engine.restarts import constant, measured
from horae.sim.engine.workload import LeftOut, Table, Workload, runs
from horae.sim.engine.world import Change, RestartCost, SimulatedJob, SimulatedWorld
from horae.sim.traces.model import BadRow, Trace
from policy.model import BadInput, Seconds
from policy.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Simulated:
    """Every job of the trace in its order, and what deciding took."""

    settings: Settings
    runs: Sequence[SimulatedJob]
    rounds: int
    decide_seconds: Sequence[Seconds]
    skipped: Mapping[str, int] = field(default_factory=dict)
    changes: Sequence[Change] = ()
    unplayable: Sequence[BadRow] = ()  #: rows that neither cluster nor tables can serve


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
    unplayable: LeftOut = {}
    conditions = settings.conditions
    if conditions.slow is not None and settings.ideal:
        raise BadInput("--ideal has no nodes that could be slow", field="--stragglers", remedy="leave one of them out")
    workload = Workload(settings.cluster, speeds, table, conditions, settings.seed)
    jobs = runs(trace, workload, unplayable if skip_bad else None)
    settings = replace(settings, apps=apps_of(workload.phases))
    changes: list[Change] = []
    stragglers = None if conditions.slow is None else Stragglers(conditions.slow, settings.seed)
    world = SimulatedWorld(speeds, cost_of(settings), changes if keep_changes else None, stragglers)
    asked = AskedPolicy(settings, speeds)
    made: Engine | None = ArbiterEngine(asked, world) if engine == "arbiter" else None
    if made is None and shortcuts and not settings.apps and conditions.candid:
        made = short_cut(asked, world, jobs)
    if made is None:
        made = Fast(asked, world, shortcuts=shortcuts)
    rounds = play(settings, world, sorted(jobs, key=lambda run: run.plain.order), made)
    return Simulated(
        settings, jobs, rounds, asked.seconds, left_out(trace, unplayable, skip_bad), changes, rows_of(unplayable)
    )


def cost_of(settings: Settings) -> RestartCost:
    """What restarts cost, as the settings say."""
    if settings.ideal:
        return constant(0.0)
    return measured(settings.seed) if settings.restart_s is None else constant(settings.restart_s)


def left_out(trace: Trace, unplayable: LeftOut, skip_bad: bool) -> dict[str, int]:
    """Rows that are not played, by why."""
    return (
        ({"malformed": 0} if skip_bad else {}) | trace.skipped() | {why: len(rows) for why, rows in unplayable.items()}
    )


def rows_of(unplayable: LeftOut) -> list[BadRow]:
    """In the order of lines."""
    return sorted(chain.from_iterable(unplayable.values()), key=lambda row: row.line)
