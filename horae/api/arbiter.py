"""The API's backend over a living arbiter. Rights are the arbiter's own affair
(`horae/arbiter/requests/authority.py`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from horae import __version__
from horae.arbiter.core import Core
from horae.arbiter.requests.authority import Requester
from horae.arbiter.service import Arbiter
from horae.config import Mode
from horae.journal import Event, Kind, Ledger
from horae.journal.codec import plain
from horae.port import JobId, LogChunk
from horae.spec import JobSpec
from horae.views import apps as app_views
from horae.views import jobs, watch
from horae.views.sentences import sentence
from policy.model import BadInput, Seconds
from policy.text import instance


class ArbiterBackend:
    """A `horae.api.backend.Backend`."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter

    # --- questions ----------------------------------------------------------------------------------------

    def hides(self) -> tuple[str, ...]:
        return self._arbiter.hides()

    def about(self) -> dict[str, Any]:
        status = watch.status(self._arbiter)
        return {
            "version": __version__,
            "cluster": status.cluster,
            "state_dir": status.state_dir,
            "pools": [p.name for p in status.pools],
            "rounds": status.rounds,
            "stage": status.stage,
            "stalled": status.stalled,
            "stood_down": status.stood_down,
            "looked_ago_s": status.looked_ago_s,
            "notes": list(status.notes),
        }

    def status(self, *, ended: bool, losses: bool) -> dict[str, Any]:
        status, config, wall_s = watch.status(self._arbiter), self._arbiter.config, time.time()

        def look(core: Core) -> dict[str, Any]:
            ledger, now_s = core.ledger, core.now_s()
            caps = core.view.observation.caps if core.view is not None else {}
            return {
                "jobs": jobs.jobs(ledger, now_s, wall_s, core.fresh, ended=ended, losses=losses),
                "nodes": jobs.nodes(status.nodes, status.pool_of, ledger),
                "tenants": jobs.tenants(ledger, core.config, status.nodes, now_s, caps),
            }

        pools = [
            {
                "name": pool.name,
                "policy": pool.decided.get("policy") or next(p.policy for p in config.pools if p.name == pool.name),
                "mode": status.modes[pool.name].value,
                "releasing": pool.releasing,
                "maintenance": pool.maintenance,
                "decisions": pool.decisions,
                "decided": plain(pool.decided),
                "advised": [plain(a) for a in pool.advised],
            }
            for pool in status.pools
        ]
        alerts = [
            {"what": what, "text": text, "remedy": remedy, "since_s": since_s}
            for what, (text, remedy, since_s) in status.alerts.items()
        ]
        if status.stalled is not None:  # an alert that could not be journaled: the journal itself is what fails
            remedy, since_s = "it acts again by itself once that is mended", wall_s - (status.looked_ago_s or 0.0)
            text = f"nothing is done: {status.stalled}"
            alerts.insert(0, {"what": "stalled", "text": text, "remedy": remedy, "since_s": since_s})
        return {
            "cluster": status.cluster,
            "now_s": wall_s,
            "pools": pools,
            **self._arbiter.view(look),
            "alerts": alerts,
        }

    def job(self, job: JobId) -> dict[str, Any]:
        watch.job(self._arbiter, job)  # raises NoSuchJob
        wall_s = time.time()
        return self._arbiter.view(
            lambda core: jobs.job(core.ledger.jobs[job], core.ledger, core.now_s(), wall_s, core.fresh)
        )

    def explain(self, job: JobId) -> dict[str, Any]:
        found = watch.explain(self._arbiter, job)
        return {
            **self.job(job),
            "headline": found.headline,
            "causes": [plain(cause) for cause in found.causes],
            "ahead": list(found.ahead),
            "policy": found.policy,
            "decided_ago_s": found.decided_ago_s,
        }

    def history(
        self, *, job: JobId | None, after: int | None, since_s: Seconds | None, limit: int
    ) -> list[dict[str, Any]]:
        if job is not None:
            watch.job(self._arbiter, job)  # raises NoSuchJob
        events = self._arbiter.history(job, after=after or 0, limit=limit, newest_first=True)
        begin_s = 0.0 if since_s is None else time.time() - since_s
        found = [e for e in reversed(events) if e.wall_s >= begin_s]
        people = self._arbiter.view(lambda core: _people(core.ledger, found))
        return [
            {
                "seq": event.seq,
                "wall_s": event.wall_s,
                "kind": event.kind.value,
                "job": event.job,
                "pool": event.pool,
                **people.get(event.job or "", {"name": "", "owner": "", "tenant": ""}),
                "text": sentence(event),
                "data": _shown(event),
            }
            for event in found
        ]

    def log(self, job: JobId, offset: int, *, by: str) -> LogChunk:
        return self._arbiter.read_log(job, offset, Requester(by))

    def snapshot(self, pool: str | None) -> str:
        names = [p.name for p in self._arbiter.config.pools]
        if pool is None and len(names) > 1:
            raise BadInput("there are several pools", field="pool", remedy=f"say one of {', '.join(names)}")
        return instance.to_text(self._arbiter.snapshot(pool or names[0]))

    def config(self) -> dict[str, Any]:
        return self._arbiter.config.model_dump(mode="json")

    # --- apps and their agents ----------------------------------------------------------------------------

    def apps(self) -> list[dict[str, Any]]:
        return self._arbiter.view(lambda core: app_views.rows(core.ledger, core.config, core.fresh))

    def register_agent(self, app: str, *, by: str) -> dict[str, Any]:
        return self._arbiter.agents(lambda agents: agents.register(app, Requester(by)))

    def leave_agent(self, app: str, *, by: str) -> dict[str, Any]:
        return self._arbiter.agents(lambda agents: agents.leave(app, Requester(by)))

    def offer(self, app: str, *, by: str) -> dict[str, Any]:
        return self._arbiter.agents(lambda agents: agents.offer(app, Requester(by)))

    def agent_instance(self, app: str, *, by: str) -> str:
        _, snapshot = self._arbiter.agents(lambda agents: agents.picture(app, Requester(by)))
        return instance.to_text(snapshot)

    def bid(self, app: str, offer: int, rows: Sequence[Mapping[str, Any]], *, by: str) -> dict[str, Any]:
        return self._arbiter.agents(lambda agents: agents.bid(app, offer, rows, Requester(by)))

    def win(self, app: str, offer: int, *, by: str) -> dict[str, Any]:
        return self._arbiter.agents(lambda agents: agents.win(app, offer, Requester(by)))

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, specs: Sequence[JobSpec], *, by: str) -> list[JobId]:
        return list(self._arbiter.submit_many(specs, Requester(by)))

    def cancel(self, job: JobId, *, by: str, why: str) -> str:
        self._arbiter.cancel(job, Requester(by), why)
        row = watch.job(self._arbiter, job)
        return f"is {row.state} already" if row.ended_s is not None else "is being ended"

    def hold(self, job: JobId, *, by: str, why: str) -> str:
        self._arbiter.hold(job, Requester(by), why)
        return "is held"

    def unhold(self, job: JobId, *, by: str) -> str:
        self._arbiter.unhold(job, Requester(by))
        return "is not held"

    def set_mode(self, pool: str, mode: str, *, by: str) -> str:
        try:
            wanted = Mode(mode)
        except ValueError:
            modes = ", ".join(m.value for m in Mode)
            raise BadInput("is no mode", field="mode", value=mode, remedy=f"one of {modes}") from None
        self._arbiter.set_mode(pool, wanted, Requester(by))
        return f"mode is {wanted.value}"

    def release_all(self, *, by: str, why: str) -> str:
        jobs = self._arbiter.release_all(Requester(by))
        return f"{len(jobs)} job{'s are' if len(jobs) != 1 else ' is'} being handed back; mode is observe"


def _people(ledger: Ledger, events: Sequence[Event]) -> dict[str, dict[str, str]]:
    """Name, owner and tenant of the jobs that `events` are about."""
    named = {e.job for e in events if e.job is not None}
    return {
        job: {"name": r.spec.name, "owner": r.owner, "tenant": r.tenant}
        for job in named
        if (r := ledger.jobs.get(job)) is not None
    }


def _shown(event: Event) -> Mapping[str, Any]:
    """What an event carries, less what nobody reads: of a table of bids, how many rows it has."""
    return {**event.data, "rows": len(event.data["rows"])} if event.kind is Kind.BID else event.data
