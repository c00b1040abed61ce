"""Many starts and stops of one call: what is on the disk before anything is asked, and whose error is whose."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.port import Batching, FixConfiguration, JobState, Never, PortError, TryLater, attend
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.routes import Routes
from slurm_plugin.errors import ControllerAway, Gone
from slurm_plugin.files.transport import Completed, LocalTransport
from slurm_plugin.jobs import starts
from slurm_plugin.jobs.record import Memories
from slurm_plugin.jobs.starts import RESTART_GAP_S
from slurm_plugin.options import Options
from slurm_plugin.records import Facts, JobRow, NodeRow
from slurm_plugin.writes import Change, Write
from tests.contract.waiting import wait_for
from tests.slurm_plugin.answers import Scripted
from tests.slurm_plugin.boundary import Boundary, running
from tests.slurm_plugin.rows import FACTS, ROW

ME = os.getuid()


class Slurm(Scripted):
    """A small model of slurmctld: jobs by name `j1`, `j2`, ...; `said` is what it was asked, in order."""

    def __init__(self, jobs: int) -> None:
        super().__init__("command")
        self.rows = {
            str(number): replace(ROW, id=str(number), slurm_id=number, admin_comment=f"horae=j{number},gpus=1", uid=ME)
            for number in range(1, jobs + 1)
        }
        self.before: Callable[[str], None] = lambda what: None
        self.down: set[str] = set()
        self.silent: set[str] = set()  #: nodes that have not registered since this slurmctld began

    def facts(self) -> Facts:
        return FACTS

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]:
        return list(self.rows.values())

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        names = [f"n{at}" for at in range(1, 5)]
        rows = [
            NodeRow(name, {"v100": 4}, 0, "down*" if name in self.down else "idle", 16, 16, 1 << 36, 0)
            for name in names
        ]
        return [replace(row, registered=row.name not in self.silent) for row in rows]

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        super().those(ids)
        return {each: self.rows[each] for each in ids if each in self.rows}

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        super().standing(ids)
        return {each: shown_now(self.rows[each]) for each in ids if each in self.rows}

    @property
    def written(self) -> list[str]:
        """What it was asked but for reads."""
        return [what for what in self.said if what not in ("standing", "those")]

    def write_each(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        self.before("write")
        return super().write_each(writes)

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        self.before("signal")
        return super().signal(ids, name, doing)

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        self.before("cancel")
        return super().cancel(ids, doing)

    def run(self, *numbers: str) -> None:
        for number in numbers:
            self.rows[number] = replace(
                self.rows[number], state="RUNNING", reason=None, nodes=("n1",), start_s=time.time() - 60
            )


def shown_now(row: JobRow) -> str:
    """`scontrol show job`, as far as it is read."""
    limit = "UNLIMITED" if row.limit_s is None else f"{int(row.limit_s) // 60}:00"
    begin = "Unknown" if row.eligible_s is None else str(int(row.eligible_s))
    return (
        f"JobId={row.slurm_id} JobName=a Priority=0\n   UserId={row.user}({row.uid}) GroupId=x(1) MCS_label=N/A\n"
        f"   Priority={row.priority} Nice=0 Account=lab QOS=normal WCKey=*\n"
        f"   JobState={row.state} Reason={str(row.reason).replace(' ', '_')} Dependency=(null)\n"
        f"   Requeue=1 Restarts={row.restarts} BatchFlag=1 Reboot=0 ExitCode=0:0\n"
        f"   RunTime=00:00:00 TimeLimit={limit} TimeMin=N/A\n"
        f"   SubmitTime={int(row.submit_s or 0)} EligibleTime={begin}\n   AccrueTime=Unknown\n"
        "   Comment=   Priority=0   JobState=RUNNING\n"
    )


class Site:
    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder, self.slurm = folder, Slurm(jobs)
        options = Options(partitions=("dl",), spool=str(folder / "spool"), state=str(folder / "memory"))
        self.port = SlurmCluster(options, LocalTransport(), Routes([self.slurm], Pace()))
        self.port.claim("me")
        self.jobs = [job.id for job in attend(self.port).jobs]

    def start(self, epoch: int, node: str = "n1") -> Mapping[str, PortError]:
        return self.port.start_many([(job, {node: 1}, epoch) for job in self.jobs])

    def fences(self) -> list[str]:
        return [(self.folder / "spool/jobs" / job / "epoch").read_text().strip() for job in self.jobs]

    def asked_to_end(self) -> list[bool]:
        return [(self.folder / "spool/jobs" / job / "cancel").exists() for job in self.jobs]

    def holds(self) -> list[str]:
        return (self.folder / "spool/holds").read_text().split()

    def running(self) -> None:
        """All were started and run."""
        assert not self.start(1)
        self.slurm.run(*self.slurm.rows)
        attend(self.port)
        self.slurm.said.clear()

    def memo(self, job: str) -> dict[str, object]:
        lines = (self.folder / "memory/memos").read_text().splitlines()
        return [memo for line in lines if (memo := json.loads(line))["job"] == job][-1]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, 3)


def test_fence_and_memo_are_there_before_anything_is_written(site: Site) -> None:
    met: list[tuple[list[str], object]] = []
    site.slurm.before = lambda what: met.append((site.fences(), site.memo(site.jobs[-1])["grants"]))
    assert isinstance(site.port, Batching)
    assert site.start(1) == {}
    assert site.slurm.written == ["update 1 update 2 update 3", "release 1 release 2 release 3"]
    fences, grants = met[0]
    assert fences == ["1", "1", "1"]
    assert grants


def test_asking_twice_is_asking_once(site: Site) -> None:
    site.start(1)
    site.slurm.rows = {number: replace(row, priority=5) for number, row in site.slurm.rows.items()}
    attend(site.port)
    said = list(site.slurm.said)
    assert site.start(1) == {}
    assert site.slurm.said == said


def test_an_error_of_one_start_is_no_others(site: Site) -> None:
    site.slurm.refuses = {"update 2": TryLater("busy")}
    folder = site.folder / "spool/jobs" / site.jobs[2]
    folder.mkdir(parents=True)
    (folder / "epoch").mkdir()  # its fence cannot be written
    found = site.port.start_many([*((job, {"n1": 1}, 1) for job in site.jobs), ("99.none", {"n1": 1}, 1)])
    assert {job: type(error) for job, error in found.items()} == {
        site.jobs[1]: TryLater, site.jobs[2]: FixConfiguration, "99.none": Gone,
    }  # fmt: skip
    assert site.slurm.said[-2:] == ["update 1 update 2", "release 1"], "never released in another shape"


def test_a_memory_that_cannot_be_written_starts_and_stops_nothing(site: Site) -> None:
    site.running()
    (site.folder / "memory/memos").unlink()
    (site.folder / "memory").rmdir()
    found = site.port.stop_many([(job, 30.0) for job in site.jobs])
    assert {type(error) for error in found.values()} == {FixConfiguration}
    assert len(found) == 3
    assert site.slurm.said == []


def test_stops_are_one_signal_and_are_on_the_disk_before_it(site: Site) -> None:
    site.running()
    met: list[bool] = []
    site.slurm.before = lambda what: met.append(
        all((site.folder / "spool/jobs" / job / "stop").exists() and site.memo(job)["stop"] for job in site.jobs)
    )
    assert site.port.stop_many([(job, 30.0) for job in site.jobs]) == {}
    assert site.slurm.said == ["signal 1 2 3"]
    assert met == [True]
    assert site.port.stop_many([(job, 30.0) for job in site.jobs]) == {}
    assert site.slurm.said == ["signal 1 2 3"], "asked already"


def test_a_script_whose_failure_another_waits_for_leaves_by_a_requeue(site: Site) -> None:
    """It would answer the signal by exit code 86, and the other begin."""
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], dependency="afternotok:1(unfulfilled)")
    site.running()
    assert site.port.stop_many([(job, 30.0) for job in site.jobs]) == {}
    assert site.slurm.said == ["standing", "requeuehold 1", "signal 2 3"]


def test_whom_jobs_of_other_partitions_wait_for_is_asked_at_the_stop(tmp_path: Path) -> None:
    said: list[str] = []

    def note(command: str, answer: Completed) -> Completed:
        said.append(command)
        broken = command == "squeue" and slurm.dependencies == ("?",) and answer.out.endswith("?\n")
        return replace(answer, rc=1, err="Socket timed out") if broken else answer

    jobs = {str(at): {**running(at, UserID=str(ME)), "StartTime": "1699990000"} for at in (1, 2)}
    slurm = Boundary(jobs, dependencies=("?",), spoil=note)
    options = Options(partitions=("dl",), spool=str(tmp_path / "spool"), state=str(tmp_path / "memory"))
    port = SlurmCluster(options, slurm, choose(options, slurm))
    port.claim("me")
    stops = [(job.id, 30.0) for job in attend(port).jobs]
    assert {type(error) for error in port.stop_many(stops).values()} == {ControllerAway}
    assert "scancel" not in said, "it might begin another's job"
    slurm.dependencies = ("afterok:2(unfulfilled)", "afternotok:1(unfulfilled)")
    wait_for("it is asked again", lambda: port.stop_many(stops) == {})
    assert "scontrol requeuehold 1" in said
    assert [argv[-1] for argv in slurm.ran if "scancel" in argv] == ["2"]


def test_who_may_not_be_requeued_any_more_since_it_was_asked_is_to_go_on(site: Site) -> None:
    """Exit code 86 would be its end. Its mails, which were to rest, come again."""
    for number, row in site.slurm.rows.items():
        site.slurm.rows[number] = replace(row, admin_comment=f"{row.admin_comment},mail=6")
    site.running()
    site.port.stop_many([(job, 30.0) for job in site.jobs])
    assert site.slurm.said == ["update 1 update 2 update 3", "signal 1 2 3"], "mails rest"
    first = site.jobs[0]
    site.slurm.rows["1"] = replace(site.slurm.rows["1"], requeue=False)
    site.slurm.said.clear()
    seen = attend(site.port)
    assert [job.state for job in seen.jobs] == [JobState.RUNNING, JobState.STOPPING, JobState.STOPPING]
    stop = json.loads((site.folder / "spool/jobs" / first / "stop").read_text())
    assert stop == {"epoch": 0, "withdrawn": 1}
    assert site.memo(first)["stop"] is None
    assert site.slurm.said[0] == "update 1", "mails"
    assert "signal 1" not in " ".join(site.slurm.said)
    site.slurm.said.clear()
    assert attend(site.port).due == ()
    assert isinstance(site.port.stop_many([(first, 30.0)])[first], Never)
    assert site.slurm.said == []


def left(site: Site) -> float:
    """All were asked to leave and have left; when that was seen."""
    site.running()
    site.port.stop_many([(job, 30.0) for job in site.jobs])
    for number, row in site.slurm.rows.items():
        site.slurm.rows[number] = replace(
            row, state="SPECIAL_EXIT", nodes=(), priority=0, restarts=1, exit_status=86 << 8, reason="JobHeldUser"
        )
    look = attend(site.port)
    assert {job.state for job in look.jobs} == {JobState.STOPPED}
    site.slurm.said.clear()
    return look.now_s


def test_a_job_that_keeps_its_shape_is_asked_to_leave_by_nobody(site: Site) -> None:
    """The signal would end it. A start of it that Slurm has not followed is taken back."""
    parked = {"priority": 9, "reason": "BeginTime", "eligible_s": float(int(time.time())) + 366 * 86400.0}
    site.slurm.rows = {
        number: replace(row, admin_comment=f"{row.admin_comment},shape=own", **parked)  # type: ignore[arg-type]
        for number, row in site.slurm.rows.items()
    }
    attend(site.port)
    assert not site.start(1)
    site.slurm.run("1", "2")
    attend(site.port)
    site.slurm.said.clear()
    errors = site.port.stop_many([(job, 10.0) for job in site.jobs])
    assert {job: type(error) for job, error in errors.items()} == dict.fromkeys(site.jobs[:2], Never)
    attend(site.port)
    assert [what for what in site.slurm.said if what.startswith("signal")] == []
    assert "hold 3" in site.slurm.said


def test_who_fits_on_no_nodes_is_slurms_own(site: Site) -> None:
    """It was taken at submission, so Slurm can run it; we never would."""
    parked = {"priority": 9, "reason": "BeginTime", "eligible_s": time.time() + 366 * 86400.0}
    for number, types in (("1", "v100"), ("2", "p4")):
        tag = f"horae=j{number},gpus=1,nodes=1,types={types},shape=own,per=1,fixed=1"
        site.slurm.rows[number] = replace(site.slurm.rows[number], admin_comment=tag, **parked)  # type: ignore[arg-type]
    (due,) = site.port.observe().due
    assert (due.job, due.what) == ("2.j2", "fits on no nodes as Horae sees them, and is Slurm's own")
    site.slurm.said.clear()
    assert site.port.follow_up(["2.j2"]) == {}
    assert site.slurm.written == ["update 2"]
    seen = attend(site.port)
    assert ([job.id for job in seen.jobs], seen.due) == (["1.j1", "3.j3"], ())


def test_those_that_left_together_start_together_once_the_second_is_over(site: Site) -> None:
    left_s, times = left(site), list[float]()
    site.slurm.before = lambda what: times.append(time.time())
    assert site.start(2) == {}
    deadline = time.monotonic() + 240
    while len(times) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    site.port.close()
    assert site.slurm.written[:2] == ["update 1 update 2 update 3", "release 1 release 2 release 3"]
    assert times[0] >= left_s + RESTART_GAP_S


def test_a_start_that_waits_on_a_timer_is_not_made_of_one_that_is_held_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its release would end an administrator's hold."""
    monkeypatch.setattr(starts, "RESTART_GAP_S", 6.0)
    left(site)
    with site.port._lock:  # the timer waits for it
        assert site.start(2) == {}
        site.slurm.rows["2"] = replace(site.slurm.rows["2"], reason="JobHeldAdmin")
        attend(site.port)
    deadline = time.monotonic() + 240
    while len(site.slurm.written) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    site.port.close()
    assert site.slurm.written[:2] == ["update 1 update 3", "release 1 release 3"]


