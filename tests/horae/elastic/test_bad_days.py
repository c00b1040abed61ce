"""Bad days of a job, with real processes: nothing is lost, nothing is left, nothing is said that is not so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic.stores import checkpoints
from horae.elastic.stores.store import FolderStore
from tests.horae.elastic.exec_job import FORKS_AWAY, ExecJob, counter, gone, until

Make = Callable[..., ExecJob]
FULL_DISK = Path(__file__).with_name("full_disk.py")


# --- processes --------------------------------------------------------------------------------------------


def test_a_rank_that_forks_away_is_found_and_killed(exec_job: Make) -> None:
    job = exec_job(FORKS_AWAY.format(then="time.sleep(0.2)"))
    job.start(gpus=2)
    job.until_log("away", times=2)
    everything = job.processes()
    assert job.wait() == 0
    assert all(gone(pid) for pid in everything)
    assert "killed 2 processes" in job.log


def test_nothing_outlives_a_supervisor_that_is_killed(exec_job: Make) -> None:
    job = exec_job(FORKS_AWAY.format(then="time.sleep(600)"))
    job.start(gpus=2)
    job.until_log("away", times=2)
    everything = job.processes()
    assert len(everything) == 6  # keeper, supervisor, two ranks, two that forked away
    job.signal_supervisor(signal.SIGKILL)
    assert job.wait() == 137
    assert all(gone(pid) for pid in everything)
    assert not job.folder.lives()
    assert job.state["state"] == "lost"  # its keeper says so


def test_nothing_outlives_a_keeper_that_is_killed(exec_job: Make) -> None:
    job = exec_job(FORKS_AWAY.format(then="time.sleep(600)"))
    job.start(gpus=2)
    job.until_log("away", times=2)
    everything = job.processes()
    assert job.process is not None
    os.kill(job.process.pid, signal.SIGKILL)
    until("all are gone", lambda: all(gone(pid) for pid in everything))
    assert not job.folder.lives()


def test_one_dead_rank_ends_the_others_at_once(exec_job: Make) -> None:
    job = exec_job(counter(before="print('pid', training.rank, os.getpid(), flush=True)"))
    job.start(gpus=3)
    job.until_log("step=8/")
    job.until_log("pid 2 ")
    pid = next(int(line.split()[-1]) for line in job.log.splitlines() if "pid 2 " in line)
    os.kill(pid, signal.SIGKILL)
    assert job.wait() == 137
    assert job.state["state"] == "failed"
    job.start(gpus=2)  # and what it had is there
    job.until_log("start step=", times=2)
    resumed = [int(line.split("step=")[1].split()[0]) for line in job.log.splitlines() if "start step=" in line]
    assert resumed[-1] >= 5


# --- output -----------------------------------------------------------------------------------------------

FLOOD = """
    import os, time
    piece = b"x" * (1 << 20)
    while not os.path.exists("go"):
        time.sleep(0.01)
    for _ in range({megabytes}):
        os.write(1, piece)
"""


def peak_memory(pid: int) -> int:
    """Bytes of memory the process had at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def flood(job: ExecJob, gpus: int) -> tuple[int, int]:
    """(bytes that the supervisor grew by at most, bytes of log that were kept) of a job that ends well."""
    job.start(gpus=gpus)
    job.until_state("running")
    before = peak_memory(job.supervisor)
    peak = before
    (job.path / "go").touch()
    assert job.process is not None
    while job.process.poll() is None:
        try:
            peak = max(peak, peak_memory(job.supervisor))
        except (FileNotFoundError, ProcessLookupError, AssertionError):
            break
        time.sleep(0.01)
    assert job.wait() == 0
    return peak - before, sum(path.stat().st_size for path in job.path.glob("output.log*"))


@pytest.mark.parametrize("gpus", [1, 2])
def test_endless_output_without_a_newline_costs_no_memory(exec_job: Make, gpus: int) -> None:
    """The spool keeps this generation and the one before it, each of at most 4 MB here."""
    job = exec_job(FLOOD.format(megabytes=48), extra={"log_limit_bytes": str(4 << 20)})
    grown, kept = flood(job, gpus)
    assert grown < 16 << 20
    assert 1 << 20 <= kept <= 9 << 20


@pytest.mark.soak
def test_a_gigabyte_without_a_newline(exec_job: Make) -> None:
    job = exec_job(FLOOD.format(megabytes=1024), extra={"log_limit_bytes": str(4 << 20)})
    grown, kept = flood(job, 1)
    assert grown < 16 << 20
    assert 1 << 20 <= kept <= 9 << 20


# --- full disks -------------------------------------------------------------------------------------------


def wait_at(*steps: int) -> str:
    """In these steps the trainer waits until there is a file `goSTEP`."""
    return f"while step.number in {(*steps, -1)} and not os.path.exists('go%d' % step.number): time.sleep(0.01)"


