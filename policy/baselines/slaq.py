"""SLAQ (SoCC 2017): GPUs to the jobs whose loss falls most by them in the next epoch.

Greedy: every job first gets its smallest gang, largest predicted loss reduction first; then each step goes to the job
whose predicted reduction over the next `epoch` seconds grows most per GPU. Losses of different models are made
comparable as in the paper: by the job's largest reduction so far, here the steepest fall an iteration that its curve
has shown, over an epoch on its smallest gang.

Needs a loss curve and a throughput; a job without either, or whose loss falls no more, is served last: it gets what
nobody else can use, the next step to the one whose throughput it raises most, and the notes say so.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from typing import Any

from policy.baselines.optimus import speeding
from policy.contract import Context
from policy.model import Job, JobName, LossForecast, Proposal, Reason, Snapshot
from policy.parts import reasons
from policy.parts.assign import assign, wants
from policy.parts.forecast import forecast_of, loss_at
from policy.parts.ordered import active
from policy.parts.pools import Pools, Step
from policy.parts.standing import beside_known


@beside_known
def decide(snapshot: Snapshot, options: Mapping[str, Any], context: Context) -> Proposal:
    jobs = active(snapshot)
    pools = Pools(snapshot, context.speeds)
    epoch = options["epoch"]
    forecasts = {j.name: forecast_of(j) for j in jobs}
    steepest = {j.name: _steepest(j, forecasts[j.name]) for j in jobs}

    def reduction(job: Job, rate: float) -> float:
        """Normalised predicted fall of the loss in one epoch at `rate` iterations/s; 0 where nothing is known."""
        forecast = forecasts[job.name]
        if forecast is None or not job.throughput:
            return 0.0
        at, most = job.work.done, steepest[job.name] * pools.rate(job, *_smallest(job, pools)) * epoch
        end = at + rate * epoch
        if job.known and job.work.total is not None:
            end = min(end, job.work.total)
        return max(loss_at(forecast, at) - loss_at(forecast, end), 0.0) / float(max(most, 1e-300))

    def gain(job: Job, step: Step) -> float:
        if forecasts[job.name] is None or not job.throughput:
            return 0.0  # as `reduction` says at every rate
        has = pools.count.get(job.name, 0)
        now = pools.rate(job, step.gpu_type, has) if has else 0.0
        more = (reduction(job, pools.rate(job, step.gpu_type, step.gpus)) - reduction(job, now)) / step.add
        return float(f"{more:.12g}")  # beyond that is noise, and would decide between equals

    first: list[tuple[float, tuple[float, str], Job]] = []
    for job in jobs:
        step = pools.first_step(job)
        if step is not None:
            first.append((-gain(job, step), job.order, job))
    for *_, job in sorted(first, key=lambda f: f[:2]):
        step = pools.first_step(job)
        if step is not None and pools.fits(job, step):
            pools.give(job, step)
    heap: list[tuple[bool, float, tuple[float, str], int, Step]] = []

    def push(n: int) -> None:
        step = pools.next_step(jobs[n])
        if step is not None:
            worth = gain(jobs[n], step)
            blind = worth <= 1e-15
            heapq.heappush(heap, (blind, -(speeding(pools, jobs[n], step) if blind else worth), jobs[n].order, n, step))

    for n, job in enumerate(jobs):
        if pools.count.get(job.name):
            push(n)
    while heap and not pools.empty:
        *_, n, step = heapq.heappop(heap)
        if pools.fits(jobs[n], step):
            pools.give(jobs[n], step)
            push(n)
    placed = assign(snapshot, wants(pools), jobs, context)
    out: dict[JobName, Reason] = {}
    for job in jobs:
        now = placed.placer.taken.get(job.name)
        seen = reasons.outcome(job, now, context.speeds) if now else None
        if seen is not None:
            falls = reduction(job, context.speeds.rate(job, now or {}) or 0.0)
            text = f"{seen.text}; its loss is predicted to fall in {epoch:g} s by {falls:.3g} of its best so far"
            if forecasts[job.name] is None:
                text = f"{seen.text}; its loss is not known, so it grows after all others"
            numbers = {**seen.numbers, "reduction": falls if forecasts[job.name] is not None else None}
            out[job.name] = Reason(seen.code, text, numbers)
    blind = [j.name for j in jobs if forecasts[j.name] is None]
    notes = (f"{len(blind)} jobs without a loss curve are served last",) if blind else ()
    return Proposal(placed.placer.taken, reasons=out, notes=notes)


def _smallest(job: Job, pools: Pools) -> tuple[str, int]:
    """The type and size of the job's smallest gang."""
    if job.name in pools.type:
        return pools.type[job.name], job.gpus.above(0) or 1
    step = pools.first_step(job)
    return (step.gpu_type, step.gpus) if step is not None else ("", 0)


def _steepest(job: Job, forecast: LossForecast | None) -> float:
    """The largest fall of the loss an iteration so far: of the points seen, else of the fitted curve's first part."""
    steepest = 0.0
    for (since, before), (at, loss) in itertools.pairwise(job.loss):
        if at > since:
            steepest = max(steepest, (before - loss) / (at - since))
    if steepest > 0:
        return steepest
    if forecast is None:
        return 0.0
    start = forecast.parameters.get("origin", 0.0)
    step = max(job.work.done - start, 100.0) / 100
    return max((loss_at(forecast, start + step) - loss_at(forecast, start + 2 * step)) / step, 0.0)
