"""What offers and bids of apps' own agents do."""

from __future__ import annotations

from horae.journal.events import AgentNamed, Bid, BidRefused, Offered, Settled
from horae.journal.folds.table import Folds
from horae.journal.form import Event
from horae.journal.ledger import Ledger, Offer, PoolRecord, RegisteredAgent

#: Offers in a row without a bid after which an agent is taken for gone, and nobody waits for it any more.
MOST_MISSED = 3
FOLDS = Folds()


@FOLDS.of_pool(AgentNamed)
def _agent_named(_ledger: Ledger, pool: PoolRecord, event: Event, told: AgentNamed) -> None:
    if told.by is None:
        pool.agents.pop(told.app, None)
    else:
        pool.agents[told.app] = RegisteredAgent(told.by, event.at_s)


@FOLDS.of_pool(Offered)
def _offered(_ledger: Ledger, pool: PoolRecord, event: Event, told: Offered) -> None:
    pool.offers = told.number
    pool.offer = Offer(told.number, event.at_s, told.deadline_s, dict(told.gpus), list(told.asked))


@FOLDS.of_pool(Bid)
def _bid(_ledger: Ledger, pool: PoolRecord, _event: Event, told: Bid) -> None:
    if pool.offer is not None and pool.offer.number == told.offer:
        pool.offer.bids[told.app] = list(told.rows)
        pool.offer.refused.pop(told.app, None)


@FOLDS.of_pool(BidRefused)
def _bid_refused(_ledger: Ledger, pool: PoolRecord, _event: Event, told: BidRefused) -> None:
    if pool.offer is not None and pool.offer.number == told.offer:
        pool.offer.refused[told.app] = told.text


@FOLDS.of_pool(Settled)
def _settled(_ledger: Ledger, pool: PoolRecord, event: Event, told: Settled) -> None:
    pool.offer, pool.settled = None, {**event.data, "at_s": event.at_s}
    for app, result in told.apps.items():
        known = pool.agents.get(app)
        if known is None:
            continue
        known.missed = 0 if result["came"] else known.missed + 1
        if known.missed >= MOST_MISSED:
            del pool.agents[app]
