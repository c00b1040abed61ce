"""Baselines that take turns against their rules written out, round after round, with arrivals and ends.

One node and rigid gangs: what is compared is who runs in each round. What is served is what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from math import isclose, prod
from random import Random

import pytest

from policy.decide import decide
from policy.gandiva_fair.lottery import backfill_lottery
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Work

ROUND_S = 600.0


@dataclass
class Mine:
    """What the written-out rule remembers of a job."""

    name: str
    gang: int
    came_s: float
    length_s: float
    attained: float = 0.0
    base: float = 0.0
    ran_s: float = 0.0  #: when it was last seen running; at first when it came
    began_s: float = 0.0
    holds: bool = field(default=False)

    @property
    def left(self) -> float:
        return self.length_s * self.gang - self.attained

    @property
    def line(self) -> tuple[float, str]:
        return (self.came_s, self.name)


def world(seed: int) -> tuple[int, list[Mine]]:
    random = Random(seed)
    gpus, jobs = random.randint(2, 6), list[Mine]()
    for i in range(random.randint(3, 8)):
        came = ROUND_S * random.choice((0, 0, 0, 1, 4, 9)) + random.choice((0.0, 5.0))
        length = ROUND_S * random.choice((1, 3, 12, 40))
        jobs.append(Mine(f"j{i}", random.randint(1, min(3, gpus)), came, length, ran_s=came))
    return gpus, jobs


def job(mine: Mine) -> Job:
    gang = mine.gang
    return Job(
        mine.name, mine.name, mine.name, GpuRange(gang, gang, gang), mine.came_s,
        Work(mine.length_s * gang, mine.attained), {"g": {gang: float(gang)}},
        attained={"g": mine.attained}, allocation={"n": gang} if mine.holds else {},
    )  # fmt: skip


Rule = Callable[[list[Mine], int, float], set[str]]


def played(policy: str, rule: Rule, seed: int, rounds: int = 30) -> Iterator[tuple[set[str], set[str]]]:
    """Each round: (who runs by the rule, who runs by the decision)."""
    gpus, jobs = world(seed)
    state: dict[str, object] = {}
    for number in range(rounds):
        now = number * ROUND_S
        here = [m for m in jobs if m.came_s <= now and m.left > 0]
        tenants = tuple(Tenant(m.name) for m in here)
        cluster = Cluster((Node("n", "g", gpus),), gpu_types=("g",))
        decision = decide(Snapshot(cluster, tuple(map(job, here)), tenants, now, state=state), policy)
        runs = rule(here, gpus, now)
        yield runs, {name for name, place in decision.allocation.items() if place}
        state = dict(decision.state)
        for mine in here:
            mine.holds = mine.name in runs
            mine.attained += mine.gang * ROUND_S * mine.holds
            mine.holds &= mine.left > 0


def filled(order: list[Mine], gpus: int) -> set[str]:
    """Gangs in this order; who does not fit is skipped."""
    runs = set()
    for mine in order:
        if mine.gang <= gpus:
            gpus -= mine.gang
            runs.add(mine.name)
    return runs


def tiresias(jobs: list[Mine], gpus: int, now: float) -> set[str]:
    """Tiresias-L: two queues by GPUs x time, first come first served in each; back to the first, with an account begun
    anew, after a wait of eight times as long as it ran."""
    for mine in jobs:
        if mine.holds:
            mine.ran_s = now
        executed = (mine.attained - mine.base) / mine.gang
        if mine.attained - mine.base >= 3600 and not mine.holds and now - mine.ran_s >= 8 * executed:
            mine.base = mine.attained
    order = sorted(jobs, key=lambda m: (m.attained - m.base >= 3600, m.line))
    return filled(order, gpus)


def las(jobs: list[Mine], gpus: int, now: float) -> set[str]:
    return filled(sorted(jobs, key=lambda m: (m.attained, m.line)), gpus)


def gandiva(jobs: list[Mine], gpus: int, now: float) -> set[str]:
    """Every round is a quantum: who ran it gives way to those that wait, the longest-waiting first; what those leave
    over goes back to those whose turn it was, the last to have begun first."""
    for mine in jobs:
        if mine.holds:
            mine.ran_s = now
    waiting = sorted((m for m in jobs if not m.holds), key=lambda m: (m.ran_s, m.line))
    running = sorted((m for m in jobs if m.holds), key=lambda m: (-m.began_s, m.line))
    runs = filled([*waiting, *running], gpus)
    for mine in jobs:
        if mine.name in runs and (waiting or not mine.holds):
            mine.began_s = now
    return runs


@pytest.mark.parametrize(("policy", "rule"), [("tiresias-l", tiresias), ("las", las), ("gandiva", gandiva)])
def test_round_after_round_those_run_whom_the_rule_says(policy: str, rule: Rule) -> None:
    changes = 0
    for seed in range(6):
        before: set[str] = set()
        for number, (expected, got) in enumerate(played(policy, rule, seed)):
            assert got == expected, (seed, number)
            changes += got != before
            before = got
    assert changes > 30, "somebody takes turns"


def test_a_lottery_with_backfill_draws_as_tickets_say() -> None:
    """The chance of every set of runners: over all orders of drawing without replacement, who fits runs."""
    sizes, tickets = {"a": 1, "b": 2, "c": 3, "d": 1}, {"a": 1.0, "b": 4.0, "c": 2.0, "d": 0.5}
    chance: dict[frozenset[str], float] = {}
    for order in permutations(sizes):
        odds = prod(tickets[name] / sum(tickets[o] for o in order[i:]) for i, name in enumerate(order))
        free, runs = 3, set[str]()
        for name in order:
            if sizes[name] <= free:
                free -= sizes[name]
                runs.add(name)
        chance[frozenset(runs)] = chance.get(frozenset(runs), 0.0) + odds
    assert isclose(sum(chance.values()), 1.0)
    draws, seen = 4000, dict.fromkeys(chance, 0)
    homes = {name: {"n": gang} for name, gang in sizes.items()}
    for seed in range(draws):
        seen[frozenset(backfill_lottery(homes, tickets, {"n": 3}, Random(seed)))] += 1
    for runs, p in chance.items():
        assert abs(seen[runs] / draws - p) < 4 * (p * (1 - p) / draws) ** 0.5 + 1e-9, runs


def test_optimus_gives_each_gpu_to_the_job_whose_end_comes_nearest() -> None:
    """Smallest gangs as they came, then GPU by GPU the largest fall of the remaining time."""
    for seed in range(60):
        random = Random(seed)
        free = random.randint(2, 9)
        node, jobs = Node("n", "g", free), list[Job]()
        for i in range(random.randint(1, 4)):
            low, bend, speed = random.randint(1, 2), random.choice((0.3, 0.6, 0.9)), random.choice((0.3, 1.0, 5.0))
            table = {n: speed * n**bend for n in range(1, 10)}
            total = random.choice((100.0, 400.0, 2000.0))
            work = Work(total, total * random.choice((0.0, 0.25)))
            jobs.append(Job(f"j{i}", f"j{i}", f"j{i}", GpuRange(low, low, low + 6), float(i), work, {"g": table}))
        expected = dict.fromkeys((j.name for j in jobs), 0)
        for each in jobs:
            if each.gpus.min <= free:
                expected[each.name] = each.gpus.min
                free -= each.gpus.min

        def fall(each: Job, has: int) -> float:
            rates, left = each.throughput["g"], each.work.left or 0.0
            return left / rates[has] - left / rates[has + 1]

        while could := [j for j in jobs if free and 0 < expected[j.name] < (j.gpus.max or 0)]:
            best = min(could, key=lambda j: (-float(f"{fall(j, expected[j.name]):.12g}"), j.order))
            expected[best.name] += 1
            free -= 1
        decision = decide(
            Snapshot(Cluster((node,), gpu_types=("g",)), tuple(jobs), tuple(Tenant(j.name) for j in jobs)), "optimus"
        )
        got = {name: sum(place.values()) for name, place in decision.allocation.items()}
        assert got == expected, seed
