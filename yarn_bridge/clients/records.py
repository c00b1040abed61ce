"""What the ResourceManager and the Services API tell, as values. Parsing only: nothing here asks anything.

Units: seconds since the epoch (`_s`), MiB (`_mib`), GPUs. Hadoop leaves out what is empty, writes one element where
a list would be, and numbers as text in places: the readers below take all of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from policy.model import EMPTY

GPU = "yarn.io/gpu"
#: GPUs under another name: of one type (yarn.io/gpu-a100), or of a device plugin (nvidia.com/gpu)
_GPU_NAME = re.compile(r"(?:[\w.-]+/)?gpu(?:-(?P<type>[\w.-]+))?", re.IGNORECASE)
#: a service in one of these has no application, holds nothing and can be started again
SERVICE_ENDED = frozenset({"STOPPED", "FAILED", "SUCCEEDED"})


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    version: str
    cluster_id: int  #: when the ResourceManager was first started, ms: changes with every restart
    state: str
    ha_state: str
    store: str  #: class that keeps applications over a restart; NullRMStateStore keeps none


@dataclass(frozen=True, slots=True)
class Metrics:
    nodes: int
    lost_nodes: int
    unhealthy_nodes: int
    apps_running: int
    apps_pending: int
    gpus: int
    gpus_used: int


@dataclass(frozen=True, slots=True)
class NodeReport:
    id: str  #: host:port
    host: str
    rack: str
    state: str  #: RUNNING, UNHEALTHY, LOST, DECOMMISSIONING, ...
    http: str  #: host:port of the NodeManager's web server; empty when it is lost
    gpus: int
    gpus_used: int
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    labels: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: "nm.yarn.io/host" -> value
    version: str = ""
    health_report: str = ""
    gpu_name: str = GPU  #: the resource that its GPUs are
    gpu_others: tuple[str, ...] = ()  #: further ones, which are not counted: a node has one type
    tags: Mapping[str, int] = field(default_factory=lambda: EMPTY)  #: by tag, the containers that the node has, those
    #: too that are given back and have not ended there yet

    @property
    def label(self) -> str:
        """Of its partition; "" for the default one."""
        return self.labels[0] if self.labels else ""

    @property
    def gpu_type(self) -> str:
        """As the resource's name says it; "" where it does not."""
        return type_of(self.gpu_name)


@dataclass(frozen=True, slots=True)
class App:
    id: str
    user: str
    name: str
    queue: str  #: whole path: root.gpu.horae
    state: str
    final_status: str
    kind: str  #: application type
    tags: tuple[str, ...]
    priority: int
    diagnostics: str
    submitted_s: float
    launched_s: float
    finished_s: float
    gpus: int  #: held now
    containers: int
    am_logs: str
    am_node: str  #: host:port
    log_aggregation: str
    reserves: bool = False  #: nodes are kept for containers that it waits for
    left_s: float = inf  #: until YARN ends it

    @property
    def ended(self) -> bool:
        return self.state in {"FINISHED", "FAILED", "KILLED"}


@dataclass(frozen=True, slots=True)
class Attempt:
    id: str
    state: str
    am_container: str
    node: str
    logs: str


@dataclass(frozen=True, slots=True)
class Container:
    id: str
    node: str  #: host:port
    state: str
    exit_status: int
    started_s: float
    gpus: int
    logs: str


