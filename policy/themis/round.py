"""One round of Themis (NSDI 2020, Pseudocode 1 lines 13-23; §4.2.2): offer, filter, bids, auction, payment, leftovers.

1. On offer are GPUs that are free, freed, or whose lease has expired; what is under lease stays (`offer`).
2. The worst 1 - f share of the apps by their current rho bids, at least one (`fairness_knob`; the share rounded up).
   An app that holds nothing under lease comes before all that do; among them the larger cap comes first. Apps that
   could not use anything of the offer are passed over.
3. Their agents' tables (`rows`), or external ones (`external`); the auction (`auction`); the payments (`payment`).
4. What is left: at random to apps that did not bid, then to bidders (`leftover`).
5. Agents turn GPUs into gangs of their jobs (`agent`). New GPUs carry a new lease, kept ones the one they have.

State: the number of the round (chance differs from round to round, and repeats on replay), since when each app holds
nothing, the last table of every app that bids from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, exp, inf
from random import Random
from typing import Any

from policy.contract import Context
from policy.model import (
    Allocation,
    BadInput,
    Gpus,
    Health,
    Job,
    JobName,
    NodeName,
    Proposal,
    Seconds,
    Snapshot,
    SolverSummary,
    Termination,
)
from policy.parts.solver import DEFAULT_TIME_LIMIT_S, Backend
from policy.themis import explain, external
from policy.themis.agent import Agent
from policy.themis.auction.auction import Outcome, auction
from policy.themis.auction.payment import Payment, least_local, pay
from policy.themis.auction.rows import Bid, Rows, need
from policy.themis.auction.valuation import cap, valuations
from policy.themis.completion import complete
from policy.themis.contention import weights
from policy.themis.exchanges import MOST_EXCHANGES, caps, exchanged, granted, hand_out_idle, less, plus
from policy.themis.offer import NodeClass, Offer, classes, offer
from policy.themis.options import Options

#: Of the time that the policy has.
AUCTION_SHARE = 0.5


@dataclass(slots=True)
class Standing:
    """An app in this round."""

    agent: Agent
    base: dict[NodeName, Gpus]  #: under unexpired leases
    rho: float  #: now: on what is under lease; the cap where nothing runs on it
    starving: bool
    waited_s: Seconds


@dataclass(slots=True)
class Round:
    """What happened, for reasons and for people."""

    snapshot: Snapshot
    options: Options
    offered: Offer
    standings: dict[str, Standing]
    bidders: list[str] = field(default_factory=list)
    classes: list[NodeClass] = field(default_factory=list)
    bids: list[Bid] = field(default_factory=list)
    bid_by: dict[str, str] = field(default_factory=dict)  #: whose table: "agent", "last-table" or "built-in"
    outcome: Outcome | None = None
    payments: dict[str, Payment] = field(default_factory=dict)
    bundles: dict[str, dict[NodeName, Gpus]] = field(default_factory=dict)
    leftover: dict[str, dict[NodeName, Gpus]] = field(default_factory=dict)  #: negative where given up
    gangs: dict[JobName, Allocation] = field(default_factory=dict)
    leases: dict[JobName, dict[NodeName, tuple[Seconds, ...]]] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)  #: apps that gave up GPUs for better idle ones
    left: set[tuple[str, frozenset[tuple[NodeName, Gpus]]]] = field(default_factory=set)  #: and what they gave up
    notes: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        """How many rounds came before, as the state tells."""
        return int(self.snapshot.state.get("round", 0))


def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """One round. Deterministic in snapshot (its state included), options and seed."""
    this = run(snapshot, options, context)
    return Proposal(
        allocation={j.name: this.gangs.get(j.name, {}) for j in snapshot.jobs},
        leases=this.leases,
        reasons=explain.reasons(this, context.speeds),
        state=_state(this),
        solver=_summary(this.outcome, context),
        notes=tuple(this.notes),
    )


def run(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Round:
    """One round with everything that happened in it."""
    this = opened(snapshot, Options(**options), context)
    random = Random(f"themis {context.seed} {this.number}")
    if this.offered.total:
        _bid(this)
        _auction(this, context)
        _pay(this, random)
    this.bundles = granted(this)
    hand_out_idle(this, random)
    for app, before in granted(this).items():
        if this.bundles[app] != before:
            this.leftover[app] = less(this.bundles[app], before)
    changed: Collection[str] = this.standings
    for _ in range(MOST_EXCHANGES):
        for app in changed:
            this.gangs.update(this.standings[app].agent.assign(this.bundles[app]))
        complete(this, ranking(this), context)
        changed = exchanged(this)
        if not changed:
            break
    for app in this.standings:
        mine = {j.name: this.gangs[j.name] for j in snapshot.jobs if j.app == app and this.gangs.get(j.name)}
        this.leases.update(_leases(this, app, mine))
    return this


def bids(snapshot: Snapshot, options: Mapping[str, Any], context: Context, app: str) -> list[dict[str, Any]]:
    """The app's own table for this offer, by growing GPU count: the best row of each. Raises BadInput."""
    this = opened(snapshot, Options(**options), context)
    if app not in this.standings:
        raise BadInput(f"no active app {app!r}", value=app, remedy=f"one of {', '.join(this.standings)}")
    this.classes = classes(snapshot.cluster, this.offered, this.standings[app].base)
    rows = _rows(this, app).rows
    best: dict[Gpus, dict[str, Any]] = {}
    for row in rows:
        if row.gpus not in best:
            best[row.gpus] = {"gpus": row.gpus, "nodes": external.example(row, this.classes), "rho": row.rho}
    return [best[gpus] for gpus in sorted(best)]


