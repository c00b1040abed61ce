"""What would become of jobs that nobody has handed in: the policy asked twice, with them and without them.

It is asked in a process of its own, one such question at a time, beside the arbiter's rounds and not in them. Nothing
is journaled. Guards are not asked: they may put a change off that is shown here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from horae.arbiter.core import Core
from horae.arbiter.decide.policy_runner import Answer, PolicyRunner, Question, Worker
from horae.arbiter.decide.snapshot import picture_of_the_fit
from horae.arbiter.modes import mode_of
from horae.arbiter.observe.reconcile import pool_for
from horae.arbiter.requests.authority import Requester
from horae.arbiter.requests.commands import checked
from horae.arbiter.round import question as ask
from horae.config import Pool
from horae.journal import JobRecord, Ledger
from horae.port import JobId, TryLater
from horae.spec import JobSpec
from policy.model import BadInput, Tenant

#: When to ask again, where somebody else asks.
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class DryRun:
    pool: str
    mode: str
    policy: str
    jobs: Mapping[JobId, JobSpec]  #: as they would be numbered
    without: Question
    with_them: Question
    unfit: Mapping[JobId, str]  #: of `jobs`, those that no policy can take, and why
    records: tuple[JobRecord, ...]


def _capped(tenant: Tenant, learnt: int | None) -> Tenant:
    """With what blocked starts told, where that is less than what the cluster and the configuration let it hold."""
    if learnt is None:
        return tenant
    if tenant.cap is not None:
        learnt = min(learnt, tenant.cap)
    return replace(tenant, cap=learnt)


def prepare(core: Core, specs: Sequence[JobSpec], caller: Requester) -> DryRun:
    """On the core's thread. Raises BadInput, NotAllowed, TryLater."""
    config, view = core.config, core.view
    if view is None:
        raise TryLater("the cluster was not looked at yet")
    found = [checked(spec, caller, core) for spec in specs]
    names = {pool_for(spec, {}, config, {}) for spec in found}
    if len(names) > 1:
        raise BadInput("they go to several pools", field="pool", remedy=f"ask for one at a time: {', '.join(names)}")
    pool = config.pool(names.pop())
    assert pool is not None
    first, now_s = core.ledger.next_id, core.now_s()
    records = tuple(_record(str(first + i), spec, pool, now_s + i * 1e-6) for i, spec in enumerate(found))
    only = Ledger({record.id: record for record in records})
    new, unfit = picture_of_the_fit(only, pool, view)
    without = ask(core.ledger, pool, view, core.apps)
    snapshot = without.snapshot
    known = {tenant.name for tenant in snapshot.tenants}
    caps = {t: c.cap for t, c in core.ledger.pool(pool.name).caps.items() if c.until_s > now_s}
    more = tuple(_capped(t, caps.get(t.name)) for t in new.tenants if t.name not in known)
    tenants: tuple[Tenant, ...] = tuple(sorted((*snapshot.tenants, *more), key=lambda t: t.name))
    together = replace(snapshot, jobs=(*snapshot.jobs, *new.jobs), tenants=tenants)
    return DryRun(
        pool.name,
        mode_of(core.ledger, pool).value,
        pool.policy,
        {record.id: record.spec for record in records},
        without,
        replace(without, snapshot=together),
        unfit,
        records,
    )


def _record(job: JobId, spec: JobSpec, pool: Pool, now_s: float) -> JobRecord:
    """As the job would be right after it was handed in and seen."""
    return JobRecord(
        id=job, spec=spec, pool=pool.name, tenant=spec.tenant, app=spec.app or job, owner=spec.owner,
        submitted_s=now_s, shown=True, priority=spec.priority,
    )  # fmt: skip


class Trials:
    """One at a time. Safe to call from any thread."""

    def __init__(self) -> None:
        self._one = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[PolicyRunner]:
        """To be taken before `prepare`: that takes the core's time, and thousands of jobs take a good part of a second.
        Raises TryLater."""
        if not self._one.acquire(blocking=False):  # who waited here would keep others' requests waiting
            raise TryLater("somebody else's dry run is being answered", retry_after_s=AGAIN_S)
        worker = Worker()
        try:
            yield worker
        finally:
            worker.close()
            self._one.release()


def run(trial: DryRun, runner: PolicyRunner) -> dict[str, Any]:
    """Plain data: `jobs`, what each would hold and why; `others`, whose GPUs differ for it."""
    without, with_them = runner.ask(trial.without), runner.ask(trial.with_them)
    why_not = with_them.why_not or without.why_not
    if with_them.decision is None or without.decision is None:
        raise BadInput(f"the policy does not say: {why_not}", field="policy", value=trial.policy,
                       remedy="an operator can say more")  # fmt: skip
    return {
        "pool": trial.pool,
        "mode": trial.mode,
        "policy": trial.policy,
        "jobs": [_outcome(job, spec, trial, with_them) for job, spec in trial.jobs.items()],
        "others": _others(trial, without, with_them),
    }


def _outcome(job: JobId, spec: JobSpec, trial: DryRun, answer: Answer) -> dict[str, Any]:
    decision = answer.decision
    assert decision is not None
    told: dict[str, Any] = {"id": job, "name": spec.name, "tenant": spec.tenant, "allocation": {}, "code": None}
    if (wrong := trial.unfit.get(job) or answer.aside.get(job)) is not None:
        return {**told, "why": wrong, "change": "hand it in with other numbers"}
    reason = decision.reasons.get(job)
    if reason is not None:
        told.update(code=str(reason.code), why=reason.text, change=reason.change)
    return {"why": "", "change": "", **told, "allocation": dict(decision.allocation.get(job, {}))}


def _others(trial: DryRun, without: Answer, with_them: Answer) -> list[dict[str, Any]]:
    """Jobs of the pool that would have other GPUs, those that lose first."""
    assert without.decision is not None and with_them.decision is not None
    found = []
    for job in trial.without.snapshot.jobs:
        before = sum(without.decision.allocation.get(job.name, {}).values())
        after = sum(with_them.decision.allocation.get(job.name, {}).values())
        if before != after:
            found.append({"id": job.name, "tenant": job.tenant, "gpus": job.held, "without": before, "with": after})
    return sorted(found, key=lambda other: (other["with"] - other["without"], other["id"]))
