"""What squeue, sinfo, sacct and scontrol print -> rows and facts. Pure.

`squeue -O field:SUFFIX` without a width neither pads nor cuts, on every release; where a field and a record end is
told by marks that no user can know (`sealed.py`). A record that cannot be Slurm's is set aside with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from horae.port import TryLater
from slurm_plugin.clients.sealed import PLAIN, Seal, named
from slurm_plugin.comment import parse_tag
from slurm_plugin.records import (
    BadRecord,
    End,
    JobRow,
    NodeRow,
    duration,
    expand,
    gpu_count,
    gpus,
    gpus_in_use,
    identity,
    number,
    size,
    stamp,
    tres,
    word,
)  # fmt: skip

#: squeue's fields, in order
JOB_FIELDS = tuple(
    """JobArrayID JobID State Reason RestartCnt PriorityLong NodeList tres-per-node tres-per-job NumNodes NumCPUs
    tres-alloc Comment admin_comment UserName UserID Account QOS Partition Name WorkDir Command STDOUT Dependency
    SubmitTime EligibleTime StartTime EndTime PreemptTime TimeLimit TimeLeft exit_code Feature Requeue""".split()
)
#: sacct's: nothing that users write
ENDED_FIELDS = ("jobid", "state", "exitcode", "dbindex", "end", "admincomment")
#: sinfo's
NODE_FIELDS = tuple(
    "NodeList Gres GresUsed StateLong StateComplete CPUsState Memory AllocMem features_act Available Version".split()
)
#: of a partition that starts nothing; one in `drain` goes on with those that it has taken
_CLOSED = frozenset({"down", "inact"})


#: An answer's records with the rows that they gave
Read = dict[tuple[str, ...], JobRow]


def job_rows_of(text: str, seal: Seal, known: Mapping[tuple[str, ...], JobRow], odd: list[str]) -> Read:
    """squeue's answer as rows by their records. `known`: an earlier answer's, for most of a queue stays as it is.
    `odd` gets a note for each record that is set aside."""
    found: Read = {}
    by_id: dict[str, tuple[str, ...]] = {}
    for record in seal.records(text, JOB_FIELDS, "squeue"):
        row = known.get(record)
        if row is None:
            fields = named(record, JOB_FIELDS, odd)
            if fields is None:
                continue
            try:
                row = job_row(fields)
            except BadRecord as error:
                odd.append(f"squeue: a record was set aside: {error}")
                continue
        if row.id in by_id:  # one of the two is not Slurm's, and nothing tells which
            odd.append(f"squeue: job {row.id} was told twice and differently: set aside")
            found.pop(by_id[row.id], None)
            continue
        by_id[row.id] = record
        found[record] = row
    return found


def is_uneven(row: JobRow) -> bool:
    """Whether only scontrol tells its GPUs by node: a total over several nodes that it holds now, or so many a task."""
    if row.gpus_per_node or not row.nodes:
        return False
    if row.gpus_total:
        return len(row.nodes) > 1
    tag = parse_tag(row.admin_comment)
    return tag is not None and tag.own_shape


def split_of(text: str, row: JobRow) -> tuple[tuple[str, int], ...]:
    """`scontrol -o -d show job ID` -> GPUs by node of that job; nothing where it does not fit what squeue told of it:
    among scontrol's words stand the user's own, and nothing marks them."""
    parts = re.findall(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", text)
    each = [(node, gpu_count(gres) or 0) for nodes, gres in parts for node in expand(nodes)]
    split = tuple((node, count) for node, count in each if count)
    names = [node for node, _ in split]
    true = len(set(names)) == len(names) and set(names) <= set(row.nodes)
    return split if true and sum(count for _, count in split) == row.gpus_total else ()


def node_rows_of(text: str) -> list[NodeRow]:
    """sinfo's answer as rows, each node once however many partitions it is in: as the one that starts jobs shows it.
    Raises TryLater: among nodes there is nothing of users, and a part of them is not the cluster."""
    odd: list[str] = []
    records = PLAIN.records(text, NODE_FIELDS, "sinfo")
    told = [fields for record in records if (fields := named(record, NODE_FIELDS, odd)) is not None]
    if odd:
        raise TryLater(f"sinfo: {odd[0]}")
    rows = [node_row(fields) for fields in sorted(told, key=_is_closed, reverse=True)]
    return list({row.name: row for row in rows}.values())


def job_row(fields: Mapping[str, str]) -> JobRow:
    """Raises BadRecord where it does not say whose job it is, and which."""

    def get(name: str) -> str | None:
        return word(fields[name])

    nodes = expand(get("NodeList"))
    alloc = tres(fields["tres-alloc"])
    return JobRow(
        id=identity(fields["JobID" if "+" in fields["JobArrayID"] else "JobArrayID"]),  # `6+1`: of several components
        slurm_id=count_of(fields, "JobID", 1),
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
        uid=count_of(fields, "UserID", 0),
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
        requeue=fields["Requeue"] != "0",
    )


def _is_closed(fields: Mapping[str, str]) -> bool:
    return fields["Available"].strip() in _CLOSED


def node_row(fields: Mapping[str, str]) -> NodeRow:
    """Where its partition is closed what runs there goes on, and nothing begins: a job that left its nodes to be
    resized would wait without any until an administrator opens it."""
    cpus = (*(number(part) or 0 for part in fields["CPUsState"].split("/")), 0, 0, 0, 0)
    long, complete = fields["StateLong"].strip().lower(), fields["StateComplete"].strip().lower()
    state = complete if long in complete else f"{long}+{complete}"
    return NodeRow(
        name=fields["NodeList"].strip(),
        gpu_types=gpus(word(fields["Gres"]) or ""),
        used=gpus_in_use(word(fields["GresUsed"]) or ""),
        state=f"{state}+drain" if _is_closed(fields) else state,
        cpus_idle=cpus[1],
        cpus_total=cpus[3],
        memory=(number(fields["Memory"]) or 0) << 20,
        memory_used=(number(fields["AllocMem"]) or 0) << 20,
        features=tuple((word(fields["features_act"]) or "").split(",")),
        registered=word(fields["Version"]) is not None,  # its slurmd's, which comes with the registration alone
    )


def count_of(fields: Mapping[str, str], name: str, least: int) -> int:
    """A number that must be there. Raises BadRecord: root's uid is not what is taken for an unknown one."""
    found = number(fields[name])
    if found is None or found < least:
        raise BadRecord(f"{name} is {fields[name][:40]!r}")
    return found


