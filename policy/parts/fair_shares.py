"""Who is entitled to how many GPUs, by weight, where not everybody can use its proportional part.

That of surplus fair scheduling (Chandra et al., OSDI 2000, the readjustment of weights that Gandiva-fair §3.2 takes):
who could not use its proportional part is given what it can use, taken off the list, and the rest is divided again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping


def fair_shares(tickets: Mapping[str, float], demand: Mapping[str, float], gpus: float) -> dict[str, float]:
    """GPUs (possibly fractional) each tenant is entitled to now.

    `tickets` > 0 by tenant, `demand` in GPUs by tenant (missing: none), `gpus` to divide. Each share is at most the
    demand; shares of tenants below their demand are proportional to tickets; the sum is min(gpus, total demand).
    """
    shares: dict[str, float] = {}
    # Ascending demand per ticket: when one tenant is not capped, none after it is. One pass, O(n log n).
    rest = sorted(tickets, key=lambda t: (demand.get(t, 0.0) / tickets[t], t))
    # Sums from the end: subtracting from a total would lose small tickets behind large ones.
    behind = list(itertools.accumulate(tickets[t] for t in reversed(rest)))[::-1]
    left = float(gpus)
    for i, tenant in enumerate(rest):
        weight = behind[i]
        proportional = left * tickets[tenant] / weight
        if demand.get(tenant, 0.0) > proportional:
            scale = left / weight
            shares.update({t: min(tickets[t] * scale, demand.get(t, 0.0)) for t in rest[i:]})
            break
        shares[tenant] = demand.get(tenant, 0.0)
        left -= shares[tenant]
    return {t: shares[t] for t in tickets}
