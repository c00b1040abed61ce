"""The contract where jobs run as slices: without the Services API and node attributes, with both, and on the 3.3 line.

All of it in `make soak`: a grant costs an application master a node. `tests/real/test_yarn_slices.py` is in every run.
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
    hadoop_bare,  # noqa: F401
)
from yarn_bridge.options import AUTO, SLICES

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn, the contract")]


@pytest.fixture(params=[("hadoop_bare", AUTO), ("hadoop_342", SLICES), ("hadoop_336", AUTO)], ids=lambda each: each[0])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[YarnHarness]:
    lab, runtime = request.param
    made = YarnHarness(request.getfixturevalue(lab), tmp_path, runtime)
    yield made
    made.end()
