"""Rounds beside jobs that do not move: gangs that take long to stand, and jobs that cannot be resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from random import Random

import pytest

from horae.arbiter.admit.guards import BEING_STARTED
from horae.arbiter.admit.models import place
from horae.arbiter.admit.repair import repair
from horae.port import JobState
from policy import catalogue
from policy.contract import Context
from policy.decide import propose
from policy.model import Allocation, Health, Snapshot
from policy.throughput import Throughput
from tests.horae.arbiter.reallocations import change, said
from tests.policy.crowds import crowd


class Days:
    """Rounds of a second: what a policy wants, what is left of it beside gangs that still form, and what becomes of
    that. Who is to hold something else leaves in one round and starts in a later one, once its GPUs are free."""

    def __init__(
        self, snapshot: Snapshot, policy: str, forms: int, forming: Collection[str], fixed: Collection[str] = ()
    ) -> None:
        """`forms`: rounds until a gang stands; `forming`: those that do not yet. `fixed`: jobs that cannot be resumed,
        and stay where they are."""
        self.now, self.forms, self.fixed = snapshot, forms, fixed
        self.forming = dict.fromkeys(forming, forms)
        self.entry, self.starts = catalogue.find(policy), Counter[str]()
        self.capacity = {n.name: n.gpus - n.foreign for n in snapshot.cluster.nodes}
        self.wanted: dict[str, Allocation] = {}

    @property
    def held(self) -> dict[str, Allocation]:
        return {job.name: dict(job.allocation) for job in self.now.jobs}

    def round(self) -> None:
        now, held = self.now, self.held
        decided = propose(now, self.entry, self.entry.resolve({}), Context(Throughput(now.cluster)))
        self.wanted = {job: dict(decided.allocation.get(job, {})) for job in held}
        soon = frozenset(job for job in held if self.forming.get(job) and self._stands_first(job))
        vetoed = soon | frozenset(job for job in self.fixed if self.wanted[job] != held[job])
        fit = repair(list(held), self.wanted, held, capacity=self.capacity, vetoed=vetoed, soon=soon, place=place(now))
        then = self._carried_out(held, fit.targets)
        as_decided = {job: decided.leases.get(job, {}) for job in held if then[job] == self.wanted[job]}
        jobs = (
            replace(
                j, allocation=then[j.name], lease_until=as_decided.get(j.name, j.lease_until if then[j.name] else {})
            )
            for j in now.jobs
        )
        self.now = replace(now, jobs=tuple(jobs), state=decided.state, now_s=now.now_s + 1.0)

    def _stands_first(self, job: str) -> bool:
        asked = change(self.held[job], self.wanted[job], state=JobState.STARTING)
        return self.held[job] != self.wanted[job] and said(asked) == BEING_STARTED

    def _carried_out(self, held: Mapping[str, Allocation], targets: Mapping[str, Allocation]) -> dict[str, Allocation]:
        self.forming = {job: left - 1 for job, left in self.forming.items() if left > 1}
        used, then = Counter[str](), dict(held)
        for allocation in held.values():
            used.update(allocation)
        for job, target in targets.items():
            if held[job] and held[job] != target:
                then[job] = {}
                self.forming.pop(job, None)
            elif target and not held[job] and all(used[n] + g <= self.capacity[n] for n, g in target.items()):
                used.update(target)
                then[job], self.forming[job] = target, self.forms
                self.starts[job] += 1
        return then


@pytest.mark.parametrize("seed", (0, 4, 5, 6, 8, 11))
def test_beside_gangs_that_form_nobody_is_started_twice_and_all_is_as_decided_in_the_end(seed: int) -> None:
    rng, snapshot = Random(seed), crowd(seed)
    assert all(n.health is Health.UP for n in snapshot.cluster.nodes)
    forming = [job.name for job in snapshot.jobs if job.allocation and rng.random() < 0.5]
    for policy in catalogue.entries():
        days = Days(snapshot, policy, 4, forming)
        for _ in range(16):
            days.round()
        assert not [job for job, starts in days.starts.items() if starts > 1], policy
        assert days.held == days.wanted, policy


@pytest.mark.parametrize("seed", (0, 6, 15))
def test_beside_jobs_that_cannot_be_moved_the_others_come_to_rest(seed: int) -> None:
    """They did not: of two that were to have what one of these kept, each had the place of the other by turns; one was
    stopped for a place that it could not be started on, round after round."""
    rng, snapshot = Random(seed), crowd(seed)
    held = [job.name for job in snapshot.jobs if job.allocation]
    drawn = [(rng.random(), job) for job in (*held, *held)][len(held) :]
    fixed = [job for dice, job in drawn if dice < 0.3]
    for policy in catalogue.entries():
        days = Days(snapshot, policy, 0, (), fixed)
        for _ in range(10):
            days.round()
        starts = days.starts.copy()
        for _ in range(3):
            days.round()
        assert days.starts == starts, policy
