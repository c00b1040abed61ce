"""The rows of a bid: which bundles an app asks for (§3.3.1 "Inputs", Table 2, §4.3.2).

The paper enumerates "all possible subsets". A row here asks for `times` chunks of `chunk` GPUs, each chunk on one
node of a set of node classes: what a bundle is worth depends on nothing finer.

- *One job*: every GPU count at every span (one node, one rack, anywhere), on every GPU type it can be held back by.
  That is exact: a job's rate depends on the count, the span and the slowest type only. Of a job that could have more
  than `ONE_BY_ONE` counts the larger ones grow by a share.
- *Several jobs*: every vector of chunks over the classes, where there are at most `bound` of them: exact. Beyond it,
  the bundles of equal chunks (of every power of two and every offered node size; in one rack or anywhere), each
  valued by the app's own schedule: a bid that says less than the app could, never more. Their counts grow by an
  eighth, those of an app of many jobs by more: each costs a schedule of all its jobs.

Rows that another row dominates (it asks for no more, anywhere the other could be met, and is worth as much) are
dropped; so a job that does not mind the network keeps one row a count. What is under lease is part of every row: rows
state the GPUs *beside* it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf
from typing import NamedTuple

import numpy as np

from policy.model import Bytes, Gpus, GpuType, Job, NodeName
from policy.themis.auction.valuation import Valuation
from policy.themis.offer import NodeClass, Offer
from policy.themis.shapes import Chunk, canonical, steps

#: So many counts of GPUs of one job are all bid for.
ONE_BY_ONE = 128
Rho = Callable[[Sequence[Chunk]], float]  #: of one job's gang


class Demand(NamedTuple):
    """`times` chunks of `chunk` GPUs, each on one node of `domain` (class indices, ascending)."""

    domain: tuple[int, ...]
    chunk: Gpus
    times: int
    apart: bool = False  #: no two chunks on one node


class Row(NamedTuple):
    rho: float
    gpus: Gpus
    demands: tuple[Demand, ...]


class PerGpu(NamedTuple):
    """What each GPU of the app brings with it."""

    cpus: float
    memory: Bytes


@dataclass(frozen=True, slots=True)
class Bid:
    """One app's table. `null_rho`: without any of the offered GPUs (holding what is under lease)."""

    app: str
    null_rho: float
    starving: bool  #: nothing under lease that could run
    rows: tuple[Row, ...]
    need: PerGpu
    exact: bool  #: no bundle was left out
    weight: float = 1.0  #: of the app: the exponent of its 1/rho in the product


def need(jobs: Iterable[Job]) -> PerGpu:
    """CPUs and memory a GPU, the most that any of the app's jobs asks."""
    members = list(jobs)
    return PerGpu(
        max((j.cpus_per_gpu or 0.0 for j in members), default=0.0),
        max((j.memory_per_gpu or 0 for j in members), default=0),
    )


