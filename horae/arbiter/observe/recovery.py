"""A journal that is not the newest truth: lost, unreadable, or a copy of yesterday. The cluster's word is taken.

Jobs that the cluster shows need nothing from here: `reconcile.py` adopts the unknown ones, and every epoch handed
out later is newer than any that is seen. What the cluster does not show any more is the danger: an old journal
believes that such a job still waits, and starting it could do finished work a second time. It is kept, held, and
its owner decides.
"""

from __future__ import annotations

from horae.arbiter.standing import held_by_people
from horae.journal import Draft, Journal, events
from horae.port import Observation

#: Numbers left out after a recovery: jobs that neither the journal nor the cluster remembers may have had them.
NUMBERS_SKIPPED = 1000


def diagnose(journal: Journal, observation: Observation) -> str | None:
    """Why this journal is not the newest truth; None: it is."""
    ledger = journal.ledger
    if journal.quarantined is not None:
        return f"the journal could not be read and was kept as {journal.quarantined}"
    if not ledger.claims and not ledger.jobs:
        if observation.jobs or observation.claim is not None:
            return "the journal is new and the cluster is not: either it was lost, or these jobs came before us"
        return None
    for job in observation.jobs:
        record = ledger.jobs.get(job.id)
        if record is not None and job.epoch > record.epoch:
            return f"the cluster has seen start {job.epoch} of job {job.id}, the journal knows of {record.epoch}"
    if observation.claim is not None and ledger.claims and observation.claim not in ledger.claims:
        return "another arbiter, or a newer copy of this journal, had the cluster since"
    return None


def recover(journal: Journal, observation: Observation, why: str) -> list[Draft]:
    ledger = journal.ledger
    shown = {job.id for job in observation.jobs}
    numbers = [int(job) for job in shown if job.isdecimal()]
    next_id = max([ledger.next_id, *(n + 1 for n in numbers)]) + NUMBERS_SKIPPED
    drafts: list[Draft] = [events.Recovered(why, next_id=next_id)]
    for record in ledger.live():
        if record.id not in shown:
            text = (
                f"the cluster does not show it, and {why}: it may have run already. Unhold it to run it, or cancel it"
            )
            by = record.hold_by if held_by_people(record) else events.HORAE
            drafts.append(events.JobHeld(record.id, by, text))
    return drafts
