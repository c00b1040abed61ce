"""What a row of squeue means, and what is done about it: the cases that real daemons show only by luck."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from horae.arbiter.observe.model_key import model_key
from horae.port import BlockKind, JobState
from horae.spec import ENDS_STAY, STAYS
from policy.model import Shape
from slurm_plugin.clients.command import scontrol
from slurm_plugin.jobs.record import Grant, Memo, Stop
from slurm_plugin.jobs.shapes import left_min, original, start_writes
from slurm_plugin.jobs.state_machine import block_kind, judge, let_go, told_lost
from slurm_plugin.records import JobRow
from tests.slurm_plugin.rows import FACTS, GRANT, NOW, OPTIONS, OWN, PARKED, RAN, ROW, RUNNING, look, shown

ENDED: dict[str, Any] = {"state": "FAILED", "priority": 9, "nodes": ("n1",), "start_s": NOW - 2, "end_s": NOW - 2}


@pytest.mark.parametrize(
    ("changes", "memo", "state", "steps"),
    [
        ({}, Memo("7.abc"), "queued", ""),
        # somebody released it, or our memory is lost: it must not start by itself
        ({"priority": 5, "reason": "Priority"}, Memo("7.abc"), "queued", "hold"),
        ({"priority": 5, "reason": "None"}, Memo("7.abc", (GRANT,)), "starting", ""),
        ({"priority": 5, "reason": "BeginTime"}, Memo("7.abc", (GRANT,)), "starting", "update"),
        # during the prolog a signal is lost or kills the job: no fence, no signal, not running yet
        ({**RUNNING, "reason": "Prolog"}, Memo("7.abc", (GRANT,), stop=Stop(NOW, 9, 0)), "starting", ""),
        # never held while it runs: slurmdbd would lose its usage
        (RUNNING, Memo("7.abc", (GRANT,)), "running", ""),
        ({**RUNNING, "priority": 0}, Memo("7.abc", (GRANT,)), "running", ""),
        ({**RUNNING, "priority": 0}, Memo("7.abc", (RAN,), stop=Stop(NOW - 99, 9, 0)), "stopping", "requeuehold"),
        # preempted or requeued by another: left RUNNING, Restarts grew, and nobody asked
        ({"restarts": 1, "priority": 5, "reason": "BeginTime"}, Memo("7.abc", (RAN,), state="running"), "lost", "hold"),
        ({"restarts": 1}, Memo("7.abc", (RAN,), state="running"), "lost", ""),
        # asked, and Slurm's preemption threw the exit code away
        ({"restarts": 1}, Memo("7.abc", (RAN,), stop=Stop(NOW - 9, 60, 0), state="stopping"), "stopped", ""),
        ({"state": "SPECIAL_EXIT", "restarts": 1, "exit_status": 86 << 8}, Memo("7.abc", (RAN,)), "stopped", ""),
        # the launch was refused within the second of a revocation
        (
            {**ENDED, "restarts": 1, "exit_status": 1 << 8},
            Memo("7.abc", (RAN, replace(GRANT, epoch=2, restarts=1))),
            "starting",
            "requeuehold",
        ),
        # the end of a first start is its user's own
        ({**ENDED, "exit_status": 1 << 8}, Memo("7.abc", (GRANT,)), "failed", ""),
        ({**ENDED, "start_s": NOW - 60, "exit_status": 1 << 8}, Memo("7.abc", (RAN,)), "failed", ""),
        (
            {**ENDED, "start_s": NOW - 60, "exit_status": 10},
            Memo("7.abc", (RAN,), stop=Stop(NOW - 3, 9, 0)),
            "stopping",
            "requeuehold",
        ),
        # asked, gone, and its exit code not put down yet
        ({**ENDED, "end_s": NOW - 6}, Memo("7.abc", (RAN,), stop=Stop(NOW - 9, 9, 0)), "stopping", ""),
        ({**ENDED, "end_s": NOW - 11}, Memo("7.abc", (RAN,), stop=Stop(NOW - 3, 9, 0)), "failed", ""),
        ({**ENDED, "state": "NODE_FAIL"}, Memo("7.abc", (RAN,)), "starting", "requeuehold"),
        ({**ENDED, "restarts": 1, "exit_status": 86 << 8}, Memo("7.abc", (RAN,)), "stopping", ""),
        # counted by a slurmctld that died before it carried it out
        ({**ENDED, "restarts": 1, "end_s": NOW - 11}, Memo("7.abc", (RAN,)), "stopping", "requeuehold"),
        ({**ENDED, "state": "CANCELLED"}, Memo("7.abc", (RAN,)), "cancelled", ""),
        ({**ENDED, "state": "TIMEOUT"}, Memo("7.abc", (RAN,)), "failed", ""),
    ],
)
def test_rows_mean(changes: dict[str, Any], memo: Memo, state: str, steps: str) -> None:
    assert shown(look(memo, **changes)) == (JobState(state), steps)


@pytest.mark.parametrize(("tag", "state"), [(ROW.admin_comment, "stopping"), (OWN, "running")])
def test_only_who_can_checkpoint_is_asked_to_before_slurm_preempts_it(tag: str, state: str) -> None:
    """A script without a trap would die of the request, failed instead of preempted."""
    verdict = look(Memo("7.abc", (RAN,)), **RUNNING, admin_comment=tag, preempt_s=NOW + 20)
    assert verdict.job is not None
    assert verdict.job.state == state
    assert any(step.ask for step in verdict.steps) is (state == "stopping")


def test_exit_86_where_the_site_does_not_hold_is_brought_back_at_once() -> None:
    facts = replace(FACTS, exit_hold=frozenset())
    verdict = look(Memo("7.abc", (RAN,)), facts, **{**ENDED, "exit_status": 86 << 8})
    assert shown(verdict) == (JobState.STOPPING, "requeuehold")


def brought_back(row: JobRow, memo: Memo, ends: bool, seconds: float) -> tuple[list[float], float | None, Memo]:
    """Asked every half second: when it is brought back, when it is told as failed. `ends`: each time it starts again
    at once, and ends again; else nothing comes of it."""
    steps: list[float] = []
    now = NOW
    while now <= NOW + seconds:
        verdict = judge(row, memo, FACTS, OPTIONS, now)
        memo = verdict.memo
        if shown(verdict)[0] is JobState.FAILED:
            return steps, now - NOW, memo
        now += 0.5
        if verdict.steps:
            steps.append(now - 0.5 - NOW)
            if ends:
                row = replace(row, start_s=now, end_s=now)
    return steps, None, memo


def test_lost_launches_are_tried_again_with_growing_pauses_and_not_for_ever() -> None:
    memo = Memo("7.abc", (RAN, replace(GRANT, epoch=2, restarts=1)))
    row = replace(ROW, **{**ENDED, "restarts": 1, "exit_status": 1 << 8})
    steps, failed_s, memo = brought_back(row, memo, ends=True, seconds=60)
    assert (steps, failed_s) == ([0.0, 2.0, 6.0, 14.0], 30.0), "the last is given time too"
    assert memo.launches == 4


@pytest.mark.parametrize("end", [{"state": "NODE_FAIL"}, {"exit_status": 86 << 8}, {"exit_status": 10}])
def test_a_job_that_left_is_asked_back_while_slurm_does_not_do_it(end: dict[str, Any]) -> None:
    memo = Memo("7.abc", (RAN,), stop=Stop(NOW - 9, 60, 0))
    row = replace(ROW, **{**ENDED, "start_s": NOW - 60, "end_s": NOW - 2, **end})
    steps, failed_s, _ = brought_back(row, memo, ends=False, seconds=200)
    assert steps[:5] == [0.0, 2.0, 6.0, 14.0, 30.0]
    assert max(after - before for before, after in pairwise(steps)) == 16.0
    assert failed_s is not None
    assert failed_s > 73.0


def test_short_runs_that_each_had_to_be_brought_back_use_up_nothing() -> None:
    """A resize a few seconds after the other, where each requeue of Slurm's own is late."""
    memo = Memo("7.abc")
    for restarts in range(12):
        now = NOW + 9 * restarts
        memo = memo.with_grant(replace(RAN, epoch=restarts + 1, restarts=restarts, at_s=now - 8, began_s=now - 7))
        memo = replace(memo, stop=Stop(now - 4, 60, restarts))
        ended = {**ENDED, "start_s": now - 7, "end_s": now - 2, "exit_status": 86 << 8, "restarts": restarts}
        verdict = judge(replace(ROW, **ended), memo, FACTS, OPTIONS, now)
        assert shown(verdict) == (JobState.STOPPING, "requeuehold")
        memo = verdict.memo
    assert memo.launches == 0


