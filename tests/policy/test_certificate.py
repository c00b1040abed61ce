"""The inspector against brute force: feasibility, work conservation, rho, shares' worth, envy, Pareto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from policy.certificate import certify
from policy.certificate.economy import Economy, Group, Mode, envelope, worth
from policy.certificate.feasible import idle_but_wanted, violations
from policy.certificate.finish import MeanActive
from policy.decide import decide
from policy.model import Allocation, Health, Job, Limits, Slowdown, Snapshot, Tenant, Work
from policy.throughput import Throughput
from tests.policy.worlds import cluster, job, snapshots, sublinear, world

# --- feasibility ---------------------------------------------------------------------------------------------

LAB = cluster("a v 4 r1", "b v 4 r2", "k k80 2")


@pytest.mark.parametrize(
    ("allocation", "says"),
    [
        ({"x": {"zz": 2}}, "no node"),
        ({"x": {"a": 3}}, "no size of its gang"),
        ({"x": {"k": 2}}, "cannot run"),
        ({"x": {"a": 2}, "y": {"a": 3}}, "a gives 5 GPUs"),
        ({"y": {"a": 3, "b": 1}}, "unequal"),
        ({"y": {"a": 2, "k": 2}}, "spans GPU types"),
        ({"y": {"a": 4, "b": 4}}, "above its limit of 6"),
    ],
)
def test_what_cannot_run(allocation: dict[str, Allocation], says: str) -> None:
    x = job("x", 2, throughput={"v": {1: 1.0}})
    y = job("y", (1, 8), tenant="t")
    where = replace(LAB, limits=Limits(equal_gpus_per_node=True, one_type_per_job=True))
    s = world(where, x, y, tenants=(Tenant("x"), Tenant("t", cap=6)))
    assert any(says in v for v in violations(s, allocation))
    if "zz" not in allocation.get("x", {}):
        assert not certify(s, allocation).feasible


class Walked(tuple[Job, ...]):
    """Jobs that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[Job]:
        Walked.walks += 1
        return super().__iter__()


def walks(tenants: int) -> int:
    jobs = Walked(job(f"j{i}", 2, tenant=f"t{i}", allocation={f"n{i}": 2}) for i in range(tenants))
    where = cluster(*(f"n{i} v 4" for i in range(tenants)))
    s = replace(world(where, *jobs), jobs=jobs, tenants=tuple(Tenant(f"t{i}", cap=1) for i in range(tenants)))
    Walked.walks = 0
    assert list(violations(s, {j.name: j.allocation for j in jobs})) == [], "a limit learnt later takes nothing away"
    wrong = list(violations(s, {j.name: {"n0" if j.name == "j1" else next(iter(j.allocation)): 2} for j in jobs}))
    assert wrong == ["tenant t1 holds 2 GPUs, above its limit of 1"]
    return Walked.walks


def test_caps_are_looked_at_in_one_walk_however_many_tenants_are_above_theirs() -> None:
    assert walks(20) == walks(5)


def test_health_foreign_cpus_and_memory() -> None:
    y = job("y", (1, 8), allocation={"b": 1}, cpus_per_gpu=2.0, memory_per_gpu=10)
    nodes = (
        replace(LAB.nodes[0], health=Health.DOWN),
        replace(LAB.nodes[1], health=Health.DRAIN),
        replace(LAB.nodes[2], cpus=2.0, memory=15, foreign=1),
    )
    s = world(replace(LAB, nodes=nodes), y)
    assert list(violations(s, {"y": {"b": 1}})) == []
    assert "down" in " ".join(violations(s, {"y": {"a": 1}}))
    assert "draining" in " ".join(violations(s, {"y": {"b": 2}}))
    found = " ".join(violations(s, {"y": {"k": 2}}))
    assert "has 1 for us" in found
    assert "CPUs" in found
    assert "memory" in found


def test_a_limit_learnt_later_takes_nothing_away() -> None:
    y = job("y", 4, tenant="t", allocation={"a": 4})
    s = world(LAB, y, tenants=(Tenant("t", cap=2),))
    assert list(violations(s, {"y": {"a": 4}})) == []
    assert "limit" in " ".join(violations(s, {"y": {"b": 4}}))


# --- work conservation ---------------------------------------------------------------------------------------


