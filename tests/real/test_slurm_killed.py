"""The arbiter is killed at the boundaries of a resize on a real Slurm; its successor finishes what was begun."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.harness import starts_in, steps_in
from tests.real.serving import trainer
from tests.real.slurm import ROOT, Private, clear_partition, fresh_partition, private_slurm, wait_for  # noqa: F401

pytestmark = pytest.mark.real

STEPS = 150


class Story:
    """Job a alone on two nodes, then b: a is stopped, both are started, and both train to their end."""

    def __init__(self, slurm: Private, folder: Path) -> None:
        self.slurm, self.folder, self.partition = slurm, folder, fresh_partition(slurm)
        options = {**slurm.options(self.partition), "state": str(folder / "memory")}
        config = {
            "state_dir": str(folder / "state"),
            "cluster": {"adapter": "slurm", "options": {**options, "env": dict(options["env"])}},
            "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n[1-2]"}],
            "guards": {"min_run_s": 1.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        }
        (folder / "config.json").write_text(json.dumps(config))
        (slurm.shared()[0] / f"{self.partition}.py").write_text(trainer(STEPS))
        self.jobs: dict[str, str] = {}

    def submit(self, name: str) -> None:
        there, word = self.slurm.shared()[1], f"--comment=horae:min=1,max=8,app={name},iters={STEPS}"
        base = f"{there}/{self.partition}"
        how = " patient" if name == "a" else ""
        script = f"#!/bin/bash\nexec {self.slurm.tool()} --checkpoint {base}-{name} -- python3 {base}.py{how}\n"
        self.jobs[name] = self.slurm.submit(
            script, f"--partition={self.partition}", "--gres=gpu:1", word, f"--output={base}-{name}.out",
            "--open-mode=append",
        )  # fmt: skip

    def serve(self, boundary: str = ":") -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "tests.real.mortal_slurm", str(self.folder / "config.json"), "2", boundary]
        log = (self.folder / "arbiter.log").open("a")
        return subprocess.Popen(argv, env=environment, stdout=log, stderr=log, text=True)

    def log(self, name: str) -> bytes:
        path = self.slurm.shared()[0] / f"{self.partition}-{name}.out"
        return path.read_bytes() if path.exists() else b""

    def arbiter_beats(self) -> bool:
        beat = self.slurm.lab.spool / "heartbeat"
        return beat.exists() and self.partition in beat.read_text()

    def play(self, boundaries: list[str]) -> None:
        """Arbiters that are killed, one after the other, and one that finishes."""
        following = [*boundaries, ":"]
        process = self.serve(following.pop(0))

        def lives() -> None:
            """A dead arbiter has a successor."""
            nonlocal process
            if process.poll() == -signal.SIGKILL:
                process = self.serve(following.pop(0))
            assert process.poll() in {None, 0}, (self.folder / "arbiter.log").read_text()[-3000:]

        def until(what: str, holds: Callable[[], bool], limit_s: float = 90.0) -> None:
            wait_for(what, lambda: [lives(), holds()][1] is True, limit_s)

        try:
            until("the first heartbeat", self.arbiter_beats)
            self.submit("a")
            until("a trains", lambda: len(steps_in(self.log("a"))) > 5)
            self.submit("b")
            until("all is done", lambda: process.poll() == 0, 240)
            assert not following, f"never met: {boundaries[-len(following) :]}"
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            clear_partition(self.slurm, self.partition)

    def assert_all_done_once(self) -> None:
        for name, job in self.jobs.items():
            shown = self.slurm.run("scontrol", "show", "job", job)
            assert re.search(r"JobState=(\w+)", shown)[1] == "COMPLETED", shown  # type: ignore[index]
            starts, steps = starts_in(self.log(name)), steps_in(self.log(name))
            assert steps == list(range(1, STEPS + 1)), f"{name}: a step was lost or done twice"
            epochs = [start.epoch for start in starts]
            assert epochs == sorted(set(epochs)), f"{name} was started with epochs {epochs}"
        assert len(starts_in(self.log("a"))) > 1, "a was never resized"


@pytest.fixture
def assert_survives(private_slurm: Private, tmp_path: Path) -> Callable[[list[str]], None]:  # noqa: F811
    def told(boundaries: list[str]) -> None:
        made = Story(private_slurm, tmp_path)
        made.play(boundaries)
        made.assert_all_done_once()

    return told


def test_killed_around_the_stop_and_the_restart_of_one_resize(assert_survives: Callable[[list[str]], None]) -> None:
    """Three arbiters in a row, each dead at the next step of the same resize."""
    assert_survives(["after stop:1", "before start:1", "after start:1"])


#: how often each is met at least in the story
MET = {"claim": 1, "start": 3, "stop": 1, "intent": 4, "outcome": 4, "decided": 2, "seen": 4, "ended": 2}


@pytest.mark.soak
@pytest.mark.parametrize(
    "boundary",
    [f"{when} {what}:{n}" for what, times in MET.items() for n in range(1, times + 1) for when in ("before", "after")],
)
def test_killed_at_every_kind_of_boundary(assert_survives: Callable[[list[str]], None], boundary: str) -> None:
    assert_survives([boundary])
