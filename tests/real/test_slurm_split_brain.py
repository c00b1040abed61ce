"""A node that hung and wakes up with an older run of a job that goes on elsewhere, or on that very node again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horae.port import JobState
from policy.model import BadInput, Health
from tests.contract.driver import Driver
from tests.real.slurm import (
    Containers,
    Private,
    private_slurm,  # noqa: F401 - fixtures
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
    wait_for,
)
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


@pytest.fixture(params=["slurm_2411", "slurm_2605"])
def apart(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Driver, Containers]]:
    """Each node a container, which can stand still with all that runs on it."""
    slurm = request.getfixturevalue(request.param)
    made = SlurmHarness(slurm, tmp_path / "memory")
    yield Driver(made), slurm
    made.end()


def alive(slurm: Containers, node: str) -> bool:
    return bool(slurm.lab.exec(node, ["pgrep", "-f", "[t]rainer.py"])[1].strip())


@contextmanager
def frozen(slurm: Containers, node: str) -> Iterator[None]:
    """Slurm finds it down, and knows it again when it has woken."""
    slurm.lab.container(node).pause()
    try:
        for state in ("drain", "down"):
            slurm.run("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")
        yield
    finally:
        slurm.lab.container(node).unpause()
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")


def goes_on(driver: Driver, job: str, epoch: int) -> None:
    """This run and no other, for as long as whatever an older one did would take to show."""
    for _ in range(3):
        driver.wait_progress(job, steps=40)
        seen = driver.job(job)
        assert (seen.state, seen.epoch) == (JobState.RUNNING, epoch), seen.native


@pytest.mark.soak
def test_a_node_that_wakes_ends_nothing_of_what_runs_elsewhere(apart: tuple[Driver, Containers]) -> None:
    """Of two nodes too, where the one that woke has the batch script or does not."""
    driver, slurm = apart
    job, epoch = driver.running("wakes", allocation={"n1": 1}), 1
    homes: list[dict[str, int]] = [{"n2": 1}, {"n1": 1, "n3": 1}, {"n4": 1}, {"n1": 1, "n3": 1}, {"n2": 1}]
    for lost, home in zip(("n1", "n2", "n3", "n4", "n1"), homes, strict=True):
        driver.wait_progress(job, steps=12)  # past a checkpoint
        with frozen(slurm, lost):
            driver.wait(job, JobState.LOST)
            epoch += 1
            driver.start(job, home, epoch)
            driver.wait(job, JobState.RUNNING)
            driver.wait_progress(job, steps=5)
        goes_on(driver, job, epoch)
        if lost not in home:
            wait_for(f"the old run on {lost} is gone", lambda lost=lost: not alive(slurm, lost))  # type: ignore[misc]
    driver.stop(job, 60.0)
    assert driver.wait(job, JobState.STOPPED).exit_code == 86


@pytest.mark.soak
def test_a_node_that_woke_takes_the_job_again(apart: tuple[Driver, Containers]) -> None:
    """As soon as Slurm has it back, while the older run is being ended there."""
    driver, slurm = apart
    job = driver.running("again", allocation={"n1": 1})
    for epoch in range(2, 8):
        driver.wait_progress(job, steps=12)
        with frozen(slurm, "n1"):
            driver.wait(job, JobState.LOST)
        driver.until("it is back", lambda: driver.node("n1").health is Health.UP)
        driver.start(job, {"n1": 1}, epoch)
        driver.wait(job, JobState.RUNNING)
        goes_on(driver, job, epoch)
    driver.stop(job, 60.0)
    assert driver.wait(job, JobState.STOPPED).exit_code == 86


def steps(driver: Driver, job: str) -> list[str]:
    """That run now, besides the batch script."""
    shown = harness(driver).cluster.run("squeue", "-h", "-s", "-j", number(job), "-o", "%i")
    return re.findall(r"\.(\d+)$", shown, re.MULTILINE)
