"""An auction's linear program with its prices: bounds that hold, and choices that are the best there is."""

from __future__ import annotations

from itertools import product
from math import log
from random import Random

import pytest

from policy.themis.auction.bidders import Cap
from policy.themis.auction.prices import Prices, _fillings
from policy.themis.auction.rows import Bid, Demand, PerGpu, Row
from policy.themis.offer import NodeClass

Places = dict[str, int]


def gain(bid: Bid, row: Row) -> float:
    return log(bid.null_rho / row.rho)


def market(seed: int) -> tuple[list[Bid], list[NodeClass], list[Cap]]:
    """Five bidders with chunks of some GPUs on one node each, three nodes in two classes, few CPUs, a limit."""
    draw = Random(seed)
    cpus = draw.choice((None, 6.0, 12.0))
    classes = [
        NodeClass(0, "g", "r", draw.choice((2, 3, 4)), ("a", "b"), cpus),
        NodeClass(1, "g", "s", 4, ("c",), cpus),
    ]
    bids = []
    for i in range(5):
        need = PerGpu(draw.choice((1.0, 1.0, 3.0)), 0)
        rows = []
        for _ in range(draw.randint(1, 3)):
            demand = Demand(draw.choice(((0,), (1,), (0, 1))), draw.randint(1, 3), 1)
            rows.append(Row(draw.uniform(0.1, 0.9), demand.chunk, (demand,)))
        bids.append(Bid(f"b{i}", 1.0, True, tuple(sorted(rows)), need, True))
    return bids, classes, [Cap(frozenset(("b0", "b1")), draw.choice((1, 2, 9)))]


def optimum(bids: list[Bid], classes: list[NodeClass], caps: list[Cap], without: str | None) -> float:
    """Every row of every bidder on every node."""
    others = [b for b in bids if b.app != without]
    free = {n: (c.free, 1e9 if c.cpus is None else c.cpus) for c in classes for n in c.nodes}
    options = []
    for bid in others:
        mine: list[tuple[float, int, str, float]] = [(0.0, 0, "", 0.0)]
        for row in bid.rows:
            (demand,) = row.demands
            for i in demand.domain:
                for n in classes[i].nodes:
                    mine.append((gain(bid, row), demand.chunk, n, demand.chunk * bid.need.cpus))
        options.append(mine)
    best = 0.0
    for choice in product(*options):
        worth = sum(each[0] for each in choice)
        if worth <= best:
            continue
        fits = all(
            sum(g for _, g, at, _ in choice if at == n) <= gpus and sum(c for *_, at, c in choice if at == n) <= cpus
            for n, (gpus, cpus) in free.items()
        )
        under = all(
            sum(each[1] for b, each in zip(others, choice, strict=True) if b.app in cap.apps) <= cap.room
            for cap in caps
        )
        if fits and under:
            best = worth
    return best


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_and_the_best_choice_is_the_best(seed: int) -> None:
    bids, classes, caps = market(seed)
    prices = Prices(bids, gain, classes, caps)
    for without in (None, "b0", "b3"):
        expected = optimum(bids, classes, caps, without)
        assert prices.most(without) >= expected - 1e-9
        found = prices.best(without, 1e9, 60.0)
        assert found is not None
        assert found.worth == pytest.approx(expected, abs=1e-6)
        assert found.short <= 1e-6
        near = prices.most(without) - expected + 1e-6
        few = prices.best(without, near, 60.0)
        assert few is not None
        assert few.worth == pytest.approx(expected, abs=1e-6)
        assert few.short <= 1e-6
        tight = prices.best(without, 0.0, 60.0)
        assert tight is not None
        assert tight.worth + tight.short >= expected - 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_every_way_to_fill_a_node_and_no_other(seed: int) -> None:
    draw = Random(seed)
    items = sorted(
        {(float(g), g * draw.choice((0.0, 1.0, 3.0)), 0.0) for g in draw.sample((1, 2, 3, 4), 3)}, reverse=True
    )
    room = (8.0, draw.choice((9.0, 24.0)), 1.0)

    def fits(way: tuple[int, ...]) -> bool:
        return all(sum(n * item[d] for n, item in zip(way, items, strict=True)) <= room[d] for d in range(3))

    every = [way for way in product(range(9), repeat=len(items)) if fits(way)]
    one_more = [tuple(int(k == i) for k in range(len(items))) for i in range(len(items))]
    full = [w for w in every if not any(fits(tuple(a + b for a, b in zip(w, one, strict=True))) for one in one_more)]
    found = [way for way in _fillings(items, room) if way is not None]
    assert sorted(found) == sorted(full)
