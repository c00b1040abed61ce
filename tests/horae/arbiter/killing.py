"""Killing an arbiter at a chosen boundary, and what must be true afterwards whatever the boundary was.

A boundary is the moment just before or just after something that outlives the process: a write to the journal, or a
call that changes the cluster. `Kill` is no `Exception`: nothing in the arbiter may catch it, as nothing can catch
SIGKILL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from horae.arbiter.decide.policy_runner import Decide
from horae.fake import FakePort, Faults, Program, World
from horae.journal import Clock, Draft, Event, Journal
from horae.journal.store import rebuilt
from horae.port import ClusterPort, JobState
from horae.spec import JobSpec
from policy.model import Allocation, Health
from tests.contract.harness import starts_in, steps_in
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, equal_shares, spec


class Kill(BaseException):
    """The process is gone."""


class Boundaries:
    """Counts them, and kills at the one that was chosen."""

    def __init__(self, die_at: int | None = None, kill: Callable[[], None] | None = None) -> None:
        self.count, self.die_at, self.names = 0, die_at, [""]
        self._kill = kill

    def at(self, name: str) -> None:
        self.count += 1
        self.names.append(name)
        if self.count == self.die_at:
            if self._kill is not None:
                self._kill()
            raise Kill(name)


class MortalJournal(Journal):
    def __init__(self, folder: Path, clock: Clock, boundaries: Boundaries) -> None:
        super().__init__(folder, clock)
        self._boundaries = boundaries

    def append(self, drafts: Iterable[Draft], *, durable: bool = False) -> tuple[Event, ...]:
        drafts = list(drafts)
        if not drafts:
            return ()
        what = "+".join(sorted({d.kind.value for d in drafts}))
        self._boundaries.at(f"before {what}")
        fresh = super().append(drafts, durable=durable)
        self._boundaries.at(f"after {what}")
        return fresh


class MortalPort:
    """A connection whose calls that change the cluster are two boundaries each."""

    def __init__(self, port: ClusterPort, boundaries: Boundaries) -> None:
        self._port, self._boundaries = port, boundaries

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        return partial(self._around_many, name, value) if name in ("submit_many", "start_many", "stop_many") else value

    def _around_many(self, name: str, call: Callable[..., Any], asked: Sequence[tuple[Any, ...]]) -> Any:
        what = name.removesuffix("_many")
        names = [f"{what} {job}" + (f" epoch {rest[-1]}" if what == "start" else "") for job, *rest in asked]
        for each in names:
            self._boundaries.at(f"before {each}")
        found = call(asked)
        for each in names:
            self._boundaries.at(f"after {each}")
        return found

    def _around(self, what: str, call: Callable[..., None], *values: Any) -> None:
        self._boundaries.at(f"before {what}")
        call(*values)
        self._boundaries.at(f"after {what}")

    def claim(self, token: str) -> None:
        self._around("claim", self._port.claim, token)

    def submit(self, job: str, spec: JobSpec) -> None:
        self._around(f"submit {job}", self._port.submit, job, spec)

    def start(self, job: str, allocation: Allocation, epoch: int) -> None:
        self._around(f"start {job} epoch {epoch}", self._port.start, job, allocation, epoch)

    def checkpoint_and_stop(self, job: str, grace_s: float) -> None:
        self._around(f"stop {job}", self._port.checkpoint_and_stop, job, grace_s)

    def cancel(self, job: str) -> None:
        self._around(f"cancel {job}", self._port.cancel, job)

    def release(self, job: str) -> None:
        self._around(f"release {job}", self._port.release, job)


class MortalSite(Site):
    """A site whose arbiter dies at a boundary; `open` starts its successor on the same folder and cluster."""

    def __init__(self, folder: Path, boundaries: Boundaries, *, policy: Decide = equal_shares, **changes: Any) -> None:
        self.boundaries, self.faults = boundaries, Faults()
        super().__init__(
            folder,
            policy=policy,
            program=Program(iteration_s=0.5, start_s=0.6, stop_s=0.4, checkpoint_every=10, log_every=1),
            **changes,
        )

    def open(self) -> None:
        self.port = cast(ClusterPort, MortalPort(FakePort(self.world, self.faults), self.boundaries))
        try:
            super().open()
        except Kill:  # it did not even come up; the next one does
            self.journal.close()
            super().open()

    def open_journal(self) -> Journal:
        clock = Clock(self.time.wall, self.time.monotonic)
        return MortalJournal(self.config.state_dir, clock, self.boundaries)


#: What people and the world do, and when (seconds from the start).
Deed = tuple[float, str, Callable[[MortalSite], None]]


def submission(
    name: str, gpus: tuple[int, int], steps: int, who: Any = ANN, **changes: Any
) -> Callable[[MortalSite], None]:
    def deed(site: MortalSite) -> None:
        if all(record.spec.name != name for record in site.core.ledger.jobs.values()):  # it was not acknowledged
            site.commands.submit([spec(name, gpus, steps=steps, **changes)], who)

    return deed


def named(site: Site, name: str) -> str:
    return next(record.id for record in site.core.ledger.jobs.values() if record.spec.name == name)


#: Arrivals that shrink others, a node that is lost with a job on it, a cancel, a hold and its end.
STORY: Sequence[Deed] = (
    (0.0, "a arrives", submission("a", (1, 8), 240)),
    (4.0, "b arrives", submission("b", (2, 8), 200, BEN)),
    (8.0, "c arrives", submission("c", (1, 8), 120)),
    (12.0, "n4 is lost", lambda site: site.world.set_health("n4", Health.DOWN)),
    (16.0, "d arrives", submission("d", (1, 4), 5000)),
    (20.0, "n4 is back", lambda site: site.world.set_health("n4", Health.UP)),
    (22.0, "b is held", lambda site: site.commands.hold(named(site, "b"), BEN)),
    (26.0, "d is cancelled", lambda site: site.commands.cancel(named(site, "d"), ROOT)),
    (30.0, "b may run", lambda site: site.commands.unhold(named(site, "b"), BEN)),
)
ENDS = {"a": JobState.COMPLETED, "b": JobState.COMPLETED, "c": JobState.COMPLETED, "d": JobState.CANCELLED}


def play(site: MortalSite, story: Sequence[Deed] = STORY, *, patience_s: float = 400.0) -> None:
    """The story to its end; an arbiter that is killed has a successor, which the caller's request is made to again."""
    start, deeds = site.time.now, list(story)
    while deeds or any(record.live for record in site.core.ledger.jobs.values()):
        assert site.time.now - start < patience_s, [r for r in site.core.ledger.jobs.values() if r.live]
        try:
            while deeds and site.time.now - start >= deeds[0][0]:
                deeds[0][2](site)
                deeds.pop(0)
            site.driver.tick()
        except Kill:
            site.close()
            site.time.now += 0.3
            site.open()
            continue
        site.time.now += 0.25


