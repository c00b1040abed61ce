"""Offers to apps' own agents, and what their bids become. Pure functions of the ledger.

    nothing open, a decision is due  -> OFFERED: what is free, to the apps that have an agent; the pool waits
    BID, BID_REFUSED                 -> tables, each row checked against the offer
    all came, or the deadline        -> the policy is asked, with the tables in the state that it reads
    it answered                      -> SETTLED: whose table counted, who won what

An app whose agent sent nothing, or nothing that can be, is bid for as if the agent were not there: by its last table
where it has one, else by the built-in agent. An agent that misses `bidding.MOST_MISSED` offers in a row is no longer
waited for. What is offered, what a table may say and how it is told is the policy's (`policy.contract.Bidding`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from horae.arbiter.decide.policy_runner import Answer, Question
from horae.arbiter.modes import mode_of
from horae.config import Config
from horae.journal import Draft, Ledger, PoolRecord, events
from horae.journal.ledger import Offer
from policy import catalogue
from policy.model import Allocation, JobName, Seconds


def opened(books: PoolRecord, question: Question, config: Config) -> Draft | None:
    """An offer to make before the policy is asked; None: nobody would bid, or nothing is on offer."""
    bidding = catalogue.bidding(question.policy)
    if not books.agents or bidding is None:
        return None
    apps = {job.app for job in question.snapshot.jobs}
    asked = sorted(app for app in books.agents if app in apps)
    free = dict(bidding.offered(question.snapshot))
    if not asked or not free:
        return None
    deadline_s = question.snapshot.now_s + config.rounds.bid_s
    return events.Offered(question.pool, books.offers + 1, free, deadline_s, asked)


def missing(offer: Offer) -> list[str]:
    return [app for app in offer.asked if app not in offer.bids]


def ripe(offer: Offer, now_s: Seconds) -> bool:
    """Whether the policy may be asked: every table came, or the time is over."""
    return now_s >= offer.deadline_s or not missing(offer)


def next_s(ledger: Ledger, config: Config, now_s: Seconds) -> Seconds:
    """When the first open offer of a pool that decides is ripe; inf: none is open."""
    deciding = (ledger.pool(p.name).offer for p in config.pools if mode_of(ledger, p).decides)
    return min((now_s if not missing(o) else o.deadline_s for o in deciding if o is not None), default=float("inf"))


def answered(question: Question, books: PoolRecord) -> Question:
    """The question with the tables that came in time, and without remembered ones of agents that are gone."""
    bidding = catalogue.bidding(question.policy)
    if bidding is None:
        return question
    snapshot, sent = question.snapshot, {} if books.offer is None else books.offer.bids
    state = bidding.told(snapshot.state, sent, books.agents, snapshot.now_s)
    return question if state == dict(snapshot.state) else replace(question, snapshot=replace(snapshot, state=state))


def settled(
    books: PoolRecord, question: Question, answer: Answer, targets: Mapping[JobName, Allocation]
) -> Draft | None:
    """What came of the open offer. `targets`: after the guards."""
    offer = books.offer
    if offer is None:
        return None
    bidding, apps = catalogue.bidding(question.policy), {}
    told = () if bidding is None else bidding.NUMBERS
    for app in offer.asked:
        jobs = [job.name for job in question.snapshot.jobs if job.app == app]
        numbers: Mapping[str, Any] = {}
        if answer.decision is not None:
            numbers = next((r.numbers for j in jobs if (r := answer.decision.reasons.get(j)) is not None), {})
        came = app in offer.bids
        apps[app] = {
            "came": came,
            "text": _what(offer, app, "" if bidding is None else bidding.outcome(numbers), answer),
            "numbers": {key: numbers[key] for key in told if numbers.get(key) is not None},
            "jobs": {job: dict(targets[job]) for job in jobs if targets.get(job)},
        }
    return events.Settled(question.pool, offer.number, apps)


def _what(offer: Offer, app: str, outcome: str, answer: Answer) -> str:
    if app in offer.bids:
        text = f"its agent's table of {len(offer.bids[app])} rows came in time"
    elif app in offer.refused:
        text = f"its agent's table was refused ({offer.refused[app]})"
    else:
        text = "its agent sent no table in time"
    if answer.decision is None:
        return f"{text}; the policy gave no answer, the previous allocation stands"
    return f"{text}{outcome}"
