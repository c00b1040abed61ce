"""Automatic GPU trading between tenants on clusters of mixed GPU types (§3.4, §3.5).

For each (fast, slow) pair of types the *seller* of slow GPUs is the tenant with the largest speed-up on the fast
type, the *buyer* of slow GPUs is the one with the smallest; the price is the second-highest speed-up (slow GPUs for
one fast GPU), or half-way between the two when there is no second. (The paper calls the two parties by both names;
here `high` gives slow GPUs and gets fast ones, `low` gives fast ones.)

Each trade makes both at least as well off as their fair share, so nobody ever ends below it. Entitlements are
recomputed from the fair shares at each decision: a trade that an arrival or a departure made impossible is thereby
undone, and `undone` names it.
"""

from __future__ import annotations

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


def price_of(speedups: Sequence[float]) -> float:
    """`speedups` descending, of all tenants that could take part (at least two): the second price.

    With two tenants there is no second bid besides the seller's own floor: the surplus is split equally.
    """
    if len(speedups) > 2:
        return speedups[1]
    return (speedups[0] + speedups[-1]) / 2


def trade(
    entitlement: Mapping[str, Mapping[str, float]],
    speed: Mapping[str, Mapping[str, float]],
    types: Sequence[str],
    unit: float = 1.0,
    threshold: float = 0.0,
) -> tuple[Entitlement, list[Trade]]:
    """All trades that pay, fastest pairs first.

    Shapes: `entitlement` tenant -> type -> GPUs; `speed` tenant -> type -> iterations/s of a typical job of its on
    one GPU; `types` slowest first; `unit` fast GPUs a step (1: whole GPUs, 0: any fraction);
    `threshold` the relative gain in speed-up below which no trade is made.

    A tenant without a measured speed on both types of a pair takes no part in it.
    """
    have: Entitlement = {t: dict(share) for t, share in entitlement.items()}
    trades: list[Trade] = []
    pairs = [(f, s) for i, f in reversed(list(enumerate(types))) for s in types[:i]]
    for fast, slow in pairs:
        ratio = {
            t: speed[t][fast] / speed[t][slow]
            for t in have
            if speed.get(t, {}).get(fast, 0.0) > 0 and speed.get(t, {}).get(slow, 0.0) > 0
        }
        while True:
            highs = [t for t in ratio if have[t].get(slow, 0.0) > 1e-9]
            lows = [t for t in ratio if have[t].get(fast, 0.0) >= max(unit, 1e-9)]
            if not highs or not lows:
                break
            high = min(highs, key=lambda t: (-ratio[t], t))
            low = min(lows, key=lambda t: (ratio[t], t))
            if ratio[high] <= ratio[low] * (1 + threshold) or high == low:
                break
            price = price_of(sorted(ratio.values(), reverse=True))
            # The second price can be above what `high` gains or below what `low` needs when those two bidders are
            # no longer the extremes (their GPUs are spent): then the pair has no price at which both gain.
            if not ratio[low] <= price <= ratio[high]:
                price = (ratio[low] + ratio[high]) / 2
            fast_gpus = min(have[low][fast], have[high][slow] / price)
            if unit:
                fast_gpus = int(fast_gpus / unit + 1e-9) * unit
            if fast_gpus <= 1e-9:
                break
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
