"""The hidden payment (Themis §3.3.1, Pseudocode 1 lines 9-10) in whole GPUs.

An app may keep c of what it won. GPUs are indivisible and gangs have a least size, so "c of the win" seldom exists:

- `randomised` (default): between the two bundles around it, nothing included, so that the *expected value*, E[1/rho],
  is c times the win's. The expectation is what a bidder can influence by its bid. Where even keeping nothing of the
  win is worth more than that (a lease holds it up), it keeps nothing, and `Payment.exact` is False.
- `floor`: the largest bundle of at most c of the GPUs won. Simple, and a lottery without a prize for rigid gangs:
  whoever displaces anybody keeps nothing.

GPUs are given back one at a time from the node where the app has fewest, in the rack where it has fewest: the least
local first. Bundles that are worth no more than a smaller one are passed over. Of an app of many jobs, each of whose
bundles costs a schedule of all of them, some are not looked at: the expectation is as exact between those that are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from random import Random

from policy.model import Gpus, NodeName
from policy.themis.shapes import steps

#: rho of the app on what is under lease plus these GPUs
Rho = Callable[[Mapping[NodeName, Gpus]], float]


@dataclass(frozen=True, slots=True)
class Payment:
    kept: dict[NodeName, Gpus]  #: of the win
    expected: float  #: E[1/rho] before the draw
    due: float  #: c * 1/rho(win)
    choices: tuple[tuple[Gpus, float], ...]  #: (GPUs kept, probability), the ones possible

    @property
    def exact(self) -> bool:
        return abs(self.expected - self.due) <= 1e-9 * max(self.due, 1e-12)


def _rising(
    won: Mapping[NodeName, Gpus],
    base: Mapping[NodeName, Gpus],
    rack: Mapping[NodeName, str],
    null_value: float,
    rho: Rho,
    share: float,
) -> list[tuple[float, Gpus, dict[NodeName, Gpus]]]:
    """Value, GPUs and bundle of what it might keep, each worth more than the one before; the first is nothing."""
    ladder = [dict(won)]
    while ladder[-1]:
        left = dict(ladder[-1])
        node = least_local(left, base, rack)
        left[node] -= 1
        ladder.append({n: g for n, g in left.items() if g})
    rising: list[tuple[float, Gpus, dict[NodeName, Gpus]]] = [(null_value, 0, {})]
    for gpus in steps(len(ladder) - 1, share):
        bundle = ladder[-1 - gpus]
        worth = rho(bundle)
        if worth < inf and 1.0 / worth > rising[-1][0] * (1 + 1e-12):
            rising.append((1.0 / worth, gpus, bundle))
    return rising


def pay(
    won: Mapping[NodeName, Gpus],
    base: Mapping[NodeName, Gpus],
    rack: Mapping[NodeName, str],
    fraction: float,
    null_value: float,
    rho: Rho,
    mode: str,
    random: Random,
    share: float = 0.0,
) -> Payment:
    """What of `won` the app keeps. `null_value`: 1/rho without any of it. `share`: how coarsely it is cut
    (`shapes.steps`); 0: by single GPUs."""
    rising = _rising(won, base, rack, null_value, rho, share)
    top, total = rising[-1][0], sum(won.values())
    due = fraction * top
    if mode == "floor":
        value, gpus, bundle = next(s for s in reversed(rising) if s[1] <= fraction * total + 1e-9)
        return Payment(bundle, value, due, ((gpus, 1.0),))
    draw = random.random()
    if due <= null_value:
        return Payment({}, null_value, due, ((0, 1.0),))
    high = next(i for i, s in enumerate(rising) if s[0] >= due * (1 - 1e-12))
    if high == 0 or rising[high][0] <= due * (1 + 1e-12):
        return Payment(rising[high][2], rising[high][0], due, ((rising[high][1], 1.0),))
    low_value, low_gpus, low_bundle = rising[high - 1]
    high_value, high_gpus, high_bundle = rising[high]
    chance = (due - low_value) / (high_value - low_value)
    return Payment(
        high_bundle if draw < chance else low_bundle,
        chance * high_value + (1 - chance) * low_value,
        due,
        ((low_gpus, 1 - chance), (high_gpus, chance)),
    )


def least_local(won: Mapping[NodeName, Gpus], base: Mapping[NodeName, Gpus], rack: Mapping[NodeName, str]) -> NodeName:
    """The node of the win to give a GPU back from first."""
    on_rack: dict[str, Gpus] = {}
    on_node: dict[NodeName, Gpus] = {}
    for part in (won, base):
        for node, gpus in part.items():
            on_node[node] = on_node.get(node, 0) + gpus
            on_rack[rack[node]] = on_rack.get(rack[node], 0) + gpus
    order = {node: i for i, node in enumerate(won)}
    return min(won, key=lambda n: (on_rack[rack[n]], on_node[n], -order[n]))
