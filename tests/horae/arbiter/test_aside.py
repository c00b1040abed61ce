"""A job that a policy cannot take: it is left out with a reason, and the others go on."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.decide import aside
from horae.arbiter.decide.policy_runner import Inline, Question, Worker
from horae.arbiter.requests.authority import Requester
from horae.journal.store import rebuilt
from horae.port import JobState
from horae.spec import JobSpec
from horae.views.explain import explain
from policy.model import Cluster as Nodes
from policy.model import Decision, GpuRange, Job, Node, Snapshot
from tests.horae.arbiter.site import Site, first_come, spec


def picky(snapshot: Snapshot, *asked: Any) -> Decision:
    """Cannot take what asks for 3 GPUs."""
    if bad := [job.name for job in snapshot.jobs if job.gpus.min == 3]:
        raise ZeroDivisionError(f"divided by job {bad[0]}")
    return first_come(snapshot, *asked)


def deadly(snapshot: Snapshot, *asked: Any) -> Decision:
    """Ends its process for what asks for 3 GPUs."""
    if any(job.gpus.min == 3 for job in snapshot.jobs):
        os._exit(3)
    return first_come(snapshot, *asked)


def endless(snapshot: Snapshot, *asked: Any) -> Decision:
    """Never ends for what asks for 3 GPUs."""
    while any(job.gpus.min == 3 for job in snapshot.jobs):
        time.sleep(0.01)
    return first_come(snapshot, *asked)


def hopeless(snapshot: Snapshot, *asked: Any) -> Decision:
    raise RuntimeError("always")


def pair(snapshot: Snapshot, *asked: Any) -> Decision:
    """Raises for two jobs together, for neither alone."""
    if {"4", "5"} <= {job.name for job in snapshot.jobs}:
        raise RuntimeError("together")
    return first_come(snapshot, *asked)


def handed_in(site: Site, what: JobSpec, by: str) -> str:
    return site.commands.submit([what], Requester(by))[0]


def snapshot(*gpus: int) -> Snapshot:
    jobs = tuple(Job(str(i), "t", "a", GpuRange(n, n, n)) for i, n in enumerate(gpus))
    return Snapshot(cluster=Nodes((Node("n1", "v100", 8),)), jobs=jobs, tenants=())


@pytest.mark.parametrize("runner", [Inline(picky), Worker(f"{__name__}:picky")], ids=["inline", "worker"])
def test_the_culprits_are_found_and_the_others_decided_about(runner: Inline | Worker) -> None:
    question = Question("main", snapshot(1, 3, 1, 1, 3, 1, 1, 1, 3), "picky", {}, 0, 30.0)
    try:
        answer = runner.ask(question)
    finally:
        runner.close()
    assert answer.decision is not None, answer.why_not
    assert sorted(answer.aside) == ["1", "4", "8"]
    assert answer.aside["4"] == "ZeroDivisionError: divided by job 4"
    assert sorted(answer.decision.allocation) == ["0", "2", "3", "5", "6", "7"]


@pytest.mark.parametrize(
    ("policy", "limit_s", "said"),
    [("deadly", 10.0, "its process ended with code 3"), ("endless", 4.0, "it did not answer within 0.5 s")],
)
def test_a_job_that_takes_the_policys_process_along_is_left_out(policy: str, limit_s: float, said: str) -> None:
    runner = Worker(f"{__name__}:{policy}")
    jobs = [1, 1, 1, 1, 1, 3, 1, 1]
    try:
        answer = runner.ask(Question("main", snapshot(*jobs), policy, {}, 0, limit_s))
    finally:
        runner.close()
    assert answer.decision is not None, answer.why_not
    assert answer.aside == {"5": said}
    assert sorted(answer.decision.allocation) == ["0", "1", "2", "3", "4", "6", "7"]


@pytest.mark.parametrize("policy", ["exits", "forever"])
def test_a_policy_that_always_dies_or_hangs_blames_nobody_and_is_searched_once(policy: str) -> None:
    runner = Worker(f"tests.horae.arbiter.misbehaving:{policy}")
    question = Question("main", snapshot(1, 1), policy, {}, 0, 0.5)
    asked: list[bool] = []
    once = runner._once
    runner._once = lambda each: (asked.append(each.search), once(each))[1]  # type: ignore[method-assign]
    try:
        answers = [runner.ask(question), runner.ask(question)]
    finally:
        runner.close()
    assert [(each.decision, each.aside) for each in answers] == [(None, {}), (None, {})]
    assert asked == [False, True, False]


def test_a_policy_that_always_raises_blames_nobody() -> None:
    answer = Inline(hopeless).ask(Question("main", snapshot(1, 3), "hopeless", {}, 0, 30.0))
    assert answer.decision is None
    assert answer.aside == {}
    assert "RuntimeError: always" in answer.why_not


def test_of_two_that_do_not_go_together_none_is_blamed_alone() -> None:
    answer = Inline(pair).ask(Question("main", snapshot(1, 1, 1, 1, 1, 1), "pair", {}, 0, 30.0))
    assert answer.decision is None
    assert answer.aside == {}


def test_the_search_ends_with_its_time() -> None:
    tried: list[Snapshot] = []

    def slow(some: Snapshot) -> None:
        tried.append(some)
        if some.jobs:
            raise RuntimeError

    assert aside.culprits(slow, snapshot(*[1] * 64), time.monotonic()) == {}
    assert len(tried) == 1


def test_what_a_job_left_out_holds_is_nobody_elses() -> None:
    two = snapshot(1, 3)
    two = replace(two, jobs=(two.jobs[0], replace(two.jobs[1], allocation={"n1": 3})))
    rest = aside.without(two, ["1"])
    assert [job.name for job in rest.jobs] == ["0"]
    assert rest.cluster.nodes[0].foreign == 3


def test_in_a_living_arbiter_the_others_start_and_the_odd_one_is_told_why(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=picky)
    odd = handed_in(site, spec("odd", 3, owner="ann", steps=50), "ann")
    plain = handed_in(site, spec("plain", 1, owner="ben", steps=50), "ben")
    site.until(plain, JobState.RUNNING)
    record = site.job(odd)
    assert record.state is JobState.QUEUED
    assert record.aside is not None
    assert "ZeroDivisionError" in record.aside.text
    causes = explain(site.core.ledger, site.config, record, site.core.now_s()).causes
    assert [c.what for c in causes if "cannot take it" in c.text] == ["aside"]
    assert not [a for a in site.core.ledger.alerts if a.startswith("policy")], "a decision was made"
    assert rebuilt(site.journal.path).jobs[odd].aside == record.aside
    site.policy = first_come
    site.run(aside.AGAIN_S + 60.0)
    assert site.job(odd).ended is JobState.COMPLETED, "it is tried again, and this policy takes it"
    site.close()


def test_a_job_of_numbers_that_an_older_arbiter_took_is_left_out(tmp_path: Path) -> None:
    site = Site(tmp_path)
    ids = [
        handed_in(site, spec(f"odd{i}", 1, owner="ann", **changes), "ann")
        for i, changes in enumerate(
            [
                {"throughput": {"v100": {1: 1e308}}},
                {"throughput": {"v100": {10**400: 1.0, 1: 1.0}}},
                {"memory_per_gpu": 10**400},
                {"iterations": 5e-324, "throughput": {"v100": {1: 1e308}}},
            ]
        )
    ]
    huge = handed_in(site, replace(spec("huge", owner="ann"), gpus=GpuRange(10**400, 1, 10**400)), "ann")
    plain = handed_in(site, spec("plain", 1, owner="ben", steps=50), "ben")
    site.until(plain, JobState.COMPLETED)
    for job in (*ids, huge):
        record = site.job(job)
        assert record.state is JobState.QUEUED
        assert record.aside is not None, record
        assert "at " in record.aside.text
    site.close()
