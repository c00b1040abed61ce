"""Automatic GPU trading between tenants on clusters of mixed GPU types (§3.4, §3.5).

For each (fast, slow) pair of types the *seller* of slow GPUs is the tenant with the largest speed-up on the fast
type, the *buyer* of slow GPUs is the one with the smallest; the price is the second-highest speed-up (slow GPUs for
one fast GPU) of those who still have slow GPUs to pay with, or half-way between the two parties where nobody else has
(OEF §2.4 plays the same rounds: 3, then 2.5). (The paper calls the two parties by both names; here `high` gives slow
GPUs and gets fast ones, `low` gives fast ones.)

Entitlements are parts of the time that a tenant's jobs may run, so what is traded is time: any fraction of a GPU. (The
paper trades whole GPUs, §3.4; in a cluster with more tenants than fast GPUs nobody has a whole one to sell.)

Nobody takes more GPUs than its jobs can use: a seller that gets many slow GPUs for a fast one needs jobs to run on
them, else it would end below its fair share. So each trade makes both at least as well off as their fair share.
Entitlements are recomputed from the fair shares at each decision: a trade that an arrival or a departure made
impossible is thereby undone, and `undone` names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Entitlement = dict[str, dict[str, float]]  #: tenant -> GPU type -> GPUs


@dataclass(frozen=True, slots=True)
class Trade:
    fast: str
    slow: str
    high: str  #: the tenant that gets fast GPUs
    low: str  #: the tenant that gives them
    fast_gpus: float
    price: float  #: slow GPUs paid for one fast GPU

    @property
    def slow_gpus(self) -> float:
        return self.fast_gpus * self.price


def price_of(bids: Sequence[float], floor: float) -> float:
    """The second price. `bids` descending: speed-ups of those who can pay, the buyer's first; `floor`: the seller's.

    Without a second bid at which both gain, the surplus is split equally.
    """
    if len(bids) > 1 and floor <= bids[1]:
        return bids[1]
    return (bids[0] + floor) / 2


def trade(
    entitlement: Mapping[str, Mapping[str, float]],
    speed: Mapping[str, Mapping[str, float]],
    types: Sequence[str],
    unit: float = 0.0,
    threshold: float = 0.0,
    demand: Mapping[str, float] | None = None,
) -> tuple[Entitlement, list[Trade]]:
    """All trades that pay, fastest pairs first.

    Shapes: `entitlement` tenant -> type -> GPUs; `speed` tenant -> type -> iterations/s of a typical job of its on
    one GPU; `types` slowest first; `unit` fast GPUs a step (1: whole GPUs, 0: any fraction);
    `threshold` the relative gain in speed-up below which no trade is made; `demand` the most GPUs that a tenant's jobs
    can use (missing: no limit).

    A tenant without a measured speed on both types of a pair takes no part in it.
    """
    have: Entitlement = {t: dict(share) for t, share in entitlement.items()}
    trades: list[Trade] = []
    most = demand or {}
    pairs = [(f, s) for i, f in reversed(list(enumerate(types))) for s in types[:i]]
    for fast, slow in pairs:
        ratio = {
            t: speed[t][fast] / speed[t][slow]
            for t in have
            if speed.get(t, {}).get(fast, 0.0) > 0 and speed.get(t, {}).get(slow, 0.0) > 0
        }
        falling = sorted(ratio, key=lambda t: (-ratio[t], t))
        rising = sorted(ratio, key=lambda t: (ratio[t], t))
        full: set[str] = set()  #: those whose jobs could not use what they would get
        while True:
            highs = [t for t in falling if t not in full and have[t].get(slow, 0.0) > 1e-9]
            low = next((t for t in rising if t not in full and have[t].get(fast, 0.0) >= max(unit, 1e-9)), None)
            if not highs or low is None or low == highs[0] or ratio[highs[0]] <= ratio[low] * (1 + threshold):
                break
            high = highs[0]
            price = price_of([ratio[high], *(ratio[t] for t in highs[1:] if t != low)], ratio[low])
            fast_gpus = min(have[low][fast], have[high][slow] / price)
            # `low` ends with price - 1 more GPUs for each it gives, `high` with as many fewer.
            grows = low if price > 1 else high
            room = most.get(grows, math.inf) - sum(have[grows].values())
            if abs(price - 1) > 1e-12:
                fast_gpus = min(fast_gpus, max(room, 0.0) / abs(price - 1))
            if unit:
                fast_gpus = int(fast_gpus / unit + 1e-9) * unit
            if fast_gpus <= 1e-9:
                full.add(grows)
                continue
            done = Trade(fast, slow, high, low, fast_gpus, price)
            have[high][fast] = have[high].get(fast, 0.0) + done.fast_gpus
            have[low][fast] -= done.fast_gpus
            have[high][slow] -= done.slow_gpus
            have[low][slow] = have[low].get(slow, 0.0) + done.slow_gpus
            trades.append(done)
    return have, trades


def undone(before: Sequence[Trade], after: Sequence[Trade]) -> list[Trade]:
    """Earlier trades (or parts of them) that the new fair shares no longer allow."""
    left = {(t.fast, t.slow, t.high, t.low): t.fast_gpus for t in after}
    out: list[Trade] = []
    for t in before:
        kept = min(t.fast_gpus, left.get((t.fast, t.slow, t.high, t.low), 0.0))
        if t.fast_gpus - kept > 1e-9:
            out.append(Trade(t.fast, t.slow, t.high, t.low, t.fast_gpus - kept, t.price))
    return out
