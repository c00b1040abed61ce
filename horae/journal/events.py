"""What an event is, and every kind of it. The constructors are the one place that says what an event carries.

`at_s` is the arbiter's own time, which never jumps (`clock.py`); every `_s` inside `data` is on it. `wall_s` is for
people. Data is plain JSON. A kind is never given another meaning: a new meaning is a new kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from horae.journal.codec import plain
from horae.port import CheckpointMark, JobId, JobState
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Gpus, GpuType, Seconds

#: Who held a job where nobody asked for it.
HORAE = "horae"


class Kind(StrEnum):
    # the arbiter's own life
    OPENED = "opened"  #: an arbiter took this journal up
    CLAIMED = "claimed"  #: it is about to claim the cluster with this token
    STOOD_DOWN = "stood-down"  #: another arbiter claimed the cluster
    RECOVERED = "recovered"  #: the journal was lost, corrupt or old; the cluster's word was taken
    ALERT = "alert"  #: something an operator should know, until `CLEARED`
    CLEARED = "cleared"
    CLOCK_STEPPED = "clock-stepped"
    CHECKPOINT = "checkpoint"  #: the whole ledger; older events may be gone
    # what people asked
    SUBMITTED = "submitted"
    CANCEL_ASKED = "cancel-asked"
    HELD = "held"
    UNHELD = "unheld"
    PRIORITY = "priority"
    MODE = "mode"
    MAINTENANCE = "maintenance"
    AGENT = "agent"  #: an app's own agent came, or left
    BID = "bid"
    BID_REFUSED = "bid-refused"
    # what the cluster showed
    ADOPTED = "adopted"  #: a job that the cluster knew before we did
    RESPECIFIED = "respecified"  #: its owner changed it in the cluster
    SEEN = "seen"
    REOPENED = "reopened"  #: it was taken for ended, and the cluster goes on showing it alive
    MISSING = "missing"  #: the cluster does not show it (any more)
    MEASURED = "measured"
    CAPPED = "capped"  #: a site's limit on a tenant or a job, learnt from a blocked grant
    AVOIDED = "avoided"  #: GPUs of a node that a blocked grant showed to be unusable for now
    # what was decided and done
    OFFERED = "offered"  #: GPUs, to the agents of apps, until a deadline
    SETTLED = "settled"  #: what came of an offer
    DECIDED = "decided"
    UNUSED = "unused"  #: GPUs that a job holds and does not use; or it does again
    GUARDED = "guarded"
    ASIDE = "aside"  #: a job that the policy cannot take is decided about without it, for a while
    PROBED = "probed"  #: a job runs elsewhere for a moment, because knowing its speed there is worth it
    ADVISED = "advised"  #: what would have been done, in the modes that do not act
    ORDERED = "ordered"  #: the order of waiting jobs that is being set
    INTENT = "intent"
    OUTCOME = "outcome"
    ENDED = "ended"
    FORGOTTEN = "forgotten"


#: Who holds a job whose running time is used up, until it has checkpointed and left.
TIME_LIMIT = "its time limit"


class Verb(StrEnum):
    """The port's verbs that act on one job."""

    SUBMIT = "submit"
    START = "start"
    RESHAPE = "reshape"
    STOP = "checkpoint_and_stop"
    CANCEL = "cancel"
    RELEASE = "release"
    FOLLOW_UP = "follow_up"


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a number and a time."""

    kind: Kind
    data: Mapping[str, Any] = field(default_factory=dict)
    job: JobId | None = None
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    wall_s: Seconds
    at_s: Seconds
    kind: Kind
    data: Mapping[str, Any]
    job: JobId | None = None
    pool: str | None = None


def opened(*, version: str, host: str, pid: int, how: str) -> Draft:
    return Draft(Kind.OPENED, {"version": version, "host": host, "pid": pid, "how": how})


def claimed(token: str) -> Draft:
    return Draft(Kind.CLAIMED, {"token": token})


def stood_down(by: str) -> Draft:
    return Draft(Kind.STOOD_DOWN, {"by": by})


def recovered(why: str, *, next_id: int | None = None) -> Draft:
    """`next_id`: numbers below it may be jobs that the journal never knew or has lost."""
    return Draft(Kind.RECOVERED, {"why": why, "next_id": next_id})


def alert(what: str, text: str, remedy: str = "") -> Draft:
    """`what` is the key under which it is cleared."""
    return Draft(Kind.ALERT, {"what": what, "text": text, "remedy": remedy})


def cleared(what: str) -> Draft:
    return Draft(Kind.CLEARED, {"what": what})


def clock_stepped(by_s: Seconds) -> Draft:
    return Draft(Kind.CLOCK_STEPPED, {"by_s": by_s})


def submitted(
    job: JobId, spec: JobSpec, *, pool: str, tenant: str, app: str, owner: str, submitted_s: Seconds
) -> Draft:
    data = {"spec": plain(spec), "tenant": tenant, "app": app, "owner": owner, "submitted_s": submitted_s}
    return Draft(Kind.SUBMITTED, data, job=job, pool=pool)


def adopted(
    job: JobId, spec: JobSpec, *, pool: str, tenant: str, app: str, owner: str, submitted_s: Seconds, guessed: bool
) -> Draft:
    """`guessed`: nobody could tell its specification; it is left alone until it ends."""
    data = {"spec": plain(spec), "tenant": tenant, "app": app, "owner": owner, "submitted_s": submitted_s}
    return Draft(Kind.ADOPTED, {**data, "guessed": guessed}, job=job, pool=pool)


def respecified(job: JobId, spec: JobSpec, *, tenant: str, app: str, owner: str) -> Draft:
    data = {"spec": plain(spec), "tenant": tenant, "app": app, "owner": owner}
    return Draft(Kind.RESPECIFIED, data, job=job)


def cancel_asked(job: JobId, by: str, why: str) -> Draft:
    return Draft(Kind.CANCEL_ASKED, {"by": by, "text": why}, job=job)


def held(job: JobId, by: str, why: str) -> Draft:
    return Draft(Kind.HELD, {"by": by, "text": why}, job=job)


def unheld(job: JobId, by: str) -> Draft:
    return Draft(Kind.UNHELD, {"by": by}, job=job)


def priority(job: JobId, to: int, by: str, *, across: bool) -> Draft:
    """`across`: a precedence among all jobs; else among those of its tenant."""
    return Draft(Kind.PRIORITY, {"to": to, "by": by, "across": across}, job=job)


def mode(pool: str, to: str, by: str, *, releasing: bool = False) -> Draft:
    """`releasing`: every job of the pool is handed back to the cluster."""
    return Draft(Kind.MODE, {"mode": to, "by": by, "releasing": releasing}, pool=pool)


def maintenance(pool: str, on: bool, by: str, why: str) -> Draft:
    return Draft(Kind.MAINTENANCE, {"on": on, "by": by, "text": why}, pool=pool)


def agent(pool: str, app: str, by: str | None) -> Draft:
    """`by`: whose agent now bids for the app; None: none does any more."""
    return Draft(Kind.AGENT, {"app": app, "by": by}, pool=pool)


def unused(job: JobId, gpus: Gpus, which: Iterable[str], since_s: Seconds, by: str) -> Draft:
    """`by`: what shows it, `horae.arbiter.observe.unused`; `which`: the GPUs, where the cluster shows each."""
    return Draft(Kind.UNUSED, {"gpus": gpus, "which": list(which), "since_s": since_s, "by": by}, job=job)


def in_use(job: JobId, at_s: Seconds) -> Draft:
    return Draft(Kind.UNUSED, {"gpus": 0, "which": [], "since_s": at_s, "by": ""}, job=job)


def offered(pool: str, number: int, gpus: Mapping[str, Gpus], deadline_s: Seconds, asked: Iterable[str]) -> Draft:
    data = {"number": number, "gpus": plain(gpus), "deadline_s": deadline_s, "asked": list(asked)}
    return Draft(Kind.OFFERED, data, pool=pool)


def bid(pool: str, number: int, app: str, rows: Iterable[Mapping[str, Any]]) -> Draft:
    return Draft(Kind.BID, {"offer": number, "app": app, "rows": [plain(r) for r in rows]}, pool=pool)


def bid_refused(pool: str, number: int, app: str, why: str) -> Draft:
    return Draft(Kind.BID_REFUSED, {"offer": number, "app": app, "text": why}, pool=pool)


def settled(pool: str, number: int, apps: Mapping[str, Mapping[str, Any]]) -> Draft:
    """`apps`: for each app that was asked, whether its bid came, whose table counted and what it has now."""
    return Draft(Kind.SETTLED, {"number": number, "apps": plain(apps)}, pool=pool)


def seen(
    job: JobId,
    *,
    state: JobState,
    epoch: int,
    allocation: Allocation,
    holding: Mapping[GpuType, Gpus],
    since_s: Seconds,
    exit_code: int | None = None,
    checkpoint: CheckpointMark | None = None,
    blocked: Mapping[str, Any] | None = None,
    native: str = "",
    time_left_s: Seconds | None = None,
) -> Draft:
    """`since_s`: when it came into this state, never before the last change that was seen."""
    data: dict[str, Any] = {
        "state": state.value,
        "epoch": epoch,
        "allocation": plain(allocation),
        "holding": plain(holding),
        "since_s": since_s,
    }
    if exit_code is not None:
        data["exit_code"] = exit_code
    if checkpoint is not None:
        data["checkpoint"] = plain(checkpoint)
    if blocked is not None:
        data["blocked"] = dict(blocked)
    if native:
        data["native"] = native
    if time_left_s is not None:
        data["time_left_s"] = time_left_s
    return Draft(Kind.SEEN, data, job=job)


def reopened(job: JobId) -> Draft:
    return Draft(Kind.REOPENED, {}, job=job)


def missing(job: JobId) -> Draft:
    return Draft(Kind.MISSING, {}, job=job)


def measured(job: JobId, data: Mapping[str, Any], *, warmup_s: Seconds | None = None) -> Draft:
    """`data`: the plain form of a `horae.arbiter.observe.measurements.Measurement`. `warmup_s`: from running to the
    first
    iteration, where this tells it of a start."""
    return Draft(Kind.MEASURED, data if warmup_s is None else {**data, "warmup_s": warmup_s}, job=job)


def capped(pool: str, tenant: str, cap: Gpus, until_s: Seconds, why: str, *, job: JobId | None = None) -> Draft:
    """Of the whole tenant, or of one `job` of it alone."""
    alone = {} if job is None else {"alone": True}
    data = {"tenant": tenant, "cap": cap, "until_s": until_s, "text": why, **alone}
    return Draft(Kind.CAPPED, data, job=job, pool=pool)


def avoided(pool: str, node: str, gpus: Gpus, until_s: Seconds, why: str) -> Draft:
    return Draft(Kind.AVOIDED, {"node": node, "gpus": gpus, "until_s": until_s, "text": why}, pool=pool)


def decided(pool: str, data: Mapping[str, Any]) -> Draft:
    """`data`: what changed since the last decision of this pool (`horae/arbiter/admit/decision_record.py` makes it)."""
    return Draft(Kind.DECIDED, data, pool=pool)


def guarded(job: JobId, guard: str | None, why: str = "", *, wanted: Allocation = EMPTY) -> Draft:
    """The guard that holds a change of this job back (to `wanted`); None: none does any more."""
    return Draft(Kind.GUARDED, {"guard": guard, "text": why, "wanted": plain(wanted)}, job=job)


def aside(job: JobId, why: str, until_s: Seconds, policy: str = "") -> Draft:
    """This job is left out of decisions until then; `policy`: the one that cannot take it, "": none can."""
    return Draft(Kind.ASIDE, {"text": why, "until_s": until_s, "policy": policy}, job=job)


def probed(
    job: JobId, pool: str, *, gpu_type: GpuType, gpus: Gpus, allocation: Allocation, until_s: Seconds, why: str
) -> Draft:
    data = {"gpu_type": gpu_type, "gpus": gpus, "allocation": plain(allocation), "until_s": until_s, "text": why}
    return Draft(Kind.PROBED, data, job=job, pool=pool)


def probe_over(job: JobId, pool: str, why: str) -> Draft:
    return Draft(Kind.PROBED, {"over": why}, job=job, pool=pool)


def advised(pool: str, steps: Iterable[Mapping[str, Any]]) -> Draft:
    return Draft(Kind.ADVISED, {"steps": [plain(s) for s in steps]}, pool=pool)


def ordered(pool: str, jobs: Iterable[JobId]) -> Draft:
    return Draft(Kind.ORDERED, {"jobs": list(jobs)}, pool=pool)


def intent(
    job: JobId,
    verb: Verb,
    *,
    epoch: int | None = None,
    allocation: Allocation | None = None,
    holding: Mapping[GpuType, Gpus] | None = None,
    grace_s: Seconds | None = None,
    why: str = "",
) -> Draft:
    data: dict[str, Any] = {"verb": verb.value}
    if epoch is not None:
        data["epoch"] = epoch
    if allocation is not None:
        data["allocation"] = plain(allocation)
    if holding is not None:
        data["holding"] = plain(holding)
    if grace_s is not None:
        data["grace_s"] = grace_s
    if why:
        data["text"] = why
    return Draft(Kind.INTENT, data, job=job)


def outcome(
    job: JobId, verb: Verb, *, error: str | None = None, text: str = "", retry_s: Seconds | None = None
) -> Draft:
    """`error`: the class of the port's error, None: accepted."""
    data: dict[str, Any] = {"verb": verb.value, "error": error}
    if text:
        data["text"] = text
    if retry_s is not None:
        data["retry_s"] = retry_s
    return Draft(Kind.OUTCOME, data, job=job)


def ended(job: JobId, state: JobState, at_s: Seconds, why: str = "") -> Draft:
    return Draft(Kind.ENDED, {"state": state.value, "ended_s": at_s, "text": why}, job=job)


def forgotten(jobs: Iterable[JobId]) -> Draft:
    return Draft(Kind.FORGOTTEN, {"jobs": list(jobs)})
