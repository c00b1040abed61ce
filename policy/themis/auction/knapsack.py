"""Winner determination without named nodes: a knapsack, solved with everybody and without each bidder in one pass.

Where a row's GPUs come from is left out and only their number counts: all of them, and beside it those of the rows
that one set of GPU types alone can meet (the one most asked for). So the best choice is at least as good as the
auction's. When its rows go onto named nodes after all it *is* the auction's optimum, without any search: usual where
many bidders compete.

At prices p of the two counts, u_i is the most that bidder i's gain exceeds what its GPUs cost. Every option then has a
*loss*, u_i - (gain - p . GPUs) >= 0, as has what is not used, p . rest; and a choice is worth p . room + sum u_i less
its losses. Two tables are kept of the least loss, over the first k bidders and over the last k, by GPUs used. Joined at
a bidder they give the optimum without it: the hidden payments of n winners cost one pass of each.

In large auctions a table is a window around what the bidders use at the linear program's prices. Losses only add up,
so no choice that leaves a window loses less than the least that was cut off: `beyond`. An optimum that loses no more is
one of all choices, which `Knapsack.best` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from operator import or_

import numpy as np
from numpy.typing import NDArray

from policy.model import Gpus
from policy.parts.matrix import maximise_matrix
from policy.themis.auction.rows import Bid, Row
from policy.themis.offer import NodeClass

#: Largest tables: bidders x counts of GPUs.
CELLS = 8_000_000
#: How many of the largest options a window of narrow GPUs is as wide as.
WINDOW = 5
#: Windows smaller than this square would leave too much out.
LEAST_SIDE = 64
#: Choices of equal worth that are tried before the program is asked.
TRIES = 4
#: Relative difference below which two sums of gains are the same.
SAME = 1e-12

Gain = Callable[[Bid, Row], float]
Uses = tuple[Gpus, Gpus]  #: GPUs that only the narrow types can give, and GPUs in all
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pick:
    """What a bidder can gain at most with so many GPUs, and the rows that do it."""

    uses: Uses
    gain: float
    rows: tuple[Row, ...]
    loss: float = 0.0

    @property
    def gpus(self) -> Gpus:
        return self.uses[1]


Choice = Mapping[str, Pick]
NOTHING = Pick((0, 0), 0.0, ())


class Knapsack:
    """The relaxation over the offered GPUs. `fits`: whether tables of this size are worth making."""

    def __init__(self, bids: Sequence[Bid], gain: Gain, classes: Sequence[NodeClass]) -> None:
        self._bids, self._gain = bids, gain
        narrow = self._narrow = _narrow(bids, classes)
        sizes = [c.free * len(c.nodes) for c in classes]
        self._room: Uses = (sum(sizes[i] for i in narrow), sum(sizes))
        self._place = {b.app: i for i, b in enumerate(bids)}
        options = [_options(b, gain, narrow, self._room) for b in bids]
        self._price, at = _prices(options, self._room)
        self._options = [_lossy(mine, self._price) for mine in options]
        self._most = [max(o.gain - _cost(self._price, o.uses) for o in mine) for mine in self._options]
        self._side, self._at = _side(options, self._room), at
        self._whole = self._side == (self._room[0] + 1, self._room[1] + 1)
        mine, all_of = (np.arange(side) for side in self._side)
        self._whole_cost = self._cost_of(mine, all_of)  #: of GPUs from none on
        self._first = _Tables(self._options, at, self._room, self._side)
        self._last = _Tables(self._options[::-1], at[::-1], self._room, self._side)
        #: No choice that loses less than this was left out.
        self.beyond = min(self._first.beyond, self._last.beyond)

    @staticmethod
    def fits(bids: Sequence[Bid], classes: Sequence[NodeClass]) -> bool:
        return len(bids) <= CELLS // LEAST_SIDE**2

    def best(self, without: str | None = None) -> Iterator[tuple[Choice, float]]:
        """Best choices of all but one bidder, a few of those worth the same; and by how much another may beat them,
        in gains (0: by nothing)."""
        n = len(self._bids)
        at = n if without is None else self._place[without]
        rest = n - at - 1 if without is not None else 0
        loss, alone = self._joined(self._first, at, self._last, rest, self._room)
        least = float(loss.min())
        if least == inf:  # the windows hold no whole choice
            return
        scale = SAME * max(self._bound(without), 1.0)
        for state in np.argwhere(loss <= least + scale)[-TRIES:][::-1]:
            low = self._first.low[at]
            used = (int(state[0]) + low[0], int(state[1]) + low[1])
            beside = self._beside(used, rest, alone)
            out = dict(self._traced(self._first, at, used, last=False))
            out.update(self._traced(self._last, rest, beside, last=True))
            yield {b.app: out[b.app] for b in self._bids if b.app in out}, max(least - self.beyond, 0.0)

    def _bound(self, without: str | None) -> float:
        """What a choice without any loss would be worth."""
        most = sum(m for b, m in zip(self._bids, self._most, strict=True) if b.app != without)
        return most + _cost(self._price, self._room)

    def _joined(self, first: _Tables, at: int, last: _Tables, rest: int, room: Uses) -> tuple[Table, Table]:
        """The least loss of a whole choice by what the first `at` use; and of the last `rest` by what is left them,
        less the price of that."""
        if self._whole:  # no window: what is left them lies backwards beside what is used
            inside = slice(room[0] + 1), slice(room[1] + 1)
            alone = last.loss[rest] - self._whole_cost
            beside = _least_within(alone[inside]) + self._whole_cost[inside]
            return first.loss[at][inside] + beside[::-1, ::-1], alone
        alone = last.loss[rest] - self._cost_of(*self._grid(last, rest))
        closed = _least_within(alone)
        mine, all_of = self._grid(first, at)
        left, left_all = room[0] - mine, room[1] - all_of
        low = last.low[rest]
        i, j = left - low[0], left_all - low[1]
        rows = np.clip(i, 0, self._side[0] - 1)
        columns = np.clip(j, 0, self._side[1] - 1)
        beside = closed[np.ix_(rows, columns)]
        out = first.loss[at] + beside + self._cost_of(left, left_all)
        out[i < 0, :] = inf
        out[:, j < 0] = inf
        return out, alone

    def _cost_of(self, narrow: NDArray[np.intp], wide: NDArray[np.intp]) -> Table:
        """What so many GPUs cost, by both counts."""
        return self._price[0] * narrow[:, None] + self._price[1] * wide[None, :]

    def _grid(self, tables: _Tables, at: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        low = tables.low[at]
        return low[0] + np.arange(self._side[0]), low[1] + np.arange(self._side[1])

    def _beside(self, used: Uses, rest: int, alone: Table) -> Uses:
        """What the last `rest` use of what is left."""
        low = self._last.low[rest]
        narrow = self._room[0] - used[0] - low[0]
        wide = self._room[1] - used[1] - low[1]
        part = alone[: narrow + 1, : wide + 1]
        i, j = np.unravel_index(int(part.argmin()), part.shape)
        return low[0] + int(i), low[1] + int(j)

    def _traced(self, tables: _Tables, count: int, used: Uses, *, last: bool) -> Iterator[tuple[str, Pick]]:
        for k in range(count - 1, -1, -1):
            i = len(self._bids) - 1 - k if last else k
            option = tables.taken(k, used, self._options[i])
            used = (used[0] - option.uses[0], used[1] - option.uses[1])
            if option.rows:
                yield self._bids[i].app, option


class _Tables:
    """`loss[k]`: the least loss of the first k bidders by GPUs used, from `low[k]` on. `beyond`: see above."""

    def __init__(
        self, options: Sequence[Sequence[Pick]], at: Sequence[Sequence[float]], room: Uses, side: Uses
    ) -> None:
        used = np.vstack([np.zeros(2), np.cumsum(np.array(at).reshape(-1, 2), axis=0)])
        top = np.array(room) + 1 - np.array(side)
        low = np.clip(np.rint(used - np.array(side) / 2), 0, top).astype(int)
        self.low: list[Uses] = [(int(a), int(b)) for a, b in low]
        self.loss = np.full((len(options) + 1, *side), inf)
        self.loss[0, 0, 0] = 0.0
        self.beyond = inf
        for k, mine in enumerate(options):
            for option in mine:
                self._take(k, option, room, side)

    def _take(self, k: int, option: Pick, room: Uses, side: Uses) -> None:
        before, now = self.loss[k], self.loss[k + 1]
        begin, end = [0, 0], [0, 0]  #: of the states before from which the window after is reached
        for d in (0, 1):
            shift = option.uses[d] + self.low[k][d] - self.low[k + 1][d]
            begin[d], end[d] = max(0, -shift), min(side[d], side[d] - shift)
            possible = min(side[d], room[d] + 1 - option.uses[d] - self.low[k][d])
            for cut in (slice(0, begin[d]), slice(max(end[d], 0), max(possible, 0))):
                gone = before[cut] if d == 0 else before[:, cut]
                if gone.size:
                    self.beyond = min(self.beyond, float(gone.min()) + option.loss)
        if begin[0] < end[0] and begin[1] < end[1]:
            low, after = self.low[k], self.low[k + 1]
            i = begin[0] + option.uses[0] + low[0] - after[0]
            j = begin[1] + option.uses[1] + low[1] - after[1]
            into = now[i : i + end[0] - begin[0], j : j + end[1] - begin[1]]
            come = before[begin[0] : end[0], begin[1] : end[1]]
            np.minimum(into, come + option.loss, out=into)

    def taken(self, k: int, used: Uses, options: Sequence[Pick]) -> Pick:
        """What bidder k takes where the first k + 1 use so much."""
        (a, b), (c, d) = self.low[k + 1], self.low[k]
        _, wide, high = self.loss.shape
        loss = self.loss[k + 1, used[0] - a, used[1] - b]
        for option in options:
            i = used[0] - option.uses[0] - c
            j = used[1] - option.uses[1] - d
            inside = 0 <= i < wide and 0 <= j < high
            if inside and self.loss[k, i, j] + option.loss == loss:
                return option
        raise AssertionError("a state that no option leads to")


def _least_within(alone: Table) -> Table:
    """The least of all entries up to each, in both directions."""
    down = np.minimum.accumulate(alone, axis=0) if len(alone) > 1 else alone
    return np.asarray(np.minimum.accumulate(down, axis=1))


def _side(options: Sequence[Sequence[Pick]], room: Uses) -> Uses:
    """How wide the tables may be: whole, or of the narrow GPUs a few of the largest options and the rest of all."""
    cells = CELLS // (len(options) + 1)
    largest = max(o.gpus for mine in options for o in mine)
    narrow = room[0] + 1
    if narrow * (room[1] + 1) > cells:
        narrow = min(narrow, WINDOW * largest + 1)
    return narrow, max(min(room[1] + 1, cells // narrow), largest + 1)


def _cost(price: Sequence[float], uses: Uses) -> float:
    return price[0] * uses[0] + price[1] * uses[1]


def _fit(uses: Uses, room: Uses) -> bool:
    return uses[0] <= room[0] and uses[1] <= room[1]


def _uses(row: Row, narrow: frozenset[int]) -> Uses:
    alone = all(narrow.issuperset(d.domain) for d in row.demands)
    return (row.gpus if alone else 0, row.gpus)


def _narrow(bids: Sequence[Bid], classes: Sequence[NodeClass]) -> frozenset[int]:
    """The classes of the GPU types that rows ask for beyond what there is of them: most, for what there is."""
    kind = {c.index: c.gpu_type for c in classes}
    asked: dict[frozenset[str], Gpus] = {}
    for bid in bids:
        most: dict[frozenset[str], Gpus] = {}
        for row in bid.rows:
            types = frozenset(kind[i] for d in row.demands for i in d.domain)
            most[types] = max(most.get(types, 0), row.gpus)
        for types, gpus in most.items():
            asked[types] = asked.get(types, 0) + gpus
    asked.pop(frozenset(kind.values()), None)

    def excess(types: frozenset[str]) -> float:
        return asked[types] / sum(c.free * len(c.nodes) for c in classes if c.gpu_type in types)

    if not asked:
        return frozenset()
    scarce = max(sorted(asked, key=sorted), key=excess)
    return frozenset(c.index for c in classes if c.gpu_type in scarce) if excess(scarce) > 1 else frozenset()


def _options(bid: Bid, gain: Gain, narrow: frozenset[int], room: Uses) -> list[Pick]:
    """By growing GPU count, each worth more than those that use no more."""
    by_uses: dict[Uses, list[Row]] = {}
    for row in bid.rows:
        by_uses.setdefault(_uses(row, narrow), []).append(row)
    out = [NOTHING]
    for uses, rows in sorted(by_uses.items(), key=lambda u: (u[0][1], u[0][0])):
        least = min(r.rho for r in rows)
        same = tuple(r for r in rows if r.rho <= least * (1 + SAME))
        worth = gain(bid, same[0])
        if _fit(uses, room) and worth > max(o.gain for o in out if _fit(o.uses, uses)):
            out.append(Pick(uses, worth, same))
    return out


def _lossy(options: Sequence[Pick], price: Sequence[float]) -> list[Pick]:
    most = max(o.gain - _cost(price, o.uses) for o in options)
    return [replace(o, loss=most - (o.gain - _cost(price, o.uses))) for o in options]


def _prices(options: Sequence[Sequence[Pick]], room: Uses) -> tuple[tuple[float, float], list[tuple[float, float]]]:
    """Of the linear program: what one more GPU of the two counts is worth, and what every bidder uses of them."""
    flat = [(i, o) for i, mine in enumerate(options) for o in mine if o.rows]
    if not flat:
        return (0.0, 0.0), [(0.0, 0.0)] * len(options)
    columns = list(range(len(flat)))
    who, n = [i for i, _ in flat], len(options)
    uses = [[o.uses[d] for _, o in flat] for d in (0, 1)]
    found = maximise_matrix(
        [o.gain for _, o in flat],
        [*who, *[n] * len(flat), *[n + 1] * len(flat)],
        columns * 3,
        [*[1.0] * len(flat), *uses[0], *uses[1]],
        [-inf] * (n + 2),
        [*[1.0] * n, *room],
    )
    if not found.has_solution:
        return (0.0, 0.0), [(0.0, 0.0)] * n
    at = [(0.0, 0.0) for _ in options]
    for (i, option), x in zip(flat, found.values, strict=True):
        part = float(x)
        narrow, wide = at[i]
        at[i] = (narrow + part * option.uses[0], wide + part * option.uses[1])
    narrow = max(float(found.prices[n]), 0.0)
    wide = max(float(found.prices[n + 1]), 0.0)
    return (narrow, wide), at


def settled(choice: Choice, classes: Sequence[NodeClass]) -> dict[str, Row]:
    """One row of each option: the widest first, each where most room is left by those before it, and by those after it,
    of which it is known among which classes they will be."""
    room = {c.index: c.free * len(c.nodes) for c in classes}
    taken: dict[int, Gpus] = {}  #: by the set of classes, one bit each
    holds: dict[int, Gpus] = {}  #: of a set of classes

    def where(row: Row) -> int:
        here = 0
        for demand in row.demands:
            for i in demand.domain:
                here |= 1 << i
        return here

    def left(here: int) -> tuple[Gpus, Gpus]:
        """With the classes of others, which may have to give way to this row; and of its own alone."""
        own = spare(here)
        return min([own, *(spare(some) for some in {here | other for other in taken})]), own

    def spare(some: int) -> Gpus:
        if some not in holds:
            holds[some] = sum(gpus for i, gpus in room.items() if some >> i & 1)
        return holds[some] - sum(gpus for there, gpus in taken.items() if not there & ~some)

    def take(some: int, gpus: Gpus) -> None:
        taken[some] = taken.get(some, 0) + gpus

    places: dict[str, dict[int, Row]] = {app: {} for app in choice}
    among: dict[str, int] = {}
    for app, option in choice.items():
        for row in option.rows:
            places[app].setdefault(where(row), row)
        among[app] = reduce(or_, places[app])
        take(among[app], option.gpus)
    out: dict[str, Row] = {}
    for app, option in sorted(choice.items(), key=lambda c: (len(c[1].rows) > 1, -c[1].gpus)):
        take(among[app], -option.gpus)
        here = max(places[app], key=left)
        out[app] = places[app][here]
        take(here, option.gpus)
    return {app: out[app] for app in choice}
