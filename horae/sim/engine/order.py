"""Policies that are an order: the same decisions without a snapshot, reasons, or a placement made anew.

In one pool a gang fits where as many GPUs are free, so what FIFO, SRTF, SRSF, LAS, Tiresias-L, DRF of one tenant (and,
of rigid jobs, AFS, max-min, Optimus, SLAQ and the elastic kin of SRTF and SRSF) decide follows from their keys alone:
those of jobs that wait stand still and are kept sorted by gang, those of jobs that run are worked out anew. The keys
are the policies' own numbers, computed the same way; tests compare results to the byte. Policies that keep books of
jobs (`books.py`) say whose keys a moment has changed.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from operator import itemgetter
from typing import Any

from horae.sim.engine.asking import AskedPolicy
from horae.sim.engine.books import BOOKS, JobBooks
from horae.sim.engine.fast import Fast
from horae.sim.engine.moments import Engine
from horae.sim.engine.reviews import las_turn_s
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from policy.model import Allocation, Gpus, JobName, Seconds, Snapshot
from policy.places.placement import Placer

#: (what the policy orders by, submission, name)
Key = tuple[float, Seconds, JobName]


def short_cut(asked: AskedPolicy, world: SimulatedWorld, runs: Sequence[SimulatedJob]) -> Engine | None:
    """The engine that decides the same without asking; None: the policy has to be asked."""
    settings = asked.settings
    name, options = settings.entry.name, settings.options
    one_pool = settings.ideal and len(settings.cluster.nodes) == 1
    if one_pool and name in _KEYS and options.get("scope", "job") == "job":
        fits = _ONLY.get(name)
        if fits is None or fits(options, runs):
            books = BOOKS.get(name)
            return Order(asked, world) if books is None else Kept(asked, world, books(options))
    if name == "fifo-backfill" and options["variant"] == "easy":
        return Backfilled(asked, world)
    return Queue(asked, world) if name == "fifo" else None


def _rigid(runs: Sequence[SimulatedJob]) -> bool:
    return all(run.plain.gpus.rigid for run in runs)


def _plain_afs(options: Mapping[str, Any], runs: Sequence[SimulatedJob]) -> bool:
    """AFS-L's first stage orders smallest gangs by what they leave to do; rigid jobs leave its second nothing."""
    plain = not options["network_packing"] and options["span"] == "ignore" and options["unknown"] != "refuse"
    return plain and _rigid(runs)


def _one_line(options: Mapping[str, Any], runs: Sequence[SimulatedJob]) -> bool:
    """Max-min of rigid jobs: within a tenant, and where jobs are all equals, in the order of submission."""
    return _rigid(runs) and (options["over"] == "job" or _one_tenant(runs))


def _one_tenant(runs: Sequence[SimulatedJob]) -> bool:
    return len({run.plain.tenant for run in runs}) == 1


def _no_losses(runs: Sequence[SimulatedJob]) -> bool:
    """SLAQ of rigid jobs that show none serves them as they were submitted."""
    return _rigid(runs) and not any(run.curve for run in runs)


#: For which jobs and options of a policy its order is all.
_ONLY: Mapping[str, Callable[[Mapping[str, Any], Sequence[SimulatedJob]], bool]] = {
    "afs-l": _plain_afs,
    "afs-p": lambda _options, runs: _rigid(runs),
    "afs-s": lambda _options, runs: _rigid(runs),
    "drf": lambda _options, runs: _one_tenant(runs),
    "max-min": _one_line,
    "optimus": lambda _options, runs: _rigid(runs),
    "slaq": lambda _options, runs: _no_losses(runs),
    "srsf-e": lambda _options, runs: _rigid(runs),
    "srtf-e": lambda _options, runs: _rigid(runs),
    "tiresias-l": lambda options, _runs: options["threshold"] > 0,
}


