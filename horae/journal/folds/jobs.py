"""Jobs that come, change their specification, and go."""

from __future__ import annotations

from horae.journal.events import Adopted, Ended, Forgotten, Reopened, Respecified, Submitted
from horae.journal.folds.accounts import charge, count_app
from horae.journal.folds.table import Folds
from horae.journal.form import Event
from horae.journal.ledger import JobRecord, Ledger

FOLDS = Folds()


@FOLDS.on(Submitted)
def _submitted(ledger: Ledger, event: Event, told: Submitted) -> None:
    _began(ledger, event, told).priority = told.spec.priority


@FOLDS.on(Adopted)
def _adopted(ledger: Ledger, event: Event, told: Adopted) -> None:
    record = _began(ledger, event, told)
    record.adopted, record.guessed = True, told.guessed
    record.priority = min(told.spec.priority, 0)  # nobody checked it: only a step back is believed


def _began(ledger: Ledger, event: Event, told: Submitted | Adopted) -> JobRecord:
    record = JobRecord(
        id=told.job,
        spec=told.spec,
        pool=told.pool,
        tenant=told.tenant,
        app=told.app,
        owner=told.owner,
        submitted_s=told.submitted_s,
        submitted_wall_s=event.wall_s,
        since_s=event.at_s,
        charged_s=event.at_s,
    )
    old = ledger.jobs.get(told.job)
    if old is not None and old.live:
        count_app(ledger, old, -1, event.at_s)
    ledger.jobs[told.job] = record
    ledger.submitted_s = max(ledger.submitted_s, told.submitted_s)
    if told.job.isdecimal():
        ledger.next_id = max(ledger.next_id, int(told.job) + 1)
    count_app(ledger, record, +1, event.at_s)
    return record


@FOLDS.of_job(Respecified)
def _respecified(ledger: Ledger, record: JobRecord, event: Event, told: Respecified) -> None:
    if record.live:
        charge(ledger, record, event.at_s, event)  # to whom it belonged
        count_app(ledger, record, -1, event.at_s)
    record.spec, record.guessed = told.spec, False
    record.tenant, record.app, record.owner = told.tenant, told.app, told.owner
    if record.live:
        count_app(ledger, record, +1, event.at_s)


@FOLDS.of_job(Ended)
def _ended(ledger: Ledger, record: JobRecord, event: Event, told: Ended) -> None:
    if not record.live:
        return
    charge(ledger, record, told.ended_s, event)
    count_app(ledger, record, -1, event.at_s)
    record.ended, record.end_text = told.state, told.text
    record.ended_s, record.ended_wall_s = told.ended_s, event.wall_s
    record.allocation, record.holding, record.target, record.leases = {}, {}, None, {}
    record.grant = record.guard = record.aside = record.probe = record.unused = None
    record.stop_asked_s = record.stop_repeated_s = None


@FOLDS.of_job(Reopened)
def _reopened(ledger: Ledger, record: JobRecord, event: Event, _told: Reopened) -> None:
    if record.ended is None:
        return
    record.ended = record.ended_s = record.ended_wall_s = record.cancel_sent_s = None
    record.end_text, record.charged_s = "", max(record.charged_s, event.at_s)
    count_app(ledger, record, +1, event.at_s)


@FOLDS.on(Forgotten)
def _forgotten(ledger: Ledger, event: Event, told: Forgotten) -> None:
    ledger.touched.update(told.jobs)
    for job in told.jobs:
        record = ledger.jobs.pop(job, None)
        if record is not None and record.live:
            count_app(ledger, record, -1, event.at_s)
