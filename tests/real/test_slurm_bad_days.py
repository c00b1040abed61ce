"""Bad days on a real 24.11 whose users, arbiter and nodes are different accounts and hosts: nothing lost, nothing
doubled, nothing believed that somebody else wrote, no job left held by nobody."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import FixConfiguration, JobState, PortError, attend
from slurm_plugin import connect
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.real.slurm import Containers, slurm_2411, wait_for  # noqa: F401 - fixtures
from tests.real.slurm_driving import PLAIN, containers, edited, harness, job_shown, number, waits_for_us
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

ELASTIC = "--comment=horae:min=1,max=4"


@pytest.fixture
def cluster(slurm_2411: Containers, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(slurm_2411, tmp_path / "memory")
    yield Driver(made)
    made.end()


def as_user(driver: Driver, user: str, *argv: str) -> tuple[int, str]:
    return containers(driver).lab.exec("ctl", argv, user=user)


def folder(driver: Driver, job: str) -> Path:
    """The job folder, seen from here."""
    return containers(driver).shared()[0] / "horae/spool/jobs" / job


def assert_finishes_another_cycle(driver: Driver, job: str, epoch: int) -> None:
    """The job, waiting now, can be started and stopped again and goes on where it was."""
    driver.start(job, driver.other(), epoch)
    driver.wait(job, JobState.RUNNING)
    driver.wait_progress(job)
    driver.stop(job, 60.0)
    assert driver.wait(job, JobState.STOPPED).exit_code == 86
    steps = driver.steps(job)
    assert steps == sorted(set(steps)), "a step was done twice although every stop was clean"


# --- daemons and nodes ------------------------------------------------------------------------------------


def test_without_slurmdbd_everything_goes_on(cluster: Driver) -> None:
    job = cluster.running("unaccounted")
    containers(cluster).lab.container("dbd").kill()
    try:
        cluster.stop(job, 60.0)
        cluster.wait(job, JobState.STOPPED)
        assert_finishes_another_cycle(cluster, job, 2)
    finally:
        containers(cluster).lab.container("dbd").start()
    wait_for(
        "slurmdbd answers again",
        lambda: containers(cluster).lab.exec("ctl", ["sacctmgr", "-n", "show", "cluster"])[0] == 0,
        120,
    )


@pytest.mark.soak  # what the old run's srun ends is in every run: test_slurm_split_brain
def test_a_node_that_comes_back_with_the_old_processes_writes_nothing(cluster: Driver) -> None:
    """Split brain: the node hangs, the job goes on elsewhere, the node wakes up with the old run still alive."""
    first, second = cluster.nodes()[0].name, cluster.nodes()[1].name
    job = cluster.running("twice", allocation={first: 1})
    cluster.wait_progress(job, steps=12)  # past its first checkpoint
    node = containers(cluster).lab.container(first)
    node.pause()
    try:
        containers(cluster).run("scontrol", "update", f"nodename={first}", "state=down", "reason=hangs")
        cluster.wait(job, JobState.LOST)
        cluster.start(job, {second: 1}, 2)
        cluster.wait(job, JobState.RUNNING)
        cluster.until("the second run trains", lambda: any(start.epoch == 2 for start in cluster.starts(job)))
        cluster.wait_progress(job)
    finally:
        node.unpause()
    # Refused when Slurm took it back by itself: what counts is that it is back.
    containers(cluster).lab.exec("ctl", ["scontrol", "update", f"nodename={first}", "state=resume"])
    cluster.wait_progress(job, steps=10)  # long enough for the old run to have checkpointed, were it let
    cluster.stop(job, 60.0)
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86
    log = cluster.log(job)
    begun = log.index(b"epoch=2")
    assert b"checkpoint=" in log[log.rindex(b"[horae] start", 0, begun) : log.index(b"\n", begun)]
    mark = cluster.job(job).checkpoint
    assert mark is not None
    assert mark.epoch == 2, "the newest checkpoint is the newest run's"
    finishes = cluster.job(job)
    assert finishes.epoch == 2
    wait_for("the node is back", lambda: cluster.node(first).health.value == "up")


def test_without_munge_the_arbiter_says_so_and_recovers(cluster: Driver) -> None:
    job = cluster.running("unsigned")
    lab = containers(cluster).lab
    kill = "pid=$(cat /run/munge/munged.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done"
    lab.must("ctl", ["sh", "-c", kill])
    try:
        with pytest.raises(PortError) as raised:
            attend(cluster.port)
        assert re.search("munge|authentication|credential|contact", str(raised.value), re.IGNORECASE)
    finally:
        lab.must("ctl", ["runuser", "-u", "munge", "--", "munged", "--force"])
        wait_for("Slurm answers", lambda: lab.exec("ctl", ["squeue"])[0] == 0)
    cluster.wait(job, JobState.RUNNING)
    cluster.stop(job, 60.0)
    cluster.wait(job, JobState.STOPPED)
    assert_finishes_another_cycle(cluster, job, 2)


# --- administrators ---------------------------------------------------------------------------------------


@pytest.fixture
def lasting(slurm_2411: Containers, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    """With a partition that slurm.conf has: those that tests make are gone when it is read again."""
    made = SlurmHarness(slurm_2411, tmp_path / "memory", partition="dl")
    yield Driver(made)
    made.end()


def test_slurm_conf_loses_the_exit_code_under_us(lasting: Driver) -> None:
    """First by what the arbiter still believes, then by what a new one reads: the job is never lost."""
    cluster = lasting
    job = cluster.running("edited")
    with edited(cluster, "RequeueExitHold=86\n", ""):
        cluster.stop(job, 60.0)
        cluster.wait(job, JobState.STOPPED)
        cluster.harness.restart_arbiter()
        assert any("RequeueExitHold" in note for note in cluster.port.capabilities().notes)
        assert_finishes_another_cycle(cluster, job, 2)
        assert "ExitCode=0:0" in job_shown(cluster, job), "requeued by us after its word, it never failed"
    assert_finishes_another_cycle(cluster, job, 3)


def test_where_jobs_and_nodes_are_hidden_only_an_operator_may_act(lasting: Driver) -> None:
    """Free GPUs would be guessed: an arbiter without the right refuses to begin."""
    options = {**harness(lasting).cluster.options("dl"), "state": str(harness(lasting)._memory) + "-bob"}
    options |= {"ssh": str(options["ssh"]).replace("horae@", "bob@"), "spool": "/home/bob/spool"}
    with edited(lasting, "JobRequeue=1\n", "JobRequeue=1\nPrivateData=jobs,nodes\n"):
        lasting.harness.restart_arbiter()  # an Operator: claims as ever
        job = lasting.running("seen")
        port = connect(options)
        try:
            with pytest.raises(FixConfiguration) as raised:
                port.claim("bob's")
            assert "Operator" in raised.value.remedy
        finally:
            port.close()
        lasting.stop(job, 60.0)
        lasting.wait(job, JobState.STOPPED)


def test_a_partition_that_is_gone_from_slurm_conf_leaves_a_true_picture(cluster: Driver) -> None:
    """Slurm ends the jobs of a partition that it reads no more, and takes none of them back: that is told as it is."""
    job = cluster.running("orphaned")
    at = next(iter(cluster.job(job).allocation))
    containers(cluster).run("scontrol", "reconfigure")
    partitions = "sinfo", "-h", "-p", harness(cluster).partition
    wait_for("the partition is gone", lambda: at not in containers(cluster).run(*partitions))
    for _ in range(3):
        seen = cluster.observe()
        held = {node for each in seen.jobs for node in each.allocation}
        assert held <= {node.name for node in seen.nodes}
        assert all(node.health.value != "up" for node in seen.nodes), "nothing may be put there"
    cluster.until("its end is told", lambda: cluster.job(job).state is JobState.FAILED)
    name = harness(cluster).partition
    containers(cluster).run("scontrol", "create", f"PartitionName={name}", "Nodes=ALL", "MaxTime=INFINITE", "State=UP")
    other = cluster.submit("afterwards")
    assert_finishes_another_cycle(cluster, other, 1)


def test_a_managed_partition_goes_down_and_comes_back(cluster: Driver) -> None:
    job = cluster.submit("closed")
    partition, place = harness(cluster).partition, cluster.one()
    containers(cluster).run("scontrol", "update", f"PartitionName={partition}", "State=DOWN")
    cluster.start(job, place)  # decided before
    cluster.until("blocked", lambda: cluster.job(job).blocked is not None)
    cluster.until("taken back", lambda: cluster.job(job).state is JobState.QUEUED)
    containers(cluster).run("scontrol", "update", f"PartitionName={partition}", "State=UP")
    assert_finishes_another_cycle(cluster, job, 2)


def test_dependents_do_not_take_a_stop_for_a_failure(cluster: Driver) -> None:
    """Exit code 86 would start a job that waits for this one's failure, in any partition: it is requeued after its word
    instead."""
    job = cluster.submit("awaited")
    after = containers(cluster).submit(PLAIN, "--partition=raw", f"--dependency=afternotok:{number(job)}")
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job)
    cluster.stop(job, 60.0)
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86
    assert_finishes_another_cycle(cluster, job, 2)
    assert f"afternotok:{number(job)}" in containers(cluster).run("squeue", "-h", "-j", after, "-o", "%E")
    assert "Restarts=2" in job_shown(cluster, job)


# --- owners -----------------------------------------------------------------------------------------------


def test_an_owner_cannot_free_or_reshape_a_running_job_but_may_shorten_it(cluster: Driver) -> None:
    job = cluster.running("owned")
    for words in (("release", number(job)), ("update", f"jobid={number(job)}", "nice=5")):
        code, text = as_user(cluster, "alice", "scontrol", *words)
        assert code != 0, (words, text)
    code, text = as_user(cluster, "alice", "scontrol", "update", f"jobid={number(job)}", "TimeLimit=30")
    assert code == 0, text
    left = cluster.job(job).time_left_s
    assert left is not None
    assert left <= 30 * 60
    code, text = as_user(cluster, "bob", "scontrol", "update", f"jobid={number(job)}", "TimeLimit=20")
    assert code != 0, "another user's job"
    code, text = as_user(cluster, "alice", "scontrol", "requeue", number(job))
    assert code == 0, text
    cluster.wait(job, JobState.LOST, JobState.STOPPED)
    assert "Priority=0" in job_shown(cluster, job)
    cluster.start(job, cluster.other(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job)


def test_a_comment_that_turns_to_nonsense_makes_the_job_rigid_and_nothing_worse(cluster: Driver) -> None:
    job = cluster.running("comment")
    other = cluster.submit("bystander")
    for word in ("horae:min=0", "horae:max=999999999999", "horae:allowed=1/x", "horae:min=4,max=2", "horae:,,=,"):
        code, text = as_user(cluster, "alice", "scontrol", "update", f"jobid={number(job)}", f"comment={word}")
        assert code == 0, text
        seen = cluster.observe()
        found = next(each for each in seen.jobs if each.id == job)
        assert found.state is JobState.RUNNING
        assert found.spec is not None
        assert not found.spec.elastic or word.endswith(",=,")
        assert any(number(job) in note for note in seen.notes) or word.endswith(",=,")
    assert cluster.job(other).state is JobState.QUEUED


def test_what_another_user_writes_about_a_job_is_not_believed(cluster: Driver) -> None:
    job = cluster.submit("mine")
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    there = f"/shared/horae/spool/jobs/{job}"
    forged = '{"epoch": 1, "state": "stopped", "exit_code": 0, "checkpoint": {"epoch": 9, "step": 1e9, "time_s": 1}}'
    for words in (f"rm -f {there}/state.json; echo '{forged}' > {there}/state.json", f"echo 99 > {there}/epoch",
                  f"mv {there}/epoch {there}/old", f"cat {there}/output.log"):  # fmt: skip
        code, text = as_user(cluster, "bob", "sh", "-c", words)
        assert code != 0, text
    cluster.wait_progress(job)
    cluster.stop(job, 60.0)
    seen = cluster.wait(job, JobState.STOPPED)
    assert seen.exit_code == 86
    assert seen.checkpoint is not None
    assert seen.checkpoint.epoch == 1
    own = folder(cluster, job) / "state.json"  # where there are no ACLs others can write: it is not believed
    os.chown(own, 2002, 2002)
    own.write_text(forged)
    assert cluster.harness.restart_arbiter() is cluster.port
    assert cluster.job(job).checkpoint is None
    assert (folder(cluster, job) / "epoch").read_text().strip() == "1"


def test_a_log_that_is_a_link_to_somebody_elses_file_is_not_shown(cluster: Driver) -> None:
    """The arbiter may read more than the job's owner, who must not see it by way of a log."""
    secret = containers(cluster).shared()[0] / "horae/only-the-arbiter"
    secret.write_text("a secret\n")
    os.chown(secret, 2003, 2003)
    secret.chmod(0o600)
    script = PLAIN.replace("while", "ln -sf /shared/horae/only-the-arbiter /shared/linked.out\nwhile")
    job = harness(cluster).submit_script(script, "--gres=gpu:1", ELASTIC, "--output=/shared/linked.out")
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    wait_for("the link", (containers(cluster).shared()[0] / "linked.out").is_symlink)
    with pytest.raises(FixConfiguration) as raised:
        cluster.port.read_log(job, 0)
    assert "linked.out" in str(raised.value)
    log = folder(cluster, job) / "output.log"
    log.symlink_to("/shared/horae/only-the-arbiter")
    os.chown(log, 2001, 2001, follow_symlinks=False)
    with pytest.raises(FixConfiguration):
        cluster.port.read_log(job, 0)


