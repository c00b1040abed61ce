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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
    waiting = [job for job in snapshot.jobs if not decision.allocation.get(job.name)]
    reasons, notes = dict(decision.reasons), []
    for job in sorted(moved, key=lambda j: (-j.precedence, -j.priority, j.order)):
        reason = reasons[job.name]
        numbers = {**reason.numbers, "priority": job.priority, "precedence": job.precedence}
        did = ""
        if passed := _passed(job, waiting):
            by = f"precedence {job.precedence}" if job.precedence else f"priority {job.priority}"
            did = f"; {by} puts it before {_names(passed)}"
            notes.append(f"job {job.name} stands before {_names(passed)}, by {by}")
        elif not decision.allocation.get(job.name):
            did = _behind(job, snapshot.jobs)
        reasons[job.name] = Reason(reason.code, reason.text + did, numbers, reason.change)
    if len(notes) > _NAMED:
        notes[_NAMED:] = [f"{len(notes) - _NAMED} more jobs stand before earlier ones"]
    certificate = replace(decision.certificate, notes=(*decision.certificate.notes, *notes))
    return replace(decision, reasons=reasons, certificate=certificate)


def _behind(job: Job, others: Iterable[Job]) -> str:
    passing = [j.name for j in others if _came(j) > _came(job) and j.order < job.order and _urgent(j) > _urgent(job)]
    stand = "stands" if len(passing) == 1 else "stand"
    return f"; {_names(passing)} came later and {stand} before it, by priority" if passing else ""


def _in_line(job: Job) -> InLine:
    return InLine(job.name, job.tenant, job.submitted_s, job.priority, job.precedence)


def _passed(job: Job, others: Iterable[Job]) -> list[JobName]:
    """Of `others`, those that came earlier, are less urgent, and stand after it."""
    return [j.name for j in others if _came(j) < _came(job) and j.order > job.order and _urgent(j) < _urgent(job)]


def _came(job: Job) -> Place:
    return job.submitted_s, job.name


def _urgent(job: Job) -> tuple[int, int]:
    return job.precedence, job.priority


def _names(names: Sequence[JobName]) -> str:
    if len(names) == 1:
        return f"job {names[0]}"
    if len(names) <= _NAMED:
        return f"jobs {', '.join(names[:-1])} and {names[-1]}"
    return f"jobs {', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
