"""Budgets of GPU-hours: counted from the journal, said at their end, and what may be had then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.arbiter.observe.budgets import bounds_of, over_text
from horae.config import Period
from horae.journal import Kind
from horae.journal.reading import FILE
from horae.journal.spending import DAY_S, by_day, charge, since
from horae.journal.store import rebuilt
from horae.port import JobState
from horae.views.watch import explained
from policy.decide import decide
from policy.model import Node
from tests.horae.arbiter.site import ANN, BEN, Site, Time, spec

#: A Wednesday, a minute before midnight.
EVE = datetime(2026, 9, 30, 23, 59, tzinfo=UTC).timestamp()


def site_with(folder: Path, then: str, gpu_hours: float = 0.1, **changes: Any) -> Site:
    """ann may use 6 GPU-minutes a month; ben as he likes. Two GPUs."""
    budget = {"gpu_hours": gpu_hours, "period": "month", "then": then}
    tenants = [{"name": "ann", "budget": budget}, {"name": "ben"}]
    return Site(folder, nodes=[Node("n1", "v100", 2)], policy=decide, tenants=tenants, **changes)


def used_up(site: Site) -> str:
    """ann's job runs on both GPUs until 6 GPU-minutes are over."""
    (job,) = site.commands.submit([spec("long", (1, 2), steps=10**6)], ANN)
    site.until(job, JobState.RUNNING)
    assert not site.core.budgets()["ann"].over
    site.run(200)
    assert site.core.budgets()["ann"].over
    return job


def test_at_its_end_it_is_said_and_others_come_first(tmp_path: Path) -> None:
    site = site_with(tmp_path, "idle")
    job = used_up(site)
    assert "tenant ann has used its 0.1 GPU-hours a month" in site.core.ledger.alerts["budget:ann"].text
    assert over_text("ann", site.core.budgets()["ann"]) == site.core.ledger.alerts["budget:ann"].text
    assert site.job(job).state is JobState.RUNNING, "idle GPUs are nobody's"
    (other,) = site.commands.submit([spec("other", 2, steps=10**6)], BEN)
    site.until(other, JobState.RUNNING)
    assert site.job(job).state is JobState.STOPPED and site.job(job).checkpoint is not None
    causes = {cause.what: cause.text for cause in explained(site.core, job).causes}
    assert "has used its 0.1 GPU-hours a month" in causes["budget"]
    assert "it gets what others leave idle, and nothing is" in causes["policy"]
    site.commands.cancel(other, BEN)
    site.until(job, JobState.RUNNING)


def test_waiting_jobs_wait_for_the_next_period_and_running_ones_run_on(tmp_path: Path) -> None:
    time = Time(EVE)
    site = site_with(tmp_path, "wait", gpu_hours=0.01, time=time)
    (job,) = site.commands.submit([spec("long", 1, steps=10**6)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(38)
    (late,) = site.commands.submit([spec("late", 1)], ANN)
    site.run(8)
    assert site.job(job).state is JobState.RUNNING and not site.job(late).allocation
    assert "none of its jobs starts" in site.job(late).reason["text"]  # type: ignore[index]
    site.run(15)  # past midnight, into October
    site.until(late, JobState.RUNNING)
    assert "budget:ann" not in site.core.ledger.alerts
    kinds = [e.data.get("what") for e in site.journal.history(kinds=[Kind.ALERT, Kind.CLEARED])]
    assert kinds.count("budget:ann") == 2, "its end, and the new month"


def test_the_account_survives_restarts_compaction_and_forgotten_jobs(tmp_path: Path) -> None:
    site = site_with(tmp_path, "idle")
    job = used_up(site)
    site.commands.cancel(job, ANN)
    site.until(job, JobState.CANCELLED)
    site.run(5)
    before = site.core.budgets()["ann"].used
    site.time.now += 10.0
    site.journal.compact(history_s=0.0, forget_after_s=0.0)
    assert site.core.ledger.jobs.get(job) is None or not site.core.ledger.jobs[job].live
    site.reopen()
    assert site.core.budgets()["ann"].used == pytest.approx(before)
    assert rebuilt(site.config.state_dir / FILE).spent == site.core.ledger.spent


@given(st.floats(0, 1e9), st.floats(0, 300 * DAY_S), st.integers(1, 8))
def test_every_second_is_on_one_day(start_s: float, length_s: float, gpus: int) -> None:
    days = list(by_day(start_s, start_s + length_s))
    assert sum(s for _, s in days) == pytest.approx(length_s, abs=1e-3)
    assert [d for d, _ in days] == sorted({d for d, _ in days})
    spent: dict[str, dict[str, float]] = {}
    charge(spent, "t", {"v100": gpus}, start_s, start_s + length_s)
    assert since(spent, "t", 0) == pytest.approx(gpus * length_s, abs=1e-2)
    assert since(spent, "t", int((start_s + length_s) // DAY_S) + 1) == 0


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        (Period.DAY, "2026-09-30", "2026-10-01"),
        (Period.WEEK, "2026-09-28", "2026-10-05"),
        (Period.MONTH, "2026-09-01", "2026-10-01"),
        (Period.YEAR, "2026-01-01", "2027-01-01"),
    ],
)
def test_periods_are_the_calendars(period: Period, begin: str, end: str) -> None:
    found = [datetime.fromtimestamp(s, UTC).date().isoformat() for s in bounds_of(period, EVE)]
    assert found == [begin, end]
