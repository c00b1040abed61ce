"""Configuration of a mini Hadoop: site files as Python values, the same for plain processes and for containers.

The ports are Hadoop's own. Labs on one machine do not collide because each has loopback addresses of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from yarn_bridge.lab import federation, kerberos, standbys

RELEASES = ("3.4.2", "3.3.6")
RM_PORT, NN_PORT, NN_RPC, DN_PORT, ZK_PORT, NM_PORT = 8088, 9870, 9000, 9864, 2181, 8041
NM_WEB_PORT = 8042
#: where the framework of the Services' application master lies in HDFS, so that it is not uploaded at each start
FRAMEWORK = "/yarn-services/service-dep.tar.gz"
TMP = "/tmp/horae-hadoop"
#: only the queue `horae` is Horae's; `default` is for jobs it has no part in
QUEUES = ("default", "horae")

#: Hadoop's web parts need java.lang opened to them; the rest makes small daemons start quickly.
JVM = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
       "-Djava.net.preferIPv4Stack=true")  # fmt: skip

_YARN = "org.apache.hadoop.yarn.server"
_HDFS = "org.apache.hadoop.hdfs.server"
CLASSES = {
    "zookeeper": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "namenode": f"{_HDFS}.namenode.NameNode",
    "datanode": f"{_HDFS}.datanode.DataNode",
    "resourcemanager": f"{_YARN}.resourcemanager.ResourceManager",
    "nodemanager": f"{_YARN}.nodemanager.NodeManager",
}
_HEAP_MB = {"zookeeper": 64, "namenode": 160, "datanode": 128, "resourcemanager": 320, "nodemanager": 128}

#: What HDFS must hold before jobs come: folder and mode. The first owner of a service would else shut the folder of
#: public resources to all others.
FOLDERS = (
    ("/tmp", "1777"),
    *((f"{TMP}{below}", "1777") for below in ("", "/.yarn", "/.yarn/services")),
    ("/user", "755"),
    ("/yarn-services", "755"),
)

#: An nvidia-smi: what the GPU plugin asks, answered from the NodeManager's environment, or by the real one.
NVIDIA_SMI = """\
#!/bin/sh
[ -n "${FAKE_GPUS:-}" ] || exec /usr/bin/nvidia-smi "$@"
echo '<nvidia_smi_log><driver_version>535.0</driver_version>'
i=0
while [ "$i" -lt "$FAKE_GPUS" ]; do
cat <<X
<gpu id="0000:0$i:00.0"><product_name>${GPU_KIND:-v100}</product_name>
<uuid>GPU-$i</uuid><minor_number>$i</minor_number>
<fb_memory_usage><total>16000 MiB</total><used>0 MiB</used><free>16000 MiB</free></fb_memory_usage>
<utilization><gpu_util>0 %</gpu_util></utilization><temperature><gpu_temp>30 C</gpu_temp></temperature></gpu>
X
i=$((i+1))
done
echo '</nvidia_smi_log>'
"""

_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
# They log each request with its address, which holds the delegation token.
log4j.logger.http.requests=WARN
log4j.logger.datanode.webhdfs=WARN
"""


@dataclass(frozen=True)
class Site:
    """Where a lab's daemons are. `master` holds all but the NodeManagers."""

    namenode: str
    datanode: str
    manager: str
    zookeeper: str
    data: str  #: folder of what the daemons keep
    expiry_s: float = 20.0  #: after this long without a heartbeat a NodeManager is lost
    standby: str = ""  #: address of a second NameNode and ResourceManager; empty: there is none
    far: str = ""  #: address of another nameservice's NameNode; empty: there is one nameservice
    kdc: str = ""  #: folder of the lab's KDC; empty: every name is believed
    owners: tuple[str, ...] = ()  #: under Kerberos: for whom the bridge may act


@dataclass(frozen=True)
class Daemon:
    """What differs from one NodeManager to the next; the other daemons take the defaults."""

    name: str = "localhost"
    bind: str = "127.0.0.1"
    kind: str = "none"
    folder: str = ""  #: of its configuration, which holds the fake nvidia-smi
    mine: int = 0  #: where there is a standby, or another nameservice: 1 for what runs at its address


