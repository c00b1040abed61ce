"""What a site's other users do in a managed partition beside sbatch of one job: it goes as in plain Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horae.port import JobId, JobState, Leaving, attend
from horae.spec import OWN_PROFILE
from policy.model import BadInput
from slurm_plugin import connect
from slurm_plugin.adapter import SlurmCluster
from tests.contract.driver import Driver
from tests.real.slurm import (
    Private,
    private_slurm,  # noqa: F401 - a fixture
    wait_for,
)
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

SLEEPS = "#!/bin/bash\nsleep 600\n"


class Ground:
    """One partition of a private Slurm with an arbiter's adapter."""

    def __init__(self, slurm: Private, memory: Path) -> None:
        self.slurm, self.harness = slurm, SlurmHarness(slurm, memory)
        self.driver, self.partition = Driver(self.harness), self.harness.partition

    def submit(self, *options: str, script: str = SLEEPS) -> str:
        self.driver.patient(self.driver.port.heartbeat)
        return self.slurm.submit(script, f"--partition={self.partition}", *options)

    def open(self, *argv: str) -> subprocess.Popen[str]:
        """srun or salloc, which stay until their job is over."""
        self.driver.patient(self.driver.port.heartbeat)
        environment = {**os.environ, **self.slurm.lab.env()}
        return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def named(self, number: str) -> JobId | None:
        found = [job.id for job in self.driver.observe().jobs if job.id.partition(".")[0] == number]
        return found[0] if found else None

    def offered(self, number: str) -> JobId:
        wait_for(f"{number} is offered", lambda: self.named(number))
        found = self.named(number)
        assert found is not None
        return found

    def newest(self, name: str) -> str:
        """The number of a job by its name, once Slurm has it."""
        wait_for(f"Slurm has {name}", lambda: self._by_name(name))
        return self._by_name(name)

    def _by_name(self, name: str) -> str:
        return self.slurm.run("squeue", "-h", "-t", "all", f"--name={name}", "-o", "%i").partition("\n")[0]

    def shown(self, number: str) -> dict[str, str]:
        words = self.slurm.run("scontrol", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.fixture
def site(private_slurm: Private, tmp_path: Path) -> Iterator[Ground]:  # noqa: F811
    made = Ground(private_slurm, tmp_path / "memory")
    yield made
    made.harness.end()


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_an_interactive_job_waits_its_turn_and_has_all_that_it_asked_for(site: Ground, command: str) -> None:
    name = f"{command}-{site.partition}"
    step = ["sh", "-c", "echo task $SLURM_PROCID with $CUDA_VISIBLE_DEVICES"]
    inner = step if command == "srun" else ["srun", *step]
    asked = [command, f"--partition={site.partition}", f"--job-name={name}", "-n2", "--gres=gpu:2", *inner]
    with site.open(*asked) as process:
        number = site.newest(name)
        job = site.offered(number)
        assert site.driver.job(job).state is JobState.QUEUED
        site.driver.start(job, site.driver.one(2))
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == ["task 0 with 0,1", "task 1 with 0,1"]
    assert site.shown(number)["NumTasks"] == "2"
    site.driver.wait(job, JobState.COMPLETED)


@pytest.mark.parametrize(("options", "gpus"), [(["--exclusive"], 1), (["-n2", "--ntasks-per-gpu=1"], 2)])
def test_a_job_that_has_gpus_though_it_names_none_waits_its_turn(site: Ground, options: list[str], gpus: int) -> None:
    """All of a node that is its own, those of its tasks: it would have them past all who wait."""
    number = site.submit(*options)
    job = site.offered(number)
    assert site.shown(number)["JobState"] == "PENDING"
    site.driver.start(job, {"n1": gpus})
    wait_for("it runs", lambda: site.shown(number)["JobState"] == "RUNNING")


def test_what_slurm_refuses_leaves_nothing_and_a_partition_beside_is_noted(site: Ground) -> None:
    """Slurm looks whether there is such a partition after the module has seen the name."""
    noted = site.slurm.lab.spool / "beside"
    before = noted.read_text()
    for name in (f"none{site.partition}", "raw\nnone", "none " * 40):
        with pytest.raises(BadInput, match="Invalid partition"):
            site.submit("--gres=gpu:1", f"--partition={site.partition},{name}")
    assert noted.read_text() == before
    site.submit("--gres=gpu:1", f"--partition={site.partition},raw")
    assert "raw" in noted.read_text().split()


@contextmanager
def closed(site: Ground, partition: str) -> Iterator[None]:
    """Nothing of it is started meanwhile."""
    site.slurm.run("scontrol", "update", f"PartitionName={partition}", "State=DOWN")
    try:
        yield
    finally:
        site.slurm.run("scontrol", "update", f"PartitionName={partition}", "State=UP")


def test_of_a_list_of_partitions_the_others_start_it_as_in_plain_slurm(site: Ground) -> None:
    both = f"--partition={site.partition},raw"
    number = site.submit(both, "--gres=gpu:2")
    wait_for("Slurm starts it, nobody else", lambda: site.shown(number)["JobState"] == "RUNNING")
    assert site.shown(number)["Partition"] == "raw"
    wait_for("its GPUs are others'", lambda: sum(node.foreign for node in site.driver.observe().nodes) == 2)
    assert site.named(number) is None
    with closed(site, "raw"):
        array = site.submit(both, "--gres=gpu:1", "--array=1-3")
        tasks = [site.offered(f"{array}_{task}") for task in (1, 2, 3)]
        assert site.slurm.run("squeue", "-h", "-j", array, "-o", "%K %P %T") == "1-3 raw PENDING", "one record"
        site.driver.start(tasks[1], site.driver.one())  # it is its turn
        site.driver.wait(tasks[1], JobState.RUNNING)
        assert site.shown(f"{array}_2")["Partition"] == site.partition
        assert {site.driver.job(task).state for task in (tasks[0], tasks[2])} == {JobState.QUEUED}
    wait_for(
        "the others", lambda: site.shown(f"{array}_1")["JobState"] == site.shown(f"{array}_3")["JobState"] == "RUNNING"
    )
    wait_for("they are Slurm's", lambda: [job.id for job in site.driver.observe().jobs] == [tasks[1]])
    site.driver.observe()
    assert site.driver.observe().notes == ()
    site.slurm.run("scancel", number, array)


def test_a_grant_that_slurm_does_not_follow_takes_ours_off_the_list_alone(site: Ground) -> None:
    both, place = f"--partition={site.partition},raw", site.driver.one()
    with closed(site, "raw"), closed(site, site.partition):
        number = site.submit(both, "--gres=gpu:1")
        job = site.offered(number)
        site.driver.start(job, place)  # decided before
        wait_for("both", lambda: set(site.shown(number)["Partition"].split(",")) == {site.partition, "raw"})
        site.driver.until(
            "not followed", lambda: bool(site.driver.observe()) and site.shown(number)["Partition"] == "raw"
        )
        assert site.shown(number)["Priority"] != "0"
        site.slurm.run("scontrol", "hold", number)
        site.driver.observe()
        with pytest.raises(Exception, match="scontrol release"):
            site.driver.port.start(job, place, 2)
        site.slurm.run("scontrol", "release", number)
    wait_for("the other one starts it", lambda: site.shown(number)["JobState"] == "RUNNING")
    assert site.shown(number)["Partition"] == "raw"
    site.slurm.run("scancel", number)


@pytest.mark.parametrize("way", ["port", "script"])
def test_leaving_gives_a_list_of_partitions_back(site: Ground, way: str) -> None:
    with closed(site, "raw"):
        number = site.submit(f"--partition={site.partition},raw", "--gres=gpu:1")
        job = site.offered(number)
        if way == "port":
            site.driver.port.release(job)
        else:
            release_by_script(site)
        wait_for("it is Slurm's", lambda: site.shown(number)["JobState"] == "RUNNING")
    assert site.shown(number)["Partition"] == site.partition
    site.slurm.run("scancel", number)


@pytest.mark.soak  # on 24.11 in every run
def test_a_heterogeneous_job_is_slurms_own(site: Ground) -> None:
    """As in any partition, and nobody is told of a record that cannot be read."""
    part = f"--partition={site.partition}"
    number = site.submit("-n1", "--gres=gpu:1", ":", part, "-n1", "--gres=gpu:2")

    def states() -> list[str]:
        return site.slurm.run("squeue", "-h", "-j", number, "-o", "%T").split()

    wait_for("both components run", lambda: states() == ["RUNNING", "RUNNING"], 200)
    seen = site.driver.observe()
    assert sum(node.foreign for node in seen.nodes) == 3
    assert (seen.jobs, seen.notes) == ((), ())
    site.slurm.run("scancel", number)


def test_a_hold_of_an_owner_or_an_administrator_stands(site: Ground) -> None:
    """Of `sbatch --hold` and of `scontrol hold`, rigid or elastic; their release starts nothing either."""
    for number, options in enumerate((["--hold"], [], ["--comment=horae:min=1"])):
        job = site.offered(site.submit("--gres=gpu:1", *options))
        jobid = job.partition(".")[0]
        if "--hold" not in options:
            site.slurm.run("scontrol", "hold", jobid)
        site.driver.observe()
        with pytest.raises(Exception, match="scontrol release"):
            site.driver.port.start(job, site.driver.one(), 1)
        assert site.shown(jobid)["Priority"] == "0"
        site.slurm.run("scontrol", "release", jobid)
        site.driver.observe()
        assert site.shown(jobid)["JobState"] == "PENDING", "it waits for its turn"
        site.driver.start(job, site.driver.one(), number + 1)
        site.driver.wait(job, JobState.RUNNING)


def test_leaving_keeps_a_hold_of_its_users(site: Ground) -> None:
    for release in (site.driver.port.release, lambda job: release_by_script(site)):
        job = site.offered(site.submit("--gres=gpu:1", "--hold"))
        jobid = job.partition(".")[0]
        release(job)
        shown = site.shown(jobid)
        assert (shown["JobState"], shown["Priority"], shown["Reason"]) == ("PENDING", "0", "JobHeldUser")
        site.slurm.run("scontrol", "release", jobid)
        wait_for("it is Slurm's", lambda jobid=jobid: site.shown(jobid)["JobState"] == "RUNNING")  # type: ignore[misc]


def release_by_script(site: Ground) -> None:
    script = Path(__file__).parents[2] / "slurm_plugin/site/release-all.sh"
    site.slurm.lab.run(["sh", str(script), str(site.slurm.lab.spool)])


def test_a_dependency_of_an_elastic_job_is_judged_at_once(site: Ground) -> None:
    first = site.offered(site.submit("--gres=gpu:1"))
    second = site.submit("--gres=gpu:1", "--comment=horae:min=1", f"--dependency=afterany:{first.partition('.')[0]}")
    assert site.named(second) is None
    site.driver.cancel(first)
    site.driver.until("it is offered", lambda: site.named(second) is not None)
    assert "Dependency=(null)" in site.slurm.run("scontrol", "show", "job", second)


def requests(slurm: Private) -> Counter[str]:
    """What slurmctld was asked so far, by sdiag."""
    text = slurm.run("sdiag").partition("by message type")[2].partition("Remote Procedure Call")[0]
    return Counter({name: int(count) for name, count in re.findall(r"(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)", text)})


def test_a_start_is_one_write_of_a_rigid_job_and_two_of_an_elastic_one(site: Ground) -> None:
    """Beside them, all are read once, right before their start: somebody may have held one since. And scontrol itself
    looks at a job whose nodes it is to change."""
    for options, writes in (([], 1), (["--comment=horae:min=1"], 2)):
        jobs = [site.offered(site.submit("--gres=gpu:1", *options)) for _ in range(4)]
        one, port = site.driver.one(), site.driver.port
        assert isinstance(port, SlurmCluster)
        before = requests(site.slurm)
        assert port.start_many([(job, one, 1) for job in jobs]) == {}
        made = requests(site.slurm) - before
        asked = {name: count for name, count in made.items() if "JOB" in name}
        assert asked.pop("REQUEST_UPDATE_JOB") == writes * len(jobs)
        assert asked.pop("REQUEST_JOB_INFO_SINGLE", 0) <= (writes - 1) * len(jobs)
        assert asked.pop("REQUEST_JOB_INFO") == 1
        assert not +Counter(asked)
        for job in jobs:
            site.driver.wait(job, JobState.RUNNING)
            site.driver.cancel(job)
        for job in jobs:
            site.driver.wait(job, JobState.CANCELLED)


def test_within_a_second_the_first_number_is_first(site: Ground) -> None:
    arrays = [site.submit("--gres=gpu:1", "--array=1-11") for _ in range(2)]
    wanted = [f"{array}_{task}" for array in arrays for task in range(1, 12)]
    site.driver.until("all tasks are seen", lambda: len(site.driver.observe().jobs) == len(wanted))
    jobs = site.driver.observe().jobs
    order = sorted(jobs, key=lambda job: job.submitted_s or 0.0)
    assert len({job.submitted_s for job in jobs}) == len(jobs)
    assert [job.id.partition(".")[0] for job in order] == wanted


def test_two_jobs_of_one_script_have_profiles_of_their_own(site: Ground) -> None:
    """Slurm does not tell what arguments and environment change; `key=` does."""
    path = site.slurm.shared()[0] / f"{site.partition}.sh"
    path.write_text(SLEEPS)
    common = [f"--partition={site.partition}", "--gres=gpu:1"]
    site.driver.patient(site.driver.port.heartbeat)
    for words in (["a"], ["b"]):
        site.slurm.run("sbatch", *common, "--comment=horae:min=1", str(path), *words)
    for words in (["a"], ["b"]):
        site.slurm.run("sbatch", *common, "--comment=horae:min=1,key=resnet", str(path), *words)
    specs = [job.spec for job in site.driver.observe().jobs if job.spec is not None]
    assert len({spec.extra[OWN_PROFILE] for spec in specs}) == 4
    assert [spec.model for spec in specs] == [None, None, "resnet", "resnet"]


def test_folders_of_jobs_that_are_over_leave_the_spool(site: Ground, tmp_path: Path) -> None:
    """Slurm itself remembers a job for minutes: so one that an arbiter of another partition started."""
    here = Ground(site.slurm, tmp_path / "here")
    try:
        over, lives = (each.offered(each.submit("--gres=gpu:1")) for each in (site, here))
        for each, job in ((site, over), (here, lives)):
            each.driver.start(job, each.driver.one())
            each.driver.wait(job, JobState.RUNNING)
        site.driver.cancel(over)
        site.driver.wait(over, JobState.CANCELLED)
        folder = site.slurm.lab.spool / "jobs"
        assert {over, lives} <= {path.name for path in folder.iterdir()}
        port = connect({**site.slurm.options(here.partition), "state": str(tmp_path / "third"), "keep_days": 1e-9})
        try:
            port.claim("another")
            attend(port)
            port.heartbeat()
        finally:
            port.close()
        assert {path.name for path in folder.iterdir()} & {over, lives} == {lives}
    finally:
        here.harness.end()


def test_leaving_hands_back_many_at_once_and_arrays_whole(site: Ground) -> None:
    busy = [site.submit("--gres=gpu:4", f"--nodelist=n{at}") for at in range(1, 9)]
    for each in busy:
        job = site.offered(each)
        site.driver.start(job, site.driver.one(4))
        site.driver.wait(job, JobState.RUNNING)
    arrays = [site.submit("--gres=gpu:1", "--array=1-60%2") for _ in range(2)]
    singles = [site.submit("--gres=gpu:1") for _ in range(5)]
    port = site.driver.port
    assert isinstance(port, SlurmCluster)
    site.driver.until("all are seen", lambda: len(site.driver.observe().jobs) == 133)
    waiting = [job.id for job in site.driver.observe().jobs if job.state is JobState.QUEUED]
    before = requests(site.slurm)
    assert port.release_many(waiting) == {}
    assert (requests(site.slurm) - before)["REQUEST_UPDATE_JOB"] == len(arrays) + len(singles)
    for array in arrays:
        assert site.slurm.run("squeue", "-h", "-j", array, "-o", "%K") == "1-60%2", "one record"
    assert site.shown(singles[0])["Reason"] in {"Resources", "Priority", "None"}
    assert len(site.driver.observe().jobs) == len(busy)


@pytest.mark.parametrize("comment", ["", "--comment=horae:min=1,max=2"])
def test_a_start_time_that_an_administrator_gives_is_kept(site: Ground, comment: str) -> None:
    number = site.submit("--gres=gpu:1", *filter(None, [comment]))
    job = site.offered(number)
    site.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now+3600")
    given = site.shown(number)["EligibleTime"]
    for _ in range(3):
        blocked = site.driver.job(job).blocked
        assert blocked is not None, "not before its time"
        assert "not to begin before" in blocked.text
        assert (site.shown(number)["EligibleTime"], site.shown(number)["JobState"]) == (given, "PENDING")
    site.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now+30")
    site.driver.observe()
    assert site.shown(number)["Priority"] == "0", "held before Slurm would start it by itself"
    site.driver.until("that time has come", lambda: site.driver.job(job).blocked is None)
    site.driver.start(job, site.driver.one())
    site.driver.wait(job, JobState.RUNNING)


def test_leaving_keeps_a_start_time_of_an_administrators(site: Ground) -> None:
    numbers, jobs = [site.submit("--gres=gpu:1") for _ in range(2)], []
    for number in numbers:
        jobs.append(site.offered(number))
        site.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now+3600")
    given = [site.shown(number)["EligibleTime"] for number in numbers]
    site.driver.observe()
    assert isinstance(site.driver.port, Leaving)
    assert site.driver.port.release_many(jobs[:1]) == {}
    lab = site.slurm.lab
    lab.run(["sh", str(Path(__file__).parents[2] / "slurm_plugin/site/release-all.sh"), str(lab.spool)])
    for number, at in zip(numbers, given, strict=True):
        shown = site.shown(number)
        assert (shown["EligibleTime"], shown["Priority"] != "0", shown["JobState"]) == (at, True, "PENDING")


def moved(site: Ground, number: str, to: str) -> None:
    site.slurm.run("scontrol", "update", f"jobid={number}", f"Partition={to}")


@pytest.mark.parametrize("comment", ["", "--comment=horae:min=1,max=2"])
def test_tasks_of_an_array_that_an_administrator_moves_run_there_and_the_others_wait(
    site: Ground, comment: str
) -> None:
    array = site.submit("--gres=gpu:1", "--array=1-4", *filter(None, [comment]))
    jobs = [site.offered(f"{array}_{task}") for task in (1, 2, 3, 4)]
    moved(site, f"{array}_[2-3]", "raw")
    wait_for("they are Slurm's", lambda: {job.id for job in site.driver.observe().jobs} == {jobs[0], jobs[3]})
    for task in (2, 3):
        wait_for("it runs there", lambda at=task: site.shown(f"{array}_{at}")["JobState"] == "RUNNING")  # type: ignore[misc]
        assert site.shown(f"{array}_{task}")["Partition"] == "raw"
    assert {site.driver.job(jobs[at]).state for at in (0, 3)} == {JobState.QUEUED}
    site.driver.start(jobs[3], site.driver.one())
    site.driver.wait(jobs[3], JobState.RUNNING)
    site.slurm.run("scancel", array)


@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_is_moved_while_no_arbiter_looks_is_slurms_there(site: Ground, held: bool) -> None:
    """Else it would wait for the module's begin time, in a year, or in our hold."""
    number = site.submit("--gres=gpu:1")
    job = site.offered(number)
    if held:
        site.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now+15")
        wait_for("we hold it", lambda: bool(site.driver.observe()) and site.shown(number)["Priority"] == "0")
    moved(site, number, "raw")
    site.driver.harness.restart_arbiter()
    wait_for("it runs", lambda: bool(site.driver.observe()) and site.shown(number)["JobState"] == "RUNNING")
    assert (site.shown(number)["Partition"], site.named(number)) == ("raw", None)
    assert job not in {due.job for due in site.driver.port.observe().due}, "once"
    site.slurm.run("scancel", number)


@pytest.mark.parametrize("asked", ["", ",raw"])
def test_a_list_of_partitions_that_an_administrator_gives_is_slurms(site: Ground, asked: str) -> None:
    """Ours among them: it would be held in those that are not ours, or wait there for the module's begin time."""
    site.slurm.run("scontrol", "create", f"PartitionName=x{site.partition}", "Nodes=ALL", "State=UP")
    with closed(site, "raw"):
        number = site.submit(f"--partition={site.partition}{asked}", "--gres=gpu:1")
        site.offered(number)
        moved(site, number, f"{site.partition},x{site.partition}")
        wait_for("it runs", lambda: bool(site.driver.observe()) and site.shown(number)["JobState"] == "RUNNING")
    assert site.named(number) is None
    site.slurm.run("scancel", number)
    wait_for("its nodes are free", lambda: site.shown(number)["JobState"] == "CANCELLED")
    site.slurm.run("scontrol", "delete", f"PartitionName=x{site.partition}")


def test_a_job_that_waits_beside_and_is_moved_keeps_its_age(site: Ground) -> None:
    with closed(site, "raw"), closed(site, site.partition):
        number = site.submit(f"--partition={site.partition},raw", "--gres=gpu:1")
        site.offered(number)
        site.slurm.run("scontrol", "create", f"PartitionName=x{site.partition}", "Nodes=ALL", "State=DOWN")
        before = site.shown(number)["EligibleTime"]
        time.sleep(1.1)  # its stamps are whole seconds
        moved(site, number, f"x{site.partition}")
        (due,) = site.driver.port.observe().due
        assert "is in partition x" in due.what
        site.driver.observe()
        shown = site.shown(number)
        assert (shown["EligibleTime"], shown["Partition"]) == (before, f"x{site.partition}")
        site.slurm.run("scancel", number)
    wait_for("it is gone", lambda: site.shown(number)["JobState"] == "CANCELLED")
    site.slurm.run("scontrol", "delete", f"PartitionName=x{site.partition}")


def test_a_strangers_job_that_an_administrator_moves_here_is_slurms_own_and_told(site: Ground) -> None:
    """It came without a tag; one that its owner moves is refused (on 24.11: `test_slurm_days`)."""
    with closed(site, "raw"):
        number = site.slurm.submit(SLEEPS, "--partition=raw", "--gres=gpu:2", "--time=50")
        before = site.shown(number)
        moved(site, number, site.partition)
    wait_for("Slurm starts it", lambda: site.shown(number)["JobState"] == "RUNNING")
    after, kept = site.shown(number), ("EligibleTime", "TimeLimit", "NumTasks", "TresPerNode", "Account", "QOS")
    assert [after.get(name) for name in kept] == [before.get(name) for name in kept]
    wait_for("its GPUs are others'", lambda: sum(node.foreign for node in site.driver.observe().nodes) == 2)
    assert site.named(number) is None
    site.slurm.run("scontrol", "update", f"PartitionName={site.partition}", "State=DOWN")
    waiting = site.slurm.submit(SLEEPS, "--partition=raw", "--gres=gpu:4", "--begin=now+600")
    moved(site, waiting, site.partition)
    notes = site.driver.observe().notes
    assert [note.partition(":")[0] for note in notes if "moved here by an administrator" in note] == [waiting]
    assert site.driver.observe().notes == (), "once"
    site.slurm.run("scancel", number, waiting)
