"""Room for the journal on a disk that others fill.

Who shares the disk with the arbiter may take its last byte, and whatever were given up for the journal then, they
would take too. So its room lies inside its own files: pages of the database that are free, and a write-ahead log of a
size that stays. Writing them over takes no new block of the disk, and SQLite fills them before it grows the file.

    size    of each of the two: 4 MiB (some ten thousand events), on a small disk a sixteenth of it
    low     an operator is told: less than 128 MiB are left, or a tenth of a small disk
    tight   no new job is taken out of what the disk has: 32 MiB, or a fortieth

The log outlives its arbiter: SQLite would give its blocks back when the last connection closes, so they get a second
name before (`keep`) and are the next one's log (`bring_back`). What only a start needs, the 32 KiB of the log's index,
is in memory where the disk has no room for them (`Journal.alone`).

File systems that copy what is written over (btrfs, zfs, snapshots) promise none of this.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

MOST, LOW, TIGHT = 4 << 20, 128 << 20, 32 << 20
#: The second name of a log that nobody has open, and what SQLite knows a log by.
_KEPT, _LOG_HEADER = ".kept", 32
#: What a journal of nothing but free pages is made of for a moment.
_FILLER = "room"


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes: of the disk, free on it, free in the journal's own files, and what is to be free there."""

    disk: int
    free: int
    own: int
    size: int

    @property
    def low(self) -> bool:
        return self.free < min(LOW, self.disk // 10)

    @property
    def for_jobs(self) -> int:
        """What new jobs may take: the disk down to `tight`, and half of what is the journal's own."""
        return max(self.free - min(TIGHT, self.disk // 40), 0) + max(self.own - self.size // 2, 0)


def size(folder: Path) -> int:
    disk = os.statvfs(folder)
    return min(MOST, disk.f_blocks * disk.f_frsize // 16)


def bound(db: sqlite3.Connection, size: int) -> None:
    """The write-ahead log keeps `size` bytes and starts anew after half of them."""
    page = db.execute("PRAGMA page_size").fetchone()[0]
    db.execute(f"PRAGMA journal_size_limit = {size}")
    db.execute(f"PRAGMA wal_autocheckpoint = {max(size // 2 // page, 1)}")


def fill(db: sqlite3.Connection, size: int) -> None:
    """`size` bytes of the file are free afterwards, and the log is as long. On a full disk what there is has to do."""
    try:
        db.execute(f"DROP TABLE IF EXISTS {_FILLER}")
        db.execute(f"CREATE TABLE {_FILLER} (bytes BLOB)")
        try:
            db.execute(f"INSERT INTO {_FILLER} VALUES (zeroblob(?))", (size,))
            restart(db)
        finally:
            db.execute(f"DROP TABLE {_FILLER}")
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise


def keep(log: Path) -> None:
    """Before the last connection closes: the log's blocks stay ours. Raises OSError."""
    kept = log.with_name(log.name + _KEPT)
    kept.unlink(missing_ok=True)
    if log.exists():
        kept.hardlink_to(log)


def bring_back(log: Path) -> None:
    """Before the first connection opens: the log that was kept, and nothing in it. Raises OSError.

    Where there is a log it was not closed: it may hold what is nowhere else, and the other name is its own or too old.
    """
    kept = log.with_name(log.name + _KEPT)
    if log.exists():
        kept.unlink(missing_ok=True)
    elif kept.exists():
        with kept.open("r+b", buffering=0) as file:
            file.write(bytes(_LOG_HEADER))
            os.fsync(file.fileno())
        kept.rename(log)


def restart(db: sqlite3.Connection) -> None:
    """The log's pages go into the file, and the next write begins at the log's start again."""
    db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()


def left(db: sqlite3.Connection, folder: Path, size: int) -> Room:
    disk = os.statvfs(folder)
    return Room(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, free_bytes(db), size)


def free_bytes(db: sqlite3.Connection) -> int:
    """Free in the file itself."""
    pages, page = (int(db.execute(f"PRAGMA {p}").fetchone()[0]) for p in ("freelist_count", "page_size"))
    return pages * page


def shrink(db: sqlite3.Connection, size: int) -> None:
    """Give the disk back what is free in the file beyond `size`."""
    page = int(db.execute("PRAGMA page_size").fetchone()[0])
    if (spare := (free_bytes(db) - size) // page) > 0:
        db.executescript(f"PRAGMA incremental_vacuum({spare})")  # one `execute` would free one page