def test_a_full_disk_under_the_log_stops_nothing(exec_job: Make, tmp_path: Path) -> None:
    full = tmp_path / "full"
    job = exec_job(counter(every=None, body="open('steps', 'a').write('x')"))
    job.start(through=(str(FULL_DISK), str(full), str(job.path)))
    job.until_log("step=3/")
    full.touch()
    begun = (job.path / "steps").stat().st_size
    until("it trains on", lambda: (job.path / "steps").stat().st_size > begun + 20)
    full.unlink()
    job.until_log("bytes of output were dropped: No space left on device")
    job.stop()
    assert job.wait() == 86
    assert job.state["dropped_bytes"] > 0


def test_a_job_whose_log_never_gets_room_completes_all_the_same(exec_job: Make, tmp_path: Path) -> None:
    full = tmp_path / "full"
    job = exec_job(counter(steps=60, every=None, body=wait_at(3)))
    job.start(through=(str(FULL_DISK), str(full), str(job.path)))
    job.until_log("step=3/")
    full.touch()
    (job.path / "go3").touch()
    until("its end", lambda: job.state.get("state") == "completed")
    assert job.wait() == 0
    assert "done 60" not in job.log


def test_the_end_is_written_down_on_a_full_disk_from_the_reserve(exec_job: Make, tmp_path: Path) -> None:
    full = tmp_path / "full"
    job = exec_job(counter(every=None))
    job.start(through=(str(FULL_DISK), str(full), str(job.path)))
    job.until_log("step=3/")
    full.touch()
    job.folder.request_stop(1, 20.0)
    job.signal_supervisor(signal.SIGUSR1)
    assert job.wait() == 86
    assert (job.state["state"], job.state["exit_code"]) == ("stopped", 86)
    assert not list(job.path.glob(".state.reserve*"))


def test_without_any_room_the_supervisor_waits_and_claims_nothing(exec_job: Make, tmp_path: Path) -> None:
    full = tmp_path / "full"
    job = exec_job(counter(steps=1_000_000, every=None))
    job.start(through=(str(FULL_DISK), str(full), str(job.path)))
    job.until_log("step=3/")
    for reserve in job.path.glob(".state.reserve*"):
        reserve.unlink()
    full.touch()
    job.folder.request_stop(1, 20.0)
    job.signal_supervisor(signal.SIGUSR1)
    pids = job.processes()
    ranks = pids - {job.supervisor, job.process.pid if job.process else 0}
    until("the trainer is gone", lambda: all(gone(pid) for pid in ranks))
    time.sleep(0.3)
    assert job.folder.lives()  # still holding on: the end is not yet on the disk
    assert job.state["state"] in ("running", "stopping")
    full.unlink()
    assert job.wait() == 86
    assert job.state["state"] == "stopped"


def on_full_disk(job: ExecJob, full: Path, **options: Any) -> None:
    """Make the job's trainer one whose own writes fail below its checkpoints while `full` exists."""
    before = (
        f"sys.path.insert(0, {str(FULL_DISK.parent)!r}); import full_disk; "
        f"full_disk.install({str(full)!r}, {str(job.checkpoints)!r})"
    )
    source = textwrap.dedent(counter(before=before, **options))
    plain = """with open(os.path.join(folder, "count"), "w") as file:
        file.write(str(count[0]))"""
    assert plain in source
    raw = """fd = os.open(os.path.join(folder, "count"), os.O_CREAT | os.O_WRONLY)
    try:
        os.write(fd, str(count[0]).encode())
    finally:
        os.close(fd)"""
    (job.path / "trainer.py").write_text(source.replace(plain, raw))


def test_a_full_disk_under_periodic_checkpoints_costs_only_those(exec_job: Make, tmp_path: Path) -> None:
    full = tmp_path / "full"
    job = exec_job("")
    on_full_disk(job, full, steps=60, every=10, body=wait_at(12, 32))
    job.start()
    job.until_log("step=12/")
    full.touch()
    (job.path / "go12").touch()
    job.until_log("could not be written, training goes on")
    job.until_log("step=32/")
    assert len(list(job.checkpoints.glob("step-*"))) == 1
    full.unlink()
    (job.path / "go32").touch()
    assert job.wait() == 0
    assert not list(job.checkpoints.glob(".tmp-*"))
    assert job.state["checkpoint"]["step"] == 60


def test_a_full_disk_at_the_last_checkpoint_is_told_and_the_older_one_is_kept(exec_job: Make, tmp_path: Path) -> None:
    full = tmp_path / "full"
    job = exec_job("", retries=1)
    on_full_disk(job, full, every=10)
    job.start(gpus=2)
    job.until_log("step=12/")
    until("a checkpoint", lambda: list(job.checkpoints.glob("step-*")))
    full.touch()
    job.stop()
    job.wait()
    state = job.state
    assert (state["state"], state["exit_code"], state["failures"]) == ("stopped", 74, 1)
    full.unlink()
    job.start(gpus=1)
    job.until_log("start step=", times=2)
    assert f"start step={state['checkpoint']['step']} " in job.log
    assert state["checkpoint"]["step"] >= 10


