"""`horae doctor` for YARN: what this cluster lets us do, each by a probe that changes nothing, and what mends it.

The probes: reads; a signal with a word that does not exist; a destruction of a service that does not exist; requests
without credentials and with a name alone; one small file and one attribute of a folder, written to HDFS and deleted
(`storage.py`). The settings of the daemons are what they tell themselves; where a NodeManager cannot be reached from
here, the ResourceManager's copy is taken and the finding says so.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

from horae.doctor import Check, fail, failed, ok, warn
from horae.port import PortError
from policy.model import BadInput
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.queues import CAPACITY, Queue, Queues, queues
from yarn_bridge.clients.records import NodeReport, many
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services
from yarn_bridge.clients.settings import Settings, settings_of
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.options import BY_QUEUE, LABEL, SERVICES, SLICES, Options, parse_options
from yarn_bridge.runtimes.chooser import (
    ENOUGH_TRIES,
    HANDLER,
    PATIENT,
    PROCESSOR,
    TRIES,
    Choice,
    Probes,
    choose,
    harmful,
    named_nodes,
    probe,
)
from yarn_bridge.site import isolation, security, storage
from yarn_bridge.site.holes import holes
from yarn_bridge.site.xml import remedy

_PROVIDER = "yarn.nodemanager.node-attributes.provider"
_HOST = "nm.yarn.io/host"
#: clocks further apart than this break Kerberos and make ages wrong
_SKEW_S = 30.0
_STORE = "yarn.scheduler.configuration.store.class"
_PRESERVING = "yarn.resourcemanager.work-preserving-recovery.enabled"
#: as many deaths of an application master as the cluster should bear
_ATTEMPTS = 4


def checks(options: Mapping[str, Any]) -> list[Check]:
    """Entry point `horae.doctor: yarn`. Raises BadInput for options; everything else is a check's answer."""
    return list(examine(parse_options(options, "cluster.options")))


def examine(options: Options) -> Iterator[Check]:
    manager = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
    namenode = HttpClient(options.access(options.webhdfs), "NameNode")
    try:
        yield from _guarded("ResourceManager", lambda: _manager(manager, options))
        yield from _guarded("credentials", lambda: security.credentials(options))
        try:
            info = manager.info()
        except PortError:
            return  # said above
        conf = settings_of(manager.http, "the ResourceManager")
        nodes = _nodes_conf(manager, options)
        if conf.why:
            yield warn("settings", conf.why, "let Horae's user read /conf, or check the list in the site guide by hand")
        services = Services(manager.http, manager.quirks())
        yield from _guarded("Services API", lambda: _services(services, conf, options))
        try:
            probes = probe(manager, conf, options)
            losers = QueueLimits(options, manager).losers()
            choice = choose(options, probes, named_nodes(manager.nodes()), losers)
        except PortError as error:
            yield fail("runtime", error.text, "the adapter cannot tell how to run jobs: see the ResourceManager's log")
            return
        yield _runtime(choice)
        yield from _guarded("GPUs", lambda: _gpus(manager, conf, options))
        yield from _guarded("placement", lambda: _placement(manager, conf, options, choice))
        yield from _guarded("queue", lambda: _queue(manager, conf, options, probes))
        yield from _guarded("signals", lambda: _signal(manager))
        yield from isolation.gpus(conf, nodes)
        yield from _recovery(info.store, conf, nodes, options)
        yield from _zookeeper(conf, info.store)
        names = settings_of(namenode, "the NameNode")
        yield from _guarded("WebHDFS", lambda: storage.checks(hdfs, conf, options, choice.runtime))
        yield from _guarded("folder", lambda: storage.folder(hdfs, options))
        yield from _guarded("HDFS attributes", lambda: storage.attributes(hdfs, names, options))
        yield from _guarded("end of a file", lambda: storage.file_end(namenode, names, options))
        yield from _guarded("acting for owners", lambda: security.proxy_user(options, conf, names))
        yield from security.tokens(options, conf, names)
        if choice.runtime == SLICES:
            yield from _guarded("tokens of slices", lambda: security.slice_tokens(options, conf, names))
    finally:
        manager.close()
        namenode.close()


def _guarded(name: str, probe: Any) -> Iterator[Check]:
    """A probe's findings; what Hadoop refuses is a finding too."""
    try:
        yield from probe()
    except PortError as error:
        yield failed(name, error)
    except BadInput as error:
        yield fail(name, error.message, error.remedy or "correct the configuration")


