"""Every lie that a tenant's report can hold here, one at a time; `perturb.py` asks whether it would pay.

Speeds over- or understated (on all GPU types, or on each alone), also by really leaving GPUs idle for a part of the
time, where speeds are measured; work over- or understated; more or fewer GPUs asked for than a job can use, any number
of them, or all of them or none; jobs split in two of half the work, in their own app or in one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from policy.model import EMPTY, GpuRange, GpuType, Job, JobName, Snapshot, Work

FACTORS = (0.5, 0.9, 1.1, 2.0, 10.0)


@dataclass(frozen=True, slots=True)
class Told:
    """One lie, as the policy sees it."""

    kind: str  #: throughput, idle, work, range, demand, split
    what: str  #: in words
    seen: Snapshot
    #: invented job -> the true job that it is part of
    parts: Mapping[JobName, JobName] = field(default_factory=lambda: EMPTY)
    #: the part of the time in which its GPUs of this type compute, where that is below 1
    used: Mapping[GpuType, float] = field(default_factory=lambda: EMPTY)


def told(snapshot: Snapshot, tenant: str) -> Iterator[Told]:
    """Every lie of one tenant."""
    mine = [j for j in snapshot.jobs if j.tenant == tenant]
    types = list(dict.fromkeys(t for j in mine for t in j.throughput))
    targets = [tuple(types)] if len(types) == 1 else [tuple(types), *((t,) for t in types)]

    def lie(kind: str, what: str, change: Callable[[Job], Job], used: Mapping[GpuType, float] = EMPTY) -> Told:
        jobs = tuple(change(j) if j.tenant == tenant else j for j in snapshot.jobs)
        return Told(kind, what, replace(snapshot, jobs=jobs), used=used)

    for factor, target in product(FACTORS, targets if types else []):
        where, slower = ", ".join(target), partial(_faster, factor=factor, types=target)
        yield lie("throughput", f"throughput on {where} times {factor:g}", slower)
        if factor < 1:
            used = dict.fromkeys(target, factor)
            yield lie("idle", f"GPUs of {where} really idle for {1 - factor:.0%} of the time", slower, used)
    for kind, what, change in _of_demand(mine):
        yield lie(kind, what, change)
    yield Told("split", "every job as two of half the work, each an app of its own", *_split(snapshot, tenant, True))
    yield Told("split", "every job as two of half the work, in the same app", *_split(snapshot, tenant, False))


def _of_demand(mine: Sequence[Job]) -> Iterator[tuple[str, str, Callable[[Job], Job]]]:
    """Lies about how much they need: kind, in words, how a job becomes it."""
    if any(j.work_left is not None for j in mine):
        for factor in FACTORS:
            yield "work", f"work left times {factor:g}", partial(_longer, factor=factor)
    if any(j.gpus.min > 1 or j.gpus.max is not None for j in mine):
        yield "range", "any number of GPUs will do", _any_number
        yield "demand", "twice the GPUs that it can use", _twice
    if any(j.gpus.requested > 1 for j in mine):
        yield "demand", "half the GPUs that it can use", _half
    if any(not j.gpus.rigid and j.gpus.max is not None for j in mine):
        yield "demand", "all the GPUs that it can use, or none", _all_or_none


def _faster(job: Job, factor: float, types: tuple[str, ...]) -> Job:
    table = {
        t: {n: r * factor for n, r in curve.items()} if t in types else curve for t, curve in job.throughput.items()
    }
    return replace(job, throughput=table)


def _longer(job: Job, factor: float) -> Job:
    left = job.work_left
    return job if left is None else replace(job, work=Work(job.work.done + left * factor, job.work.done))


def _any_number(job: Job) -> Job:
    return replace(job, gpus=GpuRange(job.gpus.requested, 1, None))


def _twice(job: Job) -> Job:
    g = job.gpus
    return replace(job, gpus=GpuRange(2 * g.requested, 2 * g.min if g.rigid else g.min, g.max and 2 * g.max))


def _half(job: Job) -> Job:
    g = job.gpus
    asked = max(g.requested // 2, 1)
    least = min(g.min, asked)
    return replace(job, gpus=GpuRange(asked, least, max((g.max or g.requested) // 2, asked)))


def _all_or_none(job: Job) -> Job:
    most = job.gpus.max
    return job if most is None else replace(job, gpus=GpuRange(most, most, most))


def _split(snapshot: Snapshot, tenant: str, apart: bool) -> tuple[Snapshot, Mapping[JobName, JobName]]:
    """Twins share what the job holds with it: the first keeps it. `apart`: in an app of its own."""
    names = {j.name for j in snapshot.jobs}
    jobs: list[Job] = []
    parts: dict[str, str] = {}
    for job in snapshot.jobs:
        if job.tenant != tenant:
            jobs.append(job)
            continue
        name = f"{job.name}~2"
        while name in names:
            name += "~"
        names.add(name)
        parts[name] = job.name
        left = job.work.left
        work = job.work if left is None else Work(job.work.done + left / 2, job.work.done)
        jobs.append(replace(job, work=work))
        app = name if apart else job.app
        jobs.append(replace(job, name=name, app=app, work=work, allocation={}, lease_until={}, attained={}))
    return replace(snapshot, jobs=tuple(jobs)), parts
