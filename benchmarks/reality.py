"""Does the simulator say what really happens? The demo's arrivals, run for real and simulated with what they measured.

    python benchmarks/reality.py [--seconds 180] [--policies max-min,afs-l] [--times 3] [--lives FOLDER]

The seven jobs of the demo (its sweep left out) are trained for real, by the arbiter on a private local cluster whose
GPUs are slots. Its journal tells what is measured: how fast each job was on how many GPUs, how long a start took until
the first iteration, how long a job that was asked to leave held its GPUs. With these, and with the same configuration
of the arbiter (rounds, guards, weights), the same arrivals are simulated by the arbiter's own code over the simulated
cluster. It knows no speeds beforehand there either: it reads them in the log, where the job has run. Sizes that a job
never had are as fast as its trainer's law says, times how true that was of the job. Goals: completion
times within 10 % for nine jobs of ten, the means within 3 %; `of_means` says it of each job's mean over the turns,
which one run's accidents move less. Trainers sleep for most of an iteration, but a busy
machine delays them: the result says its load. `--lives` keeps what was lived through, one file a turn, or takes it from
there. Of each job: how long it waited for its first GPUs, and how many GPU-seconds it held. Two real runs of the same
arrivals differ, too: a job that comes a tenth of a second before a guard ends has others decided about without it.
`real_runs` says by how much; no simulation of one of them can be nearer to it than another one is. `as_a_real_run`
says whether the simulation is one of them: whether it is as near to a real run as two real ones are to each other, in
the mean over them, and which part of its jobs' times (each one's mean over the turns) lies no further from the real
mean than NEAR or two standard errors of it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from _record import record

from horae.api.client import Client
from horae.arbiter.observe.measurements import SdkProfiles
from horae.config import Config
from horae.demo import cluster as demo
from horae.demo.playing import wait_ready
from horae.demo.scenario import BATCH, Arrival, Framework, Scenario, as_body, scenario
from horae.sim.engine.arbiter import POOL
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.cluster import cluster_of
from horae.sim.engine.restarts import constant
from horae.sim.engine.workload import Table, Workload, runs
from horae.sim.engine.world import Change, SimulatedJob, SimulatedWorld
from horae.sim.faults.days import BadDays
from horae.sim.traces.model import Trace, TraceJob
from policy.model import Slowdown
from policy.throughput import Throughput

PATIENCE_S = 600.0
NEAR, MEANS_NEAR, PART = 0.10, 0.03, 0.9
#: What is asked for until the cluster shows it.
_AWAITED = {"running": "start", "stopped": "checkpoint_and_stop"}
#: Played before the others: an arbiter that has just come up has yet to bring its policy's process up.
WARM_UP = Arrival(0.0, "warm-up", "nlp", 1, 1.0, hidden=16, sample_ms=1.0)
#: Iterations of trainers that sleep take as long on any nodes.
ANYWHERE = Slowdown(1.0, 1.0, 1.0)
#: Iterations that a pace is told from.
ENOUGH = 20.0
Events = Sequence[Mapping[str, Any]]
Paces = Mapping[int, float]  #: by GPUs, and at 0 of all: its iterations as a part of what its trainer's law says


@dataclass(frozen=True, slots=True)
class Lived:
    """What became of each job, by name."""

    jct_s: Mapping[str, float]
    wait_s: Mapping[str, float]  #: from its submission until its first GPUs
    gpu_s: Mapping[str, float]  #: GPUs x time
    resizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a run measured."""

    paces: Mapping[str, Paces]  #: by job
    submitted_s: Mapping[str, float]  #: by job, from the first on
    spawn_s: float  #: from being asked to start until it runs
    warm_s: float  #: from then until its first iteration
    leave_s: float  #: from being asked to stop until its GPUs are free


