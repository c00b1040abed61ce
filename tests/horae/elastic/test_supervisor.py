"""The supervisor with real processes: how jobs end, and what is written down about it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from horae.elastic.protocol import EXIT_NO_CHECKPOINT, NO_FOLDER
from horae.elastic.stores import checkpoints, marks
from horae.elastic.stores.store import FolderStore
from horae.elastic.supervisor import gang
from tests.horae.elastic.exec_job import ExecJob, counter, gone, until

Make = Callable[..., ExecJob]


def test_every_rank_is_told_its_place(exec_job: Make) -> None:
    job = exec_job(
        """
        import json, os
        names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR CUDA_VISIBLE_DEVICES HORAE_JOB HORAE_EPOCH"
        print("env", json.dumps([os.environ[name] for name in names.split()]), flush=True)
        assert os.environ["MASTER_PORT"].isdigit() and os.environ["HORAE_NODES"] == '{"n1": 2}'
        for name in ("HORAE_STOP_FILE", "HORAE_FENCE_FILE", "HORAE_JOB_DIR", "HORAE_CHECKPOINT"):
            assert os.environ[name].startswith("/"), name
        """
    )
    job.start(gpus=2)
    assert job.wait() == 0
    said = sorted(line for line in job.log.splitlines() if " env " in line)
    assert said == [
        f'{rank}: env ["{rank}", "2", "{rank}", "2", "127.0.0.1", "0,1", "job", "1"]' for rank in ("0", "1")
    ]


def test_one_rank_alone_is_not_labelled(exec_job: Make) -> None:
    job = exec_job("print('plain', flush=True)")
    job.start()
    assert job.wait() == 0
    assert job.log.splitlines()[1:] == ["plain"]


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (7, "failed"), (1, "failed")])
def test_exit_codes_are_the_trainers_own(exec_job: Make, code: int, state: str) -> None:
    job = exec_job(f"raise SystemExit({code})")
    job.start(gpus=2)
    assert job.wait() == code
    assert (job.state["state"], job.state["exit_code"], job.state["allocation"]) == (state, code, {})


def test_a_rank_killed_by_a_signal_ends_the_gang_with_128_and_the_signal(exec_job: Make) -> None:
    job = exec_job(
        """
        import os, signal, time
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(600)
        """
    )
    job.start(gpus=3)
    assert job.wait() == 128 + signal.SIGSEGV
    assert job.state["native"] == "killed by signal 11"


def test_a_command_that_does_not_exist_fails_with_127_and_says_so(exec_job: Make) -> None:
    job = exec_job("", command=["/no/such/program"])
    job.start()
    assert job.wait() == 127
    assert "cannot run /no/such/program" in job.log


def test_a_working_folder_that_does_not_exist_fails_and_says_so(exec_job: Make) -> None:
    job = exec_job("", cwd="/no/such/folder")
    job.start()
    assert job.wait() == 127
    assert "/no/such/folder" in job.log


@pytest.mark.parametrize("how", ["file", "signal", "term"])
def test_all_ways_of_asking_are_alike(exec_job: Make, how: str) -> None:
    job = exec_job(counter())
    job.start(gpus=2)
    job.until_log("step=8/")
    if how == "file":
        job.folder.request_stop(1, 20.0)
    else:
        job.signal_supervisor(signal.SIGUSR1 if how == "signal" else signal.SIGTERM)
    assert job.wait() == 86
    assert job.state["state"] == "stopped"
    assert job.state["checkpoint"]["step"] >= 8


def test_a_request_to_one_rank_stops_all_at_the_same_step(exec_job: Make) -> None:
    """Two ranks get the signal at different times: they agree, and neither dies of it on the way out."""
    job = exec_job(counter(before="print('pid', os.environ['RANK'], os.getpid(), flush=True)"))
    job.start(gpus=2)
    job.until_log("step=8/")
    job.until_log(": pid ", times=2)
    pids = {int(words[2]): int(words[3]) for words in map(str.split, job.log.splitlines()) if words[1] == "pid"}
    os.kill(pids[1], signal.SIGUSR1)
    for _ in range(40):  # again and again, also while they leave
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.005)
    assert job.wait() == 86
    assert job.state["state"] == "stopped"


def test_86_without_a_checkpoint_is_a_failure(exec_job: Make) -> None:
    job = exec_job("raise SystemExit(86)")
    job.start()
    assert job.wait() == 86
    assert job.state["state"] == "failed"
    assert "no complete checkpoint" in job.state["native"]


def test_a_job_that_keeps_its_own_checkpoints_is_believed(exec_job: Make) -> None:
    job = exec_job("raise SystemExit(86)", extra={"self_checkpointing": "true"}, checkpoint=None)
    job.start()
    assert job.wait() == 86
    assert job.state["state"] == "stopped"


def test_a_trainer_that_only_knows_term_can_say_so(exec_job: Make) -> None:
    job = exec_job(
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("ready", flush=True)
        time.sleep(600)
        """,
        extra={"self_checkpointing": "yes", "stop_signal": "TERM"},
    )
    job.start()
    job.until_log("ready")
    job.stop()
    job.wait()
    assert job.state["state"] == "stopped"


