"""The contract over real, unpatched Hadoop as private processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.suite import *  # noqa: F403
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(request.getfixturevalue("hadoop_342"), tmp_path)
    yield made
    made.end()