@pytest.mark.parametrize("own", [False, True])
def test_a_node_that_has_just_come_back_may_still_be_ending_an_older_run(site: Site, own: bool) -> None:
    """Where Slurm chooses the nodes it may choose that one, whatever is expected."""
    left(site)
    if own:
        changes: dict[str, Any] = {"state": "PENDING", "priority": 9, "exit_status": None, "reason": "BeginTime"}
        site.slurm.rows["1"] = replace(site.slurm.rows["1"], admin_comment="horae=j1,gpus=1,shape=own", **changes)
    site.slurm.down = {"n1"}
    attend(site.port)
    first, second, _ = site.jobs
    elsewhere = site.port.start_many([(first, {"n2": 1}, 2)])
    assert elsewhere == {}, "it is down: nothing is started there"
    site.slurm.down = set()
    attend(site.port)
    site.slurm.said.clear()
    errors = site.port.start_many([(first, {"n2": 1}, 3), (second, {"n1": 1}, 2)])
    assert set(errors) == ({first, second} if own else {second})
    for error in errors.values():
        assert isinstance(error, TryLater)
        assert "n1 has just come back" in error.text
        assert FACTS.kill_wait_s < error.retry_after_s < FACTS.kill_wait_s + 6.0


def test_a_node_that_slurmctld_knows_nothing_of_yet_is_started_on_when_it_has_registered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """22.05 after `slurmctld -R`: a job there has none of its GPUs, no step of it begins, and it starts in vain."""
    first, second, third = site.jobs
    site.slurm.run("3")
    before = attend(site.port)
    site.slurm.silent = {"n1", "n2"}
    after = attend(site.port)
    assert after.nodes == before.nodes, "they are up, and nobody's share changes for it"
    assert [(job.state, job.allocation) for job in after.jobs] == [(job.state, job.allocation) for job in before.jobs]
    errors = site.port.start_many([(first, {"n1": 1}, 1), (second, {"n3": 1}, 1)])
    assert list(errors) == [first]
    assert isinstance(errors[first], TryLater)
    assert "n1 has not registered" in errors[first].text
    assert site.slurm.said[-2:] == ["update 2", "release 2"]
    site.slurm.silent = {"n2"}
    attend(site.port)
    assert site.port.start_many([(first, {"n1": 1}, 1)]) == {}
    assert site.port.start_many([(second, {"n2": 1}, 2)]).keys() == {second}
    monkeypatch.setattr(starts, "_REGISTERS_S", 0.0)
    assert site.port.start_many([(second, {"n2": 1}, 2)]) == {}, "nor is it waited for without end"
    assert [job.state for job in attend(site.port).jobs if job.id == third] == [JobState.RUNNING]


