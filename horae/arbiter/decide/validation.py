"""Could this answer be carried out on that picture? The arbiter's own look at a decision, whoever made it.

A policy is code of any origin. Whatever it answers, nothing is done that names unknown jobs or nodes, gives a node
more than it has, or a job a size it cannot run at. One problem is enough: the whole answer is dropped and the
previous allocation stands, since a policy that is wrong about one job is not believed about the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from horae.journal.codec import Plain, plain
from policy.model import Allocation, Decision, Gpus, Health, Job, Limits, Node, NodeName, Reason, Snapshot
from policy.text.plain import surely_plain

#: A list of problems is for a person: more of the same kind tell nothing.
MOST = 5


def problems(snapshot: Snapshot, decision: object) -> tuple[str, ...]:
    """What is wrong with the answer, in sentences; empty: it can be carried out."""
    if not isinstance(decision, Decision):
        return (f"the answer is {type(decision).__name__}, not a decision",)
    answer: Any = decision  # its parts are not believed either
    for part in ("allocation", "reasons", "leases", "state"):
        if not isinstance(getattr(answer, part), Mapping):
            return (f"its {part} is {type(getattr(answer, part)).__name__}, not a mapping",)
    used: dict[NodeName, Gpus] = {}
    found = _not_plain(answer)
    for problem in _of_allocations(snapshot, answer.allocation, used):
        found.append(problem)
        if len(found) >= MOST:
            return tuple(found[:MOST])
    found += _overfull(snapshot, used)
    found += [f"its reason for {n!r} is no reason" for n, r in answer.reasons.items() if not isinstance(r, Reason)]
    jobs = {job.name for job in snapshot.jobs}
    found += [f"it cancels {name!r}, which is no job of the snapshot" for name in decision.cancel if name not in jobs]
    return tuple(found[:MOST])


def _of_allocations(snapshot: Snapshot, allocations: Mapping[Any, Any], used: dict[NodeName, Gpus]) -> Iterator[str]:
    """What is wrong with each job's own; `used` is filled with the GPUs that they take of each node."""
    jobs = {job.name: job for job in snapshot.jobs}
    nodes = {node.name: node for node in snapshot.cluster.nodes}
    up = {name for name, node in nodes.items() if node.health is Health.UP}
    for name, allocation in allocations.items():
        job = jobs.get(name)
        if job is not None and type(allocation) is dict and _surely(job, allocation, up):
            for node_name, gpus in allocation.items():
                used[node_name] = used.get(node_name, 0) + gpus
        elif job is None:
            yield f"it allocates to {name!r}, which is no job of the snapshot"
        elif not isinstance(allocation, Mapping):
            yield f"{name}: its allocation is {type(allocation).__name__}, not a mapping"
        else:
            for node_name, gpus in allocation.items():
                if node_name in nodes and isinstance(gpus, int):
                    used[node_name] = used.get(node_name, 0) + gpus
            yield from _one(job, allocation, nodes, snapshot.cluster.limits)


def _overfull(snapshot: Snapshot, used: Mapping[NodeName, Gpus]) -> Iterator[str]:
    room = {node.name: node.gpus - node.foreign for node in snapshot.cluster.nodes}
    for node_name, gpus in used.items():
        if gpus > room[node_name]:
            yield f"node {node_name} has {room[node_name]} GPUs for our jobs and is given {gpus}"


def _not_plain(answer: Any) -> list[str]:
    """What could not be written into the journal."""
    for part in ("state", "leases", "options"):
        value = getattr(answer, part)
        if type(value) is Plain or surely_plain(value):
            continue
        try:
            plain(value)
        except (TypeError, ValueError, RecursionError) as error:
            return [f"its {part} has no plain form: {error}"]
    return []


def _surely(job: Job, allocation: dict[Any, Any], up: set[NodeName]) -> bool:
    """The quick answer for nearly all: nothing, or a size of its gang on one node that is up. `_one` tells the rest."""
    if len(allocation) != 1:
        return not allocation
    ((node, gpus),) = allocation.items()
    return node in up and type(gpus) is int and gpus > 0 and job.gpus.feasible(gpus)


def _one(job: Job, allocation: Allocation, nodes: Mapping[NodeName, Node], limits: Limits) -> list[str]:
    found = [wrong for name, gpus in allocation.items() if (wrong := _on_node(job, nodes.get(name), name, gpus))]
    if found:
        return found
    total = sum(allocation.values())
    if not job.gpus.feasible(total):
        found.append(f"{job.name}: it cannot run on {total} GPUs")
    if allocation == job.allocation:
        return found  # what it holds already obeys whatever limits there are
    if limits.equal(job.shape) and len(set(allocation.values())) > 1:
        found.append(f"{job.name}: {dict(allocation)} gives its nodes unequal GPUs, which this cluster cannot do")
    if limits.one_type_per_job and len({nodes[n].gpu_type for n in allocation}) > 1:
        found.append(f"{job.name}: {dict(allocation)} mixes GPU types, which this cluster cannot do")
    return found


def _on_node(job: Job, node: Node | None, name: NodeName, gpus: object) -> str:
    if node is None:
        return f"{job.name}: there is no node {name!r}"
    if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus <= 0:
        return f"{job.name}: {gpus!r} GPUs on {name} is no positive whole number"
    if gpus > job.allocation.get(name, 0) and node.health is not Health.UP:
        return f"{job.name}: node {name} is {node.health} and takes nothing new"
    return ""
