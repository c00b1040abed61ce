"""From one read of Slurm to the port's words: what a job's row means, and what must be done about it. Pure.

    squeue                           port                      done about it
    PENDING, held, never ran         QUEUED
    PENDING, released by our grant   STARTING                  BeginTime: StartTime=now; blocked: held again
    PENDING, released by nobody      QUEUED, STOPPED or LOST   held again (preempted, requeued, memory lost)
    PENDING or SPECIAL_EXIT, held    STOPPED if we asked or it left with 86, else LOST
    CONFIGURING, RUNNING (Prolog)    STARTING
    RUNNING                          RUNNING, STOPPING         hold as the fence; the signal, again, by force
    COMPLETING                       STOPPING
    FAILED 1:0 without a run time    STARTING                  requeuehold: the launch failed, not the job
    FAILED 86, NODE_FAIL ...         STOPPING, then STOPPED    requeuehold, where the site has no RequeueExitHold

A stop is seen by "left RUNNING and Restarts grew", never by SPECIAL_EXIT alone: Slurm's own preemption discards
the exit code. The fence: a held running job that is requeued by anybody comes back held, with no old shape started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import Blocked, BlockKind, JobState, ObservedJob
from horae.spec import JobSpec
from policy.model import Allocation, BadInput, GpuRange, Gpus, Health, Node
from slurm_plugin.comment import Tag, UserWord, parse_tag, parse_word
from slurm_plugin.memory import Grant, Memo, Stop
from slurm_plugin.options import Options
from slurm_plugin.records import Facts, JobRow, NodeRow
from slurm_plugin.writes import Change, Write, hold, requeue_hold, update

CHECKPOINTED = 86
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_HOLDING = frozenset(
    {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING"}
)
_LOST = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "LAUNCH_FAILED", "REVOKED"})
_LIMIT = re.compile(
    r"^(QOS|Assoc|Association|AccountingPolicy|InvalidQOS|InvalidAccount|PartitionTimeLimit|PartitionNodeLimit)"
)
_NODE = re.compile(
    r"^(ReqNodeNotAvail|NodeDown|BadConstraints|ReservationDeleted|Reservation|PartitionDown|PartitionInactive)"
)
_BUSY = re.compile(r"^(Resources|Priority|Nodes required)")
_OUT = re.compile(r"drain|drng|maint|resv|reserved|blocked|fail|planned_down|reboot")
_GONE = re.compile(r"down|unk|inval|future|powered_down|powering_down|power_down|not_responding|no_respond|\*|error")
#: A job that was asked to leave may show as failed for a moment, before Slurm puts its exit code down and requeues it.
_SETTLES_S = 2.0
_RESCUES = 4
_KILLED = frozenset(128 + number for number in (9, 10, 15))  #: KILL, USR1, TERM
#: the job's own supervisor ends it when its grace is over, and knows better how; then we do
FORCE_AFTER_S = 4.0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next to one job, and why: writes, or asking it to checkpoint and leave."""

    why: str
    writes: tuple[Write, ...] = ()
    ask: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    job: ObservedJob | None
    memo: Memo
    steps: tuple[Step, ...] = ()
    note: str = ""


def port_id(row: JobRow) -> str:
    """JobId (or array task) and nonce: Slurm gives JobIds out again after it lost its state."""
    tag = parse_tag(row.admin_comment)
    return f"{row.id}.{tag.nonce}" if tag else row.id


