"""The two lotteries that Gandiva-fair compares its stride scheduler with (§3.1, Table 2).

Gang-aware: lotteries with replacement until the GPUs are full; every win is a claim to one quantum. A winner that does
not fit now, or already runs, keeps its claim in a queue that is served first in the next quanta. (The paper does not
say what a winner that already runs does; only with a queued claim do the long-run shares become the fair ones.)
With backfill: lotteries without replacement; a winner that does not fit is skipped and loses nothing but its turn.

`homes` maps a job to node -> GPUs (its gang), `tickets` are already divided by gang size, `free` is node -> GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

Homes = Mapping[str, Mapping[str, int]]


class _Room:
    def __init__(self, free: Mapping[str, int]) -> None:
        self._free = dict(free)

    def fits(self, home: Mapping[str, int]) -> bool:
        return all(self._free.get(node, 0) >= n for node, n in home.items())

    def take(self, home: Mapping[str, int]) -> None:
        for node, n in home.items():
            self._free[node] -= n


def gang_lottery(
    homes: Homes, tickets: Mapping[str, float], free: Mapping[str, int], queue: Sequence[str], random: Random
) -> tuple[list[str], list[str]]:
    """(who runs this quantum, the queue of claims after it)."""
    room = _Room(free)
    running: list[str] = []
    waiting: list[str] = []

    def serve(job: str) -> bool:
        if job in running or not room.fits(homes[job]):
            return False
        running.append(job)
        room.take(homes[job])
        return True

    for job in queue:
        if job in homes and not serve(job):
            waiting.append(job)
    names = sorted(homes)
    weights = [tickets[n] for n in names]
    could = [n for n in names if n not in running and tickets[n] > 0]
    while could := [n for n in could if n not in running and room.fits(homes[n])]:
        (winner,) = random.choices(names, weights)
        if not serve(winner):
            waiting.append(winner)
    return running, waiting


def backfill_lottery(homes: Homes, tickets: Mapping[str, float], free: Mapping[str, int], random: Random) -> list[str]:
    """Who runs this quantum."""
    room = _Room(free)
    running: list[str] = []
    left = sorted(n for n in homes if tickets[n] > 0)
    while left:
        (winner,) = random.choices(left, [tickets[n] for n in left])
        left.remove(winner)
        if room.fits(homes[winner]):
            running.append(winner)
            room.take(homes[winner])
    return running