def subsets(offers: Mapping[str, int], gpus: int) -> Iterator[Allocation]:
    names = [n for n, g in offers.items() if g > 0]
    for parts in product(*(range(offers[n] + 1) for n in names)):
        if sum(parts) == gpus:
            yield {n: g for n, g in zip(names, parts, strict=True) if g}


@settings(max_examples=120, deadline=None)
@given(snapshots(most_jobs=3))
def test_idle_but_wanted_is_what_brute_force_finds(s: Snapshot) -> None:
    """FIFO leaves much idle; every larger size of every job on idle GPUs and its own, tried one by one."""
    tiny = tuple(replace(n, gpus=min(n.gpus, 3), foreign=min(n.foreign, n.gpus, 3)) for n in s.cluster.nodes[:3])
    jobs = tuple(replace(j, allocation={}, lease_until={}, gpus=replace(j.gpus, max=j.gpus.max or 9)) for j in s.jobs)
    s = replace(s, cluster=replace(s.cluster, nodes=tiny), jobs=jobs)
    speeds = Throughput(s.cluster)
    now = decide(s, "fifo").allocation
    used: dict[str, int] = {}
    for place in now.values():
        for n, g in place.items():
            used[n] = used.get(n, 0) + g
    wanted = False
    for j in s.jobs:
        if j.work.left == 0:
            continue
        own = now[j.name]
        offers = {n.name: n.gpus - n.foreign - used.get(n.name, 0) + own.get(n.name, 0) for n in tiny}
        was = speeds.rate(j, own)
        for gpus in range(sum(own.values()) + 1, 10):
            if not j.gpus.feasible(gpus):
                continue
            for place in subsets(offers, gpus):
                rate = speeds.rate(j, place)
                better = not j.throughput if rate is None or was is None else rate > was * (1 + 1e-9)
                if better and not list(violations(s, {**now, j.name: place})):
                    wanted = True
    assert (idle_but_wanted(s, now, speeds) is not None) == wanted


def test_a_size_that_no_equal_split_holds_hides_no_larger_one() -> None:
    """5 GPUs do not split evenly over two nodes of 3, 6 do: also for a job whose speed nobody knows."""
    s = world(cluster("a k 3", "b k 3", limits=Limits(equal_gpus_per_node=True)), job("j", (1, 6)))
    assert idle_but_wanted(s, {"j": {"a": 2, "b": 2}}, Throughput(s.cluster)) == ("j", 6)


# --- rho -----------------------------------------------------------------------------------------------------


def test_rho_of_one_job() -> None:
    """Half done after 100 s of waiting, on half the cluster of four among two apps."""
    a = job("a", (1, 4), throughput={"v": {1: 1.0}}, work=Work(400.0, 200.0), submitted_s=0.0)
    b = job("b", 1, throughput={"v": {1: 1.0}}, work=Work(10.0))
    s = world(cluster("n v 4"), a, b, now_s=100.0)
    rho = certify(s, {"a": {"n": 2}, "b": {}}).rho
    # T_sh = 100 + 200 / 2; T_id = 400 / 4 * 2
    assert rho == {"a": pytest.approx(200 / 200), "b": None}


def test_rho_of_an_app_and_of_unknown_lengths() -> None:
    table = {"v": {1: 1.0}}
    x = job("x", 2, app="app", throughput=table, work=Work(100.0))
    y = job("y", 2, app="app", throughput=table, work=Work(200.0, 100.0))
    z = job("z", 2, throughput=table)
    s = world(cluster("n v 8"), x, y, z, now_s=0.0)
    c = certify(s, {"x": {"n": 2}, "y": {"n": 2}, "z": {"n": 2}})
    # alone: (100/2 * 2 + 200/2 * 2) GPU-s over 4 GPUs = 75 s, but the longer job needs 100 s; two apps are active
    assert c.rho == {"app": pytest.approx(50 / (100 * 2)), "z": None}
    assert any("rho: left out for 1" in n for n in c.notes)


def test_mean_number_of_active_apps() -> None:
    s = world(LAB, now_s=100.0, active_apps=((0.0, 2), (50.0, 4)))
    assert MeanActive(s).since(0.0) == 3.0
    assert MeanActive(s).since(50.0) == 4.0
    assert MeanActive(s).since(25.0) == pytest.approx((25 * 2 + 50 * 4) / 75)
    assert MeanActive(s).since(100.0) == 4.0
    assert MeanActive(s).since(-100.0) == pytest.approx((150 * 2 + 50 * 4) / 200)
    there = world(LAB, *(job(f"j{i}", 1, app=f"app{i // 2}") for i in range(18)), job("over", 1, work=Work(1.0, 1.0)))
    assert MeanActive(there).since(0.0) == 9.0