def really(play: Scenario, policy: str) -> dict[str, Any]:
    """Train them: the jobs and the events, as the API tells them. Raises AssertionError where a job fails."""
    with demo.stage(play, policy) as built:
        wait_ready(built.client)
        built.client.submit([as_body(WARM_UP, Framework.NUMPY, built.checkpoints)])
        while not all(job["ended"] for job in built.client.status(ended=True)["jobs"]):
            time.sleep(0.1)
        began_s, waiting = time.monotonic(), sorted(play.arrivals, key=lambda a: a.at_s)
        while time.monotonic() - began_s < PATIENCE_S:
            while waiting and waiting[0].at_s <= time.monotonic() - began_s:
                built.client.submit([as_body(waiting.pop(0), Framework.NUMPY, built.checkpoints)])
            jobs = built.client.status(ended=True)["jobs"]
            if not waiting and all(job["ended"] for job in jobs):
                break
            time.sleep(0.1)
        return lives(built.client)


def lives(client: Client) -> dict[str, Any]:
    jobs = [job for job in client.status(ended=True)["jobs"] if job["name"] != WARM_UP.name]
    ours = {job["id"] for job in jobs}
    for job in jobs:
        assert job["state"] == "completed", f"{job['name']} is {job['state']}"
    return {"jobs": jobs, "events": [event for event in client.history(limit=100_000) if event["job"] in ours]}


def lived(jobs: Events, events: Events) -> Lived:
    names = {job["id"]: job["name"] for job in jobs}
    changes = [
        (event["data"].get("since_s", event["wall_s"]), names[event["job"]], sum(event["data"]["allocation"].values()))
        for event in events
        if event["kind"] == "seen"
    ]
    began_s = {job["name"]: job["submitted_s"] for job in jobs}
    return Lived(
        {job["name"]: job["ended_s"] - job["submitted_s"] for job in jobs},
        *held(changes, began_s),
        {job["name"]: max(job["starts"] - 1, 0) for job in jobs},
    )


