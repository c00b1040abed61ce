"""The state that follows from the events: jobs, pools, and the arbiter's own life. `fold.py` is its only writer.

Everything here survives a restart, since it is the fold of what is in the file. What a restart may forget (timers
of retries, the newest full decision) lives in the arbiter's memory instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from horae import job_number
from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.journal.clock import Origin
from horae.port import BlockKind, CheckpointMark, JobId, JobState
from horae.spec import JobSpec
from policy.model import Allocation, Gpus, GpuSeconds, GpuType, NodeName, Seconds

#: What looks like an id that is more than a number.
_ID = re.compile(r"\b\d+(?:_\d+)?\.\w+")


@dataclass(slots=True)
class Grant:
    """A start that was handed out and is not shown by the cluster yet: its GPUs are spoken for."""

    epoch: int
    allocation: dict[NodeName, Gpus]
    holding: dict[GpuType, Gpus]
    at_s: Seconds


@dataclass(slots=True)
class Cap:
    cap: Gpus
    until_s: Seconds
    text: str


# --- what a job's record keeps of one matter. Their plain forms stand in the journal: a field is never given another
# meaning, and a new one has a default, since older journals lack it.


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What the cluster does not let run, in its own words (`horae.port.Blocked`), and since when."""

    kind: BlockKind
    text: str
    since_s: Seconds
    cap: Gpus | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class UnusedGpus:
    """GPUs that it holds and does not use."""

    gpus: Gpus
    which: tuple[str, ...]  #: where the cluster shows each
    since_s: Seconds
    by: str  #: what shows it, `horae.arbiter.observe.unused`


@dataclass(frozen=True, slots=True)
class Shrink:
    """The last decision that took GPUs from it, until it has them again."""

    before: Annotated[Gpus, Field(validation_alias=AliasChoices("before", "from"))]
    to: Gpus
    gained: tuple[JobId, ...]  #: who got more by the same decision
    policy: str
    at_s: Seconds
    wall_s: Seconds


@dataclass(frozen=True, slots=True)
class HeldBack:
    """The guard that keeps it from what its policy `wanted` for it."""

    guard: str
    text: str
    since_s: Seconds
    wanted: dict[NodeName, Gpus]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """No policy is asked about it until then."""

    text: str
    until_s: Seconds
    since_s: Seconds
    policy: str = ""  #: the one that cannot take it; "": none can


@dataclass(frozen=True, slots=True)
class Probing:
    """It runs elsewhere for a moment, because knowing its speed there is worth it."""

    gpu_type: GpuType
    gpus: Gpus
    allocation: dict[NodeName, Gpus]
    until_s: Seconds
    text: str
    since_s: Seconds


