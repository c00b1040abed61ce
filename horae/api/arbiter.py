"""The API's backend over a living arbiter. Rights are the arbiter's own affair
(`horae/arbiter/requests/authority.py`)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from horae import __version__, job_number
from horae.arbiter.core import Core
from horae.arbiter.modes import mode_of
from horae.arbiter.observe.budgets import over_text
from horae.arbiter.requests import answers, trial
from horae.arbiter.requests.authority import Requester
from horae.arbiter.requests.commands import NoSuchJob
from horae.arbiter.requests.trial import DryRun, Trials
from horae.arbiter.service import Arbiter
from horae.config import Mode
from horae.journal import Event, Kind, Ledger
from horae.journal.codec import plain
from horae.port import JobId, LogChunk, PortError
from horae.spec import JobSpec, launcher_of
from horae.views import apps as app_views
from horae.views import endings, jobs, rows, watch
from horae.views.cause import Cause
from horae.views.efficiency import efficiency
from horae.views.sentences import sentence
from horae.views.starts import OTHERWISE, StartEstimate
from policy.model import BadInput, Seconds
from policy.text import instance

#: Of a log's end, at most so many reads.
PARTS = 16
#: Ends of jobs that their output may explain.
_READ = ("failed", "completed")
_TWICE = (
    "{} starts ranks by itself, and what is handed in is started once a GPU: hand in `python ...` without it; each rank"
    " finds RANK, WORLD_SIZE and LOCAL_RANK as under torchrun"
)


class ArbiterBackend:
    """A `horae.api.backend.Backend`."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter, self._trials = arbiter, Trials()

    # --- questions ----------------------------------------------------------------------------------------

    def hides(self) -> tuple[str, ...]:
        return self._arbiter.hides()

    def about(self) -> answers.AboutArbiter:
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

    def status(self, *, ended: bool, losses: bool, starts: bool = False, brief: bool = False) -> answers.StatusAnswer:
        status, config, wall_s = watch.status(self._arbiter), self._arbiter.config, time.time()

        def look(core: Core) -> answers.HeldAnswer:
            ledger, now_s = core.ledger, core.now_s()
            if brief:
                lines = jobs.lines(ledger, now_s, ended=ended, modes=status.modes)
                rows = cast(list[answers.JobAnswer], lines)  # who asked for less has less
            else:
                rows = jobs.jobs(ledger, now_s, wall_s, core.fresh, ended=ended, losses=losses, modes=status.modes)
            if starts:
                by_pool = [watch.starts(core, pool.name) for pool in config.pools]
                soon = {job: start for found in by_pool for job, start in found.items()}
                for row in rows:
                    start = soon.get(row["id"])
                    row["start_s"] = None if start is None else wall_s + start.in_s
            away = core.view.away if core.view is not None else {}
            caps = core.view.observation.caps if core.view is not None else {}
            return {
                "jobs": rows,
                "nodes": jobs.nodes(status.nodes, status.pool_of, ledger, away, wall_s - now_s),
                "tenants": jobs.tenants(ledger, core.config, status.nodes, now_s, caps, core.budgets()),
            }

        pools: list[answers.PoolAnswer] = [
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
        alerts: list[answers.AlertAnswer] = [
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

    def _named(self, word: str) -> JobId:
        """The job that people call so. Raises NoSuchJob."""
        found = self._arbiter.view(lambda core: core.ledger.named(word))
        if found is None:
            raise NoSuchJob(word)
        return found

    def job(self, job: JobId) -> answers.JobAnswer:
        job = self._named(job)
        wall_s = time.time()

        def look(core: Core) -> answers.JobAnswer:
            modes = {pool.name: mode_of(core.ledger, pool) for pool in core.config.pools}
            return jobs.job(core.ledger.jobs[job], core.ledger, core.now_s(), wall_s, core.fresh, modes)

        return self._arbiter.view(look)

    def explain(self, job: JobId, *, reader: str | None = None) -> answers.ExplanationAnswer:
        job = self._named(job)
        found, about = watch.explain(self._arbiter, job), self.job(job)
        causes = list(found.causes)
        if reader is not None and about["state"] in _READ and (told := self._ending(job, about, reader)):
            causes.insert(1, told)
        names = self._arbiter.view(lambda core: _names(core.ledger, found.ahead))
        return {
            **about,
            "headline": found.headline,
            "target": None if found.target is None else dict(found.target),
            "causes": [plain(cause) for cause in causes],
            "ahead": list(found.ahead),
            "ahead_jobs": names,
            "policy": found.policy,
            "decided_ago_s": found.decided_ago_s,
        }

    def _ending(self, job: JobId, about: Mapping[str, Any], reader: str) -> Cause | None:
        """What the end of its output says; None where there is none, or it cannot be read now."""
        read = self._arbiter.view(lambda core: watch.read_to(core, job))
        try:
            end = self._tail(job, max(read - endings.LOOKED_AT, 0), reader)
            return endings.cause(end, about["exit_code"], job_number(job))
        except PortError:
            return None  # the log is gone, or the cluster away: the rest of the explanation stands

    def _tail(self, job: JobId, offset: int, reader: str) -> bytes:
        """The end of its output. `offset`: where to begin looking for it."""
        data = b""
        for _ in range(PARTS):
            chunk = self.log(job, offset, by=reader)
            data, offset = (data + chunk.data)[-endings.LOOKED_AT :], chunk.next_offset
            if chunk.eof or not chunk.data:
                break
        return data

    def history(
        self, *, job: JobId | None, after: int | None, since_s: Seconds | None, limit: int
    ) -> Iterator[dict[str, Any]]:
        if job is not None:
            job = self._named(job)
        begin_s = 0.0 if since_s is None else time.time() - since_s
        lots = self._arbiter.history_lots(job, after=after or 0, limit=limit, begin_s=begin_s)
        return (told for lot in lots for told in self._as_told(lot))

    def _as_told(self, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        ledger, people = self._arbiter.view(lambda core: (core.ledger, _people(core.ledger, events)))
        for event in events:
            yield {
                "seq": event.seq,
                "wall_s": event.wall_s,
                "kind": event.kind.value,
                "job": event.job,
                "pool": event.pool,
                **people.get(event.job or "", {"name": "", "owner": "", "tenant": ""}),
                "text": ledger.for_people(sentence(event)),  # which asks what ids there are, and no more
                "data": _shown(event),
            }

    def log(self, job: JobId, offset: int, *, by: str) -> LogChunk:
        return self._arbiter.read_log(self._named(job), offset, Requester(by))

    def snapshot(self, pool: str | None) -> str:
        names = [p.name for p in self._arbiter.config.pools]
        if pool is None and len(names) > 1:
            raise BadInput("there are several pools", field="pool", remedy=f"say one of {', '.join(names)}")
        return instance.to_text(self._arbiter.snapshot(pool or names[0]))

    def config(self) -> dict[str, Any]:
        return self._arbiter.config.model_dump(mode="json")

    # --- apps and their agents ----------------------------------------------------------------------------

    def apps(self) -> list[answers.App]:
        return self._arbiter.view(lambda core: app_views.rows(core.ledger, core.config, core.fresh))

    def register_agent(self, app: str, *, by: str) -> answers.Registered:
        return self._arbiter.agents(lambda agents: agents.register(app, Requester(by)))

    def leave_agent(self, app: str, *, by: str) -> answers.Left:
        return self._arbiter.agents(lambda agents: agents.leave(app, Requester(by)))

    def offer(self, app: str, *, by: str) -> answers.OfferTold:
        return self._arbiter.agents(lambda agents: agents.offer(app, Requester(by)))

    def agent_instance(self, app: str, *, by: str) -> str:
        _, snapshot = self._arbiter.agents(lambda agents: agents.picture(app, Requester(by)))
        return instance.to_text(snapshot)

    def bid(self, app: str, offer: int, bids: Sequence[Mapping[str, Any]], *, by: str) -> answers.Taken:
        return self._arbiter.agents(lambda agents: agents.bid(app, offer, bids, Requester(by)))

    def win(self, app: str, offer: int, *, by: str) -> answers.Win:
        return self._arbiter.agents(lambda agents: agents.win(app, offer, Requester(by)))

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, specs: Sequence[JobSpec], *, by: str) -> list[JobId]:
        return list(self._arbiter.submit_many(specs, Requester(by)))

    def dry_run(self, specs: Sequence[JobSpec], *, by: str) -> answers.DryRunAnswer:
        with self._trials.turn() as runner:
            prepared, soon = self._arbiter.view(lambda core: _prepared(core, specs, Requester(by)))
            found = trial.run(prepared, runner)
        for job in found["jobs"]:
            start = None if job["allocation"] or job["code"] in OTHERWISE else soon.get(job["id"])
            job["start_in_s"] = None if start is None else start.in_s
            job["start_after"] = [] if start is None else list(start.after)
        self._arbiter.view(lambda core: _for_people(core.ledger, found["jobs"]))
        names = self._arbiter.view(lambda core: {o["id"]: core.ledger.jobs[o["id"]].spec.name for o in found["others"]})
        for other in found["others"]:
            other["name"] = names[other["id"]]
        return cast(answers.DryRunAnswer, found)

    def report(self, job: JobId) -> answers.Report:
        job = self._named(job)
        events = self._arbiter.history(job=job)

        def look(core: Core) -> answers.Report:
            record = core.ledger.jobs[job]
            found = efficiency(record, events, core.now_s())
            row = rows.job_row(record, core.now_s())
            return {
                "id": job,
                "name": row.name,
                "tenant": row.tenant,
                "state": row.state,
                "held_gpu_s": found.held,
                "trained_gpu_s": found.trained,
                "restarting_gpu_s": found.restarting,
                "waited_s": found.waited_s,
                "starts": found.starts,
                "scaling": found.scaling,
                "whole": found.whole,
                "advice": found.advice,
            }

        return self._arbiter.view(look)

    def notes(self, jobs: Sequence[JobId]) -> list[str]:
        """What is to be said right away of jobs that were just taken: budgets of their tenants, ranks started twice."""

        def look(core: Core) -> list[str]:
            tenants = dict.fromkeys(core.ledger.jobs[job].tenant for job in jobs)
            over = {name: standing for name, standing in core.budgets().items() if standing.over}
            twice = dict.fromkeys(_launcher(core.ledger.jobs[job].spec) for job in jobs)
            return [
                *(over_text(name, over[name]) for name in tenants if name in over),
                *(_TWICE.format(launcher) for launcher in twice if launcher),
            ]

        return self._arbiter.view(look)

    def cancel(self, job: JobId, *, by: str, why: str) -> str:
        job = self._named(job)
        if self._arbiter.command(lambda commands: commands.cancel(job, Requester(by), why)):
            return "is being ended"  # or has ended by now: because of this, not already
        return f"is {watch.job(self._arbiter, job).state} already"

    def hold(self, job: JobId, *, by: str, why: str) -> str:
        job = self._named(job)
        self._arbiter.command(lambda commands: commands.hold(job, Requester(by), why))
        return self._told(job, "is held")

    def unhold(self, job: JobId, *, by: str) -> str:
        job = self._named(job)
        self._arbiter.command(lambda commands: commands.unhold(job, Requester(by)))
        return self._told(job, "is not held")

    def prioritise(self, job: JobId, *, priority: int, across: bool, by: str) -> str:
        job = self._named(job)
        self._arbiter.command(lambda commands: commands.prioritise(job, priority, Requester(by), across=across))
        place = f"precedence is {priority}, among all" if across else f"priority is {priority}, among its tenant's"
        return self._told(job, f"{place} jobs")

    def _told(self, job: JobId, text: str) -> str:
        """`text`, or of a job that is over that it is: nothing became of what was asked."""
        row = watch.job(self._arbiter, job)
        return text if row.ended_s is None else f"is {row.state} already"

    def mode(self, pool: str, mode: str, *, by: str) -> str:
        try:
            wanted = Mode(mode)
        except ValueError:
            modes = ", ".join(m.value for m in Mode)
            raise BadInput("is no mode", field="mode", value=mode, remedy=f"one of {modes}") from None
        self._arbiter.command(lambda commands: commands.set_mode(pool, wanted, Requester(by)))
        return f"mode is {wanted.value}"

    def release_all(self, *, by: str, why: str) -> str:
        jobs = self._arbiter.command(lambda commands: commands.release_all(Requester(by)))
        return f"{len(jobs)} job{'s are' if len(jobs) != 1 else ' is'} being handed back; mode is observe"


def _launcher(spec: JobSpec) -> str:
    """What starts ranks in each of a job's workers; "": nothing does, or it has one worker, or says how many."""
    return launcher_of(spec.command) if spec.workers is None and spec.gpus.max != 1 else ""


def _prepared(core: Core, specs: Sequence[JobSpec], caller: Requester) -> tuple[DryRun, dict[JobId, StartEstimate]]:
    prepared = trial.prepare(core, specs, caller)
    return prepared, watch.starts(core, prepared.pool, prepared.records)


def _for_people(ledger: Ledger, tried: Sequence[dict[str, Any]]) -> None:
    for job in tried:
        job |= {key: ledger.for_people(job[key]) for key in ("why", "change")}


def _names(ledger: Ledger, jobs: Sequence[JobId]) -> list[answers.JobAhead]:
    found = [ledger.jobs[job] for job in jobs if job in ledger.jobs]
    return [{"id": r.id, "name": r.spec.name, "tenant": r.tenant} for r in found]


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
    rows = event.data.get("rows")
    return {**event.data, "rows": len(rows)} if isinstance(rows, list) and event.kind is Kind.BID else event.data
