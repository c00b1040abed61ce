"""What results say, by hand."""

from __future__ import annotations

import pytest

from horae.sim import results
from horae.sim.engine.cluster import cluster_of, pooled
from horae.sim.traces.model import Trace, TraceJob
from policy.model import BadInput
from tests.horae.sim import made

TWO = Trace((TraceJob("a", 0.0, 2, 100.0), TraceJob("b", 20.0, 2, 50.0, tenant="x")))


def test_two_jobs_one_after_the_other() -> None:
    found = results.summary(made.played(TWO, "fifo", "v100:1x2", ideal=True), 0.0)
    assert (found["jobs"], found["completed"], found["makespan"]) == (2, 2, 150.0)
    assert found["jct"] == {"mean": 115.0, "median": 115.0, "p95": 128.5, "p99": 129.7}
    assert found["queueing"] == {"mean": 40.0, "p95": 76.0}
    assert (found["gpu_seconds"], found["utilisation"]) == (300.0, 1.0)
    # Apps that live: one to 20 s, two to 100 s, one to 150 s.
    rho_a = 100.0 / (100.0 * (20 + 2 * 80) / 100)
    rho_b = 130.0 / (50.0 * (2 * 80 + 50) / 130)
    assert found["rho"]["max"] == pytest.approx(rho_b)
    assert found["rho"]["mean"] == pytest.approx((rho_a + rho_b) / 2)
    assert found["rho"]["jain"] == pytest.approx((rho_a + rho_b) ** 2 / (2 * (rho_a**2 + rho_b**2)))


def test_rows_in_the_order_of_the_trace() -> None:
    assert made.rows(made.played(TWO, "fifo", "v100:1x2", ideal=True)) == (
        "job,tenant,submitted,started,finished,gpu_seconds,resizes,rho\n"
        "a,default,0.000000,0.000000,100.000000,200.000000,0,0.555556\n"
        "b,x,20.000000,100.000000,150.000000,100.000000,0,1.609524\n"
    )


def test_percentiles_interpolate() -> None:
    assert results.percentile([4.0, 1.0, 3.0, 2.0], 95) == pytest.approx(3.85)
    assert results.percentile([], 50) == 0.0


def test_a_cluster_in_a_line() -> None:
    cluster = cluster_of("v100:2x4,k80:4x8/rack2")
    assert [(n.gpu_type, n.gpus, n.rack is not None) for n in cluster.nodes] == [("v100", 4, False)] * 2 + [
        ("k80", 8, True)
    ] * 4
    assert [(n.gpu_type, n.gpus) for n in pooled(cluster).nodes] == [("v100", 8), ("k80", 32)]


@pytest.mark.parametrize("wrong", ["v100:8x", "v100:0x4", "v100:8x4,", "v100:8x4/rack0"])
def test_a_wrong_cluster_is_refused(wrong: str) -> None:
    with pytest.raises(BadInput, match="--cluster"):
        cluster_of(wrong)


def test_a_job_larger_than_the_cluster_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="job a needs 2 GPUs"):
        made.played(TWO, "fifo", "v100:1x1", ideal=True)


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    trace = Trace((TraceJob("a", 0.0, 1, 10.0, model="unheard"),))
    with pytest.raises(BadInput, match=r"model.*concave"):
        made.played(trace, "fifo", ideal=True)


def test_a_job_of_no_length_ends_as_it_starts_and_has_no_rho() -> None:
    trace = Trace((*TWO.jobs, TraceJob("c", 30.0, 1, 0.0)))
    for engine in ("fast", "arbiter"):
        outcome = made.played(trace, "fifo", "v100:1x2", ideal=True, engine=engine)
        assert outcome.runs[2].finished_s == pytest.approx(150.0, abs=1e-5)
        assert len(results.rho_by_app(outcome)) == 2
