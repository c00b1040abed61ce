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
    parts: list[tuple[set[object], list[Bid]]] = []
    for bid in bids:
        mine: set[object] = {i for row in bid.rows for d in row.demands for i in d.domain}
        mine |= {("cap", n) for n, cap in enumerate(caps) if bid.app in cap.apps}
        touching = [p for p in parts if p[0] & mine]
        parts = [p for p in parts if not p[0] & mine]
        merged = sorted([*(b for p in touching for b in p[1]), bid], key=bids.index)
        parts.append((mine.union(*(p[0] for p in touching)), merged))
    return sorted((p[1] for p in parts), key=lambda part: bids.index(part[0]))
