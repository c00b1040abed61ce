"""Gangs that leave parts of nodes over: whether they go onto the nodes is decided exactly, without naming nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from random import Random
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decide import decide
from policy.model import Termination
from policy.themis.auction import auction, realise
from policy.themis.auction.realise import Order, Undecided
from policy.themis.auction.rows import Demand, PerGpu
from policy.themis.offer import NodeClass, Offer
from tests.policy.themis.worlds import job, node, rounds, world

FREE = PerGpu(0.0, 0)


def offer(shapes: Sequence[tuple[int, int]]) -> tuple[list[NodeClass], Offer]:
    """Classes of (nodes, GPUs of each)."""
    classes = [
        NodeClass(i, "v100", f"r{i}", gpus, tuple(f"n{i}-{k}" for k in range(count)))
        for i, (count, gpus) in enumerate(shapes)
    ]
    of = {n: c for c in classes for n in c.nodes}
    free = {n: c.free for n, c in of.items()}
    return classes, Offer(free, {}, {}, {}, {n: c.rack for n, c in of.items()}, dict.fromkeys(of, "v100"))


def packs(chunks: Sequence[tuple[tuple[int, ...], int]], free: dict[int, tuple[int, ...]]) -> bool:
    """Every way to put chunks, each on one node of its classes; nodes of a class that are as full are alike."""
    if not chunks:
        return True
    (domain, size), rest = chunks[0], chunks[1:]
    for i in domain:
        for left in sorted(set(free[i])):
            if left >= size:
                others = list(free[i])
                others[others.index(left)] -= size
                if packs(rest, {**free, i: tuple(others)}):
                    return True
    return False


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=5),
)
def test_chunks_are_placed_exactly_where_they_can_be(
    shapes: list[tuple[int, int]], asked: list[tuple[int, int, int]]
) -> None:
    classes, offered = offer(shapes)
    orders = []
    for k, (bits, chunk, times) in enumerate(asked):
        domain = tuple(c.index for c in classes if bits >> c.index & 1) or (0,)
        orders.append(Order(f"a{k}", (Demand(domain, chunk, times),), FREE))
    wins = realise._by_program(orders, classes, offered)
    chunks = sorted(
        ((d.domain, d.chunk) for o in orders for d in o.demands for _ in range(d.times)), key=lambda c: -c[1]
    )
    assert (wins is not None) == packs(chunks, {c.index: (c.free,) * len(c.nodes) for c in classes})
    if wins is None:
        return
    used = dict.fromkeys(offered.free, 0)
    for order in orders:
        (demand,), mine = order.demands, wins[order.app]
        assert sum(mine.values()) == demand.chunk * demand.times
        assert all(gpus % demand.chunk == 0 for gpus in mine.values())
        assert mine.keys() <= {n for i in demand.domain for n in classes[i].nodes}
        for name, gpus in mine.items():
            used[name] += gpus
    assert all(used[n] <= gpus for n, gpus in offered.free.items())


def gangs(seed: int) -> tuple[list[int], list[int]]:
    """Nodes and rigid gangs of sizes that do not divide them."""
    draw = Random(seed)
    return [draw.choice([7, 8, 9, 10]) for _ in range(4)], [draw.choice([2, 3, 4, 5, 6, 7]) for _ in range(9)]


@pytest.mark.parametrize("seed", (15, 24, 31, 60, 72, 74, 79, 89))
def test_winners_among_gangs_that_fragment_nodes_are_the_best_that_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> NoReturn:
        raise AssertionError("nodes of a class are alike: none needs a name")

    monkeypatch.setattr(realise, "_named", never)
    sizes, wide = gangs(seed)
    machines = [node(f"n{i}", gpus) for i, gpus in enumerate(sizes)]
    same = {"v100": dict.fromkeys(range(1, 11), 1.0)}
    jobs = [job(f"j{i}", gpus, rate=same, total=100.0 * (i + 2), submitted=-50.0 * i) for i, gpus in enumerate(wide)]
    this = rounds(world(machines, jobs))
    assert this.outcome is not None
    assert this.outcome.termination is Termination.OPTIMAL
    value = {b.app: this.outcome.log_null[b.app] for b in this.bids}
    best = 0.0
    for chosen in range(1 << len(jobs)):
        some = [i for i in range(len(jobs)) if chosen >> i & 1]
        total = sum(wide[i] for i in some)
        if total > sum(sizes):
            continue
        chunks = sorted((((0,), wide[i]) for i in some), key=lambda c: -c[1])
        worth = sum(value[b.app] - log(b.rows[0].rho) for b in this.bids if int(b.app[1:]) in some)
        if worth > best and packs(chunks, {0: tuple(sizes)}):
            best = worth
    assert this.outcome.objective == pytest.approx(best, abs=1e-6)


def test_a_program_that_ends_undecided_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = realise._greedy

    def few(orders: Sequence[Order], *others: object, **more: object) -> object:
        return greedy(orders, *others, **more) if len(orders) < 3 else None  # type: ignore[arg-type]

    def undecided(*_: object) -> NoReturn:
        raise Undecided

    monkeypatch.setattr(realise, "_greedy", few)
    monkeypatch.setattr(realise, "_by_program", undecided)
    monkeypatch.setattr(auction, "SETTLED", 0)
    machines = [node(f"n{i}", 4) for i in range(2)]
    this = rounds(world(machines, [job(f"j{i}", 2, total=100.0 * (i + 1)) for i in range(5)]))
    assert this.outcome is not None
    assert this.outcome.termination is not Termination.OPTIMAL
    assert len(this.outcome.wins) == 2
    assert set(this.outcome.wins) == set(this.outcome.rows)


@pytest.mark.parametrize("seed", range(8))
def test_of_large_auctions_a_payment_is_as_close_as_it_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payments are by prices, and a note says how far they may be off."""
    draw = Random(seed)
    machines = [node(f"n{i}", draw.choice([4, 6, 8])) for i in range(4)]
    jobs = []
    for i in range(10):
        least = draw.choice([1, 2, 3])
        rate = {"v100": {n: n ** draw.uniform(0.6, 0.9) for n in (1, 2, 4, 8)}}
        jobs.append(job(f"j{i}", (least, least + 4), rate=rate, total=1000.0 * (i + 1), submitted=-400.0 * i))
    snapshot = world(machines, jobs)
    monkeypatch.setattr(auction, "SETTLED", 0)
    exact = rounds(snapshot).outcome
    monkeypatch.setattr(auction, "MANY", 0)
    quick = rounds(snapshot).outcome
    assert exact is not None
    assert quick is not None
    short = exact.objective - quick.objective
    assert -1e-6 <= short <= (quick.gap or 0.0) * abs(quick.objective) + 1e-6
    assert quick.solves < exact.solves
    if quick.rows != exact.rows:
        return
    told = next((note for note in quick.notes if note.startswith("c of ")), "")
    large, small = (float(part.split()[0]) for part in told.split("at most ")[1:]) if told else (0.0, 0.0)
    for app, c in exact.kept_fraction.items():
        assert quick.kept_fraction[app] <= c * (1 + 1.05 * large) * (1 + 1e-5)
        assert c <= quick.kept_fraction[app] * (1 + 1.05 * small) * (1 + 1e-5)