def _manager(manager: ResourceManager, options: Options) -> Iterator[Check]:
    began = time.monotonic()
    answer = manager.http.ask("GET", "/ws/v1/cluster/info")
    took = time.monotonic() - began
    info, quirks = manager.info(), manager.quirks()
    yield ok("ResourceManager", f"Hadoop {info.version} at {manager.http.url}, answers in {took * 1000:.0f} ms")
    if not quirks.tried:
        yield warn("release", f"Hadoop {info.version} was never tried", "run in advise mode first")
    yield from holes(info.version, quirks)
    away = []
    for url in options.resource_manager:
        alone = HttpClient(replace(options.access((url,)), connect_s=3.0, read_s=10.0), "ResourceManager")
        try:
            alone.ask("GET", "/ws/v1/cluster/info")
        except PortError as error:
            away.append(f"{url}: {error.text}")
        finally:
            alone.close()
    if len(options.resource_manager) > 1:
        text = f"{len(options.resource_manager)} ResourceManagers answer"
        yield (
            ok("high availability", text)
            if not away
            else warn("high availability", "; ".join(away), "start it, or correct resource_manager")
        )
    stamp = answer.headers.get("Date", "")
    if stamp:
        skew = parsedate_to_datetime(stamp).timestamp() - time.time()
        yield (
            ok("clocks", f"{skew:+.0f} s apart")
            if abs(skew) < _SKEW_S
            else warn("clocks", f"the ResourceManager's clock is {skew:+.0f} s from ours", "run NTP on both hosts")
        )


def _services(services: Services, conf: Settings, options: Options) -> Iterator[Check]:
    mend = remedy("yarn-site.xml of the ResourceManager", {"yarn.webapp.api-service.enable": "true"})
    version = services.api_version()
    if version is None:
        if options.runtime == SERVICES:
            yield fail("Services API", "off: elastic jobs need it", mend)
        else:
            yield warn("Services API", "off: jobs run as slices, with an application master a node of each job", mend)
        return
    yield ok("Services API", f"on, Hadoop {version.split()[0]}")
    answer = services.http.ask("DELETE", "/app/v1/services/horae-doctor-no-such-service", owner=options.user)
    if answer.status >= 500:
        why = answer.refusal.message if answer.refusal else ""
        yield fail("Services API", f"cannot work: {why}", "start ZooKeeper and HDFS; see the ResourceManager's log")
    heap = conf.get("yarn.service.am-resource.memory")
    if heap.isdigit() and int(heap) < 300:
        yield warn("application master", f"gets {heap} MB: too little", remedy(
            "yarn-site.xml of the ResourceManager", {"yarn.service.am-resource.memory": "512"}
        ))  # fmt: skip


def _runtime(choice: Choice) -> Check:
    """Which way is used, and why."""
    where = "on named nodes" if choice.pinned else "YARN chooses the nodes"
    text = f"{choice.runtime}, {where}: {choice.why}"
    return ok("runtime", text)


def _gpus(manager: ResourceManager, conf: Settings, options: Options) -> Iterator[Check]:
    nodes = [node for node in manager.nodes() if node.state == "RUNNING"]
    total = sum(node.gpus for node in nodes)
    if not total:
        yield fail("GPUs", f"{len(nodes)} nodes and no GPU", remedy(
            "resource-types.xml everywhere, and yarn-site.xml of the NodeManagers",
            {"yarn.resource-types": "yarn.io/gpu", "yarn.nodemanager.resource-plugins": "yarn.io/gpu"},
        ))  # fmt: skip
        return
    yield ok("GPUs", f"{total} on {sum(1 for node in nodes if node.gpus)} of {len(nodes)} nodes")
    if manager.quirks().gpu_in_scheduler_xml and not conf.get("yarn.resource-types.yarn.io/gpu.maximum-allocation"):
        yield warn("GPUs", "this release may refuse to allot GPUs", remedy(
            "capacity-scheduler.xml", {"yarn.resource-types": "yarn.io/gpu"}
        ))  # fmt: skip
    if "capacity" in str(manager.scheduler().get("type", "")):
        name = "yarn.scheduler.capacity.resource-calculator"
        calculator = (manager.scheduler_conf(options.user) or conf.values).get(name, "")
        good = calculator.endswith("DominantResourceCalculator")
        mend = remedy(
            "capacity-scheduler.xml", {name: "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"}
        )
        text = calculator.rpartition(".")[2] or "the default, which counts memory only"
        yield ok("resource calculator", text) if good else fail("resource calculator", f"{text}: no GPUs", mend)