# --- worth ---------------------------------------------------------------------------------------------------

modes = st.builds(
    Mode,
    gpu_type=st.integers(0, 1),
    gpus=st.integers(1, 6).map(float),
    value=st.floats(0.1, 9).map(lambda x: round(x, 2)),
    part=st.just(1.0),
)
groups = st.lists(
    st.builds(Group, modes=st.lists(modes, min_size=1, max_size=4).map(tuple), jobs=st.integers(1, 3)),
    min_size=1,
    max_size=4,
)


def by_program(gs: list[Group], bundle: tuple[float, ...]) -> float:
    columns = [(g, m) for g in range(len(gs)) for m in gs[g].modes]
    cost = [-m.value for _, m in columns]
    rows = [[m.gpus if m.gpu_type == t else 0.0 for _, m in columns] for t in range(len(bundle))]
    rows += [[m.part if k == g else 0.0 for k, m in columns] for g in range(len(gs))]
    found = linprog(cost, A_ub=np.array(rows), b_ub=[*bundle, *(g.jobs for g in gs)], bounds=(0, None))
    assert found.status == 0
    return float(-found.fun)


@settings(max_examples=150, deadline=None)
@given(groups, st.tuples(st.floats(0, 12), st.floats(0, 12)), st.tuples(st.floats(0, 12), st.floats(0, 12)))
def test_worth_is_the_optimum_and_prices_bound_every_other_bundle(
    gs: list[Group], bundle: tuple[float, float], other: tuple[float, float]
) -> None:
    found = worth(gs, bundle)
    assert found is not None
    assert found.value == pytest.approx(by_program(gs, bundle), abs=1e-6)
    assert found.bound(bundle) == pytest.approx(found.value, abs=1e-6)
    assert found.bound(other) >= by_program(gs, other) - 1e-6


@settings(max_examples=150, deadline=None)
@given(groups, st.floats(0, 20), st.floats(0, 20))
def test_one_type_is_solved_by_sorting(gs: list[Group], gpus: float, other: float) -> None:
    one = [replace(g, modes=tuple(replace(m, gpu_type=0) for m in g.modes)) for g in gs]
    found = worth(one, (gpus,))
    assert found is not None
    assert found.value == pytest.approx(by_program(one, (gpus,)), abs=1e-6)
    assert found.bound((other,)) >= by_program(one, (other,)) - 1e-6


def test_the_envelope_is_concave() -> None:
    points = [(1, 1.0), (2, 1.2), (3, 3.0), (4, 2.0), (6, 3.6)]
    assert envelope([Mode(0, n, v, 1.0) for n, v in points]) == [(3.0, 1.0), (3.0, pytest.approx(0.2))]


# --- sharing incentive, envy ---------------------------------------------------------------------------------


def test_a_fair_half_is_exactly_fair() -> None:
    x, y = (job(n, (1, 4), throughput={"v": {1: 1.0}}) for n in "xy")
    s = world(cluster("n v 4"), x, y)
    c = certify(s, {"x": {"n": 2}, "y": {"n": 2}})
    assert (c.sharing_incentive.worst, c.envy.worst, c.envy.who) == (1.0, 0.0, None)
    assert (c.pareto, c.throughput, c.optimal_throughput) == (True, 4.0, 4.0)
    c = certify(s, {"x": {"n": 3}, "y": {"n": 1}})
    assert (c.sharing_incentive.worst, c.sharing_incentive.who) == (0.5, "y")
    assert (c.envy.worst, c.envy.who) == (2.0, ("y", "x"))


def test_weights_scale_shares_and_envy() -> None:
    x, y = (job(n, (1, 6), throughput={"v": {1: 1.0}}) for n in "xy")
    s = world(cluster("n v 6"), x, y, tenants=(Tenant("x", 2.0), Tenant("y", 1.0)))
    c = certify(s, {"x": {"n": 4}, "y": {"n": 2}})
    assert (c.sharing_incentive.worst, c.envy.who) == (1.0, None)
    c = certify(s, {"x": {"n": 3}, "y": {"n": 3}})
    assert (c.sharing_incentive.worst, c.sharing_incentive.who) == (0.75, "x")
    assert (c.envy.worst, c.envy.who) == (3.0, ("x", "y"))  # y's 3 at twice the weight are 6


