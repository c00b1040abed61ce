"""Network packing: Propositions 1 and 2 of AFS Appendix E, and its generalisation."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.afs.packing import above, chain, regulated
from policy.decide import decide
from policy.model import Decision, Job, Snapshot, Work
from tests.policy.worlds import cluster, job, sublinear, world


def shares(decision: Decision) -> dict[str, int]:
    return {name: sum(a.values()) for name, a in decision.allocation.items()}


@pytest.mark.parametrize(
    ("node", "expected"),
    [(1, [1]), (4, [1, 2, 4]), (8, [1, 2, 4, 8]), (6, [1, 3, 6]), (12, [1, 3, 6, 12]), (7, [1, 7]), (10, [1, 5, 10])],
)
def test_sizes_within_a_node_divide_one_another(node: int, expected: list[int]) -> None:
    assert chain(node) == expected


def test_regulated_sizes_of_a_gang() -> None:
    links = chain(4)
    free, gang = job("f", (1, None)), job("g", (3, 6))
    assert [regulated(free, n, links) for n in range(11)] == [0, 1, 2, 2, 4, 4, 4, 4, 8, 8, 8]
    assert [regulated(gang, n, links) for n in range(10)] == [0, 0, 0, 0, 4, 4, 4, 4, 4, 4]
    assert [above(free, n, links, 12) for n in (0, 1, 2, 4, 8, 12)] == [1, 2, 4, 8, 12, None]


@st.composite
def worlds(draw: st.DrawFn, sizes: tuple[int, ...]) -> Snapshot:
    node, machines = draw(st.sampled_from(sizes)), draw(st.integers(1, 6))
    jobs: list[Job] = []
    for i in range(draw(st.integers(1, 7))):
        table = sublinear(draw(st.floats(0.5, 5)), draw(st.floats(0.3, 0.99)), 8 * 6)
        jobs.append(job(f"j{i}", (1, None), throughput={"v": table}, work=Work(draw(st.floats(1, 1e4)))))
    return world(cluster(*[f"n{i} v {node}" for i in range(machines)]), *jobs)


def check_proposition_1(s: Snapshot, decision: Decision, node: int) -> None:
    """Every job on ceil(r / G) nodes; at most one job of a node uses other nodes."""
    crossing: dict[str, int] = {}
    for place in decision.allocation.values():
        assert len(place) == ceil(sum(place.values()) / node)
        if len(place) > 1:
            for n in place:
                crossing[n] = crossing.get(n, 0) + 1
    assert max(crossing.values(), default=0) <= 1


@settings(max_examples=150, deadline=None)
@given(worlds((1, 2, 4, 8)))
def test_propositions_1_and_2(s: Snapshot) -> None:
    node = s.cluster.nodes[0].gpus
    k = int(log2(node))
    before = shares(decide(s, "afs-l"))
    decision = decide(s, "afs-l", {"network_packing": True})
    after = shares(decision)
    assert sum(after.values()) == sum(before.values()) == node * len(s.cluster.nodes)
    for name, share in before.items():
        within = 2 ** int(log2(share)) if share else 0
        least = share // node * node if share > node else within
        assert after[name] >= least
        assert after[name] == 0 or after[name] % node == 0 or after[name] in [2**i for i in range(k)]
    check_proposition_1(s, decision, node)


@settings(max_examples=100, deadline=None)
@given(worlds((3, 6, 10, 12)))
def test_other_node_sizes(s: Snapshot) -> None:
    """Divisors and multiples only, and Proposition 1; no more GPUs than before."""
    node = s.cluster.nodes[0].gpus
    before = shares(decide(s, "afs-l"))
    decision = decide(s, "afs-l", {"network_packing": True})
    for n in shares(decision).values():
        assert n == 0 or n % node == 0 or node % n == 0
    assert sum(shares(decision).values()) <= sum(before.values())
    check_proposition_1(s, decision, node)


@settings(max_examples=60, deadline=None)
@given(worlds((4, 8)), st.data())
def test_a_repeated_round_moves_nobody(s: Snapshot, data: st.DataObject) -> None:
    """With what was decided in place, the same round keeps every GPU where it is."""
    from dataclasses import replace

    decision = decide(s, "afs-l", {"network_packing": True})
    placed = tuple(replace(j, allocation=decision.allocation[j.name]) for j in s.jobs)
    again = decide(replace(s, jobs=placed), "afs-l", {"network_packing": True})
    assert again.allocation == decision.allocation
    gone = data.draw(st.sampled_from(placed))
    rest = tuple(j for j in placed if j is not gone)
    if rest:
        check_proposition_1(
            s, decide(replace(s, jobs=rest), "afs-l", {"network_packing": True}), s.cluster.nodes[0].gpus
        )


def test_a_rigid_gang_of_an_unregulated_size_keeps_it() -> None:
    odd = job("odd", 3, throughput={"v": {1: 1.0}}, work=Work(1.0))
    s = world(cluster("a v 4", "b v 4"), odd)
    assert shares(decide(s, "afs-l", {"network_packing": True})) == {"odd": 3}
