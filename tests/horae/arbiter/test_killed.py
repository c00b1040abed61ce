"""The arbiter is killed at every boundary of a story, one after the other, and its successor finishes the story."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.journal.store import rebuilt
from tests.horae.arbiter.killing import ENDS, Boundaries, MortalSite, check, play

PARTS = 8


def boundaries(folder: Path) -> list[str]:
    """The boundaries of the story, in order, when nobody is killed."""
    site = MortalSite(folder, Boundaries())
    play(site)
    check(site.world, site.journal.path, ENDS)
    assert rebuilt(site.journal.path) == site.core.ledger
    site.close()
    return site.boundaries.names


def test_the_story_has_every_kind_of_boundary(tmp_path: Path) -> None:
    names = boundaries(tmp_path)
    for what in ("claim", "submit", "start", "stop", "cancel", "intent", "outcome", "decided", "seen", "ended"):
        assert any(what in name for name in names), f"no boundary at {what}"
    assert len(names) > 100


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_boundary(tmp_path: Path, part: int) -> None:
    names = boundaries(tmp_path / "whole")
    for at in range(1 + part, len(names), PARTS):
        site = MortalSite(tmp_path / str(at), Boundaries(die_at=at))
        try:
            play(site)
            check(site.world, site.journal.path, ENDS)
            assert rebuilt(site.journal.path) == site.core.ledger
        except BaseException as error:
            error.add_note(
                f"killed at boundary {at}: {site.boundaries.names[at] if at < site.boundaries.count else '?'}"
            )
            raise
        finally:
            site.close()