@pytest.mark.parametrize("types", [2, 3])
def test_more_bidders_than_are_solved_for_one_by_one_win_what_there_is(types: int) -> None:
    """All differ: no clock ends the program, whose winners are the best, and payments say how near they are."""
    draw = Random(1)
    kinds = ("k80", "p100", "v100")[:types]
    machines = [node(f"n{i:02}", (4, 4, 8)[i % 3], kinds[i % types], f"r{i // types % 4}") for i in range(24)]
    jobs = []
    for i in range(110):
        speed, bend, faster = draw.uniform(0.5, 3), draw.uniform(0.5, 1), (1.0, draw.uniform(1, 2), draw.uniform(2, 4))
        rate = {t: {n: speed * f * n**bend for n in (1, 2, 4, 8)} for t, f in zip(kinds, faster, strict=False)}
        jobs.append(job(f"j{i:03}", (1, 8), rate=rate, total=draw.uniform(1e3, 1e5), submitted=draw.uniform(0, 4000)))
    decision = decide(world(machines, jobs, now=5000.0), "themis", {"fairness_knob": 0.0}, time_limit_s=600.0)
    assert decision.solver is not None
    assert decision.solver.termination is Termination.OPTIMAL
    assert not any("clock" in note for note in decision.certificate.notes)
    assert sum(reason.numbers["won"] for reason in decision.reasons.values()) > 0.9 * sum(n.gpus for n in machines)
    for note in decision.certificate.notes:
        if note.startswith("c of"):
            assert float(note.partition("too large by at most ")[2].split()[0]) < 0.05
