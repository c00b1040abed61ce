"""When a waiting job might start: when enough GPUs come free by the ends that running jobs have said or shown. Pure.

An estimate for people, of which nothing is decided: a job ends with its time limit, or with its last iteration at the
rate measured now; whoever waits is served in order, at his smallest size; where nodes are to be away, none of theirs
is counted on for a job that cannot be resumed and could not end before. A policy may well do better for him by
shrinking others, or worse by who comes later; where no end is known there is no estimate.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from horae.arbiter.decide.queue import standing
from horae.arbiter.standing import movable
from horae.journal.ledger import JobRecord, Ledger
from horae.port import JobId
from horae.views import rows
from policy.bounds import MOST_S
from policy.model import EMPTY, Away, Code, Gpus, GpuType, Health, Node, NodeName, Seconds

#: Waiting jobs of a pool that are looked at: behind so many nobody knows anything.
MOST = 500


#: Why jobs wait that GPUs which come free do not help: nobody can tell when they start.
OTHERWISE = frozenset({Code.WAITS_CAP, Code.INFEASIBLE, Code.UNKNOWN_SPEED})


@dataclass(frozen=True, slots=True)
class StartEstimate:
    in_s: Seconds  #: from now
    after: tuple[JobId, ...]  #: the jobs whose ends it takes, the last one last; none: enough is free


def starts(
    ledger: Ledger,
    nodes: Iterable[Node],
    pool_of: Mapping[str, str],
    pool: str,
    now_s: Seconds,
    more: Iterable[JobRecord] = (),
    away: Mapping[NodeName, tuple[Away, ...]] = EMPTY,
) -> dict[JobId, StartEstimate]:
    """Of the pool's waiting jobs, and of `more`, which are not on record: those whose start can be told."""
    free: dict[GpuType, Gpus] = {}
    gone: dict[tuple[Seconds, Seconds, GpuType], Gpus] = {}
    for node in nodes:
        if pool_of.get(node.name) == pool and node.health is Health.UP:
            free[node.gpu_type] = free.get(node.gpu_type, 0) + max(node.gpus - node.foreign, 0)
            for absence in away.get(node.name, ()):
                span = (absence.from_s - now_s, absence.to_s - now_s, node.gpu_type)
                gone[span] = gone.get(span, 0) + max(node.gpus - node.foreign, 0)
    missing = [_Missing(*span, gpus) for span, gpus in gone.items()]  # of many nodes as of one
    ends: list[tuple[Seconds, JobId, GpuType, Gpus]] = []
    waiting = []
    for record in (*ledger.live(pool), *more):
        if not record.holding:
            if record.wanted and not waits_for_a_limit(record):
                waiting.append(record)
            continue
        in_s = ends_in(record, now_s)
        for gpu_type, gpus in record.holding.items():
            free[gpu_type] = free.get(gpu_type, 0) - gpus
            if in_s is not None:
                heapq.heappush(ends, (in_s, record.id, gpu_type, gpus))
    for time in missing:
        heapq.heappush(ends, (time.to_s, "", time.gpu_type, 0))
    return _served(sorted(waiting, key=standing(waiting))[:MOST], free, ends, missing)


@dataclass(frozen=True, slots=True)
class _Missing:
    """GPUs of the nodes of a type that are away at one time, in seconds from now."""

    from_s: Seconds
    to_s: Seconds
    gpu_type: GpuType
    gpus: Gpus


def _there(
    free: Mapping[GpuType, Gpus], missing: Iterable[_Missing], record: JobRecord, at_s: Seconds
) -> dict[GpuType, Gpus]:
    """What of `free` it may count on from then until its end; all of what is away is taken for free: rather later."""
    there, stay_s = dict(free), 0.0
    if not movable(record):
        limit_s = record.spec.time_limit_s
        stay_s = inf if limit_s is None else max(limit_s - record.ran_s, 0.0)
    for time in missing:
        if (time.to_s > at_s and time.from_s < at_s + stay_s) or time.from_s <= at_s < time.to_s:
            there[time.gpu_type] = there.get(time.gpu_type, 0) - time.gpus
    return there


def waits_for_a_limit(record: JobRecord) -> bool:
    """By the newest decision: GPUs that come free do not help it."""
    return record.reason is not None and record.reason["code"] in OTHERWISE


def ends_in(record: JobRecord, now_s: Seconds) -> Seconds | None:
    """Seconds until it ends, as far as it is known. What its own words put beyond all times is not: nobody's clock or
    calendar can show it."""
    left_s = record.time_left_at(now_s) if record.live else None
    done, total = rows.progress(record)
    rate = rows.rate(record)
    known = [] if left_s is None else [left_s]
    if total is not None and rate:
        known.append((total - done) / rate)
    in_s = min(known, default=inf)
    return max(in_s, 0.0) if in_s <= MOST_S else None


def _served(
    waiting: Iterable[JobRecord],
    free: dict[GpuType, Gpus],
    ends: list[tuple[Seconds, JobId, GpuType, Gpus]],
    missing: Sequence[_Missing] = (),
) -> dict[JobId, StartEstimate]:
    found: dict[JobId, StartEstimate] = {}
    at_s: Seconds = 0.0
    in_the_end = dict(free)  # once all has ended that is known to end; who does not fit then never does
    for _, _, gpu_type, gpus in ends:
        in_the_end[gpu_type] = in_the_end.get(gpu_type, 0) + gpus
    for record in waiting:
        need, types = record.spec.gpus.min, tuple(t for t in free if record.spec.runs_on(t))
        if _gang(in_the_end, types, need) is None:
            continue  # or anybody's jobs that fit nowhere would each cost a walk through all ends
        then, later, after, then_s = dict(free), list(ends), dict[JobId, None](), at_s
        while (gang := _gang(_there(then, missing, record, then_s), types, need)) is None and later:
            end_s, job, gpu_type, gpus = heapq.heappop(later)
            then[gpu_type] = then.get(gpu_type, 0) + gpus
            then_s = max(then_s, end_s)
            if gpu_type in types and job:
                after[job] = None
        if gang is None:
            continue
        free, ends, at_s = then, later, then_s
        found[record.id] = StartEstimate(at_s, tuple(after))
        for gpu_type, gpus in gang.items():
            free[gpu_type] -= gpus
            if record.spec.time_limit_s is None:
                in_the_end[gpu_type] -= gpus
            else:
                left_s = max(record.spec.time_limit_s - record.ran_s, 0.0)
                heapq.heappush(ends, (at_s + left_s, record.id, gpu_type, gpus))
    return found


def _gang(free: Mapping[GpuType, Gpus], types: Iterable[GpuType], need: Gpus) -> dict[GpuType, Gpus] | None:
    """Of one type where one holds it, the one with most free; else of several. None: there are too few."""
    gang: dict[GpuType, Gpus] = {}
    for gpu_type in sorted(types, key=lambda t: -free.get(t, 0)):
        gang[gpu_type] = min(max(free.get(gpu_type, 0), 0), need)
        need -= gang[gpu_type]
        if not need:
            return gang
    return None
