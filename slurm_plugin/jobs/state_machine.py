"""From one read of Slurm to the port's words: what a job's row means, and what must be done about it. Pure.

    squeue                           port                      done about it
    PENDING, begins in months or     QUEUED
    held, never ran
    PENDING, released by our grant   STARTING                  a requeue's BeginTime: StartTime=now; blocked: held
                                                               again; held or put off by others: withdrawn
    PENDING, released by nobody      QUEUED, STOPPED or LOST   held again (preempted, requeued, memory lost)
    PENDING or SPECIAL_EXIT, held    STOPPED if we asked or it left with 86, else LOST
    CONFIGURING, RUNNING (Prolog)    STARTING
    RUNNING                          RUNNING, STOPPING         the signal, again, by force
    COMPLETING                       STOPPING
    EXPEDITING (25.11)               STOPPING with nodes; a rigid one without is Slurm's own from then on
    FAILED 1:0 without a run time    STARTING                  requeuehold where no supervisor said anything and it
                                                               ran before: the launch failed, not the job
    FAILED 86, NODE_FAIL ...         STOPPING, then STOPPED    requeuehold, where the site has no RequeueExitHold

A stop is seen by "left RUNNING and Restarts grew", never by SPECIAL_EXIT alone: Slurm's own preemption discards
the exit code. The fence: a requeue by anybody leaves two minutes before Slurm starts the job again, in which it is
held; a start that was granted by nobody after all (we were away) finds so in the spool, leaves with 86 and is held by
Slurm itself. A running job is never held: slurmdbd would take it for one that was never eligible, and lose its usage.

A job that keeps its own shape is held, ordered and released; its end is what it is in any partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from horae.port import Blocked, BlockKind, JobState, ObservedJob, date_and_time
from horae.untrusted import printable
from policy.model import Allocation, BadInput
from slurm_plugin.jobs.holdings import HOLDING, held_gpus
from slurm_plugin.jobs.record import Grant, Memo, Stop
from slurm_plugin.jobs.shapes import changed_by_hand
from slurm_plugin.jobs.specification import (
    keeps_shape,
    port_id,
    requested,
    rigid,
    said_tasks,
    specification,
    stays,
    tag_of,
)
from slurm_plugin.jobs.waiting import (
    WAITING,
    begins_s,
    delayed_to_s,
    held_by_others,
    is_beside,
    let_go_by_nobody,
    not_to_start,
    taken_back,
    tried_again_s,
    tried_elsewhere,
    who_holds,
)
from slurm_plugin.options import Options
from slurm_plugin.records import Facts, JobRow, fold
from slurm_plugin.writes import Change, Write, requeue_hold, update

CHECKPOINTED = 86
#: the others that are over have failed
OVER = {"COMPLETED": JobState.COMPLETED, "CANCELLED": JobState.CANCELLED}
_ON_NODES = frozenset({"running", "stopping", "starting"})
_LOST = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "LAUNCH_FAILED", "REVOKED"})
_LIMIT = re.compile(
    r"^(QOS|Assoc|Association|AccountingPolicy|InvalidQOS|InvalidAccount|PartitionTimeLimit|PartitionNodeLimit)"
)
_NODE = re.compile(
    r"^(ReqNodeNotAvail|NodeDown|BadConstraints|ReservationDeleted|Reservation|PartitionDown|PartitionInactive)"
)
_BUSY = re.compile(r"^(Resources|Priority|Nodes required)")
_BEHIND = "Priority"  #: Slurm's word for one that it has not tried: one before it in its partition could not start
#: A job that was asked to leave may show as failed for a moment, before Slurm puts its exit code down and requeues it:
#: some seconds where slurmctld's host is busy, and a job once told as failed is never started again.
_SETTLES_S = 10.0
_LAUNCHES = 4  #: lost in a row
#: How long an ended job is asked to come back. slurmctld that was away sees ends late, waits for its nodes, and may
#: refuse for a while; a write may have been lost with it. A job that left because we asked must not end by that.
_RESCUE_S = 75.0
_LONGEST_PAUSE = 4  #: as a power of two
#: a start that has run for so long was launched: what is lost after it is counted anew
_SOUND_S = 30.0
#: Slurm itself keeps a job from starting before its begin time; so long before that we hold it
_HELD_AHEAD_S = 60.0
#: backfill's word for no limit, of one that it starts (`365-00:00:00`)
_NO_LIMIT_S = 365 * 24 * 3600.0
_KILLED = frozenset(128 + number for number in (9, 10, 15))  #: KILL, USR1, TERM
#: the job's own supervisor ends it when its grace is over, and knows better how; then we do
FORCE_AFTER_S = 4.0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next to one job, and why: writes, or asking it to checkpoint and leave."""

    why: str
    writes: tuple[Write, ...] = ()
    ask: bool = False

    @property
    def sets_begin(self) -> bool:
        return any(write.change is not None and write.change.sets_begin for write in self.writes)


