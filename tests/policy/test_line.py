"""Priorities: who stands where in line, under every policy, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import catalogue
from policy.decide import decide
from policy.line import InLine, lined_up, places, told
from policy.model import BadInput, Job, Snapshot
from policy.text.instance import parse, to_text
from tests.policy.worlds import NAMES, cluster, job, sublinear, world

#: Chance decides among equals, not the line.
BY_LOT = {"lottery", "lottery-backfill"}


def equals(priority: int = 0, precedence: int = 0, tenant: str = "lab") -> Snapshot:
    """Three jobs that differ in their names alone, and room for one; the last has the priority."""
    alike = {"throughput": {"v100": sublinear(1.0, 1.0, 2)}, "app": "one"}
    jobs = [replace(job(name, 1, **alike), tenant="lab") for name in ("a", "b")]
    last = replace(job("z", 1, **alike), tenant=tenant, priority=priority, precedence=precedence)
    jobs = [replace(j, work=replace(j.work, total=1000.0), app=j.name) for j in (*jobs, last)]
    return world(cluster("n1 v100 1"), *jobs)


@pytest.mark.parametrize("policy", sorted(set(NAMES) - BY_LOT))
def test_among_equals_of_a_tenant_the_one_of_higher_priority_runs(policy: str) -> None:
    before, after = (decide(each, policy) for each in (equals(), equals(priority=5)))
    assert [name for name, held in before.allocation.items() if held] == ["a"]
    assert [name for name, held in after.allocation.items() if held] == ["z"]
    assert any("job z stands before jobs a and b, by priority 5" in note for note in after.certificate.notes)
    assert after.reasons["z"].text.endswith("priority 5 puts it before jobs a and b")
    assert after.reasons["a"].text.endswith("job z came later and stands before it, by priority")
    assert after.reasons["z"].numbers["priority"] == 5


def test_a_priority_is_nothing_to_other_tenants_and_a_precedence_is() -> None:
    assert decide(equals(priority=100, tenant="other"), "fifo").allocation["a"]
    assert decide(equals(precedence=1, tenant="other"), "fifo").allocation["z"]


@pytest.mark.parametrize("policy", ["max-min", "drf", "fifo", "fifo-backfill"])
def test_what_runs_is_not_stopped_for_a_place_in_line_where_the_policy_stops_nobody(policy: str) -> None:
    now = equals(priority=5)
    running = tuple(replace(j, allocation={"n1": 1}) if j.name == "a" else j for j in now.jobs)
    held = decide(replace(now, jobs=running), policy).allocation
    assert held["z" if policy in ("max-min", "drf") else "a"]


lines = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(-2, 2), st.integers(0, 1)), max_size=8
).map(lambda rows: [InLine(f"j{n}", t, float(s), p, q) for n, (t, s, p, q) in enumerate(rows)])


@settings(max_examples=200, deadline=None)
@given(lines)
def test_a_tenant_has_the_places_that_it_had(jobs: list[InLine]) -> None:
    within = [replace(j, precedence=0) for j in jobs]
    found = places(within)
    for tenant in "abc":
        mine = [j for j in within if j.tenant == tenant]
        assert sorted(found[j.name] for j in mine) == sorted((j.submitted_s, j.name) for j in mine)
        told = sorted(mine, key=lambda j: found[j.name])
        assert told == sorted(mine, key=lambda j: (-j.priority, j.submitted_s, j.name))
    across = places(jobs)
    assert sorted(across.values()) == sorted(found.values()), "the line has the same places"
    assert sorted(jobs, key=lambda j: across[j.name]) == sorted(jobs, key=lambda j: (-j.precedence, found[j.name]))


def test_times_are_what_they_were_and_nobody_moves_without_a_priority() -> None:
    plain = equals()
    assert lined_up(plain) is plain
    moved = lined_up(equals(priority=1))
    assert [j.submitted_s for j in moved.jobs] == [j.submitted_s for j in plain.jobs]
    assert lined_up(moved) == moved


def test_the_instance_file_says_priorities_within_bounds() -> None:
    stated = equals(priority=-3, precedence=2)
    text = to_text(stated)
    assert parse(text) == stated and "priority: -3" in text and "precedence: 2" in text
    with pytest.raises(BadInput, match="priority"):
        parse(text.replace("priority: -3", "priority: 101"))


def test_every_policy_by_lot_is_one_of_the_catalogue() -> None:
    assert set(catalogue.entries()) >= BY_LOT


def test_many_moves_are_counted_in_the_certificate_not_listed() -> None:
    jobs = [replace(job(f"j{n}", 1, tenant="lab"), submitted_s=float(n), priority=n) for n in range(10)]
    notes = decide(world(cluster("n1 v100 1"), *jobs), "fifo").certificate.notes
    assert sum("stands before" in note for note in notes) == 3
    assert any("6 more jobs stand before earlier ones" in note for note in notes)


def passed_one_by_one(jobs: Sequence[Job], asks: Job) -> tuple[list[str], list[str]]:
    """Whom it passed, and by whom it was passed: each pair of jobs looked at, as the page on priorities says it."""

    def before(a: Job, b: Job) -> bool:
        """Whether b came earlier than a, is less urgent, and stands after it."""
        earlier = (b.submitted_s, b.name) < (a.submitted_s, a.name)
        return earlier and b.order > a.order and (b.precedence, b.priority) < (a.precedence, a.priority)

    return [j.name for j in jobs if before(asks, j)], [j.name for j in jobs if before(j, asks)]


def crowded_line(seed: int, count: int) -> Snapshot:
    """Many jobs of a few tenants with priorities and precedences, in no order, and room for a few."""
    rng = Random(seed)
    jobs = [
        replace(
            job(f"j{i}", 1, app=f"j{i}"),
            tenant=rng.choice("abc"),
            submitted_s=float(rng.randint(0, count)),
            priority=rng.choice((0, 0, 1, 5, -2)),
            precedence=rng.choice((0, 0, 0, 1, 7)) if seed % 2 else 0,
        )
        for i in range(count)
    ]
    return world(cluster("n1 v100 3"), *jobs)


def some(names: list[str]) -> str:
    """As a sentence names them."""
    if len(names) == 1:
        return f"job {names[0]}"
    if len(names) > 3:
        return f"jobs {', '.join(names[:3])} and {len(names) - 3} more"
    return f"jobs {', '.join(names[:-1])} and {names[-1]}"


@pytest.mark.parametrize("seed", range(20))
def test_who_passed_whom_is_counted_as_when_each_pair_is_looked_at(seed: int) -> None:
    snapshot = crowded_line(seed, 40)
    decision = decide(snapshot, "fifo")
    line = lined_up(snapshot).jobs
    waits = [j for j in line if not decision.allocation[j.name]]
    said = 0
    for one in (j for j in line if j.place is not None):
        text = decision.reasons[one.name].text
        passed, _ = passed_one_by_one(waits, one)
        _, by = passed_one_by_one(line, one)
        if passed:
            assert text.endswith(f" puts it before {some(passed)}")
        elif by and one in waits:
            stand = "stands" if len(by) == 1 else "stand"
            assert text.endswith(f"; {some(by)} came later and {stand} before it, by priority")
        else:
            assert " before " not in text
        said += bool(passed)
    assert said


def test_ten_times_the_jobs_in_line_are_not_looked_at_a_hundred_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of priorities was found by a walk over all jobs for each."""
    looks = []
    for count in (200, 2000):
        snapshot = lined_up(crowded_line(1, count))
        decision = decide(snapshot, "fifo")
        seen = 0

        def order(one: Job) -> tuple[float, str]:
            nonlocal seen
            seen += 1
            return (one.submitted_s, one.name) if one.place is None else one.place

        with monkeypatch.context() as patch:
            patch.setattr(Job, "order", property(order))
            told(decision, snapshot)
        looks.append(seen)
    assert looks[0] and looks[1] <= 20 * looks[0]