def test_a_log_that_we_may_not_read_is_said_and_costs_nothing_else(cluster: Driver) -> None:
    private = containers(cluster).shared()[0] / f"private-{harness(cluster).partition}"
    private.mkdir(mode=0o700)
    os.chown(private, 2001, 2001)
    job = harness(cluster).submit_script(PLAIN, "--gres=gpu:1", ELASTIC, f"--output=/shared/{private.name}/out.txt")
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    wait_for("its output", (private / "out.txt").exists)
    with pytest.raises(FixConfiguration) as raised:
        cluster.port.read_log(job, 0)
    assert "horae-exec" in raised.value.remedy
    assert cluster.job(job).state is JobState.RUNNING


# --- the shared folder ------------------------------------------------------------------------------------


def test_a_spool_that_cannot_be_written_starts_nothing_and_stops_what_runs(cluster: Driver) -> None:
    running, queued = cluster.running("runs"), cluster.submit("waits")
    spool = containers(cluster).shared()[0] / "horae/spool"
    closed = [spool, spool / "jobs", spool / "reasons", folder(cluster, running)]
    modes = {path: path.stat().st_mode & 0o7777 for path in closed}
    owners = {path: (path.stat().st_uid, path.stat().st_gid) for path in closed}
    try:
        for path in closed:  # what a read-only export looks like to everybody but root
            os.chown(path, 0, 0)
            path.chmod(0o555)
        with pytest.raises(FixConfiguration) as raised:
            cluster.port.start(queued, cluster.other(), 1)
        assert "spool" in str(raised.value)
        with pytest.raises(FixConfiguration):
            cluster.port.heartbeat()
        assert cluster.job(queued).state is JobState.QUEUED
        assert waits_for_us(cluster, queued), "nothing was released"
        cluster.stop(running, 60.0)  # by signal alone
    finally:
        for path in closed:
            os.chown(path, *owners[path])
            path.chmod(modes[path])
    cluster.wait(running, JobState.STOPPED)
    cluster.port.heartbeat()
    assert_finishes_another_cycle(cluster, queued, 1)
    assert_finishes_another_cycle(cluster, running, 2)


def test_a_job_that_ignores_us_ends_all_the_same_where_it_was_to_stay(cluster: Driver) -> None:
    """`stop: requeuehold`, and a trainer that never checkpoints: it is requeued by force when its grace is over."""
    h = harness(cluster)
    stubborn = cluster.running("stubborn", Behaviour.IGNORES)
    port = connect({**h.cluster.options(h.partition), "state": str(h._memory), "stop": "requeuehold"})
    port.claim("the arbiter")
    h.port.close()
    h.port = port
    port.checkpoint_and_stop(stubborn, 2.0)
    cluster.wait(stubborn, JobState.STOPPED)
    assert "Priority=0" in job_shown(cluster, stubborn)
