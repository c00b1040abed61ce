"""Gandiva (OSDI 2018): introspective packing, time-slicing, migration and grow-shrink; efficiency, no fairness.

- Arrivals are placed by affinity: beside jobs of the same gang size where a node has them, else where placement is
  best; greedily, in the order of submission.
- Over-subscription: when somebody waits, jobs that have run for a quantum give way in turn to those that wait
  longest (time-slicing by suspend and resume).
- Migration: one job a quantum moves to a place where its measured throughput is better by more than a threshold.
- Grow-shrink: elastic jobs grow on idle GPUs, beyond what they requested, and shrink back when others need them.

`variant=themis` is the baseline of Themis §6.1: no time-slicing; highest placement preference first, greedily, which
is the allocation with the best score S over all waiting and running jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from policy.baselines.shortest import normalised_rate
from policy.contract import Context
from policy.model import Allocation, Code, Gpus, GpuType, Job, JobName, NodeName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.ordered import Served, active, grow
from policy.places.placement import Placer


def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """State: by job, when its turn began (`since_s`) and when it last ran (`until_s`); when a job last migrated."""
    this = _round(snapshot, options, context)
    served, said = Served(this.placer, this.said), this.said
    jobs = active(snapshot)
    for job in jobs:
        now = this.placer.taken.get(job.name)
        seen = reasons.outcome(job, now, context.speeds) if now else None
        if seen is not None:
            said.setdefault(job.name, seen)

    def gain(job: Job, has: Gpus, then: Gpus) -> float:
        return normalised_rate(job, then, context.speeds) - normalised_rate(job, has, context.speeds)

    def again(now: Snapshot) -> Placer:
        runs = {j.name for j in now.jobs if j.held}
        return _round(replace(now, state=_state(snapshot, jobs, this, runs)), options, context).placer

    if options["grow"]:
        what = "its throughput grows most by them"
        grow(snapshot, served, jobs, context, gain, what, again, as_held=not this.turned)
    runs = {j.name for j in jobs if served.placer.taken.get(j.name)}
    return Proposal(served.placer.taken, reasons=said, state=_state(snapshot, jobs, this, runs))


@dataclass(slots=True)
class _Requested:
    """Who runs on the gang it requested, before anybody grows. `turned`: turns that were over have been given away."""

    placer: Placer
    turns: Mapping[JobName, tuple[float, float]]
    said: dict[JobName, Reason]
    turned: bool = False
    migrated_s: float | None = None


def _round(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> _Requested:
    placer, jobs = Placer(snapshot, context.speeds), active(snapshot)
    for job in snapshot.jobs:
        if job.work.left == 0:
            placer.drop(job)
    this = _Requested(placer, _turns(snapshot, jobs), {}, migrated_s=snapshot.state.get("migrated_s"))
    if options["variant"] == "themis":
        _by_preference(jobs, placer)
    else:
        _by_turns(snapshot, jobs, options, this, context)
    return this


def _state(snapshot: Snapshot, jobs: list[Job], this: _Requested, running: Collection[JobName]) -> dict[str, Any]:
    """Once turns were given away, everybody's who runs begins: the next are given away a quantum later."""
    now, turns = snapshot.now_s, {}
    for job in jobs:
        since, until = this.turns[job.name]
        runs = job.name in running
        begins = now if this.turned or not job.held else since
        turns[job.name] = {"since_s": begins if runs else since, "until_s": now if runs else until}
    return {"turns": turns, **({} if this.migrated_s is None else {"migrated_s": this.migrated_s})}


def _turns(snapshot: Snapshot, jobs: list[Job]) -> dict[JobName, tuple[float, float]]:
    """(began, was last seen running) by job; a job that never ran waits since its submission."""
    old = snapshot.state.get("turns", {})
    out = {}
    for job in jobs:
        before = old.get(job.name, {"since_s": snapshot.now_s, "until_s": job.submitted_s})
        out[job.name] = (before["since_s"], snapshot.now_s if job.held else before["until_s"])
    return out


def _by_turns(
    snapshot: Snapshot,
    jobs: list[Job],
    options: Mapping[str, Any],
    this: _Requested,
    context: Context,
) -> None:
    quantum, placer, turns, said = options["quantum"], this.placer, this.turns, this.said
    running = [j for j in jobs if placer.keep(j) is not None]
    holds = {j.name for j in running}
    waiting = sorted((j for j in jobs if j.name not in holds), key=lambda j: (turns[j.name][1], j.order))
    fresh = [j for j in running if snapshot.now_s - turns[j.name][0] < quantum]
    stale = [j for j in running if snapshot.now_s - turns[j.name][0] >= quantum]
    for job in fresh:
        if not _take(job, _shrunk(job, placer) if waiting else placer.keep(job), placer):
            waiting.append(job)
    if not waiting:
        for job in stale:
            _take(job, placer.keep(job), placer)
        lately = this.migrated_s is not None and snapshot.now_s - this.migrated_s < quantum
        if not lately and _migrate(jobs, options["migration_threshold"], placer, said, context):
            this.migrated_s = snapshot.now_s
        return
    this.turned = bool(stale)
    # Those that wait longest go first, then those whose turn is over, the longest-running last to come back.
    mates = _Mates(placer)
    for job in waiting:
        place = mates.place(job, placer.usual(job))
        if place is not None:
            placer.take(job, place)
            mates.add(place)
        else:
            placer.drop(job)
    for job in sorted(stale, key=lambda j: (-turns[j.name][0], j.order)):
        stay = _shrunk(job, placer)
        place = stay if stay and _still_free(job, stay, placer) else placer.best(job, placer.usual(job))
        if _take(job, place, placer):
            continue
        placer.drop(job)
        ran = snapshot.now_s - turns[job.name][0]
        text = f"has run for {ran:.6g} s, a quantum of {quantum:g} s or more, and gives its turn to jobs that waited"
        said[job.name] = Reason(Code.PREEMPTED, text, {"gpus": 0, "held": job.held, "ran_s": ran}, "its next turn")
    alike: dict[object, Reason] = {}  # of jobs that held nothing, by all that their reason depends on
    for job in waiting:
        if not placer.taken.get(job.name):
            size = placer.usual(job)
            key = (placer.speeds.kind(job), size, job.tenant, job.held, job.cpus_per_gpu, job.memory_per_gpu)
            if key not in alike:
                alike[key] = reasons.waits(job, placer.why_not(job, size), size, placer)
            said[job.name] = alike[key]


