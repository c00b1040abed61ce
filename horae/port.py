"""The cluster port: what every adapter is. The first file to read.

An adapter shows a cluster (`observe`) and acts on it. Every verb returns at once and is idempotent: asking
twice is asking once, and completion is only what a later `observe()` shows. The arbiter is level-triggered: it
compares its target with the observation each round, so a lost message or a crash is healed, not remembered.

Epochs. Each start of a job carries an epoch, 1 for the first and one more for each after it. The arbiter's
journal hands them out; the adapter refuses or ignores an epoch that is not newer than what the cluster has seen,
and the supervisor lets only the newest epoch write checkpoints (a node that was lost goes on computing).

Looking. `observe` only looks: anybody may call it at any time, as often as they like, and nothing changes in the
cluster by it. What an earlier request still needs (the second half of a start, a clean-up, a request to be made
again) is shown as `due`, and done by `follow_up`: by an arbiter in charge alone, for jobs that it may act on, each
deed written down in its journal before.

Claims. `claim(token)` marks the cluster as this arbiter's. A later claim by another arbiter replaces it, shows in
every following observation, and makes the older arbiter stop acting before its next action.

Errors say what the caller does next: `TryLater` (wait), `Never` (drop it and tell the user), `FixConfiguration`
(tell the operator).

One contract suite, `tests/contract/`, runs over every adapter. Adapters are entry points of the group
`horae.clusters`: a callable `connect(options: Mapping[str, Any]) -> ClusterPort`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Gpus, Limits, Node, NodeName, Quota, Seconds
from policy.records import quick

#: All before its first dot is the cluster's own number, which people type and read; what stands behind tells it from
#: an earlier job to which the cluster had given the same.
JobId = str


class JobState(StrEnum):
    QUEUED = "queued"  #: holds nothing, never ran; waits for us
    STARTING = "starting"  #: granted, its gang does not stand yet
    RUNNING = "running"
    STOPPING = "stopping"  #: asked to checkpoint, or being cleaned up; still holds its GPUs
    STOPPED = "stopped"  #: checkpointed and holds nothing; can be started again
    COMPLETED = "completed"
    FAILED = "failed"  #: its own program failed
    CANCELLED = "cancelled"
    LOST = "lost"  #: ended by the cluster (node lost, preempted, supervisor killed); can be started again

    ended: bool  #: never starts again
    holds: bool
    startable: bool


for _state in JobState:  # asked of every job in every round: attributes, not questions
    _state.ended = _state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
    _state.holds = _state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
    _state.startable = _state in (JobState.QUEUED, JobState.STOPPED, JobState.LOST)


class BlockKind(StrEnum):
    LIMIT = "limit"  #: a site's limit on the tenant (or on the job alone): comes back as a cap in the next snapshot
    FOREIGN = "foreign"  #: a job that is not ours was first
    GANG = "gang"  #: only part of the gang could be formed
    NODE = "node"  #: the node cannot be used
    ASIDE = "aside"  #: its owner holds it there, or it is tried again later: until then it is not decided about
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Blocked:
    """What we granted and the cluster does not let run, with its own words."""

    kind: BlockKind
    text: str
    cap: Gpus | None = None  #: with LIMIT: the most GPUs the tenant may hold, where the cluster tells
    alone: bool = False  #: with LIMIT: nothing is known of whom else it binds


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """The newest complete checkpoint, as far as the cluster can see it."""

    epoch: int
    step: float
    time_s: Seconds


@quick
@dataclass(frozen=True, slots=True)
class ObservedJob:
    id: JobId
    state: JobState
    epoch: int = 0  #: starts so far that the cluster has seen; 0: never started
    allocation: Allocation = field(default_factory=lambda: EMPTY)  #: GPUs held now; while STOPPING too
    since_s: Seconds = 0.0  #: when it came into this state
    exit_code: int | None = None  #: of the last start, once it ended; 128 + n for signal n
    spec: JobSpec | None = None  #: where the cluster holds the specification (Slurm, local); else our journal does
    blocked: Blocked | None = None
    checkpoint: CheckpointMark | None = None
    submitted_s: Seconds | None = None  #: where the cluster knows better than our journal
    time_left_s: Seconds | None = None  #: of its time limit, over all its starts
    native: str = ""  #: the cluster's own word for its state, for people
    #: how much of its time each of its GPUs (`node:index`) computes now, 0 to 1; empty: nobody knows
    gpu_use: Mapping[str, float] = field(default_factory=lambda: EMPTY, compare=False)


@dataclass(frozen=True, slots=True)
class Due:
    """What an earlier request still needs: `follow_up` does it. Shown to the arbiter whose claim stands, alone."""

    job: JobId
    what: str  #: in words, for the journal and for people
    stray: bool = False  #: of no job any more: `job` names what is left of one


@dataclass(frozen=True, slots=True)
class SiteTenant:
    """A tenant that the cluster itself keeps, with what it weighs there: a leaf queue, where the site says that
    queues are its tenants. Who may submit in its name is the cluster's to say: `submit` asks it."""

    name: str
    weight: float = 1.0
    also: tuple[str, ...] = ()  #: other names that people may give it


