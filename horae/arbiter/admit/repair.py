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
    again = _overflowing(used, capacity)
    if again and stepped_back:  # stepping back to what is held may have filled a node that was settled before
        fixed = vetoed | stepped_back.keys()
        return _repeat(order, targets, held, capacity, fixed, frozenset(late), stay, place, stepped_back)
    fixed = vetoed | stepped_back.keys()
    overruled = _stay(order, final, {j: a for j, a in stay.items() if j not in fixed}, used, capacity)
    lost = [job for job in order if job in stepped_back and job not in late and not final[job] and targets.get(job)]
    if lost:
        offer = place(final)
        for job in lost:
            final[job] = offer(job, sum(targets[job].values()))
    return Fit(final, stepped_back, overruled)


def _repeat(
    order: Sequence[JobName],
    targets: Mapping[JobName, Allocation],
    held: Mapping[JobName, Allocation],
    capacity: Mapping[NodeName, Gpus],
    fixed: frozenset[JobName],
    soon: frozenset[JobName],
    stay: Mapping[JobName, Allocation],
    place: Place,
    stepped_back: Mapping[JobName, tuple[JobName, ...]],
) -> Fit:
    """Once more with those who stepped back as fixed as the vetoed: each pass fixes at least one more job."""
    fit = repair(order, targets, held, capacity=capacity, vetoed=fixed, soon=soon, stay=stay, place=place)
    return Fit(fit.targets, {**stepped_back, **fit.stepped_back}, fit.overruled)


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
    """Whoever was to get what is not there keeps what it holds; `final`, `used` and `late` say so. Returns for each the
    vetoed in whose favour it was."""
    stepped_back: dict[JobName, tuple[JobName, ...]] = {}
    for node in sorted(used):
        while used[node] > capacity.get(node, 0):
            job = _who_steps_back(node, order, final, held, vetoed | stepped_back.keys())
            if job is None:
                break  # the cluster itself shrank; the plan waits for room
            stepped_back[job] = tuple(j for j in order if j in vetoed and node in held.get(j, EMPTY))
            if any(node in held.get(j, EMPTY) for j in late):
                late.add(job)
            used.subtract(final[job])
            final[job] = held.get(job, EMPTY)
            used.update(final[job])
    return stepped_back


def _overflowing(used: Mapping[NodeName, Gpus], capacity: Mapping[NodeName, Gpus]) -> bool:
    return any(gpus > capacity.get(node, 0) for node, gpus in used.items())


def _who_steps_back(
    node: NodeName,
    order: Sequence[JobName],
    final: Mapping[JobName, Allocation],
    held: Mapping[JobName, Allocation],
    fixed: frozenset[JobName],
) -> JobName | None:
    """By the order alone: by what jobs hold, those who move would take turns from round to round."""
    gains = (
        j for j in reversed(order) if j not in fixed and final[j].get(node, 0) > _sure(j, final, held).get(node, 0)
    )
    return next(gains, None)


def _sure(job: JobName, final: Mapping[JobName, Allocation], held: Mapping[JobName, Allocation]) -> Allocation:
    """What it has without a start: who changes is stopped first, and then gets nothing that it could not start on."""
    has = held.get(job, EMPTY)
    return has if final[job] == has else EMPTY


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
        others = used.copy()
        others.subtract(final[job])
        others.update(stay[job])
        if all(others[node] <= capacity.get(node, 0) for node in stay[job]):
            final[job] = stay[job]
            used.clear()
            used.update(others)
        else:
            overruled.add(job)
    return frozenset(overruled)
