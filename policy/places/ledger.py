"""What is free on which node while a decision is made: who takes GPUs, who holds some, what a take may not do."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from policy.model import EMPTY, Allocation, Gpus, GpuType, Health, Job, JobName, Node, NodeName, Snapshot
from policy.places.gangs import NOTHING, PLAIN, Classes, State, Traits, brought, need_of
from policy.throughput import Throughput


@dataclass(slots=True)
class _Node:
    """A node in the ledger. `new`: it takes new work; `claimed`: GPUs that unplaced jobs hold there."""

    whole: Node
    new: bool
    free: int
    claimed: int
    cpus: float | None
    memory: float | None
    features: frozenset[str] = frozenset()  #: of those that a job asks for
    whole_at: int | None = None  #: GPUs free when nobody is there; None: nobody asks

    @property
    def state(self) -> State:
        free, claimed = self.free, self.claimed
        traits = PLAIN if self.whole_at is None and not self.features else self.traits
        return (free, free - claimed if free > claimed else 0, self.cpus, self.memory, traits)

    @property
    def traits(self) -> Traits:
        if self.whole_at is None and not self.features:
            return PLAIN
        return (self.features, self.free == self.whole_at)

    def give(self, gpus: Gpus, job: Job) -> None:
        """Free so many GPUs (negative: take them), and what the job brings along."""
        self.free += gpus
        if self.cpus is None and self.memory is None:
            return
        cpus, memory = brought(job, gpus)
        if self.cpus is not None and cpus:
            self.cpus = round(self.cpus + cpus, 6)
        if self.memory is not None and memory:
            self.memory += memory


class Ledger:
    """GPUs of one decision. `placement.py` says what is counted, and finds places; here they are taken."""

    def __init__(
        self,
        snapshot: Snapshot,
        speeds: Throughput | None = None,
        *,
        taken: Mapping[JobName, Allocation] | None = None,
    ) -> None:
        """`taken`: what all jobs have taken already, which was found to be possible, but for what the shapes ask for;
        who is not in it has nothing."""
        self.speeds = speeds or Throughput(snapshot.cluster)
        self.limits = snapshot.cluster.limits
        self.taken: dict[JobName, Allocation] = {}
        self._nodes: list[_Node] = []
        shapes = [j.shape for j in snapshot.jobs if j.shape is not None]
        asked = frozenset(feature for shape in shapes for feature in shape.features)
        alone = any(shape.exclusive for shape in shapes)
        for n in snapshot.cluster.nodes:
            free = 0 if n.health is Health.DOWN else n.gpus - n.foreign
            memory = None if n.memory is None else float(n.memory)
            whole_at = n.gpus if alone and not n.foreign else None
            features = asked.intersection(n.features)
            self._nodes.append(_Node(n, n.health is Health.UP, free, 0, n.cpus, memory, features, whole_at))
        self._closed: dict[JobName, dict[int, int]] = {}  #: GPUs beside those of jobs that share no node
        self._lone: dict[JobName, dict[int, int]] = {}  #: what jobs that share no node held, with what was beside it
        self._beside: dict[JobName, dict[int, int]] = {}  #: and beside what such jobs hold, while they may keep it
        self._index = {n.whole.name: i for i, n in enumerate(self._nodes)}
        self._caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
        limited = snapshot.jobs if self._caps else ()
        self._live = Counter(job.tenant for job in limited if job.work.left != 0)
        self._used: dict[str, int] = {}
        self._stay: dict[str, int] = {}  #: of what tenants use, what jobs hold as they held it
        self._claims: dict[JobName, dict[int, int]] = {}
        if taken is not None:
            self._settle_all(snapshot.jobs, taken)
            self._lone = {
                job.name: self._beside_others(job, snapshot) for job in snapshot.jobs if _waits_alone(job, taken)
            }
        for job in snapshot.jobs if taken is None else ():
            if job.allocation:
                self._claim(job)
        for job in snapshot.jobs if taken is None and alone else ():
            if job.work.left == 0:
                continue  # it stays nowhere
            if beside := self._stands_alone(job):
                self._lone[job.name] = {i: beside.get(i, 0) + g for i, g in self._claims[job.name].items()}
            for i, gpus in beside.items():
                self._nodes[i].free -= gpus
        self._by_type: dict[GpuType, Classes] = {t: {} for t in self.speeds.present}
        #: The racks of each type in the order in which they first had something free; the value says nothing.
        self._racks: dict[GpuType, dict[str | None, None]] = {t: {} for t in self.speeds.present}
        self._free: dict[GpuType, int] = dict.fromkeys(self.speeds.present, 0)
        #: The classes by rack, from when a gang that spans nodes first asks for them; and what is free there.
        self._by_rack: dict[GpuType, dict[str | None, Classes]] | None = None
        self._rack_free: dict[tuple[GpuType, str | None], int] = {}
        for i in range(len(self._nodes)):
            self._enter(i)

    # --- questions -----------------------------------------------------------------------------------------

    def free(self, gpu_type: GpuType | None = None) -> Gpus:
        """GPUs that new work could take now, of one type or of all. Claims of unplaced jobs count as free."""
        return sum(self._free.values()) if gpu_type is None else self._free.get(gpu_type, 0)

    def free_on(self, node: NodeName) -> Gpus:
        """GPUs of one node that nobody has taken yet."""
        return self._nodes[self._index[node]].free

    def cap(self, tenant: str) -> Gpus | None:
        """GPUs that the tenant may hold together; None: no cap."""
        return self._caps.get(tenant)

    def room(self, tenant: str) -> Gpus | None:
        """GPUs that the tenant may still take; None: no cap."""
        cap = self._caps.get(tenant)
        return None if cap is None else max(cap - self._used.get(tenant, 0), 0)

    def competed(self, tenant: str) -> bool:
        """Whether several jobs of the tenant may want what its cap leaves them."""
        return self._live[tenant] > 1

    def full(self, job: Job) -> bool:
        """Whether its tenant's cap leaves no room for the least that it runs on."""
        room = self.room(job.tenant)
        return room is not None and room < job.gpus.min

    def could_take(self, job: Job, allocation: Allocation) -> bool:
        """True if these GPUs are free for the job and the limits allow them (its tenant's cap apart)."""
        try:
            self._check(job, allocation)
        except ValueError:
            return False
        return True

    # --- changes -------------------------------------------------------------------------------------------

    def take(self, job: Job, allocation: Allocation, *, sure: bool = False) -> None:
        """Give `allocation` to the job. Raises ValueError, saying why, if it cannot be so. `sure`: the ledger has
        just said that it can."""
        if job.name in self.taken:
            raise ValueError(f"{job.name} has taken GPUs already")
        if not allocation:
            return self.drop(job)
        if not sure:
            self._check_room(job, allocation)
            self._check(job, allocation)
        if len(allocation) == 1 and not job.allocation and job.shape is None:
            self._take_one(job, allocation)
        else:
            self._take_any(job, allocation)
        self.taken[job.name] = dict(allocation)
        self._used[job.tenant] = self._used.get(job.tenant, 0) + sum(allocation.values())
        return None

    def _check_room(self, job: Job, allocation: Allocation) -> None:
        if not self._has_room(job, allocation):
            room, gpus = self.room(job.tenant), sum(allocation.values())
            raise ValueError(f"{job.name}: tenant {job.tenant} may take {room} more GPUs, not {gpus}")

    def _take_one(self, job: Job, allocation: Allocation) -> None:
        """As `_take_any`, of GPUs of one node by a job that holds nothing and has no shape: nearly all are that."""
        ((name, gpus),) = allocation.items()
        i = self._index[name]
        self._leave(i)
        self._nodes[i].give(-gpus, job)
        self._enter(i)

    def _take_any(self, job: Job, allocation: Allocation) -> None:
        if allocation == job.allocation:
            self._stay[job.tenant] = self._stay.get(job.tenant, 0) + sum(allocation.values())
        elif job.name in self._beside:
            self._withhold(self._beside.pop(job.name), 1)
        claims = self._claims.pop(job.name, EMPTY)
        freed = {self._index[n]: -g for n, g in allocation.items()}
        if job.shape is not None and job.shape.exclusive and allocation != job.allocation:
            self._closed[job.name] = {i: self._nodes[i].free + g for i, g in freed.items()}
        self._change(freed, claims, job)
        if self._closed:
            self._close(job, -1)
        if allocation == job.allocation:
            self._withhold(self._stands_alone(job), -1)

    def give_back(self, job: Job) -> Allocation:
        """Undo the job's take; its claims stand again. Returns what it had taken (empty: nothing)."""
        allocation = self.taken.pop(job.name, EMPTY)
        claims = {}
        if job.name not in self._claims and job.allocation:
            self._claims[job.name] = self._known(job.allocation)
            claims = {i: -g for i, g in self._claims[job.name].items()}
        if self._closed:
            self._close(job, 1)
            self._closed.pop(job.name, None)
        self._change({self._index[n]: g for n, g in allocation.items()}, claims, job)
        if self._is_alone_yet(job):
            self._withhold(self._stands_alone(job), -1)
        gpus = sum(allocation.values())
        self._used[job.tenant] = self._used.get(job.tenant, 0) - gpus
        if gpus and allocation == job.allocation:
            self._stay[job.tenant] -= gpus
        return allocation

    def drop(self, job: Job) -> None:
        """The job gets nothing: what it holds is free for all."""
        claims = self._claims.pop(job.name, None)
        if claims:
            self._change({}, claims, job)
        if job.name in self._beside:
            self._withhold(self._beside.pop(job.name), 1)

    @contextmanager
    def withheld(self, kept: Mapping[NodeName, Gpus]) -> Iterator[None]:
        """Meanwhile so many GPUs of these nodes are not free; their CPUs and memory stand."""
        held = {self._index[node]: gpus for node, gpus in kept.items()}
        self._withhold(held, -1)
        try:
            yield
        finally:
            self._withhold(held, 1)

    def _withhold(self, held: Mapping[int, Gpus], sign: int) -> None:
        for i, gpus in held.items():
            self._leave(i)
            self._nodes[i].free += sign * gpus
            self._enter(i)

    # --- the books -----------------------------------------------------------------------------------------

    def _equal(self, job: Job) -> bool:
        return self.limits.equal(job.shape)

    def _close(self, job: Job, sign: int) -> None:
        """What is beside a job that shares no node goes (-1) and comes (1) with it; its CPUs and memory stand."""
        self._withhold(self._closed.get(job.name, EMPTY), sign)

    def _stands_alone(self, job: Job) -> dict[int, int]:
        """GPUs to be withheld beside what it holds, where it shares no node: nobody comes there while it may stay."""
        if job.shape is None or not job.shape.exclusive or job.name in self._beside:
            return {}
        nodes = {i: self._nodes[i] for i in self._known(job.allocation)}
        self._beside[job.name] = {i: n.free - n.claimed for i, n in nodes.items() if n.free > n.claimed}
        return self._beside[job.name]

    def _beside_others(self, job: Job, snapshot: Snapshot) -> dict[int, int]:
        """What its nodes had for it and nobody else, beside those that are there with it."""
        room = {i: self._nodes[i].whole.gpus - self._nodes[i].whole.foreign for i in self._known(job.allocation)}
        for other in snapshot.jobs:
            for i, gpus in self._known(other.allocation).items() if other is not job else ():
                if i in room:
                    room[i] -= gpus
        return room

    def _is_alone_yet(self, job: Job) -> bool:
        """Whether nobody came, while it was to go elsewhere, to what a job holds that shares no node."""
        own = self._claims.get(job.name, EMPTY)
        for i, gpus in self._lone.get(job.name, EMPTY).items():
            node = self._nodes[i]
            if node.free - node.claimed + own.get(i, 0) < gpus:
                return False
        return True

    def _check_alone(self, job: Job) -> None:
        """What shares no node and had left its own comes back to it only if nobody else came there."""
        if job.name not in self._beside and not self._is_alone_yet(job):
            raise ValueError(f"{job.name}: others came to what it held, which it does not share")

    def _has_room(self, job: Job, allocation: Allocation) -> bool:
        """False if the tenant's cap forbids it. A limit that was learnt later takes nothing away: what stays as it is
        needs no room, unless jobs of the tenant have taken some otherwise."""
        room = self.room(job.tenant)
        if room is None or sum(allocation.values()) <= room:
            return True
        return allocation == job.allocation and self._used.get(job.tenant, 0) == self._stay.get(job.tenant, 0)

    def _check(self, job: Job, allocation: Allocation) -> None:
        need, types = need_of(job), self.speeds.types(job)
        if job.shape is not None:
            if allocation == job.allocation:
                need = NOTHING
                self._check_alone(job)
            elif job.shape.nodes and need.per_node and len(allocation) != job.shape.nodes:
                raise ValueError(f"{job.name}: {len(allocation)} nodes, where it asks for {job.shape.nodes}")
            elif not need.on_so_many(len(allocation)):
                raise ValueError(f"{job.name}: {len(allocation)} nodes, where {job.shape.most_nodes} is its limit")
        for name, gpus in allocation.items():
            i = self._index.get(name)
            if i is None:
                raise ValueError(f"{job.name}: no node {name}")
            node = self._nodes[i]
            most = need.usable(node.free, node.cpus, node.memory, node.traits)
            if not node.new:
                most = min(most, job.allocation.get(name, 0))
            if gpus < 1 or gpus > most or (need.per_node is not None and gpus != need.per_node):
                raise ValueError(f"{job.name}: {gpus} GPUs on {name}, where it can have {most}")
            if node.whole.gpu_type not in types and not self._stays_on(job, allocation, node.whole.gpu_type):
                raise ValueError(f"{job.name}: cannot run on {node.whole.gpu_type} ({name})")
        if len(allocation) == 1:
            return
        if self.limits.one_type_per_job and len(self.speeds.by_type(allocation)) > 1:
            raise ValueError(f"{job.name}: spans GPU types, which the cluster cannot carry out")
        if self._equal(job) and len(set(allocation.values())) > 1:
            raise ValueError(f"{job.name}: unequal GPUs on its nodes, which the cluster cannot carry out")

    def _stays_on(self, job: Job, allocation: Allocation, gpu_type: GpuType) -> bool:
        """A type that was ruled out later takes nothing from a job that stays as it is and can run there."""
        return allocation == job.allocation and (not job.throughput or gpu_type in job.throughput)

    def _settle_all(self, jobs: Iterable[Job], taken: Mapping[JobName, Allocation]) -> None:
        """Where a shape is not kept (told before it is seen to, `policy/places/shapes.py`), only the count matters."""
        shaped: list[Job] = []
        for job in jobs:
            if not (allocation := taken.get(job.name, EMPTY)):
                continue
            if job.shape is None:
                self._settle(job, allocation)
            else:
                shaped.append(job)
        for job in shaped:
            allocation = taken[job.name]
            kept = self.could_take(job, allocation)
            self._settle(job if kept else replace(job, shape=None), allocation)

    def _settle(self, job: Job, allocation: Allocation) -> None:
        """A `take` before the nodes are sorted into classes."""
        known = self._known(allocation)
        for i, gpus in known.items():
            self._nodes[i].give(-gpus, job)
        if job.shape is not None and job.shape.exclusive:
            self._closed[job.name] = {i: self._nodes[i].free for i in known}
            for i in known:
                self._nodes[i].free = 0
        total = sum(allocation.values())
        if allocation == job.allocation:
            self._stay[job.tenant] = self._stay.get(job.tenant, 0) + total
        self._used[job.tenant] = self._used.get(job.tenant, 0) + total
        self.taken[job.name] = dict(allocation)

    def _claim(self, job: Job) -> None:
        self._claims[job.name] = self._known(job.allocation)
        for i, g in self._claims[job.name].items():
            self._nodes[i].claimed += g

    def _known(self, allocation: Allocation) -> dict[int, int]:
        """By index; a node that has left the cluster is nobody's."""
        return {self._index[n]: g for n, g in allocation.items() if n in self._index}

    def _change(self, freed: Mapping[int, int], unclaimed: Mapping[int, int], job: Job) -> None:
        """Add `freed` GPUs (negative: take them) and remove `unclaimed` claims, keeping the classes true."""
        touched = freed.keys() | unclaimed.keys() if unclaimed else freed
        for i in touched:
            self._leave(i)
        for i, g in unclaimed.items():
            self._nodes[i].claimed -= g
        for i, g in freed.items():
            self._nodes[i].give(g, job)
        for i in touched:
            self._enter(i)

    def _enter(self, i: int) -> None:
        node = self._nodes[i]
        if not node.new or node.free <= 0:
            return
        gpu_type, rack, state = node.whole.gpu_type, node.whole.rack, node.state
        _join(self._by_type[gpu_type], state, i)
        self._racks[gpu_type].setdefault(rack)
        self._free[gpu_type] += node.free
        if self._by_rack is not None:
            self._enter_rack(i, node, self._by_rack)

    def _leave(self, i: int) -> None:
        node = self._nodes[i]
        if not node.new or node.free <= 0:
            return
        gpu_type, rack, state = node.whole.gpu_type, node.whole.rack, node.state
        _part(self._by_type[gpu_type], state, i)
        self._free[gpu_type] -= node.free
        if self._by_rack is not None:
            _part(self._by_rack[gpu_type][rack], state, i)
            self._rack_free[gpu_type, rack] -= node.free

    def _enter_rack(self, i: int, node: _Node, by_rack: dict[GpuType, dict[str | None, Classes]]) -> None:
        gpu_type, rack = node.whole.gpu_type, node.whole.rack
        _join(by_rack[gpu_type].setdefault(rack, {}), node.state, i)
        self._rack_free[gpu_type, rack] = self._rack_free.get((gpu_type, rack), 0) + node.free

    def _classes_by_rack(self) -> dict[GpuType, dict[str | None, Classes]]:
        if self._by_rack is None:
            found: dict[GpuType, dict[str | None, Classes]] = {}
            for gpu_type, racks in self._racks.items():
                found[gpu_type] = {rack: {} for rack in racks}
            for i, node in enumerate(self._nodes):
                if node.new and node.free > 0:
                    self._enter_rack(i, node, found)
            self._by_rack = found
        return self._by_rack


def _waits_alone(job: Job, taken: Mapping[JobName, Allocation]) -> bool:
    """Whether it shares no node, and could come back to what it holds."""
    return (
        job.shape is not None and job.shape.exclusive and bool(job.allocation) and taken.get(job.name) != job.allocation
    )


def _join(classes: Classes, state: State, i: int) -> None:
    members = classes.get(state)
    if members is None:
        classes[state] = [i]
    else:
        insort(members, i)


def _part(classes: Classes, state: State, i: int) -> None:
    members = classes[state]
    if len(members) == 1:
        del classes[state]
    else:
        del members[bisect_left(members, i)]
