"""What a living arbiter is asked for people: each answer is made where its state does not change meanwhile.

All raise what `Arbiter.view` raises.
"""

from __future__ import annotations

from collections.abc import Iterable

from horae.arbiter.core import Core
from horae.arbiter.requests.commands import NoSuchJob
from horae.arbiter.service import Arbiter
from horae.journal import JobRecord
from horae.port import JobId
from horae.views import explain as explaining
from horae.views import rows
from horae.views import starts as starting
from horae.views.explain import Explanation
from horae.views.starts import Start
from horae.views.status import Status, status_of


def jobs(arbiter: Arbiter, *, ended: bool = True) -> tuple[rows.JobRow, ...]:
    return arbiter.view(lambda core: rows.job_table(core.ledger, core.now_s(), ended=ended))


def job(arbiter: Arbiter, job: JobId) -> rows.JobRow:
    """Raises NoSuchJob."""
    return arbiter.view(lambda core: rows.job_row(_record(core, job), core.now_s()))


def explain(arbiter: Arbiter, job: JobId) -> Explanation:
    """Raises NoSuchJob."""

    def look(core: Core) -> Explanation:
        record = _record(core, job)
        plan = core.plans.get(record.pool, ())
        return explaining.explain(core.ledger, core.config, record, core.now_s(), plan, core.fresh)

    return arbiter.view(look)


def starts(core: Core, pool: str, more: Iterable[JobRecord] = ()) -> dict[JobId, Start]:
    """When its waiting jobs might start. On the core's thread."""
    if core.view is None:
        return {}
    return starting.starts(core.ledger, core.view.observation.nodes, core.view.pools, pool, core.now_s(), more)


def status(arbiter: Arbiter) -> Status:
    return arbiter.view(status_of)


def _record(core: Core, job: JobId) -> JobRecord:
    record = core.ledger.jobs.get(job)
    if record is None:
        raise NoSuchJob(job)
    return record
