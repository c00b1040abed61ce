"""Jobs that did not ask for elasticity: the same in a managed partition as in a plain one of the same Slurm.

Random sbatch command lines, of options that users' scripts have, go to both partitions, one after the other on idle
nodes: refused alike, in the same words, or run with the same environment, tasks, GPUs and end.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import JobState, Leaving, ObservedJob
from policy.model import BadInput
from tests.contract.driver import Driver
from tests.real.slurm import (
    Private,
    fresh_partition,
    private_slurm,  # noqa: F401 - a fixture
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
    wait_for,
)
from tests.real.slurm_driving import waits_for_us
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

#: what differs between any two jobs, and what says where one of them runs
_OWN = re.compile(
    r"^SLURM_(JOB_?ID|JOB_SLUID|JOB_PARTITION|JOB_NAME|TASK_PID|STEP.*PORT|JOB_(START|END)_TIME|SRUN_COMM.*|.*TRES.*)="
)
SCRIPT = """#!/bin/bash
env | grep -E '^(SLURM_|CUDA_VISIBLE)' | sort
echo TASKS
srun --overcommit sh -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME: $CUDA_VISIBLE_DEVICES"' | sort
exit CODE
"""
GPUS = (
    "--gres=gpu:2", "--gres=gpu:v100:1", "--gres=gpu:k80:4", "--gres=gpu:a100:1", "--gres=gpu:64", "--gpus=3",
    "--gpus=6", "--gpus-per-node=2", "--gpus-per-task=1 -n4", "--gpus-per-socket=1 --sockets-per-node=1",
    "--gres=gpu:2 --gpus-per-task=1 -n4", "--gpus=4 --gpus-per-node=2", "--gpus=4 --ntasks-per-gpu=1",
)  # fmt: skip
NODES = ("", "", "-N1", "-N2", "-N3", "-N9", "-N2 --ntasks-per-node=2", "-n4", "-n3 -c2", "--ntasks-per-node=4")
MORE = (
    "", "", "", "--exclusive", "-c4", "--mem=2000", "--mem=200G", "--constraint=v100", "--constraint=k80",
    "--exclude=n1", "--nodelist=n3", "--time=10", "--cpus-per-gpu=2", "--mem-per-cpu=100",
    "--no-requeue", "--contiguous", "--ntasks-per-gpu=1", "--mem-per-gpu=500", "--exclusive=user", "--spread-job",
    "--switches=1", "--deadline=now+1hour", "--signal=B:USR1@30", "--no-kill", "--wait-all-nodes=1", "--nodelist=n1,n2",
    "--exclude=n[1-2]", "--dependency=singleton", "--overcommit", "--oversubscribe", "--use-min-nodes", "--nodes=1-3",
    "--mincpus=2", "--tmp=10", "--nice=10", "--distribution=cyclic", "--gres-flags=disable-binding", "--export=NONE",
    "--time=20 --time-min=5", "--threads-per-core=1", "--hint=nomultithread", "--ntasks-per-socket=1", "--requeue",
    "--licenses=nosuch", "--constraint=v100|k80", "--constraint=nosuch", "--qos=nosuch", "--nodelist=n99",
    "--tres-per-task=cpu=2", "--gpus-per-socket=1", "--cores-per-socket=2", "--gpus=v100:1", "--begin=now+2",
    "--wckey=x", "--mail-type=END,FAIL --mail-user=alice", "--kill-on-invalid-dep=yes", "--open-mode=append",
    "--open-mode=truncate", "--gpu-bind=single:1", "--core-spec=1", "--prefer=v100", "--delay-boot=5", "--mem=0",
    "--propagate=NOFILE", "--mem-bind=local", "--cpus-per-gpu=2 --mem-per-gpu=100", "--nice=-5", "--exclusive=mcs",
    "--switches=1@0:30", "--signal=R:USR1@600 --time=5", "--acctg-freq=30", "--reservation=nosuch", "--time=0",
)  # fmt: skip


#: what stands in the script: beside it Slurm shows it to no plugin, and refuses our begin time for it from 24.11 on
_INSIDE = "--deadline"
_BARE = "--export=NONE"
_CRASHES = "--spread-job"  #: 24.11.5: with a total of GPUs, slurmctld itself (a fault in topology/default)


def lines_of_options(seed: int, count: int) -> list[list[str]]:
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        words = f"{chance.choice(GPUS)} {chance.choice(NODES)} {chance.choice(MORE)}".split()
        lines.append([*words, f"--job-name=code{chance.choice((0, 0, 1, 3))}"])
    return lines


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    made = SlurmHarness(request.getfixturevalue(getattr(request, "param", "private_slurm")), tmp_path / "memory")
    yield Driver(made)
    made.end()


def harness(driver: Driver) -> SlurmHarness:
    assert isinstance(driver.harness, SlurmHarness)
    return driver.harness


class Pair:
    """The managed partition and a plain one."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.slurm, self.managed = driver, harness(driver).cluster, harness(driver).partition
        self.here, self.there = self.slurm.shared()
        self._count = 0

    def both(self, options: list[str]) -> tuple[str, str]:
        """Again where Slurm itself had to start one twice: on a busy host a launch may be lost."""
        for _ in range(3):
            found = self.one("raw", options), self.one(self.managed, options)
            if all("Restarts=" not in text or "Restarts=0" in text for text in found):
                break
        return found

    def one(self, partition: str, options: list[str]) -> str:
        """What became of it: Slurm's refusal, or what it saw and how it ended."""
        self._count += 1
        out = f"pair-{self.managed}-{self._count}.out"
        code = options[-1].removeprefix("--job-name=code")
        self.driver.patient(self.driver.port.heartbeat)
        inside = "".join(f"#SBATCH {word}\n" for word in options if word.startswith(_INSIDE))
        script = SCRIPT.replace("CODE", code).replace("bash\n", f"bash\n{inside}", 1)
        outside = [word for word in options if not word.startswith(_INSIDE)]
        try:
            number = self.slurm.submit(script, f"--partition={partition}", f"--output={self.there}/{out}", *outside)
        except (BadInput, RuntimeError, subprocess.CalledProcessError) as error:
            return re.sub(r"^.*?(?=sbatch: (error|fatal))", "", str(error), flags=re.DOTALL)
        if partition == self.managed:
            self._start(number)
        end = f"{self._end(number)}\n"
        text = (self.here / out).read_text() if (self.here / out).exists() else ""
        text = re.sub(r"/job\d+/|\bjob \d+\b", "/job/", text.replace(partition, "PARTITION"))
        lines = sorted(text.splitlines())  # what srun says of its tasks comes in any order
        return end + "\n".join(line for line in lines if not _OWN.match(line))

    def _start(self, number: str) -> None:
        def found() -> list[ObservedJob]:
            return [job for job in self.driver.observe().jobs if job.id.partition(".")[0] == number]

        wait_for(f"{number} is offered, or Slurm's own", lambda: found() or not waits_for_us(self.driver, number))
        jobs = found()
        if not jobs:  # it fits on no nodes as Horae sees them
            return
        assert [job.state for job in jobs] == [JobState.QUEUED]
        spec = jobs[0].spec
        assert spec is not None
        self.driver.start(jobs[0].id, {self.driver.nodes()[0].name: spec.gpus.requested})

    def _end(self, number: str) -> str:
        def state() -> str:
            self.driver.observe()
            return self.slurm.run("squeue", "-h", "-t", "all", "-j", number, "-o", "%T")

        ended = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"}
        try:  # by Slurm's own word: what a busy slurmctld makes squeue say beside it is no start
            wait_for(f"{number} starts", lambda: state() in {"CONFIGURING", "RUNNING", "COMPLETING", *ended})
        except AssertionError:  # Slurm took it, and has no nodes for it
            self.slurm.run("scancel", number)
            return "stays pending"
        wait_for(f"{number} ends", lambda: state() in ended, 300.0)  # longer than a requeue takes
        wait_for("its nodes are idle", lambda: not self.slurm.run("squeue", "-h", "-t", "R,CG"))
        shown = self.slurm.run("scontrol", "show", "job", number)
        kept = ("JobState", "Reason", "ExitCode", "Restarts", "Requeue", "TimeLimit", "NumNodes", "NumCPUs", "NumTasks",
                "CPUs/Task", "NodeList", "ReqNodeList", "ExcNodeList", "TresPerNode", "TresPerJob", "TresPerTask",
                "MinMemoryNode", "MinMemoryCPU", "Features", "OverSubscribe", "Contiguous", "CpusPerTres")  # fmt: skip
        words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        text = " ".join(f"{name}={words[name]}" for name in kept if name in words)
        text = text.replace("TimeLimit=00:59:00", "TimeLimit=01:00:00")  # what a deadline leaves, in whole minutes
        return text.replace("365-00:00:00", "UNLIMITED")  # backfill's word for it: whichever scheduler starts it


