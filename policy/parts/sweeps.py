"""What an app's scheduler makes of a decision, whoever decides: early stopping (Themis §4.3.2).

Pure: from the `App` and the losses in the snapshot. *Successive halving* (and each bracket of Hyperband): when every
job left has done a phase's iterations and more are left than the next phase has places, those with the worst last
loss end; a job without a loss, or with one that is no number, is worst; ties go to the earliest submitted. *Curve
stopping*: a job ends when even its fitted curve, followed to the end of its work, stays above the loss that another
job of the app has reached already; a job without a fit goes on. Other schedulers end their jobs themselves.

A phase is over when its last job has done it. Those that are ahead *rest* meanwhile: without that a policy that lets
few jobs run to their end would end nobody. What nobody else can use they run on all the same. Who rests does not
depend on who holds GPUs: a job that took part again once all others of its app had some took them from these.
`policy.decide` applies both to every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf, isfinite

from policy.model import App, Code, Job, JobName, Reason, Snapshot
from policy.parts.forecast import has_curve, loss_at

HALVING = ("successive-halving", "hyperband")
CURVES = ("curve-stopping",)


def losers(snapshot: Snapshot) -> dict[JobName, Reason]:
    """Jobs that their app's scheduler ends now, and why."""
    out: dict[JobName, Reason] = {}
    for app in snapshot.apps:
        jobs = sorted((j for j in snapshot.jobs if j.app == app.name), key=lambda j: j.order)
        if app.scheduler in HALVING:
            out.update(_halved(app, jobs))
        elif app.scheduler in CURVES:
            out.update(_outclassed(app, jobs))
    return out


def resting(snapshot: Snapshot) -> dict[JobName, Reason]:
    """Jobs that have done their phase, until the others of their app have."""
    out: dict[JobName, Reason] = {}
    for app in snapshot.apps:
        if app.scheduler not in HALVING:
            continue
        jobs = sorted((j for j in snapshot.jobs if j.app == app.name), key=lambda j: j.order)
        least = min((job.work.done for job in jobs), default=inf)
        end = next((end for end in phase_ends(app)[:-1] if least < end), None)
        if end is None:
            continue
        ahead = [j for j in jobs if j.work.done >= end]
        behind = len(jobs) - len(ahead)
        text = f"it has done its phase, {behind} of the {len(jobs)} jobs of {app.name} have not"
        for job in ahead:
            numbers = {"phase_end": end, "done": job.work.done, "behind": behind, "jobs": len(jobs)}
            out[job.name] = Reason(Code.WAITS_TURN, text, numbers, "the others reaching the end of the phase")
    return out


def phase_ends(app: App) -> list[float]:
    """Iterations reached at the end of each phase."""
    return list(accumulate(p.iterations for p in app.phases))


def loss_by(curve: Sequence[Sequence[float]], end: float) -> float:
    """The first loss at `end` iterations or after it, else the newest; inf without one, or where it is no number.

    So a job that ran on past the end of the phase, because it was there first, is not the better for it.
    """
    found = next((point[1] for point in curve if point[0] >= end), curve[-1][1] if curve else inf)
    return found if isfinite(found) else inf


def _halved(app: App, jobs: Sequence[Job]) -> dict[JobName, Reason]:
    places, reached = None, 0.0
    for end, after in zip(phase_ends(app), app.phases[1:], strict=False):
        if jobs and all(j.work.done >= end for j in jobs):
            places, reached = after.jobs, end
    if places is None or len(jobs) <= places:
        return {}
    ranked = sorted(jobs, key=lambda j: (loss_by(j.loss, reached), j.order))
    worst_kept = loss_by(ranked[places - 1].loss, reached)
    out = {}
    for job in ranked[places:]:
        loss = loss_by(job.loss, reached)
        numbers = {"loss": loss if loss < inf else None, "worst_kept": worst_kept if worst_kept < inf else None}
        text = f"{app.name} keeps the best {places} of {len(jobs)} jobs after this phase"
        out[job.name] = Reason(Code.LOST_SWEEP, text, {**numbers, "places": places, "jobs": len(jobs)})
    return out


def _outclassed(app: App, jobs: Sequence[Job]) -> dict[JobName, Reason]:
    reached = {j.name: min((y for _, y in j.loss if isfinite(y)), default=inf) for j in jobs}
    best = min(reached, key=lambda n: reached[n], default=None)
    out: dict[JobName, Reason] = {}
    for job in jobs:
        curve = job.loss_forecast
        if best is None or job.name == best or curve is None or job.work_left is None or not has_curve(curve):
            continue
        hope = loss_at(curve, job.work.done + job.work_left)
        if isfinite(hope) and hope > reached[best]:
            text = f"its curve cannot reach any more what job {best} of {app.name} has reached"
            out[job.name] = Reason(Code.LOST_SWEEP, text, {"forecast": hope, "best": reached[best]})
    return out
