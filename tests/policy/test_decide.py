"""Running a policy: options, checks, reasons, what a decision says and how it is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import catalogue
from policy.contract import Context, Entry, Option
from policy.decide import PolicyFailed, decide, propose
from policy.model import (
    BadInput,
    Code,
    Health,
    PolicyChoice,
    Proposal,
    Reason,
    Snapshot,
    SolverSummary,
    Termination,
)
from policy.text import answer, instance
from policy.throughput import Throughput
from tests.policy.worlds import cluster, job, snapshots, sublinear, world

GREEDY = ("fifo", "max-min", "afs-l")
ONE = world(cluster("a v 4"), job("x", 2, throughput={"v": {1: 1.0}}))


# --- the catalogue and options -------------------------------------------------------------------------------


def test_the_catalogue_lists_and_loads() -> None:
    names = list(catalogue.entries())
    assert names == sorted(names)
    assert set(GREEDY) <= set(names)
    for entry in catalogue.entries().values():
        assert callable(catalogue.load(entry))
        assert entry.summary.endswith(".")
        assert entry.resolve({}) == {o.name: o.default for o in entry.options}
        for option in entry.options:
            assert option.check(option.default) == option.default


def test_an_unknown_policy_lists_the_known() -> None:
    with pytest.raises(BadInput, match=r"did you mean 'max-min'\? one of .*fifo"):
        decide(ONE, "maxmin")
    with pytest.raises(BadInput, match="no policy is named"):
        decide(ONE)


def test_the_snapshot_names_its_policy() -> None:
    s = replace(ONE, policy=PolicyChoice("max-min", {"over": "job"}))
    assert decide(s).options == {"over": "job"}
    assert decide(s, options={"over": "tenant"}).options == {"over": "tenant"}
    assert decide(s, "max-min").options == {"over": "job"}
    assert decide(s, "fifo").options == {}


def test_options_are_checked() -> None:
    with pytest.raises(BadInput, match=r"max-min has no option 'ower' \(its options: over\)"):
        decide(ONE, "max-min", {"ower": 1})
    with pytest.raises(BadInput, match="it has no options"):
        decide(ONE, "fifo", {"x": 1})
    with pytest.raises(BadInput, match="one of tenant, job"):
        decide(ONE, "max-min", {"over": "app"})


@pytest.mark.parametrize(
    ("option", "given_value", "expected"),
    [
        (Option("o", int, 1, ""), "3", 3),
        (Option("o", int, 1, ""), 3.0, None),
        (Option("o", int, 1, ""), True, None),
        (Option("o", int, 1, "", low=2), "1", None),
        (Option("o", float, 1.0, ""), "1e3", 1000.0),
        (Option("o", float, 1.0, ""), 2, 2.0),
        (Option("o", float, 1.0, ""), "nan", None),
        (Option("o", float, 1.0, "", high=2.0), 3.0, None),
        (Option("o", float, 1.0, ""), "fast", None),
        (Option("o", bool, True, ""), "off", False),
        (Option("o", bool, True, ""), "maybe", None),
        (Option("o", bool, True, ""), 1, None),
        (Option("o", str, "a", "", choices=("a", "b")), "b", "b"),
        (Option("o", str, "a", ""), 3, None),
    ],
)
def test_option_values(option: Option, given_value: object, expected: object) -> None:
    if expected is None:
        with pytest.raises(BadInput) as caught:
            option.check(given_value)
        assert caught.value.field == "policy.options.o"
        assert caught.value.remedy
    else:
        assert option.check(given_value) == expected
        assert type(option.check(given_value)) is option.kind


def test_an_option_that_may_be_nothing() -> None:
    option = Option("o", float, None, "")
    assert option.check("none") is None
    assert option.check(None) is None
    assert option.check("2") == 2.0


# --- policies that fail --------------------------------------------------------------------------------------


def raises(s: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    return {}["nothing"]  # type: ignore[no-any-return, index]


def proposes(what: Proposal) -> Callable[..., Proposal]:
    return lambda s, options, context: what


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (raises, "raised KeyError: 'nothing'"),
        (lambda s, o, c: None, "returned NoneType"),
        (proposes(Proposal({"x": {"a": 5}})), "no size of its gang"),
        (proposes(Proposal({"x": {"a": 2}, "zz": {"a": 1}})), "allocation of zz, which is no job"),
        (proposes(Proposal({"x": {"b": 2}})), "which is no node"),
        (proposes(Proposal({"x": {"a": 2}}, cancel=("zz",))), "cancels zz"),
        (proposes(Proposal({"x": {"a": 2}}, leases={"x": {"a": (1.0,)}})), "1 leases on a"),
        (proposes(Proposal({}, state={"a": float("nan")})), "not a finite number"),
        (proposes(Proposal({}, state={"a": {1}})), "no text form"),
        (proposes(Proposal({}, shares={"zz": {}})), "shares of zz"),
        (proposes(Proposal({}, reasons={"x": Reason(Code.KEPT, "", {"rho": float("inf")})})), "rho is not a finite"),
    ],
)
def test_a_policy_that_fails_says_how(monkeypatch: pytest.MonkeyPatch, policy: object, says: str) -> None:
    monkeypatch.setattr(catalogue, "load", lambda entry: policy)
    entry = Entry("broken", "", "", "", "")
    with pytest.raises(PolicyFailed, match=says):
        propose(ONE, entry, {}, Context(Throughput(ONE.cluster)))


@pytest.mark.parametrize("policy", GREEDY)
def test_a_node_that_left_is_nobodys(policy: str) -> None:
    """A live snapshot may still say that a job holds GPUs on a node that is gone."""
    x = job("x", (1, 4), throughput={"v": {1: 1.0}}, allocation={"gone": 2, "a": 1})
    decision = decide(world(cluster("a v 4"), x), policy)
    assert set(decision.allocation["x"]) == {"a"}
    assert decision.reasons["x"].text
    assert decision.certificate.feasible


# --- reasons -------------------------------------------------------------------------------------------------


def codes(s: Snapshot, policy: str = "fifo", **options: object) -> dict[str, Code]:
    return {n: r.code for n, r in decide(s, policy, options).reasons.items()}


def test_reasons_of_those_who_hold() -> None:
    where = cluster("a v 4", "b v 4")
    table = {"v": {1: 1.0}}
    for before, after, code in (
        ({}, 2, Code.GRANTED),
        ({"a": 2}, 2, Code.KEPT),
        ({"a": 1}, 2, Code.GREW),
        ({"a": 3}, 2, Code.SHRANK),
        ({"a": 1, "b": 1}, 2, Code.MOVED),
    ):
        x = job("x", (1, after), throughput=table, allocation=before, submitted_s=0.0)
        rest = job("y", (1, 8), submitted_s=1.0)
        assert codes(world(where, x, rest), "max-min")["x"] is code
    s = world(where, job("x", 8, throughput=table), job("y", 1, allocation={"a": 1}))
    decision = decide(s, "max-min")
    assert {n: r.code for n, r in decision.reasons.items()} == {"x": Code.GRANTED, "y": Code.PREEMPTED}
    assert decision.reasons["y"].text == "gives up its 1 GPU: needs 1 GPU; 0 are free"
    assert decision.reasons["y"].numbers["cause"] == "waits-capacity"


def test_reasons_of_those_who_wait() -> None:
    where = replace(cluster("a v 4", "b v 3"), limits=replace(ONE.cluster.limits, equal_gpus_per_node=True))
    s = world(
        where,
        job("ended", 1, work=replace(ONE.jobs[0].work, total=5.0, done=5.0)),
        job("huge", 50),
        job("alien", 1, throughput={"h100": {1: 1.0}}),
        job("runs", 3, submitted_s=0.5),
        job("gang", 4, submitted_s=1.0),
        job("late", 1, submitted_s=2.0),
        tenants=tuple(replace(t, cap=0 if t.name == "alien2" else None) for t in ONE.tenants)
        + tuple(replace(ONE.tenants[0], name=n) for n in ("ended", "huge", "alien", "runs", "gang", "late")),
    )
    reasons = decide(s, "fifo").reasons
    assert {n: r.code for n, r in reasons.items()} == {
        "ended": Code.FINISHED,
        "huge": Code.INFEASIBLE,
        "alien": Code.UNKNOWN_SPEED,
        "runs": Code.GRANTED,
        "gang": Code.GRANTED,
        "late": Code.WAITS_CAPACITY,
    } or {n: r.code for n, r in reasons.items()}["late"] is Code.WAITS_TURN
    for r in reasons.values():
        assert r.text
        assert r.code in (Code.FINISHED, Code.GRANTED) or r.change


def test_a_cap_is_named() -> None:
    x, y = job("x", 2, tenant="t"), job("y", 2, tenant="t", submitted_s=1.0)
    s = world(cluster("a v 8"), x, y, tenants=(replace(ONE.tenants[0], name="t", cap=3),))
    reason = decide(s, "fifo").reasons["y"]
    assert reason.code is Code.WAITS_CAP
    assert reason.numbers["room"] == 1
    assert "limit" in reason.change


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.sampled_from(GREEDY))
def test_every_job_has_a_reason_that_agrees_with_what_it_holds(s: Snapshot, policy: str) -> None:
    decision = decide(s, policy)
    assert list(decision.reasons) == list(decision.allocation) == [j.name for j in s.jobs]
    waiting = {c for c in Code if c.value.startswith("waits")} | {Code.INFEASIBLE, Code.UNKNOWN_SPEED}
    for j in s.jobs:
        reason, has = decision.reasons[j.name], sum(decision.allocation[j.name].values())
        assert reason.text
        if j.work.left == 0:
            assert reason.code is Code.FINISHED
            assert not has
        elif has:
            same = has == j.held
            moved = decision.allocation[j.name] != j.allocation
            expected = {Code.GRANTED} if not j.held else {Code.MOVED} if same and moved else {Code.KEPT}
            if has != j.held and j.held:
                expected = {Code.GREW if has > j.held else Code.SHRANK}
            assert reason.code in expected | {Code.NO_GAIN}
            assert reason.numbers["gpus"] == has
        else:
            assert reason.code in waiting | {Code.PREEMPTED}


# --- the answer ----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(snapshots(), st.sampled_from(GREEDY), st.integers(0, 3))
def test_the_answer_round_trips_and_equal_runs_print_equal_bytes(s: Snapshot, policy: str, seed: int) -> None:
    first = decide(s, policy, seed=seed)
    text = answer.to_json(first)
    again = decide(instance.parse(instance.to_text(s)), policy, seed=seed)
    assert answer.to_json(again) == text
    assert answer.to_json(answer.from_json(text)) == text
    assert list(json.loads(text)) == [
        "policy", "options", "seed", "tenants", "allocation", "leases", "cancel", "reasons", "certificate", "state",
    ]  # fmt: skip


def test_shares_solver_and_leases_are_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    proposal = Proposal(
        allocation={"x": {"a": 2}},
        shares={"x": {"v": 1.5}},
        leases={"x": {"a": (5.0, 6.0)}},
        reasons={"x": Reason(Code.GRANTED, "because", {"rho": 1.5}, "more")},
        state={"passes": {"x": 1.0}},
        solver=SolverSummary(Termination.FEASIBLE, 0.03, 1.5, "highs"),
        notes=("said so",),
    )
    monkeypatch.setattr(catalogue, "load", lambda entry: proposes(proposal))
    decision = decide(ONE, "fifo")
    plain = answer.to_plain(decision)
    assert plain["shares"] == {"x": {"v": 1.5}}
    assert plain["tenants"] == {"x": {"shares": {"v": 1.5}, "throughput": 1.5}}
    assert plain["leases"] == {"x": {"a": [5.0, 6.0]}}
    assert plain["solver"] == {"termination": "feasible", "gap": 0.03, "seconds": 1.5, "solver": "highs"}
    assert plain["reasons"]["x"] == {"code": "granted", "text": "because", "numbers": {"rho": 1.5}, "change": "more"}
    assert plain["certificate"]["notes"][0] == "said so"
    assert answer.from_json(answer.to_json(decision)) == decision


def test_tenants_hold_the_sum_of_their_jobs() -> None:
    table = {"v": sublinear(2.0, 0.5, 4)}
    x, y = job("x", 2, tenant="t", throughput=table), job("y", 1, tenant="t", throughput=table)
    share = decide(world(cluster("a v 4"), x, y), "fifo").tenants["t"]
    assert share.shares == {"v": 3.0}
    assert share.throughput == pytest.approx(2**0.5 + 1)


# --- edges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", GREEDY)
@pytest.mark.parametrize(
    "s",
    [
        world(cluster()),
        world(cluster("a v 4")),
        world(cluster(), job("x", 1)),
        world(cluster("a v 0"), job("x", 1)),
        world(cluster("a v 1"), job("x", 1)),
        world(replace(cluster("a v 2"), nodes=(replace(cluster("a v 2").nodes[0], foreign=2),)), job("x", 1)),
        world(
            replace(cluster("a v 2"), nodes=(replace(cluster("a v 2").nodes[0], health=Health.DOWN),)),
            job("x", 1, allocation={"a": 1}),
        ),
    ],
    ids=("nothing", "no jobs", "no nodes", "no GPUs", "one GPU", "zero free", "all down"),
)
def test_edges(policy: str, s: Snapshot) -> None:
    decision = decide(s, policy)
    assert decision.certificate.feasible
    assert decision.certificate.work_conserving
    json.loads(answer.to_json(decision))
    if s.jobs and not any(n.gpus - n.foreign for n in s.cluster.nodes if n.health is Health.UP):
        assert not any(decision.allocation.values())
        assert decision.reasons["x"].code in (Code.INFEASIBLE, Code.PREEMPTED)
