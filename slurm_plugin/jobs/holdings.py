"""Who holds which GPUs on which node, and what of the nodes is left: from rows of jobs and nodes. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from horae.port import ObservedJob
from horae.spec import JobSpec
from policy.model import Allocation, Gpus, Health, Node, Shape
from slurm_plugin.comment import parse_tag
from slurm_plugin.jobs.record import Grant
from slurm_plugin.records import Facts, JobRow, NodeRow, expand

#: states of a job that has nodes
HOLDING = frozenset(
    {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING"}
)
_OUT = re.compile(r"drain|drng|maint|resv|reserved|blocked|fail|planned_down|reboot|powering_down|power_down|[%!]")
_GONE = re.compile(r"down|unk|inval|future|not_responding|no_respond|\*|error")
#: a node that sleeps, or wakes: it does not answer, and is capacity all the same
_ASLEEP = re.compile(r"powered_down|powering_up|power_up|[~#]")
_SILENT = re.compile(r"not_responding|no_respond|[*]")


def held_gpus(row: JobRow) -> Allocation:
    """GPUs by node of a job that holds nodes; a total of unknown split is taken as even, the surplus on the first."""
    if row.state not in HOLDING or not row.nodes:
        return {}
    if row.gpus_per_node:
        return dict.fromkeys(row.nodes, row.gpus_per_node)
    if row.split:
        return dict(row.split)
    tag = parse_tag(row.admin_comment)
    total = row.gpus_total or (tag.gpus if tag else None) or 0
    even, surplus = divmod(total, len(row.nodes))
    split = {node: even + (1 if index < surplus else 0) for index, node in enumerate(row.nodes)}
    return {node: count for node, count in split.items() if count}


def within_nodes(
    jobs: Mapping[str, ObservedJob], rows: Mapping[str, JobRow], nodes: Sequence[Node]
) -> dict[str, ObservedJob]:
    """Grants that Slurm has not turned into an allocation hold GPUs only as far as those are there. So do jobs that
    complete: squeue names only the nodes that they have not left yet, beside the total of all that they had."""
    free = {node.name: node.gpus - node.foreign for node in nodes}
    promised, completing = [], []
    for name, job in jobs.items():
        state = rows[name].state if name in rows and job.allocation else ""
        if state and state not in HOLDING:
            promised.append(name)
        elif state == "COMPLETING":
            completing.append(name)
        else:
            _take(free, job.allocation)
    kept = dict(jobs)
    for name in completing:
        left = {node: min(count, max(free.get(node, 0), 0)) for node, count in jobs[name].allocation.items()}
        _take(free, left)
        kept[name] = replace(jobs[name], allocation={node: count for node, count in left.items() if count})
    for name in promised:
        allocation = jobs[name].allocation
        if all(free.get(node, 0) >= count for node, count in allocation.items()):
            _take(free, allocation)
        else:
            kept[name] = replace(jobs[name], allocation={})
    return kept


def _take(free: dict[str, int], held: Mapping[str, int]) -> None:
    for node, count in held.items():
        free[node] = free.get(node, 0) - count


def between_two_reads(jobs: Mapping[str, JobRow], nodes: Sequence[NodeRow], granted: Mapping[str, Grant]) -> bool:
    """Whether a job of ours may have begun after the jobs were read and before the nodes were: it waits, and on each
    node that it was granted as much is in use as it was granted, by none of the jobs that hold something. Taken as it
    stands, its own GPUs would be another's, and others would be resized, or it would be stopped, for them."""
    unexplained = Counter({at.name: at.used for at in nodes})
    for row in jobs.values():
        unexplained.subtract(held_gpus(row))
    waiting = [granted[name] for name, row in jobs.items() if row.state == "PENDING" and name in granted]
    return any(grant.nodes and all(unexplained[node] >= grant.per_node for node in grant.nodes) for grant in waiting)


def unseen(rows: Sequence[NodeRow], jobs: Mapping[str, JobRow], ours: frozenset[str]) -> frozenset[str]:
    """Nodes that our jobs hold and that are in no managed partition (any more)."""
    held = {node for name, row in jobs.items() if row.state in HOLDING and name in ours for node in row.nodes}
    return frozenset(held - {row.name for row in rows})


def unregistered(rows: Sequence[NodeRow]) -> frozenset[str]:
    """Nodes that are up and have not told slurmctld of themselves since it began; what sleeps never does."""
    awake = (row for row in rows if not row.registered and not _ASLEEP.search(row.state))
    return frozenset(row.name for row in awake if health(row.state) is Health.UP)


