"""The local cluster beyond the contract: slots, healing, speed of observation, and whom it believes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.elastic import protocol
from horae.elastic.supervisor.processes import marked
from horae.local import connect
from horae.local.adapter import LocalCluster
from horae.port import ClusterPort, FixConfiguration, JobState, Never, TryLater
from policy.model import Health
from tests.horae.elastic.exec_job import FORKS_AWAY, counter, gone, until
from tests.horae.local.cluster import Cluster

Make = Callable[..., Cluster]
SAY = """
    import os, time
    words = ["CUDA_VISIBLE_DEVICES", "HORAE_SPEED", "HORAE_NODES", "NODE_RANK", "CUDA_DEVICE_ORDER"]
    os.write(1, "devices {} speed {} nodes {} node {} by {}\\n".format(*map(os.environ.get, words)).encode())
    time.sleep(600)
"""


def test_it_is_a_cluster_port(cluster: Cluster) -> None:
    assert isinstance(connect({"state": cluster.state, "nodes": "a:1"}), ClusterPort)


def test_jobs_on_one_node_have_slots_of_their_own(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.running(name, SAY)
    until("both speak", lambda: "devices" in cluster.log("a") and "devices" in cluster.log("b"))
    assert {device(cluster, name) for name in ("a", "b")} == {"0", "1"}
    cluster.port.cancel("a")
    cluster.wait("a", JobState.CANCELLED)
    cluster.running("c", SAY)
    until("it speaks", lambda: "devices" in cluster.log("c"))
    assert device(cluster, "c") == device(cluster, "a")


def device(cluster: Cluster, name: str) -> str:
    """Of a job of one rank that spoke."""
    return cluster.log(name).partition("devices ")[2].split()[0]


def test_a_gang_is_told_its_nodes_and_their_speed(make_cluster: Make) -> None:
    cluster = make_cluster(speeds={"v100": 1.0, "k80": 0.25})
    cluster.running("mixed", SAY, {"v100-2": 2, "k80-1": 1})
    until("all speak", lambda: cluster.log("mixed").count("devices") == 3)
    said = sorted(line.split(": ", 1)[1] for line in cluster.log("mixed").splitlines()[1:])
    nodes, order = 'nodes {"v100-2": 2, "k80-1": 1}', "by PCI_BUS_ID"  # nvidia-smi's; CUDA's own: the fastest first
    fast = f"devices 0,1 speed 1.0 {nodes} node 0 {order}"
    assert said == sorted([fast, fast, f"devices 0 speed 0.25 {nodes} node 1 {order}"])


def test_of_many_starters_at_once_each_slot_goes_to_one(cluster: Cluster) -> None:
    """Six arbiters at once, more jobs than slots: what is granted fits, the others are told to wait."""
    names = [cluster.submit(f"j{i}", "import time; time.sleep(600)") for i in range(6)]
    refused: list[str] = []

    def start(name: str) -> None:
        port = LocalCluster(cluster.options)
        while True:
            try:
                return port.start(name, {"v100-1": 1}, 1)
            except TryLater as later:
                if "GPUs free" in later.text:
                    refused.append(name)
                    return None
                time.sleep(0.01)

    threads = [threading.Thread(target=start, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 4
    slots = [cluster.folder(name).state() for name in names if name not in refused]
    assert sorted(state["slots"]["v100-1"][0] for state in slots if state) == [0, 1]


def test_an_end_is_noticed_before_anybody_looks(cluster: Cluster) -> None:
    for name, node in (("stays", "v100-1"), ("leaves", "v100-2"), ("dies", "k80-1")):
        cluster.running(name, where={node: 1})
    before = cluster.port.noticed()
    assert cluster.port.noticed() == before
    cluster.port.checkpoint_and_stop("leaves", 60.0)
    until("its end is noticed", lambda: cluster.port.noticed() == before + 1)
    assert cluster.job("leaves").state is JobState.STOPPED
    os.kill(cluster.supervisor("dies"), signal.SIGKILL)
    until("that too", lambda: cluster.port.noticed() == before + 2)
    assert (cluster.job("dies").state, cluster.port.noticed()) == (JobState.LOST, before + 2)


# --- supervisors that die ---------------------------------------------------------------------------------


def test_a_killed_supervisor_is_a_lost_job_and_its_runaways_are_killed(cluster: Cluster) -> None:
    cluster.running("lost", FORKS_AWAY.format(then="time.sleep(600)"))
    until("it forked away", lambda: "away" in cluster.log("lost"))
    everything = marked(protocol.ENV_JOB_DIR, cluster.folder("lost").path)
    assert len(everything) == 2
    os.kill(cluster.supervisor("lost"), signal.SIGKILL)
    seen = cluster.wait("lost", JobState.LOST)
    assert (dict(seen.allocation), seen.epoch, seen.exit_code) == ({}, 1, None)
    assert all(gone(pid) for pid in everything)
    state = cluster.folder("lost").state()
    assert state is not None
    assert state["state"] == "lost"
    cluster.port.start("lost", {"v100-2": 1}, 2)
    assert cluster.wait("lost", JobState.RUNNING).epoch == 2


def test_the_newest_checkpoint_of_a_lost_job_is_known(cluster: Cluster) -> None:
    """The supervisor's own account may be seconds behind when it dies."""
    cluster.running("lost", counter(every=5))
    until("some checkpoints", lambda: "step=23/" in cluster.log("lost"))
    os.kill(cluster.supervisor("lost"), signal.SIGKILL)
    seen = cluster.wait("lost", JobState.LOST)
    assert seen.checkpoint is not None
    assert seen.checkpoint.step >= 20
    cluster.port.start("lost", {"v100-1": 1}, 2)
    until("it resumes", lambda: f"start step={seen.checkpoint.step:.0f} " in cluster.log("lost"))


