"""What an observation says that the ledger does not know yet, as events. Pure but for `Eyes`, a small memory.

Only differences become events, so a quiet cluster writes nothing. Ages are taken on the cluster's own clock and
moved to ours, so that a cluster host with another time does not bend the accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from horae.config import Config
from horae.elastic import protocol
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.ledger import LINE, Obstacle
from horae.port import CheckpointMark, JobId, JobState, Observation, ObservedJob
from horae.spec import JobSpec
from policy.model import GpuRange, Gpus, GpuType, NodeName, Seconds

#: A checkpoint alone is worth an event this often.
CHECKPOINT_EVENT_S = 60.0
#: A time limit that moved by less is the same: clusters keep limits in minutes, and count from another moment.
LIMIT_EVENT_S = 60.0
#: The alert about files of the cluster's own, and so many of them are named.
UNREAD, MOST_UNREAD = "unread", 3


@dataclass(slots=True)
class LastSeen:
    """What was seen last, to find what changed without comparing everything with the ledger."""

    seen: dict[JobId, ObservedJob] = field(default_factory=dict)
    missed: dict[JobId, Seconds] = field(default_factory=dict)  #: since when a job is not shown
    stale: dict[JobId, Seconds] = field(default_factory=dict)  #: since when a job is shown older than we know it


def notice(
    ledger: Ledger,
    observation: Observation,
    last: LastSeen,
    *,
    config: Config,
    pools: Mapping[NodeName, str],
    now_s: Seconds,
) -> list[Draft]:
    """Events for everything that changed. `eyes` is brought up to date."""
    types = {node.name: node.gpu_type for node in observation.nodes}
    drafts: list[Draft] = []
    shown, seen = {job.id for job in observation.jobs}, last.seen
    for back in last.missed.keys() & shown:
        del last.missed[back]
    for job in observation.jobs:
        if seen.get(job.id) == job:
            continue
        record = ledger.jobs.get(job.id)
        if record is None:
            drafts += _adopt(job, ledger, observation, config, pools, types, now_s)
        elif not record.live:
            if not _alive_again(record, job, last, config, now_s):
                continue
            drafts += [events.Reopened(job.id), _seen(record, job, observation, types, now_s)]
        elif _outdated(record, job, last, config, now_s):
            continue
        else:
            drafts += _compare(record, job, observation, config, types, now_s)
        last.seen[job.id] = job
    drafts += _missing(ledger, shown, last, config, now_s)
    return drafts + _unread(ledger, observation)


def _unread(ledger: Ledger, observation: Observation) -> list[Draft]:
    """An alert while files of the cluster's own cannot be read."""
    told = ledger.alerts.get(UNREAD)
    found = list(observation.unread)
    if not found:
        return [] if told is None else [events.Cleared(UNREAD)]
    if len(found) > MOST_UNREAD:
        found[MOST_UNREAD:] = [f"and {len(found) - MOST_UNREAD} more"]
    text = "; ".join(found)
    if told is not None and told.text == text:
        return []
    return [events.Alerted(UNREAD, text)]


def _outdated(record: JobRecord, job: ObservedJob, last: LastSeen, config: Config, now_s: Seconds) -> bool:
    """An older start than one we saw: a stale read, unless it stays so (the cluster was restored from a copy)."""
    if job.epoch >= record.epoch_seen:
        last.stale.pop(job.id, None)
        return False
    since = last.stale.setdefault(job.id, now_s)
    return now_s - since < config.rounds.settle_s


def _alive_again(record: JobRecord, job: ObservedJob, last: LastSeen, config: Config, now_s: Seconds) -> bool:
    """A job that is over for us (we gave it up, say) and that the cluster shows alive, for longer than a stale read."""
    if record.released or job.state.ended:
        last.stale.pop(job.id, None)
        return False
    return now_s - last.stale.setdefault(job.id, now_s) >= config.rounds.settle_s


def _compare(
    record: JobRecord,
    job: ObservedJob,
    observation: Observation,
    config: Config,
    types: Mapping[NodeName, GpuType],
    now_s: Seconds,
) -> list[Draft]:
    drafts: list[Draft] = []
    if job.spec is not None and (record.adopted or record.guessed) and job.spec != record.spec:
        tenant, app = _tenant(job.spec, config), _app(job.spec, job.id)
        drafts.append(events.Respecified(job.id, job.spec, tenant=tenant, app=app, owner=job.spec.owner))
    over = job.state.ended  # and we have it as live, if only because a journal lost its last words
    if record.shown and record.missing_since_s is None and not over and not _differs(record, job, now_s):
        return drafts
    drafts.append(_seen(record, job, observation, types, now_s))
    if job.state.ended:
        drafts.append(events.Ended(job.id, job.state, _since(record, job, observation, now_s), _last_words(job)))
    return drafts


def _differs(record: JobRecord, job: ObservedJob, now_s: Seconds) -> bool:
    blocked = None if record.blocked is None else (record.blocked.kind, record.blocked.text)
    shown = None if job.blocked is None else (job.blocked.kind, job.blocked.text)
    known = record.state, record.epoch_seen, record.allocation, record.exit_code, record.native, blocked
    return (
        known != (job.state, job.epoch, job.allocation, job.exit_code, job.native, shown)
        or _newer(record.checkpoint, job.checkpoint)
        or _limit_moved(record.cluster_left_at(now_s), job.time_left_s)
    )


def _limit_moved(known_s: Seconds | None, shown_s: Seconds | None) -> bool:
    """Somebody gave it another time limit; clocks and reads differ by less."""
    if known_s is None or shown_s is None:
        return (known_s is None) != (shown_s is None)
    return abs(known_s - shown_s) >= LIMIT_EVENT_S


