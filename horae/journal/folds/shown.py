"""What the cluster showed, of jobs and of what it lets run."""

from __future__ import annotations

from horae.journal.events import Avoided, Capped, JobSeen, LeftUnused, Measured, Missing
from horae.journal.folds.accounts import charge
from horae.journal.folds.table import Folds, pool_of
from horae.journal.form import Event
from horae.journal.ledger import Avoid, Cap, Grant, JobRecord, Ledger, PoolRecord, UnusedGpus
from horae.port import JobState
from policy.model import Seconds

#: A run of this length was a good one: its loss starts a new count.
RAN_WELL_S = 600.0
#: Weight of the newest in a smoothed cost.
NEWEST = 0.5
FOLDS = Folds()


@FOLDS.of_job(JobSeen)
def _seen(ledger: Ledger, record: JobRecord, event: Event, told: JobSeen) -> None:
    state, epoch, since_s, allocation = told.state, told.epoch, told.since_s, told.allocation
    moved = state is not record.state or epoch != record.epoch_seen
    charge(ledger, record, since_s if moved else event.at_s, event)
    if moved or allocation != record.allocation:
        record.unused = None
    if moved:
        _came_into(record, state, epoch, since_s)
    if record.allocation and not allocation:
        record.left_nodes, record.left_s = sorted(record.allocation), event.at_s
    if record.grant is not None and _is_over(record.grant, record, state, epoch):
        record.grant = None
    record.shown, record.missing_since_s = True, None
    record.state, record.epoch_seen = state, epoch
    record.epoch = max(record.epoch, epoch)
    record.allocation, record.holding = dict(allocation), dict(told.holding)
    record.since_s = since_s
    record.exit_code, record.native, record.blocked = told.exit_code, told.native, told.blocked
    record.cluster_left_s, record.cluster_left_at_s = told.time_left_s, event.at_s
    if told.checkpoint is not None:
        record.checkpoint = told.checkpoint


def _is_over(grant: Grant, before: JobRecord, state: JobState, epoch: int) -> bool:
    """Whether it took effect, or was withdrawn."""
    return epoch >= grant.epoch or (before.state is JobState.STARTING and state.startable)


def _came_into(record: JobRecord, state: JobState, epoch: int, since_s: Seconds) -> None:
    """The job changed its state, or was started again: note what that says about restarts and failures."""
    if record.stop_asked_s is not None and (not state.holds or epoch > record.epoch_seen):
        if state is JobState.STOPPED:
            record.stop_cost_s = max(since_s - record.stop_asked_s, 0.0)
        record.stop_asked_s = record.stop_repeated_s = None
    if state is JobState.RUNNING:
        record.started_s = since_s
        if record.stop_cost_s is not None and record.start_asked_s is not None:
            cost_s = record.stop_cost_s + max(since_s - record.start_asked_s, 0.0)
            record.restart_cost_s = _smoothed(record.restart_cost_s, cost_s)
            record.stop_cost_s = None
    elif state is JobState.LOST:
        ran_s = since_s - record.started_s if record.started_s is not None else 0.0
        record.losses = record.losses + 1 if ran_s < RAN_WELL_S else 1
        record.down_s = since_s
    elif state is JobState.STOPPED:
        record.losses = 0


def _smoothed(old: Seconds | None, new: Seconds) -> Seconds:
    return new if old is None else NEWEST * new + (1 - NEWEST) * old


@FOLDS.of_job(Missing)
def _missing(ledger: Ledger, record: JobRecord, event: Event, _told: Missing) -> None:
    charge(ledger, record, event.at_s, event)
    record.missing_since_s = event.at_s
    record.allocation, record.holding = {}, {}


@FOLDS.of_job(Measured)
def _measured(_ledger: Ledger, record: JobRecord, _event: Event, told: Measured) -> None:
    record.measured = dict(told.told)
    if told.warmup_s is not None:
        record.warmup_s, record.warmed_epoch = _smoothed(record.warmup_s, told.warmup_s), record.epoch_seen


@FOLDS.of_job(LeftUnused)
def _left_unused(_ledger: Ledger, record: JobRecord, _event: Event, told: LeftUnused) -> None:
    record.unused = UnusedGpus(told.gpus, tuple(told.which), told.since_s, told.by) if told.gpus else None


@FOLDS.on(Capped)
def _capped(ledger: Ledger, event: Event, told: Capped) -> None:
    cap = Cap(told.cap, told.until_s, told.text)
    if told.job is not None:
        if (record := ledger.jobs.get(told.job)) is not None:
            record.cap = cap
        return
    caps = pool_of(ledger, event).caps
    caps[told.tenant] = cap
    for tenant in [t for t, c in caps.items() if c.until_s <= event.at_s]:
        del caps[tenant]


@FOLDS.of_pool(Avoided)
def _avoided(_ledger: Ledger, pool: PoolRecord, event: Event, told: Avoided) -> None:
    pool.avoid[told.node] = Avoid(told.gpus, told.until_s, told.text)
    for node in [n for n, a in pool.avoid.items() if a.until_s <= event.at_s]:
        del pool.avoid[node]
