"""What squeue, sinfo and scontrol print -> rows and facts. Pure.

`squeue -O field:SUFFIX` without a width neither pads nor cuts, on every release; control characters as suffixes
cannot occur in what users write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from horae.port import TryLater
from slurm_plugin.comment import parse_tag
from slurm_plugin.records import (
    JobRow,
    NodeRow,
    duration,
    expand,
    gpu_count,
    gpus,
    number,
    size,
    stamp,
    tres,
    word,
)  # fmt: skip

FIELD, RECORD = "\x1f", "\x1e"
#: squeue's fields, in order
JOB_FIELDS = tuple(
    """JobArrayID JobID State Reason RestartCnt PriorityLong NodeList tres-per-node tres-per-job NumNodes NumCPUs
    tres-alloc Comment admin_comment UserName UserID Account QOS Partition Name WorkDir Command STDOUT Dependency
    SubmitTime EligibleTime StartTime EndTime PreemptTime TimeLimit TimeLeft exit_code Feature""".split()
)
#: sinfo's
NODE_FIELDS = tuple("NodeList Gres GresUsed StateLong StateComplete CPUsState Memory AllocMem Features".split())


def job_rows_of(text: str, known: Mapping[str, JobRow] = MappingProxyType({})) -> list[JobRow]:
    """squeue's answer as rows. `known`: rows of an earlier answer by their text, for most of a queue stays as it is."""
    return [known.get(record) or job_row(_fields(record, JOB_FIELDS, "squeue")) for record in records_of(text)]


def is_uneven(row: JobRow) -> bool:
    """Whether only scontrol tells its GPUs by node: a total over several nodes that it holds now, or so many a task."""
    if row.gpus_per_node or not row.nodes:
        return False
    if row.gpus_total:
        return len(row.nodes) > 1
    tag = parse_tag(row.admin_comment)
    return tag is not None and tag.own_shape


