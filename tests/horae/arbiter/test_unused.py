"""GPUs that are held and not used: when it is said, from what, and who gives them back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.observe.unused import UNUSED
from horae.config import Mode, parse
from horae.fake.faults import Raise
from horae.journal import Kind
from horae.journal.reading import FILE
from horae.journal.store import rebuilt
from horae.port import JobState, Observation, TryLater
from horae.views.watch import explained
from policy.decide import decide
from policy.model import BadInput, Node
from tests.horae.arbiter.site import ANN, ROOT, Site, spec

LONG = 10**6


def site_of(folder: Path, reclaim_s: float | None = None, **changes: Any) -> Site:
    pools = [{"name": "main", **({} if reclaim_s is None else {"reclaim_unused_s": reclaim_s})}]
    nodes = [Node("n1", "v100", 4)]
    return Site(folder, nodes=nodes, policy=decide, pools=pools, unused={"after_s": 60.0}, **changes)


def started(site: Site, **about: Any) -> str:
    (job,) = site.commands.submit([spec("train", (1, 4), steps=LONG, **about)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(15)
    return job


def hangs(site: Site, job: str) -> None:
    """It computes no step any more, and says nothing."""
    run = site.world.jobs[job].run
    assert run is not None
    run.first_step, run.since_s, run.iteration_s = run.step_at(site.time.now), site.time.now, 1e12


def goes_on(site: Site, job: str) -> None:
    run = site.world.jobs[job].run
    assert run is not None
    run.since_s, run.iteration_s = site.time.now, 0.1


def said(site: Site, job: str) -> str:
    return next((c.text for c in explained(site.core, job).causes if c.what == "unused"), "")


def test_a_job_that_makes_steps_uses_its_gpus(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=60.0)
    job = started(site)
    site.run(300)
    assert site.job(job).unused is None and site.job(job).state is JobState.RUNNING


def test_a_job_that_hangs_is_said_to_and_said_to_go_on(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    job = started(site)
    hangs(site, job)
    site.run(45)
    assert not said(site, job)
    site.run(45)
    assert said(site, job).startswith("its 4 GPUs lie unused for 1 min, as it seems: no step after")
    assert site.job(job).state is JobState.RUNNING, "no operator takes GPUs back here"
    site.reopen()
    site.run(5)
    assert said(site, job), "a new arbiter goes on with what was said"
    goes_on(site, job)
    site.run(30)
    assert not said(site, job)
    site.close()
    assert rebuilt(tmp_path / FILE) == site.core.ledger


def test_what_never_told_a_step_is_silent_and_not_unused(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=60.0, world_options={})
    (job,) = site.commands.submit([spec("notebook", 4, steps=LONG, extra={"fake.iteration_s": "1e9"})], ANN)
    site.until(job, JobState.RUNNING)
    site.run(300)
    assert site.job(job).unused is None and site.job(job).state is JobState.RUNNING


def test_a_log_that_cannot_be_read_is_no_evidence(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=60.0)
    job = started(site)
    site.fake.faults.on("read_log", Raise(TryLater("the spool is away")), times=10_000)
    hangs(site, job)
    site.run(300)
    assert site.job(job).unused is None


@pytest.mark.parametrize("by_s", [-86400.0, 86400.0])
def test_a_clusters_clock_that_is_set_hides_no_work(
    tmp_path: Path, by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path, reclaim_s=60.0)
    job, observe = started(site), site.fake.observe

    def set_by() -> Observation:
        seen = observe()
        return replace(seen, now_s=seen.now_s + by_s)

    monkeypatch.setattr(site.fake, "observe", set_by)
    site.run(20)
    done = site.core.fresh[job].done
    site.run(200)
    record = site.job(job)
    assert site.core.fresh[job].done > done
    assert record.unused is None and record.state is JobState.RUNNING


def test_of_gpus_whose_use_shows_each_counts(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=60.0)
    job = started(site)
    site.world.jobs[job].gpu_use = {"n1:0": 0.9, "n1:1": 0.5, "n1:2": 0.0, "n1:3": 0.01}
    site.run(70)
    assert said(site, job) == "2 of its 4 GPUs lie unused for 1 min: no look showed work on n1:2, n1:3"
    site.world.jobs[job].gpu_use["n1:3"] = 0.3
    site.run(5)
    assert said(site, job).startswith("1 of its 4 GPUs lie unused")
    site.run(120)
    assert site.job(job).state is JobState.RUNNING, "a part of it works"


def test_unused_gpus_are_taken_back_where_the_pool_says_so(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=90.0)
    job = started(site)
    site.world.jobs[job].gpu_use = dict.fromkeys(("n1:0", "n1:1", "n1:2", "n1:3"), 0.0)
    site.run(70)
    assert site.job(job).state is JobState.RUNNING
    assert "unused for 1.5 min it checkpoints and leaves" in str(explained(site.core, job).causes)
    record = site.until(job, JobState.STOPPED)
    assert record.hold_by == UNUSED and record.checkpoint is not None
    assert "lie unused" in explained(site.core, job).headline
    held = [e.data["by"] for e in site.journal.history(job=job, kinds=[Kind.HELD])]
    assert held == [UNUSED]
    site.commands.unhold(job, ANN)
    site.world.jobs[job].gpu_use = {}
    site.until(job, JobState.RUNNING)
    site.run(30)
    assert site.job(job).state is JobState.RUNNING and site.job(job).unused is None


def test_a_job_without_a_checkpoint_keeps_what_it_lets_lie(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=60.0)
    job = started(site, checkpoint=None)
    site.world.jobs[job].gpu_use = dict.fromkeys(("n1:0", "n1:1", "n1:2", "n1:3"), 0.0)
    site.run(200)
    assert site.job(job).state is JobState.RUNNING and "lie unused" in said(site, job)


def test_a_pool_that_only_advises_takes_nothing(tmp_path: Path) -> None:
    site = site_of(tmp_path, reclaim_s=60.0)
    job = started(site)
    site.world.jobs[job].gpu_use = dict.fromkeys(("n1:0", "n1:1", "n1:2", "n1:3"), 0.0)
    site.commands.set_mode("main", Mode.ADVISE, ROOT)
    site.run(200)
    assert site.job(job).state is JobState.RUNNING and site.job(job).hold_why is None


def test_a_pool_cannot_take_back_what_is_not_called_unused_yet() -> None:
    for after, back in (("1800", "60"), ("0", "60")):
        text = f"cluster: {{adapter: local}}\npools: [{{reclaim_unused_s: {back}}}]\nunused: {{after_s: {after}}}\n"
        with pytest.raises(BadInput, match="takes unused GPUs back after 60 s"):
            parse(text)
