"""Which nodes what was won goes to, where everything is asked for: without a program, if it fits at all."""

from __future__ import annotations

from dataclasses import replace

from policy.themis.auction.knapsack import Pick, settled
from policy.themis.auction.realise import Order, goes_simply
from policy.themis.auction.rows import Demand, PerGpu, Row
from policy.themis.offer import NodeClass, Offer

FREE = PerGpu(0.0, 0)
SLOW, MIXED, FAST = (0,), (1, 2), (2, 3)  #: two racks of the slow type; the second has a node of the fast one too


def offer() -> tuple[list[NodeClass], Offer]:
    kinds = [("k80", "r0", "ab"), ("k80", "r1", "c"), ("v100", "r1", "d"), ("v100", "r2", "e")]
    classes = [NodeClass(i, t, rack, 8, tuple(nodes)) for i, (t, rack, nodes) in enumerate(kinds)]
    nodes = {n: c for c in classes for n in c.nodes}
    rack, types = {n: c.rack for n, c in nodes.items()}, {n: c.gpu_type for n, c in nodes.items()}
    return classes, Offer(dict.fromkeys(nodes, 8), {}, {}, {}, rack, types)


def row(domain: tuple[int, ...], chunk: int, times: int = 1) -> Row:
    return Row(1.0, chunk * times, (Demand(domain, chunk, times),))


def test_a_gang_of_one_rack_leaves_the_rack_whose_gpus_others_cannot_do_without() -> None:
    """The wide one could have either rack; in the second it would take the node that two others have left."""
    classes, _ = offer()
    wide = Pick((0, 16), 1.0, (row(MIXED, 1, 16), row(SLOW, 1, 16)))
    fast = Pick((8, 8), 1.0, (row(FAST, 8),))
    rows = settled({"wide": wide, "f": fast, "g": fast}, classes)
    assert rows["wide"].demands[0].domain == SLOW
    later = Pick((16, 16), 1.0, (row(FAST, 1, 16), row(FAST[::-1], 1, 16)))  # known only to be among the fast ones
    assert settled({"wide": wide, "later": later}, classes)["wide"].demands[0].domain == SLOW


def test_who_could_be_anywhere_goes_where_nobody_else_has_to() -> None:
    classes, offered = offer()
    offered = replace(offered, free=dict(reversed(list(offered.free.items()))))  # the fast nodes come first
    fours = {f"f{i}": row(FAST, 4) for i in range(4)}
    rows = {"any": row((0, 1, 2, 3), 8), "wide": row(SLOW, 1, 16), **fours}
    assert goes_simply([Order(app, won.demands, FREE) for app, won in rows.items()], classes, offered)
    singles = {"wide": row(MIXED, 1, 8), "slow": row(SLOW, 1, 16), "fast": row(FAST, 1, 16)}
    assert goes_simply([Order(app, won.demands, FREE) for app, won in singles.items()], classes, offered)
