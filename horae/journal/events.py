"""What an event is, and every kind of it: a class each, which is the one place that says what it carries.

`at_s` is the arbiter's own time, which never jumps (`clock.py`); every `_s` inside an event is on it. `wall_s` is for
people. In the file an event's fields, but for its job and pool, are plain JSON under their names (`form.py`). A kind
is never given another meaning: a new meaning is a new kind. A new field has a default, since older journals lack it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from horae.journal.clock import Origin
from horae.journal.form import Draft, Kind, event, written
from horae.journal.ledger import Obstacle
from horae.port import CheckpointMark, JobId, JobState
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Gpus, GpuType, NodeName, Seconds

#: Who held a job where nobody asked for it.
HORAE = "horae"
#: Who holds a job whose running time is used up, until it has checkpointed and left.
TIME_LIMIT = "its time limit"
#: By whom a job is cancelled that had its whole time.
OUT_OF_TIME = "time limit"


class Verb(StrEnum):
    """The port's verbs that act on one job."""

    SUBMIT = "submit"
    START = "start"
    RESHAPE = "reshape"
    STOP = "checkpoint_and_stop"
    CANCEL = "cancel"
    RELEASE = "release"
    FOLLOW_UP = "follow_up"


# --- the arbiter's own life -------------------------------------------------------------------------------


@event(Kind.OPENED)
class Opened(Draft):
    version: str
    host: str
    pid: int
    how: str
    origin: Origin | None = None  #: what its times are counted from


@event(Kind.CLAIMED)
class Claimed(Draft):
    token: str


@event(Kind.STOOD_DOWN)
class StoodDown(Draft):
    by: str


@event(Kind.RECOVERED)
class Recovered(Draft):
    why: str
    next_id: int | None = written(default=None)  #: numbers below it may be jobs that the journal never knew or has lost


@event(Kind.ALERT)
class Alerted(Draft):
    what: str  #: the key under which it is cleared
    text: str
    remedy: str = written(default="")


@event(Kind.CLEARED)
class Cleared(Draft):
    what: str


@event(Kind.CLOCK_STEPPED)
class ClockStepped(Draft):
    by_s: Seconds


@event(Kind.CHECKPOINT)
class Compacted(Draft):
    ledger: Mapping[str, Any]  #: the plain form of a `horae.journal.ledger.Ledger`


# --- what people asked ------------------------------------------------------------------------------------


@event(Kind.SUBMITTED)
class Submitted(Draft):
    job: JobId
    spec: JobSpec
    pool: str
    tenant: str
    app: str
    owner: str
    submitted_s: Seconds


@event(Kind.CANCEL_ASKED)
class CancelAsked(Draft):
    job: JobId
    by: str
    text: str


@event(Kind.HELD)
class JobHeld(Draft):
    job: JobId
    by: str
    text: str


@event(Kind.UNHELD)
class JobUnheld(Draft):
    job: JobId
    by: str


@event(Kind.PRIORITY)
class Prioritised(Draft):
    job: JobId
    to: int
    by: str
    across: bool  #: a precedence among all jobs; else among those of its tenant


@event(Kind.MODE)
class ModeSet(Draft):
    pool: str
    mode: str
    by: str
    releasing: bool = written(default=False)  #: every job of the pool is handed back to the cluster


@event(Kind.MAINTENANCE)
class Maintenance(Draft):
    pool: str
    on: bool
    by: str
    text: str


@event(Kind.AGENT)
class AgentNamed(Draft):
    pool: str
    app: str
    by: str | None  #: whose agent now bids for the app; None: none does any more


@event(Kind.BID)
class Bid(Draft):
    pool: str
    offer: int
    app: str
    rows: Sequence[dict[str, Any]]


@event(Kind.BID_REFUSED)
class BidRefused(Draft):
    pool: str
    offer: int
    app: str
    text: str


# --- what the cluster showed ------------------------------------------------------------------------------


@event(Kind.ADOPTED)
class Adopted(Draft):
    job: JobId
    spec: JobSpec
    pool: str
    tenant: str
    app: str
    owner: str
    submitted_s: Seconds
    guessed: bool = written(default=False)  #: nobody could tell its specification; it is left alone until it ends


@event(Kind.RESPECIFIED)
class Respecified(Draft):
    job: JobId
    spec: JobSpec
    tenant: str
    app: str
    owner: str


