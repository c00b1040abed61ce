"""Who holds a job, from when on it may start, and who came first: Slurm's stamps are whole seconds."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.port import BlockKind, JobState, date_and_time
from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.routes import Routes
from slurm_plugin.files.spool import Spool
from slurm_plugin.jobs.observation import Observer
from slurm_plugin.jobs.record import Memo, Memories, Stop
from slurm_plugin.jobs.shapes import handing_back, original, start_writes
from slurm_plugin.jobs.state_machine import judge
from slurm_plugin.jobs.waiting import (
    Arrivals,
    awaited,
    begins_s,
    came_to,
    held_by_others,
    is_awaited,
    parked,
    relisted,
    restarts_itself,
    taken_back,
)
from slurm_plugin.options import Options
from slurm_plugin.records import JobRow
from slurm_plugin.writes import Change, Verb, Write, hold, release, update
from tests.slurm_plugin.boundary import Boundary, job
from tests.slurm_plugin.rows import FACTS, GRANT, NOW, OPTIONS, OWN, PARKED, RAN, ROW, look, shown

REQUEUED = "job requeued in held state"
IDS = ["9", "10", "11_2", "11_10", "11_100", "11_101", "100"]


def test_jobs_of_one_second_are_first_in_first_out_by_number(tmp_path: Path) -> None:
    """Ten arrays of one second: the last was started first, tasks as 1, 10, 100, 101, 102."""
    slurm = Boundary({each: job(int(each.split("_")[0]), JobArrayID=each) for each in reversed(IDS)})
    options = Options(partitions=("dl",), spool=str(tmp_path / "spool"))
    client = Routes([CommandClient(slurm)], Pace())
    observer = Observer(options, client, Spool(slurm.files, options.spool), Memories(tmp_path / "state"))
    observer.look()
    first = {seen.id: seen.submitted_s for seen in observer.jobs.values()}
    assert [seen.split(".")[0] for seen in sorted(first, key=lambda each: first[each] or 0.0)] == IDS
    assert len(set(first.values())) == len(IDS)
    slurm.jobs["99"] = job(99)  # of the same second, seen later: behind those who are known
    observer.look()
    assert {seen.id: seen.submitted_s for seen in observer.jobs.values() if seen.id in first} == first
    newest = max(observer.jobs.values(), key=lambda seen: seen.submitted_s or 0.0)
    assert newest.id.startswith("99.")


def test_places_of_a_second_are_forgotten_with_its_jobs() -> None:
    places = Arrivals()
    rows = {str(number): replace(ROW, id=str(number), submit_s=5.0) for number in range(1000)}
    places.look(rows)
    came = [places.of(str(number)) for number in range(1000)]
    assert came == sorted(set(came), key=lambda time_s: time_s or 0.0)
    assert all(5.0 <= (time_s or 0.0) < 6.0 for time_s in came)
    places.look({})
    assert places.of("7") is None
    places.look({"7": replace(rows["7"], submit_s=None)})
    assert places.of("7") is None, "Slurm does not tell when it came"
    places.look({"8": rows["8"]})
    assert places.of("8") == 5.0


@pytest.mark.parametrize(
    ("dependency", "ids"),
    [
        ("", set()),
        ("afterok:7(unfulfilled)", set()),
        ("afternotok:7(unfulfilled)", {7}),
        ("afterany:3(unfulfilled),afternotok:12_4(unfulfilled)", {12}),
        ("afternotok:5:6(unfulfilled)?afternotok:9_*(failed)", {5, 6, 9}),
    ],
)
def test_jobs_whose_failure_others_wait_for_are_known(dependency: str, ids: set[int]) -> None:
    assert awaited([dependency]) == ids
    assert is_awaited(replace(ROW, id="12_3", slurm_id=40), frozenset({12}))
    assert not is_awaited(ROW, frozenset({12}))


@pytest.mark.parametrize("admin_comment", [OWN, ROW.admin_comment])
@pytest.mark.parametrize(
    "memo", [Memo("7.abc"), Memo("7.abc", (GRANT,)), Memo("7.abc", (replace(GRANT, at_s=NOW - 9),))]
)
@pytest.mark.parametrize("eligible_s", [NOW + 366 * 86400.0, NOW - 50])
def test_whom_slurm_bars_for_a_qos_that_is_gone_nothing_is_written_to(
    admin_comment: str, memo: Memo, eligible_s: float
) -> None:
    """Slurm marks such a job once, and any update takes the mark away: then it runs without a QOS."""
    words = {**PARKED, "reason": "InvalidQOS", "eligible_s": eligible_s, "admin_comment": admin_comment}
    verdict = look(memo, **words)
    assert verdict.job is not None
    assert verdict.steps == ()
    if verdict.job.state is JobState.QUEUED:
        assert verdict.job.blocked is not None
        assert verdict.job.blocked.kind is BlockKind.ASIDE
        assert "scontrol update jobid=7 QOS=" in verdict.job.blocked.text
    assert held_by_others(replace(ROW, **words), memo)


def test_what_an_administrator_holds_is_told_apart() -> None:
    held = replace(ROW, **{**PARKED, "priority": 0, "reason": "JobHeldAdmin", "eligible_s": None})
    assert held_by_others(held, Memo("7.abc"))
    assert not held_by_others(held, Memo("7.abc", held_s=NOW))
    assert not held_by_others(replace(held, admin_comment=f"{OWN},held=1"), Memo("7.abc"))
    assert not held_by_others(ROW, Memo("7.abc")), "an elastic job that has run, or came before this module, waits held"
    parked = replace(ROW, eligible_s=NOW + 366 * 86400.0)
    assert held_by_others(parked, Memo("7.abc"))
    assert not held_by_others(parked, Memo("7.abc", held_s=NOW))


@pytest.mark.parametrize(
    ("changes", "memo", "others"),
    [
        ({"state": "SPECIAL_EXIT", "reason": "JobHeldUser"}, Memo("7.abc", (RAN,)), False),
        ({"state": "SPECIAL_EXIT", "reason": "JobHeldAdmin"}, Memo("7.abc", (RAN,)), True),
        ({"reason": "JobHeldAdmin"}, Memo("7.abc", (RAN,), held_s=NOW), False),
        ({"reason": REQUEUED}, Memo("7.abc", (RAN,)), True),
        ({"reason": REQUEUED}, Memo("7.abc", (RAN,), stop=Stop(NOW - 9, 5.0, 0)), True),  # asked by us, not by force
        ({"reason": REQUEUED}, Memo("7.abc", (RAN,), stop=Stop(NOW - 9, 5.0, 0, forced=True)), False),
        ({"reason": REQUEUED}, Memo("7.abc", (RAN,), rescued=1, rescued_s=NOW - 2), False),
        ({"reason": REQUEUED}, Memo("7.abc", (RAN,), rescued=1, rescued_s=NOW - 99), True),  # of a run before
        ({"reason": "launch failed requeued held"}, Memo("7.abc", (RAN,)), False),
        ({"reason": "JobHeldAdmin"}, Memo("7.abc"), False),  # our memory is lost: it may be ours
        ({"reason": REQUEUED, "priority": 9}, Memo("7.abc", (RAN,)), False),
    ],
)
def test_of_an_elastic_job_that_has_run_an_administrators_hold_is_told_apart(
    changes: dict[str, Any], memo: Memo, others: bool
) -> None:
    row = replace(ROW, **{"restarts": 1, **changes})
    assert held_by_others(row, memo) is others
    assert any(write.verb is Verb.RELEASE for write in handing_back(row, memo, NOW)) is (row.held and not others)


@pytest.mark.parametrize("state", ["PENDING", "SPECIAL_EXIT"])
def test_who_is_held_by_others_is_blocked_in_words(state: str) -> None:
    """Of a rigid job that left with 86 Slurm itself is the other: it is not started again."""
    changes = {**PARKED, "priority": 0, "reason": "JobHeldUser", "eligible_s": None, "state": state}
    verdict = look(Memo("7.abc"), **changes)
    assert verdict.job is not None
    assert verdict.job.blocked is not None
    assert verdict.job.blocked.kind is BlockKind.ASIDE
    assert "`scontrol release 7` ends it" in verdict.job.blocked.text
    assert ("exit code" in verdict.job.blocked.text) is (state == "SPECIAL_EXIT")
    ours = look(Memo("7.abc", held_s=NOW), **changes)
    assert ours.job is not None
    assert ours.job.blocked is None


def test_who_slurm_did_not_start_is_tried_again_later_each_time() -> None:
    """Meanwhile nothing is planned for it: others have the GPUs that it was expected to take."""
    pauses = []
    for tries in (1, 2, 3, 8):
        grants = tuple(replace(GRANT, epoch=epoch, withdrawn=True) for epoch in range(1, tries + 1))
        memo = Memo("7.abc", grants, blocked=("other", "Licenses"), held_s=NOW)
        row = replace(ROW, **{**PARKED, "priority": 0, "reason": "JobHeldAdmin", "eligible_s": NOW - 9})

        def blocked(after_s: float, row: JobRow = row, memo: Memo = memo) -> bool:
            seen = judge(row, memo, FACTS, OPTIONS, NOW + after_s).job
            assert seen is not None
            assert seen.blocked is None or (seen.blocked.kind, seen.blocked.text) == (BlockKind.ASIDE, "Licenses")
            return seen.blocked is not None

        pauses.append(next(after_s for after_s in range(100) if not blocked(after_s)))
    assert pauses == [4, 8, 16, 64]
    elastic = look(Memo("7.abc", (replace(GRANT, withdrawn=True),), blocked=("limit", "QOS"), held_s=NOW)).job
    assert elastic is not None
    assert elastic.blocked is not None
    assert elastic.blocked.kind is BlockKind.LIMIT


def test_our_own_hold_is_ours_until_it_is_seen_to_be_over() -> None:
    """A release that slurmctld never got leaves our hold, not an administrator's."""
    blocked = Memo("7.abc", (replace(GRANT, at_s=NOW - 9),), held_s=NOW - 20)
    own: dict[str, Any] = {**PARKED, "eligible_s": None}
    assert not held_by_others(replace(ROW, **{**own, "priority": 0}), look(blocked, **{**own, "priority": 0}).memo)
    assert look(blocked, **own).memo.held_s == 0.0


