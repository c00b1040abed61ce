from __future__ import annotations

from dataclasses import replace

from horae.arbiter.probes import idle, probes
from policy.model import Cluster, GpuRange, Health, Job, Node, Snapshot, Work
from profiler.explore import Budget
from profiler.profiles import Store
from profiler.stretch import Span, Stretch

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


def store(**measured: float) -> Store:
    made = Store()
    for place, seconds in measured.items():
        gpu_type, gpus = place.rsplit("_", 1)
        made.record("resnet", Stretch("j", gpu_type, int(gpus), Span.NODE, seconds, 100))
    return made


def test_idle_gpus_are_healthy_and_nobodys() -> None:
    assert idle(snapshot(job(gpus=3))) == {"v100": 5, "k80": 6}


def test_an_unknown_count_on_idle_gpus_is_probed() -> None:
    made = probes(snapshot(job()), store(v100_2=0.5), lambda _: "resnet")
    (found,) = made.suggestions
    assert found.gpu_type == "v100"
    assert found.gpus in (4, 8)


def test_another_type_is_probed_by_the_sites_ratio() -> None:
    known = store(v100_1=1.0, v100_2=0.5, v100_4=0.25, v100_8=0.125)
    made = probes(snapshot(job()), known, lambda _: "resnet", ratios={"v100": 1.0, "k80": 0.9})
    (found,) = made.suggestions
    assert found.gpu_type == "k80"
    assert "prior" in found.text
    assert probes(snapshot(job()), known, lambda _: "resnet").suggestions == ()


def test_waiting_rigid_and_just_moved_jobs_are_left_alone() -> None:
    known = store(v100_2=0.5)
    assert probes(snapshot(job(gpus=0)), known, lambda _: "resnet").suggestions == ()
    rigid = job(gpus=2)
    rigid = replace(rigid, gpus=GpuRange(2, 2, 2))
    assert probes(snapshot(rigid), known, lambda _: "resnet").suggestions == ()
    moved = probes(snapshot(job()), known, lambda _: "resnet", resized_s={"j": 9_990.0})
    assert "moved a moment ago" in moved.left_out["j"]
    spent = probes(snapshot(job()), known, lambda _: "resnet", recent_s=[9_000.0], budget=Budget(probes_an_hour=1))
    assert "used up" in spent.left_out["j"]


def test_a_job_without_a_profile_is_not_probed() -> None:
    made = probes(snapshot(job()), Store(), lambda _: "unknown")
    assert "not known yet" in made.left_out["j"]
