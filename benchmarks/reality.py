"""Does the simulator say what really happens? The demo's arrivals, run for real and simulated with what they measured.

    python benchmarks/reality.py [--seconds 180] [--policy afs-l] [--times 3]

The seven jobs of the demo (its sweep left out) are trained for real, by the arbiter on a private local cluster whose
GPUs are slots. Its journal tells what is measured: how fast each job was on how many GPUs, how long a start took until
the first iteration, how long a job that was asked to leave held its GPUs. With these, and with the same configuration
of the arbiter (rounds, guards, weights), the same arrivals are simulated by the arbiter's own code over the simulated
cluster. Sizes that a job never had are as fast as its trainer's law says, times how true that was of the sizes that it
had. Goals: completion times within 10 % for nine jobs of ten, the means within 3 %. Trainers sleep for most of an
iteration, but a busy machine delays them: the result says its load.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from _record import record

from horae.config import Config
from horae.demo import cluster as demo
from horae.demo.playing import wait_ready
from horae.demo.scenario import BATCH, Arrival, Framework, Scenario, as_body, scenario
from horae.sim.engine.arbiter import POOL
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.cluster import cluster_of
from horae.sim.engine.restarts import constant
from horae.sim.engine.workload import Table, Workload, runs
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.sim.faults.days import BadDays
from horae.sim.traces.model import Trace, TraceJob
from policy.throughput import Throughput

PATIENCE_S = 600.0
NEAR, MEANS_NEAR, PART = 0.10, 0.03, 0.9
#: What is asked for until the cluster shows it.
_AWAITED = {"running": "start", "stopped": "checkpoint_and_stop"}
Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Lived:
    """What became of each job, by name."""

    jct_s: Mapping[str, float]
    resizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a run measured."""

    rates: Mapping[str, Mapping[str, Mapping[int, float]]]  #: job -> type -> GPUs -> iterations/s
    start_s: float  #: from being asked to start until the first iteration
    leave_s: float  #: from being asked to stop until its GPUs are free


def really(play: Scenario, policy: str) -> tuple[Lived, Profile]:
    """Train them. Raises AssertionError where a job fails."""
    with demo.stage(play, policy) as built:
        wait_ready(built.client)
        began_s, waiting = time.monotonic(), sorted(play.arrivals, key=lambda a: a.at_s)
        while time.monotonic() - began_s < PATIENCE_S:
            while waiting and waiting[0].at_s <= time.monotonic() - began_s:
                built.client.submit([as_body(waiting.pop(0), Framework.NUMPY, built.checkpoints)])
            jobs = built.client.status(ended=True)["jobs"]
            if not waiting and all(job["ended"] for job in jobs):
                break
            time.sleep(0.1)
        jobs = built.client.status(ended=True)["jobs"]
        events = built.client.history(limit=100_000)
    for job in jobs:
        assert job["state"] == "completed", f"{job['name']} is {job['state']}"
    lived = Lived(
        {job["name"]: job["ended_s"] - job["submitted_s"] for job in jobs},
        {job["name"]: max(job["starts"] - 1, 0) for job in jobs},
    )
    return lived, profile(events, {job["id"]: job["name"] for job in jobs})


def profile(events: Events, names: Mapping[str, str]) -> Profile:
    rates: dict[str, Any] = {}
    warmups, starts, leaves = [], [], []
    asked: dict[tuple[str, str], float] = {}
    for event in events:
        data = event.get("data") or {}
        if event["kind"] == "measured" and data.get("rates"):
            rates[names[event["job"]]] = {t: {int(n): r for n, r in by.items()} for t, by in data["rates"].items()}
        if event["kind"] == "measured" and data.get("warmup_s") is not None:
            warmups.append(data["warmup_s"])
        if event["kind"] == "intent":
            asked.setdefault((event["job"], data["verb"]), event["wall_s"])
        if event["kind"] == "seen" and (since := asked.get((event["job"], _AWAITED.get(data.get("state"), "")))):
            took = starts if data["state"] == "running" else leaves
            took.append(max(data.get("since_s", event["wall_s"]) - since, 0.0))
            del asked[event["job"], _AWAITED[data["state"]]]
    return Profile(rates, fmean(starts) + fmean(warmups), fmean(leaves) if leaves else 0.0)


def law(arrival: Arrival, speed: float, gpus: int) -> float:
    """Iterations/s of a trainer that sleeps for each sample."""
    return speed * gpus / (BATCH * arrival.sample_ms / 1e3)


def table(play: Scenario, measured: Profile, most: int) -> Table:
    found = {}
    for arrival in play.arrivals:
        had = measured.rates.get(arrival.name, {})
        true = [rate / law(arrival, play.speeds[t], n) for t, by in had.items() for n, rate in by.items()]
        by = fmean(true) if true else 1.0
        found[arrival.name] = {
            t: {n: had.get(t, {}).get(n, by * law(arrival, speed, n)) for n in range(1, most + 1)}
            for t, speed in play.speeds.items()
        }
    return found


