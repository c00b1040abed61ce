"""What was decided, and what was done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from horae.journal.events import Advised, Answered, Decided, Intent, KeptBack, Ordered, Probed, PutAside, Verb
from horae.journal.folds.accounts import charge, count_app
from horae.journal.folds.table import Folds, pool_of
from horae.journal.form import Event
from horae.journal.ledger import Grant, HeldBack, JobRecord, Ledger, LeftOut, PoolRecord, Probing, Shrink
from horae.port import JobId
from policy.model import Allocation

#: How many times of stops are kept of a job; more would only be looked at by nobody.
KEPT_RESTARTS = 100
FOLDS = Folds()


@FOLDS.of_pool(Decided)
def _decided(ledger: Ledger, pool: PoolRecord, event: Event, told: Decided) -> None:
    policy = told.told.get("policy", "")
    if told.state is not None:
        pool.policy, pool.state = policy, dict(told.state)
    pool.decisions += 1
    pool.decided, pool.decided_s = dict(told.told), event.at_s
    _targeted(ledger, event, told.targets, policy)
    for job, reason in (told.reasons or {}).items():
        if (record := ledger.jobs.get(job)) is not None:
            record.reason = reason
    for job, lease in (told.leases or {}).items():
        if (record := ledger.jobs.get(job)) is not None:
            record.leases = {node: list(times) for node, times in lease.items()}
    ledger.touched.update(told.leases or ())


def _targeted(ledger: Ledger, event: Event, targets: Mapping[JobId, Allocation], policy: str) -> None:
    """What jobs are to hold, and which of them lost GPUs to which by it."""
    holds = _gpus_of(ledger, targets)
    totals = {job: sum(target.values()) for job, target in targets.items()}
    gained = tuple(job for job, to in totals.items() if holds.get(job, 0) < to)
    for job, target in targets.items():
        if (record := ledger.jobs.get(job)) is None:
            continue
        if target or record.target:
            ledger.touched.add(job)
        record.target = dict(target)
        held, to = holds.get(job, 0), totals[job]
        if to < held:
            record.shrunk = Shrink(held, to, gained, policy, event.at_s, event.wall_s)
        elif record.shrunk is not None and to >= record.shrunk.before:
            record.shrunk = None


def _gpus_of(ledger: Ledger, jobs: Iterable[JobId]) -> dict[JobId, int]:
    """GPUs that those of the jobs hold that hold any."""
    out = {}
    for job in jobs:
        record = ledger.jobs.get(job)
        if record is not None and record.allocation:
            out[job] = sum(record.allocation.values())
    return out


@FOLDS.of_job(KeptBack)
def _kept_back(_ledger: Ledger, record: JobRecord, event: Event, told: KeptBack) -> None:
    record.guard = None
    if told.guard is not None:
        record.guard = HeldBack(told.guard, told.text, event.at_s, dict(told.wanted))


@FOLDS.of_job(PutAside)
def _put_aside(_ledger: Ledger, record: JobRecord, event: Event, told: PutAside) -> None:
    record.aside = LeftOut(told.text, told.until_s, event.at_s, told.policy)


@FOLDS.on(Probed)
def _probed(ledger: Ledger, event: Event, told: Probed) -> None:
    pool, record = pool_of(ledger, event), ledger.jobs.get(told.job)
    begins = None
    if told.allocation is not None:
        pool.probes = [*(t for t in pool.probes if t > event.at_s - 3600.0), event.at_s]
        begins = Probing(told.gpu_type, told.gpus, dict(told.allocation), told.until_s, told.text, event.at_s)
    if record is not None:
        record.probe, record.probed = begins, told.over


@FOLDS.of_pool(Advised)
def _advised(_ledger: Ledger, pool: PoolRecord, _event: Event, told: Advised) -> None:
    pool.advised = list(told.steps)


@FOLDS.of_pool(Ordered)
def _ordered(_ledger: Ledger, pool: PoolRecord, _event: Event, told: Ordered) -> None:
    pool.order = list(told.jobs)


@FOLDS.of_job(Intent)
def _intent(_ledger: Ledger, record: JobRecord, event: Event, told: Intent) -> None:
    at_s = event.at_s
    match told.verb:
        case Verb.START | Verb.RESHAPE:
            assert told.epoch is not None and told.allocation is not None and told.holding is not None
            record.epoch = max(record.epoch, told.epoch)
            record.grant = Grant(told.epoch, dict(told.allocation), dict(told.holding), at_s)
            record.start_asked_s = at_s
        case Verb.STOP:
            if record.stop_asked_s is None:
                record.stop_asked_s = at_s
                record.restarts = [*record.restarts, at_s][-KEPT_RESTARTS:]
            record.stop_repeated_s = at_s
        case Verb.CANCEL:
            record.cancel_sent_s = at_s
        case Verb.SUBMIT:
            record.submit_sent_s = at_s


@FOLDS.of_job(Answered)
def _answered(ledger: Ledger, record: JobRecord, event: Event, told: Answered) -> None:
    if told.verb is Verb.RELEASE and told.error is None and record.live:
        charge(ledger, record, event.at_s, event)
        count_app(ledger, record, -1, event.at_s)
        record.released, record.holding, record.grant = True, {}, None
        record.ended_s, record.ended_wall_s = event.at_s, event.wall_s
    elif told.verb in (Verb.START, Verb.RESHAPE) and told.error not in (None, "TryLater"):
        record.grant = None  # it certainly did not happen