def judge(row: JobRow, memo: Memo, facts: Facts, options: Options, now_s: float) -> Judgement:
    """What this row means to the arbiter. The memo that comes back is to be kept before the steps are taken."""
    tag = parse_tag(row.admin_comment)
    if (options.hold and tag is None) or memo.released:
        return Judgement(None, memo)
    requested = (tag.gpus if tag and tag.gpus else None) or _total(row)
    if not requested:
        return Judgement(None, memo)
    if memo.limit_s is None and not memo.grants:
        memo = replace(memo, limit_s=row.limit_s)
    state, memo, steps, blocked = _state(row, memo, facts, options, tag is not None and options.hold, now_s)
    if state is JobState.QUEUED and row.dependency is not None:
        return Judgement(None, memo, steps, f"{row.id} waits for its dependency {row.dependency}")
    if state is JobState.QUEUED and tag and tag.begin_s and tag.begin_s > now_s:
        return Judgement(None, memo, steps, f"{row.id} is not to begin before {tag.begin_s:.0f}")
    if memo.state != state.value:
        memo = replace(memo, state=state.value, since_s=now_s)
    note = ""
    try:
        spec = specification(row, tag, requested, memo, options)
    except BadInput as error:
        spec, note = _rigid(row, requested, options, memo, None, tag), f"{row.id}: {error}; taken as rigid"
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
        native=row.state + (f" ({row.reason})" if row.reason else ""),
    )
    return Judgement(job, memo, steps, note)


def _state(
    row: JobRow, memo: Memo, facts: Facts, options: Options, ours: bool, now_s: float
) -> tuple[JobState, Memo, tuple[Step, ...], Blocked | None]:
    if row.state in _HOLDING:
        return *_running(row, memo, options, ours, now_s), None
    memo = _ended_incarnation(row, memo, now_s)
    if row.state in _WAITING:
        return _waiting(row, memo, options, ours, now_s)
    return *_final(row, memo, facts, ours, now_s), None


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
        memo = replace(memo, blocked=None, rescued=0)
    steps: list[Step] = []
    if ours and not row.held:
        steps.append(Step("fence: a requeue by anybody must come back held", (hold(row.id),)))
    if ours and row.preempt_s and not memo.stop:
        memo = replace(memo, stop=Stop(now_s, max(row.preempt_s - now_s, 1.0), row.restarts))
    if memo.stop is None:
        return JobState.RUNNING, memo, tuple(steps)
    stop = memo.stop
    if now_s >= stop.at_s + stop.grace_s + FORCE_AFTER_S:
        # Also repeated: a requeuehold that was lost would leave the job holding its GPUs for ever.
        if not stop.forced or now_s >= stop.signalled_s + 15.0:
            steps.append(Step("its time to checkpoint is over", (requeue_hold(row.id),)))
            stop = replace(stop, forced=True, signalled_s=now_s)
    elif stop.signalled_s == 0 or now_s >= stop.signalled_s + max(2.0, stop.grace_s / 4):
        steps.append(Step("asked to checkpoint and leave", ask=True))
    return JobState.STOPPING, replace(memo, stop=stop), tuple(steps)


def _ended_incarnation(row: JobRow, memo: Memo, now_s: float) -> Memo:
    """Book the running time of the incarnation that has just ended, once."""
    last = memo.grant
    if last is None or memo.state not in {"running", "stopping", "starting"}:
        return memo
    gone = row.restarts > last.restarts or row.state not in _WAITING
    if not gone:
        return memo
    began = last.began_s
    used = max(now_s - began, 0.0) if began is not None else 0.0
    memo = memo.with_last(started=True)
    return replace(memo, used_s=memo.used_s + used, left=(last.nodes, now_s))


def _waiting(
    row: JobRow, memo: Memo, options: Options, ours: bool, now_s: float
) -> tuple[JobState, Memo, tuple[Step, ...], Blocked | None]:
    out = memo.outstanding
    if out is not None and row.restarts > out.restarts:  # ran and left between two observations
        memo, out = memo.with_last(started=True), None
    if out is not None and not (row.held and now_s > out.at_s + 3.0):
        return _granted(row, memo, options, now_s)
    if out is not None:  # held though we released it: the write was lost, somebody held it, or Slurm itself did
        memo = memo.with_last(withdrawn=True)
        if row.reason and not row.reason.startswith("JobHeld"):
            memo = replace(memo, blocked=(block_kind(row.reason).value, row.reason))
    steps: tuple[Step, ...] = ()
    if ours and not row.held:
        steps = (Step("nobody granted it GPUs", (hold(row.id),)),)
    blocked = Blocked(BlockKind(memo.blocked[0]), memo.blocked[1]) if memo.blocked else None
    last = memo.grant
    if last is not None and last.recalled and last.restarts == row.restarts:
        return JobState.STOPPED, memo, steps, blocked
    if row.restarts == 0 and not any(grant.started for grant in memo.grants):
        return JobState.QUEUED, memo, steps, blocked
    asked = memo.stop is not None and memo.stop.restarts == row.restarts - 1
    if memo.state == JobState.STOPPED or asked or row.exit_code == CHECKPOINTED:
        return JobState.STOPPED, memo, steps, blocked
    return JobState.LOST, memo, steps, blocked