def test_on_other_nodes_they_start_at_once_and_a_start_that_waits_is_taken_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(site)
    monkeypatch.setattr(starts, "RESTART_GAP_S", 3600.0)
    first, second, third = site.jobs
    assert site.port.start_many([(first, {"n1": 1}, 2), (second, {"n1": 1}, 2), (third, {"n2": 1}, 2)]) == {}
    assert site.slurm.written == ["update 3", "release 3"]
    assert [site.port._starts.waits(job) for job in site.jobs] == [True, True, False]
    attend(site.port)
    assert site.port.stop_many([(first, 30.0)]) == {}
    assert [site.port._starts.waits(job) for job in site.jobs] == [False, True, False]
    assert site.port.start_many([(second, {"n2": 1}, 3)]) == {}
    assert not site.port._starts.waits(second), "the newer one went at once, the older one is not made"
    assert site.slurm.written[-2:] == ["update 2", "release 2"]


def test_our_hold_is_put_down_before_it_is_written(site: Site) -> None:
    """Whoever comes after a crash in between would take it for an administrator's, and leave the job held for good."""
    assert site.start(1) == {}
    (job, *_) = site.jobs
    attend(site.port)
    met: list[object] = []
    site.slurm.before = lambda what: met.append((site.memo(job)["held_s"] != 0.0, site.holds()))
    assert site.port.stop_many([(job, 30.0)]) == {}
    assert site.slurm.said[-1] == "hold 1"
    assert met == [(True, [job])]


