"""What of a cluster's free GPUs can be used by us: beside others' memory and cores, within the queue's limits, and
where gangs did form. Pure.

A GPU that is free and cannot be had is told as foreign, so that no policy gives it to anybody: a grant forms, or it
was right by what could be known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import backoff_s
from horae.spec import JobSpec
from policy.model import Gpus, Health, Node
from yarn_bridge.clients.queues import Queue, Queues
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.shapes import queue_of, worker_size
from yarn_bridge.options import BY_QUEUE, Options

#: how long a GPU that a gang did not get is not offered, for the first time; twice as long each next time
PAUSE_S, LONGEST_S = 60.0, 1800.0


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


def holdings(jobs: Sequence[tuple[Record, JobSpec]], options: Options) -> tuple[Holding, ...]:
    """Of all jobs, those too that hold nothing."""
    return tuple(
        Holding(
            record.owner,
            spec.tenant or record.owner,
            queue_of(spec, options),
            0 if record.phase is Phase.IDLE else sum(record.claims.values()),
        )
        for record, spec in jobs
    )


def caps(queues: Queues, held: Sequence[Holding], options: Options) -> dict[str, Gpus]:
    """The most GPUs that each tenant may hold; those without a limit of their own are left out.

    A queue as tenant: the least of the maxima up to the managed queue, less what others use there, and not more than
    its users may have together. A user as tenant: the queue's limit for one user. `held`: when the queues were asked.
    """
    managed = queues.find(options.queue)
    if options.tenants != BY_QUEUE:
        own = {each.owner for each in held if each.tenant == each.owner and each.queue == options.queue}
        return {} if managed.user_most is None else dict.fromkeys(sorted(own), managed.user_most)
    limits = {leaf.path: _limits(queues, managed, leaf, held) for leaf in managed.leaves()}
    return {path: min(found) for path, found in limits.items() if found}


def _limits(queues: Queues, managed: Queue, leaf: Queue, held: Sequence[Holding]) -> list[Gpus]:
    found = [
        max(queue.most - max(queue.used - _ours(queue.path, held), 0), 0)
        for queue in queues.above(leaf.path)
        if queue.most is not None and len(queue.path) > len(managed.path)
    ]
    users = {each.owner for each in held if each.queue == leaf.path}
    return [*found, leaf.user_most * len(users)] if leaf.user_most is not None and users else found


def _ours(path: str, held: Sequence[Holding]) -> Gpus:
    return sum(each.gpus for each in held if each.queue == path or each.queue.startswith(f"{path}."))


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
