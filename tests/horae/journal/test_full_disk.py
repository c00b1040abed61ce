"""A journal that is closed and opened again on a disk without a free byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.journal.store import Journal, rebuilt
from tests.horae.journal.drafts import submitted
from tests.small_disk import small_disk

pytestmark = pytest.mark.root


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk() as folder:
        yield folder


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


KILLED = """
import os, sys
from pathlib import Path
from horae.journal.store import Journal
from tests.horae.journal.drafts import submitted
from tests.small_disk import small_disk
journal = Journal(Path(sys.argv[1]))
journal.take_room()
journal.append([submitted("a")], durable=True)
os._exit(9)
"""


@pytest.mark.parametrize("end", ["closed", "killed", "killed and its index cut"])
def test_it_opens_writes_and_is_read_without_a_byte_of_the_disk(disk: Path, end: str) -> None:
    state = disk / "state"
    if end == "closed":
        journal = Journal(state)
        journal.take_room()
        journal.append([submitted("a")], durable=True)
        journal.close()
    else:
        done = subprocess.run(
            [sys.executable, "-P", "-c", KILLED, str(state)], cwd=Path(__file__).parents[3], check=False
        )
        assert done.returncode == 9
        if "cut" in end:  # as the first who opens it does; somebody else takes what that frees
            os.truncate(state / "journal.db-shm", 3)
    filler = fill(disk)
    for number in range(1, 4):
        journal = Journal(state)
        journal.take_room()
        journal.append([submitted(f"b{number}")], durable=True)
        assert [event.job for event in journal.history()] == ["a", *(f"b{n}" for n in range(1, number + 1))]
        with pytest.raises(OSError, match="No space"):
            (disk / "x").write_bytes(b"x" * 8192)
        journal.close()
        fill(disk)
    journal = Journal(state)
    assert journal.alone
    filler.unlink()
    (disk / "x").unlink(missing_ok=True)
    journal.refill()
    assert not journal.alone
    journal.append([submitted("c")], durable=True)
    assert rebuilt(journal.path) == journal.ledger
    assert len(journal.history()) == 5
    journal.close()


def test_a_log_of_before_is_never_read_again(tmp_path: Path) -> None:
    """A version that does not know of the second name was here in between."""
    journal = Journal(tmp_path)
    journal.append([submitted("a")], durable=True)
    journal.close()
    kept = tmp_path / "journal.db-wal.kept"
    old = kept.read_bytes()
    assert old.strip(b"\0")
    kept.unlink()
    journal = Journal(tmp_path)
    journal.append([submitted("b")], durable=True)
    journal.close()
    kept.write_bytes(old)
    journal = Journal(tmp_path)
    assert [event.job for event in journal.history()] == ["a", "b"]
    assert rebuilt(journal.path) == journal.ledger
    journal.close()