def test_a_gang_that_ignores_everything_is_killed_after_its_grace(exec_job: Make) -> None:
    job = exec_job(counter(before="training.ignore_requests()"))
    job.start(gpus=2)
    job.until_log("step=8/")
    job.stop(grace_s=0.3)
    job.wait()
    assert (job.state["state"], job.state["exit_code"]) == ("stopped", 137)
    assert job.state["checkpoint"]["step"] >= 5
    assert "still there after 0.3 s of grace" in job.log


def test_a_failed_gang_is_run_again_in_place_until_its_retries_are_used_up(exec_job: Make) -> None:
    job = exec_job("print('attempt', flush=True); raise SystemExit(3)", retries=1)
    job.start()
    assert job.wait() == 3
    assert job.log.count("attempt\n") == 2
    assert (job.state["state"], job.state["failures"]) == ("failed", 2)


def test_failures_are_counted_over_all_starts(exec_job: Make) -> None:
    job = exec_job(counter(body="if step.number == 20: sys.exit(3)"), retries=1)
    job.start()
    job.until_log("step=8/")
    job.stop()
    assert job.wait() == 86
    job.start()
    assert job.wait() == 3
    assert job.state["failures"] == 2


def test_a_job_that_cannot_be_resumed_is_not_run_again(exec_job: Make) -> None:
    job = exec_job("print('attempt', flush=True); raise SystemExit(3)", retries=5, checkpoint=None)
    job.start()
    assert job.wait() == 3
    assert job.log.count("attempt\n") == 1


def test_cancel_while_waiting_to_run_again_ends_it(exec_job: Make) -> None:
    job = exec_job("raise SystemExit(3)", retries=9)
    job.start()
    job.until_log("again in 2 s")
    (job.path / "cancel").touch()
    job.signal_supervisor(signal.SIGUSR1)
    job.wait()
    assert job.state["state"] == "cancelled"


def test_a_stop_file_of_an_older_epoch_asks_for_nothing(exec_job: Make) -> None:
    job = exec_job(counter(steps=60))
    job.start()
    job.folder.request_stop(0, 5.0)
    assert job.wait() == 0
    assert job.state["state"] == "completed"


def test_the_time_limit_counts_all_starts_and_ends_the_job(exec_job: Make) -> None:
    job = exec_job(counter(), time_limit_s=3600.0)
    job.start()
    job.until_log("step=8/")
    job.stop()
    assert job.wait() == 86
    ran = job.state["ran_s"]
    assert ran > 0
    job.folder.write_state({**job.state, "ran_s": 3599.5 + ran})  # as after an hour's worth of such starts
    job.start()
    job.wait()
    assert job.state["state"] == "cancelled"
    assert "time limit is used up; its newest checkpoint is kept" in job.state["native"]
    assert job.state["ran_s"] >= 3600.0


def test_state_says_what_is_known_while_the_job_runs(exec_job: Make) -> None:
    job = exec_job(counter())
    job.start(gpus=2)
    job.until_state("running")
    until("the checkpoint shows", lambda: job.state.get("checkpoint"))
    state = job.state
    assert state["allocation"] == {"n1": 2}
    assert state["slots"] == {"n1": [0, 1]}
    assert state["exit_code"] is None
    assert state["checkpoint"]["epoch"] == 1
    assert not gone(state["pid"])


def test_no_process_is_left_after_any_end(exec_job: Make) -> None:
    job = exec_job(
        """
        import os, subprocess, time
        subprocess.Popen(["sleep", "600"])
        print("child made", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.02)
        """
    )
    job.start(gpus=2)
    job.until_log("child made", times=2)
    everything = job.processes()
    assert len(everything) >= 6
    (job.path / "go").touch()
    assert job.wait() == 0
    assert all(gone(pid) for pid in everything)
    assert "killed 2 processes that the trainer left behind" in job.log


