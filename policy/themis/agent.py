"""The agent's end of a round (§4.2.2 step 5): an app's GPUs become gangs of its jobs.

Which jobs run, and on how many GPUs, is the schedule that the bid was valued with (`policy.themis.schedule`). Jobs
that run already go on where that costs the app less than `PATIENCE` of its time: every change is a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from policy.model import Allocation, Gpus, JobName, NodeName
from policy.themis.offer import Offer
from policy.themis.schedule import Schedule, Take, prefer
from policy.themis.shapes import Bundle, Chunk, ordered
from policy.themis.valuation import Valuation

#: A schedule that keeps running jobs running may end this much later than the best one.
PATIENCE = 0.05


class Agent:
    """One app and the nodes of its bundles."""

    def __init__(self, valuation: Valuation, offered: Offer) -> None:
        self.value = valuation
        self._rack, self._type = offered.rack, offered.gpu_type
        jobs, gangs = valuation.jobs, valuation.gangs
        self.types = {
            t for t in gangs.types for j in jobs if (g := j.gpus.above(0)) and gangs.speed(j, [Chunk(t, "", g)]) > 0
        }
        self._memo: dict[tuple[tuple[NodeName, Gpus], ...], tuple[Bundle, tuple[NodeName, ...]]] = {}

    def bundle(self, nodes: Mapping[NodeName, Gpus]) -> tuple[Bundle, tuple[NodeName, ...]]:
        """The shape of GPUs on named nodes, and the node of each of its chunks."""
        key = tuple(nodes.items())
        if (known := self._memo.get(key)) is None:
            names = [n for n, g in nodes.items() if g > 0]
            shape, at = ordered([Chunk(self._type[n], self._rack[n], nodes[n]) for n in names])
            known = self._memo[key] = (shape, tuple(names[i] for i in at))
        return known

    def rho(self, nodes: Mapping[NodeName, Gpus]) -> float:
        """inf where nothing can run on these GPUs."""
        if not any(nodes.values()):
            return inf
        return self.value.rho(self.bundle(nodes)[0])

    def used(self, nodes: Mapping[NodeName, Gpus]) -> dict[NodeName, Gpus]:
        """GPUs of the bundle that run a job from the start."""
        shape, names = self.bundle(nodes)
        out: dict[NodeName, Gpus] = {}
        for _, take in self.value.now(shape).first:
            for chunk, gpus in take:
                out[names[chunk]] = out.get(names[chunk], 0) + gpus
        return out

    def assign(self, nodes: Mapping[NodeName, Gpus]) -> dict[JobName, dict[NodeName, Gpus]]:
        """Gangs of the app's jobs on these GPUs."""
        if not self.value.phases or not any(nodes.values()):
            return {}
        shape, names = self.bundle(nodes)
        tasks = self.value.phases[0]
        plan: Schedule = self.value.now(shape)
        running = {i for i, t in enumerate(tasks) if t.job.allocation}
        if running and {i for i, _ in plan.first} != running:
            calm = prefer(tasks, shape, self.value.gangs, running)
            if calm.first and calm.seconds <= plan.seconds * (1 + PATIENCE):
                plan = calm
        jobs = [tasks[i].job for i, _ in plan.first]
        placed = self._stay([j.allocation for j in jobs], [t for _, t in plan.first], names, nodes)
        return {job.name: place for job, place in zip(jobs, placed, strict=True)}

    def _stay(
        self,
        held: Sequence[Allocation],
        takes: Sequence[Take],
        names: Sequence[NodeName],
        nodes: Mapping[NodeName, Gpus],
    ) -> list[dict[NodeName, Gpus]]:
        """Gangs of one node may swap nodes of one GPU type: jobs stay where they run, if all still fit."""
        plain = [{names[chunk]: gpus for chunk, gpus in take} for take in takes]
        left = dict(nodes)
        for place in plain:
            if len(place) > 1:
                for node, gpus in place.items():
                    left[node] -= gpus
        out = [dict(p) for p in plain]
        stays = [sum(min(held[i].get(n, 0), g) for n, g in p.items()) for i, p in enumerate(plain)]
        for i in sorted(
            (i for i, p in enumerate(plain) if len(p) == 1), key=lambda i: -max(held[i].values(), default=0)
        ):
            ((at, gpus),) = plain[i].items()
            able = [n for n in left if left[n] >= gpus and self._type[n] == self._type[at]]
            if not able:
                return plain
            node = min(able, key=lambda n: (-min(held[i].get(n, 0), gpus), left[n]))
            out[i] = {node: gpus}
            left[node] -= gpus
        moved = [sum(min(held[i].get(n, 0), g) for n, g in p.items()) for i, p in enumerate(out)]
        return out if sum(moved) > sum(stays) else plain
