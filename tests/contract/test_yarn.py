"""The contract over real, unpatched Hadoop as private processes: 3.4.2 each time, the 3.3 line in `make soak`.

(What the older line does in every run: `tests/real/test_yarn_days.py`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.suite import *  # noqa: F403
from tests.real.hadoop import (
    YarnHarness,
    hadoop_336,  # noqa: F401 - a fixture
    hadoop_342,  # noqa: F401
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]


@pytest.fixture(params=["hadoop_342", pytest.param("hadoop_336", marks=pytest.mark.soak)])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(request.getfixturevalue(request.param), tmp_path)
    yield made
    made.end()
