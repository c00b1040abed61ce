"""What people ask for: submit, cancel, hold, modes. Each request is checked, journaled and acknowledged; what it
means for the cluster is the next round's affair.

Everything acknowledged is on the disk. Runs on the core's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from horae import job_number
from horae.arbiter.core import Core
from horae.arbiter.modes import mode_of
from horae.arbiter.observe.reconcile import pool_for
from horae.arbiter.requests import authority
from horae.arbiter.requests.authority import NotAllowed, Requester
from horae.arbiter.requests.shares import Shares
from horae.arbiter.standing import held_by_people, movable
from horae.config import Mode
from horae.journal import Draft, JobRecord, events
from horae.port import JobId, JobState, Never, SiteTenant, TryLater
from horae.spec import JobSpec
from policy import bounds
from policy.model import BadInput, Seconds


class NoSuchJob(Exception):
    def __init__(self, job: JobId) -> None:
        self.job, self.text = job, f"there is no job {job}"
        super().__init__(self.text)


#: Two jobs submitted in the same instant keep their order by this much.
_NEXT_S = 1e-6


class Commands:
    def __init__(self, core: Core) -> None:
        self._core, self._shares = core, Shares()

    # --- jobs ---------------------------------------------------------------------------------------------

    def submit(self, specs: Sequence[JobSpec], caller: Requester) -> tuple[JobId, ...]:
        """All or none; the ids in order. Raises BadInput, NotAllowed, Never, TryLater, JournalStopped."""
        (found,) = self.submit_all([(specs, caller)])
        if isinstance(found, Exception):
            raise found
        return found

    def submit_all(
        self, requests: Sequence[tuple[Sequence[JobSpec], Requester]]
    ) -> list[tuple[JobId, ...] | BadInput | NotAllowed | Never | TryLater]:
        """Many requests, one write: the ids of each, or why it is refused. Raises JournalStopped for all."""
        core, ledger = self._core, self._core.ledger
        number, at_s = ledger.next_id, max(core.now_s(), ledger.submitted_s + _NEXT_S)
        drafts: list[Draft] = []
        answers: list[tuple[JobId, ...] | BadInput | NotAllowed | Never | TryLater] = []
        room, taken = core.journal.room(), dict[str, int]()
        for specs, caller in requests:
            try:
                if not core.capabilities.owns_submission:
                    raise Never("on this cluster jobs are submitted with the cluster's own commands")
                found = [checked(spec, caller, core) for spec in specs]
                self._shares.check(ledger, room, [(spec.owner, spec) for spec in found], taken)
            except (BadInput, NotAllowed, Never, TryLater) as refused:
                answers.append(refused)
                continue
            first = number + len(drafts)
            drafts += [
                self._submitted(str(first + i), spec, at_s + (first + i - number) * _NEXT_S)
                for i, spec in enumerate(found)
            ]
            answers.append(tuple(str(first + i) for i in range(len(found))))
        core.write(drafts, durable=True)
        core.wake()
        return answers

    def _submitted(self, job: JobId, spec: JobSpec, at_s: Seconds) -> Draft:
        return events.Submitted(
            job,
            spec,
            pool=pool_for(spec, {}, self._core.config, {}),
            tenant=spec.tenant,
            app=spec.app or job,
            owner=spec.owner,
            submitted_s=at_s,
        )

    def cancel(self, job: JobId, caller: Requester, why: str = "") -> bool:
        """End it for good; whether there was something to end. A job that is over stays as it ended."""
        record = self._theirs(job, caller)
        if not record.live:
            return False
        if record.cancel_why is None:
            self._pool_must_act(record)
            self._core.write([events.CancelAsked(job, caller.user, why or f"cancelled by {caller.user}")], durable=True)
            self._core.wake()
        return True

    def hold(self, job: JobId, caller: Requester, why: str = "") -> None:
        """Keep it from running; a running job checkpoints and leaves. Raises BadInput where it cannot. A hold of ours,
        which may end without anybody's word, becomes the caller's."""
        record = self._theirs(job, caller)
        if not record.live or held_by_people(record):
            return
        if record.state.holds and not movable(record):
            trouble = record.checkpoint_trouble
            raise BadInput(
                f"job {job_number(job)} runs and cannot be stopped and resumed"
                + (f": its checkpoints cannot be written: {trouble}" if trouble else ""),
                field="job",
                value=job,
                remedy=f"{'mend that, ' if trouble else ''}cancel it, or let it run",
            )
        self._pool_must_act(record)
        self._core.write([events.JobHeld(job, caller.user, why)], durable=True)
        self._core.wake()

    def unhold(self, job: JobId, caller: Requester) -> None:
        record = self._theirs(job, caller)
        if record.live and record.hold_why is not None:
            self._core.write([events.JobUnheld(job, caller.user)], durable=True)
            self._core.wake()

    def prioritise(self, job: JobId, to: int, caller: Requester, *, across: bool = False) -> None:
        """Its place in line from now on: among its tenant's jobs, or `across` all, which operators may. Raises
        BadInput, NotAllowed."""
        if abs(to) > bounds.MOST_PRIORITY:
            most = bounds.MOST_PRIORITY
            raise BadInput("is out of bounds", field="priority", value=to, remedy=f"from {-most} to {most}")
        config, record = self._core.config, self._core.ledger.jobs.get(job)
        if record is None:
            raise NoSuchJob(job)
        if across:
            authority.may_operate(caller, config)
        else:
            authority.may_order(caller, record.owner, record.tenant, to, config)
        if record.live and to != (record.precedence if across else record.priority):
            self._core.write([events.Prioritised(job, to, caller.user, across=across)], durable=True)
            self._core.wake()

    def _theirs(self, job: JobId, caller: Requester) -> JobRecord:
        record = self._core.ledger.jobs.get(job)
        if record is None:
            raise NoSuchJob(job)
        authority.may_act_on(caller, record, self._core.config)
        return record

    def _pool_must_act(self, record: JobRecord) -> None:
        pool = self._core.config.pool(record.pool)
        if pool is not None and not mode_of(self._core.ledger, pool).acts and record.shown:
            raise NotAllowed(
                f"pool {record.pool} is only watched (mode {mode_of(self._core.ledger, pool)}); "
                "use the cluster's own command"
            )

    # --- operators ----------------------------------------------------------------------------------------

    def set_mode(self, pool: str, mode: Mode, caller: Requester) -> None:
        authority.may_operate(caller, self._core.config)
        self._known_pool(pool)
        self._core.write([events.ModeSet(pool, mode.value, caller.user)], durable=True)
        self._core.wake()

    def maintenance(self, pool: str, on: bool, caller: Requester, why: str = "") -> None:
        """In maintenance nothing starts or moves in the pool; what runs, runs on."""
        authority.may_operate(caller, self._core.config)
        self._known_pool(pool)
        why = why or f"announced by {caller.user}"
        self._core.write([events.Maintenance(pool, on, caller.user, why)], durable=True)
        self._core.wake()

    def release_all(self, caller: Requester) -> tuple[JobId, ...]:
        """Step back to watching, and hand every job back to the cluster; running ones run on."""
        core = self._core
        authority.may_operate(caller, core.config)
        jobs = tuple(r.id for r in core.ledger.live())
        core.write(
            [events.ModeSet(p.name, Mode.OBSERVE.value, caller.user, releasing=True) for p in core.config.pools],
            durable=True,
        )
        unseen = [
            events.Ended(r.id, JobState.CANCELLED, core.now_s(), "handed back before the cluster knew it")
            for r in core.ledger.live()
            if not r.shown and r.submit_sent_s is None
        ]
        core.write(unseen, durable=True)
        core.wake()
        return jobs

    def _known_pool(self, name: str) -> None:
        if self._core.config.pool(name) is None:
            names = ", ".join(p.name for p in self._core.config.pools)
            raise BadInput(f"there is no pool {name}", field="pool", value=name, remedy=f"one of {names}")


def checked(spec: JobSpec, caller: Requester, core: Core) -> JobSpec:
    """With its owner and tenant. Raises BadInput, NotAllowed."""
    config, site = core.config, core.view.observation.tenants if core.view is not None else ()
    asked = _tenant_asked(spec, core.capabilities.tenant_key, site)
    owner, tenant = authority.submitter(caller, spec.owner, asked, config, site)
    if not spec.name or "\n" in spec.name:
        raise BadInput("a job needs a name on one line", field="name", value=spec.name, remedy="give it one")
    if not spec.command:
        raise BadInput("a job needs a command", field="command", remedy="say what to run")
    if spec.workers is not None and core.view is not None and not core.capabilities.own_workers:
        raise BadInput(
            f"{core.capabilities.cluster} runs one worker a GPU",
            field="workers",
            value=spec.workers,
            remedy="leave it out, and ask for at least one GPU",
        )
    if not _runs_at_all(spec):
        raise BadInput(
            "this range of GPUs holds no size to run at", field="gpus", value=spec.gpus, remedy="min <= max, from 1"
        )
    authority.may_order(caller, owner, tenant, spec.priority, config)
    pool = spec.extra.get("pool")
    if pool is not None and config.pool(pool) is None:
        names = ", ".join(p.name for p in config.pools)
        raise BadInput(f"there is no pool {pool}", field="pool", value=pool, remedy=f"one of {names}")
    return replace(spec, owner=owner, tenant=tenant)


def _runs_at_all(spec: JobSpec) -> bool:
    gpus = spec.gpus
    if spec.workers is not None:
        return spec.workers > 0 and gpus.rigid and not spec.elastic and gpus.requested % spec.workers == 0
    if gpus.allowed is not None:
        return bool(gpus.allowed) and gpus.allowed[0] >= 1 and list(gpus.allowed) == sorted(set(gpus.allowed))
    return gpus.min >= 1 and (gpus.max is None or gpus.max >= gpus.min)


def _tenant_asked(spec: JobSpec, key: str, site: Sequence[SiteTenant]) -> str:
    """The tenant that the job names, in whichever way. `key`: of `extra`, where the cluster's own tenants stand."""
    named = spec.extra.get(key, "") if site else ""
    if spec.tenant and named:
        meant = {authority.of_site(each, spec.owner, site) for each in (spec.tenant, named)}
        if len(meant) > 1:
            text = f"it says tenant {spec.tenant}, and {key} {named}"
            raise BadInput(text, field="tenant", value=spec.tenant, remedy="say one of the two")
    return spec.tenant or named
