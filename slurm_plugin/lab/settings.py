"""slurm.conf and its neighbours for a lab, from the templates in containers/slurm/conf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from ClusterShell.NodeSet import NodeSet

from horae.lab import LabRequest, containers

#: release -> the Debian suite that carries it
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "forky"}
CPUS, MEMORY_MB = 16, 64000
NO_CGROUPS = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none"
#: jobs confined as sites do it: GPUs that were not granted cannot be opened, memory has an end; a prolog before each
#: start. Cores are not confined, for nodes claim more than their host has.
CGROUPS = (
    "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nJobAcctGatherType=jobacct_gather/cgroup\n"
    "PrologFlags=Alloc,X11"
)
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainDevices=yes\nConstrainRAMSpace=yes\n"
#: what a node's container needs, short of --privileged. Of a job with `--export=NONE` slurmd asks its user's login
#: shell for the environment, in namespaces of their own; where it may make none it ends, and the node with it.
NODE_RIGHTS: Mapping[str, Any] = {"cap_add": ["SYS_ADMIN"], "security_opt": ["apparmor=unconfined"]}
#: and with jobs confined: mounting its own cgroups, and devices as GPUs
GPU_MAJOR = 195
CGROUP_RIGHTS: Mapping[str, Any] = {
    **NODE_RIGHTS,
    "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
    # one by one: Slurm could take none of them out of a rule for all
    "device_cgroup_rules": [f"c {GPU_MAJOR}:{number} rwm" for number in range(16)],
}
#: a start within a second of the release, as small clusters are set
SWIFT = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\nPriorityType=priority/basic"


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template of containers/slurm/conf with its values; a missing one is a KeyError, never an empty line."""
    return Template((containers("slurm") / "conf" / template).read_text()).substitute(values)


def kinds(request: LabRequest) -> list[tuple[str, str, int]]:
    """(hostlist, type, GPUs) of each kind of node."""
    grouped: dict[tuple[str, int], list[str]] = {}
    for name, kind, count in request.node_kinds():
        grouped.setdefault((kind, count), []).append(name)
    return [(str(NodeSet.fromlist(names)), kind, count) for (kind, count), names in grouped.items()]


def node_lines(request: LabRequest, memory_mb: int, extra: Mapping[str, str] | None = None) -> str:
    """NodeName lines; `extra` adds words to each kind, by its hostlist."""
    return "\n".join(
        f"NodeName={hosts} CPUs={CPUS} RealMemory={memory_mb} Gres=gpu:{kind}:{count} Feature={kind} "
        f"{(extra or {}).get(hosts, '')} State=UNKNOWN"
        for hosts, kind, count in kinds(request)
    )


def gres_conf(request: LabRequest, devices: Sequence[str] | None = None) -> str:
    """One line a kind; with `devices`, one a device, for hosts where no device nodes can be made."""
    lines = ["AutoDetect=off"]
    for hosts, kind, count in kinds(request):
        if devices is None:
            lines.append(f"NodeName={hosts} Name=gpu Type={kind} File=/dev/nvidia[0-{count - 1}]")
        else:
            lines += [f"NodeName={hosts} Name=gpu Type={kind} File={device}" for device in devices[:count]]
    return "\n".join(lines) + "\n"


def partition_lines(request: LabRequest) -> str:
    """`dl` is managed; `raw` is the same nodes for jobs that Horae has no part in."""
    every = f"n[1-{request.nodes}]" if request.nodes > 1 else "n1"
    return (
        f"PartitionName=dl Nodes={every} Default=YES MaxTime=INFINITE State=UP PriorityTier=10\n"
        f"PartitionName=raw Nodes={every} MaxTime=INFINITE State=UP"
    )


def lua_conf(spool: str, admins: Sequence[int], stale_s: int = 120) -> str:
    """Partitions named t1, t2, ... are managed too: tests make one for each of themselves."""
    uids = ", ".join(f"[{uid}] = true" for uid in sorted(set(admins)))
    return (
        "local made = {__index = function(_, name) return string.find(name, '^t%d+$') ~= nil end}\n"
        f'return {{partitions = setmetatable({{dl = true}}, made), spool = "{spool}", stale_s = {stale_s}, '
        f'admins = {{{uids}}}, default_partition = "dl"}}\n'
    )


def submit(
    here: Path, there: str, tool: str, script: str, files: Mapping[str, str], sbatch: Callable[[str], str]
) -> str:
    """Write files and script into the shared folder (`here`, seen by nodes as `there`) and hand the script over."""
    for name, text in {**files, "submitted.sh": script}.items():
        (here / name).write_text(text.replace("@SHARED@", there).replace("@TOOL@", tool))
    return sbatch(f"{there}/submitted.sh")
