"""Nodes that are to be away: maintenance and reservations that are known ahead.

A node says from when to when it is away, by what name and why (`Node.away`), and from when on jobs that can be resumed
leave it (`leave_s`). What follows, under every policy:

- A job that stays until it ends (`Job.stays`) starts on no node that goes away before its time limit is over; one
  without a limit on none that goes away at all. What it holds, it keeps.
- From `leave_s` until it is back a node takes nothing new, and jobs that can be resumed do not stay there: what they
  hold of it is not theirs any more, and the policy finds them another place, or they wait.

Policies know nothing of it. `prepared` says it in words that they and the placement do know: such a node is draining;
and a job that would run into a time has to have nodes that lack it, as it may ask for any feature of nodes. The
certificate measures the rule itself, from the nodes' times. `told` gives the reason to who waits for it: a job that
nothing could hold until a node is back is not infeasible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from math import inf

from policy.model import (
    EMPTY,
    OWN_FEATURE,
    Away,
    Code,
    Decision,
    Health,
    Job,
    JobName,
    Node,
    NodeName,
    Reason,
    Seconds,
    Shape,
    Snapshot,
)
from policy.places.placement import Placer
from policy.throughput import Throughput

#: How a feature begins that a node has while it is there until long enough.
STAYS = f"{OWN_FEATURE}away after "
#: That of a node which is draining for nothing but a time that it is away.
CLOSED = f"{OWN_FEATURE}away now"
#: Codes of who waits, that may stand for this.
_COULD_BE = (Code.INFEASIBLE, Code.WAITS_GANG, Code.WAITS_CAPACITY, Code.WAITS_TURN)
#: Jobs that are told what would be without; behind so many nobody reads it.
_MOST_TOLD = 50


def ahead(node: Node, now_s: Seconds) -> tuple[Away, ...]:
    """Its times that are not over."""
    return tuple(time for time in node.away if time.to_s > now_s)


def closing(node: Node, now_s: Seconds) -> Away | None:
    """The time for which it is being emptied now, or is away."""
    return next((time for time in ahead(node, now_s) if time.leave_s <= now_s), None)


def there_until(node: Node, now_s: Seconds) -> Seconds:
    """When it goes away next; for ever: infinity."""
    return min((time.from_s for time in ahead(node, now_s)), default=inf)


def ends_s(job: Job, now_s: Seconds) -> Seconds:
    """When the job has left GPUs that it would get now, at the latest. One that can be resumed leaves when asked."""
    if not job.stays:
        return now_s
    return inf if job.time_left_s is None else now_s + job.time_left_s


def runs_into(job: Job, node: Node, now_s: Seconds) -> bool:
    return bool(node.away) and ends_s(job, now_s) > there_until(node, now_s)


def prepared(snapshot: Snapshot) -> Snapshot:
    """The snapshot as policies see it; the same object where no node goes away, or it was prepared before."""
    now_s, nodes = snapshot.now_s, snapshot.cluster.nodes
    until = {node.name: there_until(node, now_s) for node in nodes if ahead(node, now_s)}
    if not until or _was_prepared(snapshot):
        return snapshot
    after = {time_s: _after(time_s) for time_s in sorted(set(until.values()))}
    closed = frozenset(node.name for node in nodes if closing(node, now_s) is not None)
    seen = tuple(_node(node, until.get(node.name, inf), after, closed) for node in nodes)
    jobs = tuple(_seen(job, closed, after, now_s) for job in snapshot.jobs)
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=seen), jobs=jobs)


def _was_prepared(snapshot: Snapshot) -> bool:
    """Where all nodes go away at once, only jobs show it."""
    of_nodes = (feature for node in snapshot.cluster.nodes for feature in node.features)
    of_jobs = (feature for job in snapshot.jobs if job.shape is not None for feature in job.shape.features)
    return any(feature.startswith(STAYS) for feature in chain(of_nodes, of_jobs))


def _node(node: Node, until_s: Seconds, after: Mapping[Seconds, str], closed: frozenset[NodeName]) -> Node:
    features = (*node.features, *(after[t] for t in after if t < until_s))
    if node.name not in closed or node.health is not Health.UP:
        return replace(node, features=features)
    return replace(node, health=Health.DRAIN, features=(*features, CLOSED))


def _after(time_s: Seconds) -> str:
    return f"{STAYS}{time_s:.3f}"


def _seen(job: Job, closed: frozenset[NodeName], after: Mapping[Seconds, str], now_s: Seconds) -> Job:
    if not job.stays:
        return _leaving(job, closed)
    if job.allocation:
        return job  # whoever would move it: it cannot be stopped
    end_s = ends_s(job, now_s)
    last = max((time_s for time_s in after if time_s < end_s), default=None)
    if last is None:
        return job
    shape = job.shape or Shape()
    return replace(job, shape=replace(shape, features=(*shape.features, after[last])))


def _leaving(job: Job, closed: frozenset[NodeName]) -> Job:
    if not closed.intersection(job.allocation):
        return job
    return replace(
        job,
        allocation={node: gpus for node, gpus in job.allocation.items() if node not in closed},
        lease_until={node: until for node, until in job.lease_until.items() if node not in closed},
    )


def _without(job: Job) -> Job:
    """The job, were no node to go away."""
    if job.shape is None or not any(feature.startswith(STAYS) for feature in job.shape.features):
        return job
    shape = replace(job.shape, features=tuple(f for f in job.shape.features if not f.startswith(STAYS)))
    return replace(job, shape=None if shape == Shape() else shape)


def told(decision: Decision, snapshot: Snapshot) -> Decision:
    """With its own reason for who would start, or could, were no node to go away. `snapshot`: as `prepared` made it."""
    if not any(node.away for node in snapshot.cluster.nodes):
        return decision
    closed = any(CLOSED in node.features for node in snapshot.cluster.nodes)
    waiting = [
        job
        for job in snapshot.jobs
        if not decision.allocation.get(job.name)
        and (reason := decision.reasons.get(job.name)) is not None
        and reason.code in (_COULD_BE if _without(job) is not job else (Code.INFEASIBLE,) * closed)
    ][:_MOST_TOLD]
    if not waiting:
        return decision
    placer = _placer(snapshot, decision)
    back = _placer(_all_back(snapshot), decision) if closed else placer
    reasons: dict[JobName, Reason] = dict(decision.reasons)
    for job in waiting:
        if placer is None or back is None:
            break
        if (reason := _reason(job, snapshot, placer, back, decision)) is not None:
            reasons[job.name] = reason
    return replace(decision, reasons=reasons)


def _all_back(snapshot: Snapshot) -> Snapshot:
    nodes = tuple(
        replace(node, health=Health.UP) if CLOSED in node.features else node for node in snapshot.cluster.nodes
    )
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))


def _placer(snapshot: Snapshot, decision: Decision) -> Placer | None:
    placer = Placer(snapshot, Throughput(snapshot.cluster))
    try:
        for job in snapshot.jobs:
            placer.take(_without(job), decision.allocation.get(job.name, EMPTY))
    except ValueError:
        return None  # another order of taking would do: nothing is said rather than something wrong
    return placer


def _reason(job: Job, snapshot: Snapshot, placer: Placer, back: Placer, decision: Decision) -> Reason | None:
    """`back`: with the nodes that are being emptied, or away."""
    said = decision.reasons[job.name]
    free, size = _without(job), job.gpus.min
    fits_now = bool(placer.best(free, size))
    if not fits_now and (said.code is not Code.INFEASIBLE or not back.possible(free, size)):
        return None
    time, text = _said(job, snapshot)
    numbers = {**said.numbers, "away": time.name, "from_s": time.from_s, "to_s": time.to_s}
    change, fits_s = f"the end of {time.name}", _limit_that_fits(job, snapshot, decision)
    if fits_now and fits_s is not None:
        numbers["fits_s"] = fits_s
        change = f"a time limit of at most {fits_s:.0f} s, or {change}"
    return Reason(Code.WAITS_AWAY, text, numbers, change)


def _said(job: Job, snapshot: Snapshot) -> tuple[Away, str]:
    """The first time that is in its way, and a sentence."""
    now_s = snapshot.now_s
    nodes = [node for node in snapshot.cluster.nodes if CLOSED in node.features or runs_into(job, node, now_s)]
    times = {time for node in nodes for time in ahead(node, now_s)}
    first = min(times, key=lambda time: (time.from_s, time.name))
    named = sorted(node.name for node in nodes if first in node.away)
    which = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    why = f"{first.name} ({first.reason})" if first.reason else first.name
    one = len(named) == 1
    if first.leave_s <= now_s:
        state = "away" if first.from_s <= now_s else "being emptied"
        return first, f"{which} {'is' if one else 'are'} {state} for {why}, and nothing else could hold it"
    limit = "it has no time limit, and" if job.time_left_s is None else "its time limit reaches further:"
    return first, f"{which} {'goes' if one else 'go'} away for {why}; {limit} it could not end before"


def _limit_that_fits(job: Job, snapshot: Snapshot, decision: Decision) -> Seconds | None:
    """The longest time limit with which it could start now."""
    now_s, free = snapshot.now_s, _without(job)
    times = sorted({there_until(node, now_s) for node in snapshot.cluster.nodes} - {inf}, reverse=True)
    for time_s, before in zip(times, [*times[1:], None], strict=True):
        asks = free
        if before is not None:
            shape = free.shape or Shape()
            asks = replace(free, shape=replace(shape, features=(*shape.features, _after(before))))
        jobs = tuple(asks if other is job else other for other in snapshot.jobs)
        placer = _placer(replace(snapshot, jobs=jobs), decision)
        if time_s > now_s and placer is not None and placer.best(asks, job.gpus.min):
            return time_s - now_s
    return None
