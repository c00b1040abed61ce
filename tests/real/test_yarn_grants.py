"""A grant forms, or it was right by what could be known: on a real CapacityScheduler with limits of queues and users, a
labelled node, and others who come and go.

What could be known is read here from the ResourceManager's own pages, beside the bridge and before each grant.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from horae.port import JobState, Observation, ObservedJob, PortError, attend
from policy.model import Allocation, Health
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
)
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn"), pytest.mark.timeout(3600)]

SEED = int(os.environ.get("HORAE_GRANTS_SEED", "20261123"))
GANG_S = 60.0
WORKER_MIB, WORKER_CPUS = 512, 1


@dataclass(frozen=True)
class Room:
    """What the ResourceManager tells of one moment."""

    gpus: dict[str, int]  #: by node, free
    memory_mib: dict[str, int]
    cpus: dict[str, int]
    queue: int | None  #: what the queue may still hold; None: no limit

    def holds(self, shape: Allocation) -> str:
        """Why not; "" where it does."""
        for node, gpus in shape.items():
            if self.gpus.get(node, 0) < gpus:
                return f"{node} has {self.gpus.get(node, 0)} free GPUs, not {gpus}"
            if self.memory_mib[node] < gpus * WORKER_MIB or self.cpus[node] < gpus * WORKER_CPUS:
                return f"{node} has {self.memory_mib[node]} MB and {self.cpus[node]} cores for {gpus} workers"
        if self.queue is not None and sum(shape.values()) > self.queue:
            return f"its queue may hold {self.queue} GPUs more"
        return ""


@dataclass
class Shop:
    """A queue of ours beside another one's, with a limit each, and who comes and goes in it."""

    harness: YarnHarness
    dice: random.Random
    port: YarnCluster = field(init=False)
    others: list[str] = field(default_factory=list)
    made: int = 0
    formed: int = 0
    withheld: int = 0

    def __post_init__(self) -> None:
        more = {"gang_s": GANG_S, "memory_mib": WORKER_MIB}
        self.port = YarnCluster(parse_options({**self.harness.options, **more}))
        self.port.claim("grants")

    def room(self) -> Room:
        reports = [each for each in self.port.manager.nodes() if each.state == "RUNNING"]
        found = queues(self.port.manager.scheduler())
        left = [q.most - q.used for q in found.above("root.horae") if q.most is not None]
        return Room(
            {each.host: each.gpus - each.gpus_used for each in reports},
            {each.host: each.memory_mib - each.memory_used_mib for each in reports},
            {each.host: each.cpus - each.cpus_used for each in reports},
            min(left, default=None),
        )

    def somebody(self) -> None:
        """Of another queue comes, or goes: with GPUs, or with memory and cores alone."""
        if self.others and self.dice.random() < 0.5:
            with suppress(PortError):
                self.port.services.destroy(self.others.pop(0), "horae")
            return
        self.made += 1
        name = f"other-{self.made}-{self.dice.randrange(10**6)}"
        resource: dict[str, object] = {"cpus": self.dice.choice([1, 4]), "memory": str(self.dice.choice([512, 8192]))}
        if self.dice.random() < 0.7:
            resource["additional"] = {"yarn.io/gpu": {"value": 1, "unit": ""}}
        part = {"name": "w", "number_of_containers": self.dice.randint(1, 4), "restart_policy": "ON_FAILURE",
                "launch_command": "exec sleep 3600", "resource": resource}  # fmt: skip
        self.port.services.create({"name": name, "version": "1.0", "queue": "default", "components": [part]}, "horae")
        self.others.append(name)

    def shape(self, seen: Observation) -> Allocation:
        """Any that fits what is offered."""
        held = self._held(seen)
        found: dict[str, int] = {}
        nodes = [node for node in seen.nodes if node.health is Health.UP]
        self.dice.shuffle(nodes)
        for node in nodes[: self.dice.randint(1, len(nodes))] if nodes else ():
            free = node.gpus - node.foreign - held.get(node.name, 0)
            if node.memory is not None and node.cpus is not None:
                free = min(free, (node.memory >> 20) // WORKER_MIB, int(node.cpus) // WORKER_CPUS)
            if free > 0:
                found[node.name] = self.dice.randint(1, free)
        return found

    @staticmethod
    def _held(seen: Observation) -> dict[str, int]:
        found: dict[str, int] = {}
        for job in seen.jobs:
            for node, gpus in job.allocation.items():
                found[node] = found.get(node, 0) + gpus
        return found

    def grant(self, number: int) -> None:
        """One more job, in a shape that is offered."""
        seen = patiently(lambda: attend(self.port))
        shape = self.shape(seen)
        if not shape:
            return
        before = self.room()
        assert before.holds(shape) == "", (shape, seen.nodes, seen.notes)
        job = f"j{number}"
        spec = self.harness.spec(job, Behaviour.TRAINS, gpus=(1, 12))
        self.port.submit(job, replace(spec, memory_per_gpu=WORKER_MIB << 20))
        self.port.start(job, shape, 1)
        if self.dice.random() < 0.5:
            self.somebody()  # nobody could know
            disturbed = True
        else:
            disturbed = False
        wait_for(f"{job} on {shape} stands or is given back", lambda: self._settled(job), 4 * GANG_S)
        now = self.job(job)
        if now.state is JobState.RUNNING:
            self.formed += 1
            return
        self.withheld += 1
        assert (now.blocked is not None and "YARN" in now.blocked.text) or "came within" in now.blocked.text, now  # type: ignore[union-attr]
        assert disturbed, f"{job} on {shape} did not form, and nobody came between: {now.blocked}"

    def job(self, name: str) -> ObservedJob:
        return next(each for each in patiently(lambda: attend(self.port)).jobs if each.id == name)

    def _settled(self, name: str) -> bool:
        job = self.job(name)
        return job.state is JobState.RUNNING or (not job.state.holds and job.blocked is not None)

    def clear(self) -> None:
        """All of ours and theirs go; then nothing is pending or reserved for anybody."""
        for each in self.others:
            with suppress(PortError):
                self.port.services.destroy(each, "horae")
        for job in patiently(lambda: attend(self.port)).jobs:
            patiently(partial(self.port.cancel, job.id))
        wait_for("ours end", lambda: all(j.state.ended for j in patiently(lambda: attend(self.port)).jobs), 180.0)
        wait_for(
            "nothing is pending", lambda: queues(self.port.manager.scheduler()).find("root.horae").pending == 0, 60.0
        )
        self.port.close()


@pytest.fixture
def shop(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[Shop]:  # noqa: F811
    harness = YarnHarness(hadoop_342, tmp_path)
    manager = harness.port.manager  # type: ignore[attr-defined]
    conf = manager.scheduler_conf("horae") or {}
    names = ("root.horae", "root.default")
    said = {name: {"capacity": conf[f"yarn.scheduler.capacity.{name}.capacity"]} for name in names}
    said["root.horae"] |= {"maximum-capacity": "100", "user-limit-factor": "10"}
    limits = {
        "root.horae": {"capacity": "50", "maximum-capacity": "75", "user-limit-factor": "2"},
        "root.default": {"capacity": "50"},
    }
    manager.edit_scheduler(QueueEdits(update=limits), "horae")
    made = Shop(harness, random.Random(SEED))
    yield made
    made.clear()
    manager.edit_scheduler(QueueEdits(update=said), "horae")
    harness.end()


def test_grants_beside_others_form(shop: Shop) -> None:
    shop.somebody()
    shop.grant(1)
    assert shop.formed + shop.withheld == 1


@pytest.mark.soak
def test_many_grants_beside_others_form(shop: Shop) -> None:
    rounds = int(os.environ.get("HORAE_GRANTS", "60"))
    for number in range(1, rounds + 1):
        for _ in range(shop.dice.randint(0, 2)):
            shop.somebody()
        shop.grant(number)
        living = [each for each in patiently(lambda: attend(shop.port)).jobs if each.state is JobState.RUNNING]
        if living and shop.dice.random() < 0.7:
            patiently(partial(shop.port.cancel, shop.dice.choice(living).id))
    print(f"{shop.formed} grants formed, {shop.withheld} were given back", flush=True)
    assert shop.formed > rounds // 3
