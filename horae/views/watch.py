"""What a living arbiter is asked for people: each answer is made where its state does not change meanwhile.

All raise what `Arbiter.view` raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from horae.arbiter.core import Core
from horae.arbiter.modes import mode_of
from horae.arbiter.requests.commands import NoSuchJob
from horae.arbiter.service import Arbiter
from horae.config import Mode
from horae.journal import JobRecord
from horae.journal.codec import plain
from horae.port import JobId
from horae.views import away, rows
from horae.views import explain as explaining
from horae.views import starts as starting
from horae.views.explain import Explanation
from horae.views.size import Seen
from horae.views.starts import StartEstimate
from horae.views.status import Status, status_of


def jobs(arbiter: Arbiter, *, ended: bool = True) -> tuple[rows.JobRow, ...]:
    return arbiter.view(lambda core: rows.job_table(core.ledger, core.now_s(), ended=ended))


def job(arbiter: Arbiter, job: JobId) -> rows.JobRow:
    """Raises NoSuchJob."""
    return arbiter.view(lambda core: rows.job_row(_record(core, job), core.now_s()))


def explain(arbiter: Arbiter, job: JobId) -> Explanation:
    """Raises NoSuchJob."""

    return arbiter.view(lambda core: explained(core, job))


def explained(core: Core, job: JobId) -> Explanation:
    """On the core's thread. Raises NoSuchJob."""
    record, view = _as_last_decided(core, _record(core, job)), core.view
    plan = core.plans.get(record.pool, ())
    seen = None if view is None else Seen.in_pool(view.observation.nodes, view.pools, record.pool)
    soon = starts(core, record.pool) if record.live and not record.allocation else {}
    now_s = core.now_s()
    times = () if view is None else away.causes(record, view.away, now_s, core.journal.clock.wall_s() - now_s)
    return explaining.explain(core.ledger, core.config, record, now_s, plan, core.fresh, seen, soon, times)


def _as_last_decided(core: Core, record: JobRecord) -> JobRecord:
    """With the words and the wish of the newest decision; the journal's may be a minute older, its code is the same."""
    decision = core.decisions.get(record.pool)
    if decision is None or (reason := decision.reasons.get(record.id)) is None:
        return record
    wish = dict(decision.allocation.get(record.id, {}))
    guard = None if record.guard is None else replace(record.guard, wanted=wish)
    return replace(record, reason=plain(reason), guard=guard)


def read_to(core: Core, job: JobId) -> int:
    """How far its log was read for measuring; 0 where it was not. On the core's thread."""
    fresh, record = core.fresh.get(job), core.ledger.jobs[job]
    return fresh.offset if fresh is not None else int(record.measured.get("offset", 0))


def starts(core: Core, pool: str, more: Iterable[JobRecord] = ()) -> dict[JobId, StartEstimate]:
    """When its waiting jobs might start. On the core's thread."""
    view, found = core.view, core.config.pool(pool)
    enforced = found is not None and mode_of(core.ledger, found) is Mode.ENFORCE
    if view is None or (core.capabilities.owns_submission and not enforced):  # then nobody starts anything
        return {}
    return starting.starts(core.ledger, view.observation.nodes, view.pools, pool, core.now_s(), more, view.away)


def status(arbiter: Arbiter) -> Status:
    return arbiter.view(status_of)


def _record(core: Core, job: JobId) -> JobRecord:
    record = core.ledger.jobs.get(job)
    if record is None:
        raise NoSuchJob(job)
    return record
