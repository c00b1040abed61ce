"""Nothing idle that somebody could use: the last step of a decision, the same for every policy.

After a policy has placed what its rule gives, `fill` looks at what is left in the order that the policy names: a
waiting job gets the smallest gang that has a place, a running one the next size that is faster, on the idle GPUs and
its own. A size that does not fit or does not help is skipped, up to `MOST_STEPS` GPUs above what the job has: listed
sizes, limits of the cluster and measured curves all leave gaps. It ends when nobody can take anything more, which is
what the certificate calls work-conserving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from policy.model import Allocation, Gpus, Job, JobName
from policy.places.gangs import need_of
from policy.places.placement import Placer
from policy.records import altered
from policy.throughput import NOISE

#: GPUs above what a job has, up to which larger sizes are tried (the certificate looks as far).
MOST_STEPS = 16
#: Everybody grows by one step at a time, and who grows may move and leave GPUs that somebody before it can use.
MOST_PASSES = 64


def always(job: Job, gpus: Gpus) -> bool:
    return True


def fill(
    placer: Placer,
    order: Sequence[Job],
    *,
    waiting: bool = True,
    growing: bool = True,
    may: Callable[[Job, Gpus], bool] = always,
    once: bool = False,
) -> set[JobName]:
    """Give away what is idle; returns the jobs whose GPUs changed. `may(job, size)`: False forbids a size. `once`: end
    with the first job that takes some."""
    changed: set[JobName] = set()
    jobs = [j for j in order if j.work.left != 0]
    for _ in range(MOST_PASSES):
        moved = False
        refused: set[object] = set()
        for job in jobs:
            if placer.free() == 0 or (once and changed):
                return changed
            has = placer.taken.get(job.name)
            if has:
                moved |= growing and _grow(job, placer, may, changed)
            elif waiting and _start(job, placer, may, refused):
                changed.add(job.name)
                moved |= growing
        if not moved:
            break
    return changed


def nothing_idle(placer: Placer, order: Sequence[Job]) -> bool:
    """True if nobody could use what is left. Where it is False, somebody has taken some of it."""
    return not fill(placer, order, once=True)


def _start(job: Job, placer: Placer, may: Callable[[Job, Gpus], bool], refused: set[object]) -> bool:
    size, first = job.gpus.above(0), job.gpus.above(0) or 1
    while size is not None and size <= placer.free() and size - first <= MOST_STEPS and may(job, size):
        room = placer.room(job.tenant)
        if room is not None and size > room:
            return False
        kind = (placer.speeds.types(job), size, need_of(job))
        if kind not in refused:
            for place in _places(job, size, placer):
                if not job.throughput or placer.speeds.rate(job, place):
                    placer.take(job, place)
                    return True
            if not job.allocation:
                refused.add(kind)
        size = job.gpus.above(size)
    return False


def _grow(job: Job, placer: Placer, may: Callable[[Job, Gpus], bool], changed: set[JobName]) -> bool:
    found = _larger(job, placer, may)
    if found is None:
        return False
    placer.give_back(job)
    placer.take(job, found)
    changed.add(job.name)
    return True


def _larger(job: Job, placer: Placer, may: Callable[[Job, Gpus], bool]) -> Allocation | None:
    """The next size that is faster, and where; None: there is none."""
    speeds, has = placer.speeds, placer.taken[job.name]
    held, now = sum(has.values()), speeds.rate(job, has)
    types = speeds.types(job)
    idle = sum(placer.free(t) for t in types)
    room = placer.room(job.tenant)
    if room is not None:
        idle = min(idle, room)
    size, found = job.gpus.above(held), None
    while found is None and size is not None and size - held <= min(idle, MOST_STEPS) and may(job, size):
        best = max((speeds.at(job, t, size) or 0.0 for t in types), default=0.0) / job.slowdown.node
        if not job.throughput or now is None or best > now * (1 + NOISE):
            placer.give_back(job)
            # Beside what it held, else beside what it has: so that it finds no more when it holds what it has.
            as_now = [job] if has == job.allocation else [job, altered(job, allocation=has)]
            places = (p for one in as_now for p in _places(one, size, placer))
            found = next((p for p in places if _faster(job, p, now, placer)), None)
            placer.take(job, has)
        size = job.gpus.above(size)
    return found


def _faster(job: Job, place: Allocation, now: float | None, placer: Placer) -> bool:
    rate = placer.speeds.rate(job, place)
    if rate is None or now is None:
        return not job.throughput
    return rate > now * (1 + 1e-9)


def _places(job: Job, size: Gpus, placer: Placer) -> Iterator[Allocation]:
    """The best place over all types, the best of each type, and those on several, which may lie closer together."""
    found: list[Allocation] = []
    types = placer.speeds.types(job)
    for only in (None, *types) if len(types) > 1 else (None,):
        place = placer.best(job, size, only)
        if place and place not in found:
            found.append(place)
            yield place
    yield from (mixed for mixed in placer.on_several_types(job, size) if mixed not in found)
