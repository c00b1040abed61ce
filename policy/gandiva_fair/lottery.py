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
from collections.abc import Iterator, Mapping, Sequence
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
    running: list[str] = []
    waiting: list[str] = []
    over: set[str] = set()  #: who runs, and who does not fit: both stay so, since room only shrinks

    def serve(job: str) -> bool:
        if job in over:
            return False
        over.add(job)
        if not room.fits(homes[job]):
            return False
        running.append(job)
        room.take(homes[job])
        return True

    for job in queue:
        if job in homes and not serve(job):
            waiting.append(job)
    names = sorted(homes)
    winners = itertools.islice(_winners(names, tickets, random), DRAWS * len(names))
    # One look at each tells when nobody is left, and another only when room has shrunk.
    for candidate in names:
        while tickets[candidate] > 0 and candidate not in over and room.fits(homes[candidate]):
            for winner in winners:
                if winner not in over and serve(winner):
                    break
                waiting.append(winner)
            else:
                left = {n: tickets[n] for n in tickets.keys() - running if n in homes}
                return running + _without_replacement(left, homes, room, random), _bounded(waiting)
    return running, _bounded(waiting)


def _winners(names: Sequence[str], tickets: Mapping[str, float], random: Random) -> Iterator[str]:
    """Draws with replacement, without end."""
    upto = list(itertools.accumulate(tickets[n] for n in names))
    draw, last = random.random, len(names) - 1
    while True:
        yield names[bisect.bisect_right(upto, draw() * upto[-1], 0, last)]


def _bounded(waiting: list[str]) -> list[str]:
    if max(Counter(waiting).values(), default=0) <= MOST_CLAIMS:
        return waiting
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