@dataclass(frozen=True, slots=True)
class Token:
    token: str = field(repr=False)
    renewer: str = ""
    owner: str = ""
    expires_s: float = 0.0
    max_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Instance:
    """One worker of a service."""

    name: str  #: "worker-3"; a name given back never returns
    container: str
    node: str  #: host
    state: str  #: INIT, STARTED, READY, RUNNING_BUT_UNREADY, STOPPED, SUCCEEDED, FAILED
    ip: str
    launched_s: float


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    state: str
    count: int  #: as stored: what the service is asked to have
    instances: tuple[Instance, ...]
    partition: str = ""  #: what its workers ask for; fixed at creation


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why the scheduler gave an application no container, in its words."""

    text: str
    nodes: tuple[str, ...]  #: hosts that this was about
    by_queue: bool  #: a limit of the queue or the user, wherever the container would be


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    app: str  #: application id; empty once stopped
    state: str
    queue: str
    version: str
    lifetime_s: float | None
    components: Mapping[str, Component]  #: empty until its application master answers
    properties: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    @property
    def flexible(self) -> bool:
        """A flex is carried out now (in any other state it is refused, and stored all the same)."""
        return self.state in {"STARTED", "STABLE", "FLEX"}

    @property
    def ended(self) -> bool:
        return self.state in SERVICE_ENDED

    @property
    def counts(self) -> dict[str, int]:
        return {name: component.count for name, component in self.components.items()}


def many(value: Any) -> list[Any]:
    """A list, where Hadoop writes one element bare and none as null."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def resources(value: Any) -> dict[str, int]:
    """`resourceInformations` or `allocatedResources` -> name -> amount."""
    found: dict[str, int] = {}
    if not isinstance(value, dict):
        return found
    for each in many((value.get("resourceInformations") or {}).get("resourceInformation")):
        found[str(each["name"])] = int(each["value"])
    for each in many(value.get("entry")):
        found[str(each["key"])] = int(each["value"])
    return found


def type_of(name: str) -> str:
    """`yarn.io/gpu-a100` -> a100."""
    found = _GPU_NAME.fullmatch(name)
    return (found["type"] or "").lower() if found is not None else ""


def gpus_in(amounts: Mapping[str, int]) -> int:
    """Under whatever names: a container has its GPUs under one."""
    return sum(amount for name, amount in amounts.items() if _GPU_NAME.fullmatch(name))


def gpu_names(amounts: Mapping[str, int]) -> list[str]:
    """Those that there are some of; the first is what a node's GPUs are asked for by: YARN's own name where that
    counts them, else the one with the most."""
    found = [name for name, amount in amounts.items() if amount > 0 and _GPU_NAME.fullmatch(name)]
    return sorted(found, key=lambda name: (name != GPU, -amounts[name], name))


def cluster_info(value: Mapping[str, Any]) -> ClusterInfo:
    return ClusterInfo(
        version=str(value.get("hadoopVersion") or value.get("resourceManagerVersion") or ""),
        cluster_id=int(value.get("id") or 0),
        state=str(value.get("state", "")),
        ha_state=str(value.get("haState", "")),
        store=str(value.get("rmStateStoreName", "")).rpartition(".")[2],
    )


def metrics(value: Mapping[str, Any]) -> Metrics:
    return Metrics(
        nodes=int(value.get("activeNodes", 0)),
        lost_nodes=int(value.get("lostNodes", 0)),
        unhealthy_nodes=int(value.get("unhealthyNodes", 0)),
        apps_running=int(value.get("appsRunning", 0)),
        apps_pending=int(value.get("appsPending", 0)),
        gpus=gpus_in(resources(value.get("totalClusterResourcesAcrossPartition"))),
        gpus_used=gpus_in(resources(value.get("totalUsedResourcesAcrossPartition"))),
    )