@dataclass(frozen=True, slots=True)
class Judgement:
    job: ObservedJob | None
    memo: Memo
    steps: tuple[Step, ...] = ()
    note: str = ""


def judge(
    row: JobRow,
    memo: Memo,
    facts: Facts,
    options: Options,
    now_s: float,
    lived: Callable[[], bool] = lambda: False,
) -> Judgement:
    """What this row means to the arbiter. The memo that comes back is to be kept before the steps are taken. `lived`:
    whether the supervisor of its last start has said anything."""
    tag = tag_of(row)
    if (options.hold and tag is None) or memo.released:
        return Judgement(None, memo)
    gpus = requested(row, tag)
    if not gpus:
        return Judgement(None, memo)
    memo = _limited(row, memo)
    state, memo, steps, blocked = _state(row, memo, facts, options, tag is not None and options.hold, now_s, lived)
    if state is JobState.QUEUED and (why := _not_yet(row, memo, now_s)):
        if not memo.state:
            return Judgement(None, memo, steps, f"{row.id} {why}")
        blocked = _aside(blocked, why)  # it was shown before, and would be taken for gone
    if memo.state != state.value:
        memo = replace(memo, state=state.value, since_s=now_s if state.holds else _left_s(row, memo, now_s))
    note = changed_by_hand(row, memo)
    try:
        spec = specification(row, tag, gpus, options, facts.default_cpus)
    except BadInput as error:
        spec, note = rigid(row, tag, gpus, options, facts.default_cpus), f"{row.id}: {error}; taken as rigid"
    job = ObservedJob(
        id=port_id(row),
        state=state,
        epoch=_epoch(row, memo),
        allocation=_allocation(row, memo, state),
        since_s=memo.since_s,
        exit_code=row.exit_code if state.ended or state in {JobState.STOPPED, JobState.LOST} else None,
        spec=spec,
        blocked=blocked,
        submitted_s=row.submit_s if row.restarts == 0 else None,
        time_left_s=_time_left(row, memo, state, now_s),
        native=_native(row),
    )
    return Judgement(job, memo, steps, note)


def _native(row: JobRow) -> str:
    """Slurm's own word; and why one that left as it was asked to is over all the same."""
    word = row.state + (f" ({row.reason})" if row.reason else "")
    lost = (row.state, row.exit_code, row.requeue) == ("FAILED", CHECKPOINTED, False)
    return f"{word}: it checkpointed, and by Requeue=0 Slurm may not start it again" if lost else word


def _not_yet(row: JobRow, memo: Memo, now_s: float) -> str:
    """What a job that never ran waits for beside its turn; empty: for nothing."""
    if row.dependency is not None:
        return f"waits for its dependency {printable(row.dependency)}"  # it may name thousands
    begin_s = begins_s(row, now_s, memo.grant)
    return "" if begin_s is None else f"is not to begin before {date_and_time(begin_s)}"


def _aside(blocked: Blocked | None, why: str) -> Blocked:
    """By its hold, where it is held; else by what it waits for."""
    if blocked is not None and blocked.kind is BlockKind.ASIDE:
        return blocked
    return Blocked(BlockKind.ASIDE, why, alone=True)


