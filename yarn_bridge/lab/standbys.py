"""What Hadoop's files say where a lab has two NameNodes and two ResourceManagers, each at an address of its own.

The NameNodes share their log in a folder, as over NFS, and an administrator says which of them is active; of the
ResourceManagers ZooKeeper elects one, and their state is there.
"""

from __future__ import annotations

NAME = "lab"  #: under which the NameNodes are one: hdfs://lab
_NN, _RM = ("nn1", "nn2"), ("rm1", "rm2")
_FAILOVER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_STORE = "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore"


def core() -> dict[str, str]:
    return {"fs.defaultFS": f"hdfs://{NAME}"}


def hdfs(addresses: tuple[str, str], mine: int, data: str, rpc: int, http: int) -> dict[str, str]:
    """`mine`: which of the two this configuration is for, from 0."""
    found = {
        "dfs.nameservices": NAME,
        f"dfs.ha.namenodes.{NAME}": ",".join(_NN),
        f"dfs.client.failover.proxy.provider.{NAME}": _FAILOVER,
        "dfs.ha.namenode.id": _NN[mine],
        "dfs.ha.fencing.methods": "shell(true)",  # the one that was active is dead, or asked to stand by
        "dfs.namenode.name.dir": f"file://{data}/{_NN[mine]}",
        "dfs.namenode.shared.edits.dir": f"file://{data}/shared-edits",
    }
    for name, address in zip(_NN, addresses, strict=True):
        found[f"dfs.namenode.rpc-address.{NAME}.{name}"] = f"{address}:{rpc}"
        found[f"dfs.namenode.http-address.{NAME}.{name}"] = f"{address}:{http}"
    return found


def yarn(addresses: tuple[str, str], mine: int, http: int) -> dict[str, str]:
    found = {
        "yarn.resourcemanager.ha.enabled": "true",
        "yarn.resourcemanager.cluster-id": NAME,
        "yarn.resourcemanager.ha.rm-ids": ",".join(_RM),
        "yarn.resourcemanager.ha.id": _RM[mine],
        "yarn.resourcemanager.store.class": _STORE,
        "hadoop.zk.timeout-ms": "10000",
    }
    for name, address in zip(_RM, addresses, strict=True):
        found[f"yarn.resourcemanager.hostname.{name}"] = address
        found[f"yarn.resourcemanager.webapp.address.{name}"] = f"{address}:{http}"
    return found