class Clock:
    """The time of day, which goes on when the machine does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real, self.more_s = time.time, 0.0
        monkeypatch.setattr(time, "time", lambda: real() + self.more_s)


def test_a_start_whose_timer_is_late_is_not_taken_back_before_it_is_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(site)
    clock = Clock(monkeypatch)
    monkeypatch.setattr(starts, "RESTART_GAP_S", 3600.0)
    assert site.start(2) == {}
    for _ in range(2):
        clock.more_s += 10.0
        assert {job.state for job in attend(site.port).jobs} == {JobState.STARTING}
    (deferred,) = {id(each): each for each in site.port._starts._waiting.values()}.values()
    assert deferred.timer is not None
    deferred.timer.cancel()
    clock.more_s += 10.0
    site.port._starts._write_deferred(deferred)
    for number, row in site.slurm.rows.items():
        site.slurm.rows[number] = replace(row, state="PENDING", priority=5, reason="None")
    assert {job.state for job in attend(site.port).jobs} == {JobState.STARTING}
    assert site.slurm.written == ["update 1 update 2 update 3", "release 1 release 2 release 3"]


def test_a_grant_is_as_old_as_its_write(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def slow(what: str) -> None:
        clock.more_s += 10.0

    site.slurm.before = slow
    assert site.start(1) == {}
    for number, row in site.slurm.rows.items():
        site.slurm.rows[number] = replace(row, priority=5, reason="Resources")
    seen = attend(site.port).jobs
    assert {(job.state, job.blocked) for job in seen} == {(JobState.STARTING, None)}
    assert site.slurm.written == ["update 1 update 2 update 3", "release 1 release 2 release 3"]
    clock.more_s += 10.0
    site.slurm.before = lambda what: None
    assert all(job.blocked is not None for job in attend(site.port).jobs), "now Slurm has had its time"


def test_an_unknown_job_is_an_error_of_its_own(site: Site) -> None:
    site.running()
    found = site.port.stop_many([("99.none", 5.0), (site.jobs[0], 5.0)])
    assert {job: isinstance(error, Never) for job, error in found.items()} == {"99.none": True}
    assert site.slurm.said == ["signal 1"]


def test_memos_are_read_again(site: Site) -> None:
    site.running()
    assert len(Memories(site.folder / "memory").all()) == 3


def released_by_somebody(site: Site) -> None:
    site.slurm.rows = {number: replace(row, priority=5) for number, row in site.slurm.rows.items()}
    site.slurm.said.clear()


def test_looking_changes_nothing_and_shows_what_is_due(site: Site) -> None:
    """Jobs that somebody released are to be held; who only looks holds none, and one job's deed is no other's."""
    released_by_somebody(site)
    looks = [site.port.observe() for _ in range(3)]
    assert site.slurm.said == []
    for seen in looks:
        assert {due.job for due in seen.due} == set(site.jobs)
        assert all(due.what for due in seen.due)
    assert site.port.follow_up([site.jobs[1]]) == {}
    assert site.slurm.said == ["standing", "hold 2"], "not without knowing that it still waits"
    assert site.port.follow_up([site.jobs[1]]) == {}
    assert site.slurm.said[2:] == [], "once: the next look says whether it is due still"


def test_nothing_is_due_to_who_did_not_claim_the_cluster(site: Site) -> None:
    released_by_somebody(site)
    options = Options(partitions=("dl",), spool=str(site.folder / "spool"), state=str(site.folder / "other"))
    watcher = SlurmCluster(options, LocalTransport(), Routes([site.slurm], Pace()))
    assert watcher.observe().due == ()
    assert watcher.follow_up(site.jobs) == {}
    assert site.slurm.said == []


def test_who_held_a_job_that_is_not_offered_is_remembered(site: Site) -> None:
    """It waits for another job when somebody releases it: we hold it again, and know so when it is its turn."""
    job, tag = site.jobs[0], "horae=j1,gpus=1,nodes=1,shape=own"
    site.slurm.rows["1"] = replace(site.slurm.rows["1"], dependency="afterany:9", priority=5, admin_comment=tag)
    attend(site.port)
    assert "hold 1" in " ".join(site.slurm.said)
    site.slurm.rows["1"] = replace(site.slurm.rows["1"], priority=0, reason="JobHeldAdmin")
    attend(site.port)
    site.slurm.rows["1"] = replace(site.slurm.rows["1"], dependency=None)
    attend(site.port)
    assert site.port.start_many([(job, {"n1": 1}, 1)]) == {}


def test_many_are_cancelled_by_one_request_and_each_has_its_own_answer(site: Site) -> None:
    site.running()
    site.slurm.rows["3"] = replace(site.slurm.rows["3"], state="COMPLETED")
    attend(site.port)
    site.slurm.said.clear()
    site.slurm.refuses = {"cancel 2": TryLater("busy")}
    found = site.port.cancel_many([*site.jobs, "404.none"])
    assert {job: type(error) for job, error in found.items()} == {site.jobs[1]: TryLater, "404.none": Gone}
    assert [said for said in site.slurm.said if said.startswith("cancel")] == ["cancel 1 2"], "who has ended is not"
    assert [bool(site.memo(job).get("cancelled")) for job in site.jobs] == [True, True, False]
    assert site.asked_to_end() == [True, False, False]


def test_whoever_is_cancelled_is_so_in_slurm_before_anything_ends_on_its_node(site: Site) -> None:
    """A trainer that ended first would be a job that failed: in accounting, in mails and to its dependents."""
    site.running()
    seen: list[list[bool]] = []
    site.slurm.before = lambda what: seen.append(site.asked_to_end())
    assert site.port.cancel_many(site.jobs[:2]) == {}
    assert seen == [[False] * 3]
    assert site.asked_to_end() == [True, True, False]
    site.slurm.fails = ControllerAway("slurmctld is away")
    with pytest.raises(ControllerAway):
        site.port.cancel_many(site.jobs[2:])
    assert site.asked_to_end() == [True, True, False], "the third trains on until Slurm can be told"


# --- what is said of a job between the look and its start ---------------------------------------------------


def waits_at_night(site: Site) -> float:
    """All wait for the module's begin time, as jobs do that came in; a begin time of somebody's."""
    parked_s = float(int(time.time()) + 366 * 86400)
    for number, row in site.slurm.rows.items():
        site.slurm.rows[number] = replace(
            row, priority=9, reason="BeginTime", eligible_s=parked_s, submit_s=time.time() - 60
        )
    attend(site.port)
    site.slurm.said.clear()
    return float(int(time.time()) + 86400)


def test_a_hold_that_came_after_the_look_is_not_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release ends whatever hold it meets."""
    monkeypatch.setattr(starts, "RESTART_GAP_S", 0.0)
    left(site)
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], reason="JobHeldAdmin")
    errors = site.start(2)
    assert {job: type(error) for job, error in errors.items()} == {site.jobs[1]: TryLater}
    assert "held by another" in str(errors[site.jobs[1]])
    assert site.slurm.said == ["those", "update 1 update 3", "release 1 release 3"]
    blocked = next(job.blocked for job in attend(site.port).jobs if job.id == site.jobs[1])
    assert blocked is not None
    assert "scontrol release 2" in blocked.text


