"""The contract over real, unpatched Slurm: 22.05 as private processes, 24.11 and 26.05 in containers over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.suite import *  # noqa: F403
from tests.real.slurm import (
    private_slurm,  # noqa: F401 - a fixture
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
)
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real


@pytest.fixture(params=["private_slurm", "slurm_2411", "slurm_2605"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SlurmHarness]:
    made = SlurmHarness(request.getfixturevalue(request.param), tmp_path / "memory")
    yield made
    made.end()
