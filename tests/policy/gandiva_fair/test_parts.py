"""Gandiva-fair's parts against the paper's printed numbers and against what they promise on any instance."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.gandiva_fair.homes import Site, tickets_per_gpu
from policy.gandiva_fair.lottery import MOST_CLAIMS, backfill_lottery, gang_lottery
from policy.gandiva_fair.parts import _Nodes, parts
from policy.gandiva_fair.stride import Contender, advance, gang_stride, join, split_stride, stride
from policy.gandiva_fair.trading import price_of, trade, undone
from policy.parts.fair_shares import fair_shares
from tests.policy import worlds


def run_quanta(
    sizes: dict[str, tuple[str, int]], tickets: dict[str, float], gpus: int, quanta: int
) -> dict[str, float]:
    """Fraction of quanta in which each job ran on one node; `sizes` maps a job to (tenant, gang)."""
    homes = {job: {"node": size} for job, (_, size) in sizes.items()}
    demand = Counter[str]()
    for tenant, size in sizes.values():
        demand[tenant] += size
    entitled = fair_shares(tickets, {t: float(n) for t, n in demand.items()}, gpus)
    part = parts(homes, {job: tenant for job, (tenant, _) in sizes.items()}, entitled, {"node": gpus})
    passes = {job: join([], part[job]) for job in sizes}
    ran = Counter[str]()
    for _ in range(quanta):
        entries = [Contender(job, size, passes[job], (0.0, job)) for job, (_, size) in sizes.items()]
        for job in gang_stride(entries, gpus):
            ran[job] += 1
            passes[job] = advance(passes[job], part[job], 1)
    return {job: ran[job] / quanta for job in sizes}


TABLE_2 = {f"{user}{i}": (user, size) for user, size in (("A", 1), ("B", 2), ("C", 4)) for i in (1, 2)}


def test_table_2_stride_is_exact_after_six_quanta() -> None:
    got = run_quanta(TABLE_2, dict.fromkeys("ABC", 100.0), gpus=4, quanta=6)
    assert got == pytest.approx({"A1": 2 / 3, "A2": 2 / 3, "B1": 1 / 3, "B2": 1 / 3, "C1": 1 / 6, "C2": 1 / 6})


def test_section_5_1_gives_each_of_three_users_a_third_of_four_gpus() -> None:
    jobs = {f"{user}{i}": (user, size) for user, size in (("1", 1), ("2", 2), ("3", 4)) for i in range(4)}
    got = run_quanta(jobs, dict.fromkeys("123", 100.0), gpus=4, quanta=240)
    for user, size in (("1", 1), ("2", 2), ("3", 4)):
        assert sum(got[j] * size for j, (u, _) in jobs.items() if u == user) == pytest.approx(4 / 3, rel=0.03)


@given(
    sizes=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 2, 4])), min_size=1, max_size=8),
    weights=st.tuples(*[st.integers(1, 5)] * 3),
)
def test_a_skipped_gang_runs_at_the_latest_once_all_of_smaller_pass_ran(
    sizes: list[tuple[str, int]], weights: tuple[int, int, int]
) -> None:
    jobs = {f"j{i}": s for i, s in enumerate(sizes)}
    got = run_quanta(jobs, dict(zip("abc", map(float, weights), strict=True)), gpus=4, quanta=200)
    assert all(share > 0 for share in got.values())


@given(passes=st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.integers(0, 9), min_size=1, max_size=6))
def test_the_smallest_pass_that_fits_always_runs(passes: dict[str, int]) -> None:
    entries = [Contender(n, 1 + len(n) % 3, p, (0.0, n)) for n, p in passes.items()]
    chosen = gang_stride(entries, 4)
    first = min(entries, key=lambda e: e.order)
    assert first.name in chosen
    used = sum(e.size for e in entries if e.name in chosen)
    assert used <= 4
    assert all(e.size > 4 - used for e in entries if e.name not in chosen), "work conserving"


def test_figure_2_split_stride_gives_the_large_job_one_quantum_in_three() -> None:
    # Small jobs of 200 tickets a server, the 8-GPU job 100 (§3.1): two of three slots against one of three.
    nodes = {"s1": 4, "s2": 4}
    passes = {"s1-full": stride(2 / 3), "s2-full": stride(2 / 3), "big": stride(1 / 3)}
    ran = Counter[str]()
    for _ in range(30):
        small = {n: [Contender(f"{n}-full", 4, passes[f"{n}-full"], (0.0, n))] for n in nodes}
        big = Contender("big", 8, passes["big"], (0.0, "big"))
        got = split_stride(nodes, small, [(big, {"s1": 4, "s2": 4})], {n: passes[f"{n}-full"] for n in nodes})
        assert sorted(got) in (["big"], ["s1-full", "s2-full"])
        for job in got:
            ran[job] += 1
            passes[job] += stride(1 / 3 if job == "big" else 2 / 3)
    assert (ran["big"], ran["s1-full"], ran["s2-full"]) == (10, 20, 20)


def test_table_3_trading_reaches_the_printed_allocation() -> None:
    start = {t: {"k80": 20.0, "v100": 4.0} for t in "ABC"}
    speed = {t: {"k80": 1.0, "v100": v} for t, v in zip("ABC", (1.25, 5.0, 6.25), strict=True)}
    have, trades = trade(start, speed, ["k80", "v100"])
    assert have == {
        "A": {"k80": 40.0, "v100": 0.0},
        "B": {"k80": 20.0, "v100": 4.0},
        "C": {"k80": 0.0, "v100": 8.0},
    }
    assert [(t.high, t.low, t.fast_gpus, t.price) for t in trades] == [("C", "A", 4.0, 5.0)]
    worth = {t: have[t]["k80"] + have[t]["v100"] * speed[t]["v100"] for t in "ABC"}
    assert worth == {"A": 40.0, "B": 40.0, "C": 50.0}


def test_without_a_second_bidder_the_surplus_is_halved() -> None:
    assert price_of([5.0], 1.0) == 3.0


speeds = st.dictionaries(st.sampled_from("ABCDE"), st.tuples(st.floats(1, 8), st.floats(1, 8)), min_size=2, max_size=5)


@given(speeds=speeds, gpus=st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(0, 20)), whole=st.booleans())
def test_nobody_ends_below_its_fair_share_and_nothing_is_made_or_lost(
    speeds: dict[str, tuple[float, float]], gpus: tuple[int, int, int], whole: bool
) -> None:
    types = ["k80", "p100", "v100"]
    speed = {t: {"k80": 1.0, "p100": a, "v100": a * b} for t, (a, b) in speeds.items()}
    start = {t: {g: k / len(speeds) for g, k in zip(types, gpus, strict=True)} for t in speeds}
    have, _ = trade(start, speed, types, unit=1.0 if whole else 0.0)
    for tenant in speeds:
        before = sum(start[tenant][g] * speed[tenant][g] for g in types)
        after = sum(have[tenant][g] * speed[tenant][g] for g in types)
        assert after >= before * (1 - 1e-9)
        assert min(have[tenant].values()) >= -1e-9
    for g, k in zip(types, gpus, strict=True):
        assert sum(share[g] for share in have.values()) == pytest.approx(k, abs=1e-6)


def test_a_trade_that_an_arrival_makes_impossible_is_named_as_undone() -> None:
    speed = {t: {"k80": 1.0, "v100": v} for t, v in zip("ABC", (1.25, 5.0, 6.25), strict=True)}
    _, before = trade({t: {"k80": 20.0, "v100": 4.0} for t in "ABC"}, speed, ["k80", "v100"])
    _, after = trade({t: {"k80": 10.0, "v100": 2.0} for t in "ABC"}, speed, ["k80", "v100"])
    (back,) = undone(before, after)
    assert (back.high, back.low, back.fast_gpus) == ("C", "A", 2.0)


@given(
    tickets=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1),
    demand=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 12)),
    gpus=st.integers(0, 30),
)
def test_fair_shares_are_capped_proportional_and_divide_everything(
    tickets: dict[str, int], demand: dict[str, int], gpus: int
) -> None:
    weights, wants = {t: float(w) for t, w in tickets.items()}, {t: float(d) for t, d in demand.items()}
    got = fair_shares(weights, wants, gpus)
    total = sum(wants.get(t, 0.0) for t in weights)
    assert sum(got.values()) == pytest.approx(min(gpus, total))
    assert all(got[t] <= wants.get(t, 0.0) + 1e-9 for t in got)
    hungry = {t: got[t] / weights[t] for t in got if got[t] < wants.get(t, 0.0) - 1e-9}
    if hungry:
        level = max(hungry.values())
        assert min(hungry.values()) == pytest.approx(level)
        assert all(got[t] / weights[t] <= level + 1e-9 for t in got)


def test_ticket_load_of_a_node() -> None:
    per_gpu = tickets_per_gpu({"a": 100.0, "b": 100.0}, {"a": 2, "b": 4})
    assert per_gpu == {"a": 50.0, "b": 25.0}
    site = Site.of(worlds.world(worlds.cluster("n1 v 4")))
    for name, tenant, size in (("j1", "a", 1), ("gone", "a", 2), ("j2", "b", 4)):
        site.settle(worlds.job(name, size), {"n1": size}, per_gpu[tenant])
    site.leave(worlds.job("gone", 2), per_gpu["a"])
    assert site.load_per_gpu("n1") == (50.0 + 100.0) / 4


shapes = st.lists(st.tuples(st.sampled_from(["k", "v"]), st.integers(1, 4)), min_size=1, max_size=7)
gangs = st.lists(st.tuples(st.sampled_from(["k", "v"]), st.integers(1, 9), st.floats(0.1, 5)), max_size=12)


@given(shapes, gangs, st.booleans(), st.sets(st.integers(0, 11)))
def test_the_least_loaded_nodes_are_those_of_a_full_sort(
    shapes: list[tuple[str, int]], gangs: list[tuple[str, int, float]], equal: bool, ended: set[int]
) -> None:
    site = Site.of(worlds.world(worlds.cluster(*(f"n{i} {t} {g}" for i, (t, g) in enumerate(shapes)))))
    jobs = [worlds.job(f"j{i}", size) for i, (_, size, _) in enumerate(gangs)]
    for i, (one, (kind, size, per_gpu)) in enumerate(zip(jobs, gangs, strict=True)):
        found = site.best(size, kind, equal)
        assert found == sorted_best(site, size, kind, equal)
        if found:
            site.settle(one, found, per_gpu)
        if i in ended:
            site.leave(jobs[i // 2], gangs[i // 2][2])


def sorted_best(site: Site, size: int, kind: str, equal: bool) -> dict[str, int] | None:
    nodes = sorted((n for n, t in site.type_of.items() if t == kind), key=lambda n: (site.load_per_gpu(n), n))
    whole = [n for n in nodes if site.gpus[n] >= size]
    if whole:
        return {whole[0]: size}
    if equal:
        for count in (k for k in range(1, size + 1) if size % k == 0):
            wide = [n for n in nodes if site.gpus[n] >= size // count]
            if len(wide) >= count:
                return dict.fromkeys(wide[:count], size // count)
        return None
    home, left = {}, size
    for n in sorted(nodes, key=lambda n: -site.gpus[n]):
        home[n] = min(left, site.gpus[n])
        left -= home[n]
        if not left:
            return home
    return None


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 2), min_size=1), st.integers(1, 3), st.sampled_from("ab")), max_size=9),
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.floats(0.0, 6.0),
)
def test_parts_are_within_every_node_and_equal_to_one_node_at_a_time(
    gangs: list[tuple[set[int], int, str]], sizes: list[int], entitled: float
) -> None:
    gpus = {f"n{i}": n for i, n in enumerate(sizes)}
    homes = {f"j{i}": {f"n{k}": min(n, sizes[k]) for k in sorted(on)} for i, (on, n, _) in enumerate(gangs)}
    tenant_of = {f"j{i}": t for i, (_, _, t) in enumerate(gangs)}
    got = parts(homes, tenant_of, {"a": entitled, "b": 2.0}, gpus)
    assert set(got) == set(homes)
    for node, n in gpus.items():
        assert sum(got[j] * home.get(node, 0) for j, home in homes.items()) <= n + 1e-6
    weight = np.array([1.0 + i for i in range(len(homes))])
    whole = dict.fromkeys(homes, 1.0)
    for node, n in gpus.items():
        wants = {j: float(h[node]) for j, h in homes.items() if node in h}
        tickets = {j: float(weight[list(homes).index(j)]) * w for j, w in wants.items()}
        for j, x in fair_shares(tickets, wants, n).items():
            whole[j] = min(whole[j], x / wants[j])
    assert list(_Nodes.of(homes, gpus).parts(weight)) == pytest.approx(list(whole.values()))


@given(st.integers(0, 50))
def test_both_lotteries_leave_no_room_to_a_job_that_fits(seed: int) -> None:
    homes = {f"j{i}": {f"n{i % 3}": 1 + i % 4} for i in range(9)}
    tickets = {j: 1.0 + i for i, j in enumerate(homes)}
    free = {"n0": 4, "n1": 2, "n2": 5}
    ran, waiting = gang_lottery(homes, tickets, free, ["gone", "j8", "j8"], Random(seed))
    assert "j8" in ran
    assert "gone" not in waiting
    assert set(waiting) <= set(homes)
    for chosen in (ran, backfill_lottery(homes, tickets, free, Random(seed))):
        left = dict(free)
        for j in chosen:
            for node, n in homes[j].items():
                left[node] -= n
        assert min(left.values()) >= 0
        assert not [j for j in homes if j not in chosen and all(left[n] >= k for n, k in homes[j].items())]


def test_claims_of_a_job_that_runs_in_every_quantum_do_not_grow_for_ever() -> None:
    """It has a node to itself and nearly all tickets; what is drawn while the other node is free falls to it."""
    homes, free = {"heavy": {"n0": 1}, "light": {"n1": 1}}, {"n0": 1, "n1": 1}
    queue: list[str] = []
    for quantum in range(20):
        ran, queue = gang_lottery(homes, {"heavy": 1e6, "light": 1.0}, free, queue, Random(quantum))
        assert set(ran) == set(homes)
    assert len(queue) <= MOST_CLAIMS


class _Seen(dict[str, int]):
    """A home that counts how often somebody looks at what it needs."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_a_lottery_looks_at_who_has_no_room_once_however_often_it_is_drawn() -> None:
    homes = {f"j{i}": _Seen(n0=9 if i == 0 else 1) for i in range(30)}
    tickets = {j: 1000.0 if j == "j0" else 1.0 for j in homes}
    ran, waiting = gang_lottery(homes, tickets, {"n0": 8}, [], Random(3))
    assert len(ran) == 8
    assert waiting.count("j0") > 20
    assert homes["j0"].looks <= 2
