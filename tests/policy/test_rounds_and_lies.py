"""Rounds of a quantum policy, and the harness that asks whether a lie would pay."""

from __future__ import annotations

from collections import Counter

import pytest

from policy import catalogue
from policy.contract import Context, Entry, Option
from policy.model import BadInput, Proposal, Snapshot, Tenant, Work
from policy.throughput import Throughput
from policy.trials import rounds
from policy.trials.lies import told
from policy.trials.perturb import perturb
from tests.policy.worlds import cluster, job, world

TABLE = {"v": {1: 1.0}}


def turns(snapshot: Snapshot, options: dict[str, float], context: Context) -> Proposal:
    """Round robin on one GPU; remembers whose turn it is, and checks that its account is what was served."""
    state = dict(snapshot.state)
    turn = int(state.get("turn", 0))
    names = [j.name for j in snapshot.jobs]
    for j in snapshot.jobs:
        assert j.attained.get("v", 0.0) == state.get(j.name, 0.0)
    who = names[turn % len(names)]
    assert [j.held for j in snapshot.jobs if j.name != names[(turn - 1) % len(names)]] == [0] * (len(names) - 1)
    state[who] = state.get(who, 0.0) + options["quantum"]
    return Proposal({who: {"a": 1}}, state={**state, "turn": turn + 1}, leases={who: {"a": (snapshot.now_s + 10.0,)}})


@pytest.fixture
def round_robin(monkeypatch: pytest.MonkeyPatch) -> str:
    entry = Entry("turns", "", "", "", "", options=(Option("quantum", float, 30.0, ""),), quantum=True)
    monkeypatch.setattr(catalogue, "entries", lambda: {"turns": entry})
    monkeypatch.setattr(catalogue, "load", lambda e: turns)
    return entry.name


def test_rounds_serve_and_remember(round_robin: str) -> None:
    s = world(cluster("a v 1"), *(job(n, 1, throughput=TABLE, work=Work(100.0, 40.0)) for n in "xyz"))
    played = rounds.run(s, 7, round_robin)
    assert played.fractions == {"x": 3 / 7, "y": 2 / 7, "z": 2 / 7}
    assert played.decision.allocation == {"x": {"a": 1}, "y": {}, "z": {}}
    assert played.decision.state["turn"] == 7
    assert played.decision.leases == {"x": {"a": (6 * 30.0 + 10.0,)}}


def test_the_quantum_is_the_policys_option(round_robin: str) -> None:
    s = world(cluster("a v 1"), *(job(n, 1, throughput=TABLE) for n in "xy"))
    state = dict(rounds.run(s, 2, round_robin, {"quantum": 5.0}).decision.state)
    moves = state.pop("carrying")
    assert state == {"x": 5.0, "y": 5.0, "turn": 2}
    assert moves.keys() == {"x", "y"}, "who changes places in this round"


def test_only_policies_in_quanta_have_rounds() -> None:
    s = world(cluster("a v 1"), job("x", 1))
    with pytest.raises(BadInput, match="does not work in quanta"):
        rounds.run(s, 3, "fifo")
    with pytest.raises(BadInput, match="at least 1"):
        rounds.run(s, 0, "lottery")


# --- lies ----------------------------------------------------------------------------------------------------


def test_every_kind_of_lie_is_told() -> None:
    liar = job("x", 2, tenant="t", throughput={"k": {1: 1.0}, "v": {1: 2.0}}, work=Work(10.0, 4.0), allocation={"b": 1})
    other = job("y", 1)
    s = world(cluster("a k 2", "b v 2"), liar, other)
    seen = list(told(s, "t"))
    kinds = Counter(lie.kind for lie in seen)
    assert kinds == {"throughput": 5 * 3, "idle": 2 * 3, "work": 5, "range": 1, "demand": 2, "split": 2}
    for lie in seen:
        assert lie.what
        assert lie.seen != s
        assert lie.seen.jobs[-1] == other
        assert lie.seen.tenants == s.tenants
        assert bool(lie.used) == (lie.kind == "idle")
    apart, together = (lie for lie in seen if lie.parts)
    for lie in (apart, together):
        first, second = lie.seen.jobs[0], lie.seen.jobs[1]
        assert lie.parts == {second.name: "x"}
        assert (first.work, second.work) == (Work(7.0, 4.0), Work(7.0, 4.0))
        assert (first.allocation, second.allocation) == ({"b": 1}, {})
        assert (second.app != first.app) == (lie is apart)


def test_what_a_job_cannot_use_is_worth_nothing() -> None:
    """Half a gang does no work, GPUs beyond its range do none, and who leaves them idle has them for nothing."""
    gang = job("x", 4, throughput=TABLE)
    s = world(cluster("a v 6"), gang, job("y", 2, throughput=TABLE))
    judged = {lie.what: lie.value for lie in perturb(s, "x", "max-min", {"over": "job"}).lies}
    assert judged["half the GPUs that it can use"] == 0.0
    narrow = job("x", (1, 2), throughput=TABLE)
    judged = {lie.what: lie.value for lie in perturb(world(cluster("a v 6"), narrow), "x", "max-min").lies}
    assert judged["twice the GPUs that it can use"] == 2.0
    assert judged["GPUs of v really idle for 50% of the time"] == 1.0