def held(changes: Sequence[Change], submitted_s: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """How long each job waited for its first GPUs, and its GPU-seconds."""
    waited, spent, now = {}, dict.fromkeys(submitted_s, 0.0), dict.fromkeys(submitted_s, (0.0, 0))
    for at_s, job, gpus in changes:
        since_s, before = now[job]
        if gpus != before:
            spent[job] += before * (at_s - since_s)
            waited.setdefault(job, at_s - submitted_s[job])
            now[job] = at_s, gpus
    return waited, spent


def profile(play: Scenario, jobs: Events, events: Events) -> Profile:
    names = {job["id"]: job["name"] for job in jobs}
    first_s = min(job["submitted_s"] for job in jobs)
    warmups, starts, leaves = [], [], []
    asked: dict[tuple[str, str], float] = {}
    for event in events:
        data = event.get("data") or {}
        if event["kind"] == "measured" and data.get("warmup_s") is not None:
            warmups.append(data["warmup_s"])
        if event["kind"] == "intent":
            asked.setdefault((event["job"], data["verb"]), event["wall_s"])
        if event["kind"] == "seen" and (since := asked.get((event["job"], _AWAITED.get(data.get("state"), "")))):
            took = starts if data["state"] == "running" else leaves
            took.append(max(data.get("since_s", event["wall_s"]) - since, 0.0))
            del asked[event["job"], _AWAITED[data["state"]]]
    submitted_s = {job["name"]: job["submitted_s"] - first_s for job in jobs}
    spawn_s, warm_s, leave_s = fmean(starts), fmean(warmups), fmean(leaves) if leaves else 0.0
    paces = {
        arrival.name: _paces(play, arrival, [e for e in events if names[e["job"]] == arrival.name], warm_s, leave_s)
        for arrival in play.arrivals
    }
    return Profile(paces, submitted_s, spawn_s, warm_s, leave_s)


def _paces(play: Scenario, arrival: Arrival, events: Events, warm_s: float, leave_s: float) -> Paces:
    """What part of its law's iterations the job made, by its GPUs: what each start added to its checkpoint, over the
    time from its first iteration until it was asked to leave."""
    made, due = Counter[float](), Counter[float]()
    begun = asked_s = step = rate = 0.0
    gpus = 0
    for event in events:
        data = event.get("data") or {}
        if event["kind"] == "intent" and data["verb"] == "checkpoint_and_stop":
            asked_s = event["wall_s"]
        if event["kind"] != "seen":
            continue
        if data["state"] == "running":
            begun, gpus, asked_s = data["since_s"], sum(data["holding"].values()), 0.0
            rate = law(arrival, min(play.speeds[t] for t in data["holding"]), gpus)
        if data["state"] in ("stopped", "completed"):
            until_s = (asked_s if data["state"] == "stopped" else 0.0) or data["since_s"] - leave_s
            done = data["checkpoint"]["step"] if data["state"] == "stopped" else arrival.steps
            made[gpus] += done - step
            due[gpus] += rate * max(until_s - begun - warm_s, 0.0)
            step = done
    return {n: made[n] / due[n] for n in due if due[n] >= ENOUGH} | {0: made.total() / due.total()}


def law(arrival: Arrival, speed: float, gpus: int) -> float:
    """Iterations/s of a trainer that sleeps for each sample."""
    return speed * gpus / (BATCH * arrival.sample_ms / 1e3)


def table(play: Scenario, measured: Profile, most: int) -> Table:
    found = {}
    for arrival in play.arrivals:
        paces = measured.paces[arrival.name]
        found[arrival.name] = {
            t: {n: paces.get(n, paces[0]) * law(arrival, speed, n) for n in range(1, most + 1)}
            for t, speed in play.speeds.items()
        }
    return found


def simulated(play: Scenario, policy: str, measured: Profile) -> Lived:
    nodes = cluster_of(play.nodes)
    most = sum(node.gpus for node in nodes.nodes)
    config = arbiter_of(play, policy)
    changes: list[Change] = []
    settings = Settings.of(nodes, policy, config.pools[0].options)
    speeds = Throughput(nodes)
    trace = Trace(tuple(_traced(arrival, measured.submitted_s[arrival.name]) for arrival in play.arrivals))
    jobs = [_as_handed_in(run, arrival) for run, arrival in zip(_runs(trace, settings, speeds, play, measured, most),
                                                          play.arrivals, strict=True)]  # fmt: skip
    # Each job holds its GPUs at its end for as long as when it is asked to leave: it is saved, and its ranks go.
    start_s = measured.spawn_s + measured.warm_s
    world = SimulatedWorld(speeds, constant(start_s), changes, first_s=start_s, last_s=measured.leave_s)
    arrivals = sorted(jobs, key=lambda run: run.plain.order)
    BadDays(
        AskedPolicy(settings, speeds), world, arrivals, (), None, config, spawn_s=measured.spawn_s,
        leave_s=measured.leave_s, learning=lambda _active, _now_s: SdkProfiles(demo.PROFILE_S),
    ).play()  # fmt: skip
    return Lived(
        {run.plain.name: (run.finished_s or float("inf")) - run.plain.submitted_s for run in jobs},
        *held(changes, {run.plain.name: run.plain.submitted_s for run in jobs}),
        {run.plain.name: max(run.starts - 1, 0) for run in jobs},
    )


def _runs(
    trace: Trace, settings: Settings, speeds: Throughput, play: Scenario, measured: Profile, most: int
) -> list[SimulatedJob]:
    return runs(trace, Workload(settings.cluster, speeds, table(play, measured, most)), None)


def _traced(arrival: Arrival, submitted_s: float) -> TraceJob:
    asked = arrival.gpus if isinstance(arrival.gpus, dict) else {"min": arrival.gpus, "max": arrival.gpus}
    sizes = asked.get("allowed") or [asked["min"], asked["max"]]
    return TraceJob(
        arrival.name,
        submitted_s,
        sizes[-1],
        None,
        tenant=arrival.tenant,
        min_gpus=sizes[0],
        max_gpus=sizes[-1],
        model=arrival.name,
        iterations=float(arrival.steps),
    )


def _as_handed_in(run: SimulatedJob, arrival: Arrival) -> SimulatedJob:
    """Without speeds; and where only some sizes are allowed, a trace has no words for it."""
    if isinstance(arrival.gpus, dict) and "allowed" in arrival.gpus:
        gpus = replace(run.plain.gpus, allowed=tuple(arrival.gpus["allowed"]))
        run.plain = replace(run.plain, gpus=gpus)
    run.real = replace(run.plain, slowdown=ANYWHERE)
    run.plain = replace(run.plain, throughput={}, provenance={})
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
                "real_wait_s": round(real.wait_s[name], 1),
                "simulated_wait_s": round(told.wait_s[name], 1),
                "real_gpu_s": round(real.gpu_s[name]),
                "simulated_gpu_s": round(told.gpu_s[name]),
                "real_resizes": real.resizes[name],
                "simulated_resizes": told.resizes[name],
            }
            for name, real_s in real.jct_s.items()
        },
        "resizes": {"real": sum(real.resizes.values()), "simulated": sum(told.resizes.values())},
    }