def _placement(manager: ResourceManager, conf: Settings, options: Options, choice: Choice) -> Iterator[Check]:
    gpu_nodes = [node for node in manager.nodes() if node.state == "RUNNING" and node.gpus]
    handler = conf.get(HANDLER)
    mend = remedy("yarn-site.xml of the ResourceManager", {HANDLER: "scheduler"})
    tries = conf.number(TRIES, 3)
    if not manager.places_by_attributes():
        yield warn(
            "named nodes", "the fair scheduler knows no attributes of nodes: Horae decides how many GPUs, YARN where",
            "the capacity scheduler, Hadoop's default, where nodes matter",
        )  # fmt: skip
    elif choice.runtime == SERVICES and not manager.quirks().pin_by_attribute:
        yield warn(
            "named nodes", "this release's services cannot go to named nodes: Horae decides how many GPUs, YARN where",
            "Hadoop 3.4.0 or newer, or `runtime: slices` where the nodes tell their names",
        )  # fmt: skip
    elif handler == PROCESSOR and tries < ENOUGH_TRIES:
        yield fail(
            "placement handler", f"gives a worker up that found no room {tries} times, a second apart: its node may "
            "still free the GPUs of who had them before", remedy("yarn-site.xml of the ResourceManager", PATIENT)
        )  # fmt: skip
    elif conf.why or handler in ("scheduler", PROCESSOR):
        yield ok("placement handler", handler or "not known")
    else:
        yield warn("placement handler", f"'{handler or 'disabled'}': workers cannot go to named nodes", mend)
    unnamed = [node.host for node in gpu_nodes if node.attributes.get(_HOST) != node.host]
    if unnamed:
        yield warn(
            "node attributes", f"{_names(unnamed)}: no attribute 'host' that is the node's name", _attributes(options)
        )
    elif gpu_nodes:
        yield ok("node attributes", "every GPU node has its name in the attribute 'host'")
    unkind = [node.host for node in gpu_nodes if not _tells_type(node, options)]
    if unkind:
        yield warn(
            "GPU types",
            f"{_names(unkind)}: no attribute '{options.kind_attribute}', and no type in the name of their resource, so "
            f"taken as '{options.kind}'",
            _attributes(options),
        )  # fmt: skip
    racks = {node.rack for node in gpu_nodes}
    if racks == {"/default-rack"} and len(gpu_nodes) > 1:
        yield warn("racks", "all nodes are in /default-rack", remedy(
            "core-site.xml of the ResourceManager", {"net.topology.script.file.name": "FILE"}
        ))  # fmt: skip


def _tells_type(node: NodeReport, options: Options) -> bool:
    told = bool(node.labels) if options.kind_attribute == LABEL else options.kind_attribute in node.attributes
    return told or bool(node.gpu_type)


def _attributes(options: Options) -> str:
    kind = options.kind_attribute.rpartition("/")[2] if options.kind_attribute != LABEL else "gpukind"
    value = f"host,STRING,NAME-OF-THIS-NODE:{kind},STRING,TYPE-OF-ITS-GPUS"
    return remedy(
        "yarn-site.xml of each NodeManager", {_PROVIDER: "config", f"{_PROVIDER}.configured-node-attributes": value}
    )


def _tenants(tree: Queues, queue: Queue, options: Options) -> Iterator[Check]:
    if options.tenants == BY_QUEUE:
        shares = ", ".join(f"{each.name} {each.weight:g} %" for each in tree.tenants(queue))
        yield ok("tenants", f"the leaf queues of {queue.path}: {shares}")
    elif queue.user_most is not None and queue.user_most < (queue.most or queue.guaranteed + 1):
        yield warn(
            "user limit", f"one user may hold {queue.user_most} GPUs of {queue.path} at most, whatever is free",
            f"its user-limit-factor is a share of the {queue.guaranteed} GPUs that it is guaranteed: raise it, or -1",
        )  # fmt: skip


