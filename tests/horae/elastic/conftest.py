from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.horae.elastic.exec_job import ExecJob
from tests.horae.elastic.hdfs_server import Hdfs


@pytest.fixture
def exec_job(tmp_path: Path) -> Iterator[Callable[..., ExecJob]]:
    """Makes jobs with real supervisors; whatever the test does, none of their processes is left."""
    made: list[ExecJob] = []

    def make(source: str, name: str = "job", **spec: Any) -> ExecJob:
        made.append(ExecJob(tmp_path / name, source, **spec))
        return made[-1]

    yield make
    for job in made:
        job.end()


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hdfs]:
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    made = Hdfs()
    yield made
    made.server.shutdown()
    made.server.server_close()
