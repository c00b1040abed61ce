"""Bad days and Slurm's own ways, on real daemons: users, administrators, crashes, and what Slurm does by itself."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import BlockKind, JobState, TryLater, attend
from policy.model import Health, Shape
from slurm_plugin import connect
from slurm_plugin.adapter import SlurmCluster
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour, job_in
from tests.real.slurm import (
    Containers,
    Private,
    private_slurm,  # noqa: F401 - a fixture
    slurm_2411,  # noqa: F401
    wait_for,
)
from tests.real.slurm_driving import PLAIN, harness, number, trapped
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

ELASTIC = "--comment=horae:min=1,max=4"
#: What Slurm does differently from release to release is tried on the oldest, too.
on_both = pytest.mark.parametrize("cluster", ["private_slurm", "slurm_2411"], indirect=True)


@pytest.fixture
def private(private_slurm: Private, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(private_slurm, tmp_path / "memory")
    yield Driver(made)
    made.end()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """24.11, unless a test asks for more."""
    made = SlurmHarness(request.getfixturevalue(getattr(request, "param", "slurm_2411")), tmp_path / "memory")
    yield Driver(made)
    made.end()


def scontrol(driver: Driver, *words: str) -> str:
    return harness(driver).cluster.run("scontrol", *words)


def held(driver: Driver, job: str) -> bool:
    driver.observe()
    return "Priority=0" in scontrol(driver, "show", "job", number(job))


# --- jobs as users write them -----------------------------------------------------------------------------


@on_both
def test_a_script_with_its_own_trap_is_stopped_and_resumed(cluster: Driver) -> None:
    job = harness(cluster).submit_script(PLAIN, "--gres=gpu:2", ELASTIC)
    for epoch, shape in enumerate([cluster.one(2), cluster.spread(1), cluster.one(1)], start=1):
        cluster.start(job, shape, epoch)
        assert cluster.wait(job, JobState.RUNNING).allocation == shape
        trapped(cluster, job, epoch)
        cluster.stop(job, 60.0)
        seen = cluster.wait(job, JobState.STOPPED)
        assert (seen.epoch, seen.exit_code) == (epoch, 86)


@on_both
def test_a_script_that_dies_of_the_request_is_not_lost(cluster: Driver) -> None:
    job = harness(cluster).submit_script("#!/bin/bash\nsleep 1000\n", "--gres=gpu:1", ELASTIC)
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    time.sleep(2.5)
    cluster.stop(job, 10.0)
    cluster.wait(job, JobState.STOPPED)
    cluster.start(job, cluster.one(), 2)
    assert cluster.wait(job, JobState.RUNNING).epoch == 2


def test_a_rigid_job_is_shown_as_such_and_its_request_is_kept(cluster: Driver) -> None:
    job = harness(cluster).submit_script(PLAIN, "--gres=gpu:v100:2", "-N2", "-c3", "--job-name=rigid")
    spec = cluster.job(job).spec
    assert spec is not None
    assert (spec.elastic, spec.gpus.min, spec.gpus.max, spec.gpu_types) == (False, 4, 4, ("v100",))
    assert (spec.cpus_per_gpu, spec.checkpoint, spec.name) == (None, None, "rigid")
    assert spec.shape == Shape(nodes=2, gpus_per_node=2, cpus_per_node=3)


@on_both
def test_array_tasks_are_jobs_of_their_own(cluster: Driver) -> None:
    slurm, partition = harness(cluster).cluster, harness(cluster).partition
    # named: squeue of 22.05 takes an array's default for that of a plain job
    out = f"--output={slurm.shared()[1]}/{partition}-%A_%a.out"
    first = slurm.submit(PLAIN, f"--partition={partition}", "--array=1-3", "--gres=gpu:1", ELASTIC, out)
    cluster.until("three tasks", lambda: len(cluster.observe().jobs) == 3)
    jobs = sorted(job.id for job in cluster.observe().jobs)
    assert [number(job) for job in jobs] == [f"{first}_{task}" for task in (1, 2, 3)]
    assert len({job.split(".")[1] for job in jobs}) == 1
    cluster.start(jobs[1], cluster.one())
    cluster.wait(jobs[1], JobState.RUNNING)
    trapped(cluster, jobs[1])
    cluster.stop(jobs[1], 60.0)  # with pending siblings scancel hangs; it must not matter
    assert cluster.wait(jobs[1], JobState.STOPPED).exit_code == 86
    assert cluster.job(jobs[0]).state is JobState.QUEUED
    cluster.start(jobs[1], cluster.other(2), 2)
    cluster.start(jobs[0], cluster.one(), 1)
    assert cluster.wait(jobs[1], JobState.RUNNING).allocation == cluster.other(2)
    cluster.wait(jobs[0], JobState.RUNNING)
    cluster.cancel(jobs[2])
    cluster.wait(jobs[2], JobState.CANCELLED)


def test_a_job_with_an_open_dependency_is_not_offered(cluster: Driver) -> None:
    first = harness(cluster).submit_script(PLAIN, "--gres=gpu:1", ELASTIC)
    second = harness(cluster).cluster.submit(
        PLAIN, f"--partition={harness(cluster).partition}", "--gres=gpu:1", f"--dependency=afterany:{number(first)}"
    )
    seen = cluster.observe()
    assert [job.id for job in seen.jobs] == [first]
    assert any("dependency" in note for note in seen.notes)
    cluster.cancel(first)
    harness(cluster).patience_s = 240.0  # Slurm looks at the dependencies of held jobs once a minute
    cluster.until("it is offered", lambda: any(number(job.id) == second for job in cluster.observe().jobs))


@on_both
def test_the_time_limit_is_carried_over_restarts(cluster: Driver) -> None:
    job = harness(cluster).submit_script(PLAIN, "--gres=gpu:1", ELASTIC, "--time=20")
    assert cluster.job(job).time_left_s == 1200
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    time.sleep(2.0)
    cluster.stop(job, 60.0)
    left = cluster.wait(job, JobState.STOPPED).time_left_s
    assert left is not None
    assert 900 < left < 1199.5
    cluster.start(job, cluster.other(), 2)
    cluster.wait(job, JobState.RUNNING)
    assert f"TimeLimit=00:{math.ceil(left / 60):02d}:00" in scontrol(cluster, "show", "job", number(job))


@on_both
def test_cpus_follow_the_gpus(cluster: Driver) -> None:
    job = harness(cluster).submit_script(PLAIN, "--gres=gpu:2", "-n1", "-c4", ELASTIC)
    cluster.start(job, cluster.spread(2))
    cluster.wait(job, JobState.RUNNING)
    assert "NumCPUs=8" in scontrol(cluster, "show", "job", number(job))


# --- what blocks a grant ----------------------------------------------------------------------------------


@on_both
def test_a_foreign_job_blocks_and_the_job_starts_elsewhere(cluster: Driver) -> None:
    node, other = cluster.nodes()[:2]
    cluster.harness.pause()
    foreign = harness(cluster).cluster.submit(
        "#!/bin/bash\nexec sleep 1000\n", "--partition=raw", "--gres=gpu:4", f"--nodelist={node.name}"
    )
    try:
        cluster.until("it is foreign use", lambda: cluster.node(node.name).foreign == 4)
        job = cluster.submit("blocked")
        cluster.start(job, {node.name: 2})
        cluster.until("blocked", lambda: cluster.job(job).blocked is not None)
        cluster.until("taken back", lambda: cluster.job(job).state is JobState.QUEUED)
        blocked = cluster.job(job).blocked
        assert blocked is not None
        assert blocked.kind is BlockKind.FOREIGN
        cluster.start(job, {other.name: 2}, 2)
        assert cluster.wait(job, JobState.RUNNING).allocation == {other.name: 2}
    finally:
        harness(cluster).cluster.run("scancel", foreign)


def test_a_drained_node_blocks(cluster: Driver) -> None:
    node = cluster.nodes()[0].name
    scontrol(cluster, "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        cluster.until("it is drained", lambda: cluster.node(node).health.value == "drain")
        job = cluster.submit("nowhere")
        cluster.start(job, {node: 1})
        cluster.until("blocked", lambda: cluster.job(job).blocked is not None)
        blocked = cluster.job(job).blocked
        assert blocked is not None
        assert blocked.kind is BlockKind.NODE
    finally:
        scontrol(cluster, "update", f"nodename={node}", "state=resume")


# --- users and administrators -----------------------------------------------------------------------------


def test_an_owner_cannot_start_or_change_a_held_job_past_us(slurm_2411: object, tmp_path: Path) -> None:  # noqa: F811
    made = SlurmHarness(slurm_2411, tmp_path / "memory")  # type: ignore[arg-type]
    driver = Driver(made)
    try:
        job = driver.submit("owned")
        for words in (["release", number(job)], ["update", f"jobid={number(job)}", "nice=5"],
                      ["update", f"jobid={number(job)}", "partition=raw"],
                      ["update", f"jobid={number(job)}", "requeue=0"]):  # fmt: skip
            code, text = made.cluster.lab.exec("ctl", ["scontrol", *words], user="alice")  # type: ignore[attr-defined]
            assert code != 0, (words, text)
            assert driver.job(job).state is JobState.QUEUED
        code, _ = made.cluster.lab.exec("ctl", ["scancel", number(job)], user="alice")  # type: ignore[attr-defined]
        assert code == 0
        driver.wait(job, JobState.CANCELLED)
    finally:
        made.end()


def test_an_owner_cannot_bring_a_job_past_all_who_wait(slurm_2411: Containers, tmp_path: Path) -> None:  # noqa: F811
    """One that he moves here stays where it was, as it was: it could be given no tag, and would not wait its turn."""
    made = SlurmHarness(slurm_2411, tmp_path / "memory")
    driver = Driver(made)
    raw = slurm_2411.submit(PLAIN, "--partition=raw", "--gres=gpu:1", "--begin=now+1hour")
    cpus = slurm_2411.submit(PLAIN, f"--partition={made.partition}", "--begin=now+1hour")
    try:
        before = [asked(slurm_2411, job) for job in (raw, cpus)]
        for words in ([raw, f"partition={made.partition}"], [raw, f"partition=raw,{made.partition}"],
                      [cpus, "gres=gpu:2"]):  # fmt: skip
            code, text = slurm_2411.lab.exec("ctl", ["scontrol", "update", f"jobid={words[0]}", words[1]], user="alice")
            assert code != 0
            assert f"--partition={made.partition}" in text, "what to do instead"
        assert [asked(slurm_2411, job) for job in (raw, cpus)] == before
        code, _ = slurm_2411.lab.exec("ctl", ["scontrol", "update", f"jobid={cpus}", "partition=raw"], user="alice")
        assert code == 0, "without GPUs it waits for nobody"
        assert driver.observe().jobs == ()
    finally:
        slurm_2411.run("scancel", raw, cpus)
        made.end()


def asked(cluster: Containers, job: str) -> list[str]:
    """What a job asks for, without what Slurm notes about it by and by."""
    lines = cluster.run("scontrol", "show", "job", job).splitlines()
    return [line for line in lines if not line.strip().startswith(("AccrueTime=", "SuspendTime="))]


@on_both
def test_a_requeue_by_anybody_comes_back_held_and_lost(cluster: Driver) -> None:
    job = cluster.running("requeued")
    assert not held(cluster, job), "slurmdbd would lose its usage"
    scontrol(cluster, "requeue", number(job))
    cluster.wait(job, JobState.LOST)
    cluster.until("it is held", lambda: "Held" in cluster.job(job).native)
    cluster.start(job, cluster.other(), 2)
    assert cluster.wait(job, JobState.RUNNING).epoch == 2


def test_an_administrators_release_of_a_queued_job_is_taken_back(cluster: Driver) -> None:
    job = cluster.submit("freed", gpus=(1, 4))
    scontrol(cluster, "update", f"jobid={number(job)}", "StartTime=now+30")  # till then Slurm itself keeps it
    scontrol(cluster, "release", number(job))
    cluster.until("held again", lambda: held(cluster, job))
    cluster.until("it waits for us again", lambda: job_in(cluster.observe().jobs, job) is not None)
    assert cluster.job(job).state is JobState.QUEUED


def test_observing_writes_nothing(cluster: Driver) -> None:
    h = harness(cluster)
    running = cluster.running("runs")
    queued = cluster.submit("waits")
    cluster.observe()
    watcher = connect({**h.cluster.options(h.partition), "state": str(h._memory) + "-watcher"})

    def shown() -> str:
        """Without what Slurm's scheduler notes by itself."""
        return re.sub(
            r"\b(LastSchedEval|AccrueTime|Reason)=\S*|Scheduler=\S+",
            "",
            scontrol(cluster, "show", "job", number(queued)),
        )

    scontrol(cluster, "update", f"jobid={number(queued)}", "StartTime=now+50")
    scontrol(cluster, "release", number(queued))  # an enforcing arbiter would hold it again, before that
    before = shown()
    for _ in range(5):
        seen = cluster.patient(watcher.observe)
    watcher.close()
    assert {job.id for job in seen.jobs} == {running}  # a start time that somebody gave is not ours to undo
    assert shown() == before


