"""What a round takes over from the last one: the same questions and plans as those made from scratch, whatever happens.

Random histories of a small site; every question that its arbiter asks is made a second time from nothing.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.arbiter import round, standing
from horae.arbiter.decide import replies
from horae.arbiter.decide.album import Album
from horae.arbiter.decide.pickling import dumps, loads
from horae.arbiter.decide.policy_runner import Question
from horae.arbiter.decide.snapshot import picture, picture_of_the_fit
from horae.arbiter.execute import positions
from horae.journal import ledger as ledgers
from horae.journal import quiet as quieting
from horae.journal.ledger import LeftOut, Obstacle
from horae.journal.measured import Measurement
from horae.journal.quiet import quiet
from horae.port import BlockKind, JobState
from policy.decide import decide
from policy.model import Decision, GpuRange, Node, Shape, Slowdown, Snapshot
from policy.text import instance
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, spec
from tests.policy.worlds import choosy, snapshots

TABLES = ({}, {"k80": {1: 1.0, 4: 3.0}}, {"k80": {1: 1.0, 2: 1.5}, "v100": {1: 3.0, 4: 9.0}})
SHAPES = (None, Shape(cpus_per_node=4.0), None, Shape(gpus_per_node=1))


class Twice:
    """A policy that looks at what it is asked, and at the same asked from scratch."""

    def __init__(self) -> None:
        self.site: Site | None = None
        self.asked: list[Snapshot] = []
        self.kept = 0

    def __call__(self, snapshot: Snapshot, *_: Any) -> Decision:
        assert self.site is not None and self.site.core.view is not None
        scratch = round.question(self.site.core.ledger, self.site.config.pools[0], self.site.core.view).snapshot
        assert snapshot == scratch
        assert instance.to_text(snapshot) == instance.to_text(scratch)
        before = {id(j) for j in self.asked[-1].jobs} if self.asked else set()
        self.kept += sum(id(j) in before for j in snapshot.jobs)
        self.asked.append(snapshot)
        return decide(snapshot, "max-min")


def something_happens(site: Site, rng: Random) -> None:
    live = [r for r in site.core.ledger.live() if r.shown]
    what = rng.choice(("submit", "submit", "submit", "cancel", "hold", "unhold", "maintenance", "time", "time"))
    if what == "submit":
        size = rng.choice((1, 2, (1, 4), (2, 8)))
        more = {
            "throughput": rng.choice(TABLES),
            "steps": rng.choice((20, 200, 10**5)),
            "shape": SHAPES[len(live) % len(SHAPES)],
            "gpu_types": ("k80",) if len(live) % 3 == 2 else (),
        }
        site.commands.submit([spec(f"job{rng.randrange(3)}", size, **more)], rng.choice((ANN, BEN)))
    elif what == "maintenance":
        site.commands.maintenance("main", rng.random() < 0.3, ROOT, "a test")
    elif what != "time" and live:
        job = rng.choice(live)
        if what == "cancel":
            site.commands.cancel(job.id, ROOT)
        elif what == "hold" and job.hold_why is None:
            site.commands.hold(job.id, ROOT, "a test")
        elif what == "unhold" and job.hold_why is not None:
            site.commands.unhold(job.id, ROOT)
    site.run(rng.choice((0.25, 1.0, 5.0)))


@pytest.mark.parametrize("seed", range(6))
def test_a_question_is_what_it_would_be_from_scratch(tmp_path: Path, seed: int) -> None:
    policy, rng = Twice(), Random(seed)
    site = Site(tmp_path, policy=policy)
    policy.site = site
    for _ in range(50):
        something_happens(site, rng)
    assert len(policy.asked) > 10
    assert policy.kept > 0, "jobs that nothing happened to are the very same"


def test_what_ended_is_forgotten(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (short,) = site.commands.submit([spec("a", 1, steps=10)], ANN)
    site.commands.submit([spec("b", 40)], ANN)
    site.until(short, JobState.COMPLETED)
    site.run(5)
    album = site.core._albums["main"]
    assert short not in album._jobs
    album.close(())
    assert album._jobs == {}


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_is_what_it_would_be_with_all_jobs(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    site = Site(tmp_path)
    left_out = positions._at_rest
    skipped = {"waits": 0, "runs": 0}
    for _ in range(40):
        something_happens(site, rng)
        view, ledger = site.core.view, site.core.ledger
        if view is None:
            continue
        _, few = positions.steps(ledger, "main", view, restart_gap_s=0.0, reshape_in_place=False)
        with monkeypatch.context() as all_jobs:
            all_jobs.setattr(positions, "_at_rest", lambda _record, _ours: False)
            all_jobs.setattr(ledgers, "rests", lambda _record: False)
            ledger.touched.update(ledger.jobs)
            board, whole = positions.steps(ledger, "main", view, restart_gap_s=0.0, reshape_in_place=False)
        ledger.touched.update(ledger.jobs)
        assert few == whole
        for position in board.positions:
            if left_out(ledger.jobs[position.job], site.world.nodes):
                skipped["runs" if position.held else "waits"] += 1
    assert min(skipped.values()) > 0


def test_who_leaves_by_itself_is_waited_for_though_it_has_what_it_is_to_have(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)])
    leaves, waits = site.commands.submit([spec("a", 4, steps=10**6), spec("b", 4)], ANN)
    site.until(leaves, JobState.RUNNING)
    site.run(3)
    site.job(waits).target = {"n1": 4}
    site.core.ledger.touched.add(waits)
    assert site.core.view is not None

    def waited_for() -> set[str]:
        _, steps = positions.steps(site.core.ledger, "main", site.core.view, restart_gap_s=0.0, reshape_in_place=False)
        return {other for step in steps if step.job == waits for other in step.waits_for}

    assert waited_for() == set()
    site.job(leaves).state = JobState.STOPPING
    site.core.ledger.touched.add(leaves)
    assert waited_for() == {leaves}


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(snapshots(), st.integers(0, 1_000))
def test_what_travels_arrives_as_it_was(plain: Snapshot, seed: int) -> None:
    snapshot = choosy(plain, seed)
    question = Question("main", snapshot, "fifo", {"a": 1}, 7, 1.0, {"j9": "its work is 1e+99"})
    there = loads(dumps(question))
    assert there == question
    assert instance.to_text(there.snapshot) == instance.to_text(snapshot)
    decision = decide(plain, "max-min")  # who is choosy may hold what their node has not
    reply = (decision, "", {"j9": "ValueError: no"})
    assert replies.loads(replies.dumps(reply)) == reply


def test_equal_tables_are_one_object_on_both_sides(tmp_path: Path) -> None:
    site = Site(tmp_path)
    more = {"throughput": {"k80": {1: 1.5}}, "gpu_types": ("k80",)}
    site.commands.submit([spec(f"j{i}", 40, **more, shape=Shape(nodes=10)) for i in range(3)], ANN)
    site.run(2)
    assert site.core.view is not None
    asked = round.question(site.core.ledger, site.config.pools[0], site.core.view, album=Album())
    for snapshot in (asked.snapshot, loads(dumps(asked)).snapshot):
        assert len(snapshot.jobs) == 3
        assert len({id(j.throughput) for j in snapshot.jobs}) == 1
        assert len({id(j.gpus) for j in snapshot.jobs}) == 1
        assert {j.shape for j in snapshot.jobs} == {Shape(nodes=10)}
        assert len({id(j.shape) for j in snapshot.jobs}) == 1
        assert len({id(j.gpu_types) for j in snapshot.jobs}) == 1


def test_a_job_is_another_where_its_cluster_says_otherwise_of_workers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.commands.submit([spec("j", 40)], ANN)
    site.run(2)
    view, album = site.core.view, Album()
    assert view is not None
    for cpus in (None, 4.0, 8.0):
        (job,) = picture(site.core.ledger, site.config.pools[0], replace(view, cpus_per_gpu=cpus), album=album).jobs
        assert job.cpus_per_gpu == cpus


def test_who_cannot_be_taken_is_not_kept(tmp_path: Path) -> None:
    site = Site(tmp_path)
    good, bad = site.commands.submit([spec("good", 40), spec("bad", 40)], ANN)
    site.run(2)
    view, album, pool = site.core.view, Album(), site.config.pools[0]
    assert view is not None
    for _ in range(2):
        wild = replace(view, fresh={bad: Measurement(slowdown=Slowdown(1.0, 1.0, 1e99))})
        shown, unfit = picture_of_the_fit(site.core.ledger, pool, wild, album=album)
        assert [j.name for j in shown.jobs] == [good]
        assert "slowdown" in unfit[bad]
    shown, unfit = picture_of_the_fit(site.core.ledger, pool, view, album=album)
    assert {j.name for j in shown.jobs} == {good, bad}
    assert not unfit


def test_the_search_for_garbage_goes_on_afterwards() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), quiet():
        assert not gc.isenabled()
        raise ValueError("x")
    assert gc.isenabled()


class Cycle:
    def __init__(self) -> None:
        self.me = self


def test_what_is_made_in_quiet_is_searched_only_with_all_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quieting, "SEARCH_AFTER", 50_000)
    monkeypatch.setattr(quieting._Aged, "values", 0)
    monkeypatch.setattr(quieting._Aged, "lived", 0)
    searched: list[int] = []

    def told(_phase: str, info: dict[str, int]) -> None:
        searched.append(info["generation"])

    gc.collect()
    gc.callbacks.append(told)
    try:
        with quiet():
            lost = weakref.ref(Cycle())
            made: list[list[int]] = [[] for _ in range(20_000)]
        made += [[] for _ in range(100)]
        assert not searched
        assert lost() is not None
        while not searched and len(made) < 100_000:
            with quiet():
                made += [[] for _ in range(20_000)]
    finally:
        gc.callbacks.remove(told)
    assert set(searched) == {2}
    assert lost() is None
    assert gc.get_freeze_count() == 0


def test_the_quick_answer_about_who_is_decided_about_is_the_long_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.commands.submit([spec("j", 40)], ANN)
    site.run(2)
    (record,) = site.core.ledger.live()
    others: dict[str, Any] = {
        "state": JobState.COMPLETED, "shown": False, "ended": JobState.FAILED, "released": True, "missing_since_s": 1.0,
        "guessed": True, "cancel_why": "a", "hold_why": "b", "blocked": Obstacle(BlockKind.ASIDE, "c", 0.0),
        "losses": 9, "aside": LeftOut("d", 1e12, 0.0), "spec": replace(record.spec, gpus=GpuRange(0, 0, 0)),
    }  # fmt: skip
    waits = replace(record, state=JobState.QUEUED, allocation={}, holding={}, grant=None)
    for changes in ({}, *({name: value} for name, value in others.items())):
        job = replace(waits, **changes)
        for unseen in (False, True):
            found = standing.decidable(job, site.config, 1.0, unseen=unseen)
            assert found == standing._decidable(job, site.config, 1.0, unseen=unseen)
            assert found == (not changes or (unseen and "shown" in changes) or "losses" in changes)