@pytest.mark.parametrize(
    ("reason", "kind", "waited"),
    [
        ("QOSMaxGRESPerUser", BlockKind.LIMIT, 0.5),
        ("AssocGrpGRES", BlockKind.LIMIT, 0.5),
        ("ReqNodeNotAvail, May be reserved for other job", BlockKind.NODE, 0.5),
        ("Resources", BlockKind.FOREIGN, 6.0),
        ("Licenses", BlockKind.OTHER, 6.0),
    ],
)
def test_a_blocked_grant_is_taken_back_with_slurms_own_words(reason: str, kind: BlockKind, waited: float) -> None:
    assert block_kind(reason) is kind
    memo = Memo("7.abc", (replace(GRANT, at_s=NOW - waited),))
    verdict = look(memo, priority=5, reason=reason)
    assert shown(verdict) == (JobState.STARTING, "hold")
    assert verdict.job is not None
    assert verdict.job.blocked is not None
    assert (verdict.job.blocked.kind, verdict.job.blocked.text) == (kind, reason)
    after = judge(ROW, verdict.memo, FACTS, OPTIONS, NOW + 1)
    assert after.job is not None
    assert (after.job.state, after.job.blocked) == (JobState.QUEUED, verdict.job.blocked)


def test_one_that_is_blocked_elsewhere_too_is_granted_nothing_for_a_while() -> None:
    """It may be its own request that Slurm cannot follow, and each grant keeps GPUs from others. A limit is learnt, and
    the smaller size tried at once."""

    def kinds(memo: Memo) -> list[BlockKind]:
        seen = [judge(ROW, memo, FACTS, OPTIONS, NOW + later).job for later in (1.0, 7.0, 9.0)]
        return [job.blocked.kind for job in seen if job is not None and job.blocked is not None]

    once = look(Memo("7.abc", (replace(GRANT, at_s=NOW - 6),)), priority=5, reason="Resources").memo
    assert kinds(once) == [BlockKind.FOREIGN] * 3
    again = replace(once.with_grant(replace(GRANT, epoch=2, at_s=NOW - 6)), blocked=None)
    twice = look(again, priority=5, reason="Resources").memo
    assert kinds(twice) == [BlockKind.ASIDE, BlockKind.ASIDE, BlockKind.FOREIGN]
    limited = look(again, priority=5, reason="QOSMaxGRESPerUser").memo
    assert kinds(limited) == [BlockKind.LIMIT] * 3


