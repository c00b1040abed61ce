"""A YARN in memory whose jobs are slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from horae.port import JobState, PortError, TryLater
from tests.yarn_bridge.memory_site import OPTIONS, MemoryHdfs, Site
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.quirks import quirks_of
from yarn_bridge.clients.records import App, ClusterInfo, Container, NodeReport
from yarn_bridge.options import parse_options
from yarn_bridge.runtimes.chooser import Probes
from yarn_bridge.runtimes.slice_shapes import (
    SLICE_KIND,
    root_tag,
)

ROOT = root_tag("/hdfs/jobs")


def app(number: int, name: str, **more: Any) -> App:
    plain = App(f"application_7_{number:04}", "horae", name, "root.horae", "RUNNING", "", SLICE_KIND, (ROOT,), 0, "",
                float(number), 0.0, 0.0, 0, 1, "", "", "")  # fmt: skip
    return replace(plain, **more)


class Http:
    """Tells no settings."""

    def ask(self, method: str, path: str, query: object = None) -> None:
        raise TryLater("not told")


class SliceYarn:
    """A ResourceManager that gives what is asked for at once."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls, self.http = calls, Http()
        self.listed: dict[str, App] = {}
        self.given: dict[str, list[Container]] = {}
        self.hosts, self.named = ["n1", "n2"], True
        self.answers_lost = False  #: a submission is taken, and its answer does not arrive
        self.powerless: PortError | None = None  #: what every request in an owner's name meets
        self.am_node = ""  #: where application masters have their containers
        self.room: dict[str, int] = {}  #: node -> containers that it has room for, whatever it says
        self.fails = False  #: application masters fail at once
        self.forgetful = False  #: it has just been started and knows no container yet

    def quirks(self) -> Any:
        return quirks_of("3.4.2")

    def info(self) -> ClusterInfo:
        return ClusterInfo("3.4.2", 1, "STARTED", "ACTIVE", "")

    def scheduler(self) -> Any:
        return {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [{"queueName": "default"}]}}

    def may_submit(self, queue: str, user: str) -> str:
        return ""

    def check_power(self, owner: str) -> None:
        if self.powerless is not None:
            raise self.powerless

    def activities(self, app_id: str, seconds: float, owner: str = "") -> tuple[()]:
        return ()

    def nodes(self) -> list[NodeReport]:
        self.calls["nodes"] += 1
        return [
            NodeReport(f"{host}:1", host, "/r", "RUNNING", "", 4, 0, 8, 0, 8192, 0,
                       attributes={"nm.yarn.io/host": host} if self.named else {})
            for host in self.hosts
        ]  # fmt: skip

    def apps(self, *, kinds: Any = (), states: Any = (), tags: Any = (), user: str = "") -> list[App]:
        self.calls["apps"] += 1
        found = [replace(each, gpus=len(self.given[each.id])) for each in self.listed.values()]
        found = [each for each in found if not states or each.state in states]
        return [each for each in found if not tags or set(tags) & set(each.tags)]

    def containers(self, app_id: str, attempt: str, owner: str = "") -> list[Container]:
        self.calls["containers"] += 1
        self.check_power(owner)
        assert attempt == app_id.replace("application", "appattempt") + "_000001"
        master = Container(app_id.replace("application", "container") + "_01_000001", "n1:1", "RUNNING", 0, 0.0, 0, "")
        return [] if self.forgetful else [master, *self.given[app_id]]

    def new_application(self, owner: str) -> str:
        self.check_power(owner)
        return f"application_7_{len(self.listed) + 1:04}"

    def submit(self, body: Mapping[str, Any], owner: str) -> None:
        self.calls["submit"] += 1
        made, number = body["application-id"], len(self.listed) + 1
        state = "FAILED" if self.fails else "RUNNING"
        tags = tuple(body["application-tags"]["tag"])
        made_so = app(number, body["application-name"], tags=tags, user=owner, state=state, diagnostics="no")
        self.listed[made] = replace(made_so, am_node=self.am_node)
        node, gpus = body["application-name"].split("/")[1:]
        node = "n2" if node == "*" else node
        stem = made.replace("application", "container")
        fit = 0 if self.fails else min(int(gpus), self.room.get(node, 99))
        self.given[made] = [
            Container(f"{stem}_01_{at + 2:06}", f"{node}:1", "RUNNING", 0, 0.0, 1, "") for at in range(fit)
        ]
        if self.answers_lost:
            raise TryLater("broke off; it may be done all the same")

    def kill(self, app_id: str, why: str = "", owner: str = "") -> bool:
        self.calls["kill"] += 1
        self.check_power(owner)
        self.listed[app_id] = replace(self.listed[app_id], state="KILLED")
        self.given[app_id] = []
        return True

    @property
    def shape(self) -> list[str]:
        """node/GPUs of every slice that lives."""
        return sorted(each.name.partition("/")[2] for each in self.listed.values() if not each.ended)

    @property
    def living(self) -> list[str]:
        return [one.id for key, each in self.listed.items() if not each.ended for one in self.given[key]]


class SliceSite(Site):
    def __init__(self, **options: object) -> None:
        self.calls, self.now_s = Counter[str](), 1000.0
        self.options = {**OPTIONS, **options}
        self.hdfs = MemoryHdfs(self.calls)
        self.manager = SliceYarn(self.calls)
        self.port = self.connect()

    def connect(self) -> YarnCluster:
        port: Any = YarnCluster(parse_options(self.options), lambda: self.now_s, self.manager, self.hdfs)  # type: ignore[arg-type]
        port._executor.by_slices._clock = lambda: self.now_s
        port._executor.chooser.probes = Probes("3.4.2", False, True, "scheduler")
        port.claim("me")
        made: YarnCluster = port
        return made

    def register(self, job: str = "job") -> list[str]:
        names = self.manager.living
        for name in names:
            self.tell(f"members/{name}", {"host": f"h-{name}", "port": 21000}, job)
        return names


def running(site: SliceSite, allocation: dict[str, int], epoch: int = 1) -> list[str]:
    site.port.start("job", allocation, epoch)
    site.look()
    names = site.register()
    assert site.look().state is JobState.RUNNING
    return names
