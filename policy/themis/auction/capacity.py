"""Rows of the auction's program that keep chunks within the nodes of a class, without naming a node.

Necessary for a packing, and for the usual node sizes sufficient: the volume; for every size, the bins that chunks of
it can still use; what is above half a node needs a node of its own; CPUs and memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from policy.model import Gpus
from policy.parts.solver import Program, Variable
from policy.themis.auction.rows import Demand, PerGpu
from policy.themis.offer import NodeClass

#: Chunks asked of a class: how many, by variable; their demand; what each of their GPUs needs.
Parts = list[tuple[dict[Variable, float], Demand, PerGpu]]


def add_capacity(program: Program, c: NodeClass, parts: Parts) -> None:
    """Necessary conditions for the chunks to fit `len(c.nodes)` nodes of `c.free` GPUs."""
    nodes = len(c.nodes)
    _weigh(program, parts, lambda d, n: d.chunk, nodes * c.free)
    for size in range(2, c.free // 2 + 1):
        _weigh(program, parts, partial(_displaced, free=c.free, size=size), nodes * (c.free // size))
    if c.free > 1:
        _weigh(program, parts, lambda d, n: (d.chunk * 2 > c.free) + 0.5 * (d.chunk * 2 == c.free), nodes)
    if c.cpus is not None:
        _weigh(program, parts, lambda d, n: n.cpus * d.chunk, nodes * c.cpus)
    if c.memory is not None:
        _weigh(program, parts, lambda d, n: n.memory * d.chunk / 2**30, nodes * c.memory / 2**30)


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
