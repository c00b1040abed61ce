from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.horae.local.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A local cluster of two nodes of two GPUs and one of another type; nothing of it is left afterwards."""
    made = Cluster(tmp_path)
    yield made
    made.end()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        made.append(Cluster(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What `attack_day.Day.watched` saw: how late rounds were under each attack. A figure, no verdict."""
    rows = [
        (report.nodeid.rpartition("::")[2], *seen)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, seen in getattr(report, "user_properties", ())
        if name == "rounds" and report.when == "teardown"
    ]
    if rows:
        terminalreporter.section("rounds under attack")
        terminalreporter.write_line(f"{'signs':>6} {'late':>5} {'worst_s':>8}  attack")
    for name, signs, late, worst_s in rows:
        terminalreporter.write_line(f"{signs:>6} {late:>5} {worst_s:>8.1f}  {name}")
