"""GPUs that jobs hold and do not use: what shows of it, what is said, and what may be taken back.

Of a GPU whose use the cluster shows (`ObservedJob.gpu_use`; what nvidia-smi calls its utilisation): it is unused while
each look shows it below `unused.below`. Of a job of whose GPUs none shows: all of them are, while neither a new step
nor a new checkpoint does, as long as its log is read. A job that never told a step is silent, and not called unused;
nor is one whose steps take long before ten of them would have passed. Only what runs is looked at; what is not ours
or suspended never.

Where the pool says so (`reclaim_unused_s`), a job all of whose GPUs lie unused so long, and that can be resumed from
its checkpoint, is held by `UNUSED`: it checkpoints, leaves, and waits for `horae unhold`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from horae.arbiter.modes import mode_of
from horae.arbiter.standing import movable
from horae.config import Config, Mode
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.ledger import UnusedGpus
from horae.journal.measured import Measurement
from horae.port import JobId, JobState, Observation, ObservedJob
from policy.model import EMPTY, Seconds

#: Who holds a job whose GPUs were taken back.
UNUSED = "the watch of unused GPUs"
#: Steps that must have had the time to pass before their absence means anything.
STEPS = 10
USE, STEP = "use", "steps"


@dataclass(slots=True)
class _Idleness:
    """What was seen of one start of a job."""

    epoch: int
    used_s: dict[str, Seconds] = field(default_factory=dict)  #: by GPU, when it was last used
    step: tuple[float, float] = (0.0, 0.0)  #: of its log, of its checkpoint
    stepped_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class _Found:
    gpus: int
    which: tuple[str, ...]  #: where the cluster shows each
    since_s: Seconds
    by: str


class UnusedWatch:
    """Remembers when each GPU, and each job, last showed signs of work. Begins anew with the arbiter."""

    def __init__(self) -> None:
        self._watched: dict[JobId, _Idleness] = {}

    def look(
        self,
        ledger: Ledger,
        observation: Observation,
        config: Config,
        now_s: Seconds,
        *,
        fresh: Mapping[JobId, Measurement] = EMPTY,
        read_s: Mapping[JobId, Seconds] = EMPTY,
    ) -> list[Draft]:
        """What is to be said or taken back now. `read_s`: when each log was last read, on the cluster's clock."""
        drafts: list[Draft] = []
        running, ours = {}, ledger.running_on()
        for job in observation.jobs if config.unused.after_s else ():
            if job.state is not JobState.RUNNING:
                continue
            record = ledger.jobs.get(job.id)
            if record is not None and (job.id in ours or _ours(record)) and _works(job):
                unread_s = observation.now_s - read_s.get(job.id, math.inf)  # below zero: never, or its clock was set
                heard_s = now_s - unread_s if unread_s >= 0 else None
                watched = running[job.id] = self._seen(record, job, config, now_s, fresh.get(job.id), heard_s)
                drafts += _told(record, _found(record, job, watched, config, now_s, heard_s), now_s)
        self._watched = running
        return [*drafts, *_reclaimed(ledger, config, now_s)]

    def _seen(
        self,
        record: JobRecord,
        job: ObservedJob,
        config: Config,
        now_s: Seconds,
        fresh: Measurement | None,
        heard_s: Seconds | None,
    ) -> _Idleness:
        known = self._watched.get(job.id)
        step = _step(job, record, fresh)
        if known is None or known.epoch != job.epoch:
            # An arbiter that was started anew goes on with what it said.
            since_s = record.unused.since_s if known is None and record.unused else now_s
            known = _Idleness(job.epoch, dict.fromkeys(job.gpu_use, since_s), step, since_s)
        for gpu, use in job.gpu_use.items():
            if use >= config.unused.below or gpu not in known.used_s:
                known.used_s[gpu] = now_s
        if step != known.step:
            known.step, known.stepped_s = step, now_s if heard_s is None else max(heard_s, known.stepped_s)
        return known


