"""The queue tree of the capacity and of the fair scheduler, and what it says about tenants.

A tenant is a queue or a user, as the site chooses. With queues, the leaf queues below Horae's are the tenants: they
weigh what the scheduler guarantees them. With users, all share one leaf queue and weigh the same. The capacity
scheduler's shares are of the parent; what is guaranteed and pending is counted in all partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any

from horae.port import SiteTenant
from policy.model import EMPTY, BadInput, Gpus
from yarn_bridge.clients.http import understood
from yarn_bridge.clients.records import gpus_in, many, resources

CAPACITY, FAIR = "capacity", "fair"
RUNS = "RUNNING"  #: the state of a queue that takes applications
#: resource -> amount: GPUs under whatever names, memory in MiB, virtual cores
Amounts = Mapping[str, int]
GPUS, MEMORY, CORES = "GPUs", "memory-mb", "vcores"


@dataclass(frozen=True, slots=True)
class MastersShare:
    """What the application masters in one partition of a queue have, and may have."""

    used: Amounts = field(default_factory=lambda: EMPTY)
    most: Amounts = field(default_factory=lambda: EMPTY)  #: {}: not told
    user_most: Amounts = field(default_factory=lambda: EMPTY)  #: those of one user; {}: not told
    used_by: Mapping[str, Amounts] = field(default_factory=lambda: EMPTY)  #: by user

    def of(self, user: str) -> tuple[Amounts, Amounts]:
        """(used, most), of this user, or of all."""
        return (self.used_by.get(user, EMPTY), self.user_most) if user else (self.used, self.most)


@dataclass(frozen=True, slots=True)
class Queue:
    path: str  #: root.gpu.horae
    state: str  #: RUNNING, STOPPED, DRAINING
    weight: float  #: share among its siblings: per cent, weight, or the GPUs that it is guaranteed
    guaranteed: Gpus  #: GPUs it gets back when it wants them
    pending: Gpus
    policy: str  #: fifo, fair, drf, ...
    preemptable: bool  #: another queue may take its containers
    labels: tuple[str, ...]
    children: tuple[Queue, ...]
    parent: bool = False  #: takes no application itself, and may have no queue below it yet
    label: str = ""  #: partition of containers that ask for none; "": the default one
    among_users: bool = False  #: its users may take containers from each other
    reserved: int = 0  #: containers that wait and have a node kept for them, where nobody else gets anything
    #: by partition, the default one's under "": the most that it may hold, of what it may hold less of than there is
    limits: Mapping[str, Amounts] = field(default_factory=lambda: EMPTY)
    usage: Mapping[str, Amounts] = field(default_factory=lambda: EMPTY)  #: by partition
    per_user: Amounts = field(default_factory=lambda: EMPTY)  #: what one user of weight 1 may hold; {}: no limit
    #: the same in each partition, where it has a share of several
    per_user_in: Mapping[str, Amounts] = field(default_factory=lambda: EMPTY)
    largest: Amounts = field(default_factory=lambda: EMPTY)  #: the most that one container in it may have; {}: not told
    active: int = 0  #: applications whose masters have their share
    running: int = 0  #: they, and those that may begin as soon as there is some; of all below it
    most_running: int = 1 << 31
    masters: Mapping[str, MastersShare] = field(default_factory=lambda: EMPTY)  #: by partition; of a leaf

    def limit(self, label: str, what: str = GPUS) -> tuple[int | None, int]:
        """(most, used) in a partition. None: no limit of its own."""
        return self.limits.get(label, EMPTY).get(what), self.usage.get(label, EMPTY).get(what, 0)

    @property
    def most(self) -> Gpus | None:
        """GPUs it may hold at most in the default partition."""
        return self.limit("")[0]

    @property
    def used(self) -> Gpus:
        return self.limit("")[1]

    @property
    def user_most(self) -> Gpus | None:
        return self.per_user.get(GPUS)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def walk(self) -> Iterator[Queue]:
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Queue]:
        return (queue for queue in self.walk() if not queue.parent)


@dataclass(frozen=True, slots=True)
class Queues:
    kind: str  #: CAPACITY or FAIR
    root: Queue

    def find(self, name: str) -> Queue:
        """By its path, or by its name where that is unique. Raises BadInput."""
        path = name if name == "root" or name.startswith("root.") else f"root.{name}"
        exact = [queue for queue in self.root.walk() if queue.path == path]
        found = exact or [queue for queue in self.root.walk() if queue.name == name]
        if len(found) == 1:
            return found[0]
        known = ", ".join(queue.path for queue in (found or self.root.leaves()))
        raise BadInput(
            f"{len(found)} queues are called '{name}'" if found else f"no queue '{name}'",
            field="queue",
            value=name,
            remedy=f"one of {known}",
        )

    def above(self, path: str) -> Iterator[Queue]:
        """The queue of this path and all above it, the root first."""
        return (queue for queue in self.root.walk() if path == queue.path or path.startswith(f"{queue.path}."))

    def losers(self, paths: Collection[str]) -> tuple[str, ...]:
        """Leaf queues that the scheduler takes containers from for as long as it counts requests of these queues as
        pending, met or not: where a queue holds less than it is guaranteed, others; where users are kept even, its own.
        """
        asking = [each for each in self.root.leaves() if each.path in paths or each.name in paths]
        if self.kind != CAPACITY:
            return ()
        others = {
            each.path
            for each in self.root.leaves()
            if each.preemptable and any(one.weight > 0 and one.path != each.path for one in asking)
        }
        return tuple(sorted(others | {each.path for each in asking if each.among_users}))

    def tenants(self, managed: Queue) -> tuple[SiteTenant, ...]:
        """The leaf queues of the managed one; each weighs its per cent of it."""
        shares = dict(_shares(managed, 100.0))
        # A share of nothing cannot be weighed: it counts as the smallest that is there.
        least = min((share for share in shares.values() if share > 0), default=100.0)
        return tuple(SiteTenant(path, share or least, (path.rpartition(".")[2],)) for path, share in shares.items())


def _shares(queue: Queue, share: float) -> Iterator[tuple[str, float]]:
    if not queue.parent:
        yield queue.path, share
    whole = sum(child.weight for child in queue.children) or 1.0
    for child in queue.children:
        yield from _shares(child, round(share * child.weight / whole, 6))


def queues(info: Mapping[str, Any]) -> Queues:
    """From `schedulerInfo`. Raises BadInput for a scheduler that has no queues that Horae could use, and
    TryLater for an answer that is none of its own."""
    kind = str(info.get("type", ""))
    with understood("reading the queues"):
        if kind == "capacityScheduler":
            return Queues(CAPACITY, _capacity(info, "root", _by_label(info, "effectiveMaxResource")))
        if kind == "fairScheduler":
            return Queues(FAIR, _fair(info.get("rootQueue") or {}))
    raise BadInput(
        f"the ResourceManager's scheduler is {kind or 'not told'}",
        field="yarn.resourcemanager.scheduler.class",
        value=kind,
        remedy="the capacity scheduler (Hadoop's default) or the fair scheduler",
    )


def _capacity(value: Mapping[str, Any], path: str, whole: Mapping[str, Amounts]) -> Queue:
    """`whole`: what there is, by partition."""
    children = tuple(
        _capacity(each, f"{path}.{each['queueName']}", whole) for each in many((value.get("queues") or {}).get("queue"))
    )
    shares = {label: each for label, each in _by_label(value, "effectiveMinResource").items() if any(each.values())}
    least = _sum(shares.values())
    most = _by_label(value, "effectiveMaxResource")
    usage = _usages(value)
    active = int(value.get("numActiveApplications", 0))
    return Queue(
        path=path,
        state=str(value.get("state") or "RUNNING"),
        weight=_weight(value, least[GPUS]),
        guaranteed=least[GPUS],
        pending=sum(_gpus(each, "pending") for each in usage) or sum(child.pending for child in children),
        policy=str(value.get("orderingPolicyInfo") or "fifo"),
        preemptable=not value.get("preemptionDisabled", True),
        labels=tuple(str(each) for each in many(value.get("nodeLabels"))),
        children=children,
        parent=_is_parent(value, children),
        label=str(value.get("defaultNodeLabelExpression") or "").strip(),
        among_users=not value.get("intraQueuePreemptionDisabled", True),
        reserved=int(value.get("reservedContainers", 0)),
        limits=most if _reserves(path, children) else _below(most, whole),
        usage=_used(usage, children),
        per_user=_per_user(least, value.get("userLimitFactor")),
        per_user_in={label: _per_user(each, value.get("userLimitFactor")) for label, each in shares.items()}
        if len(shares) > 1
        else EMPTY,
        largest=resources(value.get("maximumAllocation")),
        active=active,
        running=_running(active, value.get("numPendingApplications"), children),
        most_running=int(value.get("maxParallelApps", 1 << 31)),
        masters=_masters(value),
    )


def _is_parent(value: Mapping[str, Any], children: Sequence[Queue]) -> bool:
    """One that makes its leaf queues itself may have none yet."""
    return bool(children) or value.get("queueType") == "parent"


def _running(active: int, pending: Any, children: Iterable[Queue]) -> int:
    return active + int(pending or 0) + sum(child.running for child in children)


def _masters(value: Mapping[str, Any]) -> dict[str, MastersShare]:
    by_user: dict[str, dict[str, Amounts]] = {}  # by label, by user
    for each in many((value.get("users") or {}).get("user")):
        for part in _usages(each):
            by_user.setdefault(_label(part), {})[str(each["username"])] = _amounts(part.get("amUsed"))
    # A partition's own limit of a user is one of some time ago; this one is of the default partition.
    user_most = {"": _amounts(value.get("userAMResourceLimit"))}
    found = {}
    for part in _usages(value):
        if "amLimit" not in part:
            continue
        label = _label(part)
        found[label] = MastersShare(
            used=_amounts(part.get("amUsed")),
            most=_amounts(part["amLimit"]),
            user_most=user_most.get(label, EMPTY),
            used_by=by_user.get(label, EMPTY),
        )
    return found


def _label(part: Mapping[str, Any]) -> str:
    return str(part.get("partitionName") or "")


def _usages(value: Mapping[str, Any]) -> list[Any]:
    return _by_partition(value, "resources", "resourceUsagesByPartition")


def _by_label(value: Mapping[str, Any], key: str) -> dict[str, Amounts]:
    parts = _by_partition(value, "capacities", "queueCapacitiesByPartition")
    return {str(each.get("partitionName") or ""): _amounts(each.get(key)) for each in parts}


def _amounts(value: Any) -> Amounts:
    told = resources(value)
    return {GPUS: gpus_in(told), MEMORY: told.get(MEMORY, 0), CORES: told.get(CORES, 0)}


def _sum(parts: Iterable[Amounts]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in parts:
        found.update(each)
    return found


def _reserves(path: str, children: Sequence[Queue]) -> bool:
    """Whether all that there is is a limit: what is reserved counts as used up to the root, though it is free on some
    node."""
    return path == "root" and any(each.reserved for child in children for each in child.leaves())


def _below(most: Mapping[str, Amounts], whole: Mapping[str, Amounts]) -> dict[str, Amounts]:
    return {label: _limits(each, whole.get(label, EMPTY)) for label, each in most.items()}


def _limits(most: Amounts, whole: Amounts) -> Amounts:
    """What a queue may have less of than there is. Its `maxCapacity` is the largest of its shares, so that a queue with
    absolute limits may have all of the memory and few GPUs, at 100 per cent."""
    return {name: amount for name, amount in most.items() if amount < whole.get(name, 0)}


def _by_partition(value: Mapping[str, Any], section: str, rows: str) -> list[Any]:
    return many((value.get(section) or {}).get(rows))


def _weight(value: Mapping[str, Any], guaranteed: Gpus) -> float:
    """Weights and per cents do not mix among siblings; a queue in weight mode has no capacity of its own. Of one with
    absolute resources the per cent is that of whichever it has most of, which may be memory."""
    weight = float(value.get("weight", -1.0))
    if weight > 0:
        return weight
    if value.get("isAbsoluteResource"):
        return float(guaranteed)
    return float(value.get("capacity", 0.0))


def _used(usage: list[Any], children: tuple[Queue, ...]) -> dict[str, Amounts]:
    """By partition, as told; else the sum of the children's."""
    labels = {label for child in children for label in child.usage}
    found: dict[str, Amounts] = {label: _sum(child.usage.get(label, EMPTY) for child in children) for label in labels}
    told = {str(each.get("partitionName") or ""): _amounts(each.get("used")) for each in usage}
    return found | {label: amounts for label, amounts in told.items() if any(amounts.values())}


