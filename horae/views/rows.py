"""What people are shown: rows and pictures derived from the ledger. Pure; nobody reads a view to decide.

The same ledger gives the same views, so a restarted arbiter, or a rebuilt journal, shows what was shown before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horae.arbiter.admit.decision_record import CHANGES
from horae.config import Mode
from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.journal.ledger import JobRecord, Ledger
from horae.port import JobId, JobState
from policy.model import Allocation, Gpus, GpuSeconds, GpuType, Seconds

#: of a job that the cluster shows, until the next round
UNDECIDED = "nothing was decided about it yet"


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of the job table."""

    id: JobId
    name: str
    owner: str
    tenant: str
    app: str
    pool: str
    state: str  #: a `JobState`, or `held`, `released`, `unknown` (the cluster does not show it)
    gpus: Gpus  #: held now
    allocation: Allocation
    target: Allocation | None
    min_gpus: Gpus
    max_gpus: Gpus | None
    submitted_s: Seconds  #: wall time
    waited_s: Seconds | None  #: since it was submitted, while it waits for its first start
    ran_s: Seconds
    time_left_s: Seconds | None  #: running time left of its time limit; None: no limit
    attained: Mapping[GpuType, GpuSeconds]
    done: float
    total: float | None
    rate: float | None  #: iterations/s at its present size, measured
    epoch: int
    restarts: int
    restart_cost_s: Seconds | None
    exit_code: int | None
    ended_s: Seconds | None  #: wall time
    why: str  #: one line: the policy's reason, the guard, the block, the hold or the end


def job_row(record: JobRecord, now_s: Seconds, mode: Mode = Mode.ENFORCE) -> JobRow:
    """`mode`: of its pool now."""
    gpus = record.spec.gpus
    done, total = progress(record)
    return JobRow(
        id=record.id,
        name=record.spec.name,
        owner=record.owner,
        tenant=record.tenant,
        app=record.app,
        pool=record.pool,
        state=state_word(record),
        gpus=sum(record.allocation.values()),
        allocation=dict(record.allocation),
        target=None if record.target is None else dict(record.target),
        min_gpus=gpus.min,
        max_gpus=gpus.max,
        submitted_s=record.submitted_wall_s,
        waited_s=waited_s(record, now_s),
        ran_s=record.ran_at(now_s) if record.live else record.ran_s,
        time_left_s=record.time_left_at(now_s) if record.live else None,
        attained=record.attained_at(now_s) if record.live else dict(record.attained),
        done=done,
        total=total,
        rate=rate(record),
        epoch=record.epoch_seen,
        restarts=max(record.epoch_seen - 1, 0),
        restart_cost_s=record.whole_restart_cost_s,
        exit_code=record.exit_code,
        ended_s=record.ended_wall_s,
        why=why(record, mode),
    )


def progress(record: JobRecord) -> tuple[float, float | None]:
    """Iterations done, and of how many in all where that is known."""
    done = max(record.measured.get("done", 0.0), record.checkpoint.step if record.checkpoint is not None else 0.0)
    total = record.spec.iterations if record.spec.iterations is not None else record.measured.get("total")
    return (total, total) if record.ended is JobState.COMPLETED and total is not None else (done, total)


def waited_s(record: JobRecord, now_s: Seconds) -> Seconds | None:
    """Since it was submitted, while it waits for its first start."""
    return None if record.started_s is not None or not record.live else max(now_s - record.submitted_s, 0.0)


def state_word(record: JobRecord) -> str:
    if record.ended is not None:
        return record.ended.value
    if record.released:
        return "released"
    if record.missing_since_s is not None:
        return "unknown"
    if record.hold_why is not None and not record.state.holds:
        return "held"
    if record.state.holds and record.native.startswith("SUSPENDED"):
        return "suspended"
    return record.state.value


def why(record: JobRecord, mode: Mode = Mode.ENFORCE) -> str:
    """The strongest of the things that keep it where it is."""
    if record.ended is JobState.CANCELLED and record.cancel_why:
        return record.cancel_why
    if record.ended is not None:
        return record.end_text
    for text in (
        record.cancel_why,
        record.hold_why,
        f"{CHECKPOINTS_FAIL}{record.checkpoint_trouble}" if record.checkpoint_trouble else None,
        record.blocked.text if record.blocked is not None else None,
        record.aside.text if record.aside is not None else None,
        record.guard.text if record.guard is not None else None,
        _lost(record, mode),
        _decided(record, mode),
    ):
        if text:
            return text
    if not record.shown and not mode.acts:
        return f"pool {record.pool} is in mode {mode}: nothing is started"
    if not record.shown:
        return "the cluster does not know it yet"
    waits = record.state is JobState.QUEUED
    if waits and record.adopted and record.native:
        return record.native
    return UNDECIDED if waits and mode.decides and record.reason is None and not record.released else ""


def _lost(record: JobRecord, mode: Mode) -> str:
    """That it is out of its GPUs by nobody's decision, whatever the newest one says of them."""
    if record.state is not JobState.LOST or not record.losses or not mode.acts:
        return ""
    times = f" {record.losses} times in a row" if record.losses > 1 else ""
    return f"the cluster, or a requeue, ended it{times}; it is to be started again"


def _decided(record: JobRecord, mode: Mode) -> str:
    """The policy's word about it; that it is advice, where it is not carried out. Where nothing is decided, none."""
    if record.reason is None or (not mode.decides and not record.allocation):
        return ""
    advice = record.reason["code"] in CHANGES and mode is not Mode.ENFORCE
    return f"{f'only advised (mode {mode}): ' if advice else ''}{record.reason['text']}"


def rate(record: JobRecord) -> float | None:
    """iterations/s at its present size, as measured."""
    gpus = str(sum(record.holding.values()))
    for gpu_type in record.holding:
        found = record.measured.get("rates", {}).get(gpu_type, {}).get(gpus)
        if found is not None:
            return float(found)
    return None


def job_table(ledger: Ledger, now_s: Seconds, *, ended: bool = True) -> tuple[JobRow, ...]:
    """Live jobs by submission, then those that are over, newest end first."""
    live = sorted((r for r in ledger.jobs.values() if r.live), key=lambda r: (r.submitted_s, r.id))
    over = sorted((r for r in ledger.jobs.values() if not r.live), key=lambda r: (-(r.ended_s or 0.0), r.id))
    return tuple(job_row(r, now_s) for r in (*live, *(over if ended else ())))


@dataclass(frozen=True, slots=True)
class PoolRow:
    name: str
    mode: str | None  #: set while running; None: the configuration's
    releasing: bool
    maintenance: str | None
    decisions: int
    decided: Mapping[str, Any]  #: the newest decision: policy, options, seed, certificate, solver, fallback
    advised: tuple[Mapping[str, Any], ...]
    caps: Mapping[str, Gpus]
    avoid: Mapping[str, Gpus]


def pool_row(ledger: Ledger, name: str, now_s: Seconds) -> PoolRow:
    books = ledger.pool(name)
    return PoolRow(
        name,
        books.mode,
        books.releasing,
        books.maintenance,
        books.decisions,
        dict(books.decided),
        tuple(books.advised),
        {t: c.cap for t, c in books.caps.items() if c.until_s > now_s},
        {n: a.gpus for n, a in books.avoid.items() if a.until_s > now_s},
    )