def compare(driver: Driver, lines: list[list[str]]) -> int:
    """How many ran; asserts that all went alike."""
    pair, ran, apart = Pair(driver), 0, []
    for options in lines:
        if _CRASHES in options and harness(driver).cluster.release == "24.11":
            continue
        if _BARE in options and not isinstance(harness(driver).cluster, Private):
            continue  # also a plain one takes its node's container with it: slurmd, its first process, ends
        plain, managed = pair.both(options)
        unchecked = any(word.startswith(_INSIDE) for word in options) and managed == "stays pending"
        if managed != plain and not (unchecked and "node configuration is not available" in plain):
            apart.append(f"sbatch {' '.join(options)}\n--- plain\n{plain}\n--- managed\n{managed}")
        ran += plain.startswith("JobState")
    assert not apart, "\n\n".join(apart)
    return ran


@pytest.mark.parametrize("cluster", ["private_slurm", "slurm_2411"], indirect=True)
def test_random_command_lines_are_the_same_in_a_managed_partition(cluster: Driver) -> None:
    named = [
        "-N2 --gres=gpu:4 --ntasks-per-node=4 -c2", "-n4 --gpus-per-task=1", "--gres=gpu:a100:1", "--gres=gpu:64",
        "--gres=gpu:1 --mem=200G", "-N2 --gres=gpu:v100:1 --exclusive", "--gpus-per-node=2 --ntasks-per-gpu=1",
        "--gres=gpu:2 --gpus-per-task=1 -n4",
    ]  # fmt: skip
    lines = [[*words.split(), "--job-name=code0"] for words in named]
    assert compare(cluster, lines + lines_of_options(1, 6)) >= 3