def _queue(manager: ResourceManager, conf: Settings, options: Options, probes: Probes) -> Iterator[Check]:
    info = manager.scheduler()
    tree = queues(info)
    queue = tree.find(options.queue)
    if queue.parent and options.tenants != BY_QUEUE:
        yield fail("queue", f"{queue.path} is a parent", f"one of {', '.join(each.path for each in queue.leaves())}")
        return
    yield from _tenants(tree, queue, options)
    most = f", at most {queue.most}" if queue.most is not None else ""
    text = f"{queue.path} ({tree.kind} scheduler), {queue.guaranteed} GPUs guaranteed{most}"
    if queue.state == "RUNNING":
        yield ok("queue", text)
    else:
        yield fail("queue", f"{queue.path} is {queue.state}", "set its state to RUNNING")
    yield from _restarts(conf)
    yield from _preemption(tree, queue, probes)
    if not conf.why and conf.number("yarn.cluster.max-application-priority") < 1:
        yield warn("priorities", "every application's priority is 0", remedy(
            "yarn-site.xml of the ResourceManager", {"yarn.cluster.max-application-priority": "10"}
        ))  # fmt: skip
    raw = _raw(info, queue.path.split(".")[1:]) if tree.kind == CAPACITY else {}
    ends = int(raw.get("maxApplicationLifetime") or -1), int(raw.get("defaultApplicationLifetime") or -1)
    if max(ends) > 0:
        what = f"{queue.path} ends every application after {max(ends)} s: jobs that keep no checkpoint are lost then"
        yield warn("lifetime", what, remedy(
            "capacity-scheduler.xml", {f"yarn.scheduler.capacity.{queue.path}.maximum-application-lifetime": "-1"}
        ))  # fmt: skip
    if conf.on("yarn.acl.enable"):
        yield from _acl(raw, options.user, queue.path, conf)


def _restarts(conf: Settings) -> Iterator[Check]:
    """Whether queues outlive the ResourceManager, and services their application masters."""
    if conf.get(_STORE) == "memory":
        yield warn(
            "queue store", "the scheduler's configuration is kept in memory: at the ResourceManager's next start every "
            "queue that was made by REST is gone, and no job can start",
            remedy("yarn-site.xml of the ResourceManager", {_STORE: "leveldb"}),
        )  # fmt: skip
    attempts = conf.number("yarn.resourcemanager.am.max-attempts", 2)
    if not conf.why and attempts < _ATTEMPTS:
        yield warn(
            "application masters", f"a service ends when its application master dies {attempts} times in ten minutes",
            remedy("yarn-site.xml of the ResourceManager", {"yarn.resourcemanager.am.max-attempts": str(_ATTEMPTS)}),
        )  # fmt: skip


def _preemption(tree: Queues, queue: Queue, probes: Probes) -> Iterator[Check]:
    if queue.preemptable:
        yield warn("preemption", "other queues may take this queue's containers", "a lost worker costs a restart")
    if harm := harmful(probes, tree.losers({each.path for each in queue.leaves()})):
        yield warn("named nodes", f"workers are not sent to them: {harm}",
                   remedy("yarn-site.xml of the ResourceManager", PATIENT))  # fmt: skip


def _acl(raw: Mapping[str, Any], user: str, path: str, conf: Settings) -> Iterator[Check]:
    lists = {str(each["accessType"]): str(each["accessControlList"])
             for each in many((raw.get("queueAcls") or {}).get("queueAcl"))}  # fmt: skip
    if not lists.get("SUBMIT_APP", "*").strip():
        key = f"yarn.scheduler.capacity.{path}.acl_submit_applications"
        yield warn(
            "who may submit", f"nobody is named for {path} itself: a queue above it must let jobs' owners in",
            remedy("capacity-scheduler.xml", {key: "USERS GROUPS"}),
        )  # fmt: skip
    said = lists.get("ADMINISTER_QUEUE", "").partition(" ")[0].split(",")
    admins = conf.get("yarn.admin.acl", "*").partition(" ")[0].split(",")
    if {user, "*"} & {*said, *admins}:
        yield ok("rights", f"{user} administers {path}")
    else:
        yield warn(
            "rights", f"{user} is not named among those who administer {path} (groups are not looked up)",
            remedy("capacity-scheduler.xml", {f"yarn.scheduler.capacity.{path}.acl_administer_queue": user}),
        )  # fmt: skip


def _raw(info: Mapping[str, Any], names: list[str]) -> Mapping[str, Any]:
    for name in names:
        children = many((info.get("queues") or {}).get("queue"))
        info = next((each for each in children if each.get("queueName") == name), {})
    return info


def _signal(manager: ResourceManager) -> Iterator[Check]:
    path = "/ws/v1/cluster/containers/container_0_0000_01_000000/signal/NO-SUCH-SIGNAL"
    if manager.http.ask("POST", path).status == 404:
        yield warn("signals", "this release cannot signal workers: they look for a stop flag in HDFS",
                   "Hadoop 3.3.0 or newer")  # fmt: skip
        return
    yield warn(
        "signals", "workers can be asked to stop; and whoever may log in to this cluster can stop any worker",
        "no setting closes it: Horae restarts such a worker from its checkpoint; a proxy can refuse the path",
    )  # fmt: skip


