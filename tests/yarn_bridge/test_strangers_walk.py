"""What is offered is nobody else's: jobs of ours begin and end, strangers come and go, containers end late, at random.

Each look comes after the nodes have told of all that happened before it, so what they told could be known.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from horae.port import JobState, Observation, ObservedJob, PortError, attend
from tests.yarn_bridge.memory_site import SPEC, Site, instances

GPUS = 4
STEPS = 150
TELLS_S = 3.0
DEEDS = ("comes", "comes", "leaves", "ends", "ends", "begins", "begins", "stops", "stops", "waits")


class Walk:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.site = Site()
        self.yarn = self.site.yarn
        self.strangers: Counter[str] = Counter()
        self.epoch = self.stopped = 0
        self.yarn.flex = self.ends_late(self.yarn.flex)  # type: ignore[method-assign]
        self.yarn.forget = self.ends_late(self.yarn.forget)  # type: ignore[method-assign]
        self.site.port.submit("job", SPEC)

    def ours(self) -> Counter[str]:
        return Counter(each.node for service in self.yarn.services.values() for each in instances(service))

    def ends_late(self, act: Callable[..., None]) -> Callable[..., None]:
        """What a service has no more its node still has."""

        def acts(*given: object) -> None:
            before = self.ours()
            act(*given)
            self.yarn.ending.update(before - self.ours())
            self.tell()

        return acts

    def tell(self) -> None:
        self.yarn.lag = self.strangers + self.yarn.ending
        self.yarn.room = {name: max(GPUS - self.yarn.lag[name], 0) for name in self.yarn.hosts}

    def look(self) -> Observation:
        self.site.now_s += TELLS_S
        seen = attend(self.site.port)
        held = self.site.port._observer.jobs["job"].record.held
        for node in seen.nodes:
            claimed = held.get(node.name, 0)
            left = max(GPUS - self.strangers[node.name] - claimed, 0)
            assert node.gpus - node.foreign - claimed <= left, (node, self.strangers, self.yarn.ending, held)
        return seen

    def step(self) -> None:
        seen = self.look()
        deed, node = self.dice.choice(DEEDS), self.dice.choice(self.yarn.hosts)
        free = GPUS - self.ours()[node] - self.yarn.lag[node]
        if deed == "comes" and free > 0:
            self.strangers[node] += self.dice.randint(1, free)
        elif deed == "leaves" and self.strangers[node]:
            self.strangers[node] -= 1
        elif deed == "ends" and self.yarn.ending[node]:
            self.yarn.ending[node] -= 1
        elif deed == "waits":
            self.site.now_s += self.dice.choice([1.0, 11.0, 70.0])
        elif deed == "begins":
            self.begins(seen)
        elif deed == "stops":
            self.stops(seen.jobs[0])
        self.tell()

    def begins(self, seen: Observation) -> None:
        """A grant of what is offered; where it has one, its workers come to the gate."""
        if seen.jobs[0].state.holds:
            if self.yarn.services:
                self.site.register()
            return
        free = {each.name: each.gpus - each.foreign for each in seen.nodes if each.gpus > each.foreign}
        shape = {name: self.dice.randint(1, gpus) for name, gpus in free.items() if self.dice.random() < 0.7}
        if shape:
            self.epoch += 1
            with suppress(PortError):  # no room for its application master now
                self.site.port.start("job", shape, self.epoch)

    def stops(self, job: ObservedJob) -> None:
        if job.state is JobState.RUNNING:
            names = [each.container for service in self.yarn.services.values() for each in instances(service)]
            self.site.port.checkpoint_and_stop("job", 5.0)
            self.site.acknowledge(names, self.epoch, "stopped", 86, 1.0)
            self.stopped += 1


@pytest.mark.parametrize("seed", range(8, 12))
def test_what_is_offered_is_nobody_elses(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    assert walk.stopped >= 2
