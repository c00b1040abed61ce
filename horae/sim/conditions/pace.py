"""How fast nodes are when: stragglers, drawn ahead from the seed and the node alone.

A gang goes at the speed of its slowest node, as synchronous training does. Its progress is worked out over the windows
of its nodes, so that nothing has to happen when one begins or ends: policies hear of neither.
"""

from __future__ import annotations

import heapq
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from random import Random

from horae.sim.conditions.told import SlowNodes
from policy.model import NodeName, Seconds


@dataclass(slots=True)
class _Node:
    """When it changes speed: slow from each even one to the next."""

    random: Random
    slow: SlowNodes
    changes: list[Seconds] = field(default_factory=list)

    def until(self, at_s: Seconds) -> list[Seconds]:
        """All changes up to the first after `at_s`."""
        while not self.changes or self.changes[-1] <= at_s:
            since = self.changes[-1] if self.changes else 0.0
            for mean_s in (self.slow.every_s, self.slow.for_s):
                since += self.random.expovariate(1 / mean_s)
                self.changes.append(since)
        return self.changes

    def is_slow(self, at_s: Seconds) -> bool:
        return bool(bisect_right(self.until(at_s), at_s) % 2)

    def after(self, at_s: Seconds) -> Iterator[Seconds]:
        """Its changes after that, without an end."""
        while True:
            changes = self.until(at_s)
            at_s = changes[bisect_right(changes, at_s)]
            yield at_s


class Stragglers:
    """The paces of gangs. One object a simulation."""

    def __init__(self, slow: SlowNodes, seed: int) -> None:
        self._slow, self._seed = slow, seed
        self._nodes: dict[NodeName, _Node] = {}

    def of(self, nodes: Collection[NodeName]) -> Pace:
        return Pace([self._node(name) for name in sorted(nodes)], self._slow.factor)

    def _node(self, name: NodeName) -> _Node:
        found = self._nodes.get(name)
        if found is None:
            found = _Node(Random(zlib.crc32(f"{self._seed}/slow/{name}".encode())), self._slow)
            self._nodes[name] = found
        return found


class Pace:
    """How much of its full speed a gang has."""

    def __init__(self, nodes: list[_Node], factor: float) -> None:
        self._nodes, self._factor = nodes, factor

    def _pieces(self, since_s: Seconds, until_s: Seconds) -> Iterator[tuple[Seconds, Seconds, float]]:
        """(from, to, part of full speed), in order."""
        changes = heapq.merge(*(node.after(since_s) for node in self._nodes))
        times = _with_ends(since_s, until_s, changes)
        for a, b in pairwise(times):
            yield a, b, self._factor if any(node.is_slow(a) for node in self._nodes) else 1.0

    def worked(self, since_s: Seconds, until_s: Seconds) -> Seconds:
        """Seconds at full speed that come to the same."""
        return sum((b - a) * part for a, b, part in self._pieces(since_s, until_s))

    def until(self, since_s: Seconds, seconds: Seconds) -> Seconds:
        """When as much is done as in so many seconds at full speed."""
        for a, b, part in self._pieces(since_s, inf):
            if (b - a) * part >= seconds:
                return a + seconds / part
            seconds -= (b - a) * part
        raise AssertionError("windows have no end")


def _with_ends(since_s: Seconds, until_s: Seconds, changes: Iterator[Seconds]) -> Iterator[Seconds]:
    yield since_s
    for at_s in changes:
        if at_s >= until_s:
            break
        yield at_s
    yield until_s
