"""Slowdown by span, scaling, and the store that holds them."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.estimates.profiles import Store, missing
from profiler.estimates.scaling import Rate, Scaling, Source, merge
from profiler.estimates.slowdown import DEFAULT, Prior, Site, slowdown
from profiler.estimates.stretch import Span, Stretch
from profiler.model import Epochs, Iterations, IterationTime, RunSummary


def stretch(
    seconds: float,
    gpus: int = 4,
    span: Span = Span.NODE,
    job: str = "j1",
    gpu_type: str = "v100",
    n: int = 200,
    batch: float | None = None,
    start: int = 1,
    at_s: float = 0.0,
) -> Stretch:
    return Stretch(job, gpu_type, gpus, span, seconds, n, 0.05, batch, at_s, start)


# --- slowdown ---------------------------------------------------------------------------------------------


def test_the_default_stands_until_two_placements_were_measured() -> None:
    for known in ([], [stretch(0.1)], [stretch(0.1), stretch(0.2, gpus=8, span=Span.RACK)]):
        found = slowdown(known)
        assert {span: e.value for span, e in found.items()} == pytest.approx(dict(DEFAULT))
        assert not found[Span.RACK].measured
        low, high = found[Span.RACK].interval
        assert low <= 1.1 <= high


def test_two_placements_measure_it() -> None:
    found = slowdown([stretch(0.100), stretch(0.150, span=Span.RACK), stretch(0.150, span=Span.RACK, job="j2")])
    assert found[Span.RACK].measured
    assert found[Span.RACK].value == pytest.approx(1.5, rel=0.02)
    low, high = found[Span.RACK].interval
    assert low <= 1.5 <= high < 1.7
    assert not found[Span.CLUSTER].measured
    assert found[Span.CLUSTER].value >= found[Span.RACK].value


def test_iterations_of_other_batches_are_compared_by_samples() -> None:
    found = slowdown([stretch(0.1, batch=256), stretch(0.4, span=Span.RACK, batch=512)])
    assert found[Span.RACK].value == pytest.approx(2.0, rel=0.05)


def test_a_faster_wide_placement_is_no_speed_up() -> None:
    found = slowdown([stretch(0.2), stretch(0.1, span=Span.RACK)])
    assert found[Span.RACK].value == 1.0


@settings(max_examples=50, deadline=None)
@given(
    st.floats(1.0, 3.0),
    st.floats(1.0, 2.0),
    st.integers(1, 6),
    st.floats(1e-3, 100.0),
    st.integers(0, 2**31),
)
def test_s_is_recovered_from_noisy_times(rack: float, more: float, jobs: int, base: float, seed: int) -> None:
    chance = random.Random(seed)
    truth = {Span.NODE: 1.0, Span.RACK: rack, Span.CLUSTER: rack * more}
    known = [
        stretch(base / gpus * s * math.exp(chance.gauss(0, 0.02)), gpus, span, job=f"j{j}")
        for j in range(jobs)
        for gpus in (4, 8)
        for span, s in truth.items()
    ]
    found = slowdown(known)
    for span, s in truth.items():
        assert found[span].value == pytest.approx(s, rel=0.08)
        low, high = found[span].interval
        assert 1.0 <= low <= found[span].value <= high


def test_a_site_teaches_new_models_of_the_same_size() -> None:
    site = Site()
    for i in range(6):
        s = slowdown([stretch(0.1, job=f"a{i}"), stretch(0.2, span=Span.RACK, job=f"a{i}")])
        site.learn(f"big-{i}", 1e9, s, f"tenant-{i}")
    for i in range(6):
        s = slowdown([stretch(0.1, job=f"b{i}"), stretch(0.103, span=Span.RACK, job=f"b{i}")])
        site.learn(f"small-{i}", 1e6, s, f"tenant-{i}")
    big, small = slowdown([], site.prior(1e9)), slowdown([], site.prior(1e6))
    assert big[Span.RACK].value > 1.5
    assert small[Span.RACK].value < 1.2
    assert not big[Span.RACK].measured
    assert slowdown([], site.prior(None))[Span.RACK].value < big[Span.RACK].value


def test_many_keys_of_one_tenant_teach_a_site_no_more_than_one() -> None:
    def learnt(keys: int) -> float:
        store = Store()
        for i in range(3):
            for span, seconds in ((Span.NODE, 0.1), (Span.RACK, 0.105)):
                store.record(f"honest-{i}", replace(stretch(seconds, span=span, job=f"h{i}"), tenant=f"honest-{i}"))
        for i in range(keys):
            for span, seconds in ((Span.NODE, 0.1), (Span.RACK, 0.9)):
                store.record(f"slow-{i}", replace(stretch(seconds, span=span, job=f"s{i}"), tenant="one"))
        kept = Store.from_dict(store.to_dict())  # who measured it is kept
        return kept.slowdown("new")[Span.RACK].value

    assert learnt(1) > 1.05 * learnt(0)
    assert learnt(100) == pytest.approx(learnt(1), rel=0.05)


def test_priors_teach_nothing() -> None:
    site = Site()
    site.learn("new", 1e8, slowdown([]), "one")
    assert site.known == {}
    assert site.prior(1e8).mean == pytest.approx(dict(Prior.default().mean))


# --- scaling ----------------------------------------------------------------------------------------------


def measured(points: dict[int, float]) -> Scaling:
    return Scaling({n: Rate(r, Source.MEASURED, (r * 0.95, r * 1.05), 100) for n, r in points.items()})


def truth(n: int, parallel: float = 1.0, serial: float = 0.02, talk: float = 0.01) -> float:
    return 1 / (parallel / n + serial + talk * math.log2(n))


def test_a_measured_point_always_wins() -> None:
    scaling = measured({1: 1.0, 2: 1.7, 4: 1.2, 8: 5.0})
    for n, value in {1: 1.0, 2: 1.7, 4: 1.2, 8: 5.0}.items():
        rate = scaling.rate(n)
        assert rate is not None
        assert (rate.value, rate.source) == (value, Source.MEASURED)


def test_the_fit_tells_what_lies_between_and_beyond() -> None:
    scaling = measured({n: truth(n) for n in (1, 4, 16)})
    for n in (2, 8, 32):
        rate = scaling.rate(n)
        assert rate is not None
        assert rate.source is Source.FIT
        assert rate.value == pytest.approx(truth(n), rel=0.05)
        assert rate.interval[0] <= truth(n) <= rate.interval[1]


def test_beyond_too_few_points_it_is_linear_from_the_last() -> None:
    one, two = measured({4: 2.0}), measured({2: 1.0, 4: 1.8})
    for scaling, expected in ((one, 4.0), (two, 3.6)):
        rate = scaling.rate(8)
        assert rate is not None
        assert (rate.value, rate.source) == (expected, Source.LINEAR)
        assert rate.interval == (expected / 2, expected)
    below = one.rate(1)
    assert below is not None
    assert (below.value, below.source) == (0.5, Source.LINEAR)


def test_nothing_measured_tells_nothing() -> None:
    assert measured({}).rate(4) is None
    assert measured({4: 1.0}).rate(0) is None


def test_more_gpus_do_not_help_beyond_the_best() -> None:
    scaling = measured({n: truth(n, serial=0.0, talk=0.2) for n in (1, 2, 4, 8, 16, 32)})
    best = scaling.best(range(1, 65))
    assert best is not None
    assert 3 <= best <= 8


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(1, 64), st.floats(0.01, 1000.0), min_size=1, max_size=6),
    st.integers(1, 128),
)
def test_any_table_gives_positive_finite_rates(table: dict[int, float], gpus: int) -> None:
    rate = measured(table).rate(gpus)
    assert rate is not None
    assert 0 < rate.value < math.inf
    assert 0 <= rate.interval[0] <= rate.value * 1.0001
    assert rate.value <= rate.interval[1] * 1.0001


def test_jobs_of_one_key_are_merged_by_job_not_by_length() -> None:
    many = [stretch(0.1, job="long", start=i) for i in range(9)]
    table = merge([*many, stretch(0.2, job="b"), stretch(0.2, job="c")], slowdown([]))
    assert table["v100"].measured[4].value == pytest.approx(5.0)
    assert table["v100"].measured[4].n == 11 * 200


def test_wide_placements_are_brought_to_the_best_one() -> None:
    known = [stretch(0.1), stretch(0.15, span=Span.RACK), stretch(0.30, gpus=2, span=Span.RACK)]
    table = merge(known, slowdown(known))
    assert table["v100"].measured[4].value == pytest.approx(10.0, rel=0.01)
    assert table["v100"].measured[2].value == pytest.approx(5.0, rel=0.03)


# --- the store --------------------------------------------------------------------------------------------


def test_the_store_survives_as_json() -> None:
    store = Store()
    for gpus in (1, 2, 4):
        store.record("resnet", stretch(1 / truth(gpus), gpus, at_s=gpus), size=25e6)
    store.record("resnet", stretch(0.5, 4, Span.RACK, job="j2"))
    again = Store.from_dict(json.loads(json.dumps(store.to_dict())))
    assert again.to_dict() == store.to_dict()
    assert again.table("resnet", {"v100": [8]}) == store.table("resnet", {"v100": [8]})
    assert again.slowdown("resnet") == store.slowdown("resnet")
    with pytest.raises(ValueError, match="version"):
        Store.from_dict({"version": 99, "profiles": {}})


def test_a_stretch_that_goes_on_replaces_itself_and_old_ones_are_forgotten() -> None:
    store = Store()
    store.record("k", stretch(0.2))
    store.record("k", stretch(0.1))
    assert store.scaling("k")["v100"].measured[4].value == pytest.approx(10.0)
    for i in range(400):
        store.record("k", stretch(0.1, job=f"j{i}", at_s=float(i)))
    assert len(store.profiles["k"].stretches) == 256
    assert store.table("unknown", {"v100": [1]}) == {}


def test_a_corrected_key_takes_its_measurements_along() -> None:
    store = Store()
    store.record("wrong", stretch(0.1, job="mine"))
    store.record("wrong", stretch(0.5, job="theirs"))
    store.rename("wrong", "right", "mine")
    assert store.scaling("right")["v100"].measured[4].value == pytest.approx(10.0)
    assert store.scaling("wrong")["v100"].measured[4].value == pytest.approx(2.0)
    store.rename("wrong", "right", "theirs")
    assert "wrong" not in store.profiles


def test_peers_are_other_jobs_at_the_same_place() -> None:
    store = Store()
    store.record("k", stretch(0.1, job="a"))
    store.record("k", stretch(0.2, job="b"))
    store.record("k", stretch(0.2, job="b", gpus=8))
    assert store.peers("k", "v100", 4, but="a") == [5.0]


def test_what_a_log_does_not_tell_is_said_with_a_remedy() -> None:
    assert "[horae] step=" in missing(None)[0]
    bare = RunSummary("x", (1, 9), iterations=Iterations(1, 9, None, "run", "iteration"))
    assert len(missing(bare)) == 3
    told = RunSummary(
        "x",
        (1, 9),
        iterations=Iterations(1, 9, 100, "run", "iteration"),
        iteration_time=IterationTime(0.1, 0.1, 0.1, 9, "printed"),
    )
    assert len(missing(told)) == 1
    assert "loss" in missing(told)[0]
    assert missing(RunSummary("x", (1, 2), epochs=Epochs(1, 9, None)))[0].startswith("its log shows no speed")


def test_hidden_counts_of_real_models_are_told() -> None:
    data = json.loads((Path(__file__).parent / "scaling" / "afs.json").read_text(encoding="utf-8"))
    errors = []
    for row in data["models"].values():
        curve = {int(n): 1e6 / us for n, us in row.items()}
        for hidden in sorted(curve)[1:-1]:
            rate = measured({n: r for n, r in curve.items() if n != hidden}).rate(hidden)
            assert rate is not None
            errors.append(abs(rate.value / curve[hidden] - 1))
    assert len(errors) > 30
    assert sorted(errors)[len(errors) // 2] < 0.04
    assert max(errors) < 0.2
