"""When a policy is to be asked again though no job came or ended: leases that run out, quanta, and orders that change.

A policy whose order follows from time (attained service, waiting) says nothing of when it will change; it is worked
out here. Jobs that meet in such an order would change places at every moment from then on: they share by turns. In an
ideal simulation a turn is so short that shares are what they would be in the limit, to `FINE`; else it is a minute,
as often as a living arbiter asks again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from math import inf

from horae.sim.engine.asking import Settings
from policy.model import EMPTY, Allocation, Job, JobName, Proposal, Seconds, Snapshot
from policy.trials.rounds import quantum_of

#: Part of the time that jobs which meet have run, or have left, which a turn of an ideal simulation lasts.
FINE = 1e-4
#: With up to so many jobs waiting.
MANY = 40
#: How long a turn is where changes cost, and how often policies are asked whose order nobody can foretell.
TURN_S: Seconds = 60.0

#: A moment later than another: times of years still tell them apart.
LEAST_S: Seconds = 1e-3

#: Iterations left of a job over its rate: what the simulation knows and the policy need not.
Left = Callable[[JobName], Seconds]


def next_review_s(settings: Settings, snapshot: Snapshot, proposal: Proposal, left: Left) -> Seconds:
    """When the policy's answer may be another, if no job comes or ends: later than the snapshot, or inf."""
    now_s, given = snapshot.now_s, proposal.allocation
    if not snapshot.jobs:
        return inf
    at_s = min(
        (t for nodes in proposal.leases.values() for times in nodes.values() for t in times if t > now_s), default=inf
    )
    name = settings.entry.name
    if len(settings.cluster.nodes) == 1 and all(_sated(j, given) for j in snapshot.jobs):
        return at_s
    if settings.entry.quantum:
        turn: Mapping[str, float] = proposal.state.get("turn", EMPTY)
        return min(at_s, turn.get("at_s", now_s) + quantum_of(settings.options))
    if all(given.get(j.name) for j in snapshot.jobs) and name not in _EVEN_WITH_ROOM:
        return at_s
    found = _REVIEWS.get(name)
    return at_s if found is None else min(at_s, found(settings, snapshot, proposal, left))


def _sated(job: Job, given: Mapping[JobName, Allocation]) -> bool:
    """It has all that it can use. Where everybody has, on one node, no quantum that ends can give anybody more."""
    gpus = sum(given.get(job.name, EMPTY).values())
    return gpus > 0 and job.gpus.above(gpus) is None


def las_turn_s(ran_s: Seconds, left_s: Seconds, waiting: int) -> Seconds:
    """The turn of jobs that have met after `ran_s`, of which one has `left_s` to go, in an ideal simulation.

    With more than `MANY` jobs waiting turns grow with the square of their number: what a moment costs does too.
    """
    return max(FINE * max(ran_s, left_s) * max(1.0, (waiting / MANY) ** 2), LEAST_S)


def _las(settings: Settings, snapshot: Snapshot, proposal: Proposal, left: Left) -> Seconds:
    """When a job that runs overtakes one that waits, by attained service of jobs or of apps."""
    now_s, given = snapshot.now_s, proposal.allocation
    whole = settings.options["scope"] == "app"
    attained: dict[str, float] = {}
    growth: dict[str, int] = {}
    waiting: set[str] = set()
    names: dict[str, list[Job]] = {}
    for job in snapshot.jobs:
        key = job.app if whole else job.name
        attained[key] = attained.get(key, 0.0) + sum(job.attained.values())
        names.setdefault(key, []).append(job)
        if gpus := sum(given.get(job.name, EMPTY).values()):
            growth[key] = growth.get(key, 0) + gpus
        else:
            waiting.add(key)
    levels = sorted((attained[key], key) for key in waiting)
    soonest = inf
    for key, gpus in growth.items():
        mine = attained[key]
        i = bisect_left(levels, (mine,))
        if i < len(levels) and levels[i][1] == key:
            i += 1
        if i == len(levels):
            continue
        level, other = levels[i]
        turn_s = TURN_S
        if settings.ideal:
            rest = min(left(j.name) for j in (*names[key], *names[other]))
            turn_s = las_turn_s(level / gpus, rest, len(levels))
        soonest = min(soonest, now_s + (level - mine) / gpus + turn_s)
    return soonest


def _tiresias(settings: Settings, snapshot: Snapshot, proposal: Proposal, left: Left) -> Seconds:
    """When a job passes the threshold between the queues, or has waited for its promotion."""
    now_s, given = snapshot.now_s, proposal.allocation
    threshold, knob = settings.options["threshold"], settings.options["promote_knob"]
    books: Mapping[JobName, Mapping[str, float]] = proposal.state["jobs"]
    soonest = inf
    for job in snapshot.jobs:
        book = books.get(job.name)
        if book is None:
            continue
        served = sum(job.attained.values()) - book["base"]
        gpus = sum(given.get(job.name, EMPTY).values())
        if gpus and served < threshold:
            soonest = min(soonest, now_s + (threshold - served) / gpus)
        elif not gpus and served >= threshold and knob > 0:
            soonest = min(soonest, max(book["ran_s"] + knob * served / job.gpus.requested, now_s))
    return max(soonest, now_s + LEAST_S)


def _units(settings: Settings, snapshot: Snapshot, proposal: Proposal, left: Left) -> Seconds:
    """When a job ends its unit of time."""
    books: Mapping[JobName, Mapping[str, float]] = proposal.state["jobs"]
    soonest = inf
    for job in snapshot.jobs:
        gpus = sum(proposal.allocation.get(job.name, EMPTY).values())
        if gpus and (book := books.get(job.name)) is not None:
            length = settings.options["unit"] * (job.gpus.above(0) or 1)
            rest = length - (sum(job.attained.values()) - book["base"])
            soonest = min(soonest, snapshot.now_s + max(rest / gpus, LEAST_S))
    return soonest


def _every_turn(settings: Settings, snapshot: Snapshot, proposal: Proposal, left: Left) -> Seconds:
    return snapshot.now_s + TURN_S


#: Policies that read the time, or what it brings, and whose order nobody can foretell.
_EVEN_WITH_ROOM = ("optimus", "slaq")
_REVIEWS: dict[str, Callable[[Settings, Snapshot, Proposal, Left], Seconds]] = {
    "las": _las,
    "tiresias-l": _tiresias,
    "afs-p": _units,
    "afs-s": _units,
    "optimus": _every_turn,
    "slaq": _every_turn,
}