#: of a lab of containers: one folder for all of them, since Hadoop reads what differs from the environment
DOCKED_SITE = Site("nn", "${env.HOSTNAME}", "rm", "zk", "/data")
DOCKED_DAEMON = Daemon("${env.HOSTNAME}", "0.0.0.0", "${env.GPU_KIND:-none}", "/etc/hadoop")


def heap(role: str) -> str:
    return f"-Xmx{_HEAP_MB[role]}m"


def write_conf(folder: Path, site: Site, daemon: Daemon, extra: Mapping[str, str] | None = None) -> None:
    """All files of one daemon's configuration. `extra`: on top, `dfs.*` in hdfs-site.xml, proxy users in
    core-site.xml, the rest in yarn-site.xml."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("hdfs", "datanode"):  # Maven's jars carry no web roots; empty ones will do
        web = folder / "webapps" / name / "WEB-INF"
        web.mkdir(parents=True, exist_ok=True)
        (web / "web.xml").write_text("<web-app/>\n")
    core, hdfs, yarn = _sites(site, daemon, extra or {})
    files = {
        "core-site.xml": xml(core),
        "hdfs-site.xml": xml(hdfs),
        "yarn-site.xml": xml(yarn),
        "resource-types.xml": xml({"yarn.resource-types": yarn["yarn.resource-types"]}),
        "capacity-scheduler.xml": xml(_scheduler()),
        "log4j.properties": _LOG4J,
        "zoo.cfg": f"tickTime=2000\nclientPort={ZK_PORT}\nclientPortAddress={site.zookeeper}\n"
        f"dataDir={site.data}/zk\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,srvr\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    tool = folder / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)


def _sites(
    site: Site, daemon: Daemon, extra: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    core, hdfs, yarn = _core(site), _hdfs(site), _yarn(site, daemon)
    both = (site.namenode, site.standby or site.far)
    if site.standby or site.far:
        for one in ("rpc-address", "http-address"):  # each has its own, by name
            del hdfs[f"dfs.namenode.{one}"]
        kind = standbys if site.standby else federation
        hdfs |= kind.hdfs(both, daemon.mine, site.data, NN_RPC, NN_PORT)
    if site.far:
        core |= federation.core(both, NN_RPC)
    if site.standby:
        core |= standbys.core()
        yarn |= standbys.yarn((site.manager, site.standby), daemon.mine, RM_PORT)
    if site.kdc:
        core |= kerberos.core(site.kdc, site.owners)
        hdfs |= kerberos.hdfs(site.kdc)
        yarn |= kerberos.yarn(site.kdc)
    for key, value in extra.items():
        (hdfs if key.startswith("dfs.") else core if key.startswith("hadoop.proxyuser.") else yarn)[key] = value
    return core, hdfs, yarn


def xml(values: Mapping[str, str]) -> str:
    lines = [f"<property><name>{escape(k)}</name><value>{escape(v)}</value></property>" for k, v in values.items()]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


def _core(site: Site) -> dict[str, str]:
    return {
        "fs.defaultFS": f"hdfs://{site.namenode}:{NN_RPC}",
        # Also a path in HDFS, for the Services' application master: below the world-writable /tmp.
        "hadoop.tmp.dir": TMP,
        # Simple authentication: `user.name` is believed. For labs only.
        "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer,"
        "org.apache.hadoop.security.HttpCrossOriginFilterInitializer",
        "hadoop.http.authentication.type": "simple",
        "hadoop.http.authentication.simple.anonymous.allowed": "false",
        "hadoop.security.group.mapping": "org.apache.hadoop.security.ShellBasedUnixGroupsMapping",
    }


def _hdfs(site: Site) -> dict[str, str]:
    return {
        "dfs.replication": "1",
        "dfs.namenode.name.dir": f"file://{site.data}/nn",
        "dfs.datanode.data.dir": f"file://{site.data}/dn",
        "dfs.namenode.http-address": f"{site.namenode}:{NN_PORT}",
        "dfs.namenode.rpc-address": f"{site.namenode}:{NN_RPC}",
        "dfs.datanode.address": f"{site.datanode}:9866",
        "dfs.datanode.http.address": f"{site.datanode}:{DN_PORT}",
        "dfs.datanode.ipc.address": f"{site.datanode}:9867",
        "dfs.datanode.hostname": site.datanode,
        # The NameNode knows the DataNode by the address it calls from, which on loopback is not the one it serves at.
        "dfs.client.use.datanode.hostname": "true",
        "dfs.datanode.use.datanode.hostname": "true",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.redundancy.considerLoad": "false",
    }


def _yarn(site: Site, daemon: Daemon) -> dict[str, str]:
    rm, nm = site.manager, daemon.name
    return {
        "yarn.resourcemanager.hostname": rm,
        "yarn.resourcemanager.webapp.address": f"{rm}:{RM_PORT}",
        "yarn.resourcemanager.scheduler.class":
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
        "yarn.scheduler.configuration.store.class": "memory",
        "yarn.resourcemanager.placement-constraints.handler": "scheduler",
        "yarn.resourcemanager.recovery.enabled": "true",
        "yarn.resourcemanager.store.class":
            "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
        "yarn.resourcemanager.fs.state-store.uri": f"file://{site.data}/rm-state",
        # Where ZKRMStateStore would keep it.
        "hadoop.zk.address": f"{site.zookeeper}:{ZK_PORT}",
        "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
        "yarn.resourcemanager.am.max-attempts": "20",
        "yarn.scheduler.minimum-allocation-mb": "64",
        "yarn.cluster.max-application-priority": "10",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-min-ms": "200",
        "yarn.nm.liveness-monitor.expiry-interval-ms": str(int(1000 * site.expiry_s)),
        "yarn.node-attribute.fs-store.root-dir": f"file://{site.data}/attrs",
        "yarn.node-labels.fs-store.root-dir": f"file://{site.data}/labels",
        "yarn.resource-types": "yarn.io/gpu",
        "yarn.webapp.api-service.enable": "true",
        "hadoop.registry.zk.quorum": f"{site.zookeeper}:{ZK_PORT}",
        "yarn.service.am-resource.memory": "320",
        "yarn.service.am.java.opts": "-Xmx160m",
        "yarn.service.framework.path": FRAMEWORK,
        "yarn.nodemanager.hostname": nm,
        "yarn.nodemanager.bind-host": daemon.bind,
        "yarn.nodemanager.address": f"{nm}:{NM_PORT}",
        "yarn.nodemanager.localizer.address": f"{nm}:8040",
        "yarn.nodemanager.collector-service.address": f"{nm}:8048",
        "yarn.nodemanager.webapp.address": f"{nm}:{NM_WEB_PORT}",
        "yarn.nodemanager.local-dirs": f"{site.data}/{nm}/local",
        "yarn.nodemanager.log-dirs": f"{site.data}/{nm}/logs",
        "yarn.nodemanager.resource.memory-mb": "12288",
        "yarn.nodemanager.resource.cpu-vcores": "32",
        # A restarted NodeManager takes its running workers back; without this a killed one leaves orphans.
        "yarn.nodemanager.recovery.enabled": "true",
        "yarn.nodemanager.recovery.supervised": "true",
        "yarn.nodemanager.recovery.dir": f"{site.data}/{nm}/recovery",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.sleep-delay-before-sigkill.ms": "250",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
        # A worker counts as ready once this monitor has seen its address: 3 s by default.
        "yarn.nodemanager.container-monitor.interval-ms": "500",
        "yarn.nodemanager.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG,JDK_JAVA_OPTIONS,HORAE_NODE_MANAGER",
        "yarn.nodemanager.resource-plugins": "yarn.io/gpu",
        "yarn.nodemanager.resource-plugins.gpu.path-to-discovery-executables": daemon.folder,
        "yarn.nodemanager.node-attributes.provider": "config",
        "yarn.nodemanager.node-attributes.provider.configured-node-attributes":
            f"host,STRING,{nm}:gpukind,STRING,{daemon.kind}",
        "yarn.nodemanager.node-attributes.provider.fetch-interval-ms": "-1",
    }  # fmt: skip


def _scheduler() -> dict[str, str]:
    root = "yarn.scheduler.capacity"
    values = {
        f"{root}.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
        f"{root}.maximum-am-resource-percent": "0.5",
        f"{root}.node-locality-delay": "-1",
        f"{root}.root.queues": ",".join(QUEUES),
    }
    for name, share in zip(QUEUES, ("20", "80"), strict=True):
        queue = f"{root}.root.{name}"
        values |= {f"{queue}.capacity": share, f"{queue}.maximum-capacity": "100", f"{queue}.user-limit-factor": "10"}
    return values
