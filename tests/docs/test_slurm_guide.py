"""The Slurm guide's installation is followed by a test of a bare host, which takes long and so runs seldom: here it is
seen in every run that the test knows each block of the page."""

from __future__ import annotations

from tests.real.guide import STEPS, blocks


def test_each_block_of_the_page_is_one_that_is_followed() -> None:
    assert tuple(block.text.split()[0] for block in blocks()) == STEPS
