"""A decision that is still being carried out: asked again in the middle of it, a policy answers the same.

Carrying out takes time. Jobs that are to move are stopped first and hold nothing for a while, others wait for their
GPUs. A policy that reads what jobs hold would see another cluster at each of these moments, and could answer each
with another plan: two jobs that shrink and grow would be stopped for one plan and started for the next.

So the state carries, under `carrying`, the jobs whose GPUs a decision changes: what they held, what they are to hold,
and the leases. Until the cluster shows a job as it was decided, the policy sees it as if it were: superseded plans are
cancelled by a reason (an arrival, an end, a node), never by their own first half. On its way a job shows no more than
what it held and what it is to hold: nothing, a part of either while its workers come and go, or both at once where
shapes change in place. One that shows GPUs beyond these (somebody else moved it) is seen as it is; so are all, when
what was decided does not fit the nodes and limits any more.

Reasons speak of what jobs really hold (`told`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from policy.model import EMPTY, Allocation, Code, Gpus, Health, Job, JobName, NodeName, Proposal, Reason, Snapshot
from policy.parts.reasons import outcome
from policy.records import altered
from policy.throughput import Throughput

KEY = "carrying"


def seen(snapshot: Snapshot) -> Snapshot:
    """The snapshot as a policy sees it: what is being carried out counts as done, and the state is the policy's own."""
    pending: Mapping[str, Any] = snapshot.state.get(KEY, EMPTY)
    if KEY not in snapshot.state:
        return snapshot
    own = {k: v for k, v in snapshot.state.items() if k != KEY}
    jobs = tuple(_as_decided(j, pending[j.name]) if j.name in pending else j for j in snapshot.jobs)
    now = replace(snapshot, state=own)
    then = replace(now, jobs=jobs)
    return now if _joined(then, snapshot) or not _fits(then, snapshot) else then


def holding(snapshot: Snapshot, proposal: Proposal | None = None) -> dict[JobName, Gpus]:
    """How many GPUs each job has, as a policy sees it: one that is stopped to get others has those. With `proposal`:
    once that is carried out."""
    if proposal is not None:
        return {job.name: sum(proposal.allocation.get(job.name, EMPTY).values()) for job in snapshot.jobs}
    return {job.name: job.held for job in seen(snapshot).jobs}


def _as_decided(job: Job, entry: Mapping[str, Any]) -> Job:
    to, was, leases = entry["to"], entry["from"], entry.get("leases", {})
    held = job.allocation
    if held == to or any(gpus > max(was.get(node, 0), to.get(node, 0)) for node, gpus in held.items()):
        return job
    return altered(job, allocation=dict(to), lease_until={n: tuple(t) for n, t in leases.items()})


def _fits(then: Snapshot, now: Snapshot) -> bool:
    """True if what was decided could still be: GPUs of nodes, draining ones as they are, sizes of gangs, caps."""
    room = {n.name: 0 if n.health is Health.DOWN else n.gpus - n.foreign for n in then.cluster.nodes}
    draining = {n.name for n in then.cluster.nodes if n.health is Health.DRAIN}
    holds: dict[str, int] = {}
    stays: dict[str, int] = {}  #: what nobody changes: a limit learnt later takes nothing away from it
    for job, real in zip(then.jobs, now.jobs, strict=True):
        holds[job.tenant] = holds.get(job.tenant, 0) + job.held
        if job is real:
            stays[job.tenant] = stays.get(job.tenant, 0) + job.held
            for node, gpus in job.allocation.items():
                room[node] = room.get(node, 0) - gpus
            continue
        fixed = {node: real.allocation.get(node, 0) for node in draining}
        if not job.gpus.feasible(job.held) or not _take(job.allocation, room, fixed):
            return False
    caps = {t.name: t.cap for t in then.tenants if t.cap is not None}
    return all(n <= max(caps[t], stays.get(t, 0)) for t, n in holds.items() if t in caps)


