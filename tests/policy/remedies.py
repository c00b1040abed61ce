"""What reasons say would change them, carried out: each remedy of a job that waits, as snapshots in which it happened.

A remedy that is not listed here is an error: whoever writes a new one writes here what it means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from policy.decide import decide
from policy.model import Decision, GpuRange, GpuType, Health, Job, Node, Reason, Snapshot
from policy.throughput import Throughput
from tests.policy.rounds import play

ROUNDS, QUANTUM_S = 40, 600.0
#: The node of the GPUs that come free.
CAME = "more"


@dataclass(frozen=True)
class Case:
    """A job that waits under a policy, and why."""

    snapshot: Snapshot
    policy: str
    job: Job
    reason: Reason
    said: re.Match[str]


@dataclass(frozen=True)
class Then:
    """What happened: another snapshot, another option, or time."""

    snapshot: Snapshot
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    bids: bool = False  #: what was promised is its app's: a part in an auction, which may be lost, or GPUs


Deed = Callable[[Case], Iterator[Then]]


def carried_out(snapshot: Snapshot, policy: str, job: Job, reason: Reason, *, holds: bool = False) -> Sequence[Then]:
    """One for each alternative of what `reason` says would change it. `holds`: for a job that has GPUs."""
    for pattern, deed in (HOLDERS if holds else DEEDS).items():
        if said := re.fullmatch(pattern, reason.change):
            return list(deed(Case(snapshot, policy, job, reason, said)))
    raise AssertionError(f"nobody says how this is carried out: {policy}: {reason.code}: {reason.change!r}")


def seen(then: Then, job: Job, before: Decision) -> bool:
    """Whether it runs, or one that the policy owes more has what came free, or another cause holds it now."""
    if then.rounds:
        # The rho of a long training grows slowly: its app may bid after days alone.
        return any(_served(then, job, rounds) for rounds in (then.rounds, 10 * then.rounds)[: 1 + then.bids])
    after = decide(then.snapshot, then.policy, then.options, 0, 20.0)
    if after.allocation[job.name] or _cause(after, job) != _cause(before, job):
        return True
    nodes = then.snapshot.cluster.nodes
    return _in_use(after, nodes) > _in_use(before, nodes) or any(
        CAME in place and sum(place.values()) > sum(before.allocation[name].values())
        for name, place in after.allocation.items()
    )


def _served(then: Then, job: Job, rounds: int) -> bool:
    served = play(then.snapshot, then.policy, rounds, QUANTUM_S, works=True)
    mine = [j.name for j in then.snapshot.jobs if j.app == job.app] if then.bids else [job.name]
    return any(served.ran[name] > 0 for name in mine) or (then.bids and job.name in served.bid)


def served_otherwise(then: Then, job: Job, snapshot: Snapshot, before: Decision) -> bool:
    """Whether a job that holds GPUs, or its tenant, has more or less for it, at once or in time."""
    if then.rounds:
        now, was = (play(s, then.policy, then.rounds, QUANTUM_S, works=True) for s in (then.snapshot, snapshot))
        return now.ran[job.name] != was.ran[job.name] or _mine(now.gpus, job) != _mine(was.gpus, job)
    after = decide(then.snapshot, then.policy, then.options, 0, 20.0)
    return after.allocation[job.name] != before.allocation[job.name] or _cause(after, job) != _cause(before, job)


def _mine(gpus: Mapping[tuple[str, str], float], job: Job) -> Mapping[str, float]:
    return {gpu_type: round(mean, 6) for (tenant, gpu_type), mean in gpus.items() if tenant == job.tenant}


def _cause(decision: Decision, job: Job) -> str:
    """What it says of a job, less how much of it: names stay, such as whose turn it is."""
    return re.sub(r"(?<![\w.])[\d.]+(?:e[+-]?\d+)?(?!\w)", "", decision.reasons[job.name].text)


def total(decision: Decision) -> int:
    return sum(sum(place.values()) for place in decision.allocation.values())


def _in_use(decision: Decision, nodes: Sequence[Node]) -> int:
    """GPUs of nodes that take new jobs: who leaves a draining one for what came free is served by it too."""
    up = {node.name for node in nodes if node.health is Health.UP}
    return sum(gpus for place in decision.allocation.values() for node, gpus in place.items() if node in up)


def _more(snapshot: Snapshot, gpu_type: GpuType, gpus: int) -> Snapshot:
    nodes = (*snapshot.cluster.nodes, Node(CAME, gpu_type, gpus))
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))


def _without(snapshot: Snapshot, gone: Callable[[Job], bool]) -> Snapshot:
    return replace(snapshot, jobs=tuple(job for job in snapshot.jobs if not gone(job)))


def _types(case: Case) -> Sequence[GpuType]:
    return Throughput(case.snapshot.cluster).types(case.job) or case.snapshot.cluster.gpu_types


def _gpus_come(case: Case) -> Iterator[Then]:
    """On a node that is new; the job wants no more than the size that it was said to wait for. What others take there
    first comes once more."""
    gpus = replace(case.job.gpus, requested=min(case.job.gpus.requested, case.reason.numbers["smallest"]))
    here = _instead(case, replace(case.job, gpus=gpus))
    for gpu_type in case.said[2].split(", ") if case.said[2] else _types(case)[:1]:
        then, taken = _more(here, gpu_type, int(case.said[1])), 0
        for _ in case.snapshot.jobs:
            places = asked(then, case.policy).allocation
            first = sum(place.get(CAME, 0) for name, place in places.items() if name != case.job.name)
            if places[case.job.name] or first <= taken:
                break
            taken = first
            then = _more(here, gpu_type, int(case.said[1]) + taken)
        yield Then(then, case.policy)


def _gang_comes(case: Case) -> Iterator[Then]:
    yield Then(_more(case.snapshot, _types(case)[0], case.reason.numbers["smallest"]), case.policy)


def _it_ends(case: Case) -> Iterator[Then]:
    yield Then(_without(case.snapshot, lambda job: job.name == case.said[1]), case.policy)


def _all_others_end(case: Case) -> Iterator[Then]:
    yield Then(_without(case.snapshot, lambda job: job.name != case.job.name), case.policy)


def _smaller(case: Case) -> Then:
    return Then(_instead(case, replace(case.job, gpus=GpuRange(1, 1, 1))), case.policy, rounds=ROUNDS)


def _others_or_smaller(case: Case) -> Iterator[Then]:
    yield from _all_others_end(case)
    yield _smaller(case)


def _smaller_or_nodes(case: Case) -> Iterator[Then]:
    yield _smaller(case)
    node = _more(case.snapshot, _types(case)[0], case.job.gpus.requested)
    yield Then(node, case.policy, rounds=ROUNDS)


def _its_tenant(case: Case) -> Iterator[Then]:
    tenants = tuple(replace(t, cap=None) if t.name == case.said[1] else t for t in case.snapshot.tenants)
    yield Then(replace(case.snapshot, tenants=tenants), case.policy)
    mine = lambda job: job.tenant == case.said[1] and job.name != case.job.name  # noqa: E731
    yield Then(_without(case.snapshot, mine), case.policy)


def _limit(case: Case) -> Iterator[Then]:
    tenants = tuple(replace(t, cap=None) if t.name == case.job.tenant else t for t in case.snapshot.tenants)
    yield Then(replace(case.snapshot, tenants=tenants), case.policy)
    if case.said[1]:
        gone = lambda job: job.tenant == case.said[2] and job.name != case.job.name  # noqa: E731
        yield Then(_without(_instead(case, replace(case.job, gpus=GpuRange(1, 1, 1))), gone), case.policy)


def _instead(case: Case, job: Job) -> Snapshot:
    return replace(case.snapshot, jobs=tuple(job if j.name == job.name else j for j in case.snapshot.jobs))


def _weight(case: Case) -> Snapshot:
    tenants = tuple(
        replace(t, weight=t.weight * 1e6) if t.name == case.job.tenant else t for t in case.snapshot.tenants
    )
    return replace(case.snapshot, tenants=tenants)


def _tickets(case: Case) -> Iterator[Then]:
    yield Then(_weight(case), case.policy, rounds=ROUNDS)
    yield from _all_others_end(case)


def _larger_weight(case: Case) -> Iterator[Then]:
    yield Then(_weight(case), case.policy, rounds=ROUNDS)
    yield Then(_without(case.snapshot, lambda job: job.tenant != case.job.tenant), case.policy, rounds=ROUNDS)


def _time(case: Case) -> Iterator[Then]:
    yield Then(case.snapshot, case.policy, rounds=2 * ROUNDS)  # where many take turns, more than once round


def _bids_later(case: Case) -> Iterator[Then]:
    yield from (replace(then, bids=True) for then in _time(case))


def _others_end_or_it_bids(case: Case) -> Iterator[Then]:
    yield from _all_others_end(case)
    yield from _bids_later(case)


def _speed(case: Case) -> Iterator[Then]:
    stated = {case.snapshot.cluster.gpu_types[0]: {1: 1.0, case.job.gpus.min: float(case.job.gpus.min)}}
    yield Then(_instead(case, replace(case.job, throughput=stated)), case.policy)


def _overtaking(case: Case) -> Iterator[Then]:
    yield from _it_ends(case)
    yield Then(case.snapshot, "fifo-backfill")


def _of_its_app(case: Case) -> Iterator[Then]:
    mine = lambda job: job.app == case.job.app and job.name != case.job.name  # noqa: E731
    yield Then(_without(case.snapshot, mine), case.policy, rounds=2 * ROUNDS)  # it stands in turns as an app


def _shorter(case: Case) -> Iterator[Then]:
    work = replace(case.job.work, total=case.job.work.done + 1e-6)
    yield Then(_instead(case, replace(case.job, work=work)), case.policy)
    yield from _it_ends(case)


def _lengths(case: Case) -> Iterator[Then]:
    yield Then(case.snapshot, case.policy, {"variant": "aggressive"})


def _leases_end(case: Case) -> Iterator[Then]:
    yield Then(replace(case.snapshot, now_s=case.snapshot.now_s + float(case.said[1]) + 1), case.policy, rounds=ROUNDS)


def _nothing(_: Case) -> Iterator[Then]:
    yield from ()  # what is infeasible has a test of its own


LIMIT = r"a higher limit(?:, or (a smaller minimum)(?: once other jobs of (\w+) end)?)?"
RHO = (
    r"(?:its rho|the rho of its app \S+) grows as it waits: it bids in a later round, or gets what others leave before"
)

DEEDS: Mapping[str, Deed] = {
    r"(\d+) GPUs?(?: of ([\w, ]+))? more that come free and that no other job takes first": _gpus_come,
    r"GPUs that come free on the same nodes or of the same type": _gang_comes,
    r"GPUs that come free": _gang_comes,
    r"job (\w+) ending": _it_ends,
    r"jobs ahead of it that end|jobs ahead starting|other jobs that end": _all_others_end,
    r"a higher limit, or other jobs of (\w+) that end": _its_tenant,
    LIMIT: _limit,
    r"more tickets for (\w+), or fewer jobs on .*": _tickets,
    r"a larger weight of (\w+), or fewer tenants": _larger_weight,
    r"a job ahead of it that completes its unit or ends|the next rounds": _time,
    RHO: _bids_later,
    rf"other apps that end, or time: {RHO}": _others_end_or_it_bids,
    r"jobs of the app that end, or more GPUs for it": _of_its_app,
    r"time: the next leases end in ([\d.e+]+) s": _leases_end,
    r"the others reaching the end of the phase": _all_others_end,
    r"job (\w+) starting, or a policy that lets jobs overtake \(fifo-backfill\)": _overtaking,
    r"a shorter job, or (\w+) starting": _shorter,
    r"lengths of the running jobs, or variant=aggressive": _lengths,
    r"other jobs that end, or a smaller gang": _others_or_smaller,
    r"a smaller minimum, or more nodes of one type": _smaller_or_nodes,
    r"a throughput measurement, or a stated one|a speed that is known here": _speed,
    r"nodes that come back.*": _nothing,
}


def _more_is_faster(case: Case) -> Iterator[Then]:
    most = case.job.gpus.max
    tables = {gpu_type: {1: 1.0, most: float(most)} for gpu_type in case.snapshot.cluster.gpu_types}
    yield Then(_instead(case, replace(case.job, throughput=tables)), case.policy)


def _nodes_like_its_own(case: Case) -> Iterator[Then]:
    held = asked(case.snapshot, case.policy).allocation[case.job.name]
    largest = max((node for node in case.snapshot.cluster.nodes if node.name in held), key=lambda node: node.gpus)
    yield Then(_more(case.snapshot, largest.gpu_type, largest.gpus), case.policy)


#: What is said of a job that has GPUs. What more it could have, and from whom, is told beside it, by who holds it.
HOLDERS: Mapping[str, Deed] = {
    r"": _nothing,
    r"GPUs that come free on the same nodes": _all_others_end,
    r"more nodes like those that it is on": _nodes_like_its_own,
    LIMIT: _limit,
    r"a measurement that shows a gain from more GPUs": _more_is_faster,
    r"a smaller minimum, or more nodes of one type": _smaller_or_nodes,
}


def asked(snapshot: Snapshot, policy: str) -> Decision:
    return decide(snapshot, policy, {}, 0, 20.0)


def untrue(snapshot: Snapshot, policy: str) -> list[str]:
    """What was said of jobs that wait and, carried out, changes nothing for them; each kind of word once."""
    before, wrong, asked_about = asked(snapshot, policy), [], set()
    for job in snapshot.jobs:
        reason = before.reasons[job.name]
        kind = (reason.code, re.sub(r"\w*\d+", "", reason.change))
        if before.allocation[job.name] or job.work.left == 0 or kind in asked_about:
            continue
        asked_about.add(kind)
        for then in carried_out(snapshot, policy, job, reason):
            if not seen(then, job, before):
                wrong.append(f"{policy}: {job.name} {reason.code}: {reason.text}; would change by {reason.change}")
    return wrong


def untrue_of_holders(snapshot: Snapshot, policy: str) -> list[str]:
    """The same of jobs that hold GPUs."""
    before, wrong, asked_about = asked(snapshot, policy), [], set()
    for job in snapshot.jobs:
        reason = before.reasons[job.name]
        kind = re.sub(r"\w*\d+", "", reason.change)
        if not before.allocation[job.name] or kind in asked_about:
            continue
        asked_about.add(kind)
        for then in carried_out(snapshot, policy, job, reason, holds=True):
            if not served_otherwise(then, job, snapshot, before):
                wrong.append(f"{policy}: {job.name} {reason.code}: {reason.text}; would change by {reason.change}")
    return wrong