@on_both
def test_a_job_that_completes_between_the_look_and_the_requeue_is_left(cluster: Driver) -> None:
    """slurmctld would take the requeue: a job that was cancelled would live again, and before 26.05.4 it may crash."""
    script = "#!/bin/bash\ntrap '' TERM USR1\nwhile :; do sleep 0.2; done\n"
    job = harness(cluster).submit_script(script, "--gres=gpu:1", ELASTIC)
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    cluster.stop(job, 0.1)

    def to_be_forced() -> bool:
        return any(due.job == job and "is over" in due.what for due in cluster.patient(cluster.port.observe).due)

    def state() -> str:
        return harness(cluster).cluster.run("squeue", "-h", "-t", "all", "-j", number(job), "-o", "%T")

    cluster.until("its time is over", to_be_forced)
    harness(cluster).cluster.run("scancel", number(job))
    wait_for("it ends, and ignores that", lambda: state() == "COMPLETING")
    assert isinstance(cluster.port, SlurmCluster)
    errors = cluster.port.follow_up([job])
    assert [type(error) for error in errors.values()] == [TryLater], errors
    assert "completing" in str(errors[job])
    wait_for("it is over", lambda: state() == "CANCELLED")
    assert " Restarts=0 " in scontrol(cluster, "show", "job", number(job))