def _limited(row: JobRow, memo: Memo) -> Memo:
    """Its time limit over all its starts. What Slurm shows and we did not write is its owner's or an administrator's
    word on this start, or on the next, and counts from the time it has used up before."""
    if _is_unlimited(row, memo):
        return memo
    if keeps_shape(row):
        return memo if memo.limit_s == row.limit_s else replace(memo, limit_s=row.limit_s)
    if not memo.limits:
        first = memo.limit_s is None and not memo.grants
        return replace(memo, limit_s=row.limit_s if first else memo.limit_s, limits=(row.limit_s,))
    if row.limit_s in memo.limits:
        seen = row.limit_s == memo.limits[-1]
        return replace(memo, limits=(row.limit_s,)) if seen and len(memo.limits) > 1 else memo
    total = None if row.limit_s is None else memo.used_s + row.limit_s
    return replace(memo, limit_s=total, limits=(row.limit_s,))


def _is_unlimited(row: JobRow, memo: Memo) -> bool:
    """Whether the limit that it shows is none: it had none while it waited."""
    began = row.state in HOLDING or row.restarts > 0
    return began and row.limit_s == _NO_LIMIT_S and memo.limit_s is None


def _state(
    row: JobRow,
    memo: Memo,
    facts: Facts,
    options: Options,
    ours: bool,
    now_s: float,
    lived: Callable[[], bool],
) -> tuple[JobState, Memo, tuple[Step, ...], Blocked | None]:
    # Our hold is over; until it is seen to be, what holds it may be ours still.
    if memo.held_s and not row.held and not is_beside(row):
        memo = replace(memo, held_s=0.0)
    if row.state == "EXPEDITING" and row.nodes:
        return JobState.STOPPING, memo, (), None
    if row.state in HOLDING:
        return *_running(row, memo, options, ours, now_s), None
    memo = _ended_incarnation(row, memo, now_s)
    if row.state in WAITING:
        return _waiting(row, memo, options, ours, now_s)
    return *_final(row, memo, facts, ours, now_s, lived), None


def _running(
    row: JobRow, memo: Memo, options: Options, ours: bool, now_s: float
) -> tuple[JobState, Memo, tuple[Step, ...]]:
    grant = memo.of(row.restarts)
    if row.state == "COMPLETING":  # a requeue may be counted already: neither the stop nor the epoch is a new one's
        return JobState.STOPPING, memo, ()
    if memo.stop and memo.stop.restarts != row.restarts:
        memo = replace(memo, stop=None)
    if row.state == "CONFIGURING" or row.reason == "Prolog":
        return JobState.STARTING, memo, ()
    if grant is not None and grant is memo.grant and not grant.started:
        memo = memo.with_last(started=True, withdrawn=False, recalled=False, began_s=row.start_s or now_s)
        memo = replace(memo, blocked=None)
    if memo.launches and row.start_s is not None and now_s - row.start_s > _SOUND_S:
        memo = replace(memo, launches=0)
    if ours and row.preempt_s and not memo.stop and not stays(row):  # else its end is Slurm's own
        memo = replace(memo, stop=Stop(now_s, max(row.preempt_s - now_s, 1.0), row.restarts))
    if memo.stop is None:
        return JobState.RUNNING, memo, ()
    return _to_leave(row, memo, memo.stop, now_s)


def _to_leave(row: JobRow, memo: Memo, stop: Stop, now_s: float) -> tuple[JobState, Memo, tuple[Step, ...]]:
    if keeps_shape(row):  # it has begun since its grant was to be taken back
        return JobState.RUNNING, replace(memo, stop=None), ()
    if stays(row):
        return JobState.RUNNING, memo, (Step("asked to leave, and may not be requeued any more: goes on", ask=True),)
    if now_s >= stop.at_s + stop.grace_s + FORCE_AFTER_S:
        # Also repeated: a requeuehold that was lost would leave the job holding its GPUs for ever.
        if stop.forced and now_s < stop.signalled_s + 15.0:
            return JobState.STOPPING, memo, ()
        step = Step("its time to checkpoint is over", (requeue_hold(row.id),))
        return JobState.STOPPING, replace(memo, stop=replace(stop, forced=True, signalled_s=now_s)), (step,)
    again_s = stop.signalled_s + max(2.0, stop.grace_s / 4)
    if stop.signalled_s and now_s < again_s:
        return JobState.STOPPING, memo, ()
    step = Step("asked to checkpoint and leave", ask=True)
    return JobState.STOPPING, memo, (step,)


