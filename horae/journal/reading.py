"""The journal file as others than the arbiter read it: nothing is written, and nobody is kept waiting.

A living arbiter begins its log anew when nobody reads it, so events are read in lots, each in a moment of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from horae.journal.fold import fold
from horae.journal.form import ODD, Event, Kind
from horae.journal.ledger import Ledger
from horae.journal.schema import VERSION
from horae.journal.store import FILE, events_where
from policy.model import BadInput, Seconds

#: Events in a lot.
LOT = 5_000


def journal_in(folder: Path) -> Path:
    """The journal of a state folder; the file itself may be named too. Raises BadInput where there is none."""
    path = folder / FILE if folder.is_dir() else folder
    if not path.is_file():
        raise BadInput(
            "there is no journal here",
            where=str(path),
            remedy="name an arbiter's state folder (state_dir), as a user who may read it",
        )
    return path


def newest_s(path: Path) -> Seconds:
    """When the arbiter last wrote anything, on its own time; 0 for a journal without events. Raises BadInput."""
    with _reader(path) as db:
        return float(db.execute("SELECT max(at_s) FROM events").fetchone()[0] or 0.0)


def folded_by(path: Path, kinds: Collection[Kind]) -> Iterator[tuple[Event, Ledger]]:
    """Each event of these kinds that the file still has, oldest first, with the ledger after it. Raises BadInput.

    What is older than the file's first event comes with the checkpoint in it. The ledger is one and changes.
    """
    ledger = Ledger()
    for event in _kept(path, kinds):
        try:
            fold(ledger, event)
        except ODD as error:
            raise BadInput(
                f"event {event.seq} ({event.kind}) cannot be read: {type(error).__name__}: {error}"[:300],
                where=str(path),
                remedy="the arbiter keeps a damaged journal aside when it starts",
            ) from error
        yield event, ledger


def _kept(path: Path, kinds: Collection[Kind]) -> Iterator[Event]:
    seq = 0
    where = f"seq > ? AND kind IN ({', '.join('?' * len(kinds))}) ORDER BY seq LIMIT {LOT}"
    with _reader(path) as db:
        while lot := tuple(events_where(db, where, (seq, *(kind.value for kind in kinds)))):
            yield from lot
            seq = lot[-1].seq


@contextmanager
def _reader(path: Path) -> Iterator[sqlite3.Connection]:
    # Where no log is, nobody has the file open; a reader that may lock would leave an empty log behind.
    alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{alone}", uri=True)) as db:
            _check(db, path)
            yield db
    except (sqlite3.Error, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"it cannot be read as a journal: {error}", where=str(path)) from error


def _check(db: sqlite3.Connection, path: Path) -> None:
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if not found:
        raise BadInput("this is no journal, or one that nothing was written to", where=str(path))
    if found > VERSION:
        raise BadInput(
            f"this journal was written by a newer Horae (form {found}; this one knows {VERSION})",
            where=str(path),
            remedy="use the newer Horae",
        )