# --- crashes ----------------------------------------------------------------------------------------------


def test_an_arbiter_that_died_after_the_release_knows_the_start_when_it_is_back(cluster: Driver) -> None:
    job = cluster.submit("half")
    cluster.start(job, cluster.one())
    cluster.harness.restart_arbiter()
    seen = cluster.wait(job, JobState.RUNNING)
    assert seen.epoch == 1
    scontrol(cluster, "requeue", number(job))
    cluster.wait(job, JobState.LOST)
    assert held(cluster, job)


def test_a_lost_memory_is_rebuilt_from_what_slurm_shows(cluster: Driver) -> None:
    job = cluster.stopped("forgotten")
    cluster.start(job, cluster.one(2), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job)
    h = harness(cluster)
    for path in h._memory.iterdir():
        path.unlink()
    cluster.harness.restart_arbiter()
    seen = cluster.job(job)
    assert (seen.state, seen.epoch, sum(seen.allocation.values())) == (JobState.RUNNING, 2, 2)
    cluster.stop(job, 60.0)
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86
    cluster.start(job, cluster.other(), 3)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("its third start", lambda: len(cluster.starts(job)) == 3)
    assert [start.epoch for start in cluster.starts(job)] == [1, 2, 3]


def test_a_stop_that_was_asked_for_survives_the_arbiter(cluster: Driver) -> None:
    job = cluster.running("asked", Behaviour.IGNORES)
    cluster.stop(job, 1.0)
    cluster.harness.restart_arbiter()
    assert cluster.wait(job, JobState.STOPPED).epoch == 1


