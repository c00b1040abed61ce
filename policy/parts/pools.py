"""How many GPUs of each type can still be handed out, for policies that decide counts before places.

An elastic policy hands out GPUs step by step: a job goes from one size of its gang to the next. `Pools` knows which
step comes next and whether it can be had: GPUs of its type are left, its tenant's cap allows it, and it makes the job
faster. With its first step a job is bound to one GPU type, the one it is fastest on among those with room (ties: the
newest, whatever it holds: `policy/parts/assign.py` moves nobody for a tie, and what a job is to have must not depend
on what it was given last). GPUs on draining nodes count for the jobs that hold them and for nobody else.

Two kinds of job are bound to no type, where the cluster can carry out gangs of several types: they take GPUs of those
on which they may run as they come. One whose speed nobody knows counts one a GPU on every type: who comes first would
else fill the type that everybody picks, and the next be left with what is over. And one whose smallest gang is wider
than every type, which would else have nothing but what all others leave idle: it runs at the pace of its slowest type.
So a *pool* is a type, some of them, or all (`ANY`); what is taken of a pool counts against every pool that it is part
of (Hall's condition: then there are GPUs for all).

A step is *useful* if it is strictly faster than what the job has; sizes between that are not are skipped. A job
without a throughput table is taken to scale linearly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.model import Gpus, GpuType, Health, Job, JobName, NodeName, Snapshot
from policy.places.placement import Placer
from policy.places.shapes import beside
from policy.records import quick
from policy.throughput import NOISE, Span, Throughput

#: The pool of a job that takes GPUs of any type, as they come.
ANY: GpuType = ""
#: Pools of some types: their unions, of which there may be two to the power of this, are looked through for each step.
MOST_POOLS = 6
#: Between the types of a pool of some: no type's name has it.
_AND = "\x00"


@quick
@dataclass(frozen=True, slots=True)
class Step:
    """The next size of a job: `gpus` of `gpu_type` (or a pool of several), `add` more than now."""

    gpu_type: GpuType
    gpus: Gpus
    add: Gpus


@dataclass(frozen=True, slots=True)
class Counted:
    """What jobs are to have, without a place for it, and the policy's state."""

    gpus: Mapping[JobName, Gpus]
    state: Mapping[str, Any] = field(default_factory=dict)


def _held_on(nodes: Mapping[NodeName, GpuType], jobs: Iterable[Job]) -> dict[JobName, dict[GpuType, Gpus]]:
    """GPUs that jobs hold on these nodes, by type."""
    found: dict[JobName, dict[GpuType, Gpus]] = {}
    for job in jobs:
        for node in nodes.keys() & job.allocation.keys():
            own = found.setdefault(job.name, {})
            own[nodes[node]] = own.get(nodes[node], 0) + job.allocation[node]
    return found