LIST = f"{OWN},beside=raw/old,list=dl/raw/old"
BESIDE: dict[str, Any] = {
    **PARKED,
    "admin_comment": LIST,
    "partition": "raw,old",
    "eligible_s": NOW,
    "reason": "Resources",
}


def test_a_job_of_a_list_waits_in_the_others_untouched_until_its_turn() -> None:
    waiting = look(**BESIDE)
    assert shown(waiting) == (JobState.QUEUED, "")
    row = replace(ROW, **BESIDE)
    assert start_writes(row, waiting.memo, GRANT, 1 << 30) == (update("7", Change(partitions=("dl", "raw", "old"))),), (
        "neither its age nor its place there changes"
    )
    assert held_by_others(replace(row, priority=0), Memo("7.abc", held_s=NOW)), "there we hold nobody"
    assert handing_back(replace(row, priority=0), Memo("7.abc", held_s=NOW), NOW) == start_writes(row, Memo("7"), GRANT)


def test_what_of_a_list_ran_here_and_was_requeued_is_started_as_any_other() -> None:
    row = replace(ROW, **{**BESIDE, "partition": "dl", "restarts": 1, "priority": 0})
    assert start_writes(row, Memo("7.abc"), GRANT, 1 << 30) == (update("7", Change(start_now=True)), release("7"))


