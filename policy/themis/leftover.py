"""Leftover GPUs (Themis §3.3.2 "Leftover Allocation"): to apps that did not bid, at random, then to bidders.

Each draw takes one app of those that can still use something and gives it its next useful step: its smallest gang,
or the next size of a gang it has (an app of many jobs a share of what it has: each step costs schedules of all of
them). Steps, not whole demands, so that chance evens out; on the node where the app
already is, else where it runs now, else the emptiest node for a gang that may grow and the tightest for one that may
not, so that the GPUs of an app stay together.

At last an app may give up GPUs, leases included, for idle ones on which it is better off (a second GPU on another node
where the network costs more than it gives). A lease is a right, and this is the app's own gain. GPUs that an app has
and no job of it runs on are offered again in the same round (`give_up`).

rho is the app's longest job's: of an app of many jobs it need not fall by a GPU on which one more of them would run.
So when nobody's rho falls any more, what is left goes, in the same way, to apps whose jobs run faster together by it
(`busier`): "our overall scheme is work-conserving" (§3.3.2). What is left then is of no use to anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

from policy.model import EMPTY, Bytes, Gpus, NodeName
from policy.themis.agent import Agent
from policy.themis.auction.bidders import Cap
from policy.themis.auction.rows import PerGpu
from policy.themis.offer import Offer
from policy.themis.shapes import steps

#: An app asks for at most so many nodes at once when its gang needs several.
WIDE = 64


@dataclass(slots=True)
class Pool:
    """GPUs nobody has, by node; and what each app has so far."""

    offered: Offer
    free: dict[NodeName, Gpus]
    cpus: dict[NodeName, float]
    memory: dict[NodeName, Bytes]
    bundles: dict[str, dict[NodeName, Gpus]]
    closed: frozenset[NodeName] = frozenset()  #: what is given up there nobody gets: not up
    given: dict[str, dict[NodeName, Gpus]] = field(default_factory=dict)

    def most(self, node: NodeName, need: PerGpu) -> Gpus:
        most = self.free[node]
        if need.cpus > 0 and node in self.cpus:
            most = min(most, int(self.cpus[node] / need.cpus + 1e-9))
        if need.memory > 0 and node in self.memory:
            most = min(most, self.memory[node] // need.memory)
        return most

    def usable(self, agent: Agent, mine: Mapping[NodeName, Gpus] = EMPTY) -> list[NodeName]:
        """Nodes with idle GPUs (or the app's own) of a type on which the app can run."""
        types = self.offered.gpu_type
        return [n for n, g in self.free.items() if (g > 0 or n in mine) and types[n] in agent.types]

    def give(self, app: str, extra: Mapping[NodeName, Gpus], need: PerGpu) -> None:
        """Move `extra` to the app."""
        for node, gpus in extra.items():
            if node not in self.closed:
                self.free[node] -= gpus
            if node in self.cpus:
                self.cpus[node] -= need.cpus * gpus
            if node in self.memory:
                self.memory[node] -= need.memory * gpus
            for into in (self.bundles.setdefault(app, {}), self.given.setdefault(app, {})):
                into[node] = into.get(node, 0) + gpus


def distribute(
    groups: Sequence[Sequence[str]],
    pool: Pool,
    agents: Mapping[str, Agent],
    needs: Mapping[str, PerGpu],
    caps: Iterable[Cap],
    random: Random,
    *,
    busier: bool = False,
) -> None:
    """Give away `pool.free`, group by group (those that did not bid; then the bidders).

    `busier`: also where rho stays as it is and the app's jobs run faster together.
    """
    limits = [(cap.apps, cap.room) for cap in caps]
    for group in groups:
        able = [app for app in group if app in agents]
        while able and any(pool.free.values()):
            app = able[random.randrange(len(able))]
            room = min((r - _taken(pool, apps) for apps, r in limits if app in apps), default=None)
            extra = _step(app, pool, agents[app], needs[app], room, busier)
            if extra is None:
                able.remove(app)
            else:
                pool.give(app, extra, needs[app])


def give_up(pool: Pool, agents: Mapping[str, Agent], needs: Mapping[str, PerGpu]) -> list[str]:
    """Offer again what apps have and do not use; returns who did."""
    gave: list[str] = []
    for app, agent in agents.items():
        mine = pool.bundles.get(app)
        if not mine:
            continue
        used = agent.used(mine)
        idle = {n: used.get(n, 0) - g for n, g in mine.items() if g > used.get(n, 0)}
        if idle and used:
            pool.give(app, idle, needs[app])
            pool.bundles[app] = {n: g for n, g in pool.bundles[app].items() if g}
            gave.append(app)
    return gave


def exchange(
    order: Sequence[str],
    pool: Pool,
    agents: Mapping[str, Agent],
    needs: Mapping[str, PerGpu],
    caps: Iterable[Cap],
) -> list[str]:
    """Apps that swap all they have for idle GPUs and some of their own, where that is better; returns who did."""
    limits = [(cap.apps, cap.room) for cap in caps]
    moved: list[str] = []
    for app in order:
        if not pool.bundles.get(app):
            continue
        room = min((r - _taken(pool, apps) for apps, r in limits if app in apps), default=None)
        better = _elsewhere(app, pool, agents[app], needs[app], room)
        if better is not None:
            old = pool.bundles[app]
            pool.give(app, {n: -g for n, g in old.items()}, needs[app])
            pool.give(app, better, needs[app])
            pool.bundles[app] = {n: g for n, g in pool.bundles[app].items() if g}
            moved.append(app)
    return moved


def _elsewhere(app: str, pool: Pool, agent: Agent, need: PerGpu, room: Gpus | None) -> dict[NodeName, Gpus] | None:
    """The best bundle among idle GPUs and the app's own, if it beats what the app has, and any part of that on one
    node. It takes some that are idle: a part of its own alone would only leave the rest to somebody whom it serves no
    better."""
    mine = pool.bundles[app]
    held = sum(mine.values())
    usable = {n: most for n in pool.usable(agent, mine) if (most := pool.most(n, need) + mine.get(n, 0)) > 0}
    top = sum(usable.values())
    if agent.value.most is not None:
        top = min(top, agent.value.most)
    if room is not None:
        top = min(top, held + room)
    parts = [mine, *({n: g} for n, g in mine.items())]
    best, rho = None, min(map(agent.rho, parts)) * (1 - 1e-9)
    for gpus in steps(top, agent.value.gangs.coarse):
        if any(t.job.gpus.feasible(gpus) for t in agent.value.phases[0]):
            for bundle in _places(app, pool, agent, {}, usable, gpus):
                if agent.rho(bundle) < rho and any(g > mine.get(n, 0) for n, g in bundle.items()):
                    best, rho = bundle, agent.rho(bundle) * (1 - 1e-9)
    return best


def _taken(pool: Pool, apps: Iterable[str]) -> Gpus:
    return sum(sum(pool.given.get(a, {}).values()) for a in apps)


def _step(
    app: str, pool: Pool, agent: Agent, need: PerGpu, room: Gpus | None, busier: bool
) -> dict[NodeName, Gpus] | None:
    """The smallest addition, on the best place for it, that makes the app's rho fall (or, `busier`, its jobs faster
    at the same rho); None: there is none."""
    mine = pool.bundles.get(app, {})
    held = sum(mine.values())
    usable = {n: most for n in pool.usable(agent) if (most := pool.most(n, need)) > 0}
    top = sum(usable.values())
    if agent.value.most is not None:
        top = min(top, agent.value.most - held)
    if room is not None:
        top = min(top, room)
    now = agent.rho(mine)
    speed = agent.speed(mine) if busier else inf
    for gpus in _sizes(agent, mine, top):
        for extra in _places(app, pool, agent, mine, usable, gpus):
            then = {**mine, **{n: mine.get(n, 0) + g for n, g in extra.items()}}
            rho = agent.rho(then)
            if busier and rho <= now and agent.speed(then) > speed * (1 + 1e-9):
                return extra
            if rho < now * (1 - 1e-12) or (now == inf and rho < inf):
                return extra
    return None


def _sizes(agent: Agent, mine: Mapping[NodeName, Gpus], top: Gpus) -> list[Gpus]:
    """Additions worth a try, ascending: one gang's next step, a further gang, a layer on every node."""
    gangs = [sum(take.values()) for take in agent.assign(mine).values()] if mine else []
    ranges = {t.job.gpus for phase in agent.value.phases[:1] for t in phase if t.iterations > 0}
    sizes = {1, 2} | ({len(mine)} if agent.value.gangs.equal else set())
    for gpus in ranges:
        for gang in {0, *gangs, sum(gangs)}:
            if (above := gpus.above(gang)) is not None:
                sizes.add(above - gang)
                if (further := gpus.above(above)) is not None:
                    sizes.add(further - gang)
    least = min(int(sum(mine.values()) * agent.value.gangs.coarse), top)
    return sorted({max(s, least) for s in sizes if 0 < s <= top})


def _places(
    app: str, pool: Pool, agent: Agent, mine: Mapping[NodeName, Gpus], usable: Mapping[NodeName, Gpus], gpus: Gpus
) -> Iterator[dict[NodeName, Gpus]]:
    runs = pool.offered.held.get(app, {})
    rigid = all(t.job.gpus.rigid for phase in agent.value.phases[:1] for t in phase)
    fits = [n for n in usable if usable[n] >= gpus]
    order = {n: i for i, n in enumerate(usable)}
    racks = {pool.offered.rack[n] for n in mine}
    ranked = sorted(
        fits,
        key=lambda n: (
            n not in mine,
            bool(mine) and pool.offered.rack[n] not in racks,
            -min(runs.get(n, 0), gpus),
            usable[n] if rigid else -usable[n],
            order[n],
        ),
    )
    seen: set[tuple[str, str, bool]] = set()
    for node in ranked:  # one of each kind of place is enough: alike nodes give alike rho
        kind = (pool.offered.gpu_type[node], pool.offered.rack[node], node in mine)
        if kind not in seen or node in mine:
            seen.add(kind)
            yield {node: gpus}
    if gpus < 2:
        return
    if mine and gpus % len(mine) == 0 and all(usable.get(n, 0) >= gpus // len(mine) for n in mine):
        yield {n: gpus // len(mine) for n in mine}
    by_rack: dict[str, list[NodeName]] = {}
    for node in sorted(usable, key=lambda n: (n not in mine, -min(runs.get(n, 0), gpus), -usable[n], order[n])):
        by_rack.setdefault(pool.offered.rack[node], []).append(node)
    inside = sorted(by_rack.values(), key=lambda nodes: (pool.offered.rack[nodes[0]] not in racks, -len(nodes)))
    everywhere = [n for nodes in inside for n in nodes]
    kinds = sorted({pool.offered.gpu_type[n] for n in usable})
    for nodes in [*inside, everywhere] if len(inside) > 1 else [everywhere]:
        for only in [*({k} for k in kinds), set(kinds)] if len(kinds) > 1 else [set(kinds)]:
            yield from _spread([n for n in nodes if pool.offered.gpu_type[n] in only], usable, gpus, agent)


def _spread(
    nodes: Sequence[NodeName], usable: Mapping[NodeName, Gpus], gpus: Gpus, agent: Agent
) -> Iterator[dict[NodeName, Gpus]]:
    if agent.value.gangs.equal:
        for count in range(2, min(gpus, len(nodes), WIDE) + 1):
            able = [n for n in nodes if usable[n] >= gpus // count]
            if gpus % count == 0 and len(able) >= count:
                yield dict.fromkeys(able[:count], gpus // count)
        return
    extra: dict[NodeName, Gpus] = {}
    left = gpus
    for node in nodes:
        extra[node] = min(usable[node], left)
        left -= extra[node]
        if not left:
            yield extra
            return
