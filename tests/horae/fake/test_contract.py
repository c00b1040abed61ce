"""The contract suite over the in-memory cluster."""

from __future__ import annotations

import pytest

from tests.contract.conftest import cluster  # noqa: F401  (the suite's own fixture)
from tests.contract.suite import *  # noqa: F403
from tests.horae.fake.harness import FakeHarness


@pytest.fixture
def harness() -> FakeHarness:
    return FakeHarness()