@dataclass(frozen=True, slots=True)
class Absence:
    """Nodes that are to be away, as a cluster's reservation for maintenance says ahead."""

    name: str
    nodes: tuple[NodeName, ...]
    from_s: Seconds
    to_s: Seconds
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One cheap, consistent read of the cluster. Jobs that are not ours appear only as `Node.foreign`."""

    now_s: Seconds
    nodes: tuple[Node, ...]
    jobs: tuple[ObservedJob, ...]
    claim: str | None = None  #: token of the arbiter that claimed the cluster last
    notes: tuple[str, ...] = ()  #: what could not be read, in words
    due: tuple[Due, ...] = ()  #: what `follow_up` would do now
    quotas: tuple[Quota, ...] = ()  #: the site's limits on these jobs, less what jobs that are not shown use of them
    order_lost: bool = False  #: the order that `set_order` asked for does not show (any more): it is asked for again
    tenants: tuple[
        SiteTenant, ...
    ] = ()  #: all there are, where they are the cluster's own; empty: users and configured
    away: tuple[Absence, ...] = ()
    caps: Mapping[str, Gpus] = field(
        default_factory=lambda: EMPTY
    )  #: tenant -> most GPUs that the cluster lets it hold
    unread: tuple[str, ...] = ()  #: the cluster's own files that cannot be read, and what an operator does about each


@dataclass(frozen=True, slots=True)
class LogChunk:
    data: bytes
    next_offset: int
    #: changes when the file was replaced or truncated: `next_offset` then counts in the new one
    identity: str = ""
    eof: bool = True


@dataclass(frozen=True, slots=True)
class Capabilities:
    cluster: str  #: for people: "slurm 24.11.5 (lab)"
    limits: Limits = field(default_factory=Limits)
    owns_submission: bool = True  #: `submit` works; False: jobs come from the cluster's own users
    reshape_in_place: bool = False
    cpus_per_gpu: float | None = None  #: of a worker whose job does not say; None: no constraint
    memory_per_gpu: int | None = None  #: bytes, likewise
    own_workers: bool = False  #: `JobSpec.workers` is obeyed
    tenant_key: str = ""  #: of a job's `extra`: another way to name its tenant, where tenants are the cluster's own
    order_lever: str | None = None  #: what `set_order` moves, for people; None: cannot order
    restart_gap_s: Seconds = 0.0  #: mandatory pause before a restart that shares a node with the old shape
    notes: tuple[str, ...] = ()
    #: what the cluster itself hides of one user's from the others, in its words ("jobs", "accounts"): whoever shows
    #: jobs hides them as well
    hides: tuple[str, ...] = ()


class PortError(Exception):
    """An action or a read that did not happen. `text` is for people and never empty."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)