class Pools:
    """What is left of each GPU type and what each job has got. Deterministic."""

    def __init__(self, snapshot: Snapshot, speeds: Throughput, *, widest: bool = False, mixed: bool = True) -> None:
        """`widest`: count the slowdown of the narrowest span that holds a gang; else the table alone. `mixed` False:
        every job is bound to a type."""
        self.speeds = speeds
        self._snapshot = snapshot
        self._places: Placer | None = None  #: nothing taken; once it was asked for
        self._mixed = mixed and not snapshot.cluster.limits.one_type_per_job and len(speeds.present) > 1
        self.count: dict[JobName, Gpus] = {}
        self.type: dict[JobName, GpuType] = {}
        self.free: dict[GpuType, int] = dict.fromkeys(speeds.present, 0)
        self._caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
        self._used: dict[str, int] = {}
        self._stay: dict[str, int] = {}
        self._newest = {t: i for i, t in enumerate(speeds.present)}
        draining: dict[str, GpuType] = {}
        self._size: dict[NodeName, Gpus] = {}  #: of healthy nodes
        self._node_size: dict[GpuType, int] = {}
        self._rack_size: dict[GpuType, int] = {}
        racks: dict[tuple[GpuType, str | None], int] = {}
        for n in snapshot.cluster.nodes:
            size = n.gpus - n.foreign
            if n.health is Health.UP:
                self.free[n.gpu_type] += size
                self._size[n.name] = size
                self._node_size[n.gpu_type] = max(self._node_size.get(n.gpu_type, 0), size)
                racks[n.gpu_type, n.rack] = racks.get((n.gpu_type, n.rack), 0) + size
                self._rack_size[n.gpu_type] = max(self._rack_size.get(n.gpu_type, 0), racks[n.gpu_type, n.rack])
            elif n.health is Health.DRAIN:
                draining[n.name] = n.gpu_type
        self._whole = dict(self.free)
        self._spare = sum(self.free.values())  #: of all types together, less what unbound jobs have taken
        self._some: dict[GpuType, Gpus] = {}  #: what was taken of pools of some types
        self._unions: list[frozenset[GpuType]] = []  #: of such pools
        self._own = _held_on(draining, snapshot.jobs) if draining else {}
        self._alone = {job.name for job in snapshot.jobs if job.shape is not None and job.shape.exclusive}
        self._known_beside: dict[tuple[JobName, GpuType], Gpus] = {}  #: taken with the first step
        self._plain = not self._caps and not self._own and not self._alone  #: what is left is the same for every job
        self._widest = widest
        # By kind of job, type and size: what a gang makes there, and the next size that helps.
        self._rates: dict[tuple[int, GpuType, Gpus], float] = {}
        self._next: dict[tuple[int, GpuType, Gpus], Gpus | None] = {}
        self._firsts: dict[int, list[Step]] = {}  #: by kind of job, the fastest first

    def rate(self, job: Job, gpu_type: GpuType, gpus: Gpus) -> float:
        """iterations/s of a gang; per GPU 1 where no speed is known."""
        if gpus == 0:
            return 0.0
        key = (self.speeds.kind(job), gpu_type, gpus)
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._rate(job, gpu_type, gpus)
        return found

    def _rate(self, job: Job, gpu_type: GpuType, gpus: Gpus) -> float:
        if not job.throughput:
            rate = float(gpus)
        elif gpu_type not in self.free:
            rate = min(rate for _, rate in self.speeds.by_types(job, gpus))
        else:
            rate = self.speeds.at(job, gpu_type, gpus) or 0.0
        if not self._widest:
            return rate
        if gpus <= self._largest(self._node_size, gpu_type):
            span = Span.NODE
        else:
            span = Span.RACK if gpus <= self._largest(self._rack_size, gpu_type) else Span.CLUSTER
        return rate / self.speeds.slowdown(job, span)

    def _parts(self, pool: GpuType) -> tuple[GpuType, ...]:
        """The types of a pool."""
        return self.speeds.present if pool == ANY else tuple(pool.split(_AND))

    def _largest(self, sizes: Mapping[GpuType, Gpus], pool: GpuType) -> Gpus:
        return max((sizes.get(t, 0) for t in self._parts(pool)), default=0)

    def _together(self, types: tuple[GpuType, ...]) -> tuple[GpuType, ...]:
        """The pool of several types; the types themselves, where there are too many such pools already."""
        if len(types) == len(self.speeds.present):
            return (ANY,)
        pool, mine = _AND.join(types), frozenset(types)
        if pool not in self._some:
            if len(self._some) == MOST_POOLS:
                return types
            self._some[pool] = 0
            self._unions += {mine, *(mine | other for other in self._unions)} - set(self._unions)
        return (pool,)

    def _of(self, pool: GpuType) -> Gpus:
        """What is left of a pool."""
        left = min(self.free.get(pool, self._spare), self._spare)
        if self._some and pool != ANY:
            left = min([left, *(self._of_all(u) for u in self._unions if u.issuperset(self._parts(pool)))])
        return left

    def _of_all(self, types: frozenset[GpuType]) -> Gpus:
        """Of some types together, what pools within them have left."""
        taken = sum(gpus for pool, gpus in self._some.items() if types.issuperset(self._parts(pool)))
        return sum(self.free[t] for t in types) - taken

    def room(self, job: Job, gpu_type: GpuType) -> Gpus:
        """GPUs of the type that the job could get on top of what it has."""
        left = self._left(job, gpu_type)
        cap = self._caps.get(job.tenant) if self._caps else None
        return left if cap is None else min(left, cap - self._used.get(job.tenant, 0))

    @property
    def left(self) -> Gpus:
        """GPUs of all types that nobody has taken."""
        return self._spare

    @property
    def empty(self) -> bool:
        """True if no step of anybody fits any more."""
        return self._spare <= 0 and not self._own

    def _left(self, job: Job, gpu_type: GpuType) -> Gpus:
        left = self._of(gpu_type) - (0 if self.count.get(job.name) else self.beside(job, gpu_type))
        if not self._own:
            return left
        return left + max(self._own_on(job, gpu_type) - self.count.get(job.name, 0), 0)

    def beside(self, job: Job, pool: GpuType) -> Gpus:
        """GPUs of the pool that nobody has beside the job, where it shares no node."""
        if job.name not in self._alone:
            return 0
        key = (job.name, pool)
        if key not in self._known_beside:
            gpu_type = pool if pool in self.free else None
            self._known_beside[key] = beside(job, gpu_type, self._empty(), self._size)
        return self._known_beside[key]

    def _own_on(self, job: Job, gpu_type: GpuType) -> Gpus:
        """GPUs of draining nodes that the job holds."""
        own = self._own.get(job.name)
        if own is None:
            return 0
        return sum(own.get(t, 0) for t in self._parts(gpu_type))

    def _types(self, job: Job) -> tuple[GpuType, ...]:
        types = self.speeds.types(job)
        if not self._mixed or len(types) < 2:  # its user's word on types binds a job: of no type, it has no room
            return types
        unbound = not job.throughput or (job.gpus.above(0) or 0) > max(self._whole[t] for t in types)
        return self._together(types) if unbound else types

    def next_step(self, job: Job) -> Step | None:
        """The next useful step, whether there is room for it or not; None: more GPUs would not help."""
        has = self.count.get(job.name, 0)
        if has == 0:
            return self.first_step(job)
        gpu_type = self.type[job.name]
        size = self._useful(job, gpu_type, has)
        return None if size is None else Step(gpu_type, size, size - has)

    def first_step(self, job: Job) -> Step | None:
        """The smallest gang, on the type where it is fastest and has room; else where it would be fastest."""
        kind = self.speeds.kind(job)
        steps = self._firsts.get(kind)
        if steps is None:
            sizes = ((t, self._useful(job, t, 0)) for t in self._types(job))
            found = [Step(t, size, size) for t, size in sizes if size is not None]
            found.sort(key=lambda s: (-self.rate(job, s.gpu_type, s.gpus), -self._newest.get(s.gpu_type, 0)))
            steps = self._firsts[kind] = found
        if self._plain:
            for step in steps:
                if self._there(step.gpu_type, step.gpus):
                    return step
            return steps[0] if steps else None
        return next((s for s in steps if s.gpus <= self.room(job, s.gpu_type)), steps[0] if steps else None)

    def _useful(self, job: Job, gpu_type: GpuType, has: Gpus) -> Gpus | None:
        key = (self.speeds.kind(job), gpu_type, has)
        if key not in self._next:
            self._next[key] = self._above(job, gpu_type, has)
        return self._next[key]

    def _above(self, job: Job, gpu_type: GpuType, has: Gpus) -> Gpus | None:
        now = self.rate(job, gpu_type, has)
        size = job.gpus.above(has)
        curves = self.speeds.curves(job)
        points = (curves[t].points[-1] for t in self._parts(gpu_type) if t in curves)
        # Beyond the last point the curve is a line through (0, 0): where it does not help once, it never will
        # (unless the span widens there, so look a little further).
        last = max(*points, 1, has) + 1
        if self._widest:
            last += self._largest(self._rack_size, gpu_type)
        while size is not None:
            if self.rate(job, gpu_type, size) > now * (1 + NOISE):
                return size
            if size > last:
                return None
            size = job.gpus.above(size)
        return None

    def fits(self, job: Job, step: Step) -> bool:
        """True if there is room for the step. Once False it stays so: room only shrinks."""
        if self._plain:
            return self._there(step.gpu_type, step.add)
        if self._stays(job, step):
            return step.add <= self._left(job, step.gpu_type)
        return step.add <= self.room(job, step.gpu_type)

    def _there(self, gpu_type: GpuType, gpus: Gpus) -> bool:
        """Whether so many are left, where that is the same for every job."""
        if self._some:
            return gpus <= self._of(gpu_type)
        return gpus <= self._spare and (gpu_type == ANY or gpus <= self.free[gpu_type])

    def held_back(self, job: Job, step: Step) -> bool:
        """True if only its tenant's limit is in the way of the step."""
        return not self.fits(job, step) and step.add <= self._left(job, step.gpu_type)

    def wider(self, step: Step) -> bool:
        """True if the step is one that its pool had no room for when nothing was taken."""
        return step.gpus > sum(self._whole[t] for t in self._parts(step.gpu_type))

    def _stays(self, job: Job, step: Step) -> bool:
        """True for a job that a cap cannot touch: it stays as it is, and so do its tenant's others so far."""
        if not self._caps:
            return False
        as_it_is = job.tenant in self._caps and step.gpus == job.held and step.add == step.gpus
        return as_it_is and self._used.get(job.tenant, 0) == self._stay.get(job.tenant, 0) and self._can_stay(job)

    def _can_stay(self, job: Job) -> bool:
        return self._empty().keep(job) is not None

    def _empty(self) -> Placer:
        if self._places is None:
            self._places = Placer(self._snapshot, self.speeds)
        return self._places

    def give(self, job: Job, step: Step) -> None:
        """Take the step."""
        if self._stays(job, step):
            self._stay[job.tenant] = self._stay.get(job.tenant, 0) + step.gpus
        has = self.count.get(job.name, 0)
        from_own = max(min(self._own_on(job, step.gpu_type) - has, step.add), 0) if self._own else 0
        taken = step.add - from_own + (0 if has else self.beside(job, step.gpu_type))
        self._spare -= taken
        if step.gpu_type in self.free:
            self.free[step.gpu_type] -= taken
        elif step.gpu_type in self._some:
            self._some[step.gpu_type] += taken
        self._used[job.tenant] = self._used.get(job.tenant, 0) + step.add
        self.count[job.name] = step.gpus
        self.type[job.name] = step.gpu_type
