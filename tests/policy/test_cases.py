"""Instances on which a policy once was wrong, each with the answer that is right, and why. The files are `cases/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policy.decide import decide
from policy.model import Decision, Snapshot
from policy.text.instance import parse
from tests.policy.rounds import play

CASES = Path(__file__).parent / "cases"
REQUESTED_GANGS = (
    "fifo", "fifo-backfill", "srtf", "srtf-e", "srsf", "srsf-e", "las", "tiresias-l", "drf", "gandiva",
    "gavel-max-min", "gavel-finish-time", "gavel-makespan", "gavel-fifo",
)  # fmt: skip
UNKNOWN_SPEEDS = ("max-min", "afs-l", "afs-p", "afs-s", "oef-cooperative")


def case(name: str) -> Snapshot:
    return parse((CASES / f"{name}.yaml").read_text())


def run(name: str, policy: str, **options: Any) -> Decision:
    decision = decide(case(name), policy, options)
    assert decision.certificate.feasible
    return decision


def gpus(decision: Decision) -> dict[str, int]:
    return {job: sum(place.values()) for job, place in decision.allocation.items()}


def shares(decision: Decision, tenant: str) -> dict[str, float]:
    return {t: pytest.approx(x, abs=1e-3) for t, x in decision.tenants[tenant].shares.items() if x > 1e-6}


# --- Themis ------------------------------------------------------------------------------------------------


def test_a_choice_that_needs_the_program_over_nodes_fits_the_nodes() -> None:
    decision = run("themis-over-capacity", "themis", fairness_knob=0.0)
    assert decision.certificate.work_conserving


def test_jobs_of_an_app_keep_what_each_holds_on_a_draining_node() -> None:
    decision = run("themis-crash-draining-node", "themis")
    assert decision.allocation["a1"]["n0"] == 1
    assert decision.allocation["a2"] == {"n0": 2}
    assert decision.certificate.work_conserving


def test_all_jobs_of_an_app_run_where_gpus_are_idle_although_its_rho_stays() -> None:
    """Themis 3.3.2: "our overall scheme is work-conserving"."""
    assert gpus(run("themis-app-with-many-jobs-idle", "themis")) == dict.fromkeys(("j1", "j2", "j3", "j4"), 1)


@pytest.mark.parametrize("seed", range(6))
def test_what_an_app_leaves_for_a_better_place_is_offered_in_the_same_round(seed: int) -> None:
    decision = decide(case("themis-leftover-locality-idle"), "themis", {"fairness_knob": 0.34}, seed)
    assert decision.certificate.work_conserving
    assert sum(gpus(decision).values()) == 3


# --- Gandiva-fair ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["gandiva-fair", "lottery", "lottery-backfill"])
def test_a_job_that_holds_gpus_of_two_types_gets_a_home_of_one(policy: str) -> None:
    decision = run("gandiva-fair-crash-mixed-types", policy)
    assert decision.allocation["j"] in ({"n0": 2}, {"n1": 2})


def test_a_gang_that_only_both_types_hold_runs_on_what_is_idle_and_says_so() -> None:
    snapshot = parse(
        "cluster: {nodes: [{name: a, gpu_type: k80, gpus: 2}, {name: b, gpu_type: v100, gpus: 2}]}\n"
        "jobs: [{name: wide, gpus: 4, throughput: {k80: 1.0, v100: 2.0}}]"
    )
    decision = decide(snapshot, "gandiva-fair")
    assert gpus(decision) == {"wide": 4}
    assert "no one GPU type holds 4 GPUs" in decision.reasons["wide"].text


def test_nobody_trades_for_gpus_that_its_jobs_cannot_use() -> None:
    """a could sell 4 v100 for 20 k80, and has jobs for 4 more GPUs: it would end at 24, below its fair share of 25."""
    decision = run("gandiva-fair-trade-below-fair-share", "gandiva-fair")
    assert decision.certificate.sharing_incentive.worst >= 1 - 1e-6
    assert decision.tenants["a"].throughput == pytest.approx(25.0)


def test_trades_below_the_fair_share_do_not_come_with_the_rounds() -> None:
    served = play(case("gandiva-fair-trade-below-fair-share"), "gandiva-fair", 30, 60.0)
    speed = {"k80": 1.0, "v100": 1.25}
    assert sum(n * speed[t] for (tenant, t), n in served.gpus.items() if tenant == "a") >= 25 * 0.98


@pytest.mark.parametrize("name", ["gandiva-fair-second-trade-price", "gandiva-fair-oef-eq-1"])
def test_the_price_is_bid_by_those_who_can_pay(name: str) -> None:
    """OEF 2.4: the second round trades between 2 and 3, at 2.5; the first bidder has sold all its slow GPUs."""
    prices = [t["price"] for t in run(name, "gandiva-fair").state["trades"]]
    assert prices == [pytest.approx(3.0), pytest.approx(2.5)]


def test_eq_1_of_oef_as_a_tenant_level_instance() -> None:
    decision = run("gandiva-fair-oef-eq-1", "gandiva-fair")
    assert shares(decision, "u1") == {"k80": 1.0, "v100": 0.0889}
    assert shares(decision, "u2") == {"v100": 0.4667}
    assert shares(decision, "u3") == {"v100": 0.4444}


def test_table_3_as_a_tenant_level_instance() -> None:
    decision = run("gandiva-fair-tenant-level-table-3", "gandiva-fair")
    assert shares(decision, "A") == {"k80": 40.0}
    assert shares(decision, "B") == {"k80": 20.0, "v100": 4.0}
    assert shares(decision, "C") == {"v100": 8.0}


def test_time_is_traded_where_nobody_has_a_whole_fast_gpu() -> None:
    decision = run("gandiva-fair-no-trade-below-one-gpu", "gandiva-fair")
    assert decision.state["trades"]
    assert sum(t.throughput for t in decision.tenants.values()) == pytest.approx(112.0, rel=1e-4)


def test_at_a_cold_start_effective_tickets_leave_nothing_idle() -> None:
    assert set(gpus(run("gandiva-fair-idle-at-cold-start", "gandiva-fair")).values()) == {1}


def test_over_rounds_effective_tickets_serve_the_fair_shares() -> None:
    served = play(case("gandiva-fair-effective-tickets"), "gandiva-fair", 60, 60.0)
    assert sum(served.gpus.values()) >= 12 * 0.99
    assert served.gpus["t1", "g"] == pytest.approx(1.0)
    assert min(served.gpus["t0", "g"], served.gpus["t2", "g"]) >= 5.0


# --- Gavel -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["max-min", "finish-time", "makespan", "fifo"])
def test_every_gpu_is_somebodys_on_a_tenant_level_instance(goal: str) -> None:
    decision = run("gavel-tenant-level", f"gavel-{goal}")
    assert sum(sum(t.shares.values()) for t in decision.tenants.values()) == pytest.approx(10.0)
    assert sum(gpus(decision).values()) == 10


def test_the_objectives_are_met_by_hand_on_a_tenant_level_instance() -> None:
    """u1 has 900,000 iterations left at 1 (a) and 2 (b) a GPU, u2 100,000 at 1 and 4; 6 a and 4 b."""
    # max-min: both reach the same multiple of an equal share's rate a GPU (1.4 and 2.2)
    even = run("gavel-tenant-level", "gavel-max-min").tenants
    assert even["u1"].throughput / 1.4 == pytest.approx(5.6)
    assert even["u2"].throughput / 2.2 == pytest.approx(5.6)
    # makespan: u1 needs nine times as long as u2 at one rate; both end together
    done = run("gavel-tenant-level", "gavel-makespan").tenants
    assert 900_000 / done["u1"].throughput == pytest.approx(100_000 / done["u2"].throughput, rel=1e-6)
    # fifo: the first takes all it can use
    assert run("gavel-tenant-level", "gavel-fifo").tenants["u1"].throughput == pytest.approx(14.0)


def test_the_four_objectives_differ_on_contended_rigid_gangs() -> None:
    snapshot = parse(
        "now: 1000.0\ncluster: {nodes: [{name: x, gpu_type: a, gpus: 4}, {name: y, gpu_type: b, gpus: 4}]}\n"
        "jobs:\n"
        "- {name: p, gpus: 4, submitted: 0, work: {total: 900000, done: 0}, throughput: {a: {4: 4.0}, b: {4: 8.0}}}\n"
        "- {name: q, gpus: 4, submitted: 500, work: {total: 90000, done: 0}, throughput: {a: {4: 4.0}, b: {4: 16.0}}}\n"
        "- {name: r, gpus: 2, submitted: 900, work: {total: 400000, done: 1}, throughput: {a: {2: 2.0}, b: {2: 3.0}}}\n"
    )
    answers = [decide(snapshot, f"gavel-{goal}").shares for goal in ("max-min", "finish-time", "makespan", "fifo")]
    plain = [{j: {t: round(x, 3) for t, x in by.items()} for j, by in (a or {}).items()} for a in answers]
    assert all(plain[i] != plain[k] for i in range(4) for k in range(i))


# --- elastic ranges, unknown lengths and speeds ------------------------------------------------------------


def test_idle_gpus_behind_a_wide_gang_go_to_jobs_that_run() -> None:
    for policy in ("afs-p", "afs-s"):
        assert gpus(run("afs-p-idle-behind-a-wide-gang", policy)) == {"y": 16, "x": 0}


def test_the_wide_gang_has_its_turn_when_the_unit_of_the_others_ends() -> None:
    snapshot = case("afs-p-idle-behind-a-wide-gang")
    ran = play(snapshot, "afs-p", 12, 600.0).ran
    assert ran["x"] > 0 and ran["y"] > 0


@pytest.mark.parametrize("policy", REQUESTED_GANGS)
def test_a_request_above_the_cluster_runs_at_the_largest_size_that_fits(policy: str) -> None:
    assert gpus(run("elastic-job-above-the-cluster-never-runs", policy)) == {"e": 4}


@pytest.mark.parametrize("policy", ["optimus", "slaq"])
def test_a_job_of_unknown_length_grows_with_what_nobody_else_can_use(policy: str) -> None:
    assert gpus(run("optimus-slaq-unknown-length-idle", policy)) == {"e": 8}


@pytest.mark.parametrize("policy", UNKNOWN_SPEEDS)
def test_equal_tenants_of_unknown_speed_get_equal_gpus_over_two_types(policy: str) -> None:
    assert gpus(run("unknown-speeds-two-types", policy)) == {"a": 3, "b": 3}
    assert gpus(run("unknown-speeds-twelve", policy)) == {"a": 6, "b": 6}


@pytest.mark.parametrize("policy", ["max-min", "afs-l", "afs-p", "afs-s", "optimus"])
def test_a_gang_wider_than_every_type_has_its_turn(policy: str) -> None:
    """It did while its speed was not known, and waited for ever from when it was measured."""
    found = gpus(run("gang-wider-than-every-type", policy))
    assert found["wide"] == 12
    assert found["e1"] + found["e2"] == 4


@pytest.mark.parametrize("policy", ["max-min", "afs-l", "afs-p", "afs-s", "optimus", "slaq"])
def test_a_gang_wider_than_the_types_on_which_it_may_run_has_its_turn(policy: str) -> None:
    found = gpus(run("gang-wider-than-its-types", policy))
    assert found["wide"] == 12
    assert found["e1"] + found["e2"] == 12


@pytest.mark.parametrize("policy", ["oef-cooperative", "gavel-max-min"])
def test_a_gang_wider_than_every_type_is_not_told_that_its_turn_comes(policy: str) -> None:
    """Shares are of one type at a time: what is owed of it can never be had as a gang."""
    assert run("gang-wider-than-every-type", policy).reasons["wide"].text.startswith("no GPU type has 12 GPUs")
