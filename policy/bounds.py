"""What numbers in a job can mean. One home: the forms refuse what lies outside, the arbiter leaves such jobs aside.

A policy divides work by speed, multiplies by GPUs and sums over jobs; a solver works with these in double precision.
Within these bounds no such product overflows or vanishes, and nothing that anybody runs lies outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from policy.model import Job

#: GPUs of one job, of one node, of a cap.
MOST_GPUS = 100_000
#: Iterations/s: 0 (it does not run there), or one in 30 years up to a billion a second.
LEAST_RATE, MOST_RATE = 1e-9, 1e9
#: Iterations in all.
LEAST_WORK, MOST_WORK = 1e-6, 1e15
#: Seconds, of any time or duration: 30,000 years.
MOST_S = 1e12
MOST_GPU_S = 1e18
MOST_CPUS = 1_000_000.0
MOST_BYTES = 1 << 60
MOST_SLOWDOWN = 1e6
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e9
#: Of a loss, either way.
MOST_LOSS = 1e30
#: Finish-time fairness in a bid.
LEAST_RHO, MOST_RHO = 1e-9, 1e15
#: Of a job's priority and precedence, either way.
MOST_PRIORITY = 100


def rate_stands(rate: float) -> bool:
    return rate == 0 or LEAST_RATE <= rate <= MOST_RATE


def problem(job: Job) -> str | None:
    """The first number of `job` that lies outside: `throughput of v100 on 1 GPUs is 1e+308, at most 1e+09`."""
    for field, value, most in _numbers(job):
        if value is not None and not (isfinite(_float(value)) and abs(value) <= most):
            return f"{field} is {_shown(value)}, at most {most:g}"
    for gpu_type, curve in job.throughput.items():
        for gpus, rate in curve.items():
            if rate < 0 or (rate and rate < LEAST_RATE):
                return f"throughput of {gpu_type} on {gpus} GPUs is {_shown(rate)}, at least {LEAST_RATE:g} where not 0"
    if job.work.total is not None and 0 < job.work.total < LEAST_WORK:
        return f"work is {_shown(job.work.total)}, at least {LEAST_WORK:g}"
    return None


class Known:
    """`problem` for jobs that share their tables, ranges and slowdowns: those are looked at once."""

    def __init__(self) -> None:
        self._stand: dict[int, object] = {}  #: by identity; kept, so that its identity stays its own

    def problem(self, job: Job) -> str | None:
        """As `bounds.problem`."""
        stand, total = self._stand, job.work.total
        shared = id(job.throughput) in stand and id(job.gpus) in stand and id(job.slowdown) in stand
        if shared and not job.loss and _own_stand(job) and (total is None or LEAST_WORK <= total <= MOST_WORK):
            return None
        found = problem(job)
        if found is None:
            stand.update((id(part), part) for part in (job.throughput, job.gpus, job.slowdown))
        return found


def _own_stand(job: Job) -> bool:
    """Whether the numbers that each job has of its own, but for its length and losses, are within (no NaN is)."""
    cpus, memory, cost = job.cpus_per_gpu, job.memory_per_gpu, job.restart_cost_s
    return (
        -MOST_S <= job.submitted_s <= MOST_S
        and -MOST_WORK <= job.work.done <= MOST_WORK
        and (cpus is None or -MOST_CPUS <= cpus <= MOST_CPUS)
        and (memory is None or -MOST_BYTES <= memory <= MOST_BYTES)
        and (cost is None or -MOST_S <= cost <= MOST_S)
        and (not job.attained or all(-MOST_GPU_S <= x <= MOST_GPU_S for x in job.attained.values()))
    )


def _numbers(job: Job) -> Iterator[tuple[str, float | None, float]]:
    gpus = job.gpus
    yield from (("gpus", n, MOST_GPUS) for n in (gpus.requested, gpus.min, gpus.max, *(gpus.allowed or ())))
    yield "work", job.work.total, MOST_WORK
    yield "work done", job.work.done, MOST_WORK
    yield "time of submission", job.submitted_s, MOST_S
    yield "cpus_per_gpu", job.cpus_per_gpu, MOST_CPUS
    yield "memory_per_gpu", job.memory_per_gpu, MOST_BYTES
    yield "restart cost", job.restart_cost_s, MOST_S
    slowdown = job.slowdown
    yield from (("slowdown", x, MOST_SLOWDOWN) for x in (slowdown.node, slowdown.rack, slowdown.cluster))
    yield from ((f"attained on {t}", x, MOST_GPU_S) for t, x in job.attained.items())
    for gpu_type, curve in job.throughput.items():
        for n, rate in curve.items():
            yield f"GPUs in the throughput of {gpu_type}", n, MOST_GPUS
            yield f"throughput of {gpu_type} on {min(n, MOST_GPUS)} GPUs", rate, MOST_RATE
    for step, loss in job.loss:
        yield "iteration of a loss", step, MOST_WORK
        yield "loss", loss, MOST_LOSS


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _shown(value: float) -> str:
    return f"{_float(value):g}" if isfinite(_float(value)) else "beyond all numbers"


#: Rows of one table of bids; more are a mistake or an attack.
MOST_BIDS = 1000
