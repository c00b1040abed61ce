"""The policy of a simulation: asked through `policy.decide`'s door, without a certificate, once a moment."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horae.sim.conditions.told import TRUE, Conditions
from policy import catalogue
from policy.afs import afs_l, afs_p
from policy.baselines import max_min
from policy.contract import Context, Entry
from policy.decide import propose
from policy.model import App, Cluster, Proposal, Seconds, Snapshot
from policy.parts.pools import Counted
from policy.throughput import Throughput

#: Policies that tell sizes without places; none of them draws.
COUNTED: Mapping[str, Callable[[Snapshot, Mapping[str, Any], Context], Counted]] = {
    "afs-l": afs_l.counted,
    "afs-p": afs_p.counted_p,
    "max-min": max_min.counted,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a simulation is run with, beside the trace."""

    cluster: Cluster  #: a pool a type where `ideal`
    entry: Entry
    options: Mapping[str, Any]
    seed: int = 0
    ideal: bool = False
    restart_s: Seconds | None = None  #: None: drawn from measured ones
    #: Not ideal: decisions are taken at multiples of it
    tick_s: Seconds = 5.0
    conditions: Conditions = TRUE
    apps: tuple[App, ...] = ()  #: those that end jobs of their own

    @staticmethod
    def of(cluster: Cluster, policy: str, given: Mapping[str, Any], **more: Any) -> Settings:
        """Raises BadInput for a policy or an option that does not exist."""
        entry = catalogue.find(policy)
        return Settings(cluster, entry, entry.resolve(given), **more)


@dataclass(slots=True)
class AskedPolicy:
    """Counts what asking took."""

    settings: Settings
    speeds: Throughput
    seconds: list[Seconds] = field(default_factory=list)  #: of the processor's time, one a question

    def in_one_pool(self) -> Callable[[Snapshot], Proposal] | None:
        """`about` without reasons and a search for places, where there is one pool and the policy tells sizes alone."""
        settings = self.settings
        counted = COUNTED.get(settings.entry.name)
        one = settings.ideal and len(settings.cluster.nodes) == 1 and not settings.options.get("network_packing", False)
        one = one and not settings.apps
        if counted is None or not one:
            return None
        (node,) = settings.cluster.nodes

        def about(snapshot: Snapshot) -> Proposal:
            started = time.perf_counter()
            given = counted(snapshot, settings.options, Context(self.speeds))
            self.seconds.append(time.perf_counter() - started)
            return Proposal({name: {node.name: gpus} for name, gpus in given.gpus.items()}, state=given.state)

        return about

    def about(self, snapshot: Snapshot) -> Proposal:
        """What the policy proposes. Its chance depends on the seed and the moment alone, not on how often it was asked
        before. Raises PolicyFailed, BadInput."""
        seed = zlib.crc32(f"{self.settings.seed}/{snapshot.now_s!r}".encode())
        context = Context(self.speeds, seed)
        started = time.perf_counter()
        proposal = propose(snapshot, self.settings.entry, self.settings.options, context)
        self.seconds.append(time.perf_counter() - started)
        return proposal
