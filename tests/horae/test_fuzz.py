"""Damaged inputs for everything that the arbiter and its command line read (`tests/fuzzing.py`)."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from horae import config, job_form
from horae.api import words as api_words
from horae.api.verbs import VERBS
from horae.journal import Journal, events
from horae.journal.form import numbered
from horae.journal.reading import FILE
from horae.journal.store import rebuilt
from horae.local import options as local_options
from horae.spec import JobSpec
from horae.sweeps import sweep, variable
from horae.tui import forms as words
from horae.views import rows
from policy.model import BadInput, GpuRange
from policy.text import instance
from policy.text.textform import load
from policy.themis import bidding
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
   loss: [[1.0, 2.3], [2.0, 2.1]],
   loss_forecast: {law: power, parameters: {asymptote: 0.1, scale: 5.0, p: 0.5}, interval: [1.0, 2.0]},
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
SPEC = JobSpec("j", ("x",), GpuRange(1, 1, 2), owner="ann", tenant="ann")
EVENTS = [
    events.Opened(version="1", host="h", pid=1, how="new"),
    events.Claimed("token"),
    events.Submitted("1", SPEC, pool="main", tenant="ann", app="a", owner="ann", submitted_s=1.0),
    events.JobHeld("1", "ann", "why"),
    events.JobUnheld("1", "ann"),
    events.PutAside("1", "it raises", 700.0, "max-min"),
    events.Alerted("disk", "full", "free space"),
    events.Cleared("disk"),
    events.Forgotten(["2"]),
]


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _row(raw: bytes) -> object:
    return bidding.checked(_sent("bid", raw)["bids"], {"n1": 4, "n2": 4})


def _sent(verb: str, raw: bytes) -> dict[str, Any]:
    body = api_words.body(next(each for each in VERBS if each.name == verb))
    assert body is not None
    return body.read(raw)


def _word(raw: bytes) -> object:
    text = raw.decode("utf-8", "surrogateescape")
    for read in (words.parse_gpus, words.parse_duration):
        try:
            read(text)
        except BadInput as error:
            str(error)
    return None


def _journal(raw: bytes) -> None:
    """Rows as somebody's disk or hand left them: the state is what they say, or the file is kept aside with a reason
    and the state begins anew; and whichever it is can be shown, written and read again."""
    found = _loose(raw)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Journal(folder).close()
        with closing(sqlite3.connect(folder / FILE)) as file, file:
            for each in found if isinstance(found, list) else [found]:
                row = each if isinstance(each, Mapping) else {"kind": each, "data": each}
                data = row.get("data")
                values = [_cell(row.get(key)) for key in ("kind", "job", "pool")]
                file.execute(
                    "INSERT INTO events (wall_s, at_s, kind, job, pool, data) VALUES (1.0, 2.0, ?, ?, ?, ?)",
                    (*values, _cell(data) if isinstance(data, str) else json.dumps(data)),
                )
        made = Journal(folder)
        try:
            assert (made.quarantined is None) or "(" in made.quarantined
            rows.job_table(made.ledger, 10.0)
            made.append([events.Claimed("new")], durable=True)
            assert rebuilt(made.path) == made.ledger
        finally:
            made.close()


def _cell(value: object) -> object:
    """What a column may hold; half a character, which no text column can, is refused by the database."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else json.dumps(value) if value else None


def _loose(raw: bytes) -> Any:
    """What the damaged text still says; numbers of more digits than Python reads are large ones."""
    return json.loads(raw.decode("utf-8", "replace"), parse_int=lambda digits: int(digits[:400]))


def _local(raw: bytes) -> object:
    found = _loose(raw)
    return local_options.parse(found) if isinstance(found, dict) else None


LOCAL = {
    "state": "/s", "nodes": [{"name": "n1", "gpu_type": "v100", "gpus": 4, "rack": "r", "cpus": 8, "memory": 1e9}],
    "speeds": {"v100": 1.0}, "keep_s": 1.0, "log_limit_bytes": 5000, "keep_free_bytes": 0, "pass_env": ["A"],
}  # fmt: skip
JOURNAL = [
    {"kind": row.kind.value, "job": row.job, "pool": row.pool, "data": row.data}
    for row in (numbered(draft, 1, 1.0, 2.0) for draft in EVENTS)
]

TARGETS = [
    Target("journal", _journal, (json.JSONDecodeError, RecursionError, sqlite3.IntegrityError),
           [_text(JOURNAL), _text(JOURNAL[2:5])], count=80,
           known=[_text([{"kind": "submitted", "job": "1", "data": "[" * 100_000}])]),
    Target("local-options", _local, (BadInput, json.JSONDecodeError, RecursionError),
           [_text(LOCAL), _text({**LOCAL, "nodes": "v100:2x4,k80:2x2"})],
           known=[_text({**LOCAL, "nodes": "v100:999999999x4"}), _text({**LOCAL, "nodes": "v100:" + "9" * 5000})]),
    Target("jobs", lambda raw: [f.spec(owner="ann") for f in job_form.read_jobs(raw, BODY)], (BadInput,),
           [_text(JOB), _text({"jobs": [JOB, {"command": ["x"], "gpus": 4}]}),
            _text({"command": ["x"], "gpus": {"allowed": [1, 2]}})]),
    Target("jobs-file", lambda raw: job_form.read_jobs(raw, "jobs.yaml"), (BadInput,),
           [b"name: a\ncommand: [x, y]\ngpus: 2\n", _text(JOB)]),
    Target("why", lambda raw: _sent("cancel", raw), (BadInput,), [b"", _text({"why": "so"})]),
    Target("bid", _row, (BadInput,), [_text({"app": "a/b", "offer": 1, "bids": ROWS})]),
    Target("instance", lambda raw: instance.parse(raw, "a.yaml"), (BadInput,), [INSTANCE.encode()]),
    Target("instance-json", lambda raw: instance.parse(raw, "a.json"), (BadInput,),
           [instance.to_text(instance.parse(INSTANCE), "json").encode()]),
    Target("config", lambda raw: config.parse(raw, "config.yaml"), (BadInput,), [CONFIG.encode()]),
    Target("sweep", lambda raw: sweep.read(load(raw, "sweep.yaml")), (BadInput,), [_text(SWEEP)]),
    Target("sweep-variable", lambda raw: variable.from_text("a", raw.decode("utf-8", "replace")), (BadInput,),
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