def _granted(
    row: JobRow, memo: Memo, options: Options, now_s: float
) -> tuple[JobState, Memo, tuple[Step, ...], Blocked | None]:
    """Released by us and not running yet."""
    grant = memo.grant
    assert grant is not None
    if row.held:
        return JobState.STARTING, memo, (), None
    if row.reason == "BeginTime":
        step = Step("a requeue set BeginTime two minutes ahead", (update(row.id, Change(start_now=True)),))
        return JobState.STARTING, memo, (step,), None
    reason, waited = row.reason or "", now_s - grant.at_s
    kind = block_kind(reason)
    decisive = kind in {BlockKind.LIMIT, BlockKind.NODE} and (reason != grant.before or waited > 4.0)
    if not decisive and waited <= options.blocked_after_s:
        return JobState.STARTING, memo, (), None
    text = reason or "Slurm gives no reason (often too little memory or too few CPUs on the node)"
    memo = replace(memo.with_last(withdrawn=True), blocked=(kind.value, text))
    step = Step(f"granted, but blocked: {text}", (hold(row.id),))
    return JobState.STARTING, memo, (step,), Blocked(kind, text)


def _final(row: JobRow, memo: Memo, facts: Facts, ours: bool, now_s: float) -> tuple[JobState, Memo, tuple[Step, ...]]:
    if row.state == "CANCELLED":
        return JobState.CANCELLED, memo, ()
    if row.state == "COMPLETED":
        return JobState.COMPLETED, memo, ()
    young = now_s - (row.end_s or now_s) < facts.min_job_age_s
    grant = memo.of(row.restarts)
    if grant is None and ours and memo.of(row.restarts - 1) is not None:
        return JobState.STOPPING, memo, ()  # a requeue is under way: counted already, not carried out yet
    if not (ours and young and grant) or memo.cancelled:
        return JobState.FAILED, memo, ()
    unrun = row.end_s is not None and row.start_s is not None and row.end_s - row.start_s <= 1.0
    why, own_accord_s = "", 0.0
    if row.state == "FAILED" and row.exit_code == CHECKPOINTED:
        why = "it checkpointed and left, and was not requeued"
        own_accord_s = 1.5 if CHECKPOINTED in facts.exit_hold else 0.0  # Slurm does it after its epilogs
    elif row.state == "FAILED" and unrun and (row.reason == "JobLaunchFailure" or row.exit_code == 1):
        why = "the launch failed before any of its code ran"
    elif memo.stop and memo.stop.restarts == row.restarts and row.exit_code in _KILLED:
        why = "it died of the request to checkpoint instead of following it"
    elif row.state in _LOST:
        why = "the cluster ended it"
    if not why and memo.stop and memo.stop.restarts == row.restarts and now_s - (row.end_s or now_s) < _SETTLES_S:
        return JobState.STOPPING, memo, ()
    if not why or memo.rescued >= _RESCUES:
        return JobState.FAILED, memo, ()
    state = JobState.STARTING if unrun and row.exit_code != CHECKPOINTED else JobState.STOPPING
    if now_s - max(memo.rescued_s, (row.end_s or now_s) + own_accord_s - 1.0) < 1.0:
        return state, memo, ()
    memo = replace(memo, rescued=memo.rescued + 1, rescued_s=now_s)
    return state, memo, (Step(why, (requeue_hold(row.id),)),)