def _per_user(guaranteed: Amounts, factor: Any) -> Amounts:
    """Of the queue's capacity, whatever of the others' is free; one GPU at least, as the scheduler has it. A queue that
    is guaranteed nothing limits nobody by it."""
    if factor is None or float(factor) < 0 or not any(guaranteed.values()):
        return {}
    found = {name: floor(amount * float(factor)) for name, amount in guaranteed.items()}
    return {**found, GPUS: max(found.get(GPUS, 0), 1)}


def _fair(value: Mapping[str, Any]) -> Queue:
    # Weights are not told; the steady share is what they come to. "No limit" reads as the whole cluster.
    steady, used = (_amounts(value.get(key))[GPUS] for key in ("steadyFairResources", "usedResources"))
    children = tuple(_fair(each) for each in many((value.get("childQueues") or {}).get("queue")))
    active = int(value.get("numActiveApps", 0))
    masters = MastersShare(_amounts(value.get("amUsedResources")), _amounts(value.get("amMaxResources")))
    return Queue(
        path=str(value.get("queueName") or "root"),
        state="RUNNING",
        weight=float(steady),
        guaranteed=steady,
        pending=max(_amounts(value.get("demandResources"))[GPUS] - used, 0),
        policy=str(value.get("schedulingPolicy") or "").lower(),
        preemptable=bool(value.get("preemptable", False)),
        labels=(),
        children=children,
        parent=bool(children),
        reserved=int(value.get("reservedContainers", 0)),
        limits={"": _limits(_amounts(value.get("maxResources")), _amounts(value.get("clusterResources")))},
        usage={"": _amounts(value.get("usedResources"))},
        largest=resources(value.get("maxContainerAllocation")),
        active=active,
        running=_running(active, value.get("numPendingApps"), children),
        most_running=int(value.get("maxApps", 1 << 31)),
        masters={} if children else {"": masters},
    )


def _gpus(partition: Mapping[str, Any], key: str) -> Gpus:
    return gpus_in(resources(partition.get(key)))