class Order:
    """See `moments.Engine`."""

    def __init__(self, asked: AskedPolicy, world: SimulatedWorld) -> None:
        self._asked, self._world, self._speeds = asked, world, asked.speeds
        self._key = _KEYS[asked.settings.entry.name]
        self._first_come = asked.settings.entry.name == "fifo"
        (node,) = asked.settings.cluster.nodes
        self._node, self._type, self._gpus = node.name, node.gpu_type, node.gpus - node.foreign
        self._free, self._wanted = self._gpus, 0  #: GPUs that nobody holds, and that those who wait ask for
        self._running: dict[JobName, tuple[SimulatedJob, Gpus]] = {}
        self._waiting: dict[Gpus, list[tuple[Key, SimulatedJob]]] = {}
        self._attained: dict[JobName, float] = {}
        self._rates: dict[tuple[SimulatedJob, Gpus], float] = {}  #: 0: nobody knows how long it takes

    def arrived(self, run: SimulatedJob) -> None:
        self._wait(run, self._usual(run), run.plain.submitted_s)

    def _usual(self, run: SimulatedJob) -> Gpus:
        sizes = run.plain.gpus
        return sizes.requested if sizes.requested <= self._gpus else sizes.at_most(self._gpus) or sizes.requested

    def _wait(self, run: SimulatedJob, size: Gpus, now_s: Seconds) -> None:
        self._wanted += size
        insort(self._waiting.setdefault(size, []), (self._of(run, size, now_s), run), key=_by_key)

    def _of(self, run: SimulatedJob, size: Gpus, now_s: Seconds) -> Key:
        plain = run.plain
        return (self._key(self, run, size, now_s), plain.submitted_s, plain.name)

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        started = time.perf_counter()
        for run in over:
            self._free += self._running.pop(run.plain.name)[1]
            self._attained.pop(run.plain.name, None)
        chosen = self._next() if self._wanted <= self._free or self._first_come else self._best(now_s)
        review_s = inf if self._asked.settings.entry.name != "las" else self._meet_s(now_s)
        self._asked.seconds.append(time.perf_counter() - started)
        for run, size in chosen:
            self._world.start(run, {self._node: size}, now_s)
        return review_s

    # --- who runs -----------------------------------------------------------------------------------------

    def _next(self) -> list[tuple[SimulatedJob, Gpus]]:
        """First come, first served: the queue stops at the first gang that does not fit. (Where all fit, all orders
        serve the same.)"""
        out = []
        while self._free and self._waiting:
            size, queue = min(self._waiting.items(), key=lambda item: _by_key(item[1][0]))
            if size > self._free:
                break
            run = self._take(size, queue)
            self._running[run.plain.name] = (run, size)
            out.append((run, size))
        return out

    def _best(self, now_s: Seconds) -> list[tuple[SimulatedJob, Gpus]]:
        """In the order of keys, whoever fits: who ran and is not among them waits. Returns who is new."""
        # Kept in the order of last time, which hardly changes, so that sorting is one walk.
        line = [(self._of(run, size, now_s), run, size) for run, size in self._running.values()]
        line.sort(key=_by_key)
        heads = [(*queue[0], size) for size, queue in self._waiting.items()]
        heapify(heads)
        free, at, new = self._gpus, 0, []
        stay: dict[JobName, tuple[SimulatedJob, Gpus]] = {}
        out: list[tuple[SimulatedJob, Gpus]] = []
        while free and (heads or at < len(line)):
            if at < len(line) and (not heads or line[at][0] < heads[0][0]):
                _, run, size = line[at]
                at += 1
                if size > free:
                    out.append((run, size))
                else:
                    free -= size
                    stay[run.plain.name] = (run, size)
                continue
            _, _, size = heappop(heads)
            if size > free:
                continue
            free -= size
            queue = self._waiting[size]
            new.append((self._take(size, queue), size))
            if queue:
                heappush(heads, (*queue[0], size))
        out += [(run, size) for _, run, size in line[at:]]
        self._running = stay
        for run, size in out:
            self._attained[run.plain.name] = self._served(run, now_s)
            self._stopped(run, now_s)
            self._world.stop(run, now_s)
            self._free += size
            self._wait(run, size, now_s)
        for run, size in new:
            self._running[run.plain.name] = (run, size)
        return new

    def _stopped(self, run: SimulatedJob, now_s: Seconds) -> None:
        """It is about to lose its GPUs; its account is charged."""

    def _take(self, size: Gpus, queue: list[tuple[Key, SimulatedJob]]) -> SimulatedJob:
        """The first of this gang goes from those who wait."""
        _, run = queue.pop(0)
        if not queue:
            del self._waiting[size]
        self._wanted -= size
        self._free -= size
        return run

    # --- keys ---------------------------------------------------------------------------------------------

    def _served(self, run: SimulatedJob, now_s: Seconds) -> float:
        """GPU-seconds, as the ledger charges them."""
        return self._attained.get(run.plain.name, 0.0) + run.gpus * (now_s - run.held_s)

    def _remaining_s(self, run: SimulatedJob, size: Gpus, now_s: Seconds) -> Seconds:
        # Asked of each job that runs, at each moment: nothing is looked up twice.
        best = self._rates.get((run, size))
        if best is None:
            known = run.plain.work.total is not None
            best = self._rates[run, size] = (self._speeds.at(run.plain, self._type, size) or 0.0) if known else 0.0
        if best <= 0:
            return inf
        left = run.total - run.done_at(now_s)
        return (left if left > 0 else 1.0) / best

    def _meet_s(self, now_s: Seconds) -> Seconds:
        """When a job that runs passes one that waits."""
        if not self._waiting:
            return inf
        levels = sorted((key[0], run.plain.name) for queue in self._waiting.values() for key, run in queue)
        waiting = {run.plain.name: run for queue in self._waiting.values() for _, run in queue}
        soonest = inf
        for run, size in self._running.values():
            served = self._served(run, now_s)
            i = bisect_left(levels, (served,))
            if i < len(levels):
                level, other = levels[i]
                rest = min(run.seconds_left(self._speeds), waiting[other].seconds_left(self._speeds))
                soonest = min(soonest, now_s + (level - served) / size + las_turn_s(level / size, rest, len(levels)))
        return soonest


