"""Who is earlier than whom, by priority: the order that every policy falls back on, and the only one of some.

Jobs stand in line by submission (`Job.order`). A priority moves a job within the places of its own tenant: of all
places that a tenant's jobs have in the line, the earliest go to its jobs of the highest priority. So a tenant's
priorities are its own affair: what others have before them and behind them is as many places as before. A precedence,
which operators set, moves a job within the whole line in the same way, before every job of a lower one.

Nothing else changes: when a job was submitted, how long it waited and what it attained are what they were, and a policy
whose paper says who is first (least attained service, shortest remaining time) says it still; the line decides among
its equals.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policy.model import Decision, Job, JobName, Reason, Seconds, Snapshot

#: Names that a sentence holds.
_NAMED = 3

Place = tuple[Seconds, JobName]


@dataclass(frozen=True, slots=True)
class InLine:
    """What the line needs to know of a job."""

    name: JobName
    tenant: str
    submitted_s: Seconds
    priority: int
    precedence: int


def places(jobs: Iterable[InLine]) -> dict[JobName, Place]:
    """The place of every job; without priorities that of its submission."""
    by_tenant: dict[str, list[InLine]] = {}
    for job in sorted(jobs, key=lambda j: (j.submitted_s, j.name)):
        by_tenant.setdefault(job.tenant, []).append(job)
    line: list[tuple[Place, InLine]] = []
    for mine in by_tenant.values():
        first = sorted(mine, key=lambda j: -j.priority) if any(j.priority for j in mine) else mine
        line += [((at.submitted_s, at.name), job) for at, job in zip(mine, first, strict=True)]
    if not any(job.precedence for _, job in line):
        return {job.name: place for place, job in line}
    line.sort(key=lambda entry: entry[0])
    moved = sorted(line, key=lambda entry: -entry[1].precedence)
    return {job.name: place for (place, _), (_, job) in zip(line, moved, strict=True)}


def lined_up(snapshot: Snapshot) -> Snapshot:
    """The snapshot with every job at its place; the same object where nobody has a priority."""
    if not any(job.priority or job.precedence for job in snapshot.jobs):
        return snapshot
    found = places(map(_in_line, snapshot.jobs))
    jobs = [job if found[job.name] == job.order else replace(job, place=found[job.name]) for job in snapshot.jobs]
    return replace(snapshot, jobs=tuple(jobs))


def told(decision: Decision, snapshot: Snapshot) -> Decision:
    """The decision, with what priorities did said in the certificate and among the reasons. `snapshot`: as `lined_up`
    made it."""
    moved = [job for job in snapshot.jobs if job.place is not None]
    if not moved:
        return decision
    waits = [not decision.allocation.get(job.name) for job in snapshot.jobs]
    passing = _Passing(snapshot.jobs)
    passed, behind = passing.passed(waits), passing.passed_by(waits)
    reasons, notes = dict(decision.reasons), []
    for job in sorted(moved, key=lambda j: (-j.precedence, -j.priority, j.order)):
        reason = reasons[job.name]
        numbers = {**reason.numbers, "priority": job.priority, "precedence": job.precedence}
        did = ""
        if (whom := passed.get(job.name)) is not None:
            by = f"precedence {job.precedence}" if job.precedence else f"priority {job.priority}"
            did = f"; {by} puts it before {_names(*whom)}"
            notes.append(f"job {job.name} stands before {_names(*whom)}, by {by}")
        elif (who := behind.get(job.name)) is not None:
            did = f"; {_names(*who)} came later and {'stands' if who[0] == 1 else 'stand'} before it, by priority"
        reasons[job.name] = Reason(reason.code, reason.text + did, numbers, reason.change)
    if len(notes) > _NAMED:
        notes[_NAMED:] = [f"{len(notes) - _NAMED} more jobs stand before earlier ones"]
    certificate = replace(decision.certificate, notes=(*decision.certificate.notes, *notes))
    return replace(decision, reasons=reasons, certificate=certificate)


def _in_line(job: Job) -> InLine:
    return InLine(job.name, job.tenant, job.submitted_s, job.priority, job.precedence)


class _Passing:
    """Who passed whom in the line of `jobs`: how many, and the first of them as the jobs come."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._came = _ranks([(job.submitted_s, job.name) for job in jobs])
        self._stands = _ranks([job.order for job in jobs])
        self._urgent = _ranks([(job.precedence, job.priority) for job in jobs])

    def passed(self, waits: Sequence[bool]) -> dict[JobName, _Found]:
        """By job that was moved: those that wait, came earlier, are less urgent, and stand after it."""
        asks = [job.place is not None for job in self._jobs]
        return self._below(self._came, _reversed(self._stands), self._urgent, waits, asks)

    def passed_by(self, waits: Sequence[bool]) -> dict[JobName, _Found]:
        """By job that was moved and waits: those that came later, are more urgent, and stand before it."""
        asks = [job.place is not None and wait for job, wait in zip(self._jobs, waits, strict=True)]
        more_urgent = _reversed(self._urgent)
        return self._below(_reversed(self._came), self._stands, more_urgent, [True] * len(asks), asks)

    def _below(
        self, first: list[int], second: list[int], third: list[int], counts: Sequence[bool], asks: Sequence[bool]
    ) -> dict[JobName, _Found]:
        """Of each that asks, those that count and are below it by all three ranks; none is left out."""
        seen, out = _Ranked(max(second), max(third)), {}
        for at in sorted(range(len(self._jobs)), key=first.__getitem__):
            if asks[at]:
                count, numbers = seen.below(second[at], third[at])
                if count:
                    out[self._jobs[at].name] = count, [self._jobs[number].name for number in numbers]
            if counts[at]:
                seen.put(second[at], third[at], at)
        return out