@pytest.mark.parametrize(
    ("changes", "write"),
    [
        ({"partition": "dl,raw,old"}, update("7", Change(partitions=("raw", "old")))),
        ({"partition": "dl", "restarts": 1}, hold("7")),  # it ran here, and was requeued
    ],
)
def test_what_nobody_granted_is_not_slurms_to_start_here(changes: dict[str, Any], write: Write) -> None:
    verdict = look(**{**BESIDE, **changes})
    assert [each for step in verdict.steps for each in step.writes] == [write]


def test_a_grant_of_a_job_in_a_list_that_is_blocked_is_taken_back_and_tried_later() -> None:
    grant = replace(GRANT, at_s=NOW - 60)
    blocked = look(Memo("7.abc", (grant,)), **{**BESIDE, "partition": "dl,raw,old"})
    assert [each for step in blocked.steps for each in step.writes] == [update("7", Change(partitions=("raw", "old")))]
    after = look(blocked.memo, **BESIDE)
    assert shown(after) == (JobState.QUEUED, "")
    assert after.job is not None
    assert after.job.blocked is not None
    assert (after.job.blocked.kind, after.memo.held_s) == (BlockKind.ASIDE, NOW)


@pytest.mark.parametrize(("nodes", "state"), [((), JobState.LOST), (("n1",), JobState.STOPPING)])
def test_a_job_that_slurm_restarts_before_all_others_has_not_ended(nodes: tuple[str, ...], state: JobState) -> None:
    """With nodes it is leaving them, and may have come to its end."""
    own = {**PARKED, "state": "EXPEDITING", "eligible_s": NOW, "restarts": 1, "nodes": nodes}
    memo = Memo("7.abc", (RAN,), ordered=1 << 30)
    assert shown(look(memo, **own)) == (state, "")
    row = replace(ROW, **own)
    assert restarts_itself(row) == (not nodes)
    assert bool(handing_back(row, memo, NOW)) == bool(nodes), "what it is restarted by is not written"
    elastic = {**own, "admin_comment": ROW.admin_comment, "nodes": ()}
    assert shown(look(memo, **elastic)) == (JobState.LOST, "hold")


