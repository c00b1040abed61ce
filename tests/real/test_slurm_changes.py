"""What an administrator changes of a job stands, or is refused in words: never undone in silence. Of jobs that wait,
run, and are between two shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import BlockKind, JobId, JobState
from tests.contract.driver import Driver
from tests.real.slurm import (
    private_slurm,  # noqa: F401 - a fixture
    slurm_2605,  # noqa: F401
    slurm_site,  # noqa: F401
)
from tests.real.slurm_driving import ELASTIC, PLAIN, harness, job_shown, number, trapped
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

#: what is written, and what is shown of it: of a limit what is left, in the next shape
CHANGES = {
    "TimeLimit=7": "TimeLimit=00:0[3-7]:00",
    "Nice=100": "Nice=100",
    "QOS=calm": "QOS=calm",
    "Account=beside": "Account=beside",
    "Comment=seen": "Comment=seen",
    "Comment=horae:min=1,max=2": "Comment=horae:min=1,max=2",
    "JobName=renamed": "JobName=renamed",
    "Features=v100": "Features=v100",
    "ExcNodeList=n4": "ExcNodeList=n4",
    "Licenses=matlab:1": "Licenses=matlab:1",
}
#: of a job that runs Slurm itself refuses all others
RUNNING = {"TimeLimit=7", "Nice=100", "Comment=seen", "Comment=horae:min=1,max=2", "JobName=renamed"}


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    made = SlurmHarness(request.getfixturevalue(request.param), tmp_path / "memory")
    yield Driver(made)
    made.end()


def ask(site: Driver, *argv: str) -> str:
    return harness(site).cluster.run(*argv)


def stands(site: Driver, jobs: dict[JobId, str], when: str) -> None:
    for job, words in jobs.items():
        shown = job_shown(site, job)
        assert re.search(rf"(?:^|\s){words}(?:\s|$)", shown), f"{when}: {words}\n{shown}"


@pytest.mark.soak
@pytest.mark.parametrize("site", ["slurm_site"], indirect=True)
@pytest.mark.parametrize("when", ["waiting", "running", "stopped"])
@pytest.mark.parametrize("comment", ["--comment=rigid", ELASTIC])
def test_what_an_administrator_changes_stands(site: Driver, when: str, comment: str) -> None:
    for words in (
        "add account beside",
        "add qos calm",
        "modify user alice set qos+=calm",
        "add user alice account=beside",
    ):
        harness(site).cluster.lab.exec("ctl", ["sacctmgr", "-i", *words.split()])  # type: ignore[attr-defined]
    rigid = comment != ELASTIC
    asked = {
        change: shown
        for change, shown in CHANGES.items()
        if not (rigid and change.startswith("Comment=horae"))
        and (change in RUNNING or when == "waiting" or (when == "stopped" and not rigid))
    }
    jobs: dict[JobId, str] = {}

    def change_all() -> None:
        for (job, shown), change in zip(jobs.items(), asked, strict=True):
            ask(site, "scontrol", "update", f"jobid={number(job)}", change)
            stands(site, {job: shown}, f"{change} is written")

    for shown in asked.values():
        job = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", "--requeue", comment)
        jobs[job] = shown
    if when == "waiting":
        change_all()
        for _ in range(2):
            site.observe()
        stands(site, jobs, "waits")
    for at, job in enumerate(jobs):
        site.start(job, {f"n{1 + at // 4}": 1})
    for job in jobs:
        site.wait(job, JobState.RUNNING)
        trapped(site, job)
    if when == "running" or (when == "stopped" and rigid):
        change_all()
    site.observe()
    if when != "stopped" or rigid:
        stands(site, jobs, "runs")
    if not rigid:
        for job in jobs:
            site.stop(job, 60.0)
        for job in jobs:
            site.wait(job, JobState.STOPPED)
        if when == "stopped":
            change_all()
            site.observe()  # a limit that has to be written with a start is known from the look before
        for at, job in enumerate(jobs):
            site.start(job, {f"n{1 + at // 4}": 1}, 2)
        for job in jobs:
            site.wait(job, JobState.RUNNING)
        stands(site, jobs, "runs in its next shape")


@pytest.mark.parametrize(
    "site",
    ["private_slurm", *(pytest.param(name, marks=pytest.mark.soak) for name in ("slurm_site", "slurm_2605"))],
    indirect=True,
)
def test_a_hold_of_an_administrators_on_an_elastic_job_that_has_run_stands(site: Driver) -> None:
    """Slurm itself holds it, too, for its exit code; and by our own requeue."""
    held, between = (harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", ELASTIC) for _ in range(2))
    for job in (held, between):
        site.start(job, site.one())
        site.wait(job, JobState.RUNNING)
        trapped(site, job)
    ask(site, "scontrol", "requeuehold", number(held))
    site.stop(between, 60.0)
    site.wait(between, JobState.STOPPED)
    assert site.job(between).blocked is None, "Slurm's own, for its exit code"
    ask(site, "scontrol", "hold", number(between))

    def kept() -> bool:
        """As whoever plans is told."""
        told = [site.job(job).blocked for job in (held, between)]
        return all(blocked is not None and blocked.kind is BlockKind.ASIDE for blocked in told)

    site.until("both are left aside", kept)
    for job in (held, between):
        with pytest.raises(Exception, match="scontrol release"):
            site.port.start(job, site.one(), 2)
        assert "Priority=0 " in job_shown(site, job)
        ask(site, "scontrol", "release", number(job))
    for job in (held, between):
        site.until("it waits for its turn", lambda job=job: site.job(job).blocked is None)  # type: ignore[misc]
        assert site.job(job).state in {JobState.LOST, JobState.STOPPED}
        site.start(job, site.one(), 2)
        assert site.wait(job, JobState.RUNNING).epoch == 2