def _ended_incarnation(row: JobRow, memo: Memo, now_s: float) -> Memo:
    """Book the running time of the incarnation that has just ended, once."""
    last = memo.grant
    if last is None or memo.state not in _ON_NODES:
        return memo
    gone = row.restarts > last.restarts or row.state not in WAITING
    if not gone:
        return memo
    used = max(_left_s(row, memo, now_s) - last.began_s, 0.0) if last.began_s is not None else 0.0
    memo = memo.with_last(started=True)
    return replace(memo, used_s=memo.used_s + used, left=(last.nodes, now_s))


def _left_s(row: JobRow, memo: Memo, now_s: float) -> float:
    """When it left its nodes, also while nobody looked: of one that waits again its requeue is its submission."""
    last = memo.grant
    told_s = row.submit_s if row.state in WAITING else row.end_s
    if last is None or told_s is None or told_s < (last.began_s or last.at_s):  # that of an earlier start
        return now_s
    return min(told_s, now_s)


def _waiting(
    row: JobRow, memo: Memo, options: Options, ours: bool, now_s: float
) -> tuple[JobState, Memo, tuple[Step, ...], Blocked | None]:
    out = memo.outstanding
    if out is not None and row.restarts > out.restarts:  # ran and left between two observations
        memo, out = memo.with_last(started=True), None
    if out is not None and not _kept(row, memo, out, now_s):
        return _granted(row, memo, options, now_s)
    if out is not None:
        memo = memo.with_last(withdrawn=True)
        if row.reason and not row.reason.startswith(("JobHeld", "BeginTime")):
            memo = replace(memo, blocked=(block_kind(row.reason).value, row.reason))
    steps: tuple[Step, ...] = ()
    begin_s = begins_s(row, now_s, memo.grant)
    soon = begin_s is None or begin_s < now_s + _HELD_AHEAD_S
    if ours and soon and not not_to_start(row, now_s):
        steps = (Step("nobody granted it GPUs", (taken_back(row, now_s),)),)
        memo = replace(memo, held_s=now_s)
    blocked = _blocked(row, memo, begin_s, now_s)
    last = memo.grant
    if last is not None and last.recalled and last.restarts == row.restarts:
        return JobState.STOPPED, memo, steps, blocked
    if row.restarts == 0 and not any(grant.started for grant in memo.grants):
        return JobState.QUEUED, memo, steps, blocked
    asked = memo.stop is not None and memo.stop.restarts == row.restarts - 1
    if memo.state == JobState.STOPPED or asked or row.exit_code == CHECKPOINTED:
        return JobState.STOPPED, memo, steps, blocked
    return JobState.LOST, memo, steps, blocked


def _blocked(row: JobRow, memo: Memo, begin_s: float | None, now_s: float) -> Blocked | None:
    """What stands in the way of one that waits; ASIDE: it is granted nothing as long as that is so."""
    if held_by_others(row, memo):
        return Blocked(BlockKind.ASIDE, who_holds(row), alone=True)
    if begin_s is not None:
        return Blocked(BlockKind.ASIDE, _not_yet(row, memo, now_s), alone=True)
    if memo.blocked is None:
        return None
    kind, text = BlockKind(memo.blocked[0]), memo.blocked[1]
    if keeps_shape(row):
        rests = now_s < tried_again_s(memo)
        return Blocked(BlockKind.ASIDE, text, alone=True) if rests else None
    if kind is not BlockKind.LIMIT and tried_elsewhere(memo) and now_s < tried_again_s(memo):
        kind = BlockKind.ASIDE
    return Blocked(kind, text, alone=True)


def _kept(row: JobRow, memo: Memo, grant: Grant, now_s: float) -> bool:
    """Whether it does not start though we released it: the write was lost, Slurm itself holds it, or somebody holds it
    or has put it off. A time that is near it waits for under its grant."""
    if let_go_by_nobody(row, now_s):
        return held_by_others(row, memo) or now_s > grant.at_s + 3.0
    begin_s = delayed_to_s(row, grant, now_s)
    return begin_s is not None and begin_s > now_s + _HELD_AHEAD_S


