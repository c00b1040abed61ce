"""The tables of the journal file, the version of all that stands in them, and the way from one version to the next.

A version is more than tables. An older arbiter that met a kind of event, a field or a word that it does not know would
take the file for damaged, or leave out what it does not know (a hold, say), and begin with what the cluster shows. So
whatever changes in what is written is a new version, which older arbiters refuse in words, also where there is nothing
to migrate: newer ones read what older ones wrote (`events.py`). `tests/horae/journal/forms/` has what each wrote.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Mapping

from policy.model import BadInput

VERSION = 2

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
  seq    INTEGER PRIMARY KEY,
  wall_s REAL NOT NULL,
  at_s   REAL NOT NULL,
  kind   TEXT NOT NULL,
  job    TEXT,
  pool   TEXT,
  data   TEXT NOT NULL
);
CREATE INDEX events_by_job ON events (job, seq) WHERE job IS NOT NULL;
CREATE INDEX events_by_kind ON events (kind, seq);
"""

#: version -> what turns a file of the version before into it, inside one transaction
Migration = Callable[[sqlite3.Connection], None]


def as_it_is(_connection: sqlite3.Connection) -> None:
    """What the version before wrote is read as it stands; it does not know all that this one writes."""


MIGRATIONS: Mapping[int, Migration] = {2: as_it_is}


def prepare(
    connection: sqlite3.Connection,
    where: str,
    *,
    version: int = VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Make the tables of a new file, or bring an older one to `version`. Raises BadInput for a newer one."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > version:
        raise BadInput(
            f"this journal was written by a newer Horae (form {found}; this one knows {version})",
            where=where,
            remedy="run the newer Horae, or put back the copy of the folder from before the upgrade: without the file "
            "what stands in it alone is lost (holds, priorities, accounts, on YARN the jobs that wait)",
        )
    if found == version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if found == 0:
            for statement in _TABLES.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('id', ?)", (uuid.uuid4().hex,))
            found = 1
        for step in range(found + 1, version + 1):
            migrations[step](connection)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
