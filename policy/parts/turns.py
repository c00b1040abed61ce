"""A round that lasts a quantum: asked again before it is over, with the same jobs and nodes, who runs in it goes on.

Policies over fractions of time give whole GPUs for a round and settle the rest in the rounds after it. What they
compute from elapsed time differs from second to second; what they decided for the round stands until it ends. An
arrival, an end, a node or a limit that changes ends the round at once. What is free of a node's cores and memory does
not: it comes and goes with what others run there, and with the cluster's own helpers of our jobs. Nor does a job that
could have nothing but what it holds, as it is above a limit that came later: without it, it is not there any more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policy.model import Allocation, Job, JobName, Seconds, Snapshot
from policy.places.placement import Placer


@dataclass(frozen=True, slots=True)
class Turn:
    """The round that a snapshot falls into."""

    at_s: Seconds  #: when it began
    amid: bool  #: True: it has begun before
    running: frozenset[JobName]
    shape: int  #: of jobs, nodes and limits

    @staticmethod
    def of(snapshot: Snapshot, quantum_s: Seconds, could: Callable[[Job], bool]) -> Turn:
        """`could`: whether a job could run, were nothing else of ours there."""
        shape = _shape(snapshot, could)
        old: Mapping[str, Any] = snapshot.state.get("turn", {})
        amid = bool(old) and old["shape"] == shape and old["at_s"] <= snapshot.now_s < old["at_s"] + quantum_s - 1e-6
        if amid:
            return Turn(old["at_s"], True, frozenset(old["running"]), shape)
        return Turn(snapshot.now_s, False, frozenset(), shape)

    def keep(self, placer: Placer, jobs: Iterable[Job]) -> None:
        """Who runs in this round keeps what it holds."""
        for job in jobs:
            if job.name in self.running and job.name not in placer.taken and (stay := placer.keep(job)):
                placer.take(job, stay)

    def plain(self, allocation: Mapping[JobName, Allocation]) -> dict[str, Any]:
        running = sorted(name for name, place in allocation.items() if place)
        return {"turn": {"at_s": self.at_s, "running": running, "shape": self.shape}}


def _shape(snapshot: Snapshot, could: Callable[[Job], bool]) -> int:
    jobs = sorted((j.name, j.tenant, repr(j.gpus)) for j in snapshot.jobs if j.work.left != 0 and could(j))
    nodes = [(n.name, n.gpu_type, n.gpus, n.foreign, str(n.health)) for n in snapshot.cluster.nodes]
    tenants = sorted((t.name, t.weight, t.cap) for t in snapshot.tenants)
    return zlib.crc32(repr((jobs, nodes, tenants)).encode())
