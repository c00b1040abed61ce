"""What tests of the bridge stand on."""

from __future__ import annotations

import pytest

from tests.yarn_bridge.memory_site import Site


@pytest.fixture
def site() -> Site:
    return Site()
