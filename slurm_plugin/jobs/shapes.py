"""What is written to Slurm about a job's shape, at a start and when it is handed back (an array as it is in slurmctld,
one record for all tasks that wait), and Slurm's limits on shapes. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from horae.port import Absence, JobId, Never
from policy.model import EMPTY, Allocation, Gpus
from slurm_plugin.clients.routes import Batch
from slurm_plugin.comment import Tag, parse_tag
from slurm_plugin.jobs import mails
from slurm_plugin.jobs.order import array_of, is_whole, record_of
from slurm_plugin.jobs.record import Grant, Memo
from slurm_plugin.jobs.specification import cpus_per_gpu, keeps_shape, said_tasks
from slurm_plugin.jobs.waiting import WAITING, begins_s, held_by_others, is_beside, parked, restarts_itself
from slurm_plugin.records import JobRow, fold
from slurm_plugin.writes import Change, Write, release, update


def shape(job: JobId, allocation: Allocation) -> tuple[tuple[str, ...], int]:
    counts = set(allocation.values())
    if not allocation or 0 in counts:
        raise Never(f"{job}: an allocation of no GPUs cannot be started")
    if len(counts) != 1:
        raise Never(f"{job}: Slurm can only give a job equally many GPUs on each of its nodes, not {dict(allocation)}")
    return tuple(sorted(allocation)), counts.pop()


def spread(allocation: Allocation) -> tuple[tuple[str, ...], int]:
    """Of a job whose nodes Slurm chooses: about where it is expected, until it runs."""
    return tuple(sorted(allocation)), math.ceil(sum(allocation.values()) / max(len(allocation), 1))


def impossible(nodes: tuple[str, ...], per_node: Gpus, node_gpus: Mapping[str, Gpus]) -> str:
    """Why Slurm could never run this shape, before it is asked: it would answer by holding the job for ever."""
    unknown = sorted(set(nodes) - set(node_gpus))
    if unknown:
        return f"no node {fold(unknown)} in the managed partitions"
    small = sorted(node for node in nodes if node_gpus[node] < per_node)
    return f"{fold(small)}: fewer than {per_node} GPUs" if small else ""


def into_maintenance(nodes: tuple[str, ...], memo: Memo, away: Sequence[Absence], now_s: float) -> str:
    """Why Slurm does not start it there yet: it gives no node to a job that may outstay what it is reserved for."""
    limit_min = left_min(memo)
    ends_s = math.inf if limit_min is None else now_s + 60.0 * limit_min
    for time in away:
        met = sorted(set(nodes) & set(time.nodes))
        if met and now_s < time.to_s and time.from_s < ends_s:
            in_s = max(time.from_s - now_s, 0.0)
            in_min = math.ceil(in_s / 60)
            why = time.reason or time.name
            return f"{fold(met)}: {why} in {in_min} min, before its time limit is over"
    return ""


#: what is released before its last update begins so much later, and by that update
_SOON_S = 60.0
#: SiteFactor of a granted job: above what any priority/multifactor computes, half way below its end; and by how much it
#: is lower for each time that Slurm did not start such a job
FIRST, _LOWER, _LOWEST = 1 << 30, 1 << 26, 8


def first(tries: int) -> int:
    """Of a granted job whose like Slurm did not start so often: of a partition's jobs it tries none behind one that it
    cannot start, and those that it has not refused yet are not to wait behind that."""
    return FIRST - _LOWER * min(tries, _LOWEST)


def start_writes(
    row: JobRow, memo: Memo, grant: Grant, factor: int | None = None, defaults: Mapping[str, int] = EMPTY
) -> tuple[Write, ...]:
    """The shape, the time that is left, and the release. `factor`: a SiteFactor that lifts it over whatever else waits
    for those nodes; else a job behind others waits for backfill, or for ever, though the nodes that it was granted are
    free."""
    tag = parse_tag(row.admin_comment)
    if tag is not None and tag.own_shape:
        return _own_start(row, tag, factor, grant.at_s)
    count, total = len(grant.nodes), len(grant.nodes) * grant.per_node
    if total < 1:
        raise Never(f"{row.id}: no GPUs")
    per_gpu = cpus_per_gpu(row, tag, defaults)
    per_node = max(math.ceil(per_gpu * grant.per_node), 1) if per_gpu else 1
    memory_mb = None
    if tag and tag.memory and tag.gpus:
        share = tag.memory * (tag.nodes or 1) / tag.gpus
        memory_mb = max(math.ceil(share * grant.per_node / (1 << 20)), 1)
    limit_min = left_min(memo) if memo.used_s > 0 else None
    if limit_min is not None and limit_min * 60.0 == row.limit_s:
        limit_min = None  # another may stand there by now: an administrator's
    change = Change(
        start_now=True, nodes=count, tasks=count, cpus_per_task=per_node, cpus=count * per_node,
        node_list=grant.nodes, gpus_per_node=grant.per_node, memory_mb=memory_mb, limit_min=limit_min,
        site_factor=factor, mail=mails.of_start(tag, row.restarts == 0),
    )  # fmt: skip
    if row.held:
        return update(row.id, change), release(row.id)
    # It waits for a begin time: that comes last, for an update which Slurm refuses may be done in part.
    return update(row.id, replace(change, start_now=False)), update(row.id, Change(start_now=True))


def _own_start(row: JobRow, tag: Tag, factor: int | None, now_s: float) -> tuple[Write, ...]:
    """Of a job that keeps its shape."""
    if is_beside(row):
        return (update(row.id, Change(partitions=tag.partitions, tasks=tag.tasks)),)
    if tag.beside:
        factor = None  # it would be before others' jobs in others' partitions too
    change = Change(start_now=True, site_factor=factor, tasks=said_tasks(row))
    return _released((update(row.id, change),), row, now_s) if row.held else (update(row.id, change),)


def _released(writes: tuple[Write, ...], row: JobRow, now_s: float) -> tuple[Write, ...]:
    """These, and its release. Where an update has to say its tasks it is the last: a release, which is an update too,
    would lose them again."""
    last = writes[-1]
    if last.change is None or last.change.tasks is None or not keeps_shape(row):
        return (*writes, release(row.id))
    return (update(row.id, Change(start_s=now_s + _SOON_S)), *writes[:-1], release(row.id), last)


def left_min(memo: Memo) -> int | None:
    """Minutes of its time limit that its next start is given: Slurm counts each start anew, and ends it itself."""
    if memo.limit_s is None:
        return None
    return max(math.ceil((memo.limit_s - memo.used_s) / 60), 1)


def original(row: JobRow, now_s: float, grant: Grant | None = None) -> tuple[Write, ...]:
    """The request as its user made it, as far as Slurm takes it back, without our nodes; its time comes last. `grant`:
    its last."""
    tag = parse_tag(row.admin_comment)
    if tag and is_beside(row):
        return (update(row.id, Change(partitions=tag.partitions, tasks=tag.tasks)),)
    if tag and tag.beside and not row.held and not parked(row, now_s):
        return ()  # nothing of ours is on it: it waits wherever it was taken to since
    begin_s = begins_s(row, now_s, grant)
    tasks = said_tasks(row) if tag and tag.own_shape else None
    when = update(row.id, Change(start_now=begin_s is None, start_s=begin_s, tasks=tasks))
    if tag and tag.own_shape:
        return (when,)
    if not tag or not tag.gpus:
        return update(row.id, Change(node_list=())), when
    nodes = max(tag.nodes or 1, 1)
    each = max((tag.cpus or nodes) // nodes, 1)
    change = Change(
        nodes=nodes, tasks=nodes, cpus_per_task=each, cpus=nodes * each, node_list=(),
        gpus_per_node=math.ceil(tag.gpus / nodes), mail=mails.of_start(tag, row.restarts == 0),
    )  # fmt: skip
    return update(row.id, change), when


def changed_by_hand(row: JobRow, memo: Memo) -> str:
    """What is to be said of an elastic job that waits with GPUs a node which neither the module nor a start gave it."""
    tag = parse_tag(row.admin_comment)
    if tag is None or tag.own_shape or not tag.gpus or row.state not in WAITING or memo.outstanding is not None:
        return ""
    given = {1, *(grant.per_node for grant in memo.grants)}
    if row.gpus_per_node in given or (row.restarts and not memo.grants):
        return ""
    return (
        f"{row.id}: the GPUs that it was given by hand last until its start, which gives an elastic job its own: "
        f"change its range (`scontrol update jobid={row.id} Comment=horae:min=...,max=...`)"
    )


def only_ordered(row: JobRow, memo: Memo) -> bool:
    """Whether nothing of ours is on it but its place: a stranger's, in a pool that orders and does no more."""
    return memo.ordered != 0 and parse_tag(row.admin_comment) is None and not memo.grants and not memo.held_s


