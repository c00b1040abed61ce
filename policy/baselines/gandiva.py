"""Gandiva (OSDI 2018): introspective packing, time-slicing, migration and grow-shrink; efficiency, no fairness.

- Arrivals are placed by affinity: beside jobs of the same gang size where a node has them, else where placement is
  best; greedily, in the order of submission.
- Over-subscription: when somebody waits, jobs that have run for a quantum give way in turn to those that wait
  longest (time-slicing by suspend and resume).
- Migration: one job a round moves to a place where its measured throughput is better by more than a threshold.
- Grow-shrink: elastic jobs grow on idle GPUs, beyond what they requested, and shrink back when others need them.

`variant=themis` is the baseline of Themis §6.1: no time-slicing; highest placement preference first, greedily, which
is the allocation with the best score S over all waiting and running jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

from policy.baselines.shortest import normalised_rate
from policy.contract import Context
from policy.model import Allocation, Code, Gpus, GpuType, Job, JobName, NodeName, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.ordered import Served, active, grow
from policy.places.placement import Placer


def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    """State: by job, when it last began (`since_s`) and last ended (`until_s`) running."""
    placer = Placer(snapshot, context.speeds)
    jobs = active(snapshot)
    for job in snapshot.jobs:
        if job.work.left == 0:
            placer.drop(job)
    turns = _turns(snapshot, jobs)
    said: dict[JobName, Reason] = {}
    if options["variant"] == "themis":
        _by_preference(jobs, placer)
    else:
        _by_turns(snapshot, jobs, turns, options, placer, said, context)
    served = Served(placer, said)

    def gain(job: Job, has: Gpus, then: Gpus) -> float:
        return normalised_rate(job, then, context.speeds) - normalised_rate(job, has, context.speeds)

    for job in jobs:
        now = placer.taken.get(job.name)
        seen = reasons.outcome(job, now, context.speeds) if now else None
        if seen is not None:
            said.setdefault(job.name, seen)
    if options["grow"]:
        grow(served, jobs, context, gain, "its throughput grows most by them")
    state = {}
    for job in jobs:
        since, until = turns[job.name]
        runs = bool(placer.taken.get(job.name))
        begins = snapshot.now_s if not job.held else since
        state[job.name] = {"since_s": begins if runs else since, "until_s": snapshot.now_s if runs else until}
    return Proposal(placer.taken, reasons=said, state={"turns": state})


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
    turns: Mapping[JobName, tuple[float, float]],
    options: Mapping[str, Any],
    placer: Placer,
    said: dict[JobName, Reason],
    context: Context,
) -> None:
    quantum = options["quantum"]
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
        _migrate(jobs, options["migration_threshold"], placer, said, context)
        return
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
    for job in waiting:
        if not placer.taken.get(job.name):
            size = placer.usual(job)
            said[job.name] = reasons.waits(job, placer.why_not(job, size), size, placer)


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


def _migrate(jobs: list[Job], threshold: float, placer: Placer, said: dict[JobName, Reason], context: Context) -> None:
    """Move the one job that gains most, if it gains more than `threshold`."""
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
