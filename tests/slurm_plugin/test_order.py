"""The order of pending jobs is what shows, not what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import FixConfiguration, PortError
from slurm_plugin.clients.command import scontrol
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.files.spool import Spool
from slurm_plugin.files.transport import LocalTransport
from slurm_plugin.jobs.order import Order
from slurm_plugin.jobs.record import Memo, Memories
from slurm_plugin.jobs.shapes import handing_back_all
from tests.slurm_plugin.rows import ROW


class Slurm(Routes):
    """slurmctld's priorities: a job's own, and its site factor."""

    def __init__(self, *ids: str) -> None:
        self.rows = {each: replace(ROW, id=each, slurm_id=int(each.split("_")[0]), priority=1000) for each in ids}
        self.written: list[str] = []
        self.refuses: PortError | None = None
        self.dies = False  #: who asks is killed after the first write
        self.follows = "   NtasksPerTRES=1\n"
        self.by_gpu: dict[str, int] = {}  #: tasks of jobs whose tasks follow from their GPUs
        self.said: dict[str, int | None] = {}  #: of their tasks, at the last write
        self.asked: list[str] = []

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        self.asked += ids
        return {each: self._shown(each) for each in ids}

    def _shown(self, each: str) -> str:
        tasks = self.by_gpu.get(each)
        more = "" if tasks is None else self.follows
        runs = "JobId=1\n   JobState=RUNNING Reason=None\n   NumNodes=1 NumCPUs=2 NumTasks=77 \n   NtasksPerTRES=1\n\n"
        state = "   JobState=PENDING Reason=None\n"
        return f"{runs}JobId={each}\n{state}   NumNodes=1 NumCPUs=2 NumTasks={tasks or 1} x\n{more}"

    def write_each(self, batches: Sequence[Batch]) -> list[PortError | None]:
        errors: list[PortError | None] = []
        for batch in batches:
            (write,) = batch.writes
            assert write.change is not None
            if self.refuses is None:
                self.written.append(write.job)
                self.said[write.job] = write.change.tasks
                for each in self.rows:
                    if each == write.job or each.startswith(f"{write.job}_"):
                        self.put(each, 1000 + (write.change.site_factor or 0))
            errors.append(self.refuses)
            if self.dies:
                raise KeyboardInterrupt
        return errors

    def put(self, job: str, priority: int) -> None:
        self.rows[job] = replace(self.rows[job], priority=priority)

    def first(self) -> list[str]:
        return sorted(self.rows, key=lambda job: -self.rows[job].priority)


def made(slurm: Slurm, folder: Path) -> Order:
    return Order(slurm, Spool(LocalTransport().files, str(folder)), Memories(folder / "state"))


def test_a_write_that_failed_is_written_again_and_nothing_else_is(tmp_path: Path) -> None:
    slurm = Slurm("1", "2", "3")
    order = made(slurm, tmp_path)
    assert order.lost(slurm.rows), "after a restart nobody knows"
    slurm.refuses = FixConfiguration("Access/permission denied", "be Operator")
    with pytest.raises(FixConfiguration):
        order.set(["3", "2", "1"], slurm.rows)
    assert order.lost(slurm.rows)
    slurm.refuses = None
    order.set(["3", "2", "1"], slurm.rows)
    assert slurm.first() == ["3", "2", "1"]
    assert not order.lost(slurm.rows)
    slurm.written.clear()
    order.set(["3", "2", "1"], slurm.rows)
    assert slurm.written == []


def test_whom_slurm_bars_is_not_ordered(tmp_path: Path) -> None:
    """A write would let it go."""
    slurm = Slurm("1", "2")
    order = made(slurm, tmp_path)
    slurm.rows["1"] = replace(slurm.rows["1"], reason="InvalidAccount")
    order.set(["1", "2"], slurm.rows)
    assert slurm.written == ["2"]


def test_a_factor_that_somebody_takes_away_is_put_back(tmp_path: Path) -> None:
    slurm = Slurm("1", "2")
    order = made(slurm, tmp_path)
    for _ in range(5):  # however often
        order.set(["2", "1"], slurm.rows)
        assert slurm.first() == ["2", "1"]
        assert not order.lost(slurm.rows)
        slurm.put("2", 1000)
        assert order.lost(slurm.rows)


def test_what_another_thing_outweighs_is_let_be(tmp_path: Path) -> None:
    """A nice of 100000: our factor is there and cannot show."""
    slurm = Slurm("1", "2")
    order = made(slurm, tmp_path)
    order.set(["2", "1"], slurm.rows)
    times = 0
    slurm.put("2", 1)
    while order.lost(slurm.rows):
        order.set(["2", "1"], slurm.rows)
        slurm.put("2", 1)
        times += 1
        assert times < 10
    assert times
    slurm.put("2", 0)  # held: nothing shows of it
    assert not order.lost(slurm.rows)


def test_an_array_is_ordered_whole(tmp_path: Path) -> None:
    """Each task that is named becomes a record of its own in slurmctld: 5,000 updates and records of one array."""
    tasks = [f"3_{task}" for task in range(2, 7)]
    slurm = Slurm("1", *tasks, "3_1")
    slurm.rows["3_1"] = replace(slurm.rows["3_1"], slurm_id=4)  # split off: it ran, and was requeued
    order = made(slurm, tmp_path)
    order.set([*tasks, "1", "3_1"], slurm.rows)
    assert slurm.written[0] == "3", "it reaches the task that has a place of its own"
    assert sorted(slurm.written) == ["1", "3", "3_1"]
    assert slurm.first() == [*tasks, "1", "3_1"]
    assert not order.lost(slurm.rows)
    order.set(["1", *tasks, "3_1"], slurm.rows)
    assert slurm.first() == ["1", *tasks, "3_1"]


# --- handing back ---------------------------------------------------------------------------------------


def test_tasks_of_one_record_are_handed_back_by_one_write() -> None:
    own = "horae=abc,gpus=1,nodes=1,shape=own"
    row = replace(ROW, slurm_id=5, priority=9, admin_comment=own)
    tasks = {f"5_{task}.abc": (replace(row, id=f"5_{task}"), Memo(f"5_{task}.abc")) for task in (1, 2, 3, 7)}
    split = replace(ROW, id="5_4", slurm_id=9, priority=9, admin_comment=own)
    alone = replace(ROW, id="8", slurm_id=8, priority=0, admin_comment=own)
    jobs = {**tasks, "5_4.abc": (split, Memo("5_4.abc")), "8.abc": (alone, Memo("8.abc", held_s=1.0, ordered=4))}
    found = handing_back_all(jobs, 0.0)
    assert [group for group, _ in found] == [tuple(tasks), ("5_4.abc",), ("8.abc",)]
    assert [[scontrol(write) for write in batch.writes] for _, batch in found] == [
        ["update jobid=5_[1-3,7] StartTime=now"],
        ["update jobid=5_4 StartTime=now"],
        ["update jobid=8 StartTime=now SiteFactor=0", "release 8"],
    ]


@pytest.mark.parametrize("follows", ["   NtasksPerTRES=1\n", "   TresPerNode=gres/gpu:2\n   TresPerTask=gres/gpu=1\n"])
def test_tasks_that_an_update_would_lose_are_said_with_the_order(tmp_path: Path, follows: str) -> None:
    """Of `--ntasks-per-gpu` in 24.11, and of GPUs of a task: as they are right before, for their user may have changed
    them; of all others it is asked once."""
    slurm = Slurm("1", "2", "3", "9_1", "9_2")
    slurm.follows = follows
    slurm.by_gpu = {"2": 8, "9": 4}
    for each in ("9_1", "9_2"):
        slurm.rows[each] = replace(slurm.rows[each], slurm_id=9)
    order = made(slurm, tmp_path)
    order.set(["3", "2", "1", "9_1", "9_2"], slurm.rows, (24, 11))
    assert slurm.said == {"1": None, "2": 8, "3": None, "9": 4}
    slurm.by_gpu["2"] = 6
    slurm.asked.clear()
    order.set(["2", "9_1", "9_2", "1", "3"], slurm.rows, (24, 11))
    assert (slurm.said["2"], set(slurm.asked)) == (6, {"2", "9"})
    assert not order.lost(slurm.rows)
    for release in ((22, 5), (26, 5)):
        slurm.asked.clear()
        made(slurm, tmp_path / str(release)).set(["1", "2"], slurm.rows, release)
        assert (slurm.said["2"], slurm.asked) == (None, [])


def test_of_many_new_jobs_some_are_ordered_by_the_next_setting(tmp_path: Path) -> None:
    ids = [str(number) for number in range(1, 101)]
    slurm = Slurm(*ids)
    order = made(slurm, tmp_path)
    order.set(ids, slurm.rows, (24, 11))
    assert len(slurm.written) == 64
    assert order.lost(slurm.rows), "it is to be asked for again"
    order.set(ids, slurm.rows, (24, 11))
    assert (set(slurm.written), order.lost(slurm.rows)) == (set(ids), False)


def test_what_a_crash_leaves_written_is_taken_back_all_the_same(tmp_path: Path) -> None:
    """Killed with the factors of some written, and before that was noted; also by the script, which has no memory."""
    slurm = Slurm("1", "2", "9_1", "9_2")
    for each in ("9_1", "9_2"):
        slurm.rows[each] = replace(slurm.rows[each], slurm_id=9)
    slurm.dies = True
    order = made(slurm, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        order.set(["2", "9_1", "9_2", "1"], slurm.rows)
    assert slurm.written == ["9"]
    assert (tmp_path / "ordered").read_text().split() == ["1", "2", "9_1", "9_2"]
    again = Memories(tmp_path / "state")
    jobs = {each: (replace(row, admin_comment=""), again.get(each)) for each, row in slurm.rows.items()}
    found = [scontrol(write) for _, batch in handing_back_all(jobs, 0.0) for write in batch.writes]
    assert found == [f"update jobid={each} SiteFactor=0" for each in ("1", "2", "9_[1-2]")]
    slurm.dies = False
    order = made(slurm, tmp_path)
    order.set(["2", "9_1", "9_2", "1"], slurm.rows)
    assert slurm.first() == ["2", "9_1", "9_2", "1"]
