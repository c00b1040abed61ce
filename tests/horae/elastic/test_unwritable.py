"""A checkpoint folder that cannot be written: tried at each start, told, and no training is done twice for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from horae.elastic.files import unwritable
from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.elastic.stores import marks
from horae.elastic.stores.store import FolderStore
from tests.horae.elastic.exec_job import ExecJob, counter, until

Make = Callable[..., ExecJob]


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    assert unwritable(str(tmp_path / "a" / "b")) == ""
    assert not (tmp_path / "a").exists()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").write_text("mine")
    assert unwritable(str(tmp_path / "kept")) == ""
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["x"]
    (tmp_path / "file").write_text("")
    assert "Not a directory" in unwritable(str(tmp_path / "file" / "ck"))
    assert unwritable("/proc/nope/ck")
    assert not Path("/proc/nope").exists()


def test_it_is_told_before_the_first_step_and_the_work_is_done_once(exec_job: Make) -> None:
    job = exec_job(counter(steps=40, every=10), checkpoint="/proc/nope/ck", retries=3)
    job.start()
    told = until("the account says so", lambda: str(job.state.get("native", "")).startswith(CHECKPOINTS_FAIL))
    assert told
    assert job.wait() == 0, job.log
    assert job.state["state"] == "completed"
    assert job.log.count("start step=0") == 1
    assert "its checkpoint folder cannot be written" in job.log.split("start step=0")[0]
    assert "the final checkpoint could not be written, all steps are done" in job.log


def test_a_relative_folder_of_a_job_that_names_no_other_is_where_it_runs(exec_job: Make) -> None:
    source = "import os; print('at', os.environ['HORAE_CHECKPOINT'])"
    job = exec_job(source, checkpoint="ck", cwd="")
    job.start()
    assert job.wait() == 0, job.log
    assert f"at {job.path}/ck" in job.log and "cannot be written" not in job.log


def test_a_failure_without_any_checkpoint_is_not_run_again_from_the_beginning(exec_job: Make) -> None:
    job = exec_job("raise SystemExit(3)", checkpoint="/proc/nope/ck", retries=3)
    job.start()
    assert job.wait() == 3
    assert job.state["state"] == "failed"
    assert "not run again from the beginning: no checkpoint could be written" in job.state["native"]


def test_a_place_that_nobody_can_look_at_is_told_while_it_runs(exec_job: Make) -> None:
    """Asked to leave it would checkpoint, and be taken for one that did not."""
    job = exec_job("import time; time.sleep(600)", checkpoint="gopher://host/ck")
    job.start()
    why = "no checkpoint store for gopher://"
    job.until_state("running")
    until("it is told", lambda: str(job.state.get("native", "")).startswith(CHECKPOINTS_FAIL + why))
    assert job.state["state"] == "running"


def test_whoever_keeps_checkpoints_alone_is_told_nothing_of_their_place(exec_job: Make) -> None:
    job = exec_job("print('begun')", checkpoint="gopher://host/ck", extra={"self_checkpointing": "true"})
    job.start()
    assert job.wait() == 0
    assert "no checkpoint store" not in job.log


def test_of_a_remote_store_the_trainers_own_words_say_when_the_trouble_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore("/nobody/asks")
    monkeypatch.setattr(store, "cheap", False)
    monkeypatch.setattr(marks, "open_store", {"far:": store}.__getitem__)
    made = marks.Marks("far:", None, print)
    failed = b"[horae] checkpoint at step 20 could not be written, training goes on: no room\n"
    again = b"[horae] checkpoint at step 30 could be written again\n"
    for output, trouble in ((failed, "no room"), (b"step=25/90\n", "no room"), (again, ""), (failed + again, "")):
        made.hear(output)
        assert made.trouble == trouble
    made.hear(again + failed)
    assert (made.trouble, made.news) == ("no room", True)


def test_a_trainer_says_when_its_checkpoints_can_be_written_again(exec_job: Make, tmp_path: Path) -> None:
    place = tmp_path / "ck"
    place.symlink_to(tmp_path / "not" / "there")
    job = exec_job(counter(every=5), checkpoint=str(place))
    job.start()
    job.until_log("could not be written, training goes on")
    place.unlink()
    job.until_log("could be written again")
    job.stop()
    assert job.wait() == 86
    assert job.log.count("could be written again") == 1


def test_a_checkpoint_that_is_written_ends_the_trouble(exec_job: Make, tmp_path: Path) -> None:
    place = tmp_path / "ck"
    place.symlink_to(tmp_path / "not" / "there")
    job = exec_job(counter(every=5), checkpoint=str(place))
    job.start()
    until("the trouble shows", lambda: str(job.state.get("native", "")).startswith(CHECKPOINTS_FAIL))
    place.unlink()
    until("a checkpoint shows", lambda: job.state.get("checkpoint"))
    until("the trouble is over", lambda: not job.state["native"])
    job.stop()
    assert job.wait() == 86