def test_one_of_whom_slurm_does_not_tell_is_not_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is not understood is set aside: what it says of a hold is not known."""
    waits_at_night(site)
    told = site.slurm.those
    monkeypatch.setattr(site.slurm, "those", lambda ids: told([each for each in ids if each != "2"]))
    errors = site.start(1)
    assert {job: type(error) for job, error in errors.items()} == {site.jobs[1]: TryLater}
    assert "2" not in " ".join(site.slurm.written)


def test_a_begin_time_that_came_after_the_look_is_kept(site: Site) -> None:
    night_s = waits_at_night(site)
    mine = site.slurm.rows["2"].eligible_s
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], eligible_s=night_s)
    errors = site.start(1)
    assert {job: type(error) for job, error in errors.items()} == {site.jobs[1]: TryLater}
    assert "begin time" in str(errors[site.jobs[1]])
    assert "2" not in " ".join(site.slurm.written)
    blocked = next(job.blocked for job in attend(site.port).jobs if job.id == site.jobs[1])
    assert blocked is not None
    assert "not to begin before" in blocked.text
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], eligible_s=mine)
    attend(site.port)
    assert site.port.start_many([(site.jobs[1], {"n1": 1}, 1)]) == {}, "the same grant, once it may"
    assert site.slurm.written[-2:] == ["update 2", "update 2"]


@pytest.mark.parametrize(
    ("since", "told"), [({"limit_s": 60.0}, "time limit"), ({"state": "RUNNING", "reason": "None"}, "running by now")]
)
def test_whatever_else_came_after_the_look_is_seen_before_it_is_written_over(
    site: Site, since: dict[str, Any], told: str
) -> None:
    """A longer limit would be cut to what was left of the old one; a shape is for one that waits: it would take nodes
    from one that runs."""
    waits_at_night(site)
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], **since)
    errors = site.start(1)
    assert list(errors) == [site.jobs[1]]
    assert told in str(errors[site.jobs[1]])
    assert "2" not in " ".join(site.slurm.written)


def test_a_start_that_waits_on_a_timer_is_not_made_of_one_that_is_put_off_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "RESTART_GAP_S", 3600.0)
    left(site)
    assert site.start(2) == {}
    (deferred,) = {id(each): each for each in site.port._starts._waiting.values()}.values()
    assert deferred.timer is not None
    deferred.timer.cancel()
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], eligible_s=float(int(time.time()) + 86400))
    site.port._starts._write_deferred(deferred)
    assert site.slurm.said == ["those", "update 1 update 3", "release 1 release 3"]
    assert any(site.jobs[1] in note and "begin time" in note for note in attend(site.port).notes)


def test_a_hold_that_came_after_the_look_outlives_our_leaving(site: Site) -> None:
    left(site)
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], reason="JobHeldAdmin")
    errors = site.port.release_many(site.jobs)
    assert list(errors) == [site.jobs[1]]
    assert "held by another" in str(errors[site.jobs[1]])
    assert "2" not in " ".join(site.slurm.written)
    attend(site.port)
    assert site.port.release_many([site.jobs[1]]) == {}
    assert "release 2" not in " ".join(site.slurm.written), "it is left as it is held"


def test_a_begin_time_that_came_after_the_look_outlives_our_leaving(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    night_s = waits_at_night(site)
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], eligible_s=night_s)
    errors = site.port.release_many(site.jobs)
    assert list(errors) == [site.jobs[1]]
    assert "begin time" in str(errors[site.jobs[1]])
    assert not any("update 2" in what for what in site.slurm.written)
    attend(site.port)
    changes: list[Change | None] = []

    def write_each(writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        changes.extend(write.change for write, _ in writes)
        return [None] * len(writes)

    monkeypatch.setattr(site.slurm, "write_each", write_each)
    assert site.port.release_many([site.jobs[1]]) == {}
    begins = [(change.start_now, change.start_s) for change in changes if change is not None]
    assert all(begin in ((False, None), (False, night_s)) for begin in begins), "it begins when it was told to"


def test_nothing_is_started_unseen(site: Site) -> None:
    waits_at_night(site)

    def away(ids: Sequence[str]) -> Mapping[str, JobRow]:
        raise TryLater("no answer")

    site.slurm.those = away  # type: ignore[method-assign]
    assert {type(error) for error in site.start(1).values()} == {TryLater}
    assert site.slurm.written == []


def test_a_requeues_begin_time_is_lifted_but_not_one_that_came_after_the_look(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "RESTART_GAP_S", 0.0)
    left(site)
    assert site.start(2) == {}
    second = int(time.time())
    requeued = {
        "state": "PENDING",
        "priority": 9,
        "reason": "BeginTime",
        "eligible_s": second + 100.0,
        "submit_s": second,
    }
    for number, row in site.slurm.rows.items():
        site.slurm.rows[number] = replace(row, **requeued)  # type: ignore[arg-type]
    site.slurm.said.clear()
    site.port.observe()
    site.slurm.rows["2"] = replace(site.slurm.rows["2"], eligible_s=float(int(time.time()) + 86400))
    errors = site.port.follow_up(site.jobs)
    assert list(errors) == [site.jobs[1]]
    assert site.slurm.written == ["update 1 update 3"]
