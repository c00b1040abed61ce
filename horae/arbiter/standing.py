"""How a job of the ledger stands: what it occupies, whether it may be moved, whether it is decided about. Pure."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from horae.arbiter.modes import mode_of
from horae.config import Config
from horae.journal import JobRecord, Ledger
from horae.journal.events import HORAE, TIME_LIMIT
from horae.port import BlockKind, JobState, Observation, backoff_s
from policy.model import Allocation, NodeName, Seconds


def strays(ledger: Ledger, observation: Observation) -> Counter[NodeName]:
    """GPUs that the cluster shows in the hands of jobs that the ledger has as ended: nobody else's yet."""
    held: Counter[NodeName] = Counter()
    running = ledger.running_on()
    for job in observation.jobs:
        if not job.allocation or job.id in running:
            continue
        record = ledger.jobs.get(job.id)
        if record is not None and not record.live:
            held.update(job.allocation)
    return held


def grant_stands(record: JobRecord, now_s: Seconds, settle_s: Seconds) -> bool:
    """A start that the cluster does not show yet, and that may still come: its GPUs are spoken for."""
    if record.grant is None:
        return False
    return record.state is JobState.STARTING or now_s - record.grant.at_s < settle_s


def occupies(record: JobRecord, now_s: Seconds, settle_s: Seconds) -> Allocation:
    """The GPUs that nobody else may be given: held, or granted and not shown yet."""
    if record.grant is None or not grant_stands(record, now_s, settle_s):
        return record.allocation
    if not record.allocation:
        return record.grant.allocation
    nodes = record.allocation.keys() | record.grant.allocation.keys()  # a reshape in place: either may be true
    return {n: max(record.allocation.get(n, 0), record.grant.allocation.get(n, 0)) for n in sorted(nodes)}


def held_by_people(record: JobRecord) -> bool:
    """Whether only a person's word lets it go: no hold of ours takes the place of theirs."""
    return record.hold_by not in ("", HORAE, TIME_LIMIT)


def movable(record: JobRecord) -> bool:
    """Whether it can be stopped and resumed without losing its work."""
    resumes = record.spec.elastic and record.spec.checkpoint is not None and not record.guessed
    return resumes and not record.checkpoint_trouble


def stands_elsewhere(record: JobRecord, known: frozenset[NodeName]) -> bool:
    """Whether it holds GPUs that are not its pool's, and cannot leave them: without those it would seem to wait,
    and be moved."""
    return record.state.holds and not known.issuperset(record.allocation) and not movable(record)


def backoff_until(record: JobRecord, config: Config) -> Seconds:
    """A job that is lost again and again waits before each next start, longer each time."""
    if record.state is not JobState.LOST or record.losses < 2:
        return 0.0
    return record.down_s + backoff_s(record.losses - 2, config.guards.loss_backoff_s, 3600.0)


def is_aside(record: JobRecord, now_s: Seconds) -> bool:
    """Whether it is left out because the policy cannot take it (`aside.py`)."""
    return record.aside is not None and record.aside.until_s > now_s


def keeps_to_itself(ledger: Ledger, config: Config, pool: str) -> bool:
    """Whether the pool's jobs are decided about and not handed to the cluster: it will never show those handed in."""
    found = config.pool(pool)
    mode = None if found is None else mode_of(ledger, found)
    return mode is not None and mode.decides and not mode.acts


#: How nearly all jobs of a long queue are: what is said of a job that waits, and nothing else was.
_WAITING = attrgetter(
    "state",
    "shown",
    "ended",
    "released",
    "missing_since_s",
    "guessed",
    "cancel_why",
    "hold_why",
    "blocked",
    "aside",
    "losses",
)
_MERELY = (JobState.QUEUED, True, None, False, None, False, None, None, None, None, 0)


def decidable(record: JobRecord, config: Config, now_s: Seconds, *, unseen: bool = False) -> bool:
    """Whether a policy decides about this job now; `unseen`: also where the cluster does not know it."""
    if _WAITING(record) == _MERELY:
        return not record.spec.without_gpus
    return _decidable(record, config, now_s, unseen=unseen)


def _decidable(record: JobRecord, config: Config, now_s: Seconds, *, unseen: bool) -> bool:
    """The same, without the quick answer."""
    return (
        record.live
        and (record.shown or unseen)
        and record.missing_since_s is None
        and not record.guessed
        and record.wanted
        and not record.state.ended
        and not record.spec.without_gpus
        and (record.blocked is None or record.blocked.kind is not BlockKind.ASIDE)
        and not is_aside(record, now_s)
        and (record.losses < 2 or backoff_until(record, config) <= now_s)
    )