class TryLater(PortError):
    """Nothing is wrong with the request: the cluster is busy, slow or away."""

    def __init__(self, text: str, retry_after_s: Seconds = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(text)


def backoff_s(times: int, first_s: Seconds, longest_s: Seconds) -> Seconds:
    """Seconds until the next try: `first_s` after 0 `times`, then twice as long each time, up to `longest_s`."""
    return min(first_s * 2.0 ** min(times, 60), longest_s)


def date_and_time(wall_s: Seconds) -> str:
    """A moment in seconds since 1970 as sentences tell it, `2026-11-27 14:30 +0100`; the seconds themselves where no
    calendar goes so far."""
    try:
        at = datetime.fromtimestamp(wall_s).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{wall_s:.0f} s since 1970"
    return at.strftime("%Y-%m-%d %H:%M %z")


class Never(PortError):
    """This request can never succeed; the user must change it."""


class FixConfiguration(PortError):
    """An operator must mend something (rights, settings, disk); `remedy` says what."""

    def __init__(self, text: str, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(f"{text} ({remedy})" if remedy else text)


@runtime_checkable
class ClusterPort(Protocol):
    def capabilities(self) -> Capabilities: ...

    def observe(self) -> Observation:
        """One read, whatever the number of jobs, that changes nothing. Raises TryLater when the cluster cannot be
        read whole."""
        ...

    def claim(self, token: str) -> None:
        """Mark the cluster as this arbiter's (see Claims above)."""
        ...

    def heartbeat(self) -> None:
        """Tell the cluster's hooks that the arbiter lives; when it goes stale, new jobs pass us by."""
        ...

    def submit(self, job: JobId, spec: JobSpec) -> None:
        """Make the job known, holding nothing. Creates nothing that costs the cluster before the first start.

        A job without GPUs is never started by us: the cluster runs it, now and after each loss, and shows it."""
        ...

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Give it these GPUs and run it, from its newest complete checkpoint where there is one."""
        ...

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Change a running job's GPUs in place; only with `Capabilities.reshape_in_place`."""
        ...

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        """Ask it to checkpoint and leave; what has not left after `grace_s` is killed. Ends in STOPPED."""
        ...

    def cancel(self, job: JobId) -> None:
        """End it for good. Ends in CANCELLED, unless it ended by itself first."""
        ...

    def release(self, job: JobId) -> None:
        """Hand the job back to the cluster's own scheduler and forget it. Running jobs run on."""
        ...

    def set_order(self, jobs: Sequence[JobId]) -> None:
        """Order of pending jobs, first first, by the softest reversible lever."""
        ...

    def set_reason(self, job: JobId, text: str) -> None:
        """Show why it waits or holds, where the cluster has a place that is ours to write."""
        ...

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        """Bytes of the job's output from `offset`, at most `limit`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class FollowingUp(Protocol):
    """A port whose requests need more than one deed."""

    def follow_up(self, jobs: Collection[JobId]) -> Mapping[JobId, PortError]:
        """Do what the last observation showed as due for these jobs, and for no other; idempotent, and nothing for a
        job whose state changed since. What failed, by job: the next observation shows it as due again."""
        ...


def attend(port: ClusterPort) -> Observation:
    """Look, do all that is due, and look again: for who has a cluster to himself and no arbiter (labs, tests).

    What failed is told among the notes."""
    seen = port.observe()
    if not seen.due or not isinstance(port, FollowingUp):
        return seen
    failed = port.follow_up([due.job for due in seen.due])
    again = port.observe()
    errors = [f"{job}: {error.text}" for job, error in failed.items()]
    return replace(again, notes=tuple(dict.fromkeys([*seen.notes, *errors, *again.notes])))


@runtime_checkable
class Noticing(Protocol):
    """A port whose cluster tells of events. They only wake the arbiter: what happened is for `observe` to say."""

    def noticed(self) -> object:
        """Differs from the last answer when something happened. Cheap; called from any thread, several times a
        second."""
        ...


@runtime_checkable
class Batching(Protocol):
    """A port that does many actions of one kind with fewer requests, or side by side. Each is what the verb for one job
    is; each job is named once. What failed, by job: an error of one is no other's."""

    at_once: int  #: so many take a few seconds: an arbiter that asks for more looks at nothing meanwhile

    def start_many(self, starts: Sequence[tuple[JobId, Allocation, int]]) -> Mapping[JobId, PortError]:
        """`start` of each (job, allocation, epoch)."""
        ...

    def stop_many(self, stops: Sequence[tuple[JobId, Seconds]]) -> Mapping[JobId, PortError]:
        """`checkpoint_and_stop` of each (job, grace_s)."""
        ...

    def cancel_many(self, jobs: Sequence[JobId]) -> Mapping[JobId, PortError]:
        """`cancel` of each."""
        ...


def raise_any(errors: Mapping[JobId, PortError]) -> None:
    """For a verb of one job that is made of the one for many: raises what failed."""
    for error in errors.values():
        raise error


@runtime_checkable
class HandingIn(Protocol):
    """A port that takes many new jobs at once."""

    at_once: int  #: as of Batching

    def submit_many(self, jobs: Sequence[tuple[JobId, JobSpec]]) -> Mapping[JobId, PortError]:
        """`submit` of each (job, specification); an error of one hinders no other."""
        ...


@runtime_checkable
class Leaving(Protocol):
    """A port that hands many jobs back at once, and holds jobs which it does not show yet: they wait for another job,
    or for a time."""

    def release_many(self, jobs: Sequence[JobId]) -> Mapping[JobId, PortError]:
        """`release` of each; an error of one hinders no other."""
        ...

    def release_rest(self) -> None:
        """`release` of each of those."""
        ...
