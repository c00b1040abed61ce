"""The arbiter's own life."""

from __future__ import annotations

from horae.journal.codec import restore, state_of
from horae.journal.events import Alerted, Claimed, Cleared, ClockStepped, Compacted, Opened, Recovered, StoodDown
from horae.journal.folds.table import Folds
from horae.journal.form import Event
from horae.journal.ledger import Alert, Ledger

KEPT_CLAIMS = 16
FOLDS = Folds()


@FOLDS.on(Opened)
def _opened(ledger: Ledger, event: Event, told: Opened) -> None:
    ledger.opened += 1
    ledger.opened_s = event.at_s
    ledger.origin = told.origin
    ledger.stood_down = None


@FOLDS.on(Claimed)
def _claimed(ledger: Ledger, _event: Event, told: Claimed) -> None:
    ledger.claims = [*ledger.claims, told.token][-KEPT_CLAIMS:]


@FOLDS.on(StoodDown)
def _stood_down(ledger: Ledger, _event: Event, told: StoodDown) -> None:
    ledger.stood_down = told.by


@FOLDS.on(Recovered)
def _recovered(ledger: Ledger, _event: Event, told: Recovered) -> None:
    ledger.next_id = max(ledger.next_id, told.next_id or 0)


@FOLDS.on(Alerted)
def _alerted(ledger: Ledger, event: Event, told: Alerted) -> None:
    old = ledger.alerts.get(told.what)
    since = (old.since_s, old.since_wall_s) if old else (event.at_s, event.wall_s)
    ledger.alerts[told.what] = Alert(told.text, told.remedy, *since)


@FOLDS.on(Cleared)
def _cleared(ledger: Ledger, _event: Event, told: Cleared) -> None:
    ledger.alerts.pop(told.what, None)


@FOLDS.on(ClockStepped)
def _clock_stepped(_ledger: Ledger, _event: Event, _told: ClockStepped) -> None:
    """A record for people only."""


@FOLDS.on(Compacted)
def _compacted(ledger: Ledger, _event: Event, told: Compacted) -> None:
    stored, before = restore(Ledger, told.ledger), ledger.jobs.keys()
    for field in state_of(Ledger):
        setattr(ledger, field.name, getattr(stored, field.name))
    ledger.touched.update(before, ledger.jobs)
