"""slurm.conf and its neighbours for a lab, from the templates in containers/slurm/conf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from ClusterShell.NodeSet import NodeSet

from horae.lab import LabRequest, containers

#: release -> the Debian suite that carries it
SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "forky"}
CPUS, MEMORY_MB = 16, 64000
NO_CGROUPS = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none"
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
    uids = ", ".join(f"[{uid}] = true" for uid in sorted(set(admins)))
    return (
        f'return {{partitions = {{dl = true}}, spool = "{spool}", stale_s = {stale_s}, '
        f'admins = {{{uids}}}, default_partition = "dl"}}\n'
    )
