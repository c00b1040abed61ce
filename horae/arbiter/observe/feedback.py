"""What follows from looking alone, beside what was seen: limits learnt from blocked starts, time that ran out,
jobs that the cluster forgot. Pure: ledger -> events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from horae.arbiter.standing import movable
from horae.config import Config
from horae.elastic.protocol import EXTRA_REQUEUE_AT_LIMIT
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.codec import plain
from horae.journal.events import OUT_OF_TIME, TIME_LIMIT
from horae.journal.ledger import Obstacle
from horae.journal.measured import Measurement
from horae.port import BlockKind, JobId, JobState
from policy.model import EMPTY, Allocation, Gpus, Seconds

#: A measured rate that moved by this part is news for a policy.
NEWS = 0.1


@dataclass(frozen=True, slots=True)
class Tried:
    """What was asked for of a job's newest start; since when the cluster blocks it, and whether that was told."""

    epoch: int = 0
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    since_s: Seconds | None = None
    told: bool = False


def blocked(ledger: Ledger, config: Config, now_s: Seconds, tried: dict[JobId, Tried]) -> list[Draft]:
    """A blocked start comes back as the cap of its tenant or of it alone, or as GPUs to be left alone: after a while,
    or at once where the cluster has taken it back by itself, for then it is asked for again before long. `tried`: by
    job, for the ledger knows no grant any more that was taken back."""
    drafts: list[Draft] = []
    for record in ledger.in_motion():
        known = _newest(record, tried.get(record.id, Tried()))
        tried[record.id] = known
        if record.blocked is None or known.since_s is None or known.told:
            continue
        lasts = now_s - known.since_s >= config.rounds.blocked_s
        if lasts or record.state.startable:
            tried[record.id] = replace(known, told=True)
            drafts += _learnt(ledger, config, now_s, record, record.blocked, known.allocation)
    return drafts


def _newest(record: JobRecord, known: Tried) -> Tried:
    grant, block = record.grant, record.blocked
    if grant is not None and grant.epoch != known.epoch:
        known = Tried(grant.epoch, grant.allocation)
    since_s = None if block is None else block.since_s
    return known if since_s == known.since_s else replace(known, since_s=since_s, told=False)


def _learnt(
    ledger: Ledger, config: Config, now_s: Seconds, record: JobRecord, block: Obstacle, tried: Allocation
) -> list[Draft]:
    rounds = config.rounds
    if block.kind is BlockKind.LIMIT:
        alone, cap = block.alone, block.cap
        if cap is None and not tried:
            return []
        if cap is None:
            cap = _tried_next(ledger, record, tried, alone)
        job, until_s = record.id if alone else None, now_s + rounds.feedback_s
        return [events.Capped(record.pool, record.tenant, cap, until_s, block.text, job, alone)]
    if block.kind is BlockKind.ASIDE:
        return []
    until_s = now_s + rounds.avoid_s
    return [events.Avoided(record.pool, node, gpus, until_s, block.text) for node, gpus in tried.items()]


def _tried_next(ledger: Ledger, record: JobRecord, tried: Allocation, alone: bool) -> Gpus:
    """The cluster does not tell the number of its limit: half of what was granted is tried next, then less."""
    others = () if alone else (r for r in ledger.live(record.pool) if r.tenant == record.tenant and r.id != record.id)
    return sum(tried.values()) // 2 + sum(sum(r.allocation.values()) for r in others)