def _exit_status(text: str) -> int | None:
    first, colon, signal = text.strip().partition(":")
    code = number(first)
    if code is None or not colon:
        return code
    return (code << 8) | (number(signal) or 0)


def ends_of(text: str) -> dict[str, End]:
    """sacct's answer by the port's ids (of another job that had the number, before or since, it tells too), of each
    job's newest start. A line that is not whole (the last one of an answer that was cut off) tells nothing."""
    last: dict[str, tuple[int, End]] = {}
    whole, _, _ = text.rpartition("\n")
    for line in whole.splitlines():
        found = _ENDED.fullmatch(line)
        if found is None:
            continue
        job, state, code, signal, index, at, mark = found.groups()
        job += f".{tag.nonce}" if (tag := parse_tag(mark)) is not None else ""
        value = 128 + int(signal) if int(signal) else int(code)
        if job not in last or int(index) >= last[job][0]:
            last[job] = int(index), End(state, value, stamp(at))
    return {job: end for job, (_, end) in last.items()}


_ENDED = re.compile(
    r"([0-9]+(?:_[0-9]+)?)\|([A-Z_]+)(?: [^|]*)?\|([0-9]{1,9}):([0-9]{1,9})\|([0-9]{1,18})\|(\w+)\|(.*)"
)


def settings_of(text: str) -> dict[str, str]:
    """`scontrol show config` as a map."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def seconds_of(settings: Mapping[str, str], name: str, default_s: float) -> float:
    """`300 sec` -> 300; `default_s` where it is not told, 0 where it is no number."""
    said = settings.get(name)
    return default_s if said is None else float(number(said.partition(" ")[0]) or 0)


#: Slurm's stamps are whole seconds, and its answer took some time
_TOGETHER_S = 3.0


def ahead_of(text: str, asked_s: float, answered_s: float) -> float:
    """How far slurmctld's clock is before ours, by the time that `scontrol show config` begins with; 0 when near."""
    found = re.match(r"Configuration data as of ([0-9]{1,12})", text.strip())
    away_s = float(found[1]) + 0.5 - (asked_s + answered_s) / 2 if found else 0.0
    return away_s if abs(away_s) > _TOGETHER_S + answered_s - asked_s else 0.0


def default_cpus(config: str, partitions: str) -> dict[str, int]:
    """DefCpuPerGPU by partition, from `scontrol show config` and `scontrol show partition`; "": the cluster's own."""
    found = {}
    for name, text in (("", config), *_each(partitions)):
        said = re.search(r"JobDefaults\s*=\s*\S*?DefCpuPerGPU=(\d{1,9})", text)
        if said:
            found[name] = int(said[1])
    return found


def partition_qos(partitions: str) -> dict[str, str]:
    """The QOS that a partition puts on all its jobs, from `scontrol show partition`."""
    told = ((name, re.search(r"\bQoS=(\S+)", text)) for name, text in _each(partitions))
    return {name: found[1] for name, found in told if found and found[1] != "N/A"}


def most_of(what: str, partitions: str) -> dict[str, int]:
    """`MaxNodes` or `MaxCPUsPerNode` of each partition that has one."""
    limit = re.compile(rf"\b{what}=([0-9]{{1,9}})\b")
    most = {}
    for name, text in _each(partitions):
        found = limit.search(text)
        if found:
            most[name] = int(found[1])
    return most


def nodes_alone(partitions: str) -> dict[str, str]:
    """Partitions whose nodes are one job's, or one user's, alone, and the setting that says so."""
    alone = {}
    for name, text in _each(partitions):
        said = re.search(r"\b(?:OverSubscribe=EXCLUSIVE|ExclusiveUser=YES)\b", text)
        if said:
            alone[name] = said[0]
    return alone


def _each(partitions: str) -> list[tuple[str, str]]:
    """Name and text of each in the answer of `scontrol show partition`."""
    return re.findall(r"PartitionName=(\S+)(.*?)(?=PartitionName=|\Z)", partitions, re.DOTALL)


_MOST_CODE = 255


def exit_codes(text: str) -> Iterable[int]:
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        first, last = number(low), number(high or low)
        if first is not None and last is not None:
            yield from range(max(first, 0), min(last, _MOST_CODE) + 1)


def racks_of(topology: str) -> dict[str, str]:
    racks: dict[str, str] = {}
    for line in topology.splitlines():
        found: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", line))
        if found.get("Level") == "0" and "SwitchName" in found:
            for node in expand(found.get("Nodes")):
                racks[node] = found["SwitchName"]
    return racks
