"""A node that hung and wakes up with an older run of a job that goes on elsewhere, on a private Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import JobState
from policy.model import BadInput
from tests.contract.driver import Driver
from tests.real.slurm import Private, private_slurm  # noqa: F401 - a fixture
from tests.real.slurm_driving import harness, number
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real


@pytest.fixture
def driver(private_slurm: Private, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(private_slurm, tmp_path / "memory")
    yield Driver(made)
    made.end()


def test_what_the_old_runs_srun_ends_is_not_the_new_runs(driver: Driver) -> None:
    """It hears that its node had failed and has its step ended, by the job's number and the step's: what `scancel` of
    that step asks for too. Slurm counts steps from 0 in each run."""
    slurm, lost = harness(driver).cluster, driver.nodes()[0].name
    job = driver.running("twice", allocation={lost: 1})
    driver.wait_progress(job, steps=12)  # past its first checkpoint
    old = steps(driver, job)
    slurm.lose_node(lost)
    try:
        driver.wait(job, JobState.LOST)
        driver.start(job, driver.other(), 2)
        driver.wait(job, JobState.RUNNING)
        driver.until("the second run trains", lambda: any(start.epoch == 2 for start in driver.starts(job)))
        assert (old, steps(driver, job)) == (["0"], ["1"])
        with pytest.raises(BadInput, match="Invalid job id"):  # nobody's
            slurm.run("scancel", f"{number(job)}.{old[0]}")
        driver.wait_progress(job, steps=10)
        driver.stop(job, 60.0)
        assert driver.wait(job, JobState.STOPPED).exit_code == 86
    finally:
        slurm.restore_node(lost)


def steps(driver: Driver, job: str) -> list[str]:
    """That run now, besides the batch script."""
    shown = harness(driver).cluster.run("squeue", "-h", "-s", "-j", number(job), "-o", "%i")
    return re.findall(r"\.(\d+)$", shown, re.MULTILINE)
