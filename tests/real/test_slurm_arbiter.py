"""The whole: `horae serve` on a real Slurm, jobs by sbatch, resizes by a policy, and a kill -9 in the middle of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.contract.harness import starts_in, steps_in
from tests.real.serving import HORAE, arbiter, trainer
from tests.real.slurm import Private, clear_partition, fresh_partition, private_slurm, wait_for  # noqa: F401

pytestmark = pytest.mark.real

STEPS = 250


def configured(slurm: Private, folder: Path, partition: str, policy: str) -> None:
    """An arbiter in charge of the whole partition."""
    options = {**slurm.options(partition), "state": str(folder / "memory")}
    options["env"] = dict(options["env"])
    config = {
        "state_dir": str(folder / "state"),
        "cluster": {"adapter": "slurm", "options": options},
        "pools": [{"name": "main", "policy": policy, "mode": "enforce"}],
        "api": {"socket": str(folder / "api.sock")},
    }
    (folder / "config.yaml").write_text(json.dumps(config))


def heart_beats(slurm: Private, partition: str) -> bool:
    beat = slurm.lab.spool / "heartbeat"
    return beat.exists() and partition in beat.read_text()


def test_jobs_by_sbatch_are_granted_resized_and_finished_across_a_kill(
    private_slurm: Private,  # noqa: F811
    tmp_path: Path,
) -> None:
    partition = fresh_partition(private_slurm)
    options = {**private_slurm.options(partition), "state": str(tmp_path / "memory")}
    options["env"] = dict(options["env"])
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "slurm", "options": options},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n[1-2]"}],
        "guards": {"min_run_s": 1.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "api": {"socket": str(tmp_path / "api.sock")},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    here, there = private_slurm.shared()
    (here / f"{partition}.py").write_text(trainer(STEPS))

    def submit(name: str) -> str:
        script = (
            f"#!/bin/bash\nexec {private_slurm.tool()} --checkpoint {there}/{partition}-{name} -- "
            f"python3 {there}/{partition}.py\n"
        )
        word = f"--comment=horae:min=1,max=8,app={name},iters={STEPS}"
        return private_slurm.submit(
            script, f"--partition={partition}", "--gres=gpu:1", word, f"--output={there}/{partition}-{name}.out",
            "--open-mode=append",
        )  # fmt: skip

    def state(job: str) -> str:
        found = re.search(r"JobState=(\w+)", private_slurm.run("scontrol", "show", "job", job))
        return found.group(1) if found else ""

    def log(name: str) -> bytes:
        path = here / f"{partition}-{name}.out"
        return path.read_bytes() if path.exists() else b""

    try:
        with arbiter(tmp_path) as first:
            wait_for("the first heartbeat", lambda: heart_beats(private_slurm, partition))
            jobs = {"a": submit("a")}
            wait_for("a trains", lambda: len(steps_in(log("a"))) > 5)
            jobs["b"] = submit("b")
            wait_for("b trains beside it", lambda: len(steps_in(log("b"))) > 5)
            first.send_signal(signal.SIGKILL)
            first.wait()
        jobs["c"] = submit("c")  # while nobody watches: still held, the heartbeat is fresh
        assert "horae=" in private_slurm.run("scontrol", "show", "job", jobs["c"])
        with arbiter(tmp_path):
            wait_for("all are done", lambda: all(state(job) == "COMPLETED" for job in jobs.values()), 200)
        for name in jobs:
            starts, steps = starts_in(log(name)), steps_in(log(name))
            assert steps[-1] == STEPS
            assert steps == sorted(set(steps)), f"{name} did a step twice, though every stop was clean"
            assert [start.epoch for start in starts] == sorted({start.epoch for start in starts})
        assert any(len(starts_in(log(name))) > 1 for name in jobs), "nothing was ever resized"
    finally:
        clear_partition(private_slurm, partition)
        tail = (tmp_path / "serve.log").read_text()[-3000:]
        print(tail, os.linesep, time.time())


def test_rigid_jobs_are_started_in_the_shape_that_they_asked_for(private_slurm: Private, tmp_path: Path) -> None:  # noqa: F811
    """By the whole arbiter, under a policy that hands out GPUs by the count."""
    partition = fresh_partition(private_slurm)
    configured(private_slurm, tmp_path, partition, "themis")
    here, there = private_slurm.shared()
    asked = {
        "-N2 --gres=gpu:4 --ntasks-per-node=4 -c2": (2, 8),
        "-n4 --gpus-per-task=1": (1, 4),
        "-N3 --gres=gpu:v100:1": (3, 3),
        "-N2 --gpus-per-node=2 --exclusive": (2, 2),
        "--gpus=5 -N2 -n2": (2, 2),
        "--gres=gpu:1 -n33": (3, 33),
    }

    def state(job: str) -> str:
        found = re.search(r"JobState=(\w+)", private_slurm.run("scontrol", "show", "job", job))
        return found.group(1) if found else ""

    try:
        with arbiter(tmp_path):
            wait_for("the first heartbeat", lambda: heart_beats(private_slurm, partition))
            jobs = {}
            common = [f"--partition={partition}", "--output=/dev/null"]
            script = "#!/bin/bash\nsleep 600\n"
            held = [private_slurm.submit(script, *common, "--hold", "--gres=gpu:4") for _ in range(8)]
            for number, words in enumerate(asked):
                out = f"{there}/{partition}-rigid-{number}.out"
                script = "#!/bin/bash\necho nodes $SLURM_JOB_NUM_NODES\nsrun sh -c 'echo task $SLURM_PROCID'\n"
                job = private_slurm.submit(script, f"--partition={partition}", f"--output={out}", *words.split())
                jobs[words] = (job, here / Path(out).name)
            wait_for("all are done", lambda: {state(job) for job, _ in jobs.values()} == {"COMPLETED"}, 200)
            assert {state(job) for job in held} == {"PENDING"}, "and took no GPUs from the others meanwhile"
        for words, (nodes, tasks) in asked.items():
            text = jobs[words][1].read_text()
            assert f"nodes {nodes}\n" in text, words
            assert sorted(re.findall(r"task (\d+)", text)) == sorted(map(str, range(tasks))), words
    finally:
        clear_partition(private_slurm, partition)


def test_what_jobs_wait_for_beside_gpus_costs_others_none(private_slurm: Private, tmp_path: Path) -> None:  # noqa: F811
    """Arrays of which one task runs at a time, jobs for one named node, alternatives of features that are taken: nodes
    stood idle for each of them."""
    partition = fresh_partition(private_slurm)
    configured(private_slurm, tmp_path, partition, "max-min")

    def submit(*words: str) -> str:
        common = (f"--partition={partition}", "--output=/dev/null", "--gres=gpu:4")
        return private_slurm.submit("#!/bin/bash\nsleep 900\n", *common, *words)

    def running() -> set[str]:
        return set(private_slurm.run("squeue", "-h", "-p", partition, "-t", "R", "-o", "%N").split())

    try:
        with arbiter(tmp_path):
            wait_for("the first heartbeat", lambda: heart_beats(private_slurm, partition))
            array = submit("--array=1-20%1", "--exclude=n3")
            for _ in range(9):
                submit("--nodelist=n3")
            wait_for("one of each runs", lambda: len(running()) == 2)
            private_slurm.run("scontrol", "update", f"jobid={array}", "ArrayTaskThrottle=2")
            wait_for("two tasks run, as its owner has it now", lambda: len(running()) == 3)
            for _ in range(5):
                submit()
            wait_for("and the rest of the nodes are others'", lambda: len(running()) == 8)
    finally:
        clear_partition(private_slurm, partition)


def test_people_name_jobs_by_slurms_own_number(private_slurm: Private, tmp_path: Path) -> None:  # noqa: F811
    """In explain, history, status and cancel, tasks of arrays too."""
    partition = fresh_partition(private_slurm)
    options = {**private_slurm.options(partition), "state": str(tmp_path / "memory")}
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "slurm", "options": {**options, "env": dict(options["env"])}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n1"}],
        "api": {"socket": str(tmp_path / "api.sock")},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))

    def horae(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [*HORAE, words[0], *words[1:], "--socket", str(tmp_path / "api.sock")]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)

    def shown(job: str) -> str:
        return private_slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")

    try:
        with arbiter(tmp_path):
            beat = private_slurm.lab.spool / "heartbeat"
            wait_for("the first heartbeat", lambda: beat.exists() and partition in beat.read_text())
            common = ["#!/bin/bash\nsleep 600\n", f"--partition={partition}", "--gres=gpu:4"]
            single = private_slurm.submit(*common)
            wait_for("it runs", lambda: shown(single) == "RUNNING")
            task = private_slurm.submit(*common, "--array=3") + "_3"
            wait_for("its wait is explained", lambda: horae("explain", task).returncode == 0)
            for job in (single, task):
                assert job in horae("explain", job).stdout.split("\n")[0]
                assert horae("history", job).returncode == 0
            rows = horae("status").stdout
            assert {single, task} <= set(rows.split()), rows
            assert horae("cancel", single).returncode == 0
            wait_for("it is cancelled", lambda: shown(single) == "CANCELLED")
            wait_for("the other one runs", lambda: shown(task) == "RUNNING")
    finally:
        clear_partition(private_slurm, partition)
        print((tmp_path / "serve.log").read_text()[-2000:])


@pytest.mark.soak  # Slurm's shortest limit is a minute
def test_limits_end_as_timeouts_and_an_administrators_longer_one_counts(
    private_slurm: Private,  # noqa: F811
    tmp_path: Path,
) -> None:
    partition = fresh_partition(private_slurm)
    options = {**private_slurm.options(partition), "state": str(tmp_path / "memory")}
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "slurm", "options": {**options, "env": dict(options["env"])}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce"}],
        "api": {"socket": str(tmp_path / "api.sock")},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))

    def shown(job: str) -> tuple[str, str]:
        text = private_slurm.run("scontrol", "show", "job", job)
        found = re.search(r"JobState=(\w+).*TimeLimit=(\S+)", text, re.DOTALL)
        return (found[1], found[2]) if found else ("", "")

    try:
        with arbiter(tmp_path):
            beat = private_slurm.lab.spool / "heartbeat"
            wait_for("the first heartbeat", lambda: beat.exists() and partition in beat.read_text())
            common = ["#!/bin/bash\nsleep 600\n", f"--partition={partition}", "--gres=gpu:1", "--time=1"]
            elastic = "--comment=horae:min=1,max=1"
            short, longer = (
                [private_slurm.submit(*common, *words) for words in ([], [elastic])] for _ in ("short", "longer")
            )
            wait_for("all run", lambda: {shown(job)[0] for job in short + longer} == {"RUNNING"})
            for job in longer:
                private_slurm.run("scontrol", "update", f"jobid={job}", "TimeLimit=10")
            wait_for("the others reach theirs", lambda: {shown(job)[0] for job in short} == {"TIMEOUT"}, 300)
            assert {shown(job) for job in longer} == {("RUNNING", "00:10:00")}
    finally:
        clear_partition(private_slurm, partition)
        print((tmp_path / "serve.log").read_text()[-2000:])
