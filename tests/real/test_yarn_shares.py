"""Leaf queues as tenants, each with a share of two partitions, on a real scheduler whose limits change: what is granted
within what is told comes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from horae.port import JobState, Observation, ObservedJob, PortError, TryLater, attend
from policy.model import Allocation, Node, Quota
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import YarnHarness, cluster_of
from tests.real.yarn_queues import LABEL, LABELS_ON, label
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn"), pytest.mark.timeout(1800)]

SEED, ROUNDS = int(os.environ.get("HORAE_SHARES_SEED", "1")), int(os.environ.get("HORAE_SHARES", "12"))
VISION, SPEECH = "root.gpu.vision", "root.gpu.speech"
OWNERS = ("horae", "ann", "bob")
#: in the lab's own settings, for each change of them
ACCESS, MOST = f"accessible-node-labels.{LABEL}.capacity", f"accessible-node-labels.{LABEL}.maximum-capacity"
GANG_S, WORKER_MIB = 25.0, 512
Limits = Mapping[str, dict[str, str | None]]


@dataclass
class Day:
    """Jobs of several owners in two leaf queues, whose limits an administrator changes between them."""

    port: YarnCluster
    harness: YarnHarness
    dice: random.Random
    tenants: dict[str, str] = field(default_factory=dict)  #: of each job
    came: int = 0
    fell_short: list[str] = field(default_factory=list)

    def edit(self, limits: Limits) -> None:
        """The scheduler may refuse what the dice say."""
        with suppress(PortError):
            self.port.manager.edit_scheduler(QueueEdits(update=limits), "horae")
        self.port._observer.limits.forget()

    def limits(self) -> Limits:
        mine, labelled = self.dice.choice([30, 50, 70]), self.dice.choice([25, 50, 75])
        above = {"maximum-capacity": self.dice.choice(["60", "75", "100"]), MOST: self.dice.choice(["60", "75", "100"])}
        return {
            "root.gpu": {**above, "max-parallel-apps": self.dice.choice([None, "2", "4"])},
            VISION: self.leaf(mine, labelled),
            SPEECH: self.leaf(100 - mine, 100 - labelled),
        }

    def leaf(self, share: int, labelled: int) -> dict[str, str | None]:
        return {
            "capacity": str(share),
            ACCESS: str(labelled),
            "maximum-capacity": str(self.dice.choice([share, min(share + 25, 100), 100])),
            MOST: str(self.dice.choice([labelled, 100])),
            "user-limit-factor": self.dice.choice(["0.5", "1", "1.5", "10"]),
            "max-parallel-apps": self.dice.choice([None, "1", "2", "3"]),
        }

    def hand_in(self) -> str:
        job, tenant = f"j{len(self.tenants)}", self.dice.choice([VISION, SPEECH])
        self.tenants[job] = tenant
        spec = self.harness.spec(job, Behaviour.TRAINS, gpus=(1, 12))
        owner = self.dice.choice(OWNERS)
        spec = replace(spec, owner=owner, tenant=tenant, memory_per_gpu=WORKER_MIB << 20)
        options = parse_options(self.harness.options)
        folder = "/" + (spec.checkpoint or "").partition("://")[2].partition("/")[2]
        Hdfs(options.access(options.webhdfs)).make_folder(folder, "777")
        self.port.submit(job, spec)
        return job

    def round(self) -> None:
        """Some jobs are granted what is offered; those that a policy could not know better of are refused at once."""
        if self.dice.random() < 0.5:
            self.edit(self.limits())
        new = [self.hand_in() for _ in range(self.dice.randint(1, 3))]
        self.port._observer.limits.forget()
        seen = patiently(lambda: attend(self.port))
        shapes: dict[str, Allocation] = {}
        for job in new:
            shape = self.shape(seen, job, shapes)
            if shape:
                shapes[job] = shape
        started = {job: shape for job, shape in shapes.items() if self.starts(job, shape)}
        wait_for("they stand, or are given back", lambda: all(self.is_settled(job) for job in started), 8 * GANG_S)
        for job, shape in started.items():
            now = self.job(job)
            if now.state is JobState.RUNNING:
                self.came += 1
            else:
                blocked = "" if now.blocked is None else now.blocked.text
                self.fell_short.append(f"{job} of {self.tenants[job]} on {dict(shape)}: {blocked}; {seen}")
        for each in patiently(lambda: attend(self.port)).jobs:
            if not each.state.ended and (each.state is not JobState.RUNNING or self.dice.random() < 0.6):
                patiently(lambda job=each.id: self.port.cancel(job))  # type: ignore[misc]
        wait_for("who goes has gone", lambda: not patiently(lambda: attend(self.port)).due)

    def starts(self, job: str, shape: Allocation) -> bool:
        try:
            self.port.start(job, shape, 1)
        except TryLater as error:
            print(f"{job} on {dict(shape)} waits: {error}", flush=True)
            return False
        return True

    def job(self, name: str) -> ObservedJob:
        return next(each for each in patiently(lambda: attend(self.port)).jobs if each.id == name)

    def is_settled(self, name: str) -> bool:
        now = self.job(name)
        if now.state in (JobState.RUNNING, JobState.LOST):
            return True
        return not now.state.holds and now.blocked is not None

    def shape(self, seen: Observation, job: str, others: Mapping[str, Allocation]) -> Allocation:
        """Any that a policy may grant: within what nodes, tenants and quotas are told to have. {}: none was found."""
        holds = {each.id: each.allocation for each in seen.jobs} | dict(others)
        for _ in range(30):
            nodes = self.dice.sample(seen.nodes, self.dice.randint(1, len(seen.nodes)))
            shape = {node.name: self.dice.randint(1, 4) for node in nodes}
            whole = {**holds, job: shape}
            if all(_has_room(node, whole) for node in seen.nodes) and self.is_allowed(seen, job, whole):
                return shape
        return {}

    def is_allowed(self, seen: Observation, job: str, holds: Mapping[str, Allocation]) -> bool:
        held: Counter[str] = Counter()
        for name, shape in holds.items():
            held[self.tenants[name]] += sum(shape.values())
        tenant = self.tenants[job]
        if held[tenant] > seen.caps.get(tenant, held[tenant]):
            return False
        return all(_is_kept(quota, holds) for quota in seen.quotas if job in quota.whom)


def _has_room(node: Node, holds: Mapping[str, Allocation]) -> bool:
    gpus = sum(shape.get(node.name, 0) for shape in holds.values())
    memory = (node.memory or 0) >> 20
    return gpus <= node.gpus - node.foreign and gpus * WORKER_MIB <= memory and gpus <= int(node.cpus or 0)


def _is_kept(quota: Quota, holds: Mapping[str, Allocation]) -> bool:
    bound = [sum(holds.get(job, {}).values()) for job in quota.whom]
    if quota.gpus is not None and sum(bound) > quota.gpus:
        return False
    return quota.jobs is None or sum(gpus > 0 for gpus in bound) <= quota.jobs


def share(capacity: str) -> dict[str, str | None]:
    return {
        "capacity": capacity,
        "maximum-capacity": "100",
        "accessible-node-labels": LABEL,
        ACCESS: capacity,
        MOST: "100",
    }


@pytest.fixture
def day(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Day]:
    # A lab of its own: the queues of the walk are not taken away again.
    settings = {**LABELS_ON, "yarn.cluster.max-application-priority": "11"}
    harness = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, settings), tmp_path)
    assert isinstance(harness.port, YarnCluster)
    manager = harness.port.manager
    label(manager)
    leaves = {name: {**share("50"), "user-limit-factor": "10"} for name in (VISION, SPEECH)}
    root = {"accessible-node-labels": LABEL, ACCESS: "100"}
    update = {"root": root, "root.horae": share("20"), "root.default": share("20")}
    manager.edit_scheduler(QueueEdits(add={"root.gpu": share("60"), **leaves}, update=update), "horae")
    for owner in OWNERS:
        harness.lab._change(f"/user/{owner}", "MKDIRS", permission="755")
        harness.lab._change(f"/user/{owner}", "SETOWNER", owner=owner)
    more = {"queue": "gpu", "tenants": "queue", "gang_s": GANG_S, "memory_mib": WORKER_MIB}
    port = YarnCluster(parse_options({**harness.options, **more}))
    patiently(lambda: port.claim("the day's"))
    port.capabilities()
    yield Day(port, harness, random.Random(SEED))
    port.close()
    harness.end()


def test_what_is_granted_within_what_is_told_comes(day: Day) -> None:
    for _ in range(ROUNDS):
        day.round()
    print(f"{day.came} came of {len(day.tenants)}", flush=True)
    assert not day.fell_short, "\n".join(day.fell_short)
    assert day.came >= ROUNDS // 2