def handing_back(row: JobRow, memo: Memo, now_s: float, tasks: int | None = None) -> tuple[Write, ...]:
    """The request as it was made, its own time, and the release; a hold of others' stays. `tasks`: to be said of one
    that was ordered alone."""
    if only_ordered(row, memo):
        return (update(row.id, Change(site_factor=0, tasks=tasks)),)
    writes: list[Write] = []
    if row.state in {"PENDING", "SPECIAL_EXIT"}:
        writes += original(row, now_s, memo.grant)
    if memo.ordered and not restarts_itself(row):  # of one that runs too: requeued later, it would be first again
        first = writes.pop(0) if writes else update(row.id, Change())
        writes.insert(0, replace(first, change=replace(first.change or Change(), site_factor=0)))
    if row.held and not held_by_others(row, memo):
        return _released(tuple(writes), row, now_s) if writes else (release(row.id),)
    return tuple(writes)


def handing_back_all(
    jobs: Mapping[JobId, tuple[JobRow, Memo]], now_s: float, tasks: Mapping[str, int | None] = EMPTY
) -> list[tuple[tuple[JobId, ...], Batch]]:
    """What is written, with the jobs that each batch is for; `tasks`: of records that were ordered alone. Tasks that an
    array's own record stands for, and of which the same is written, are named together: one by one, each would become a
    record of its own."""
    alike: dict[tuple[object, ...], list[JobId]] = {}
    writes: dict[JobId, tuple[Write, ...]] = {}
    for job, (row, memo) in jobs.items():
        writes[job] = handing_back(row, memo, now_s, tasks.get(record_of(row)))
        words = tuple((write.verb, write.change) for write in writes[job])
        alike.setdefault((row.slurm_id, words) if is_whole(row) else (job,), []).append(job)
    found = []
    for group in alike.values():
        name = _named([jobs[job][0] for job in group])
        what = f"handing {group[0] if len(group) == 1 else name} back to Slurm"
        of_all = tuple(replace(each, job=name) for each in writes[group[0]])
        found.append((tuple(group), Batch(of_all, what)))
    return found


def _named(rows: Sequence[JobRow]) -> str:
    """`7`, `7_3`, or `7_[1-3,8]`."""
    if len(rows) == 1:
        return rows[0].id
    tasks = sorted(int(row.id.partition("_")[2]) for row in rows)
    spans: list[list[int]] = []
    for task in tasks:
        if spans and task == spans[-1][1] + 1:
            spans[-1][1] = task
        else:
            spans.append([task, task])
    words = (str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return f"{array_of(rows[0])}_[{','.join(words)}]"


def stdout_path(row: JobRow) -> str | None:
    """Where the batch script's output goes, with the patterns that squeue leaves as they are; None if unknown."""
    if not row.stdout:
        return None
    array, _, task = row.id.partition("_")
    known = {"j": str(row.slurm_id), "A": array, "a": task, "x": row.name, "u": row.user, "J": str(row.slurm_id)}
    path = re.sub(r"%([0-9]{0,2})([jAaxuJ])", lambda found: known[found[2]].rjust(int(found[1] or 0), "0"), row.stdout)
    if "%" in path:
        return None
    return path if path.startswith("/") else f"{row.cwd}/{path}"
