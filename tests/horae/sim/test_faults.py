"""Bad days: nothing is lost on them, each broken rule is found, and what is found shrinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.observe.measurements import SdkProfiles
from horae.journal.form import Kind
from horae.port import CheckpointMark, JobState
from horae.sim.engine.arbiter import config_of
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.cluster import cluster_of
from horae.sim.engine.restarts import constant
from horae.sim.engine.workload import Workload, runs
from horae.sim.engine.world import SimulatedWorld
from horae.sim.faults import days
from horae.sim.faults.arbiter import BREAKS, BrokenRule, FaultyConnection, KeptDisk
from horae.sim.faults.cluster import FaultyCluster
from horae.sim.faults.days import BadDays
from horae.sim.faults.hazards import Hazards
from horae.sim.faults.run import FaultyRun
from horae.sim.faults.schedule import HOWS, FaultKind, PlannedFault, drawn, read_schedule
from horae.sim.faults.shrink import shortest
from horae.sim.traces.model import Trace, TraceJob
from horae.spec import JobSpec
from policy.model import BadInput
from policy.throughput import Throughput
from tests.horae.sim import made
from tests.horae.sim.made import CLUSTER, said

EVERY = "all"


def run(seed: int, policy: str = "srtf", jobs: int = 40, broken: BrokenRule | None = None, **more: Any) -> FaultyRun:
    settings = Settings.of(cluster_of("v100:3x4"), policy, {}, seed=seed, restart_s=30.0)
    return FaultyRun(made.trace(seed, jobs, **more), settings, made.CONCAVE, broken)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "afs-l"])
def test_every_kind_of_fault_takes_effect_and_every_job_ends(policy: str) -> None:
    for seed in range(3):
        played = run(seed, policy)
        outcome = played.play(played.schedule(EVERY))
        assert outcome.violations == []
        assert set(outcome.faults) == set(FaultKind)
        assert 0 not in outcome.faults.values()
        assert outcome.faults["node-loss"] == outcome.faults["node-return"]
        assert all(job.finished_s is not None for job in outcome.simulated.runs)


@pytest.mark.parametrize(("kind", "how"), [(kind, how) for kind, hows in HOWS.items() for how in hows])
def test_a_day_of_one_misfortune_again_and_again(kind: FaultKind, how: str) -> None:
    """Each way in which each may come, while jobs move, and take their time for it."""
    played = replace(run(3, "las", jobs=16), spawn_s=2.0, leave_s=4.0)
    nodes = ["v100-1-1"]
    days_ = [drawn(PlannedFault(150.0 * number, kind, how=how), number, nodes) for number in range(1, 30)]
    outcome = played.play(days_)
    assert outcome.violations == []
    assert outcome.faults[kind] > 0
    ended = sum(job.finished_s is None for job in outcome.simulated.runs)
    assert (ended > 0) == (how in ("failed", "cancelled", "cancel"))


def test_jobs_that_come_at_once_meet_every_kind_too() -> None:
    played = run(2, "fifo", apart_s=1e-6)
    outcome = played.play(played.schedule(EVERY))
    assert (outcome.violations, 0 in outcome.faults.values()) == ([], False)


@pytest.mark.parametrize("killed", [False, True])
def test_a_disk_that_is_full_for_hours_starves_nobody_for_good(killed: bool) -> None:
    """Nothing moves meanwhile: whoever watches must not take it for the end, nor start an arbiter in vain."""
    settings = Settings.of(cluster_of("v100:1x4"), "fifo", {}, restart_s=30.0)
    trace = Trace((TraceJob("late", 100.0, 1, 60.0),))
    kills = [PlannedFault(50.0, FaultKind.KILL, how="before-write", port_call=1)] if killed else []
    schedule = [*kills, PlannedFault(60.0, FaultKind.FULL_DISK, by_s=6 * 3600.0)]
    outcome = FaultyRun(trace, settings, {}).play(schedule)
    assert (outcome.violations, outcome.faults["full-disk"], outcome.faults["kill"]) == ([], 1, int(killed))
    (job,) = outcome.simulated.runs
    assert job.finished_s is not None and job.finished_s > 6 * 3600.0


def test_a_job_that_leaves_holds_its_gpus_until_it_has_left() -> None:
    later: list[Any] = []
    (node,) = (nodes := cluster_of("v100:1x4")).nodes
    world = SimulatedWorld(Throughput(nodes), constant(0.0), first_s=7.0)
    port = FaultyCluster(world, nodes, lambda by_s, deed: later.append((by_s, deed)), leave_s=5.0)
    trace = Trace((TraceJob("leaver", 0.0, 4, 100.0),))
    (run,) = runs(trace, Workload(nodes, Throughput(nodes), {}), None)
    world.jobs["leaver"] = run
    port.submit("leaver", JobSpec("leaver", ("train",), run.plain.gpus))
    port.start("leaver", {node.name: 4}, 1)
    port.now_s = 57.0
    done = run.done_at(57.0)
    assert done == pytest.approx(run.total / 2)  # its first start cost seven seconds
    port.checkpoint_and_stop("leaver", 10.0)
    port.checkpoint_and_stop("leaver", 10.0)
    (shown,) = port.observe().jobs
    assert (shown.state, dict(shown.allocation)) == (JobState.STOPPING, {node.name: 4})
    port.now_s = 62.0
    ((by_s, left),) = later
    left()
    (shown,) = port.observe().jobs
    assert (by_s, shown.state, dict(shown.allocation), run.done) == (5.0, JobState.STOPPED, {}, done)
    assert shown.checkpoint == CheckpointMark(1, done, 62.0)


def test_what_becomes_of_a_job_that_is_asked_to_leave_says_its_supervisor() -> None:
    """One that hears nothing is killed when its grace and two seconds more are over; one that has no checkpoint to
    start from, stop after stop, is failed for good."""
    later: list[Any] = []
    (node,) = (nodes := cluster_of("v100:1x4")).nodes
    world = SimulatedWorld(Throughput(nodes), constant(0.0))
    port = FaultyCluster(world, nodes, lambda by_s, deed: later.append((by_s, deed)))
    both = Trace((TraceJob("deaf", 0.0, 2, 1e6), TraceJob("torn", 0.0, 2, 1e6)))
    for run in runs(both, Workload(nodes, Throughput(nodes), {}), None):
        world.jobs[run.plain.name] = run
        port.submit(run.plain.name, JobSpec(run.plain.name, ("train",), run.plain.gpus, retries=2))

    def ended(job: str, epoch: int, harm: Callable[[], None]) -> JobState:
        port.start(job, {node.name: 2}, epoch)
        harm()
        port.now_s += 10.0
        port.checkpoint_and_stop(job, 30.0)
        while later:
            by_s, deed = later.pop()
            port.now_s += by_s
            deed()
        return {shown.id: shown.state for shown in port.observe().jobs}[job]

    assert ended("deaf", 1, lambda: port.dies("deaf", "deaf")) is JobState.STOPPED
    assert port.now_s == 42.0
    ends = [ended("torn", epoch, lambda: port.tear("torn")) for epoch in (1, 2, 3)]
    assert ends == [JobState.STOPPED, JobState.STOPPED, JobState.FAILED]


def test_a_job_that_has_done_all_holds_its_gpus_until_it_has_left() -> None:
    (node,) = (nodes := cluster_of("v100:1x4")).nodes
    world = SimulatedWorld(Throughput(nodes), constant(0.0), last_s=5.0)
    port = FaultyCluster(world, nodes, lambda _by_s, _deed: None)
    (run,) = runs(Trace((TraceJob("last", 0.0, 4, 100.0),)), Workload(nodes, Throughput(nodes), {}), None)
    world.jobs["last"] = run
    port.submit("last", JobSpec("last", ("train",), run.plain.gpus))
    port.start("last", {node.name: 4}, 1)
    port.now_s = 103.0
    assert (world.advance(103.0), world.next_end_s()) == ([], 105.0)
    assert port.read_log("last", 0).data.startswith(b"[horae] step=400/400 ")
    port.checkpoint_and_stop("last", 10.0)
    assert run.done == run.total


def test_a_job_that_is_started_runs_a_moment_later_and_its_log_says_how_fast() -> None:
    (node,) = (nodes := cluster_of("v100:1x4")).nodes
    world = SimulatedWorld(Throughput(nodes), constant(0.0), first_s=7.0)
    port = FaultyCluster(world, nodes, lambda _by_s, _deed: None, spawn_s=2.0)
    (run,) = runs(Trace((TraceJob("slow", 0.0, 4, 100.0),)), Workload(nodes, Throughput(nodes), {}), None)
    world.jobs["slow"] = run
    port.submit("slow", JobSpec("slow", ("train",), run.plain.gpus))
    port.start("slow", {node.name: 4}, 1)
    told, states = SdkProfiles(every_s=1.0), []
    for now_s in (1.0, 3.0, 57.0):
        port.now_s = now_s
        (shown,) = (seen := port.observe()).jobs
        measured = told.update(seen, port.read_log)
        states.append((shown.state, shown.since_s, sorted(measured)))
    assert states == [(JobState.STARTING, 0.0, []), (JobState.RUNNING, 2.0, []), (JobState.RUNNING, 2.0, ["slow"])]
    learnt = measured["slow"]
    assert (learnt.done, learnt.total, dict(learnt.rates)) == (200.0, 400.0, {"v100": {4: pytest.approx(4.0)}})


def test_an_arbiter_may_learn_speeds_as_it_learns_them_of_real_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told none, and has read each when a job that ran is asked to leave for another shape; and of each start,
    the first and those from a checkpoint, how long its first iteration was in coming."""
    settings = Settings.of(cluster_of("v100:1x4"), "afs-l", {}, restart_s=1.0)
    cluster, speeds = settings.cluster, Throughput(settings.cluster)
    trace = Trace(tuple(TraceJob(f"j{n}", 30.0 * n, 2, 200.0, min_gpus=1, max_gpus=4) for n in range(4)))
    jobs = runs(trace, Workload(cluster, speeds, {}), None)
    for each in jobs:
        each.real, each.plain = each.plain, replace(each.plain, throughput={}, provenance={})
    learnt: list[SdkProfiles] = []

    def learning(*_: object) -> SdkProfiles:
        learnt.append(SdkProfiles(every_s=1.0))
        return learnt[-1]

    world = SimulatedWorld(speeds, constant(4.0), first_s=4.0)
    config = config_of(settings, {"tick_s": 5.0})
    disk = KeptDisk()
    monkeypatch.setattr(days, "KeptDisk", lambda: disk)
    BadDays(AskedPolicy(settings, speeds), world, jobs, (), None, config, learning=learning).play()
    assert all(each.finished_s is not None for each in jobs)
    assert any(each.resizes for each in jobs)
    assert len(learnt) == 1
    told = [
        data["warmup_s"] for event, text in disk.events if event.kind is Kind.MEASURED and (data := json.loads(text))
    ]
    warm_s = [each for each in told if each is not None]
    assert len(warm_s) > len(jobs)
    assert warm_s == pytest.approx([4.0] * len(warm_s), abs=1.0)  # a log tells whole iterations