@dataclass(slots=True)
class JobRecord:
    id: JobId
    spec: JobSpec
    pool: str
    tenant: str
    app: str
    owner: str
    submitted_s: Seconds
    submitted_wall_s: Seconds = 0.0
    adopted: bool = False  #: the cluster knew it before we did
    guessed: bool = False  #: nobody could tell its specification: it is left alone

    # what the cluster showed last
    shown: bool = False
    state: JobState = JobState.QUEUED
    epoch_seen: int = 0
    allocation: dict[NodeName, Gpus] = field(default_factory=dict)
    holding: dict[GpuType, Gpus] = field(default_factory=dict)
    since_s: Seconds = 0.0
    exit_code: int | None = None
    native: str = ""
    blocked: Obstacle | None = None
    cap: Cap | None = None  #: a limit of the site's on it alone, learnt from a blocked grant
    checkpoint: CheckpointMark | None = None
    unused: UnusedGpus | None = None
    missing_since_s: Seconds | None = None

    # what we asked for
    epoch: int = 0  #: newest that was handed out or seen
    grant: Grant | None = None
    submit_sent_s: Seconds | None = None
    start_asked_s: Seconds | None = None
    stop_asked_s: Seconds | None = None  #: first asking, until it left
    stop_repeated_s: Seconds | None = None
    cancel_why: str | None = None
    cancel_by: str = ""
    cancel_sent_s: Seconds | None = None
    hold_why: str | None = None
    hold_by: str = ""
    priority: int = 0  #: among the jobs of its tenant
    precedence: int = 0  #: among all jobs, by an operator
    limit_from_s: Seconds = 0.0  #: running time from which its time limit counts, where it waits again at its end
    released: bool = False
    losses: int = 0  #: starts in a row that the cluster ended
    down_s: Seconds = 0.0  #: when it was last lost
    left_nodes: list[NodeName] = field(default_factory=list)  #: what it held before it held nothing
    left_s: Seconds = 0.0  #: when we saw that it had left them
    restarts: list[Seconds] = field(default_factory=list)  #: when we last asked it to stop, newest last
    started_s: Seconds | None = None  #: when it last came to run
    stop_cost_s: Seconds | None = None
    restart_cost_s: Seconds | None = None  #: from asked to stop to running again, without waiting; smoothed
    warmup_s: Seconds | None = None  #: from running to the first iteration; smoothed
    warmed_epoch: int = 0  #: of the start that `warmup_s` was last taken from

    # accounts, from observed service
    attained: dict[GpuType, GpuSeconds] = field(default_factory=dict)
    ran_s: Seconds = 0.0
    charged_s: Seconds = 0.0
    cluster_left_s: Seconds | None = None  #: of the time limit that the cluster keeps, when it was last seen
    cluster_left_at_s: Seconds = 0.0

    # measured; the plain form of `horae.arbiter.observe.measurements.Measurement`
    measured: dict[str, Any] = field(default_factory=dict)

    # decided
    target: dict[NodeName, Gpus] | None = None  #: None: nothing was decided yet, it is left as it is
    leases: dict[NodeName, list[Seconds]] = field(default_factory=dict)
    reason: dict[str, Any] | None = None  #: the plain form of a `policy.model.Reason`, shared by many jobs
    shrunk: Shrink | None = None
    guard: HeldBack | None = None
    aside: LeftOut | None = None
    probe: Probing | None = None
    probed: str = ""  #: how its newest probe ended

    # the end
    ended: JobState | None = None
    ended_s: Seconds | None = None
    ended_wall_s: Seconds | None = None
    end_text: str = ""

    @property
    def live(self) -> bool:
        return self.ended is None and not self.released

    @property
    def wanted(self) -> bool:
        """Whether it is to run: nobody cancelled or holds it."""
        return self.cancel_why is None and self.hold_why is None

    @property
    def app_key(self) -> str:
        """Apps of one name belong together only within their tenant: nobody joins another's by naming it."""
        return f"{self.tenant}/{self.app}"

    @property
    def whole_restart_cost_s(self) -> Seconds | None:
        """What a restart costs it, from the last iteration to the next; None: not measured yet."""
        return None if self.restart_cost_s is None else self.restart_cost_s + (self.warmup_s or 0.0)

    @property
    def checkpoint_trouble(self) -> str:
        """Why the job that runs cannot write checkpoints; "": it can, or nobody knows."""
        if not self.native.startswith(CHECKPOINTS_FAIL) or not self.state.holds:
            return ""
        return self.native.removeprefix(CHECKPOINTS_FAIL)

    def attained_at(self, now_s: Seconds) -> dict[GpuType, GpuSeconds]:
        out = dict(self.attained)
        for gpu_type, gpus in self.holding.items():
            out[gpu_type] = out.get(gpu_type, 0.0) + gpus * max(now_s - self.charged_s, 0.0)
        return out

    def ran_at(self, now_s: Seconds) -> Seconds:
        return self.ran_s + (max(now_s - self.charged_s, 0.0) if self.state is JobState.RUNNING else 0.0)

    def cluster_left_at(self, now_s: Seconds) -> Seconds | None:
        """Of the time limit that the cluster keeps; None: it keeps none."""
        if self.cluster_left_s is None:
            return None
        passed_s = now_s - self.cluster_left_at_s if self.state is JobState.RUNNING else 0.0
        return max(self.cluster_left_s - passed_s, 0.0)

    def time_left_at(self, now_s: Seconds) -> Seconds | None:
        """Running time left, over all its starts, of its own limit and of the cluster's; None: there is no limit."""
        own = self.spec.time_limit_s
        limits = (
            None if own is None else max(own - (self.ran_at(now_s) - self.limit_from_s), 0.0),
            self.cluster_left_at(now_s),
        )
        return min((limit for limit in limits if limit is not None), default=None)