def _granted(
    row: JobRow, memo: Memo, options: Options, now_s: float
) -> tuple[JobState, Memo, tuple[Step, ...], Blocked | None]:
    """Released by us and not running yet."""
    grant = memo.grant
    assert grant is not None
    if let_go_by_nobody(row, now_s):
        return JobState.STARTING, memo, (), None  # its shape and its release are one: neither is sent alone
    if delayed_to_s(row, grant, now_s) is not None:
        return JobState.STARTING, memo, (), None
    if row.eligible_s is not None and row.eligible_s <= now_s:
        memo = memo.with_last(let_go=True)
    if row.reason == "BeginTime":
        change = Change(start_now=True, tasks=said_tasks(row))
        step = Step("a requeue set BeginTime two minutes ahead", (update(row.id, change),))
        return JobState.STARTING, memo, (step,), None
    reason = row.reason or ""
    waited = now_s - grant.at_s
    kind = block_kind(reason)
    decisive = kind in {BlockKind.LIMIT, BlockKind.NODE} and (reason != grant.before or waited > 4.0)
    if not decisive and waited <= options.blocked_after_s:
        return JobState.STARTING, memo, (), None
    text = reason or "Slurm gives no reason (often too little memory or too few CPUs on the node)"
    behind = reason == _BEHIND
    refused = not behind and kind is not BlockKind.LIMIT
    memo = memo.with_last(withdrawn=True, behind=behind, refused=refused)
    memo = replace(memo, blocked=(kind.value, text), held_s=now_s)
    step = Step(f"granted, but blocked: {text}", (taken_back(row, now_s),))
    return JobState.STARTING, memo, (step,), Blocked(kind, text, alone=True)


def _final(
    row: JobRow, memo: Memo, facts: Facts, ours: bool, now_s: float, lived: Callable[[], bool]
) -> tuple[JobState, Memo, tuple[Step, ...]]:
    if row.state in OVER:
        return OVER[row.state], memo, ()
    if stays(row) or row.state in {"TIMEOUT", "DEADLINE"}:
        return JobState.FAILED, memo, ()  # its end is what it is in any partition
    young = now_s - (row.end_s or now_s) < facts.min_job_age_s
    grant = memo.of(row.restarts)
    counted = grant is None and memo.of(row.restarts - 1) is not None
    if counted and ours and now_s < (row.end_s or now_s) + _SETTLES_S:
        return JobState.STOPPING, memo, ()  # a requeue is under way: counted already, not carried out yet
    if not (ours and young and (grant or counted)) or memo.cancelled:
        return JobState.FAILED, memo, ()
    unrun = row.end_s is not None and row.start_s is not None and row.end_s - row.start_s <= 1.0
    why = ""
    own_accord_s = 0.0
    if row.state == "FAILED" and row.exit_code == CHECKPOINTED:
        why = "it checkpointed and left, and was not requeued"
        own_accord_s = 1.5 if CHECKPOINTED in facts.exit_hold else 0.0  # Slurm does it after its epilogs
    elif row.state == "FAILED" and unrun and _lost_launch(row, memo, lived):
        why = "the launch failed before any of its code ran"
    elif memo.stop and memo.stop.restarts == row.restarts and row.exit_code in _KILLED:
        why = "it died of the request to checkpoint instead of following it"
    elif row.state in _LOST:
        why = "the cluster ended it"
    elif counted:
        why = "its requeue was counted and not carried out"
    if not why and memo.stop and memo.stop.restarts == row.restarts and now_s - (row.end_s or now_s) < _SETTLES_S:
        return JobState.STOPPING, memo, ()
    if not why:
        return JobState.FAILED, memo, ()
    state = JobState.STARTING if unrun and not counted and row.exit_code != CHECKPOINTED else JobState.STOPPING
    if now_s < (row.end_s or now_s) + own_accord_s:
        return state, memo, ()
    return _brought_back(row, memo, now_s, state, Step(why, (requeue_hold(row.id),)))