@pytest.mark.soak
@pytest.mark.parametrize("cluster", ["private_slurm", "slurm_2411", "slurm_2605"], indirect=True)
def test_two_hundred_random_command_lines(cluster: Driver) -> None:
    assert compare(cluster, lines_of_options(2, 200)) >= 50


@pytest.mark.soak
@pytest.mark.parametrize("cluster", ["private_slurm", "slurm_2411", "slurm_2605"], indirect=True)
def test_each_option_by_itself(cluster: Driver) -> None:
    lines = [["--gres=gpu:1", *words.split(), "--job-name=code0"] for words in dict.fromkeys(MORE)]
    assert compare(cluster, lines) >= 30


def test_a_typo_ends_once(cluster: Driver) -> None:
    """Exit code 1 within a second is the user's own end, elastic or not."""
    for number, comment in enumerate(["", "--comment=horae:min=1,max=2"]):
        out = f"{harness(cluster).cluster.shared()[1]}/typo-{harness(cluster).partition}-{number}"
        script = f"#!/bin/bash\necho ran >> {out}\nexit 1\n"
        job = harness(cluster).submit_script(script, "--gres=gpu:1", *filter(None, [comment]))
        cluster.start(job, cluster.one())
        seen = cluster.wait(job, JobState.FAILED)
        assert (seen.exit_code, seen.epoch) == (1, 1)
        assert (harness(cluster).cluster.shared()[0] / Path(out).name).read_text() == "ran\n"


