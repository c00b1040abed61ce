"""A whole site of dictionaries: the adapter as it is, over a YARN and an HDFS that do at once what they are asked."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from horae.port import FixConfiguration, JobState, PortError, TryLater, attend
from horae.spec import JobSpec
from policy.model import Allocation, GpuRange
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.clients.quirks import quirks_of
from yarn_bridge.clients.records import App, ClusterInfo, Component, Instance, NodeReport, Service, Withheld
from yarn_bridge.options import parse_options
from yarn_bridge.runtimes.chooser import Probes

OPTIONS = {"resource_manager": ["http://rm:8088"], "webhdfs": ["http://nn:9870"], "user": "horae", "folder": "/hdfs"}
SPEC = JobSpec("job", ("true",), GpuRange(1, 1, 4), checkpoint="/ckpt", grace_s=5.0, retries=1)


class MemoryHdfs:
    """The part of `Hdfs` that job files use. A folder is whose name made the first file below it."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls, self.files, self.times, self.clock = calls, dict[str, bytes](), dict[str, float](), 0.0
        self.owners, self.user, self.folders = dict[str, str](), "horae", set[str]()
        self.writes_left: int | None = None  #: so many writes succeed
        self.hidden = ""  #: no DataNode has the files whose paths hold this
        self.closed = ""  #: only who owns what is below this path may look at it
        self.mode, self.modes = "644", dict[str, str]()  #: of files; of folders that differ

    def as_user(self, owner: str) -> MemoryHdfs:
        return _As(self, owner)  # type: ignore[return-value]

    def some(self, path: str, most: int) -> list[Status]:
        return self.entries(path)

    def who(self) -> str:
        self._call("who")
        return self.user

    def set_permission(self, path: str, permission: str) -> None:
        self._call("set_permission")

    def overwrite_document(self, path: str, data: bytes) -> bool:
        self._call("write")
        if path in self.files:
            self.files[path] = data
        return path in self.files

    @staticmethod
    def fits_one(data: bytes) -> bool:
        return True

    def entries(self, path: str) -> list[Status]:
        self._call("entries")
        self._check_rights(path)
        found = {}
        for name in self.files:
            if name.startswith(path + "/"):
                head, _, rest = name[len(path) + 1 :].partition("/")
                time = self.times.get(f"{path}/{head}", 0.0)
                owner = self.owners.get(f"{path}/{head}", "horae")
                found[head] = Status(head, bool(rest), 0 if rest else len(self.files[name]), time, owner, "755")
        return list(found.values())

    def status(self, path: str) -> Status | None:
        self._call("status")
        if path in self.folders:
            return Status(path, True, 0, 0.0, self.owners[path], self.modes.get(path, "755"))
        return Status(path, False, len(self.files[path]), 0.0, "", self.mode) if path in self.files else None

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        self._call("read")
        if self.hidden and self.hidden in path:
            raise TryLater(f"reading {path} in HDFS: no DataNode answers")
        self._check_rights(path)
        data = self.files.get(path)
        return None if data is None else data[offset : None if limit is None else offset + limit]

    def write(self, path: str, data: bytes, *, replace: bool = True) -> None:
        self._call("write")
        self.files[path] = data
        self._touch(path)

    def document(self, path: str) -> bytes | None:
        return self.read(path)

    def keep_document(self, path: str, data: bytes, at: str, *, replace: bool = True) -> None:
        if not replace and path in self.files:
            raise Exists(f"{path} is there")
        self.write(path, data)
        self._touch(posixpath.join(at, "x"))

    def create(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def make_document(self, path: str, data: bytes) -> None:
        self.keep_document(path, data, path.rpartition("/")[0])

    def sweep(self, folder: str) -> list[str]:
        return []

    def make_folder(self, path: str, permission: str | None = None) -> None:
        self._call("make_folder")
        self.folders.add(path)
        self.owners.setdefault(path, self.user)

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        self._call("rename")
        for name in [name for name in self.files if name.startswith(source + "/")]:
            self.files[target + name[len(source) :]] = self.files.pop(name)
        for name in [name for name in self.folders if name == source or name.startswith(source + "/")]:
            moved = target + name[len(source) :]
            self.folders = (self.folders - {name}) | {moved}
            self.owners[moved] = self.owners.pop(name)
        self._touch(target + "/x")

    def delete(self, path: str) -> bool:
        self._call("delete")
        doomed = [name for name in self.files if name == path or name.startswith(path + "/")]
        for name in doomed:
            del self.files[name]
        self.folders = {name for name in self.folders if name != path and not name.startswith(path + "/")}
        return bool(doomed)

    def _touch(self, path: str) -> None:
        self.clock += 1.0
        self.times[path] = self.times[posixpath.dirname(path)] = self.clock

    def _check_rights(self, path: str) -> None:
        if self.closed and path.startswith(f"{self.closed}/") and self.user != self.owners.get(self.closed):
            raise FixConfiguration(f"reading {path} in HDFS: Permission denied: user={self.user}", "let it in")

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if name == "write" and self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise TryLater("HDFS is in safe mode")


class _As:
    """The same, asked in another's name."""

    def __init__(self, whole: MemoryHdfs, user: str) -> None:
        self._whole, self._user = whole, user
        self.owner = user

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._whole, name)

        def in_his_name(*given: Any, **named: Any) -> Any:
            before, self._whole.user = self._whole.user, self._user
            try:
                return asked(*given, **named)
            finally:
                self._whole.user = before

        return in_his_name