#: What is asked of a job and what a clock runs for, as it is of one that merely waits.
_AT_REST = {
    "shown": True,
    "ended": None,
    "released": False,
    "missing_since_s": None,
    "guessed": False,
    "cancel_why": None,
    "hold_why": None,
    "blocked": None,
    "cap": None,
    "aside": None,
    "probe": None,
    "unused": None,
    "grant": None,
    "stop_asked_s": None,
}
_ASKED, _NOTHING_ASKED = attrgetter(*_AT_REST), tuple(_AT_REST.values())
_HOLDINGS = attrgetter("allocation", "holding", "target", "leases")
_WAITING = (JobState.QUEUED, JobState.STOPPED)


def rests(record: JobRecord) -> bool:
    """Whether it waits for a decision and for nothing else: it holds nothing and is to hold nothing, nothing is asked
    of it, and no time that passes changes that. In a long queue nearly all do."""
    if record.state not in _WAITING or any(_HOLDINGS(record)) or _ASKED(record) != _NOTHING_ASKED:
        return False
    limit_s = record.spec.time_limit_s
    return limit_s is None or record.ran_s - record.limit_from_s < limit_s


def runs_on(record: JobRecord) -> bool:
    """Whether it runs just as decided and goes on so: nothing is asked of it, and no clock of ours runs for it. On a
    full cluster nearly all do that do not rest."""
    return (
        record.state is JobState.RUNNING
        and record.target == record.allocation  # None: the decision left it out, and it is to leave
        and _ASKED(record) == _NOTHING_ASKED
        and not record.leases
        and record.spec.time_limit_s is None
    )


@dataclass(slots=True)
class Avoid:
    gpus: Gpus
    until_s: Seconds
    text: str


@dataclass(slots=True)
class RegisteredAgent:
    """Somebody's program that bids for an app."""

    by: str
    since_s: Seconds
    missed: int = 0  #: offers in a row that it did not answer in time


@dataclass(slots=True)
class Offer:
    """GPUs that agents may bid for until the deadline."""

    number: int
    made_s: Seconds
    deadline_s: Seconds
    gpus: dict[NodeName, Gpus]
    asked: list[str]  #: apps
    bids: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  #: app -> what was wrong with its newest bid


@dataclass(slots=True)
class PoolRecord:
    mode: str | None = None  #: set while running; None: the configuration's
    releasing: bool = False  #: every job is being handed back
    maintenance: str | None = None
    policy: str = ""  #: whose state `state` is
    state: dict[str, Any] = field(default_factory=dict)
    decisions: int = 0
    decided: dict[str, Any] = field(default_factory=dict)  #: the newest decision without its jobs
    decided_s: Seconds = 0.0
    advised: list[dict[str, Any]] = field(default_factory=list)
    order: list[JobId] = field(default_factory=list)  #: of waiting jobs, as it was set in the cluster
    caps: dict[str, Cap] = field(default_factory=dict)
    avoid: dict[NodeName, Avoid] = field(default_factory=dict)
    probes: list[Seconds] = field(default_factory=list)  #: when the newest began
    apps: dict[str, int] = field(default_factory=dict)  #: live jobs by `app_key`
    active_apps: list[tuple[Seconds, int]] = field(default_factory=list)
    agents: dict[str, RegisteredAgent] = field(default_factory=dict)  #: by `app_key`
    offer: Offer | None = None  #: the open one
    offers: int = 0
    settled: dict[str, Any] = field(default_factory=dict)  #: what came of the last one


@dataclass(slots=True)
class Alert:
    text: str
    remedy: str
    since_s: Seconds
    since_wall_s: Seconds


def _follows(kind: Callable[[], Any]) -> Any:
    """A field that is no part of the value: it follows from the others."""
    return field(
        default_factory=kind,
        init=False,
        compare=False,
        repr=False,
    )


#: The order in which jobs were handed in.
LINE = attrgetter("submitted_s", "id")


def _of(pool: str | None, records: Iterable[JobRecord]) -> Iterable[JobRecord]:
    return records if pool is None else [r for r in records if r.pool == pool]


