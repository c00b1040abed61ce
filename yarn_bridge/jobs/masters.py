"""Room for application masters. YARN puts one on any node of its queue's partition, before the workers: a gang that
takes the memory or cores of all of them never forms.

So while a job waits that has no application yet, what one needs is kept free on the node where that costs least. Not
on each: that would take GPUs from jobs for masters that come to one node at most. Where it comes to another, a gang
that it displaced teaches (`room.py`).

And a queue lets so many begin: the capacity scheduler lets so many applications run at a time (`max-parallel-apps`),
and gives the application masters of a queue, and of each user in it, a share (`maximum-am-resource-percent`): a tenth
where nobody says otherwise. What waits for either has no container, and no gang of its forms, however many GPUs are
free. A suspended job keeps its place. A queue that is stopped, or drains, lets none begin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from horae.port import TryLater
from policy.model import BadInput, Gpus, Health, JobName, Node, Quota
from yarn_bridge.clients.queues import CORES, MEMORY, RUNS, Amounts, MastersShare, Queue, Queues
from yarn_bridge.clients.records import NodeReport
from yarn_bridge.jobs.room import Held, Lesson, amount, free_gpus, next_lesson, pause_s, there

_BULK = (MEMORY, CORES)
_AGAIN_S = 5.0
#: fewer than can have ended since the queues were asked: no place of theirs is another's
_NONE = -(1 << 31)


class MasterRoom:
    """As of the newest look."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._where: Collection[str] = ()
        self._elsewhere = True  #: a node without GPUs has room; true too before the first look

    def look(
        self, nodes: tuple[Node, ...], reports: Sequence[NodeReport], master: Held, labels: Collection[str]
    ) -> None:
        """`nodes`: those with GPUs, as there is room in them for us; `labels`: of the partitions that masters go to."""
        inside = [each for each in reports if each.label in labels]
        self._nodes, self._where = nodes, {each.host for each in inside if each.gpus}
        self._elsewhere = any(
            each.state == "RUNNING"
            and each.memory_mib - each.memory_used_mib >= master.memory_mib
            and each.cpus - each.cpus_used >= master.cpus
            for each in inside
            if not each.gpus
        )

    def kept(self, held: Mapping[str, Held], master: Held, size: Amounts) -> tuple[tuple[Node, ...], str]:
        """The nodes without what one master needs, and which GPUs of jobs of this `size` (with each GPU) that costs,
        for people; as they are where a node without GPUs has room for it, or none has."""
        found = [(cost(node, held, master, size), node.name) for node in self._hosts(held, master)]
        if self._elsewhere or not found:
            return self._nodes, ""
        gpus, name = min(found)
        text = f"{master.memory_mib} MB and {master.cpus} cores of {name} are kept for an application master"
        return (
            tuple(_without(each, master) if each.name == name else each for each in self._nodes),
            f"{text}: {gpus} of its free GPUs cannot be used" if gpus else "",
        )

    def check(self, job: str, held: Mapping[str, Held], master: Held, begin: int = 1) -> None:
        """Raises TryLater where no node would have room for it. `held`: with what the job is about to get; `begin`:
        how many masters have no place yet, with this one."""
        if not self._elsewhere and sum(_masters(node, held, master) for node in self._hosts(held, master)) < begin:
            text = f"no node would have room for its application master ({master.memory_mib} MB) beside its workers"
            raise TryLater(f"{job}: {text}", retry_after_s=_AGAIN_S)

    def _hosts(self, held: Mapping[str, Held], master: Held) -> list[Node]:
        return [
            node
            for node in self._nodes
            if node.name in self._where and node.health is Health.UP and _masters(node, held, master) > 0
        ]


def cost(node: Node, held: Mapping[str, Held], master: Held, size: Amounts) -> Gpus:
    """How many GPUs fewer a node with room for a master can give to jobs of this size beside it."""
    return _possible(node, held, size) - _possible(_without(node, master), held, size)


