"""Profiles that are off, tenants that lie, nodes that are slow, apps that end their worst jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from horae.sim.conditions.pace import Stragglers
from horae.sim.conditions.sweeps import LossCurve
from horae.sim.conditions.told import Conditions, Lie, SlowNodes, lies_of, slow_nodes, told
from horae.sim.results import rho_by_app
from horae.sim.traces.model import Trace, TraceJob
from policy.model import BadInput, GpuRange, Job, Phase, Slowdown, Work
from tests.horae.sim import made
from tests.horae.sim.made import CLUSTER, said

PHASES = (Phase(4, 300.0), Phase(2, 600.0), Phase(1, 900.0))
ALL = Conditions(0.2, {"t0": Lie(1.5, 0.5, 1.3)}, SlowNodes(600.0, 0.5, 200.0))


def swept(seed: int, apps: int = 3) -> Trace:
    chance, at, out = Random(seed), 0.0, []
    for app in range(apps):
        at += chance.expovariate(1 / 200)
        for n in range(4):
            curve = LossCurve(2.0, chance.random(), chance.uniform(100, 500))
            out.append(
                TraceJob(
                    f"a{app}-{n}",
                    round(at),
                    1,
                    1800.0,
                    tenant=f"t{app % 2}",
                    app=f"a{app}",
                    max_gpus=1 + app % 2,
                    slowdown=Slowdown(1.0, 1.2, 1.5),
                    loss=curve,
                    phases=PHASES,
                )
            )
    return Trace(tuple(out))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "slaq", "themis", "max-min", "oef-cooperative", "gandiva-fair"])
def test_both_engines_give_the_same_bytes_under_all_of_it(policy: str) -> None:
    jobs = swept(1)
    fast = made.played(jobs, policy, "k80:2x2,v100:1x2", ideal=False, conditions=ALL)
    arbiter = made.played(jobs, policy, "k80:2x2,v100:1x2", ideal=False, conditions=ALL, engine="arbiter")
    assert made.rows(fast) == made.rows(arbiter)
    assert sum(run.lost_s is not None for run in fast.runs) == 9
    assert sum(run.finished_s is not None for run in fast.runs) == 3


@pytest.mark.parametrize("ideal", [True, False])
def test_an_app_ends_its_worst_jobs_at_the_ends_of_phases(ideal: bool) -> None:
    jobs = swept(3, apps=1)
    outcome = made.played(jobs, "fifo", "k80:1x4", ideal=ideal)
    left = sorted(outcome.runs, key=lambda run: run.curve.at(300.0) if run.curve else 0.0)
    assert [run.finished_s is not None for run in left].count(True) == 1
    after_first = {run.plain.name for run in left[2:]}
    assert {run.plain.name for run in left if run.lost_s is not None and run.done < 900} == after_first
    survivors = sorted(left[:2], key=lambda run: run.curve.at(900.0) if run.curve else 0.0)
    assert (survivors[0].done, survivors[0].finished_s is not None) == (1800.0, True)
    assert survivors[1].lost_s is not None
    assert survivors[1].done >= 900
    assert set(rho_by_app(outcome)) == {"t0/a0"}


def test_phases_have_to_fit_their_jobs_and_their_app() -> None:
    first, *others = swept(1, apps=1).jobs
    with pytest.raises(BadInput, match="tells other phases of app t0/a0"):
        made.played(Trace((first, *(replace(j, phases=PHASES[1:]) for j in others))), "fifo", ideal=True)
    with pytest.raises(BadInput, match="the phases of its app take 1800"):
        made.played(Trace((replace(first, duration=1000.0),)), "fifo", ideal=True)


def test_a_gang_goes_at_the_speed_of_its_slowest_node() -> None:
    """Against small steps: what a window of slowness costs, by hand."""
    slow = SlowNodes(500.0, 0.25, 100.0)
    pace = Stragglers(slow, 5).of(["n1", "n2"])
    alone = [Stragglers(slow, 5).of([name]) for name in ("n1", "n2")]
    steps = [0.5 + n for n in range(5000)]
    by_hand = sum(min(one.worked(t - 0.5, t + 0.5) for one in alone) for t in steps)
    assert pace.worked(0.0, 5000.0) == pytest.approx(by_hand, abs=40)  # a step in which one changes
    assert 0.25 * 5000 < pace.worked(0.0, 5000.0) < min(one.worked(0.0, 5000.0) for one in alone)
    assert pace.until(700.0, pace.worked(700.0, 3333.0)) == pytest.approx(3333.0)


def test_slow_nodes_make_jobs_late_by_the_seed() -> None:
    jobs = made.trace(4, 12, elastic=False)
    plain, slow = (
        made.played(jobs, "fifo", "v100:3x4", ideal=False, conditions=Conditions(slow=some))
        for some in (None, SlowNodes(300.0, 0.5, 300.0))
    )
    late = [(s.finished_s or 0) - (p.finished_s or 0) for s, p in zip(slow.runs, plain.runs, strict=True)]
    assert min(late) >= 0 < max(late)
    with pytest.raises(BadInput, match="no nodes that could be slow"):
        made.played(jobs, "fifo", ideal=True, conditions=Conditions(slow=SlowNodes(300.0, 0.5, 300.0)))


def test_policies_are_told_what_is_not_so_and_jobs_do_what_they_do() -> None:
    speeds = {"k80": {1: 1.0, 2: 1.8}, "v100": {1: 3.0}}
    job = Job("j", "t0", "a", GpuRange(2, 1, 2), work=Work(100.0), throughput=speeds, slowdown=Slowdown(1.0, 1.2, 1.5))
    lied = told(job, Conditions(lies={"t0": Lie(2.0, 0.5, 1.5)}), 0)
    assert lied.throughput == {"k80": {1: 1.0, 2: 1.8}, "v100": {1: 6.0}}
    assert lied.work.total == 50.0
    assert (lied.slowdown.rack, lied.slowdown.cluster) == pytest.approx((1.8, 2.25))
    assert told(job, Conditions(lies={"other": Lie(2.0)}), 0) == job
    off = told(job, Conditions(0.2), 3)
    assert off == told(job, Conditions(0.2), 3) != told(job, Conditions(0.2), 4)
    assert all(0.8 <= off.throughput[t][1] / speeds[t][1] <= 1.2 for t in speeds)
    jobs = made.of_one_tenant(made.trace(2, 8, elastic=False))
    one_by_one = made.played(jobs, "fifo", "v100:1x4", ideal=True)
    shortened = made.played(jobs, "fifo", "v100:1x4", ideal=True, conditions=Conditions(lies={"a": Lie(length=0.1)}))
    assert made.rows(one_by_one) == made.rows(shortened)  # FIFO does not listen


def test_whoever_says_that_its_jobs_are_short_goes_first_under_srtf() -> None:
    jobs = Trace((TraceJob("a", 0.0, 1, 100.0, tenant="a"), TraceJob("b", 0.0, 1, 60.0, tenant="b")))
    honest, lied = (
        made.played(jobs, "srtf", "v100:1x1", ideal=True, conditions=Conditions(lies=lies))
        for lies in ({}, {"a": Lie(length=0.1)})
    )
    assert [run.finished_s for run in honest.runs] == [160.0, 60.0]
    assert [run.finished_s for run in lied.runs] == [100.0, 160.0]


@pytest.mark.parametrize("word", ["a", "a:speed=2", "a:speedup=0", "a:length=1000", ":length=2", "a:length=x"])
def test_a_lie_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match="TENANT:WHAT=FACTOR"):
        lies_of([word])


@pytest.mark.parametrize("word", ["", "1,2", "0,0.5,10", "100,2,10", "100,0.5,nan", "a,b,c", "100,0.5,10,1"])
def test_slow_nodes_that_are_not_said_are_refused(word: str) -> None:
    with pytest.raises(BadInput, match="EVERY,FACTOR,FOR"):
        slow_nodes(word)


def test_the_command_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    head = "submitted,duration,gpus,app,tenant,slowdown,loss,phases\n"
    trace.write_text(head + "".join(f"0,100,1,s,t,1/1.2/1.4,2/0.{n}/10,4x20 2x30 1x50\n" for n in range(1, 5)))
    words = ("simulate", str(trace), *CLUSTER, "--policy", "srtf", "--json")
    code, out, _ = said(capsys, *words, "--noise", "0.1", "--lie", "t:length=2", "--stragglers", "50,0.5,10")
    assert (code, json.loads(out)["completed"]) == (0, 1)
    for more, what in (
        (("--noise", "2"), "--noise"),
        (("--lie", "t"), "--lie"),
        (("--stragglers", "x"), "--stragglers"),
        (("--engine", "arbiter", "--faults", "all"), "jobs with phases"),
    ):
        code, _, err = said(capsys, *words, *more)
        assert (code, what in err) == (3, True)
