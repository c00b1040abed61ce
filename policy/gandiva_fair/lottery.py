"""The two lotteries that Gandiva-fair compares its stride scheduler with (§3.1, Table 2).

Gang-aware: lotteries with replacement until the GPUs are full; every win is a claim to one quantum. A winner that does
not fit now, or already runs, keeps its claim in a queue that is served first in the next quanta. (The paper does not
say what a winner that already runs does; only with a queued claim do the long-run shares become the fair ones.)
With backfill: lotteries without replacement; a winner that does not fit is skipped and loses nothing but its turn.

`homes` maps a job to node -> GPUs (its gang), `tickets` are already divided by gang size, `free` is node -> GPUs.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

Homes = Mapping[str, Mapping[str, int]]
#: Draws a job and quantum. Where tickets differ by many orders of magnitude, a job that fits might not be drawn in a
#: lifetime; after these, those that do not run yet draw among themselves.
DRAWS = 100
#: Claims of one job that wait. It can use one a quantum: of a job that runs in every one they would grow for ever, and
#: whoever comes to its node would wait until all had been served.
MOST_CLAIMS = 100


class _FreeGpus:
    def __init__(self, free: Mapping[str, int]) -> None:
        self._free = dict(free)

    def fits(self, home: Mapping[str, int]) -> bool:
        for node, n in home.items():  # noqa: SIM110 - the innermost loop of a lottery: no generator
            if self._free.get(node, 0) < n:
                return False
        return True

    def take(self, home: Mapping[str, int]) -> None:
        for node, n in home.items():
            self._free[node] -= n


def gang_lottery(
    homes: Homes, tickets: Mapping[str, float], free: Mapping[str, int], queue: Sequence[str], random: Random
) -> tuple[list[str], list[str]]:
    """(who runs this quantum, the queue of claims after it)."""
    room = _FreeGpus(free)
    running: dict[str, None] = {}
    waiting: list[str] = []

    def serve(job: str) -> bool:
        if job in running or not room.fits(homes[job]):
            return False
        running[job] = None
        room.take(homes[job])
        return True

    for job in queue:
        if job in homes and not serve(job):
            waiting.append(job)
    names = sorted(homes)
    upto = list(itertools.accumulate(tickets[n] for n in names))
    draws = DRAWS * len(names)
    # Whoever runs or does not fit stays so: room only shrinks. So one look at each tells when nobody is left.
    could = (n for n in names if tickets[n] > 0)
    candidate = next(could, None)
    while candidate is not None:
        if candidate in running or not room.fits(homes[candidate]):
            candidate = next(could, None)
            continue
        if not draws:
            left = {n: tickets[n] for n in names if n not in running}
            running.update(dict.fromkeys(_without_replacement(left, homes, room, random)))
            break
        draws -= 1
        winner = names[bisect.bisect_right(upto, random.random() * upto[-1], 0, len(names) - 1)]
        if not serve(winner):
            waiting.append(winner)
    return list(running), _bounded(waiting)


def _bounded(waiting: Sequence[str]) -> list[str]:
    claims, kept = Counter[str](), list[str]()
    for job in waiting:
        claims[job] += 1
        if claims[job] <= MOST_CLAIMS:
            kept.append(job)
    return kept


def backfill_lottery(homes: Homes, tickets: Mapping[str, float], free: Mapping[str, int], random: Random) -> list[str]:
    """Who runs this quantum."""
    return _without_replacement(tickets, homes, _FreeGpus(free), random)


def _without_replacement(tickets: Mapping[str, float], homes: Homes, room: _FreeGpus, random: Random) -> list[str]:
    """Winners that fit. Drawing without replacement by tickets is drawing a waiting time of rate `tickets` each
    (Efraimidis and Spirakis)."""
    names = sorted(n for n in tickets if n in homes and tickets[n] > 0)
    waits = {n: -math.log(1.0 - random.random()) / tickets[n] for n in names}
    running: list[str] = []
    for winner in sorted(waits, key=waits.__getitem__):
        if room.fits(homes[winner]):
            running.append(winner)
            room.take(homes[winner])
    return running