class MemoryYarn:
    """ResourceManager and Services in one: what is asked for is there at the next look."""

    broken_definition = ""  #: nobody can read what lies there, until there is another one

    def __init__(self, calls: Counter[str], hdfs: MemoryHdfs) -> None:
        self.calls, self.services, self.number, self.down = calls, dict[str, Service](), 0, ""
        self.hdfs = hdfs
        self.hosts = ["n1", "n2"]
        self.away = False  #: no application master answers
        self.undefined = False  #: the definitions of services are gone from HDFS, whatever of them lives
        self.garbage = ""  #: what stands there instead, in the words of who tried to read it
        self.hung = ""  #: the application that the ResourceManager cannot end now
        self.ha_state, self.app_state, self.diagnostics = "ACTIVE", "RUNNING", ""
        self.am_node = ""  #: where application masters have their containers; told of those that run, too
        self.clock: Callable[[], float] = lambda: 0.0
        self.made_s: dict[str, float] = {}
        self.http, self.foreign_mib, self.foreign_cpus = Silent(), 0, 0
        self.room: dict[str, int] = {}  #: node -> containers that it has room for, whatever it says
        self.most: int | None = None  #: GPUs that the queue may hold
        self.most_bulk: dict[str, int] = {}  #: what else it may hold
        self.used: dict[str, int] = {}  #: what else is used in it
        self.largest: dict[str, int] = {}  #: of a container in it
        self.whose: dict[str, str] = {}
        self.tree: dict[str, Any] | None = None  #: the scheduler's own answer, whole
        self.closed: dict[str, str] = {}  #: queue -> why it lets nobody in
        self.bodies: list[dict[str, Any]] = []  #: of the services that were created
        self.refuse: PortError | None = None  #: what every creation meets
        self.powerless: PortError | None = None  #: what every request in an owner's name meets
        self.withheld: tuple[Withheld, ...] = ()
        self.keeps: dict[str, frozenset[str]] = {}  #: somebody else's application -> nodes that are kept for it
        self.labels: dict[str, tuple[str, ...]] = {}
        self.accessible = list[str]()  #: labels of the partitions that the queue is let into
        self.nameless: set[str] = set()  #: nodes that do not tell their names
        self.lag: Counter[str] = Counter()  #: GPUs that nodes still show as used
        self.put_into = ""  #: the queue of every application, whatever was asked for
        self.ending: Counter[str] = Counter()  #: of those, containers of ours that end
        self.failed = ""  #: why the application of the last service failed

    # the ResourceManager

    def may_submit(self, queue: str, user: str) -> str:
        self.calls["access"] += 1
        return self.closed.get(queue, "")

    def check_power(self, owner: str) -> None:
        if self.powerless is not None:
            raise self.powerless

    def exclusive_labels(self) -> frozenset[str]:
        return frozenset({"gpu"})

    def activities(self, app_id: str, seconds: float, owner: str = "") -> tuple[Withheld, ...]:
        self.calls["activities"] += 1
        return self.withheld

    def kept_for(self, app_id: str, seconds: float) -> frozenset[str]:
        self.calls["activities"] += 1
        return self.keeps[app_id] if self.calls["activities"] > 1 else frozenset()

    def scheduler(self) -> dict[str, Any]:
        if self.tree is not None:
            return self.tree
        used = sum(len(instances(each)) for each in self.services.values() if each.queue == "default")
        whole = {"yarn.io/gpu": 8, "memory-mb": 131072, "vcores": 16}
        usage = {"resourceUsagesByPartition": [{"used": amounts({"yarn.io/gpu": used, **self.used})}]}
        most = whole | ({} if self.most is None else {"yarn.io/gpu": self.most}) | self.most_bulk
        leaf = {"queueName": "default", "capacities": capacities(most), "resources": usage,
                "nodeLabels": self.accessible, "maximumAllocation": amounts(self.largest)}  # fmt: skip
        return {"type": "capacityScheduler", "queueName": "root", "capacities": capacities(whole),
                "queues": {"queue": [leaf]}}  # fmt: skip

    def places_by_attributes(self) -> bool:
        return True

    def quirks(self) -> Any:
        return quirks_of("3.4.2")

    def info(self) -> ClusterInfo:
        self.calls["info"] += 1
        return ClusterInfo("3.4.2", 1, "STARTED", self.ha_state, "ZKRMStateStore")

    def nodes(self) -> list[NodeReport]:
        self.calls["nodes"] += 1
        used = Counter(each.node for service in self.services.values() for each in instances(service))
        return [
            NodeReport(f"{name}:1", name, "/r", "LOST" if name == self.down else "RUNNING", "", 4,
                       used[name] + self.lag[name], 8, self.foreign_cpus, 65536, self.foreign_mib,
                       self.labels.get(name, ()),
                       {"nm.yarn.io/host": "" if name in self.nameless else name, "nm.yarn.io/gpukind": "V100"},
                       tags={f"w{index}": used[name] + self.ending[name]})
            for index, name in enumerate(self.hosts)
        ]  # fmt: skip

    def apps(self, queue: str = "", **_: Any) -> list[App]:
        self.calls["apps"] += 1
        if queue == "root.other":
            return [
                App(
                    each, "spark", each, queue, "RUNNING", "", "SPARK", (), 0, "", 0.0, 0.0, 0.0, 0, 1, "", "", "", True
                )
                for each in self.keeps
            ]
        return [
            App(each.app, self.whose[name], name, self.put_into or each.queue, self.app_state, "", "yarn-service", (),
                0, self.diagnostics, self.made_s[name], 0.0, 0.0, len(instances(each)), 1, "", self.am_node, "")
            for name, each in self.services.items()
        ]  # fmt: skip

    def app(self, app: str) -> App:
        if self.failed:
            return App(app, "horae", "", "q", "FAILED", "FAILED", "yarn-service", (), 0, self.failed,
                       0.0, 0.0, 0.0, 0, 0, "", "", "")  # fmt: skip
        raise Gone(f"reading {app}: app with id: {app} not found (HTTP 404)")

    def kill(self, app: str, why: str = "", owner: str = "") -> bool:
        self.calls["kill"] += 1
        self.check_power(owner)
        if app == self.hung:
            raise Unanswered("ResourceManager at rm:8088 did not answer within 35 s")
        stays = not (self.away or self.undefined or self.garbage or self.broken_definition)
        self.services = {name: each for name, each in self.services.items() if each.app != app or stays}
        return True

    # Services

    def get(self, name: str, owner: str) -> Service | None:
        self.calls["service"] += 1
        self.check_power(owner)
        if self.away and name in self.services:
            raise TryLater("reading the service: its application master does not answer")
        if self.garbage:
            raise TryLater(f"reading the service {name}: {self.garbage} (HTTP 500)")
        self._read_definition()
        return None if self.undefined or self.broken_definition else self.services.get(name)

    def _read_definition(self) -> None:
        if self.broken_definition in self.hdfs.files:
            said = self.hdfs.files[self.broken_definition][:20].decode().strip()
            why = f"Unrecognized token '{said}'" if said else "No content to map due to end-of-input"
            raise TryLater(f"reading the service: {why} (HTTP 500)")

    def create(self, body: dict[str, Any], owner: str) -> str:
        self.check_power(owner)
        if self.refuse is not None:
            raise self.refuse
        if body["name"] in self.services:
            raise Exists(f"creating {body['name']}: it is already taken")
        self.bodies.append(body)
        self.broken_definition = ""
        parts = {each["name"]: Component(each["name"], "STABLE", 0, (), asked(each)) for each in body["components"]}
        nodes = {name: f"n{index + 1}" for index, name in enumerate(sorted(parts))}
        self.where = nodes
        self.calls["create"] += 1
        self.made_s[body["name"]], self.whose[body["name"]] = self.clock(), owner
        self.services[body["name"]] = Service(
            body["name"], "application_1", "STARTED", body.get("queue", "default"), "1", None, parts
        )
        self.flex(body["name"], owner, {each["name"]: each["number_of_containers"] for each in body["components"]})
        return "application_1"

    def flex(self, name: str, owner: str, counts: dict[str, int]) -> None:
        self.calls["flex"] += 1
        self.check_power(owner)
        self._read_definition()
        if name not in self.services:
            raise Gone(f"there is no service {name}")
        service, parts = self.services[name], {}
        for part in service.components.values():
            kept = list(part.instances)[: counts.get(part.name, part.count)]
            while len(kept) < counts.get(part.name, part.count):
                if sum(each.node == self.where[part.name] for each in kept) >= self.room.get(self.where[part.name], 99):
                    break
                self.number += 1
                kept.append(
                    Instance(f"{part.name}-{self.number}", f"c{self.number}", self.where[part.name], "READY", "", 0.0)
                )
            parts[part.name] = replace(part, count=counts.get(part.name, part.count), instances=tuple(kept))
        self.services[name] = replace(service, components=parts)

    def forget(self, name: str, owner: str) -> None:
        self.services.pop(name, None)


