"""The site-like lane (24.11): jobs confined by cgroups, a prolog before each start, limits, fair share, preemption."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.port import BlockKind, JobState
from slurm_plugin import connect
from slurm_plugin.site.doctor import checks
from tests.contract.driver import Driver
from tests.real.slurm import Containers, slurm_confined, wait_for  # noqa: F401 - a fixture
from tests.real.slurm_driving import containers, job_shown, submit
from tests.real.slurm_harness import SlurmHarness

pytestmark = [pytest.mark.real, pytest.mark.soak]

#: tells which of the node's four GPUs it can open: absent ones may be, forbidden ones may not
TRAINER = """import errno, os, sys, time
from horae import elastic
def can_open(number):
    try:
        os.close(os.open("/dev/nvidia%d" % number, os.O_RDONLY))
    except OSError as error:
        return error.errno != errno.EPERM
    return True
gpus = "".join(str(number) for number in range(4) if can_open(number))
print("epoch=%s node=%s gpus=%s" % (os.environ["HORAE_EPOCH"], os.uname().nodename, gpus), flush=True)
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
for step in elastic.Training(steps=100000, global_batch=64, save=save, load=load, log_every_s=0.0):
    time.sleep(0.05)
    done[0] += 1
    step.report(1.0)
"""


@pytest.fixture
def site(slurm_confined: Containers, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(slurm_confined, tmp_path / "memory", partition="dl")
    yield Driver(made)
    made.end()


def trains(site: Driver, name: str) -> str:
    cluster = containers(site)
    here, there = cluster.shared()
    (here / "opens.py").write_text(TRAINER)
    script = f"#!/bin/bash\nexec {cluster.tool()} --checkpoint {there}/opens-{name} -- python3 {there}/opens.py\n"
    assert isinstance(site.harness, SlurmHarness)
    return site.harness.submit_script(script, "--gres=gpu:1", "--time=60", "--comment=horae:min=1,max=8")


def opened(site: Driver, job: str, epoch: int, workers: int) -> dict[str, str]:
    """node -> the GPUs that its workers could open at this start, once all have said so."""

    def said() -> list[tuple[str, str]]:
        return re.findall(rf"epoch={epoch} node=(\S+) gpus=(\d*)", site.log(job).decode())

    site.until("all workers have looked", lambda: len(said()) == workers)
    found = dict(said())
    assert len(set(said())) == len(found), "workers of one node were given different GPUs"
    return found


def test_only_what_was_granted_can_be_opened_in_every_shape(site: Driver) -> None:
    first, second = trains(site, "first"), trains(site, "second")
    site.start(first, {"n1": 2})
    site.start(second, {"n1": 1, "n2": 1})
    for job in (first, second):
        site.wait(job, JobState.RUNNING)
    one, two = opened(site, first, 1, 2), opened(site, second, 1, 2)
    assert (len(one["n1"]), len(two["n1"]), len(two["n2"])) == (2, 1, 1)
    assert not set(one["n1"]) & set(two["n1"]), "one of them was given twice"
    site.wait_progress(first)
    site.port.checkpoint_and_stop(first, 120.0)
    assert site.wait(first, JobState.STOPPED).exit_code == 86
    site.start(first, {"n3": 4, "n4": 4}, 2)
    site.wait(first, JobState.RUNNING)
    assert opened(site, first, 2, 8) == {"n3": "0123", "n4": "0123"}
    site.wait_progress(first)
    site.port.checkpoint_and_stop(first, 120.0)
    assert site.wait(first, JobState.STOPPED).exit_code == 86
    steps = site.steps(first)
    assert steps == list(range(1, len(steps) + 1))


def test_a_stop_during_the_prolog_waits_for_the_job(site: Driver) -> None:
    """A signal then is lost, or kills the job: it is asked once it is there."""
    waits = containers(site).shared()[0] / "prolog-waits"
    job = submit(site)
    waits.touch()
    try:
        site.start(job, {"n1": 1})
        site.until("its prolog runs", lambda: "Reason=Prolog" in job_shown(site, job))
        assert site.job(job).state is JobState.STARTING
        site.port.checkpoint_and_stop(job, 120.0)
        for _ in range(5):
            assert site.job(job).state in {JobState.STARTING, JobState.STOPPING}
    finally:
        waits.unlink()
    assert site.wait(job, JobState.STOPPED).exit_code == 86
    site.start(job, {"n2": 1}, 2)
    assert site.wait(job, JobState.RUNNING).epoch == 2


def test_memory_follows_the_gpus_and_a_shape_with_too_little_is_taken_back(site: Driver) -> None:
    job = submit(site, "--mem-per-gpu=5000")
    site.start(job, {"n1": 4})  # 20,000 MB of a node that has 16,000
    site.until("blocked", lambda: site.job(job).blocked is not None)
    blocked = site.job(job).blocked
    assert blocked is not None
    assert blocked.kind in {BlockKind.OTHER, BlockKind.FOREIGN, BlockKind.NODE}
    site.until("taken back", lambda: site.job(job).state is JobState.QUEUED)
    site.start(job, {"n1": 3}, 2)
    assert site.wait(job, JobState.RUNNING).allocation == {"n1": 3}
    assert "mem=15000M" in job_shown(site, job)


def test_a_job_that_takes_more_memory_than_it_has_fails_alone(site: Driver) -> None:
    assert isinstance(site.harness, SlurmHarness)
    beside = submit(site)
    greedy = site.harness.submit_script(
        "#!/bin/bash\nexec python3 -c 'import time; x = b\"x\" * (900 << 20); time.sleep(600)'\n",
        "--gres=gpu:1", "--mem=200", "--time=60", "--comment=horae:min=1,max=8",
    )  # fmt: skip
    for job in (beside, greedy):
        site.start(job, {"n1": 1})
        site.wait(job, JobState.RUNNING, JobState.FAILED)
    seen = site.wait(greedy, JobState.FAILED)
    assert "OUT_OF_MEMORY" in seen.native
    assert site.job(beside).state is JobState.RUNNING
    wait_for("its GPU is free", lambda: site.node("n1").foreign == 0)


def test_a_job_that_slurm_will_preempt_checkpoints_within_the_time_it_is_given(site: Driver) -> None:
    """GraceTime: Slurm sends nothing at its beginning, and throws the exit code away; we ask as soon as it shows."""
    cluster = containers(site)
    job = trains(site, "preempted")
    site.start(job, {"n1": 4})
    site.wait(job, JobState.RUNNING)
    site.wait_progress(job)
    cluster.run("scontrol", "update", "PartitionName=dl", "GraceTime=600")
    urgent = cluster.submit("#!/bin/bash\nexec sleep 300\n", "--partition=urgent", "--gres=gpu:2", "-wn1", "--time=9")
    try:
        seen = site.wait(job, JobState.STOPPED)  # long before its grace is over: nobody but us asked it
        assert seen.checkpoint is not None
        assert "Priority=0" in job_shown(site, job), "it would start again by itself in its old shape"
        at = max(site.steps(job))
        assert seen.checkpoint.step == at, "it did not checkpoint"
        wait_for("what preempts it starts", lambda: "JobState=RUNNING" in job_shown(site, urgent), 90)
        site.start(job, {"n2": 1}, 2)
        site.wait(job, JobState.RUNNING)
        site.wait_progress(job)
        steps = site.steps(job)
        assert steps == sorted(set(steps)), "a step was done twice"
    finally:
        cluster.run("scancel", urgent)
        cluster.run("scontrol", "update", "PartitionName=dl", "GraceTime=0")


def test_no_nonce_comes_twice_however_often_the_script_is_read(site: Driver) -> None:
    """Random numbers begin anew with each reading in 24.11; identity must not."""
    jobs = []
    for _ in range(3):
        jobs.append(submit(site))
        containers(site).run("scontrol", "reconfigure")
    assert len({job.partition(".")[2] for job in jobs}) == 3
    site.until("nodes are back", lambda: all(node.health.value == "up" for node in site.observe().nodes))


def test_the_doctor_names_what_fair_share_and_limits_count_wrongly(site: Driver) -> None:
    found = {check.name: check for check in checks({**containers(site).options("dl")})}
    assert [check for check in found.values() if check.verdict.value == "fail"] == []
    assert "first allocation" in found["billing"].text


def test_a_job_over_its_limit_is_tried_with_less_until_it_runs(site: Driver, tmp_path: Path) -> None:
    """The whole arbiter: the limit's number is nowhere told, and others get what the limited job may not have."""
    cluster = containers(site)
    options = {**cluster.options("dl"), "state": str(tmp_path / "whole"), "tenants": "qos"}
    config = Config.model_validate({
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "slurm", "options": options},
        "pools": [{"name": "all", "policy": "max-min", "mode": "enforce", "nodes": "n[1-2]"}],
        "guards": {"min_run_s": 1.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "rounds": {"decide_s": 120.0},
    })  # fmt: skip
    limited = submit(site, "--qos=two")
    arbiter = Arbiter(config, connect(options))
    arbiter.start()
    try:

        def gpus(job: str) -> int:
            shown = job_shown(site, job)
            if "JobState=RUNNING" not in shown:
                return 0
            return int(re.search(r"gres/gpu=(\d+)", shown.partition("AllocTRES=")[2])[1])  # type: ignore[index]

        wait_for("it runs within its limit", lambda: gpus(limited) in {1, 2}, 240)
        other = submit(site)
        wait_for("the other gets the rest", lambda: gpus(other) >= 4, 240)
        assert gpus(limited) in {1, 2}
    finally:
        arbiter.stop()