class Kept(Order):
    """An order that follows from books which the policy keeps of every job. See `moments.Engine`."""

    def __init__(self, asked: AskedPolicy, world: SimulatedWorld, books: JobBooks) -> None:
        super().__init__(asked, world)
        self._books = books
        self._came = False

    def arrived(self, run: SimulatedJob) -> None:
        self._books.open(run)
        self._came = True
        super().arrived(run)

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        started = time.perf_counter()
        for run in over:
            self._free += self._running.pop(run.plain.name)[1]
            self._attained.pop(run.plain.name, None)
            self._books.close(run)
        moved = self._books.charged([(run, self._served(run, now_s)) for run, _ in self._running.values()])
        back = self._books.due(now_s)
        for run in back:
            self._again(run, now_s)
        chosen: list[tuple[SimulatedJob, Gpus]] = []
        if self._wanted <= self._free:
            chosen = self._next()
        elif self._came or over or moved or back:  # else whoever runs goes on
            chosen = self._best(now_s)
        self._came = False
        review_s = inf
        if self._waiting:
            runs = [(run, size, self._served(run, now_s)) for run, size in self._running.values()]
            review_s = self._books.review_s(runs, now_s)
        self._asked.seconds.append(time.perf_counter() - started)
        for run, size in chosen:
            self._world.start(run, {self._node: size}, now_s)
        return review_s

    def _of(self, run: SimulatedJob, size: Gpus, now_s: Seconds) -> Key:
        held = run.plain.name in self._running
        served = self._served(run, now_s)
        return (self._books.key(run, held, served), run.plain.submitted_s, run.plain.name)

    def _stopped(self, run: SimulatedJob, now_s: Seconds) -> None:
        self._books.stopped(run, self._attained[run.plain.name], now_s)

    def _again(self, run: SimulatedJob, now_s: Seconds) -> None:
        """Its key has changed while it waits."""
        size = self._usual(run)
        queue = self._waiting[size]
        queue.remove(next(entry for entry in queue if entry[1] is run))
        if not queue:
            del self._waiting[size]
        self._wanted -= size
        self._wait(run, size, now_s)