def test_fractional_shares_are_judged_linearly() -> None:
    """Two types, opposite preferences: OEF's setting. Everybody with the type that suits them."""
    x = job("x", (1, None), throughput={"k": {1: 1.0}, "v": {1: 2.0}})
    y = job("y", (1, None), throughput={"k": {1: 1.0}, "v": {1: 5.0}})
    s = world(cluster("n k 1", "m v 1"), x, y)
    c = certify(s, {"x": {}, "y": {}}, {"x": {"k": 1.0, "v": 0.25}, "y": {"v": 0.75}})
    assert c.throughput == pytest.approx(1.5 + 3.75)
    assert c.optimal_throughput == pytest.approx(6.0)
    assert c.sharing_incentive.worst == pytest.approx(1.0)
    assert c.sharing_incentive.who == "x"
    assert c.envy.who is None
    assert c.pareto
    even = {"k": 0.5, "v": 0.5}
    assert certify(s, {"x": {}, "y": {}}, {"x": even, "y": even}).pareto is False
    swapped = certify(s, {"x": {}, "y": {}}, {"x": {"v": 0.75}, "y": {"k": 1.0, "v": 0.25}})
    assert swapped.envy.who == ("y", "x")
    assert swapped.envy.worst == pytest.approx(3.75 - 2.25)


@settings(max_examples=80, deadline=None)
@given(snapshots(plain=True, concave=True, most_jobs=5), st.sampled_from(("fifo", "max-min", "afs-l")))
def test_envy_is_the_worst_of_all_pairs(s: Snapshot, policy: str) -> None:
    decision = decide(s, policy)
    c = decision.certificate
    speeds = Throughput(s.cluster)
    held: dict[str, int] = {}
    economy = Economy(s, speeds, held, fluid=False)
    mine: dict[str, list[Job]] = {}
    for j in s.jobs:
        if j.work.left != 0:
            mine.setdefault(j.tenant, []).append(j)
    values = {t: sum(speeds.normalised(j, decision.allocation[j.name]) for j in js) for t, js in mine.items()}
    bundles = {t: economy.bundle(decision.tenants[t].shares) for t in mine}
    worst = 0.0
    for i, jobs in mine.items():
        for k in mine:
            if any(b > o for b, o in zip(bundles[k], bundles[i], strict=True)):
                found = worth(economy.groups(economy.crowd(jobs)), bundles[k])
                assert found is not None
                worst = max(worst, found.value - values[i])
    if worst > 1e-5 * max(c.throughput, 1.0):
        assert c.envy.worst == pytest.approx(worst, rel=1e-6, abs=1e-6)
    else:
        assert c.envy.worst == pytest.approx(0.0, abs=1e-4)
    assert c.feasible
    assert c.optimal_throughput is not None
    assert c.throughput <= c.optimal_throughput * (1 + 1e-6) + 1e-9


# --- Pareto --------------------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(snapshots(plain=True, most_jobs=3), st.sampled_from(("fifo", "max-min", "afs-l")))
def test_pareto_of_whole_gpus_is_what_brute_force_finds(s: Snapshot, policy: str) -> None:
    small = tuple(replace(n, gpus=min(n.gpus, 3)) for n in s.cluster.nodes[:3])
    jobs = tuple(replace(j, allocation={}, lease_until={}) for j in s.jobs if j.work.left != 0)
    s = replace(s, cluster=replace(s.cluster, nodes=small), jobs=jobs)
    decision = decide(s, policy)
    economy = Economy(s, Throughput(s.cluster), {}, fluid=False)
    now = []
    for j in jobs:
        has = economy.bundle(economy.speeds.by_type(decision.allocation[j.name]))
        if sum(1 for x in has if x) > 1:
            return  # a gang over several types: its present size is outside the one-type search
        now.append(max((economy.at_best(j, t, x) for t, x in enumerate(has) if x), default=0.0))
    choices = []
    for j in jobs:
        types = [t for t, name in enumerate(economy.types) if name in economy.speeds.types(j)]
        sizes = [(t, n) for t in types for n in range(1, int(economy.capacity[t]) + 1) if j.gpus.feasible(n)]
        choices.append([(None, 0, 0.0), *((t, n, economy.at_best(j, t, n)) for t, n in sizes)])
    better = False
    for pick in product(*choices):
        used = [0] * len(economy.capacity)
        for t, n, _ in pick:
            if t is not None:
                used[t] += n
        if any(u > c for u, c in zip(used, economy.capacity, strict=True)):
            continue
        if all(v >= w * (1 - 1e-9) for (_, _, v), w in zip(pick, now, strict=True)) and any(
            v > w * (1 + 1e-9) + 1e-12 for (_, _, v), w in zip(pick, now, strict=True)
        ):
            better = True
            break
    assert decision.certificate.pareto == (not better)


