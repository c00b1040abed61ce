"""`fold(ledger, event)`: what each kind of event does to the ledger (`folds/`, by what it is about).

Given the same events in the same order the ledger is the same, whoever folds them and whenever.
"""

from __future__ import annotations

from horae.journal.folds import bidding, decisions, jobs, life, people, shown
from horae.journal.form import Event, read
from horae.journal.ledger import Ledger

_FOLDS = {k: f for room in (life, people, jobs, shown, decisions, bidding) for k, f in room.FOLDS.items()}


def fold(ledger: Ledger, event: Event) -> None:
    if event.at_s > ledger.at_s:  # noqa: PLR1730 - of a million events each asks: no call
        ledger.at_s = event.at_s
    ledger.changes += 1
    if event.job is not None:
        ledger.touched.add(event.job)
    _FOLDS[event.kind](ledger, event, read(event))
