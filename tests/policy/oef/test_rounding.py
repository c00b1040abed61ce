"""Whole GPUs for one round, against every way to give them."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from policy.model import GpuRange, Job
from policy.oef.kinds import Kind, usable
from policy.oef.rounding import whole

ROWS = "abcd"


def kinds_of(rng: Random) -> list[Kind]:
    """Tenants of a few gangs each, rigid, elastic and listed."""
    made = []
    for row in ROWS:
        jobs = []
        for i in range(rng.randint(1, 3)):
            low = rng.choice((1, 2, 3, 4, 5))
            gang = rng.choice((GpuRange(low, low, low), GpuRange(low, low, low + 2), GpuRange(low, low, None)))
            gang = rng.choice((gang, GpuRange(1, 1, 4, (1, 4))))
            jobs.append(Job(f"{row}{i}", row, row, gang))
        made.append(Kind(row, tuple(jobs), (1.0,)))
    return made


def sums(kind: Kind, most: int, first: str = "") -> set[int]:
    """GPUs that gangs of some of its jobs use together, tried one by one; `first`: one that is among them."""
    sizes = [[n for n in range(most + 1) if job.gpus.feasible(n) and (n or job.name != first)] for job in kind.jobs]
    return {n for n in map(sum, product(*sizes)) if n <= most}


@pytest.mark.parametrize("seed", range(30))
def test_what_gangs_can_use_together_is_what_trying_all_of_them_finds(seed: int) -> None:
    rng = Random(seed)
    kinds, most = kinds_of(rng), rng.randint(1, 12)
    first = {kind.tenant: rng.choice(kind.jobs).name for kind in kinds}
    found = usable(kinds, {"g": most}, set(first.values()), lambda _job, _type: True)
    for kind in kinds:
        all_of_them, in_turn = found[kind.tenant]["g"]
        assert {n for n in range(most + 2) if all_of_them >> n & 1} == sums(kind, most)
        assert {n for n in range(most + 2) if in_turn >> n & 1} == sums(kind, most, first[kind.tenant])


@pytest.mark.parametrize("seed", range(100))
def test_no_other_whole_gpus_are_nearer_to_what_is_owed(seed: int) -> None:
    """In squares, of all that gangs can use: then every debt stays bounded, where shares can be had at all. What stays
    over then goes to somebody, further from it."""
    rng = Random(seed)
    kinds, there = kinds_of(rng), rng.randint(6, 14)
    parts = [rng.random() for _ in ROWS]
    ideal = {row: {"g": there * part / sum(parts)} for row, part in zip(ROWS, parts, strict=True)}
    owed = {row: {"g": rng.uniform(-3.0, 6.0)} for row in ROWS}
    can = usable(kinds, {"g": there}, set(), lambda _job, _type: True)
    real = {row: of.get("g", 0) for row, of in whole(ideal, owed, {"g": there}, can, dict.fromkeys(ROWS, 1e9)).items()}
    want = {row: max(ideal[row]["g"] + owed[row]["g"], 0.0) for row in ROWS}

    def off(given: tuple[int, ...]) -> float:
        return sum((want[row] - n) ** 2 for row, n in zip(ROWS, given, strict=True))

    ways = [given for given in product(*(sums(kind, there) for kind in kinds)) if sum(given) <= there]
    least = min(map(off, ways))
    given = tuple(real[row] for row in ROWS)
    assert given in ways
    nearest = [way for way in ways if off(way) <= least + 1e-6]
    assert any(all(has >= n for has, n in zip(given, way, strict=True)) for way in nearest)


def test_a_debt_that_is_more_than_its_gangs_use_together_counts_whole() -> None:
    """Of eight GPUs 2, 3 and 2 are nearest where the last, who can use 4, counts as wanting 4: the same every round."""
    ideal = {"ann": {"g": 1.6}, "ben": {"g": 3.2}, "eve": {"g": 3.2}}
    owed = {"ann": {"g": 1.6}, "ben": {"g": 0.6}, "eve": {"g": 8.0}}
    gangs = {"ann": [2, 2, 2, 3], "ben": [3, 3, 3], "eve": [2, 2]}
    can = {}
    for row, sizes in gangs.items():
        together = {sum(some) for n in range(len(sizes) + 1) for some in combinations(sizes, n)}
        can[row] = {"g": (sum(1 << n for n in together if n <= 8), 0)}
    largest = {row: float(sum(sizes)) for row, sizes in gangs.items()}
    assert whole(ideal, owed, {"g": 8}, can, largest)["eve"] == {"g": 4}
