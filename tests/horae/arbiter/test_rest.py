"""Jobs that merely wait, or merely run, are left alone by a tick: it must find and do the same as one that goes through
all of them.

Random histories of a small site, each lived twice: by an arbiter as it is, and by one to which no job rests or runs on.
What they write is the same, event by event.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from horae.arbiter.execute.executor import SetReason
from horae.arbiter.requests.authority import NotAllowed
from horae.journal import Event, Kind, Ledger
from horae.journal import ledger as ledgers
from horae.journal.events import Forgotten
from horae.journal.ledger import LINE, rests, runs_on
from horae.journal.store import rebuilt
from horae.port import Blocked, BlockKind, JobState
from policy.model import BadInput, Health
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, equal_shares, spec

REQUEUES = {"requeue_at_limit": "yes"}
BLOCKS = (
    Blocked(BlockKind.LIMIT, "QOSMaxGRES", cap=2),
    Blocked(BlockKind.LIMIT, "MaxJobs", alone=True),
    Blocked(BlockKind.NODE, "n1 is odd"),
    Blocked(BlockKind.ASIDE, "BeginTime"),
)


def check(ledger: Ledger) -> None:
    """What is known of who rests is what the records say."""
    live = list(ledger.live())
    assert [id(r) for r in ledger.astir()] == [id(r) for r in sorted(live, key=LINE) if not rests(r)]
    assert ledger.resting() == {r.id for r in live if rests(r)}
    on = [r for r in live if runs_on(r)]
    assert [id(r) for r in ledger.in_motion()] == [id(r) for r in ledger.astir() if not runs_on(r)]
    assert ledger.running_on() == {r.id for r in on}
    for pool, held in ledger.held_on().items():
        assert held == sum((Counter(r.allocation) for r in on if r.pool == pool), Counter())
    assert ledger.held_on().keys() >= {r.pool for r in on}


class Life:
    """A site, what happens to it, and how many of its jobs rested and ran on meanwhile."""

    def __init__(self, folder: Path, seed: int, mode: str) -> None:
        pools = [{"name": "main", "mode": mode, "reclaim_unused_s": 30.0}]
        budgets = [{"name": "ann", "budget": {"gpu_hours": 0.5, "period": "day"}}, {"name": "ben"}]
        self.rng, self.rested, self.ran_on, self.told = Random(seed), 0, 0, list[str]()
        self.site = Site(folder, policy=equal_shares, pools=pools, tenants=budgets, unused={"after_s": 20.0})
        self._listen()

    def _listen(self) -> None:
        perform = self.site.driver._executor.perform

        def heard(ops: Any, budget_s: float) -> Any:
            self.told += [f"{op.job}: {op.text}" for op in ops if isinstance(op, SetReason)]
            return perform(ops, budget_s)

        self.site.driver._executor.perform = heard  # type: ignore[method-assign]

    def live(self, steps: int) -> list[tuple[Any, ...]]:
        for _ in range(steps):
            self.something_happens()
            check(self.site.core.ledger)
            self.rested += len(self.site.core.ledger.resting())
            self.ran_on += len(self.site.core.ledger.running_on())
        assert rebuilt(self.site.journal.path) == self.site.core.ledger
        return [_said(event) for event in self.site.journal.history()]

    def something_happens(self) -> None:
        what = self.rng.choice((
            "submit", "submit", "submit", "adopt", "adopt", "cancel", "hold", "unhold", "prioritise", "node",
            "block", "lose", "forget", "foreign", "maintenance", "compact", "reopen", "idle", "time", "time", "time",
        ))  # fmt: skip
        with suppress(BadInput, NotAllowed):  # of what runs and cannot be stopped; in a pool that is only watched
            getattr(self, f"_{what}")()
        self.site.run(self.rng.choice((0.25, 1.0, 5.0, 20.0)))

    def _job(self) -> str | None:
        known = sorted(r.id for r in self.site.core.ledger.live())
        return self.rng.choice(known) if known else None

    def _submit(self) -> None:
        more: dict[str, Any] = self.rng.choice((
            {}, {}, {"time_limit_s": 15.0}, {"time_limit_s": 8.0, "extra": REQUEUES}, {"elastic": False},
            {"checkpoint": None},
        ))  # fmt: skip
        size = self.rng.choice((1, 2, 4, 8, (1, 4), (2, 8)))
        some = [spec("job", size, steps=self.rng.choice((20, 200, 10**5)), **more) for _ in range(2)]
        self.site.commands.submit(some, self.rng.choice((ANN, BEN)))

    def _adopt(self) -> None:
        """A job that the cluster knew first."""
        self.site.world.submit(
            f"own{len(self.site.core.ledger.jobs)}", spec("own", self.rng.choice((1, 4, 8)), owner="ben")
        )

    def _cancel(self) -> None:
        if (job := self._job()) is not None:
            self.site.commands.cancel(job, ROOT)

    def _hold(self) -> None:
        if (job := self._job()) is not None:
            self.site.commands.hold(job, ROOT, "a test")

    def _unhold(self) -> None:
        for record in list(self.site.core.ledger.live()):
            if record.hold_why is not None:
                self.site.commands.unhold(record.id, ROOT)

    def _prioritise(self) -> None:
        if (job := self._job()) is not None:
            self.site.commands.prioritise(job, self.rng.choice((-1, 1)), ROOT)

    def _node(self) -> None:
        node = self.rng.choice(sorted(self.site.world.nodes))
        self.site.world.set_health(node, self.rng.choice((Health.DOWN, Health.DRAIN, Health.UP, Health.UP)))

    def _foreign(self) -> None:
        self.site.world.set_foreign("n2", self.rng.choice((0, 1)) * min(1, self.site.world.free("n2")))

    def _block(self) -> None:
        if (job := self._job()) is not None:
            self.site.world.blocks = {job: self.rng.choice(BLOCKS)}

    def _lose(self) -> None:
        held = [j for j in self.site.world.jobs.values() if j.state is JobState.RUNNING]
        if held:
            self.site.world.lose(self.rng.choice(held))

    def _forget(self) -> None:
        waiting = [j.id for j in self.site.world.jobs.values() if not j.allocation and j.waiting is None]
        if waiting:
            del self.site.world.jobs[self.rng.choice(waiting)]

    def _idle(self) -> None:
        for job in self.site.world.jobs.values():
            job.gpu_use = {f"{node}:0": 0.0 for node in job.allocation}

    def _maintenance(self) -> None:
        self.site.commands.maintenance("main", self.rng.random() < 0.3, ROOT, "a test")

    def _compact(self) -> None:
        self.site.journal.compact(history_s=1e9, forget_after_s=self.rng.choice((0.0, 1e9)))

    def _reopen(self) -> None:
        self.site.reopen()
        self._listen()

    def _time(self) -> None:
        """Nothing but time."""


def _said(event: Event) -> tuple[Any, ...]:
    """The event, but for what no two arbiters share."""
    data = {name: value for name, value in event.data.items() if name != "took_s"}
    alone = event.kind in (Kind.OPENED, Kind.CLAIMED, Kind.CHECKPOINT)
    return event.seq, event.at_s, event.kind, event.job, event.pool, None if alone else data


@pytest.mark.parametrize("mode", ["enforce", "order", "advise"])
@pytest.mark.parametrize("seed", range(4))
def test_a_tick_does_what_it_would_do_if_no_job_rested_or_ran_on(
    tmp_path: Path, seed: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "as it is", seed, mode)
    said = life.live(60)
    assert life.rested > 0 and (life.ran_on > 0) is (mode == "enforce")
    for what in ("rests", "runs_on"):
        monkeypatch.setattr(ledgers, what, lambda _record: False)
        monkeypatch.setitem(globals(), what, lambda _record: False)
    again = Life(tmp_path / "none rests", seed, mode)
    assert again.live(60) == said
    assert (again.rested, again.ran_on) == (0, 0)
    assert again.told == life.told


def test_a_job_that_a_decision_left_out_is_asked_to_leave(tmp_path: Path) -> None:
    """It has no target: that is to hold nothing, and no word that it runs as decided. Its GPUs are promised already."""
    site = Site(tmp_path, policy=equal_shares)
    (job,) = site.commands.submit([spec("a", 2, steps=10**6)], ANN)
    site.until(job, JobState.RUNNING)
    record = site.job(job)
    record.target = record.allocation
    site.core.ledger.touched.add(job)
    assert site.core.ledger.running_on() == {job}
    record.target = None
    site.core.ledger.touched.add(job)
    assert site.core.ledger.running_on() == set()


def test_a_job_that_is_forgotten_while_it_lives_is_nobody(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.world.submit("own", spec("own", 99, owner="ben"))
    site.run(1)
    assert site.core.ledger.resting() == {"own"}
    site.journal.append([Forgotten(["own"])])
    check(site.core.ledger)
    assert site.core.ledger.resting() == set()