def test_a_start_that_never_came_to_be_is_lost(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arbiter died, or no process could be made, after the epoch was written."""
    job = cluster.submit("stillborn")

    def no_process(*_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr("horae.local.launch.Launcher.start", no_process)
    with pytest.raises(TryLater, match="no more processes"):
        cluster.port.start(job, {"v100-1": 1}, 1)
    monkeypatch.undo()
    assert cluster.wait(job, JobState.LOST).epoch == 1
    cluster.port.start(job, {"v100-1": 1}, 1)  # the same epoch is not given twice
    assert cluster.job(job).state is JobState.LOST
    cluster.port.start(job, {"v100-1": 1}, 2)
    cluster.wait(job, JobState.RUNNING)


def test_a_cancelled_job_whose_supervisor_died_is_cancelled(cluster: Cluster) -> None:
    cluster.running("both")
    pid = cluster.supervisor("both")
    os.kill(pid, signal.SIGSTOP)
    cluster.port.cancel("both")
    os.kill(pid, signal.SIGKILL)
    assert cluster.wait("both", JobState.CANCELLED, JobState.LOST).state is JobState.CANCELLED


def test_a_draining_node_keeps_what_runs_and_takes_nothing(cluster: Cluster) -> None:
    cluster.running("stays")
    (cluster.state / "nodes" / "v100-1").write_text("drain")
    health = {node.name: node.health for node in cluster.port.observe().nodes}
    assert health == {"v100-1": Health.DRAIN, "v100-2": Health.UP, "k80-1": Health.UP}
    assert cluster.job("stays").state is JobState.RUNNING
    cluster.submit("new")
    with pytest.raises(TryLater, match="v100-1 is drain"):
        cluster.port.start("new", {"v100-1": 1}, 1)


# --- what cannot be read or written -----------------------------------------------------------------------


def test_rubbish_in_a_job_folder_harms_no_job(cluster: Cluster) -> None:
    cluster.running("good")
    cluster.submit("bad")
    (cluster.state / "jobs" / "bad" / "spec.json").write_text("{")
    (cluster.state / "jobs" / "empty").mkdir()
    (cluster.state / "jobs" / "file").write_text("?")
    fresh = LocalCluster(cluster.options)
    seen = fresh.observe()
    assert {job.id: job.state for job in seen.jobs}["good"] is JobState.RUNNING
    assert any("empty/spec.json is missing" in note for note in seen.notes)
    with pytest.raises(Never, match="spec"):
        fresh.start("empty", {"v100-2": 1}, 1)
    fresh.start("bad", {"v100-2": 1}, 1)  # what to run does not stand there
    cluster.wait("bad", JobState.RUNNING)
    (cluster.state / "jobs" / "file").unlink()


def test_a_book_that_is_damaged_is_noted_and_can_be_written_again(cluster: Cluster) -> None:
    cluster.running("good")
    cluster.submit("bad")
    (cluster.state / "books" / "bad.json").write_text("")
    fresh = LocalCluster(cluster.options)
    seen = fresh.observe()
    assert {job.id: job.state for job in seen.jobs}["good"] is JobState.RUNNING
    assert any("books/bad.json is not JSON" in note for note in seen.unread)
    with pytest.raises(FixConfiguration, match=r"bad\.json"):
        fresh.start("bad", {"v100-2": 1}, 1)
    fresh.submit("bad", cluster.spec("bad"))  # submitted again, as after a power cut: it is whole again
    fresh.start("bad", {"v100-2": 1}, 1)
    cluster.wait("bad", JobState.RUNNING)


def test_states_that_lie_about_their_form_are_survived(cluster: Cluster) -> None:
    cluster.submit("liar")
    folder = cluster.folder("liar")
    folder.write_epoch(1)
    for state in ({"state": 3, "epoch": "x"}, {"state": "running", "slots": 7, "epoch": 1, "checkpoint": [1]}, {}):
        (Path(folder.path) / "state.json").write_text(json.dumps(state))
        assert LocalCluster(cluster.options).observe().jobs[0].id == "liar"


def test_without_rights_an_operator_is_told_what_to_mend(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FixConfiguration, match="cannot use"):
        connect({"state": blocked / "state", "nodes": "a:1"})


def test_a_full_disk_refuses_a_start_and_loses_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cluster.submit("later")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("horae.descriptors.Folder.replace", full)
    with pytest.raises(FixConfiguration, match=r"No space left.*free some space"):
        cluster.port.start(job, {"v100-1": 1}, 1)
    monkeypatch.undo()
    assert cluster.job(job).state is JobState.QUEUED
    cluster.port.start(job, {"v100-1": 1}, 1)
    cluster.wait(job, JobState.RUNNING)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "free some space on the disk of .*state.*goes on by itself"),
        (errno.EDQUOT, "raise the quota on the disk of .*state"),
        (errno.EROFS, "mend the file system of .*state.*dmesg"),
        (errno.EIO, "mend the file system of .*state.*dmesg"),
        (errno.EACCES, "check the folder's owner and rights"),
    ],
)
def test_what_a_disk_refuses_is_said_the_same_each_time_with_what_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    """Else each try, once a second, is news for the journal."""
    real = os.open

    def refuses(path: Any, flags: int, *more: Any, **where: Any) -> int:
        if flags & os.O_EXCL:
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *more, **where)

    cluster.submit("j")
    monkeypatch.setattr("os.open", refuses)
    asked: list[Callable[[], None]] = [cluster.port.heartbeat]
    if code not in (errno.EIO, errno.EACCES):  # of a folder these may be its owner's doing
        asked.append(lambda: cluster.port.cancel("j"))
    for ask in asked:
        said = set()
        for _ in range(3):
            with pytest.raises(FixConfiguration, match=remedy) as raised:
                ask()
            said.add(raised.value.text)
        assert len(said) == 1


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 300, "a\nb", "-x"])
def test_ids_that_are_no_file_names_are_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(Never, match="cannot be a job's id"):
        cluster.port.submit(name, cluster.spec("plain"))
    with pytest.raises(Never, match="there is no job"):
        cluster.port.read_log(name, 0)
    assert [path.name for path in (cluster.state / "jobs").iterdir()] == []


# --- whom it believes -------------------------------------------------------------------------------------


def test_a_log_that_is_a_link_is_not_read(cluster: Cluster, tmp_path: Path) -> None:
    cluster.submit("sly")
    secret = tmp_path / "secret"
    secret.write_text("root:...")
    (cluster.state / "jobs" / "sly" / "output.log").symlink_to(secret)
    with pytest.raises(TryLater):
        cluster.port.read_log("sly", 0)


def test_no_process_that_an_account_names_is_signalled(cluster: Cluster) -> None:
    """The account is the job owner's to write; root would else signal whatever it names."""
    cluster.running("sly")
    bystander = subprocess.Popen(["sleep", "600"])
    folder = cluster.folder("sly")
    real = folder.state()
    assert real is not None
    folder.write_state({**real, "pid": bystander.pid})
    (cluster.state / "nodes" / "v100-1").write_text("down")
    cluster.wait("sly", JobState.LOST)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_an_owner_this_arbiter_cannot_become_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Never, match="no user nobody-here"):
        cluster.port.submit("x", cluster.spec("x", owner="nobody-here"))
    if os.geteuid() != 0:
        with pytest.raises(Never, match="cannot run jobs of root"):
            cluster.port.submit("x", cluster.spec("x", owner="root"))


