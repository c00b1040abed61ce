"""`horae-exec` in a batch job: a small srun and scontrol stand at the process boundary."""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic.files import write_atomic
from horae.elastic.supervisor.jobfolder import JobFolder
from horae.elastic.supervisor.processes import kill_marked
from slurm_plugin.on_node import batch as on_node
from slurm_plugin.on_node.task import leave_note
from tests.horae.elastic.exec_job import ELASTIC, ROOT, counter, until

#: Starts the tasks as slurmstepd does: own words for each, its group signalled, all killed at the first bad exit.
SRUN = """\
#!{python}
import os, signal, sys
words = sys.argv[1:]
assert not any(name in os.environ for name in ("SLURM_NTASKS", "SLURM_GPUS", "SLURM_CPUS_PER_TASK")), "stale words"
step = int(open("step").read()) if os.path.exists("step") else 0
open("step", "w").write(str(step + 1))
if os.environ.get("SLURM_EXPORT_ENV") == "NONE" and "--export=ALL" not in words:
    for name in [each for each in os.environ if each.startswith(("HORAE_", "MASTER_"))]:
        del os.environ[name]
os.environ["SLURM_STEP_ID"] = str(step)
if words[-2:] == ["-c", "echo $SLURM_STEP_ID"]:
    os.execvp("sh", words[-3:])
assert "--kill-on-bad-exit=1" in words and "--overcommit" in words
refused = int(open("refused").read()) if os.path.exists("refused") else 0
if refused:
    open("refused", "w").write(str(refused - 1))
    sys.exit("srun: error: Unable to create step for job 4711: Invalid generic resource (gres) specification")
nodes, tasks = int(words[words.index("-N") + 1]), int(words[words.index("-n") + 1])
command = words[words.index("--unbuffered") + 1 :]
if command[0] == "--label":
    command = command[1:]
pids = {{}}
for rank in range(tasks):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        env = dict(os.environ, SLURM_PROCID=str(rank), SLURM_NTASKS=str(tasks), SLURM_STEP_NUM_NODES=str(nodes),
                   SLURM_LOCALID=str(rank % (tasks // nodes)))
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        os.execvpe(command[0], command, env)
    pids[pid] = rank
def send(pid, number):
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass  # it ended at this very moment
def forward(number, frame):
    for pid in list(pids):
        send(pid, number)
signal.signal(signal.SIGUSR1, forward)
signal.signal(signal.SIGTERM, forward)
worst = 0
while pids:
    pid, status = os.wait()
    del pids[pid]
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    worst = max(worst, code)
    if code:
        for other in pids:
            send(other, signal.SIGKILL)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)  # Python restores the default actions on its way out; srun dies of neither
sys.exit(worst)
"""

STAY = {"epoch": 1, "grace_s": 20, "stay": True}