def test_a_supervisor_given_rubbish_says_so_and_ends(tmp_path: Path) -> None:
    import subprocess

    from tests.horae.elastic.exec_job import ELASTIC

    (tmp_path / "spec.json").write_text("not json")
    (tmp_path / "state.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ELASTIC), "--job", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64
    assert "spec.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_supervisor_of_one_job_is_refused(exec_job: Make) -> None:
    import subprocess

    from tests.horae.elastic.exec_job import ELASTIC

    job = exec_job(counter())
    job.start()
    job.until_state("running")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ELASTIC), "--job", str(job.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64
    assert "holds its lock" in done.stderr


def test_exit_74_is_what_a_trainer_says_that_could_not_checkpoint(exec_job: Make) -> None:
    job = exec_job(f"raise SystemExit({EXIT_NO_CHECKPOINT})")
    job.start()
    assert job.wait() == EXIT_NO_CHECKPOINT
    assert "could not write its checkpoint" in job.state["native"]


def test_a_request_that_is_there_before_the_first_step_is_obeyed_before_it(exec_job: Make) -> None:
    """A step may take longer than the grace: none is begun."""
    job = exec_job(counter(before="open(os.environ['HORAE_STOP_FILE'], 'w').close()", step_s=5.0))
    job.start(gpus=2)
    assert job.wait() == 86
    assert job.state["checkpoint"]["step"] == 0
    assert " step=1/" not in job.log


SHARDS = """
    import os, sys, time
    from horae import elastic

    def save(folder):
        rank = training.rank
        {trouble}
        with open(os.path.join(folder, "shard-%d" % rank), "w") as file:
            file.write(str(rank))
        time.sleep(0.05 * rank)

    def load(folder):
        print("shards", sorted(os.listdir(folder)), flush=True)

    training = elastic.Training(
        steps={steps}, global_batch=6, save=save, load=load, collective=True, checkpoint_every_steps=3, log_every_s=0.0
    )
    for step in training:
        time.sleep(0.01)
"""


def test_shards_of_all_ranks_become_one_checkpoint(exec_job: Make) -> None:
    job = exec_job(SHARDS.format(steps=10**6, trouble="pass"))
    job.start(gpus=3)
    job.until_log("step=8/")
    job.stop()
    assert job.wait() == 86
    job.start(gpus=2)
    job.until_log("shards ['horae.json', 'shard-0', 'shard-1', 'shard-2']", times=2)


def test_a_shard_that_cannot_be_written_costs_the_checkpoint_and_not_the_run(exec_job: Make) -> None:
    job = exec_job(SHARDS.format(steps=10, trouble="if rank == 1 and training.step < 9: raise OSError(28, 'no room')"))
    job.start(gpus=3)
    assert job.wait() == 0
    assert "could not be written, training goes on: another rank could not write its part" in job.log
    assert [path.name[5:17] for path in job.checkpoints.glob("step-*")].count("000000000010") == 1
    assert not list(job.checkpoints.glob("step-000000000003*"))


class AwayForAWhile(FolderStore):
    """As a remote store whose server does not answer at first."""

    cheap = False
    faults = 0

    def entries(self) -> list[str]:
        if self.faults > 0:
            self.faults -= 1
            raise ConnectionError("the server does not answer")
        return super().entries()


@pytest.mark.parametrize(("faults", "found"), [(0, True), (3, True), (10**6, False)])
def test_a_store_that_is_away_when_a_stopped_gang_ends_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int, found: bool
) -> None:
    """Exit 86 without a checkpoint is a failure: one that cannot be seen for a moment is not none."""
    monkeypatch.setattr(marks, "_LOOK_S", 0.01)
    monkeypatch.setattr(marks, "_PATIENCE_S", 60.0 if found else 0.05)
    store = AwayForAWhile(str(tmp_path / "checkpoints"))
    checkpoints.write(store, 7, 1, {}, lambda folder: None, lambda: None)
    store.faults = faults
    monkeypatch.setattr(marks, "open_store", {"away:": store}.__getitem__)
    said: list[str] = []
    made = marks.Marks("away:", None, said.append)
    made.look_last(86)
    assert (made.newest is not None) == found
    assert bool(said) == bool(faults)


def test_a_working_folder_that_is_not_there_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=NO_FOLDER) as refused:
        gang._enter(str(tmp_path / "none"))
    assert refused.value.filename == str(tmp_path / "none")


def test_a_folder_of_the_path_that_may_not_be_entered_hides_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says "Permission denied" of any one folder; a shell says what is meant: there is no such program."""

    def denied(program: str, *_: object) -> None:
        raise PermissionError(13, "Permission denied", f"/closed/bin/{program}")

    monkeypatch.setattr(os, "execvpe", denied)
    with pytest.raises(FileNotFoundError) as absent:
        gang._execute(["pyhton"], {"PATH": f"/closed/bin:{tmp_path}"})
    assert absent.value.filename == "pyhton"
    (tmp_path / "pyhton").touch(mode=0o600)
    for program in ("pyhton", "/closed/bin/pyhton"):
        with pytest.raises(PermissionError):
            gang._execute([program], {"PATH": str(tmp_path)})
