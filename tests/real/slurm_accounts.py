"""A managed partition and a plain one of the same Slurm, with an account and a QOS each, and what slurmdbd has of their
jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from horae.arbiter.service import Arbiter
from horae.config import Config
from slurm_plugin import connect
from tests.contract.waiting import wait_for
from tests.real.slurm import Containers, clear_partition, fresh_partition

SIDES = {"managed": "n[1-2]", "plain": "n[3-4]"}
#: Of a job without a time limit backfill makes one of a year, and the main scheduler none.
KIND = ("PriorityTier=10", "PreemptMode=REQUEUE", "DefaultTime=60")
LIMIT = "GrpTRES=gres/gpu=6"  #: of each side's QOS
FIELDS = "jobid jobidraw state exitcode derivedexitcode alloctres reqtres timelimit nnodes restarts qos account"
TIMES = "submit eligible start end"
STEP = "srun --overcommit sleep 0.2\n"


@dataclass(frozen=True)
class Deed:
    """A job, and what is done about it: (what squeue shows of it, the command that follows), one after the other.
    A command that begins with `plain` is for that side alone."""

    options: str
    script: str
    then: tuple[tuple[str, str], ...] = ()


UPDATE = "scontrol update"
#: Slurm starts what was requeued two minutes later; an arbiter when it has its turn
AT_ONCE = ("PENDING", f"plain {UPDATE} jobid=JOB StartTime=now")
#: A script says that it is there before anything is done about it: Slurm shows a job as running before its script
#: listens, and kills what does not listen by another signal.
LONG = "echo here\nexec sleep 600\n"
AGAIN = f'[ "${{SLURM_RESTART_COUNT:-0}}" != 0 ] && exit 3\n{LONG}'
#: until all is done about it
MEANWHILE = "until [ -e /shared/$SLURM_JOB_PARTITION-$SLURM_JOB_ID.done ]; do sleep 0.1; done\n"
ALONE = "-N1 --gres=gpu:4 --exclusive"
DEEDS = {
    "done": Deed("--gres=gpu:1", STEP),
    "failed": Deed("--gres=gpu:2 -c2", f"{STEP}exit 3\n"),
    "typo": Deed("--gpus=1", "exit 1\n"),
    "killed": Deed("--gres=gpu:1", "kill -9 $$\n"),
    "tasks": Deed("-N2 --ntasks-per-node=2 --gpus-per-task=1", STEP),
    "array": Deed("--array=1-4%2 --gres=gpu:1", "exit $((SLURM_ARRAY_TASK_ID % 2))\n"),
    "cancelled": Deed("--gres=gpu:2", LONG, (("RUNNING", "scancel JOB"),)),
    "cancelled waiting": Deed("--gres=gpu:1 --hold", LONG, (("PENDING", "scancel JOB"),)),
    "held": Deed("--gres=gpu:1 --hold", STEP, (("PENDING", "scontrol release JOB"),)),
    "suspended": Deed(
        "--gres=gpu:1",
        MEANWHILE,
        (("RUNNING", "scontrol suspend JOB"), ("SUSPENDED", "sleep 1"), ("SUSPENDED", "scontrol resume JOB")),
    ),
    "requeued": Deed("--gres=gpu:1 --requeue", AGAIN, (("RUNNING", "scontrol requeue JOB"), AT_ONCE)),
    "requeued held": Deed(
        "--gres=gpu:1 --requeue",
        AGAIN,
        (("RUNNING", "scontrol requeuehold JOB"), ("PENDING", "scontrol release JOB"), AT_ONCE),
    ),
    "longer": Deed("--gres=gpu:1 --time=1", MEANWHILE, (("RUNNING", f"{UPDATE} jobid=JOB TimeLimit=7"),)),
    "after": Deed("--gres=gpu:1 --dependency=afterany:LAST", STEP),
    "never": Deed("--gres=gpu:1 --dependency=afterok:LAST --kill-on-invalid-dep=yes", STEP),
    "later": Deed("--gres=gpu:1 --begin=now+3", STEP),
    "licensed": Deed("--gres=gpu:1 --licenses=matlab", STEP),
}
#: these take minutes, or what runs on a node
RARE = {
    "timeout": Deed("--gres=gpu:1 --time=1", LONG),
    "node lost": Deed(
        f"{ALONE} --requeue",
        AGAIN,
        (
            ("RUNNING", f"{UPDATE} nodename=NODE state=down reason=test"),
            ("PENDING", f"{UPDATE} nodename=NODE state=resume"),
            AT_ONCE,
        ),
    ),
    "ended by its node": Deed(
        f"{ALONE} --no-requeue",
        AGAIN,
        (
            ("RUNNING", f"{UPDATE} nodename=NODE state=down reason=test"),
            ("NODE_FAIL", f"{UPDATE} nodename=NODE state=resume"),
        ),
    ),
    "preempted": Deed(
        f"{ALONE} --requeue",
        AGAIN,
        (
            (
                "RUNNING",
                "sbatch --partition=urgent --nodelist=NODE --gres=gpu:4 --time=5 --output=/dev/null --wrap=sleep",
            ),
            AT_ONCE,
        ),
    ),
}


@dataclass
class Job:
    deed: Deed
    side: str
    number: str
    steps: list[tuple[str, str]] = field(init=False)
    node: str = ""

    def __post_init__(self) -> None:
        self.steps = list(self.deed.then)


class Day:
    def __init__(self, cluster: Containers, folder: Path) -> None:
        self.cluster, self.began = cluster, int(time.time())
        self.mark = str(self.began)
        self.partitions = {"managed": fresh_partition(cluster), "plain": f"p{self.mark}"}
        cluster.run(
            "scontrol",
            "create",
            f"PartitionName={self.partitions['plain']}",
            "MaxTime=INFINITE",
            "State=UP",
            f"Nodes={SIDES['plain']}",
            *KIND,
        )
        cluster.run(
            "scontrol", "update", f"PartitionName={self.partitions['managed']}", f"Nodes={SIDES['managed']}", *KIND
        )
        for side in SIDES:
            name = self.name(side)
            for words in (
                f"add account {name}",
                f"add qos {name} {LIMIT}",
                f"add user alice account={name} qos=normal,{name}",
            ):
                cluster.run("sacctmgr", "-i", *words.split())
        options = {**cluster.options(self.partitions["managed"]), "state": str(folder / "memory")}
        config = Config.model_validate(
            {
                "state_dir": str(folder / "arbiter"),
                "cluster": {"adapter": "slurm", "options": options},
                "pools": [{"name": "all", "policy": "max-min", "mode": "enforce", "nodes": SIDES["managed"]}],
                "guards": {"min_run_s": 1.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
                "rounds": {"tick_s": 0.5, "busy_s": 0.3, "debounce_s": 0.05},
            }
        )
        self.arbiter = Arbiter(config, connect(config.cluster.options))
        self.arbiter.start()
        beat = cluster.shared()[0] / "horae/spool/heartbeat"
        wait_for("jobs are held", lambda: beat.exists() and self.partitions["managed"] in beat.read_text())
        wait_for(
            "slurmctld knows the accounts",
            lambda: all(
                self.name(side) in cluster.run("scontrol", "show", "assoc_mgr", "users=alice", "flags=assoc")
                for side in SIDES
            ),
        )

    def name(self, side: str) -> str:
        """Of a side's account and QOS."""
        return f"{side}{self.mark}"

    def submit(self, side: str, options: str, script: str) -> str:
        words = [f"--partition={self.partitions[side]}", f"--account={self.name(side)}", f"--qos={self.name(side)}"]
        out = f"--output=/shared/{self.partitions[side]}-%A.out"
        return self.cluster.submit(f"#!/bin/bash\n{script}", *words, out, *options.split())

    def pairs(self, deeds: Sequence[Deed]) -> list[tuple[Job, Job]]:
        """Each on both sides, and what is done about them, until all have ended."""
        pairs: list[tuple[Job, Job]] = []
        for deed in deeds:
            last = [job.number for job in pairs[-1]] if pairs else ["1", "1"]
            made = [
                Job(deed, side, self.submit(side, deed.options.replace("LAST", before), deed.script))
                for side, before in zip(SIDES, last, strict=True)
            ]
            pairs.append((made[0], made[1]))
        self.go_through([job for pair in pairs for job in pair])
        return pairs

    def go_through(self, open_jobs: Sequence[Job]) -> None:
        """What is done about them, until all have ended."""
        wait_for("all have ended", lambda: not self.go_on(open_jobs), 600)
        left_out = [
            (job.deed.options, job.steps) for job in open_jobs if any("plain" not in each for _, each in job.steps)
        ]
        assert not left_out

    def go_on(self, jobs: Sequence[Job]) -> bool:
        """The next step of each for which it is time. Whether any has not ended."""
        shown = self.cluster.run("squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%N|%P").splitlines()
        rows = [line.split("|") for line in shown]
        for job in jobs:
            for number, state, node, _ in rows:
                if number == job.number and job.steps and job.steps[0][0] == state and self._listens(job, state):
                    job.node = node or job.node
                    self._do(job, job.steps.pop(0)[1])
                    if not job.steps:
                        self._file(job, "done").touch()
                    break
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        return any(state not in over for _, state, _, part in rows if part in self.partitions.values())

    def _listens(self, job: Job, state: str) -> bool:
        """Whether its script is there, of one that says so."""
        out = self._file(job, "out")
        return state != "RUNNING" or LONG not in job.deed.script or (out.exists() and "here" in out.read_text())

    def _file(self, job: Job, kind: str) -> Path:
        return self.cluster.shared()[0] / f"{self.partitions[job.side]}-{job.number}.{kind}"

    def _do(self, job: Job, command: str) -> None:
        words = command.replace("JOB", job.number).replace("NODE", job.node).split()
        if words[0] == "plain":
            if job.side != "plain":
                return
            words = words[1:]
        if words[0] == "sbatch":
            words = [*words[:-1], "--wrap=sleep 2"]
        self.cluster.run(*words)

    def rows(self, side: str) -> list[dict[str, str]]:
        """By slurmdbd, of jobs and their steps, each start by itself."""
        fields, since = f"{FIELDS} {TIMES}".split(), time.strftime("%FT%T", time.gmtime(self.began))
        query = [
            "env",
            "TZ=UTC",
            "SLURM_TIME_FORMAT=%s",
            "sacct",
            "-a",
            "-D",
            "-P",
            "-n",
            "--noconvert",
            "-E",
            "now",
            f"--starttime={since}",
            f"--accounts={self.name(side)}",
            f"--format={','.join(fields)}",
        ]
        return [dict(zip(fields, line.split("|"), strict=True)) for line in self.cluster.run(*query).splitlines()]

    def booked(self, side: str) -> list[dict[str, str]]:
        """The same once slurmdbd has heard of all ends."""
        wait_for(
            "slurmdbd has heard of all",
            lambda: not any(row["state"] in {"RUNNING", "PENDING", "SUSPENDED"} for row in self.rows(side)),
        )
        return self.rows(side)

    def hours(self) -> tuple[str, str]:
        """The whole hours of this day: what is not over yet, too."""
        first, last = self.began // 3600 * 3600, (int(time.time()) // 3600 + 1) * 3600
        return time.strftime("%FT%T", time.gmtime(first)), time.strftime("%FT%T", time.gmtime(last))

    def reported(self, side: str) -> int:
        """GPU-seconds of the side's account."""
        begin, end = self.hours()
        self.cluster.run("env", "TZ=UTC", "sacctmgr", "-i", "rollup", begin, end)
        text = self.cluster.run(
            "env",
            "TZ=UTC",
            "sreport",
            "-nP",
            "-t",
            "Seconds",
            "-T",
            "gres/gpu",
            "cluster",
            "AccountUtilizationByUser",
            f"accounts={self.name(side)}",
            f"start={begin}",
            f"end={end}",
            "format=login,used",
        )
        return int(dict(line.split("|") for line in text.splitlines())["alice"])

    def charged(self) -> dict[str, float | None]:
        """GPU-seconds by job in the arbiter's journal; None: it has not seen its end."""
        jobs = self.arbiter.view(lambda core: list(core.ledger.jobs.values()))
        return {job.id.partition(".")[0]: None if job.ended is None else sum(job.attained.values()) for job in jobs}

    def used(self, whose: str, of: str) -> float:
        """What slurmctld has counted, billing times seconds: for fair share, and against limits."""
        text = self.cluster.run("scontrol", "show", "assoc_mgr", whose, f"flags={of}")
        found = re.findall(r"UsageRaw\S*=([\d.]+)", text)
        assert found, text
        return max(map(float, found))

    def end(self) -> None:
        self.arbiter.stop()
        for partition in self.partitions.values():
            clear_partition(self.cluster, partition)