def awaited(rows: Sequence[JobRow]) -> frozenset[int]:
    """Jobs (arrays as a whole) whose exit code 86 would start another: that one waits for their failure."""
    found: set[int] = set()
    for row in rows:
        if row.dependency and "afternotok" in row.dependency:
            for ids in re.findall(r"afternotok:([\d_*:]+)", row.dependency):
                found |= {int(part.split("_")[0]) for part in ids.split(":") if part[:1].isdigit()}
    return frozenset(found)


def is_awaited(row: JobRow, awaited_ids: frozenset[int]) -> bool:
    array = re.match(r"\d+", row.id)
    return row.slurm_id in awaited_ids or (array is not None and int(array[0]) in awaited_ids)


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
    ran = row.state in _HOLDING or (row.state not in _WAITING and row.start_s is not None and bool(row.nodes))
    if memo.of(row.restarts) is None and ran:
        return max(seen, row.restarts + 1)
    return max(seen, row.restarts) if not memo.grants else seen


def _allocation(row: JobRow, memo: Memo, state: JobState) -> Allocation:
    if not state.holds:
        return {}
    if row.nodes and row.state in _HOLDING:
        return held_gpus(row)
    grant = memo.grant
    return dict.fromkeys(grant.nodes, grant.per_node) if grant else {}


def held_gpus(row: JobRow) -> Allocation:
    """GPUs by node of a job that holds nodes; a total of unknown split is taken as even, the surplus on the first."""
    if row.state not in _HOLDING or not row.nodes:
        return {}
    if row.gpus_per_node:
        return dict.fromkeys(row.nodes, row.gpus_per_node)
    if row.split:
        return dict(row.split)
    even, surplus = divmod(row.gpus_total or 0, len(row.nodes))
    split = {node: even + (1 if index < surplus else 0) for index, node in enumerate(row.nodes)}
    return {node: count for node, count in split.items() if count}


def without_promises(
    jobs: Mapping[str, ObservedJob], rows: Mapping[str, JobRow], nodes: Sequence[Node]
) -> dict[str, ObservedJob]:
    """Grants that Slurm has not turned into an allocation hold GPUs only as far as those are there."""
    free = {node.name: node.gpus - node.foreign for node in nodes}
    promised = []
    for name, job in jobs.items():
        if job.allocation and name in rows and rows[name].state not in _HOLDING:
            promised.append(name)
            continue
        for node, count in job.allocation.items():
            free[node] = free.get(node, 0) - count
    kept = dict(jobs)
    for name in promised:
        allocation = jobs[name].allocation
        if all(free.get(node, 0) >= count for node, count in allocation.items()):
            for node, count in allocation.items():
                free[node] -= count
        else:
            kept[name] = replace(jobs[name], allocation={})
    return kept


def between_two_reads(jobs: Sequence[JobRow], nodes: Sequence[NodeRow], granted: Mapping[str, Grant]) -> bool:
    """Whether a job of ours may have begun after the jobs were read and before the nodes were: it waits, and what it
    was granted is in use. Taken as it stands, its own GPUs would be another's, and it would be stopped for them."""
    room = {at.name: sum(at.gpu_types.values()) - at.used for at in nodes}
    return any(
        row.state == "PENDING"
        and (grant := granted.get(port_id(row))) is not None
        and any(room.get(node, 0) < grant.per_node for node in grant.nodes)
        for row in jobs
    )


def _total(row: JobRow) -> Gpus | None:
    if row.gpus_total:
        return row.gpus_total
    return row.gpus_per_node * max(row.num_nodes, 1) if row.gpus_per_node else None


def _time_left(row: JobRow, memo: Memo, state: JobState, now_s: float) -> float | None:
    if state in {JobState.RUNNING, JobState.STOPPING} and row.left_s is not None:
        return max(row.end_s - now_s, 0.0) if row.end_s else row.left_s  # a client may have used a clock of its own
    return None if memo.limit_s is None else max(memo.limit_s - memo.used_s, 0.0)


def specification(row: JobRow, tag: Tag | None, requested: Gpus, memo: Memo, options: Options) -> JobSpec:
    """What the user asked for. Raises BadInput for a `horae:` word that cannot be read."""
    user = parse_word(row.comment, f"job {row.id}, --comment")
    if user is None:
        return _rigid(row, requested, options, memo, None, tag)
    return _rigid(row, requested, options, memo, user, tag)


