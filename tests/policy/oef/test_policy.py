"""OEF as a policy: shares in the answer, whole GPUs over rounds, the placer's rules."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from policy.decide import decide
from policy.model import Code, Snapshot
from policy.oef.rounding import fullest
from policy.text.answer import to_json
from policy.text.instance import parse
from tests.policy.rounds import play

BOTH = pytest.mark.parametrize("policy", ["oef-noncooperative", "oef-cooperative"])


def equation_6(more: str = "") -> Snapshot:
    return parse(
        """
        cluster: {gpu_types: [g1, g2], nodes: [{name: a, gpu_type: g1, gpus: 1}, {name: b, gpu_type: g2, gpus: 1}]}
        jobs:
          - {name: u1, gpus: {min: 1, max: null}, throughput: {g1: 1, g2: 2}}
          - {name: u2, gpus: {min: 1, max: null}, throughput: {g1: 1, g2: 5}}
        """
        + more
    )


def test_the_printed_shares_are_the_answer() -> None:
    decision = decide(equation_6(), "oef-cooperative")
    assert decision.shares == {"u1": {"g1": 1.0, "g2": 0.25}, "u2": {"g1": 0.0, "g2": 0.75}}
    assert decision.tenants["u1"].throughput == pytest.approx(1.5)
    assert decision.certificate.envy.worst <= 1e-6
    assert decision.solver is not None and decision.solver.termination == "optimal"


@pytest.mark.parametrize(("policy", "second"), [("oef-noncooperative", 4 / 7), ("oef-cooperative", 0.25)])
def test_over_rounds_whole_gpus_become_the_fractional_shares(policy: str, second: float) -> None:
    got = play(equation_6(), policy, 200, 300.0).gpus
    expected = {("u1", "g1"): 1.0, ("u1", "g2"): second, ("u2", "g2"): 1 - second}
    assert got == pytest.approx(expected, abs=0.01)


def test_a_vetoed_grant_costs_nobody_anything() -> None:
    first = decide(equation_6(), "oef-noncooperative")
    from dataclasses import replace

    nothing_served = replace(equation_6(), state=first.state, now_s=300.0)
    second = decide(nothing_served, "oef-noncooperative")
    owed = second.reasons["u2"].numbers["owed"]
    assert owed["g2"] == pytest.approx(3 / 7, abs=1e-3)


def test_job_types_are_virtual_tenants_of_divided_weight() -> None:
    snapshot = parse(
        """
        cluster: {gpu_types: [g1, g2], nodes: [{name: a, gpu_type: g1, gpus: 1}, {name: b, gpu_type: g2, gpus: 1}]}
        jobs:
          - {name: x, tenant: u1, gpus: {min: 1, max: null}, throughput: {g1: 1, g2: 2}}
          - {name: y, tenant: u1, gpus: {min: 1, max: null}, throughput: {g1: 1, g2: 3}}
          - {name: z, tenant: u2, gpus: {min: 1, max: null}, throughput: {g1: 1, g2: 5}}
        """
    )
    shares = decide(snapshot, "oef-noncooperative").shares
    assert shares is not None
    assert shares["x"] == pytest.approx({"g1": 1.0, "g2": 0.108}, abs=1e-3)
    assert shares["y"] == pytest.approx({"g1": 0.0, "g2": 0.405}, abs=1e-3)
    assert shares["z"] == pytest.approx({"g1": 0.0, "g2": 0.486}, abs=1e-3)


def gangs(*jobs: str) -> Snapshot:
    nodes = "{name: a, gpu_type: g1, gpus: 4}, {name: b, gpu_type: g1, gpus: 4}"
    return parse(f"cluster: {{nodes: [{nodes}]}}\njobs: [{', '.join(jobs)}]")


def test_jobs_with_more_workers_get_a_host_of_their_own() -> None:
    decision = decide(
        gangs("{name: s1, tenant: t1, gpus: 2}", "{name: s2, tenant: t1, gpus: 2}", "{name: big, tenant: t2, gpus: 4}"),
        "oef-cooperative",
    )
    assert len(decision.allocation["big"]) == 1
    assert {n for j in ("s1", "s2") for n in decision.allocation[j]} != set(decision.allocation["big"])


def test_the_longest_starved_job_of_a_tenant_goes_first() -> None:
    jobs = [f"{{name: j{i}, tenant: t, gpus: 4, attained: {{g1: {1000 - i}}}}}" for i in range(3)]
    decision = decide(gangs(*jobs), "oef-noncooperative")
    assert [j for j, a in decision.allocation.items() if not a] == ["j0"]
    assert decision.reasons["j0"].code is Code.WAITS_TURN


def test_a_share_below_a_gang_waits_and_is_owed() -> None:
    jobs = ["{name: wide, tenant: w, gpus: 8}"]
    jobs += [f"{{name: n{i}, tenant: t{i}, gpus: 1}}" for i in range(7)]
    got = play(gangs(*jobs), "oef-noncooperative", 40, 300.0)
    assert got.ran["wide"] > 0.05
    assert got.gpus["w", "g1"] == pytest.approx(1.0, abs=0.5)


@BOTH
def test_work_conserving_deterministic_and_explained(policy: str) -> None:
    jobs = [f"{{name: j{i}, tenant: t{i % 3}, gpus: {1 + i % 3}}}" for i in range(9)]
    a, b = decide(gangs(*jobs), policy), decide(gangs(*jobs), policy)
    assert a.certificate.feasible and a.certificate.work_conserving
    assert strip_seconds(to_json(a)) == strip_seconds(to_json(b))
    assert all(a.reasons[f"j{i}"].text for i in range(9))


def strip_seconds(text: str) -> str:
    import re

    return re.sub(r'"seconds": ?[0-9.e-]+', '"seconds": 0', text)


@BOTH
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_both_solvers_agree(policy: str, solver: str) -> None:
    decision = decide(equation_6(), policy, solver=solver)
    assert decision.tenants["u1"].throughput == pytest.approx({"oef-cooperative": 1.5}.get(policy, 15 / 7), rel=1e-6)


@BOTH
def test_no_gpus_or_no_jobs(policy: str) -> None:
    empty = parse("cluster: {nodes: [{name: n, gpu_type: v100, gpus: 4}]}\njobs: []")
    assert decide(empty, policy).allocation == {}
    down = parse("cluster: {nodes: [{name: n, gpu_type: v100, gpus: 4, health: down}]}\njobs: [{name: j, gpus: 1}]")
    assert decide(down, policy).allocation == {"j": {}}


@BOTH
@pytest.mark.parametrize(
    ("nodes", "sizes"), [({"a": 3, "b": 2}, (1, 3, 3, 1)), ({"a": 2, "b": 4}, (1, 2, 1)), ({"a": 4}, (3, 1, 1))]
)
def test_whose_share_is_all_that_it_can_use_runs_all_the_time_beside_gangs_that_leave_gaps(
    policy: str, nodes: dict[str, int], sizes: tuple[int, ...]
) -> None:
    """What the gangs of one tenant cannot use of its share is owed to it, and used to be taken from the others."""
    listed = ", ".join(f"{{name: {n}, gpu_type: g, gpus: {k}}}" for n, k in nodes.items())
    jobs = ["{name: one, gpus: 1}", *(f"{{name: j{i}, tenant: many, gpus: {n}}}" for i, n in enumerate(sizes))]
    got = play(parse(f"cluster: {{nodes: [{listed}]}}\njobs: [{', '.join(jobs)}]"), policy, 60, 300.0)
    assert got.ran["one"] >= 0.95


@BOTH
def test_no_job_is_on_slow_gpus_beside_idle_fast_ones(policy: str) -> None:
    """Of 3 fast GPUs owed, two jobs of one used two, and the gang of two went to slow ones."""
    rates = "throughput: {slow: 1, fast: 3.5}"
    jobs = [f"{{name: j{i}, tenant: t{i // 3}, gpus: {n}, {rates}}}" for i, n in enumerate((1, 1, 2, 2, 1))]
    nodes = ", ".join(f"{{name: {t}{n}, gpu_type: {t}, gpus: {n}}}" for t, n in (("slow", 3), ("fast", 2), ("fast", 3)))
    got = play(parse(f"cluster: {{nodes: [{nodes}]}}\njobs: [{', '.join(jobs)}]"), policy, 30, 300.0)
    assert got.gpus["t0", "fast"] + got.gpus["t1", "fast"] == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("turn", [False, True])
def test_the_fullest_set_of_gangs_is_that_of_all_sets(turn: bool) -> None:
    random = Random(7)
    for _ in range(300):
        sizes = [random.randint(1, 6) for _ in range(random.randint(0, 6))]
        room = random.randint(0, 12)
        sets = [c for n in range(len(sizes) + 1) for c in combinations(range(len(sizes)), n)]
        first = next((i for i, size in enumerate(sizes) if size <= room), None)
        fit = [c for c in sets if sum(sizes[i] for i in c) <= room and (not turn or first is None or first in c)]
        most = max(sum(sizes[i] for i in c) for c in fit)
        best = min((c for c in fit if sum(sizes[i] for i in c) == most), key=lambda c: [i not in c for i in range(6)])
        assert fullest(sizes, room, turn) == list(best)