def asked(component: Mapping[str, Any]) -> str:
    """The partition that its workers ask for."""
    (where,) = (component.get("placement_policy") or {}).get("constraints") or ({},)
    return str(where.get("node_partitions", [""])[0])


class Silent:
    """A ResourceManager that keeps its settings to administrators."""

    def ask(self, *_: object, **__: object) -> Any:
        raise TryLater("no settings")


def amounts(found: Mapping[str, int]) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in found.items()]
    return {"resourceInformations": {"resourceInformation": named}}


def capacities(most: Mapping[str, int]) -> dict[str, Any]:
    """Of one queue, in the default partition."""
    return {"queueCapacitiesByPartition": [{"effectiveMaxResource": amounts(most)}]}


def instances(service: Service) -> list[Instance]:
    return [each for part in service.components.values() for each in part.instances]


class AtOnce(Executor):
    """Threads that are done as soon as they begin."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        found: Future[Any] = Future()
        try:
            found.set_result(fn(*args, **kwargs))
        except PortError as error:
            found.set_exception(error)
        return found


class Site:
    def __init__(self, **options: object) -> None:
        self.calls, self.now_s = Counter[str](), 1000.0
        self.options = {**OPTIONS, **options}
        self.hdfs = MemoryHdfs(self.calls)
        self.yarn = MemoryYarn(self.calls, self.hdfs)
        self.yarn.clock = lambda: self.now_s
        self.port = self.connect()

    def connect(self) -> YarnCluster:
        port: Any = YarnCluster(parse_options(self.options), lambda: self.now_s, self.yarn, self.hdfs)  # type: ignore[arg-type]
        port._executor.chooser.probes = Probes("3.4.2", True, True, "scheduler")
        port._executor.by_service._services = self.yarn
        port._executor._helpers = AtOnce()
        port.claim("me")
        made: YarnCluster = port
        return made

    def look(self, job: str = "job") -> Any:
        """A few rounds, a while apart."""
        for _ in range(4):
            self.now_s += 3.0
            seen = attend(self.port)
        return next(each for each in seen.jobs if each.id == job)

    def running(self, allocation: Allocation) -> list[str]:
        """`job` is handed in, started there and runs; its containers."""
        self.port.submit("job", SPEC)
        self.port.start("job", allocation, 1)
        self.look()
        names = self.register()
        assert self.look().state is JobState.RUNNING
        return names

    def register(self, job: str = "job") -> list[str]:
        """The workers come to the gate; their containers."""
        service = next(iter(self.yarn.services.values()))
        names = [each.container for each in instances(service)]
        for name in names:
            self.tell(f"members/{name}", {"host": f"h-{name}", "port": 21000}, job)
        return names

    def tell(self, path: str, value: dict[str, Any], job: str = "job") -> None:
        self.hdfs.keep_document(f"/hdfs/jobs/{job}/{path}", json.dumps(value).encode(), f"/hdfs/jobs/{job}")

    def acknowledge(self, names: list[str], epoch: int, state: str, code: int, step: float | None = None) -> None:
        mark = None if step is None else {"epoch": epoch, "step": step, "time_s": 1.0}
        for name in names:
            value = {"epoch": epoch, "state": state, "exit_code": code, "checkpoint": mark, "text": "", "time_s": 1.0}
            self.tell(f"acks/{name}", value)

    def gate(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.hdfs.files["/hdfs/jobs/job/gate"])
        return value
