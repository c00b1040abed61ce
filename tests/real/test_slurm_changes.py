"""What an administrator changes of a job stands, or is refused in words: never undone in silence. Of jobs that wait,
run, and are between two shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from horae.port import BlockKind, JobId, JobState, Never
from tests.contract.driver import Driver
from tests.real.slurm import (
    private_slurm,  # noqa: F401 - a fixture
    slurm_2605,  # noqa: F401
    slurm_site,  # noqa: F401
)
from tests.real.slurm_driving import ELASTIC, PLAIN, containers, harness, job_shown, number, trapped
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


#: what would keep an elastic job that has just checkpointed from its next start, and how that is told: as a reason why
#: it waits; `Slurm's own`: it is handed over; `DEADLINE`: ended by Slurm's own word; "": it runs on
BETWEEN = {
    "AdminComment=seen": "",
    "Requeue=0": "",
    "Features=nowhere": "",  # Slurm refuses it
    "ExcNodeList=n[1-4]": "BadConstraints",
    "MinMemoryNode=999999": "BadConstraints",
    "QOS=tight": "QOSGrp",
    "Dependency=afterok:HELD": "Dependency",
    "ReservationName=later": "Reservation",
    "StartTime=now+1hour": "not to begin before",
    "Deadline=now+30minutes": "DEADLINE",  # before its time limit is over
    "Partition=raw": "Slurm's own",
}


@pytest.mark.soak
@pytest.mark.parametrize("site", ["slurm_site"], indirect=True)
def test_what_keeps_a_job_from_its_next_start_is_told_and_never_loses_it(site: Driver) -> None:
    lab = containers(site).lab
    for words in ("add qos tight GrpTRES=gres/gpu=0", "modify user alice set qos+=tight"):
        lab.exec("ctl", ["sacctmgr", "-i", *words.split()])
    reservation = "ReservationName=later users=alice starttime=now+2hours duration=60 nodes=n4"
    lab.must("ctl", ["scontrol", "create", "reservation", *reservation.split()])
    held = harness(site).cluster.submit(PLAIN, "--partition=raw", "--hold")
    try:
        for change, told in BETWEEN.items():
            job = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", ELASTIC)
            site.start(job, {"n1": 1})
            site.wait(job, JobState.RUNNING)
            trapped(site, job)
            site.stop(job, 60.0)
            site.wait(job, JobState.STOPPED)
            lab.exec("ctl", ["scontrol", "update", f"jobid={number(job)}", change.replace("HELD", held)])
            site.until(f"{change}: {told or 'it runs'}", partial(fares_as, site, job, told))
            ask(site, "scancel", number(job))
    finally:
        ask(site, "scancel", held)
        lab.exec("ctl", ["scontrol", "delete", "reservationname=later"])


def fares_as(site: Driver, job: JobId, told: str) -> bool:
    """Started again wherever it may be; whether that ends as it is to be told."""
    found = {seen.id: seen for seen in site.observe().jobs}.get(job)
    if found is None:
        return told == "Slurm's own" and "JobState=RUNNING" in job_shown(site, job)
    if found.state is JobState.STOPPED and found.blocked is None:
        site.start(job, {"n1": 1}, 2)
        return False
    words = found.blocked.text if found.blocked is not None else found.native
    return told in words if told else (found.state, found.epoch) == (JobState.RUNNING, 2)


@pytest.mark.parametrize("site", ["private_slurm", pytest.param("slurm_2605", marks=pytest.mark.soak)], indirect=True)
def test_a_running_elastic_job_that_may_not_be_requeued_is_resized_no_more(site: Driver) -> None:
    job = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", ELASTIC)
    site.start(job, site.one())
    site.wait(job, JobState.RUNNING)
    trapped(site, job)
    for requeue in (0, 1):
        ask(site, "scontrol", "update", f"jobid={number(job)}", f"requeue={requeue}")
        spec = site.job(job).spec
        assert spec is not None
        assert spec.elastic is bool(requeue), "as whoever plans is told"
        if not requeue:
            with pytest.raises(Never, match="Requeue=0"):
                site.port.checkpoint_and_stop(job, 60.0)
            assert site.job(job).state is JobState.RUNNING
    site.stop(job, 60.0)
    assert site.wait(job, JobState.STOPPED).exit_code == 86


@pytest.mark.parametrize("site", ["private_slurm", pytest.param("slurm_2605", marks=pytest.mark.soak)], indirect=True)
def test_an_elastic_job_that_may_not_be_requeued_since_it_was_asked_to_leave_goes_on(site: Driver) -> None:
    """Under horae-exec: it checkpoints, and its trainer goes on in the same start. 86 would be the job's end."""
    there = harness(site).cluster.shared()[1]
    words = f"--checkpoint {there}/stays-{harness(site).partition} -- python3 {there}/trainer.py trains 1.5"
    script = f"#!/bin/bash\nexec {harness(site).cluster.tool()} --grace 60 {words}\n"
    job = harness(site).submit_script(script, "--gres=gpu:1", "--time=60", ELASTIC)
    site.start(job, site.one())
    site.wait(job, JobState.RUNNING)
    site.until("it trains", lambda: b"step=2/" in site.log(job))
    site.stop(job, 60.0)
    ask(site, "scontrol", "update", f"jobid={number(job)}", "requeue=0")
    site.until("it goes on", lambda: bool(site.observe()) and b"goes on from the checkpoint" in site.log(job))
    steps = site.log(job).count(b"step=")
    site.until("it trains", lambda: site.log(job).count(b"step=") > steps + 1)
    seen = site.job(job)
    assert (seen.state, seen.epoch) == (JobState.RUNNING, 1)
    ask(site, "scontrol", "update", f"jobid={number(job)}", "requeue=1")
    site.observe()
    site.stop(job, 60.0)
    assert site.wait(job, JobState.STOPPED).exit_code == 86


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


@pytest.mark.parametrize(
    "site",
    ["private_slurm", *(pytest.param(name, marks=pytest.mark.soak) for name in ("slurm_site", "slurm_2605"))],
    indirect=True,
)
def test_a_feature_counts_while_a_node_has_it(site: Driver) -> None:
    """Slurm holds a job for good that is let go when no node has what it asks for (BadConstraints)."""
    slurm = harness(site).cluster
    was = ",".join(site.node("n1").features)

    def set_to(available: str, active: str) -> None:
        slurm.run("scontrol", "update", "nodename=n1", f"AvailableFeatures={available}", f"ActiveFeatures={active}")

    set_to(f"{was},quick,quiet", f"{was},quick,quiet")
    try:
        job = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", "--constraint=quiet")
        assert {"quick", "quiet"} <= set(site.node("n1").features)
        set_to(f"{was},quick,quiet", f"{was},quick")
        seen = site.port.observe()
        (features,) = [node.features for node in seen.nodes if node.name == "n1"]
        assert "quick" in features
        assert "quiet" not in features
        (due,) = seen.due
        assert (due.job, "fits on no nodes" in due.what) == (job, True), "Slurm's own, as in any partition"
        set_to(f"{was},quick,quiet", f"{was},quick,quiet")
        assert site.job(job).state is JobState.QUEUED
        site.start(job, {"n1": 1})
        assert list(site.wait(job, JobState.RUNNING).allocation) == ["n1"]
    finally:
        set_to(was, was)
