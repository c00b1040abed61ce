"""What slurmdbd has of a random day: of rigid jobs the same rows in a managed partition as in a plain one of the same
Slurm, of elastic ones all that they held; and by both, usage of users, fair share and QOS that is the rows' sum."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.contract.waiting import wait_for
from tests.real.slurm import slurm_site, slurm_site_2605  # noqa: F401 - fixtures
from tests.real.slurm_accounts import (
    DEEDS,
    LONG,
    RARE,
    SIDES,
    Day,
    Deed,
    Job,
    check_counted,
    check_pairs,
    check_report,
    gpus,
    held_s,
    started,
)

pytestmark = pytest.mark.real


@pytest.fixture(params=["slurm_site", pytest.param("slurm_site_2605", marks=pytest.mark.soak)])
def day(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Day]:
    made = Day(request.getfixturevalue(request.param), tmp_path)
    yield made
    made.end()


def test_rigid_jobs_are_booked_as_in_a_plain_partition(day: Day) -> None:
    names = ["failed", "typo", "array", "cancelled", "cancelled waiting", "suspended", "requeued", "longer"]
    check_pairs(day, day.pairs([DEEDS[name] for name in names]), names)
    check_report(day, *SIDES)


@pytest.mark.soak
def test_a_random_day_is_booked_as_in_a_plain_partition(day: Day) -> None:
    chance, every = random.Random(14), {**DEEDS, **RARE}
    names = [*every, *chance.choices(sorted(DEEDS), k=40)]
    chance.shuffle(names)
    check_pairs(day, day.pairs([every[name] for name in names]), names)
    check_report(day, *SIDES)
    check_counted(day)


@pytest.mark.soak
def test_of_an_elastic_job_all_that_it_held_is_booked(day: Day) -> None:
    """Of each start its own row, with the GPUs that it had there and the time that it had them, by its own clock."""
    told_by_itself = 'echo "$(date +%s) $SLURM_JOB_NUM_NODES $SLURM_GPUS_ON_NODE"\n'
    script = f"trap 'exit 86' USR1\n{told_by_itself}for i in $(seq 300); do sleep 0.1; done\n"
    words = "--gres=gpu:1 --open-mode=append --comment=horae:min=1,max=4,grace=20 --requeue"
    jobs = []
    for _ in range(3):
        jobs.append(day.submit("managed", words, script))
        wait_for("it runs", lambda: day.cluster.run("squeue", "-h", "-j", jobs[-1], "-o", "%T") == "RUNNING")
    wait_for("all have ended", lambda: not day.cluster.run("squeue", "-h", "-p", day.partitions["managed"]), 600)
    rows = [row for row in day.booked("managed") if row["jobid"] in jobs and gpus(row)]
    for job in jobs:
        own = sorted((row for row in rows if row["jobid"] == job), key=lambda row: int(row["start"]))
        log = (day.cluster.shared()[0] / f"{day.partitions['managed']}-{job}.out").read_text()
        starts = [tuple(map(int, line.split())) for line in log.splitlines()]
        assert [gpus(row) for row in own] == [nodes * each for _, nodes, each in starts]
        assert all(abs(at - int(row["start"])) <= 5 for (at, *_), row in zip(starts, own, strict=True)), (own, starts)
        assert [row["state"] for row in own] == ["REQUEUED"] * (len(own) - 1) + ["COMPLETED"]
    assert len(rows) > len(jobs), "none was ever resized"
    check_report(day, "managed")


TRAINS = "trap 'exit 86' USR1\n"
#: so much less at each start, for an elastic job that begins again would never end among those that come and go
WORKS = f"{TRAINS}for i in $(seq $((150 - 25 * ${{SLURM_RESTART_COUNT:-0}}))); do sleep 0.1; done\n"
STAYS = f"{TRAINS}{LONG.replace('exec sleep 600', 'for i in $(seq 6000); do sleep 0.1; done')}"
#: elastic jobs, and how each ends
FATES = {
    "done": (Deed("", WORKS), "COMPLETED"),
    "failed": (Deed("", f"{WORKS}exit 3\n"), "FAILED"),
    "killed": (Deed("", f"{TRAINS}sleep 2 & wait\nkill -9 $$\n"), "FAILED"),
    "cancelled": (Deed("", STAYS, (("RUNNING", "sleep 2"), ("RUNNING", "scancel JOB"))), "CANCELLED by 0"),
    "requeued": (Deed("", WORKS, (("RUNNING", "scontrol requeue JOB"),)), "COMPLETED"),
    "deaf": (Deed("", WORKS.replace("exit 86", "true")), "COMPLETED"),  # a stop is by force, after its grace
    "timeout": (Deed("--time=1", STAYS), "TIMEOUT"),
}
#: from the grant, with which a start is charged, to Slurm's start of it, and from an end to the look that shows it
SEEN_LATE_S = 8.0


@pytest.mark.soak
def test_a_random_day_of_elastic_jobs_is_booked_whole(day: Day) -> None:
    """Whatever ends them or takes them from their nodes: each start is a row, none of a job at the same time as another
    of it, all together never more than there is, and slurmdbd's report is their sum."""
    chance = random.Random(27)
    names = [*FATES, *chance.choices(sorted(FATES.keys() - {"timeout"}), k=7)]
    chance.shuffle(names)
    jobs: list[Job] = []
    for name in names:
        deed = FATES[name][0]
        word = f"--open-mode=append --requeue --gres=gpu:1 --comment=horae:min=1,max={chance.choice((2, 4, 8))},grace=5"
        jobs.append(Job(deed, "managed", day.submit("managed", f"{word} {deed.options}", deed.script)))
        pause_s = time.monotonic() + chance.uniform(0.0, 6.0)
        wait_for("the next one comes", lambda until_s=pause_s: bool(day.go_on(jobs)) and time.monotonic() > until_s)  # type: ignore[misc]
    day.go_through(jobs)
    rows = started(day.booked("managed"))
    assert len(rows) > 1.3 * len(jobs), "next to none was ever resized"
    wait_for("the arbiter has seen all ends", lambda: None not in day.charged().values())
    charged = day.charged()
    for name, job in zip(names, jobs, strict=True):
        own = sorted((row for row in rows if row["jobid"] == job.number), key=lambda row: int(row["start"]))
        assert all(int(one["end"]) <= int(next_["start"]) for one, next_ in pairwise(own)), own
        assert {row["state"] for row in own[:-1]} <= {"REQUEUED"}, (name, own)
        assert own[-1]["state"] == FATES[name][1], (name, own)
        spent, late = sum(gpus(row) * held_s(row) for row in own), SEEN_LATE_S * sum(map(gpus, own))
        assert abs((charged[job.number] or 0.0) - spent) <= late, (name, charged[job.number], own)
    moments = sorted({int(row["start"]) for row in rows})
    held = [sum(gpus(row) for row in rows if int(row["start"]) <= at < int(row["end"])) for at in moments]
    assert max(held) <= 8, "more than the pool has"
    check_report(day, "managed")
