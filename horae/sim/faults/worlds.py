"""Worlds without end: each seed is a cluster, jobs, a policy and faults; the same seed, the same days.

Some worlds are stormy (a fault each few seconds, many short jobs), in some it hails (a fault in every round or two, few
jobs on few GPUs, so that a round costs little), some are what sites are (a fault each few hours, jobs of hours and
days): the first are for what happens together, the second for faults a second, the last for years.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of
from horae.sim.faults.days import RESTARTS_S
from horae.sim.faults.run import FaultyOutcome, FaultyRun
from horae.sim.faults.schedule import FaultKind, PlannedFault, drawn
from horae.sim.traces.model import Trace, TraceJob
from policy.model import NodeName, Seconds

YEAR_S: Seconds = 365.25 * 86400.0
#: Speeds of the elastic jobs' model.
CONCAVE = {
    "concave": {
        "v100": {n: n**0.8 for n in range(1, 17)},
        "k80": {n: 0.4 * n**0.8 for n in range(1, 17)},
    }
}
CLUSTERS = ("v100:3x4", "v100:2x4", "v100:6x2", "v100:1x8", "v100:2x4,k80:2x4", "v100:3x2/rack1,v100:3x2/rack2")
SMALL = (
    "v100:2x2",
    "v100:1x4",
    "v100:3x1",
    "v100:2x4",
    "v100:3x2",
    "v100:2x2,k80:2x2",
    "v100:2x2/rack1,v100:1x2/rack2",
)
#: Cheap to ask, and asked in most worlds; the others solve programs.
SWIFT = (
    "fifo",
    "fifo-backfill",
    "srtf",
    "srsf",
    "srtf-e",
    "srsf-e",
    "las",
    "tiresias-l",
    "lottery",
    "lottery-backfill",
    "afs-l",
    "afs-p",
    "afs-s",
    "max-min",
    "drf",
    "optimus",
    "slaq",
)
SLOW = (
    "themis",
    "gandiva",
    "gandiva-fair",
    "gavel-max-min",
    "gavel-fifo",
    "gavel-makespan",
    "gavel-finish-time",
    "oef-cooperative",
    "oef-noncooperative",
)
#: How often a fault is of a kind; a loss brings its return with it.
WEIGHTS = {
    FaultKind.KILL: 3,
    FaultKind.LOST_ANSWER: 3,
    FaultKind.LATE_ANSWER: 3,
    FaultKind.REPEATED_ANSWER: 3,
    FaultKind.REFUSED_START: 3,
    FaultKind.NODE_LOSS: 2,
    FaultKind.CLOCK_STEP: 3,
    FaultKind.LIE: 3,
    FaultKind.FULL_DISK: 2,
    FaultKind.SECOND_ARBITER: 2,
    FaultKind.JOB_DIES: 6,
    FaultKind.BAD_CHECKPOINT: 6,
    FaultKind.LOST_JOURNAL: 6,
    FaultKind.CLUSTER_AWAY: 6,
    FaultKind.BAD_LOOK: 6,
    FaultKind.BAD_POLICY: 6,
    FaultKind.USER_ORDER: 6,
}
#: The same in later worlds: the kinds that came last to this list, the more the less often they take effect.
LATER_WEIGHTS = dict.fromkeys(WEIGHTS, 1) | {
    FaultKind.JOB_DIES: 14,
    FaultKind.BAD_CHECKPOINT: 9,
    FaultKind.LOST_JOURNAL: 6,
    FaultKind.CLUSTER_AWAY: 6,
    FaultKind.BAD_LOOK: 8,
    FaultKind.BAD_POLICY: 6,
    FaultKind.USER_ORDER: 10,
}
LATER_FROM = 4300
#: What lasts a while, and is over sooner where it hails.
LASTING = (FaultKind.LIE, FaultKind.CLUSTER_AWAY, FaultKind.BAD_LOOK, FaultKind.BAD_POLICY, FaultKind.USER_ORDER)


class Weather(NamedTuple):
    """Between which its worlds are drawn; lengths of jobs and gaps between faults as powers of ten, in seconds."""

    length: tuple[float, float]
    gap: tuple[float, float]
    jobs: tuple[int, int]
    ticks_s: tuple[Seconds, ...]
    slow: float  #: how often under a policy that is not swift
    clusters: tuple[str, ...] = CLUSTERS
    restarts_s: tuple[Seconds, Seconds] = RESTARTS_S  #: after which a killed arbiter is there again
    lasts_s: tuple[Seconds, Seconds] | None = None  #: what lasts a while, where not as everywhere


STORMY = Weather((1.3, 3.0), (0.6, 1.5), (20, 60), (5.0, 15.0, 60.0), 0.05)
CALM = Weather((4.5, 6.5), (3.0, 5.0), (5, 20), (300.0, 900.0, 3600.0), 0.0)
HAIL = Weather((1.7, 2.4), (0.0, 0.6), (4, 12), (5.0, 15.0), 0.02, SMALL, (0.1, 1.0), (2.0, 20.0))


class Climate(NamedTuple):
    """A world whose draw of 0 to 1 is below `calm` is, below `stormy` likewise; in the others it hails."""

    calm: float
    stormy: float
    weights: Mapping[FaultKind, int]

    def weather(self, sky: float) -> Weather:
        if sky < self.calm:
            return CALM
        return STORMY if sky < self.stormy else HAIL


def climate(seed: int) -> Climate:
    return Climate(0.2, 0.6, WEIGHTS) if seed < LATER_FROM else Climate(0.02, 0.4, LATER_WEIGHTS)


@dataclass(frozen=True, slots=True)
class FaultyWorld:
    run: FaultyRun
    schedule: Sequence[PlannedFault]

    def lived(self) -> FaultyOutcome:
        return self.run.play(self.schedule)


def world(seed: int) -> FaultyWorld:
    """The world of this seed, whole."""
    chance = Random(seed)
    kind = climate(seed).weather(chance.random())
    policies = SLOW if chance.random() < kind.slow else SWIFT
    cluster = cluster_of(chance.choice(kind.clusters))
    settings = Settings.of(
        cluster,
        chance.choice(policies),
        {},
        seed=seed,
        restart_s=chance.choice((0.0, 30.0, None)),
    )
    length_s = 10 ** chance.uniform(*kind.length)
    gap_s = 10 ** chance.uniform(*kind.gap)
    jobs = chance.randint(*kind.jobs)
    trace = _trace(chance, jobs, length_s, sum(node.gpus for node in cluster.nodes))
    tick_s = chance.choice(kind.ticks_s)
    rounds = {"tick_s": tick_s, "quiet_s": 4 * tick_s}
    run = FaultyRun(
        trace,
        settings,
        CONCAVE,
        rounds=rounds,
        restarts_s=kind.restarts_s,
        spawn_s=chance.choice((0.0, 0.0, 3.0)),
        leave_s=chance.choice((0.0, 0.0, 5.0, 40.0)),
    )
    until_s = trace.jobs[-1].submitted + 2 * length_s
    nodes = [node.name for node in cluster.nodes]
    schedule = _schedule(chance, seed, until_s, gap_s, nodes, kind.lasts_s)
    return FaultyWorld(replace(run, guarded=chance.random() < 0.3), schedule)


def _trace(chance: Random, jobs: int, length_s: Seconds, room: int) -> Trace:
    """As many as load the cluster by a half to twice."""
    apart_s = length_s * 2.0 / room / chance.uniform(0.5, 2.0)
    at, out = 0.0, []
    for number in range(jobs):
        if chance.random() < 0.8:
            at += chance.expovariate(1 / apart_s)
        gpus = min(chance.choice((1, 1, 1, 2, 2, 3, 4)), room)
        duration_s = length_s * chance.lognormvariate(0.0, 0.7)
        least, most = gpus, gpus
        if chance.random() < 0.5:
            least, most = 1, min(2 * gpus + 1, room)
        job = TraceJob(
            f"j{number}",
            round(at, 3),
            gpus,
            round(duration_s, 3),
            tenant=chance.choice("abc"),
            min_gpus=least,
            max_gpus=most,
            model=chance.choice(("concave", None)),
        )
        out.append(job)
    return Trace(tuple(out))


def _schedule(
    chance: Random,
    seed: int,
    until_s: Seconds,
    gap_s: Seconds,
    nodes: Sequence[NodeName],
    lasts_s: tuple[Seconds, Seconds] | None,
) -> tuple[PlannedFault, ...]:
    kinds, weights = zip(*climate(seed).weights.items(), strict=True)
    at, out, back_s = 0.0, [], dict.fromkeys(nodes, 0.0)
    while (at := at + chance.expovariate(1 / gap_s)) < until_s:
        kind = chance.choices(kinds, weights)[0]
        now_s, there = round(at, 3), [node for node in nodes if back_s[node] < at]
        if kind is FaultKind.FULL_DISK:
            by_s = gap_s * chance.uniform(0.5, 3.0)
            out.append(PlannedFault(now_s, kind, by_s=round(by_s, 3)))
        elif kind in LASTING and lasts_s is not None:
            out.append(PlannedFault(now_s, kind, by_s=round(chance.uniform(*lasts_s), 3)))
        elif kind is not FaultKind.NODE_LOSS:
            out.append(PlannedFault(now_s, kind))
        elif there:
            node = chance.choice(there)
            gone_s = chance.expovariate(1 / min(10 * gap_s, 86400.0))
            back_s[node] = round(at + gone_s, 3) + 0.01
            out.append(PlannedFault(now_s, kind, node))
            out.append(PlannedFault(back_s[node], FaultKind.NODE_RETURN, node))
    return tuple(drawn(fault, seed, nodes) for fault in sorted(out, key=lambda fault: fault.at))


def lived(seed: int) -> Mapping[str, Any]:
    """What became of one world: its seconds, jobs, faults that took effect, and what did not hold."""
    outcome = world(seed).lived()
    runs = outcome.simulated.runs
    return {
        "seconds": max((job.finished_s or 0.0 for job in runs), default=0.0),
        "jobs": len(runs),
        "rounds": outcome.simulated.rounds,
        "faults": Counter(outcome.faults),
        "violations": outcome.violations,
    }