def test_an_old_reason_says_nothing_about_a_new_grant() -> None:
    memo = Memo("7.abc", (replace(GRANT, before="QOSMaxGRESPerUser"),))
    assert shown(look(memo, priority=5, reason="QOSMaxGRESPerUser")) == (JobState.STARTING, "")


def test_jobs_that_are_not_ours_are_not_shown() -> None:
    assert look(admin_comment="").job is None
    assert look(Memo("7.abc", released=True)).job is None
    assert look(dependency="afterok:5(unfulfilled)").job is None
    seen = look(options=replace(OPTIONS, hold=False), admin_comment="", priority=5, gpus_per_node=3).job
    assert seen is not None
    assert seen.spec is not None
    assert seen.spec.gpus.requested == 3


def test_a_word_that_cannot_be_read_makes_the_job_rigid_and_says_so() -> None:
    verdict = look(comment="horae:min=none")
    assert verdict.job is not None
    assert verdict.job.spec is not None
    assert verdict.job.spec.elastic is False
    assert "min" in verdict.note


def test_a_job_that_stays_after_its_checkpoint_is_requeued_and_again_if_that_is_lost() -> None:
    memo = Memo("7.abc", (RAN,), stop=Stop(NOW - 3, 60, 0, signalled_s=NOW - 3, stay=True))
    row = replace(ROW, **RUNNING)
    found = let_go(row, memo, NOW)
    assert found is not None
    memo, step = found
    assert [write.verb for write in step.writes] == ["requeuehold"]
    assert let_go(row, memo, NOW + 1) is None
    assert let_go(row, memo, NOW + 6) is not None
    assert let_go(replace(row, state="COMPLETING"), memo, NOW + 6) is None