def node_report(value: Mapping[str, Any]) -> NodeReport:
    used, free = resources(value.get("usedResource")), resources(value.get("availableResource"))
    total = resources(value.get("totalResource"))
    names = gpu_names(total or {name: used.get(name, 0) + free.get(name, 0) for name in {**used, **free}})
    gpu = names[0] if names else GPU
    attributes = {
        f"{each['prefix']}/{each['name']}": str(each.get("value", ""))
        for each in many((value.get("nodeAttributesInfo") or {}).get("nodeAttributeInfo"))
    }
    cpus_used, memory_used = int(value.get("usedVirtualCores", 0)), int(value.get("usedMemoryMB", 0))
    return NodeReport(
        id=str(value["id"]),
        host=str(value["nodeHostName"]),
        rack=str(value.get("rack", "")),
        state=str(value["state"]),
        http=str(value.get("nodeHTTPAddress", "")),
        gpus=total.get(gpu, used.get(gpu, 0) + free.get(gpu, 0)),
        gpus_used=used.get(gpu, 0),
        cpus=total.get("vcores", cpus_used + int(value.get("availableVirtualCores", 0))),
        cpus_used=cpus_used,
        memory_mib=total.get("memory-mb", memory_used + int(value.get("availMemoryMB", 0))),
        memory_used_mib=memory_used,
        labels=tuple(str(each) for each in many(value.get("nodeLabels"))),
        attributes=attributes,
        version=str(value.get("version", "")),
        health_report=str(value.get("healthReport") or ""),
        gpu_name=gpu,
        gpu_others=() if gpu == GPU else tuple(names[1:]),
        tags={
            str(each["allocationTag"]): int(each["allocationsCount"])
            for each in many((value.get("allocationTags") or {}).get("allocationTagInfo"))
        },
    )


def app(value: Mapping[str, Any]) -> App:
    held = 0
    for usage in many((value.get("resourceInfo") or {}).get("resourceUsagesByPartition")):
        held += gpus_in(resources(usage.get("used")))
    queue = str(value.get("queue", ""))
    return App(
        id=str(value["id"]),
        user=str(value.get("user", "")),
        name=str(value.get("name", "")),
        # A refused application shows its queue as it was asked for, without the path.
        queue=queue if not queue or queue.startswith("root") else f"root.{queue}",
        state=str(value["state"]),
        final_status=str(value.get("finalStatus", "")),
        kind=str(value.get("applicationType", "")),
        tags=tuple(tag for tag in str(value.get("applicationTags", "")).split(",") if tag),
        priority=int(value.get("priority", 0) or 0),
        diagnostics=" ".join(str(value.get("diagnostics") or "").split()),
        submitted_s=_seconds(value.get("startedTime")),
        launched_s=_seconds(value.get("launchTime")),
        finished_s=_seconds(value.get("finishedTime")),
        gpus=held,
        containers=max(int(value.get("runningContainers", 0) or 0), 0),
        am_logs=str(value.get("amContainerLogs", "")),
        am_node=str(value.get("masterNodeId", "")),
        log_aggregation=str(value.get("logAggregationStatus", "")),
        reserves=max(int(value.get(key) or 0) for key in ("reservedMB", "reservedVCores")) > 0,
        left_s=min(_left_s(value), default=inf),
    )


def _left_s(value: Mapping[str, Any]) -> list[float]:
    """Of each of an application's timeouts; those that never end are told as -1."""
    told = many((value.get("timeouts") or {}).get("timeout"))
    return [left for each in told if (left := float(each.get("remainingTimeInSeconds", -1))) >= 0]


def attempt(value: Mapping[str, Any]) -> Attempt:
    return Attempt(
        id=str(value.get("appAttemptId", "")),
        state=str(value.get("appAttemptState", "")),
        am_container=str(value.get("containerId", "")),
        node=str(value.get("nodeId", "")),
        logs=str(value.get("logsLink", "")),
    )


def container(value: Mapping[str, Any]) -> Container:
    return Container(
        id=str(value["containerId"]),
        node=str(value.get("nodeId") or value.get("assignedNodeId") or ""),
        state=str(value.get("containerState", "")),
        exit_status=int(value.get("containerExitStatus", 0) or 0),
        started_s=_seconds(value.get("startedTime")),
        gpus=gpus_in(resources(value.get("allocatedResources"))),
        logs=str(value.get("logUrl", "")),
    )