def splits_of(text: str) -> dict[str, tuple[tuple[str, int], ...]]:
    """`scontrol -o -d show job` -> GPUs by node of each job that holds some."""
    found = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"\b(JobId|ArrayJobId|ArrayTaskId)=(\d+)\b", line))
        name = fields.get("JobId", "")
        if "ArrayTaskId" in fields:
            name = f"{fields.get('ArrayJobId')}_{fields['ArrayTaskId']}"
        parts = re.findall(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", line)
        each = [(node, gpu_count(gres) or 0) for nodes, gres in parts for node in expand(nodes)]
        if name and any(count for _, count in each):
            found[name] = tuple((node, count) for node, count in each if count)
    return found


def node_rows_of(text: str) -> list[NodeRow]:
    """sinfo's answer as rows, each node once however many partitions it is in."""
    rows = (node_row(_fields(record, NODE_FIELDS, "sinfo")) for record in records_of(text))
    return list({row.name: row for row in rows}.values())


def records_of(text: str) -> list[str]:
    return list(dict.fromkeys(record for record in text.split(RECORD + "\n") if record))


def job_row(fields: Mapping[str, str]) -> JobRow:

    def get(name: str) -> str | None:
        return word(fields[name])

    nodes = expand(get("NodeList"))
    alloc = tres(fields["tres-alloc"])
    return JobRow(
        id=fields["JobArrayID"].strip(),
        slurm_id=number(fields["JobID"]) or 0,
        state=fields["State"].strip(),
        reason=None if fields["Reason"] in {"None", ""} else fields["Reason"],
        restarts=number(fields["RestartCnt"]) or 0,
        priority=number(fields["PriorityLong"]) or 0,
        nodes=nodes,
        gpus_per_node=gpu_count(fields["tres-per-node"]),
        gpus_total=gpu_count(fields["tres-per-job"]),
        num_nodes=number(fields["NumNodes"].split("-")[0]) or 1,
        num_cpus=number(fields["NumCPUs"]) or 1,
        alloc_memory=size(alloc.get("mem", "")),
        comment=get("Comment") or "",
        admin_comment=get("admin_comment") or "",
        user=fields["UserName"].strip(),
        uid=number(fields["UserID"]) or 0,
        account=get("Account"),
        qos=get("QOS"),
        partition=fields["Partition"].strip(),
        name=fields["Name"],
        cwd=get("WorkDir") or "",
        command=get("Command"),
        stdout=get("STDOUT"),
        dependency=get("Dependency"),
        submit_s=stamp(fields["SubmitTime"]),
        eligible_s=stamp(fields["EligibleTime"]),
        start_s=stamp(fields["StartTime"]),
        end_s=stamp(fields["EndTime"]),
        preempt_s=stamp(fields["PreemptTime"]),
        limit_s=duration(fields["TimeLimit"]),
        left_s=duration(fields["TimeLeft"]),
        exit_status=_exit_status(fields["exit_code"]),
        feature=get("Feature"),
    )


def node_row(fields: Mapping[str, str]) -> NodeRow:
    cpus = (*(number(part) or 0 for part in fields["CPUsState"].split("/")), 0, 0, 0, 0)
    long, complete = fields["StateLong"].strip().lower(), fields["StateComplete"].strip().lower()
    return NodeRow(
        name=fields["NodeList"].strip(),
        gpu_types=gpus(word(fields["Gres"]) or ""),
        used=gpu_count(word(fields["GresUsed"]) or "") or 0,
        state=long if long in complete else f"{long}+{complete}",
        cpus_idle=cpus[1],
        cpus_total=cpus[3],
        memory=(number(fields["Memory"]) or 0) << 20,
        memory_used=(number(fields["AllocMem"]) or 0) << 20,
        features=tuple((word(fields["Features"]) or "").split(",")),
    )


def format_of(names: Iterable[str]) -> str:
    *head, last = names
    return ",".join([*(f"{name}:{FIELD}" for name in head), f"{last}:{RECORD}"])


def _fields(record: str, names: Sequence[str], command: str) -> Mapping[str, str]:
    fields = record.split(FIELD)
    if len(fields) != len(names):
        raise TryLater(f"{command} answered {len(fields)} fields where {len(names)} were asked for: {record[:80]!r}")
    return dict(zip(names, fields, strict=True))


def _exit_status(text: str) -> int | None:
    first, colon, signal = text.strip().partition(":")
    if not first.lstrip("-").isdigit():
        return None
    if colon:
        return (int(first) << 8) | (int(signal) if signal.isdigit() else 0)
    return int(first)


def settings_of(text: str) -> dict[str, str]:
    """`scontrol show config` as a map."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


#: Slurm's stamps are whole seconds, and its answer took some time
_TOGETHER_S = 3.0


def ahead_of(text: str, asked_s: float, answered_s: float) -> float:
    """How far slurmctld's clock is before ours, by the time that `scontrol show config` begins with; 0 when near."""
    found = re.match(r"Configuration data as of (\d+)", text.strip())
    away_s = float(found[1]) + 0.5 - (asked_s + answered_s) / 2 if found else 0.0
    return away_s if abs(away_s) > _TOGETHER_S + answered_s - asked_s else 0.0


def default_cpus(config: str, partitions: str) -> dict[str, int]:
    """DefCpuPerGPU by partition, from `scontrol show config` and `scontrol show partition`; "": the cluster's own."""
    found = {}
    for name, text in (
        ("", config),
        *re.findall(r"PartitionName=(\S+)(.*?)(?=PartitionName=|\Z)", partitions, re.DOTALL),
    ):
        said = re.search(r"JobDefaults\s*=\s*\S*?DefCpuPerGPU=(\d+)", text)
        if said:
            found[name] = int(said[1])
    return found


def exit_codes(text: str) -> Iterable[int]:
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        if low.isdigit():
            yield from range(int(low), int(high or low) + 1)


def racks_of(topology: str) -> dict[str, str]:
    racks: dict[str, str] = {}
    for line in topology.splitlines():
        found: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", line))
        if found.get("Level") == "0" and "SwitchName" in found:
            for node in expand(found.get("Nodes")):
                racks[node] = found["SwitchName"]
    return racks
