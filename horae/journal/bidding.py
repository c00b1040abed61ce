"""What offers and bids of apps' own agents do to the ledger; the part of `fold.py` that is theirs."""

from __future__ import annotations

from horae.journal.events import Event
from horae.journal.ledger import Ledger, Offer, PoolRecord, RegisteredAgent

#: Offers in a row without a bid after which an agent is taken for gone, and nobody waits for it any more.
MOST_MISSED = 3


def agent(ledger: Ledger, event: Event) -> None:
    agents = _pool(ledger, event).agents
    if event.data["by"] is None:
        agents.pop(event.data["app"], None)
    else:
        agents[event.data["app"]] = RegisteredAgent(event.data["by"], event.at_s)


def offered(ledger: Ledger, event: Event) -> None:
    pool, data = _pool(ledger, event), event.data
    pool.offers = data["number"]
    pool.offer = Offer(data["number"], event.at_s, data["deadline_s"], dict(data["gpus"]), list(data["asked"]))


def bid(ledger: Ledger, event: Event) -> None:
    offer = _pool(ledger, event).offer
    if offer is not None and offer.number == event.data["offer"]:
        offer.bids[event.data["app"]] = list(event.data["rows"])
        offer.refused.pop(event.data["app"], None)


def bid_refused(ledger: Ledger, event: Event) -> None:
    offer = _pool(ledger, event).offer
    if offer is not None and offer.number == event.data["offer"]:
        offer.refused[event.data["app"]] = event.data["text"]


def settled(ledger: Ledger, event: Event) -> None:
    pool = _pool(ledger, event)
    pool.offer, pool.settled = None, {**event.data, "at_s": event.at_s}
    for app, result in event.data["apps"].items():
        known = pool.agents.get(app)
        if known is None:
            continue
        known.missed = 0 if result["came"] else known.missed + 1
        if known.missed >= MOST_MISSED:
            del pool.agents[app]


def _pool(ledger: Ledger, event: Event) -> PoolRecord:
    assert event.pool is not None
    return ledger.pools.setdefault(event.pool, PoolRecord())
