"""A site with limits, fair share and preemption (24.11): granted is not running, and the cluster says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import BlockKind, JobState
from slurm_plugin import connect
from tests.contract.driver import Driver
from tests.real.slurm import Containers, slurm_site, wait_for  # noqa: F401 - a fixture
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

PLAIN = "#!/bin/bash\ntrap 'exit 86' USR1\nwhile :; do sleep 0.05; done\n"
ELASTIC = "--comment=horae:min=1,max=8"


@pytest.fixture
def site(slurm_site: Containers, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(slurm_site, tmp_path / "memory", partition="dl")
    driver = Driver(made)
    yield driver
    made.end()


def clusters(driver: Driver) -> Containers:
    assert isinstance(driver.harness, SlurmHarness)
    assert isinstance(driver.harness.cluster, Containers)
    return driver.harness.cluster


def submit(driver: Driver, *options: str) -> str:
    assert isinstance(driver.harness, SlurmHarness)
    return driver.harness.submit_script(PLAIN, "--gres=gpu:1", "--time=60", ELASTIC, *options)


def number(job: str) -> str:
    return job.split(".", maxsplit=1)[0]


def test_a_limit_blocks_is_told_as_such_and_a_smaller_shape_runs(site: Driver) -> None:
    job = submit(site, "--qos=two")
    site.start(job, {"n1": 4})
    site.until("blocked", lambda: site.job(job).blocked is not None)
    blocked = site.job(job).blocked
    assert blocked is not None
    assert blocked.kind is BlockKind.LIMIT
    assert "QOS" in blocked.text
    site.until("taken back", lambda: site.job(job).state is JobState.QUEUED)
    site.start(job, {"n1": 2}, 2)
    assert site.wait(job, JobState.RUNNING).allocation == {"n1": 2}


def test_a_stop_frees_the_limit_at_once(site: Driver) -> None:
    first, second = submit(site, "--qos=two"), submit(site, "--qos=two")
    site.start(first, {"n1": 2})
    site.wait(first, JobState.RUNNING)
    time.sleep(0.3)
    site.port.checkpoint_and_stop(first, 20)
    site.wait(first, JobState.STOPPED)
    site.start(second, {"n2": 2})
    assert site.wait(second, JobState.RUNNING).allocation == {"n2": 2}


def test_a_preempted_job_comes_back_held_and_is_lost_not_stopped(site: Driver) -> None:
    job = submit(site)
    site.start(job, {"n1": 4})
    site.wait(job, JobState.RUNNING)
    site.until(
        "the fence",
        lambda: bool(site.observe()) and "Priority=0" in clusters(site).run("scontrol", "show", "job", number(job)),
    )
    urgent = clusters(site).submit(
        "#!/bin/bash\nexec sleep 30\n", "--partition=urgent", "--gres=gpu:2", "--nodelist=n1", "--time=5"
    )
    try:
        seen = site.wait(job, JobState.LOST, JobState.STOPPED)
        assert seen.state in {JobState.LOST, JobState.STOPPED}
        shown = clusters(site).run("scontrol", "show", "job", number(job))
        assert "Priority=0" in shown, "it would start again by itself in its old shape"
        site.start(job, {"n2": 1}, 2)
        assert site.wait(job, JobState.RUNNING).allocation == {"n2": 1}
    finally:
        clusters(site).run("scancel", urgent)


def test_order_moves_pending_jobs_by_their_site_factor_alone(site: Driver, tmp_path: Path) -> None:
    """Mode `order`: nothing is held; the jobs are Slurm's own, and it starts them in our order."""
    cluster = clusters(site)
    cluster.run("rm", "-f", "/shared/horae/spool/heartbeat")
    full = cluster.submit("#!/bin/bash\nexec sleep 300\n", "--partition=raw", "--gres=gpu:4", "--nodes=4", "--time=60")
    wait_for("it runs", lambda: "JobState=RUNNING" in cluster.run("scontrol", "show", "job", full))
    jobs = [cluster.submit(PLAIN, "--partition=dl", "--gres=gpu:4", "--nodes=4", "--time=60") for _ in range(3)]
    port = connect({**cluster.options("dl"), "hold": False, "state": str(tmp_path / "order")})
    try:
        assert port.capabilities().order_lever == "SiteFactor"

        def priority(job: str) -> int:
            return int(cluster.run("squeue", "-h", "-j", job, "-o", "%Q"))

        seen = [job.id for job in port.observe().jobs if job.state is JobState.QUEUED]
        assert sorted(seen) == sorted(jobs)
        before = {job: priority(job) for job in jobs}
        port.set_order(list(reversed(jobs)))
        moved = [priority(job) for job in jobs]
        assert moved[0] + 10 <= moved[1] <= moved[2] - 10
        port.set_order(list(reversed(jobs)))
        port.observe()
        for job in jobs:
            port.release(job)
        assert all(abs(priority(job) - before[job]) < 5 for job in jobs), "the factor is gone with the job"
    finally:
        port.close()
        cluster.run("scancel", full, *jobs)


def test_a_maintenance_reservation_blocks_its_nodes(site: Driver) -> None:
    clusters(site).run(
        "scontrol", "create", "reservation", "ReservationName=fix", "Nodes=n1", "StartTime=now", "Duration=10",
        "Flags=MAINT", "Users=root",
    )  # fmt: skip
    try:
        wait_for("the node shows it", lambda: site.node("n1").health.value == "drain")
        job = submit(site)
        site.start(job, {"n1": 1})
        site.until("blocked", lambda: site.job(job).blocked is not None)
        blocked = site.job(job).blocked
        assert blocked is not None
        assert blocked.kind is BlockKind.NODE
        site.start(job, {"n2": 1}, 2)
        site.wait(job, JobState.RUNNING)
    finally:
        clusters(site).run("scontrol", "delete", "ReservationName=fix")
