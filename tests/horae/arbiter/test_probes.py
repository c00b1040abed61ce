"""Active profiling: a job runs elsewhere for a moment, by the book, and only where that can change the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from horae.arbiter.admit.probes import candidate, idle
from horae.arbiter.observe.log_profiles import LogProfiles
from horae.config import Mode
from horae.journal import Kind
from horae.journal.measured import Known, Measurement
from horae.journal.store import rebuilt
from horae.port import JobState
from horae.views.explain import explain
from policy.model import Cluster, Decision, GpuRange, Health, Job, Node, Snapshot, Work
from profiler.estimates.explore import ProbePlan, plan
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, answer, fill, room, spec

NODES = (
    Node("v1", "v100", 8),
    Node("k1", "k80", 8, foreign=2),
    Node("v2", "v100", 8, health=Health.DRAIN),
)


def snapshot(*jobs: Job, now_s: float = 10_000.0) -> Snapshot:
    return Snapshot(Cluster(NODES, gpu_types=("k80", "v100")), jobs, now_s=now_s)


def job(name: str = "j", gpus: int = 2, node: str = "v1", **more: object) -> Job:
    made = Job(
        name,
        "alice",
        name,
        GpuRange(gpus, 1, 8),
        work=Work(1e6, 0.0),
        allocation={node: gpus} if gpus else {},
        restart_cost_s=20.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def measured(**rates: Known) -> Measurement:
    places: dict[str, dict[int, Known]] = {}
    for place, known in rates.items():
        gpu_type, gpus = place.rsplit("_", 1)
        places.setdefault(gpu_type, {})[int(gpus)] = known
    return Measurement(key="resnet", places=places)


def sure(rate: float) -> Known:
    return Known(rate, rate, rate, "measured")


def planned(one: Job, known: Measurement, **ratios: float) -> ProbePlan:
    free = idle(snapshot(one))
    made = candidate(
        one, "v100", known, free, ratios or {"v100": 1.0}, movable=True, moved_s=0.0, now_s=10_000.0, restart_cost_s=30
    )
    return plan([made], free, [], 10_000.0)


def test_idle_gpus_are_healthy_and_nobodys() -> None:
    assert idle(snapshot(job(gpus=3))) == {"v100": 5, "k80": 6}


def test_an_unknown_count_on_idle_gpus_is_probed() -> None:
    (found,) = planned(job(), measured(v100_2=sure(2.0), v100_4=Known(4.0, 2.0, 4.0, "linear"))).suggestions
    assert (found.gpu_type, found.gpus) == ("v100", 4)


def test_another_type_is_probed_by_the_sites_ratio() -> None:
    known = measured(v100_1=sure(1.0), v100_2=sure(2.0), v100_4=sure(4.0), v100_8=sure(8.0))
    (found,) = planned(job(), known, v100=1.0, k80=0.9).suggestions
    assert found.gpu_type == "k80"
    assert "prior" in found.text
    assert planned(job(), known).suggestions == ()  # the job may not have the other type


def test_a_job_without_a_profile_is_not_probed() -> None:
    assert "not known yet" in planned(job(), Measurement()).left_out["j"]


# --- in the arbiter -----------------------------------------------------------------------------------------

SITE = (Node("n1", "k80", 4), Node("n2", "k80", 4))


def cautious(snapshot: Snapshot, policy: str, options: Mapping[str, Any], seed: int, limit_s: float) -> Decision:
    """Each job gets one GPU, or four where it is known that they make it at least twice as fast."""
    free = room(snapshot)
    allocation = {}
    for one in sorted(snapshot.jobs, key=lambda j: j.order):
        rates = one.throughput.get("k80", {})
        fast = 4 in rates and rates[4] >= 2 * rates.get(1, float("inf"))
        allocation[one.name] = fill(one, 4 if fast and sum(free.values()) >= 4 else one.gpus.min, free)
    return answer(snapshot, allocation, policy)


def site(folder: Path, **changes: Any) -> Site:
    probes = {"run_s": 20.0, "settle_s": 5.0, "an_hour": 2.0, **changes.pop("probes", {})}
    return Site(
        folder,
        nodes=SITE,
        policy=cautious,
        profiles=lambda: LogProfiles(every_s=1.0, budget_s=60.0),
        probes=probes,
        **changes,
    )


def events(at: Site, name: str) -> list[Mapping[str, Any]]:
    return [e.data for e in at.journal.history(job=name) if e.kind is Kind.PROBED]


def until_probed(at: Site, name: str, patience_s: float = 200.0) -> None:
    until = at.time.now + patience_s
    while at.job(name).probe is None:
        assert at.time.now < until, "no probe was made"
        at.run(1.0, step_s=1.0)


def until_over(at: Site, name: str, patience_s: float = 600.0) -> None:
    until = at.time.now + patience_s
    while at.job(name).probe is not None:
        assert at.time.now < until, f"the probe does not end: {at.job(name)}"
        at.run(1.0, step_s=1.0)


def test_a_probe_is_made_measured_and_changes_the_decision(tmp_path: Path) -> None:
    at = site(tmp_path)
    (name,) = at.commands.submit([spec("train", (1, 4), steps=100_000)], ANN)
    at.until(name, JobState.RUNNING)
    until_probed(at, name)
    probe = at.job(name).probe
    assert probe is not None
    assert sum(probe.allocation.values()) == probe.gpus > 1
    told = explain(at.core.ledger, at.config, at.job(name), at.time.now)
    cause = next(c for c in told.causes if c.what == "probe")
    assert "two restarts" in cause.text
    until_over(at, name)
    begun, over = events(at, name)[:2]
    assert "knowing is worth" in begun["text"]
    assert over["over"].startswith("measured: ")
    at.run(90.0, step_s=1.0)
    record = at.job(name)
    assert record.measured["places"]["k80"][str(probe.gpus)]["source"] == "measured"
    assert sum(record.allocation.values()) == 4  # the policy knows now that four make it faster
    assert at.world.refusals == [] and at.world.violations == []
    assert rebuilt(at.journal.path) == at.core.ledger


def test_a_probe_gives_way_to_a_job_that_needs_its_gpus(tmp_path: Path) -> None:
    at = site(tmp_path, probes={"run_s": 100.0})
    (name,) = at.commands.submit([spec("train", (1, 8), steps=1_000_000)], ANN)
    at.until(name, JobState.RUNNING)
    until_probed(at, name)
    at.run(30.0, step_s=1.0)
    (other,) = at.commands.submit([spec("wide", 7, steps=1_000)], BEN)
    at.until(other, JobState.RUNNING)
    assert at.job(name).probe is None
    assert events(at, name)[-1]["over"] == "the policy needs its GPUs"
    assert sum(at.job(name).allocation.values()) <= 1
    assert at.world.refusals == [] and at.world.violations == []


def test_a_probe_goes_on_over_a_restart_of_the_arbiter(tmp_path: Path) -> None:
    at = site(tmp_path)
    (name,) = at.commands.submit([spec("train", (1, 4), steps=100_000)], ANN)
    at.until(name, JobState.RUNNING)
    until_probed(at, name)
    at.reopen()
    assert at.job(name).probe is not None
    until_over(at, name)
    assert "over" in events(at, name)[1]


def test_no_probe_without_a_budget_or_for_a_job_that_cannot_be_resumed(tmp_path: Path) -> None:
    for i, (budget, one) in enumerate(
        (
            (0.0, spec("t", (1, 4), steps=100_000)),
            (2.0, spec("t", (1, 4), steps=100_000, checkpoint=None)),
        )
    ):
        at = site(tmp_path / str(i), probes={"an_hour": budget})
        (name,) = at.commands.submit([one], ANN)
        at.until(name, JobState.RUNNING)
        at.run(60.0, step_s=1.0)
        assert events(at, name) == []


def test_a_pool_that_only_advises_is_not_probed_unless_told_to_and_then_only_in_words(tmp_path: Path) -> None:
    for advise in (False, True):
        at = site(tmp_path / str(advise), probes={"advise": advise})
        (name,) = at.commands.submit([spec("t", (1, 4), steps=100_000)], ANN)
        at.until(name, JobState.RUNNING)
        at.commands.set_mode("main", Mode.ADVISE, ROOT)
        at.run(100.0, step_s=1.0)
        assert [e["gpus"] > 1 for e in events(at, name)[:1]] == [True] * advise
        assert at.job(name).epoch == 1
        assert sum(at.job(name).allocation.values()) == 1
        advised = at.core.ledger.pool("main").advised
        assert [s["verb"] for s in advised] == (["checkpoint_and_stop", "start"] if advise else [])
