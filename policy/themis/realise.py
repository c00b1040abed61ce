"""From rows (chunks on classes of nodes) to GPUs on named nodes.

Chunks go largest first; a chunk prefers nodes on which its app already runs (no restart), then the tightest fit.
Single GPUs fill what is left. Where this order fails, the small integer program over named nodes decides: it either
places the rows or proves that they do not go together, which the auction then learns as a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policy.model import Gpus, NodeName
from policy.solver import Program, Variable
from policy.themis.offer import NodeClass, Offer
from policy.themis.rows import Demand, Need

#: app -> node -> GPUs won
Wins = dict[str, dict[NodeName, Gpus]]


@dataclass(frozen=True, slots=True)
class Order:
    """One app's demands, to be placed."""

    app: str
    demands: tuple[Demand, ...]
    need: Need


@dataclass(slots=True)
class _Room:
    """What is still free, by node."""

    free: dict[NodeName, Gpus]
    cpus: dict[NodeName, float]
    memory: dict[NodeName, float]
    taken: Wins = field(default_factory=dict)

    def fits(self, node: NodeName, gpus: Gpus, need: Need) -> bool:
        return (
            self.free[node] >= gpus
            and self.cpus.get(node, 1e300) + 1e-9 >= need.cpus * gpus
            and self.memory.get(node, 1e300) >= need.memory * gpus
        )

    def most(self, node: NodeName, need: Need) -> Gpus:
        most = self.free[node]
        if need.cpus > 0 and node in self.cpus:
            most = min(most, int(self.cpus[node] / need.cpus + 1e-9))
        if need.memory > 0 and node in self.memory:
            most = min(most, int(self.memory[node] // need.memory))
        return most

    def take(self, app: str, node: NodeName, gpus: Gpus, need: Need) -> None:
        self.free[node] -= gpus
        if node in self.cpus:
            self.cpus[node] -= need.cpus * gpus
        if node in self.memory:
            self.memory[node] -= need.memory * gpus
        mine = self.taken.setdefault(app, {})
        mine[node] = mine.get(node, 0) + gpus


def realise(
    orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer, *, exact: bool = True
) -> Wins | None:
    """GPUs on nodes for every order, or None where they do not go together (`exact`: proven)."""
    for sticky in (True, False):
        if (wins := _greedy(orders, classes, offered, sticky=sticky)) is not None:
            return wins
    return _program(orders, classes, offered) if exact else None


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
    for order, demand in parts:
        runs = held.get(order.app, {})
        nodes = [n for i in demand.domain for n in classes[i].nodes]
        if demand.chunk == 1 and not demand.apart:
            left = demand.times
            mine = room.taken.get(order.app, {})
            for node in sorted(nodes, key=lambda n: (n not in mine, -runs.get(n, 0), -room.free[n], position[n])):
                gpus = min(room.most(node, order.need), left)
                if gpus > 0:
                    room.take(order.app, node, gpus, order.need)
                    left -= gpus
                if not left:
                    break
            if left:
                return None
            continue
        used: set[NodeName] = set()
        for _ in range(demand.times):
            able = [n for n in nodes if n not in used and room.fits(n, demand.chunk, order.need)]
            if not able:
                return None
            node = min(able, key=lambda n: (-min(runs.get(n, 0), demand.chunk), room.free[n], position[n]))
            room.take(order.app, node, demand.chunk, order.need)
            if demand.apart:
                used.add(node)
    return room.taken


def _program(orders: Sequence[Order], classes: Sequence[NodeClass], offered: Offer) -> Wins | None:
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
        if node in offered.cpus and any(cpus[node].values()):
            program.at_most(cpus[node], offered.cpus[node])
        if node in offered.memory and any(memory[node].values()):
            program.at_most(memory[node], offered.memory[node] / 2**30)
    program.maximise({})
    result = program.solve()
    if not result.has_solution:
        return None
    wins: Wins = {}
    for app, demand, variables in put:
        for node, v in variables.items():
            if chunks := round(result[v]):
                mine = wins.setdefault(app, {})
                mine[node] = mine.get(node, 0) + chunks * demand.chunk
    return wins
