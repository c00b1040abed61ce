"""What people asked, of a job or of a pool."""

from __future__ import annotations

from horae.journal.events import (
    TIME_LIMIT,
    CancelAsked,
    JobHeld,
    JobUnheld,
    Maintenance,
    ModeSet,
    Prioritised,
)
from horae.journal.folds.table import Folds
from horae.journal.form import Event
from horae.journal.ledger import JobRecord, Ledger, PoolRecord

FOLDS = Folds()


@FOLDS.of_job(CancelAsked)
def _cancel_asked(_ledger: Ledger, record: JobRecord, _event: Event, told: CancelAsked) -> None:
    record.cancel_why, record.cancel_by = told.text, told.by


@FOLDS.of_job(JobHeld)
def _held(_ledger: Ledger, record: JobRecord, _event: Event, told: JobHeld) -> None:
    record.hold_by = told.by
    record.hold_why = ": ".join(filter(None, (f"held by {told.by}", told.text)))


@FOLDS.of_job(JobUnheld)
def _unheld(_ledger: Ledger, record: JobRecord, _event: Event, _told: JobUnheld) -> None:
    if record.hold_by == TIME_LIMIT:
        record.limit_from_s = record.ran_s
    record.hold_why, record.hold_by = None, ""


@FOLDS.of_job(Prioritised)
def _prioritised(_ledger: Ledger, record: JobRecord, _event: Event, told: Prioritised) -> None:
    if told.across:
        record.precedence = told.to
    else:
        record.priority = told.to


@FOLDS.of_pool(ModeSet)
def _mode_set(_ledger: Ledger, pool: PoolRecord, _event: Event, told: ModeSet) -> None:
    pool.mode, pool.releasing, pool.advised = told.mode, told.releasing, []


@FOLDS.of_pool(Maintenance)
def _maintenance(_ledger: Ledger, pool: PoolRecord, _event: Event, told: Maintenance) -> None:
    pool.maintenance = told.text if told.on else None