def _masters(node: Node, held: Mapping[str, Held], master: Held) -> int:
    """How many there is room for."""
    ours = held.get(node.name, Held())
    return min((there(node, what) - amount(ours, what)) // max(amount(master, what), 1) for what in _BULK)


def _without(node: Node, master: Held) -> Node:
    return replace(
        node,
        cpus=float(there(node, CORES) - master.cpus),
        memory=(there(node, MEMORY) - master.memory_mib) << 20,
    )


def _possible(node: Node, held: Mapping[str, Held], size: Amounts) -> Gpus:
    ours = held.get(node.name, Held())
    most = free_gpus(node, held)
    for what in _BULK:
        if size.get(what):
            left = max(there(node, what) - amount(ours, what), 0)
            most = min(most, left // size[what])
    return most


# --- where one came ---


@dataclass(frozen=True, slots=True)
class Displaced:
    """Where application masters have the place of workers of their own gang, which therefore never stands."""

    node: str
    fit: int  #: workers that have room beside them
    of: int


def displaced(
    workers: Mapping[str, int], hosts: Sequence[str], reports: Sequence[NodeReport], master: Held, size: Held
) -> Displaced | None:
    """`workers`: by node, what was granted; `hosts`: of the application masters. Told only where they would have no
    room in an empty node either: who else is there may go."""
    for report in reports:
        host = report.host
        here = hosts.count(host)
        if here == 0 or size.memory_mib <= 0:
            continue
        fit = max(report.memory_mib - here * master.memory_mib, 0) // size.memory_mib
        if fit < workers.get(host, 0):
            return Displaced(host, fit, workers[host])
    return None


# --- how many may begin ---


@dataclass(frozen=True, slots=True)
class Beginner:
    """A job that has no application, and is to get one."""

    job: JobName
    owner: str
    queue: str


def quotas(
    queues: Queues, beginners: Sequence[Beginner], master: Amounts, since: int, slices: int = 0
) -> tuple[Quota, ...]:
    """Limits that bind these jobs. `master`: what YARN gives to an application beside its workers; `since`: how many
    applications more of ours there are than when the queues were asked; `slices`: the most that a job can have, an
    application for each node that it is on; 0: it has one for all."""
    bound: dict[str, tuple[int, list[JobName]]] = {}  # a limit above several queues binds the jobs of all of them
    for name in sorted({each.queue for each in beginners}):
        mine = [each for each in beginners if each.queue == name]
        limits = list[tuple[str, str, int]]()
        with suppress(BadInput):  # said elsewhere: nothing can be started in it
            leaf = queues.find(name)
            limits += _parallel(queues.above(leaf.path))
            limits += _limits(leaf, {each.owner for each in mine}, master)
        for text, owner, more in limits:
            most = max(more - since, 0)
            _, whom = bound.setdefault(text, (most, []))
            whom += [each.job for each in mine if owner in ("", each.owner)]
    found = list[Quota]()
    for text, (most, whom) in bound.items():
        if most < max(len(whom), slices):
            nodes = most if slices and most else None
            found.append(Quota(f"{text}: {most} more may begin", tuple(whom), None, most, nodes))
    return tuple(found)


def _parallel(queues: Iterable[Queue]) -> Iterator[tuple[str, str, int]]:
    """As `_limits`: how many applications a queue, and each above it, lets run."""
    for queue in queues:
        text = f"queue {queue.path} lets {queue.most_running} applications run at a time"
        yield text, "", queue.most_running - queue.running


def _limits(queue: Queue, owners: set[str], master: Amounts) -> Iterator[tuple[str, str, int]]:
    """(the limit in words, the user that it binds alone, how many may begin within it)."""
    if queue.parent:
        yield f"queue {queue.path} is a parent and takes no application itself", "", _NONE
    if queue.state != RUNS:
        yield f"queue {queue.path} is {queue.state} and takes no new application", "", _NONE
    share = queue.masters.get(queue.label, MastersShare())
    least = int(queue.active == 0)  # the first one begins, whatever its size
    for owner in ("", *sorted(owners)):
        used, most = share.of(owner)
        if any(most.values()):
            whose = f"application masters of {owner}" if owner else "application masters"
            more = max(_fitting(used, most, master), least)
            yield f"{whose} in queue {queue.path} may have {most[MEMORY]} MB", owner, more


def _fitting(used: Amounts, most: Amounts, each: Amounts) -> int:
    more = []
    for what, size in each.items():
        if size:
            left = most[what] - used.get(what, 0)
            more.append(left // size)
    return min(more)


class Waited:
    """Whose application masters got no container in time: the next one would wait as well, and a gang's GPUs with it.

    Not all that lets them wait is told: of `user.max-parallel-apps` nobody is. What has its application is not bound by
    it, and may grow.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Lesson] = {}

    def learn(self, queue: str, owner: str, now_s: float) -> str:
        """`owner`: "" where the queue lets nobody's begin. What follows, for people."""
        lesson = next_lesson(self._of.get((queue, owner)), 0, now_s)
        self._of[queue, owner] = lesson
        return f"{_whose(queue, owner)} begins for {pause_s(lesson.times):.0f} s"

    def quotas(self, beginners: Sequence[Beginner], now_s: float) -> tuple[Quota, ...]:
        found = list[Quota]()
        for (queue, owner), lesson in self._of.items():
            whom = tuple(each.job for each in beginners if _is_of(each, queue, owner))
            if whom and now_s < lesson.until_s:
                text = f"{_whose(queue, owner)} begins: the last one got no container"
                found.append(Quota(text, whom, None, 0))
        return tuple(found)


def _is_of(beginner: Beginner, queue: str, owner: str) -> bool:
    return beginner.queue == queue and owner in ("", beginner.owner)


def _whose(queue: str, owner: str) -> str:
    return f"no application of {owner} in queue {queue}" if owner else f"no application in queue {queue}"
