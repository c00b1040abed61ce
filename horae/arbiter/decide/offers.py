"""Offers to apps' own agents, and what their bids become (Themis §4.2.2, Fig. 7). Pure functions of the ledger.

    nothing open, a decision is due  -> OFFERED: what is free, to the apps that have an agent; the pool waits
    BID, BID_REFUSED                 -> tables, each row checked against the offer
    all came, or the deadline        -> the policy is asked, with the tables in the state that it reads
                                        (`policy/themis/external.py`)
    it answered                      -> SETTLED: whose table counted, who won what

An app whose agent sent nothing, or nothing that can be, is bid for as if the agent were not there: by its last table
where it has one, else by the built-in agent. An agent that misses `bidding.MOST_MISSED` offers in a row is no longer
waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from horae.arbiter.decide.modes import mode_of
from horae.arbiter.decide.policy_runner import Answer, Question
from horae.config import Config
from horae.journal import Draft, Ledger, PoolRecord, events
from horae.journal.ledger import Offer
from policy import away, catalogue
from policy.bounds import LEAST_RHO, MOST_RHO
from policy.model import Allocation, BadInput, Gpus, JobName, NodeName, Seconds, Snapshot
from policy.text.textform import brief
from policy.themis.offer import offer as on_offer

#: Rows of one table; more are a mistake or an attack.
MOST_ROWS = 1000
#: What of a reason's numbers tells how the auction went.
NUMBERS = ("rho_before", "rho", "bid", "bid_by", "won", "kept_fraction", "kept", "leftover", "leased", "offered")


def takes_bids(policy: str) -> bool:
    entry = catalogue.entries().get(policy)
    return entry is not None and entry.bids is not None


def opened(books: PoolRecord, question: Question, config: Config) -> Draft | None:
    """An offer to make before the policy is asked; None: nobody would bid, or nothing is on offer."""
    if not books.agents or not takes_bids(question.policy):
        return None
    apps = {job.app for job in question.snapshot.jobs}
    asked = sorted(app for app in books.agents if app in apps)
    free = {n: g for n, g in on_offer(away.prepared(question.snapshot)).free.items() if g > 0}
    if not asked or not free:
        return None
    deadline_s = question.snapshot.now_s + config.rounds.bid_s
    return events.offered(question.pool, books.offers + 1, free, deadline_s, asked)


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
    if not takes_bids(question.policy):
        return question
    snapshot, offer = question.snapshot, books.offer
    bids = {app: {"time_s": snapshot.now_s, "rows": rows} for app, rows in offer.bids.items()} if offer else {}
    state = {key: value for key, value in snapshot.state.items() if key != "tables"}
    tables = {app: t for app, t in snapshot.state.get("tables", {}).items() if app in books.agents}
    state |= {"tables": tables} if tables else {}
    state |= {"bids": bids} if bids else {}
    return question if state == dict(snapshot.state) else replace(question, snapshot=replace(snapshot, state=state))


def settled(
    books: PoolRecord, question: Question, answer: Answer, targets: Mapping[JobName, Allocation]
) -> Draft | None:
    """What came of the open offer. `targets`: after the guards."""
    offer = books.offer
    if offer is None:
        return None
    apps = {}
    for app in offer.asked:
        jobs = [job.name for job in question.snapshot.jobs if job.app == app]
        numbers: Mapping[str, Any] = {}
        if answer.decision is not None:
            numbers = next((r.numbers for j in jobs if (r := answer.decision.reasons.get(j)) is not None), {})
        came = app in offer.bids
        apps[app] = {
            "came": came,
            "text": _what(offer, app, numbers, answer),
            "numbers": {key: numbers[key] for key in NUMBERS if numbers.get(key) is not None},
            "jobs": {job: dict(targets[job]) for job in jobs if targets.get(job)},
        }
    return events.settled(question.pool, offer.number, apps)


def _what(offer: Offer, app: str, numbers: Mapping[str, Any], answer: Answer) -> str:
    if app in offer.bids:
        text = f"its agent's table of {len(offer.bids[app])} rows came in time"
    elif app in offer.refused:
        text = f"its agent's table was refused ({offer.refused[app]})"
    else:
        text = "its agent sent no table in time"
    if answer.decision is None:
        return f"{text}; the policy gave no answer, the previous allocation stands"
    if numbers.get("bid_by") == "last-table":
        text += ", its last one stood in"
    elif numbers.get("bid_by") == "built-in":
        text += ", the built-in agent bid for it"
    elif not numbers.get("bid"):
        text += "; other apps were worse off and bid this time"
    return text


def table(rows: Sequence[Mapping[str, Any]], offered: Mapping[NodeName, Gpus]) -> list[dict[str, Any]]:
    """The rows of a table from outside, checked. Raises BadInput with the first row that cannot be."""
    if len(rows) > MOST_ROWS:
        raise BadInput(f"has {len(rows)} rows", field="bids", value=len(rows), remedy=f"at most {MOST_ROWS}")
    return [_row(i, row, offered) for i, row in enumerate(rows)]


def _row(i: int, row: Mapping[str, Any], offered: Mapping[NodeName, Gpus]) -> dict[str, Any]:
    nodes, rho = row.get("nodes"), row.get("rho")
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not LEAST_RHO <= rho <= MOST_RHO:
        words = f"must be a number above 0 (from {LEAST_RHO:g} to {MOST_RHO:g})"
        raise BadInput(words, field=f"bids[{i}].rho", value=rho, remedy="finish-time fairness")
    if not isinstance(nodes, Mapping):
        raise BadInput("must map nodes to GPUs", field=f"bids[{i}].nodes", value=nodes, remedy="as in the offer")
    for node, gpus in nodes.items():
        most = offered.get(node, 0)
        if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= most:
            raise BadInput(
                f"asks for {brief(gpus)} GPUs of {str(node)[:80]}, which offers {most}",
                field=f"bids[{i}].nodes",
                value=gpus,
                remedy="only what is on offer",
            )
    stated = row.get("gpus")
    if stated is not None and stated != sum(nodes.values()):
        raise BadInput(
            f"says {brief(stated)} GPUs, its nodes are {sum(nodes.values())}",
            field=f"bids[{i}].gpus",
            value=stated,
            remedy="leave gpus out, or make them agree",
        )
    return {"nodes": dict(nodes), "rho": float(rho)}


def public(snapshot: Snapshot, app: str) -> Snapshot:
    """The snapshot as the agent of `app` may see it: of other apps' jobs no losses, and nobody else's tables.

    Names, sizes, places and speeds are everybody's, so the app's own bids come out as they would in the arbiter.
    """
    hidden = tuple(
        job if job.app == app else replace(job, loss=(), loss_forecast=None, model=None) for job in snapshot.jobs
    )
    state = {key: value for key, value in snapshot.state.items() if key not in ("bids", "tables")}
    return replace(snapshot, jobs=hidden, state=state)