def test_a_requeue_that_is_counted_already_is_still_the_old_start() -> None:
    """Slurm counts the restart when it is asked for it, while the old start is still COMPLETING."""
    memo = Memo("7.abc", (RAN,), stop=Stop(NOW - 3, 60, 0, signalled_s=NOW - 3), state="stopping")
    verdict = look(memo, **{**RUNNING, "state": "COMPLETING", "restarts": 1})
    assert verdict.job is not None
    assert (verdict.job.state, verdict.job.epoch) == (JobState.STOPPING, 1)
    assert verdict.memo.stop is not None
    waiting = look(verdict.memo, restarts=1, priority=0)
    assert shown(waiting)[0] is JobState.STOPPED


def test_a_start_whose_supervisor_spoke_was_launched() -> None:
    memo = Memo("7.abc", (RAN, replace(GRANT, epoch=2, restarts=1)))
    row = replace(ROW, **{**ENDED, "restarts": 1, "exit_status": 1 << 8})
    assert shown(judge(row, memo, FACTS, OPTIONS, NOW, lambda: True)) == (JobState.FAILED, "")


def test_lost_launches_are_counted_over_starts_that_were_short() -> None:
    memo = Memo("7.abc", (RAN,), launches=3)
    assert look(memo, **{**RUNNING, "start_s": NOW - 5}).memo.launches == 3
    assert look(memo, **{**RUNNING, "start_s": NOW - 50}).memo.launches == 0


def test_a_parked_job_waits_without_a_write_and_shows_its_shape() -> None:
    verdict = look(**PARKED)
    assert shown(verdict) == (JobState.QUEUED, "")
    assert verdict.job is not None
    spec = verdict.job.spec
    assert spec is not None
    assert spec.shape == Shape(2, 2, 12, 2000 << 20, ("ib",), True)
    assert (spec.elastic, spec.gpus.requested, spec.gpu_types) == (False, 4, ("v100",))


@pytest.mark.parametrize(
    ("now", "gpus", "nodes", "per_node"),
    [
        ({"num_nodes": 3, "gpus_per_node": 2}, 6, 3, 2),
        ({"num_nodes": 2, "gpus_per_node": 1}, 2, 2, 1),
        ({"num_nodes": 1, "gpus_per_node": 4}, 4, 1, 4),  # as many in all
        ({"num_nodes": 1, "gpus_per_node": None, "gpus_total": 8}, 8, None, None),
    ],
)
def test_a_rigid_job_that_an_administrator_reshapes_is_planned_as_it_stands(
    now: dict[str, Any], gpus: int, nodes: int | None, per_node: int | None
) -> None:
    verdict = look(**{**PARKED, **now})
    assert verdict.job is not None
    spec = verdict.job.spec
    assert spec is not None
    assert (spec.gpus.requested, spec.gpus.min) == (gpus, gpus)
    cpus = 12 if now["num_nodes"] == 2 else None
    assert spec.shape == Shape(nodes, per_node, cpus, 2000 << 20, ("ib",), True)


@pytest.mark.parametrize("reason", ["BeginTime", "None"])
def test_a_rigid_job_that_was_requeued_is_held_before_slurm_starts_it(reason: str) -> None:
    changes = {**PARKED, "restarts": 1, "reason": reason, "eligible_s": NOW + 121}
    verdict = look(Memo("7.abc", (RAN,), state="running"), **changes)
    assert shown(verdict) == (JobState.LOST, "hold")
    assert verdict.memo.held_s == NOW


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"])
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_end_of_a_rigid_job_is_its_own(state: str, restarts: int) -> None:
    memo = Memo("7.abc", (RAN, replace(GRANT, epoch=2, restarts=1)))
    ended = {**ENDED, "state": state, "admin_comment": OWN, "exit_status": 1 << 8, "restarts": restarts}
    assert shown(look(memo, **ended)) == (JobState.FAILED, "")


