"""What a round leaves idle, after leases that run on and the auction: who gets it, and who changes to it (§3.3.2).

Handed out by `leftover`; then apps that are better off on other idle GPUs than on what they have change to them, and
what that leaves is handed out again, until nobody changes any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf
from random import Random
from typing import TYPE_CHECKING

from policy.model import EMPTY, Allocation, Gpus, NodeName
from policy.themis.agent import Agent
from policy.themis.auction.bidders import Cap
from policy.themis.auction.rows import PerGpu, need
from policy.themis.leftover import Pool, distribute, exchange, give_up

if TYPE_CHECKING:
    from policy.themis.round import Round

#: Exchanges, each of which may leave something better to another app.
MOST_EXCHANGES = 8


def hand_out_idle(this: Round, random: Random) -> None:
    """To apps that did not bid, then to bidders; then whoever is better off elsewhere changes."""
    for app, standing in this.standings.items():  # a gang that leases cut below its least size, and no win mended
        if this.bundles[app] and standing.agent.rho(this.bundles[app]) == inf:
            this.bundles[app] = {}
    pool = _pool(this, this.bundles)
    agents, needs, limits, order = _asked(this)
    _hand_out(this, pool, agents, needs, limits, random)
    for _ in range(MOST_EXCHANGES):
        moved = exchange(order, pool, agents, needs, limits)
        if not moved:
            break
        this.moved += [app for app in moved if app not in this.moved]
        _hand_out(this, pool, agents, needs, limits, random)
    _hand_out(this, pool, agents, needs, limits, random, busier=True)


def exchanged(this: Round) -> list[str]:
    """Once gangs are settled: apps that are better off on what that left idle; their bundles are others now.

    Once from the same GPUs: who has them again could not use what it took, and would keep it from others once more.
    """
    jobs: dict[str, list[Allocation]] = {}
    for job in this.snapshot.jobs:
        if this.gangs.get(job.name):
            jobs.setdefault(job.app, []).append(this.gangs[job.name])
    bundles = {app: reduce(plus, jobs.get(app, []), dict[NodeName, Gpus]()) for app in this.standings}
    agents, needs, limits, order = _asked(this)
    had = {app: frozenset(bundle.items()) for app, bundle in bundles.items()}
    able = [app for app in order if (app, had[app]) not in this.left]
    moved = exchange(able, _pool(this, bundles), agents, needs, limits)
    for app in moved:
        this.left.add((app, had[app]))
        this.leftover[app] = plus(this.leftover.get(app, EMPTY), less(bundles[app], this.bundles[app]))
        this.bundles[app] = bundles[app]
    this.moved += [app for app in moved if app not in this.moved]
    return moved


def _asked(this: Round) -> tuple[dict[str, Agent], dict[str, PerGpu], list[Cap], list[str]]:
    """Agents, what a GPU of each app needs, limits, and the order in which apps may exchange."""
    agents = {app: s.agent for app, s in this.standings.items()}
    needs = {app: need(s.agent.value.jobs) for app, s in this.standings.items()}
    others = [app for app in this.standings if app not in this.bidders]
    return agents, needs, caps(this), [*others, *this.bidders]


def granted(this: Round) -> dict[str, dict[NodeName, Gpus]]:
    """What each app has by leases that run on and by the auction."""
    paid = {app: payment.kept for app, payment in this.payments.items()}
    return {app: plus(s.base, paid.get(app, EMPTY)) for app, s in this.standings.items()}


def _pool(this: Round, bundles: dict[str, dict[NodeName, Gpus]]) -> Pool:
    """What is idle while apps have these."""
    up = {n.name for n in this.snapshot.cluster.nodes if n.health == "up"}
    free, cpus, memory = dict(this.offered.free), dict(this.offered.cpus), dict(this.offered.memory)
    given: dict[str, dict[NodeName, Gpus]] = {}
    for app, standing in this.standings.items():
        wants, given[app] = need(standing.agent.value.jobs), less(bundles.get(app, EMPTY), standing.base)
        for node, gpus in given[app].items():
            if gpus < 0 and node not in up:
                continue  # nobody gets what is given up there
            free[node] -= gpus
            if node in cpus:
                cpus[node] -= wants.cpus * gpus
            if node in memory:
                memory[node] -= wants.memory * gpus
    return Pool(this.offered, free, cpus, memory, bundles, frozenset(free) - up, given)


def _hand_out(
    this: Round,
    pool: Pool,
    agents: Mapping[str, Agent],
    needs: Mapping[str, PerGpu],
    limits: Sequence[Cap],
    random: Random,
    *,
    busier: bool = False,
) -> None:
    """Give away what is free, and again what somebody does not use any more. Who gives up twice only gives."""
    able, gave = dict(agents), set[str]()
    while True:
        groups = [[a for a in this.standings if (a in this.bidders) is late and a in able] for late in (False, True)]
        distribute(groups, pool, able, needs, limits, random, busier=busier)
        unused = give_up(pool, agents, needs)
        if not unused:
            return
        able = {a: agent for a, agent in able.items() if a not in gave.intersection(unused)}
        gave.update(unused)


def caps(this: Round) -> list[Cap]:
    """What tenants with a limit may still take beside what is under lease."""
    out = []
    for tenant in this.snapshot.tenants:
        if tenant.cap is not None:
            apps = [a for a, s in this.standings.items() if s.agent.value.jobs[0].tenant == tenant.name]
            held = sum(sum(this.standings[a].base.values()) for a in apps)
            out.append(Cap(frozenset(apps), max(tenant.cap - held, 0)))
    return out


def plus(a: Mapping[NodeName, Gpus], b: Mapping[NodeName, Gpus]) -> dict[NodeName, Gpus]:
    out = dict(a)
    for node, gpus in b.items():
        out[node] = out.get(node, 0) + gpus
    return out


def less(a: Mapping[NodeName, Gpus], b: Mapping[NodeName, Gpus]) -> dict[NodeName, Gpus]:
    return {n: gpus for n in {**a, **b} if (gpus := a.get(n, 0) - b.get(n, 0))}
