"""`horae doctor` for YARN on a healthy cluster and on every ailment it knows, one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.utils import formatdate
from typing import Any

import pytest

from horae.doctor import Check, Verdict
from policy.model import BadInput
from tests.yarn_bridge.fake import Asked, Reply, recorded, serving
from tests.yarn_bridge.fake_hdfs import World
from yarn_bridge.clients.settings import Settings
from yarn_bridge.runtimes.chooser import HANDLER, PATIENT, PROCESSOR, TRIES
from yarn_bridge.site import checks

HEALTHY = {
    "yarn.webapp.api-service.enable": "true",
    HANDLER: "scheduler",
    "yarn.cluster.max-application-priority": "10",
    "yarn.resourcemanager.am.max-attempts": "4",
    "yarn.service.framework.path": "/yarn-services/service-dep.tar.gz",
    "yarn.nodemanager.recovery.enabled": "true",
    "yarn.nodemanager.container-executor.class": "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor",
    "yarn.nodemanager.sleep-delay-before-sigkill.ms": "5s",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "60000",
}


XATTR_SIZE = "dfs.namenode.fs-limits.max-xattr-size"
XATTR_COUNT = "dfs.namenode.fs-limits.max-xattrs-per-inode"
FILE_END = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"


def recorded_answer(name: str) -> Reply:
    """Of a private Hadoop 3.4.2 (`record_lab.py`)."""
    pair = recorded("3.4.2-lab")[name]
    return Reply(pair["status"], pair["response"])


def answering(operation: str, name: str) -> Callable[[Site], object]:
    """The NameNode answers this operation as it was recorded."""

    def ail(site: Site) -> None:
        site.world.fault = lambda asked: recorded_answer(name) if asked == operation else None

    return ail


def datanode_tells(name: str) -> Callable[[Site], object]:
    return lambda site: setattr(site.world, "datanode_conf", recorded_answer(name))


class Site:
    """A ResourceManager and an HDFS whose answers a test changes."""

    def __init__(self, stack: ExitStack) -> None:
        lane = recorded("3.4.2")
        self.conf: dict[str, str] = dict(HEALTHY)
        self.info = copy.deepcopy(lane["info"]["response"])
        self.info["clusterInfo"]["rmStateStoreName"] = "org.apache.ZKRMStateStore"
        self.nodes = copy.deepcopy(lane["nodes-lost"]["response"])
        for node in self.nodes["nodes"]["node"]:
            node["state"], node["rack"], node["nodeHTTPAddress"] = "RUNNING", f"/{node['nodeHostName']}", ""
        self.scheduler = copy.deepcopy(lane["scheduler"]["response"])
        self.calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
        self.faults: dict[str, Reply] = {}
        self.clock = 0.0
        self.world = World(stack)
        self.world.owner = "horae"
        self.world.folders |= {"/user/horae", "/tmp", "/yarn-services"}
        self.world.modes["/tmp"] = "1777"
        self.world.files["/yarn-services/service-dep.tar.gz"] = b"jars"
        self.world.conf[XATTR_SIZE] = "16384"
        self.world.datanode_conf = {FILE_END: "50"}
        self.fake = stack.enter_context(serving(self.answer))

    def answer(self, asked: Asked) -> Reply:
        for path, reply in self.faults.items():
            if path in asked.path:
                return reply
        if not asked.query.get("user.name"):
            return Reply(401, {"message": "Authentication required"})
        body: Any = {
            "/conf": {"properties": [{"key": key, "value": value} for key, value in self.conf.items()]},
            "/ws/v1/cluster/info": self.info,
            "/ws/v1/cluster/metrics": recorded("3.4.2")["metrics"]["response"],
            "/ws/v1/cluster/nodes": self.nodes,
            "/ws/v1/cluster/scheduler": self.scheduler,
            "/ws/v1/cluster/scheduler-conf": {
                "property": [{"name": "yarn.scheduler.capacity.resource-calculator", "value": self.calculator}]
            },
            "/app/v1/services/version": {"hadoop_version": "3.4.2 from x"},
        }.get(asked.path)
        if body is not None:
            return Reply(200, body, {"Date": formatdate(usegmt=True)})
        if "signal" in asked.path:
            return Reply(400, "Invalid command: NO-SUCH-SIGNAL")
        return Reply(404 if asked.method == "GET" else 400, {"diagnostics": "Service x doesn't exist"})

    def examine(self, **more: object) -> list[Check]:
        options = {
            "resource_manager": [self.fake.url],
            "webhdfs": [self.world.namenode.url],
            "queue": "themis",
            "hdfs_names": {"datanode.invalid": "127.0.0.1"},
        }
        return checks({**options, **more})

    @property
    def leaf(self) -> dict[str, Any]:
        found: dict[str, Any] = self.scheduler["scheduler"]["schedulerInfo"]["queues"]["queue"][1]
        return found


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


def test_a_healthy_cluster_has_only_what_no_setting_mends(site: Site) -> None:
    found = site.examine()
    bad = {check.name: check.text for check in found if check.verdict is not Verdict.OK}
    # The in-process HDFS lets anybody in; simple authentication and the open signal are the cluster's nature.
    assert set(bad) == {"credentials", "credentials: WebHDFS", "signals"}, bad
    named = {check.name for check in found}
    assert {"ResourceManager", "Services API", "GPUs", "placement handler", "queue", "WebHDFS", "framework"} <= named
    assert all(check.remedy for check in found if check.verdict is not Verdict.OK)


def test_nothing_is_left_behind(site: Site) -> None:
    before, folders = dict(site.world.files), set(site.world.folders)
    site.examine()
    assert (site.world.files, site.world.folders, site.world.attributes) == (before, folders, {})
    assert {asked.method for asked in site.fake.asked} == {"GET", "POST", "DELETE"}
    changing = [asked.path for asked in site.fake.asked if asked.method != "GET"]
    assert all("no-such-service" in path or "NO-SUCH-SIGNAL" in path for path in changing)


def no_attributes(site: Site) -> None:
    for node in site.nodes["nodes"]["node"]:
        node["nodeAttributesInfo"] = {}


def acl(site: Site) -> None:
    site.conf |= {"yarn.acl.enable": "true", "yarn.admin.acl": "yarn"}


def preempting(site: Site) -> None:
    site.scheduler["scheduler"]["schedulerInfo"]["queues"]["queue"][0].update(preemptionDisabled=False)


def closed(site: Site) -> None:
    site.conf |= {"yarn.acl.enable": "true"}
    site.leaf["queueAcls"] = {"queueAcl": [{"accessType": "SUBMIT_APP", "accessControlList": " "}]}


def no_gpus(site: Site) -> None:
    site.nodes["nodes"]["node"].clear()


def release(version: str) -> Callable[[Site], object]:
    return lambda site: site.info["clusterInfo"].update(hadoopVersion=version)


AILMENTS: list[tuple[str, Callable[[Site], object], Verdict, str, str]] = [
    ("release", release("3.5.0"), Verdict.WARN, "never tried", "advise"),
    ("known holes", release("3.3.4"), Verdict.WARN, "CVE-2023-26031", "3.4.0 or newer"),
    ("queue store", lambda s: s.conf.update({"yarn.scheduler.configuration.store.class": "memory"}), Verdict.WARN,
     "kept in memory", "<value>leveldb</value>"),
    ("application masters", lambda s: s.conf.update({"yarn.resourcemanager.am.max-attempts": "2"}), Verdict.WARN,
     "dies 2 times", "<name>yarn.resourcemanager.am.max-attempts</name><value>4</value>"),
    ("Services API", lambda s: s.faults.update({"/app/v1/services/version": Reply(404, "<title>no</title>")}),
     Verdict.WARN, "off: jobs run as slices", "<name>yarn.webapp.api-service.enable</name><value>true</value>"),
    ("Services API", lambda s: s.faults.update({"no-such-service": Reply(500, {"diagnostics": "ConnectionLoss"})}),
     Verdict.FAIL, "ConnectionLoss", "ZooKeeper"),
    ("GPUs", no_gpus, Verdict.FAIL, "no GPU", "yarn.resource-types"),
    ("resource calculator", lambda s: setattr(s, "calculator", "x.DefaultResourceCalculator"),
     Verdict.FAIL, "DefaultResourceCalculator: no GPUs", "DominantResourceCalculator"),
    ("placement handler", lambda s: s.conf.pop(HANDLER),
     Verdict.WARN, "cannot go to named nodes", "<value>scheduler</value>"),
    ("node attributes", no_attributes, Verdict.WARN, "gpu-a, gpu-b: no attribute", "host,STRING,NAME-OF-THIS-NODE"),
    ("GPU types", no_attributes, Verdict.WARN, "taken as 'gpu'", "gpukind,STRING"),
    ("queue", lambda s: s.leaf.update(state="STOPPED"), Verdict.FAIL, "STOPPED", "RUNNING"),
    ("queue", lambda s: s.scheduler["scheduler"]["schedulerInfo"]["queues"]["queue"].pop(), Verdict.FAIL,
     "no queue 'themis'", "root.default"),
    ("preemption", lambda s: s.leaf.update(preemptionDisabled=False), Verdict.WARN, "may take", "restart"),
    ("named nodes", preempting, Verdict.WARN, "workers are not sent to them: YARN would take containers from "
     "root.default for", "<value>placement-processor</value>"),
    ("placement handler", lambda s: s.conf.update({HANDLER: PROCESSOR, TRIES: "3"}), Verdict.FAIL,
     "gives a worker up that found no room 3 times", f"<name>{TRIES}</name><value>100</value>"),
    ("priorities", lambda s: s.conf.pop("yarn.cluster.max-application-priority"), Verdict.WARN, "is 0",
     "max-application-priority"),
    ("lifetime", lambda s: s.leaf.update(maxApplicationLifetime=3600), Verdict.WARN, "after 3600 s",
     "root.themis.maximum-application-lifetime"),
    ("rights", acl, Verdict.WARN, "horae is not named", "acl_administer_queue"),
    ("who may submit", closed, Verdict.WARN, "nobody is named for root.themis", "acl_submit_applications"),
    ("signals", lambda s: s.faults.update({"/signal/": Reply(404)}), Verdict.WARN, "cannot signal", "3.3.0"),
    ("restart of the ResourceManager",
     lambda s: s.info["clusterInfo"].update(rmStateStoreName="x.NullRMStateStore"), Verdict.WARN, "forgets",
     "ZKRMStateStore"),
    ("restart of the ResourceManager",
     lambda s: s.conf.update({"yarn.resourcemanager.work-preserving-recovery.enabled": "false"}), Verdict.FAIL,
     "ends itself then, for everybody", "work-preserving-recovery"),
    ("restart of a NodeManager", lambda s: s.conf.pop("yarn.nodemanager.recovery.enabled"), Verdict.FAIL,
     "live on unseen", "recovery.supervised"),
    ("isolation of GPUs", lambda s: s.conf.pop("yarn.nodemanager.container-executor.class"), Verdict.WARN,
     "nothing keeps other programs from them", "LinuxContainerExecutor"),
    ("kill grace", lambda s: s.conf.pop("yarn.nodemanager.sleep-delay-before-sigkill.ms"), Verdict.WARN,
     "250 ms", "sleep-delay"),
    ("lost nodes", lambda s: s.conf.pop("yarn.nm.liveness-monitor.expiry-interval-ms"), Verdict.WARN,
     "after 600 s", "expiry-interval"),
    ("ZooKeeper", lambda s: s.conf.update({"hadoop.registry.zk.quorum": "127.0.0.1:1"}), Verdict.FAIL,
     "127.0.0.1:1", "start it"),
    ("ZooKeeper of the state store", lambda s: s.conf.update({"hadoop.zk.address": "127.0.0.1:1"}), Verdict.FAIL,
     "127.0.0.1:1", "no application can start or end without it"),
    ("application master", lambda s: s.conf.update({"yarn.service.am-resource.memory": "128"}), Verdict.WARN,
     "128 MB", "512"),
    ("settings", lambda s: s.faults.update({"/conf": Reply(403, "admins only")}), Verdict.WARN, "admins only", "/conf"),
    ("HDFS home", lambda s: s.world.folders.discard("/user/horae"), Verdict.FAIL, "no /user/horae", "-chown horae"),
    ("HDFS home", lambda s: setattr(s.world, "owner", "root"), Verdict.WARN, "is root's", "-chown horae"),
    ("folder", lambda s: s.world.modes.update({"/user": "777"}), Verdict.FAIL, "everybody may write to /user (its mode",
     "hdfs dfs -chmod +t /user"),
    ("HDFS /tmp", lambda s: s.world.modes.pop("/tmp"), Verdict.FAIL, "755", "-chmod 1777 /tmp"),
    ("framework", lambda s: s.world.files.clear(), Verdict.FAIL, "is not there", "enableFastLaunch"),
    ("framework", lambda s: s.world.modes.update({"/yarn-services/service-dep.tar.gz": "640"}), Verdict.FAIL,
     "others cannot read", "-chmod 644"),
    ("framework", lambda s: s.conf.pop("yarn.service.framework.path"), Verdict.WARN, "uploads it again",
     "enableFastLaunch"),
    ("HDFS attributes", answering("SETXATTR", "setxattr-off"), Verdict.FAIL, "disabled by setting dfs.namenode.xattrs.",
     "<name>dfs.namenode.xattrs.enabled</name><value>true</value>"),
    ("HDFS attributes", answering("GETXATTRS", "getxattrs"), Verdict.FAIL, "not what was set", "proxy"),
    ("HDFS attributes", answering("SETXATTR", "setxattr-big"), Verdict.FAIL, "The XAttr is too big",
     f"hdfs-site.xml of the NameNodes: <property><name>{XATTR_SIZE}</name><value>16384</value>"),
    ("HDFS attributes", lambda s: s.world.conf.update({XATTR_SIZE: "2048"}), Verdict.WARN, "max-xattr-size 2048",
     f"<name>{XATTR_SIZE}</name><value>16384</value>"),
    ("HDFS attributes", lambda s: s.world.conf.update({XATTR_COUNT: "8"}), Verdict.WARN, "max-xattrs-per-inode 8",
     f"<name>{XATTR_COUNT}</name><value>32</value>"),
    ("end of a file", datanode_tells("dn-conf-one"), Verdict.WARN, "takes 400 ms for the end of a file (DataNode data",
     f"hdfs-site.xml of the DataNodes: <property><name>{FILE_END}</name><value>50</value>"),
    ("racks", lambda s: [node.update(rack="/default-rack") for node in s.nodes["nodes"]["node"]], Verdict.WARN,
     "/default-rack", "net.topology.script.file.name"),
]  # fmt: skip


def handler_off(site: Site) -> None:
    site.conf[HANDLER] = "disabled"


def processor(site: Site) -> None:
    site.conf.update(PATIENT)


OFF = Reply(500, {"message": "The ResourceConfig instance does not contain any root resource classes."})


@pytest.mark.parametrize(
    ("ail", "more", "told"),
    [
        ((), {}, "services, on named nodes: the Services API is on"),
        ((no_attributes,), {}, "services, YARN chooses the nodes: the Services API is on; with no node attributes"),
        ((handler_off,), {}, "services, YARN chooses the nodes: the Services API is on; with no placement by constr"),
        ((preempting,), {}, "services, YARN chooses the nodes: the Services API is on; with no placement by constr"),
        ((preempting, processor), {}, "services, on named nodes: the Services API is on"),
        ((release("3.3.6"),), {}, "slices, on named nodes: services of Hadoop 3.3.6 cannot ask for named nodes"),
        ((release("3.3.6"), no_attributes), {}, "services, YARN chooses the nodes: the Services API is on"),
        ((lambda s: s.faults.update({"/services/version": OFF}),), {}, "slices, on named nodes: the Services API is"),
        ((lambda s: s.faults.update({"/services/version": OFF}), no_attributes), {}, "slices, YARN chooses the nodes"),
        ((), {"runtime": "slices"}, "slices, on named nodes: the configuration says so"),
        ((release("3.3.6"),), {"runtime": "services"}, "services, YARN chooses the nodes: the configuration says so"),
    ],
)  # fmt: skip
def test_which_way_jobs_run_and_why(
    site: Site, ail: tuple[Callable[[Site], object], ...], more: dict[str, object], told: str
) -> None:
    for each in ail:
        each(site)
    (found,) = [check for check in site.examine(**more) if check.name == "runtime"]
    assert (found.verdict, found.text[: len(told)]) == (Verdict.OK, told)


def test_services_that_are_wanted_must_be_on(site: Site) -> None:
    site.faults["/services/version"] = OFF
    found = [check for check in site.examine(runtime="services") if check.name == "Services API"]
    assert [check.verdict for check in found] == [Verdict.FAIL]


def test_services_that_cannot_go_to_named_nodes_are_told_of_the_other_way(site: Site) -> None:
    release("3.3.6")(site)
    (found,) = [check for check in site.examine(runtime="services") if check.name == "named nodes"]
    assert (found.verdict, "runtime: slices" in found.remedy) == (Verdict.WARN, True)


def test_slices_need_hadoops_jars(site: Site) -> None:
    def framework(**more: object) -> Check:
        return next(check for check in site.examine(runtime="slices", **more) if check.name == "framework")

    assert framework().verdict is Verdict.OK
    site.conf.pop("yarn.service.framework.path")
    assert (framework().verdict, "installed on the nodes" in framework().text) == (Verdict.WARN, True)
    site.world.files["/apps/hadoop.tar.gz"] = b"jars"
    assert framework(framework="/apps/hadoop.tar.gz").verdict is Verdict.OK
    assert framework(framework="/apps/none.tar.gz").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("name", "ail", "verdict", "text", "remedy"), AILMENTS, ids=[f"{at}-{a[0]}" for at, a in enumerate(AILMENTS)]
)
def test_each_ailment_is_named_with_its_remedy(
    site: Site, name: str, ail: Callable[[Site], object], verdict: Verdict, text: str, remedy: str
) -> None:
    ail(site)
    found = [check for check in site.examine() if check.name == name and check.verdict is verdict]
    assert len(found) == 1
    assert text in found[0].text
    assert remedy in found[0].remedy


@pytest.mark.parametrize(
    ("ail", "told"),
    [
        (datanode_tells("conf-nobody"), "is not readable: reading "),
        (lambda s: s.world.datanode.close(), "is not readable: no DataNode answers"),
    ],
)
def test_a_wait_that_cannot_be_read_is_no_fault(site: Site, ail: Callable[[Site], object], told: str) -> None:
    """Nor is one that the DataNode does not have; the NameNode's host may know."""

    def end() -> Check:
        return next(check for check in site.examine() if check.name == "end of a file")

    site.world.datanode_conf = {}
    assert (end().verdict, "takes 400 ms" in end().text) == (Verdict.WARN, True)
    ail(site)
    site.world.conf[FILE_END] = "60"
    assert (end().verdict, "takes 60 ms for the end of a file (as the NameNode's" in end().text) == (Verdict.OK, True)
    answer = site.world.namenode.answers
    site.world.namenode.answers = lambda asked: Reply(403, "admins only") if "op" not in asked.query else answer(asked)
    found = end()
    assert found.verdict is Verdict.OK
    assert f"{FILE_END} {told}" in found.text
    attributes = next(check for check in site.examine() if check.name == "HDFS attributes")
    assert attributes.verdict is Verdict.OK
    assert "the limits are not readable" in attributes.text


