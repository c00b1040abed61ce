"""Winner determination without named nodes: a knapsack, solved with everybody and without each bidder in one pass.

Where a row's GPUs come from is left out and only their number counts, so the best choice is at least as good as the
auction's. When its rows go onto named nodes after all it *is* the auction's optimum, without any search: usual where
many bidders compete. When they do not, it tells which rows a choice of a given worth can contain at all, and the
integer program is built from those only.

Two tables are kept, over the first k bidders and over the last k, by GPUs at hand. Joined at a bidder they give the
optimum without it: the hidden payments of n winners cost one pass of each, O(rows x GPUs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.model import Gpus
from policy.themis.auction.rows import Bid, Row
from policy.themis.offer import NodeClass

#: Largest tables (bidders x GPUs) and most work (rows x GPUs) that are worth it.
CELLS, WORK = 4_000_000, 100_000_000
#: Choices of equal worth that are tried before the program is asked.
TRIES = 4
#: Relative difference below which two sums of gains are the same.
SAME = 1e-12

Gain = Callable[[Bid, Row], float]


@dataclass(frozen=True, slots=True)
class Option:
    """What a bidder can gain at most with so many GPUs, and the rows that do it."""

    gpus: Gpus
    gain: float
    rows: tuple[Row, ...]


Choice = Mapping[str, Option]


class Knapsack:
    """The relaxation over `room` GPUs. `fits`: whether tables of this size are worth making."""

    def __init__(self, bids: Sequence[Bid], gain: Gain, room: Gpus) -> None:
        self._bids, self._gain, self._room = bids, gain, room
        self._place = {b.app: i for i, b in enumerate(bids)}
        self._options = [_options(b, gain) for b in bids]
        self._first = _tables(self._options, room)
        self._last = _tables(self._options[::-1], room)

    @staticmethod
    def fits(bids: Sequence[Bid], room: Gpus) -> bool:
        return len(bids) * (room + 1) <= CELLS and sum(len(b.rows) for b in bids) * (room + 1) <= WORK

    def best(self, without: str | None = None) -> Iterator[Choice]:
        """Best choices of all but one bidder, a few of those worth the same."""
        n, room = len(self._bids), self._room
        at = n if without is None else self._place[without]
        before, chosen = self._first
        after, picked = self._last
        rest = n - at - 1 if without is not None else 0
        worth = before[at] + after[rest][::-1]
        top = worth.max()
        for gpus in np.flatnonzero(worth >= top - SAME * max(top, 1.0))[-TRIES:][::-1]:
            out = dict(self._traced(chosen, at, int(gpus), last=False))
            out.update(self._traced(picked, rest, room - int(gpus), last=True))
            yield {b.app: out[b.app] for b in self._bids if b.app in out}

    def _traced(self, chosen: NDArray[np.int16], count: int, gpus: Gpus, *, last: bool) -> Iterator[tuple[str, Option]]:
        for i in range(count - 1, -1, -1):
            which = int(chosen[i, gpus])
            if which >= 0:
                k = len(self._bids) - 1 - i if last else i
                option = self._options[k][which]
                gpus -= option.gpus
                yield self._bids[k].app, option

    def within(self, without: str | None, worth: float) -> list[Bid]:
        """The other bids, less the rows that no choice worth `worth` or more contains."""
        kept = [(b, o) for b, o in zip(self._bids, self._options, strict=True) if b.app != without]
        before, _ = _tables([o for _, o in kept], self._room)
        after, _ = _tables([o for _, o in kept[::-1]], self._room)
        out = []
        for i, (bid, _) in enumerate(kept):
            first, last = before[i], after[len(kept) - 1 - i]
            others: dict[Gpus, float] = {}  #: what they gain together when this bidder takes so many GPUs
            for gpus in {r.gpus for r in bid.rows if r.gpus <= self._room}:
                left = self._room - gpus
                others[gpus] = float((first[: left + 1] + last[left::-1]).max())
            rows = tuple(r for r in bid.rows if r.gpus in others and others[r.gpus] + self._gain(bid, r) >= worth)
            if rows:
                out.append(replace(bid, rows=rows))
        return out


def _options(bid: Bid, gain: Gain) -> list[Option]:
    """By growing GPU count, each worth more than the ones before."""
    by_gpus: dict[Gpus, list[Row]] = {}
    for row in bid.rows:
        by_gpus.setdefault(row.gpus, []).append(row)
    out: list[Option] = []
    for gpus, rows in sorted(by_gpus.items()):
        least = min(r.rho for r in rows)
        same = tuple(r for r in rows if r.rho <= least * (1 + SAME))
        worth = gain(bid, same[0])
        if worth > (out[-1].gain if out else 0.0):
            out.append(Option(gpus, worth, same))
    return out


def _tables(options: Sequence[Sequence[Option]], room: Gpus) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """([k][g] the most that the first k gain on g GPUs; [k][g] which option of the k-th does it, -1: none)."""
    worth = np.zeros((len(options) + 1, room + 1))
    chosen = np.full((len(options), room + 1), -1, dtype=np.int16)
    for k, mine in enumerate(options):
        before, now, which = worth[k], worth[k + 1], chosen[k]
        now[:] = before
        for n, option in enumerate(mine):
            if option.gpus > room:
                break
            with_it = before[: room + 1 - option.gpus] + option.gain
            better = with_it > now[option.gpus :]
            np.copyto(now[option.gpus :], with_it, where=better)
            which[option.gpus :][better] = n
    return worth, chosen


def settled(choice: Choice, classes: Sequence[NodeClass]) -> dict[str, Row]:
    """One row of each option: the widest first, each where most room is left by those before it."""
    room = {c.index: c.free * len(c.nodes) for c in classes}
    taken: dict[frozenset[int], Gpus] = {}

    def where(row: Row) -> frozenset[int]:
        return frozenset(i for d in row.demands for i in d.domain)

    def left(row: Row) -> Gpus:
        here = where(row)
        return sum(room[i] for i in here) - sum(gpus for there, gpus in taken.items() if there <= here)

    out: dict[str, Row] = {}
    for app, option in sorted(choice.items(), key=lambda c: (len(c[1].rows) > 1, -c[1].gpus)):
        row = max(option.rows, key=left) if len(option.rows) > 1 else option.rows[0]
        here = where(row)
        taken[here] = taken.get(here, 0) + row.gpus
        out[app] = row
    return {app: out[app] for app in choice}
