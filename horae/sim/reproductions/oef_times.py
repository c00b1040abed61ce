"""OEF (Middleware 2024): Figure 9, completion times on its cluster of eight GPUs of each of three types.

The paper plays 50 tenants of about 20 jobs for three days and prints neither jobs nor lengths. Here ten tenants hand in
four jobs each at the start, of one or two GPUs and 20 to 90 minutes on the slowest; the jobs of a tenant train one
model, with speed-ups drawn between those of VGG and LSTM (as Figure 8 here). Placed, rounds as long as the policies
say, restarts drawn from measured ones. The mean over seeds.
"""

from __future__ import annotations

from random import Random

from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of
from horae.sim.engine.simulation import simulate
from horae.sim.engine.workload import Table
from horae.sim.reproductions.catalogue import Found, Reproduction
from horae.sim.reproductions.oef import PAPER, TYPES
from horae.sim.results import mean
from horae.sim.traces.model import Trace, TraceJob

CLUSTER = ",".join(f"{t}:2x4" for t in TYPES)
TENANTS, JOBS, DRAWS = 10, 4, 2
PEERS = ("gandiva-fair", "gavel-max-min")


def drawn(seed: int) -> tuple[Trace, Table]:
    random, jobs, table = Random(seed), list[TraceJob](), dict[str, dict[str, dict[int, float]]]()
    for n in range(TENANTS):
        rates = sorted((1.0, random.uniform(1.15, 1.6), random.uniform(1.39, 2.15)))
        table[f"model{n}"] = {t: {1: rate, 2: 1.9 * rate} for t, rate in zip(TYPES, rates, strict=True)}
        jobs += [
            TraceJob(
                f"t{n}-{k}",
                0.0,
                random.choice((1, 1, 2)),
                random.uniform(1200, 5400),
                tenant=f"t{n}",
                app=f"t{n}",
                model=f"model{n}",
            )
            for k in range(JOBS)
        ]
    return Trace(tuple(jobs)), table


def times(policy: str, seed: int) -> list[float]:
    trace, table = drawn(seed)
    runs = simulate(trace, Settings.of(cluster_of(CLUSTER), policy, {}, seed=seed), table).runs
    return [run.finished_s - run.plain.submitted_s for run in runs if run.finished_s is not None]


def figure_9(seed: int) -> Found:
    seeds = range(seed, seed + DRAWS)
    ours = mean([t for s in seeds for t in times("oef-cooperative", s)])
    here = {}
    for peer in PEERS:
        theirs = mean([t for s in seeds for t in times(peer, s)])
        here[f"shorter than {peer}, percent"] = round(100 * (1 - ours / theirs), 1)
    paper = {"shorter than gandiva-fair, percent": 17.0, "shorter than gavel-max-min, percent": 19.0}
    inputs = {
        "cluster": CLUSTER,
        "tenants": TENANTS,
        "jobs a tenant": JOBS,
        "gpus a job": [1, 1, 2],
        "seconds on the slowest": [1200, 5400],
        "speedups": "1, U[1.15, 1.6], U[1.39, 2.15], sorted; 1.9 times on two GPUs",
        "draws": DRAWS,
    }
    words = " and ".join(f"{value:.1f} % (the paper's {paper[key]:g})" for key, value in here.items())
    why = (
        f"cooperative OEF's mean completion time is shorter than Gandiva-fair's and Gavel's by {words}; "
        f"{TENANTS} tenants with {JOBS} jobs each, and speed-ups within what it prints, leave less to gain"
    )
    apart = max(abs(here[key] - paper[key]) for key in paper)
    return Found(inputs, paper, here, "close" if apart <= 5 else "differs", why)


REPRODUCTIONS = (
    Reproduction(
        "oef-fig-9",
        PAPER,
        "Completion times under cooperative OEF, Gandiva-fair and Gavel.",
        60,
        figure_9,
    ),
)
