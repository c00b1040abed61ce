"""The journal: everything the arbiter did and learnt, as append-only events in one SQLite file.

`events.py` has a class for each kind, `form.py` makes rows of them and reads rows; `store.py` keeps them (WAL, durable
where it must be); `ledger.py`, `fold.py` and `folds/` are the state that follows from them. The state is
never stored apart from the events: a live ledger and one rebuilt from the file are equal (a test), so a crash
leaves nothing to repair. An action's intent is on the disk before the action, its outcome after it.
"""

from horae.journal.clock import Clock
from horae.journal.form import Draft, Event, Kind
from horae.journal.ledger import JobRecord, Ledger, PoolRecord
from horae.journal.lock import AlreadyRunning
from horae.journal.store import Journal, JournalStopped

__all__ = [
    "AlreadyRunning",
    "Clock",
    "Draft",
    "Event",
    "JobRecord",
    "Journal",
    "JournalStopped",
    "Kind",
    "Ledger",
    "PoolRecord",
]
