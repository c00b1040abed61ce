"""The contract over real, unpatched Slurm: 22.05 as private processes, 24.11 and 26.05 in containers over SSH.

24.11 is judged twice: by the command line, and by slurmrestd wherever that has a route.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import Never
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.contract.suite import *  # noqa: F403
from tests.real.slurm import (
    private_slurm,  # noqa: F401 - a fixture
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
)
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real

# What the suite asks only of clusters whose submission is ours; here, instead: the last test of this file.
del test_submitting_twice_is_submitting_once  # noqa: F821
del test_another_specification_under_a_known_name_is_refused  # noqa: F821


@pytest.fixture(params=["private_slurm", "slurm_2411", "slurm_2411 by slurmrestd", "slurm_2605"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SlurmHarness]:
    fixture, _, client = request.param.partition(" by ")
    cluster = request.getfixturevalue(fixture)
    more = {"client": client, "rest_url": cluster.rest_url()} if client else {}
    made = SlurmHarness(cluster, tmp_path / "memory", more=more)
    yield made
    made.end()


def test_submission_is_the_users_own(harness: SlurmHarness) -> None:
    assert not harness.port.capabilities().owns_submission
    spec = JobSpec("mine", ("true",), GpuRange(1, 1, 1))
    with pytest.raises(Never) as raised:
        harness.port.submit("mine", spec)
    assert "sbatch" in raised.value.text
    assert harness.port.observe().jobs == ()