def simulated(play: Scenario, policy: str, measured: Profile) -> Lived:
    nodes = cluster_of(play.nodes)
    most = sum(node.gpus for node in nodes.nodes)
    config = arbiter_of(play, policy)
    settings = Settings.of(nodes, policy, config.pools[0].options)
    speeds = Throughput(nodes)
    trace = Trace(tuple(_traced(arrival) for arrival in play.arrivals))
    jobs = [_ranged(run, arrival) for run, arrival in zip(_runs(trace, settings, speeds, play, measured, most),
                                                          play.arrivals, strict=True)]  # fmt: skip
    world = SimulatedWorld(speeds, constant(measured.start_s), first_s=measured.start_s)
    arrivals = sorted(jobs, key=lambda run: run.plain.order)
    BadDays(AskedPolicy(settings, speeds), world, arrivals, (), None, config, leave_s=measured.leave_s).play()
    return Lived(
        {run.plain.name: (run.finished_s or float("inf")) - run.plain.submitted_s for run in jobs},
        {run.plain.name: max(run.starts - 1, 0) for run in jobs},
    )


def _runs(
    trace: Trace, settings: Settings, speeds: Throughput, play: Scenario, measured: Profile, most: int
) -> list[SimulatedJob]:
    return runs(trace, Workload(settings.cluster, speeds, table(play, measured, most)), None)


def _traced(arrival: Arrival) -> TraceJob:
    asked = arrival.gpus if isinstance(arrival.gpus, dict) else {"min": arrival.gpus, "max": arrival.gpus}
    sizes = asked.get("allowed") or [asked["min"], asked["max"]]
    return TraceJob(
        arrival.name,
        arrival.at_s,
        sizes[-1],
        None,
        tenant=arrival.tenant,
        min_gpus=sizes[0],
        max_gpus=sizes[-1],
        model=arrival.name,
        iterations=float(arrival.steps),
    )


def _ranged(run: SimulatedJob, arrival: Arrival) -> SimulatedJob:
    """Where only some sizes are allowed, a trace has no words for it."""
    if isinstance(arrival.gpus, dict) and "allowed" in arrival.gpus:
        gpus = replace(run.plain.gpus, allowed=tuple(arrival.gpus["allowed"]))
        run.plain = replace(run.plain, gpus=gpus)
    return run


def arbiter_of(play: Scenario, policy: str) -> Config:
    """The demo's own, over the simulated cluster."""
    given = demo.config(play, Path("/nonexistent/simulated"), policy, None)
    pools = tuple(pool.model_copy(update={"name": POOL}) for pool in given.pools)
    return given.model_copy(update={"pools": pools})


def compared(real: Lived, told: Lived) -> dict[str, Any]:
    return {
        "jobs": {
            name: {
                "real_s": round(real_s, 1),
                "simulated_s": round(told.jct_s[name], 1),
                "off": round(told.jct_s[name] / real_s - 1, 3),
                "real_resizes": real.resizes[name],
                "simulated_resizes": told.resizes[name],
            }
            for name, real_s in real.jct_s.items()
        },
        "resizes": {"real": sum(real.resizes.values()), "simulated": sum(told.resizes.values())},
    }


def verdict(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over the jobs of all turns."""
    jobs = [job for turn in turns for job in turn["jobs"].values()]
    near = sum(abs(job["off"]) <= NEAR for job in jobs) / len(jobs)
    means = fmean(job["simulated_s"] for job in jobs) / fmean(job["real_s"] for job in jobs) - 1
    return {
        "verdict": "holds" if near >= PART and abs(means) <= MEANS_NEAR else "differs",
        "within_10_percent": round(near, 3),
        "means_off": round(means, 4),
        "resizes": {key: sum(turn["resizes"][key] for turn in turns) for key in ("real", "simulated")},
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=180.0, help="length of the demo")
    words.add_argument("--policy", default="afs-l")
    words.add_argument("--times", type=int, default=3)
    given = words.parse_args()
    play = scenario(given.seconds)
    turns = []
    for turn in range(given.times):
        real, measured = really(play, given.policy)
        found = compared(real, simulated(play, given.policy, measured))
        found |= {"start_s": round(measured.start_s, 3), "leave_s": round(measured.leave_s, 3)}
        turns.append(found)
        print(f"{turn + 1}: {verdict(turns)}", flush=True)
    record(Path(__file__), {"policy": given.policy, "seconds": given.seconds, **verdict(turns), "turns": turns})


if __name__ == "__main__":
    main()
