"""Jobs that Slurm does not start though they were granted GPUs keep none from others: of jobs alike one at a time is
tried, less and less often, and behind those that Slurm has not refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.port import BlockKind, JobId, ObservedJob
from slurm_plugin.jobs.record import Memo
from slurm_plugin.jobs.shapes import FIRST, first
from slurm_plugin.jobs.waiting import one_by_one, tried_again_s
from slurm_plugin.records import JobRow
from tests.slurm_plugin.rows import GRANT, NOW, OWN, PARKED, ROW, look

WITHDRAWN = replace(GRANT, withdrawn=True, refused=True)
BEHIND = replace(GRANT, withdrawn=True, behind=True)
TRIED = Memo("7.abc", (WITHDRAWN,), held_s=NOW - 1, blocked=("foreign", "Resources"))


def waiting(number: int, **changes: Any) -> tuple[JobRow, ObservedJob]:
    """One of many alike."""
    row = replace(ROW, id=str(number), slurm_id=number, submit_s=NOW - 1000 + number, **{**PARKED, **changes})
    row = replace(row, admin_comment=row.admin_comment.replace("horae=abc", f"horae=n{number}"))
    job = look(Memo(f"{number}.n{number}"), **{name: getattr(row, name) for name in ("admin_comment", *PARKED)}).job
    assert job is not None
    return row, replace(job, id=f"{number}.n{number}", submitted_s=row.submit_s)


def turns(
    memos: dict[int, Memo], others: tuple[tuple[JobRow, ObservedJob], ...] = (), now_s: float = NOW
) -> tuple[set[JobId], dict[JobId, int]]:
    """Who of five alike and these others is granted nothing yet."""
    both = [*(waiting(number) for number in range(1, 6)), *others]
    jobs, rows = {job.id: job for _, job in both}, {job.id: row for row, job in both}
    by_id = {f"{number}.n{number}": memo for number, memo in memos.items()}
    aside, tries = one_by_one(jobs, rows, lambda job: by_id.get(job, Memo(job)), now_s)
    assert {blocked.kind for blocked in aside.values()} <= {BlockKind.ASIDE}
    return set(aside), tries


def named(*numbers: int) -> set[JobId]:
    return {f"{number}.n{number}" for number in numbers}


def test_what_nobody_refused_is_granted_together() -> None:
    assert turns({}) == (set(), {})
    assert turns({1: Memo("1.n1", (GRANT,)), 2: Memo("2.n2", (replace(GRANT, started=True),))}) == (set(), {})
    for recalled in (False, True):
        held = Memo("1.n1", (replace(GRANT, withdrawn=True, recalled=recalled),), held_s=NOW)
        assert turns({1: held}) == (set(), {}), "we, or who holds it, took it back"


def test_of_jobs_alike_that_slurm_does_not_start_one_at_a_time_is_tried() -> None:
    tried = replace(TRIED, job="3.n3")
    aside, tries = turns({3: tried})
    assert aside == named(1, 2, 3, 4, 5), "they rest together"
    assert tries == dict.fromkeys(named(1, 2, 3, 4, 5), 1)
    assert turns({3: tried}, now_s=NOW + 4)[0] == named(2, 3, 4, 5), "the first that came"
    again = Memo("1.n1", (replace(GRANT, at_s=NOW + 10),))
    assert turns({3: tried, 1: again}, now_s=NOW + 11)[0] == named(1, 2, 3, 4, 5), "while it is tried the others wait"
    vain = replace(TRIED, job="1.n1", grants=(replace(WITHDRAWN, at_s=NOW + 10),), held_s=NOW + 15)
    assert turns({3: tried, 1: vain}, now_s=NOW + 22)[0] == named(1, 2, 3, 4, 5), "each time for longer"
    assert turns({3: tried, 1: vain}, now_s=NOW + 24)[0] == named(2, 3, 4, 5)


def test_where_the_one_that_may_be_tried_is_not_granted_others_may() -> None:
    """For a reason of its own: its policy's, its tenant's."""
    tried = {3: replace(TRIED, job="3.n3")}
    assert [len(turns(tried, now_s=NOW + later)[0]) for later in (4, 10, 14, 20)] == [4, 3, 1, 0]


def test_jobs_that_were_asked_for_together_are_one_try() -> None:
    memos = {number: replace(TRIED, job=f"{number}.n{number}") for number in (1, 2, 3)}
    assert set(turns(memos)[1].values()) == {1}


def test_once_one_of_them_runs_the_others_are_as_before() -> None:
    ran = Memo("1.n1", (replace(GRANT, at_s=NOW + 10, started=True),))
    assert turns({3: replace(TRIED, job="3.n3"), 1: ran}, now_s=NOW + 11) == (set(), {})


@pytest.mark.parametrize(
    "changes", [{"uid": 1001}, {"account": "other"}, {"qos": "long"}, {"admin_comment": OWN.replace("per=2", "per=1")}]
)
def test_others_jobs_and_other_requests_are_nobodys_hindrance(changes: dict[str, Any]) -> None:
    other = waiting(9, **changes)
    aside, tries = turns({3: replace(TRIED, job="3.n3")}, (other,))
    assert other[1].id not in {*aside, *tries}


def test_who_was_only_behind_others_is_granted_again_at_once() -> None:
    """Slurm tries no job of a partition behind one that it cannot start."""
    let_go: dict[str, Any] = {
        "reason": "Priority",
        "eligible_s": NOW - 50,
        "priority": 9,
        "admin_comment": OWN,
        "comment": "",
    }
    granted = Memo("7.abc", (replace(GRANT, at_s=NOW - 20),), state="starting")
    behind = look(granted, **let_go)
    assert [grant.behind for grant in behind.memo.grants] == [True]
    for reason, refused in (("Resources", True), ("QOSMaxGRESPerUser", False)):
        last = look(granted, **{**let_go, "reason": reason}).memo.grants[-1]
        assert (last.withdrawn, last.behind, last.refused) == (True, False, refused)
    again = look(behind.memo, **{**let_go, "reason": "JobHeldAdmin", "priority": 0})
    assert again.job is not None
    assert again.job.blocked is None
    assert tried_again_s(replace(TRIED, grants=(BEHIND,) * 2)) == 0.0
    assert tried_again_s(replace(TRIED, grants=(BEHIND,) * 4)) > NOW, "but not for ever so"
    memo = Memo("3.n3", (BEHIND,), held_s=NOW - 1)
    assert turns({3: memo}) == (set(), {})


def test_who_was_not_refused_goes_before_those_whose_like_were() -> None:
    factors = [first(tries) for tries in range(12)]
    assert factors[0] == FIRST
    assert factors[:9] == sorted(set(factors), reverse=True)
    assert factors[-1] > 1 << 28, "above what any priority comes to all the same"
