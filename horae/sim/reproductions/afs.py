"""AFS (NSDI 2021): Figures 5, 6 and 9, on a slice of each of its eleven Philly clusters and its 64 GPUs.

The paper plays 137 days of each cluster and does not say on how many GPUs. A slice is the 60 jobs in a row that ask for
most GPU time a day of their arrivals (`philly_slices.csv`), played on the 64 GPUs of the paper's own cluster, with the
throughput measured for the paper, as one pool without restart costs. As there, each job trains a model drawn from the
nine of Table 4 that scale to the GPUs it asked for, for as long as the log says on those; elastic policies may give it
from one GPU to where it is fastest. Optimus counts as one that knows lengths and as one that does not, as there. Of the
paper's policies Themis is not played: it auctions each lease of jobs that run for weeks, which takes hours here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random

from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of, pooled
from horae.sim.engine.simulation import simulate
from horae.sim.reproductions.catalogue import Found, Reproduction
from horae.sim.results import mean, percentile
from horae.sim.traces.model import Trace, TraceJob
from horae.tables import table
from policy.model import Gpus, Seconds

PAPER = "afs"
SLICES = Path(__file__).with_name("philly_slices.csv")
CLUSTER, GPU = "gtx1080:16x4", "gtx1080"
#: Table 4.
MODELS = (
    "vggnet",
    "googlenet",
    "inception4",
    "resnet50",
    "dcgan",
    "videoprediction",
    "chatbot",
    "deepspeech",
    "transformer",
)
AWARE, UNAWARE = ("srsf", "optimus", "afs-l"), ("max-min", "optimus", "afs-p")
Ratios = dict[str, list[float]]


@lru_cache(maxsize=2)
def traces(seed: int) -> dict[str, Trace]:
    """By cluster, in the order of the paper's Table 3."""
    with SLICES.open(encoding="utf-8") as file:
        logged = [
            TraceJob(
                f"{row['cluster']}-{number}",
                float(row["submitted"]),
                int(row["gpus"]),
                float(row["duration"]),
                row["cluster"],
            )
            for number, row in enumerate(csv.DictReader(file))
        ]
    return {cluster: Trace(tuple(jobs)) for cluster, jobs in modelled(logged, seed).items()}


def modelled(logged: Iterable[TraceJob], seed: int) -> dict[str, list[TraceJob]]:
    """By cluster, which their tenant is: what each job trains, of one tenant, from its cluster's first job on."""
    random, out = Random(seed), dict[str, list[TraceJob]]()
    for job in logged:
        model = random.choice([m for m in MODELS if fastest(m) >= job.gpus])
        jobs = out.setdefault(job.tenant, [])
        jobs.append(replace(job, tenant="default", min_gpus=1, max_gpus=fastest(model), model=model))
    return {
        name: [replace(job, submitted=job.submitted - jobs[0].submitted) for job in jobs] for name, jobs in out.items()
    }


def fastest(model: str) -> Gpus:
    """The size at which it is fastest."""
    curve = table("afs")[model][GPU]
    return max(curve, key=lambda n: curve[n])


@lru_cache(maxsize=256)
def times(cluster: str, policy: str, seed: int, peak: bool = False) -> tuple[Seconds, ...]:
    """Completion times. `peak`: every job asks for the GPUs on which it is fastest."""
    trace = traces(seed)[cluster]
    if peak:
        trace = replace(trace, jobs=tuple(map(_at_peak, trace.jobs)))
    return completion_s(trace.jobs, policy, seed)


def completion_s(jobs: Sequence[TraceJob], policy: str, seed: int) -> tuple[Seconds, ...]:
    """On the paper's GPUs as one pool."""
    options = {"over": "job"} if policy == "max-min" else {}
    settings = Settings.of(pooled(cluster_of(CLUSTER)), policy, options, seed=seed, ideal=True)
    runs = simulate(Trace(tuple(jobs)), settings, table("afs")).runs
    return tuple(run.finished_s - run.plain.submitted_s for run in runs if run.finished_s is not None)


def _at_peak(job: TraceJob) -> TraceJob:
    """The same work on as many GPUs as make it fastest."""
    assert job.model is not None
    assert job.duration is not None
    curve, most = table("afs")[job.model][GPU], fastest(job.model)
    duration = job.duration * curve[job.gpus] / curve[most]
    return replace(job, gpus=most, max_gpus=most, duration=duration)