def test_a_rigid_jobs_start_writes_when_and_nothing_else() -> None:
    row = replace(ROW, **PARKED)
    (only,) = start_writes(row, Memo("7.abc"), Grant(1, 0, ("n1", "n2"), 2, NOW), 1 << 30)
    assert scontrol(only) == f"update jobid=7 StartTime=now SiteFactor={1 << 30}"
    assert [scontrol(each) for each in original(row, NOW)] == ["update jobid=7 StartTime=now"]
    later = replace(row, admin_comment=f"{OWN},begin={int(NOW) + 60}")
    assert [scontrol(each) for each in original(later, NOW)] == [f"update jobid=7 StartTime=uts{int(NOW) + 60}"]


def test_a_parked_elastic_job_waits_and_its_lost_start_is_not_made_in_part() -> None:
    waits: dict[str, Any] = {"priority": 9, "reason": "BeginTime", "eligible_s": NOW + 366 * 86400.0}
    assert shown(look(**waits)) == (JobState.QUEUED, "")
    assert shown(look(Memo("7.abc", (GRANT,)), **waits)) == (JobState.STARTING, "")
    lost = look(Memo("7.abc", (replace(GRANT, at_s=NOW - 9),)), **waits)
    assert shown(lost) == (JobState.QUEUED, ""), "the time alone would start it in the shape of one GPU"
    assert lost.memo.outstanding is None
    shape, when = start_writes(replace(ROW, **waits), Memo("7.abc"), GRANT)
    assert "StartTime" not in scontrol(shape)
    assert scontrol(when) == "update jobid=7 StartTime=now"


def test_why_a_job_left_its_nodes_is_told_as_it_was_first_seen() -> None:
    row, memo = replace(ROW, restarts=1), Memo("7.abc", (RAN,), left=(("n1", "n2"), NOW))
    by_hand, by_node = told_lost(row, memo, {"n5"}), told_lost(row, memo, {"n2", "n5"})
    assert by_hand.lost is not None
    assert "requeued, by its owner or an administrator" in by_hand.lost[1]
    assert by_node.lost == (1, "n2 went down")
    assert told_lost(row, by_node, ()) is by_node, "it has come back since"
    assert told_lost(replace(row, restarts=2), by_node, ()).lost != by_node.lost


def limit_of(memo: Memo, **changes: Any) -> tuple[float | None, float | None]:
    """(over all starts, left) after a look."""
    verdict = look(memo, **changes)
    assert verdict.job is not None
    return verdict.memo.limit_s, verdict.job.time_left_s


def test_who_changes_a_limit_is_heard() -> None:
    used = Memo("7.abc", (RAN,), limit_s=3600.0, limits=(3600.0,), used_s=600.0, state="stopped")
    assert limit_of(used, restarts=1) == (3600.0, 3000.0)
    assert limit_of(used, restarts=1, limit_s=1200.0) == (1800.0, 1200.0), "an owner's shorter one"
    assert limit_of(used, restarts=1, limit_s=36000.0) == (36600.0, 36000.0), "an administrator's longer one"
    assert limit_of(used, restarts=1, limit_s=None) == (None, None)


def test_what_we_wrote_ourselves_is_no_change() -> None:
    starting = Memo("7.abc", (RAN, GRANT), limit_s=3600.0, limits=(3600.0, 3000.0), used_s=600.0)
    for limit_s in (3600.0, 3000.0, 3600.0):  # the write may show late
        assert look(starting, limit_s=limit_s).memo.limit_s == 3600.0
    settled = look(starting, limit_s=3000.0).memo
    assert look(settled, limit_s=3600.0).memo.limit_s == 4200.0, "raised to what it was, by hand"


def test_a_memo_of_before_takes_the_limit_as_it_is() -> None:
    old = Memo("7.abc", (RAN,), limit_s=3600.0, used_s=600.0, state="stopped")
    assert limit_of(old, restarts=1, limit_s=3000.0) == (3600.0, 3000.0)


def test_a_rigid_job_has_its_whole_limit_at_each_start() -> None:
    memo = Memo("7.abc", (RAN,), limit_s=3600.0, used_s=600.0, state="running")
    assert limit_of(memo, **{**PARKED, "restarts": 1, "eligible_s": NOW + 99}) == (3600.0, 3600.0)


