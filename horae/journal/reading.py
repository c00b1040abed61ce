"""The journal file as others than the arbiter read it: nothing is written, and nobody is kept waiting.

A living arbiter begins its log anew when nobody reads it, so events are read in lots, each in a moment of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from horae.journal.codec import parsed
from horae.journal.fold import fold
from horae.journal.form import KINDS, ODD, Event, Kind
from horae.journal.ledger import Ledger
from horae.journal.schema import VERSION
from policy.model import BadInput, Seconds

FILE = "journal.db"
COLUMNS = "seq, wall_s, at_s, kind, job, pool, data"
#: Events in a lot.
LOT = 5_000
#: A compaction without the ledger that it stores: that is as large as all jobs together.
_DATA = f"CASE kind WHEN '{Kind.CHECKPOINT.value}' THEN '{{}}' ELSE data END"
_TOLD = f"seq, wall_s, at_s, kind, job, pool, {_DATA}"
#: Events that are read at once, and the bytes of them, or a single larger one.
_LOT, _LOT_BYTES = 500, 1 << 20
#: So much is shown of a row that is damaged.
_MOST_DAMAGED = 200


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


def events_where(db: sqlite3.Connection, where: str, values: Sequence[object]) -> Iterator[Event]:
    for seq, wall_s, at_s, kind, job, pool, data in db.execute(f"SELECT {COLUMNS} FROM events WHERE {where}", values):
        yield Event(seq, wall_s, at_s, KINDS.get(kind) or Kind(kind), parsed(data), job, pool)


# --- for people -------------------------------------------------------------------------------------------


def which(job: str | None, kinds: Sequence[Kind], after: int) -> tuple[str, list[object]]:
    """As SQL, and its values."""
    where, values = ["seq > ?"], list[object]([after])
    if job is not None:
        where.append("job = ?")
        values.append(job)
    if kinds:
        where.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values += [kind.value for kind in kinds]
    return " AND ".join(where), values


def rows(db: sqlite3.Connection, where: str, values: Sequence[object]) -> Iterator[Event]:
    """As people are told them: a damaged row, which the ledger may not need any more, costs what it said alone."""
    for seq, wall_s, at_s, kind, job, pool, data in db.execute(f"SELECT {_TOLD} FROM events WHERE {where}", values):
        if kind in KINDS:
            yield Event(seq, _seconds(wall_s), _seconds(at_s), KINDS[kind], _data(data), job, pool)


def lots(db: sqlite3.Connection, where: str, values: Sequence[object], begin_s: Seconds) -> list[tuple[int, int]]:
    """First and last number of each lot, oldest first, of what `where` finds newest first. Only sizes are read."""
    found = db.execute(f"SELECT seq, wall_s, length({_DATA}) FROM events WHERE {where}", values).fetchall()
    parts: list[tuple[int, int]] = []
    events, size = _LOT, 0
    for seq, wall_s, more in reversed(found):
        if _seconds(wall_s) < begin_s:
            continue
        if events == _LOT or size + more > _LOT_BYTES:
            parts.append((seq, seq))
            events, size = 0, 0
        parts[-1] = parts[-1][0], seq
        events, size = events + 1, size + more
    return parts


def _data(data: object) -> Mapping[str, Any]:
    try:
        found = parsed(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"damaged": str(data)[:_MOST_DAMAGED]}


def _seconds(value: object) -> Seconds:
    return float(value) if isinstance(value, int | float) else 0.0
