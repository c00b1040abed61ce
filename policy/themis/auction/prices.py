"""Winner determination by prices: the linear program of an auction, and what it leaves to an integer one.

Variables: rows that are won, chunks that are put on a class, and ways to fill the nodes of a class (Gilmore and Gomory
1961), so that chunks fit nodes also in the linear program. It is solved over few rows: a row that would pay at its
prices is added, until none does (Dantzig and Wolfe 1960).

What a row's chunks cost at the prices, and at those of its tenant's limit, is taken off its gain; the most that is left
of a row of bidder i is its surplus u_i, and what a row falls short of that is its *loss*. Two things follow:

- no choice is worth more than `bound`, and none without i more than bound - u_i;
- a choice worth W has no row that loses more than bound - W. The best of the rows that lose no more than that is the
  best of all, and those are few: with hundreds of bidders who differ, a bidder is near its surplus on few of its rows.

Conditions on the nodes are necessary, and sufficient where no chunks have to be apart and the ways to fill a node are
not too many: whoever takes an answer sees whether it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from policy.model import Gpus, Seconds, Termination
from policy.parts.matrix import MatrixResult, maximise_matrix
from policy.themis.auction.bidders import Cap
from policy.themis.auction.capacity import WAYS
from policy.themis.auction.rows import Bid, PerGpu, Row, usable
from policy.themis.offer import NodeClass

Gain = Callable[[Bid, Row], float]
Numbers = NDArray[np.float64]
#: Passes of the linear program after which its prices are as good as they get.
PASSES = 60
#: A surplus that a row adds less than this to is none.
NONE = 1e-9
#: Nodes of the search of one integer program, times its columns; and the most nodes.
WORK, NODES = 200_000, 200
#: Ways to fill a node that are looked at, those included that leave room for more.
LOOKED_AT = 20 * WAYS

_Chunks = tuple[tuple[int, ...], Gpus, PerGpu]  #: classes that do, size, needs
_Item = tuple[float, float, float]  #: GPUs, CPUs, bytes


@dataclass(slots=True)
class _Matrix:
    """Rows and columns of a program, as triples."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    up: list[float] = field(default_factory=list)
    width: int = 0

    def row(self, low: float, up: float) -> int:
        self.low.append(low)
        self.up.append(up)
        return len(self.up) - 1

    def column(self, at: Mapping[int, float]) -> None:
        """A new column with these coefficients by row."""
        for row, coefficient in at.items():
            self.rows.append(row)
            self.columns.append(self.width)
            self.coefficients.append(coefficient)
        self.width += 1


@dataclass(frozen=True, slots=True)
class Choice:
    rows: Mapping[str, Row]
    worth: float
    short: float  #: no choice is worth more by as much
    clock: bool  #: the wall clock ended its program


