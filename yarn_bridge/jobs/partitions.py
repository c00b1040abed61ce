"""Which partition of the cluster a node is in, and whether workers of Horae's queue get there. Pure.

A node has one label at most, and so is in one partition. A container asks for a partition or gets its queue's default
one. A queue gets into the partitions it is let into, and into those that are not exclusive while they are idle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from policy.model import EMPTY
from yarn_bridge.clients.queues import Queue
from yarn_bridge.clients.records import NodeReport


@dataclass(frozen=True, slots=True)
class Reach:
    of: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: labelled nodes -> their partition
    asked: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: node -> partition that its workers must ask for
    out: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: nodes where no worker gets to -> why
    #: by label, the nodes of partitions where workers get to; no queue's share binds who borrows of one that is lent
    binds: Mapping[str, frozenset[str]] = field(default_factory=lambda: EMPTY)

    @property
    def whole(self) -> bool:
        """Whether workers get to one partition alone, and are bound by shares of it."""
        lent = {label for node, label in self.of.items() if node not in self.out} - self.binds.keys()
        return len(self.binds) == 1 and not lent


def reach(
    reports: Sequence[NodeReport], leaves: Sequence[Queue], exclusive: Collection[str], asks: bool, named: str
) -> Reach:
    """`leaves`: the queues that jobs may be in: a node counts as reached where all of them get there. `exclusive`:
    labels of partitions that lend nothing. `asks`: a worker can ask for a partition. `named`: the attribute by which
    workers are sent to nodes, "" where YARN chooses them."""
    of, asked, out = {}, {}, {}
    for report in reports:
        if not report.gpus:
            continue
        host = report.host
        label = report.label
        if label:
            of[host] = label
        if named and report.attributes.get(named) != host:
            out[host] = f"it does not tell its own name (node attribute {named}), so no worker can be sent there"
        for leaf in leaves:
            if label and label != leaf.label and _lets_in(leaf, label, asks):
                asked[host] = label
            elif not _gets_to(leaf, label, exclusive):
                where = f"partition {label}" if label else "the default partition"
                out[host] = f"it is in {where}, where workers of {leaf.path} do not get to"
    inside = {host: label for host, label in asked.items() if host not in out}
    homes = {leaf.label for leaf in leaves}
    return Reach(of, inside, out, _binding(reports, of, inside, out, homes))


def _binding(
    reports: Sequence[NodeReport],
    of: Mapping[str, str],
    inside: Mapping[str, str],
    out: Collection[str],
    homes: Collection[str],
) -> dict[str, frozenset[str]]:
    """As `Reach.binds`. `homes`: labels of the partitions of who asks for none; none: nobody could tell yet."""
    homes = homes or {""}
    found: dict[str, set[str]] = {}
    reached = set(inside.values())
    for report in reports:
        if not report.gpus:
            continue
        label = of.get(report.host, "")
        found.setdefault(label, set()).add(report.host)
        if label in homes and report.host not in out:
            reached.add(label)
    return {label: frozenset(found[label]) for label in reached}


def _lets_in(leaf: Queue, label: str, asks: bool) -> bool:
    return asks and lets_in(leaf, label)


def lets_in(leaf: Queue, label: str) -> bool:
    """Whether who asks for this partition gets there."""
    return "*" in leaf.labels or label in leaf.labels


def _gets_to(leaf: Queue, label: str, exclusive: Collection[str]) -> bool:
    """Whether a worker that asks for no partition does."""
    return label == leaf.label or bool(label and label not in exclusive and not leaf.label)
