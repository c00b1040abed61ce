"""Would a lie pay? One tenant's report is changed, the policy decides again, and the tenant's true gain is measured.

The policy sees the changed snapshot; what the tenant has from the decision is measured with the true one. Lies, one at
a time: throughput overstated or understated (on all GPU types, or on each alone), work over- or understated, jobs
split in two of half the work under an app of their own, and a wider range of GPUs than the job can use. A policy with
chance in it is asked under several seeds, the same for truth and lie, and the mean counts.

This samples lies; that none of them pays is no proof that none would. The measure is normalised throughput, as in the
certificate: of the fractional shares where a policy has them, else of the allocation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from policy.contract import Context, Entry
from policy.decide import choose, propose
from policy.model import EMPTY, BadInput, GpuRange, Job, Proposal, Seconds, Snapshot, Work
from policy.parts.throughput import Throughput

FACTORS = (0.5, 0.9, 1.1, 2.0, 10.0)
#: A gain below this part of the truth is noise of solvers.
NOISE = 1e-6


@dataclass(frozen=True, slots=True)
class Lie:
    """What was reported instead of the truth, and what it brought."""

    kind: str  #: throughput, work, split, range
    what: str  #: in words
    value: float  #: the tenant's true normalised throughput under the lie
    gain: float  #: relative to the truth; 0.1 is 10 % more


@dataclass(frozen=True, slots=True)
class Judgement:
    policy: str
    tenant: str
    value: float  #: of the true report
    lies: tuple[Lie, ...]
    seeds: int

    @property
    def best(self) -> Lie | None:
        """The lie that pays most; None where no lie pays."""
        paying = [lie for lie in self.lies if lie.gain > NOISE]
        return max(paying, key=lambda lie: lie.gain, default=None)

    def to_plain(self) -> dict[str, Any]:
        def plain(lie: Lie) -> dict[str, Any]:
            return {"kind": lie.kind, "what": lie.what, "throughput": lie.value, "gain": lie.gain}

        return {
            "policy": self.policy,
            "tenant": self.tenant,
            "seeds": self.seeds,
            "throughput": self.value,
            "lies": [plain(lie) for lie in self.lies],
            "best": None if self.best is None else plain(self.best),
        }


def perturb(
    snapshot: Snapshot,
    tenant: str,
    policy: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    seeds: int = 1,
    time_limit_s: Seconds | None = None,
    solver: str | None = None,
) -> Judgement:
    """Try every lie of `tenant`. Raises BadInput for a tenant without jobs."""
    entry, resolved = choose(snapshot, policy, options)
    names = {j.tenant for j in snapshot.jobs if j.work.left != 0}
    if tenant not in names:
        raise BadInput(
            f"no tenant {tenant!r} has work", field="perturb", value=tenant, remedy=f"one of {', '.join(sorted(names))}"
        )

    def value(seen: Snapshot, parts: Mapping[str, str]) -> float:
        total = 0.0
        for n in range(seeds):
            context = Context(Throughput(seen.cluster), seed + n, time_limit_s, solver)
            total += _true_value(snapshot, tenant, _asked(seen, entry, resolved, context), parts)
        return total / seeds

    truth = value(snapshot, {})
    lies = []
    for kind, what, seen, parts in told(snapshot, tenant):
        got = value(seen, parts)
        gain = (got - truth) / truth if truth > 0 else (float(got > 0) if got > NOISE else 0.0)
        lies.append(Lie(kind, what, got, gain))
    return Judgement(entry.name, tenant, truth, tuple(lies), seeds)


def _asked(seen: Snapshot, entry: Entry, options: Mapping[str, Any], context: Context) -> Proposal:
    return propose(seen, entry, options, context)


def _true_value(snapshot: Snapshot, tenant: str, proposal: Proposal, parts: Mapping[str, str]) -> float:
    """What the tenant's jobs truly make of a proposal. `parts`: invented job -> the true job that it is part of."""
    speeds = Throughput(snapshot.cluster)
    jobs = {j.name: j for j in snapshot.jobs if j.tenant == tenant}
    total = 0.0
    for name in (*jobs, *parts):
        job = jobs[parts.get(name, name)]
        if proposal.shares is not None:
            total += speeds.of_share(job, proposal.shares.get(name, EMPTY))
        else:
            total += speeds.normalised(job, proposal.allocation.get(name, EMPTY))
    return total


def told(snapshot: Snapshot, tenant: str) -> Iterator[tuple[str, str, Snapshot, Mapping[str, str]]]:
    """Every lie: (kind, in words, what the policy sees, invented job -> true job)."""
    mine = [j for j in snapshot.jobs if j.tenant == tenant]
    types = list(dict.fromkeys(t for j in mine for t in j.throughput))
    for factor in FACTORS:
        targets = [tuple(types)] if len(types) == 1 else [tuple(types), *((t,) for t in types)]
        for target in targets if types else []:
            yield (
                "throughput",
                f"throughput on {', '.join(target)} times {factor:g}",
                _with(snapshot, tenant, lambda j, f=factor, t=target: _faster(j, f, t)),
                {},
            )
    for factor in FACTORS:
        if any(j.work_left is not None for j in mine):
            yield (
                "work",
                f"work left times {factor:g}",
                _with(snapshot, tenant, lambda j, f=factor: _longer(j, f)),
                {},
            )
    if any(j.gpus.min > 1 or j.gpus.max is not None for j in mine):
        yield "range", "any number of GPUs will do", _with(snapshot, tenant, _any_number), {}
    seen, parts = _split(snapshot, tenant)
    yield "split", "every job as two of half the work, each an app of its own", seen, parts


def _with(snapshot: Snapshot, tenant: str, change: Any) -> Snapshot:
    return replace(snapshot, jobs=tuple(change(j) if j.tenant == tenant else j for j in snapshot.jobs))


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


def _split(snapshot: Snapshot, tenant: str) -> tuple[Snapshot, Mapping[str, str]]:
    """Twins share what the job holds with it: the first keeps it."""
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
        jobs.append(replace(job, name=name, app=name, work=work, allocation={}, lease_until={}, attained={}))
    return replace(snapshot, jobs=tuple(jobs)), parts
