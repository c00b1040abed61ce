"""Schedulers as a textbook has them: one pool of equal GPUs, changes cost nothing, time jumps from event to event.

Nothing here is Horae's: jobs are numbers, and each policy is written from its own paper's text, by the shortest way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf


@dataclass(eq=False)
class Task:
    """`speed[n]`: work/s on n GPUs, from 0 to `most`; `work` is what `gpus` GPUs do in `duration`."""

    name: str
    submitted: float
    gpus: int
    work: float
    least: int
    most: int
    speed: list[float]
    tenant: str = "t"
    left: float = 0.0
    attained: float = 0.0
    finished: float | None = None


Shares = dict[Task, float]
#: Who has how many GPUs (a fraction is a part of the time), and how long that holds at most.
Rule = Callable[[list[Task], int], tuple[Shares, float]]


def play(tasks: list[Task], gpus: int, rule: Rule) -> dict[str, float]:
    """When each task ends."""
    now, here, coming = 0.0, list[Task](), sorted(tasks, key=lambda t: (t.submitted, t.name))
    for task in tasks:
        task.left, task.attained, task.finished = task.work, 0.0, None
    while here or coming:
        shares, at_most = rule(here, gpus)
        rates = {t: speed(t, n) for t, n in shares.items()}
        ends = min((t.left / r for t, r in rates.items() if r > 0), default=inf)
        step = min(ends, at_most, coming[0].submitted - now if coming else inf)
        for task, rate in rates.items():
            task.left -= rate * step
            task.attained += shares[task] * step
        now += step
        for task in [t for t in here if t.left <= 1e-9 * t.work]:
            task.finished = now
            here.remove(task)
        while coming and coming[0].submitted <= now + 1e-12:
            here.append(coming.pop(0))
    return {t.name: t.finished for t in tasks if t.finished is not None}


def speed(task: Task, gpus: float) -> float:
    """Part of the time on all its GPUs, where it has fewer than its smallest gang."""
    if gpus < task.least:
        return task.speed[task.least] * gpus / task.least
    return task.speed[round(gpus)]


def fifo(here: list[Task], gpus: int) -> tuple[Shares, float]:
    shares: Shares = {}
    for task in here:  # whoever runs came before whoever waits
        if task.gpus > gpus:
            break
        shares[task] = task.gpus
        gpus -= task.gpus
    return shares, inf


def srtf(here: list[Task], gpus: int) -> tuple[Shares, float]:
    shares: Shares = {}
    for task in sorted(here, key=lambda t: t.left / t.speed[t.gpus]):
        if task.gpus <= gpus:
            shares[task] = task.gpus
            gpus -= task.gpus
    return shares, inf


def max_min(here: list[Task], gpus: int) -> tuple[Shares, float]:
    """The next GPUs to the tenant that has fewest, within it to the job that has fewest."""
    shares: Shares = {}
    open_ = list(here)
    first = {}
    for place, task in enumerate(here):
        first.setdefault(task.tenant, place)
    while open_:
        of_tenant = {t.tenant: sum(n for o, n in shares.items() if o.tenant == t.tenant) for t in open_}
        tenant = min(of_tenant, key=lambda name: (of_tenant[name], first[name]))
        task = min((t for t in open_ if t.tenant == tenant), key=lambda t: (shares.get(t, 0), here.index(t)))
        step = 1 if task in shares else task.least
        if shares.get(task, 0) + step > task.most or step > gpus:
            open_.remove(task)
            continue
        shares[task] = shares.get(task, 0) + step
        gpus -= step
    return shares, inf


def las(here: list[Task], gpus: int) -> tuple[Shares, float]:
    """Jobs of one GPU each: the least served share what there is until they meet the next."""
    shares: Shares = {}
    until, left = inf, float(gpus)
    levels: dict[float, list[Task]] = {}
    for task in sorted(here, key=lambda t: t.attained):
        near = next((a for a in levels if abs(a - task.attained) <= 1e-6 * max(task.attained, 1.0)), task.attained)
        levels.setdefault(near, []).append(task)
    order = sorted(levels)
    rates = []
    for level in order:
        rate = min(1.0, left / len(levels[level]))
        left -= rate * len(levels[level])
        rates.append(rate)
        shares |= {t: rate for t in levels[level] if rate > 0}
    for i in range(len(order) - 1):
        if rates[i] > rates[i + 1]:
            until = min(until, (order[i + 1] - order[i]) / (rates[i] - rates[i + 1]))
    return shares, until


def afs_l(here: list[Task], gpus: int) -> tuple[Shares, float]:
    """Algorithm 1: the smallest gangs to the shortest, then each GPU to the winner of all comparisons (3)."""
    shares: Shares = {}
    for task in sorted(here, key=lambda t: t.left / t.speed[t.least]):
        if task.least <= gpus:
            shares[task] = task.least
            gpus -= task.least
    while gpus:
        able = [t for t in here if t in shares and shares[t] < t.most and _up(t, shares) > 1e-12]
        if not able:
            break
        top = able[0]
        for task in able[1:]:
            if top.left / _now(top, shares) <= task.left / _now(task, shares):
                wins = _up(task, shares) > _down(top, shares) * (1 + 1e-12)
            else:
                wins = _down(task, shares) > _up(top, shares) * (1 + 1e-12)
            top = task if wins else top
        shares[top] += 1
        gpus -= 1
    return shares, inf


def _now(task: Task, shares: Shares) -> float:
    return task.speed[round(shares[task])]


def _gain(task: Task, shares: Shares) -> float:
    return task.speed[round(shares[task]) + 1] - _now(task, shares)


def _up(task: Task, shares: Shares) -> float:
    return _gain(task, shares) / (_now(task, shares) + _gain(task, shares))


def _down(task: Task, shares: Shares) -> float:
    return _gain(task, shares) / _now(task, shares)