def out_of_bounds(rows: Sequence[NodeRow], names: frozenset[str]) -> list[NodeRow]:
    """Those of `rows`, as nodes on which nothing more is put."""
    return [replace(row, state=row.state + "+drain") for row in rows if row.name in names]


def nodes_of(
    rows: Sequence[NodeRow],
    jobs: Mapping[str, JobRow],
    ours: frozenset[str],
    facts: Facts,
    words: Collection[str] = (),
    partitions: Collection[str] = (),
) -> tuple[Node, ...]:
    """Nodes with what is on them that is not ours: everybody's use as sinfo counts it, minus our jobs' own. `words`:
    what jobs ask of nodes beside their features (`comment.py`); a node has those that are true of it. `partitions`:
    ours; of a node's CPUs their jobs have no more than the most that one of them lets its jobs have.

    A job that ended after the jobs were read and before the nodes were is counted as idle and as ours: never more than
    the node has, or it would be another node for one look, which ends rounds before their time.
    """
    gpus: dict[str, int] = {}
    cpus: dict[str, float] = {}
    memory: dict[str, float] = {}
    for name, row in jobs.items():
        if row.state not in HOLDING or name not in ours:
            continue
        for node, count in held_gpus(row).items():
            gpus[node] = gpus.get(node, 0) + count
        for node in row.nodes:
            cpus[node] = cpus.get(node, 0.0) + row.num_cpus / len(row.nodes)
            memory[node] = memory.get(node, 0.0) + (row.alloc_memory or 0) / len(row.nodes)
    limits = [facts.most_cpus.get(name, math.inf) for name in partitions]
    most_cpus = max(limits, default=math.inf)
    nodes = []
    for at in rows:
        kind, total = _planned(at)
        if not total:
            continue
        nodes.append(
            Node(
                name=at.name,
                gpu_type=kind,
                gpus=total,
                rack=facts.racks.get(at.name),
                health=health(at.state),
                foreign=min(max(at.used - gpus.get(at.name, 0), 0), total),
                cpus=min(at.cpus_idle + cpus.get(at.name, 0.0), at.cpus_total, most_cpus),
                features=(*filter(None, at.features), *(word for word in words if _has(at, word))),
                memory=int(min(at.memory - at.memory_used + memory.get(at.name, 0.0), at.memory))
                if facts.memory_counts
                else None,
                wake_s=facts.resume_s if _ASLEEP.search(at.state) else 0.0,
            )
        )
    return tuple(sorted(nodes, key=lambda node: node.wake_s))  # of equal nodes those that are awake come first


def could_hold(spec: JobSpec, rows: Sequence[NodeRow], memory_counts: bool) -> bool:
    """Whether a job that keeps its own shape fits on these nodes as we see them, were all of them idle and healthy."""
    shape = spec.shape or Shape()
    sizes = [_planned(at)[1] for at in rows if _suits(at, shape, spec.gpu_types, memory_counts)]
    largest = sorted(sizes, reverse=True)[: shape.nodes]
    return len(largest) >= (shape.nodes or 1) and sum(largest) >= spec.gpus.min


def _suits(row: NodeRow, shape: Shape, gpu_types: Sequence[str], memory_counts: bool) -> bool:
    kind, count = _planned(row)
    memory = shape.memory_per_node if memory_counts else None
    return (
        count >= (shape.gpus_per_node or 1)
        and (not gpu_types or kind in gpu_types)
        and all(_has(row, word) for word in shape.features)
        and (shape.cpus_per_node or 0) <= row.cpus_total
        and (memory or 0) <= row.memory
    )


def _has(row: NodeRow, word: str) -> bool:
    kind, _, names = word.partition(" ")
    if not names:
        return word in row.features
    if kind == "any":
        return not set(names.split(",")).isdisjoint(row.features)
    return (row.name in _named(names)) is (kind == "on")


@lru_cache(maxsize=1 << 12)  # for each node, in every round
def _named(hostlist: str) -> frozenset[str]:
    return frozenset(expand(hostlist))


def _planned(row: NodeRow) -> tuple[str, Gpus]:
    """The type that most of a node's GPUs are of, and how many: GPUs of another are Slurm's own."""
    kind = max(row.gpu_types, key=lambda name: row.gpu_types[name], default="")
    return kind, row.gpu_types.get(kind, 0)


def health(state: str) -> Health:
    """sinfo's words and marks: `mixed`, `idle*`, `drained$`, `idle+maintenance+reserved`, `down+not_responding`."""
    if _ASLEEP.search(state):
        state = _SILENT.sub("", _ASLEEP.sub("", state))
    going = re.sub("powering_down|power_down", "", state)
    if _GONE.search(going):
        return Health.DOWN
    return Health.DRAIN if _OUT.search(state) or "$" in state else Health.UP