#: How many jobs, and the names of the first.
_Found = tuple[int, list[JobName]]


class _Ranked:
    """Numbers with two ranks from 1 each, put in one by one; those below a pair of ranks are counted without a walk
    over all (a binary indexed tree, Fenwick 1994, over each rank)."""

    def __init__(self, most: int, most_other: int) -> None:
        self._most, self._most_other = most, most_other
        self._parts: dict[tuple[int, int], list[int]] = {}  #: how many are in it, then the smallest of these

    def put(self, one: int, other: int, number: int) -> None:
        others = _above(other, self._most_other)
        for i in _above(one, self._most):
            for k in others:
                part = self._parts.setdefault((i, k), [0])
                part[0] += 1
                insort(part, number, 1)
                del part[_NAMED + 1 :]

    def below(self, one: int, other: int) -> tuple[int, list[int]]:
        """How many have both ranks smaller, and the smallest numbers among them."""
        count, numbers = 0, list[int]()
        others = _beneath(other - 1)
        for i in _beneath(one - 1):
            for k in others:
                part = self._parts.get((i, k))
                if part is not None:
                    count += part[0]
                    numbers += part[1:]
        numbers.sort()
        return count, numbers[:_NAMED]


def _above(rank: int, most: int) -> list[int]:
    """The parts of a binary indexed tree that a rank is in."""
    found = []
    while rank <= most:
        found.append(rank)
        rank += rank & -rank
    return found


def _beneath(rank: int) -> list[int]:
    """The parts that make up all ranks to this one."""
    found = []
    while rank > 0:
        found.append(rank)
        rank &= rank - 1
    return found


def _ranks(values: Sequence[Any]) -> list[int]:
    """From 1, in ascending order; equal values have one rank."""
    rank = {value: i for i, value in enumerate(sorted(set(values)), 1)}
    return [rank[value] for value in values]


def _reversed(ranks: Sequence[int]) -> list[int]:
    last = max(ranks) + 1
    return [last - rank for rank in ranks]


def _names(count: int, first: Sequence[JobName]) -> str:
    if count == 1:
        return f"job {first[0]}"
    if count <= _NAMED:
        return f"jobs {', '.join(first[:-1])} and {first[-1]}"
    return f"jobs {', '.join(first)} and {count - _NAMED} more"
