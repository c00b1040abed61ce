"""Damaged inputs for everything that the arbiter and its command line read (`tests/fuzzing.py`)."""

from __future__ import annotations

import json

import pytest

from horae import config, job_form
from horae.api import agents, server
from horae.apps import sweep
from horae.arbiter.decide import offers
from horae.tui import forms as words
from policy.model import BadInput
from policy.text import instance
from policy.text.textform import fit, load
from tests.fuzzing import Target, attack

BODY = "body.json"
JOB = {
    "name": "resnet", "command": ["python", "train.py"], "gpus": {"min": 1, "max": 8}, "tenant": "vision", "app": "a",
    "cwd": "/tmp", "env": {"A": "b"}, "checkpoint": "/tmp/c", "gpu_types": ["v100"], "cpus_per_gpu": 2.0,
    "memory_per_gpu": "64G", "model": "m", "iterations": 1000, "throughput": {"v100": {"1": 1.5, "2": 2.5}},
    "grace_s": 30.0, "time_limit_s": 3600.0, "retries": 2, "extra": {"log_limit_bytes": "1000"},
}  # fmt: skip
INSTANCE = """\
schema: 1
now: 10.0
cluster:
  nodes:
  - {name: n1, gpu_type: v100, gpus: 4, rack: r1, health: up, foreign: 1, cpus: 16.0, memory: 64G}
  groups:
  - {count: 2, gpu_type: k80, gpus: 2, racks: 1}
tenants:
- {name: a, weight: 2.0, cap: 4}
jobs:
- {name: j1, tenant: a, app: x, submitted: 1.0, gpus: {min: 1, max: 4}, work: {total: 100.0, done: 3.0},
   throughput: {v100: {1: 2.0, 2: 3.5}, k80: 1.0}, provenance: {v100: measured}, slowdown: {rack: 1.2},
   attained: {v100: 40.0}, allocation: {n1: 2}, lease_until: {n1: [20.0, 30.0]}, cpus: 2, memory: 4G,
   loss: [[1.0, 2.3], [2.0, 2.1]], loss_forecast: {law: power, parameters: {a: 1.0}, interval: [1.0, 2.0]},
   restart_cost: 30.0}
apps:
- {name: x, scheduler: hyperband, budget: 10.0, phases: [{jobs: 2, iterations: 10.0}]}
history: {active_apps: [[0.0, 1.0]]}
policy: {name: max-min, options: {}}
"""
CONFIG = """\
state_dir: /var/lib/horae
cluster: {adapter: local, options: {gpus: 4}}
pools:
- {name: main, nodes: "n[1-8]", policy: max-min, mode: enforce, options: {weigh: apps}, seed: 1}
- {name: rest}
tenants: [{name: vision, weight: 2.0, users: [ann, ben]}]
operators: [root]
gpu_types: {k80: 1.0, v100: 3.0}
rounds: {tick_s: 2.0, busy_s: 1.0}
guards: {min_run_s: 1.0}
api: {show_others: false}
"""
SWEEP = {
    "name": "s", "command": ["t.py", "--lr={lr}", "{job}"], "gpus": 1, "parameters": {"lr": [0.1, 0.2], "b": [1]},
    "scheduler": {"kind": "successive-halving", "iterations": 200, "eta": 2},
}  # fmt: skip
ROWS = [{"nodes": {"n1": 2}, "rho": 1.5, "gpus": 2}, {"nodes": {"n1": 1, "n2": 1}, "rho": 2.0}]
SPEC = {"name": "j", "command": ["x"], "gpus": {"requested": 1, "min": 1, "max": 2}, "owner": "ann", "tenant": "ann"}
EVENTS = [
    {"kind": "submitted", "job": "1", "pool": "main", "data": {"spec": SPEC, "owner": "ann", "tenant": "ann"}},
    {"kind": "cancel-asked", "job": "1", "pool": "main", "data": {"by": "ann", "text": "why"}},
]


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _row(raw: bytes) -> object:
    body = fit(agents.LooseBid, load(raw or b"{}", BODY))
    return offers.table(body.bids, {"n1": 4, "n2": 4})


def _word(raw: bytes) -> object:
    text = raw.decode("utf-8", "surrogateescape")
    for read in (words.parse_gpus, words.parse_duration):
        try:
            read(text)
        except BadInput as error:
            str(error)
    return None


TARGETS = [
    Target("jobs", lambda raw: [f.spec(owner="ann") for f in job_form.read_jobs(raw, BODY)], (BadInput,),
           [_text(JOB), _text({"jobs": [JOB, {"command": ["x"], "gpus": 4}]}),
            _text({"command": ["x"], "gpus": {"allowed": [1, 2]}})]),
    Target("jobs-file", lambda raw: job_form.read_jobs(raw, "jobs.yaml"), (BadInput,),
           [b"name: a\ncommand: [x, y]\ngpus: 2\n", _text(JOB)]),
    Target("why", lambda raw: fit(server.WhyForm, load(raw or b"{}", BODY)), (BadInput,), [b"", _text({"why": "so"})]),
    Target("bid", _row, (BadInput,), [_text({"app": "a/b", "offer": 1, "bids": ROWS})]),
    Target("instance", lambda raw: instance.parse(raw, "a.yaml"), (BadInput,), [INSTANCE.encode()]),
    Target("instance-json", lambda raw: instance.parse(raw, "a.json"), (BadInput,),
           [instance.to_text(instance.parse(INSTANCE), "json").encode()]),
    Target("config", lambda raw: config.parse(raw, "config.yaml"), (BadInput,), [CONFIG.encode()]),
    Target("sweep", lambda raw: sweep.read(load(raw, "sweep.yaml")), (BadInput,), [_text(SWEEP)]),
    Target("sweep-variable", lambda raw: sweep.from_text("a", raw.decode("utf-8", "replace")), (BadInput,),
           [_text({"scheduler": "hyperband", "budget": 1.0, "demand_max": 4, "phases": [[4, 10.0], [2, 20.0]]})],
           known=[b'{"scheduler":"x","budget":null,"demand_max":null,"phases":[[1e999,1]]}', b"[" * 100_000]),
    Target("words", _word, (BadInput,), [b"1:8", b"4", b"1,2,4", b"2-03:04:05", b"90s", b"1.5h"]),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_whatever_the_input_it_is_read_or_refused(target: Target) -> None:
    attack(target)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_for_as_long_as_it_is_let(target: Target) -> None:
    attack(target, soak=True)
