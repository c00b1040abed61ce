"""What of the cluster's nodes is offered to jobs: free GPUs, memory and cores without those that we could not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from policy.model import Gpus, Node
from yarn_bridge.clients.records import NodeReport
from yarn_bridge.jobs.masters import MasterRoom
from yarn_bridge.jobs.partitions import Reach
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.jobs.reading import Others, beside, nodes_of, one_a_host
from yarn_bridge.jobs.record import Record
from yarn_bridge.jobs.room import Held, Holding, Lessons, largest, limited, shut
from yarn_bridge.jobs.shapes import tag_of
from yarn_bridge.options import Options

#: a node tells of what was given back at its next heartbeat, once the worker has ended
RETURNING_S = 10.0


@dataclass(frozen=True, slots=True)
class Ours:
    """What our jobs hold, or may come to hold."""

    told: Sequence[Holding]
    held: Mapping[str, Held]  #: by node
    came: Mapping[str, Held]  #: the same, without what has not come of gangs that form
    standing: Mapping[tuple[str, str], int]  #: by node and tag, the most workers that our jobs have there
    unsettled: AbstractSet[str]  #: nodes that may not have told yet of all that comes to us, or goes
    begins: bool  #: a job is to have an application master, and YARN has placed none


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Workers that a job has no more, and that may be ending still."""

    node: str
    tag: str  #: as in `shapes.tag_of`
    workers: int
    each: Gpus  #: of a worker
    until_s: float  #: it is no excuse any more


@dataclass(frozen=True, slots=True)
class Offer:
    nodes: tuple[Node, ...]
    notes: tuple[str, ...]  #: what is left out, and why


class Offers:
    def __init__(
        self,
        options: Options,
        limits: QueueLimits,
        lessons: Lessons,
        masters: MasterRoom,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._clock = clock
        self.limits = limits
        self.lessons = lessons
        self.masters = masters
        self._others = Others()
        self._certain = Others()
        self._given_back: list[GivenBack] = []

    def of(self, reports: list[NodeReport], known_gpus: Mapping[str, Gpus], ours: Ours, got: Reach) -> Offer:
        """`known_gpus`: by node, while it lived; `got`: where workers get to."""
        now_s = self._clock()
        held = ours.held
        notes = list[str]()
        returning = self._returning(reports, ours, now_s)
        others = self._others.look(reports, held, returning, ours.unsettled)
        certain = self._certain.look(reports, ours.came, returning, ours.unsettled)
        nodes = beside(nodes_of(reports, others, known_gpus, self._options), others, certain, held)
        kept = self.limits.kept
        free = [each for each in reports if each.host not in kept]
        self.masters.look(nodes, free, self.limits.master, {each.label for each in self.limits.leaves()} or {""})
        if ours.begins:
            nodes, cost = self.masters.kept(held, self.limits.master, largest(ours.told))
            notes += [cost] if cost else []
        nodes = self.lessons.heeded(nodes, held, now_s)
        notes += self.lessons.notes(now_s)
        nodes = shut(nodes, held, {*got.out, *kept})
        notes += [
            f"{name} is not offered: YARN keeps it for a container of {app}" for name, app in sorted(kept.items())
        ]
        notes += [f"{name} is not offered: {why}" for name, why in sorted(got.out.items())]
        notes += [
            f"{each.host} has GPUs of several types: only its {each.gpu_name} are offered"
            for each in one_a_host(reports)
            if each.gpu_others
        ]
        closed = [each for each in self.limits.leaves() if each.state != "RUNNING"]
        notes += [f"queue {each.path} is {each.state}: it takes no new application" for each in closed]
        notes += self.limits.troubles()
        return Offer(self._limited(nodes, ours, got, notes), tuple(notes))

    def _limited(self, nodes: tuple[Node, ...], ours: Ours, got: Reach, notes: list[str]) -> tuple[Node, ...]:
        """Without what Horae's queue, and those above it, may not hold; `notes` grows by why."""
        for label in ("", *sorted(set(got.asked.values()) | {each.label for each in self.limits.leaves()} - {""})):
            within = {each.name for each in nodes if got.of.get(each.name, "") == label}
            for what, limit in sorted(self.limits.ceilings(label, within, ours.begins, ours.told).items()):
                fewer = limited(nodes, ours.held, what, limit.most, largest(ours.told), within)
                if fewer != nodes:
                    nodes = fewer
                    notes.append(f"{limit.text}: no more is offered")
        return nodes

    def given_back(self, record: Record, before: Mapping[str, Gpus], after: Mapping[str, Gpus]) -> None:
        """A job's GPUs by node: those that it has no more are free, whatever their nodes say until their next word."""
        until_s = self._clock() + RETURNING_S
        for name, gpus in before.items():
            workers = (gpus - after.get(name, 0)) // record.each
            if workers > 0:
                self._given_back.append(GivenBack(name, tag_of(record, name), workers, record.each, until_s))

    def _returning(self, reports: list[NodeReport], ours: Ours, now_s: float) -> dict[str, Gpus]:
        """By node; what its node told of has returned. What is used there by somebody who came meanwhile does not
        return: where YARN counts our containers, no more does than it still counts beside those of living jobs."""
        hosts = one_a_host(reports)
        used = {each.host: each.gpus_used - ours.held.get(each.host, Held()).gpus for each in hosts}
        self._given_back = [
            each
            for each in self._given_back
            if now_s < each.until_s and used.get(each.node, 0) > self._certain.gpus(each.node)
        ]
        counted = {(each.host, tag): count for each in hosts for tag, count in each.tags.items()}
        found: dict[str, Gpus] = {}
        for each in self._given_back:
            workers = each.workers
            if each.tag:
                at = (each.node, each.tag)
                workers = min(workers, max(counted.get(at, 0) - ours.standing.get(at, 0), 0))
                counted[at] = counted.get(at, 0) - workers
            found[each.node] = found.get(each.node, 0) + workers * each.each
        return found