def _rigid(
    row: JobRow, requested: Gpus, options: Options, memo: Memo, user: UserWord | None, tag: Tag | None
) -> JobSpec:
    tenant = {"account": row.account, "qos": row.qos}.get(options.tenants) or row.user
    nodes = max(tag.nodes or 1, 1) if tag else max(row.num_nodes, 1)
    memory = tag.memory * nodes // requested if tag and tag.memory else None
    cpus = (tag.cpus if tag and tag.cpus else None) or (row.num_cpus if tag is None else None)
    return JobSpec(
        name=row.name,
        command=(row.command,) if row.command else (),
        gpus=user.range(requested) if user else GpuRange(requested, requested, requested),
        owner=row.user,
        tenant=tenant,
        app=(user.app if user and user.app else "") or f"{row.user}/{row.id.split('_')[0]}",
        cwd=row.cwd,
        elastic=user is not None,
        checkpoint=(user.checkpoint or row.cwd) if user else None,
        gpu_types=(user.types if user and user.types else None) or (tag.types if tag else ()),
        cpus_per_gpu=cpus / requested if cpus else None,
        memory_per_gpu=memory,
        model=user.key if user else None,
        iterations=user.iterations if user else None,
        grace_s=(user.grace_s if user and user.grace_s else 60.0),
        time_limit_s=memo.limit_s,
        extra={"slurm_job": row.id, "partition": row.partition},
    )


def unseen(rows: Sequence[NodeRow], jobs: Sequence[JobRow], ours: frozenset[str]) -> frozenset[str]:
    """Nodes that our jobs hold and that are in no managed partition (any more)."""
    held = {node for row in jobs if row.state in _HOLDING and port_id(row) in ours for node in row.nodes}
    return frozenset(held - {row.name for row in rows})


def out_of_bounds(rows: Sequence[NodeRow], names: frozenset[str]) -> list[NodeRow]:
    """Those of `rows`, as nodes on which nothing more is put."""
    return [replace(row, state=row.state + "+drain") for row in rows if row.name in names]


def nodes_of(rows: Sequence[NodeRow], jobs: Sequence[JobRow], ours: frozenset[str], facts: Facts) -> tuple[Node, ...]:
    """Nodes with what is on them that is not ours: everybody's use as sinfo counts it, minus our jobs' own."""
    gpus: dict[str, int] = {}
    cpus: dict[str, float] = {}
    memory: dict[str, float] = {}
    for row in jobs:
        if row.state not in _HOLDING or port_id(row) not in ours:
            continue
        for node, count in held_gpus(row).items():
            gpus[node] = gpus.get(node, 0) + count
        if row.state in _HOLDING:
            for node in row.nodes:
                cpus[node] = cpus.get(node, 0.0) + row.num_cpus / len(row.nodes)
                memory[node] = memory.get(node, 0.0) + (row.alloc_memory or 0) / len(row.nodes)
    nodes = []
    for at in rows:
        if not at.gpu_types:
            continue
        kind = max(at.gpu_types, key=lambda name: at.gpu_types[name])
        total = at.gpu_types[kind]
        nodes.append(
            Node(
                name=at.name,
                gpu_type=kind,
                gpus=total,
                rack=facts.racks.get(at.name),
                health=health(at.state),
                foreign=min(max(at.used - gpus.get(at.name, 0), 0), total),
                cpus=at.cpus_idle + cpus.get(at.name, 0.0),
                memory=int(at.memory - at.memory_used + memory.get(at.name, 0.0)) if facts.memory_counts else None,
            )
        )
    return tuple(nodes)


def health(state: str) -> Health:
    """sinfo's words and marks: `mixed`, `idle*`, `drained$`, `idle+maintenance+reserved`, `down+not_responding`."""
    if _GONE.search(state):
        return Health.DOWN
    return Health.DRAIN if _OUT.search(state) or "$" in state else Health.UP
