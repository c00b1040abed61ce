"""`horae trace`: numbers against numpy on the same rows, bytes against bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horae.sim.traces.fitting import distance, fitted, two_samples
from tests.horae.cli.conftest import Horae, horae

__all__ = ["horae"]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    chance = random.Random(4)
    at, rows = 0.0, []
    for n in range(400):
        at += round(chance.expovariate(1 / 60), 2)
        rows.append(
            [
                f"{at:.2f}",
                str(chance.randrange(1, 9000)),
                str(chance.choice([1, 1, 2, 8])),
                f"j{n}",
                chance.choice("ab"),
            ]
        )
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["submitted,duration,gpus,job,tenant", *map(",".join, rows), ""]))
    return path


def columns(path: Path) -> dict[str, list[str]]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def described(horae: Horae, *words: str) -> dict[str, Any]:
    said = horae("trace", "describe", *words, "--json")
    assert said.code == 0, said.err
    out: dict[str, Any] = said.json
    return out


def test_describe_is_what_numpy_says(horae: Horae, jobs: Path) -> None:
    found, raw = described(horae, str(jobs)), columns(jobs)
    at, long = np.array(raw["submitted"], float), np.array(raw["duration"], float)
    gpus, gaps = np.array(raw["gpus"], float), np.diff(at)
    assert (found["jobs"], found["skipped"]) == (400, {})
    assert found["span_s"] == pytest.approx(at[-1] - at[0])
    assert found["gpu_hours"] == pytest.approx((gpus * long).sum() / 3600)
    assert found["load_gpus"] == pytest.approx((gpus * long).sum() / (at[-1] - at[0]))
    assert found["gpus"] == {str(n): int((gpus == n).sum()) for n in (1, 2, 8)}
    assert found["duration_s"] == pytest.approx(
        {"mean": long.mean(), "median": np.median(long), "p95": np.percentile(long, 95),
         "p99": np.percentile(long, 99), "max": long.max()}
    )  # fmt: skip
    assert found["interarrival_s"] == pytest.approx(
        {"mean": gaps.mean(), "median": np.median(gaps), "cv": gaps.std() / gaps.mean()}
    )
    mine = np.array(raw["tenant"]) == "a"
    assert found["tenants"]["a"] == pytest.approx({"jobs": mine.sum(), "gpu_hours": (gpus * long)[mine].sum() / 3600})


def test_describe_counts_what_it_was_told_to_pass_over(horae: Horae, jobs: Path) -> None:
    with jobs.open("a") as file:
        file.write("1,1,1,late,a\n")
    said = horae("trace", "describe", str(jobs), "--json")
    assert (said.code, said.json["error"]["field"]) == (3, "submitted")
    assert said.err.startswith(f"horae: {jobs}:402: submitted: out of order")
    assert described(horae, str(jobs), "--skip-bad")["skipped"] == {"malformed": 1}


def test_sample_draws_rows_as_they_stand(horae: Horae, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.csv"
    assert horae("trace", "sample", str(jobs), "50", "--seed", "3", "--out", str(out)).code == 0
    all_lines, lines = jobs.read_text().splitlines(), out.read_text().splitlines()
    assert (lines[0], len(set(lines))) == (all_lines[0], 51)
    places = [all_lines.index(line) for line in lines]
    assert places == sorted(places)
    first = out.read_bytes()
    assert horae("trace", "sample", str(jobs), "50", "--seed", "3", "--out", str(out)).code == 0
    assert out.read_bytes() == first
    assert horae("trace", "sample", str(jobs), "50", "--seed", "4", "--out", str(out)).code == 0
    assert out.read_bytes() != first
    assert horae("trace", "sample", str(jobs), "400", "--out", str(out)).code == 0
    assert out.read_bytes() == jobs.read_bytes()
    assert horae("trace", "sample", str(jobs), "401").code == 3


def test_a_trace_may_come_through_a_pipe(
    horae: Horae, jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which gives it once, and drawing rows looks at it twice."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(jobs.read_bytes())))
    out = tmp_path / "all.csv"
    assert horae("trace", "sample", "-", "400", "--out", str(out)).code == 0
    assert out.read_bytes() == jobs.read_bytes()


def test_json_says_where_the_rows_went(horae: Horae, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    said = horae("trace", "sample", str(jobs), "1", "--out", str(out), "--json")
    assert said.json == {"out": str(out), "skipped": {}}
    assert horae("trace", "scale", str(jobs), "1", "--json").code == 2


def test_sample_keeps_line_ends_comments_and_separators(horae: Horae, tmp_path: Path) -> None:
    path, out = tmp_path / "t", tmp_path / "o"
    path.write_bytes(b"submitted,duration,gpus\r\n0,1,1\r\n1,1,1\r\n")
    assert horae("trace", "sample", str(path), "2", "--out", str(out)).code == 0
    assert out.read_bytes() == path.read_bytes()
    path.write_text("; note\n" + "".join(f"{n}\t{n} 5 6 1 -1 -1 1 6 -1 1 3 -1 -1 -1 -1 -1 -1\n" for n in (1, 2)))
    assert horae("trace", "sample", str(path), "2", "--format", "swf", "--out", str(out)).code == 0
    assert out.read_bytes() == path.read_bytes()


def test_scale_is_more_of_the_same_over_the_same_time(horae: Horae, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "more.csv"
    assert horae("trace", "scale", str(jobs), "2.5", "--seed", "1", "--out", str(out)).code == 0
    before, after = described(horae, str(jobs)), described(horae, str(out))
    assert (after["jobs"], after["span_s"]) == (1000, pytest.approx(before["span_s"]))
    assert after["load_gpus"] == pytest.approx(2.5 * before["load_gpus"], rel=0.1)
    raw, old = columns(out), columns(jobs)
    assert list(raw) == list(old)
    assert len(set(raw["job"])) == 1000
    pairs = set(zip(old["duration"], old["gpus"], old["tenant"], strict=True))
    assert set(zip(raw["duration"], raw["gpus"], raw["tenant"], strict=True)) <= pairs
    again = tmp_path / "again.csv"
    assert horae("trace", "scale", str(jobs), "2.5", "--seed", "1", "--out", str(again)).code == 0
    assert again.read_bytes() == out.read_bytes()
    assert horae("trace", "scale", str(jobs), "0").code == 3


def test_scale_writes_traces_of_others_in_our_form(horae: Horae, tmp_path: Path) -> None:
    path, out = tmp_path / "p.csv", tmp_path / "o.csv.gz"
    path.write_text("timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,66,1,b\n2017-10-09 07:00:55,5,8,a\n")
    assert horae("trace", "scale", str(path), "2", "--format", "philly", "--out", str(out)).code == 0
    assert gzip.decompress(out.read_bytes()).startswith(b"submitted,duration,gpus,job,tenant")
    before = described(horae, str(path), "--format", "philly")
    assert described(horae, str(out))["load_gpus"] == pytest.approx(2 * before["load_gpus"])


def test_fit_draws_at_the_traces_rate_and_says_how_far_it_is(horae: Horae, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "drawn.csv"
    said = horae("trace", "fit", str(jobs), "--jobs", "2000", "--out", str(out), "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert found["arrivals"]["model"] in ("exponential", "weibull")
    assert found["arrivals"]["ks"] < 0.06
    assert found["duration_s"]["ks"] < 0.06
    before, after = described(horae, str(jobs)), described(horae, str(out))
    assert after["jobs"] == 2000
    assert after["interarrival_s"]["mean"] == pytest.approx(before["interarrival_s"]["mean"], rel=1e-3)
    assert after["load_gpus"] == pytest.approx(before["load_gpus"], rel=0.15)
    first = out.read_bytes()
    horae("trace", "fit", str(jobs), "--jobs", "2000", "--out", str(out))
    assert out.read_bytes() == first


def test_fit_finds_the_family_that_numbers_are_from_and_measures_itself_honestly() -> None:
    dice = np.random.default_rng(3)
    for name, values in {
        "lognormal": dice.lognormal(5, 1.5, 4000),
        "weibull": dice.weibull(0.6, 4000) * 300,
        "quantiles": np.concatenate([np.full(3000, 5.0), dice.lognormal(9, 0.1, 1000)]),
    }.items():
        model = fitted(values)
        assert model.name == name
        assert model.ks < 0.03
    assert distance(np.linspace(0, 1, 1001), lambda u: 0.5 * u) == pytest.approx(0.5, abs=1e-3)


def test_what_is_drawn_asks_for_as_much_and_is_as_near_as_it_is_said_to_be() -> None:
    """Calm hours and busy ones: a lognormal is near their gaps, and its mean is far from theirs."""
    dice = np.random.default_rng(3)
    values = np.concatenate([dice.exponential(30, 2000), dice.exponential(300, 2000)])
    model = fitted(values)
    drawn = np.array([model.at(float(u)) for u in dice.random(4000)])
    stretched = np.sort(drawn * values.mean() / drawn.mean())
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.1)
    assert two_samples(np.sort(values), stretched) <= model.ks + 0.03