def test_a_running_job_is_never_held_and_a_requeued_one_is(cluster: Driver) -> None:
    for options in (["--gres=gpu:1"], ["--gres=gpu:1", "--comment=horae:min=1,max=2"]):
        job = harness(cluster).submit_script("#!/bin/bash\ntrap 'exit 86' USR1\nsleep 600 & wait\n", *options)
        number = job.partition(".")[0]
        cluster.start(job, cluster.one())
        cluster.wait(job, JobState.RUNNING)
        for _ in range(3):
            cluster.observe()
        assert "Priority=0 " not in harness(cluster).cluster.run("scontrol", "show", "job", number)
        harness(cluster).cluster.run("scontrol", "requeue", number)
        assert "requeued, by its owner or an administrator" in cluster.wait(job, JobState.LOST).native
        cluster.until(
            "held before Slurm starts it again",
            lambda at=number: "Priority=0 " in harness(cluster).cluster.run("scontrol", "show", "job", at),  # type: ignore[misc]
        )
        cluster.start(job, cluster.one(), 2)
        assert cluster.wait(job, JobState.RUNNING).epoch == 2
        cluster.cancel(job)
        cluster.wait(job, JobState.CANCELLED)


def test_what_an_administrator_holds_stays_held(cluster: Driver) -> None:
    job = harness(cluster).submit_script("#!/bin/bash\nsleep 600\n", "--gres=gpu:1")
    number = job.partition(".")[0]
    harness(cluster).cluster.run("scontrol", "hold", number)
    cluster.observe()
    with pytest.raises(Exception, match="scontrol release"):
        cluster.port.start(job, cluster.one(), 1)
    harness(cluster).cluster.run("scontrol", "release", number)
    cluster.observe()
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)


def test_an_array_stays_whole_until_its_tasks_start(cluster: Driver) -> None:
    slurm, partition = harness(cluster).cluster, harness(cluster).partition
    cluster.patient(cluster.port.heartbeat)
    number = slurm.submit("#!/bin/bash\nsleep 600\n", f"--partition={partition}", "--array=1-50", "--gres=gpu:1")
    cluster.until("all its tasks are seen", lambda: len(cluster.observe().jobs) == 50)
    cluster.start(f"{number}_1.{cluster.observe().jobs[0].id.partition('.')[2]}", cluster.one())
    cluster.until("one runs", lambda: any(job.state is JobState.RUNNING for job in cluster.observe().jobs))
    assert slurm.run("squeue", "-h", "-p", partition, "-t", "PD", "-o", "%K") == "2-50"


def test_a_dependency_is_judged_at_once(cluster: Driver) -> None:
    first = harness(cluster).submit_script("#!/bin/bash\nsleep 600\n", "--gres=gpu:1")
    number = first.partition(".")[0]
    slurm, partition = harness(cluster).cluster, harness(cluster).partition
    second = slurm.submit(
        "#!/bin/bash\n", f"--partition={partition}", "--gres=gpu:1", f"--dependency=afterany:{number}"
    )
    assert [job.id for job in cluster.observe().jobs] == [first]
    cluster.cancel(first)
    cluster.until("it is offered", lambda: any(job.id.startswith(second) for job in cluster.observe().jobs))


# --- leaving ----------------------------------------------------------------------------------------------


