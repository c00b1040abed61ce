"""Rows of the auction's program that keep chunks within the nodes of a class, without naming a node.

Necessary for a packing, and for the usual node sizes sufficient: the volume; for every size, the bins that chunks of
it can still use; what is above half a node needs a node of its own; CPUs and memory.

Necessary and sufficient, with a column for every way to fill a node (Gilmore and Gomory 1961): where all chunks bring
the same needs and may share nodes. Single GPUs take what is left on any node: of them only the volume counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from policy.model import Gpus
from policy.parts.solver import Program, Variable
from policy.themis.auction.rows import Demand, PerGpu, usable
from policy.themis.offer import NodeClass

#: Chunks asked of a class: how many, by variable; their demand; what each of their GPUs needs.
Parts = list[tuple[dict[Variable, float], Demand, PerGpu]]
#: How many chunks of each size one node holds.
Way = Mapping[Gpus, int]
#: With more ways to fill a node than this they are not written out.
WAYS = 500


def add_capacity(program: Program, c: NodeClass, parts: Parts, *, exact: bool = False) -> None:
    """Conditions for the chunks to fit `len(c.nodes)` nodes of `c.free` GPUs: necessary ones; `exact`: also sufficient
    ones, where they are known."""
    nodes = len(c.nodes)
    needs = {need for _, _, need in parts}
    if exact and len(needs) == 1 and not any(demand.apart for _, demand, _ in parts):
        asked: dict[Gpus, dict[Variable, float]] = {}
        for variables, demand, _ in parts:
            into = asked.setdefault(demand.chunk, {})
            for v, n in variables.items():
                into[v] = into.get(v, 0.0) + n
        if add_ways(program, nodes, usable(c, *needs), asked) is not None:
            return
    _weigh(program, parts, lambda d, n: d.chunk, nodes * c.free)
    for size in range(2, c.free // 2 + 1):
        _weigh(program, parts, partial(_displaced, free=c.free, size=size), nodes * (c.free // size))
    if c.free > 1:
        _weigh(program, parts, lambda d, n: (d.chunk * 2 > c.free) + 0.5 * (d.chunk * 2 == c.free), nodes)
    if c.cpus is not None:
        _weigh(program, parts, lambda d, n: n.cpus * d.chunk, nodes * c.cpus)
    if c.memory is not None:
        _weigh(program, parts, lambda d, n: n.memory * d.chunk / 2**30, nodes * c.memory / 2**30)


def add_ways(
    program: Program, nodes: int, free: Gpus, asked: Mapping[Gpus, Mapping[Variable, float]]
) -> dict[Variable, Way] | None:
    """Have the chunks asked, by size, fit `nodes` nodes of `free` GPUs. Returns how many nodes are filled in each way;
    None, and nothing added: there are too many ways."""
    sizes = sorted((size for size in asked if size > 1), reverse=True)
    found = list(islice(_ways(sizes, free), WAYS + 1))
    if len(found) > WAYS:
        return None
    filled = {program.variable(0, nodes, integer=True): way for way in found}
    program.at_most(dict.fromkeys(filled, 1.0), nodes)
    for size in sizes:
        program.at_most({**asked[size], **{v: -way[size] for v, way in filled.items()}}, 0)
    volume: dict[Variable, float] = {}
    for size, variables in asked.items():
        for v, n in variables.items():
            volume[v] = volume.get(v, 0.0) + size * n
    program.at_most(volume, nodes * free)
    return filled


def _ways(sizes: Sequence[Gpus], free: Gpus) -> Iterator[Way]:
    """The ways to fill a node so that not even the smallest chunk fits any more. Sizes: the largest first."""
    if len(sizes) <= 1:
        yield {size: free // size for size in sizes}
        return
    for n in range(free // sizes[0], -1, -1):
        for rest in _ways(sizes[1:], free - n * sizes[0]):
            yield {sizes[0]: n, **rest}


def _weigh(program: Program, parts: Parts, weight: Callable[[Demand, PerGpu], float], up: float) -> None:
    row: dict[Variable, float] = {}
    for variables, demand, need in parts:
        w = float(weight(demand, need))
        if w:
            for v, n in variables.items():
                row[v] = row.get(v, 0.0) + w * n
    if row:
        program.at_most(row, up)


def _displaced(demand: Demand, need: PerGpu, *, free: Gpus, size: Gpus) -> float:
    """How many chunks of `size` one chunk displaces on a node of `free` GPUs: of the most it holds, at least this.

    A dual feasible function for bin packing (Carlier, Clautiaux and Moukrim 2007).
    """
    chunk = demand.chunk
    if chunk * 2 > free:
        return free // size - (free - chunk) // size
    return free // size / 2 if chunk * 2 == free else chunk // size
