"""What is left of a decision when guards have refused parts of it: targets that fit together. Pure.

Vetoed jobs keep what they hold. Where that leaves a node with more targets than GPUs, the jobs that were to gain there
step back, the latest in order first: a running job to what it holds, a waiting one to nothing. What jobs hold now fits
together, so this ends. Waiting jobs that lost their place are then offered what is free, by the same placement that
policies use; but who lost it to a gang that moves as soon as it stands waits so long: elsewhere it would be where its
policy never wanted it, and be moved again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from policy.model import EMPTY, Allocation, Gpus, JobName, NodeName

#: Another place for a waiting job, of at most that many GPUs; empty: there is none.
Offer = Callable[[JobName, Gpus], Allocation]
#: What is settled -> offers on what is left. Each offer that is made counts as taken.
Place = Callable[[Mapping[JobName, Allocation]], Offer]


def no_place(_settled: Mapping[JobName, Allocation]) -> Offer:
    return lambda _job, _gpus: EMPTY


@dataclass(frozen=True, slots=True)
class Fit:
    targets: Mapping[JobName, Allocation]
    stepped_back: Mapping[JobName, tuple[JobName, ...]] = field(
        default_factory=dict
    )  #: job -> whose GPUs it was to get
    overruled: frozenset[JobName] = frozenset()  #: of `stay`, those that stood in another's way


def repair(
    order: Sequence[JobName],
    targets: Mapping[JobName, Allocation],
    held: Mapping[JobName, Allocation],
    *,
    capacity: Mapping[NodeName, Gpus],
    vetoed: frozenset[JobName],
    soon: frozenset[JobName] = frozenset(),
    stay: Mapping[JobName, Allocation] = EMPTY,
    place: Place = no_place,
) -> Fit:
    """`order`: the jobs, first first. `held`: what the jobs hold now (absent: nothing). `capacity`: GPUs that are
    ours to use by node. `soon`: the vetoed whose gang only has to stand first. `stay`: what a job may as well have
    instead, where that is in nobody's way."""
    final = {j: held.get(j, EMPTY) if j in vetoed else targets.get(j, EMPTY) for j in order}
    late = set(soon)  #: who has its GPUs when a gang stands, and those whose GPUs such a one is to leave
    used = _used(final)
    stepped_back = _step_back(order, final, used, held, capacity, vetoed, late)
    fixed = vetoed | stepped_back.keys()
    overruled = _stay(order, final, {j: a for j, a in stay.items() if j not in fixed}, used, capacity)
    lost = [job for job in order if job in stepped_back and job not in late and not final[job] and targets.get(job)]
    if lost:
        offer = place(final)
        for job in lost:
            final[job] = offer(job, sum(targets[job].values()))
    return Fit(final, stepped_back, overruled)


def _used(final: Mapping[JobName, Allocation]) -> Counter[NodeName]:
    used: Counter[NodeName] = Counter()
    for target in final.values():
        for node, gpus in target.items():
            used[node] += gpus
    return used


def _step_back(
    order: Sequence[JobName],
    final: dict[JobName, Allocation],
    used: Counter[NodeName],
    held: Mapping[JobName, Allocation],
    capacity: Mapping[NodeName, Gpus],
    vetoed: frozenset[JobName],
    late: set[JobName],
) -> dict[JobName, tuple[JobName, ...]]:
    """Whoever was to get what is not there keeps what it holds; `final`, `used` and `late` say so. Returns for each
    those who keep their GPUs, in whose favour it was."""
    stepped_back: dict[JobName, tuple[JobName, ...]] = {}
    holders = _by_node(order, held)
    # By the order alone: by what jobs hold, those who move would take turns from round to round. And who changes is
    # stopped first, and then gets nothing that it could not start on.
    takers = _by_node([job for job in order if final[job] != held.get(job, EMPTY)], final)
    keep, settled = set(vetoed), False
    while not settled:  # stepping back to what is held may fill a node that was settled before; each pass fixes a job
        back: dict[JobName, tuple[JobName, ...]] = {}
        for node in sorted(used):
            there, gain = holders.get(node, []), takers.get(node, [])
            while gain and used[node] > capacity.get(node, 0):  # without takers the cluster itself shrank
                job = gain.pop()
                if job in keep or job in back:
                    continue
                back[job] = tuple(other for other in there if other in keep)
                if not late.isdisjoint(there):
                    late.add(job)
                used.subtract(final[job])
                final[job] = held.get(job, EMPTY)
                used.update(final[job])
        stepped_back.update(back)
        keep.update(back)
        settled = not back
    return stepped_back


def _by_node(order: Sequence[JobName], of: Mapping[JobName, Allocation]) -> dict[NodeName, list[JobName]]:
    """Who has GPUs there, in order."""
    out: dict[NodeName, list[JobName]] = {}
    for job in order:
        for node, gpus in of.get(job, EMPTY).items():
            if gpus > 0:
                out.setdefault(node, []).append(job)
    return out


def _stay(
    order: Sequence[JobName],
    final: dict[JobName, Allocation],
    stay: Mapping[JobName, Allocation],
    used: Counter[NodeName],
    capacity: Mapping[NodeName, Gpus],
) -> frozenset[JobName]:
    """Jobs that may as well stay do, where their GPUs are nobody else's target. Returns those that must go."""
    overruled = set()
    for job in order:
        if job not in stay:
            continue
        goes = final[job]
        used.subtract(goes)
        used.update(stay[job])
        if all(used[node] <= capacity.get(node, 0) for node in stay[job]):
            final[job] = stay[job]
        else:
            overruled.add(job)
            used.subtract(stay[job])
            used.update(goes)
    return frozenset(overruled)