def test_whoever_waits_is_handed_back_as_it_was_asked(cluster: Driver) -> None:
    """By the arbiter and, for what comes after, by the script: dependents, begin times, arrays, all in their shapes."""
    h = harness(cluster)
    assert isinstance(h.cluster, Private)
    lab = h.cluster.lab

    def submit(*options: str) -> str:
        cluster.patient(cluster.port.heartbeat)
        script = "#!/bin/bash\nsleep 600\n"
        return h.cluster.submit(script, f"--partition={h.partition}", "--gres=gpu:v100:2", "-N2", *options)

    def shown(job: str) -> dict[str, str]:
        words = h.cluster.run("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def is_back(job: str, hour: float) -> None:
        text = shown(job)
        asked = {"JobState": "PENDING", "NumNodes": "2-2", "NumTasks": "4", "TresPerNode": "gres:gpu:v100:2"}
        assert {name: text[name] for name in asked} == asked
        assert text["Priority"] != "0"
        if hour:
            begins = float(epoch(job))
            assert abs(begins - hour) < 5

    def epoch(job: str) -> str:
        return lab.run(["env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-j", job, "-O", "StartTime"]).stdout.strip()

    first = submit()
    hour = time.time() + 3600
    begins = [submit("--ntasks=4", "--begin=now+3600"), submit("--ntasks=4", "--begin=now+3600")]
    depends = [submit("--ntasks=4", f"--dependency=afterany:{first}") for _ in range(2)]
    seen = cluster.observe()
    assert [job.id.partition(".")[0] for job in seen.jobs] == [first]
    assert isinstance(cluster.port, Leaving)
    cluster.port.release_rest()
    is_back(begins[0], hour)
    is_back(depends[0], 0)
    begins.append(submit("--ntasks=4", "--begin=now+3600"))
    elastic = submit("--ntasks=2", "--begin=now+3600", "--comment=horae:min=1")
    array = submit("--ntasks=4", "--array=1-9%3")
    script = Path(__file__).parents[2] / "slurm_plugin/site/release-all.sh"
    lab.run(["sh", str(script), str(lab.spool)])
    is_back(begins[2], hour)
    assert abs(float(epoch(elastic)) - hour) < 30, "not before its time"
    wait_for("the first runs", lambda: shown(first)["JobState"] == "RUNNING")
    assert shown(first)["NumNodes"] == "2"
    wait_for("a task of the array runs", lambda: h.cluster.run("squeue", "-h", "-j", array, "-t", "R"))
    waiting = h.cluster.run("squeue", "-h", "-j", array, "-t", "PD", "-o", "%K")
    assert re.fullmatch(r"[2-9]-9(%3)?", waiting), "one record"
    for job in depends:
        assert "afterany" in h.cluster.run("squeue", "-h", "-j", job, "-o", "%E")
    h.cluster.run("scancel", first)
    wait_for("dependents start", lambda: {shown(job)["JobState"] for job in depends} & {"RUNNING"})


# --- elastic jobs: what goes with the GPUs ----------------------------------------------------------------


def test_cpus_follow_the_gpus_by_the_partitions_default(private_slurm: Private, tmp_path: Path) -> None:  # noqa: F811
    partition = fresh_partition(private_slurm)
    private_slurm.run("scontrol", "update", f"PartitionName={partition}", "JobDefaults=DefCpuPerGPU=3")
    made = SlurmHarness(private_slurm, tmp_path / "memory", partition)
    driver = Driver(made)
    try:
        job = made.submit_script("#!/bin/bash\nsleep 600\n", "--gres=gpu:1", "--comment=horae:min=1,max=4")
        spec = driver.job(job).spec
        assert spec is not None
        assert spec.cpus_per_gpu == 3
        driver.start(job, driver.one(4))
        driver.wait(job, JobState.RUNNING)
        assert "NumCPUs=12 " in private_slurm.run("scontrol", "show", "job", job.partition(".")[0])
    finally:
        made.end()


@pytest.mark.parametrize("cluster", ["private_slurm", "slurm_2411"], indirect=True)
def test_the_guides_plain_script_runs_on_several_gpus_a_node(cluster: Driver) -> None:
    guide = (Path(__file__).parents[2] / "docs/howto/slurm-jobs.md").read_text()
    section = guide.split("## A plain script that checkpoints by itself")[1]
    script = section.split("```bash\n")[1].split("```")[0]
    here, there = harness(cluster).cluster.shared()
    trainer = here / "trainer"
    trainer.write_text(
        "#!/bin/sh\necho rank $SLURM_PROCID of $SLURM_NTASKS\nuntil [ -e stop-now ]; do sleep 0.1; done\n"
    )
    trainer.chmod(0o755)
    script = "\n".join(line for line in script.splitlines() if "--partition" not in line) + "\n"
    job = harness(cluster).submit_script(script.replace("./trainer", f"{there}/trainer"), "--gres=gpu:1", "--requeue",
                                         "--comment=horae:min=1,max=4")  # fmt: skip
    for epoch, gpus in enumerate((4, 2), start=1):
        cluster.start(job, cluster.one(gpus), epoch)
        cluster.wait(job, JobState.RUNNING)
        ranks = [f"rank {rank} of {gpus}".encode() for rank in range(gpus)]
        cluster.until(f"{gpus} ranks run", lambda ranks=ranks: all(rank in cluster.log(job) for rank in ranks))  # type: ignore[misc]
        cluster.stop(job, 60.0)
        assert cluster.wait(job, JobState.STOPPED).exit_code == 86


@pytest.mark.parametrize("comment", ["", "horae:min=1,max=2"])
def test_a_job_that_an_administrator_moves_runs_there(cluster: Driver, comment: str) -> None:
    job = harness(cluster).submit_script("#!/bin/bash\nsleep 600\n", "--gres=gpu:1", f"--comment={comment}")
    number = job.partition(".")[0]
    slurm = harness(cluster).cluster
    assert cluster.job(job).state is JobState.QUEUED
    slurm.run("scontrol", "update", f"jobid={number}", "Partition=raw")
    (due,) = cluster.port.observe().due
    assert (due.job, "is in partition raw" in due.what) == (job, True)
    cluster.observe()
    try:
        wait_for("Slurm starts it", lambda: "JobState=RUNNING" in slurm.run("scontrol", "show", "job", number))
        assert job not in [seen.id for seen in cluster.observe().jobs]
    finally:
        slurm.run("scancel", number)


@pytest.mark.parametrize("asked", ["--gres=gpu:1 -N1", "--gpus=1"])
def test_a_job_that_an_administrator_reshapes_is_planned_as_it_stands(cluster: Driver, asked: str) -> None:
    job = harness(cluster).submit_script("#!/bin/bash\nsleep 600\n", *asked.split())
    number = job.partition(".")[0]
    slurm = harness(cluster).cluster

    def gpus() -> int:
        spec = cluster.job(job).spec
        assert spec is not None
        return spec.gpus.requested

    assert gpus() == 1
    changed = ["NumNodes=2-2", "NumTasks=2", "TresPerNode=gres:gpu:2"] if "gres" in asked else ["TresPerJob=gres:gpu:4"]
    slurm.run("scontrol", "update", f"jobid={number}", *changed)
    assert gpus() == 4
    try:
        cluster.start(job, cluster.spread(2) if "gres" in asked else cluster.one(4))
        held = cluster.wait(job, JobState.RUNNING).allocation
        assert sum(held.values()) == 4, held
    finally:
        slurm.run("scancel", number)


# --- accounting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["slurm_2411"], indirect=True)
def test_accounting_has_every_start_of_every_job(cluster: Driver) -> None:
    """`sacct -S` leaves out what was never eligible, and so does sreport: a rigid job, and an elastic one that was
    stopped, requeued by an administrator and started again."""
    h = harness(cluster)
    wait_for("slurmdbd knows the cluster", lambda: "6817" in h.cluster.run("sacctmgr", "-n", "show", "cluster"))
    rigid = h.submit_script("#!/bin/bash\nsleep 2\n", "--gres=gpu:1")
    elastic = h.submit_script("#!/bin/bash\ntrap 'exit 86' USR1\nfor i in $(seq 600); do sleep 0.2; done\n",
                              "--gres=gpu:1", "--comment=horae:min=1,max=2")  # fmt: skip
    cluster.start(rigid, cluster.one())
    cluster.wait(rigid, JobState.COMPLETED)
    number = elastic.partition(".")[0]
    for epoch in (1, 2, 3):
        cluster.start(elastic, cluster.other(), epoch)
        cluster.wait(elastic, JobState.RUNNING)
        time.sleep(2.5)
        if epoch == 1:
            cluster.stop(elastic, 60.0)
            cluster.wait(elastic, JobState.STOPPED)
        elif epoch == 2:
            h.cluster.run("scontrol", "requeue", number)
            cluster.wait(elastic, JobState.LOST)
    cluster.cancel(elastic)
    cluster.wait(elastic, JobState.CANCELLED)

    def rows() -> list[list[str]]:
        columns = "-o", "jobid,state,eligible,start"
        text = h.cluster.run("sacct", "-a", "-D", "-X", "-n", "-P", "-S", "now-30minutes", "-p", *columns)
        found = [line.split("|") for line in text.splitlines()]
        return [
            row for row in found if row[0] in {number, rigid.partition(".")[0]} and row[3] not in {"None", "Unknown"}
        ]

    wait_for("all four starts are in the window", lambda: len(rows()) == 4)
    assert {row[2] for row in rows()} & {"Unknown", "None", ""} == set()
    assert sorted(row[1].split()[0] for row in rows()) == ["CANCELLED", "COMPLETED", "REQUEUED", "REQUEUED"]
