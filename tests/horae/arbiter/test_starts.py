"""When waiting jobs might start, where many run, many wait, and some of them never fit."""

from __future__ import annotations

import heapq
from heapq import heappop
from pathlib import Path
from typing import Any

import pytest

from horae.fake import Program
from horae.port import JobState
from horae.views.rows import rate
from horae.views.watch import starts
from policy.model import Node
from tests.horae.arbiter.site import ANN, BEN, Site, spec

LONG = 10**6


def test_jobs_that_fit_nowhere_cost_no_walk_through_all_ends_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for more than ever comes free hands in hundreds of such jobs, and each question about any of them was
    answered on the thread that holds the rounds."""
    site = Site(tmp_path)
    limited = [spec(f"r{i}", 1, steps=LONG, iterations=None, time_limit_s=3600.0 + i) for i in range(15)]
    *short, endless = site.commands.submit([*limited, spec("endless", 1, steps=LONG, iterations=None)], BEN)
    site.until(endless, JobState.RUNNING)
    whole = site.commands.submit([spec(f"all{i}", 16, steps=LONG) for i in range(40)], ANN)
    (after,) = site.commands.submit([spec("after", 2, steps=LONG)], ANN)
    site.run(5)
    walked = []

    def counted(ends: list[Any]) -> Any:
        walked.append(1)
        return heappop(ends)

    monkeypatch.setattr(heapq, "heappop", counted)
    found = starts(site.core, "main")
    assert set(whole).isdisjoint(found) and found[after].after == tuple(short[:2])
    assert len(walked) <= len(short)


def test_an_end_beyond_all_times_is_none(tmp_path: Path) -> None:
    """A job's work and speed are its owner's words, and others' tables show when they may start by them."""
    site = Site(tmp_path, nodes=[Node("n1", "v100", 4)], program=Program(iteration_s=10.0, start_s=1.0, log_every=1))
    (endless,) = site.commands.submit([spec("endless", 4, steps=10**15)], BEN)
    site.until(endless, JobState.RUNNING)
    (waits,) = site.commands.submit([spec("waits", 1)], ANN)
    site.run(60)
    assert rate(site.job(endless)) is not None
    assert waits not in starts(site.core, "main")