def test_a_number_without_a_name_runs_its_own_jobs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started as any number: whoever calls is told as that number."""
    nobodys = 3_999_999_999
    owner = cluster.port._launcher.owner
    monkeypatch.setattr("horae.local.launch.os.geteuid", lambda: nobodys)
    assert owner(replace(cluster.spec("own", ""), owner=str(nobodys))) == ""
    with pytest.raises(Never, match="no user 3999999998"):
        owner(replace(cluster.spec("theirs", ""), owner=str(nobodys - 1)))


@pytest.mark.root
def test_a_job_runs_as_its_owner(open_to_all: Path) -> None:
    """The arbiter is root, the job is nobody's: its processes, its folder, its checkpoints."""
    cluster = Cluster(open_to_all)
    try:
        home = open_to_all / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        source = """
            import os, time
            os.write(1, "uid {} {} {}\\n".format(os.getuid(), os.getgroups(), os.environ["USER"]).encode())
            time.sleep(600)
        """
        spec = cluster.spec("theirs", source, owner="nobody", cwd=str(home), checkpoint=str(home / "ckpt"))
        python = Path("/usr/bin/python3")
        cluster.port.submit("theirs", replace(spec, command=(str(python), *spec.command[1:])))
        cluster.port.start("theirs", {"v100-1": 1}, 1)
        until("it speaks", lambda: "uid" in cluster.log("theirs"))
        assert "uid 65534 [65534] nobody" in cluster.log("theirs")
        assert Path(f"/proc/{cluster.supervisor('theirs')}").stat().st_uid == 65534
        assert Path(cluster.folder("theirs").path).stat().st_uid == 65534
        cluster.port.checkpoint_and_stop("theirs", 0.2)
        cluster.wait("theirs", JobState.FAILED, JobState.STOPPED)
    finally:
        cluster.end()


