"""Job types of tenants as virtual tenants (§4.2.4): their speed-ups, weights and demand caps."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from policy.contract import Context
from policy.model import GpuRange, Gpus, GpuType, Job, JobName, Snapshot
from policy.oef.shares import Matrix, Users
from policy.parts.fair_shares import fair_shares

#: Speed-ups above this count as this: beyond it a solver's tolerances are larger than some tenants' whole throughput.
MOST = 1e6
#: GPUs that a job type is taken to be able to use where there are none for it: no weight is 0.
LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Kind:
    """One job type of one tenant: a virtual tenant (§4.2.4)."""

    tenant: str
    jobs: tuple[Job, ...]
    row: tuple[float, ...]  #: speed-up by type


def kinds_of(jobs: Sequence[Job], types: Sequence[GpuType], context: Context) -> list[Kind]:
    found: dict[tuple[str, tuple[float, ...]], list[Job]] = {}
    for job in sorted(jobs, key=lambda j: j.order):
        row = tuple(context.speeds.speedup(job, t) for t in types)
        if any(w > 0 for w in row):
            found.setdefault((job.tenant, tuple(round(w, 9) for w in row)), []).append(job)
    return [Kind(tenant, tuple(of), row) for (tenant, row), of in sorted(found.items())]


def users_of(snapshot: Snapshot, kinds: Sequence[Kind], gpus: Mapping[GpuType, int], capped: bool) -> Users:
    """A tenant's weight and limit are divided among its job types equally (§4.2.4), but none has more than it can use
    of its tenant's part of all GPUs: what is over is its other types', not everybody's."""
    speed = np.array([k.row for k in kinds], dtype=np.float64).reshape(len(kinds), len(gpus))
    there = np.array(list(gpus.values()), dtype=np.float64)
    total = max(float(there.sum()), 1.0)
    if capped:
        runs_on = (speed > 0) @ there
        able = np.minimum([most_of(kind) for kind in kinds], np.maximum(runs_on, LEAST))
    else:
        able = np.full(len(kinds), total)
    of_tenant: dict[str, dict[str, float]] = {}
    for i, kind in enumerate(kinds):
        of_tenant.setdefault(kind.tenant, {})[str(i)] = float(able[i])
    weights = dict.fromkeys(of_tenant, 1.0)
    limits = {name: sum(wants.values()) for name, wants in of_tenant.items()}
    for tenant in snapshot.tenants:
        if tenant.name not in of_tenant:
            continue
        weights[tenant.name] = tenant.weight
        if capped and tenant.cap is not None:
            limits[tenant.name] = min(limits[tenant.name], max(tenant.cap, LEAST))
    parts = fair_shares(weights, limits, total)
    weight, cap = _divided(of_tenant, parts), _divided(of_tenant, limits)
    weight *= [weights[k.tenant] / parts[k.tenant] for k in kinds]
    cap[(cap >= there.sum()) | (not capped)] = math.inf
    return Users(np.minimum(speed, MOST), weight, cap, there)


def _divided(of_tenant: Mapping[str, Mapping[str, float]], amounts: Mapping[str, float]) -> Matrix:
    """By row: each tenant's amount among its job types equally, none above what it can use."""
    rows: dict[str, float] = {}
    for name, able in of_tenant.items():
        equal = dict.fromkeys(able, 1.0)
        rows |= fair_shares(equal, able, amounts[name])
    return np.array([rows[str(i)] for i in range(len(rows))], dtype=np.float64)


def most_of(kind: Kind) -> float:
    """Most GPUs that its jobs can use together."""
    most = 0.0
    for job in kind.jobs:
        if job.gpus.max is None:
            return math.inf
        most += job.gpus.max
    return most


def usable(
    kinds: Sequence[Kind], gpus: Mapping[GpuType, int], first: Collection[JobName], fits: Callable[[Job, GpuType], bool]
) -> dict[str, dict[GpuType, tuple[int, int]]]:
    """By tenant and type: how many GPUs its gangs can use together, and how many where one of `first` is among them;
    the n-th bit set for n of them. `fits`: whether the nodes of a type hold the smallest gang of a job."""
    out: dict[str, dict[GpuType, tuple[int, int]]] = {}
    for kind in kinds:
        of_tenant = out.setdefault(kind.tenant, dict.fromkeys(gpus, (1, 0)))
        for t, speedup in zip(gpus, kind.row, strict=True):
            sums, with_first = of_tenant[t]
            for job in (each for each in kind.jobs if speedup > 0 and fits(each, t)):
                more = _plus(sums, job.gpus, gpus[t])
                with_first |= more if job.name in first else _plus(with_first, job.gpus, gpus[t])
                sums |= more
            of_tenant[t] = sums, with_first
    return out


def _plus(sums: int, gang: GpuRange, most: Gpus) -> int:
    """Each of these sums with each size of a gang, up to `most`."""
    sizes = gang.allowed or (gang.min,)
    more = reduce(or_, (sums << size for size in sizes if size <= most), 0)
    count = 1 if gang.allowed else min(most if gang.max is None else gang.max, most) - gang.min + 1
    done = 1
    while done < count:
        more |= more << min(done, count - done)
        done *= 2
    return more & (1 << most + 1) - 1


def largest_demand(kinds: Sequence[Kind]) -> dict[str, float]:
    """Most GPUs that a tenant's jobs can use together."""
    out: dict[str, float] = {}
    for kind in kinds:
        out[kind.tenant] = out.get(kind.tenant, 0.0) + most_of(kind)
    return out