def check(world: World, journal: Path, ends: Mapping[str, JobState], *, lossless: Collection[str] = ()) -> None:
    """What must hold after any story: nothing lost, doubled, over-allocated or restarted from older state.

    `lossless`: jobs that were never lost with a node, so that no step of theirs may be done twice.
    """
    ledger = rebuilt(journal)
    by_name: dict[str, list[Any]] = {}
    for fake in world.jobs.values():
        by_name.setdefault(fake.spec.name, []).append(fake)
    for name, end in ends.items():
        records = [r for r in ledger.jobs.values() if r.spec.name == name]
        assert len(records) == 1, f"{name} is on record {len(records)} times"
        assert records[0].ended is end, f"{name} is {records[0]}"
        if name not in by_name:
            assert end is JobState.CANCELLED, f"{name} never came to the cluster"
            continue
        assert len(by_name[name]) == 1, f"{name} is in the cluster {len(by_name[name])} times"
        assert by_name[name][0].state is end
        log = bytes(by_name[name][0].log)
        starts, steps = starts_in(log), steps_in(log)
        epochs = [s.epoch for s in starts]
        assert epochs == sorted(set(epochs)), f"{name} was started with epochs {epochs}"
        assert records[0].epoch >= max(epochs, default=0)
        if end is JobState.COMPLETED:
            assert steps[-1] == by_name[name][0].program.steps, f"{name} was completed at step {steps[-1]}"
        if name in lossless:
            assert steps == sorted(set(steps)), f"{name} did a step twice"
        for before, after in pairwise(starts):
            newest = _newest_checkpoint(log, after.epoch)
            assert after.step >= newest, f"{name} restarted at {after.step}, its checkpoint was at {newest}"
            assert after.step >= before.step
    assert world.refusals == [], "the arbiter asked for GPUs that were in use"
    assert world.violations == []


def _newest_checkpoint(log: bytes, before_epoch: int, every: int = 10) -> int:
    """The newest periodic checkpoint that the log of the starts before this one implies."""
    head = log[: log.index(b"epoch=%d" % before_epoch)]
    steps = [int(s) for s in re.findall(rb"\[horae\] step=(\d+)", head)]
    return max(steps, default=0) // every * every
