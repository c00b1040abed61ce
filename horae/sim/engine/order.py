"""Policies that are an order, over one pool: the same decisions without a snapshot, a placement or reasons.

In one pool a gang fits where as many GPUs are free, so what FIFO, SRTF, SRSF and LAS decide follows from their keys
alone: those of jobs that wait stand still and are kept sorted by gang, those of jobs that run are worked out anew. The
keys are the policies' own numbers, computed the same way; tests compare the results to the byte.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from horae.sim.engine.asking import Asked
from horae.sim.engine.reviews import las_turn_s
from horae.sim.engine.world import Run, World
from policy.model import Gpus, JobName, Seconds

#: (what the policy orders by, submission, name)
Key = tuple[float, Seconds, JobName]


def serves(asked: Asked) -> bool:
    """Whether the simulation is one of these policies' over one pool."""
    settings = asked.settings
    known = settings.entry.name in _KEYS and settings.options.get("scope", "job") == "job"
    return settings.ideal and len(settings.cluster.nodes) == 1 and known


class Order:
    """See `moments.Engine`."""

    def __init__(self, asked: Asked, world: World) -> None:
        self._asked, self._world, self._speeds = asked, world, asked.speeds
        self._key = _KEYS[asked.settings.entry.name]
        self._first_come = asked.settings.entry.name == "fifo"
        (node,) = asked.settings.cluster.nodes
        self._node, self._type, self._gpus = node.name, node.gpu_type, node.gpus - node.foreign
        self._free, self._wanted = self._gpus, 0  #: GPUs that nobody holds, and that those who wait ask for
        self._running: dict[JobName, tuple[Run, Gpus]] = {}
        self._waiting: dict[Gpus, list[tuple[Key, Run]]] = {}
        self._attained: dict[JobName, float] = {}

    def arrived(self, run: Run) -> None:
        job = run.plain
        size = job.gpus.requested
        self._wait(run, size if size <= self._gpus else job.gpus.at_most(self._gpus) or size, job.submitted_s)

    def _wait(self, run: Run, size: Gpus, now_s: Seconds) -> None:
        self._wanted += size
        insort(self._waiting.setdefault(size, []), (self._of(run, size, now_s), run), key=_by_key)

    def _of(self, run: Run, size: Gpus, now_s: Seconds) -> Key:
        return (self._key(self, run, size, now_s), run.plain.submitted_s, run.plain.name)

    def decided(self, now_s: Seconds, over: Sequence[Run]) -> Seconds:
        started = time.perf_counter()
        for run in over:
            self._free += self._running.pop(run.plain.name)[1]
            self._attained.pop(run.plain.name, None)
        if self._wanted <= self._free or self._first_come:
            chosen = self._next()
        else:
            chosen = self._best(now_s)
        review_s = inf if self._asked.settings.entry.name != "las" else self._meet_s(now_s)
        self._asked.seconds.append(time.perf_counter() - started)
        for run, size in chosen:
            self._world.start(run, {self._node: size}, now_s)
        return review_s

    # --- who runs -----------------------------------------------------------------------------------------

    def _next(self) -> list[tuple[Run, Gpus]]:
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

    def _best(self, now_s: Seconds) -> list[tuple[Run, Gpus]]:
        """In the order of keys, whoever fits: who ran and is not among them waits. Returns who is new."""
        line = [(self._of(run, size, now_s), run, size, True) for run, size in self._running.values()]
        line += [(*queue[0], size, False) for size, queue in self._waiting.items()]
        heapify(line)
        free, new = self._gpus, []
        out: list[tuple[Run, Gpus]] = []
        while line and free:
            _, run, size, runs = heappop(line)
            if size > free:
                out += [(run, size)] if runs else []
                continue
            free -= size
            if not runs:
                queue = self._waiting[size]
                self._take(size, queue)
                new.append((run, size))
                if queue:
                    heappush(line, (*queue[0], size, False))
        out += [(run, size) for _, run, size, runs in line if runs]
        for run, size in out:
            name = run.plain.name
            self._attained[name] = self._served(run, now_s)
            self._world.stop(run, now_s)
            del self._running[name]
            self._free += size
            self._wait(run, size, now_s)
        for run, size in new:
            self._running[run.plain.name] = (run, size)
        return new

    def _take(self, size: Gpus, queue: list[tuple[Key, Run]]) -> Run:
        """The first of this gang goes from those who wait."""
        _, run = queue.pop(0)
        if not queue:
            del self._waiting[size]
        self._wanted -= size
        self._free -= size
        return run

    # --- keys ---------------------------------------------------------------------------------------------

    def _served(self, run: Run, now_s: Seconds) -> float:
        """GPU-seconds, as the ledger charges them."""
        return self._attained.get(run.plain.name, 0.0) + run.gpus * (now_s - run.held_s)

    def _remaining_s(self, run: Run, size: Gpus, now_s: Seconds) -> Seconds:
        best = self._speeds.at(run.plain, self._type, size) or 0.0
        if run.plain.work.total is None or best <= 0:
            return inf
        done = run.done_at(now_s)
        return (run.total - done if done < run.total else 1.0) / best

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


def _by_key(entry: tuple[Key, Run]) -> Key:
    return entry[0]


_KEYS: dict[str, Callable[[Order, Run, Gpus, Seconds], float]] = {
    "fifo": lambda _order, _run, _size, _now_s: 0.0,
    "srtf": Order._remaining_s,
    "srsf": lambda order, run, size, now_s: order._remaining_s(run, size, now_s) * size,
    "las": lambda order, run, _size, now_s: order._served(run, now_s),
}