class Prices:
    """Of one market's bids."""

    def __init__(
        self,
        bids: Sequence[Bid],
        gain: Gain,
        classes: Sequence[NodeClass],
        caps: Sequence[Cap],
        seed: int = 0,
    ) -> None:
        self._bids, self._seed = bids, seed
        self._rows = [row for b in bids for row in b.rows]
        self._gain = np.array([gain(b, row) for b in bids for row in b.rows])
        counts = [len(b.rows) for b in bids]
        self._who = np.repeat(np.arange(len(bids)), counts)
        self._begin = np.cumsum([0, *counts])
        self._place = {b.app: i for i, b in enumerate(bids)}
        self._base = _Matrix()
        for _ in bids:
            self._base.row(-inf, 1.0)
        self._read(caps)
        self._nodes(classes)
        self.bound, self._surplus, cost = self._priced()
        self._loss = self._surplus[self._who] - (self._gain - cost)

    # --- what is asked ---

    def most(self, without: str | None) -> float:
        """What no choice of all but one bidder is worth more than."""
        return self.bound - (0.0 if without is None else self.surplus(without))

    def surplus(self, app: str) -> float:
        """What a bidder gains at most beyond what it would pay for its row."""
        return float(self._surplus[self._place[app]])

    def count(self, without: str | None, loss: float) -> int:
        """How many rows lose no more."""
        return int(self._kept(without, loss).sum())

    def within(self, without: str | None, loss: float) -> list[Bid]:
        """The other bids, with the rows that lose no more."""
        kept = self._kept(without, loss)
        out = []
        for i, bid in enumerate(self._bids):
            mine = np.flatnonzero(kept[self._begin[i] : self._begin[i + 1]])
            if len(mine):
                out.append(replace(bid, rows=tuple(bid.rows[k] for k in mine)))
        return out

    def best(
        self,
        without: str | None,
        loss: float,
        time_limit_s: Seconds,
    ) -> Choice | None:
        """The best choice of rows that lose no more. None: a limit came before there was one."""
        kept = np.flatnonzero(self._kept(without, loss))
        found = self._solved(kept, integer=True, time_limit_s=time_limit_s)
        if not found.has_solution:
            return None
        won = kept[found.values[self._base.width :] > 0.5]
        worth = float(self._gain[won].sum())
        others = self.most(without) - loss if len(kept) < self.count(without, inf) else -inf  # with a row left out
        most = max(found.bound if found.bound is not None else self.most(without), others)
        short = 0.0 if found.termination is Termination.OPTIMAL and worth >= others - NONE else most - worth
        rows = {self._bids[self._who[r]].app: self._rows[r] for r in won.tolist()}
        return Choice(
            rows=rows,
            worth=worth,
            short=max(short, 0.0),
            clock=found.seconds >= time_limit_s,
        )

    def _kept(self, without: str | None, loss: float) -> NDArray[np.bool_]:
        kept = self._loss <= loss
        if without is not None:
            kept[self._who == self._place[without]] = False
        return kept

    # --- the program ---

    def _read(self, caps: Sequence[Cap]) -> None:
        """What each row of a bid puts into which rows of the program: flat, by demand and by limit."""
        self._chunks: dict[_Chunks, int] = {}
        of: list[int] = []
        into: list[int] = []
        much: list[float] = []

        def put(r: int, row: int, coefficient: float) -> None:
            of.append(r)
            into.append(row)
            much.append(coefficient)

        first = len(self._bids)
        for r, row in enumerate(self._rows):
            need = self._bids[self._who[r]].need
            for demand in row.demands:
                key = (demand.domain, demand.chunk, need)
                at = self._chunks.setdefault(key, len(self._chunks))
                put(r, first + at, -float(demand.times))
        for _ in self._chunks:
            self._base.row(0.0, inf)
        limits = [(cap, self._base.row(-inf, float(cap.room))) for cap in caps]
        for r, row in enumerate(self._rows):
            app = self._bids[self._who[r]].app
            for cap, at in limits:
                if app in cap.apps:
                    put(r, at, float(row.gpus))
        self._of = np.array(of, int)
        self._into = np.array(into, int)
        self._much = np.array(much)

    def _nodes(self, classes: Sequence[NodeClass]) -> None:
        """Columns of chunks put on classes, and of ways to fill nodes; rows that keep them within the nodes."""
        here: dict[int, list[tuple[int, Gpus, PerGpu]]] = {}
        first = len(self._bids)
        for (domain, chunk, need), at in self._chunks.items():
            for i in domain:
                here.setdefault(i, []).append((first + at, chunk, need))
        for i, asked in sorted(here.items()):
            self._class(classes[i], asked)

    def _class(self, c: NodeClass, asked: Sequence[tuple[int, Gpus, PerGpu]]) -> None:
        base, nodes, needs = self._base, len(c.nodes), {need for *_, need in asked}
        mixed = len(needs) > 1 and not (c.cpus is None and c.memory is None)
        free = c.free if mixed else min(usable(c, need) for need in needs)
        room = (
            free,
            inf if c.cpus is None else c.cpus + 1e-9,
            inf if c.memory is None else float(c.memory),
        )
        volume = base.row(-inf, float(nodes * free))
        # Of single GPUs only the volume counts, where all GPUs are alike.
        items = {_item(chunk, need, mixed) for _, chunk, need in asked if mixed or chunk > 1}
        order = sorted(items, reverse=True)
        looked_at = list(islice(_fillings(order, room), LOOKED_AT + 1)) if order else []
        ways = [way for way in looked_at if way is not None]
        rows = {}
        if len(looked_at) <= LOOKED_AT and len(ways) <= WAYS:
            rows = {item: base.row(-inf, 0.0) for item in order}
        for at, chunk, need in asked:
            column, item = {at: 1.0, volume: float(chunk)}, _item(chunk, need, mixed)
            if item in rows:
                column[rows[item]] = 1.0
            base.column(column)
        if rows:
            filled = base.row(-inf, float(nodes))
            for way in ways:
                holds = {filled: 1.0}
                for item, n in zip(order, way, strict=True):
                    holds[rows[item]] = -float(n)
                base.column(holds)

    def _solved(
        self,
        chosen: NDArray[np.intp],
        *,
        integer: bool = False,
        time_limit_s: Seconds | None = None,
    ) -> MatrixResult:
        base = self._base
        width = base.width
        column = np.full(len(self._rows), -1)
        column[chosen] = width + np.arange(len(chosen))
        mine = column[self._of] >= 0
        own = np.ones(len(chosen))  # in the row of its bidder
        nodes = min(WORK // (width + len(chosen) + 1) + 1, NODES)
        return maximise_matrix(
            np.concatenate([np.zeros(width), self._gain[chosen]]),
            np.concatenate([base.rows, self._into[mine], self._who[chosen]]),
            np.concatenate([base.columns, column[self._of[mine]], column[chosen]]),
            np.concatenate([base.coefficients, self._much[mine], own]),
            base.low,
            base.up,
            integer=integer,
            time_limit_s=time_limit_s,
            node_limit=nodes if integer else None,
            seed=self._seed,
        )

    def _priced(self) -> tuple[float, Numbers, Numbers]:
        """The bound, every bidder's surplus, and what every row costs, at the prices of the linear program."""
        first, last = self._begin[:-1], self._begin[1:] - 1
        chosen = np.union1d(first, last)
        bound = inf
        for _ in range(PASSES):
            found = self._solved(chosen)
            if not found.has_solution or found.objective is None:
                break
            price = np.asarray(found.prices)
            costs = self._costs(price)
            left = self._gain - costs
            best = self._best_rows(left)
            most = np.maximum(left[best], 0.0)
            said = np.maximum(price[: len(self._bids)], 0.0)
            # What the program says that bidders gain beyond costs is of its few rows; here it is of all.
            here = found.objective + float((most - said).sum())
            if here < bound:
                bound, surplus, cost = here, most, costs
            new = np.setdiff1d(best[most > said + NONE], chosen)
            if not len(new):
                break
            chosen = np.union1d(chosen, new)
        if bound == inf:  # no prices: everybody's best row
            surplus = np.maximum.reduceat(self._gain, first)
            bound, cost = float(surplus.sum()), np.zeros(len(self._rows))
        return bound, surplus, cost

    def _costs(self, price: Numbers) -> Numbers:
        """Of every row, by the price of every row of the program."""
        each = self._much * price[self._into]
        return np.asarray(np.bincount(self._of, weights=each, minlength=len(self._rows)), dtype=np.float64)

    def _best_rows(self, left: Numbers) -> NDArray[np.intp]:
        """Of every bidder the row of which most is left."""
        best = []
        for begin, end in zip(self._begin, self._begin[1:], strict=False):
            best.append(begin + int(left[begin:end].argmax()))
        return np.array(best)


def _item(chunk: Gpus, need: PerGpu, mixed: bool) -> _Item:
    return (chunk, chunk * need.cpus, float(chunk * need.memory)) if mixed else (chunk, 0.0, 0.0)


def _fillings(items: Sequence[_Item], room: _Item) -> Iterator[tuple[int, ...] | None]:
    """How many of each item a node of that room holds at once, so that no other fits; None: one that leaves room."""
    if not items:
        yield ()
        return
    first, *others = items
    most = int(min(have / need for have, need in zip(room, first, strict=True) if need > 0))
    for n in range(most, -1, -1):
        left = (
            room[0] - n * first[0],
            room[1] - n * first[1],
            room[2] - n * first[2],
        )
        for rest in _fillings(others, left):
            way = None if rest is None else (n, *rest)
            yield None if way is None or not (n == most or _full(items, way, room)) else way


def _full(items: Sequence[_Item], way: Sequence[int], room: _Item) -> bool:
    """Whether no further item of the first kind fits beside all of them."""
    left = list(room)
    for n, item in zip(way, items, strict=True):
        for d, each in enumerate(item):
            left[d] -= n * each
    return any(need > 0 and have < need for have, need in zip(left, items[0], strict=True))