def _newer(known: CheckpointMark | None, shown: CheckpointMark | None) -> bool:
    if shown is None:
        return False
    if known is None or known.epoch != shown.epoch:
        return True
    return known.step != shown.step and shown.time_s - known.time_s >= CHECKPOINT_EVENT_S


def _seen(
    record: JobRecord | None,
    job: ObservedJob,
    observation: Observation,
    types: Mapping[NodeName, GpuType],
    now_s: Seconds,
) -> Draft:
    holding: dict[GpuType, Gpus] = {}
    for node, gpus in job.allocation.items():
        gpu_type = types.get(node, "?")
        holding[gpu_type] = holding.get(gpu_type, 0) + gpus
    blocked = None
    if job.blocked is not None:
        old = None if record is None else record.blocked
        since_s = old.since_s if old is not None and old.kind is job.blocked.kind else now_s
        blocked = Obstacle(job.blocked.kind, job.blocked.text, since_s, job.blocked.cap, job.blocked.alone)
    return events.JobSeen(
        job.id,
        state=job.state,
        epoch=job.epoch,
        allocation=job.allocation,
        holding=holding,
        since_s=_since(record, job, observation, now_s),
        exit_code=job.exit_code,
        checkpoint=job.checkpoint,
        blocked=blocked,
        native=job.native,
        time_left_s=job.time_left_s,
    )


def _since(record: JobRecord | None, job: ObservedJob, observation: Observation, now_s: Seconds) -> Seconds:
    """When it came into its state, on our clock: never in the future, never before its last charge."""
    age_s = max(observation.now_s - job.since_s, 0.0) if job.since_s else 0.0
    since_s = now_s - age_s
    if record is None:
        return since_s
    if record.state is job.state and record.epoch_seen == job.epoch and record.shown:
        return record.since_s
    return min(max(since_s, record.charged_s), now_s)


#: Exit codes that say nothing by themselves: the cluster's words do.
_OURS = frozenset({protocol.EXIT_STOPPED, protocol.EXIT_NO_CHECKPOINT, protocol.EXIT_SUPERSEDED})


def _last_words(job: ObservedJob) -> str:
    if job.exit_code in _OURS and " " in job.native:
        return job.native
    if job.state is JobState.FAILED and job.exit_code is not None:
        signal = f" (signal {job.exit_code - 128})" if job.exit_code > 128 else ""
        return f"its program ended with exit code {job.exit_code}{signal}"
    return job.native


# --- jobs we did not know ---------------------------------------------------------------------------------


def _adopt(
    job: ObservedJob,
    ledger: Ledger,
    observation: Observation,
    config: Config,
    pools: Mapping[NodeName, str],
    types: Mapping[NodeName, GpuType],
    now_s: Seconds,
) -> list[Draft]:
    spec = job.spec or _guess(job)
    submitted_s = now_s
    if job.submitted_s is not None:
        submitted_s = now_s - max(observation.now_s - job.submitted_s, 0.0)
    drafts = [
        events.Adopted(
            job.id,
            spec,
            pool=pool_for(spec, job.allocation, config, pools),
            tenant=_tenant(spec, config),
            app=_app(spec, job.id),
            owner=spec.owner,
            submitted_s=submitted_s,
            guessed=job.spec is None,
        ),
        _seen(None, job, observation, types, now_s),
    ]
    if job.state.ended:
        drafts.append(events.Ended(job.id, job.state, _since(None, job, observation, now_s), _last_words(job)))
    return drafts


def _guess(job: ObservedJob) -> JobSpec:
    """Nobody can say what it is: a rigid gang of what it holds, never stopped by us."""
    gpus = max(sum(job.allocation.values()), 1)
    return JobSpec(name=job.id, command=(), gpus=GpuRange(gpus, gpus, gpus), elastic=False)


def pool_for(spec: JobSpec, held: Mapping[NodeName, Gpus], config: Config, pools: Mapping[NodeName, str]) -> str:
    """Where its GPUs are; else the pool it names; else the first pool."""
    for node in sorted(held):
        if node in pools:
            return pools[node]
    named = spec.extra.get("pool")
    return named if named is not None and config.pool(named) is not None else config.pools[0].name


def _tenant(spec: JobSpec, config: Config) -> str:
    """As the job names it. A user whom a tenant lists has no share beside it; of several the first counts, since nobody
    can be asked."""
    named = spec.tenant or spec.owner or spec.name
    return config.at_home(spec.owner, named)[0] if spec.owner else named


def _app(spec: JobSpec, job: JobId) -> str:
    return spec.app or job


# --- jobs that are gone -----------------------------------------------------------------------------------


def _missing(ledger: Ledger, shown: set[JobId], last: LastSeen, config: Config, now_s: Seconds) -> list[Draft]:
    """Jobs that the cluster had shown and does not any more. One look may err: it must stay so for a while."""
    drafts: list[Draft] = []
    unseen = [ledger.jobs[job] for job in (ledger.resting() | ledger.running_on()) - shown]
    for record in sorted((*ledger.in_motion(), *unseen), key=LINE):
        if record.id in shown or not record.shown or record.missing_since_s is not None:
            continue
        since_s = last.missed.setdefault(record.id, now_s)
        if now_s - since_s >= config.rounds.settle_s:
            last.seen.pop(record.id, None)
            drafts.append(events.Missing(record.id))
    for gone in [job for job in last.missed if job not in ledger.jobs]:
        del last.missed[gone]
    for gone in last.seen.keys() - shown - last.missed.keys():
        del last.seen[gone]
    return drafts
