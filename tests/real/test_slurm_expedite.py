"""`--requeue=expedite` (25.11): Slurm itself starts a lost job again, before all others, on nodes that it keeps for it.
In a managed partition as in a plain one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import JobState, attend
from policy.model import BadInput
from tests.contract.driver import Driver
from tests.real.slurm import Containers, containers_of, wait_for
from tests.real.slurm_driving import harness, number
from tests.real.slurm_harness import SlurmHarness

pytestmark = [pytest.mark.real, pytest.mark.soak]

SCRIPT = "#!/bin/bash\necho start ${SLURM_RESTART_COUNT:-0}\nsleep 600\n"
OPTIONS = ["--gres=gpu:2", "--requeue=expedite", "-N1", "--open-mode=append"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    allowed = {"slurm.conf": "SlurmctldParameters=enable_expedited_requeue\n"}
    made = containers_of("26.05", tmp_path_factory.mktemp("expedite"), "x", allowed)
    yield made
    made.down()


@pytest.fixture
def driver(cluster: Containers, tmp_path: Path) -> Iterator[Driver]:
    made = SlurmHarness(cluster, tmp_path / "memory")
    yield Driver(made)
    made.end()


def shown(driver: Driver, job: str) -> str:
    """State, starts after the first, and nodes."""
    attend(driver.port)
    return harness(driver).cluster.run(
        "squeue", "-h", "-t", "all", "-j", number(job), "-O", "State:|,restartcnt:|,NodeList:|"
    )


def both(driver: Driver, script: str = SCRIPT) -> tuple[str, str]:
    """The same job under Horae, running on n1, and under plain Slurm on n2."""
    ours = harness(driver).submit_script(script, *OPTIONS, "--nodelist=n1")
    driver.start(ours, {"n1": 2})
    return ours, harness(driver).cluster.submit(script, "--partition=raw", *OPTIONS, "--nodelist=n2")


def test_a_lost_rigid_job_is_started_again_by_slurm(driver: Driver) -> None:
    slurm = harness(driver).cluster
    jobs = both(driver)
    for job, node in zip(jobs, ("n1", "n2"), strict=True):
        wait_for("it runs", lambda job=job, node=node: shown(driver, job) == f"RUNNING|0|{node}|")  # type: ignore[misc]
    for node in ("n1", "n2"):
        slurm.lose_node(node)
    for job in jobs:
        wait_for("Slurm knows", lambda job=job: shown(driver, job) == "EXPEDITING|1||")  # type: ignore[misc]
    assert driver.observe().jobs == (), "it is Slurm's own: neither failed nor planned for"
    for node in ("n1", "n2"):
        slurm.restore_node(node)
    for job, node in zip(jobs, ("n1", "n2"), strict=True):
        wait_for("it runs again", lambda job=job, node=node: shown(driver, job) == f"RUNNING|1|{node}|")  # type: ignore[misc]
    assert {node.name: node.foreign for node in driver.observe().nodes if node.foreign} == {"n1": 2, "n2": 2}
    slurm.run("scancel", *map(number, jobs))


def test_one_that_fails_is_held_by_slurm_and_left_so(driver: Driver) -> None:
    """Where all epilogs went well, which is when it would be started again if they had not."""
    ours, plain = both(driver, "#!/bin/bash\nexit 3\n")
    for job in (plain, ours):
        wait_for("Slurm holds it", lambda job=job: shown(driver, job) == "REQUEUE_HOLD|1||")  # type: ignore[misc]
    blocked = driver.job(ours).blocked
    assert blocked is not None
    assert f"`scontrol release {number(ours)}` ends it" in blocked.text
    assert driver.job(ours).state is JobState.LOST
    harness(driver).cluster.run("scancel", number(plain))


def test_an_elastic_one_is_refused_in_words(driver: Driver) -> None:
    with pytest.raises((BadInput, RuntimeError), match="leave out --requeue=expedite"):
        harness(driver).submit_script(SCRIPT, *OPTIONS, "--comment=horae:min=1")
