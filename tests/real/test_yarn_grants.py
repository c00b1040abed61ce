"""A grant forms, or it was right by what could be known: on a real CapacityScheduler with limits of queues and users, a
labelled node, reservations, and others who come and go. (The short form: `tests/real/test_yarn_room.py`.)

What could be known is read here from the ResourceManager's own pages, beside the bridge and before each grant. Where
nobody came between that look and the gang's end, a gang that does not stand is a fault.

HORAE_GRANTS: how many; HORAE_GRANTS_SEED: other dice.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from horae.port import JobState, Observation, ObservedJob, PortError, TryLater, attend
from policy.model import Allocation, Health
from tests.contract.harness import Behaviour, held_by_node
from tests.contract.waiting import patiently, wait_for
from tests.real import books
from tests.real.hadoop import YarnHarness, cluster_of
from tests.real.yarn_queues import LABEL, LABELLED, LABELS_ON, label
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.resource_manager import QueueEdits
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn"), pytest.mark.timeout(3600)]

SEED, GRANTS = int(os.environ.get("HORAE_GRANTS_SEED", "20261123")), int(os.environ.get("HORAE_GRANTS", "40"))
#: Of them, those that must form for the others to say anything: somebody comes between to four of ten.
FORMED = 0.6
#: jobs that one round may grant
AT_ONCE = 4
GANG_S = 25.0
#: the bridge asks which nodes are kept once more so long after that is noted
KNOWN_S = 6.0
#: Nothing has changed for so long; application masters and nodes tell of themselves once a second.
RESTS_S = 3.0
LOOK_S = 0.3
ACTIVITIES = "/ws/v1/cluster/scheduler/activities"
WORKER_MIB, WORKER_CPUS = 512, 1
MOST = 75  #: per cent of either partition that our queue may hold


@dataclass(frozen=True)
class Room:
    """What the ResourceManager tells of one moment."""

    gpus: Mapping[str, int]  #: by node, free
    memory_mib: Mapping[str, int]
    cpus: Mapping[str, int]
    queue: Mapping[str, int]  #: partition -> what our queue may still hold in it
    user: int  #: what one user may still hold in the default partition

    def lacks(self, shape: Allocation) -> str:
        """What there is too little of for this shape."""
        for node, gpus in shape.items():
            if self.gpus.get(node, 0) < gpus:
                return f"{node} has {self.gpus.get(node, 0)} free GPUs, not {gpus}"
            if self.memory_mib[node] < gpus * WORKER_MIB or self.cpus[node] < gpus * WORKER_CPUS:
                return f"{node} has {self.memory_mib[node]} MB and {self.cpus[node]} cores for {gpus} workers"
        wanted = {LABEL: shape.get(LABELLED, 0), "": sum(gpus for node, gpus in shape.items() if node != LABELLED)}
        for partition, gpus in wanted.items():
            if gpus > self.queue.get(partition, gpus):
                return f"its queue may hold {self.queue[partition]} GPUs more in partition {partition!r}"
        return f"its user may hold {self.user} GPUs more" if wanted[""] > self.user else ""


@dataclass
class Shop:
    """Our queue beside another one, with limits, and who comes and goes in the other one."""

    harness: YarnHarness
    dice: random.Random
    port: YarnCluster = field(init=False)
    others: dict[str, int] = field(default_factory=dict)  #: name -> containers that it wants
    made: int = 0
    jobs: int = 0
    granted: int = 0
    formed: int = 0
    given_back: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  #: of these, where nobody came between
    looked_s: float = float("-inf")
    rests: tuple[object, ...] = ()  #: what others have and ask for
    changed_s: float = 0.0  #: since when
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        more = {"gang_s": GANG_S, "memory_mib": WORKER_MIB}
        self.port = YarnCluster(parse_options({**self.harness.options, **more}))
        patiently(lambda: self.port.claim("grants"))

    def room(self) -> Room:
        reports = [each for each in self.port.manager.nodes() if each.state == "RUNNING"]
        found = queues(self.port.manager.scheduler())
        left: dict[str, int] = {}
        for queue in found.above("root.horae"):
            for part in ("", LABEL):
                most, used = queue.limit(part)
                if most is not None:
                    left[part] = min(left.get(part, most - used), most - used)
        ours = found.find("root.horae")
        assert ours.user_most is not None
        return Room(
            {each.host: each.gpus - each.gpus_used for each in reports},
            {each.host: each.memory_mib - each.memory_used_mib for each in reports},
            {each.host: each.cpus - each.cpus_used for each in reports},
            left,
            ours.user_most - ours.used,
        )

    def somebody(self) -> None:
        """In the other queue comes, or goes: with GPUs, or with memory and cores alone. Some ask for more than there
        is, and the scheduler reserves for them."""
        if self.others and self.dice.random() < 0.5:
            gone = self.dice.choice(sorted(self.others))
            del self.others[gone]
            self.end(gone)
            return
        self.made += 1
        name = f"other-{self.made}-{self.dice.randrange(10**6)}"
        count = self.dice.randint(1, 6)
        resource: dict[str, object] = {"cpus": self.dice.choice([1, 4]), "memory": str(self.dice.choice([512, 6144]))}
        if self.dice.random() < 0.7:
            resource["additional"] = {"yarn.io/gpu": {"value": 1, "unit": ""}}
        part = {"name": "w", "number_of_containers": count, "restart_policy": "ON_FAILURE",
                "launch_command": "exec sleep 3600", "resource": resource}  # fmt: skip
        self.port.services.create({"name": name, "version": "1.0", "queue": "default", "components": [part]}, "horae")
        self.others[name] = count

    def shape(self, seen: Observation, given: Mapping[str, int]) -> Allocation:
        """Any that fits what is offered beside what is `given`."""
        held, found = Counter(held_by_node(seen.jobs)) + Counter(given), {}
        cap = seen.caps.get("horae", 99) - sum(held.values())
        nodes = [node for node in seen.nodes if node.health is Health.UP]
        for node in self.dice.sample(nodes, self.dice.randint(1, len(nodes))) if nodes else ():
            free = min(node.gpus - node.foreign - held[node.name], cap)
            if node.memory is not None and node.cpus is not None:
                free = min(
                    free,
                    (node.memory >> 20) // WORKER_MIB - held[node.name],
                    int(node.cpus) // WORKER_CPUS - held[node.name],
                )
            if free > 0:
                found[node.name] = self.dice.randint(1, free)
                cap -= found[node.name]
        return found

    def round(self) -> None:
        """Some more jobs at once, in shapes that are offered."""
        self.still()
        reserved = self.reserved()
        kept = self.kept() if reserved else frozenset[str]()
        if reserved:
            limits = self.port._observer.limits
            limits.forget()  # it asks every 20 s, and what it asks for then is not older
            known_s = time.monotonic() + KNOWN_S
            wait_for("the bridge knows who keeps nodes", lambda: self.look() > known_s or kept <= limits.kept.keys())
        seen = patiently(lambda: attend(self.port))
        shapes = self.shapes(seen)
        if not shapes:
            return
        whole: Counter[str] = sum((Counter(shape) for shape in shapes), Counter[str]())
        assert self.room().lacks(whole) == "", (shapes, seen.nodes, seen.notes)
        assert not kept & whole.keys(), (shapes, kept, seen.notes)
        jobs = {job: shape for shape in shapes if (job := self.started(shape))}
        self.granted += len(jobs)
        disturbed = self.dice.random() < 0.4
        if disturbed:
            self.somebody()  # nobody could know
        wait_for(f"{jobs} stand or are given back", lambda: self._settled(jobs), 8 * GANG_S)
        for job, shape in jobs.items():
            now = self.job(job)
            print(f"{time.monotonic() - self.began_s:.0f} s: {job} on {dict(shape)} is {now.state.value}", flush=True)
            if now.state is JobState.RUNNING:
                self.formed += 1
                continue
            assert now.blocked is not None
            self.given_back.append(f"{job} on {dict(shape)}: {now.blocked.text}")
            # A node that is kept now for one container and now for another is told of too late.
            passing = "YARN keeps nodes for containers that wait" in now.blocked.text and reserved and not kept
            if not disturbed and not passing:
                self.faults.append(self.given_back[-1])

    def end(self, name: str) -> None:
        """As the bridge ends its own: each DELETE would cost the ResourceManager a connection to ZooKeeper."""
        for app in patiently(lambda: self.port.manager.apps(states=books.ALIVE)):
            if app.name == name:
                wait_for(f"{name} ends", lambda app=app: self.port.manager.kill(app.id, "", app.user))  # type: ignore[misc]
        self.port.services.forget(name, "horae")

    def shapes(self, seen: Observation) -> list[Allocation]:
        """Of one round: each takes of what those before it left."""
        found: list[Allocation] = []
        for _ in range(self.dice.randint(1, AT_ONCE)):
            shape = self.shape(seen, sum((Counter(each) for each in found), Counter[str]()))
            found += [shape] if shape else []
        return found

    def started(self, shape: Allocation) -> str:
        """The job of this grant; "" where the bridge would have it wait, and says for what."""
        self.jobs += 1
        job = f"j{self.jobs}"
        spec = self.harness.spec(job, Behaviour.TRAINS, gpus=(1, 12))
        self.port.submit(job, replace(spec, memory_per_gpu=WORKER_MIB << 20))
        try:
            self.port.start(job, shape, 1)
        except TryLater as error:
            print(f"{job} on {dict(shape)} waits: {error}", flush=True)
            self.port.cancel(job)
            return ""
        return job

    def some_end(self) -> None:
        """Of ours: most of them, so that the next round has room for several."""
        for job in patiently(lambda: attend(self.port)).jobs:
            if job.state is JobState.RUNNING and self.dice.random() < 0.6:
                patiently(lambda job=job: self.port.cancel(job.id))  # type: ignore[misc]

    def reserved(self) -> bool:
        return bool(books.of_queues(self.port.manager)["root.default"].reserved)

    def kept(self) -> frozenset[str]:
        """Nodes that the scheduler keeps for containers that wait, by its own account of each node."""
        return frozenset(each.host for each in self.port.manager.nodes() if self._is_kept(each.id))

    def _is_kept(self, node: str) -> bool:
        told: list[str] = []

        def says() -> bool:
            answer = self.port.manager.http.ask("GET", ACTIVITIES, query={"nodeId": node}, owner="root")
            told[:] = [str(answer.get("asking what becomes of a node", "activities"))]
            return "allocations" in told[0]

        wait_for(f"the scheduler tells of {node}", says)
        return "RESERVED" in told[0]

    def still(self) -> None:
        """Until who came has all that he will get: what he still asks for is what there is no room for."""

        def rests() -> bool:
            time.sleep(LOOK_S)
            self.look()
            apps = {each.name: each for each in books.of_apps(self.port.manager) if each.queue == "root.default"}
            # Whose application master has no room yet asks for nothing.
            asked = apps.keys() == self.others.keys() and all(
                apps[name].containers == 0 or apps[name].containers - 1 + apps[name].account.pending >= count
                for name, count in self.others.items()
            )
            used = tuple((each.gpus_used, each.memory_used_mib) for each in self.port.manager.nodes())
            found = (asked, used, tuple(each.account.pending for each in apps.values()))
            if self.rests != found:
                self.rests = found
                self.changed_s = time.monotonic()
            return asked and time.monotonic() - self.changed_s > RESTS_S

        wait_for("who came has what he gets", rests, 300.0)

    def look(self) -> float:
        """As an arbiter does, which is there all the time: about once a second. The time."""
        if time.monotonic() - self.looked_s >= 1.0:
            patiently(lambda: attend(self.port))
            self.looked_s = time.monotonic()
        return time.monotonic()

    def job(self, name: str) -> ObservedJob:
        return next(each for each in patiently(lambda: attend(self.port)).jobs if each.id == name)

    def _settled(self, names: Collection[str]) -> bool:
        time.sleep(LOOK_S)
        jobs = [each for each in patiently(lambda: attend(self.port)).jobs if each.id in names]
        return all(
            each.state is JobState.RUNNING or (not each.state.holds and each.blocked is not None) for each in jobs
        )

    def clear(self) -> None:
        for each in self.others:
            with suppress(PortError):
                self.end(each)
        self.port.close()


@pytest.fixture
def shop(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Shop]:
    harness = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, LABELS_ON), tmp_path)
    assert isinstance(harness.port, YarnCluster)
    manager = harness.port.manager
    label(manager)
    mine = {"capacity": "50", "maximum-capacity": str(MOST), "user-limit-factor": "1.2"}
    access = {"accessible-node-labels": LABEL, f"accessible-node-labels.{LABEL}.capacity": "50",
              f"accessible-node-labels.{LABEL}.maximum-capacity": str(MOST)}  # fmt: skip
    root = {"accessible-node-labels": LABEL, f"accessible-node-labels.{LABEL}.capacity": "100"}
    theirs = {"capacity": "50", **access, f"accessible-node-labels.{LABEL}.maximum-capacity": "100"}
    limits = {"root": root, "root.horae": {**mine, **access}, "root.default": theirs}
    manager.edit_scheduler(QueueEdits(update=limits), "horae")
    made = Shop(harness, random.Random(SEED))
    yield made
    made.clear()
    harness.end()


def test_many_grants_beside_others_form(shop: Shop) -> None:
    for _ in range(4 * GRANTS):  # in a full cluster nothing is offered, and nothing tried
        if shop.granted >= GRANTS:
            break
        for _ in range(shop.dice.randint(0, 2)):
            shop.somebody()
        shop.round()
        shop.some_end()
    told = "\n".join([f"{shop.formed} of {shop.granted} grants formed; given back:", *shop.given_back])
    print(told, flush=True)
    assert not shop.faults, f"nobody came between, and {shop.faults}\n{told}"
    assert shop.granted >= GRANTS, told
    assert shop.formed >= FORMED * shop.granted, told
