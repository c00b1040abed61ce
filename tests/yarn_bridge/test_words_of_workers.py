"""What workers, their folders and logs say of a job: heard once, and again until it was read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.elastic.stores import checkpoints
from horae.elastic.stores.store import FolderStore
from horae.port import JobState, TryLater, attend
from tests.yarn_bridge.memory_site import SPEC, Site


@pytest.mark.parametrize("end", ["lost", "killed"])
def test_what_a_rank_saves_while_its_job_is_cleared_is_seen(site: Site, tmp_path: Path, end: str) -> None:
    def saved(step: int) -> None:
        checkpoints.write(FolderStore(str(tmp_path)), step, 1, {}, lambda folder: None, lambda: None)

    site.port.submit("job", replace(SPEC, checkpoint=str(tmp_path)))
    site.port.start("job", {"n1": 1, "n2": 1}, 1)
    site.look()
    site.register()
    site.look()
    saved(20)
    if end == "lost":
        site.yarn.down = "n1"
    else:
        site.port.checkpoint_and_stop("job", 5.0)
        site.now_s += 30.0
    assert attend(site.port).jobs[0].native == "clearing"
    saved(25)
    seen = site.look()
    assert seen.state is (JobState.LOST if end == "lost" else JobState.STOPPED)
    assert seen.checkpoint.step == 25.0


def test_a_checkpoint_folder_that_the_bridge_cannot_read_hinders_nobody(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    site.port.submit("job", replace(SPEC, checkpoint=str(tmp_path / "file")))
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    site.look()
    site.yarn.down = "n1"
    seen = site.look()
    assert (seen.state, seen.checkpoint) == (JobState.LOST, None)


def test_a_log_of_which_a_part_is_short_is_read_on_from_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.port.submit("job", SPEC)
    site.hdfs.files |= {f"/hdfs/jobs/job/log/{epoch:08}": b"%d" % epoch * 10 for epoch in (1, 2, 3)}
    whole, read = site.port.read_log("job", 0), site.hdfs.read

    def behind(path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        assert offset >= 0
        data = read(path, offset, limit)
        return data[:4] if data is not None and path.endswith("2") else data

    monkeypatch.setattr(site.hdfs, "read", behind)
    first = site.port.read_log("job", 0)
    assert (first.data, first.next_offset, first.eof) == (whole.data[:14], 14, False)
    monkeypatch.undo()
    assert first.data + site.port.read_log("job", first.next_offset).data == whole.data


def test_what_workers_say_is_read_again_until_it_was_read(site: Site) -> None:
    """Its folder changed once, and for some rounds what changed could not be read."""
    names = site.running({"n1": 1})
    site.hdfs.hidden = "/acks/"
    site.acknowledge(names, 1, "completed", 0, step=7.0)
    for _ in range(4):
        site.now_s += 3.0
        assert any("no DataNode answers" in note for note in attend(site.port).notes)
    site.hdfs.hidden = ""
    assert site.look().state is JobState.COMPLETED


def test_a_record_that_changed_is_read_again_until_it_was_read(site: Site) -> None:
    """As one sees it who has not the claim."""
    site.port.submit("job", SPEC)
    other = site.connect()
    other.claim("another")
    attend(site.port)
    other.observe()
    other.start("job", {"n1": 1}, 1)
    site.hdfs.hidden = "/records/"
    with pytest.raises(TryLater):
        attend(site.port)
    site.hdfs.hidden = ""
    (seen,) = attend(site.port).jobs
    assert (seen.state, seen.allocation) == (JobState.STARTING, {"n1": 1})


def test_checkpoints_that_fail_are_told_while_they_do(site: Site) -> None:
    names = site.running({"n1": 1, "n2": 1})
    value = {"epoch": 1, "state": "running", "exit_code": 0, "checkpoint": None, "time_s": 1.0}
    site.tell(f"acks/{names[0]}", {**value, "text": "the quota of space there is used up"})
    told = site.look()
    assert told.native == f"{CHECKPOINTS_FAIL}the quota of space there is used up"
    assert (told.state, site.gate()["state"]) == (JobState.RUNNING, "open"), "it trains on"
    site.tell(f"acks/{names[0]}", {**value, "text": ""})
    told = site.look()
    assert (told.state, told.native.split(",")[0]) == (JobState.RUNNING, "open")
    site.tell(f"acks/{names[0]}", {**value, "text": "full"})
    site.port.checkpoint_and_stop("job", 5.0)
    assert site.look().state is JobState.STOPPING, "a word of trouble is no end"
    site.acknowledge(names, 1, "stopped", 86, step=40.0)
    assert (site.look().exit_code, site.look().native) == (86, "")


def test_workers_hear_of_a_stop_whose_writing_broke_off(site: Site) -> None:
    """HDFS took the record, and went away before the gate."""
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    names = site.register()
    site.look()
    site.hdfs.writes_left = 1
    with pytest.raises(TryLater):
        site.port.checkpoint_and_stop("job", 5.0)
    site.hdfs.writes_left = None
    site.tell("members/somebody", {})  # so that the folder has another stamp
    attend(site.port)
    assert site.gate()["state"] == "stop"
    site.acknowledge(names, 1, "stopped", 86, step=40.0)
    assert site.look().exit_code == 86


def test_a_folder_that_cannot_be_read_is_noted_and_hinders_nobody(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.hdfs.write("/hdfs/jobs/stray/gate", b"not a record")
    seen = attend(site.port)
    assert [job.id for job in seen.jobs] == ["job"]
    assert any("stray" in note for note in seen.notes)
