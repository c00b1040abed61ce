"""`horae what-if` as a whole: a replay that is told, the engine's own on a small dump, the page, the command."""

from __future__ import annotations

import html.parser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from horae.sim.traces.model import Trace
from horae.sim.whatif.answer import WhatIf, from_sacct
from horae.sim.whatif.page import page
from horae.sim.whatif.replay import Assumption, Life, Table
from policy.model import Cluster
from tests.horae.cli.conftest import Horae, horae
from tests.horae.sim.whatif.by_hand import HEADER

__all__ = ["horae"]


def crowded(folder: Path, jobs: int = 12) -> Path:
    """One node of 4 GPUs, jobs of 2 and 4 GPUs handed in faster than they run, one after the other."""
    rows, at = [HEADER], 0
    for number in range(1, jobs + 1):
        gpus, ran = (2, 600) if number % 3 else (4, 300)
        who = f"u{number % 2}|<b>acct{number % 2}</b>|{'FAILED' if number == 5 else 'COMPLETED'}"
        times = f"{number * 60}|{number * 60}|{at + 1000}|{at + 1000 + ran}|{ran}"
        rows.append(f"{number}|{number}|{who}|{times}|gres/gpu:a100={gpus}|gres/gpu={gpus}|n1")
        at += ran
    path = folder / "dump.txt"
    path.write_text("\n".join([*rows, ""]))
    return path


def test_each_policy_is_replayed_under_every_assumption_and_its_band_holds_its_mean(tmp_path: Path) -> None:
    asked: list[tuple[str, int, float | None, bool]] = []

    def play(
        trace: Trace, table: Table, cluster: Cluster, policy: str, restart_s: float | None, seed: int
    ) -> Sequence[Life]:
        elastic = [job for job in trace.jobs if job.max_gpus > job.gpus or job.min_gpus < job.gpus]
        asked.append((policy, len(elastic), restart_s, all(job.known for job in trace.jobs)))
        for job in elastic:
            curve = table[job.model or ""]["a100"]
            assert curve[job.gpus] == 1
            assert set(curve) == set(range(job.min_gpus, job.max_gpus + 1))
        wait = 100.0 * len(asked)
        return [
            Life(j.tenant, j.gpus, j.submitted, j.submitted + wait, j.submitted + wait + 9, 1.0, 2, 1.5)
            for j in trace.jobs
        ]

    question = WhatIf(("afs-l",), assumption=Assumption(elastic=0.5), levers=True)
    answer, bad = from_sacct(crowded(tmp_path), question, play)
    assert not bad
    assert answer["cluster"] == {"gpus": 4, "from": "dump"}
    assert answer["replay"]["wait"]["mean"] == 100
    found = answer["policies"]["afs-l"]
    assert found["wait"]["mean"] == 200
    assert found["band"]["wait_mean"] == [200, 500]
    assert found["resizes"] == 24
    assert found["by_size"]["4"] == {"jobs": 4, "wait_mean": 200}
    assert [(policy, restart) for policy, _, restart, _ in asked[1:5]] == [
        ("afs-l", None), ("afs-l", 300.0), ("afs-l", 0.0), ("afs-l", None),
    ]  # fmt: skip
    assert asked[1][1] > 0 == asked[2][1]
    assert ("fifo-backfill", 0, None, False) in asked
    assert set(answer["levers"]) == {"order", "elasticity", "time limits", "policy"}


def test_a_job_that_is_elastic_at_a_tenth_is_so_at_a_fifth() -> None:
    from horae.sim.traces.model import TraceJob
    from horae.sim.whatif.replay import assumed
    from policy.model import Node

    jobs = [TraceJob(str(n), float(n), 2, 9.0) for n in range(500)]
    cluster = Cluster((Node("n", "a100", 8),), gpu_types=("a100",))
    some, more = (
        {job.job for job in assumed(jobs, Assumption(elastic=part), cluster, 7)[0].jobs if job.model}
        for part in (0.1, 0.2)
    )
    assert some < more
    assert 20 < len(some) < 80


