"""How an app spends its GPUs on its jobs: the schedule inside one phase (Themis §4.3.2).

The paper leaves the schedule to the hyper-parameter optimizer ("the optimal allocation of GPUs within a phase").
Its Table 3 needs jobs that run *one after the other on all GPUs* at 4, 8 and 16 GPUs; an equal split at the same
time gives 1.064, .532 and .356 where the table prints 1, .5 and .34. So the schedule here is moldable: for every
number of lanes (all jobs at once ... one at a time) jobs start longest first (LPT) on the most useful GPUs, and the
lane count with the earliest end wins; for an app of many jobs lane counts are tried in larger steps (`thrift`). With
up to `EXACT_JOBS` jobs every order is tried too, unless a lower bound (area; longest job) shows that the first answer
is already optimal. A phase ends when its last job ends.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import inf
from operator import attrgetter
from typing import NamedTuple, Protocol

from policy.model import GpuRange, Gpus, GpuType, Job
from policy.themis.shapes import Bundle, Chunk, size, steps

#: Answers that are remembered of where a job runs fastest.
MOST_KNOWN = 200_000
#: And of where jobs of a range can run at all, which are long.
MOST_PLACES = 256
#: Phases of up to this many jobs are tried in every order.
EXACT_JOBS = 4


class Task(NamedTuple):
    """One job's part of a phase."""

    job: Job
    iterations: float


class Speed(Protocol):
    def __call__(self, job: Job, gang: Sequence[Chunk]) -> float:
        """Iterations/s of a gang that uses all of `gang` (never empty); 0 where it cannot run."""
        ...