def out_of_time(ledger: Ledger, now_s: Seconds) -> list[Draft]:
    """Jobs that have run for their whole time limit.

    One that can checkpoints and leaves first, by a hold; then it ends, or, where its owner said so, waits for its next
    turn with the whole limit before it.
    """
    drafts: list[Draft] = []
    for record in ledger.in_motion():
        limit_s = record.spec.time_limit_s
        if limit_s is None or record.cancel_why is not None or record.ran_at(now_s) - record.limit_from_s < limit_s:
            continue
        text = f"its running time reached its limit of {limit_s:g} s"
        if movable(record) and record.state is JobState.RUNNING:
            if record.hold_why is None:
                drafts.append(events.JobHeld(record.id, TIME_LIMIT, text))
        elif record.state is JobState.STOPPING and record.hold_by == TIME_LIMIT:
            continue  # on its way out
        elif _true(record.spec.extra.get(EXTRA_REQUEUE_AT_LIMIT)) and record.checkpoint is not None:
            if record.hold_why is None:  # it left by itself
                drafts.append(events.JobHeld(record.id, TIME_LIMIT, text))
            if record.hold_by in ("", TIME_LIMIT):
                drafts.append(events.JobUnheld(record.id, TIME_LIMIT))
        else:
            mark = record.checkpoint
            kept = "" if mark is None else f"; its checkpoint of step {mark.step:g} is kept"
            drafts.append(events.CancelAsked(record.id, OUT_OF_TIME, text + kept))
    return drafts


def _true(word: object) -> bool:
    return str(word or "").lower() in ("1", "true", "yes")


def gone(ledger: Ledger, config: Config, now_s: Seconds, *, owns_submission: bool) -> list[Draft]:
    """Jobs that end without the cluster's word: cancelled before it knew them, or forgotten by it."""
    drafts: list[Draft] = []
    for record in ledger.in_motion():
        sent_s = record.submit_sent_s  # it may still be on its way
        on_its_way = sent_s is not None and now_s - sent_s < config.rounds.settle_s
        if record.cancel_why is not None and not record.shown and not on_its_way:
            drafts.append(events.Ended(record.id, JobState.CANCELLED, now_s, record.cancel_why))
        elif record.missing_since_s is not None and (not owns_submission or record.cancel_why is not None):
            text = record.cancel_why or "the cluster does not know it any more"
            drafts.append(events.Ended(record.id, JobState.CANCELLED, now_s, text))
    return drafts


def measured(
    ledger: Ledger,
    fresh: Mapping[JobId, Measurement],
    last_s: dict[JobId, Seconds],
    config: Config,
    now_s: Seconds,
) -> tuple[list[Draft], set[JobId]]:
    """Measurements worth recording, and the jobs about which a policy would now think differently."""
    drafts, news = list[Draft](), set[JobId]()
    for job, new in fresh.items():
        record = ledger.jobs.get(job)
        if record is None:
            continue
        told = _tells_something_new(record, new)
        if told and record.live:
            news.add(job)
        due = now_s - last_s.get(job, float("-inf")) >= config.history.measured_s
        warmup_s = _warmup(record, new, now_s)
        if told or due or warmup_s is not None or not record.state.holds:
            last_s[job] = now_s
            drafts.append(events.Measured(job, plain(new), warmup_s=warmup_s))
    return drafts, news


def _warmup(record: JobRecord, new: Measurement, now_s: Seconds) -> Seconds | None:
    """How long this start ran before its first iteration: the time since, less what its iterations took."""
    known = (
        record.state is JobState.RUNNING and record.started_s is not None and record.warmed_epoch < record.epoch_seen
    )
    gpus = sum(record.holding.values())
    rate = next((table[gpus] for t in record.holding if gpus in (table := new.rates.get(t, {}))), None)
    if not known or new.epoch != record.epoch_seen or not rate:
        return None
    before = record.checkpoint.step if record.checkpoint is not None and record.checkpoint.epoch < new.epoch else 0.0
    assert record.started_s is not None
    return max(now_s - record.started_s - max(new.done - before, 0.0) / rate, 0.0)


def _tells_something_new(record: JobRecord, new: Measurement) -> bool:
    old = record.measured
    if not old or old.get("total") != new.total:
        return True
    rates = old.get("rates", {})
    for gpu_type, table in new.rates.items():
        for gpus, rate in table.items():
            known = rates.get(gpu_type, {}).get(str(gpus))
            if known is None or abs(rate - known) > NEWS * known:
                return True
    return False