class Batch:
    """One batch job; each `launch` is one restart of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path
        tools = tmp_path / "bin"
        tools.mkdir()
        for name, text in (
            ("srun", SRUN.format(python=sys.executable)),
            ("scontrol", "#!/bin/sh\necho localhost\n"),
        ):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755 | stat.S_IXUSR)
        self.spool = tmp_path / "spool"
        self.nonce = f"abc-{secrets.token_hex(6)}"  # what bears it is killed at the end: no other test may
        self.folder = JobFolder(str(self.spool / "jobs" / f"4711.{self.nonce}"))
        self.process: subprocess.Popen[str] | None = None

    def say_of_stop(self, request: dict[str, Any]) -> None:
        """As the arbiter does: nobody reads half of it."""
        write_atomic(self.folder.file("stop"), json.dumps(request).encode(), sync=False)

    def launch(
        self,
        source: str,
        *,
        nodes: int = 2,
        gpus: int = 1,
        restarts: int = 0,
        program: Path = ELASTIC,
        retries: int = 0,
        **env: str,
    ) -> None:
        (self.path / "train.py").write_text(textwrap.dedent(source))
        (self.path / "step").unlink(missing_ok=True)  # Slurm counts from 0 again
        words = {
            "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.path),
            "HORAE_SPOOL": str(self.spool),
            "HORAE_NONCE": self.nonce,
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_GPUS_ON_NODE": str(gpus),
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_NTASKS": "64",
            "SLURM_GPUS": "9",
            "SLURM_CPUS_PER_TASK": "3",
            **env,
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(program),
                "--checkpoint",
                "ckpt",
                f"--retries={retries}",
                "--",
                sys.executable,
                str(self.path / "train.py"),
            ],
            env=words,
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def log(self) -> str:
        path = Path(self.folder.path) / "output.log"
        return path.read_text() if path.exists() else ""

    def end(self) -> tuple[int, str]:
        assert self.process is not None
        out = self.process.communicate(timeout=300)[0]
        return self.process.returncode, out


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Batch]:
    made = Batch(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()
    kill_marked("HORAE_NONCE", made.nonce)


def test_usr1_becomes_a_checkpoint_and_86(batch: Batch) -> None:
    batch.launch(counter())
    until("progress", lambda: "step=8/" in batch.log)
    assert batch.process is not None
    batch.process.send_signal(signal.SIGUSR1)  # what `scancel -b -s USR1` does to `exec horae-exec`
    code, out = batch.end()
    assert code == 86
    state = batch.folder.state()
    assert state is not None
    assert (state["state"], state["epoch"], state["checkpoint"]["epoch"]) == ("stopped", 1, 1)
    assert "step=8/" in out, "the batch job's own output has it too"


def test_the_next_restart_goes_on_in_another_shape(batch: Batch) -> None:
    batch.launch(counter(steps=40))
    until("progress", lambda: "step=8/" in batch.log)
    assert batch.process is not None
    batch.process.send_signal(signal.SIGTERM)  # Slurm's own preemption
    assert batch.end()[0] == 86
    batch.launch(counter(steps=40), nodes=1, gpus=3, restarts=1)
    assert batch.end()[0] == 0
    assert "world=3 epoch=2" in batch.log
    assert "done 40" in batch.log


def test_ranks_of_a_job_that_was_submitted_with_no_environment_have_what_they_need(batch: Batch) -> None:
    """`sbatch --export=NONE`, as some sites would have it: srun then passes nothing on either."""
    batch.launch(counter(steps=6), SLURM_EXPORT_ENV="NONE")
    code, out = batch.end()
    assert (code, "done 6" in batch.log) == (0, True), out


def test_a_failing_task_ends_the_job_with_its_own_code(batch: Batch) -> None:
    batch.launch(counter(body="if training.rank == 1 and step.number == 5: os._exit(9)"))
    assert batch.end()[0] == 9
    state = batch.folder.state()
    assert state is not None
    assert state["state"] == "failed"


#: A rank that fails with 9 the first time, and `then` the second.
FAILS = (
    'if training.rank == 1 and step.number == 5 and not os.path.exists("failed"): open("failed", "w"); os._exit(9)\n'
    "        if training.rank == 1 and step.number == 7: {then}"
)


def test_a_job_that_was_run_again_in_place_is_asked_to_leave_and_has_not_completed(batch: Batch) -> None:
    """Its tasks say why each gang ended in one place; what the one before said must not stand in the way."""
    batch.launch(counter(body=FAILS.format(then="pass")), retries=1)
    until("the second try goes on", lambda: "again in" in batch.log and "step=8/" in batch.log)
    assert batch.process is not None
    batch.process.send_signal(signal.SIGUSR1)
    assert batch.end()[0] == 86
    state = batch.folder.state()
    assert state is not None
    assert (state["state"], state["failures"]) == ("stopped", 1)


def test_each_failure_has_its_own_code(batch: Batch) -> None:
    batch.launch(counter(body=FAILS.format(then="os._exit(5)")), retries=1)
    assert batch.end()[0] == 5
    assert "exit code 9" in batch.log


def test_a_step_that_slurm_refuses_is_tried_again_and_is_no_failure_of_the_program(batch: Batch) -> None:
    """Seen on a real 22.05 whose slurmctld had been started anew; nothing of the user's had run."""
    (batch.path / "refused").write_text("2")
    batch.launch(counter(steps=5))
    code, out = batch.end()
    assert code == 0
    assert out.count("failed with exit code 1 before any of its ranks began, again in") == 2
    state = batch.folder.state()
    assert state is not None
    assert (state["state"], state["failures"]) == ("completed", 0)


