"""A short day of arrivals on a real cluster under one policy: who comes when, what they train, whose turn it is.

Eight GPUs of two types, three tenants of weights 2, 1 and 1, six jobs: a wide elastic one, a narrower one, a sweep of
three, a gang of two. On YARN the sweep has a scheduler, which ends two of its trials; Slurm's users have none. Their
trainers are real (checkpoints, ranks, resizes by the SDK); a step takes as long as it would on GPUs of that number and
type (`speed`), asleep, so that a day needs little of the machine that it runs on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from policy import catalogue
from policy.model import Gpus, GpuType, Seconds

POLICIES = tuple(name for name, entry in catalogue.entries().items() if catalogue.is_own(entry))
#: One of these has its turn on Slurm in every run of the tests, by the date.
BY_TURNS = ("themis", "oef-cooperative", "gandiva-fair", "afs-p")
#: And on YARN always this one: half a day there is too short for a lease in which a sweep's losers are found.
ON_YARN = "oef-cooperative"
#: A lease, a round, a turn of every policy that has one.
QUANTUM_S: Seconds = 10.0
#: Of a day in every run, against one in `make soak`: its work, and its quanta.
SHORT = 0.5
STEP_S: Seconds = 0.2  #: on one GPU of the slower type
SCALING = 0.9
TYPES: Mapping[GpuType, float] = {"k80": 1.0, "v100": 2.0}
WEIGHTS = {"vision": 2.0, "speech": 1.0, "text": 1.0}


@dataclass(frozen=True, slots=True)
class Arrival:
    after_s: Seconds  #: the one before
    name: str
    tenant: str
    app: str
    gpus: tuple[Gpus, Gpus, Gpus]  #: requested, least, most
    steps: int


#: what all of the sweep's trials do before one goes on, by its scheduler
EXPLORED = 36
DAY = (
    Arrival(0.0, "wide", "vision", "wide", (4, 1, 8), 480),
    Arrival(4.0, "narrow", "speech", "narrow", (2, 1, 4), 240),
    Arrival(2.0, "tune-0", "text", "tune", (1, 1, 2), 90),
    Arrival(0.0, "tune-1", "text", "tune", (1, 1, 2), 90),
    Arrival(0.0, "tune-2", "text", "tune", (1, 1, 2), 90),
    Arrival(4.0, "gang", "speech", "gang", (2, 2, 2), 150),
)


def turn(today: date | None = None) -> str:
    """The policy whose turn it is today."""
    return BY_TURNS[(today or date.fromtimestamp(time.time())).toordinal() % len(BY_TURNS)]


def speed(gpu_type: GpuType, gpus: Gpus) -> float:
    """Steps/s of every job here on so many GPUs, relative to one of the slower type."""
    return TYPES[gpu_type] * float(gpus**SCALING) if gpus else 0.0


def day(length: float) -> tuple[Arrival, ...]:
    return tuple(replace(arrival, steps=int(arrival.steps * length)) for arrival in DAY)


def sweep(command: list[str], checkpoint: str, length: float) -> dict[str, Any]:
    """The day's sweep as a sweep file: three trials, of which the best goes on."""
    tune = [arrival for arrival in DAY if arrival.app == "tune"]
    return {
        "name": "tune",
        "tenant": tune[0].tenant,
        "command": [*command, str(sweep_steps(length)), "{handicap}"],
        "gpus": {"min": tune[0].gpus[1], "max": tune[0].gpus[2]},
        "checkpoint": checkpoint,
        "parameters": {"handicap": {"low": 0.0, "high": 1.0}},
        "samples": len(tune),
        "scheduler": {"kind": "successive-halving", "iterations": int(EXPLORED * length), "eta": len(tune)},
    }


def sweep_steps(length: float) -> int:
    """Of the trial that is not ended: both phases."""
    return int(EXPLORED * length) * 4


def options(policy: str, quantum_s: Seconds = QUANTUM_S) -> dict[str, Any]:
    """Quanta, leases and thresholds as short as the day; everything else is the policy's default."""
    short = dict.fromkeys(("quantum", "lease", "unit", "epoch"), quantum_s) | {"threshold": 2 * quantum_s}
    return {option.name: short[option.name] for option in catalogue.find(policy).options if option.name in short}


def configuration(policy: str, nodes: str, quantum_s: Seconds) -> dict[str, Any]:
    """Of the arbiter, less its cluster and folders. No guard holds anything back: what is decided is to be seen."""
    pool = {"name": "main", "policy": policy, "options": options(policy, quantum_s), "mode": "enforce", "nodes": nodes}
    return {
        "pools": [pool],
        "tenants": [{"name": name, "weight": weight} for name, weight in WEIGHTS.items()],
        "gpu_types": dict(TYPES),
        "rounds": {"tick_s": 1.0, "busy_s": 0.5, "quiet_s": 2.0},
        "guards": {"min_run_s": 0.0, "gain": 0, "restarts_per_hour": 10_000, "restart_cost_s": 1.0},
        "probes": {"an_hour": 0},
        "history": {"measured_s": 0.1},  # every measurement: what a decision was made on is to be seen
    }


def trainer(types: Mapping[str, GpuType]) -> str:
    """The source of the day's trainer: `python FILE STEPS [HANDICAP]`. `types`: of every node by its name."""
    speeds = {node: TYPES[kind] for node, kind in types.items()}
    return f"""import os, sys, time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
handicap = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
here = os.environ.get("SLURMD_NODENAME") or os.environ["NM_HOST"]
rate = {speeds!r}[here] * int(os.environ["WORLD_SIZE"]) ** {SCALING}  # the slowest rank holds the others up
for step in elastic.Training(steps=int(sys.argv[1]), global_batch=64, save=save, load=load, checkpoint_every_steps=20,
                             log_every_s=0.0):
    time.sleep({STEP_S} / rate)
    done[0] += 1
    step.report(1.0 + handicap + 4.0 / (done[0] + 4.0))
"""