def _until_saved(cluster: Private, partition: str, job: str) -> None:
    """slurmctld writes its state with a delay: until the test's partition, and the job as it is now, are on disk."""
    folder, since = cluster.lab.folder / "state", time.time()
    cluster.lab.run(["scontrol", "update", f"jobid={job}", "JobName=steady"])  # else it may have nothing to write

    def saved() -> bool:
        try:
            partitions, jobs_s = (folder / "part_state").read_bytes(), (folder / "job_state").stat().st_mtime
        except FileNotFoundError:  # slurmctld is putting another in its place
            return False
        return partition.encode() in partitions and jobs_s > since

    wait_for("slurmctld has saved its state", saved, 60)


def _until_nodes_are_back(cluster: Private) -> None:
    """A restarted slurmctld knows its nodes only once each slurmd has answered it."""

    def back() -> bool:
        done = cluster.lab.run(["sinfo", "-hN", "-o", "%T"], check=False)
        return done.returncode == 0 and set(done.stdout.split()) <= {"idle", "mixed", "allocated"}

    wait_for("nodes are back", back, 120)


def test_a_controller_that_is_away_is_try_later_and_loses_nothing(private: Driver) -> None:
    h = harness(private)
    assert isinstance(h.cluster, Private)
    job = private.running("steady")
    _until_saved(h.cluster, h.partition, number(job))
    h.cluster.lab.kill("slurmctld")
    try:
        with pytest.raises(TryLater):
            attend(private.port)
        with pytest.raises(TryLater):
            private.port.start(job, private_shape(job), 2)
        with pytest.raises(TryLater):  # whose job its leaving would start, only slurmctld knows
            private.port.checkpoint_and_stop(job, 60.0)
    finally:
        # A site's partitions are in its slurm.conf. This one is not: without -R it is gone, and Slurm fails its jobs.
        h.cluster.lab.start_controller("-R")
        _until_nodes_are_back(h.cluster)
    private.port.checkpoint_and_stop(job, 60.0)
    seen = private.wait(job, JobState.STOPPED)
    assert seen.exit_code == 86


