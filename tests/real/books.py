"""The scheduler's books: what each leaf queue has pending, reserved and used is what living applications and jobs make.

Checked at the end of every test on a real YARN, before its jobs are ended and after. What is pending for nobody holds
back others: the scheduler reserves GPUs for it, and counts it against the queue.

Pending are containers, the queue's own count of them and what its applications still ask for, or resources. Of what is
asked for with a placement constraint Hadoop (3.4.2) counts one of the two rightly, by who handles constraints:

    scheduler             resources: added when asked for, never taken away when a container is given for them
    placement-processor   containers: never added, taken away when they come
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from horae.port import JobState, ObservedJob, TryLater
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.records import gpus_in, many, resources
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.settings import settings_of
from yarn_bridge.jobs.shapes import service_name
from yarn_bridge.runtimes.chooser import HANDLER, PROCESSOR

#: states of an application that has not ended
ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
#: An application master tells of its requests once a second, a node of its containers at its next heartbeat; a busy
#: machine is slower than both.
WITHIN_S = 30.0


@dataclass(frozen=True)
class Account:
    """`used`, `reserved`, `asked` (pending): resource -> amount, in all partitions; nought is left out."""

    used: Counter[str]
    reserved: Counter[str]
    asked: Counter[str]
    pending: int  #: containers

    @classmethod
    def of(cls, value: Any, pending: int) -> Account:
        usages = many((value or {}).get("resourceUsagesByPartition"))
        return cls(*(_total(usages, kind) for kind in ("used", "reserved", "pending")), pending)

    def told_rightly(self, processor: bool) -> Account:
        """Without the one of the two that Hadoop counts wrongly."""
        return replace(self, pending=0) if processor else replace(self, asked=Counter())

    def __str__(self) -> str:
        waits = f"{self.pending} containers and {dict(self.asked)} pending"
        return f"used {dict(self.used)}, reserved {dict(self.reserved)}, {waits}"


def _total(usages: Sequence[Any], kind: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for usage in usages:
        found.update({name: n for name, n in resources(usage.get(kind)).items() if n})
    return found


@dataclass(frozen=True)
class App:
    id: str
    name: str
    queue: str
    containers: int  #: that run, its application master's too
    account: Account


def of_queues(manager: ResourceManager) -> dict[str, Account]:
    """By the path of each leaf queue."""
    info = manager.scheduler()
    if "rootQueue" in info:
        found = {str(value["queueName"]): _of_fair(value) for value in _fair_leaves(info["rootQueue"])}
    else:
        found = {
            path: Account.of(value.get("resources"), int(value["pendingContainers"]))
            for path, value in _leaves(info, "root")
        }
    assert found.keys() == {each.path for each in queues(info).root.leaves()}
    return found


def _of_fair(value: Mapping[str, Any]) -> Account:
    """The fair scheduler counts what is reserved beside what is used, and what is used with what is demanded."""
    used, reserved, demanded = (
        Counter({name: n for name, n in resources(value.get(f"{kind}Resources")).items() if n})
        for kind in ("used", "reserved", "demand")
    )
    return Account(used + reserved, reserved, demanded - used, int(value["pendingContainers"]))


def _fair_leaves(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    children = many((value.get("childQueues") or {}).get("queue"))
    if not children:
        yield value
    for each in children:
        yield from _fair_leaves(each)


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    children = many((value.get("queues") or {}).get("queue"))
    if not children:
        yield path, value
    for each in children:
        yield from _leaves(each, f"{path}.{each['queueName']}")


def of_apps(manager: ResourceManager) -> list[App]:
    """All that live."""
    answer = manager.http.ask("GET", "/ws/v1/cluster/apps", query={"states": ",".join(ALIVE)})
    found = []
    for each in many((answer.get("reading the applications", "apps") or {}).get("app")):
        asks = many(each.get("resourceRequests"))
        # the same request is told for its nodes, their racks and all of them; with a constraint it has no place
        pending = sum(int(one["numContainers"]) for one in asks if one.get("resourceName") in (None, "*"))
        queue = str(each["queue"])
        queue = queue if queue.startswith("root") else f"root.{queue}"
        account = Account.of(each.get("resourceInfo"), pending)
        running = max(int(each.get("runningContainers") or 0), 0)
        found.append(App(str(each["id"]), str(each["name"]), queue, running, account))
    return found


def faults(manager: ResourceManager, jobs: Sequence[ObservedJob] = ()) -> list[str]:
    """What does not add up. `jobs`: as the bridge shows them; those on the move may ask for anything."""
    if not manager.places_by_attributes():
        return _faults_of_fair(manager, jobs)
    processor = settings_of(manager.http, "the ResourceManager").get(HANDLER) == PROCESSOR
    apps = [replace(each, account=each.account.told_rightly(processor)) for each in of_apps(manager)]
    found = []
    for path, told_of in sorted(of_queues(manager).items()):
        account = told_of.told_rightly(processor)
        theirs = [each.account for each in apps if each.queue == path]
        used, reserved, asked = (
            sum((getattr(each, name) for each in theirs), Counter[str]()) for name in ("used", "reserved", "asked")
        )
        pending = sum(each.pending for each in theirs)
        whole = Account(used + reserved, reserved, asked, pending)  # a queue counts both as used
        if account != whole:
            found.append(f"{path}: {account}; of its applications {whole}")
    for job in jobs:
        if job.state.holds and job.state is not JobState.RUNNING:
            continue
        stem = _stem(service_name(job.id))
        mine = [each for each in apps if _stem(each.name.partition("/")[0]) == stem]
        found += [
            f"{job.id} is {job.state} and {each.id} waits: {each.account}"
            for each in mine
            if each.account.pending or each.account.asked or each.account.reserved
        ]
        held = sum(gpus_in(each.account.used) for each in mine)
        if held != sum(job.allocation.values()):
            found.append(f"{job.id} is {job.state} with {dict(job.allocation)}, its applications hold {held} GPUs")
    return found


def _faults_of_fair(manager: ResourceManager, jobs: Sequence[ObservedJob]) -> list[str]:
    """It tells of no application what that holds: of the queues alone, where nobody is on the move."""
    if any(job.state.holds and job.state is not JobState.RUNNING for job in jobs):
        return []
    held = sum(sum(job.allocation.values()) for job in jobs)
    accounts = of_queues(manager)
    found = [f"{path}: {each}" for path, each in accounts.items() if each.pending or each.asked or each.reserved]
    used = sum(gpus_in(each.used) for each in accounts.values())
    return found if used == held else [*found, f"{used} GPUs are used, and jobs hold {held}"]


def _stem(service: str) -> str:
    """Its name without what tells bridges apart."""
    return service.rpartition("-")[0]


def told(manager: ResourceManager, jobs: Callable[[], Sequence[ObservedJob]] = tuple, *, empty: bool = False) -> str:
    """What does not add up even after a heartbeat or two. `empty`: no application lives any more, and no queue has
    anything used, reserved or pending."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            found = faults(manager, jobs())
            if empty:
                found += [f"{each.id} ({each.name}) lives" for each in of_apps(manager)]
        except TryLater as error:
            found = [str(error)]
        if not found or time.monotonic() > deadline:
            return "; ".join(found)
        time.sleep(0.1)


def check(manager: ResourceManager, *, empty: bool = False) -> None:
    wrong = told(manager, empty=empty)
    assert not wrong, f"the scheduler's books: {wrong}"