def test_a_clock_that_jumps_makes_no_stop_look_old() -> None:
    """An arbiter that is started after a step has the new time: stops on record are older by it at once."""
    played = run(111, "afs-l")
    assert played.play(played.schedule(EVERY)).violations == []


def test_what_a_cluster_showed_long_ago_is_not_shown_again_as_another_arbiter_is_misled() -> None:
    plain, hazards = cluster_of("v100:1x4"), Hazards()
    cluster = FaultyCluster(SimulatedWorld(Throughput(plain), constant(0.0)), plain, hazards.later)
    one, other = (FaultyConnection(cluster, KeptDisk(), hazards, None) for _ in range(2))
    for at_s, misled in ((0.0, one), (1000.0, other)):
        hazards.now_s = cluster.now_s = at_s
        cluster.claim(f"of {at_s:g}")
        hazards.arm(PlannedFault(at_s, FaultKind.BAD_LOOK, by_s=5.0, how="old"))
        misled.observe()
    cluster.claim("the newest")
    assert one.observe().claim == "the newest"
    assert other.observe().claim == "of 1000"


def test_the_same_seed_gives_the_same_bytes() -> None:
    def rows(seed: int) -> tuple[str, Any]:
        played = run(seed)
        outcome = played.play(played.schedule(EVERY))
        return made.rows(outcome.simulated), outcome.faults

    assert rows(4) == rows(4)