def test_who_gets_none_of_his_gpus_from_a_controller_started_anew_runs_in_his_next_start(private: Driver) -> None:
    """22.05 after `slurmctld -R`: until a node has told of itself, some 3 s, jobs there are given none of their GPUs,
    no step of theirs can begin, and nothing changes that as long as they have the node."""
    h = harness(private)
    assert isinstance(h.cluster, Private)
    job = private.submit("early")
    h.cluster.lab.kill("slurmctld", signal.SIGTERM)
    h.cluster.lab.start_controller("-R")
    private.start(job, {"n1": 1})
    private.wait(job, JobState.RUNNING)
    private.wait_progress(job)
    private.stop(job, 60.0)
    assert private.wait(job, JobState.STOPPED).exit_code == 86


def private_shape(_job: str) -> dict[str, int]:
    return {"n2": 1}


def started_anew(h: SlurmHarness) -> None:
    """slurmctld, on whatever state there is; a partition that scontrol made may be lost with it."""
    assert isinstance(h.cluster, Private)
    lab = h.cluster.lab
    lab.start_controller()
    wait_for("slurmctld answers", lambda: lab.run(["squeue"], check=False).returncode == 0)
    if h.partition not in h.cluster.run("scontrol", "show", "partition"):
        h.cluster.run("scontrol", "create", f"PartitionName={h.partition}", "Nodes=ALL", "MaxTime=INFINITE", "State=UP")


def test_a_jobid_given_out_again_is_another_job(private: Driver, tmp_path: Path) -> None:
    h = harness(private)
    assert isinstance(h.cluster, Private)
    lab = h.cluster.lab
    lab.kill("slurmctld", signal.SIGTERM)  # it writes down all that it knows
    shutil.copytree(lab.folder / "state", tmp_path / "state")
    started_anew(h)
    first = private.submit("first")
    lab.kill("slurmctld")  # what a crash within the second loses: the job was never written down
    shutil.rmtree(lab.folder / "state")
    shutil.copytree(tmp_path / "state", lab.folder / "state")
    started_anew(h)
    private.until("nodes", lambda: all(node.health is Health.UP for node in private.observe().nodes))
    assert job_in(private.observe().jobs, first) is None
    second = private.submit("second")
    assert number(second) == number(first)
    assert second != first
    assert job_in(private.observe().jobs, first) is None
    private.start(second, private.one())
    assert private.wait(second, JobState.RUNNING).epoch == 1