def test_where_slurm_always_refuses_a_step_the_job_waits_for_another_start_and_then_fails(batch: Batch) -> None:
    """A real 22.05 gave a job none of its GPUs, for as long as it had that node."""
    (batch.path / "refused").write_text("100")
    batch.launch(counter(steps=5))
    code, out = batch.end()
    assert code == 86
    assert out.count("Unable to create step") == 4
    assert "none of its ranks can begin in this start, it waits for another" in out
    state = batch.folder.state()
    assert state is not None
    assert (state["state"], state["failures"]) == ("stopped", 1)
    batch.launch(counter(steps=5), restarts=1)
    code, out = batch.end()
    assert code == 1
    assert out.count("Unable to create step") == 4
    state = batch.folder.state()
    assert state is not None
    assert (state["state"], state["native"]) == ("failed", "failed with exit code 1")


def test_after_a_start_in_which_no_step_could_begin_it_runs_in_the_next(batch: Batch) -> None:
    (batch.path / "refused").write_text("4")
    batch.launch(counter(steps=5))
    assert batch.end()[0] == 86
    batch.launch(counter(steps=5), restarts=1)
    assert batch.end()[0] == 0


def test_a_program_that_began_is_run_once_however_it_fails(batch: Batch) -> None:
    """Also where the number of its step cannot be written down."""
    (Path(batch.folder.path) / "slurm.step").mkdir(parents=True)
    batch.launch("import sys; print('ran'); sys.exit(1)", nodes=1)
    code, out = batch.end()
    assert code == 1
    assert out.count("ran") == 1


def test_the_arbiters_epoch_is_used_for_the_restart_it_was_given_for(batch: Batch, tmp_path: Path) -> None:
    folder = Path(batch.folder.path)
    folder.mkdir(parents=True)
    (folder / "epoch").write_text("17\n")
    (folder / "slurm.json").write_text(json.dumps({"epoch": 17, "restarts": 3}))
    batch.launch(counter(steps=5), restarts=3)
    assert batch.end()[0] == 0
    assert "world=2 epoch=17" in batch.log


@pytest.mark.parametrize(("restarts", "code"), [(3, 0), (4, 86)])
def test_a_restart_that_nobody_granted_leaves_before_it_does_anything(batch: Batch, restarts: int, code: int) -> None:
    folder = Path(batch.folder.path)
    folder.mkdir(parents=True)
    (folder / "epoch").write_text("17\n")
    (folder / "slurm.json").write_text(json.dumps({"epoch": 17, "restarts": 3, "fenced": True}))
    batch.launch(counter(steps=5), restarts=restarts)
    assert batch.end()[0] == code
    assert (batch.folder.state() is None) == (code == 86), "nothing was said, and no trainer was begun"


def test_a_run_that_is_older_than_the_fence_writes_nothing(batch: Batch) -> None:
    folder = Path(batch.folder.path)
    folder.mkdir(parents=True)
    (folder / "epoch").write_text("17\n")
    (folder / "slurm.json").write_text(json.dumps({"epoch": 17, "restarts": 3}))
    batch.launch(counter(), restarts=2)
    assert batch.end()[0] not in (0, 86)
    assert not list((batch.path / "ckpt").glob("step-*"))
    assert batch.folder.state() is None, "an older run's supervisor may not speak for the newer one"


def test_an_older_run_that_still_holds_the_lock_does_not_stop_the_new_one(batch: Batch) -> None:
    Path(batch.folder.path).mkdir(parents=True)
    lock = batch.folder.take_lock()
    assert lock is not None
    batch.launch(counter(steps=5), restarts=1)
    code, out = batch.end()
    os.close(lock)
    assert code == 0
    assert "an older run of this job still holds its lock" in out


