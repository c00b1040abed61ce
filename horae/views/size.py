"""Why a job is not larger, beside the policy's own reason: who holds the rest, what its tenant is owed, when it shrank.

Pure, of what is on record and of the nodes as they were last seen; nothing is decided anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from horae.config import Config
from horae.journal.ledger import JobRecord, Ledger
from horae.port import JobId, JobState
from horae.spec import JobSpec
from horae.views import jobs
from policy.model import Gpus, GpuType, Health, Node, NodeName, Seconds
from policy.parts.fair_shares import fair_shares

#: Jobs that are named in one sentence; the others are counted.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Seen:
    """The nodes of one pool at the last look."""

    nodes: tuple[Node, ...]

    @staticmethod
    def in_pool(nodes: Iterable[Node], pool_of: Mapping[NodeName, str], pool: str) -> Seen:
        return Seen(tuple(node for node in nodes if pool_of.get(node.name) == pool))

    def of(self, types: Collection[GpuType]) -> Seen:
        """Only the nodes of these types."""
        return Seen(tuple(node for node in self.nodes if node.gpu_type in types))

    def usable(self, by: JobSpec | None = None) -> Gpus:
        """GPUs of healthy nodes that are nobody else's, of types that such a job runs on (None: of all)."""
        return sum(max(n.gpus - n.foreign, 0) for n in self.nodes if self._counts(n, by))

    def on(self, by: JobSpec) -> set[NodeName]:
        return {n.name for n in self.nodes if self._counts(n, by)}

    def present(self) -> set[GpuType]:
        return {node.gpu_type for node in self.nodes}

    @staticmethod
    def _counts(node: Node, by: JobSpec | None) -> bool:
        return node.health is Health.UP and (by is None or by.runs_on(node.gpu_type))


@dataclass(frozen=True, slots=True)
class Holder:
    job: JobId
    name: str
    tenant: str
    gpus: Gpus

    @property
    def words(self) -> str:
        return f"{self.gpus} by job {self.job} {self.name} ({self.tenant})"


@dataclass(frozen=True, slots=True)
class Rest:
    """The GPUs that a job may run on and does not hold."""

    usable: Gpus
    mine: Gpus
    holders: tuple[Holder, ...]  #: the largest first

    @property
    def free(self) -> Gpus:
        return max(self.usable - self.mine - sum(h.gpus for h in self.holders), 0)

    @property
    def words(self) -> str:
        """`6 are held: 4 by job 3 resnet (ann), 2 by job 5 bert (ben); 1 is free`."""
        held = sum(h.gpus for h in self.holders)
        free = f"{self.free} {'is' if self.free == 1 else 'are'} free"
        if not held:
            return free
        named = ", ".join(h.words for h in self.holders[:NAMED])
        more = len(self.holders) - NAMED
        others = f" and {more} more job{'s' if more > 1 else ''}" if more > 0 else ""
        return f"{held} {'is' if held == 1 else 'are'} held: {named}{others}; {free}"


def free(ledger: Ledger, pool: str, seen: Seen, types: Collection[GpuType]) -> Gpus:
    """Of these types."""
    nodes = {n.name: n.gpus - n.foreign for n in seen.nodes if n.health is Health.UP and n.gpu_type in types}
    held = sum(gpus for r in ledger.live(pool) for node, gpus in r.allocation.items() if node in nodes)
    return max(sum(nodes.values()) - held, 0)


def rest(ledger: Ledger, record: JobRecord, seen: Seen) -> Rest:
    where = seen.on(record.spec)
    holders = []
    for other in ledger.live(record.pool):
        gpus = sum(n for node, n in other.allocation.items() if node in where)
        if gpus and other.id != record.id:
            holders.append(Holder(other.id, other.spec.name, other.tenant, gpus))
    mine = sum(n for node, n in record.allocation.items() if node in where)
    return Rest(seen.usable(record.spec), mine, tuple(sorted(holders, key=lambda h: (-h.gpus, h.job))))


@dataclass(frozen=True, slots=True)
class Share:
    """What its tenant holds in its pool, and what weighted max-min fairness over the present demands owes it."""

    held: Gpus
    owed: float
    weight: float
    tenants: int  #: that have jobs now

    @property
    def off(self) -> float:
        """Above zero: GPUs more than owed."""
        return self.held - self.owed


def share(ledger: Ledger, config: Config, record: JobRecord, seen: Seen) -> Share:
    capacity, present = seen.usable(), seen.present()
    demand: dict[str, float] = {}
    held = 0
    for other in ledger.live(record.pool):
        demand[other.tenant] = demand.get(other.tenant, 0.0) + jobs.usable(other, capacity, present)
        if other.tenant == record.tenant:
            held += sum(other.allocation.values())
    weights = {tenant: config.weight(tenant) for tenant in demand}
    demand = {tenant: jobs.demanded(config, tenant, int(gpus)) for tenant, gpus in demand.items()}
    owed = fair_shares(weights, demand, float(capacity)).get(record.tenant, 0.0)
    return Share(held, owed, config.weight(record.tenant), sum(1 for d in demand.values() if d))


def most(record: JobRecord, seen: Seen) -> Gpus:
    """The largest size that it could have here, alone."""
    return record.spec.gpus.at_most(seen.usable(record.spec))


def is_stuck(record: JobRecord) -> bool:
    """It runs and keeps its size until it ends, whatever anybody wants."""
    resumes = record.spec.elastic and record.spec.checkpoint is not None and not record.checkpoint_trouble
    return record.state is JobState.RUNNING and not resumes


def ago(seconds: Seconds) -> str:
    """`40 s`, `12 min`, `3 h`."""
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
