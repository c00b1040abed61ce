"""A decision as the journal keeps it: what changed since the pool's last one. Pure.

A quiet cluster decides the same again and again; then there is nothing to write. Reasons are written again when
their code changes, and all of them at least every `REFRESH_S`, so that their numbers do not grow stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horae.arbiter.admit.guards import Veto
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.codec import Plain, given, plain
from policy.model import Allocation, Certificate, Decision, JobName, Reason, Seconds

REFRESH_S = 60.0
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
    data: dict[str, Any] = {**plain(question), "targets": changed}
    if decision is None:
        data["fallback"] = why_not
        if not changed and books.decided.get("fallback") == why_not:
            return None
        return events.decided(pool, Plain(data, took_s=float(took_s)))
    stale = now_s - books.decided_s >= REFRESH_S
    data["reasons"] = _reasons(records, decision, stale)
    data["leases"] = _leases(records, decision)
    state = given(decision.state)
    new = bool(changed or data["reasons"] or data["leases"] or decision.cancel) or books.decided.get("fallback")
    if not new and books.policy == question["policy"] and books.state == state:
        return None
    data["state"] = state
    data["certificate"] = _summary(decision.certificate)
    if decision.solver is not None:
        data["solver"] = plain(decision.solver)
    if decision.cancel:
        data["cancel"] = list(decision.cancel)
    return events.decided(pool, Plain(data, took_s=float(took_s)))


def _changed(records: list[JobRecord], targets: Mapping[JobName, Allocation]) -> dict[str, Any]:
    """Targets that are not on record."""
    out = {}
    for record in records:
        target = targets.get(record.id)
        if target is not None and target != record.target:
            out[record.id] = dict(target)
    return out


def _leases(records: list[JobRecord], decision: Decision) -> dict[str, Any]:
    """Leases that are not on record."""
    out = {}
    for record in records:
        until = decision.leases.get(record.id)
        if (until or record.leases) and (lease := plain(until or {})) != record.leases:
            out[record.id] = lease
    return out


def _reasons(records: list[JobRecord], decision: Decision, stale: bool) -> dict[str, Any]:
    out = {}
    known: dict[int, Any] = {}  # many jobs wait for one reason
    for record in records:
        reason = decision.reasons.get(record.id)
        if reason is None:
            continue
        old = record.reason
        if old is None or old["code"] != reason.code or (stale and old["text"] != reason.text):
            form = known.get(id(reason))
            if form is None:
                form = known[id(reason)] = _of_reason(reason)
            out[record.id] = form
    return out


def _of_reason(reason: Reason) -> dict[str, Any]:
    """`plain`, written out for what there is one of for each job."""
    out: dict[str, Any] = {"code": reason.code.value, "text": str(reason.text)}
    if reason.numbers:
        out["numbers"] = given(reason.numbers)
    if reason.change:
        out["change"] = str(reason.change)
    return out


def _summary(certificate: Certificate) -> dict[str, Any]:
    data: dict[str, Any] = plain(certificate)
    rho = sorted(
        ((app, value) for app, value in certificate.rho.items() if value is not None), key=lambda r: (-r[1], r[0])
    )
    data["rho"], data["rho_apps"] = dict(rho[:WORST_APPS]), len(rho)
    return data


def guarded(
    ledger: Ledger, pool: str, vetoes: Mapping[JobName, Veto], wanted: Mapping[JobName, Allocation]
) -> list[Draft]:
    """Events for vetoes that are new, of another kind, or over."""
    drafts = []
    for record in ledger.live(pool):
        veto = vetoes.get(record.id)
        old = record.guard["guard"] if record.guard is not None else None
        if veto is None and old is not None:
            drafts.append(events.guarded(record.id, None))
        elif veto is not None and veto.guard != old:
            drafts.append(events.guarded(record.id, veto.guard, veto.text, wanted=wanted.get(record.id, {})))
    return drafts