@pytest.mark.parametrize(
    ("now", "state"),
    [
        ({"state": "TIMEOUT", "nodes": ("n1",), "start_s": NOW - 5000, "end_s": NOW - 4000}, "failed"),
        ({"state": "SPECIAL_EXIT", "restarts": 1, "exit_status": 86 << 8, "submit_s": NOW - 4000}, "stopped"),
        ({"restarts": 1, "submit_s": NOW - 4000}, "lost"),
    ],
)
def test_what_left_while_nobody_looked_is_charged_until_then(now: dict[str, Any], state: str) -> None:
    """Not the hour that the arbiter was away, neither to its tenant nor on its time limit."""
    memo = Memo("7.abc", (replace(RAN, at_s=NOW - 5001, began_s=NOW - 5000),), limit_s=9000.0, state="running")
    verdict = look(memo, **now)
    assert verdict.job is not None
    assert (verdict.job.state, verdict.job.since_s) == (JobState(state), NOW - 4000)
    assert verdict.memo.used_s == 1000.0


def test_a_stamp_of_an_earlier_start_says_nothing_of_this_one() -> None:
    verdict = look(Memo("7.abc", (RAN,), state="running"), restarts=1, submit_s=NOW - 60)
    assert verdict.job is not None
    assert (verdict.job.since_s, verdict.memo.used_s) == (NOW, 50.0)


def test_a_start_has_what_is_left_and_never_nothing() -> None:
    for used_s, minutes in ((0.0, 60), (601.0, 50), (3599.0, 1), (4000.0, 1)):
        assert left_min(Memo("7.abc", limit_s=3600.0, used_s=used_s)) == minutes
    assert left_min(Memo("7.abc")) is None


def test_a_timeout_in_the_middle_of_a_stop_is_a_timeout() -> None:
    memo = Memo("7.abc", (RAN,), stop=Stop(NOW - 3, 9, 0))
    assert shown(look(memo, **{**ENDED, "state": "TIMEOUT", "exit_status": 15})) == (JobState.FAILED, "")


@pytest.mark.parametrize(
    ("tag", "defaults", "cpus"),
    [
        ("gpus=2,nodes=1,cpus=8", {"dl": 3}, 8),  # asked for: 4 a GPU
        ("gpus=2,nodes=1", {"dl": 3, "": 5}, 6),
        ("gpus=2,nodes=1", {"": 5}, 10),
        ("gpus=2,nodes=1", {"other": 3}, 2),
    ],
)
def test_cpus_follow_the_gpus(tag: str, defaults: dict[str, int], cpus: int) -> None:
    row = replace(ROW, admin_comment=f"horae=abc,{tag}")
    update = scontrol(start_writes(row, Memo("7.abc"), GRANT, defaults=defaults)[0])
    assert f"NumTasks=1 CpusPerTask={cpus} NumCPUs={cpus} " in update
    verdict = judge(row, Memo("7.abc"), replace(FACTS, default_cpus=defaults), OPTIONS, NOW)
    assert verdict.job is not None
    assert verdict.job.spec is not None
    assert verdict.job.spec.cpus_per_gpu == cpus / 2


def test_two_jobs_of_one_script_share_no_profile_unless_their_user_says_so() -> None:
    """Their arguments and environment may differ, which Slurm does not show: one's "no gain" kept the other small."""
    specs = [look(id=each, command="/home/ann/train.sh", comment="horae:min=1,max=8").job for each in ("7", "8")]
    keys = {model_key(seen.spec) for seen in specs if seen is not None and seen.spec is not None}
    assert keys == {"lab/train#7", "lab/train#8"}
    named = [look(id=each, comment="horae:min=1,max=8,key=resnet").job for each in ("7", "8")]
    assert {model_key(seen.spec) for seen in named if seen is not None and seen.spec is not None} == {"resnet"}


def test_a_shape_that_somebody_gives_an_elastic_job_is_not_put_away_in_silence() -> None:
    ran = Memo("7.abc", (replace(RAN, per_node=4),))
    assert "min=...,max=..." in look(gpus_per_node=2).note
    assert "min=...,max=..." in look(ran, gpus_per_node=2, restarts=1, state="SPECIAL_EXIT").note
    assert "min=...,max=..." in look(gpus_per_node=None, gpus_total=4).note
    assert look().note == look(ran, gpus_per_node=4, restarts=1, state="SPECIAL_EXIT").note == ""
    assert look(gpus_per_node=4, restarts=1).note == "", "ours, of before our memory was lost"
    assert look(Memo("7.abc", (replace(GRANT, per_node=2),)), gpus_per_node=4).note == "", "being written"
    assert look(ran, **{**RUNNING, "gpus_per_node": 2}).note == ""
    assert look(admin_comment=OWN, comment="", gpus_per_node=2, num_nodes=2).note == "", (
        "a rigid one is planned as it stands"
    )