@event(Kind.SEEN)
class JobSeen(Draft):
    job: JobId
    state: JobState
    epoch: int
    allocation: Allocation
    holding: Mapping[GpuType, Gpus]
    since_s: Seconds  #: when it came into this state, never before the last change that was seen
    exit_code: int | None = None
    checkpoint: CheckpointMark | None = None
    blocked: Obstacle | None = None
    native: str = ""
    time_left_s: Seconds | None = None


@event(Kind.REOPENED)
class Reopened(Draft):
    job: JobId


@event(Kind.MISSING)
class Missing(Draft):
    job: JobId


@event(Kind.MEASURED, rest="told")
class Measured(Draft):
    job: JobId
    told: Mapping[str, Any]  #: the plain form of a `horae.journal.measured.Measurement`
    warmup_s: Seconds | None = None  #: from running to the first iteration, where this tells it of a start


@event(Kind.CAPPED)
class Capped(Draft):
    pool: str
    tenant: str
    cap: Gpus
    until_s: Seconds
    text: str
    job: JobId | None = None
    alone: bool = False  #: one `job` of the tenant alone is meant


@event(Kind.AVOIDED)
class Avoided(Draft):
    pool: str
    node: NodeName
    gpus: Gpus
    until_s: Seconds
    text: str


@event(Kind.UNUSED)
class LeftUnused(Draft):
    job: JobId
    gpus: Gpus  #: 0: it uses all of them again
    which: Sequence[str]  #: where the cluster shows each
    since_s: Seconds
    by: str  #: what shows it, `horae.arbiter.observe.unused`


# --- what was decided and done ----------------------------------------------------------------------------


@event(Kind.OFFERED)
class Offered(Draft):
    pool: str
    number: int
    gpus: Allocation
    deadline_s: Seconds
    asked: Sequence[str]  #: apps


@event(Kind.SETTLED)
class Settled(Draft):
    pool: str
    number: int
    apps: Mapping[str, Mapping[str, Any]]  #: of each that was asked: whether its bid came, whose counted, what it has


@event(Kind.DECIDED, rest="told")
class Decided(Draft):
    """What changed since the last decision of this pool (`horae/arbiter/admit/decision_record.py` makes it)."""

    pool: str
    told: Mapping[str, Any]  #: policy, options, seed, how long it took, its certificate; or why the last one stands
    targets: Mapping[JobId, Allocation] = written(default=EMPTY)
    reasons: Mapping[JobId, dict[str, Any]] | None = None
    leases: Mapping[JobId, Mapping[NodeName, Sequence[Seconds]]] | None = None
    state: Mapping[str, Any] | None = None  #: the policy's own


@event(Kind.GUARDED)
class KeptBack(Draft):
    """A guard holds a change of this job back (to `wanted`)."""

    job: JobId
    guard: str | None  #: None: none does any more
    text: str = written(default="")
    wanted: Allocation = written(default=EMPTY)


@event(Kind.ASIDE)
class PutAside(Draft):
    """The job is left out of decisions until then."""

    job: JobId
    text: str
    until_s: Seconds
    policy: str = written(default="")  #: the one that cannot take it; "": none can


@event(Kind.PROBED)
class Probed(Draft):
    """A probe began, or (`over`: why) is over."""

    job: JobId
    pool: str
    gpu_type: GpuType = ""
    gpus: Gpus = 0
    allocation: Allocation | None = None
    until_s: Seconds = 0.0
    text: str = ""
    over: str = ""


@event(Kind.ADVISED)
class Advised(Draft):
    pool: str
    steps: Sequence[dict[str, Any]]


@event(Kind.ORDERED)
class Ordered(Draft):
    pool: str
    jobs: Sequence[JobId]


@event(Kind.INTENT)
class Intent(Draft):
    job: JobId
    verb: Verb
    epoch: int | None = None
    allocation: Allocation | None = None
    holding: Mapping[GpuType, Gpus] | None = None
    grace_s: Seconds | None = None
    text: str = ""


@event(Kind.OUTCOME)
class Answered(Draft):
    job: JobId
    verb: Verb
    error: str | None = written(default=None)  #: the class of the port's error; None: accepted
    text: str = ""
    retry_s: Seconds | None = None


@event(Kind.ENDED)
class Ended(Draft):
    job: JobId
    state: JobState
    ended_s: Seconds
    text: str = written(default="")


@event(Kind.FORGOTTEN)
class Forgotten(Draft):
    jobs: Sequence[JobId]
