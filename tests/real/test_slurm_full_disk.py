"""A disk without a byte left, on a real 24.11: nothing is lost, nothing new is begun, and all goes on when there is
room again. The shared folder (spool, logs, checkpoints) and what the arbiter keeps are on one small filesystem."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from horae.port import FixConfiguration, JobState, PortError
from tests.contract.driver import Driver
from tests.contract.harness import starts_in, steps_in
from tests.real.serving import HORAE, arbiter, trainer
from tests.real.slurm import Containers, clear_partition, containers_of, fresh_partition, wait_for
from tests.real.slurm_driving import number, waits_for_us
from tests.real.slurm_harness import SlurmHarness

STEPS = 250
pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.soak]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """A cluster whose files are on a filesystem of their own."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,mode=0755", "small", str(folder)], check=True)
    made = None
    try:
        made = containers_of("24.11", folder, "f")
        yield made
    finally:
        if made is not None:
            made.down()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(cluster: Containers) -> Iterator[Path]:
    """Not a byte is left; the file that takes them is grown again whenever something was given back meanwhile."""
    path = cluster.lab.folder / "filler"
    try:
        with path.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"\0" * size)
        with pytest.raises(OSError) as raised:
            (cluster.lab.folder / "probe").write_bytes(b"x" * 4096)
        assert raised.value.errno == errno.ENOSPC
        yield path
    finally:
        path.unlink()
        (cluster.lab.folder / "probe").unlink(missing_ok=True)


def test_nothing_is_begun_nor_lost_without_a_byte_left(small: Containers) -> None:
    made = SlurmHarness(small, small.lab.folder / "memories/first")
    driver = Driver(made)
    try:
        running, queued = driver.running("runs"), driver.submit("waits")
        driver.wait_progress(running, steps=12)  # past its first checkpoint
        with full(small):
            with pytest.raises(FixConfiguration) as raised:
                driver.port.start(queued, driver.other(), 1)
            assert "space" in f"{raised.value} {raised.value.remedy}"
            with pytest.raises(FixConfiguration):
                driver.port.heartbeat()
            assert waits_for_us(driver, queued), "nothing was released"
            with suppress(PortError):  # what must be kept of a stop cannot be kept: told, or done all the same
                driver.port.checkpoint_and_stop(running, 60.0)
            state = small.run("squeue", "-h", "-t", "all", "-j", number(running), "-o", "%T")
            assert state in {"RUNNING", "COMPLETING", "PENDING", "SPECIAL_EXIT"}
        driver.port.heartbeat()
        assert driver.job(queued).state is JobState.QUEUED
        if driver.job(running).state.holds:
            driver.port.checkpoint_and_stop(running, 60.0)
        seen = driver.wait(running, JobState.STOPPED, JobState.LOST)
        assert seen.checkpoint is not None
        at = seen.checkpoint.step
        driver.start(running, driver.other(), 2)
        driver.wait(running, JobState.RUNNING)
        driver.until("it goes on", lambda: any(start.epoch == 2 for start in driver.starts(running)))
        resumed = next(start for start in driver.starts(running) if start.epoch == 2)
        assert resumed.step == at, "its newest complete checkpoint was lost"
        driver.wait_progress(running)
        driver.start(queued, driver.one(), 1)
        driver.wait(queued, JobState.RUNNING)
        driver.wait_progress(queued)
    finally:
        made.end()


def test_the_whole_arbiter_waits_for_room_and_goes_on(small: Containers) -> None:
    """Its journal, its memory and the spool on the full disk: it lives, says so, acts again by itself."""
    partition = fresh_partition(small)
    folder, (here, there) = small.lab.folder / "whole", small.shared()
    folder.mkdir()
    config = {
        "state_dir": str(folder / "state"),
        "cluster": {"adapter": "slurm", "options": {**small.options(partition), "state": str(folder / "memory")}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n[1-2]"}],
        "guards": {"min_run_s": 1.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "api": {"socket": str(folder / "api.sock")},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    (here / "train.py").write_text(trainer(STEPS))

    def submit(name: str) -> str:
        script = f"#!/bin/bash\nexec {small.tool()} --checkpoint {there}/whole-{name} -- python3 {there}/train.py\n"
        word = f"--comment=horae:min=1,max=8,app={name},iters={STEPS}"
        out = f"--output={there}/whole-{name}.out"
        return small.submit(script, f"--partition={partition}", "--gres=gpu:1", word, out, "--open-mode=append")

    def log(name: str) -> bytes:
        path = here / f"whole-{name}.out"
        return path.read_bytes() if path.exists() else b""

    def state(job: str) -> str:
        found = re.search(r"JobState=(\w+)", small.run("scontrol", "show", "job", job))
        return found.group(1) if found else ""

    def status() -> str:
        environment = {**os.environ, "HORAE_SOCKET": str(folder / "api.sock")}
        done = subprocess.run(
            [*HORAE, "status"], capture_output=True, text=True, check=False, env=environment, timeout=60
        )
        return done.stdout + done.stderr

    beat = here / "horae/spool/heartbeat"
    try:
        with arbiter(folder) as process:
            wait_for("the first heartbeat", lambda: beat.exists() and partition in beat.read_text(), 90)
            jobs = {"a": submit("a")}
            wait_for("a trains", lambda: len(steps_in(log("a"))) > 5, 90)
            jobs["b"] = submit("b")  # its script must be on the disk; what follows needs none
            with full(small):
                wait_for("it is told", lambda: "cannot be written" in status(), 120)
                assert process.poll() is None
                assert state(jobs["a"]) in {"RUNNING", "PENDING", "SPECIAL_EXIT", "COMPLETING", "COMPLETED"}
            wait_for("all are done", lambda: all(state(job) == "COMPLETED" for job in jobs.values()), 300)
            wait_for("nothing is told any more", lambda: "cannot be written" not in status(), 60)
        for name in jobs:
            starts, steps = starts_in(log(name)), set(steps_in(log(name)))
            epochs = [start.epoch for start in starts]
            assert epochs == sorted(set(epochs))
            assert STEPS in steps
    finally:
        clear_partition(small, partition)
        print((folder / "serve.log").read_text()[-3000:])
