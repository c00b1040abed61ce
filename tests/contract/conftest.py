"""Fixtures of the contract suite; an adapter's test module brings `harness`."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contract.suite", "tests.contract.driver", "tests.contract.harness")

from tests.contract.driver import Driver  # noqa: E402  (after the rewrite is registered)
from tests.contract.harness import Harness  # noqa: E402


@pytest.fixture
def cluster(harness: Harness) -> Driver:
    """The cluster under test with the suite's own helpers: one line an action, one line a wait."""
    return Driver(harness)
