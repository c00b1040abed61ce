"""The journal file: append, read back, compact. One writer, the arbiter's core thread; any number of readers.

SQLite in WAL mode. A durable append is on the disk when it returns (`synchronous=FULL`); the others ride with the
next durable one, since nothing acknowledged depends on them. An append is one transaction, so a full disk leaves
all of it or nothing, and the ledger is only moved once the file is.

Opening folds the newest checkpoint event and what follows it. A file that cannot be read is kept aside, and the
journal starts empty: the arbiter then asks the cluster (`horae/arbiter/observe/recovery.py`).
"""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from horae.journal import events, reading, room, schema
from horae.journal.clock import Clock, this_boot
from horae.journal.codec import Plain, plain, restore, text
from horae.journal.fold import fold
from horae.journal.form import ODD, Draft, Event, Kind, numbered
from horae.journal.ledger import Ledger
from horae.journal.lock import StateLock
from horae.journal.measured import Measurement
from horae.journal.quiet import quiet
from horae.journal.reading import COLUMNS, FILE, events_where
from horae.journal.room import Room
from horae.port import FixConfiguration, JobId
from policy.model import BadInput, Seconds

T = TypeVar("T")
#: What SQLite says where a file of its own cannot be made or grow.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_MODE = 0o600
#: Bytes that may be asked for once more, a few of which the index of the log takes.
_INDEX = 1 << 20
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class JournalStopped(FixConfiguration):
    """The journal cannot be written: nothing may be done until it can."""


class _Unreadable(Exception):
    """The file is there and is not a journal that can be read."""


