"""From rows (chunks on classes of nodes) to GPUs on named nodes.

Chunks go largest first. A chunk prefers racks that have GPUs beyond what rows bound to them need, then nodes on
which its app already runs (no restart), then the tightest fit. Single GPUs fill what is left. Where this order fails,
a small integer program decides, over the ways to fill the nodes of a class or, where chunks differ in more than their
size, over named nodes: it either places the rows or proves that they do not go together, which the auction learns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from policy.model import Gpus, NodeName, Termination
from policy.parts.solver import Program, Result, Variable
from policy.themis.auction.capacity import Way, add_ways
from policy.themis.auction.rows import Demand, PerGpu, usable
from policy.themis.offer import NodeClass, Offer

#: app -> node -> GPUs won
Wins = dict[str, dict[NodeName, Gpus]]


class Undecided(Exception):
    """The program ended at a limit: the orders are neither placed nor proven not to go together."""


@dataclass(frozen=True, slots=True)
class Order:
    """One app's demands, to be placed."""

    app: str
    demands: tuple[Demand, ...]
    need: PerGpu


@dataclass(slots=True)
class _Room:
    """What is still free, by node."""

    free: dict[NodeName, Gpus]
    cpus: dict[NodeName, float]
    memory: dict[NodeName, float]
    taken: Wins = field(default_factory=dict)

    def fits(self, node: NodeName, gpus: Gpus, need: PerGpu) -> bool:
        return (
            self.free[node] >= gpus
            and self.cpus.get(node, 1e300) + 1e-9 >= need.cpus * gpus
            and self.memory.get(node, 1e300) >= need.memory * gpus
        )

    def most(self, node: NodeName, need: PerGpu) -> Gpus:
        most = self.free[node]
        if need.cpus > 0 and node in self.cpus:
            most = min(most, int(self.cpus[node] / need.cpus + 1e-9))
        if need.memory > 0 and node in self.memory:
            most = min(most, int(self.memory[node] // need.memory))
        return most

    def take(self, app: str, node: NodeName, gpus: Gpus, need: PerGpu) -> None:
        self.free[node] -= gpus
        if node in self.cpus:
            self.cpus[node] -= need.cpus * gpus
        if node in self.memory:
            self.memory[node] -= need.memory * gpus
        mine = self.taken.setdefault(app, {})
        mine[node] = mine.get(node, 0) + gpus


def realise(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> Wins | None:
    """GPUs on nodes for every order, or None where they provably do not go together. Raises Undecided."""
    wins = _simply(orders, classes, offered)
    return _by_program(orders, classes, offered) if wins is None else wins


def goes_simply(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> bool:
    """True if the orders fit together in the simple order, which may miss it: no program is asked."""
    return _simply(orders, classes, offered) is not None


def _simply(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> Wins | None:
    wins = _greedy(orders, classes, offered, sticky=True)
    return _greedy(orders, classes, offered, sticky=False) if wins is None else wins


def _room(classes: Sequence[NodeClass], offered: Offer) -> _Room:
    nodes = [n for c in classes for n in c.nodes]
    return _Room(
        {n: offered.free[n] for n in nodes},
        {n: offered.cpus[n] for n in nodes if n in offered.cpus},
        {n: float(offered.memory[n]) for n in nodes if n in offered.memory},
    )


def _greedy(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer, *, sticky: bool) -> Wins | None:
    room = _room(classes, offered)
    position = {n: i for i, n in enumerate(offered.free)}
    held: Mapping[str, Mapping[NodeName, Gpus]] = offered.held if sticky else {}
    parts = sorted(
        ((o, d) for o in orders for d in o.demands),
        key=lambda p: (-p[1].chunk, len(p[1].domain), -p[1].times),
    )
    spare = _Spare(parts, classes, offered)
    free, plain = room.free, not room.cpus and not room.memory
    for order, demand in parts:
        runs = held.get(order.app, {})
        if demand.chunk == 1 and not demand.apart:
            if not _fill(room, order, demand, classes, runs, position, spare):
                return None
            continue
        used: set[NodeName] = set()
        for _ in range(demand.times):
            node, i, best = "", -1, None
            for c in demand.domain:
                bound_here = spare.least(c, demand.domain) < demand.chunk
                for n in classes[c].nodes:
                    here = free[n]
                    if here < demand.chunk or n in used or not (plain or room.fits(n, demand.chunk, order.need)):
                        continue
                    key = (bound_here, -min(runs[n], demand.chunk) if n in runs else 0, here, position[n])
                    if best is None or key < best:
                        node, i, best = n, c, key
            if best is None:
                return None
            room.take(order.app, node, demand.chunk, order.need)
            spare.take(i, demand.domain, demand.chunk)
            if demand.apart:
                used.add(node)
    return room.taken


class _Spare:
    """GPUs of sets of classes beyond what demands that only they can meet will take: of every demand's domain."""

    def __init__(self, parts: Sequence[tuple[Order, Demand]], classes: Sequence[NodeClass], offered: Offer) -> None:
        size = {c.index: sum(offered.free[n] for n in c.nodes) for c in classes}
        asked: dict[tuple[int, ...], Gpus] = {}
        for _, demand in parts:
            asked[demand.domain] = asked.get(demand.domain, 0) + demand.chunk * demand.times
        self._sets = {domain: frozenset(domain) for domain in asked}
        self._spare: dict[tuple[int, ...], Gpus] = {}
        for domain, inside in self._sets.items():
            room = sum(size[i] for i in domain)
            bound = sum(gpus for other, gpus in asked.items() if inside.issuperset(other))
            self._spare[domain] = room - bound
        self._others: dict[tuple[int, tuple[int, ...]], list[tuple[int, ...]]] = {}

    def others(self, i: int, domain: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The sets around class `i` that a demand over `domain` need not take from."""
        key = (i, domain)
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = []
            for other, inside in self._sets.items():
                if i in inside and not inside.issuperset(domain):
                    found.append(other)
        return found

    def least(self, i: int, domain: tuple[int, ...]) -> float:
        return min((self._spare[d] for d in self.others(i, domain)), default=inf)

    def take(self, i: int, domain: tuple[int, ...], gpus: Gpus) -> None:
        for d in self.others(i, domain):
            self._spare[d] -= gpus


def _fill(
    room: _Room,
    order: Order,
    demand: Demand,
    classes: Sequence[NodeClass],
    runs: Mapping[NodeName, Gpus],
    position: Mapping[NodeName, int],
    spare: _Spare,
) -> bool:
    """Single GPUs: where the app already is, where it runs now, then the emptiest nodes. False: too few."""
    left = demand.times
    mine = room.taken.get(order.app, {})
    nodes = [(n, i) for i in demand.domain for n in classes[i].nodes]
    bound = {i: spare.least(i, demand.domain) < left for i in demand.domain}

    def after(place: tuple[NodeName, int]) -> tuple[bool, bool, int, int, int]:
        name, of = place
        return bound[of], name not in mine, -runs.get(name, 0), -room.free[name], position[name]

    for node, i in sorted(nodes, key=after):
        gpus = min(room.most(node, order.need), left)
        if gpus > 0:
            room.take(order.app, node, gpus, order.need)
            spare.take(i, demand.domain, gpus)
            left -= gpus
        if not left:
            return True
    return False


def _by_program(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> Wins | None:
    needs = {order.need for order in orders}
    most = PerGpu(*map(max, zip(*needs, strict=True)))
    filled = None if any(d.apart for order in orders for d in order.demands) else _filled(orders, classes, most)
    if filled is not None:
        if filled.result.has_solution:
            return filled.placed(orders, classes, offered)
        if len(needs) == 1:
            return None
    return _named(orders, classes, offered)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A program over the ways to fill nodes: chunks by domain, size and class; nodes by class and way."""

    result: Result
    chunks: Mapping[tuple[tuple[int, ...], Gpus], Mapping[int, Variable]]
    ways: Mapping[int, Mapping[Variable, Way]]

    def placed(self, orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> Wins:
        room = _room(classes, offered)
        wide = self._wide(classes)
        left = {(key, i): round(self.result[v]) for key, by_class in self.chunks.items() for i, v in by_class.items()}
        parts = [(o, d) for o in orders for d in o.demands]
        for order, demand in sorted(parts, key=lambda p: -p[1].chunk):
            missing, key = demand.times, (demand.domain, demand.chunk)
            for i in demand.domain:
                here = min(left[key, i], missing)
                left[key, i] -= here
                missing -= here
                singles = (n for n in classes[i].nodes for _ in range(room.most(n, order.need)))
                for node in islice(wide.get((i, demand.chunk), singles), here):
                    room.take(order.app, node, demand.chunk, order.need)
        return room.taken

    def _wide(self, classes: Sequence[NodeClass]) -> dict[tuple[int, Gpus], Iterator[NodeName]]:
        """Nodes for chunks of several GPUs, by class and size; a node for each chunk that it holds."""
        places: dict[tuple[int, Gpus], list[NodeName]] = {}
        for i, ways in self.ways.items():
            nodes = iter(classes[i].nodes)
            for v, way in ways.items():
                for node in islice(nodes, round(self.result[v])):
                    for size, n in way.items():
                        places.setdefault((i, size), []).extend([node] * n)
        return {key: iter(nodes) for key, nodes in places.items()}


def _filled(orders: Sequence[Order], classes: Sequence[NodeClass], need: PerGpu) -> _Filled | None:
    """Orders whose chunks may share nodes put on classes of nodes, as if all needed as much; None: too many ways."""
    program = Program()
    asked: dict[tuple[tuple[int, ...], Gpus], int] = {}
    for order in orders:
        for demand in order.demands:
            key = (demand.domain, demand.chunk)
            asked[key] = asked.get(key, 0) + demand.times
    chunks: dict[tuple[tuple[int, ...], Gpus], dict[int, Variable]] = {}
    by_class: dict[int, dict[Gpus, dict[Variable, float]]] = {}
    for key, times in asked.items():
        chunks[key] = {i: program.variable(0, times, integer=True) for i in key[0]}
        program.equal(dict.fromkeys(chunks[key].values(), 1.0), times)
        for i, v in chunks[key].items():
            by_class.setdefault(i, {}).setdefault(key[1], {})[v] = 1.0
    ways = {}
    for i, sizes in by_class.items():
        made = add_ways(program, len(classes[i].nodes), usable(classes[i], need), sizes)
        if made is None:
            return None
        ways[i] = made
    program.maximise({})
    return _Filled(_decided(program), chunks, ways)


def _decided(program: Program) -> Result:
    result = program.solve()
    if not result.has_solution and result.termination is not Termination.INFEASIBLE:
        raise Undecided
    return result


def _named(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> Wins | None:
    program = Program()
    gpus: dict[NodeName, dict[Variable, float]] = {}
    cpus: dict[NodeName, dict[Variable, float]] = {}
    memory: dict[NodeName, dict[Variable, float]] = {}
    put: list[tuple[str, Demand, dict[NodeName, Variable]]] = []
    for order in orders:
        for demand in order.demands:
            variables = {}
            for i in demand.domain:
                for node in classes[i].nodes:
                    most = offered.free[node] // demand.chunk
                    v = program.variable(0, min(most, 1 if demand.apart else demand.times), integer=True)
                    variables[node] = v
                    gpus.setdefault(node, {})[v] = demand.chunk
                    cpus.setdefault(node, {})[v] = demand.chunk * order.need.cpus
                    memory.setdefault(node, {})[v] = demand.chunk * order.need.memory / 2**30
            program.equal(dict.fromkeys(variables.values(), 1.0), demand.times)
            put.append((order.app, demand, variables))
    for node, row in gpus.items():
        program.at_most(row, offered.free[node])
        if node in offered.cpus:
            program.at_most(cpus[node], offered.cpus[node])
        if node in offered.memory:
            program.at_most(memory[node], offered.memory[node] / 2**30)
    program.maximise({})
    result = _decided(program)
    if not result.has_solution:
        return None
    wins: Wins = {}
    for app, demand, variables in put:
        for node, v in variables.items():
            if chunks := round(result[v]):
                mine = wins.setdefault(app, {})
                mine[node] = mine.get(node, 0) + chunks * demand.chunk
    return wins