def _take(job: Job, place: Allocation | None, placer: Placer) -> bool:
    """Take it, if it is there and its tenant's limit allows it."""
    room = placer.room(job.tenant)
    if not place or not (place == job.allocation or room is None or sum(place.values()) <= room):
        return False
    try:
        placer.take(job, place)
    except ValueError:
        return False
    return True


def _still_free(job: Job, stay: Allocation, placer: Placer) -> bool:
    keep = placer.keep(job)
    return keep is not None and all(n <= keep.get(node, 0) for node, n in stay.items())


def _shrunk(job: Job, placer: Placer) -> Allocation:
    """What the job holds, less what it holds beyond its request (from the node where it holds least)."""
    keep = dict(placer.keep(job) or {})
    over = sum(keep.values()) - placer.usual(job)
    for node in sorted(keep, key=lambda n: keep[n]):
        less = min(max(over, 0), keep[node])
        keep[node] -= less
        over -= less
    left = {node: n for node, n in keep.items() if n}
    return left if job.gpus.feasible(sum(left.values())) else dict(placer.keep(job) or {})


class _Mates:
    """Sizes of the gangs on each node, and the nodes of each type on which all are equal, in the order of names.

    Made after the jobs that stay are placed: from then on room only shrinks, and a node too full for one more gang of
    its size is forgotten.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._sizes: dict[NodeName, set[Gpus]] = {}
        self._equal: dict[tuple[Gpus, GpuType], list[NodeName]] = {}
        for place in placer.taken.values():
            self.add(place)

    def add(self, place: Allocation) -> None:
        size = sum(place.values())
        for node in place:
            sizes = self._sizes.setdefault(node, set())
            if size in sizes:
                continue
            (kind,) = self._placer.speeds.by_type({node: 1}) or ("",)
            if len(sizes) == 1:
                nodes = self._equal[next(iter(sizes)), kind]
                at = bisect_left(nodes, node)
                if nodes[at : at + 1] == [node]:
                    del nodes[at]
            elif not sizes:
                insort(self._equal.setdefault((size, kind), []), node)
            sizes.add(size)

    def place(self, job: Job, size: Gpus) -> Allocation | None:
        """A place on a node that already runs gangs of this size and no other; else the best place."""
        best = self._placer.best(job, size)
        if best is None or len(best) != 1 or self._sizes.get(next(iter(best))) == {size}:
            return best
        (kind,) = self._placer.speeds.by_type(best)
        nodes = self._equal.get((size, kind), [])
        at = 0
        while at < len(nodes):
            if self._placer.free_on(nodes[at]) < size:
                del nodes[at]
            elif self._placer.could_take(job, {nodes[at]: size}):
                return {nodes[at]: size}
            else:
                at += 1
        return best


def _migrate(jobs: list[Job], threshold: float, placer: Placer, said: dict[JobName, Reason], context: Context) -> bool:
    """Move the one job that gains most, if it gains more than `threshold`; whether there is one."""
    best: tuple[float, Job, Allocation] | None = None
    for job in jobs:
        now = placer.taken.get(job.name)
        if not now or not job.throughput:
            continue
        placer.give_back(job)
        rate = context.speeds.rate(job, now) or 0.0
        for gpu_type in context.speeds.types(job):
            place = placer.best(job, sum(now.values()), gpu_type)
            if place and place != now:
                gain = (context.speeds.rate(job, place) or 0.0) / max(rate, 1e-12) - 1
                if gain > threshold and (best is None or gain > best[0] + 1e-12):
                    best = (gain, job, place)
        placer.take(job, now)
    if best is not None:
        gain, job, place = best
        placer.give_back(job)
        placer.take(job, place)
        text = f"moves to {reasons.places(place)}, where it runs {gain:.0%} faster"
        said[job.name] = Reason(Code.MOVED, text, {"gpus": sum(place.values()), "held": job.held, "gain": gain}, "")
    return best is not None


def _by_preference(jobs: list[Job], placer: Placer) -> None:
    """Themis §6.1: the job with the best placement score that can be had now goes first, and again."""
    left = list(jobs)
    while left:
        scored: list[tuple[float, tuple[float, str], Job, Allocation]] = []
        for job in left:
            place = placer.best(job, placer.usual(job))
            if place:
                score = placer.speeds.slowdown(job, placer.speeds.span(place))
                scored.append((score, job.order, job, place))
        if not scored:
            break
        *_, job, place = min(scored, key=lambda s: s[:2])
        placer.take(job, place)
        left.remove(job)
    for job in left:
        placer.drop(job)