class Queue:
    """First come, first served on nodes: one ledger of what is free for the whole simulation. See `moments.Engine`.

    Who runs keeps its place and nobody who waits holds anything, so the ledger that the policy would make anew at each
    moment is the one that is there.
    """

    def __init__(self, asked: AskedPolicy, world: SimulatedWorld) -> None:
        self._asked, self._world = asked, world
        self._placer = Placer(Snapshot(asked.settings.cluster, ()), asked.speeds)
        self._waiting: deque[tuple[SimulatedJob, Gpus]] = deque()

    def arrived(self, run: SimulatedJob) -> None:
        size = self._placer.usual(run.plain)
        if self._placer.possible(run.plain, size):  # who could never run stops nobody
            self._waiting.append((run, size))

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        started = time.perf_counter()
        for run in over:
            self._placer.give_back(run.plain)
        new = []
        while self._waiting:
            run, size = self._waiting[0]
            place = self._placer.best(run.plain, size)
            if place is None:
                break
            self._placer.take(run.plain, place)
            new.append((run, place))
            self._waiting.popleft()
        self._asked.seconds.append(time.perf_counter() - started)
        for run, place in new:
            self._world.start(run, dict(place), now_s)
        return inf


class Backfilled(Fast):
    """First come, first served on nodes, with EASY backfilling: who stands first in line starts by the ledger that is
    there, and the policy is asked only where somebody behind a gang that does not fit could run. See `moments.Engine`.
    """

    def __init__(self, asked: AskedPolicy, world: SimulatedWorld) -> None:
        super().__init__(asked, world, shortcuts=False)
        self._asked = asked
        self._placer = Placer(Snapshot(asked.settings.cluster, ()), asked.speeds)
        self._waiting: dict[JobName, tuple[SimulatedJob, Gpus]] = {}

    def arrived(self, run: SimulatedJob) -> None:
        super().arrived(run)
        size = self._placer.usual(run.plain)
        if self._placer.possible(run.plain, size):
            self._waiting[run.plain.name] = (run, size)

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        started = time.perf_counter()
        for run in over:
            self._placer.give_back(run.plain)
            self._left(run.plain, now_s)
        for run, size in list(self._waiting.values()):
            place = self._placer.best(run.plain, size)
            if place is None:
                break
            self._starts(run, place, now_s)
        self._asked.seconds.append(time.perf_counter() - started)
        if self._overtaking():
            proposal = self._about(self._snapshot(now_s))
            for name in [name for name in self._waiting if proposal.allocation.get(name)]:
                self._starts(self._waiting[name][0], proposal.allocation[name], now_s)
        return inf

    def _starts(self, run: SimulatedJob, place: Allocation, now_s: Seconds) -> None:
        self._placer.take(run.plain, place)
        self._world.start(run, dict(place), now_s)
        self._jobs[run.plain.name] = self._shown(run, now_s)
        del self._waiting[run.plain.name]

    def _overtaking(self) -> bool:
        """Whether there is room for anybody but the first in line."""
        if len(self._waiting) < 2 or not self._placer.free():
            return False
        kinds = {(size, id(run.plain.throughput)): run for run, size in list(self._waiting.values())[1:]}
        return any(self._placer.best(run.plain, size) is not None for (size, _), run in kinds.items())


#: Of a row that begins with its key.
_by_key: Callable[[tuple[Any, ...]], Any] = itemgetter(0)


def _service(order: Order, run: SimulatedJob, size: Gpus, now_s: Seconds) -> float:
    return order._remaining_s(run, size, now_s) * size


def _none(_order: Order, _run: SimulatedJob, _size: Gpus, _now_s: Seconds) -> float:
    """As they were submitted; or by the policy's books."""
    return 0.0


_KEYS: dict[str, Callable[[Order, SimulatedJob, Gpus, Seconds], float]] = {
    **dict.fromkeys(("fifo", "drf", "max-min", "optimus", "slaq", *BOOKS), _none),
    **dict.fromkeys(("srtf", "srtf-e", "afs-l"), Order._remaining_s),
    **dict.fromkeys(("srsf", "srsf-e"), _service),
    "las": lambda order, run, _size, now_s: order._served(run, now_s),
}