HOUR = 3600.0


@pytest.mark.parametrize(
    ("changes", "said", "held"),
    [
        ({"eligible_s": NOW + HOUR, "priority": 5, "reason": "BeginTime"}, NOW + HOUR, False),  # an administrator's
        ({"eligible_s": NOW + HOUR}, NOW + HOUR, False),  # the same, held by us meanwhile
        ({"eligible_s": NOW + 30, "priority": 5, "reason": "BeginTime"}, NOW + 30, True),  # Slurm would start it soon
        ({"eligible_s": NOW - 5, "priority": 5}, None, True),  # it would start now
        ({"eligible_s": NOW + 365.9 * 86400, "priority": 5, "reason": "BeginTime"}, None, False),  # the module's
        ({"eligible_s": NOW + HOUR, "submit_s": NOW + HOUR - 366 * 86400, "priority": 5}, None, True),  # its, long ago
        ({"eligible_s": NOW + 21, "restarts": 1, "priority": 5}, None, True),  # a requeue's
        ({"eligible_s": NOW + HOUR, "restarts": 1, "priority": 5}, NOW + HOUR, False),  # an administrator's, after it
    ],
)
@pytest.mark.parametrize("own", ["", ",shape=own"])
def test_a_begin_time_that_an_administrator_gives_is_kept(
    changes: dict[str, Any], said: float | None, held: bool, own: str
) -> None:
    row = replace(ROW, admin_comment=f"horae=abc,gpus=2,nodes=1{own}", **changes)
    verdict = judge(row, Memo("7.abc", held_s=1.0 if row.held else 0.0), FACTS, OPTIONS, NOW)
    assert begins_s(row, NOW) == said
    blocked = verdict.job is None or (verdict.job.blocked is not None and "not to begin" in verdict.job.blocked.text)
    assert blocked == (said is not None), "offered when it may start"
    assert [write.verb for step in verdict.steps for write in step.writes] == ["hold"] * held
    last = original(row, NOW)[-1].change
    assert last is not None
    assert (last.start_now, last.start_s) == (said is None, said), "and handed back with it"


def test_an_administrator_may_start_it_before_its_users_time() -> None:
    tagged = replace(ROW, admin_comment=f"horae=abc,gpus=2,nodes=1,begin={int(NOW + HOUR)}")
    assert begins_s(replace(tagged, eligible_s=NOW + 365.9 * 86400), NOW) == NOW + HOUR
    assert begins_s(replace(tagged, eligible_s=NOW - 1), NOW) is None
    assert begins_s(replace(tagged, eligible_s=NOW + 60), NOW) == NOW + 60


@pytest.mark.parametrize(
    ("partition", "tag", "found"),
    [
        ("dl", OWN, False),
        ("dl,raw", OWN, True),  # it was asked for the managed one alone
        ("dl,second", OWN, False),  # ours, all of them
        ("raw,old", LIST, False),
        ("dl,raw,old", LIST, False),
        ("dl,raw,new", LIST, True),
        ("new", LIST, False),  # in none of ours: moved
    ],
)
def test_whose_partitions_an_administrator_has_named_anew(partition: str, tag: str, found: bool) -> None:
    row = replace(ROW, partition=partition, admin_comment=tag, priority=5)
    assert relisted(row, frozenset({"dl", "second"})) == found
    assert not relisted(replace(row, state="RUNNING"), frozenset({"dl", "second"}))