#: What a started job takes: (index of the chunk in the bundle, GPUs of it).
Take = tuple[tuple[int, Gpus], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    seconds: float  #: until the last job ends; inf where some job can never run
    first: tuple[tuple[int, Take], ...]  #: the jobs that run from the start: (index of the task, its GPUs)


class _Places(NamedTuple):
    """Where a job can run on a bundle."""

    nodes: list[tuple[GpuType, Gpus, list[tuple[Gpus, int]]]]  #: (type, its widest gang, (free, chunk) ascending)
    spread: list[tuple[list[Chunk], Take]]  #: over several chunks


@dataclass(frozen=True, slots=True)
class Gangs:
    """Finds the GPUs on which a job runs fastest among the free ones.

    `equal`: the cluster wants as many GPUs of a job on each of its nodes. `one_type`: never two types in a gang.
    `kind`: jobs of one are as fast as each other, on whatever GPUs. Those of a sweep are, and there are hundreds.
    """

    speed: Speed
    types: tuple[GpuType, ...]  #: of the cluster
    equal: bool = False
    one_type: bool = False
    kind: Callable[[Job], Hashable] = attrgetter("name")
    thrift: float = 1.0  #: how many times as coarse as that of an app that can be looked at closely; see `steps`
    _useful: dict[tuple[Hashable, GpuType], list[tuple[Gpus, float]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _best: dict[tuple[Hashable, int, tuple[Gpus, ...], Gpus], tuple[float, Take]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _places: dict[tuple[GpuRange, tuple[int, tuple[Gpus, ...], Gpus]], _Places] = field(
        default_factory=dict, repr=False, compare=False
    )
    _bundles: dict[Bundle, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def coarse(self) -> float:
        """The `share` of `shapes.steps` where an app that can be looked at closely goes GPU by GPU."""
        return (self.thrift - 1.0) / 8

    def allowed(self, gang: Sequence[Chunk]) -> bool:
        """True if the cluster can carry out a gang of this shape."""
        if self.equal and len({c.gpus for c in gang}) > 1:
            return False
        return not self.one_type or len({c.gpu_type for c in gang}) == 1

    def useful(self, job: Job, gpu_type: GpuType, widest: Gpus) -> Gpus:
        """The gang of at most `widest` GPUs of one node that runs fastest: measured curves may fall."""
        known = self._useful.setdefault((self.kind(job), gpu_type), [(0, -inf)])
        for gang in range(len(known), widest + 1):
            best = known[-1]
            if job.gpus.feasible(gang):
                rate = self.speed(job, [Chunk(gpu_type, "", gang)])
                if rate > best[1]:
                    best = gang, rate
            known.append(best)
        return known[widest][0]

    def smallest(self, job: Job) -> float:
        """Iterations/s of the job's smallest gang, on the type and node that suit it best; 0: it never runs."""
        gang = job.gpus.above(0)
        return max((self.speed(job, [Chunk(t, "", gang)]) for t in self.types), default=0.0) if gang else 0.0

    def finder(self, bundle: Bundle) -> Callable[[Job, Sequence[Gpus], Gpus], tuple[float, Take]]:
        """`best` on one bundle, which is asked for thousands of times."""
        number = self._bundles.setdefault(bundle, len(self._bundles))

        def best(job: Job, free: Sequence[Gpus], at_most: Gpus) -> tuple[float, Take]:
            key = (self.kind(job), number, tuple(free), at_most)
            found = self._best.get(key)
            if found is None:
                if len(self._best) >= MOST_KNOWN:
                    self._best.clear()
                places = self._places_of(job.gpus, bundle, (number, *key[2:]))
                found = self._best[key] = self._fastest(job, places)
            return found

        return best

    def _fastest(self, job: Job, places: _Places) -> tuple[float, Take]:
        """(iterations/s, GPUs), (0, ()) where nothing fits. Ties: one node first, then the tightest fit."""
        best: tuple[float, Take] = (0.0, ())
        for gpu_type, widest, nodes in places.nodes:
            gang = self.useful(job, gpu_type, widest)
            rate = self.speed(job, [Chunk(gpu_type, "", gang)])
            if rate > best[0] * (1 + 1e-12):
                _, tightest = nodes[bisect_left(nodes, (gang, 0))]
                best = (rate, ((tightest, gang),))
        for chunks, take in places.spread:
            rate = self.speed(job, chunks)
            if rate > best[0] * (1 + 1e-12):
                best = (rate, take)
        return best

    def _places_of(self, gpus: GpuRange, bundle: Bundle, state: tuple[int, tuple[Gpus, ...], Gpus]) -> _Places:
        """Where jobs of one range can run. Those of an app ask for the same one after the other."""
        found = self._places.get((gpus, state))
        if found is not None:
            return found
        if len(self._places) >= MOST_PLACES:
            self._places.clear()
        _, free, at_most = state
        some = [i for i, n in enumerate(free) if n]
        types = sorted({bundle[i].gpu_type for i in some})
        found = self._places[gpus, state] = _Places([], [])
        for gpu_type in types:
            nodes = [i for i in some if bundle[i].gpu_type == gpu_type]
            widest = gpus.at_most(min(at_most, max(free[i] for i in nodes)))
            if widest:
                found.nodes.append((gpu_type, widest, sorted((free[i], i) for i in nodes)))
        widest = gpus.at_most(min(at_most, sum(free)))
        if len(some) < 2 or widest <= min(free[i] for i in some):
            return found  # any of them holds it whole
        kinds: list[tuple[GpuType, ...]] = [(t,) for t in types]
        if len(types) > 1 and not self.one_type:
            kinds.append(tuple(types))
        for kind in kinds:
            everywhere = [i for i in some if bundle[i].gpu_type in kind]
            for pool in (*_within_racks(bundle, everywhere), everywhere):
                wide = gpus.at_most(min(at_most, sum(free[i] for i in pool)))
                if wide <= max(free[i] for i in pool):
                    continue
                for take in self._spread(gpus, pool, free, wide):
                    chunks = [Chunk(bundle[i].gpu_type, bundle[i].rack, n) for i, n in take]
                    found.spread.append((chunks, take))
        return found

    def _spread(self, gpus: GpuRange, pool: list[int], free: Sequence[Gpus], wide: Gpus) -> Iterator[Take]:
        fullest = sorted(pool, key=lambda i: (-free[i], i))
        if not self.equal:
            take: list[tuple[int, Gpus]] = []
            left = wide
            for i in fullest:
                take.append((i, min(free[i], left)))
                left -= take[-1][1]
                if not left:
                    break
            yield tuple(take)
            return
        for each in range(free[fullest[0]], 0, -1):
            nodes = [i for i in fullest if free[i] >= each]
            for count in range(min(len(nodes), wide // each), 1, -1):
                if gpus.feasible(each * count):
                    yield tuple((i, each) for i in nodes[:count])
                    break


def _within_racks(bundle: Bundle, chunks: Sequence[int]) -> list[list[int]]:
    """The chunks of each rack, where it has several and not all."""
    racks: dict[str, list[int]] = {}
    for i in chunks:
        racks.setdefault(bundle[i].rack, []).append(i)
    return [pool for pool in racks.values() if 1 < len(pool) < len(chunks)]


def schedule(tasks: Sequence[Task], bundle: Bundle, gangs: Gangs) -> Schedule:
    """The schedule of `tasks` on `bundle` that ends first. Tasks without work left are ignored.

    A job that none of these GPUs can run is counted as if it ran afterwards, alone, on its smallest gang: the
    bundle is worth less than one that runs every job, and more than nothing.
    """
    left = [i for i, t in enumerate(tasks) if t.iterations > 0]
    free = [c.gpus for c in bundle]
    total = size(bundle)
    best_of = gangs.finder(bundle)
    alone = {i: best_of(tasks[i].job, free, total)[0] for i in left}
    able = sorted(
        (i for i in left if alone[i] > 0), key=lambda i: (-tasks[i].iterations / alone[i], tasks[i].job.order)
    )
    later = 0.0
    for i in left:
        if alone[i] <= 0:
            rate = gangs.smallest(tasks[i].job)
            later += tasks[i].iterations / rate if rate > 0 else inf
    if not able:
        return Schedule(inf if left else 0.0, ())
    best = Schedule(inf, ())
    caps = _caps([tasks[i].job for i in able], total, gangs.thrift)
    orders: Iterable[Sequence[int]] = [able]
    for attempt in range(2):
        for order in orders:
            for cap in caps:
                seconds, first = _run(tasks, order, bundle, gangs, cap)
                if seconds < best.seconds * (1 - 1e-12):
                    best = Schedule(seconds, first)
        if attempt or not 1 < len(able) <= EXACT_JOBS:
            break
        floor = max(tasks[i].iterations / alone[i] for i in able)
        if best.seconds <= max(floor, _area(tasks, alone, bundle, gangs) / total) * (1 + 1e-9):
            break
        orders = permutations(able)
    return Schedule(best.seconds + later, best.first)


def prefer(tasks: Sequence[Task], bundle: Bundle, gangs: Gangs, running: set[int]) -> Schedule:
    """The best schedule in which the tasks of `running` start first."""
    free = [c.gpus for c in bundle]
    total = size(bundle)
    best_of = gangs.finder(bundle)
    alone = {i: best_of(t.job, free, total)[0] for i, t in enumerate(tasks) if t.iterations > 0}
    able = sorted(
        (i for i, rate in alone.items() if rate > 0),
        key=lambda i: (i not in running, -tasks[i].iterations / alone[i], tasks[i].job.order),
    )
    best = Schedule(inf, ())
    for cap in _caps([tasks[i].job for i in able], total, gangs.thrift) if able else ():
        seconds, first = _run(tasks, able, bundle, gangs, cap)
        if seconds < best.seconds * (1 - 1e-12):
            best = Schedule(seconds, first)
    return best


def _caps(jobs: Sequence[Job], total: Gpus, thrift: float) -> list[Gpus]:
    """Largest gangs to try: GPUs over every lane count, rounded both ways; many lanes in growing steps. Of several
    under which every job has the same largest gang the first: the others' schedules are no others."""
    caps: set[Gpus] = set()
    for lanes in steps(len(jobs), thrift / 4):
        caps |= {max(total // lanes, 1), -(-total // lanes)}
    ranges = {job.gpus for job in jobs}
    told_apart: dict[tuple[Gpus, ...], Gpus] = {}
    for cap in sorted(caps, reverse=True):
        told_apart.setdefault(tuple(gpus.at_most(_cap(gpus, cap)) for gpus in ranges), cap)
    return list(told_apart.values())


def _cap(gpus: GpuRange, cap: Gpus) -> Gpus:
    """As it is for a job of this range, which is never barred by it."""
    return max(cap, gpus.above(0) or cap)


def _area(tasks: Sequence[Task], alone: Mapping[int, float], bundle: Bundle, gangs: Gangs) -> float:
    """A lower bound on the GPU-seconds of the phase: every job at its most efficient gang. `alone`: the rate of each
    on all of the bundle, above which no gang is faster: so large ones need not be looked at."""
    free, area, best_of = [c.gpus for c in bundle], 0.0, gangs.finder(bundle)
    for i, fastest in alone.items():
        job, cheapest, gang = tasks[i].job, inf, 0
        if fastest <= 0:
            continue
        while (step := job.gpus.above(gang)) is not None and step <= min(size(bundle), cheapest * fastest):
            gang = step
            rate, take = best_of(job, free, gang)
            if rate > 0:
                cheapest = min(cheapest, sum(n for _, n in take) / rate)
        area += tasks[i].iterations * cheapest
    return area


def _run(
    tasks: Sequence[Task], order: Sequence[int], bundle: Bundle, gangs: Gangs, cap: Gpus
) -> tuple[float, tuple[tuple[int, Take], ...]]:
    """List scheduling: at every end, whoever fits starts, in `order`, on at most `cap` GPUs (or its smallest gang)."""
    free, best_of = [c.gpus for c in bundle], gangs.finder(bundle)
    waiting = list(order)
    running: list[tuple[float, int, Take]] = []
    first: list[tuple[int, Take]] = []
    now = 0.0
    while waiting or running:
        still = []
        for place, i in enumerate(waiting):
            if not any(free):
                still += waiting[place:]
                break
            job = tasks[i].job
            rate, take = best_of(job, free, _cap(job.gpus, cap))
            if rate <= 0:
                still.append(i)
                continue
            for chunk, n in take:
                free[chunk] -= n
            heapq.heappush(running, (now + tasks[i].iterations / rate, i, take))
            if now == 0.0:
                first.append((i, take))
        waiting = still
        if not running:
            return inf, tuple(first)
        now, _, take = heapq.heappop(running)
        for chunk, n in take:
            free[chunk] += n
        while running and running[0][0] <= now:
            for chunk, n in heapq.heappop(running)[2]:
                free[chunk] += n
    return now, tuple(first)