def _over(baseline: str, policies: Sequence[str], seed: int, percent: float | None) -> Ratios:
    """Of each cluster, the baseline's completion time over the policy's: the mean, or a percentile."""

    def figure(cluster: str, policy: str) -> float:
        found = times(cluster, policy, seed)
        return mean(found) if percent is None else percentile(found, percent)

    return {
        f"{policy} over {baseline}": [round(figure(c, baseline) / figure(c, policy), 2) for c in traces(seed)]
        for policy in policies
    }


def _inputs(seed: int) -> dict[str, object]:
    return {
        "cluster": CLUSTER,
        "throughputs": "afs",
        "models": list(MODELS),
        "slices": {cluster: len(trace.jobs) for cluster, trace in traces(seed).items()},
    }


def _found(seed: int, percent: float | None) -> tuple[Ratios, dict[str, object]]:
    here = _over("srtf", AWARE, seed, percent) | _over("tiresias-l", UNAWARE, seed, percent)
    return here, {key: [None] * len(values) for key, values in here.items()}


def figure_5(seed: int) -> Found:
    here, paper = _found(seed, None)
    aware, unaware = here["afs-l over srtf"], here["afs-p over tiresias-l"]
    best = [
        max(here[f"{p} over {b}"][n] for p in peers) <= ours[n] + 0.005
        for peers, b, ours in ((AWARE, "srtf", aware), (UNAWARE, "tiresias-l", unaware))
        for n in range(len(ours))
    ]
    why = (
        f"AFS-L is {min(aware):.1f} to {max(aware):.1f} times as fast as SRTF where the paper tells of 1.2 to 2.7, "
        f"AFS-P {min(unaware):.1f} to {max(unaware):.1f} times as Tiresias-L where it tells of 1.9 to 3.1, each first "
        f"of its kind in {sum(best)} of {len(best)} cases; slices on 64 GPUs, and without Themis"
    )
    ahead = min(aware) >= 1 and min(unaware) >= 1 and sum(best) >= 0.8 * len(best)
    return Found(_inputs(seed), paper, here, "close" if ahead else "differs", why)


def figure_9(seed: int) -> Found:
    here, paper = _found(seed, 99)
    ours = here["afs-l over srtf"] + here["afs-p over tiresias-l"]
    better = sum(ratio >= 1 for ratio in ours)
    why = (
        f"the 99th percentile is shorter under AFS than under its baseline in {better} of {len(ours)} cases, where the "
        "paper says `in most`; slices of 60 jobs, of which that is nearly the longest"
    )
    return Found(_inputs(seed), paper, here, "close" if better > len(ours) / 2 else "differs", why)


def figure_6(seed: int) -> Found:
    """The same jobs with as many GPUs as make each fastest."""
    policies = {"srtf": 4.85, "srsf": 5.84, "tiresias-l": 16.14}
    here: dict[str, object] = {}
    for policy in policies:
        by_cluster = [mean(times(c, policy, seed, True)) / mean(times(c, policy, seed)) for c in traces(seed)]
        here[policy] = {"largest": round(max(by_cluster), 2), "by cluster": [round(r, 2) for r in by_cluster]}
    paper = {p: {"largest": most, "by cluster": [None] * len(traces(seed))} for p, most in policies.items()}
    worse = {p: sum(r > 1 for r in by["by cluster"]) for p, by in here.items() if isinstance(by, dict)}
    words = ", ".join(f"{p} in {n}" for p, n in worse.items())
    why = (
        f"mean completion times grow under {words} of the {len(traces(seed))} slices, where the paper finds one "
        "cluster that gains; how far depends on the load, which slices on 64 GPUs do not share with its months"
    )
    most = all(n > len(traces(seed)) / 2 for n in worse.values())
    return Found(_inputs(seed), paper, here, "close" if most else "differs", why)


REPRODUCTIONS = (
    Reproduction(
        "afs-fig-5", PAPER, "Mean completion times of AFS-L and AFS-P over SRTF and Tiresias-L.", 300, figure_5
    ),
    Reproduction(
        "afs-fig-6",
        PAPER,
        "Rigid policies with as many GPUs as make each job fastest.",
        5,
        figure_6,
    ),
    Reproduction(
        "afs-fig-9",
        PAPER,
        "As Figure 5, the 99th percentile.",
        300,
        figure_9,
    ),
)
