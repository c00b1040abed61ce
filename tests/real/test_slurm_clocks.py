"""Clocks apart (24.11): slurmctld's, the nodes' and the arbiter's, each an hour from the next."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import JobState
from slurm_plugin.site.doctor import checks
from tests.contract.driver import Driver
from tests.real.slurm import Containers, slurm_2411, wait_for  # noqa: F401 - a fixture
from tests.real.slurm_driving import PLAIN, containers, edited, job_shown, trapped, waits_for_us
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

HOUR_S = 3600.0
#: Found by the Python of the job's supervisor and trainers before the system's: their node's clock.
NODE_CLOCK = "import time\nreal = time.time\ntime.time = lambda: real() + ({})\n"


@pytest.fixture(params=[-HOUR_S, HOUR_S], ids=["behind", "ahead"])
def apart_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How far the arbiter's clock is before slurmctld's: this process is the arbiter's host."""
    real, away_s = time.time, float(request.param)
    monkeypatch.setattr(time, "time", lambda: real() + away_s)
    return away_s


@pytest.fixture
def cluster(slurm_2411: Containers, apart_s: float, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(slurm_2411, tmp_path / "memory")
    yield Driver(made)
    made.end()


def submit(driver: Driver, script: str) -> str:
    assert isinstance(driver.harness, SlurmHarness)
    return driver.harness.submit_script(script, "--gres=gpu:1", "--time=30", "--comment=horae:min=1,max=4,grace=60")


def test_an_hour_between_the_clocks_changes_nothing(cluster: Driver, apart_s: float) -> None:
    """Held at submission, stopped when asked, its time limit kept, started again; the doctor says what is wrong."""
    job = submit(cluster, PLAIN)
    seen = cluster.job(job)
    assert (seen.state, seen.time_left_s) == (JobState.QUEUED, 1800.0), "the heartbeat was taken for an old one"
    assert waits_for_us(cluster, job)
    for epoch, shape in enumerate([cluster.one(), cluster.other()], start=1):
        cluster.start(job, shape, epoch)
        left_s = cluster.wait(job, JobState.RUNNING).time_left_s
        assert left_s is not None
        assert 1500 < left_s <= 1800 + 60, "the limit is set in whole minutes"
        trapped(cluster, job, epoch)
        cluster.stop(job, 200.0)  # far more than this test waits: the request is what stops it
        seen = cluster.wait(job, JobState.STOPPED)
        assert (seen.epoch, seen.exit_code) == (epoch, 86)
        assert seen.time_left_s is not None
        assert 1500 < seen.time_left_s < 1800, "a job ran for an hour too long, or not at all"
    age_s = cluster.observe().now_s - seen.since_s
    assert 0 <= age_s < 300, "its state is as old as it looks"
    findings = checks({**containers(cluster).options("dl")})
    (clocks,) = [found for found in findings if found.name == "clocks"]
    assert clocks.verdict.value == "warn"
    told = re.search(r"([+-][\d.]+) s from here", clocks.text)
    assert told is not None
    assert float(told[1]) == pytest.approx(-apart_s, abs=30)


@pytest.mark.soak
def test_a_node_with_a_clock_of_its_own_trains_and_stops(cluster: Driver, apart_s: float) -> None:
    """Two hours from the arbiter: grace, fence and checkpoints are no matter of the time of day."""
    assert isinstance(cluster.harness, SlurmHarness)
    here, there = containers(cluster).shared()
    folder = here / f"clock-{apart_s:.0f}"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(NODE_CLOCK.format(-apart_s))
    checkpoints = f"{there}/clocks-{cluster.harness.partition}"
    script = (
        f"#!/bin/bash\nexport PYTHONPATH={there}/{folder.name}\n"
        f"exec {containers(cluster).tool()} --checkpoint {checkpoints} -- python3 {there}/trainer.py trains\n"
    )
    job = submit(cluster, script)
    for epoch, shape in enumerate([cluster.one(2), cluster.other(), cluster.one()], start=1):
        cluster.start(job, shape, epoch)
        cluster.wait(job, JobState.RUNNING)
        cluster.wait_progress(job)
        cluster.stop(job, 60.0)
        seen = cluster.wait(job, JobState.STOPPED)
        assert (seen.epoch, seen.exit_code) == (epoch, 86)
        assert seen.checkpoint is not None
        assert seen.checkpoint.epoch == epoch
        away_s = seen.checkpoint.time_s - time.time()
        assert abs(away_s + 2 * apart_s) < 600, "the node's clock was meant to be apart"
    steps = cluster.steps(job)
    assert steps == sorted(set(steps))


@pytest.mark.soak
def test_what_slurm_failed_is_brought_back_whatever_the_time(
    slurm_2411: Containers,  # noqa: F811
    apart_s: float,
    tmp_path: Path,
) -> None:
    """Without RequeueExitHold a script's 86 is a failure, and slurmctld remembers it for MinJobAge only."""
    made = SlurmHarness(slurm_2411, tmp_path / "memory", partition="dl")
    driver = Driver(made)
    try:
        with edited(driver, "RequeueExitHold=86\n", ""):
            made.restart_arbiter()
            job = submit(driver, PLAIN)
            for epoch, shape in enumerate([driver.one(), driver.other()], start=1):
                driver.start(job, shape, epoch)
                driver.wait(job, JobState.RUNNING)
                driver.stop(job, 60.0)
                assert driver.wait(job, JobState.STOPPED).epoch == epoch
            assert "Restarts=2" in job_shown(driver, job)
    finally:
        made.end()
    wait_for("no job of it is left", lambda: not slurm_2411.run("squeue", "-h", "-p", "dl", "-t", "R,CG"), 60)
