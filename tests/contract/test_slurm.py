"""The contract over real, unpatched Slurm: 22.05 as private processes, 24.11 and 26.05 in containers over SSH.

24.11 is judged twice: by the command line, and by slurmrestd wherever that has a route. `make soak` judges 26.05
once more by pyslurm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import Never, attend
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


CLUSTERS = ("private_slurm", "slurm_2411", "slurm_2605")
BY_SLURMRESTD, BY_PYSLURM = "slurm_2411 by slurmrestd", "slurm_2605 by pyslurm"
#: what a client can get wrong; by slurmrestd the others are left to `make soak`
OF_THE_CLIENT = frozenset(
    """test_an_empty_cluster_shows_its_nodes_and_no_jobs test_every_one_of_many_jobs_is_observed_once
    test_a_gang_spans_nodes test_starting_twice_with_one_epoch_is_starting_once
    test_an_epoch_that_is_not_newer_starts_nothing test_more_gpus_than_a_node_has_are_never_granted
    test_gpus_in_use_are_not_given_twice test_a_stop_ends_in_stopped_with_a_complete_checkpoint
    test_training_goes_on_at_another_size_where_it_stopped test_a_stop_right_after_the_start_is_not_lost
    test_a_job_that_ignores_the_request_is_killed_and_can_start_again
    test_a_job_that_fails_is_failed_with_its_own_exit_code test_cancel_ends_a_job_in_any_state
    test_an_unknown_job_is_never test_a_restarted_arbiter_finds_its_jobs_running
    test_a_lost_node_loses_its_jobs_and_only_them test_a_released_job_is_no_longer_ours_and_runs_on""".split()
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "harness" in metafunc.fixturenames:
        soak = () if metafunc.function.__name__ in OF_THE_CLIENT else (pytest.mark.soak,)
        by_rest = pytest.param(BY_SLURMRESTD, marks=soak)
        by_pyslurm = pytest.param(BY_PYSLURM, marks=pytest.mark.soak)  # it is built first
        metafunc.parametrize("harness", [*CLUSTERS, by_rest, by_pyslurm], indirect=True)


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SlurmHarness]:
    fixture, _, client = request.param.partition(" by ")
    cluster = request.getfixturevalue(fixture)
    more = {"client": client} if client else {}
    if client == "slurmrestd":
        more["rest_url"] = cluster.rest_url()
    elif client == "pyslurm":
        more["pyslurm"] = cluster.pyslurm()
    made = SlurmHarness(cluster, tmp_path / "memory", more=more)
    yield made
    made.end()


def test_submission_is_the_users_own(harness: SlurmHarness) -> None:
    assert not harness.port.capabilities().owns_submission
    spec = JobSpec("mine", ("true",), GpuRange(1, 1, 1))
    with pytest.raises(Never) as raised:
        harness.port.submit("mine", spec)
    assert "sbatch" in raised.value.text
    assert attend(harness.port).jobs == ()