def test_a_limit_that_stands_already_is_not_written_again() -> None:
    """An administrator may have given another since the last look."""
    for used_s, limit_s, written in (
        (30.0, 3600.0, None),
        (90.0, 3600.0, 59),
        (90.0, 3540.0, None),
        (0.0, 3600.0, None),
    ):
        row, memo = replace(ROW, restarts=1, limit_s=limit_s), Memo("7.abc", (RAN,), limit_s=3600.0, used_s=used_s)
        change = start_writes(row, memo, GRANT)[0].change
        assert change is not None
        assert change.limit_min == written, (used_s, limit_s)


@pytest.mark.parametrize(
    ("tag", "requeue", "signalled_s"),
    [(OWN, True, 0.0), (OWN, False, 0.0), (ROW.admin_comment, False, 0.0), (ROW.admin_comment, False, NOW - 70)],
)
def test_whose_start_is_its_last_is_asked_to_leave_by_nothing(tag: str, requeue: bool, signalled_s: float) -> None:
    """Not by a stop that was meant to take back its grant either; nor by force, which Slurm would refuse."""
    memo = Memo("7.abc", (GRANT,), stop=Stop(NOW - 71, 60, 0, signalled_s), state="starting")
    verdict = look(memo, **RUNNING, admin_comment=tag, requeue=requeue, preempt_s=None)
    assert shown(verdict) == (JobState.RUNNING, "")
    withdrawn = [step.ask for step in verdict.steps if "goes on" in step.why]
    assert (verdict.memo.stop is None, withdrawn) == ((True, []) if tag == OWN else (False, [True]))
    assert shown(look(Memo("7.abc", (RAN,)), **RUNNING, admin_comment=tag, requeue=requeue, preempt_s=NOW + 20)) == (
        JobState.RUNNING,
        "",
    )


def test_an_elastic_job_that_slurm_may_not_start_again_is_planned_as_it_stands_and_told() -> None:
    verdict = look(Memo("7.abc", (RAN,)), **RUNNING, requeue=False)
    assert verdict.job is not None
    assert verdict.job.spec is not None
    assert not verdict.job.spec.elastic
    assert "Requeue=0" in verdict.job.spec.extra[STAYS]
    assert "scontrol update jobid=7 requeue=1" in verdict.job.spec.extra[ENDS_STAY]
    ended = look(Memo("7.abc", (RAN,)), **{**ENDED, "exit_status": 86 << 8}, requeue=False)
    assert shown(ended) == (JobState.FAILED, "")
    assert ended.job is not None
    assert "it checkpointed, and by Requeue=0" in ended.job.native


@pytest.mark.parametrize("tag", [ROW.admin_comment, OWN])
def test_backfills_word_for_no_time_limit_is_none(tag: str) -> None:
    """It starts a job without a limit with one of a year, which no start after that is to be given either."""
    waits = look(admin_comment=tag, limit_s=None).memo
    year_s = 365 * 86400.0
    runs = {**RUNNING, "admin_comment": tag, "limit_s": year_s, "left_s": year_s - 50, "end_s": NOW + year_s - 50}
    seen = look(replace(waits, grants=(GRANT,)), **runs)
    assert seen.job is not None
    assert (seen.job.time_left_s, seen.memo.limit_s) == (None, None)
    assert left_min(replace(seen.memo, used_s=50.0)) is None
    again = look(seen.memo, admin_comment=tag, restarts=1, limit_s=year_s)
    assert again.job is not None
    assert (again.job.time_left_s, again.memo.limit_s) == (None, None)


def test_a_time_limit_of_a_year_that_its_user_says_is_one() -> None:
    year_s = 365 * 86400.0
    waits = look(limit_s=year_s).memo
    runs = look(waits, **RUNNING, limit_s=year_s, left_s=year_s - 50).job
    assert runs is not None
    assert runs.time_left_s == year_s - 50
