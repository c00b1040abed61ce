"""Two engines, one outcome: what production would do, and the fast way to the same bytes."""

from __future__ import annotations

import pytest

from horae.sim.engine import reviews
from horae.sim.engine.asking import COUNTED, AskedPolicy
from horae.sim.engine.order import _KEYS
from horae.sim.traces.model import Trace, TraceJob
from policy.catalogue import entries
from policy.model import Proposal
from tests.horae.sim import made

POLICIES = tuple(entries())
#: Those whose order decides alone over one pool.
ORDERS = tuple(_KEYS)
#: Those of them that tell sizes without places.
COUNTS = tuple(COUNTED)
#: Those of them that hand out more than jobs ask for.
ELASTIC = (*COUNTS, "afs-s", "optimus", "slaq", "srsf-e", "srtf-e")
#: Options that make their books change within a short trace.
BOOKED = {"afs-p": {"unit": 500.0}, "afs-s": {"unit": 500.0}}


@pytest.mark.parametrize("ideal", [True, False], ids=["ideal", "placed"])
@pytest.mark.parametrize("policy", POLICIES)
def test_both_engines_give_the_same_bytes(policy: str, ideal: bool) -> None:
    for seed, cluster in ((2, "v100:3x4"), (3, "k80:2x4,v100:2x4")):
        jobs = made.trace(seed, 6 if policy == "las" and ideal else 16)
        fast = made.rows(made.played(jobs, policy, cluster, ideal=ideal))
        assert made.rows(made.played(jobs, policy, cluster, ideal=ideal, engine="arbiter")) == fast


@pytest.mark.parametrize("engine", ["fast", "arbiter"])
def test_what_happens_a_rounding_after_a_tick_is_reached(engine: str) -> None:
    """110.00000000000001 s is when three GPUs on two nodes have done 100 s: a tick of 110 s is before that for ever."""
    late = 110.00000000000001
    jobs = Trace((TraceJob("across", 0.0, 3, 100.0), TraceJob("comes", late, 3, 100.0)))
    outcome = made.played(jobs, "fifo", "v100:2x2", ideal=False, engine=engine)
    assert [run.finished_s for run in outcome.runs] == [late, 220.00000000000003]


@pytest.mark.parametrize("policy", [name for name, entry in entries().items() if entry.quantum])
def test_a_quantum_that_ends_where_everybody_has_all_is_no_moment(policy: str) -> None:
    """Two jobs of a day each on a node with room: what can happen is two arrivals and two ends."""
    jobs = Trace(tuple(TraceJob(name, at_s, 2, 86400.0) for name, at_s in (("a", 0.0), ("b", 3600.0))))
    for ideal in (True, False):
        outcome = made.played(jobs, policy, "v100:1x4", ideal=ideal)
        assert outcome.rounds == 4
        assert [run.finished_s for run in outcome.runs] == [86400.0, 90000.0]


@pytest.mark.parametrize("policy", ["gandiva", "gavel-max-min", "oef-cooperative"])
def test_without_these_moments_all_others_are_what_they_were(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        jobs = made.trace(seed, 15, apart_s=400.0, elastic=False)
        few = made.played(jobs, policy, "v100:1x8", ideal=True)
        with monkeypatch.context() as patch:
            patch.setattr(reviews, "_sated", lambda _job, _given: False)
            all_of_them = made.played(jobs, policy, "v100:1x8", ideal=True)
        assert made.rows(few) == made.rows(all_of_them)
        assert few.rounds < all_of_them.rounds


@pytest.mark.parametrize("policy", ORDERS)
def test_an_order_without_a_placement_decides_as_the_policy_does(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1 if policy == "las" else 8):  # LAS takes turns, and the policy itself is asked for each
        jobs = made.trace(seed, 6 if policy == "las" else 25, apart_s=150.0, elastic=policy not in ELASTIC)
        jobs = made.of_one_tenant(jobs) if policy in ("drf", "max-min") else jobs
        queues = {"threshold": 400.0, "promote_knob": 2.0 - seed % 2}
        options = queues if policy == "tiresias-l" else BOOKED.get(policy, {})
        with monkeypatch.context() as patch:
            patch.setattr(AskedPolicy, "about", _asked)
            patch.setattr(AskedPolicy, "in_one_pool", lambda _self: _asked)
            short = made.rows(made.played(jobs, policy, "v100:1x6", ideal=True, options=options))
        plain = made.played(jobs, policy, "v100:1x6", ideal=True, options=options, shortcuts=False)
        assert made.rows(plain) == short


def _asked(*_of: object) -> Proposal:
    raise AssertionError("the policy is asked")


@pytest.mark.parametrize("policy", COUNTS)
def test_sizes_in_one_pool_are_those_of_the_policy_with_its_places(policy: str) -> None:
    for seed in range(4):
        jobs = made.trace(seed, 25, apart_s=150.0, model="concave" if seed > 1 else None)
        options = BOOKED.get(policy, {})
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
