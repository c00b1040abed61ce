"""Whole GPUs on named nodes: a ledger of what is free, and the best place for a gang.

`Placer(snapshot)` starts with every healthy GPU of ours free, whoever holds it now; what jobs hold are *claims*,
which others' placements avoid while they can. A policy asks `best(job, gpus)`, then `take`s it; `give_back` undoes a
take, `drop` says that a job gets nothing, so that its claims stand in nobody's way.

The best place of a gang, the earlier first:

1. one GPU type, if one suffices: the type the job holds, else the one it is fastest on (ties: the newest); else the
   fastest of its types that together do, for a gang runs at the pace of its slowest;
2. the fewest nodes;
3. the narrowest span (one rack before several): S grows with it;
4. it keeps most of what the job holds (AFS §4.4), less what other, not yet placed jobs hold there;
5. the tightest fit, then the order of nodes in the snapshot.

2 and 3 are exact; 4 is exact on one node, and over several it weighs every set of up to `gangs.MOST_HELD_NODES`
nodes held (greedy beyond); 5 is greedy over several nodes.

Never planned: what `Limits` rule out, GPUs of foreign jobs, of nodes that are down, of draining nodes (but a job may
keep what it holds there), CPUs and memory beyond what a node has for us, GPUs beyond a tenant's cap (but a job of a
tenant above it may stay as it is), anything but the shape of a job that has one (what it holds, it keeps as it is).
Where the adapter cannot name nodes (`Pinning`), a job whose size stays keeps its
place, since no plan could move it.

Cost: nodes in equal states are one class, so a gang on one node costs O(classes), a take O(log nodes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from policy.model import EMPTY, Allocation, Code, Gpus, GpuType, Health, Job, JobName, NodeName, Pinning, Snapshot
from policy.places.gangs import NOTHING, Must, Need, Own, divisors, fit, need_of, tightest_node
from policy.places.ledger import Ledger
from policy.throughput import Span, Throughput


class Placer(Ledger):
    """The ledger of one decision, and the places that it leaves. Not thread-safe; deterministic."""

    def __init__(
        self,
        snapshot: Snapshot,
        speeds: Throughput | None = None,
        *,
        taken: Mapping[JobName, Allocation] | None = None,
    ) -> None:
        """`taken`: what all jobs have taken already, which was found to be possible, but for what the shapes ask for;
        who is not in it has nothing."""
        super().__init__(snapshot, speeds, taken=taken)
        # Until a node changes: gangs that found no place, and the free GPUs that a kind of job could use.
        self._nowhere: set[object] = set()
        self._usable: dict[object, int] = {}
        self._possible: dict[object, tuple[bool, frozenset[GpuType]]] = {}
        self._fewest: dict[object, int] = {}
        self._requested: set[object] = set()  #: jobs that could have what they request, by all that it depends on
        self._ranks: dict[tuple[int, Gpus], tuple[GpuType, ...]] = {}

    def _leave(self, i: int) -> None:
        self._nowhere.clear()
        self._usable.clear()
        super()._leave(i)

    # --- places --------------------------------------------------------------------------------------------

    def best(
        self, job: Job, gpus: Gpus, gpu_type: GpuType | None = None, *, at_least: Allocation = EMPTY
    ) -> Allocation | None:
        """The best place for `gpus` GPUs of `job` (see the module's text), or None where there is none.

        `gpu_type`: only there. `at_least`: GPUs that must be part of it (unexpired leases). The job must not have
        taken anything; whether a gang of this size can run is the caller's business.
        """
        if gpus <= 0:
            return EMPTY
        room = self.room(job.tenant)
        if room is not None and gpus > room:
            return self._holds_on(job) if gpus == job.held else None
        if (self.limits.pinning is not Pinning.EXACT or job.shape) and gpus == job.held and not at_least:
            stay = self.keep(job)
            if stay is not None and (gpu_type is None or set(self.speeds.by_type(stay)) == {gpu_type}):
                return stay
        need = need_of(job)
        alike = (self.speeds.kind(job), job.cpus_per_gpu, job.memory_per_gpu, gpus, gpu_type)
        if alike in self._nowhere and not job.allocation and not at_least:
            return None
        place = None
        if not job.allocation and not at_least:
            place = self._on_one_node(job, need, gpus, gpu_type)
        place = place or self._search(job, need, gpus, gpu_type, at_least)
        if place is None and not job.allocation and not at_least:
            self._nowhere.add(alike)
        return place

    def _on_one_node(self, job: Job, need: Need, gpus: Gpus, gpu_type: GpuType | None) -> Allocation | None:
        """What `_search` finds for most jobs that hold nothing: a node of the first type with room. None: it may find
        something all the same."""
        i = self._tightest(job, need, gpus, gpu_type)
        return None if i is None else {self._nodes[i].whole.name: gpus}

    def _tightest(self, job: Job, need: Need, gpus: Gpus, gpu_type: GpuType | None) -> int | None:
        for one in self._types(job, gpus, gpu_type):
            if self._free[one] >= gpus:
                return tightest_node(self._by_type[one], need, gpus)
        return None

    def plain(self, job: Job) -> bool:
        """Whether it holds nothing, brings nothing along and has no shape, and nobody has a cap."""
        return not job.allocation and not self._caps and need_of(job) is NOTHING

    def take_alike(self, jobs: Sequence[Job], gpus: Gpus, gpu_type: GpuType | None = None) -> int:
        """What `best` finds for one of `jobs` after the other is taken, up to the first who has to look beyond
        one node of one type; returns how many took. They are `plain`, and of one kind.

        Who takes the tightest node leaves it tighter: it is the next one's too, until others would lose by it.
        """
        done = 0
        while done < len(jobs):
            i = self._tightest(jobs[0], NOTHING, gpus, gpu_type)
            if i is None:
                break
            node = self._nodes[i]
            gangs = max(node.free - node.claimed, gpus) // gpus
            here = jobs[done : done + gangs]
            self._leave(i)
            node.free -= gpus * len(here)
            self._enter(i)
            for job in here:
                self.taken[job.name] = {node.whole.name: gpus}
                self._used[job.tenant] = self._used.get(job.tenant, 0) + gpus
            done += len(here)
        return done

    def best_without(self, job: Job, gpus: Gpus, kept: Mapping[NodeName, Gpus]) -> Allocation | None:
        """As `best`, were so many of the free GPUs of these nodes taken."""
        with self.withheld(kept):
            return self.best(job, gpus)

    def _search(
        self, job: Job, need: Need, gpus: Gpus, gpu_type: GpuType | None, at_least: Allocation
    ) -> Allocation | None:
        own = self._own(job, need)
        must = {self._index[n]: g for n, g in at_least.items()}
        for one in self._types(job, gpus, gpu_type):
            if (found := self._in_type(one, need, gpus, own, must, self._equal(job))) is not None:
                return self._as_held(job, self._named(found), gpu_type, at_least)
        return next(self._mixed(job, need, gpus, own, at_least), None) if gpu_type is None else None

    def on_several_types(self, job: Job, gpus: Gpus) -> Iterator[Allocation]:
        """The best places on GPUs of several of its types, also where one type alone has a place: of those on which it
        is fastest, then of the next too (it runs at the pace of its slowest), and so on. The job must not have taken
        anything, and its tenant have room for it."""
        need = need_of(job)
        return self._mixed(job, need, gpus, self._own(job, need), EMPTY)

    def _mixed(self, job: Job, need: Need, gpus: Gpus, own: Own, at_least: Allocation) -> Iterator[Allocation]:
        types = () if self.limits.one_type_per_job else self._types(job, gpus, None)
        rates = sorted(((-(self.speeds.at(job, t, gpus) or 0.0), i, t) for i, t in enumerate(types)))
        must = {self._index[n]: g for n, g in at_least.items()}
        for count in range(2, len(rates) + 1):
            if count < len(rates) and rates[count][0] == rates[count - 1][0]:
                continue  # the next is no slower
            those = tuple(t for _, _, t in rates[:count])
            beside = {i: v for i, v in own.items() if self._nodes[i].whole.gpu_type in those}
            found = fit([self._by_type[t] for t in those], need, gpus, beside, must, self._equal(job))
            both = self._narrow(those, found, need, beside, must, self._equal(job))
            if both is not None:
                yield self._as_held(job, self._named(both), None, at_least)

    def _as_held(self, job: Job, place: Allocation, gpu_type: GpuType | None, at_least: Allocation) -> Allocation:
        """What the job holds, where that is as good as `place`: no more nodes, no wider span, no slower types."""
        had, speeds = job.allocation, self.speeds
        if len(place) == 1 or len(had) != len(place) or had == place or job.held != sum(place.values()):
            return place
        types, rate = set(speeds.by_type(had)), speeds.rate(job, place) or 0.0
        alike = types <= set(speeds.by_type(place)) or (gpu_type is None and (speeds.rate(job, had) or 0.0) >= rate)
        if not alike or speeds.span(had) > speeds.span(place):
            return place
        if any(had.get(n, 0) < g for n, g in at_least.items()):
            return place
        return dict(had) if self.could_take(job, had) else place

    def keep(self, job: Job) -> Allocation | None:
        """What the job holds, if that is a gang and all of it can be held on; else None."""
        return self._holds_on(job) if job.gpus.feasible(job.held) else None

    def _holds_on(self, job: Job) -> Allocation | None:
        if not job.allocation or not self._has_room(job, job.allocation) or not self.could_take(job, job.allocation):
            return None
        return dict(job.allocation)

    def why_not(self, job: Job, gpus: Gpus) -> Code:
        """Why `best(job, gpus)` finds nothing."""
        if not self.possible(job, gpus):
            return Code.INFEASIBLE
        room = self.room(job.tenant)
        if room is not None and gpus > room:
            return Code.WAITS_CAP
        need = need_of(job)
        alike = (self.speeds.kind(job), job.cpus_per_gpu, job.memory_per_gpu, gpus)
        free = self._usable.get(alike)
        if free is None:
            free = 0
            for t in self._types(job, gpus, None):
                for (gpus_free, _, cpus, memory, traits, *_), at in self._by_type[t].items():
                    free += need.usable(gpus_free, cpus, memory, traits) * len(at)
            self._usable[alike] = free
        return Code.WAITS_GANG if free >= gpus else Code.WAITS_CAPACITY

    def usual(self, job: Job, *, anew: bool = False) -> Gpus:
        """The gang of a policy that gives jobs what they request: that, or what is the largest of the job's sizes below
        it that the nodes that are up (or what the job holds) and its tenant's cap could ever hold. Where none could,
        the requested size, so that `why_not` says what is in the way. `anew`: whatever it holds."""
        cap = self._caps.get(job.tenant)
        size = job.gpus.requested
        alike = (self.speeds.kind(job), size, job.cpus_per_gpu, job.memory_per_gpu)
        if cap is None and alike in self._requested:
            return size
        if cap is not None and size > cap and (anew or size != job.held or self.keep(job) is None):
            size = job.gpus.at_most(cap)
        while size and not self.possible(job, size):
            if not anew and size == job.held and self._runs_on(job):
                return size
            size = job.gpus.at_most(min(size - 1, self._most(job)))
        if size == job.gpus.requested:
            self._requested.add(alike)
        return size or job.gpus.requested

    def _runs_on(self, job: Job) -> bool:
        """Whether it could hold on to what it holds, and does something there."""
        stay = self.keep(job)
        if stay is None:
            return False
        return not job.throughput or self.speeds.rate(job, stay) != 0.0

    def _most(self, job: Job) -> Gpus:
        """All GPUs of nodes that are up of the types that the job runs on."""
        types = self.speeds.types(job)
        return sum(n.whole.gpus - n.whole.foreign for n in self._nodes if n.new and n.whole.gpu_type in types)

    def possible(self, job: Job, gpus: Gpus, gpu_type: GpuType | None = None) -> bool:
        """True if the gang would fit on the nodes that are up, or on those of this type, with nothing else of ours
        there."""
        alike = (self.speeds.kind(job), job.cpus_per_gpu, job.memory_per_gpu, gpus)
        found = self._possible.get(alike)
        if found is None:
            found = self._possible[alike] = self._ever(job, gpus)
        ever, alone = found
        return ever if gpu_type is None else gpu_type in alone

    def _ever(self, job: Job, gpus: Gpus) -> tuple[bool, frozenset[GpuType]]:
        """(whether it fits at all, types that hold it alone)."""
        need = need_of(job)
        offers: dict[GpuType, list[int]] = {t: [] for t in self._types(job, gpus, None)}
        for node in self._nodes:
            n = node.whole
            if node.new and n.gpu_type in offers:
                memory = None if n.memory is None else float(n.memory)
                traits = (node.features, not n.foreign)
                offers[n.gpu_type].append(need.usable(n.gpus - n.foreign, n.cpus, memory, traits))
        even = self._equal(job)
        if need.most_nodes is not None:
            offers = {t: sorted(group, reverse=True)[: need.most_nodes] for t, group in offers.items()}
        alone = frozenset(t for t, group in offers.items() if self._holds(group, gpus, even))
        every = sorted((u for group in offers.values() for u in group), reverse=True)[: need.most_nodes]
        return bool(alone) or (not self.limits.one_type_per_job and self._holds(every, gpus, even)), alone

    def fewest(self, job: Job, gpus: Gpus, allocation: Allocation) -> int:
        """On how few nodes a gang would fit with nothing else of ours there, of the types that `allocation` uses."""
        types = tuple(sorted(self.speeds.by_type(allocation)))
        need = need_of(job)
        key = ("fewest", need, types, gpus)
        found = self._fewest.get(key)
        if found is None:
            offers = sorted(
                (
                    need.usable(
                        n.gpus - n.foreign,
                        n.cpus,
                        None if n.memory is None else float(n.memory),
                        (node.features, not n.foreign),
                    )
                    for node, n in ((node, node.whole) for node in self._nodes)
                    if n.gpu_type in types and n.health is not Health.DOWN
                ),
                reverse=True,
            )
            found, left = 0, gpus
            while left > 0 and found < len(offers):
                left -= offers[found]
                found += 1
            if self._equal(job):
                equal = (k for k in divisors(gpus) if sum(o >= gpus // k for o in offers) >= k)
                found = next(equal, found)
            self._fewest[key] = found
        return found

    def _holds(self, offers: list[int], gpus: Gpus, equal: bool) -> bool:
        if not equal:
            return sum(offers) >= gpus
        return any(sum(u >= gpus // k for u in offers) >= k for k in divisors(gpus))

    def _named(self, found: Mapping[int, int]) -> Allocation:
        return {self._nodes[i].whole.name: found[i] for i in sorted(found)}

    # --- the search ----------------------------------------------------------------------------------------

    def _types(self, job: Job, gpus: Gpus, gpu_type: GpuType | None) -> tuple[GpuType, ...]:
        """The types where a gang of this size can run, the one to try first, first."""
        if gpu_type is not None:
            fits = gpu_type in self.speeds.types(job) and self.speeds.at(job, gpu_type, gpus) != 0.0
            return (gpu_type,) if fits else ()
        key = (self.speeds.kind(job), gpus)
        order = self._ranks.get(key)
        if order is None:
            ranked = []
            for i, t in enumerate(self.speeds.types(job)):
                rate = self.speeds.at(job, t, gpus)
                if rate != 0.0:
                    ranked.append((-(rate or 0.0), -i, t))
            order = tuple(t for _, _, t in sorted(ranked))
            if job.gpu_types is not None and job.gpu_types.prefer:
                order = tuple(sorted(order, key=lambda t: t not in job.gpu_types.prefer if job.gpu_types else True))
            self._ranks[key] = order
        if job.allocation and len(order) > 1:
            held = self.speeds.by_type(job.allocation)
            return tuple(sorted(order, key=lambda t: -held.get(t, 0)))
        return order

    def _own(self, job: Job, need: Need) -> dict[int, tuple[int, int, int]]:
        """Nodes where the job holds GPUs that it could have again; see `gangs.Own`."""
        out: dict[int, tuple[int, int, int]] = {}
        mine = self._claims.get(job.name, {})
        for i, gpus in self._known(job.allocation).items():
            node = self._nodes[i]
            usable = need.usable(node.free, node.cpus, node.memory, node.traits)
            if not node.new:
                usable = min(usable, gpus)
            if usable > 0:
                calm = node.free - (node.claimed - mine.get(i, 0))
                out[i] = (usable, min(gpus, usable), max(min(usable, calm), 0))
        return out

    def _in_type(
        self, gpu_type: GpuType, need: Need, gpus: Gpus, held: Own, must: Must, equal: bool
    ) -> dict[int, int] | None:
        own = {i: v for i, v in held.items() if self._nodes[i].whole.gpu_type == gpu_type} if held else {}
        beside = sum(v[0] for i, v in own.items() if not self._nodes[i].new)
        if self._free[gpu_type] + beside < gpus:
            return None
        found = fit([self._by_type[gpu_type]], need, gpus, own, must, equal)
        return self._narrow((gpu_type,), found, need, own, must, equal)

    def _narrow(
        self,
        types: tuple[GpuType, ...],
        found: dict[int, int] | None,
        need: Need,
        own: Own,
        must: Must,
        equal: bool,
    ) -> dict[int, int] | None:
        """`found`, or as many nodes of these types within one rack."""
        if found is None or self.speeds.span(self._nodes[i].whole.name for i in found) < Span.CLUSTER:
            return found
        return self._one_rack(types, need, sum(found.values()), own, must, equal, len(found)) or found

    def _one_rack(
        self, types: tuple[GpuType, ...], need: Need, gpus: Gpus, own: Own, must: Must, equal: bool, nodes: int
    ) -> dict[int, int] | None:
        """A fit on as few nodes within one rack: the rack where most is kept, then the fullest that holds it."""
        kept: dict[str | None, int] = {}
        beside: dict[str | None, int] = {}
        for i, (usable, was, _) in own.items():
            rack = self._nodes[i].whole.rack
            kept[rack] = kept.get(rack, 0) + was
            if not self._nodes[i].new:
                beside[rack] = beside.get(rack, 0) + usable
        by_rack = self._classes_by_rack()
        place = {rack: n for n, rack in enumerate(dict.fromkeys(r for t in types for r in by_rack[t]))}
        free = {rack: sum(self._rack_free.get((t, rack), 0) for t in types) for rack in place}
        best: tuple[int, dict[int, int]] | None = None
        for rack in sorted(place, key=lambda r: (-kept.get(r, 0), free[r], place[r])):
            if best is not None and kept.get(rack, 0) <= best[0]:
                break
            if free[rack] + beside.get(rack, 0) < gpus:
                continue
            if any(self._nodes[i].whole.rack != rack for i in must):
                continue
            inside = {i: v for i, v in own.items() if self._nodes[i].whole.rack == rack}
            classes = [by_rack[t][rack] for t in types if rack in by_rack[t]]
            found = fit(classes, need, gpus, inside, must, equal)
            if found is not None and len(found) == nodes:
                keeps = sum(min(g, own[i][1]) for i, g in found.items() if i in own)
                if best is None or keeps > best[0]:
                    best = (keeps, found)
        return None if best is None else best[1]