# --- 1 and 2: offer and filter -----------------------------------------------------------------------------


def opened(snapshot: Snapshot, options: Options, context: Context) -> Round:
    """The offer and where every app stands before the auction."""
    offered = offer(snapshot)
    closed = frozenset(n.name for n in snapshot.cluster.nodes if n.health is not Health.UP)
    since = snapshot.state.get("waiting_since", {})
    standings = {}
    for app, value in valuations(snapshot, options, context.speeds).items():
        if value.finished:
            continue
        agent = Agent(value, offered, closed)
        base = offered.base(app)
        rho = agent.rho(base)
        holds = any(j.allocation for j in value.jobs)
        waited = 0.0 if holds else _waited(snapshot.now_s, value.jobs, since.get(app))
        starving = rho == inf
        if starving:
            worst = value.worst_rho()
            rho = cap(worst, waited, options.lease) if worst < inf else inf
        standings[app] = Standing(agent, base, rho, starving, waited)
    this = Round(snapshot, options, offered, standings)
    this.offered = _released(this)
    return this


def _waited(now_s: Seconds, jobs: Sequence[Job], since: Any) -> Seconds:
    """How long the app has held nothing. Without a memory of it: its life, less the time its GPU-seconds took."""
    if isinstance(since, int | float):
        return max(now_s - since, 0.0)
    ran = sum(sum(j.attained.values()) / max(j.gpus.requested, 1) for j in jobs)
    return max(now_s - min(j.submitted_s for j in jobs) - ran, 0.0)


def _released(this: Round) -> Offer:
    """The offer with what leases hold up in vain: GPUs of finished apps, idle ones, those above a tenant's cap."""
    leased = {app: dict(nodes) for app, nodes in this.offered.leased.items()}
    for tenant in this.snapshot.tenants:
        if tenant.cap is not None:
            _under(this, tenant.name, tenant.cap)
    for standing in this.standings.values():
        if standing.base and not standing.starving:
            used = standing.agent.used(standing.base)
            standing.base = {n: used[n] for n in standing.base if n in used}
    free = dict(this.offered.free)
    cpus, memory = dict(this.offered.cpus), dict(this.offered.memory)
    up = {n.name for n in this.snapshot.cluster.nodes if n.health == "up"}
    for app, nodes in leased.items():
        base = this.standings[app].base if app in this.standings else {}
        for node, times in nodes.items():
            gone = len(times) - base.get(node, 0)
            if gone > 0 and node in up:
                free[node] += gone
                wants = need(j for j in this.snapshot.jobs if j.app == app)
                if node in cpus:
                    cpus[node] += wants.cpus * gone
                if node in memory:
                    memory[node] += wants.memory * gone
            nodes[node] = times[gone:]
    return replace(this.offered, free=free, cpus=cpus, memory=memory, leased=leased)


