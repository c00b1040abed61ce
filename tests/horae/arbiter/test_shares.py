"""Who hands in on a disk that grows full: whoever has much on record is refused before those who have little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from horae.arbiter.requests import shares
from horae.journal import Journal
from horae.journal.room import Room
from horae.port import TryLater
from policy.model import GpuRange
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
    long = replace(spec("long", owner="ann"), env={"X": "x" * (1 << 18)})
    for _ in range(40):
        site.commands.submit([long] * 10, ANN)
    assert len(site.core.ledger.jobs) == 400


def test_nobody_fills_the_arbiters_memory_with_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed for its memory an arbiter comes back to the same jobs, and is killed again. Ended ones are on record."""
    monkeypatch.setattr(shares, "MEMORY", 64 << 20)
    monkeypatch.setattr(Journal, "room", lambda _journal: Room(1 << 40, 1 << 30, 4 << 20, 4 << 20))
    site = Site(tmp_path)
    hostile = [
        {"env": {f"V{i}": "x" * 65536 for i in range(16)}},
        {"command": ("x", *["y" * 65536] * 16)},
        {"extra": {f"V{i}": "x" * 65536 for i in range(16)}},
        {"gpu_types": tuple(f"{i:0>65536}" for i in range(16))},
        {"throughput": {f"t{i}": dict.fromkeys(range(1, 1000), 1.0) for i in range(42)}},
        {"gpus": GpuRange(1, 1, 42000, tuple(range(1, 42001)))},
    ]
    for changes in hostile:
        taken = len(site.core.ledger.jobs)
        with pytest.raises(TryLater, match=r"no new job of ann is taken.*arbiter's memory"):
            for _ in range(100):
                (job,) = site.commands.submit([replace(spec("long", owner="ann"), **changes)], ANN)
                site.commands.cancel(job, ANN)
        if changes is hostile[0]:
            assert 6 <= len(site.core.ledger.jobs) <= 8, "half of what there is"
            assert len(site.commands.submit([spec(f"j{i}", owner="ben") for i in range(1000)], BEN)) == 1000
        else:
            assert len(site.core.ledger.jobs) == taken


def test_what_was_forgotten_makes_room_and_a_restart_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MEMORY", 64 << 20)
    monkeypatch.setattr(shares, "_COUNT_S", 0.0)
    site = Site(tmp_path)
    large = replace(spec("long", owner="ann"), env={"X": "x" * (7 << 20)})
    (job,) = site.commands.submit([large], ANN)
    for _ in range(2):
        with pytest.raises(TryLater):
            site.commands.submit([large], ANN)
        site.reopen()
    del site.core.ledger.jobs[job]
    assert site.commands.submit([large], ANN)
