"""A Hyperband sweep by `horae submit --sweep` under Themis on a real Hadoop: losers are cut, the winners finish."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client
from policy.text.textform import to_yaml
from tests.contract.harness import starts_in, steps_in
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    wait_for,
)
from tests.real.serving import HORAE, arbiter
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop, processes_of

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

TRAINER = Path(__file__).parents[1] / "horae" / "apps" / "trainer.py"
STEPS, ETA, STEP_S = (
    15,
    4,
    2.0,
)  #: brackets: four trials until 3.75 steps, the best of them until 15; two until 15 at once


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


def sweep(harness: YarnHarness, folder: Path) -> dict[str, Any]:
    url = harness.facts["webhdfs"].replace("http:", "webhdfs:")
    return {
        "name": "tune",
        "command": [sys.executable, str(TRAINER), "{rate}", str(STEPS), str(STEP_S)],
        "gpus": {"min": 1, "max": 2},
        "checkpoint": f"{url}/user/horae/{folder.parent.name}-{folder.name}/{{job}}",
        "parameters": {"rate": {"low": 0.001, "high": 0.1, "log": True}},
        "scheduler": {"kind": "hyperband", "iterations": STEPS, "eta": ETA},
    }


def test_a_hyperband_sweep_under_themis(harness: YarnHarness, tmp_path: Path) -> None:
    socket = tmp_path / "api.sock"
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "yarn", "options": {**harness.options, "memory_mib": 256}},
        "pools": [
            {"name": "main", "mode": "enforce", "policy": "themis", "options": {"lease": 20.0}, "nodes": "n[1-2]"}
        ],
        "rounds": {"busy_s": 0.5, "quiet_s": 5.0},
        "guards": {"min_run_s": 5.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "api": {"socket": str(socket)},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    (tmp_path / "tune.yaml").write_text(to_yaml(sweep(harness, tmp_path)))
    with arbiter(tmp_path):
        try:
            wait_for("the arbiter listens", socket.exists)
            words = ["submit", "--socket", str(socket), "--sweep", str(tmp_path / "tune.yaml"), "--json"]
            done = subprocess.run([*HORAE, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            numbers = json.loads(done.stdout)["jobs"]
            client = Client(socket)
            wait_for("losses are read while trials train", lambda: losses(client), 240)
            wait_for("no trial is left", lambda: not client.status()["jobs"], 600)
        except AssertionError as error:
            told = (tmp_path / "serve.log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"{error}\n{told}") from None
        judge_sweep(client, numbers)
        judge_work(client, harness)
    nothing_is_left(harness)


def losses(client: Client) -> list[float]:
    """Of living trials: what the profiler made of their output, which lies in HDFS while they run."""
    return [job["loss"] for job in client.status()["jobs"] if job["loss"] is not None]


def judge_sweep(client: Client, numbers: list[str]) -> None:
    """Three of the four explorers were cut, and told why; all others did all of their steps."""
    jobs = {job["name"]: job for job in client.status(ended=True)["jobs"]}
    assert {job["id"] for job in jobs.values()} == set(numbers)
    assert Counter(job["app"] for job in jobs.values()) == {"tune-1": 4, "tune-0": 2}
    states = {name: job["state"] for name, job in jobs.items()}
    assert states["tune-0-0"] == states["tune-0-1"] == "completed"
    explorers = Counter(state for name, state in states.items() if name.startswith("tune-1-"))
    assert explorers == {"cancelled": 3, "completed": 1}
    for job in jobs.values():
        if job["state"] == "cancelled":
            assert "keeps the best 1 of 4 jobs" in str(client.history(job=job["id"]))
    apps = {app["app"]: app for app in client.apps()}
    assert (apps["tune-1"]["completed"], apps["tune-1"]["ended_early"]) == (1, 3)
    assert (apps["tune-0"]["completed"], apps["tune-0"]["ended_early"]) == (2, 0)


def judge_work(client: Client, harness: YarnHarness) -> None:
    """No step was done twice or without GPUs: what the logs tell, the journal's account, the sums people see."""
    jobs = client.status(ended=True)["jobs"]
    for job in jobs:
        starts, steps = starts_in(harness.log(job["id"])), steps_in(harness.log(job["id"]))
        assert steps == sorted(set(steps)), f"{job['name']} did a step twice, though every stop was clean"
        assert (STEPS in steps) == (job["state"] == "completed"), (job["name"], steps)
        ends = [start.step for start in starts[1:]] + steps[-1:]
        trained = sum((end - start.step) * STEP_S * start.world for start, end in zip(starts, ends, strict=False))
        assert sum(job["attained"].values()) >= trained, job["name"]
        assert job["allocation"] == {}
        if steps:  # what was read of it is what is still there, now that its containers are gone
            assert job["step"] <= steps[-1], job["name"]
            assert b"".join(client.log(job["id"])) == harness.log(job["id"])
    given = sum(sum(job["attained"].values()) for job in jobs)
    (tenant,) = client.status()["tenants"]
    assert tenant["gpu_s"] == pytest.approx(given)
    assert sum(app["gpu_s"] for app in client.apps()) == pytest.approx(given)


def nothing_is_left(harness: YarnHarness) -> None:
    """No application, no GPU, no worker; nobody is there any more who would end them."""
    port = harness.port
    assert isinstance(port, YarnCluster)
    assert not port.manager.apps(states=("ACCEPTED", "RUNNING", "SUBMITTED"))
    wait_for("GPUs are free", lambda: not any(node.gpus_used for node in port.manager.nodes()))
    wait_for("no trainer is left", lambda: not list(processes_of(f"{harness.lab.folder}/data/n")))
