"""The same jobs again under a policy: what is assumed about them, and the lives that they lead.

sacct cannot tell which jobs could have been resized, how they scale and what a restart costs them. So each policy is
replayed under several `Assumption`s, and its mean wait is a band over them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum
from typing import Any, Protocol

from horae.sim.traces.forms.sacct import as_trace
from horae.sim.traces.model import Trace, TraceJob
from horae.sim.traces.sacct.jobs import Job
from horae.sim.whatif.history import Held, spread
from policy.model import Cluster, GpuType, Node

BASELINE = "fifo-backfill"
Table = Mapping[str, Mapping[GpuType, Mapping[int, float]]]


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the dump does not say. `elastic`: part of the jobs that may run on half to twice the GPUs they asked for;
    `scaling`: such a job on n times the GPUs is n**scaling times as fast; `restart_s`: of a restart, None: drawn from
    measured ones; `known`: whether policies that may know lengths are told them.
    """

    elastic: float = 0.0
    scaling: float = 0.9
    restart_s: float | None = None
    known: bool = True

    def band(self) -> tuple[Assumption, ...]:
        """Itself, and the worst and the best that it may be in truth."""
        worst = replace(self, elastic=0.0, restart_s=300.0)
        best = replace(self, scaling=1.0, restart_s=0.0)
        slow = replace(self, scaling=min(0.6, self.scaling))
        return (self, worst, best, slow) if self.elastic else (self, worst, best)


@dataclass(frozen=True, slots=True)
class Life:
    """Times in s of the replay; None where a job never started or ended."""

    tenant: str
    gpus: int
    submitted: float
    started: float | None
    finished: float | None
    gpu_seconds: float
    resizes: int
    rho: float | None


class Replay(Protocol):
    """Plays a trace under a policy; lives in the trace's order."""

    def __call__(
        self, trace: Trace, table: Table, cluster: Cluster, policy: str, restart_s: float | None, seed: int
    ) -> Sequence[Life]: ...


def by_engine(
    trace: Trace, table: Table, cluster: Cluster, policy: str, restart_s: float | None, seed: int
) -> Sequence[Life]:
    """The fast engine: placement, rounds and restarts as an arbiter would have them."""
    from horae.sim.engine.asking import Settings
    from horae.sim.engine.simulation import simulate
    from horae.sim.results import rho_by_app

    settings = Settings.of(cluster, policy, {}, seed=seed, restart_s=restart_s)
    outcome = simulate(trace, settings, table, skip_bad=True)
    rho = rho_by_app(outcome)
    return [
        Life(
            run.plain.tenant,
            run.plain.gpus.requested,
            run.plain.submitted_s,
            run.started_s,
            run.finished_s,
            run.gpu_seconds,
            run.resizes,
            rho.get(run.plain.app),
        )
        for run in outcome.runs
    ]


def cluster_of(held: Held) -> Cluster | None:
    """The nodes that the dump shows, each with the most GPUs it ever held; None where it shows none."""
    most = held.most()
    nodes = tuple(Node(name, held.type_of(name), ceil(gpus)) for name, gpus in most.items() if gpus)
    return Cluster(nodes, gpu_types=tuple(sorted({n.gpu_type for n in nodes}))) if nodes else None


def trace_of(jobs: Sequence[Job]) -> list[TraceJob]:
    """Rigid jobs in order of submission, from 0; what ended within a second counts as one."""
    made = [made for number, job in enumerate(jobs) if isinstance(made := as_trace(job, number), TraceJob)]
    made.sort(key=lambda job: job.submitted)
    start = made[0].submitted if made else 0.0
    return [replace(job, submitted=job.submitted - start, duration=max(job.duration or 0.0, 1.0)) for job in made]


def assumed(
    jobs: Sequence[TraceJob], assumption: Assumption, cluster: Cluster, seed: int
) -> tuple[Trace, dict[str, dict[GpuType, dict[int, float]]]]:
    """The trace under an assumption, and the throughput table of its elastic jobs.

    One job draws the same chance whatever the fraction: whoever is elastic at 0.1 is so at 0.2.
    """
    chance = random.Random(seed)
    most = sum(n.gpus for n in cluster.nodes)
    table: dict[str, dict[GpuType, dict[int, float]]] = {}
    out = []
    for job in jobs:
        low, high = max(1, job.gpus // 2), min(2 * job.gpus, most)
        more: dict[str, Any] = {"known": assumption.known}
        if chance.random() < assumption.elastic and low < high:
            model = f"elastic-{job.gpus}"
            if model not in table:
                curve = {n: (n / job.gpus) ** assumption.scaling for n in range(low, high + 1)}
                table[model] = dict.fromkeys(cluster.gpu_types, curve)
            more |= {"min_gpus": low, "max_gpus": high, "model": model}
        out.append(replace(job, **more))
    return Trace(tuple(out)), table


def figures(lives: Sequence[Life]) -> dict[str, Any]:
    """`wait`, `jct`, `rho`, `by_account`, `by_size`, `resizes` of the answer."""
    started = [(life, life.started - life.submitted) for life in lives if life.started is not None]
    rho = [life.rho for life in lives if life.rho is not None]
    squares = fsum(r * r for r in rho)
    return {
        "wait": spread(wait for _, wait in started),
        "jct": spread(life.finished - life.submitted for life in lives if life.finished is not None),
        "rho": {
            "max": max(rho, default=0.0),
            "mean": fsum(rho) / len(rho) if rho else 0.0,
            "median": spread(rho)["median"],
            "jain": fsum(rho) ** 2 / (len(rho) * squares) if squares else 0.0,
        },
        "by_account": _means((life.tenant, wait) for life, wait in started),
        "by_size": _means((life.gpus, wait) for life, wait in started),
        "resizes": sum(life.resizes for life in lives),
    }


def _means(pairs: Any) -> dict[str, dict[str, float]]:
    found: dict[Any, list[float]] = defaultdict(list)
    for name, wait in pairs:
        found[name].append(wait)
    return {str(name): {"jobs": len(of), "wait_mean": fsum(of) / len(of)} for name, of in sorted(found.items())}