def _under(this: Round, tenant: str, limit: Gpus) -> None:
    """A limit learnt later takes nothing from apps that stay as they are; others shrink until it is kept."""
    members = [(a, s) for a, s in this.standings.items() if s.agent.value.jobs[0].tenant == tenant]
    whole = {a for a, s in members if s.base == dict(this.offered.held.get(a, {}))}
    most = max(limit, sum(sum(s.base.values()) for a, s in members if a in whole))
    total = sum(sum(s.base.values()) for _, s in members)
    for app, standing in reversed(members):
        while app not in whole and standing.base and total > most:
            node = least_local(standing.base, {}, this.offered.rack)
            standing.base = {n: g - (n == node) for n, g in standing.base.items() if g - (n == node) > 0}
            total -= 1


def ranking(this: Round) -> list[str]:
    """Apps, the worst off first: those that hold nothing under lease before all that do."""
    order = {app: i for i, app in enumerate(this.standings)}
    return sorted(
        this.standings,
        key=lambda a: (not this.standings[a].starving, -this.standings[a].rho, order[a]),
    )


def share(apps: int, fairness_knob: float) -> int:
    """How many of `apps` bid: the 1 - f share rounded up, at least one."""
    return max(ceil((1.0 - fairness_knob) * apps - 1e-9), 1)


# --- 3: bids, auction, payments ----------------------------------------------------------------------------


def _bid(this: Round) -> None:
    """Tables of the worst-off apps that can use something."""
    wanted = share(len(this.standings), this.options.fairness_knob)
    counts = this.options.weigh == "tenants"
    weigh = weights(this.snapshot, {a: s.agent.value.jobs for a, s in this.standings.items()}) if counts else {}
    tables = _sent(this)
    queue = ranking(this)
    asked: list[str] = []
    while queue and len(asked) < wanted:
        fresh = queue[: wanted - len(asked)]
        queue = queue[len(fresh) :]
        asked += fresh
        apart = {n for a in asked for n in (*this.standings[a].base, *external.nodes_of(tables.get(a, [])))}
        this.classes = classes(this.snapshot.cluster, this.offered, apart)
        found = {}
        for app in asked:
            bid = _table(this, app, tables.get(app))
            found[app] = _finite(this, replace(bid, weight=weigh.get(app, 1.0)))
        asked = [a for a in asked if found[a].rows]
        this.bids = [found[a] for a in this.standings if a in asked]
    this.bidders = [b.app for b in this.bids]


def _sent(this: Round) -> dict[str, external.Table]:
    """What apps' own agents have sent and still counts."""
    state, now_s, deadline_s = this.snapshot.state, this.snapshot.now_s, this.options.deadline
    found = {app: external.fresh(state, app, now_s, deadline_s) for app in this.standings}
    return {app: table for app, table in found.items() if table is not None}


def _finite(this: Round, bid: Bid) -> Bid:
    """An app whose smallest gangs run nowhere, or on no one type: its worst row is what counts. (One gain without a
    bound, and the program would have no answer for anybody.)"""
    if bid.null_rho < inf or not bid.rows:
        return bid
    waited = this.standings[bid.app].waited_s
    return replace(bid, null_rho=cap(max(row.rho for row in bid.rows), waited, this.options.lease))


def _table(this: Round, app: str, sent: external.Table | None) -> Bid:
    standing = this.standings[app]
    last = this.snapshot.state.get("tables", {}).get(app)
    if sent is not None:
        most = standing.agent.value.most
        room = None if most is None else max(most - sum(standing.base.values()), 0)
        wants = need(standing.agent.value.jobs)
        made, bad, bounded = external.bid(
            app,
            sent,
            this.classes,
            this.offered,
            standing.rho,
            standing.starving,
            room,
            wants,
            partial(_with, standing),
            this.options.trust,
        )
        if bad:
            this.notes.append(f"{bad} rows of the bid of {app} cannot be and were left out")
        if bounded:
            this.notes.append(
                f"{bounded} rows of the bid of {app} say to be more than {this.options.trust:g} times better than "
                "was measured and count as that"
            )
        this.bid_by[app] = "agent"
        return made
    made = _rows(this, app)
    if last is not None:
        this.notes.append(f"no bid of {app} came in time: its last table stands in")
        this.bid_by[app] = "last-table"
        return replace(made, rows=tuple(external.replaced(made.rows, last, this.classes, this.options.trust)))
    this.bid_by[app] = "built-in"
    return made