@pytest.mark.parametrize("rule", BrokenRule)
def test_each_broken_rule_ends_in_its_own_violation(rule: BrokenRule) -> None:
    played = run(1, broken=rule)
    outcome = played.play(played.schedule(EVERY))
    assert [found["rule"] for found in outcome.violations] == [BREAKS[rule][1]]


def test_a_violation_shrinks_to_the_fault_that_it_needs() -> None:
    """Who comes first is never stopped: only what takes his node away shows that he starts from nothing again."""
    played = run(1, "fifo", broken=BrokenRule.OLD_CHECKPOINT, elastic=False)
    whole = played.schedule(EVERY)
    outcome = played.shrunk(played.play(whole))
    assert [found["rule"] for found in outcome.violations] == ["old-state"]
    assert "node-loss" in [fault.kind for fault in outcome.schedule]
    assert len(outcome.schedule) <= 2 < len(whole)


def test_the_shortest_part_is_found() -> None:
    asked = 0

    def shows(part: Sequence[int]) -> bool:
        nonlocal asked
        asked += 1
        return {3, 17} <= set(part)

    assert shortest(range(40), shows) == (3, 17)
    assert asked < 60
    assert shortest(range(40), lambda _part: True) == ()


def test_what_a_schedule_does_not_say_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('[{"at": 90, "kind": "node-loss"}, {"at": 60.0, "kind": "kill"}]')
    found = read_schedule(file, 1, ["n1", "n2"])
    assert [fault.kind for fault in found] == ["kill", "node-loss"]
    assert (found[0].how is not None, found[1].node in ("n1", "n2")) == (True, True)
    assert found == read_schedule(file, 1, ["n1", "n2"])
    file.write_text(json.dumps([fault.plain() for fault in found]))
    assert found == read_schedule(file, 2, ["n1", "n2"])


