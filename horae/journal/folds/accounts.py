"""What jobs held and for how long, and how many apps were there: charged as events show it."""

from __future__ import annotations

from horae.journal import spending
from horae.journal.form import Event
from horae.journal.ledger import JobRecord, Ledger, PoolRecord
from horae.port import JobState
from policy.model import Seconds

#: How many counts of a pool's apps are kept; more would only be looked at by nobody.
KEPT_APP_COUNTS = 1000


def charge(ledger: Ledger, record: JobRecord, until_s: Seconds, event: Event) -> None:
    """Charge what it held since the last charge, never twice and never backwards."""
    elapsed_s = until_s - record.charged_s
    if elapsed_s <= 0:
        return
    until_wall_s = event.wall_s - (event.at_s - until_s)
    if record.holding:
        spending.charge(ledger.spent, record.tenant, record.holding, until_wall_s - elapsed_s, until_wall_s)
        for gpu_type, gpus in record.holding.items():
            record.attained[gpu_type] = record.attained.get(gpu_type, 0.0) + gpus * elapsed_s
    if record.state is JobState.RUNNING:
        record.ran_s += elapsed_s
    record.charged_s = until_s


def count_app(ledger: Ledger, record: JobRecord, by: int, at_s: Seconds) -> None:
    pool = ledger.pools.setdefault(record.pool, PoolRecord())
    before = len(pool.apps)
    count = pool.apps.get(record.app_key, 0) + by
    if count > 0:
        pool.apps[record.app_key] = count
    else:
        pool.apps.pop(record.app_key, None)
        pool.agents.pop(record.app_key, None)
    if len(pool.apps) == before:
        return
    if pool.active_apps and pool.active_apps[-1][0] == at_s:
        pool.active_apps.pop()
    pool.active_apps.append((at_s, len(pool.apps)))
    if len(pool.active_apps) > KEPT_APP_COUNTS:
        _prune_app_counts(ledger, record.pool, pool)


def _prune_app_counts(ledger: Ledger, name: str, pool: PoolRecord) -> None:
    """Nobody needs the counts from before the oldest live job, nor more than the newest thousand or so."""
    oldest = min((r.submitted_s for r in ledger.live(name)), default=pool.active_apps[-1][0])
    first = next((i for i, (t, _) in enumerate(pool.active_apps) if t > oldest), len(pool.active_apps))
    keep = max(first - 1, len(pool.active_apps) - KEPT_APP_COUNTS // 2)
    pool.active_apps = pool.active_apps[keep:]
