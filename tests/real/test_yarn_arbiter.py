"""The whole on a real Hadoop: `horae serve`, jobs by `horae submit`, resizes by a policy, a kill -9 in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from horae.port import JobState, ObservedJob, attend
from tests.contract.harness import starts_in, steps_in
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    patiently,
    wait_for,
)
from tests.real.serving import HORAE, arbiter, trainer
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]

STEPS = 150


def test_jobs_are_granted_resized_and_finished_across_a_kill(hadoop_342: PrivateHadoop, tmp_path: Path) -> None:  # noqa: F811
    harness = YarnHarness(hadoop_342, tmp_path)
    socket = tmp_path / "api.sock"
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "yarn", "options": {**harness.options, "memory_mib": 256}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n1"}],
        "guards": {"min_run_s": 5.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "api": {"socket": str(socket)},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    (tmp_path / "train.py").write_text(trainer(STEPS, 0.1))
    url = harness.facts["webhdfs"].replace("http:", "webhdfs:") + "/tmp"

    def submit(name: str) -> None:
        words = ["submit", "--socket", str(socket), "--gpus", "1:4", "--name", name, "--iterations", str(STEPS)]
        words += [
            "--checkpoint",
            f"{url}/{tmp_path.parent.name}-{name}",
            "--",
            sys.executable,
            str(tmp_path / "train.py"),
            *(["patient"] if name == "a" else []),  # on a full machine it would be over before b is there
        ]
        done = subprocess.run([*HORAE, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + (tmp_path / "serve.log").read_text()[-2000:]

    def jobs() -> dict[str, ObservedJob]:
        return {job.spec.name: job for job in patiently(lambda: attend(harness.port)).jobs if job.spec is not None}

    def log(name: str) -> bytes:
        return harness.log(jobs()[name].id) if name in jobs() else b""

    try:
        with arbiter(tmp_path) as first:
            wait_for("the arbiter listens", socket.exists)
            submit("a")
            wait_for("a trains", lambda: len(steps_in(log("a"))) > 5, 240)
            submit("b")
            wait_for("b trains beside it", lambda: len(steps_in(log("b"))) > 5, 240)
            first.send_signal(signal.SIGKILL)
            first.wait()
        with arbiter(tmp_path):
            wait_for("both are done", lambda: all(j.state is JobState.COMPLETED for j in jobs().values()), 300)
            for name, job in jobs().items():
                words = ["logs", "--socket", str(socket), job.id]
                printed = subprocess.run([*HORAE, *words], capture_output=True, check=True).stdout
                assert steps_in(printed) == steps_in(log(name)), "what it printed, its owner reads after its end too"
        for name in ("a", "b"):
            starts, steps = starts_in(log(name)), steps_in(log(name))
            assert steps[-1] == STEPS
            assert steps == sorted(set(steps)), f"{name} did a step twice, though every stop was clean"
            assert [start.epoch for start in starts] == sorted({start.epoch for start in starts})
        assert any(len(starts_in(log(name))) > 1 for name in ("a", "b")), "nothing was ever resized"
    except AssertionError as error:
        told = (tmp_path / "serve.log").read_text(errors="replace")[-3000:]
        raise AssertionError(f"{error}\n{told}") from None
    finally:
        harness.end()


@pytest.mark.soak
def test_a_job_stays_until_its_checkpoints_can_be_written(hadoop_342: PrivateHadoop, tmp_path: Path) -> None:  # noqa: F811
    """The quota of its folder is full when another job comes: it keeps its GPUs, since it would redo what it did since
    its last checkpoint, and leaves with a new one as soon as there is room."""
    harness = YarnHarness(hadoop_342, tmp_path)
    socket = tmp_path / "api.sock"
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "yarn", "options": {**harness.options, "memory_mib": 256}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n1"}],
        "guards": {"min_run_s": 0.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "api": {"socket": str(socket)},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    (tmp_path / "train.py").write_text(trainer(10**6, 0.1))
    webhdfs, folder = harness.facts["webhdfs"].replace("http:", "webhdfs:"), f"/tmp/{tmp_path.parent.name}-stays"
    web = Hdfs(parse_options(harness.options).access((harness.facts["webhdfs"],)))

    def submit(name: str) -> None:
        url = f"{webhdfs}{folder}/{name}"
        words = ["submit", "--socket", str(socket), "--gpus", "1:4" if name == "wide" else "1", "--name", name]
        words += ["--checkpoint", url, "--", sys.executable, str(tmp_path / "train.py")]
        done = subprocess.run([*HORAE, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def jobs() -> dict[str, ObservedJob]:
        return {job.spec.name: job for job in patiently(lambda: attend(harness.port)).jobs if job.spec is not None}

    def gpus(name: str) -> int:
        return sum(jobs()[name].allocation.values()) if name in jobs() else 0

    def log(name: str) -> bytes:
        return harness.log(jobs()[name].id) if name in jobs() else b""

    def explained(name: str) -> str:
        words = [*HORAE, "explain", "--socket", str(socket), jobs()[name].id]
        return " ".join(subprocess.run(words, capture_output=True, text=True, check=False).stdout.split())

    web.make_folder(f"{folder}/wide", "777")
    try:
        with arbiter(tmp_path):
            wait_for("the arbiter listens", socket.exists)
            submit("wide")
            wait_for("it trains on all four", lambda: gpus("wide") == 4 and len(steps_in(log("wide"))) > 25, 240)
            harness.lab.admin("dfsadmin", "-setSpaceQuota", "1m", f"{folder}/wide")  # less than a block
            wait_for("that is told", lambda: "quota of space there is used up" in explained("wide"), 240)
            submit("late")
            wait_for("and why it keeps all", lambda: "its checkpoints cannot be written" in explained("wide"), 120)
            before = len(steps_in(log("wide")))
            wait_for("it trains on", lambda: len(steps_in(log("wide"))) > before + 50, 240)
            assert (jobs()["wide"].state, gpus("wide"), gpus("late")) == (JobState.RUNNING, 4, 0)
            harness.lab.admin("dfsadmin", "-clrSpaceQuota", f"{folder}/wide")
            wait_for("the late one trains", lambda: len(steps_in(log("late"))) > 2, 300)
            wait_for("the other one goes on", lambda: len(starts_in(log("wide"))) > 1, 240)
        steps = steps_in(log("wide"))
        assert steps == list(range(1, len(steps) + 1)), "a step was left out, or done twice"
        assert gpus("wide") < 4, "it has made room"
    except AssertionError as error:
        words = (tmp_path / "serve.log").read_text(errors="replace")[-3000:]
        raise AssertionError(f"{error}\n{words}") from None
    finally:
        harness.lab.admin("dfsadmin", "-clrSpaceQuota", f"{folder}/wide")
        harness.end()
