"""Which part of all quanta each job is entitled to, where jobs are bound to nodes (§3.2, Figure 1d).

A tenant's entitlement is divided among its jobs, but a job never uses more than its gang and a node never gives more
than its GPUs: what a tenant has over on a quiet node lowers what it may ask on a busy one. Without that, in Figure 1d
tenants A and B would hold 3.2 GPUs each and C 1.6; with it they hold 3, 3 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.model import Gpus, JobName, NodeName

#: Rounds of re-weighting. Each closes most of the distance to the entitlements; the rest is below a stride's rounding.
ROUNDS = 40
Vector = NDArray[np.float64]


def parts(
    homes: Mapping[JobName, Mapping[NodeName, Gpus]],
    tenant_of: Mapping[JobName, str],
    entitled: Mapping[str, float],
    gpus: Mapping[NodeName, Gpus],
) -> dict[JobName, float]:
    """Part of the quanta (0..1) of each job. `entitled`: GPUs a tenant may hold on average on these nodes."""
    jobs = list(homes)
    if not jobs:
        return {}
    size = np.array([sum(homes[j].values()) for j in jobs], dtype=np.float64)
    names = {t: i for i, t in enumerate(dict.fromkeys(tenant_of[j] for j in jobs))}
    tenant = np.array([names[tenant_of[j]] for j in jobs], dtype=np.intp)
    target = np.array([entitled.get(t, 0.0) for t in names])
    weight = np.maximum((target / _by_tenant(tenant, size, len(names)))[tenant], 1e-6)
    nodes = _Nodes.of(homes, gpus)
    out = np.ones(len(jobs))
    for step in range(ROUNDS):
        out = nodes.parts(weight)
        full = out >= 1 - 1e-9
        whole = _by_tenant(tenant, np.where(full, size, 0.0), len(names))
        shared = (_by_tenant(tenant, out * size, len(names)) - whole)[tenant]
        moves = ~full & (shared > 1e-9)
        left = (target - whole)[tenant]
        factor = np.where(moves, np.maximum(left, 1e-3 * shared) / np.where(moves, shared, 1.0), 1.0)
        weight = weight * factor ** (2 if step < ROUNDS // 2 else 1)  # over-relaxed: half the rounds
        if bool((np.abs(factor - 1) < 1e-4).all()):
            break
    return dict(zip(jobs, out.tolist(), strict=True))


def _by_tenant(tenant: NDArray[np.intp], values: Vector, tenants: int) -> Vector:
    return np.bincount(tenant, weights=values, minlength=tenants).astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes with about as many jobs each, side by side: [node, place], padded with jobs that want nothing."""

    tables: list[tuple[NDArray[np.intp], Vector, Vector]]  #: (job, GPUs it wants there, GPUs of the node)
    jobs: int

    @staticmethod
    def of(homes: Mapping[JobName, Mapping[NodeName, Gpus]], gpus: Mapping[NodeName, Gpus]) -> _Nodes:
        there: dict[NodeName, list[tuple[int, Gpus]]] = {}
        for i, home in enumerate(homes.values()):
            for node, n in home.items():
                there.setdefault(node, []).append((i, n))
        alike: dict[int, list[NodeName]] = {}
        for node, lives in there.items():
            alike.setdefault(len(lives).bit_length(), []).append(node)
        tables = []
        for nodes in alike.values():
            most = max(len(there[n]) for n in nodes)
            job = np.zeros((len(nodes), most), dtype=np.intp)
            wants = np.zeros((len(nodes), most))
            for k, node in enumerate(nodes):
                lives = there[node]
                job[k, : len(lives)] = [i for i, _ in lives]
                wants[k, : len(lives)] = [n for _, n in lives]
            tables.append((job, wants, np.array([gpus[n] for n in nodes], dtype=np.float64)))
        return _Nodes(tables, len(homes))

    def parts(self, weight: Vector) -> Vector:
        """What each job gets of its gang where it gets least, when every node divides its GPUs by weight x GPUs.

        `fair_shares` of all nodes at once: by falling weight, whoever would get more than all gets all; from the
        first that does not, all share what is left.
        """
        out = np.ones(self.jobs)
        for job, wants, gpus in self.tables:
            mine = np.where(wants > 0, weight[job], 0.0)
            order = np.argsort(-mine, axis=1, kind="stable")
            falling = np.take_along_axis(mine, order, axis=1)
            asked = np.take_along_axis(wants, order, axis=1)
            behind = np.cumsum((falling * asked)[:, ::-1], axis=1)[:, ::-1]
            before = np.cumsum(asked, axis=1) - asked
            level = np.maximum(gpus[:, None] - before, 0.0) / np.where(behind > 0, behind, 1.0)
            short = (falling * level < 1) & (asked > 0)
            first = short.argmax(axis=1)
            at = np.where(short.any(axis=1), level[np.arange(len(level)), first], np.inf)[:, None]
            got = np.ones_like(mine)
            np.multiply(mine, at, out=got, where=(wants > 0) & np.isfinite(at))
            np.minimum.at(out, job, np.minimum(got, 1.0))
        return out
