"""Figures and tables of the papers, as `horae reproduce` gives them, checked by their own inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from horae.sim.reproductions import afs, themis
from horae.sim.reproductions.catalogue import every, find, reproduce
from policy.model import BadInput

ROOT = Path(__file__).parents[3]


def test_all_are_listed_with_what_they_are() -> None:
    for name, one in every().items():
        assert name.startswith(f"{one.paper}-")
        assert one.what.endswith(".")


def test_what_came_of_each_is_kept_on_its_page() -> None:
    page = (ROOT / "docs" / "reproductions.md").read_text()
    kept = {path.stem: json.loads(path.read_text()) for path in (ROOT / "benchmarks/results/reproductions").glob("*")}
    assert kept.keys() == every().keys()
    for name, found in kept.items():
        assert f"| `{name}` | {found['verdict']} |" in page
        assert found["paper"].keys() == found["here"].keys()
        assert found["why"] or found["verdict"] == "reproduced"


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(BadInput, match="did you mean oef-fig-6"):
        find("oef-fig-66")


@pytest.mark.parametrize("name", ["gandiva-fair-fig-1d", "gandiva-fair-table-3"])
def test_those_that_come_out_as_printed(name: str) -> None:
    found = reproduce(name)
    assert (found["verdict"], found["why"]) == ("reproduced", "")
    assert found["paper"].keys() == found["here"].keys()


def test_table_2_is_exact_for_stride_and_says_that_backfill_differs() -> None:
    found = reproduce("gandiva-fair-table-2")
    assert found["here"]["stride"] == found["paper"]["stride"]
    assert found["verdict"] == "differs"
    assert "backfill" in found["why"]


def test_oef_4_follows_from_its_inputs() -> None:
    found = reproduce("oef-fig-4")
    honest, lied = found["here"]["honest"], found["here"]["lied"]
    assert honest == pytest.approx([honest[0]] * 4, abs=1e-5)
    assert lied[0] < honest[0] < min(lied[1:])


def test_oef_6_is_the_shares_times_the_speedups_and_nobody_envies() -> None:
    found = reproduce("oef-fig-6")
    speedups, shares, throughput = found["inputs"]["speedups"], found["here"]["shares"], found["here"]["throughput"]
    for mine, row in zip(speedups, throughput, strict=True):
        assert row == pytest.approx(
            [sum(s * x for s, x in zip(mine, share, strict=True)) for share in shares], abs=1e-5
        )
    assert all(row[n] >= max(row) - 1e-5 for n, row in enumerate(throughput))
    assert [sum(column) for column in zip(*shares, strict=True)] == pytest.approx(found["inputs"]["gpus"], abs=1e-5)


@pytest.mark.parametrize("name", ["oef-fig-7", "oef-fig-8", "oef-fig-10"])
def test_draws_are_of_the_seed(name: str) -> None:
    found = reproduce(name, seed=1)
    assert found["here"] == reproduce(name, seed=1)["here"] != reproduce(name, seed=2)["here"]
    assert found["paper"].keys() == found["here"].keys()


def test_oef_5_nobody_has_less_than_its_equal_share() -> None:
    here = reproduce("oef-fig-5")["here"]
    assert min(here["over max-min, by user"]) >= 1
    assert here["user 1's two types over another user"] == pytest.approx([0.5, 0.5], abs=1e-3)


def test_gandiva_fair_8_conserves_gpus_and_nobody_loses() -> None:
    found = reproduce("gandiva-fair-fig-8")
    gains = [gain for by in found["here"].values() for gain in by.values()]
    assert min(gains) >= 0
    assert found["here"]["before user1 leaves"]["user4"] == max(gains)


def test_afs_plays_every_slice_to_its_end() -> None:
    jobs = afs.traces(0)
    assert [len(trace.jobs) for trace in jobs.values()] == [60] * 11
    for policy in ("srtf", "afs-l", "afs-p"):
        assert len(afs.times("ed69ec", policy, 0)) == 60
    alone = [job.duration for job in jobs["ed69ec"].jobs]
    rigid = afs.times("ed69ec", "srtf", 0)  # 60 jobs of one GPU: nobody waits
    assert sum(rigid) == pytest.approx(sum(d for d in alone if d is not None))
    assert sum(afs.times("ed69ec", "afs-l", 0)) < sum(rigid)


def test_themis_draws_its_apps_by_the_seed_and_all_of_them_end() -> None:
    assert themis.workload(1) == themis.workload(1) != themis.workload(2)
    here = themis.lives("srtf", 0)
    work = sum((job.duration or 0.0) * job.gpus for job in themis.workload(0).jobs) / 3600
    assert here["gpu_hours"] >= round(work, 2)  # restarts come on top
    assert 0 < here["jain"] <= 1