def test_an_inefficient_swap_is_seen() -> None:
    """Each on the type that suits the other: integers, two types."""
    x = job("x", 1, throughput={"k": {1: 3.0}, "v": {1: 1.0}})
    y = job("y", 1, throughput={"k": {1: 1.0}, "v": {1: 3.0}})
    s = world(cluster("a k 1", "b v 1"), x, y)
    assert certify(s, {"x": {"b": 1}, "y": {"a": 1}}).pareto is False
    assert certify(s, {"x": {"a": 1}, "y": {"b": 1}}).pareto is True


# --- all together --------------------------------------------------------------------------------------------


def test_an_empty_world() -> None:
    c = certify(world(cluster()), {})
    assert (c.feasible, c.work_conserving, c.pareto, c.throughput) == (True, True, True, 0.0)
    assert (c.sharing_incentive.worst, c.sharing_incentive.who, c.envy.who, c.rho) == (1.0, None, None, {})


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.sampled_from(("fifo", "max-min", "afs-l")))
def test_every_decision_is_certified(s: Snapshot, policy: str) -> None:
    c = decide(s, policy).certificate
    assert c.feasible
    assert set(c.rho) == {j.app for j in s.jobs}
    assert c.envy.worst >= 0


def test_unknown_speeds_are_said() -> None:
    s = world(cluster("n v 2"), job("x", 1), job("y", 1, throughput={"v": sublinear(1, 0.5, 2)}))
    assert any("speed unknown for 1 running jobs" in n for n in decide(s, "fifo").certificate.notes)


def test_a_gang_that_spans_types_may_be_faster_than_the_best_of_one_type_each() -> None:
    curve = {1: 1.0, 2: 2.0**0.5}
    spans = job("j", (1, None), throughput={"k": curve, "p": curve}, allocation={"a": 1, "b": 1})
    c = decide(world(cluster("a k 1", "b p 1"), spans), "fifo").certificate
    assert c.throughput == pytest.approx(2.0**0.5 / 1.1)
    assert c.optimal_throughput == c.throughput
    assert any("spans GPU types" in note for note in c.notes)


@pytest.mark.parametrize("policy", ["max-min", "afs-l", "optimus", "slaq", "oef-cooperative", "srtf-e", "gandiva"])
def test_a_third_type_that_is_slow_does_not_hide_that_two_are_faster_together(policy: str) -> None:
    """A gang runs at the pace of its slowest type: a GPU of the second is worth having, one of the third is not."""
    fast, slow = {1: 2.0, 2: 4.0, 3: 6.0}, {1: 0.1, 2: 0.2, 3: 0.3}
    elastic = job("j", (1, 3), throughput={"k": slow, "p": fast, "v": fast}, slowdown=Slowdown(1.0, 1.0, 1.0))
    s = world(cluster("c k 1", "b p 1", "a v 2"), elastic)
    assert idle_but_wanted(s, {"j": {"a": 2}}, Throughput(s.cluster)) == ("j", 3)
    assert decide(s, policy).allocation["j"] == {"a": 2, "b": 1}


def test_one_who_would_gain_nothing_does_not_speak_for_another() -> None:
    """Two jobs of one size on one type: the first cannot run there at all, the second can."""
    stuck = job("stuck", 2, throughput={"v": {2: 0.0}})
    able = job("able", 2, throughput={"v": {2: 3.0}})
    s = world(cluster("a v 4"), stuck, able)
    assert idle_but_wanted(s, {}, Throughput(s.cluster)) == ("able", 2)