class Journal:
    """`ledger` is the fold of everything in the file; `quarantined` says where an unreadable file was kept."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        """Raises AlreadyRunning, JournalStopped (the folder or disk), BadInput (a newer form)."""
        self.folder, self.path = folder, folder / FILE
        self.clock = clock or Clock(boot=this_boot())
        self.quarantined: str | None = None
        #: The disk had no room for what connections share: history is read by the one there is.
        self.alone = False
        self._using = RLock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = StateLock(folder)
        except OSError as error:
            raise JournalStopped(
                f"the state folder {folder} cannot be used: {error.strerror}", remedy="mend its rights or its disk"
            ) from error
        try:
            self.new = not self.path.exists()
            try:
                self._open()
            except _Unreadable as error:
                self._quarantine(str(error))
                self._open()
        except BaseException:
            self._lock.close()
            raise

    # --- opening ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.ledger, self._seq = Ledger(), 0
        try:
            self._connect()
            problem = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise _Unreadable(problem)
            schema.prepare(self._db, str(self.path))
            self.id: str = self._db.execute("SELECT value FROM meta WHERE key = 'id'").fetchone()[0]
            self._catch_up()
            restore(Ledger, plain(self.ledger))  # a row whose values are of other types is found now or much later
            for record in self.ledger.jobs.values():
                record.measured = _readable(record.measured)
        except sqlite3.Error as error:
            self._disconnect()
            if _code(error) in _CORRUPT or "no such" in str(error):  # a table or column is not there
                raise _Unreadable(str(error)) from error
            raise self._stopped(error) from error
        except BadInput:
            self._disconnect()
            raise
        except (_Unreadable, *ODD) as error:
            self._disconnect()
            raise _Unreadable(f"{type(error).__name__}: {error}"[:300]) from error
        self.clock.anchor(self.ledger.at_s, self.ledger.origin)

    def _connect(self) -> None:
        """Alone, with the log's index in memory, where the disk has no room for it."""
        with suppress(OSError):
            room.bring_back(self._log)
        try:
            self._connect_as(alone=False)
        except sqlite3.OperationalError as error:
            if _code(error) not in _NO_ROOM:
                raise
            self._db.close()
            self._connect_as(alone=True)

    def _connect_as(self, alone: bool) -> None:
        self.alone = alone
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10.0)
        self._full = True
        if alone:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        if self._db.execute("PRAGMA page_count").fetchone()[0] == 0:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._room = room.size(self.folder)
        room.bound(self._db, self._room)
        if stat.S_IMODE(self.path.stat().st_mode) != _MODE:
            self.path.chmod(_MODE)

    def _disconnect(self) -> None:
        with suppress(OSError):  # without a second name it begins anew, where there is room
            room.keep(self._log)
        self._db.close()

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{FILE}-wal")

    @quiet()
    def _catch_up(self) -> None:
        """Fold what is in the file and not in the ledger yet, from the newest checkpoint on."""
        self._covered = _newest_checkpoint(self._db) or 0
        after = max(self._seq, self._covered - 1)
        for event in events_where(self._db, "seq > ? ORDER BY seq", (after,)):
            fold(self.ledger, event)
            self._seq = event.seq

    @property
    def uncovered(self) -> int:
        """Events since the newest checkpoint, whoever wrote them: what the next start folds."""
        return self._seq - self._covered

    def _quarantine(self, why: str) -> None:
        aside = self.path.with_name(f"{FILE}.unreadable-{time.strftime('%Y%m%dT%H%M%S')}")
        number = 0
        while aside.exists():
            number += 1
            aside = aside.with_name(f"{aside.name.split('+')[0]}+{number}")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(FILE + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        self.new, self.quarantined = True, f"{aside} ({why})"

    # --- writing ------------------------------------------------------------------------------------------

    @quiet()
    def append(self, drafts: Iterable[Draft], *, durable: bool = False) -> tuple[Event, ...]:
        """Write these events, all or none, and fold them. Raises JournalStopped, with nothing changed."""
        wall_s, at_s = self.clock.wall_s(), max(self.clock.now_s(), self.ledger.at_s)
        fresh = tuple(numbered(draft, seq, wall_s, at_s) for seq, draft in enumerate(drafts, self._seq + 1))
        if fresh:
            self._write(lambda: self._insert(fresh), durable)
            for event in fresh:
                fold(self.ledger, event)
                self._seq = event.seq
        return fresh

    def _insert(self, fresh: Sequence[Event]) -> None:
        self._db.executemany(
            f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(e.seq, e.wall_s, e.at_s, e.kind.value, e.job, e.pool, text(e.data)) for e in fresh],
        )

    def _write(self, what: Callable[[], T], durable: bool) -> T:
        """`what` in one transaction. Raises JournalStopped, with nothing changed."""
        try:
            try:
                return self._transaction(what, durable)
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_FULL:
                    raise
                # Somebody read, perhaps, while the log should have started anew: in its own room there is more.
                room.restart(self._db)
                return self._transaction(what, durable)
        except sqlite3.Error as error:
            self._reopen(error)
            raise self._stopped(error) from error

    def _transaction(self, what: Callable[[], T], durable: bool) -> T:
        if durable is not self._full:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._full = durable
        with self._using:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                value = what()
                self._db.execute("COMMIT")
            except sqlite3.Error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        return value

    def _reopen(self, error: sqlite3.Error) -> None:
        """After a failed write only the file knows what it holds: look again, and fold what did get there."""
        try:
            # On a full disk the log would go with the connection, and others would take its room.
            if _code(error) != sqlite3.SQLITE_FULL:
                self._disconnect()
                self._connect()
            self._catch_up()
        except (sqlite3.Error, OSError):
            return  # still failing: the next append says so again

    def _stopped(self, error: sqlite3.Error | OSError) -> JournalStopped:
        if _code(error) in _CORRUPT:
            return JournalStopped(
                f"the journal {self.path} is damaged: {error}",
                remedy="restart the arbiter: it keeps the file aside and reads the state from the cluster",
            )
        return JournalStopped(
            f"the journal {self.path} cannot be written: {error}",
            remedy="free space, mend the rights there, or the file system where an error made it read-only; the "
            "arbiter acts again by itself",
        )

    # --- keeping it bounded -------------------------------------------------------------------------------

    def compact(self, *, history_s: Seconds, forget_after_s: Seconds, keep: Collection[JobId] = frozenset()) -> int:
        """Forget jobs that ended `forget_after_s` ago (but not those in `keep`: the cluster still shows them), store
        the ledger as one event, and drop the events that it covers and that are older than `history_s`. Returns
        how many were dropped. The ledger is what it was."""
        now_s = self.clock.now_s()
        old = [
            job.id
            for job in self.ledger.jobs.values()
            if not job.live and job.id not in keep and (job.ended_s or 0.0) <= now_s - forget_after_s
        ]
        if old:
            self.append([events.Forgotten(old)])
        (mark,) = self.append([events.Compacted(Plain(plain(self.ledger)))], durable=True)
        self._covered = mark.seq
        covered = (mark.seq, now_s - history_s, Kind.CHECKPOINT.value)
        dropped = self._write(
            lambda: self._db.execute("DELETE FROM events WHERE seq < ? AND (at_s < ? OR kind = ?)", covered).rowcount,
            durable=True,
        )
        with self._maintaining():
            room.shrink(self._db, self._room)
            room.restart(self._db)
        return dropped

    def room(self) -> Room:
        """What is left for the journal. Raises JournalStopped."""
        with self._maintaining():
            return room.left(self._db, self.folder, self._room)

    def take_room(self) -> None:
        """What is to be the journal's own on a disk that others fill; on a full one what there is has to do."""
        with self._maintaining():
            room.fill(self._db, self._room)

    def refill(self) -> None:
        """Again, where half of it is used and the disk has plenty."""
        found = self.room()
        if self.alone and found.free > _INDEX:
            with self._using, self._maintaining():
                self._disconnect()
                self._connect()
        if found.own < found.size // 2 and found.free > 4 * found.size and not found.low:
            self.take_room()

    @contextmanager
    def _maintaining(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._stopped(error) from error

    def size(self) -> tuple[int, int]:
        """(events, bytes that they take) in the file now."""
        with self._maintaining():
            events_ = self._db.execute("SELECT count(*) FROM events").fetchone()[0]
            pages, page = (self._db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "page_size"))
            return events_, pages * page - room.free_bytes(self._db)

    # --- reading ------------------------------------------------------------------------------------------

    def history(
        self,
        *,
        job: str | None = None,
        kinds: Sequence[Kind] = (),
        after: int = 0,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> tuple[Event, ...]:
        """Events in order, from a connection of its own: safe from any thread, beside the writer. A compaction without
        the ledger that it stores: that is as large as all jobs together, and who asks for history would have it read.
        """
        where, values = reading.which(job, kinds, after)
        tail = f"ORDER BY seq {'DESC' if newest_first else ''}" + (f" LIMIT {int(limit)}" if limit else "")
        with self._reading() as reader:
            return tuple(reading.rows(reader, f"{where} {tail}", values))

    def lots(
        self, *, job: str | None = None, after: int = 0, limit: int, begin_s: Seconds = 0.0
    ) -> Iterator[tuple[Event, ...]]:
        """The newest `limit` events, oldest first, of those what is not older than `begin_s` (wall time): a few at a
        time, so that however large they are no more of them is in memory. Raises JournalStopped, also on the way."""
        where, values = reading.which(job, (), after)
        with self._reading() as reader:
            parts = reading.lots(reader, f"{where} ORDER BY seq DESC LIMIT {int(limit)}", values, begin_s)
        return self._read_lots(parts, job)

    def _read_lots(self, parts: Iterable[tuple[int, int]], job: str | None) -> Iterator[tuple[Event, ...]]:
        for first, last in parts:
            where, values = reading.which(job, (), first - 1)
            with self._reading() as reader:
                lot = tuple(reading.rows(reader, f"{where} AND seq <= ? ORDER BY seq", (*values, last)))
            yield lot

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Beside the writer; by its own connection where there is no other."""
        try:
            with self._using:
                if self.alone:
                    yield self._db
                    return
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as reader:
                yield reader
        except sqlite3.Error as error:
            raise self._stopped(error) from error

    def close(self) -> None:
        try:
            self._disconnect()
        finally:
            self._lock.close()


def rebuilt(path: Path) -> Ledger:
    """The ledger that the file alone gives; what a live one is compared with."""
    ledger = Ledger()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        newest = reader.execute("SELECT max(seq) FROM events WHERE kind = ?", (Kind.CHECKPOINT.value,)).fetchone()[0]
        for event in events_where(reader, "seq >= ? ORDER BY seq", (newest or 0,)):
            fold(ledger, event)
    return ledger


def _newest_checkpoint(db: sqlite3.Connection) -> int | None:
    row: tuple[int | None] = db.execute(
        "SELECT max(seq) FROM events WHERE kind = ?", (Kind.CHECKPOINT.value,)
    ).fetchone()
    return row[0]


def _readable(measured: dict[str, Any]) -> dict[str, Any]:
    """What the ledger keeps of a job's output, whose types no class of an event has; nothing, where it is none: it is
    read from the job's log again."""
    try:
        restore(Measurement, measured)
    except ODD:
        return {}
    return measured


def _code(error: sqlite3.Error | OSError) -> int:
    """The primary result code; 0 where Python raised without one."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
