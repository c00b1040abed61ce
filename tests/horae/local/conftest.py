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