def test_where_a_job_came_to_is_known_wherever_it_is() -> None:
    for tag, found in ((f"{OWN},part=dl", {"dl"}), (f"{LIST},part=dl", {"dl"}), (OWN, set()), ("", set())):
        assert came_to(replace(ROW, partition="raw", admin_comment=tag)) == found


TASKS = f"{OWN},tasks=8"


def test_tasks_that_an_update_would_lose_are_said_in_the_last_one() -> None:
    """Of 24.11, that counts the tasks of `--ntasks-per-gpu` wrongly at each update; a release is one."""
    row = replace(ROW, **{**PARKED, "admin_comment": TASKS})
    said = Change(start_now=True, tasks=8)
    assert start_writes(row, Memo("7.abc"), GRANT) == handing_back(row, Memo("7.abc"), NOW) == (update("7", said),)
    held = replace(row, priority=0, eligible_s=NOW)
    later = update("7", Change(start_s=GRANT.at_s + 60))
    assert start_writes(held, Memo("7.abc"), GRANT) == (later, release("7"), update("7", said))
    back = handing_back(held, Memo("7.abc", held_s=NOW, ordered=5), NOW)
    assert back[1:] == (release("7"), update("7", replace(said, site_factor=0)))
    beside = replace(row, admin_comment=f"{LIST},tasks=8", partition="raw,old", eligible_s=NOW)
    listed = (update("7", Change(partitions=("dl", "raw", "old"), tasks=8)),)
    assert start_writes(beside, Memo("7.abc"), GRANT) == handing_back(beside, Memo("7.abc"), NOW) == listed
    reshaped = replace(row, num_nodes=3)
    assert start_writes(reshaped, Memo("7.abc"), GRANT) == (update("7", Change(start_now=True)),), "not its user's now"


def test_a_job_whose_tasks_an_update_would_lose_is_held_by_no_hold() -> None:
    """A hold is an update, and says no tasks. It waits for our begin time again, and is tried again later each time."""
    tag = OWN.replace("gpus=4", "gpus=4,tasks=8")
    granted = {**PARKED, "admin_comment": tag, "eligible_s": NOW - 9, "reason": "Resources"}
    memo = Memo("7.abc", (replace(GRANT, at_s=NOW - 9),))
    (step,) = look(memo, **granted).steps
    (write,) = step.writes
    assert write.change is not None
    assert write.change.tasks == 8
    assert write.change.start_s is not None
    assert parked(replace(ROW, **{**granted, "eligible_s": write.change.start_s}), NOW)
    (again,) = look(memo, **{**granted, "reason": "BeginTime", "eligible_s": NOW + 100}).steps
    assert again.writes == (update("7", Change(start_now=True, tasks=8)),)
    assert taken_back(replace(ROW, **{**granted, "admin_comment": f"{tag},held=1"}), NOW) == hold("7")
    beside = replace(ROW, **{**granted, "admin_comment": f"{LIST},tasks=8", "partition": "dl,raw,old"})
    assert taken_back(beside, NOW) == update("7", Change(partitions=("raw", "old"), tasks=8))
    back = replace(memo.with_last(withdrawn=True), blocked=("foreign", "Resources"))
    for later_s, aside in ((3.0, True), (5.0, False)):
        seen = look(back.with_last(at_s=NOW - later_s), **{**PARKED, "admin_comment": tag}).job
        assert seen is not None
        assert (seen.blocked is not None) is aside


def test_what_waits_beside_and_is_taken_elsewhere_is_not_written() -> None:
    assert handing_back(replace(ROW, **{**BESIDE, "partition": "new"}), Memo("7.abc"), NOW) == ()


@pytest.mark.parametrize("held", [False, True])
def test_of_a_strangers_job_that_was_ordered_alone_the_order_is_undone_alone(held: bool) -> None:
    """In a pool that only orders, without the module: his nodes, his begin time and his hold are his."""
    row = replace(ROW, admin_comment="", priority=0 if held else 5, eligible_s=NOW - 50)
    ordered = Memo("7", ordered=64)
    assert handing_back(row, ordered, NOW) == (update("7", Change(site_factor=0)),)
    assert handing_back(row, ordered, NOW, 8) == (update("7", Change(site_factor=0, tasks=8)),)
    assert update("7", Change(node_list=())) in handing_back(row, Memo("7", (RAN,)), NOW), "we chose its nodes"