def _ours(record: JobRecord) -> bool:
    """A job of ours that runs; what asks it to leave is under way by itself. One that runs on is one."""
    ours = record.live and not record.guessed
    return ours and record.state is JobState.RUNNING and record.stop_asked_s is None


def _works(job: ObservedJob) -> bool:
    return bool(job.allocation) and not job.native.startswith("SUSPENDED")


def _step(job: ObservedJob, record: JobRecord, fresh: Measurement | None) -> tuple[float, float]:
    done = fresh.done if fresh is not None else float(record.measured.get("done", 0.0))
    return done, 0.0 if job.checkpoint is None else job.checkpoint.step


def _found(
    record: JobRecord, job: ObservedJob, watched: _Idleness, config: Config, now_s: Seconds, heard_s: Seconds | None
) -> _Found | None:
    """Its GPUs that have lain unused for long enough, as far as it shows."""
    after_s = config.unused.after_s
    if job.gpu_use:
        idle = sorted(gpu for gpu in job.gpu_use if now_s - watched.used_s[gpu] >= after_s)
        since_s = max((watched.used_s[gpu] for gpu in idle), default=now_s)
        return _Found(len(idle), tuple(idle), since_s, USE) if idle else None
    if heard_s is None or not any(watched.step):
        return None
    if heard_s - watched.stepped_s < max(after_s, STEPS * _longest_step_s(record)):
        return None
    return _Found(sum(job.allocation.values()), (), watched.stepped_s, STEP)


def _longest_step_s(record: JobRecord) -> Seconds:
    """At any size and on any type that was measured."""
    rates = [rate for table in record.measured.get("rates", {}).values() for rate in table.values() if rate > 0]
    return 1.0 / min(rates) if rates else 0.0


def _told(record: JobRecord, found: _Found | None, now_s: Seconds) -> list[Draft]:
    known = record.unused
    if found is None:
        return [] if known is None else [events.LeftUnused(record.id, 0, (), now_s, "")]
    if known is not None and (known.gpus, known.by, known.which) == (found.gpus, found.by, found.which):
        return []
    return [events.LeftUnused(record.id, found.gpus, found.which, found.since_s, found.by)]


def _reclaimed(ledger: Ledger, config: Config, now_s: Seconds) -> list[Draft]:
    """Holds of those whose pool takes unused GPUs back."""
    drafts: list[Draft] = []
    for pool in config.pools:
        if pool.reclaim_unused_s is None or mode_of(ledger, pool) is not Mode.ENFORCE:
            continue
        for record in ledger.in_motion(pool.name):
            known = record.unused
            if known is not None and _may_be_taken(record, known) and now_s - known.since_s >= pool.reclaim_unused_s:
                drafts.append(events.JobHeld(record.id, UNUSED, text(record, now_s)))
    return drafts


def _may_be_taken(record: JobRecord, known: UnusedGpus) -> bool:
    return (
        known.gpus >= sum(record.allocation.values())
        and record.state is JobState.RUNNING
        and movable(record)
        and record.wanted
    )


def text(record: JobRecord, now_s: Seconds) -> str:
    """What is known of it, and from what; "": nothing."""
    found = record.unused
    if found is None:
        return ""
    held, gpus, for_min = sum(record.allocation.values()), found.gpus, (now_s - found.since_s) / 60
    whose = f"its {held} GPU{'s' * (held != 1)}" if gpus >= held else f"{gpus} of its {held} GPUs"
    lies = "lies" if gpus == 1 and held == 1 else "lie"
    if found.by == USE:
        return f"{whose} {lies} unused for {for_min:.0f} min: no look showed work on {', '.join(found.which)}"
    step = float(record.measured.get("done", 0.0))
    return f"{whose} {lies} unused for {for_min:.0f} min, as it seems: no step after {step:g}, and no checkpoint"