def _brought_back(
    row: JobRow, memo: Memo, now_s: float, state: JobState, step: Step
) -> tuple[JobState, Memo, tuple[Step, ...]]:
    """A requeue of a job that ended though its work has not: again while Slurm does not do it, each time after twice
    the pause. Given up when it was tried for long, or when one launch after the other was lost."""
    ended_s = row.end_s if row.end_s is not None else now_s
    again = memo.rescued > 0 and memo.rescued_s >= ended_s  # of this end
    launch = state is JobState.STARTING and row.state not in _LOST
    tries = memo.rescued if again else memo.launches if launch else 0
    if tries and now_s < memo.rescued_s + 2.0 ** min(tries, _LONGEST_PAUSE):
        return state, memo, ()
    if (launch and not again and memo.launches >= _LAUNCHES) or (again and now_s > ended_s + _RESCUE_S):
        return JobState.FAILED, memo, ()
    launches = memo.launches + (launch and not again)
    return state, replace(memo, rescued=memo.rescued + 1 if again else 1, rescued_s=now_s, launches=launches), (step,)


def _lost_launch(row: JobRow, memo: Memo, lived: Callable[[], bool]) -> bool:
    """Whether a start that ended at once never came to its user's code: nodes refuse a launch within the second in
    which the run before it was ended there. The end of a first start is always its user's own."""
    if row.reason == "JobLaunchFailure":
        return True
    ran_before = row.restarts > 0 or any(grant.started and grant.restarts < row.restarts for grant in memo.grants)
    return row.exit_code == 1 and ran_before and not lived()


def told_lost(row: JobRow, memo: Memo, down: Collection[str]) -> Memo:
    """Why a job that waits again left its nodes though nobody asked for it. Slurm does not name who requeued it; what
    its nodes are when that is first seen tells whether anybody did."""
    if memo.lost is not None and memo.lost[0] == row.restarts:
        return memo
    gone = sorted(set(memo.left[0] if memo.left else ()) & set(down))
    requeued = "it was requeued, by its owner or an administrator, or for a job that preempts it"
    if (row.reason or "").startswith("launch failed"):
        requeued = "its nodes could not launch it"
    return replace(memo, lost=(row.restarts, f"{fold(gone)} went down" if gone else requeued))


def let_go(row: JobRow, memo: Memo, now_s: float) -> tuple[Memo, Step] | None:
    """A job that has checkpointed and stays: requeued held, which starts no dependent. Again while it is lost."""
    stop = memo.stop
    if row.state != "RUNNING" or stop is None or (stop.forced and now_s < stop.signalled_s + 5.0):
        return None
    step = Step("it has checkpointed", (requeue_hold(row.id),))
    return replace(memo, stop=replace(stop, forced=True, signalled_s=now_s)), step


def block_kind(reason: str) -> BlockKind:
    if _LIMIT.match(reason):
        return BlockKind.LIMIT
    if _NODE.match(reason):
        return BlockKind.NODE
    if _BUSY.match(reason):
        return BlockKind.FOREIGN
    return BlockKind.OTHER


def _epoch(row: JobRow, memo: Memo) -> int:
    """Starts that Slurm has seen, in the journal's numbers; Slurm's own count where those are lost."""
    seen = max((grant.epoch for grant in memo.grants if grant.started), default=0)
    if row.state == "COMPLETING" and memo.of(row.restarts) is None and memo.of(row.restarts - 1) is not None:
        return seen
    ran = row.state in HOLDING or (row.state not in WAITING and row.start_s is not None and bool(row.nodes))
    if memo.of(row.restarts) is None and ran:
        return max(seen, row.restarts + 1)
    return max(seen, row.restarts) if not memo.grants else seen


def _allocation(row: JobRow, memo: Memo, state: JobState) -> Allocation:
    if not state.holds:
        return {}
    if row.nodes and row.state in HOLDING:
        return held_gpus(row)
    grant = memo.grant
    return dict.fromkeys(grant.nodes, grant.per_node) if grant else {}


def _time_left(row: JobRow, memo: Memo, state: JobState, now_s: float) -> float | None:
    if _is_unlimited(row, memo):
        return None
    if state in {JobState.RUNNING, JobState.STOPPING} and row.left_s is not None:
        return max(row.end_s - now_s, 0.0) if row.end_s else row.left_s  # a client may have used a clock of its own
    if keeps_shape(row):
        return row.limit_s  # each start has all of it, as in any partition
    return None if memo.limit_s is None else max(memo.limit_s - memo.used_s, 0.0)
