"""The two lotteries that Gandiva-fair compares its stride scheduler with (§3.1, Table 2).

Gang-aware: lotteries with replacement until the GPUs are full; every win is a claim to one quantum. A winner that does
not fit now, or already runs, keeps its claim in a queue that is served first in the next quantums. (The paper does not
say what a winner that already runs does; only with a queued claim do the long-run shares become the fair ones.)
With backfill: lotteries without replacement; a winner that does not fit is skipped and loses nothing but its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random


def gang_lottery(
    sizes: Mapping[str, int], tickets: Mapping[str, float], free: int, queue: Sequence[str], random: Random
) -> tuple[list[str], list[str]]:
    """(who runs this quantum, the queue of claims after it). `tickets` are already divided by gang size."""
    running: list[str] = []
    waiting: list[str] = []

    def serve(job: str) -> bool:
        nonlocal free
        if job in running or sizes[job] > free:
            return False
        running.append(job)
        free -= sizes[job]
        return True

    for job in queue:
        if job in sizes and not serve(job):
            waiting.append(job)
    names = sorted(sizes)
    weights = [tickets[n] for n in names]
    while any(sizes[n] <= free and n not in running for n in names):
        (winner,) = random.choices(names, weights)
        if not serve(winner):
            waiting.append(winner)
    # Claims beyond a hundred quanta a job are noise of the drawing, and would only grow the state.
    return running, waiting[: 100 * max(len(names), 1)]


def backfill_lottery(sizes: Mapping[str, int], tickets: Mapping[str, float], free: int, random: Random) -> list[str]:
    """Who runs this quantum."""
    running: list[str] = []
    left = sorted(sizes)
    while left and free > 0:
        (winner,) = random.choices(left, [tickets[n] for n in left])
        left.remove(winner)
        if sizes[winner] <= free:
            running.append(winner)
            free -= sizes[winner]
    return running