def test_what_an_older_run_may_still_have_ended_is_no_step_of_the_new_one(batch: Batch) -> None:
    """Its srun, on a node that hung and wakes up, has its step ended by its number."""
    used = []
    for restarts, lost in enumerate((True, False, True, True, False)):
        batch.launch(counter(steps=10**6 if lost else 5), restarts=restarts)
        until("it trains", lambda: "world=2" in batch.log)
        assert batch.process is not None
        if lost:
            kill_marked("HORAE_NONCE", batch.nonce)  # none of it says how it ended
        out = batch.end()[1]
        assert lost or "done " in out, "on a busy host an older run came further"
        used.append((Path(batch.folder.path) / "slurm.step").read_text())
        (Path(batch.folder.path) / "output.log").unlink()
    assert used == ["0", "1", "1", "2", "3"]


def test_steps_are_passed_over_as_long_as_that_helps(tmp_path: Path) -> None:
    for avoided, numbers, left in (
        ([], [7], [7]), ([0], [0, 1], [1]), ([1, 2], [0, 1, 2, 3], [3]), ([4], [0, 1], [1]), ([1], [None, 0], [0]),
    ):  # fmt: skip
        on_node.pass_over(avoided, lambda numbers=numbers: numbers.pop(0))  # type: ignore[misc]
        assert numbers == left
    folder = JobFolder(str(tmp_path))
    (tmp_path / "slurm.avoided").write_text("0 not-a-number 99999999999 5")
    assert on_node.left_steps(folder) == [0, 5]


def test_without_an_arbiter_the_folder_is_in_the_users_home(batch: Batch) -> None:
    batch.launch(counter(steps=5), HORAE_SPOOL="", SLURM_CLUSTER_NAME="lab")
    assert batch.end()[0] == 0
    assert (batch.path / ".horae" / "jobs" / "lab-4711" / "state.json").exists()


def test_array_tasks_have_folders_of_their_own() -> None:
    env = {
        "SLURM_JOB_ID": "12",
        "SLURM_ARRAY_JOB_ID": "10",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NODELIST": "n1",
        "HORAE_SPOOL": "/spool",
        "HORAE_NONCE": "xyz",
    }
    assert on_node.job_folder(env, on_node.Shape(env)) == "/spool/jobs/10_2.xyz"


def test_outside_a_batch_job_the_missing_word_is_named() -> None:
    with pytest.raises(ValueError, match="SLURM_JOB_NUM_NODES is not set"):
        on_node.Shape({"SLURM_JOB_ID": "1"})


def stays(batch: Batch) -> subprocess.Popen[str]:
    """A job that was asked to stay after its checkpoint, and has checkpointed."""
    batch.launch(counter())
    until("progress", lambda: "step=8/" in batch.log)
    batch.say_of_stop(STAY)
    over = {"stopped", "failed", "completed"}
    until("its account", lambda: (batch.folder.state() or {}).get("state") in over)
    assert (batch.folder.state() or {})["state"] == "stopped", batch.log
    assert batch.process is not None
    assert batch.process.poll() is None, "it ended, and Slurm would count that as a failure"
    return batch.process


def test_asked_to_stay_it_checkpoints_and_waits_for_the_requeue(batch: Batch) -> None:
    process = stays(batch)
    assert (batch.folder.state() or {})["exit_code"] == 86
    process.send_signal(signal.SIGUSR1)  # the arbiter's repetition, which came late
    process.send_signal(signal.SIGTERM)  # what a requeue sends
    assert batch.end()[0] == 86