def test_the_quota_of_the_home(site: Site) -> None:
    site.world.files["/user/horae/checkpoint"] = b"x" * 1300  # three replicas of 4096
    (quota,) = [check for check in site.examine() if check.name == "quota"]
    assert (quota.verdict, "3900 of 4096 bytes" in quota.text) == (Verdict.WARN, True)


def test_a_datanode_that_cannot_be_found_is_a_finding_with_its_remedy(site: Site) -> None:
    (found,) = [check for check in site.examine(hdfs_names={}) if check.name == "WebHDFS"]
    assert found.verdict is Verdict.FAIL
    assert "datanode.invalid" in found.text
    assert "hdfs_names" in found.remedy


def test_no_resource_manager_is_one_finding_and_no_traceback() -> None:
    with serving(lambda asked: Reply()) as gone:
        url = gone.url
    found = checks({"resource_manager": [url], "webhdfs": [url]})
    assert [check.verdict for check in found] == [Verdict.FAIL, Verdict.FAIL]
    assert "connection refused" in found[0].text


def test_acting_for_owners_is_proved_at_both_daemons(site: Site) -> None:
    site.conf |= {"hadoop.proxyuser.horae.hosts": "horae1", "hadoop.proxyuser.horae.groups": "ml"}
    found = {check.name: check for check in site.examine(doas=True) if "acting" in check.name}
    assert found["acting for owners: ResourceManager"].verdict is Verdict.OK
    assert found["acting for owners: NameNode"].verdict is Verdict.FAIL
    assert found["acting for owners"].verdict is Verdict.FAIL
    assert "ProxyUserAuthenticationFilterInitializer" in found["acting for owners"].remedy


def test_options_that_a_person_mends(site: Site) -> None:
    with pytest.raises(BadInput, match="resource_manager"):
        checks({"webhdfs": ["http://nn:9870"]})


def test_hadoops_ways_to_write_a_time() -> None:
    settings = Settings({"a": "5s", "b": "250", "c": "7d", "d": "10ms", "e": "soon", "f": "2m", "g": "1h"})
    assert [settings.number(name, -1) for name in "abcdefgh"] == [
        5000,
        250,
        604_800_000,
        10,
        -1,
        120_000,
        3_600_000,
        -1,
    ]