def usable(node_class: NodeClass, wants: PerGpu) -> Gpus:
    """GPUs of one node of the class that an app can use, CPUs and memory considered."""
    free = node_class.free
    if wants.cpus > 0 and node_class.cpus is not None:
        free = min(free, int(node_class.cpus / wants.cpus + 1e-9))
    if wants.memory > 0 and node_class.memory is not None:
        free = min(free, node_class.memory // wants.memory)
    return free


class Rows:
    """Makes the rows of one app over one offer."""

    def __init__(
        self,
        valuation: Valuation,
        offered: Offer,
        node_classes: Sequence[NodeClass],
        base: Mapping[NodeName, Gpus],
        bound: int,
    ) -> None:
        self._value = valuation
        self._classes = node_classes
        self._base = [Chunk(offered.gpu_type[n], offered.rack[n], g) for n, g in base.items()]
        self._base_nodes = list(base)
        self._bound = bound
        self.need = need(valuation.jobs)
        self._usable = [usable(c, self.need) for c in node_classes]
        held = sum(base.values())
        offered_gpus = sum(c.free * len(c.nodes) for c in node_classes)
        self._extra = offered_gpus if valuation.most is None else max(min(valuation.most - held, offered_gpus), 0)
        self._thrift = valuation.gangs.thrift
        self._domains: dict[tuple[frozenset[GpuType], tuple[str, ...]], tuple[tuple[int, ...], Gpus, bool]] = {}
        self.exact = True

    def all(self, null_rho: float) -> tuple[Row, ...]:
        """The undominated rows that are better than `null_rho`."""
        left = [t for phase in self._value.phases for t in phase if t.iterations > 0]
        if not left or self._extra <= 0:
            return ()
        if len(left) == 1:
            found = self._one_job(left[0].job, left[0].iterations)
            return _prune(r for r in found if r.rho < null_rho)
        if self._vectors() * self._thrift <= self._bound:
            return _prune_vectors([r for r in self._whole() if r.rho < null_rho], self._usable)
        self.exact = False
        return _prune(r for r in self._regular() if r.rho < null_rho)[: self._bound]

    # --- one job ---

    def _one_job(self, job: Job, iterations: float) -> Iterator[Row]:
        value, speed = self._value, self._value.gangs.speed
        held = sum(c.gpus for c in self._base)

        def rho(gang: Sequence[Chunk]) -> float:
            rate = speed(job, gang)
            return max((value.elapsed_s + iterations / rate) / value.ideal_s, 1e-12) if rate > 0 else inf

        if value.gangs.equal:
            yield from self._one_job_equal(job, rho)
            return
        racks = sorted({c.rack for c in self._classes})
        base_racks = {c.rack for c in self._base}
        base_types = {c.gpu_type for c in self._base}
        types = sorted({c.gpu_type for c in self._classes})
        for extra in self._counts(job, held):
            for gpu_type in types:
                if value.gangs.one_type and base_types - {gpu_type}:
                    continue
                fast = self._not_slower(job, gpu_type, held + extra, types)
                if not self._base:
                    node = [i for i, c in enumerate(self._classes) if c.gpu_type in fast and self._usable[i] >= extra]
                    if node:
                        yield Row(rho([Chunk(gpu_type, "", extra)]), extra, (Demand(tuple(node), extra, 1),))
                elif len(self._base) == 1:
                    yield from self._same_node(extra, rho)
                for rack in racks if len(racks) > 1 else ():
                    if base_racks <= {rack}:
                        yield from self._anywhere(fast, gpu_type, (rack,), extra, rho)
                yield from self._anywhere(fast, gpu_type, racks, extra, rho)

    def _counts(self, job: Job, held: Gpus) -> list[Gpus]:
        """Beside what it holds."""
        counts = [n for n in range(1, self._extra + 1) if job.gpus.feasible(held + n)]
        if len(counts) <= ONE_BY_ONE:
            return counts
        self.exact = False
        return [counts[at - 1] for at in steps(len(counts), 4 / ONE_BY_ONE)]

    def _not_slower(self, job: Job, gpu_type: GpuType, gpus: Gpus, types: Sequence[GpuType]) -> set[GpuType]:
        """Types on which a gang of so many GPUs is at least as fast: they do not hold it back."""
        if self._value.gangs.one_type:
            return {gpu_type}
        speed = self._value.gangs.speed
        least = speed(job, [Chunk(gpu_type, "", gpus)])
        return {t for t in types if speed(job, [Chunk(t, "", gpus)]) >= least}

    def _same_node(self, extra: Gpus, rho: Rho) -> Iterator[Row]:
        (base,) = self._base
        for i, c in enumerate(self._classes):
            if c.nodes == (self._base_nodes[0],) and self._usable[i] >= extra:
                gang = [Chunk(base.gpu_type, base.rack, base.gpus + extra)]
                yield Row(rho(gang), extra, (Demand((i,), extra, 1),))

    def _anywhere(
        self, fast: set[GpuType], gpu_type: GpuType, racks: Sequence[str], extra: Gpus, rho: Rho
    ) -> Iterator[Row]:
        domain, room, across = self._domain(frozenset(fast), tuple(racks))
        if room < extra:
            return
        away = "elsewhere" if across else racks[0]
        if self._base:
            gang = [*self._base, Chunk(gpu_type, away, extra)]
        elif extra > 1:
            gang = [Chunk(gpu_type, racks[0], extra - 1), Chunk(gpu_type, away, 1)]
        else:
            gang = [Chunk(gpu_type, racks[0], 1)]
        yield Row(rho(gang), extra, (Demand(domain, 1, extra),))

    def _domain(self, types: frozenset[GpuType], racks: tuple[str, ...]) -> tuple[tuple[int, ...], Gpus, bool]:
        """The classes of these types and racks, their GPUs, and whether they and what is held lie in several racks."""
        known = self._domains.get((types, racks))
        if known is None:
            domain = tuple(
                i
                for i, c in enumerate(self._classes)
                if c.gpu_type in types and c.rack in racks and self._usable[i] > 0
            )
            room = sum(self._usable[i] * len(self._classes[i].nodes) for i in domain)
            there = {self._classes[i].rack for i in domain} | {c.rack for c in self._base}
            known = self._domains[types, racks] = domain, room, len(there) > 1
        return known

    def _one_job_equal(self, job: Job, rho: Rho) -> Iterator[Row]:
        """Where a job needs as many GPUs on each of its nodes: w whole nodes' worth, or a layer on those it has."""
        held = sum(c.gpus for c in self._base)
        sizes = {c.gpus for c in self._base}
        index_of = {n: i for i, c in enumerate(self._classes) for n in c.nodes}
        if len(sizes) > 1:
            return
        if self._base and all(n in index_of for n in self._base_nodes):
            own = [index_of[n] for n in self._base_nodes]
            for layer in range(1, min(self._usable[i] for i in own) + 1):
                extra = layer * len(own)
                if extra <= self._extra and job.gpus.feasible(held + extra):
                    gang = [Chunk(c.gpu_type, c.rack, c.gpus + layer) for c in self._base]
                    yield Row(rho(gang), extra, tuple(Demand((i,), layer, 1) for i in own))
        others = [i for i, c in enumerate(self._classes) if not set(c.nodes) & set(self._base_nodes)]
        types = sorted({self._classes[i].gpu_type for i in others})
        racks = sorted({self._classes[i].rack for i in others})
        base_types, base_racks = {c.gpu_type for c in self._base}, {c.rack for c in self._base}
        for each in sorted(sizes) or range(1, max((self._usable[i] for i in others), default=0) + 1):
            for gpu_type in types:
                if self._value.gangs.one_type and base_types - {gpu_type}:
                    continue
                for some in [*((r,) for r in racks if base_racks <= {r}), tuple(racks)]:
                    roomy = [i for i in others if self._usable[i] >= each and self._classes[i].rack in some]
                    nodes = sum(len(self._classes[i].nodes) for i in roomy)
                    for count in range(1, min(nodes, self._extra // each) + 1):
                        if not job.gpus.feasible(held + each * count):
                            continue
                        fast = self._not_slower(job, gpu_type, held + each * count, types)
                        domain = tuple(i for i in roomy if self._classes[i].gpu_type in fast)
                        if sum(len(self._classes[i].nodes) for i in domain) < count:
                            continue
                        away = some[-1] if len(some) > 1 else some[0]
                        gang = [*self._base, *[Chunk(gpu_type, some[0], each)] * (count - 1)]
                        gang.append(Chunk(gpu_type, away, each))
                        yield Row(rho(gang), each * count, (Demand(domain, each, count, count > 1),))

    # --- several jobs ---

    def _vectors(self) -> int:
        out = 1
        for i, c in enumerate(self._classes):
            out *= comb(len(c.nodes) + self._usable[i], self._usable[i])
            if out > self._bound * 64:
                break
        return out

    def _whole(self) -> Iterator[Row]:
        by_node = dict(zip(self._base_nodes, self._base, strict=True))

        def extend(at: int, left: Gpus, chunks: list[tuple[int, Gpus]]) -> Iterator[list[tuple[int, Gpus]]]:
            if at == len(self._classes):
                if chunks:
                    yield chunks
                return
            nodes = len(self._classes[at].nodes)
            for part in _multisets(nodes, min(self._usable[at], left), left):
                yield from extend(at + 1, left - sum(part), [*chunks, *((at, g) for g in part)])

        for chunks in extend(0, self._extra, []):
            merged = dict(by_node)
            loose: list[Chunk] = []
            for i, gpus in chunks:
                c = self._classes[i]
                if len(c.nodes) == 1 and c.nodes[0] in merged:
                    before = merged[c.nodes[0]]
                    merged[c.nodes[0]] = before._replace(gpus=before.gpus + gpus)
                else:
                    loose.append(Chunk(c.gpu_type, c.rack, gpus))
            demands = tuple(
                Demand((i,), gpus, count, self._value.gangs.equal)
                for (i, gpus), count in sorted(Counter(chunks).items())
            )
            rho = self._value.rho(canonical([*merged.values(), *loose]))
            yield Row(rho, sum(g for _, g in chunks), demands)

    def _regular(self) -> Iterator[Row]:
        racks = sorted({c.rack for c in self._classes})
        base_racks = {c.rack for c in self._base}
        types = sorted({c.gpu_type for c in self._classes})
        sizes = {u for u in self._usable if u} | {2**k for k in range(max(self._usable).bit_length())}
        for gpu_type in types:
            fast = {t for t in types if t == gpu_type or self._never_slower(t, gpu_type)}
            for each in sorted(s for s in sizes if s <= max(self._usable)):
                for some in [*((r,) for r in racks if base_racks <= {r} and len(racks) > 1), tuple(racks)]:
                    domain = tuple(
                        i
                        for i, c in enumerate(self._classes)
                        if c.gpu_type in fast and c.rack in some and self._usable[i] >= each
                    )
                    room = sum(self._usable[i] // each * len(self._classes[i].nodes) for i in domain)
                    for count in steps(min(room, self._extra // each), self._thrift / 8):
                        if count == 1 and len(some) == 1 and not self._base:
                            continue  # one chunk: any rack will do
                        yield self._equal_chunks(gpu_type, some, each, count, domain)

    def _never_slower(self, other: GpuType, gpu_type: GpuType) -> bool:
        gangs = self._value.gangs
        if gangs.one_type:
            return False
        for job in self._value.jobs:
            gang = 0
            while (step := job.gpus.above(gang)) is not None and step <= self._extra:
                gang = step
                if gangs.speed(job, [Chunk(other, "", gang)]) < gangs.speed(job, [Chunk(gpu_type, "", gang)]):
                    return False
        return True

    def _equal_chunks(
        self, gpu_type: GpuType, racks: Sequence[str], each: Gpus, count: int, domain: tuple[int, ...]
    ) -> Row:
        names = [racks[0]] * count if len(racks) == 1 else [f"{k}?" for k in range(count)]
        chunks = [*self._base, *(Chunk(gpu_type, name, each) for name in names)]
        equal = self._value.gangs.equal and count > 1
        return Row(self._value.rho(canonical(chunks)), each * count, (Demand(domain, each, count, equal),))


def _multisets(nodes: int, most: Gpus, left: Gpus) -> Iterator[tuple[Gpus, ...]]:
    """Chunks on at most `nodes` equal nodes: each at most `most`, at most `left` together; largest first."""
    yield ()
    if nodes == 0:
        return
    for first in range(1, most + 1):
        for rest in _multisets(nodes - 1, min(first, left - first), left - first):
            yield (first, *rest)


def _prune(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows of one demand each (or a few): drop what a kept row dominates."""
    kept: list[Row] = []
    asked: dict[int, dict[tuple[Gpus, bool], Demand]] = {}  #: the least of its kind by classes that do, a bit each
    masks: dict[tuple[int, ...], int] = {}
    for row in sorted(rows, key=lambda r: (r.rho, r.gpus, -len(r.demands[0].domain), r.demands)):
        if len(row.demands) == 1:
            mine = row.demands[0]
            mask = masks.get(mine.domain)
            if mask is None:
                mask = sum(1 << i for i in mine.domain)
                masks[mine.domain] = mask
            if _met(mine, mask, asked):
                continue
            alike = asked.setdefault(mask, {})
            least = alike.get((mine.chunk, mine.apart))
            if least is None or mine.times < least.times:
                alike[mine.chunk, mine.apart] = mine
        kept.append(row)
    return tuple(kept)


def _met(mine: Demand, mask: int, asked: Mapping[int, Mapping[tuple[Gpus, bool], Demand]]) -> bool:
    for at, others in asked.items():
        if mask & ~at:
            continue
        for other in others.values():
            if _no_more(other, mine):
                return True
    return False


def _no_more(theirs: Demand, mine: Demand) -> bool:
    """True if where `mine` can be met, `theirs` (worth at least as much, on the same classes or more) can too."""
    if theirs.chunk > mine.chunk:
        return False
    if theirs.apart and not mine.apart:
        return False
    most = mine.times
    if not theirs.apart:
        most *= mine.chunk // theirs.chunk
    return theirs.times <= most


def _prune_vectors(rows: Sequence[Row], free: Sequence[Gpus]) -> tuple[Row, ...]:
    """Rows over single classes: one dominates another if its chunks fit inside the other's, class by class."""
    starts = np.cumsum([0, *free])
    kept: list[Row] = []
    chunks = np.zeros((len(rows), int(starts[-1])), dtype=np.int16)
    count = 0
    for row in sorted(rows, key=lambda r: (r.rho, r.gpus, r.demands)):
        vector = np.zeros(int(starts[-1]), dtype=np.int16)
        for demand in row.demands:
            begin = int(starts[demand.domain[0]])
            vector[begin : begin + demand.chunk] += demand.times
        if count and bool((chunks[:count] <= vector).all(axis=1).any()):
            continue
        chunks[count] = vector
        count += 1
        kept.append(row)
    return tuple(kept)