@dataclass(slots=True)
class Ledger:
    jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    pools: dict[str, PoolRecord] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    next_id: int = 1
    submitted_s: Seconds = 0.0  #: newest submission: the next one is later, whatever the clock says
    at_s: Seconds = 0.0
    opened: int = 0
    opened_s: Seconds = 0.0  #: whoever asked for something before this is gone, and does not know what came of it
    origin: Origin | None = None  #: of the times of whoever opened it last
    claims: list[str] = field(default_factory=list)  #: our newest tokens, newest last
    stood_down: str | None = None
    spent: dict[str, dict[str, GpuSeconds]] = field(default_factory=dict)  #: by tenant and day (`spending.py`)

    # what follows from the above, kept so as not to go through all jobs again: no state, and never written
    changes: int = _follows(int)  #: events folded so far
    touched: set[JobId] = _follows(set)  # noqa: RUF009 - it makes a `field`
    _resting: set[JobId] = _follows(set)  # noqa: RUF009 - it makes a `field`
    _astir: dict[JobId, JobRecord] = _follows(dict)  # noqa: RUF009 - it makes a `field`
    _in_line: tuple[JobRecord, ...] = _follows(tuple)
    #: Of those that run on: pool and nodes. The sums of these by pool; and the rest of `_in_line`.
    _running_on: dict[JobId, tuple[str, Allocation]] = _follows(dict)  # noqa: RUF009 - it makes a `field`
    _held_on: dict[str, Counter[NodeName]] = _follows(dict)  # noqa: RUF009 - it makes a `field`
    _in_motion: tuple[JobRecord, ...] = _follows(tuple)

    def __post_init__(self) -> None:
        self.touched.update(self.jobs)

    def live(self, pool: str | None = None) -> Iterator[JobRecord]:
        return (
            r for r in self.jobs.values() if r.ended is None and not r.released and (pool is None or r.pool == pool)
        )

    def astir(self, pool: str | None = None) -> Iterable[JobRecord]:
        """The live jobs that do not merely rest, in the order in which they were handed in."""
        self._look_at_touched()
        return _of(pool, self._in_line)

    def resting(self) -> Set[JobId]:
        """The live jobs that do."""
        self._look_at_touched()
        return self._resting

    def in_motion(self, pool: str | None = None) -> Iterable[JobRecord]:
        """Those `astir` that do not run on either."""
        self._look_at_touched()
        return _of(pool, self._in_motion)

    def running_on(self) -> Set[JobId]:
        """Those that do."""
        self._look_at_touched()
        return self._running_on.keys()

    def held_on(self) -> Mapping[str, Mapping[NodeName, Gpus]]:
        """What those hold, by pool."""
        self._look_at_touched()
        return self._held_on

    def _look_at_touched(self) -> None:
        if not self.touched:
            return
        self._resting -= self.touched
        for job in self._in_order(self.touched):
            record = self.jobs.get(job)
            if job in self._running_on:
                self._hold_on(*self._running_on.pop(job), -1)
            if record is None or not record.live:
                self._astir.pop(job, None)
            elif rests(record):
                self._astir.pop(job, None)
                self._resting.add(job)
            else:
                self._astir[job] = record
                if runs_on(record):
                    self._running_on[job] = record.pool, dict(record.allocation)
                    self._hold_on(*self._running_on[job], 1)
        self.touched.clear()
        self._in_line = tuple(sorted(self._astir.values(), key=LINE))
        self._in_motion = tuple([r for r in self._in_line if r.id not in self._running_on])

    def _in_order(self, jobs: Set[JobId]) -> Iterable[JobId]:
        """Many at once, as after a decision about all, in the order of the journal: so they lie in memory, one beside
        the other, and so they are nearly sorted."""
        if len(jobs) < len(self.jobs) // 4:
            return jobs
        return [*filter(jobs.__contains__, self.jobs), *(jobs - self.jobs.keys())]

    def _hold_on(self, pool: str, allocation: Allocation, sign: int) -> None:
        held = self._held_on.setdefault(pool, Counter())
        for node, gpus in allocation.items():
            held[node] += sign * gpus
            if not held[node]:
                del held[node]

    def named(self, word: str) -> JobId | None:
        """The job that people mean by its id, or by the cluster's own number, which the newest has; None: no such."""
        if word in self.jobs:
            return word
        found = [r for r in self.jobs.values() if job_number(r.id) == word]
        return max(found, key=lambda r: (r.submitted_s, r.id)).id if found else None

    def for_people(self, text: str) -> str:
        """With jobs by the cluster's own numbers: policies know them by their ids."""
        return _ID.sub(lambda found: job_number(found[0]) if found[0] in self.jobs else found[0], text)

    def pool(self, name: str) -> PoolRecord:
        """The pool's record, an empty one for a pool that no event has named yet."""
        return self.pools.get(name) or PoolRecord()
