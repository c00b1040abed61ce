"""The contract over real, unpatched Hadoop as private processes.

3.4.2 in every run, but for the tests of `SOAKED`: each of those costs an application master, and other tests of every
run meet what they look at. They, and the whole contract on the 3.3 line, are in `make soak`. (What the older line does
in every run: `tests/real/test_yarn_days.py`.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.suite import *  # noqa: F403
from tests.real.hadoop import (
    YarnHarness,
    hadoop_336,  # noqa: F401 - a fixture
    hadoop_342,  # noqa: F401
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn, the contract")]

SOAKED = (
    "test_a_job_that_fails_is_failed_with_its_own_exit_code",
    "test_a_job_that_finishes_is_completed",
    "test_a_log_reads_the_same_in_any_pieces",
    "test_a_running_job_is_not_started_over",
    "test_a_start_runs_the_gang_where_it_was_granted",
    "test_a_stop_ends_in_stopped_with_a_complete_checkpoint",
    "test_a_stop_request_does_not_bring_a_cancelled_job_back",
    "test_a_stopping_job_holds_its_gpus",
    "test_an_epoch_that_is_not_newer_starts_nothing",
    "test_an_ended_job_never_starts_again",
    "test_an_offset_beyond_the_end_means_another_file",
    "test_cancel_does_not_change_how_a_job_ended",
    "test_gpus_come_free_when_their_job_ends",
    "test_nothing_starts_on_a_lost_node",
    "test_stopping_what_does_not_run_changes_nothing",
    "test_the_log_of_all_starts_is_one_log",
)


def soaked(test: Callable[..., None]) -> Callable[..., None]:
    """The same test for this module, marked `soak` here alone."""

    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        test(*args, **more)

    run.pytestmark = [*getattr(test, "pytestmark", []), pytest.mark.soak.mark]  # type: ignore[attr-defined]
    return run


globals().update({name: soaked(globals()[name]) for name in SOAKED})


@pytest.fixture(params=["hadoop_342", pytest.param("hadoop_336", marks=pytest.mark.soak)])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(request.getfixturevalue(request.param), tmp_path)
    yield made
    made.end()