def _rows(this: Round, app: str) -> Bid:
    standing = this.standings[app]
    rows = Rows(standing.agent.value, this.offered, this.classes, standing.base, this.options.rows)
    return Bid(app, standing.rho, standing.starving, rows.all(standing.rho), rows.need, rows.exact)


def _auction(this: Round, context: Context) -> None:
    this.outcome = auction(
        this.bids,
        this.classes,
        this.offered,
        caps(this),
        seed=context.seed,
        time_limit_s=DEFAULT_TIME_LIMIT_S if context.time_limit_s is None else AUCTION_SHARE * context.time_limit_s,
        backend=Backend.HIGHS if context.solver is None else Backend(context.solver),
    )
    this.notes += this.outcome.notes
    if this.outcome.termination is not Termination.OPTIMAL:
        this.notes.append(f"the auction's winners are an incumbent ({this.outcome.termination}), not proven optimal")
    short = [b.app for b in this.bids if not b.exact]
    if short:
        this.notes.append(f"the bids of {', '.join(short)} leave bundles out (more than {this.options.rows})")


def _pay(this: Round, random: Random) -> None:
    assert this.outcome is not None, "paid after the auction"
    starving = {bid.app for bid in this.bids if bid.starving}
    for app in this.standings:
        if app not in this.outcome.wins:
            continue
        standing, fraction = this.standings[app], this.outcome.kept_fraction[app]
        # Who holds nothing has an unbounded rho: the auction's finite cap stands for it in the logarithm only. Were it
        # worth something here, equals that contend would give all back, round for round, for ever.
        null_value = 0.0 if app in starving else exp(-this.outcome.log_null[app])
        this.payments[app] = pay(
            this.outcome.wins[app],
            standing.base,
            this.offered.rack,
            fraction,
            null_value,
            partial(_with, standing),
            this.options.payment,
            random,
            standing.agent.value.gangs.coarse,
        )


def _with(standing: Standing, extra: Mapping[NodeName, Gpus]) -> float:
    """rho with these GPUs beside what is under lease."""
    return standing.agent.rho(plus(standing.base, extra))


# --- 5: leases ---------------------------------------------------------------------


def _leases(
    this: Round, app: str, gangs: Mapping[JobName, Mapping[NodeName, Gpus]]
) -> dict[JobName, dict[NodeName, tuple[Seconds, ...]]]:
    """Expiry of every GPU the app's jobs get: leases that run on run on, new ones last a lease."""
    until = this.snapshot.now_s + this.options.lease
    running = {node: sorted(times) for node, times in this.offered.leased.get(app, {}).items()}
    out: dict[JobName, dict[NodeName, tuple[Seconds, ...]]] = {}
    for job, nodes in gangs.items():
        mine = out[job] = {}
        for node, gpus in nodes.items():
            old = [running[node].pop() for _ in range(min(gpus, len(running.get(node, ()))))]
            mine[node] = tuple(sorted([*old, *[until] * (gpus - len(old))]))
    return out


def _state(this: Round) -> dict[str, Any]:
    known = this.snapshot.state.get("waiting_since", {})
    waiting = {}
    for app, standing in this.standings.items():
        if not any(this.gangs.get(j.name) for j in standing.agent.value.jobs):
            held = any(j.allocation for j in standing.agent.value.jobs)
            before = known.get(app, this.snapshot.now_s - standing.waited_s)
            waiting[app] = this.snapshot.now_s if held else before
    tables = {a: t for a, t in this.snapshot.state.get("tables", {}).items() if a in this.standings}
    sent = this.snapshot.state.get("bids", {})
    for bid in this.bids:
        if bid.app in sent:
            tables[bid.app] = external.remembered(bid.rows, this.classes)
    out: dict[str, Any] = {"round": this.number + 1}
    if waiting:
        out["waiting_since"] = waiting
    if tables:
        out["tables"] = tables
    return out


def _summary(outcome: Outcome | None, context: Context) -> SolverSummary | None:
    if outcome is None:
        return None
    solver = context.solver or Backend.HIGHS.value
    return SolverSummary(outcome.termination, outcome.gap, outcome.seconds, solver, outcome.clock)
