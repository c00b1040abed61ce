"""Apps of real training processes on the local cluster: sweeps end their losers, and an agent bids for its own app."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client
from horae.api.service import Service
from horae.arbiter.observe.measurements import SdkProfiles
from horae.config import parse
from horae.sweeps.sweep import read
from policy.text.textform import load, to_yaml
from tests.waiting import eventually

TRAINER, AGENT = (Path(__file__).with_name(name) for name in ("trainer.py", "agent_process.py"))
#: 8 jobs until 7.5 steps, the best of them until 60; 2 jobs to 60 at once.
SWEEP = f"""
name: tune
command: [{sys.executable}, {TRAINER}, "{{rate}}", "60", "0.05"]
gpus: {{min: 1, max: 2}}
checkpoint: CK/{{job}}
parameters: {{rate: {{low: 0.0005, high: 0.05, log: true}}}}
scheduler: {{kind: hyperband, iterations: 60, eta: 8}}
"""


@contextmanager
def arbiter(folder: Path, policy: str, options: dict[str, Any], nodes: str) -> Iterator[Client]:
    config: dict[str, Any] = {
        "state_dir": str(folder / "arbiter"),
        "cluster": {"adapter": "local", "options": {"state": str(folder / "cluster"), "nodes": nodes}},
        "pools": [{"name": "p", "mode": "enforce", "policy": policy, "options": options}],
        "rounds": {"tick_s": 0.5, "busy_s": 0.2, "debounce_s": 0.1, "quiet_s": 2.0, "decide_s": 20.0, "bid_s": 20.0},
        "guards": {"min_run_s": 1.0, "restarts_per_hour": 10000, "restart_cost_s": 0.1, "gain": 0.0},
        "api": {"socket": str(folder / "s.sock")},
    }
    service = Service(parse(to_yaml(config), "test"), profiles=SdkProfiles(every_s=0.3))
    service.start()
    client = Client(service.socket)
    try:
        yield client
    finally:
        until = time.monotonic() + 200
        while (left := client.status()["jobs"]) and time.monotonic() < until:
            for job in left:
                client.cancel(job["id"], "the test is over")
            time.sleep(0.2)
        service.stop()


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with arbiter(tmp_path_factory.mktemp("s"), "themis", {"lease": 5.0}, "v100:2x2") as built:
        yield built


@pytest.mark.timeout(1200)
def test_a_hyperband_sweep_under_themis(client: Client, tmp_path: Path) -> None:
    jobs = read(load(SWEEP.replace("CK", str(tmp_path)), "sweep.yaml"))
    rate = {job["name"]: float(job["command"][2]) for job in jobs}
    assert Counter(job["app"] for job in jobs) == {"tune-1": 8, "tune-0": 2}
    client.submit([{**job, "cwd": str(tmp_path)} for job in jobs])
    until = time.monotonic() + 270
    while (living := client.status()["jobs"]) and time.monotonic() < until:
        time.sleep(0.5)
    assert not living, [(j["name"], j["state"], j.get("reason")) for j in living]
    ended = {j["name"]: j["state"] for j in client.status(ended=True)["jobs"]}
    assert Counter(ended.values()) == {"cancelled": 7, "completed": 3}
    winner = next(n for n, state in ended.items() if state == "completed" and n.startswith("tune-1-"))
    # Jobs run on past the phase's end until the next round, so a close second may win; a slow learner may not.
    assert rate[winner] in sorted(r for n, r in rate.items() if n.startswith("tune-1-"))[4:]
    loser = next(j for j in client.status(ended=True)["jobs"] if j["state"] == "cancelled")
    told = str(client.history(job=loser["id"]))
    assert "keeps the best 1 of 8 jobs" in told


def over(client: Client, patience_s: float = 270.0) -> dict[str, dict[str, Any]]:
    """All jobs by name, once none is left to run."""
    until = time.monotonic() + patience_s
    while (living := client.status()["jobs"]) and time.monotonic() < until:
        time.sleep(0.3)
    assert not living, [(j["name"], j["state"], j["why"]) for j in living]
    return {j["name"]: j for j in client.status(ended=True)["jobs"]}


#: Four settings on two GPUs. None ends by itself: without a rest at the end of the phase two would never start. Jobs
#: run on past the end of a phase until it is noticed, so only one learns at all.
HALVING = f"""
name: pick
command: [{sys.executable}, {TRAINER}, "{{rate}}", "100000", "0.05"]
gpus: 1
checkpoint: CK/{{job}}
parameters: {{rate: [0.0001, 0.0003, 0.0002, 0.05]}}
scheduler: {{kind: successive-halving, iterations: 8, eta: 4}}
"""


@pytest.mark.timeout(1200)
def test_losers_end_under_a_policy_that_knows_nothing_of_apps(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("m")
    with arbiter(folder, "max-min", {}, "v100:1x2") as client:
        jobs = read(load(HALVING.replace("CK", str(folder)), "sweep.yaml"))
        numbers = client.submit([{**job, "cwd": str(folder)} for job in jobs])
        (left,) = eventually(lambda: len(found := client.status()["jobs"]) == 1 and found)
        assert left["name"] == "pick-3", "the fastest learner"
        (app,) = client.apps()
        assert (app["app"], app["scheduler"], app["best"]) == ("pick", "successive-halving", left["id"])
        assert (app["running"] + app["waiting"], app["ended_early"]) == (1, 3)
        assert (app["phase"]["number"], app["phase"]["of"], app["phase"]["places"]) == (2, 2, None)
        told = str(client.history(job=numbers[0]))
        assert "keeps the best 1 of 4 jobs" in told
        assert "the scheduler of app pick" in told
        assert "keeps the best 1 of 4 jobs" in client.explain(numbers[0])["headline"]
        cause = next(c for c in client.explain(left["id"])["causes"] if c["what"] == "app")
        assert "number 1 of 1 by its loss" in cause["text"]


EXTERNAL = f"""
name: own
command: [{sys.executable}, {TRAINER}, "{{rate}}", "100000", "0.05"]
gpus: {{min: 1, max: 2}}
checkpoint: CK/{{job}}
parameters: {{rate: [0.0005, 0.05]}}
scheduler: {{kind: external, iterations: 100000}}
"""


@pytest.mark.timeout(1200)
def test_an_agent_of_its_own_bids_wins_and_ends_its_loser(client: Client, tmp_path: Path) -> None:
    """The agent is a real process, and knows nothing but the socket."""
    jobs = read(load(EXTERNAL.replace("CK", str(tmp_path)), "sweep.yaml"))
    slow, fast = client.submit([{**job, "cwd": str(tmp_path)} for job in jobs])
    words = [sys.executable, str(AGENT), str(client.socket), "own", "5"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        try:
            explained = eventually(
                lambda: "came in time" in str(client.explain(fast)["causes"]) and client.explain(fast)
            )
            eventually(lambda: client.job(slow)["ended"])
            client.cancel(fast, "the test is over")
            ended = over(client)
            out, err = agent.communicate(timeout=300)
        finally:
            agent.kill()
    assert agent.returncode == 0, err
    cause = next(c for c in explained["causes"] if c["what"] == "app")
    assert cause["numbers"]["bid_by"] == "agent"
    assert ended["own-0"]["state"] == "cancelled"
    assert "its own scheduler ended it" in str(client.history(job=slow))
    wins = [json.loads(line) for line in out.splitlines()]
    assert any(w["came"] and w["numbers"].get("bid_by") == "agent" and w["jobs"] for w in wins), out
    kinds = Counter(e["kind"] for e in client.history(limit=10_000))
    assert kinds["offered"] and kinds["bid"] and kinds["settled"]
