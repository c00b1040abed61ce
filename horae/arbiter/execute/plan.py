"""From now to the target: ordered steps, each ready or waiting for somebody to leave. Pure.

GPUs are released before they are given. Nothing is remembered from one plan to the next: it is made anew from what
is true, so a superseded plan is simply not continued. What of it was already asked for is undone part by part: a
start that was not given is not given, one whose gang does not stand yet is withdrawn, and a job that was already
asked to leave has left when it starts again.

    position                        target differs -> step
    IDLE     holds nothing          start
    GRANTED  started, not shown     nothing until the cluster shows it or the grant lapses
    RUNS     starting or running    stop, then start (or reshape, where the cluster can)
    LEAVES   asked to leave         nothing until it has left, then start

Never over-allocates: a step is ready only when its GPUs are free of everything that is held or granted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from horae.journal.events import Verb
from horae.port import JobId
from policy.model import EMPTY, Allocation, Gpus, NodeName, Seconds
from policy.records import quick


class PlanPhase(StrEnum):
    IDLE = "idle"
    GRANTED = "granted"
    RUNS = "runs"
    LEAVES = "leaves"


@quick
@dataclass(frozen=True, slots=True)
class Position:
    """Where one job stands."""

    job: JobId
    phase: PlanPhase
    held: Allocation = field(default_factory=lambda: EMPTY)  #: GPUs nobody else may have
    grace_s: Seconds = 60.0
    epoch: int = 0  #: GRANTED: of the grant
    repeat: bool = False  #: GRANTED, LEAVES: long enough ago that the request is made again
    withdraw: bool = False  #: RUNS: the cluster blocks it, it must let go whatever its target is
    cancel: bool = False  #: it is to end for good
    forming: bool = False  #: RUNS: its gang does not stand yet
    left_nodes: frozenset[NodeName] = frozenset()
    may_start_s: Seconds = 0.0  #: not before, on a node it has just left

    @property
    def stays_on(self) -> bool:
        return self.phase is PlanPhase.RUNS and not self.withdraw


@quick
@dataclass(frozen=True, slots=True)
class PlanStep:
    verb: Verb
    job: JobId
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    grace_s: Seconds = 0.0
    epoch: int | None = None  #: of a start that is repeated; None: a new one
    ready: bool = True
    waits_for: tuple[JobId, ...] = ()  #: whose leaving it waits for
    waits_until_s: Seconds | None = None


def plan(
    positions: Sequence[Position],
    targets: Mapping[JobId, Allocation],
    capacity: Mapping[NodeName, Gpus],
    *,
    now_s: Seconds = 0.0,
    reshape_in_place: bool = False,
    closed: frozenset[NodeName] = frozenset(),
) -> tuple[PlanStep, ...]:
    """Steps in order: what ends and releases, then what is given, in the order of `positions`.

    `capacity`: GPUs that are ours to use by node. `closed`: nodes that take nothing new.
    """
    floor = _Floor(positions, targets, capacity, closed, now_s)
    releases: list[PlanStep] = []
    gives: list[PlanStep] = []
    for position in positions:
        target = targets.get(position.job, EMPTY)
        if position.cancel:
            if position.phase is not PlanPhase.LEAVES or position.repeat:
                releases.append(PlanStep(Verb.CANCEL, position.job))
            continue
        stays_on = position.stays_on
        reshapes = stays_on and reshape_in_place and bool(target)
        if not reshapes and _asks_to_leave(position, target):
            releases.append(PlanStep(Verb.STOP, position.job, grace_s=position.grace_s))
        if not target or (stays_on and target == position.held):
            continue
        step = floor.reshaped(position, target) if reshapes else floor.started(position, target)
        if step is not None:
            gives.append(step)
    if reshape_in_place:
        releases, gives = _untie(releases, gives, positions)
    return (*releases, *gives)


class _Floor:
    """What is free on the nodes while steps are given out, one after the other, and who may still make room there."""

    def __init__(
        self,
        positions: Sequence[Position],
        targets: Mapping[JobId, Allocation],
        capacity: Mapping[NodeName, Gpus],
        closed: frozenset[NodeName],
        now_s: Seconds,
    ) -> None:
        self._free: Counter[NodeName] = Counter(dict(capacity))
        self._leaving: dict[NodeName, list[JobId]] = {}  #: of each node
        self._closed, self._now_s = closed, now_s
        for position in positions:
            held = position.held
            if not held:  # as most of a long queue
                continue
            leaves = _lets_go(position, targets.get(position.job, EMPTY))
            for node, gpus in held.items():
                self._free[node] -= gpus
                if leaves:
                    self._leaving.setdefault(node, []).append(position.job)

    def started(self, position: Position, target: Allocation) -> PlanStep | None:
        """None: it was granted just that, and there is nothing to ask again."""
        job, phase = position.job, position.phase
        if phase is PlanPhase.GRANTED and target == position.held:
            if not position.repeat:
                return None
            # Another's start that came late may have taken the place: then this one is not asked for again, and runs
            # out.
            there = all(self._free.get(node, 0) >= 0 for node in target)
            if there:
                self._take(_needs(position, target))
            return PlanStep(Verb.START, job, target, epoch=position.epoch, ready=there)
        if phase is not PlanPhase.IDLE:
            return PlanStep(Verb.START, job, target, ready=False, waits_for=(job,))
        return self._given(Verb.START, position, target)

    def reshaped(self, position: Position, target: Allocation) -> PlanStep:
        job = position.job
        if position.forming:  # asked for now it would be refused, and then be asked for ever more seldom
            return PlanStep(Verb.RESHAPE, job, target, ready=False, waits_for=(job,))
        return self._given(Verb.RESHAPE, position, target)

    def _given(self, verb: Verb, position: Position, target: Allocation) -> PlanStep:
        """Ready where there is room for it now, which it takes; else with what it waits for."""
        job, needs = position.job, _needs(position, target)
        if not self._closed.isdisjoint(needs):
            return PlanStep(verb, job, target, ready=False)
        short = [node for node, gpus in needs.items() if gpus > self._free.get(node, 0)]
        if short:
            return PlanStep(verb, job, target, ready=False, waits_for=self._who_leaves(short, job))
        if self._now_s < position.may_start_s and position.left_nodes & target.keys():
            return PlanStep(verb, job, target, ready=False, waits_until_s=position.may_start_s)
        self._take(needs)
        return PlanStep(verb, job, target)

    def _who_leaves(self, nodes: Iterable[NodeName], job: JobId) -> tuple[JobId, ...]:
        leaving = [other for node in nodes for other in self._leaving.get(node, ()) if other != job]
        return tuple(dict.fromkeys(leaving))

    def _take(self, needs: Allocation) -> None:
        for node, gpus in needs.items():
            self._free[node] -= gpus


def _lets_go(position: Position, target: Allocation) -> bool:
    return position.cancel or position.phase is PlanPhase.LEAVES or _asks_to_leave(position, target)


def _asks_to_leave(position: Position, target: Allocation) -> bool:
    if position.phase is PlanPhase.RUNS:
        return position.withdraw or target != position.held
    return position.phase is PlanPhase.LEAVES and position.repeat


def _needs(position: Position, target: Allocation) -> Allocation:
    """What a step takes beyond what the job holds already (a repeated grant, a reshape in place)."""
    if not position.held:
        return target
    return {n: g - position.held.get(n, 0) for n, g in target.items() if g > position.held.get(n, 0)}


def _untie(
    releases: list[PlanStep], gives: list[PlanStep], positions: Sequence[Position]
) -> tuple[list[PlanStep], list[PlanStep]]:
    """Reshapes in place may wait for each other in a ring: then the last of them stops and starts instead."""
    tied = [s for s in gives if s.verb is Verb.RESHAPE and not s.ready and s.waits_for != (s.job,)]
    if not tied or releases or any(s.ready for s in gives) or any(p.phase is PlanPhase.LEAVES for p in positions):
        return releases, gives
    last = tied[-1]
    grace_s = next(p.grace_s for p in positions if p.job == last.job)
    released = [PlanStep(Verb.STOP, last.job, grace_s=grace_s)]
    waits = PlanStep(Verb.START, last.job, last.allocation, ready=False, waits_for=(last.job,))
    return released, [waits if s is last else s for s in gives]
