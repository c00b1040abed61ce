"""Who hands in on a disk that grows full: whoever has much on record is refused before those who have little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from horae.journal import Journal
from horae.journal.room import Room
from horae.port import TryLater
from tests.horae.arbiter.site import ANN, BEN, Site, spec

DISK, KIB = 12 << 20, 1 << 10


def room(left: int) -> Room:
    """Nothing on the disk; `left` for new jobs of the journal's own."""
    return Room(DISK, 0, left + (DISK // 32), DISK // 16)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Its disk has 400 KiB for new jobs, and each that is taken takes of them what it costs."""
    site = Site(tmp_path)
    monkeypatch.setattr(Journal, "room", lambda journal: room((400 - 17 * len(journal.ledger.jobs)) * KIB))
    return site


def test_the_one_who_hands_in_for_ever_leaves_half_to_the_others(crowded: Site) -> None:
    taken = 0
    with pytest.raises(TryLater, match="no new job of ann is taken"):
        for taken in range(100):
            crowded.commands.submit([spec(f"j{taken}", owner="ann")], ANN)
    assert 8 <= taken <= 14
    assert len(crowded.commands.submit([spec("other", owner="ben")], BEN)) == 1
    with pytest.raises(TryLater):
        crowded.commands.submit([spec("again", owner="ann")], ANN)


def test_many_at_once_are_counted_together(crowded: Site) -> None:
    one, *rest = crowded.commands.submit_all([([spec(f"j{i}", owner="ann")], ANN) for i in range(100)])
    assert isinstance(one, tuple)
    assert 80 <= sum(isinstance(answer, TryLater) for answer in rest) <= 92
    with pytest.raises(TryLater):
        crowded.commands.submit([spec(f"k{i}", owner="ben") for i in range(100)], BEN)
    assert len(crowded.commands.submit([spec("k", owner="ben")], BEN)) == 1


def test_a_long_specification_takes_what_it_is_long(crowded: Site) -> None:
    long = replace(spec("long", owner="ann"), env={"X": "x" * 200 * KIB})
    with pytest.raises(TryLater):
        crowded.commands.submit([long], ANN)


def test_nobody_is_counted_while_there_is_plenty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    monkeypatch.setattr(Journal, "room", lambda _journal: Room(1 << 40, 1 << 30, 4 << 20, 4 << 20))
    long = replace(spec("long", owner="ann"), env={"X": "x" * (1 << 20)})
    for _ in range(40):
        site.commands.submit([long] * 10, ANN)
    assert len(site.core.ledger.jobs) == 400