def _joined(then: Snapshot, now: Snapshot) -> bool:
    """Whether somebody comes to a node that a job is to have alone, or that job to one that is not empty. Whose nodes
    the cluster chooses may have taken one meanwhile."""
    alone = {node for job in then.jobs if _shares_none(job) for node in job.allocation}
    if not alone:
        return False
    holders = {node.name: int(node.foreign > 0) for node in then.cluster.nodes}
    came: set[NodeName] = set()
    for job, real in zip(then.jobs, now.jobs, strict=True):
        came |= job.allocation.keys() - real.allocation.keys()
        for node in job.allocation:
            holders[node] = holders.get(node, 0) + 1
    return any(holders[node] > 1 for node in alone & came)


def _shares_none(job: Job) -> bool:
    return job.shape is not None and job.shape.exclusive


def _take(place: Allocation, room: dict[NodeName, Gpus], most: Mapping[NodeName, Gpus]) -> bool:
    """Whether there is room for it, which it then takes; of some nodes no more than `most`."""
    for node, gpus in place.items():
        if gpus > room.get(node, 0) or gpus > most.get(node, gpus):
            return False
        room[node] -= gpus
    return True


def kept(snapshot: Snapshot, proposal: Proposal) -> Proposal:
    """The proposal with, in its state, what it changes and until the cluster shows it."""
    pending: dict[JobName, Any] = {}
    allocation, by_job = proposal.allocation, proposal.leases
    for job in snapshot.jobs:
        to: Allocation | None = allocation.get(job.name)
        held = job.allocation
        if to == held or (not to and not held):
            continue
        entry: dict[str, Any] = {"from": dict(held), "to": dict(to or EMPTY)}
        if by_job and (leases := by_job.get(job.name)):
            entry["leases"] = {node: list(times) for node, times in leases.items()}
        pending[job.name] = entry
    if not pending:
        return proposal
    return replace(proposal, state={**proposal.state, KEY: pending})


def told(snapshot: Snapshot, viewed: Snapshot, proposal: Proposal, speeds: Throughput) -> Proposal:
    """The proposal with reasons that compare with what jobs hold, not with what the policy saw them hold."""
    if viewed.jobs is snapshot.jobs:
        return proposal
    out = dict(proposal.reasons)
    for job, view in zip(snapshot.jobs, viewed.jobs, strict=True):
        if view is job or job.name not in out:
            continue
        now = proposal.allocation.get(job.name, EMPTY)
        said = outcome(view, now, speeds)
        out[job.name] = _again(job, out[job.name], said, outcome(job, now, speeds) if now else None)
    return replace(proposal, reasons=out)


def said_again(job: Job, reason: Reason, before: Allocation, now: Allocation, speeds: Throughput) -> Reason:
    """The reason of a job that is to have `now`, where it was given for as many GPUs `before`."""
    said, real = outcome(job, before, speeds), outcome(job, now, speeds)
    return reason if before == now else _again(job, reason, said, real)


def _again(job: Job, reason: Reason, said: Reason | None, real: Reason | None) -> Reason:
    numbers = {**reason.numbers, "held": job.held} if "held" in reason.numbers else reason.numbers
    if real is None:
        if reason.code is Code.PREEMPTED and not job.held:
            return replace(reason, code=Code.WAITS_TURN, numbers=numbers)
        if reason.code in _WAITS and job.held:
            return replace(reason, code=Code.PREEMPTED, numbers=numbers)
        return replace(reason, numbers=numbers)
    text = reason.text
    if said is not None and text.startswith(said.text):
        text = real.text + text[len(said.text) :]
    code = real.code if said is not None and reason.code is said.code else reason.code
    return replace(reason, code=code, text=text, numbers={**numbers, **real.numbers})


_WAITS = (Code.WAITS_CAPACITY, Code.WAITS_GANG, Code.WAITS_TURN, Code.WAITS_CAP, Code.WAITS_LEASE, Code.WAITS_AWAY)