def verdict(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over the jobs of all turns; `real_runs`: of each real run against each other one."""
    jobs = [job for turn in turns for job in turn["jobs"].values()]
    near, means = apart([(job["real_s"], job["simulated_s"]) for job in jobs])
    of_one = [
        ([turn["jobs"][name]["real_s"] for turn in turns], [turn["jobs"][name]["simulated_s"] for turn in turns])
        for name in turns[0]["jobs"]
    ]
    again = [
        apart([(job["real_s"], other["jobs"][name]["real_s"]) for name, job in one["jobs"].items()])
        for one, other in combinations(turns, 2)
    ]
    of_means, _ = apart([(fmean(real), fmean(told)) for real, told in of_one])
    return {
        "verdict": "holds" if near >= PART and abs(means) <= MEANS_NEAR else "differs",
        "within_10_percent": round(near, 3),
        "means_off": round(means, 4),
        "of_means": {"turns": len(turns), "within_10_percent": round(of_means, 3)},
        "resizes": {key: sum(turn["resizes"][key] for turn in turns) for key in ("real", "simulated")},
        "as_a_real_run": {
            "as_near": near >= fmean(part for part, _ in again) if again else None,
            "jobs": round(fmean(within(real, told) for real, told in of_one), 3),
        },
        "real_runs": {
            "within_10_percent": [round(near, 3) for near, _ in again],
            "means_off": [round(means, 4) for _, means in again],
        },
    }


def within(real: Sequence[float], told: Sequence[float]) -> bool:
    """Whether the means cannot be told apart, or are near enough. Both have an error of their own."""
    error_s = hypot(*(stdev(some) / sqrt(len(some)) for some in (real, told))) if len(real) > 1 else 0.0
    return abs(fmean(told) - fmean(real)) <= max(NEAR * fmean(real), 2 * error_s)


def apart(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The part of them that is within 10 %, and how far apart their means are."""
    near = fmean(abs(there / here - 1) <= NEAR for here, there in pairs)
    return near, fmean(there for _, there in pairs) / fmean(here for here, _ in pairs) - 1


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=180.0, help="length of the demo")
    words.add_argument("--policies", default="max-min,afs-l", help="the arbiter's default, and the demo's")
    words.add_argument("--times", type=int, default=3, help="real runs under each")
    words.add_argument("--lives", type=Path, metavar="FOLDER", help="what was lived through: kept there, or from there")
    given = words.parse_args()
    play = scenario(given.seconds)
    found = {
        policy: both(play, policy, [given.lives and given.lives / f"{policy}-{n + 1}.json" for n in range(given.times)])
        for policy in given.policies.split(",")
    }
    record(Path(__file__), {"seconds": given.seconds, "policies": found})


def both(play: Scenario, policy: str, files: Sequence[Path | None]) -> dict[str, Any]:
    """For real, or as a file tells, and simulated; once for each of them."""
    turns = []
    for file in files:
        life = json.loads(file.read_text()) if file is not None and file.exists() else really(play, policy)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(life))
        measured = profile(play, **life)
        found = compared(lived(**life), simulated(play, policy, measured))
        found |= {key: round(getattr(measured, key), 3) for key in ("spawn_s", "warm_s", "leave_s")}
        turns.append(found)
        print(f"{policy}, {len(turns)}: {verdict(turns)}", flush=True)
    return {**verdict(turns), "turns": turns}


if __name__ == "__main__":
    main()