@pytest.mark.root  # mounts a small filesystem; everybody else has the tests above
def test_on_a_real_full_filesystem(tmp_path: Path) -> None:
    """The same on a small tmpfs: log, state and checkpoints share a disk that the job's own output fills."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=False).returncode:
        pytest.skip("this root may not mount")
    printed = tmp_path / "printed"
    printed.touch()
    body = f"print('x' * 20000, flush=True); open({str(printed)!r}, 'a').write('x')"
    job = ExecJob(disk / "job", counter(every=10, body=body), retries=1)
    try:
        job.start()
        until("the disk is full", lambda: os.statvfs(disk).f_bavail == 0)
        enough = printed.stat().st_size + 20  # more than the pipe holds: some came when it was full
        until("more came", lambda: printed.stat().st_size > enough)
        job.signal_supervisor(signal.SIGUSR1)  # a stop file cannot be written any more
        job.wait()
        assert job.state["state"] == "stopped"
        assert job.state["dropped_bytes"] > 0
        assert job.state["exit_code"] in (74, 86)
    finally:
        job.end()
        subprocess.run(["umount", "-l", str(disk)], check=True)


# --- damaged checkpoints ----------------------------------------------------------------------------------


@pytest.fixture
def stopped(exec_job: Make) -> Iterator[ExecJob]:
    """A job with two complete checkpoints, which then goes on when it is started again."""
    job = exec_job(counter(every=10, keep=3))
    job.start()
    job.until_log("step=12/")
    job.stop()
    assert job.wait() == 86
    yield job


def newest(job: ExecJob) -> list[checkpoints.Mark]:
    return checkpoints.marks(FolderStore(str(job.checkpoints)))


def resumed_at(job: ExecJob) -> int:
    job.start()
    job.until_log("start step=", times=2)
    return [int(line.split("step=")[1].split()[0]) for line in job.log.splitlines() if "start step=" in line][-1]


@pytest.mark.parametrize("damage", ["flip", "truncate", "missing", "manifest", "no-manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_named(stopped: ExecJob, damage: str) -> None:
    last, before = newest(stopped)[:2]
    entry = stopped.checkpoints / last.name
    if damage == "flip":
        (entry / "count").write_text("9" * len((entry / "count").read_text()))
    elif damage == "truncate":
        (entry / "count").write_text("")
    elif damage == "missing":
        (entry / "count").unlink()
    elif damage == "manifest":
        account = json.loads((entry / "horae.json").read_text())
        account["step"] += 1000
        (entry / "horae.json").write_text(json.dumps(account))
    else:
        (entry / "horae.json").unlink()
    assert resumed_at(stopped) == before.step
    assert f"checkpoint passed over: {last.name}" in stopped.log


def test_half_a_checkpoint_is_removed_and_never_loaded(stopped: ExecJob) -> None:
    last = newest(stopped)[0]
    half = stopped.checkpoints / ".tmp-step-000000009999.epoch-00000001.1.ab"
    half.mkdir()
    (half / "count").write_text("9999")
    assert resumed_at(stopped) == last.step
    assert not half.exists()
    assert "removed 1 half-written checkpoint" in stopped.log


def test_without_any_complete_checkpoint_it_starts_over_and_says_so(stopped: ExecJob) -> None:
    for mark in newest(stopped):
        (stopped.checkpoints / mark.name / "horae.json").unlink()
    assert resumed_at(stopped) == 0
    assert "no complete checkpoint is left: starting from the beginning" in stopped.log


def test_killed_at_any_moment_a_trainer_leaves_only_whole_checkpoints(exec_job: Make) -> None:
    """Checkpoints at every step, killed without warning again and again: each start continues from a whole one."""
    job = exec_job(counter(every=1, step_s=0.001, keep=2), retries=0)
    last = -1
    for _ in range(6):
        job.start()
        job.until_log("start step=", times=job.folder.epoch())
        starts = [int(line.split("step=")[1].split()[0]) for line in job.log.splitlines() if "start step=" in line]
        assert starts[-1] >= last
        assert "passed over" not in job.log
        goal = starts[-1] + 5
        until("some steps", lambda goal=goal: f"step={goal}/" in job.log)
        marks = newest(job)
        last = marks[0].step if marks else -1
        job.signal_supervisor(signal.SIGKILL)
        job.wait()


# --- the fence --------------------------------------------------------------------------------------------


def test_a_rank_of_an_older_epoch_leaves_without_writing(exec_job: Make) -> None:
    """A node that was lost goes on computing; the fence moves; what it does from then on is thrown away."""
    job = exec_job(counter(every=None))
    job.start()
    job.until_log("step=5/")
    job.folder.write_epoch(2)
    assert job.wait() == 87
    assert "a newer start of this job exists" in job.log
    assert newest(job) == []
    assert job.state["state"] == "running", "the older start's supervisor may not speak for the newer one"


def test_the_fence_is_read_right_before_a_checkpoint_takes_its_name(exec_job: Make) -> None:
    slow = """
    import horae.elastic.stores.checkpoints as inner
    whole = inner.checksum
    def checksum(path):
        print("writing", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
        return whole(path)
    inner.checksum = checksum
    """.strip()
    job = exec_job(counter(every=3, step_s=0.001, before=slow))
    job.start()
    job.until_log("writing")
    job.folder.write_epoch(2)  # while the checkpoint is being written
    (job.path / "go").touch()
    assert job.wait() == 87
    assert newest(job) == []
