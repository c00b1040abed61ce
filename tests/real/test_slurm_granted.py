"""What an administrator says of a job while its grant is out, before its start, stands, and is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import BlockKind, JobId, JobState, TryLater
from tests.contract.driver import Driver
from tests.real.slurm import (
    clear_partition,
    fresh_partition,
    private_slurm,  # noqa: F401 - a fixture
    slurm_2605,  # noqa: F401
    slurm_site,  # noqa: F401
)
from tests.real.slurm_driving import ELASTIC, PLAIN, harness, job_shown, number, trapped
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

#: what is said, how Slurm shows it, how it is told, and what takes it back
HOLD = (("hold", "JOB"), "Priority=0 ", "scontrol release", ("release", "JOB"))
PUT_OFF = (
    ("update", "jobid=JOB", "StartTime=now+1hour"),
    "Reason=BeginTime",
    "not to begin before",
    ("update", "jobid=JOB", "StartTime=now"),
)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    made = SlurmHarness(request.getfixturevalue(request.param), tmp_path / "memory", more={"blocked_after_s": 600.0})
    yield Driver(made)
    made.end()


@pytest.fixture
def others(site: Driver) -> Iterator[str]:
    """A partition that is Slurm's own, on the same nodes."""
    cluster = harness(site).cluster
    name = fresh_partition(cluster)
    yield name
    clear_partition(cluster, name)


def granted(site: Driver, kind: str, others: str) -> tuple[JobId, int, str]:
    """A job whose grant is out and whose node is another's; its epoch, and the other."""
    cluster, where = harness(site).cluster, "--nodelist=n1" if kind == "rigid" else ELASTIC
    job, epoch = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", where), 1
    if kind == "elastic again":
        site.start(job, {"n1": 1})
        site.wait(job, JobState.RUNNING)
        trapped(site, job)
        site.stop(job, 60.0)
        site.wait(job, JobState.STOPPED)
        epoch = 2
    full = f"--gres=gpu:{site.node('n1').gpus}"
    other = cluster.submit(PLAIN, f"--partition={others}", full, "--nodelist=n1")
    site.until("n1 is taken", lambda: "JobState=RUNNING" in cluster.run("scontrol", "show", "job", other))
    site.port.start(job, {"n1": 1}, epoch)
    site.until("it waits for n1", lambda: "Reason=Resources" in job_shown(site, job))
    assert site.job(job).state is JobState.STARTING
    return job, epoch, other


@pytest.mark.parametrize(
    "site",
    ["private_slurm", *(pytest.param(name, marks=pytest.mark.soak) for name in ("slurm_site", "slurm_2605"))],
    indirect=True,
)
@pytest.mark.parametrize("kind", ["rigid", "elastic", "elastic again"])
@pytest.mark.parametrize("words", [HOLD, PUT_OFF], ids=["held", "put off"])
def test_what_is_said_of_a_granted_job_stands(
    site: Driver, others: str, kind: str, words: tuple[tuple[str, ...], str, str, tuple[str, ...]]
) -> None:
    said, shown, told, back = words
    cluster = harness(site).cluster
    job, epoch, other = granted(site, kind, others)
    cluster.run("scontrol", *(word.replace("JOB", number(job)) for word in said))

    def aside() -> bool:
        blocked = site.job(job).blocked
        return blocked is not None and blocked.kind is BlockKind.ASIDE and told in blocked.text

    site.until("its grant is withdrawn, and why is told", aside)
    cluster.run("scancel", other)
    site.until("n1 is free", lambda: site.node("n1").foreign == 0)
    site.until("Slurm shows it as it was said", lambda: shown in job_shown(site, job))
    assert aside(), "nobody starts it"
    cluster.run("scontrol", *(word.replace("JOB", number(job)) for word in back))
    site.until("it may start again", lambda: site.job(job).blocked is None)
    if not site.job(job).state.holds:
        site.start(job, {"n1": 1}, epoch)
    assert site.wait(job, JobState.RUNNING).epoch == epoch


SINCE = {
    "held": ("hold", "JOB"),
    "put off": ("update", "jobid=JOB", "StartTime=now+2hours"),
    "a longer limit": ("update", "jobid=JOB", "TimeLimit=90"),
}


def standing(site: Driver, job: JobId) -> list[str]:
    """What such words change."""
    return re.findall(r"(?:Priority=0 |Reason=JobHeldAdmin|EligibleTime=|TimeLimit=)\S*", job_shown(site, job))


@pytest.mark.parametrize(
    "site",
    ["private_slurm", *(pytest.param(name, marks=pytest.mark.soak) for name in ("slurm_site", "slurm_2605"))],
    indirect=True,
)
@pytest.mark.parametrize("kind", ["rigid", "elastic", "elastic again"])
@pytest.mark.parametrize("what", SINCE)
def test_what_is_said_between_a_look_and_its_start_stands(site: Driver, kind: str, what: str) -> None:
    """Slurm has no compare and set: a release ends whatever hold it meets, a begin time takes another's place."""
    cluster = harness(site).cluster
    where = "--nodelist=n2" if kind == "rigid" else ELASTIC
    job, epoch = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", where), 1
    if kind == "elastic again":
        site.start(job, {"n1": 1})
        site.wait(job, JobState.RUNNING)
        trapped(site, job)
        site.stop(job, 60.0)
        site.wait(job, JobState.STOPPED)
        epoch = 2
    cluster.run("scontrol", *(word.replace("JOB", number(job)) for word in SINCE[what]))
    said = standing(site, job)
    with pytest.raises(TryLater, match="has just been"):
        site.port.start(job, {"n2": 1}, epoch)  # by the look from before
    assert standing(site, job) == said
    if what == "a longer limit":
        site.start(job, {"n2": 1}, epoch)
        site.wait(job, JobState.RUNNING)
        assert "TimeLimit=01:30:00" in job_shown(site, job)
        return
    site.until("why it waits is told", lambda: site.job(job).blocked is not None)
    assert standing(site, job) == said
