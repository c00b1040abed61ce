"""What of a cluster's free GPUs can be used by us: beside others' memory and cores, within the queue's limits, and
where gangs did form. Pure.

A GPU that is free and cannot be had is told as foreign, so that no policy gives it to anybody: a grant forms, or it
was right by what could be known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from horae.port import backoff_s
from horae.spec import JobSpec
from policy.model import EMPTY, Gpus, Health, Node
from yarn_bridge.clients.queues import CORES, MEMORY, Amounts, Queue, Queues
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.shapes import queue_of, worker_size
from yarn_bridge.options import BY_QUEUE, Options

#: how long a GPU that a gang did not get is not offered, for the first time; twice as long each next time
PAUSE_S, LONGEST_S = 60.0, 1800.0
_WORDS = {MEMORY: "MB of memory", CORES: "virtual cores"}


@dataclass(frozen=True, slots=True)
class Held:
    """What our jobs hold of a node, or may come to hold."""

    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0


def held_by(jobs: Sequence[tuple[Record, JobSpec]], options: Options, least_mib: int) -> dict[str, Held]:
    """By node. `least_mib`: YARN gives memory in multiples of it; 0: not known."""
    found: dict[str, Held] = {}
    for record, spec in jobs:
        if record.phase is Phase.IDLE:
            continue
        cpus, memory_mib = worker_size(spec, options)
        for name, gpus in record.claims.items():
            at = found.get(name, Held())
            workers = gpus // record.each
            memory = at.memory_mib + workers * given(memory_mib, least_mib)
            found[name] = Held(at.gpus + gpus, at.cpus + workers * cpus, memory)
    return found


def given(memory_mib: int, least_mib: int) -> int:
    """What YARN makes of a container's memory."""
    return -(-memory_mib // least_mib) * least_mib if least_mib > 0 else memory_mib


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most GPUs that our jobs may hold in all, and who says so."""

    gpus: Gpus
    text: str


def ceiling(queues: Queues, name: str, ours: Gpus, label: str = "") -> Ceiling | None:
    """Of a queue and all above it, in the partition of this label; what others use there is not ours to use. None: no
    limit of theirs."""
    found: Ceiling | None = None
    for queue in queues.above(queues.find(name).path):
        most, used = queue.limit(label)
        if most is None:
            continue
        others = max(used - ours, 0)
        left = max(most - others, 0)
        if found is None or left < found.gpus:
            beside = f", and others use {others} of them" if others else ""
            where = f" in partition {label}" if label else ""
            found = Ceiling(left, f"queue {queue.path} may hold {most} GPUs at most{where}{beside}")
    return found


@dataclass(frozen=True, slots=True)
class Holding:
    """What one job of ours holds, or may come to hold, and for whom."""

    owner: str
    tenant: str
    queue: str
    gpus: Gpus
    size: Amounts = field(default_factory=lambda: EMPTY)  #: memory and cores with each GPU; {} of a job that has ended


def holdings(jobs: Sequence[tuple[Record, JobSpec]], options: Options, least_mib: int = 0) -> tuple[Holding, ...]:
    """Of all jobs, those too that hold nothing."""
    return tuple(
        Holding(
            record.owner,
            spec.tenant or record.owner,
            queue_of(spec, options),
            0 if record.phase is Phase.IDLE else sum(record.claims.values()),
            {} if record.outcome.ended else _size(record, spec, options, least_mib),
        )
        for record, spec in jobs
    )


def _size(record: Record, spec: JobSpec, options: Options, least_mib: int) -> Amounts:
    cpus, memory_mib = worker_size(spec, options)
    each = record.each or 1
    return {MEMORY: -(-given(memory_mib, least_mib) // each), CORES: -(-cpus // each)}


def caps(queues: Queues, held: Sequence[Holding], options: Options, now: Sequence[Holding] = ()) -> dict[str, Gpus]:
    """The most GPUs that each tenant may hold; those without a limit of their own are left out.

    A queue as tenant: the least of the maxima up to the managed queue, less what others use there, and not more than
    its users may have together. A user as tenant: the queue's limit for one user. Limits of memory and cores count as
    so many GPUs as the tenant's largest job could have within them. `held`: when the queues were asked; `now`: jobs of
    whose sizes are to count as well.
    """
    managed = queues.find(options.queue)
    if options.tenants != BY_QUEUE:
        own = {each.owner for each in held if each.tenant == each.owner and each.queue == options.queue}
        users = {
            owner: _user_limits(managed, [each for each in (*held, *now) if each.owner == owner])
            for owner in sorted(own)
        }
        return {owner: min(found) for owner, found in users.items() if found}
    limits = {leaf.path: _limits(queues, managed, leaf, held, now) for leaf in managed.leaves()}
    return {path: min(found) for path, found in limits.items() if found}


def _user_limits(queue: Queue, held: Sequence[Holding]) -> list[Gpus]:
    """Of one user, whose jobs are `held`."""
    if queue.user_most is None:
        return []
    return [queue.user_most, *_as_gpus(queue.user_bulk, largest(held))]


def _limits(queues: Queues, managed: Queue, leaf: Queue, held: Sequence[Holding], now: Sequence[Holding]) -> list[Gpus]:
    mine = [each for each in (*held, *now) if each.queue == leaf.path]
    found: list[Gpus] = []
    for queue in queues.above(leaf.path):
        if len(queue.path) <= len(managed.path):
            continue
        there = [each for each in held if each.queue == queue.path or each.queue.startswith(f"{queue.path}.")]
        if queue.most is not None:
            found.append(max(queue.most - max(queue.used - sum(each.gpus for each in there), 0), 0))
        most, used = queue.bulk.get("", (EMPTY, EMPTY))
        ours = {name: sum(each.gpus * each.size.get(name, 0) for each in there) for name in most}
        found += _as_gpus({name: most[name] - max(used.get(name, 0) - ours[name], 0) for name in most}, largest(mine))
    users = sorted({each.owner for each in mine})
    each_user = [_user_limits(leaf, [each for each in mine if each.owner == user]) for user in users]
    return [*found, sum(min(each) for each in each_user)] if users and all(each_user) else found


def largest(held: Sequence[Holding]) -> Amounts:
    """Memory and cores with a GPU of whichever job wants most of each."""
    return {
        name: most for name in (MEMORY, CORES) if (most := max((each.size.get(name, 0) for each in held), default=0))
    }


def _as_gpus(amounts: Amounts, size: Amounts) -> list[Gpus]:
    """By each of these limits, how many GPUs of a job of this size."""
    return [max(amount, 0) // size[name] for name, amount in amounts.items() if name in size]


@dataclass(frozen=True, slots=True)
class Stock:
    """Memory and cores that all our jobs may hold in a partition, and who says so."""

    most: Amounts
    text: str


def stock(queues: Queues, name: str, ours: Amounts, label: str = "") -> Stock | None:
    """As `ceiling`, of memory and cores. None: no limit of theirs."""
    most: dict[str, int] = {}
    told: dict[str, str] = {}
    for queue in queues.above(queues.find(name).path):
        limits, used = queue.bulk.get(label, (EMPTY, EMPTY))
        for what, limit in limits.items():
            left = max(limit - max(used.get(what, 0) - ours.get(what, 0), 0), 0)
            if left < most.get(what, left + 1):
                most[what], told[what] = left, f"{limit} {_WORDS[what]} in queue {queue.path}"
    return Stock(most, f"there may be {' and '.join(told.values())} at most") if most else None


def stocked(
    nodes: Sequence[Node], held: Mapping[str, Held], most: Amounts, size: Amounts, within: Collection[str]
) -> tuple[Node, ...]:
    """The nodes with so much free memory, and so many cores, taken out that ours and the free ones are `most`.

    The limit is on a sum and policies know of nodes alone, so it is shared out: first to each node what its free GPUs
    need for jobs of this `size` (with each GPU), the node with the most of them first, then the rest.
    """
    about = sorted((each for each in nodes if each.name in within), key=lambda node: (-_free(node, held), node.name))
    found = {each.name: each for each in nodes}
    for what, limit in most.items():
        ours = {each.name: _amount(held.get(each.name, Held()), what) for each in about}
        spare = {each.name: max(_there(each, what) - ours[each.name], 0) for each in about}
        left = limit - sum(ours.values())
        if sum(spare.values()) <= left:
            continue
        kept = dict.fromkeys(spare, 0)
        for wanted in ({each.name: _free(each, held) * size.get(what, 0) for each in about}, spare):
            for name in kept:
                more = max(min(spare[name], wanted[name], kept[name] + left) - kept[name], 0)
                kept[name], left = kept[name] + more, left - more
        for name, amount in kept.items():
            found[name] = _with(found[name], what, ours[name] + amount)
    return tuple(found.values())


def _amount(held: Held, what: str) -> int:
    return held.memory_mib if what == MEMORY else held.cpus


def _there(node: Node, what: str) -> int:
    return int(node.cpus or 0) if what == CORES else (node.memory or 0) >> 20


def _with(node: Node, what: str, amount: int) -> Node:
    """With at most so much."""
    if amount >= _there(node, what):
        return node
    return replace(node, cpus=float(amount)) if what == CORES else replace(node, memory=amount << 20)


def below(
    nodes: Sequence[Node], held: Mapping[str, Held], most: Gpus, within: Collection[str] | None = None
) -> tuple[Node, ...]:
    """The nodes with so many free GPUs taken out that ours and the free ones are `most`; whole nodes are kept.
    `within`: the nodes that the limit is about; None: all."""
    about = [each for each in nodes if within is None or each.name in within]
    free = {each.name: _free(each, held) for each in about}
    ours = sum(min(at.gpus, each.gpus) for each in about if (at := held.get(each.name)) is not None)
    surplus = ours + sum(free.values()) - most
    taken: dict[str, Gpus] = {}
    for name in sorted(free, key=lambda name: (free[name], name)):
        if surplus <= 0:
            break
        taken[name] = min(free[name], surplus)
        surplus -= taken[name]
    return tuple(_without(each, taken.get(each.name, 0), held) for each in nodes)


def _free(node: Node, held: Mapping[str, Held]) -> Gpus:
    if node.health is not Health.UP:
        return 0
    return max(node.gpus - node.foreign - held.get(node.name, Held()).gpus, 0)


def shut(nodes: Sequence[Node], held: Mapping[str, Held], out: Collection[str]) -> tuple[Node, ...]:
    """Without the free GPUs of the nodes `out`: nothing new gets there."""
    return tuple(_without(each, each.gpus, held) if each.name in out else each for each in nodes)


def _without(node: Node, gpus: Gpus, held: Mapping[str, Held]) -> Node:
    """With so many free GPUs fewer; what we hold stays ours."""
    return replace(node, foreign=node.foreign + min(gpus, _free(node, held))) if gpus else node


@dataclass(frozen=True, slots=True)
class Lesson:
    gpus: Gpus
    until_s: float
    times: int


class Lessons:
    """Where gangs came short: these GPUs are not offered again for a while, longer each time it happens there."""

    def __init__(self) -> None:
        self._of: dict[str, Lesson] = {}
        self._caps: dict[str, Lesson] = {}

    def learn(self, missing: Mapping[str, Gpus], now_s: float) -> str:
        """`missing`: by node, what was granted and did not come. What follows, for people; "" for nothing."""
        told = []
        for name, gpus in sorted(missing.items()):
            if gpus <= 0:
                continue
            self._of[name] = lesson = _next(self._of.get(name), gpus, now_s)
            told.append(f"{gpus} on {name} for {_pause(lesson.times):.0f} s")
        return f"not offered again: {', '.join(told)}" if told else ""

    def learn_cap(self, tenant: str, gpus: Gpus, now_s: float) -> str:
        """It was the queue that gave no more than `gpus` to this tenant in all, wherever they are."""
        self._caps[tenant] = lesson = _next(self._caps.get(tenant), gpus, now_s)
        return f"{tenant} is offered {gpus} GPUs in all for {_pause(lesson.times):.0f} s"

    def caps(self, now_s: float) -> dict[str, Gpus]:
        return {tenant: each.gpus for tenant, each in self._caps.items() if now_s < each.until_s}

    def heeded(self, nodes: Sequence[Node], held: Mapping[str, Held], now_s: float) -> tuple[Node, ...]:
        live = {name: each.gpus for name, each in self._of.items() if now_s < each.until_s}
        return tuple(_without(each, live.get(each.name, 0), held) for each in nodes)

    def notes(self, now_s: float) -> list[str]:
        return [
            f"{each.gpus} free GPUs of {name} are not offered for {each.until_s - now_s:.0f} s: a gang did not get them"
            for name, each in sorted(self._of.items())
            if now_s < each.until_s
        ]


def _next(before: Lesson | None, gpus: Gpus, now_s: float) -> Lesson:
    again = before is not None and now_s < before.until_s + 2 * _pause(before.times)
    times = before.times + 1 if again and before is not None else 1
    return Lesson(gpus, now_s + _pause(times), times)


def _pause(times: int) -> float:
    return backoff_s(times - 1, PAUSE_S, LONGEST_S)