FREE: dict[str, Any] = {"reason": "Resources", "priority": 9, "eligible_s": NOW - 1}
#: an elastic job that has not run, one that has, and a rigid one
GRANTED: tuple[tuple[dict[str, Any], Memo], ...] = (
    ({}, Memo("7.abc", (GRANT,), state="starting")),
    ({"restarts": 1, "submit_s": NOW - 5}, Memo("7.abc", (RAN, replace(GRANT, epoch=2, restarts=1)), state="starting")),
    (PARKED, Memo("7.abc", (GRANT,), state="starting")),
)


@pytest.mark.parametrize(("row", "memo"), GRANTED)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"priority": 0, "reason": "JobHeldAdmin", "eligible_s": None}, "scontrol release"),
        ({"priority": 0, "reason": "JobHeldUser", "eligible_s": None}, "scontrol release"),
        ({"reason": "BeginTime", "eligible_s": NOW + HOUR}, "not to begin before"),
        ({"reason": "None", "eligible_s": NOW + 200}, "not to begin before"),
    ],
)
def test_what_is_said_of_a_granted_job_is_not_undone(
    row: dict[str, Any], memo: Memo, said: dict[str, Any], told: str
) -> None:
    seen = look(memo, **{**row, **FREE})
    assert shown(seen) == (JobState.STARTING, "")
    told_now = look(seen.memo, **{**row, **FREE, **said})
    assert told_now.memo.outstanding is None, "its grant is withdrawn"
    for verdict in (told_now, look(told_now.memo, **{**row, **FREE, **said})):
        assert verdict.steps == ()
        assert verdict.job is not None, "it would be taken for gone"
        assert verdict.job.blocked is not None
        assert verdict.job.blocked.kind is BlockKind.ASIDE
        assert told in verdict.job.blocked.text
    assert held_by_others(replace(ROW, **{**row, **FREE, **said}), told_now.memo) == ("release" in told)


def test_a_begin_time_is_told_as_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or as seconds where no calendar goes so far."""
    put_off = {**FREE, "reason": "BeginTime", "eligible_s": NOW + HOUR}
    granted = look(Memo("7.abc", (GRANT,), state="starting"), **FREE)
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC-4")
        time.tzset()
        verdict = look(granted.memo, **put_off)
    time.tzset()
    assert verdict.job is not None
    assert verdict.job.blocked is not None
    assert verdict.job.blocked.text == "is not to begin before 1970-01-12 18:46 +0400"
    assert date_and_time(4e17) == "400000000000000000 s since 1970"


@pytest.mark.parametrize(("row", "memo"), GRANTED)
def test_a_granted_job_that_is_put_off_for_a_moment_waits_under_its_grant(row: dict[str, Any], memo: Memo) -> None:
    free = look(memo, **{**row, **FREE}).memo
    verdict = look(free, **{**row, **FREE, "reason": "BeginTime", "eligible_s": NOW + 30})
    assert shown(verdict) == (JobState.STARTING, "")
    assert verdict.memo.outstanding is not None


def test_a_hold_of_slurms_own_for_what_can_never_run_is_none_of_others() -> None:
    seen = look(GRANTED[0][1], **FREE)
    never = {"priority": 0, "reason": "BadConstraints", "eligible_s": None}
    lost = look(seen.memo.with_last(at_s=NOW - 9), **never)
    assert lost.memo.blocked == ("node", "BadConstraints")
    assert not held_by_others(replace(ROW, **never), lost.memo)


@pytest.mark.parametrize("changes", [{"eligible_s": NOW + HOUR}, {"eligible_s": NOW - 1, "dependency": "afterok:3"}])
def test_a_job_that_was_shown_is_not_taken_for_gone_when_it_is_put_off(changes: dict[str, Any]) -> None:
    """Which an administrator may do to one that waits for its turn; until then it is not decided about."""
    waits = {"priority": 5, "reason": "BeginTime", **changes}
    assert look(**waits).job is None, "of one that came so nobody has heard yet"
    known = look(Memo("7.abc", state="queued"), **waits).job
    assert known is not None
    assert known.blocked is not None
    assert (known.state, known.blocked.kind) == (JobState.QUEUED, BlockKind.ASIDE)