def test_rounds_are_averaged() -> None:
    """One GPU that two jobs take turns on: half of it each, which one decision does not show."""
    s = world(cluster("a v 1"), *(job(n, 1, throughput=TABLE) for n in "xy"))
    assert perturb(s, "x", "las").value in (0.0, 1.0)
    assert perturb(s, "x", "las", rounds=4).value == 0.5


def test_gains_are_measured_with_the_truth() -> None:
    """max-min over jobs pays for a second job; over tenants it does not."""
    x, y = (job(n, (1, 8), tenant=n, throughput=TABLE) for n in "xy")
    s = world(cluster("a v 6"), x, y)
    judged = perturb(s, "x", "max-min", {"over": "job"})
    assert judged.value == 3.0
    assert judged.best is not None
    assert judged.best.kind == "split"
    assert judged.best.gain == pytest.approx(1 / 3)
    assert perturb(s, "x", "max-min", {"over": "tenant"}).best is None


def test_an_overstated_speed_is_worth_what_it_truly_is() -> None:
    """AFS-L believes a job that says it scales well; what that brings is judged by how it scales."""
    liar = job("x", (1, 8), throughput={"v": {1: 1.0, 2: 1.9, 8: 1.9}}, work=Work(100.0))
    other = job("y", (1, 8), throughput={"v": {1: 1.0, 8: 6.0}}, work=Work(100.0))
    s = world(cluster("a v 8"), liar, other)
    truth = Throughput(s.cluster)
    judged = perturb(s, "x", "afs-l")
    assert judged.value <= truth.normalised(liar, {"a": 2})
    for lie in judged.lies:
        if lie.kind == "throughput":
            assert lie.value <= truth.normalised(liar, {"a": 8}) + 1e-9


def test_shares_are_judged_linearly() -> None:
    jobs = [
        job("x", (1, None), throughput={"k": {1: 1.0}, "v": {1: 2.0}}),
        job("y", (1, None), throughput={"k": {1: 1.0}, "v": {1: 5.0}}),
    ]
    s = world(cluster("a k 1", "b v 1"), *jobs, tenants=(Tenant("x"), Tenant("y")))
    judged = perturb(s, "y", "oef-noncooperative")
    # Equalised throughput: overstating v brings less, understating it more.
    over = [
        lie.gain for lie in judged.lies if lie.kind == "throughput" and lie.what.startswith("throughput on v times 2")
    ]
    under = [
        lie.gain for lie in judged.lies if lie.kind == "throughput" and lie.what.startswith("throughput on v times 0.5")
    ]
    assert max(over) <= 1e-6
    assert max(under) > 0


def test_seeds_are_averaged() -> None:
    s = world(cluster("a v 1"), job("x", 1, throughput=TABLE), job("y", 1, throughput=TABLE))
    judged = perturb(s, "x", "lottery", seeds=20)
    assert judged.seeds == 20
    assert 0 < judged.value < 1
    assert judged.to_plain()["throughput"] == judged.value


def test_an_unknown_tenant_is_named() -> None:
    s = world(cluster("a v 1"), job("x", 1), job("ended", 1, work=Work(1.0, 1.0)))
    for name in ("nobody", "ended"):
        with pytest.raises(BadInput, match=f"no tenant '{name}' has work"):
            perturb(s, name, "fifo")


def test_lies_at_a_themis_auction_are_judged_by_the_truth() -> None:
    """Two elastic jobs compete for four GPUs; asked under several seeds, because the hidden payment is drawn.

    Nobody gains by claiming to be faster. Who says that it is slower, or has more to do, gains: neither holds anything
    yet, and the cap of such an app grows with the rho it states (Theorem 3.3 is about bids, not about what a waiting
    app is taken to be worth). Two apps wait for more than one: splitting pays.
    """
    curve = {"v": {1: 1.0, 2: 1.9, 4: 3.4}}
    jobs = [job(n, (1, 4), throughput=curve, work=Work(1000.0), submitted_s=i) for i, n in enumerate("xy")]
    s = world(cluster("a v 4"), *jobs, now_s=100.0)
    judged = perturb(s, "x", "themis", {"fairness_knob": 0.0}, seeds=6)
    assert {lie.kind for lie in judged.lies} == {"throughput", "idle", "work", "range", "demand", "split"}
    most = Throughput(s.cluster).normalised(jobs[0], {"a": 4})
    assert 0 < judged.value <= most
    gain = {lie.what: lie.gain for lie in judged.lies}
    assert max(gain[f"throughput on v times {factor}"] for factor in ("1.1", "2", "10")) <= 0
    assert max(gain[f"work left times {factor}"] for factor in ("0.5", "0.9")) <= 0
    assert gain["throughput on v times 0.5"] > 0
    assert gain["work left times 10"] > 0
    assert judged.best is not None
    assert judged.best.kind == "split"