@pytest.mark.parametrize(
    ("text", "said_"),
    [
        ("{}", "is no list"),
        ("[1]", "fault 1"),
        ('[{"at": 1, "kind": "flood"}]', "kind: cannot be 'flood'"),
        ('[{"kind": "kill"}]', "at: is no number of seconds"),
        ('[{"at": NaN, "kind": "kill"}]', "at: is no number of seconds"),
        ('[{"at": 1, "kind": "kill", "port_call": 0}]', "port_call"),
        ('[{"at": 1, "kind": "kill", "how": "gently"}]', "before-write"),
        ('[{"at": 1, "kind": "node-loss", "node": "x"}]', "node: cannot be 'x'"),
        ('[{"at": 1, "kind": "late-answer", "by_s": 90}]', "by_s"),
        ('[{"at": 1, "kind": "kill", "when": 2}]', "there is no when"),
        ("[", "is not JSON"),
    ],
)
def test_a_schedule_that_is_none_is_refused(text: str, said_: str, tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=said_):
        read_schedule(file, 1, ["n1"])


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, faults = tmp_path / "jobs.csv", tmp_path / "faults.json"
    trace.write_text("submitted,duration,gpus\n0,100,2\n10,50,4\n20,30,1\n")
    faults.write_text('[{"at": 5, "kind": "kill"}, {"at": 6, "kind": "second-arbiter"}]')
    words = ("simulate", str(trace), *CLUSTER, "--policy", "fifo", "--engine", "arbiter", "--faults", str(faults))
    code, out, _ = said(capsys, *words, "--json")
    result = json.loads(out)
    assert (code, result["violations"], result["completed"]) == (0, [], 3)
    assert (result["faults"]["kill"], result["faults"]["second-arbiter"], result["faults"]["lie"]) == (1, 1, 0)
    code, out, err = said(capsys, *words, "--seed", "3", "--break", "double-start", "--json")
    assert (code, json.loads(out)["violations"][0]["rule"]) == (1, "doubled")
    assert "seed 3: doubled" in err
    assert "[]" in err.splitlines()


def test_what_is_asked_for_wrongly_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("submitted,duration,gpus\n0,100,2\n")
    words = ("simulate", str(trace), *CLUSTER, "--policy", "fifo", "--faults", EVERY)
    code, _, err = said(capsys, *words)
    assert (code, "--engine arbiter" in err) == (3, True)
    code, _, err = said(capsys, *words, "--engine", "arbiter", "--break", "everything")
    assert (code, "no-fence" in err) == (3, True)
    code, out, _ = said(capsys, "simulate", "--break", "list")
    assert code == 0
    assert all(rule in out for rule in BrokenRule)
