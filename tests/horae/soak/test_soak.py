"""A thousand random stories (`make soak`); a few of them in every test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.horae.soak.stories import assert_ends_well


@pytest.mark.parametrize("seed", range(20))
def test_a_random_story_ends_well(tmp_path: Path, seed: int) -> None:
    assert_ends_well(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(1, 11))
def test_a_hundred_random_stories_end_well(tmp_path: Path, hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        assert_ends_well(tmp_path / str(seed), seed)
