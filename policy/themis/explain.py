"""Reasons of a round: what each job got, what its app bid, won, paid and found, and what would change it."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from policy.model import Allocation, Code, Job, JobName, Reason
from policy.parts import reasons as shared
from policy.places.placement import Placer
from policy.throughput import Throughput

if TYPE_CHECKING:
    from policy.themis.round import Round


def reasons(this: Round, speeds: Throughput) -> dict[JobName, Reason]:
    """One reason a job of an active app; the shared rules give those of finished jobs."""
    placer = shared.left_over(this.snapshot, this.gangs, speeds)
    out = {}
    for app, standing in this.standings.items():
        numbers = _numbers(this, app)
        for job in standing.agent.value.jobs:
            if job.work.left == 0:
                continue
            now = this.gangs.get(job.name, {})
            out[job.name] = (
                _holds(this, app, job, now, numbers, speeds) if now else _waits(this, app, job, numbers, speeds, placer)
            )
    return out


def _numbers(this: Round, app: str) -> dict[str, Any]:
    standing, outcome, payment = this.standings[app], this.outcome, this.payments.get(app)
    after = standing.agent.rho(this.bundles[app])
    won = sum(outcome.wins.get(app, {}).values()) if outcome else 0
    return {
        "rho": after if after < inf else _finite(standing.rho),
        "rho_before": _finite(standing.rho),
        "bid": app in this.bidders,
        "bid_by": this.bid_by.get(app) if app in this.bidders else None,
        "won": won,
        "kept_fraction": outcome.kept_fraction[app] if outcome and app in outcome.kept_fraction else None,
        "kept": sum(payment.kept.values()) if payment else 0,
        "leftover": max(sum(this.leftover.get(app, {}).values()), 0),
        "leased": sum(standing.base.values()),
        "offered": this.offered.total,
    }


def _finite(rho: float) -> float | None:
    return rho if isfinite(rho) else None


def _said(rho: float | None) -> str:
    """An app of which one job can never run has no end."""
    return "without bound" if rho is None else f"{rho:.3g}"


def _story(numbers: dict[str, Any], moved: bool) -> str:
    parts = []
    if numbers["leased"]:
        parts.append(f"{numbers['leased']} under lease")
    if numbers["won"]:
        paid = numbers["won"] - numbers["kept"]
        parts.append(
            f"{numbers['won']} won" + (f", {paid} paid back (c = {numbers['kept_fraction']:.3g})" if paid else "")
        )
    if numbers["leftover"]:
        parts.append(f"{numbers['leftover']} left over by others")
    if moved:
        parts.append("moved to idle ones where it is better off")
    return "; ".join(parts)


def _holds(this: Round, app: str, job: Job, now: Allocation, numbers: dict[str, Any], speeds: Throughput) -> Reason:
    found = shared.outcome(job, now, speeds)
    assert found is not None, "a job that holds GPUs has an outcome"
    whose = "" if app == job.name else f" of app {app}"
    text = f"{found.text} (rho {_said(numbers['rho'])}{whose}: {_story(numbers, app in this.moved)})"
    return Reason(found.code, text, {**found.numbers, **numbers})


def _waits(this: Round, app: str, job: Job, numbers: dict[str, Any], speeds: Throughput, placer: Placer) -> Reason:
    standing = this.standings[app]
    numbers = {"gpus": 0, "held": job.held, "smallest": job.gpus.min, **numbers}
    code = shared.waiting_code(job, placer)
    if code in (Code.INFEASIBLE, Code.UNKNOWN_SPEED, Code.WAITS_CAP):
        base = shared.waits(job, code, job.gpus.min, placer)
        return Reason(code, base.text, {**base.numbers, **numbers}, base.change)
    if this.bundles.get(app):
        text = f"its app {app} runs other jobs first on its {shared.gpus(sum(this.bundles[app].values()))}"
        return Reason(_left(job), text, numbers, "jobs of the app that end, or more GPUs for it")
    leases = sorted(t for nodes in this.offered.leased.values() for times in nodes.values() for t in times)
    if this.offered.total < job.gpus.min and leases:
        ends = leases[: max(job.gpus.min - this.offered.total, 1)][-1]
        numbers["lease_ends_s"] = ends
        text = f"{shared.gpus(this.offered.total)} on offer, the others are under lease"
        return Reason(
            _left(job, Code.WAITS_LEASE),
            text,
            numbers,
            f"time: the next leases end in {ends - this.snapshot.now_s:.0f} s",
        )
    if code is Code.WAITS_GANG:
        base = shared.waits(job, code, job.gpus.min, placer)
        return Reason(_left(job, code), base.text, {**base.numbers, **numbers}, base.change)
    rho, whose = numbers["rho"], "its rho" if app == job.name else f"the rho of its app {app}"
    change = f"{whose} grows as it waits: it bids in a later round, or gets what others leave before"
    if app in this.bidders:
        change = f"other apps that end, or time: {change}"
        won = numbers["won"]
        text = (
            f"won {shared.gpus(won)} and paid them back (c = {numbers['kept_fraction']:.3g})"
            if won
            else f"won none of {shared.gpus(this.offered.total)} in an auction with {len(this.bids) - 1} other bidders"
        )
    else:
        text = f"{len(this.bidders)} of {len(this.standings)} apps are worse off and bid; rho is {_said(rho)}"
        if standing.waited_s:
            text += f" after {standing.waited_s:g} s of waiting"
    return Reason(_left(job, Code.WAITS_TURN), text, numbers, change)


def _left(job: Job, code: Code = Code.WAITS_TURN) -> Code:
    return Code.PREEMPTED if job.held else code