def _nodes_conf(manager: ResourceManager, options: Options) -> Settings:
    """The settings of one NodeManager that can be reached."""
    try:
        nodes: list[NodeReport] = [node for node in manager.nodes() if node.http]
    except PortError as error:
        return Settings({}, error.text)
    for node in nodes[:3]:
        access = options.access(options.resource_manager).elsewhere(f"http://{node.http}", 2.0, 5.0)
        http = HttpClient(access, "NodeManager")
        found = settings_of(http, node.host)
        http.close()
        if not found.why:
            return found
    return Settings({}, "no NodeManager can be reached from here")


def _recovery(store: str, conf: Settings, nodes: Settings, options: Options) -> Iterator[Check]:
    if store in {"", "NullRMStateStore"}:
        yield warn("restart of the ResourceManager", "it forgets all applications", remedy(
            "yarn-site.xml of the ResourceManager",
            {"yarn.resourcemanager.recovery.enabled": "true", "yarn.resourcemanager.store.class":
             "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore"},
        ))  # fmt: skip
    elif conf.get(_PRESERVING, "true").lower() != "true":
        yield fail(
            "restart of the ResourceManager", "with a YARN service running it ends itself then, for everybody: it "
            "keeps the applications and not what they run, and 3.4.2 fails at the first service's next attempt",
            remedy("yarn-site.xml of ResourceManager and NodeManagers", {_PRESERVING: "true"}),
        )  # fmt: skip
    else:
        yield ok("restart of the ResourceManager", f"{store} keeps the applications")
    known = conf if nodes.why else nodes
    if known.why:
        return
    where = " (as the ResourceManager's host has it)" if nodes.why else ""
    mend = "yarn-site.xml of the NodeManagers"
    if known.on("yarn.nodemanager.recovery.enabled"):
        yield ok("restart of a NodeManager", f"takes its workers back{where}")
    else:
        yield fail(
            "restart of a NodeManager", f"workers of one that fails live on unseen, and hold their GPUs{where}",
            remedy(mend, {"yarn.nodemanager.recovery.enabled": "true", "yarn.nodemanager.recovery.supervised": "true"}),
        )  # fmt: skip
    grace = known.number("yarn.nodemanager.sleep-delay-before-sigkill.ms", 250)
    text = f"{grace} ms between TERM and KILL{where}"
    yield ok("kill grace", text) if grace >= 1000 else warn(
        "kill grace", f"{text}: a worker that YARN ends cannot write anything",
        remedy(mend, {"yarn.nodemanager.sleep-delay-before-sigkill.ms": "5000"}),
    )  # fmt: skip
    expiry = known.number("yarn.nm.liveness-monitor.expiry-interval-ms", 600_000) / 1000
    if expiry > 120:
        yield warn("lost nodes", f"a node counts as lost after {expiry:.0f} s only", remedy(
            "yarn-site.xml of the ResourceManager", {"yarn.nm.liveness-monitor.expiry-interval-ms": "60000"}
        ))  # fmt: skip


def _zookeeper(conf: Settings, store: str) -> Iterator[Check]:
    """Of the registry of services; and of the ResourceManager's state, where it is another one."""
    registry, state = conf.get("hadoop.registry.zk.quorum"), conf.get("hadoop.zk.address")
    if registry:
        yield from _quorum("ZooKeeper", registry, "services cannot be destroyed without it")
    if store == "ZKRMStateStore" and state and state != registry:
        yield from _quorum("ZooKeeper of the state store", state, "no application can start or end without it")


def _quorum(name: str, said: str, why: str) -> Iterator[Check]:
    quorum = [each.strip() for each in said.split(",") if each.strip()]
    away = []
    for server in quorum:
        host, _, port = server.partition(":")
        try:
            socket.create_connection((host, int(port) if port.isdigit() else 2181), 3.0).close()
        except OSError as error:
            away.append(f"{server}: {error.strerror or error}")
    if not quorum:
        return
    if len(away) * 2 < len(quorum):
        yield ok(name, f"{len(quorum) - len(away)} of {len(quorum)} answer")
    else:
        yield fail(name, "; ".join(away), f"{why}: start it, or let this host in")


def _names(hosts: list[str]) -> str:
    shown = ", ".join(sorted(hosts)[:8])
    return shown if len(hosts) <= 8 else f"{shown} and {len(hosts) - 8} more"