# --- many jobs --------------------------------------------------------------------------------------------


def test_unchanged_jobs_are_not_read_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(30):
        cluster.submit(f"j{i}")
    cluster.running("live")
    cluster.port.observe()
    time.sleep(0.1)
    cluster.port.observe()
    opened: list[str] = []
    real = os.open

    def spy(path: Any, *args: Any, **options: Any) -> int:
        opened.append(str(path))
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", spy)
    seen = cluster.port.observe()
    monkeypatch.undo()
    assert len(seen.jobs) == 31
    assert any("live" in path for path in opened)
    assert not [path for path in opened if path.startswith(("j1", "j2"))]


def test_a_change_within_the_clocks_tick_is_seen(cluster: Cluster) -> None:
    """Two changes may carry one time stamp: a record read right after a change is read again."""
    for i in range(50):
        job = cluster.submit(f"quick{i}")
        assert cluster.job(job).state is JobState.QUEUED
        cluster.port.cancel(job)
        assert cluster.job(job).state is JobState.CANCELLED


def test_reasons_are_written_where_the_owner_can_read_them(cluster: Cluster) -> None:
    cluster.submit("waits")
    cluster.port.set_reason("waits", "waits for 2 GPUs")
    assert (cluster.state / "jobs" / "waits" / "reason").read_text() == "waits for 2 GPUs\n"


def test_a_rotated_log_shows_as_another_file(cluster: Cluster) -> None:
    cluster.running("talks", FLOOD, extra={"log_limit_bytes": "100000"})
    first = cluster.port.read_log("talks", 0, 10)
    (cluster.path / "go").touch()
    until("it was rotated", lambda: cluster.port.read_log("talks", 0, 10).identity != first.identity)
    cluster.wait("talks", JobState.COMPLETED)
    chunk = cluster.port.read_log("talks", 10**9)
    assert len(chunk.data) <= 100_000 + (1 << 18), "at most one piece of output more than its limit"
    assert chunk.next_offset == len(chunk.data)


FLOOD = """
    import os, time
    print("first", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    for i in range(300):
        print("x" * 1000, flush=True)
"""
