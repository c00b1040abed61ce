"""The agent's end of a round (§4.2.2 step 5): an app's GPUs become gangs of its jobs.

Which jobs run, and on how many GPUs, is the schedule that the bid was valued with (`policy.themis.schedule`). Jobs
that run already go on where that costs the app less than `PATIENCE` of its time: every change is a restart.

GPUs of a draining node are no app's to hand from job to job: nobody new may start there. Where a schedule would do so,
the jobs that hold GPUs there stay first, each on what it holds, and the others share the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from policy.model import Allocation, Gpus, Job, JobName, NodeName
from policy.themis.auction.valuation import Valuation
from policy.themis.offer import Offer
from policy.themis.schedule import Schedule, Take, Task, prefer, schedule
from policy.themis.shapes import Bundle, Chunk, ordered

#: A schedule that keeps running jobs running may end this much later than the best one.
PATIENCE = 0.05


class Agent:
    """One app and the nodes of its bundles."""

    def __init__(self, valuation: Valuation, offered: Offer, closed: frozenset[NodeName] = frozenset()) -> None:
        """`closed`: nodes that take nothing new."""
        self.value = valuation
        self._closed = closed
        self._rack, self._type = offered.rack, offered.gpu_type
        self._leased = offered.base(valuation.name)
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
        out: dict[NodeName, Gpus] = {}
        for place in self.assign(nodes).values():
            for node, gpus in place.items():
                out[node] = out.get(node, 0) + gpus
        return out

    def speed(self, nodes: Mapping[NodeName, Gpus]) -> float:
        """How fast the jobs that run from the start run together, each in parts of its smallest gang's rate."""
        jobs = {t.job.name: t.job for t in self.value.phases[0]} if self.value.phases else {}
        total = 0.0
        for name, place in self.assign(nodes).items():
            gang = [Chunk(self._type[n], self._rack[n], g) for n, g in place.items()]
            total += self.value.gangs.speed(jobs[name], gang) / (self.value.gangs.smallest(jobs[name]) or 1.0)
        return total

    def assign(self, nodes: Mapping[NodeName, Gpus]) -> dict[JobName, dict[NodeName, Gpus]]:
        """Gangs of the app's jobs on these GPUs."""
        if not self.value.phases or not any(nodes.values()):
            return {}
        tasks = self.value.phases[0]
        if going := self._as_they_are(tasks, nodes):
            return going
        shape, names = self.bundle(nodes)
        found = self._gangs(tasks, self.value.now(shape), shape, names, nodes)
        held = {t.job.name: t.job.allocation for t in tasks}
        if all(g <= held[j].get(n, 0) for j, place in found.items() for n, g in place.items() if n in self._closed):
            return found
        stay, left = self._anchored(tasks, {n: g for n, g in nodes.items() if g > 0})
        rest = [t for t in tasks if t.job.name not in stay]
        left = {n: g for n, g in left.items() if n not in self._closed}
        shape, names = self.bundle(left)
        return {**stay, **self._gangs(rest, schedule(rest, shape, self.value.gangs), shape, names, left)}

    def _anchored(
        self, tasks: Sequence[Task], left: dict[NodeName, Gpus]
    ) -> tuple[dict[JobName, dict[NodeName, Gpus]], dict[NodeName, Gpus]]:
        """Who stays where it is, since it holds GPUs of a node that takes nobody anew, and what is left beside them."""
        stay: dict[JobName, dict[NodeName, Gpus]] = {}
        for task in sorted(tasks, key=lambda t: t.job.order):
            anchored = task.iterations > 0 and self._closed.intersection(task.job.allocation)
            if anchored and (mine := self._part(task.job, left)):
                stay[task.job.name] = mine
                left = {n: g - mine.get(n, 0) for n, g in left.items() if g > mine.get(n, 0)}
        return stay, left

    def _as_they_are(
        self, tasks: Sequence[Task], nodes: Mapping[NodeName, Gpus]
    ) -> dict[JobName, dict[NodeName, Gpus]]:
        """What each job holds, where that is all there is and under leases, and each gang runs; else nothing."""
        held = {t.job.name: dict(t.job.allocation) for t in tasks if t.iterations > 0 and t.job.allocation}
        total: dict[NodeName, Gpus] = {}
        for place in held.values():
            for node, gpus in place.items():
                total[node] = total.get(node, 0) + gpus
        if not total == dict(nodes) == self._leased:
            return {}
        for task in tasks:
            gang = [Chunk(self._type[n], self._rack[n], g) for n, g in held.get(task.job.name, {}).items()]
            runs = not gang or (task.job.gpus.feasible(task.job.held) and self.value.gangs.speed(task.job, gang) > 0)
            if not runs or (gang and not self.value.gangs.allowed(gang)):
                return {}
        return held

    def _part(self, job: Job, left: Mapping[NodeName, Gpus]) -> dict[NodeName, Gpus]:
        """The largest gang within what the job holds and `left` has of it; it shrinks where it holds least."""
        mine = {n: least for n, g in job.allocation.items() if (least := min(g, left.get(n, 0))) > 0}
        while mine:
            over = sum(mine.values()) - job.gpus.at_most(sum(mine.values()))
            chunks = [Chunk(self._type[n], self._rack[n], g) for n, g in mine.items()]
            if not over and self.value.gangs.allowed(chunks):
                return mine
            node = min(mine, key=lambda n: mine[n])
            cut = min(over, mine[node]) or mine[node]
            mine = {n: g - cut * (n == node) for n, g in mine.items() if n != node or g > cut}
        return {}

    def _gangs(
        self,
        tasks: Sequence[Task],
        plan: Schedule,
        shape: Bundle,
        names: Sequence[NodeName],
        nodes: Mapping[NodeName, Gpus],
    ) -> dict[JobName, dict[NodeName, Gpus]]:
        """The gangs that `plan` starts with, on nodes; jobs that run stay where that costs little."""
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
        before = _kept(held, plain)
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
        return out if _kept(held, out) > before else plain


def _kept(held: Sequence[Allocation], placed: Sequence[Mapping[NodeName, Gpus]]) -> Gpus:
    """GPUs that jobs hold, and of which they are given as many on the same nodes."""
    return sum(
        min(had.get(node, 0), gpus) for had, place in zip(held, placed, strict=True) for node, gpus in place.items()
    )
