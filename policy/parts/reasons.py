"""Why a job holds what it holds: the sentence, the numbers behind it, and what would change it.

Policies give the reasons that only they know; `fill` adds one for every other job, from what it held and holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from policy.model import EMPTY, Allocation, Code, Gpus, GpuType, Job, JobName, Reason, Snapshot, TypeChoice
from policy.places.placement import Placer
from policy.throughput import Throughput


@lru_cache(maxsize=4096)
def gpus(n: float) -> str:
    """`1 GPU`, `4 GPUs`."""
    return f"{n:g} GPU" + ("" if n == 1 else "s")


def places(allocation: Allocation) -> str:
    """`a1` or `a1, a2 and 6 more`."""
    if len(allocation) == 1:
        (name,) = allocation
        return name
    names = list(allocation)
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


def outcome(job: Job, now: Allocation, speeds: Throughput, change: str = "") -> Reason | None:
    """The reason that what it held and holds gives by itself; None for a job that held and holds nothing."""
    held, has = job.held, sum(now.values())
    if not held and not has:
        return None
    numbers: dict[str, Any] = {"gpus": has, "held": held}
    rate = speeds.rate(job, now) if has else None
    if rate is not None:
        numbers["iterations_s"] = rate
    if held and now != job.allocation and (was := speeds.rate(job, job.allocation)) is not None:
        numbers["held_iterations_s"] = was
    if not held:
        return Reason(Code.GRANTED, f"gets {gpus(has)} on {places(now)}", numbers, change)
    if not has:
        return Reason(Code.PREEMPTED, f"gives up its {gpus(held)}", numbers, change)
    if has > held:
        return Reason(Code.GREW, f"grows from {held} to {gpus(has)} on {places(now)}", numbers, change)
    if has < held:
        return Reason(Code.SHRANK, f"shrinks from {held} to {gpus(has)} on {places(now)}", numbers, change)
    if dict(now) == dict(job.allocation):
        return Reason(Code.KEPT, f"keeps its {gpus(has)} on {places(now)}", numbers, change)
    return Reason(Code.MOVED, f"moves its {gpus(has)} to {places(now)}", numbers, change)


def _infeasible(job: Job, size: Gpus, of: str, present: Sequence[GpuType], numbers: dict[str, Any]) -> Reason:
    choice = job.gpu_types or TypeChoice()
    others = [each for each in present if each not in choice.forbid]
    unheard = choice.require and not set(choice.require) & set(present)  # a typing error, as often as not
    where = of or (f" of {' or '.join(choice.require)}" if choice.require else "")
    where += f" (never of {', '.join(choice.forbid)})" if choice.forbid else ""
    here = f" (here: {', '.join(others)})" if unheard and others else ""
    ways = ["nodes that come back or that others leave", *([f"other GPU types{here}"] if where else [])]
    ways += ["a smaller minimum"] * (size > 1)
    return Reason(
        Code.INFEASIBLE, f"no set of healthy nodes could hold {gpus(size)}{where}", numbers, ", or ".join(ways)
    )


def _capped(job: Job, size: Gpus, placer: Placer, numbers: dict[str, Any]) -> Reason:
    room = placer.room(job.tenant)
    text = f"its tenant {job.tenant} may take {gpus(room or 0)} more; it needs {size}"
    ways = ["a higher limit"]
    if (placer.cap(job.tenant) or 0) >= size:
        ways.append(f"other jobs of {job.tenant} that end")
    elif room:  # nobody's end makes room for it as it is
        beside = f" once other jobs of {job.tenant} end" if placer.competed(job.tenant) else ""
        ways.append(f"a smaller minimum{beside}")
    return Reason(Code.WAITS_CAP, text, {**numbers, "room": room}, ", or ".join(ways))


def waits(job: Job, code: Code, size: Gpus, placer: Placer) -> Reason:
    """The reason of a job that waits with a gang of `size`, for a code that the placement gives."""
    types = placer.speeds.types(job)
    of = _of(types) if 0 < len(types) < len(placer.speeds.present) else ""
    free = sum(placer.free(t) for t in types) if of else placer.free()
    numbers: dict[str, Any] = {"gpus": 0, "held": job.held, "smallest": size, "free": free}
    if code is Code.INFEASIBLE:
        return _infeasible(job, size, of, placer.speeds.present, numbers)
    if code is Code.WAITS_CAP:
        return _capped(job, size, placer, numbers)
    if code is Code.WAITS_GANG:
        text = f"{gpus(free)}{of} are free, but not in a shape that holds its gang of {size}"
        return Reason(code, text, numbers, "GPUs that come free on the same nodes or of the same type")
    if code is Code.UNKNOWN_SPEED:
        text = "its speed is known on no GPU type of the cluster"
        return Reason(code, text, numbers, "a throughput measurement, or a stated one")
    if code is Code.WAITS_TURN:
        text = f"needs {gpus(size)} of {free} free, but the policy's order keeps it waiting"
        return Reason(code, text, numbers, "jobs ahead of it that end")
    types = types or placer.speeds.present
    if placer.limits.one_type_per_job and len(types) > 1:
        most = max(types, key=placer.free)
        numbers["free"] = free = placer.free(most)
        more = gpus(max(size - free, 1))
        text, change = _short_of(size, " of one type", f"{free} of {most}", f"{more} of {most}")
    else:
        text, change = _short_of(size, of, str(free), f"{gpus(max(size - free, 1))}{of}")
    return Reason(Code.WAITS_CAPACITY, text, numbers, change)


@lru_cache(maxsize=4096)
def _of(types: tuple[GpuType, ...]) -> str:
    return f" of {', '.join(types)}"


@lru_cache(maxsize=4096)
def _short_of(size: Gpus, of: str, free: str, more: str) -> tuple[str, str]:
    """The sentence, and what would change it: one for thousands that wait for the same. Who is ahead may run on other
    GPUs now and prefer those."""
    are = "is" if free.partition(" ")[0] == "1" else "are"
    return f"needs {gpus(size)}{of}; {free} {are} free", f"{more} more that come free and that no other job takes first"


FINISHED = Reason(Code.FINISHED, "has no work left", {"gpus": 0}, "")


def fill(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], given: Mapping[JobName, Reason], speeds: Throughput
) -> dict[JobName, Reason]:
    """A reason for every job, those in `given` first."""
    out: dict[JobName, Reason] = {}
    placer: Placer | None = None
    alike: dict[object, Reason] = {}  #: of jobs that hold nothing and get nothing, by all that their reason depends on
    for job in snapshot.jobs:
        reason = given.get(job.name)
        if reason is not None:
            out[job.name] = reason
            continue
        now = allocation.get(job.name, EMPTY)
        key = None
        if not now and not job.allocation and job.work.left != 0:
            key = (speeds.kind(job), job.tenant, job.cpus_per_gpu, job.memory_per_gpu)
            if key in alike:
                out[job.name] = alike[key]
                continue
        if not now and job.work.left == 0:
            out[job.name] = FINISHED
            continue
        found = outcome(job, now, speeds)
        if not now:
            if placer is None:
                placer = left_over(snapshot, allocation, speeds)
            cause = waits(job, waiting_code(job, placer), job.gpus.min, placer)
            if found is not None:  # it held GPUs: why it cannot have them back
                numbers = {**found.numbers, **cause.numbers, "cause": str(cause.code)}
                cause = Reason(found.code, f"{found.text}: {cause.text}", numbers, cause.change)
            found = cause
        assert found is not None, "a job that holds GPUs has an outcome"
        if key is not None:
            alike[key] = found
        out[job.name] = found
    return out


def left_over(snapshot: Snapshot, allocation: Mapping[JobName, Allocation], speeds: Throughput) -> Placer:
    """The ledger after a decision."""
    return Placer(snapshot, speeds, taken=allocation)


def unknown_speed(job: Job, speeds: Throughput) -> bool:
    """Whether nobody knows how fast it would run, on any type of the cluster that its user lets it run on."""
    admitted = any(job.gpu_types is None or job.gpu_types.allows(t) for t in speeds.present)
    return admitted and bool(job.throughput) and not speeds.types(job)


def waiting_code(job: Job, placer: Placer) -> Code:
    """Why the smallest gang of a job that holds nothing is not running."""
    if unknown_speed(job, placer.speeds):
        return Code.UNKNOWN_SPEED
    if not placer.full(job) and placer.best(job, job.gpus.min) is not None:
        return Code.WAITS_TURN
    return placer.why_not(job, job.gpus.min)