@on_both
def test_no_start_fails_when_a_node_is_reused_at_once(cluster: Driver) -> None:
    job = harness(cluster).submit_script(PLAIN, "--gres=gpu:1", ELASTIC)
    shapes = [cluster.one(1), cluster.spread(1)]
    for epoch in range(1, 9):
        cluster.start_at_once(job, shapes[epoch % 2], epoch)  # not the driver's: the adapter keeps the gap itself
        seen = cluster.wait(job, JobState.RUNNING)
        assert seen.epoch == epoch
        time.sleep(0.1)
        cluster.stop(job, 60.0)
        cluster.wait(job, JobState.STOPPED)
    assert f"Restarts={8}" in scontrol(cluster, "show", "job", number(job))


# --- leaving ----------------------------------------------------------------------------------------------


def test_release_all_hands_everything_back_without_python(private: Driver) -> None:
    h = harness(private)
    assert isinstance(h.cluster, Private)
    running = private.running("runs", allocation=private.one(1))
    queued = h.submit_script(PLAIN, "--gres=gpu:2", "-N2", ELASTIC)
    # Held by others, before and after they ever ran, and by us: a grant that the site does not let start
    admins = [h.submit_script(PLAIN, "--gres=gpu:1", *words) for words in ((), (ELASTIC,))]
    for job in admins:
        scontrol(private, "hold", number(job))
    ours = [h.submit_script(PLAIN, "--gres=gpu:1", *words) for words in ((), (ELASTIC,))]
    place = private.other(1)
    scontrol(private, "update", f"PartitionName={h.partition}", "State=DOWN")
    for job in ours:
        private.start(job, place)

    def held() -> bool:
        private.observe()
        return all("Priority=0" in scontrol(private, "show", "job", number(job)) for job in ours)

    private.until("we hold them", held)
    private.patient(private.port.heartbeat)
    assert set((h.cluster.lab.spool / "holds").read_text().split()) == set(ours)
    scontrol(private, "update", f"PartitionName={h.partition}", "State=UP")
    script = Path(__file__).parents[2] / "slurm_plugin/site/release-all.sh"
    env = {**os.environ, **h.cluster.lab.env()}
    env["PATH"] = f"{h.cluster.lab.env().get('PATH', env['PATH'])}"
    for _ in range(2):  # a second time it still knows whose holds they are
        done = subprocess.run(["sh", str(script), str(h.cluster.lab.spool)], env=env, check=True,
                              capture_output=True, text=True)  # fmt: skip
        assert sorted(done.stderr.strip().rpartition(" ")[2].split(",")) == sorted(number(job) for job in admins), done
    for job in admins:
        assert "Priority=0" in scontrol(private, "show", "job", number(job))
        scontrol(private, "release", number(job))
    for job in (*ours, *admins):
        wait_for("it runs", lambda job=job: "JobState=RUNNING" in scontrol(private, "show", "job", number(job)))  # type: ignore[misc]
    wait_for("Slurm starts it", lambda: "JobState=RUNNING" in scontrol(private, "show", "job", number(queued)))
    shown = scontrol(private, "show", "job", number(queued))
    assert "NumNodes=2 " in shown
    assert "Priority=0" not in scontrol(private, "show", "job", number(running))
    fresh = h.cluster.submit(PLAIN, f"--partition={h.partition}", "--gres=gpu:1")
    assert "JobHeld" not in scontrol(private, "show", "job", fresh)
    assert "horae=" not in scontrol(private, "show", "job", fresh)


def test_a_stale_heartbeat_lets_new_jobs_pass(cluster: Driver) -> None:
    h = harness(cluster)
    old = f"time {int(time.time()) - 1000}\nhold {h.partition}\n"
    if isinstance(h.cluster, Private):
        (h.cluster.lab.spool / "heartbeat").write_text(old)
    else:
        h.cluster.run("sh", "-c", f"printf '{old}' > /shared/horae/spool/heartbeat")
    passed = h.cluster.submit(PLAIN, f"--partition={h.partition}", "--gres=gpu:1")
    wait_for("Slurm starts it", lambda: "JobState=RUNNING" in scontrol(cluster, "show", "job", passed))
    assert cluster.observe().jobs == ()
    cluster.until("it is foreign use", lambda: sum(node.foreign for node in cluster.observe().nodes) == 1)
