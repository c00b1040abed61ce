"""A decision as the journal keeps it: what changed since the pool's last one. Pure.

A quiet cluster decides the same again and again; then there is nothing to write. Reasons are written again when
their code changes, those of GPUs that change hands whenever their words do, and all of them at least every `REFRESH_S`,
however much else is written meanwhile, so that their numbers do not grow stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from horae.arbiter.admit.guards import Veto
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.codec import Plain, given, is_plain, plain
from horae.port import JobId
from policy.model import Allocation, Certificate, Code, Decision, JobName, Reason, Seconds

REFRESH_S = 60.0
#: What a policy's reason says of GPUs that change hands.
CHANGES = frozenset({Code.GRANTED, Code.GREW, Code.SHRANK, Code.MOVED, Code.PREEMPTED})
#: Of a certificate's per-app list, the worst are kept.
WORST_APPS = 10


def decided(
    ledger: Ledger,
    pool: str,
    *,
    question: Mapping[str, Any],
    decision: Decision | None,
    why_not: str,
    took_s: Seconds,
    targets: Mapping[JobName, Allocation],
    now_s: Seconds,
) -> Draft | None:
    """The DECIDED event, or None when nothing is new. `question`: policy, options, seed."""
    books = ledger.pool(pool)
    records = list(ledger.live(pool))
    changed = _changed(records, targets)
    told = Plain(plain(question), took_s=float(took_s))
    if decision is None:
        told["fallback"] = why_not
        if not changed and books.decided.get("fallback") == why_not:
            return None
        return events.Decided(pool, told, changed)
    refreshed_s = books.decided.get("refreshed_s")
    stale = refreshed_s is None or now_s - refreshed_s >= REFRESH_S
    reasons = _reasons(records, decision, stale=stale)
    leases = _leases(records, decision)
    state = given(decision.state)
    new = bool(changed or reasons or leases or decision.cancel) or books.decided.get("fallback")
    if not new and books.policy == question["policy"] and books.state == state:
        return None
    told["refreshed_s"] = now_s if stale else refreshed_s
    told["certificate"] = _summary(decision.certificate)
    if decision.solver is not None:
        told["solver"] = plain(decision.solver)
    if decision.cancel:
        told["cancel"] = list(decision.cancel)
    return events.Decided(pool, told, changed, reasons, leases, Plain(state))


def _changed(records: list[JobRecord], targets: Mapping[JobName, Allocation]) -> Plain:
    """Targets that are not on record."""
    return Plain(
        (record.id, dict(target))
        for record in records
        if (target := targets.get(record.id)) is not None and target != record.target
    )


def _leases(records: list[JobRecord], decision: Decision) -> Plain:
    """Leases that are not on record."""
    out, by_job = Plain(), decision.leases
    for record in records if by_job else [r for r in records if r.leases]:
        until = by_job.get(record.id)
        if (until or record.leases) and (lease := plain(until or {})) != record.leases:
            out[record.id] = lease
    return out


def _reasons(records: list[JobRecord], decision: Decision, stale: bool) -> Plain:
    new: dict[JobId, Reason] = {}
    by_job = decision.reasons
    for record in records:
        reason = by_job.get(record.id)
        if reason is None:
            continue
        old = record.reason
        again = stale or reason.code in CHANGES
        if old is None or old["code"] != reason.code or (again and old["text"] != reason.text):
            new[record.id] = reason
    differ = {id(reason): reason for reason in new.values()}  # many jobs wait for one reason
    as_they_are = is_plain([reason.numbers for reason in differ.values() if reason.numbers])
    forms = {key: _of_reason(reason, as_they_are) for key, reason in differ.items()}
    return Plain((job, forms[id(reason)]) for job, reason in new.items())


def _of_reason(reason: Reason, as_it_is: bool) -> dict[str, Any]:
    """`plain`, written out for what there is one of for each job. `as_it_is`: its numbers are plain already."""
    out: dict[str, Any] = {"code": reason.code._value_, "text": str(reason.text)}
    if reason.numbers:
        out["numbers"] = reason.numbers if as_it_is else given(reason.numbers)
    if reason.change:
        out["change"] = str(reason.change)
    return out


def _summary(certificate: Certificate) -> dict[str, Any]:
    data: dict[str, Any] = plain(replace(certificate, rho={}))
    rho = [(-value, app) for app, value in certificate.rho.items() if value is not None]
    data["rho"], data["rho_apps"] = {app: -value for value, app in nsmallest(WORST_APPS, rho)}, len(rho)
    return data


def guarded(
    ledger: Ledger, pool: str, vetoes: Mapping[JobName, Veto], wanted: Mapping[JobName, Allocation]
) -> list[Draft]:
    """Events for vetoes that are new, of another kind, or over."""
    drafts: list[Draft] = []
    for record in ledger.live(pool):
        veto = vetoes.get(record.id)
        old = record.guard.guard if record.guard is not None else None
        if veto is None and old is not None:
            drafts.append(events.KeptBack(record.id, None))
        elif veto is not None and veto.guard != old:
            drafts.append(events.KeptBack(record.id, veto.guard, veto.text, wanted=wanted.get(record.id, {})))
    return drafts