def token(value: Mapping[str, Any]) -> Token:
    return Token(
        token=str(value.get("token", "")),
        renewer=str(value.get("renewer", "")),
        owner=str(value.get("owner", "")),
        expires_s=_seconds(value.get("expiration-time")),
        max_s=_seconds(value.get("max-validity")),
    )


#: said of requests that are met, and of every node that a request is not for
_NO_NEWS = re.compile(r"Request does not need more resource|unsatisfied PC expression|waiting for display")
_KEPT = {"RESERVED", "RE_RESERVED"}
_OF_QUEUE = re.compile(r"(?:Queue|Parent|User|Application)\b.*(?:limit|headroom|capacity)", re.IGNORECASE)


def withheld(value: Any) -> tuple[Withheld, ...]:
    """From `appActivities`: each reason once, with all the nodes that it was given for."""
    found: dict[str, dict[str, None]] = {}
    for text, nodes in _diagnostics(value, ()):
        if not _NO_NEWS.search(text):
            found.setdefault(text, {}).update(dict.fromkeys(nodes))
    return tuple(Withheld(text, tuple(sorted(nodes)), bool(_OF_QUEUE.search(text))) for text, nodes in found.items())


def kept_nodes(value: Any) -> frozenset[str]:
    """From `appActivities`: hosts that were kept for this application when the scheduler looked there last."""
    newest: dict[str, bool] = {}
    for each in many(value.get("allocations")):  # the newest first
        if host := str(each.get("nodeId") or "").partition(":")[0]:
            newest.setdefault(host, bool(_KEPT & set(_states(each))))
    return frozenset(host for host, kept in newest.items() if kept)


def _states(value: Any) -> Iterator[str]:
    yield str(value.get("allocationState"))
    for each in many(value.get("children")):
        yield from _states(each)


def _diagnostics(value: Any, nodes: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What an allocation and those below it say, each with the nodes it is about: its own, else those above."""
    if not isinstance(value, dict):
        return
    ids = many(value.get("nodeIds") or value.get("nodeId"))
    nodes = tuple(str(each).partition(":")[0] for each in ids) or nodes
    if text := str(value.get("diagnostic") or "").partition("\n")[0].strip():
        yield text[:300], nodes
    for key in ("allocations", "children"):
        for each in many(value.get(key)):
            yield from _diagnostics(each, nodes)


def instance(value: Mapping[str, Any]) -> Instance:
    return Instance(
        name=str(value.get("component_instance_name", "")),
        container=str(value.get("id", "")),
        # `hostname` is what the worker's own machine says; the node as YARN knows it is `bare_host`.
        node=str(value.get("bare_host") or ""),
        state=str(value.get("state", "")),
        ip=str(value.get("ip") or ""),
        launched_s=_seconds(value.get("launch_time")),
    )


def service(value: Mapping[str, Any]) -> Service:
    lifetime = value.get("lifetime")
    return Service(
        name=str(value["name"]),
        app=str(value.get("id") or ""),
        state=str(value["state"]),
        queue=str(value.get("queue") or ""),
        version=str(value.get("version") or ""),
        lifetime_s=None if lifetime is None or float(lifetime) < 0 else float(lifetime),
        components={found.name: found for found in _components(value)},
        properties=dict((value.get("configuration") or {}).get("properties") or {}),
    )


def _components(value: Mapping[str, Any]) -> Iterator[Component]:
    for each in many(value.get("components")):
        yield Component(
            name=str(each["name"]),
            state=str(each.get("state") or ""),
            count=int(each.get("number_of_containers") or 0),
            instances=tuple(instance(one) for one in many(each.get("containers"))),
            partition=_partition(each),
        )


def _partition(component: Mapping[str, Any]) -> str:
    constraints = many((component.get("placement_policy") or {}).get("constraints"))
    return next((str(label) for each in constraints for label in many(each.get("node_partitions"))), "")


def _seconds(milliseconds: Any) -> float:
    return float(milliseconds or 0) / 1000.0