def told(rows: Sequence[Mapping[str, str]], job: Job) -> list[str]:
    """Of each start of this job, its tasks and its steps, what is to be the same."""
    found = []
    for row in rows:
        array, _, step = re.fullmatch(r"(\d+)((?:_\[?[\d,%-]+\]?)?)(.*)", row["jobid"]).groups()  # type: ignore[union-attr]
        if array == job.number:
            same = [row[name] for name in FIELDS.split()[2:]]
            found.append(f"{row['jobid'].removeprefix(job.number)}{step} {' '.join(same)}")
    of_a_type = re.compile(r"gres/gpu:\w+=\d+,")  # which nodes Slurm takes is another thing
    return sorted(of_a_type.sub("", text.replace(job.side, "SIDE")) for text in found)


def gpus(row: Mapping[str, str]) -> int:
    return amount("gres/gpu", row)


def held_s(row: Mapping[str, str]) -> int:
    """Slurm's usage counts what a suspended job holds, too; the row's Elapsed does not."""
    return int(row["end"]) - int(row["start"])


def amount(name: str, row: Mapping[str, str]) -> int:
    found = re.search(rf"(?:^|,){name}=(\d+)", row["alloctres"])
    return int(found[1]) if found else 0


def jobs_of(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [row for row in rows if "." not in row["jobid"]]


def check_report(day: Day, *sides: str) -> None:
    """slurmdbd's usage: the rows' sum. It sums each hour up itself too as that ends: who asks in the midst of that is
    told less."""
    for side in sides:
        rows = started(day.booked(side))
        assert all(0 < int(row["submit"]) <= int(row["eligible"]) <= int(row["start"]) for row in rows)
        spent = sum(gpus(row) * held_s(row) for row in rows)
        assert spent > 0, side
        told: set[int] = set()

        def whole(side: str = side, spent: int = spent, told: set[int] = told) -> bool:
            told.add(day.reported(side))
            return spent in told

        try:
            wait_for("it is reported", whole, 20.0)
        except AssertionError as error:
            raise AssertionError(f"{side}: {spent} GPU-seconds are booked, {told} reported") from error


def check_counted(day: Day) -> None:
    """slurmctld's own, of which it takes stock once a minute: it counts each start in seconds of its own."""
    for side in SIDES:
        rows = [(amount("billing", row), held_s(row)) for row in started(day.booked(side))]
        spent, close = sum(each * for_s for each, for_s in rows), 2 + sum(each for each, _ in rows)
        for whose, of in ((f"accounts={day.name(side)}", "assoc"), (f"qos={day.name(side)}", "qos")):
            near = partial(counted, day, whose, of, spent, close)
            wait_for(f"{of} of {side} has {spent}", near, 150)


def counted(day: Day, whose: str, of: str, spent: int, close: int) -> bool:
    return abs(day.used(whose, of) - spent) <= close


def started(rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [row for row in jobs_of(rows) if gpus(row)]


def check_pairs(day: Day, pairs: Sequence[tuple[Job, Job]], names: Sequence[str]) -> None:
    managed, plain = (day.booked(side) for side in SIDES)
    assert managed and plain
    for name, (ours, theirs) in zip(names, pairs, strict=True):
        left, right = told(managed, ours), told(plain, theirs)
        assert left == right, f"{name}: {ours.deed.options}: {left}, plain {right}"
