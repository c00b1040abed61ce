"""What became of a job's GPU time, made on a cluster in memory and counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.port import JobState
from horae.views.efficiency import Efficiency, efficiency
from policy.decide import decide
from policy.model import Node
from tests.horae.arbiter.site import ANN, BEN, Site, spec


def told(site: Site, job: str) -> Efficiency:
    return efficiency(site.job(job), site.journal.history(job=job), site.time.now)


def test_every_gpu_second_is_trained_or_restarted_or_waited(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)], policy=decide)
    (job,) = site.commands.submit([spec("a", (1, 4), steps=10**6)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(30)
    (other,) = site.commands.submit([spec("b", (1, 4), steps=10**6)], BEN)
    site.until(other, JobState.RUNNING)
    site.run(30)
    running = told(site, job)
    site.commands.cancel(job, ANN)
    site.until(job, JobState.CANCELLED)
    record, found = site.job(job), told(site, job)
    assert found.whole and found.starts == 2
    assert found.trained + found.restarting == pytest.approx(sum(record.attained.values()), rel=0.01)
    assert found.held == pytest.approx(sum(record.attained.values()))
    assert 0 < found.restarting < found.trained
    lived_s = (record.ended_s or 0.0) - record.submitted_s
    assert 0 < found.waited_s < lived_s
    assert running.held < found.held + 1e-6
    site.run(50)
    assert told(site, job) == found, "what is over does not change"


def test_who_scales_badly_is_told(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)], policy=decide)
    (job,) = site.commands.submit([spec("a", 4, steps=10**6)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(20)
    site.job(job).measured["rates"] = {"v100": {"1": 1.0, "4": 2.0}}
    found = told(site, job)
    assert found.scaling == pytest.approx(0.5)
    assert any("50% of what one alone does" in text for text in found.advice)
    site.job(job).measured["rates"] = {"v100": {"4": 2.0}}
    assert told(site, job).scaling is None


def test_what_compaction_dropped_is_said(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)], policy=decide)
    (job,) = site.commands.submit([spec("a", 4, steps=10**6)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(60)
    site.journal.compact(history_s=1.0, forget_after_s=1e9)
    found = told(site, job)
    assert not found.whole and found.held > 200


def test_a_job_that_never_started_kept_no_size(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)], policy=decide)
    ahead, waits = site.commands.submit([spec("a", 4), spec("b", (1, 4), checkpoint=None)], ANN)
    site.until(ahead, JobState.RUNNING)
    assert not told(site, waits).advice
    site.commands.cancel(ahead, ANN)
    site.until(waits, JobState.RUNNING)
    site.run(20)
    assert any("it kept the size that it started at" in text for text in told(site, waits).advice)


def test_one_that_ended_at_once_is_not_told_how_to_use_gpus_better(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)], policy=decide)
    (job,) = site.commands.submit([spec("a", 4, steps=1, checkpoint=None)], ANN)
    site.until(job, JobState.COMPLETED)
    assert told(site, job).held < 60
    assert not told(site, job).advice
