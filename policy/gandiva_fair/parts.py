"""Which part of all quanta each job is entitled to, where jobs are bound to nodes (§3.2, Figure 1d).

A tenant's entitlement is divided among its jobs, but a job never uses more than its gang and a node never gives more
than its GPUs: what a tenant has over on a quiet node lowers what it may ask on a busy one. Without that, in Figure 1d
tenants A and B would hold 3.2 GPUs each and C 1.6; with it they hold 3, 3 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.gandiva_fair.tickets import fair_shares
from policy.model import Gpus, JobName, NodeName

#: Rounds of re-weighting. Each closes most of the distance to the entitlements; the rest is below a stride's rounding.
ROUNDS = 40


def parts(
    homes: Mapping[JobName, Mapping[NodeName, Gpus]],
    tenant_of: Mapping[JobName, str],
    entitled: Mapping[str, float],
    gpus: Mapping[NodeName, Gpus],
) -> dict[JobName, float]:
    """Part of the quanta (0..1) of each job. `entitled`: GPUs a tenant may hold on average on these nodes."""
    size = {job: sum(home.values()) for job, home in homes.items()}
    requested: dict[str, int] = {}
    for job, n in size.items():
        requested[tenant_of[job]] = requested.get(tenant_of[job], 0) + n
    by_node: dict[NodeName, list[JobName]] = {}
    for job, home in homes.items():
        for node in home:
            by_node.setdefault(node, []).append(job)
    weight = {job: max(entitled.get(tenant_of[job], 0.0) / requested[tenant_of[job]], 1e-6) for job in homes}
    out = dict.fromkeys(homes, 1.0)
    for step in range(ROUNDS):
        out = dict.fromkeys(homes, 1.0)
        for node, jobs in by_node.items():
            wants = {j: float(homes[j][node]) for j in jobs}
            got = fair_shares({j: weight[j] * wants[j] for j in jobs}, wants, gpus[node])
            for j in jobs:
                out[j] = min(out[j], got[j] / wants[j])
        settled = True
        held: dict[str, float] = {}
        full: dict[str, float] = {}
        for job, part in out.items():
            tenant = tenant_of[job]
            held[tenant] = held.get(tenant, 0.0) + part * size[job]
            if part >= 1 - 1e-9:
                full[tenant] = full.get(tenant, 0.0) + size[job]
        for job, part in out.items():
            tenant = tenant_of[job]
            shared = held[tenant] - full.get(tenant, 0.0)
            target = entitled.get(tenant, 0.0) - full.get(tenant, 0.0)
            if part < 1 - 1e-9 and shared > 1e-9:
                factor = max(target, 1e-3 * shared) / shared
                settled &= abs(factor - 1) < 1e-4
                weight[job] *= factor ** (2 if step < ROUNDS // 2 else 1)  # over-relaxed: half the rounds
        if settled:
            break
    return out
