"""Granted jobs that Slurm does not start for a reason of their own, which no plan can know of: nobody else waits for
them longer than in a plain partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.waiting import wait_for
from tests.real import slurm_accounts as accounts
from tests.real.slurm import Containers, slurm_site  # noqa: F401 - a fixture

pytestmark = [pytest.mark.real, pytest.mark.soak]


@pytest.fixture
def day(slurm_site: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[accounts.Day]:  # noqa: F811
    monkeypatch.setitem(accounts.SIDES, "managed", "n[1-4]")
    made = accounts.Day(slurm_site, tmp_path)
    yield made
    made.end()


def test_forty_jobs_that_cannot_start_keep_no_gpus_from_others(day: accounts.Day) -> None:
    """alice wants nodes of her own (`--exclusive=user`), on which bob's jobs run. Each of hers was granted GPUs, stood
    first in Slurm's queue, and was taken back, again and again; bob's next job, granted beside them, was never tried by
    Slurm, was taken back as well, and later each time."""
    cluster = day.cluster
    words = (
        "--parsable",
        f"--partition={day.partitions['managed']}",
        "--output=/dev/null",
        "--time=30",
        "--gres=gpu:1",
    )

    def sbatch(user: str, *options: str) -> str:
        return cluster.run("runuser", "-u", user, "--", "sbatch", *words, *options)

    def state(job: str) -> str:
        return cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")

    bobs = [sbatch("bob", f"--nodelist=n{node}", "--wrap=exec sleep 600") for node in range(1, 5)]
    wait_for("bob has something on each node", lambda: all(state(job) == "RUNNING" for job in bobs))
    hers = [sbatch("alice", "--exclusive=user", "--wrap=true") for _ in range(40)]

    def taken_back() -> int:
        return cluster.run("squeue", "-h", "-j", ",".join(hers), "-o", "%r").count("JobHeldAdmin")

    def grants(job: str) -> int:
        return day.arbiter.view(
            lambda core: next(each.epoch for each in core.ledger.jobs.values() if each.id.partition(".")[0] == job)
        )

    wait_for("hers were granted, and not started", lambda: taken_back() > 4, 120)
    for _ in range(5):
        job = sbatch("bob", "--wrap=true")
        wait_for("bob's next job is done", lambda job=job: state(job) == "COMPLETED", 60)  # type: ignore[misc]
        assert grants(job) == 1, "it was taken back for hers"
    assert {state(job) for job in hers} == {"PENDING"}
    cluster.run("scancel", *bobs)
    wait_for("hers have their nodes", lambda: {state(job) for job in hers} == {"COMPLETED"}, 240)
