"""The fewest nodes that hold a gang: the combinatorial half of `policy/places/placement.py`.

Nodes in equal states are one class (`Classes`: state -> node indices, ascending). `own` are the nodes where the job
holds GPUs (`Own`); `must` are GPUs that have to be part of the answer.

A node's worth is what the job keeps there less what others, not yet placed, would lose there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from policy.model import Job, Shape

MOST_HELD_NODES = 8

#: What else of a node some job asks for: features, and whether nobody is on it.
Traits = tuple[frozenset[str], bool]
PLAIN: Traits = (frozenset(), False)
#: What makes nodes alike: GPUs free, of these unclaimed, CPUs free, memory free (None: no constraint), traits.
State = tuple[int, int, float | None, float | None, Traits]
Classes = dict[State, list[int]]


@dataclass(frozen=True, slots=True)
class Need:
    """CPUs and memory that each GPU of a job brings along, and what it asks of each of its nodes."""

    cpus: float
    memory: float
    per_node: int | None = None  #: exactly so many GPUs on each node
    node_cpus: float = 0.0
    node_memory: float = 0.0
    features: frozenset[str] = frozenset()
    alone: bool = False
    most_nodes: int | None = None
    most_per_node: int | None = None

    def usable(self, free: int, cpus: float | None, memory: float | None, traits: Traits = PLAIN) -> int:
        """GPUs of such a node that the job could have."""
        if (self.alone and not traits[1]) or not self.features <= traits[0]:
            return 0
        # A node that lost cores or memory under a job has less than none: nothing to who asks for none.
        if self.node_cpus and cpus is not None and cpus < self.node_cpus:
            return 0
        if self.node_memory and memory is not None and memory < self.node_memory:
            return 0
        if self.most_per_node is not None:
            free = min(free, self.most_per_node)
        if self.cpus and cpus is not None:
            free = min(free, int(cpus / self.cpus + 1e-9))
        if self.memory and memory is not None:
            free = min(free, int(memory / self.memory + 1e-9))
        if self.per_node is not None:
            return self.per_node if free >= self.per_node else 0
        return free

    def on_so_many(self, nodes: int) -> bool:
        """Whether a limit lets the job be on so many nodes."""
        return self.most_nodes is None or nodes <= self.most_nodes


NOTHING = Need(0.0, 0.0)


def need_of(job: Job) -> Need:
    """What each GPU of the job brings along, and each of its nodes has to have."""
    if job.shape is not None:
        return _shaped(job, job.shape)
    if not job.cpus_per_gpu and not job.memory_per_gpu:
        return NOTHING
    return Need(job.cpus_per_gpu or 0.0, float(job.memory_per_gpu or 0))


def _shaped(job: Job, shape: Shape) -> Need:
    """CPUs and memory that are said for a node are not asked for again by the GPU."""
    per_node = shape.gpus_per_node
    if per_node is None and shape.nodes and job.gpus.rigid and job.gpus.min % shape.nodes == 0:
        per_node = job.gpus.min // shape.nodes
    return Need(
        cpus=0.0 if shape.cpus_per_node else job.cpus_per_gpu or 0.0,
        memory=0.0 if shape.memory_per_node else float(job.memory_per_gpu or 0),
        per_node=per_node,
        node_cpus=shape.cpus_per_node or 0.0,
        node_memory=float(shape.memory_per_node or 0),
        features=frozenset(shape.features),
        alone=shape.exclusive,
        most_nodes=shape.most_nodes,
        most_per_node=shape.most_per_node,
    )


def brought(job: Job, gpus: int) -> tuple[float, float]:
    """CPUs and memory that go with so many GPUs of the job on one node."""
    shape = job.shape
    cpus = gpus * (job.cpus_per_gpu or 0.0)
    memory = float(gpus * (job.memory_per_gpu or 0))
    if shape is None or not gpus:
        return cpus, memory
    sign = 1 if gpus > 0 else -1
    return (
        sign * shape.cpus_per_node if shape.cpus_per_node else cpus,
        float(sign * shape.memory_per_node) if shape.memory_per_node else memory,
    )


#: node -> (GPUs usable there, GPUs held of these, GPUs usable there at nobody's cost)
Own = Mapping[int, tuple[int, int, int]]
Must = Mapping[int, int]


def _worth(own: tuple[int, int, int], gpus: int) -> int:
    _, held, calm = own
    return min(held, gpus) - max(gpus - calm, 0)


def fit(scope: list[Classes], need: Need, gpus: int, own: Own, must: Must, equal: bool) -> dict[int, int] | None:
    """The fewest nodes of `scope` and `own` that hold the gang, index -> GPUs; None where there are none.

    `equal`: the same number of GPUs on each node. Among as few nodes: the worthiest, then the tightest.
    """
    if must and any(i not in own or own[i][0] < g for i, g in must.items()):
        return None
    if len(must) <= 1 and (one := _one_node(scope, need, gpus, own, must)) is not None:
        return one
    loose = Loose(scope, need, own)
    found = _fit_equal(loose, gpus, own, must) if equal else _fit_any(loose, gpus, own, must)
    return found if found is None or need.on_so_many(len(found)) else None


def _one_node(scope: list[Classes], need: Need, gpus: int, own: Own, must: Must) -> dict[int, int] | None:
    stay: int | None = None
    if own:
        fits = [i for i, v in own.items() if v[0] >= gpus and (not must or i in must)]
        if fits:
            stay = min(fits, key=lambda i: (-_worth(own[i], gpus), own[i][0], i))
            if must or _worth(own[stay], gpus) >= 0:
                return {stay: gpus}
    if must:
        return None
    least = min(filter(None, (_tightest(classes, need, gpus) for classes in scope)), default=None)
    if stay is not None and (least is None or _worth(own[stay], gpus) >= -least[0]):
        return {stay: gpus}
    return None if least is None else {least[2]: gpus}


def _tightest(classes: Classes, need: Need, gpus: int) -> tuple[int, int, int] | None:
    """Of the nodes that hold the gang, the one where others lose least, then the fullest, then the first: (what they
    lose, GPUs free, node). To a gang that shares no node, whatever others lose there is lost: the smallest one."""
    least: tuple[int, int, int] | None = None
    for (free, unclaimed, cpus, memory, traits), members in classes.items():
        if free < gpus or (need is not NOTHING and need.usable(free, cpus, memory, traits) < gpus):
            continue
        key = (gpus - unclaimed if gpus > unclaimed else 0, free, members[0])
        if need.alone:
            key = (0, 2 * free + (unclaimed < free), members[0])
        if least is None or key < least:
            least = key
    return least


def tightest_node(classes: Classes, need: Need, gpus: int) -> int | None:
    """The node for a gang of a job that holds nothing; None: no node holds it alone."""
    found = _tightest(classes, need, gpus)
    return None if found is None else found[2]


class Loose:
    """The nodes of a scope that the job does not hold, by what it could use of them."""

    def __init__(self, scope: list[Classes], need: Need, own: Own) -> None:
        #: (usable, unclaimed, free, members without own), the most useful and least claimed first
        self.classes: list[tuple[int, int, int, list[int]]] = []
        for classes in scope:
            for (free, unclaimed, cpus, memory, traits), members in classes.items():
                usable = need.usable(free, cpus, memory, traits)
                if usable > 0:
                    rest = [i for i in members if i not in own] if own else members
                    if rest:
                        self.classes.append((usable, unclaimed, free, rest))
        self.classes.sort(key=lambda c: (-c[0], -c[1], c[2], c[3][0]))

    def largest(self, most: int) -> list[int]:
        """What the `most` largest offer, descending."""
        out: list[int] = []
        for usable, _, _, members in self.classes:
            out.extend([usable] * min(len(members), most - len(out)))
            if len(out) >= most:
                break
        return out

    def count(self, least: int) -> int:
        return sum(len(m) for u, _, _, m in self.classes if u >= least)

    def pick(self, nodes: int, gpus: int) -> list[tuple[int, int]]:
        """`nodes` nodes that offer `gpus` together: the largest ones, and the tightest that ends it."""
        chosen: list[tuple[int, int]] = []
        left = gpus
        for usable, _, _, members in self.classes:
            for i in members:
                if len(chosen) == nodes - 1:
                    break
                chosen.append((i, usable))
                left -= usable
        used = {i for i, _ in chosen}
        return [*chosen, self.tightest(max(left, 1), used)]

    def tightest(self, gpus: int, used: set[int]) -> tuple[int, int]:
        best: tuple[int, int, int, int] | None = None
        for usable, unclaimed, free, members in self.classes:
            if usable >= gpus:
                i = next((m for m in members if m not in used), None)
                if i is not None and (best is None or (max(gpus - unclaimed, 0), free, i) < best[:3]):
                    best = (max(gpus - unclaimed, 0), free, i, usable)
        assert best is not None, "the caller counted that such a node is there"
        return best[2], best[3]


def _fit_any(loose: Loose, gpus: int, own: Own, must: Must) -> dict[int, int] | None:
    base = sum(own[i][0] for i in must)
    optional = [i for i in own if i not in must]
    largest = loose.largest(gpus)
    offers = sorted([own[i][0] for i in optional] + largest, reverse=True)
    nodes, total = len(must), base
    for offer in offers:
        if total >= gpus:
            break
        nodes, total = nodes + 1, total + offer
    if total < gpus:
        return None
    spare = nodes - len(must)
    sums = [0]
    for offer in largest[:spare]:
        sums.append(sums[-1] + offer)
    best: tuple[int, tuple[int, ...]] | None = None
    for chosen in _subsets(optional, own, spare):
        others = spare - len(chosen)
        if others < len(sums) and base + sum(own[i][0] for i in chosen) + sums[others] >= gpus:
            key = sum(_worth(own[i], own[i][0]) for i in chosen)
            if best is None or key > best[0]:
                best = (key, chosen)
    assert best is not None, "the set that gave `nodes` is among them"
    inside = [*must, *best[1]]
    out = {i: max(min(own[i][1], own[i][0]), must.get(i, 0)) for i in inside}
    others = spare - len(best[1])
    rest = loose.pick(others, gpus - sum(own[i][0] for i in inside)) if others else []
    _fill(out, rest, gpus, own, must)
    return {i: g for i, g in out.items() if g}


def _subsets(optional: list[int], own: Own, most: int) -> Iterable[tuple[int, ...]]:
    """Sets of held nodes to keep: all of them where they are few, else the ones that keep most."""
    if len(optional) <= MOST_HELD_NODES:
        for size in range(min(most, len(optional)), -1, -1):
            yield from combinations(optional, size)
        return
    by_kept = sorted(optional, key=lambda i: (-_worth(own[i], own[i][0]), -own[i][0], i))
    by_size = sorted(optional, key=lambda i: (-own[i][0], -own[i][1], i))
    for size in range(min(most, len(optional)), -1, -1):
        yield tuple(by_kept[:size])
        yield tuple(by_size[:size])


def _fill(out: dict[int, int], rest: list[tuple[int, int]], gpus: int, own: Own, must: Must) -> None:
    """Spread the gang over the chosen nodes: what is kept, then whole nodes, the remainder on the last."""
    left = gpus - sum(out.values())
    while left < 0:  # holds more than it is to have: shrink where least is held, whole nodes first
        i = min((i for i in out if out[i] > must.get(i, 0)), key=lambda i: (out[i], i))
        cut = min(out[i] - must.get(i, 0), -left)
        out[i] -= cut
        left += cut
    for i, usable in rest[:-1]:
        out[i] = min(usable, left)
        left -= out[i]
    for i in [i for i in out if i in own]:
        more = min(own[i][0] - out[i], left)
        out[i] += more
        left -= more
    if rest:
        out[rest[-1][0]] = left
        left = 0
    assert left == 0, "the chosen nodes hold the gang"


def _fit_equal(loose: Loose, gpus: int, own: Own, must: Must) -> dict[int, int] | None:
    for nodes in divisors(gpus):
        each = gpus // nodes
        if nodes < len(must) or any(g > each for g in must.values()) or any(own[i][0] < each for i in must):
            continue
        fits = [i for i, v in own.items() if v[0] >= each and i not in must]
        fresh = loose.count(each)
        if len(must) + len(fits) + fresh < nodes:
            continue
        fits.sort(key=lambda i: (-_worth(own[i], each), i))
        calm = [i for i in fits if _worth(own[i], each) >= 0]
        chosen = [*must, *calm][:nodes]
        used = set(chosen)
        while len(chosen) < nodes and fresh:
            i, _ = loose.tightest(each, used)
            chosen.append(i)
            used.add(i)
            fresh -= 1
        chosen += [i for i in fits if i not in used][: nodes - len(chosen)]
        return dict.fromkeys(chosen, each)
    return None


@lru_cache(maxsize=1024)
def divisors(n: int) -> tuple[int, ...]:
    """Numbers of nodes over which n GPUs can be spread equally, fewest first."""
    return tuple(k for k in range(1, n + 1) if n % k == 0)