def test_a_dismissal_between_the_end_and_the_waiting_counts(batch: Batch) -> None:
    """Slurm's TERM comes as soon as the end is told: here while it is being written down, before `stay` listens."""
    hasty = batch.path / "hasty.py"
    hasty.write_text(
        "import os, signal, sys\n"
        "from horae.elastic.supervisor import command; from horae.elastic.supervisor import supervisor\n"
        "account = supervisor.Supervisor._account\n"
        "def told(self, state, only_news=False):\n"
        "    done = account(self, state, only_news)\n"
        "    if state == 'stopped':\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return done\n"
        "supervisor.Supervisor._account = told\n"
        "raise SystemExit(command.main(sys.argv[1:]))\n"
    )
    batch.launch(counter(), program=hasty)
    until("progress", lambda: "step=8/" in batch.log)
    batch.say_of_stop(STAY)
    assert batch.end()[0] == 86


def test_a_job_that_stays_gives_way_to_a_newer_start_of_itself(batch: Batch) -> None:
    stays(batch)
    batch.folder.write_epoch(2)
    assert batch.end()[0] == 86


def test_asked_to_leave_and_then_to_stay_it_goes_on_from_its_checkpoint(batch: Batch) -> None:
    """An administrator said meanwhile that Slurm may not start it again: 86 would be its end."""
    batch.launch(counter(steps=400))
    until("progress", lambda: "step=8/" in batch.log)
    batch.say_of_stop(STAY)
    until("its account", lambda: (batch.folder.state() or {}).get("state") == "stopped")
    batch.say_of_stop({"epoch": 0, "withdrawn": 1})
    until("it goes on", lambda: (batch.folder.state() or {}).get("state") == "running")
    assert batch.process is not None
    assert "its trainer goes on from the checkpoint" in batch.log
    begun = batch.log.count("step=")
    until("progress", lambda: batch.log.count("step=") > begun + 3)
    batch.process.send_signal(signal.SIGTERM)
    assert batch.end()[0] == 86


def test_a_task_that_cannot_say_that_it_stopped_never_looks_as_if_it_had_completed(tmp_path: Path) -> None:
    """On a full disk, or in a folder that is closed for a while, the note is tried again; else its exit code tells."""
    folder = tmp_path / "job"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HORAE_JOB_DIR": str(folder), "HORAE_EPOCH": "3",
        "MASTER_ADDR": "localhost", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0",
    }  # fmt: skip
    words = [sys.executable, "-m", "horae.elastic", "--slurm-task", "--", "sh", "-c", "exit 86"]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as task:
        assert task.stderr is not None
        assert "cannot note" in task.stderr.readline()
        folder.mkdir()
        assert task.wait(60) == 0
    assert on_node.translate(JobFolder(str(folder)), 3, 0) == 86
    assert not leave_note(str(tmp_path / "nowhere/note"), 86, patience_s=0.0)


def test_the_ranks_of_each_start_have_a_secret_that_no_command_line_shows() -> None:
    words = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    told = set()
    for _ in range(2):
        (step,) = on_node.members(["x"], {}, "/", on_node.Shape(words), ["n1", "n2"])
        secret = step.env["HORAE_SECRET"]
        assert secret and not any(secret in word for word in step.argv)
        told.add(secret)
    assert len(told) == 2


def test_a_job_to_which_the_arbiter_gave_no_folder_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was handed back before its first start, or nodes do not see the spool: its user may make nothing there."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    spool = tmp_path / "spool"
    words = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_CLUSTER_NAME": "c"}
    env = {**words, "HORAE_SPOOL": str(spool), "HORAE_NONCE": "abc"}
    shape = on_node.Shape(words)
    make = os.makedirs

    def refused(path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        if not Path(path).is_dir():
            raise PermissionError(13, "Permission denied", path)
        make(path, mode, exist_ok)

    with monkeypatch.context() as patch:
        patch.setattr(os, "makedirs", refused)
        assert on_node.job_folder(env, shape) == str(tmp_path / "home/.horae/jobs/c-7.abc")
        (spool / "jobs/7.abc").mkdir(parents=True)
        assert on_node.job_folder(env, shape) == str(spool / "jobs/7.abc"), "the arbiter's, who made it one"
    assert on_node.job_folder(words, shape) == str(tmp_path / "home/.horae/jobs/c-7")
