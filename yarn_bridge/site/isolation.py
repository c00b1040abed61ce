"""The part of `horae doctor` for YARN that says what keeps one container's GPUs from another's."""

from __future__ import annotations

from collections.abc import Iterator

from horae.doctor import Check, ok, warn
from yarn_bridge.clients.settings import Settings
from yarn_bridge.site.xml import remedy

_EXECUTOR = "yarn.nodemanager.container-executor.class"
_LINUX = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor"
_RUNTIMES = "yarn.nodemanager.runtime.linux.allowed-runtimes"


def gpus(conf: Settings, nodes: Settings) -> Iterator[Check]:
    """`nodes`: of a NodeManager; `conf`: of the ResourceManager's host, where no NodeManager can be asked."""
    known = conf if nodes.why else nodes
    if known.why:
        yield warn("isolation of GPUs", "no NodeManager tells its settings", f"see {_EXECUTOR} on a node")
        return
    if known.get(_EXECUTOR, "") == _LINUX:
        runtimes = known.get(_RUNTIMES, "default")
        yield ok("isolation of GPUs", f"LinuxContainerExecutor (runtimes: {runtimes}), which Horae's tests do not run")
        return
    text = "none: Horae's workers share a node's GPUs out among themselves, and nothing keeps other programs from them"
    yield warn("isolation of GPUs", text, remedy("yarn-site.xml of the NodeManagers", {_EXECUTOR: _LINUX}))
