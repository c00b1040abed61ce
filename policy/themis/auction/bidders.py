"""Who competes with whom in an auction: tenants' limits, like bidders, bidders that never meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policy.model import Gpus
from policy.themis.auction.rows import Bid
from policy.themis.offer import NodeClass


@dataclass(frozen=True, slots=True)
class Cap:
    """A tenant's limit: these apps may take at most `room` of the offered GPUs together."""

    apps: frozenset[str]
    room: Gpus


def kind(bid: Bid, log_null: Mapping[str, float], caps: Sequence[Cap]) -> tuple[object, ...]:
    """Bidders of one kind are interchangeable."""
    limits = tuple(n for n, cap in enumerate(caps) if bid.app in cap.apps)
    return bid.rows, log_null[bid.app], bid.weight, bid.need, limits


def contenders(
    bids: Sequence[Bid], classes: Sequence[NodeClass], log_null: Mapping[str, float], caps: Sequence[Cap]
) -> list[Bid]:
    """Bidders without those that a like one is ahead of for every GPU, and for one more when somebody is left out."""
    room = sum(c.free * len(c.nodes) for c in classes)
    ahead: dict[tuple[object, ...], int] = {}
    out = []
    for bid in bids:
        like = kind(bid, log_null, caps)
        ahead[like] = ahead.get(like, 0) + 1
        if ahead[like] <= room + 1:
            out.append(bid)
    return out


def apart(bids: Sequence[Bid], caps: Sequence[Cap]) -> list[list[Bid]]:
    """Bidders that can never stand in each other's way, apart."""
    parts: list[tuple[set[object], list[int]]] = []
    for place, bid in enumerate(bids):
        mine, members = _over(bid, caps), [place]
        alone = []
        for part in parts:
            if part[0].isdisjoint(mine):
                alone.append(part)
                continue
            mine |= part[0]
            members += part[1]
        parts = [*alone, (mine, members)]
    out = sorted(sorted(members) for _, members in parts)
    return [[bids[i] for i in members] for members in out]


def _over(bid: Bid, caps: Sequence[Cap]) -> set[object]:
    """What the bid is over: classes of nodes, and limits of tenants."""
    out: set[object] = set()
    for n, cap in enumerate(caps):
        if bid.app in cap.apps:
            out.add(("cap", n))
    for row in bid.rows:
        for demand in row.demands:
            out.update(demand.domain)
    return out