class Loads(html.parser.HTMLParser):
    """What a page would fetch, and whether its elements are those of a page at all."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = {"src", "href", "action", "data", "poster", "srcset"}
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in named or name.startswith("on")]


def test_the_command_says_history_policies_and_writes_a_page_that_loads_nothing(horae: Horae, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    words = ("what-if", "--from-sacct", str(crowded(tmp_path)), "--policies", "srtf,max-min", "--elastic", "0.5")
    said = horae(*words, "--html", str(out), "--json")
    assert said.code == 0, said.err
    answer: dict[str, Any] = said.json
    assert answer["history"]["gpu_jobs"] == 12
    for found in (answer["replay"], *answer["policies"].values()):
        assert found["wait"]["mean"] < answer["history"]["wait"]["mean"]
    for found in answer["policies"].values():
        low, high = found["band"]["wait_mean"]
        assert low <= found["wait"]["mean"] <= high
    assert horae(*words, "--json").json["policies"] == answer["policies"]
    text = out.read_text()
    seen = Loads()
    seen.feed(text)
    assert not seen.fetched
    assert not {"script", "link", "iframe", "img", "b1", "acct1"} & set(seen.tags)
    assert "&lt;b&gt;acct1&lt;/b&gt;" in text
    assert "url(" not in text and "@import" not in text and "http" not in text
    assert seen.tags.count("svg") == 3
    assert text == page(answer, "dump.txt")


def test_each_lever_is_what_the_simulator_says_of_the_same_dump(horae: Horae, tmp_path: Path) -> None:
    dump, out = str(crowded(tmp_path)), tmp_path / "report.html"
    answer = horae("what-if", "--from-sacct", dump, "--policies", "afs-l", "--html", str(out), "--json").json
    played = {"order": "srtf", "policy": "afs-l", "elasticity": "afs-l"}  # nobody is elastic unless that is said
    for lever, policy in played.items():
        words = ("simulate", dump, "--format", "sacct", "--cluster", "a100:1x4", "--policy", policy, "--json")
        told, found = horae(*words).json, answer["levers"][lever]
        assert (found["wait"]["mean"], found["jct"]["mean"]) == (told["queueing"]["mean"], told["jct"]["mean"])
    assert answer["levers"]["order"]["jct"] != answer["replay"]["jct"]
    assert "mean time to completion</p>" in out.read_text()


def test_history_alone_needs_no_policy_and_a_given_cluster_is_said(horae: Horae, tmp_path: Path) -> None:
    dump = str(crowded(tmp_path))
    answer = horae("what-if", "--from-sacct", dump, "--cluster", "a100:2x4", "--json").json
    assert answer["cluster"] == {"gpus": 8, "from": "given"}
    assert set(answer) == {"history", "cluster"}
    assert "12 of them ran on GPUs" in horae("what-if", "--from-sacct", dump).out


def test_what_is_wrong_is_told_with_code_3(horae: Horae, tmp_path: Path) -> None:
    dump = crowded(tmp_path)
    assert horae("what-if", "--from-sacct", str(dump), "--policies", "nobody").code == 3
    dump.write_text(dump.read_text()[:-3])
    said = horae("what-if", "--from-sacct", str(dump), "--json")
    assert (said.code, said.json["error"]["field"]) == (3, "NodeList")
    assert f"{dump}:13: NodeList: the last line has no end: the dump is cut" in said.err
    said = horae("what-if", "--from-sacct", str(dump), "--json", "--skip-bad")
    assert said.json["history"]["skipped"] == {"no gpus": 0, "never started": 0, "malformed": 1}


@pytest.mark.parametrize("cpus", [False, True])
def test_jobs_without_gpus_count_when_asked(tmp_path: Path, cpus: bool) -> None:
    path = crowded(tmp_path, 1)
    path.write_text(path.read_text() + "9|9|u|a|COMPLETED|5|5|15|75|60|cpu=1|cpu=1|n1\n")
    past = from_sacct(path, WhatIf(cpus=cpus))[0]["history"]
    assert past["skipped"]["no gpus"] == int(not cpus)
    assert past.get("cpu_jobs", 0) == int(cpus)
    assert past["gpu_jobs"] == 1
