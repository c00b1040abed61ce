"""Maintenance and reservations that are known ahead: who starts, who leaves, and what people are told of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.observe.absences import absences
from horae.config import parse
from horae.port import Absence, JobState
from horae.views import watch
from horae.views.watch import explained
from policy.decide import decide
from policy.model import BadInput, Node
from policy.text import instance
from tests.horae.arbiter.site import ANN, Site, Time, spec

LONG = 10**6
NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC).timestamp()
TWO = (Node("n1", "v100", 4), Node("n2", "v100", 4))
FIRMWARE = {"name": "firmware", "nodes": "n1", "begins": "2026-12-01T10:00Z", "ends": "2026-12-01T11:00Z"}


def site_of(folder: Path, nodes: tuple[Node, ...] = TWO, policy: str = "max-min", **changes: Any) -> Site:
    return Site(
        folder,
        nodes=nodes,
        policy=decide,
        time=Time(NOW),
        pools=[{"name": "main", "policy": policy}],
        **{"away": [FIRMWARE], **changes},
    )


def told(site: Site, job: str, what: str = "away") -> str:
    return " | ".join(c.text for c in explained(site.core, job).causes if c.what == what)


def test_a_rigid_job_starts_where_it_can_end_before(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    long, short, endless = site.commands.submit(
        [
            spec("long", 4, steps=LONG, checkpoint=None, time_limit_s=3 * 3600.0),
            spec("short", 4, steps=LONG, checkpoint=None, time_limit_s=3600.0),
            spec("endless", 4, steps=LONG, checkpoint=None),
        ],
        ANN,
    )
    for job in (long, short):
        site.until(job, JobState.RUNNING)
    site.run(10)
    assert site.job(long).allocation == {"n2": 4} and site.job(short).allocation == {"n1": 4}
    assert "its time limit ends before" in told(site, short)
    assert site.job(endless).state is JobState.QUEUED
    certificate = site.core.decisions["main"].certificate
    assert certificate.feasible and certificate.work_conserving


def test_who_waits_for_it_is_told_and_how_it_could_start(tmp_path: Path) -> None:
    site = site_of(tmp_path, nodes=TWO[:1])
    (job,) = site.commands.submit([spec("long", 2, steps=LONG, checkpoint=None, time_limit_s=7200.0)], ANN)
    site.run(10)
    assert site.job(job).state is JobState.QUEUED and site.job(job).reason is not None
    assert site.job(job).reason["code"] == "waits-away"  # type: ignore[index]
    assert "n1 is away from 2026-12-01" in told(site, job)
    (cause,) = [c for c in explained(site.core, job).causes if c.what == "policy"]
    fits_s = cause.numbers["fits_s"]
    assert "next decision" not in told(site, job), "though GPUs are free"
    assert 7000 < fits_s < 7200 and f"a time limit of at most {fits_s:.0f} s" in cause.change
    soon = watch.starts(site.core, "main")[job]
    assert soon.in_s == pytest.approx(3 * 3600, abs=60), "when it is back"
    (shorter,) = site.commands.submit([spec("shorter", 2, steps=LONG, checkpoint=None, time_limit_s=fits_s - 60)], ANN)
    site.until(shorter, JobState.RUNNING)


def test_elastic_jobs_checkpoint_and_move_before_and_come_back(tmp_path: Path) -> None:
    site = site_of(tmp_path, guards={"min_run_s": 10**6, "restarts_per_hour": 1, "leave_ahead_s": 600.0})
    (job,) = site.commands.submit([spec("train", (1, 8), steps=10**8)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(5)
    assert site.job(job).allocation == {"n1": 4, "n2": 4}
    assert "it checkpoints and leaves from 2026-12-01" in told(site, job)
    site.time.now = NOW + 2 * 3600 - 610
    site.run(5)
    assert site.job(job).allocation == {"n1": 4, "n2": 4}
    site.run(30)
    record = site.until(job, JobState.RUNNING)
    assert record.allocation == {"n2": 4} and record.checkpoint is not None, "whatever the guards hold back else"
    assert site.time.now < NOW + 2 * 3600
    assert not site.world.violations and not site.world.refusals
    site.time.now = NOW + 2 * 3600 + 60
    site.run(5)
    assert site.job(job).allocation == {"n2": 4}


def test_where_there_is_no_other_place_it_waits_until_the_node_is_back(tmp_path: Path) -> None:
    site = site_of(tmp_path, nodes=TWO[:1])
    (job,) = site.commands.submit([spec("train", (1, 4), steps=10**8)], ANN)
    site.until(job, JobState.RUNNING)
    site.time.now = NOW + 2 * 3600 - 299
    record = site.until(job, JobState.STOPPED)
    assert record.checkpoint is not None
    site.time.now = NOW + 3 * 3600 - 30
    site.run(20)
    assert site.job(job).state is JobState.STOPPED
    assert "n1 is away for firmware" in told(site, job, "policy")
    assert {c.change for c in explained(site.core, job).causes if c.what == "away"} == {"its end"}
    site.run(20)
    assert site.until(job, JobState.RUNNING).allocation == {"n1": 4}


def test_what_the_cluster_says_of_its_own_maintenance_counts_too(tmp_path: Path) -> None:
    site = site_of(tmp_path, away=[])
    site.world.away = (Absence("root_3", ("n1", "elsewhere"), NOW + 600, NOW + 900, "MAINT"),)
    (job,) = site.commands.submit([spec("rigid", 4, steps=LONG, checkpoint=None, time_limit_s=3600.0)], ANN)
    site.until(job, JobState.RUNNING)
    assert site.job(job).allocation == {"n2": 4}
    text = instance.to_text(site_snapshot(site))
    assert "root_3" in text and "\\0" not in text and "\x00" not in text
    assert instance.to_text(instance.parse(text)) == text


def site_snapshot(site: Site) -> Any:
    from horae.arbiter.round import question

    assert site.core.view is not None
    return question(site.core.ledger, site.config.pools[0], site.core.view).snapshot


def test_a_node_is_emptied_earlier_for_a_job_that_needs_longer(tmp_path: Path) -> None:
    site = site_of(tmp_path, nodes=TWO[:1])
    (job,) = site.commands.submit([spec("slow", (1, 4), steps=LONG, grace_s=1200.0)], ANN)
    site.until(job, JobState.RUNNING)
    assert site.core.view is not None
    found = absences(site.core.ledger, site.config, site.core.view.observation, NOW, NOW)
    assert found["n1"][0].leave_s == pytest.approx(found["n1"][0].from_s - 1200 - 2 * site.config.rounds.tick_s)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{name: m, nodes: n1, begins: soon, ends: 2026-12-01T11:00Z}", "is no time"),
        ("{name: m, nodes: n1, begins: 2026-12-01T12:00Z, ends: 2026-12-01T11:00Z}", "ends before it begins"),
        ("{name: m, nodes: 'n[', begins: 2026-12-01T12:00Z, ends: 2026-12-01T13:00Z}", "is no hostlist"),
    ],
)
def test_a_wrong_time_is_refused(line: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse(f"cluster: {{adapter: local}}\naway:\n  - {line}\n")
