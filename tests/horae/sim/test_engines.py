"""Two engines, one outcome: what production would do, and the fast way to the same bytes."""

from __future__ import annotations

import pytest

from policy.catalogue import entries
from tests.horae.sim import made

POLICIES = tuple(entries())
#: Those whose order decides alone over one pool.
ORDERS = ("fifo", "srtf", "srsf", "las", "afs-l", "afs-p", "max-min", "tiresias-l")
#: Those of them that hand out more than jobs ask for.
ELASTIC = ("afs-l", "afs-p", "max-min")


@pytest.mark.parametrize("ideal", [True, False], ids=["ideal", "placed"])
@pytest.mark.parametrize("policy", POLICIES)
def test_both_engines_give_the_same_bytes(policy: str, ideal: bool) -> None:
    for seed, cluster in ((2, "v100:3x4"), (3, "k80:2x4,v100:2x4")):
        jobs = made.trace(seed, 6 if policy == "las" and ideal else 16)
        fast = made.rows(made.played(jobs, policy, cluster, ideal=ideal))
        assert made.rows(made.played(jobs, policy, cluster, ideal=ideal, engine="arbiter")) == fast


@pytest.mark.parametrize("policy", ORDERS)
def test_an_order_without_a_placement_decides_as_the_policy_does(policy: str) -> None:
    for seed in range(1 if policy == "las" else 8):  # LAS takes turns, and the policy itself is asked for each
        jobs = made.trace(seed, 6 if policy == "las" else 25, apart_s=150.0, elastic=policy not in ELASTIC)
        jobs = made.of_one_tenant(jobs) if policy == "max-min" else jobs
        given = {"unit": 500.0} if policy == "afs-p" else {"threshold": 400.0, "promote_knob": 2.0 - seed % 2}
        options = given if policy in ("afs-p", "tiresias-l") else {}
        short = made.rows(made.played(jobs, policy, "v100:1x6", ideal=True, options=options))
        plain = made.played(jobs, policy, "v100:1x6", ideal=True, options=options, shortcuts=False)
        assert made.rows(plain) == short


@pytest.mark.parametrize("policy", ELASTIC)
def test_sizes_in_one_pool_are_those_of_the_policy_with_its_places(policy: str) -> None:
    for seed in range(4):
        jobs = made.trace(seed, 25, apart_s=150.0, model="concave" if seed > 1 else None)
        options = {"unit": 500.0} if policy == "afs-p" else {}
        short = made.rows(made.played(jobs, policy, "v100:1x6", ideal=True, options=options))
        plain = made.played(jobs, policy, "v100:1x6", ideal=True, options=options, shortcuts=False)
        assert made.rows(plain) == short


def test_first_come_first_served_on_nodes_keeps_its_ledger() -> None:
    for seed in range(8):
        jobs = made.trace(seed, 30, apart_s=100.0, most=8)
        short = made.rows(made.played(jobs, "fifo", "k80:2x3/rack2,v100:2x4", ideal=False))
        assert made.rows(made.played(jobs, "fifo", "k80:2x3/rack2,v100:2x4", ideal=False, shortcuts=False)) == short


@pytest.mark.parametrize("ideal", [True, False])
def test_backfilling_that_asks_only_where_somebody_could_overtake_is_the_policys(ideal: bool) -> None:
    for seed in range(3):
        for length in (60.0, 20.0):
            jobs = made.trace(seed, 40, apart_s=length, most=8)
            short = made.rows(made.played(jobs, "fifo-backfill", "k80:2x3/rack2,v100:2x4", ideal=ideal))
            plain = made.played(jobs, "fifo-backfill", "k80:2x3/rack2,v100:2x4", ideal=ideal, shortcuts=False)
            assert made.rows(plain) == short


@pytest.mark.parametrize("policy", ["lottery", "themis", "afs-l"])
def test_the_same_seed_gives_the_same_bytes_and_drawn_restarts_too(policy: str) -> None:
    jobs = made.trace(1, 15)

    def rows(seed: int) -> str:
        return made.rows(made.played(jobs, policy, ideal=False, restart_s=None, seed=seed))

    assert rows(5) == rows(5)
    assert rows(5) != rows(6)


def test_a_restart_costs_its_constant_and_nothing_where_it_is_ideal() -> None:
    jobs = made.trace(4, 20, apart_s=50.0)
    dear, ideal = (made.played(jobs, "srtf", ideal=ideal) for ideal in (False, True))
    restarts = [r for r in dear.runs if r.starts > 1]
    assert restarts
    for run in restarts:
        assert 0 < run.restart_seconds <= 30.0 * (run.starts - 1)
        assert run.gpu_seconds >= run.plain.gpus.requested * run.restart_seconds
    assert all(r.restart_seconds == 0.0 for r in ideal.runs)


def test_nobody_holds_more_than_there_is_and_all_work_is_done() -> None:
    """From the rows alone: GPU-seconds of rigid jobs on one pool are their size times their length."""
    jobs = made.trace(6, 30, elastic=False)
    for job, run in zip(jobs.jobs, made.played(jobs, "srtf", ideal=True).runs, strict=True):
        assert job.duration is not None
        assert run.gpu_seconds == pytest.approx(job.gpus * job.duration)
        assert run.finished_s is not None
        assert run.finished_s >= job.submitted + job.duration - 1e-6
